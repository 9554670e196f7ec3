#!/usr/bin/env python3
"""Twenty gateways, one limit, and failures: three mechanisms of coord's quotas, and a limiter that syncs every 500 ms.

    ratelimit.py [--gateways N] [--agents N] [--windows N] [--window SECONDS] [--rate TOKENS] [--burst TOKENS] [--svg FILE] [--seed N]

The gateways are in this process, the three coord servers and the agents are real ones. Each request that comes to a gateway
is offered to four limiters, which know nothing of each other: budgets in the modes `lease`, `bounded` and `owner`, asked of
the gateway's agent, and `plain`. That one counts in the gateway and tells the others what it counted, by keys, every 500 ms.
Three times as much is wanted as is allowed. Meanwhile agents are killed (kill -9), the leader is killed, all servers stand
still (SIGSTOP), so that every gateway is cut off from them, and agents stand still.

What each limiter admitted in each window is printed and plotted beside what it may admit: the capacity, what is refilled in
the window, and the bound that `GET /v1/quota/NAME` publishes. Exit code 0 when no budget admitted more than that in any
window, wherever it begins, and `plain` did. What goes on meanwhile is told on stderr. The program is COORD_BIN, or build/coord.
"""
import argparse, asyncio, base64, bisect, json, os, random, shutil, signal, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../../tests/e2e")]
sys.argv, given = sys.argv[:1], sys.argv[1:]      # coordtest has arguments of its own
from coordtest import AGENTS, COORD, Agent, Cluster, until
from demo_agent import at_end, kill, play, progress, say
from plot import plot

COST = 5                                          # tokens of each request
WANTED = 3                                        # times what is refilled
SYNC_S = 0.5
KEY = "customer"
argv = Agent.argv
Agent.argv = lambda agent: ["setpriv", "--pdeathsig", "KILL"] + argv(agent)     # it ends with the demo, also when that is killed
MODES = ("lease", "bounded", "owner")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gateways", type=int, default=20)
    p.add_argument("--agents", type=int, default=20, help="each serves gateways/agents of them")
    p.add_argument("--windows", type=int, default=12)
    p.add_argument("--window", type=int, default=10, help="seconds")
    p.add_argument("--rate", type=int, default=1000, help="tokens that come back in a second")
    p.add_argument("--burst", type=int, help="tokens that may be unspent at once; else those of a second")
    p.add_argument("--svg", help="where to write the plot")
    p.add_argument("--seed", type=int, default=1)
    options = p.parse_args(given)
    options.burst = options.burst or options.rate
    return options


# ---- the clients of an agent ----------------------------------------------------------------------------------------
class Connections:
    """Kept-alive connections to one agent. One request each at a time; None: no answer."""

    def __init__(self, ip, most):
        self.ip, self.left, self.idle = ip, most, []

    async def _exchange(self, data):
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(self.ip, 8500)
        try:
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            size = next((int(l[15:]) for l in head.split(b"\r\n") if l[:15].lower() == b"content-length:"), 0)
            answer = int(head[9:12]), await reader.readexactly(size)
        except BaseException:
            writer.close()
            raise
        self.idle.append((reader, writer))
        return answer

    async def ask(self, method, path, body=b""):
        if not self.left:
            return None
        self.left -= 1
        data = b"%s %s HTTP/1.1\r\nHost: agent\r\nContent-Length: %d\r\n\r\n%s" % (method, path, len(body), body)
        try:
            return await asyncio.wait_for(self._exchange(data), 3)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return None
        finally:
            self.left += 1


class Plain:
    """Counts here, and every 500 ms says what it counted and hears what the others did."""

    def __init__(self, name, run, agent):
        self.name, self.run, self.limit, self.agent = name, run, run.allowed, agent
        self.window, self.mine, self.others = 0, 0, 0

    def take(self, n):
        window = self.run.window_now()
        if window != self.window:
            self.window, self.mine, self.others = window, 0, 0
        if self.mine + self.others + n > self.limit:
            return False
        self.mine += n
        return True

    async def sync(self):
        while not self.run.over:
            await asyncio.sleep(SYNC_S)
            window, folder = self.window, b"/v1/kv/plain/%d/" % self.window
            await self.agent.ask(b"PUT", folder + self.name, b"%d" % self.mine)
            answer = await self.agent.ask(b"GET", folder + b"?recurse")
            if answer and answer[0] == 200 and window == self.window:
                self.others = sum(int(base64.b64decode(e["Value"])) for e in json.loads(answer[1])
                                  if not e["Key"].endswith("/" + self.name.decode()))


class Gateway:
    def __init__(self, number, ip, run):
        self.run = run
        self.agents = {mode: Connections(ip, 8) for mode in MODES}
        self.plain = Plain(b"g%d" % number, run, Connections(ip, 2))

    async def offer(self, mode):
        path, sent = b"/v1/agent/quota/%s/take?n=%d&key=%s" % (mode.encode(), COST, KEY.encode()), time.monotonic()
        answer = await self.agents[mode].ask(b"PUT", path)
        self.run.count(mode, answer is not None and answer[0] == 200, sent)

    async def serve(self):
        """Requests come as they do: at random."""
        rate = WANTED * self.run.options.rate / COST / self.run.options.gateways
        at = time.monotonic()
        while not self.run.over:
            at += random.expovariate(rate)
            await asyncio.sleep(max(0, at - time.monotonic()))
            for mode in self.run.modes:
                asyncio.ensure_future(self.offer(mode))
            self.run.count("plain", self.plain.take(COST), time.monotonic())


# ---- a run ------------------------------------------------------------------------------------------------------------
class Run:
    def __init__(self, options):
        self.options, self.modes = options, list(MODES)
        self.allowed = options.burst + options.rate * options.window   # in a window: the capacity, and what comes back
        self.admitted = {name: [] for name in MODES + ("plain",)}   # when it was asked and answered; decided between
        self.refused = dict.fromkeys(self.admitted, 0)
        self.faults, self.begun, self.over = [], 0, False

    def window_now(self):
        return int((time.monotonic() - self.begun) / self.options.window)

    def count(self, name, yes, sent):
        if yes:
            self.admitted[name].append((sent - self.begun, time.monotonic() - self.begun))
        else:
            self.refused[name] += 1

    # -- the cluster
    def start(self):
        progress("3 servers and %d agents are started" % self.options.agents)
        self.cluster = Cluster(3).start()
        self.agents = [self.cluster.agent("g%d" % i).start(wait=False) for i in range(self.options.agents)]
        for agent in self.agents:
            agent.wait_leader(60)
            agent.put("/v1/agent/service/register", {"Name": "gateway", "ID": "gateway"})
        server = self.cluster.servers[0]
        for mode in MODES:
            server.put("/v1/quota/" + mode, {
                "Budget": self.options.rate, "Burst": self.options.burst, "Refill": {"Tokens": self.options.rate, "Every": "1s"}, "Mode": mode,
                "LeaseTTL": "2s", "MaxLeaseFraction": 0.1, "Drift": 0.2, **({"Service": "gateway"} if mode == "owner" else {})})
        until("all agents count keys", lambda: self.all_members(server), 30)
        for agent in self.agents:                            # all know all budgets, and spend nothing yet
            for mode in MODES:
                until("%s knows %s" % (agent.name, mode), lambda: agent.request("PUT", "/v1/agent/quota/%s/take?n=0&key=%s" % (mode, KEY))[0] == 200)
        self.bound = {mode: server.get("/v1/quota/" + mode)[2]["WorstCaseOverAdmission"] for mode in MODES}

    def all_members(self, server):
        seen = server.get("/v1/quota/owner")[2]
        return len(seen["ActiveMembers"]) == len(self.agents) and seen["Epoch"] == seen["ActiveEpoch"]

    # -- what fails
    async def fault(self, at, name, begin, end, after):
        await asyncio.sleep(at - (time.monotonic() - self.begun))
        self.tell(name)
        begin()
        await asyncio.sleep(after)
        self.faults.append((at, time.monotonic() - self.begun, name))
        self.tell("... no longer")
        end()

    def owner(self):
        """The agent that counts the key; another one when nobody knows."""
        try:
            name = self.agents[0].get("/v1/agent/quota/owner/owner?key=" + KEY, timeout=2)[2]["Owner"]
        except (OSError, ValueError):
            name = None
        return next((a for a in self.agents if a.name == name), self.agents[-1])

    def plan(self):
        w = self.options.window
        some = [a for a in self.agents[:1 + len(self.agents) // 6]]
        leader, servers = [], self.cluster.servers

        def kill_agents():
            some[0] = self.owner()
            for agent in set(some):
                agent.kill()

        def kill_leader():
            leader[:] = [self.cluster.leader()]
            leader[0].kill()

        def tell(agents, what):
            for agent in agents:
                agent.proc.send_signal(what)
        plans = [(1.2, "agents killed, the owner too", kill_agents, lambda: [a.start(wait=False) for a in set(some)], 0.4),
                 (2.4, "all servers stand still", lambda: tell(servers, signal.SIGSTOP), lambda: tell(servers, signal.SIGCONT), 0.8),
                 (5.3, "leader killed", kill_leader, lambda: leader[0].start(wait=False), 0.4),
                 (7.3, "agents stand still", lambda: tell(self.agents[-4:], signal.SIGSTOP), lambda: tell(self.agents[-4:], signal.SIGCONT), 0.5),
                 (9.2, "all servers stand still", lambda: tell(servers, signal.SIGSTOP), lambda: tell(servers, signal.SIGCONT), 1.5)]
        return [self.fault(at * w, name, begin, end, after * w) for at, name, begin, end, after in plans if at + after < self.options.windows]

    async def play(self):
        self.begun = time.monotonic()
        gateways = [Gateway(i, self.agents[i % len(self.agents)].ip, self) for i in range(self.options.gateways)]
        tasks = [asyncio.ensure_future(work) for g in gateways for work in (g.serve(), g.plain.sync())]
        faults = [asyncio.ensure_future(f) for f in self.plan()]
        await self.tell_windows()
        await asyncio.gather(*faults)
        self.over = True                                     # a task that is cancelled may not hear of it (wait_for)
        await asyncio.gather(*tasks)

    # -- meanwhile
    def tell(self, text):
        progress("%5.1f s  %s" % (time.monotonic() - self.begun, text))

    async def tell_windows(self):
        w = self.options.window
        progress("%d gateways for %d s; admitted in each window of %d s:" % (self.options.gateways, self.options.windows * w, w))
        for i in range(self.options.windows):
            await asyncio.sleep((i + 1) * w - (time.monotonic() - self.begun))
            self.tell("  ".join("%s %5d" % (name, sum(i * w <= at < (i + 1) * w for _, at in self.admitted[name]) * COST) for name in self.admitted))

    # -- what came of it
    def in_windows(self, name):
        counts = [0] * self.options.windows
        for _, at in self.admitted[name]:
            if at < self.options.windows * self.options.window:
                counts[int(at / self.options.window)] += COST
        return counts

    def most_in_any(self, name):
        """In the window that has most, wherever it begins: asked and answered, so surely decided within it."""
        asked, answered = (sorted(both) for both in zip(*self.admitted[name] or [(0, 0)]))
        return max(bisect.bisect_left(answered, t + self.options.window) - i for i, t in enumerate(asked)) * COST

    def report(self):
        good = True
        say("allowed in %d s: %d, and the bound" % (self.options.window, self.allowed))
        for name in list(self.modes) + ["plain"]:
            bound = self.bound.get(name, 0)
            counts, most = self.in_windows(name), self.most_in_any(name)
            say("%-8s bound %4d  admitted %s  most in any %d s: %d" % (name, bound, " ".join("%5d" % c for c in counts), self.options.window, most))
            if name == "plain":
                good &= max(counts) > self.allowed
            else:
                good &= most <= self.allowed + bound and sum(counts) > self.options.rate * self.options.window
        return good

    def draw(self, path):
        w = self.options.window
        series = [(name, self.in_windows(name)) for name in ["plain"] + self.modes]
        marks = [(self.allowed, "allowed")] + [(self.allowed + b, "allowed + bound of %s" % m) for m, b in self.bound.items() if b]
        with open(path, "w") as f:
            f.write(plot("%d gateways: admitted in each window of %d s" % (self.options.gateways, w), w, series, marks, sorted(self.faults)))


def end():
    """Nothing is left of servers and agents, those that stand still too."""
    for agent in AGENTS:
        if agent.proc:
            kill(agent.proc)
        shutil.rmtree(agent.dir, ignore_errors=True)


def main():
    options = arguments()
    if not os.path.exists(COORD):
        sys.exit("there is no %s: build it with ./dev build, or name it with COORD_BIN" % os.path.normpath(COORD))
    at_end.append(end)
    run = Run(options)
    run.start()
    random.seed(options.seed)                            # not before: runs beside each other take different addresses
    asyncio.run(run.play())
    good = run.report()
    if options.svg:
        run.draw(options.svg)
        progress("drawn: " + options.svg)
    return 0 if good else 1


play(main)
