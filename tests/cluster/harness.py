"""Small clusters of the real program, and ways to hurt them. Standard library only.

A run that may make network namespaces gets a hub (a namespace of this process's own) that routes between one namespace
for each server: what a server sends to another can then be dropped, one way or both. All names carry the process id, and
addresses live in the hub only, so runs go side by side. Where namespaces are not allowed servers get loopback
addresses of their own and nothing can be cut.
"""
import atexit, ctypes, http.client, json, os, random, re, resource, shutil, signal, socket, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lib"))
from pace import CONFESSIONS, DISK, FIGURES, Late, MULTIPLIER, SLOW, STANDSTILL, server_arguments, undecided

COORD = os.environ.get("COORD_BIN") or os.path.join(HERE, "../../build/coord")
PREFIX = "coordw"
with open(os.path.join(HERE, "../../registry/machine.h")) as f:       # the newest cluster version of this program
    NEWEST = int(re.search(r"#define MACHINE_VERSION_NEWEST (\d+)", f.read()).group(1))
CLONE_NEWNET = 0x40000000


def skip(why):
    print("skipped: " + why, flush=True)
    sys.exit(77)


def ip(*words, check=True):
    r = subprocess.run(["ip", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if check and r.returncode != 0:
        raise RuntimeError("ip %s: %s" % (" ".join(words), r.stderr.strip()))
    return r.returncode == 0


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def until(what, condition, within=15.0):
    """Polls; what the condition gave at last."""
    limit = within * SLOW + STANDSTILL
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Late("not within %.0f s: %s" % (limit, what))
        time.sleep(0.05)


def kept(what, attempt, times=3):
    """A promise of time: `attempt` measures it anew and says what it took and the bound. Where figures are judged (pace.FIGURES), it is kept if one of so
    many attempts was: a machine stands still now and then, and a program that is too slow is so each time. Elsewhere it has to happen."""
    seen = []
    for _ in range(times):
        took, bound = attempt()
        seen.append(took)
        if took < bound or not FIGURES:
            return took
    raise AssertionError("%s: %s s, never within %.1f s" % (what, ", ".join("%.2f" % t for t in seen), bound))


# -- the hub ---------------------------------------------------------------------------------------------------------
def _sweep():
    """Namespaces of runs that were killed before they could tidy up."""
    try:
        names = os.listdir("/run/netns")
    except OSError:
        return
    for name in names:
        pid = name[len(PREFIX):].split(".")[0]
        if name.startswith(PREFIX) and pid.isdigit() and not os.path.exists("/proc/" + pid):
            ip("netns", "del", name, check=False)


class Hub:
    """The namespace this process moves into. Make it before the first thread."""
    one = None

    @classmethod
    def enter(cls):
        """The hub, or None with the reason on stdout when namespaces cannot be made."""
        if cls.one is None:
            try:
                cls.one = cls()
            except (OSError, RuntimeError) as e:
                print("no network namespaces (%s): loopback addresses, nothing is cut" % e, flush=True)
                return None
        return cls.one

    def __init__(self):
        if os.geteuid() != 0:
            raise OSError("not root")
        _sweep()
        self.name = "%s%d" % (PREFIX, os.getpid())
        self.owner = os.getpid()
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.made = []
        ip("netns", "add", self.name)
        self.made.append(self.name)
        atexit.register(self.remove)
        self._move("/run/netns/" + self.name)
        ip("link", "set", "lo", "up")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
            f.write("1")

    def _move(self, path_or_fd):
        fd = os.open(path_or_fd, os.O_RDONLY) if isinstance(path_or_fd, str) else path_or_fd
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        if isinstance(path_or_fd, str):
            os.close(fd)

    def plug(self, number):
        """A namespace for one server. Returns (its name, its address)."""
        name, veth, net = "%s.%d" % (self.name, number), "h%d" % number, "10.77.%d." % number
        ip("netns", "add", name)
        self.made.append(name)
        ip("link", "del", veth, check=False)      # of a cluster before: the kernel removes it with its namespace, a moment later
        ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", net + "1/30", "dev", veth)
        ip("link", "set", veth, "up")
        ip("-n", name, "addr", "add", net + "2/30", "dev", "eth0")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", "default", "via", net + "1")
        return name, net + "2"

    def drop(self, source, destination):
        ip("rule", "add", "pref", "100", "from", source, "to", destination, "blackhole")

    def heal(self):
        while ip("rule", "del", "pref", "100", check=False):
            pass

    def unplug(self, name):
        ip("netns", "del", name, check=False)
        self.made.remove(name)

    def remove(self):
        if os.getpid() != self.owner:
            return
        self._move(self.home)
        for name in reversed(self.made):
            ip("netns", "del", name, check=False)
        self.made = []

    def slow(self, host, sources, kilobits):
        """What `sources` send to this host passes at so many kbit/s, together. False: the kernel has no such queue."""
        veth = "h" + host.namespace.rsplit(".", 1)[1]
        for words in (["qdisc", "replace", "dev", veth, "root", "handle", "1:", "htb"],
                      ["class", "replace", "dev", veth, "parent", "1:", "classid", "1:4", "htb", "rate", "%dkbit" % kilobits, "burst", "16k"],
                      *(["filter", "add", "dev", veth, "parent", "1:", "protocol", "ip", "prio", "1", "u32", "match", "ip", "src", source.ip + "/32",
                         "flowid", "1:4"] for source in sources)):
            r = subprocess.run(["tc", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if r.returncode:
                return False
        return True

    def fast(self, host):
        subprocess.run(["tc", "qdisc", "del", "dev", "h" + host.namespace.rsplit(".", 1)[1], "root"], capture_output=True, stdin=subprocess.DEVNULL)


def tidy_on_signals():
    """Ends by exception, so that everything made is removed."""
    def end(number, _):
        raise SystemExit("stopped by signal %d" % number)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)


def preload(cluster, source):
    """A library of ours for a process to be started with; None: there is no compiler here."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    library = os.path.join(cluster.dir, os.path.splitext(source)[0] + ".so")
    if compiler:
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, os.path.join(HERE, source)], check=True)
    return library if compiler else None


def preloaded(library, **more):
    return dict(os.environ, LD_PRELOAD=library, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0", **more)


# -- one server, one client agent ----------------------------------------------------------------------------------------
class Process:
    """What servers and client agents have in common: one program with an address and a folder of its own."""

    def __init__(self, cluster, name, ip_address, namespace):
        self.cluster, self.name, self.ip, self.namespace = cluster, name, ip_address, namespace
        self.environment = None          # None: this process's
        self.program = COORD             # what start() runs: a test of upgrades changes it
        self.dir = os.path.join(cluster.dir, self.name)
        while os.path.exists(self.dir):  # two agents may have one name
            self.dir += "-"
        self.data = os.path.join(self.dir, "data")
        self.log_path = os.path.join(self.dir, "log")
        os.makedirs(self.data)
        self.proc = None
        self.paused = False
        self.expected_end = True         # somebody of us ended it

    def argv(self):
        others = ["-retry-join=" + s.ip for s in self.cluster.servers if s is not self]
        a = [self.program, "agent", "-node=" + self.name, "-bind=" + self.ip, "-client=" + self.ip, "-data-dir=" + self.data,
             "-log-level=" + self.cluster.log_level, *others, *self.arguments()]
        if shutil.which("setpriv"):      # should this process be killed, they go with it
            a = ["setpriv", "--pdeathsig", "KILL", *a]
        return ["nsenter", "--net=/run/netns/" + self.namespace, *a] if self.namespace else a

    def start(self):
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir,
                                         env=self.environment)
        self.paused = self.expected_end = False
        return self

    def run(self, *words):
        """A command of the program on this host; what it prints."""
        host = ["nsenter", "--net=/run/netns/" + self.namespace] if self.namespace else []
        r = subprocess.run([*host, self.program, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * SLOW + STANDSTILL)
        check(r.returncode == 0, "coord %s: %d\n%s%s" % (" ".join(words[:1]), r.returncode, r.stdout, r.stderr))
        return r.stdout

    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def kill(self):
        self.expected_end = True
        if self.alive():
            self.proc.kill()
            self.proc.wait()

    def terminate(self, within=15):
        self.expected_end = True
        self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(within * SLOW + STANDSTILL)

    def pause(self):
        self.paused = True
        self.proc.send_signal(signal.SIGSTOP)

    def resume(self):
        self.proc.send_signal(signal.SIGCONT)
        self.paused = False

    def log(self):
        with open(self.log_path, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def request(self, method, path, body=None, timeout=5.0 * SLOW + STANDSTILL):
        c = http.client.HTTPConnection(self.ip, 8500, timeout=timeout)
        try:
            c.request(method, path, body=body, headers=self.cluster.by())
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def get(self, path, timeout=5.0 * SLOW + STANDSTILL):
        status, headers, body = self.request("GET", path, timeout=timeout)
        return status, headers, json.loads(body) if status == 200 and body else None

    def put(self, path, body=b"", timeout=5.0 * SLOW + STANDSTILL):
        status, _, answer = self.request("PUT", path, body, timeout)
        return status == 200 and answer.strip() == b"true"

    def write(self, path, body, timeout=15.0):
        """A plain write of a key that has to succeed; made again while servers elect a leader."""
        def written():
            status, _, answer = self.request("PUT", path, body, timeout * SLOW)
            check(status == 200 or undecided(status, answer), "PUT %s at %s: %d %r" % (path, self.name, status, answer))
            return status == 200
        until("the write of " + path, written)

    def try_put(self, path, body=b"1", timeout=2.0):
        try:
            return self.put(path, body, timeout)
        except (OSError, http.client.HTTPException):
            return False

    def says_leader(self, timeout=1.0):
        try:
            status, _, who = self.get("/v1/status/leader", timeout)
            return who if status == 200 else ""
        except (OSError, http.client.HTTPException, ValueError):
            return ""


class Server(Process):
    def __init__(self, cluster, number, ip_address, namespace):
        super().__init__(cluster, "%s%d" % (cluster.prefix, number), ip_address, namespace)
        self.number = number
        self.life = 0                    # rises when its state may begin anew

    def arguments(self):
        expect = [] if self.cluster.closed else ["-bootstrap-expect=%d" % self.cluster.expect]
        return ["-server", *expect, *server_arguments(self.dir), *self.cluster.args]


class Agent(Process):
    """A client agent; `settings` as a configuration file has them."""

    def __init__(self, cluster, name, ip_address, namespace, settings=None):
        super().__init__(cluster, name, ip_address, namespace)
        self.settings = settings

    def arguments(self):
        if not self.settings:
            return []
        path = os.path.join(self.dir, "settings.json")
        with open(path, "w") as f:
            json.dump(self.settings, f)
        return ["-config-file=" + path]

    def server(self):
        """The server that it is connected with, by its log; None: with none."""
        said = re.findall(r"client: (?:connected server=(\S+)|(the connection is lost))", self.log())
        name = said[-1][0] if said else ""
        return next((s for s in self.cluster.servers if s.name == name), None)


# -- a cluster ---------------------------------------------------------------------------------------------------------
def _loopback():
    for _ in range(200):
        address = "127.%d.%d.%d" % (random.randint(200, 250), random.randint(1, 254), random.randint(2, 254))
        try:
            for port in (8300, 8500, 8600):
                with socket.socket() as s:
                    s.bind((address, port))
            return address
        except OSError:
            pass
    raise RuntimeError("no free loopback address")


class Cluster:
    """`prefix` names its servers. Several clusters of one test have hosts from different numbers on: `hosts`."""

    def __init__(self, count=3, args=(), expect=None, log_level=None, keep=False, prefix="s", hosts=0):
        if not os.path.exists(COORD):
            raise SystemExit("no program at %s: set COORD_BIN" % COORD)
        self.hub = Hub.enter()
        self.args, self.keep, self.expect, self.prefix = list(args), keep, expect or count, prefix
        self.log_level = log_level or os.environ.get("COORD_TEST_LOG", "info")
        self.dir = tempfile.mkdtemp(prefix="coord-cluster-")
        self.mounts = []
        self.servers, self.agents = [], []
        self.plugged = hosts + 100       # numbers of agents' hosts begin behind it
        self.over = self.closed = False
        self.management = None           # the token of requests
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))      # a server that crashes leaves its core in its folder
        atexit.register(self.close)
        for number in range(1, count + 1):
            namespace, address = self.hub.plug(hosts + number) if self.hub else (None, _loopback())
            self.servers.append(Server(self, number, address, namespace))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        faults = []
        if kind:
            self.keep = True
            faults = self.confessions() + ["%s ended by itself with %s" % (s.name, s.proc.returncode) for s in self.unexpected_ends()]
        self.close()
        if faults:
            raise AssertionError("\n".join(faults))

    def start(self):
        for s in self.servers:
            s.start()
        return self

    def by(self):
        """The header of its token."""
        return {"X-Consul-Token": self.management} if self.management else {}

    def start_closed(self, *words):
        """The same as an encrypted cluster: made on the first server, which the others join one after the other. `words`: of coord init."""
        first, *others = self.servers
        self.closed = True
        made = first.run("init", "-data-dir=" + first.data, "-bind=" + first.ip, "-node=" + first.name, *words)
        path = os.path.join(first.data, "management.token")
        if os.path.exists(path):
            with open(path) as f:
                self.management = f.read().strip()
        token = re.search(r"coord1s\.[\w.-]+", made).group(0)
        first.start()
        for s in others:
            s.run("join", "-data-dir=" + s.data, "-bind=" + s.ip, "-node=" + s.name, token, first.ip)
            s.start()
        self.wait_writable([first])
        until("all vote", lambda: sum(s["Voter"] for s in first.get("/v1/operator/raft/configuration")[2]["Servers"]) == len(self.servers), 30)
        return self

    def agent(self, name, settings=None):
        """A host of its own with a client agent, not started."""
        self.plugged += 1
        namespace, address = self.hub.plug(self.plugged) if self.hub else (None, _loopback())
        agent = Agent(self, name, address, namespace, settings)
        self.agents.append(agent)
        return agent

    def close(self):
        if self.over:
            return
        self.over = True
        for s in self.servers + self.agents:
            if s.alive():
                s.proc.send_signal(signal.SIGCONT)
            s.kill()
        if self.hub:
            self.hub.heal()
            for s in self.servers + self.agents:
                self.hub.unplug(s.namespace)
        if self.keep:
            kept = os.path.join(DISK, os.path.basename(self.dir) + ".kept")
            subprocess.run(["cp", "-a", "--sparse=always", self.dir, kept], capture_output=True)
            print("logs and data are kept in " + kept, flush=True)
        for folder in reversed(self.mounts):
            subprocess.run(["umount", "-l", folder], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    # -- who leads, is all well ---------------------------------------------------------------------------------------
    def named(self, address):
        return next((s for s in self.servers if address.startswith(s.ip + ":")), None)

    def leader(self, within=20):
        """The server that a majority names as leader."""
        limit = within * SLOW + STANDSTILL
        end = time.monotonic() + limit
        while time.monotonic() < end:
            votes = {}
            for s in self.servers:
                if s.alive() and not s.paused:
                    who = s.says_leader()
                    votes[who] = votes.get(who, 0) + 1
            for who, count in votes.items():
                found = self.named(who) if who else None
                if found and found.alive() and not found.paused and count * 2 > len(self.servers):
                    return found
            time.sleep(0.02)
        raise Late("no leader within %.0f s" % limit)

    def unexpected_ends(self):
        return [s for s in self.servers + self.agents if s.proc is not None and not s.expected_end and not s.alive()]

    def confessions(self):
        """What servers said that none may say. One that was killed could not say so by its exit code."""
        return ["%s: %s" % (s.name, line) for s in self.servers + self.agents if os.path.exists(s.log_path) for line in s.log().splitlines() if any(word in line for word in CONFESSIONS)]

    def wait_writable(self, servers=None, within=20):
        """A write through each of `servers` succeeds; seconds that took."""
        begun, limit = time.monotonic(), within * SLOW + STANDSTILL
        for s in servers or self.servers:
            while not s.try_put("/v1/kv/_ready/" + s.name):
                dead = self.unexpected_ends()
                if dead:
                    raise AssertionError("%s ended by itself with %s:\n%s" % (dead[0].name, dead[0].proc.returncode, dead[0].log()[-3000:]))
                if time.monotonic() - begun > limit:
                    raise Late("no write through %s within %.0f s" % (s.name, limit))
                time.sleep(0.01)
        return time.monotonic() - begun

    # -- the network ----------------------------------------------------------------------------------------------------
    def cut(self, group, others):
        for a in group:
            for b in others:
                self.hub.drop(a.ip, b.ip)
                self.hub.drop(b.ip, a.ip)

    def cut_one_way(self, sources, destinations):
        for a in sources:
            for b in destinations:
                self.hub.drop(a.ip, b.ip)

    def heal(self):
        if self.hub:
            self.hub.heal()
