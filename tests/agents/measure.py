#!/usr/bin/env python3
"""What client agents cost. Not a test: it prints figures, each with what was asked.

    measure.py [idle-and-changes] [loads] [client] [register] [instances] [storm]     all of them, unless named

idle-and-changes: one server, many simulated agents (the tool `agents`): the server's CPU and its log while nothing changes, then while checks change.
loads: three servers, many simulated agents: the servers' CPU while nothing changes, then while each agent reports 10 loads a second.
client: one real client agent with 50 services and 100 HTTP and TCP checks: its memory and CPU.
register: three servers and one real client agent: services registered through its HTTP API, several connections.
instances: three servers: memory of each per instance.
storm: one server, many simulated agents that lose it at one moment and come back, while somebody reads: all connections are cut, then the server is restarted. In
a plain cluster, then in a closed one. As root the reader has real-time priority, because it would wait for a processor itself.

CPU and memory are those that the kernel counts (/proc/PID/stat, status). Memory is split: anonymous (private to the process), and file (pages
of the store that the process has mapped: they belong to the page cache, which may take them back).
"""
import argparse, http.server, json, os, selectors, socket, subprocess, sys, threading, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
import harness
from harness import check, until

now = time.monotonic
TOOL = os.environ.get("COORD_AGENTS_BIN") or os.path.join(os.path.dirname(harness.COORD), "tests/agents/agents")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    """Seconds of all of its threads."""
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid):
    """KiB: (anonymous, file, all)."""
    with open("/proc/%d/status" % pid) as f:
        values = dict(line.split(":", 1) for line in f)
    return tuple(int(values[k].split()[0]) for k in ("RssAnon", "RssFile", "VmRSS"))


def raft(server):
    return {k: int(v) for k, v in server.get("/v1/agent/self")[2]["Stats"]["raft"].items() if v.isdigit()}


def say(what, value, asked=""):
    print("  %-66s %s%s" % (what, value, "   (asked: %s)" % asked if asked else ""), flush=True)


class Fleet:
    """The tool, and the lines that it prints."""
    def __init__(self, cluster, *words):
        leader = cluster.leader()
        argv = [TOOL, "--servers", ",".join(s.ip + ":8300" for s in cluster.servers), "--http", leader.ip + ":8500", *map(str, words)]
        self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait()

    def line(self, word):
        """The values of the line that begins with this word; whatever comes before is shown."""
        for line in self.proc.stdout:
            if line.startswith(word + " ") or line.strip() == word:
                return dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
            print("  " + line.rstrip(), flush=True)
        raise SystemExit("agents: ended with %s before \"%s\"" % (self.proc.wait(), word))

    def send(self, word):
        self.proc.stdin.write(word + "\n")
        self.proc.stdin.flush()

    def end(self):
        self.proc.stdin.close()
        for line in self.proc.stdout:
            print("  " + line.rstrip(), flush=True)
        return self.proc.wait()


# -- one server, many agents --------------------------------------------------------------------------------------------
def idle_and_changes(o):
    with harness.Cluster(1, log_level="warn") as cluster:
        cluster.start()
        cluster.wait_writable()
        server = cluster.servers[0]
        pid = server.proc.pid
        empty = memory(pid)
        time.sleep(3)
        first, begun = cpu(pid), now()
        time.sleep(10)
        alone = (cpu(pid) - first) / (now() - begun)
        with Fleet(cluster, "--agents", o.agents, "--idle", o.seconds + 20, "--seconds", o.seconds, "--changes-per-minute", o.rate, "--hold",
                   *(["--coordinates"] if o.coordinates else []), *(["--waiting"] if o.waiting else [])) as fleet:
            first = cpu(pid)
            line = fleet.line("registered")
            print("one server, %s agents, %s services, %s checks" % (line["agents"], line["services"], line["checks"]))
            say("everything is registered after", line["seconds"] + " s, %.2f CPU s of the server" % (cpu(pid) - first))
            fleet.line("idle")
            time.sleep(15)
            before, first, tool, begun = raft(server), cpu(pid), cpu(fleet.proc.pid), now()
            time.sleep(o.seconds)
            took = now() - begun
            after = raft(server)
            say("CPU of the server in %d s of unchanged checks" % took,
                "%.1f %% of a core (without agents: %.1f %%)" % ((cpu(pid) - first) / took * 100, alone * 100), "5 %")
            say("CPU of the tool, all agents together", "%.1f %%" % ((cpu(fleet.proc.pid) - tool) / took * 100))
            say("entries of the log meanwhile", after["last_log_index"] - before["last_log_index"], "0")
            fleet.line("changing")
            before, first, tool, begun = raft(server), cpu(pid), cpu(fleet.proc.pid), now()
            line = fleet.line("changed")
            took, used = now() - begun, cpu(pid) - first
            say("changes of status", "%s, %s a minute; the last was delivered after %s s" % (line["changes"], line["a-minute"], line["settled"]),
                "%d a minute" % o.rate)
            say("CPU of the server meanwhile", "%.1f %% of a core, %.0f us a change" % (used / took * 100, used / int(line["changes"]) * 1e6))
            say("entries of the log a change", "%.2f" % ((raft(server)["last_log_index"] - before["last_log_index"]) / int(line["changes"])))
            line = fleet.line("lag")
            say("from a change to a blocking query: median / p99 / longest", "%(median)s / %(p99)s / %(longest)s ms" % line)
            say("changes timed: seen, overtaken by the next, not seen", "%(seen)s, %(overtaken)s, %(not-seen)s" % line)
            line = fleet.line("equal")
            say("the catalog equals what the agents know", "%(agents)s agents; differ: %(differ)s" % line)
            full = memory(pid)
            say("memory of the server, anonymous + file", "%d + %d KiB (empty: %d + %d)" % (full[0], full[1], empty[0], empty[1]))
            fleet.line("hold")
            check(fleet.end() == 0, "the tool found a fault")


# -- three servers, reports of load ------------------------------------------------------------------------------------------
def loads(o):
    used = {}
    for each in (0, 10):
        with harness.Cluster(3, log_level="warn") as cluster:
            cluster.start()
            cluster.wait_writable()
            pids = [server.proc.pid for server in cluster.servers]
            with Fleet(cluster, "--agents", o.agents, "--checks", 1, "--repeat", 0, "--loads", each, "--idle", o.seconds + 20, "--hold") as fleet:
                fleet.line("idle")
                time.sleep(15)
                first, tool, begun = [cpu(pid) for pid in pids], cpu(fleet.proc.pid), now()
                time.sleep(o.seconds)
                took = now() - begun
                used[each] = [(cpu(pid) - before) / took * 100 for pid, before in zip(pids, first)]
                say("%d agents, %d loads a second of each: CPU of the servers" % (o.agents, each),
                    "%s = %.1f %% of a core" % (" + ".join("%.1f" % u for u in used[each]), sum(used[each])))
                say("CPU of the tool, all agents together", "%.1f %%" % ((cpu(fleet.proc.pid) - tool) / took * 100))
                if each:
                    known = [[int(line.split()[1]) for line in server.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines()
                              if line.startswith("coord_load_instances ")][0] for server in cluster.servers]
                    say("instances whose load each server knows", known)
                fleet.line("equal")
                fleet.line("hold")
                check(fleet.end() == 0, "the tool found a fault")
    say("loads alone, all servers together", "%.1f %% of a core" % (sum(used[10]) - sum(used[0])), "10 %")


# -- one real client agent -----------------------------------------------------------------------------------------------
class Client(harness.Server):
    """A client agent where a server of the cluster would be."""
    def argv(self):
        a = super().argv()
        a = [word for word in a if word != "-server" and not word.startswith("-bootstrap-expect=")]
        return [*a, "-config-file=" + self.config] if self.config else a


def add_client(cluster, config=None):
    number = len(cluster.servers) + 1
    namespace, address = cluster.hub.plug(number) if cluster.hub else (None, harness._loopback())
    client = Client(cluster, number, address, namespace)
    client.config = None
    if config:
        client.config = os.path.join(client.dir, "services.json")
        with open(client.config, "w") as f:
            json.dump(config, f)
    return client


def end_client(cluster, client):
    client.kill()
    if cluster.hub:
        cluster.hub.unplug(client.namespace)


class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_):
        pass


def client(o):
    with harness.Cluster(1, log_level="warn") as cluster:
        cluster.start()
        cluster.wait_writable()
        host = cluster.hub.made and "10.77.2.1" if cluster.hub else "127.0.0.1"
        services = [{"name": "s-%d" % i, "port": 1000 + i, "tags": ["v1"], "checks": [
            {"http": "http://WEB/health", "interval": "10s", "timeout": "5s"}, {"tcp": "WEB", "interval": "10s", "timeout": "5s"}]} for i in range(50)]
        agent = add_client(cluster)              # its namespace has to be there before the web server's address
        web = http.server.ThreadingHTTPServer((host, 0), Web)
        web.daemon_threads = True
        threading.Thread(target=web.serve_forever, daemon=True).start()
        agent.config = os.path.join(agent.dir, "services.json")
        with open(agent.config, "w") as f:
            f.write(json.dumps({"services": services}).replace("WEB", "%s:%d" % (host, web.server_address[1])))
        try:
            agent.start()
            until("all checks pass", lambda: sum(c["Status"] == "passing" for c in cluster.servers[0].get("/v1/health/node/" + agent.name)[2] or []) == 101, 40)
            pid = agent.proc.pid
            time.sleep(15)
            first, begun = cpu(pid), now()
            time.sleep(o.seconds)
            took, m = now() - begun, memory(pid)
            print("one client agent, 50 services, 50 HTTP and 50 TCP checks of 10 s")
            say("memory: RSS (anonymous + file)", "%.1f MiB (%.1f + %.1f)" % (m[2] / 1024, m[0] / 1024, m[1] / 1024), "12 MiB")
            say("CPU in %d s" % took, "%.2f %% of a core" % ((cpu(pid) - first) / took * 100), "1 %")
        finally:
            end_client(cluster, agent)
            web.shutdown()


# -- registering through it ------------------------------------------------------------------------------------------------
class Connection:
    """One request at a time, the next when it was answered."""
    def __init__(self, address, body):
        self.socket = socket.create_connection((address, 8500))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.body, self.begun, self.received = body, 0, b""

    def send(self):
        body = self.body()
        self.begun = now()
        self.socket.sendall(b"PUT /v1/agent/service/register HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def answered(self):
        self.received += self.socket.recv(65536)
        if b"\r\n\r\n" not in self.received:
            return False
        check(self.received.startswith(b"HTTP/1.1 200"), "a registration is refused: %r" % self.received[:200])
        self.received = b""                      # answers have no body
        return True


def register(o):
    with harness.Cluster(3, log_level="warn") as cluster:
        cluster.start()
        cluster.wait_writable()
        agent = add_client(cluster)
        try:
            agent.start()
            until("the client agent has a server", lambda: agent.says_leader(), 20)
            until("its node is there", lambda: any(n["Node"] == agent.name for n in cluster.servers[0].get("/v1/catalog/nodes")[2] or []), 20)
            pids = [s.proc.pid for s in cluster.servers]
            print("three servers, one client agent: PUT /v1/agent/service/register, new services of 1,000 names")
            number = 0

            def body():
                nonlocal number
                number += 1
                return b'{"Name":"s-%d","ID":"s-%d","Port":80}' % (number % 1000, number)
            for connections in (1, 16, 64):
                poll = selectors.DefaultSelector()
                for _ in range(connections):
                    c = Connection(agent.ip, body)
                    poll.register(c.socket, selectors.EVENT_READ, c)
                    c.send()
                servers, own, times, begun = sum(map(cpu, pids)), cpu(agent.proc.pid), [], now()
                while now() < begun + o.register_seconds:
                    for key, _ in poll.select(1):
                        if key.data.answered():
                            times.append(now() - key.data.begun)
                            key.data.send()
                took = now() - begun
                times.sort()
                say("%d connections" % connections, "%.0f/s, p50 %.1f ms, p99 %.1f ms; CPU a registration: agent %.0f us, servers %.0f us" %
                    (len(times) / took, times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3,
                     (cpu(agent.proc.pid) - own) / len(times) * 1e6, (sum(map(cpu, pids)) - servers) / len(times) * 1e6),
                    "10 x Consul's, 3,390/s" if connections == 16 else "")
                for key in list(poll.get_map().values()):
                    key.data.socket.close()
            there = len(until("all are in the catalog", lambda: (lambda got: got if len(got) >= number - 64 else None)(
                cluster.servers[0].get("/v1/catalog/node/" + agent.name, 30)[2]["Services"]), 30))
            say("services of this node in the catalog", "%d of %d sent" % (there, number))
        finally:
            end_client(cluster, agent)


# -- many instances -----------------------------------------------------------------------------------------------------------
def instances(o):
    with harness.Cluster(3, log_level="warn") as cluster:
        cluster.start()
        cluster.wait_writable()
        empty = {s.name: memory(s.proc.pid) for s in cluster.servers}
        with Fleet(cluster, "--agents", o.instances // 100, "--services", 100, "--checks", 100, "--repeat", 0, "--patience", 300, "--hold") as fleet:
            line = fleet.line("registered")
            print("three servers, %s instances (a service with a check) of %s agents" % (line["services"], line["agents"]))
            count = int(line["services"])
            say("registered after", line["seconds"] + " s")
            fleet.line("hold")
            leader = cluster.leader()
            for s in cluster.servers:
                m, e = memory(s.proc.pid), empty[s.name]
                say("%s: RSS an instance: anonymous + file" % ("leader" if s is leader else "follower"),
                    "%.2f KiB: %.2f + %.2f (in all %.0f + %.0f MiB)" % ((m[2] - e[2]) / count, (m[0] - e[0]) / count, (m[1] - e[1]) / count, m[0] / 1024, m[1] / 1024), "2 KiB")
            check(fleet.end() == 0, "the tool found a fault")


# -- all come back at once ------------------------------------------------------------------------------------------------------
class Reader:
    """One stale read every few milliseconds, whether the one before was answered in time or not: each is measured from when it was due."""
    EVERY = 0.004

    def __init__(self, address):
        self.address, self.times, self.going, self.failed = address, [], True, 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        if os.geteuid() == 0:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))        # of this thread alone
        link, due = None, now()
        while self.going:
            due += self.EVERY
            time.sleep(max(0, due - now()))
            try:
                if not link:
                    link = socket.create_connection((self.address, 8500), timeout=5)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    due = now()
                link.sendall(b"GET /v1/kv/_ready/s1?stale HTTP/1.1\r\nHost: a\r\n\r\n")
                said = b""
                while not said.endswith(b"]"):
                    part = link.recv(65536)
                    if not part:
                        raise OSError("closed")
                    said += part
                self.times.append((due, now() - due))
            except OSError:                      # the server is away
                link, due = None, now()
                self.failed += 1
                time.sleep(0.005)

    def between(self, begun, ended):
        took = sorted(t for due, t in self.times if begun <= due <= ended)
        return "p50 %.1f, p99 %.1f, longest %.1f ms of %d" % (took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3, took[-1] * 1e3, len(took))


def storm_of(o, closed):
    # Many loops: for each wake-up of one, libuv looks at the handles of all agents of it, which costs more than their handshakes.
    word = "closed" if closed else "plain"
    with harness.Cluster(1, log_level="warn") as cluster:
        server = cluster.servers[0]
        cluster.start_closed("-no-acl") if closed else cluster.start()
        cluster.wait_writable()
        with Fleet(cluster, "--agents", o.agents, "--services", 2, "--checks", 2, "--repeat", 0, "--threads", 16, "--hold", *(["--tls", server.data] if closed else [])) as fleet:
            say("%s, %s agents: registered after" % (word, o.agents), fleet.line("registered")["seconds"] + " s")
            fleet.line("hold")
            reader = Reader(server.ip)
            time.sleep(3)
            say("%s: reads at rest" % word, reader.between(now() - 2, now()))
            for what in ("cut", "restart"):
                for _ in range(o.storms):
                    begun = now()
                    fleet.send("cut" if what == "cut" else "watch")
                    if what == "restart":
                        time.sleep(0.05)
                        server.kill()
                        server.start()
                        until("it answers", lambda: server.says_leader(), 20)
                        up = now()
                    used, tool = cpu(server.proc.pid), cpu(fleet.proc.pid)
                    line = fleet.line("back")
                    say("%s, %s: half, all are back%s" % (word, what, "" if what == "cut" else " (it answered after %.2f s)" % (up - begun)),
                        "%s, %s s; CPU of the server %.2f s, of the agents together %.2f s" % (line["half"], line["all"], cpu(server.proc.pid) - used, cpu(fleet.proc.pid) - tool), "4 s")
                    say("%s, %s: reads meanwhile" % (word, what), reader.between(begun if what == "cut" else up, now()), "p99 20 ms")
                    time.sleep(3)
            reader.going = False
            check(fleet.end() == 0, "the tool found a fault")


def storm(o):
    for closed in (False, True):
        storm_of(o, closed)


def main():
    suites = {"idle-and-changes": idle_and_changes, "loads": loads, "client": client, "register": register, "instances": instances, "storm": storm}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suites", nargs="*", choices=[[], *suites], default=[])
    p.add_argument("--agents", type=int, default=2000)
    p.add_argument("--rate", type=int, default=40000, help="changes a minute")
    p.add_argument("--waiting", action="store_true", help="at each simulated agent somebody waits for a change")
    p.add_argument("--coordinates", action="store_true", help="of the simulated agents too: they go to the log, a few entries in 5 s")
    p.add_argument("--seconds", type=int, default=60, help="of each part of idle-and-changes, and of client")
    p.add_argument("--register-seconds", type=int, default=5)
    p.add_argument("--instances", type=int, default=100000)
    p.add_argument("--storms", type=int, default=3, help="of each kind")
    o = p.parse_args()
    harness.tidy_on_signals()
    for name in o.suites or suites:
        suites[name](o)
    return 0


if __name__ == "__main__":
    sys.exit(main())
