"""JSON Web Tokens for auth methods, signed by openssl with an RSA key of this process."""
import atexit, base64, json, os, shutil, subprocess, tempfile

KEYS = tempfile.mkdtemp(prefix="coord-e2e-")
atexit.register(shutil.rmtree, KEYS)
PRIVATE = os.path.join(KEYS, "key")
subprocess.run(["openssl", "genrsa", "-out", PRIVATE, "2048"], check=True, capture_output=True)
PUBLIC = subprocess.run(["openssl", "rsa", "-in", PRIVATE, "-pubout"], check=True, capture_output=True, text=True).stdout       # PEM


def web_token(**claims):
    """A signed one."""
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")
    signed = part(json.dumps({"alg": "RS256", "typ": "JWT"}).encode()) + b"." + part(json.dumps(claims).encode())
    signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", PRIVATE], input=signed, check=True, capture_output=True).stdout
    return (signed + b"." + part(signature)).decode()
