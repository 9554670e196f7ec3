"""An agent of a demo's own: `coord agent -dev` on a loopback address where nobody else is, with data that goes with it."""
import http.client, json, os, random, shutil, socket, subprocess, sys, tempfile, time

PROGRAM = os.environ.get("COORD_BIN") or shutil.which("coord") or "build/coord"  # what --coord is unless it is said


def free_address():
    while True:
        ip = "127.%d.%d.%d" % (random.randint(100, 199), random.randint(1, 254), random.randint(2, 254))
        try:
            for port in (8500, 8600, 8300):
                with socket.socket() as s:
                    s.bind((ip, port))
            return ip
        except OSError:
            continue


def request(ip, method, path, body=None):
    c = http.client.HTTPConnection(ip, 8500, timeout=60)
    try:
        c.request(method, path, body)
        answer = c.getresponse()
        return answer.status, answer.read().decode()
    finally:
        c.close()


class Agent:
    def __init__(self, program, **settings):
        self.ip, self.folder = free_address(), tempfile.mkdtemp(prefix="demo-")
        file = os.path.join(self.folder, "settings.json")
        with open(file, "w") as f:
            json.dump(settings, f)
        self.process = subprocess.Popen(
            [program, "agent", "-dev", "-bind=" + self.ip, "-client=" + self.ip, "-config-file=" + file],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                if json.loads(request(self.ip, "GET", "/v1/status/leader")[1]):
                    return
            except (OSError, ValueError):
                if self.process.poll() is not None:
                    sys.exit("the agent has ended")
            time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
