#!/usr/bin/env python3
"""Live regions of one server each on this machine: until all know all, what they cost while nothing happens, until a change is everywhere.

    measure_regions.py [--regions 20] [--seconds 10]
"""
import argparse, os, statistics, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from coordtest import Agent, until

now = time.monotonic


def known(agent):
    return sum(1 for r in agent.get("/v1/global/regions")[2] if r["Reachable"] and (r["Own"] or r.get("AsOf") is not None))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--regions", type=int, default=20)
    p.add_argument("--seconds", type=float, default=10)
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


if __name__ == "__main__":
    main()
