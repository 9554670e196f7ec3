"""HAProxy finds its backends by SRV records of a client agent: on all hosts, those that are well, with no server to ask as well.

Needs haproxy (its path in COORD_HAPROXY).
"""
import atexit, glob, http.client, http.server, os, shutil, subprocess, sys, tempfile, threading, time
from coordtest import Cluster, check, run, until

HAPROXY = os.environ.get("COORD_HAPROXY") or shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")

SETTINGS = """
defaults
  mode http
  timeout connect 1s
  timeout client 5s
  timeout server 5s
resolvers agent
  nameserver agent %(agent)s:8600
  accepted_payload_size 8192
  timeout resolve 300ms
  timeout retry 300ms
  hold valid 300ms
  hold obsolete 0s
  hold nx 300ms
  hold timeout 300ms
  hold refused 300ms
  hold other 300ms
frontend in
  bind %(agent)s:8080
  default_backend web
backend web
  balance roundrobin
  option redispatch
  server-template web 5 _web._tcp.service.coord resolvers agent resolve-prefer ipv4 init-addr none
"""


class Backend:
    """Answers with its own name; its health is what it is told."""

    def __init__(self, agent, name):
        owner = self
        self.healthy = True

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if owner.healthy or self.path != "/health" else 503)
                self.send_header("Content-Length", str(len(name)))
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *a):
                pass
        self.server = http.server.ThreadingHTTPServer((agent.ip, 0), Handler)
        port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        agent.put("/v1/agent/service/register", {
            "ID": name, "Name": "web", "Address": agent.ip, "Port": port,
            "Check": {"HTTP": "http://%s:%d/health" % (agent.ip, port), "Interval": "200ms", "Status": "passing"}})


class HAProxy:
    def __init__(self, agent):
        self.ip = agent.ip
        self.dir = tempfile.mkdtemp(prefix="coord-haproxy-")
        path = os.path.join(self.dir, "haproxy.cfg")
        with open(path, "w") as f:
            f.write(SETTINGS % {"agent": agent.ip})
        env = dict(os.environ)
        beside = glob.glob(os.path.join(os.path.dirname(HAPROXY), "../lib/*-linux-gnu"))        # an unpacked package
        if beside and not HAPROXY.startswith("/usr/"):
            env["LD_LIBRARY_PATH"] = ":".join(map(os.path.abspath, beside))
        with open(os.path.join(self.dir, "log"), "wb") as log:
            self.proc = subprocess.Popen([HAPROXY, "-db", "-f", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        atexit.register(self.cleanup)

    def cleanup(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def log(self):
        with open(os.path.join(self.dir, "log")) as f:
            return f.read()

    def ask(self):
        check(self.proc.poll() is None, "HAProxy ended: " + self.log()[-2000:])
        c = http.client.HTTPConnection(self.ip, 8080, timeout=10)
        try:
            c.request("GET", "/")
            r = c.getresponse()
            text = r.read().decode()
            return text if r.status == 200 else r.status
        except OSError as e:
            return str(e)
        finally:
            c.close()

    def who(self):
        """Who answers ten requests."""
        return {self.ask() for _ in range(10)}


def backends_by_srv():
    cluster = Cluster(3).start()
    one, two = cluster.agent("one").start(), cluster.agent("two").start()
    first, second = Backend(one, "first"), Backend(two, "second")
    proxy = HAProxy(one)
    until("both are found", lambda: proxy.who() == {"first", "second"}, 15)
    second.healthy = False
    until("who is critical is left out", lambda: proxy.who() == {"first"}, 15)
    second.healthy = True
    third = Backend(two, "third")
    everyone = {"first", "second", "third"}
    until("who is well again comes back, and who is new comes in", lambda: proxy.who() == everyone, 15)
    for server in cluster.servers:
        server.kill()
    until("the agent knows", lambda: one.request("GET", "/v1/status/leader")[0] == 500 or "no server can be reached" in one.log(), 15)
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < 3:        # ten times as long as HAProxy holds what is not answered again
        who, count = proxy.who(), count + 1
        check(who == everyone, "round %d without any server: %r" % (count, who))
    for server in cluster.servers:
        server.start(wait=False)
    cluster.leader(30)
    two.put("/v1/agent/service/deregister/third")
    until("it follows again", lambda: proxy.who() == {"first", "second"}, 30)


if __name__ == "__main__":
    if not HAPROXY or not os.path.exists(HAPROXY):
        print("skipped: no haproxy program (COORD_HAPROXY)")
        sys.exit(77)
    run([backends_by_srv])
