"""Runs the real program for end-to-end tests. Standard library only.

Every agent gets a loopback address of its own (127.x.y.z with the default ports), so that suites can run
side by side. Tests poll conditions with a deadline; nothing sleeps and hopes.
"""
import atexit, collections, errno, json, os, random, re, resource, shutil, signal, socket, subprocess, sys, tempfile, threading, time, traceback
import http.client, urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lib"))
from pace import CONFESSIONS, FIGURES, Late, MULTIPLIER, SLOW, STANDSTILL, server_arguments, undecided

COORD = os.environ.get("COORD_BIN") or os.path.join(HERE, "../../build/coord")
AGENTS = []       # all that were made


def free_address():
    """A loopback address on which nobody listens at our ports."""
    for _ in range(200):
        ip = "127.%d.%d.%d" % (random.randint(100, 199), random.randint(1, 254), random.randint(2, 254))
        try:
            for port, kind in ((8500, socket.SOCK_STREAM), (8600, socket.SOCK_STREAM), (8600, socket.SOCK_DGRAM), (8300, socket.SOCK_STREAM)):
                with socket.socket(socket.AF_INET, kind) as s:
                    s.bind((ip, port))
            return ip
        except OSError as e:
            if e.errno != errno.EADDRINUSE:
                raise
    raise RuntimeError("no free loopback address")


def until(what, condition, within=10.0, every=0.02):
    """Polls `condition` until it is true; returns its value."""
    limit = within * SLOW + STANDSTILL
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Late("not within %.1f s: %s (last: %r)" % (limit, what, value))
        time.sleep(every)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def configuration(**keys):
    """-config-file=, with these keys."""
    handle, path = tempfile.mkstemp(prefix="coord-e2e-", suffix=".json")
    with os.fdopen(handle, "w") as f:
        json.dump(keys, f)
    atexit.register(os.remove, path)
    return "-config-file=" + path


def settings(**keys):
    """The same, with keys of "coord"."""
    return configuration(coord=keys)


Record = collections.namedtuple("Record", "owner type data")
Answer = collections.namedtuple("Answer", "status flags answer authority additional")


def ask(ip, port, name, rtype="A"):
    """What a DNS server says, by dig. An answer that did not come has the status ""."""
    r = subprocess.run(["dig", "@" + ip, "-p", str(port), "+tries=2", "+time=10", "+nocookie", name, rtype], capture_output=True, text=True)
    sections, lines = {}, []
    for line in r.stdout.splitlines():
        if line.startswith(";; ") and line.endswith(" SECTION:"):
            lines = sections.setdefault(line[3:-9], [])
        elif line and not line.startswith(";"):
            owner, _, _, kind, data = line.split(None, 4)
            lines.append(Record(owner, kind, data))
    head = re.search(r"status: (\w+)", r.stdout)
    flags = re.search(r"flags: ([a-z ]*);", r.stdout)
    return Answer(head.group(1) if head else "", flags.group(1).split() if flags else [], *(sections.get(s, []) for s in ("ANSWER", "AUTHORITY", "ADDITIONAL")))


class Agent:
    """One `coord agent`. Its data folder outlives kill() and stop()."""

    def __init__(self, *args, server=True, dev=False, ip=None, name="n1"):
        self.ip = ip or free_address()
        self.dir = tempfile.mkdtemp(prefix="coord-e2e-")
        self.data = os.path.join(self.dir, "data")
        self.log_path = os.path.join(self.dir, "log")
        self.name = name
        self.args = list(args)
        self.dev, self.server = dev, server
        self.environment = None          # more variables
        self.management = None           # the token of requests and commands that name none
        self.proc = None
        AGENTS.append(self)
        atexit.register(self.cleanup)

    def argv(self):
        a = [COORD, "agent", "-node=" + self.name, "-bind=" + self.ip, "-client=" + self.ip]
        a += ["-dev"] if self.dev else ["-data-dir=" + self.data]
        if self.server and not self.dev:
            a += ["-server", "-bootstrap-expect=1"]
        return a + server_arguments(self.dir) + self.args

    def start(self, wait=True):
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ, **(self.environment or {})))
        if wait:
            self.wait_leader()
        return self

    def wait_leader(self, within=15):
        def ready():
            if self.proc.poll() is not None:
                raise AssertionError("coord exited with %s:\n%s" % (self.proc.returncode, self.log()[-3000:]))
            try:
                if json.loads(self.request("GET", "/v1/status/leader", timeout=2)[2]) == "":
                    return False
                return any(n["Node"] == self.name for n in self.get("/v1/catalog/nodes?stale", timeout=2)[2])
            except (OSError, ValueError):          # an error is a line of text
                return False
        until("a leader", ready, within)
        return self

    def log(self):
        with open(self.log_path, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def confessed(self):
        """It reported a fault (pace.CONFESSIONS): one that was killed later cannot say so by its exit code."""
        return os.path.exists(self.log_path) and any(word in self.log() for word in CONFESSIONS)

    def kill(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    def stop(self, sig=signal.SIGTERM, within=10):
        """Ends it cleanly; returns (exit code, seconds)."""
        begun = time.monotonic()
        self.proc.send_signal(sig)
        code = self.proc.wait(within * SLOW + STANDSTILL)
        return code, time.monotonic() - begun

    def cleanup(self):
        if self.proc and self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(10 * SLOW + STANDSTILL)
            except subprocess.TimeoutExpired:
                self.kill()
                print("coord did not stop in time", file=sys.stderr)
        shutil.rmtree(self.dir, ignore_errors=True)

    # -- talking to it ---------------------------------------------------------------------------
    def request(self, method, path, body=None, timeout=30, headers=None):
        c = http.client.HTTPConnection(self.ip, 8500, timeout=timeout)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            c.request(method, path, body=body, headers=dict(self.by(), **(headers or {})))
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def by(self):
        """The header of its token."""
        return {"X-Consul-Token": self.management} if self.management else {}

    def coord(self, *args, code=0):
        """A command of the program, asking this agent: all that it says."""
        env = dict(os.environ, COORD_HTTP_ADDR="%s:8500" % self.ip, **({"COORD_HTTP_TOKEN": self.management} if self.management else {}))
        r = subprocess.run([COORD, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW, env=env)
        check(r.returncode == code, "coord %s: exit %d: %s" % (" ".join(args), r.returncode, r.stdout + r.stderr))
        return r.stdout + r.stderr

    def get(self, path, **kw):
        status, headers, body = self.request("GET", path, **kw)
        return status, headers, json.loads(body) if body else None

    def put(self, path, body=b"", expect=200, **kw):
        status, _, answer = self.request("PUT", path, body, **kw)
        if undecided(status, answer) and expect == 200 and path.startswith("/v1/kv/") and "?" not in path:
            return self.settle(path, body, **kw)
        check(status == expect, "PUT %s: %d %r" % (path, status, answer))
        return answer

    def settle(self, path, body, **kw):
        """A plain write of a key was undecided: a confirmed read tells whether it was done. If not, it is done again, which is the same for
        the only writer of a key."""
        body = body.encode() if isinstance(body, str) else body

        def read():
            status, _, value = self.request("GET", path + "?raw", **kw)
            return (status, value) if status in (200, 404) else None
        for _ in range(5):
            there = until("a confirmed read of " + path, read) == (200, body)
            print("     PUT %s: undecided; it was %s" % (path, "done" if there else "not done"), flush=True)
            if there:
                return b"true"
            status, _, answer = self.request("PUT", path, body, **kw)
            check(status == 200 or undecided(status, answer), "PUT %s again: %d %r" % (path, status, answer))
        raise AssertionError("PUT %s: undecided again and again" % path)

    def raw(self, data, timeout=5, half_close=False):
        """Sends bytes as they are, reads until the other side closes or nothing more comes for so long."""
        with socket.create_connection((self.ip, 8500), timeout=timeout if half_close else timeout * SLOW + STANDSTILL) as s:
            try:
                s.sendall(data)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            out = b""
            try:
                while True:
                    block = s.recv(65536)
                    if not block:
                        return out
                    out += block
                    s.settimeout(timeout * SLOW)
            except (socket.timeout, ConnectionError):
                return out

    def dig(self, name, rtype="A", *options):
        """dig's own words; tests look at sections of it."""
        r = subprocess.run(["dig", "@" + self.ip, "-p", "8600", "+tries=2", "+time=10", name, rtype, *options], capture_output=True, text=True)
        return r.stdout

    def dig_short(self, name, rtype="A", *options):
        return [l for l in self.dig(name, rtype, "+short", *options).splitlines() if l and not l.startswith(";")]

    def ask(self, name, rtype="A"):
        """The same, taken apart."""
        return ask(self.ip, 8600, name, rtype)

    def rss_kib(self, what="VmRSS"):
        """RssAnon: without pages of files, of which the store's file has more the busier the machine is."""
        with open("/proc/%d/status" % self.proc.pid) as f:
            return next(int(l.split()[1]) for l in f if l.startswith(what + ":"))

    def fd_count(self):
        return len(os.listdir("/proc/%d/fd" % self.proc.pid))

    def cpu_seconds(self):
        with open("/proc/%d/stat" % self.proc.pid) as f:
            p = f.read().rsplit(")", 1)[1].split()
        return (int(p[11]) + int(p[12])) / os.sysconf("SC_CLK_TCK")


class Cluster:
    """Servers that join each other."""

    def __init__(self, servers=3, *args):
        addresses = [free_address() for _ in range(servers)]
        self.servers = []
        for i, ip in enumerate(addresses):
            joins = ["-retry-join=" + other for other in addresses if other != ip]
            agent = Agent("-server", "-bootstrap-expect=%d" % servers, *joins, *args, server=False, ip=ip, name="s%d" % (i + 1))
            self.servers.append(agent)

    def start(self):
        for agent in self.servers:
            agent.start(wait=False)
        for agent in self.servers:
            agent.wait_leader(30)
        return self

    def agent(self, name, *args, **kw):
        """A client agent of this cluster, not started yet."""
        return Agent(*["-retry-join=" + s.ip for s in self.servers], *args, server=False, name=name, **kw)

    def leader(self, within=15):
        def leader():
            for agent in self.servers:
                if agent.proc is None or agent.proc.poll() is not None:
                    continue
                try:
                    named = json.loads(agent.request("GET", "/v1/status/leader", timeout=2)[2])
                except (OSError, ValueError):
                    continue
                for other in self.servers:
                    if named.startswith(other.ip + ":"):
                        return other
            return None
        return until("a leader", leader, within)

    def followers(self):
        leader = self.leader()
        return [agent for agent in self.servers if agent is not leader]


def together(*stories):
    """Runs stories that wait most of the time side by side; fails with what failed in any of them."""
    failed = []

    def tell(story):
        try:
            story()
        except BaseException:
            failed.append("%s: %s" % (story.__name__, traceback.format_exc()))
    threads = [threading.Thread(target=tell, args=(s,)) for s in stories]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(not failed, "\n".join(failed))


def cpu():
    """Seconds of CPU of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def told(test):
    """Runs a story. Returns whether it went well."""
    begun, used = time.monotonic(), cpu()
    try:
        test()
        check(not any(agent.confessed() for agent in AGENTS), "a process reported a fault")
    except Exception:
        print("FAIL %s (%.1f s)" % (test.__name__, time.monotonic() - begun), flush=True)
        traceback.print_exc()
        return False
    print("ok   %s (%.1f s, CPU %.1f s)" % (test.__name__, time.monotonic() - begun, cpu() - used), flush=True)
    return True


def run(tests):
    """Runs the stories one after another: those that the command line names; or all, without those that it names with a "-" before. Any failure
    is the whole script's."""
    wanted = {word for word in sys.argv[1:] if word[0] != "-"}
    without = {word[1:] for word in sys.argv[1:] if word[0] == "-"}
    unknown = (wanted | without) - {test.__name__ for test in tests}
    if unknown:
        raise SystemExit("no such story: " + ", ".join(sorted(unknown)))
    results = [told(test) for test in tests if (not wanted or test.__name__ in wanted) and test.__name__ not in without]
    sys.exit(0 if all(results) else 1)
