#!/usr/bin/env python3
"""Live regions of one server each on this machine: until all know all, what they cost while nothing happens, until a change is everywhere; and what a region
answers by itself beside 100 changes a second in the others, against without, in turn.

    measure_regions.py [--regions 20] [--seconds 10] [--rounds 6]
"""
import argparse, http.client, os, statistics, sys, threading, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from coordtest import Agent, until

now = time.monotonic


def known(agent):
    return sum(1 for r in agent.get("/v1/global/regions")[2] if r["Reachable"] and (r["Own"] or r.get("AsOf") is not None))


def rate(agent, method, path, seconds):
    """Answers per second, one client."""
    connection, count, end = http.client.HTTPConnection(agent.ip, 8500), 0, now() + seconds
    begun = now()
    while now() < end:
        connection.request(method, path, body=b"x" if method == "PUT" else None)
        assert connection.getresponse().read()
        count += 1
    connection.close()
    return count / (now() - begun)


class Changes(threading.Thread):
    """So many a second, of each region in turn."""

    def __init__(self, agents, per_second):
        super().__init__(daemon=True)
        self.connections = [http.client.HTTPConnection(a.ip, 8500) for a in agents]
        self.per_second, self.number, self.over = per_second, 0, False
        self.start()

    def run(self):
        begun = now()
        while not self.over:
            connection = self.connections[self.number % len(self.connections)]
            body = '{"Node":"n%d","Address":"10.0.0.1","Service":{"Service":"web","Port":%d}}' % (self.number % 200, self.number % 60000)
            connection.request("PUT", "/v1/catalog/register", body=body)
            connection.getresponse().read()
            self.number += 1
            time.sleep(max(0, begun + self.number / self.per_second - now()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--regions", type=int, default=20)
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--rounds", type=int, default=6)
    options = p.parse_args()
    agents = []
    for number in range(options.regions):
        joins = ["-retry-join-wan=" + agents[0].ip] if agents else []
        agents.append(Agent("-datacenter=r%02d" % number, *joins, name="r%02d" % number).start())
    begun = now()
    until("all know all", lambda: all(known(a) == options.regions for a in agents), 120, 0.2)
    print("%d regions: all know all %.1f s after the last one started" % (options.regions, now() - begun), flush=True)
    time.sleep(10)
    cpu, begun = [a.cpu_seconds() for a in agents], now()
    time.sleep(options.seconds)
    used = sorted((a.cpu_seconds() - c) / (now() - begun) * 100 for a, c in zip(agents, cpu))
    print("a server while nothing happens: %.2f %% of a core in the median, %.2f %% at most, %.0f MB" % (
        statistics.median(used), used[-1], statistics.median(a.rss_kib("RssAnon") for a in agents) / 1024), flush=True)
    took = []
    for number in range(20):
        name, begun = "new%d" % number, now()
        agents[number % len(agents)].put("/v1/agent/service/register", {"Name": name, "Port": 1})
        until(name, lambda: all(a.get("/v1/global/service/" + name)[2] for a in agents), 10, 0.005)
        took.append(now() - begun)
    print("a change is everywhere after %.0f ms in the median, %.0f ms at most" % (1000 * statistics.median(took), 1000 * max(took)), flush=True)
    here = agents[1]
    here.put("/v1/kv/k", "x")
    for what, method, path in (("reads", "GET", "/v1/kv/k"), ("writes", "PUT", "/v1/kv/k")):
        ratios = []
        for _ in range(options.rounds):
            alone = rate(here, method, path, options.seconds / 4)
            changes = Changes([a for a in agents if a is not here], 100)
            beside = rate(here, method, path, options.seconds / 4)
            changes.over = True
            changes.join()
            ratios.append(beside / alone)
        print("%s beside 100 changes a second in the others: %.2f of those without (%s)" % (
            what, statistics.median(ratios), " ".join("%.2f" % r for r in sorted(ratios))), flush=True)


if __name__ == "__main__":
    main()
