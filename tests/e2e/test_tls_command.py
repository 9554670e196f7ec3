"""`coord tls`: its files are Consul's in name and meaning, and openssl, curl and Python take them."""
import atexit, functools, http.server, os, re, shutil, socket, ssl, stat, subprocess, tempfile, threading
from coordtest import COORD, check, run

FOLDER = tempfile.mkdtemp(prefix="coord-e2e-tls-")


def coord(*args, folder=FOLDER, umask=0o022):
    r = subprocess.run([COORD, "tls", *args], cwd=folder, capture_output=True, text=True, timeout=60, umask=umask)
    return r.returncode, r.stdout, r.stderr


def made(*args, **more):
    code, out, err = coord(*args, **more)
    check(code == 0 and err == "", "tls %s: %d %r %r" % (" ".join(args), code, out, err))
    return out


def refused(wanted, *args, **more):
    before = sorted(os.listdir(more.get("folder", FOLDER)))
    code, out, err = coord(*args, **more)
    check(code in (1, 2) and err.count("\n") == 1 and wanted in err, "tls %s: %d %r %r" % (" ".join(args), code, out, err))
    check(sorted(os.listdir(more.get("folder", FOLDER))) == before, "nothing was written")


def openssl(*args, folder=FOLDER):
    return subprocess.run(["openssl", *args], cwd=folder, capture_output=True, text=True, timeout=60)


def verified(certificate, *args, ca="coord-agent-ca.pem", folder=FOLDER):
    return openssl("verify", "-x509_strict", "-check_ss_sig", *args, "-CAfile", ca, certificate, folder=folder)


def takes(certificate, *args, **more):
    r = verified(certificate, *args, **more)
    check(r.returncode == 0 and r.stdout == certificate + ": OK\n", "%s %s: %s %s" % (certificate, args, r.stdout, r.stderr))


def text_of(certificate, folder=FOLDER):
    return openssl("x509", "-in", certificate, "-noout", "-text", "-nameopt", "RFC2253", folder=folder).stdout


def names_of(certificate, folder=FOLDER):
    found = re.search(r"Subject Alternative Name: *\n *(.*)", text_of(certificate, folder))
    return found.group(1).split(", ") if found else []


def mode(name, folder=FOLDER):
    return stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)


def days(certificate):
    dates = openssl("x509", "-in", certificate, "-noout", "-dates").stdout
    begin, end = (ssl.cert_time_to_seconds(line.split("=")[1]) for line in dates.strip().splitlines())
    return (end - begin) / 86400


@functools.cache  # the stories after it use its files
def files():
    check(made("ca", "create") == "==> Saved coord-agent-ca.pem\n==> Saved coord-agent-ca-key.pem\n", "the CA's files")
    takes("coord-agent-ca.pem")
    text = text_of("coord-agent-ca.pem")
    check("CA:TRUE" in text and "Certificate Sign" in text and "prime256v1" in text, "a CA: %s" % text)
    check(1825 <= days("coord-agent-ca.pem") < 1825.1, "five years")
    out = made("cert", "create", "-server", "-node=n1", "-additional-dnsname=x.example", "-additional-ipaddress=10.0.0.9",
               "-additional-ipaddress=fd00::9")
    check(out.startswith("==> WARNING: ") and out.endswith("==> Using coord-agent-ca.pem and coord-agent-ca-key.pem\n"
          "==> Saved dc1-server-coord-0.pem\n==> Saved dc1-server-coord-0-key.pem\n"), "a server's: %r" % out)
    check(names_of("dc1-server-coord-0.pem") == ["DNS:x.example", "DNS:n1.server.dc1.coord", "DNS:server.dc1.coord", "DNS:localhost",
          "IP Address:10.0.0.9", "IP Address:FD00:0:0:0:0:0:0:9", "IP Address:127.0.0.1"], "%s" % names_of("dc1-server-coord-0.pem"))
    check(365 <= days("dc1-server-coord-0.pem") < 365.1, "a year")
    made("cert", "create", "-server", "--dc", "eu", "-days", "7")
    check(names_of("eu-server-coord-0.pem") == ["DNS:server.eu.coord", "DNS:localhost", "IP Address:127.0.0.1"], "a datacenter")
    check(7 <= days("eu-server-coord-0.pem") < 7.1, "a week")
    for number in range(2):
        out = made("cert", "create", "-client")
        check(out == "==> Using coord-agent-ca.pem and coord-agent-ca-key.pem\n==> Saved dc1-client-coord-%d.pem\n"
              "==> Saved dc1-client-coord-%d-key.pem\n" % (number, number), "the next number: %r" % out)
    made("cert", "create", "-cli")
    check(names_of("dc1-cli-coord-0.pem") == ["DNS:cli.dc1.coord", "DNS:localhost"], "of the command line")
    for name in os.listdir(FOLDER):
        check(mode(name) == (0o600 if name.endswith("-key.pem") else 0o644), "%s: %o" % (name, mode(name)))
    for kind, server, client in (("server", True, True), ("client", True, True), ("cli", False, True)):
        name = "dc1-%s-coord-0.pem" % kind
        for purpose, right in (("sslserver", server), ("sslclient", client)):
            r = verified(name, "-purpose", purpose)
            check((r.returncode == 0) == right, "%s as %s: %s" % (name, purpose, r.stderr))
    takes("dc1-server-coord-0.pem", "-verify_hostname", "server.dc1.coord")
    takes("dc1-server-coord-0.pem", "-verify_ip", "fd00::9")
    serials = {openssl("x509", "-in", n, "-noout", "-serial").stdout for n in os.listdir(FOLDER) if not n.endswith("-key.pem")}
    check(len(serials) == len([n for n in os.listdir(FOLDER) if not n.endswith("-key.pem")]), "each has a serial of its own")


def everything_as_consul_calls_it():
    files()


def nothing_is_overwritten():
    files()
    refused("coord-agent-ca-key.pem: it is there already, and stays as it is", "ca", "create")
    with tempfile.TemporaryDirectory() as d:
        open(os.path.join(d, "coord-agent-ca.pem"), "w").close()
        refused("coord-agent-ca.pem: it is there already", "ca", "create", folder=d)
        os.unlink(os.path.join(d, "coord-agent-ca.pem"))
        os.symlink("/nonexistent/x", os.path.join(d, "coord-agent-ca.pem"))
        refused("coord-agent-ca.pem: it is there already", "ca", "create", folder=d)
    # Half a pair of that number is there: the next number is taken.
    for name in ("dc1-cli-coord-1.pem", "dc1-cli-coord-2-key.pem"):
        open(os.path.join(FOLDER, name), "w").close()
    check("dc1-cli-coord-3.pem" in made("cert", "create", "-cli"), "a free number")


def mistakes_are_told():
    files()
    refused("one of -server, -client and -cli is wanted", "cert", "create")
    refused("one of -server, -client and -cli is wanted", "cert", "create", "-server", "-cli")
    refused("-node wants -server", "cert", "create", "-client", "-node=a")
    refused("-days: it is a number from 1 to 36500", "cert", "create", "-client", "-days=0")
    refused("-days: it is a number from 1 to 36500", "ca", "create", "-domain=x", "-days=36501")
    refused('-dc: "../x" cannot be part of a DNS name', "cert", "create", "-client", "-dc=../x")
    refused('-domain: "a/b" cannot be part of a DNS name', "ca", "create", "-domain=a/b")
    refused('"a b" is no DNS name', "cert", "create", "-client", "-additional-dnsname=a b")
    refused('"10.0.0.256" is no IP address', "cert", "create", "-client", "-additional-ipaddress=10.0.0.256")
    refused("none.pem: No such file or directory", "cert", "create", "-client", "-ca=none.pem")
    refused("none.pem: No such file or directory", "cert", "create", "-client", "-key=none.pem")
    refused("the CA: the private key belongs to another certificate", "cert", "create", "-client", "-key=dc1-server-coord-0-key.pem")
    refused("the issuer's certificate is not that of a CA", "cert", "create", "-client", "-ca=dc1-server-coord-0.pem",
            "-key=dc1-server-coord-0-key.pem")
    refused("-additional-name-constraint wants -name-constraint", "ca", "create", "-domain=x", "-additional-name-constraint=y")
    os.chmod(os.path.join(FOLDER, "coord-agent-ca-key.pem"), 0o644)
    refused("coord-agent-ca-key.pem: others than its owner may read or write it (mode 0644): chmod 600 coord-agent-ca-key.pem",
            "cert", "create", "-client")
    os.chmod(os.path.join(FOLDER, "coord-agent-ca-key.pem"), 0o600)


def a_ca_that_is_bound_to_names():
    with tempfile.TemporaryDirectory() as d:
        made("ca", "create", "-domain=corp", "-name-constraint", "-additional-name-constraint=ui.example", "-common-name=Corp CA",
             "-cluster-id=c1", folder=d)
        text = text_of("corp-agent-ca.pem", d)
        check(re.search(r"Name Constraints: critical\s+Permitted:\s+DNS:corp\s+DNS:localhost\s+DNS:ui.example", text), text)
        check("Subject: CN=Corp CA" in text and names_of("corp-agent-ca.pem", d) == ["URI:spiffe://c1.corp"], text)
        made("cert", "create", "-server", "-domain=corp", "-additional-dnsname=x.ui.example", folder=d)
        takes("dc1-server-corp-0.pem", ca="corp-agent-ca.pem", folder=d)
        refused("the CA may not sign one of its DNS names (name constraints)", "cert", "create", "-server", "-domain=corp",
                "-additional-dnsname=other.example", folder=d)
        made("ca", "create", "-domain=short", "-days=3", folder=d)
        out = made("cert", "create", "-client", "-domain=short", folder=d)
        check(re.search(r"==> It is valid until its CA ends, \d{4}-\d\d-\d\d, ", out), out)


def an_own_ca_of_another_kind():
    """A company's, made by openssl: RSA, a key in PKCS #8, and an intermediate."""
    with tempfile.TemporaryDirectory() as d:
        r = openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "ca.pem", "-subj", "/CN=Company",
                    "-days", "30", "-addext", "keyUsage=critical,keyCertSign", folder=d)
        check(r.returncode == 0, r.stderr)
        os.chmod(os.path.join(d, "key.pem"), 0o600)
        made("cert", "create", "-server", "-ca=ca.pem", "-key=key.pem", "-days=7", folder=d)
        takes("dc1-server-coord-0.pem", ca="ca.pem", folder=d)


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *args):
        pass


def curl_and_python_take_them():
    if not shutil.which("curl"):
        return
    files()
    server = http.server.HTTPServer(("127.0.0.1", 0), Hello)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER + "/dc1-server-coord-0.pem", FOLDER + "/dc1-server-coord-0-key.pem")
    context.load_verify_locations(FOLDER + "/coord-agent-ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]

    def curl(host, *args):
        return subprocess.run(["curl", "-sS", "--max-time", "20", "--cacert", "coord-agent-ca.pem", "--resolve", "server.dc1.coord:%d:127.0.0.1" % port,
                               "--resolve", "other.example:%d:127.0.0.1" % port, *args, "https://%s:%d/" % (host, port)],
                              cwd=FOLDER, capture_output=True, text=True, timeout=60)
    for kind in ("cli", "client", "server"):
        mine = ("--cert", "dc1-%s-coord-0.pem" % kind, "--key", "dc1-%s-coord-0-key.pem" % kind)
        for host in ("localhost", "127.0.0.1", "server.dc1.coord"):
            r = curl(host, *mine)
            check(r.returncode == 0 and r.stdout == "hello\n", "%s as %s: %d %s" % (host, kind, r.returncode, r.stderr))
    check(curl("other.example", *mine).returncode == 60, "a name that it has not")
    check(curl("localhost").returncode != 0, "without a certificate")
    server.shutdown()
    server.server_close()


def consul_takes_them():
    """The real one, where it is installed: its files are ours to use, and ours are its."""
    consul = shutil.which("consul") or "/tmp/peers/root/usr/bin/consul"
    if not os.access(consul, os.X_OK):
        return
    with tempfile.TemporaryDirectory() as d:
        def consul_made(*args):
            r = subprocess.run([consul, "tls", *args], cwd=d, capture_output=True, text=True, timeout=60)
            check(r.returncode == 0, "consul tls %s: %s" % (args, r.stderr))
            return r.stdout
        consul_made("ca", "create")
        os.chmod(os.path.join(d, "consul-agent-ca-key.pem"), 0o600)
        made("cert", "create", "-server", "-domain=consul", folder=d)
        takes("dc1-server-consul-0.pem", ca="consul-agent-ca.pem", folder=d)
        made("ca", "create", folder=d)
        consul_made("cert", "create", "-server", "-domain=coord")
        r = openssl("verify", "-CAfile", "coord-agent-ca.pem", "dc1-server-coord-0.pem", folder=d)
        check(r.returncode == 0, "signed by Consul with our CA: %s %s" % (r.stdout, r.stderr))
        made("cert", "create", "-server", "-domain=consul", folder=d)
        consul_made("cert", "create", "-server")
        ours, its = ("dc1-server-consul-%d.pem" % number for number in (1, 2))
        check(names_of(ours, d) == names_of(its, d), "the names are the same: %s %s" % (names_of(ours, d), names_of(its, d)))


if __name__ == "__main__":
    if not shutil.which("openssl"):
        raise SystemExit(77)
    atexit.register(shutil.rmtree, FOLDER)
    run([everything_as_consul_calls_it, nothing_is_overwritten, mistakes_are_told, a_ca_that_is_bound_to_names, an_own_ca_of_another_kind,
         curl_and_python_take_them, consul_takes_them])
