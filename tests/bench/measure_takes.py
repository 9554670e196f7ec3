"""What agents that spend quotas cost the servers: 20 agents take 100,000 a second in sum, of four budgets. By hand:

    python3 tests/bench/measure_takes.py [--agents 20] [--takes 100000] [--each 50] [--seconds 40]

A request takes `each` tokens, because one machine cannot make so many requests and serve them: agents ask the servers for what
is taken, not for requests. Printed are the asks that came to the servers, the entries of their log, and each server's CPU,
beside those of the same cluster before.
"""
import argparse, http.client, os, sys, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
given, sys.argv = sys.argv[1:], sys.argv[:1]
from coordtest import Cluster

BUDGETS = ("a", "b", "c", "d")


def metric(agent, name):
    lines = agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


class Taker(threading.Thread):
    """Takes from one agent, so many times a second."""

    def __init__(self, agent, rate, each):
        super().__init__(daemon=True)
        self.agent, self.pause, self.each, self.took, self.refused, self.over = agent, 1 / rate, each, 0, 0, False

    def run(self):
        connection, at, i = http.client.HTTPConnection(self.agent.ip, 8500, timeout=10), time.monotonic(), 0
        while not self.over:
            at += self.pause
            time.sleep(max(0, at - time.monotonic()))
            i += 1
            connection.request("PUT", "/v1/agent/quota/%s/take?n=%d" % (BUDGETS[i % len(BUDGETS)], self.each))
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                self.took += self.each
            else:
                self.refused += 1


def watch(cluster, agents, takers, seconds):
    """Over so many seconds: takes, asks and entries a second; CPU of each server, in percent."""
    def now():
        return (sum(t.took for t in takers), sum(metric(a, "coord_quota_asks_total") for a in agents), metric(cluster.leader(), "coord_raft_applied_total"),
                [s.cpu_seconds() for s in cluster.servers], time.monotonic())
    before = now()
    time.sleep(seconds)
    after = now()
    took = after[4] - before[4]
    return [(after[i] - before[i]) / took for i in range(3)] + [[100 * (b - a) / took for a, b in zip(before[3], after[3])]]


def say(what, seen):
    print("%s: %.0f takes/s, %.1f asks/s, %.1f entries/s; CPU of the servers: %s %%" % (what, *seen[:3], ", ".join("%.1f" % c for c in seen[3])), flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("agents", 20), ("takes", 100000), ("each", 50), ("seconds", 40)):
        parser.add_argument("--" + name, type=int, default=value)
    o = parser.parse_args(given)
    cluster = Cluster(3).start()
    agents = [cluster.agent("g%d" % i).start(wait=False) for i in range(o.agents)]
    for agent in agents:
        agent.wait_leader(60)
    for name in BUDGETS:
        cluster.servers[0].put("/v1/quota/" + name, {"Budget": 10 * o.takes, "Refill": {"Tokens": o.takes // 2, "Every": "1s"}})
    time.sleep(5)
    say("idle", watch(cluster, agents, [], o.seconds // 2))
    takers = [Taker(a, o.takes / o.each / o.agents, o.each) for a in agents]
    for taker in takers:
        taker.start()
    time.sleep(25)                                # two TTLs: then agents know their rates
    say("taking", watch(cluster, agents, takers, o.seconds))
    print("refused: %d" % sum(t.refused for t in takers))
    for taker in takers:
        taker.over = True


main()
