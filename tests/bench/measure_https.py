"""The price of HTTPS: a server's CPU for an answer of 100 bytes and of 3 KB, by TLS and plain in turn, and the memory of a parked
watcher: tests/bench/https_load.c beside a server of its own. By hand:

    python3 tests/bench/measure_https.py [--requests 200000] [--rounds 5] [--watchers 2000]
"""
import argparse, os, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
from test_https import PORT, Authority, Secure
from coordtest import until

LOADER = os.environ.get("COORD_HTTPS_LOAD") or os.path.join(HERE, "../../build/tests/bench/https_load")

parser = argparse.ArgumentParser()
parser.add_argument("--requests", type=int, default=200000)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--watchers", type=int, default=2000)
given = parser.parse_args()


class Loader:
    def __init__(self, agent, tls, connections, requests, target):
        self.proc = subprocess.Popen([LOADER, agent.ip, str(PORT if tls else 8500), "tls" if tls else "plain", str(connections), str(requests), target],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.proc.stdout.readline() != "ready\n":
            sys.exit("the loader failed: %s" % self.proc.wait())

    def go(self):
        self.proc.stdin.write("\n")
        self.proc.stdin.close()
        if self.proc.wait():
            sys.exit("the loader failed")


agent = Secure(Authority(), limits={"http_max_conns_per_client": 0}).start()
agent.put("/v1/kv/small", b"x" * 100)
agent.put("/v1/kv/large", b"x" * 3072)
for target in ("/v1/kv/small?raw&stale", "/v1/kv/large?raw&stale"):
    ratios, costs = [], {True: [], False: []}
    for _ in range(given.rounds):
        for tls in (False, True):
            loader = Loader(agent, tls, 64, given.requests, target)
            cpu = agent.cpu_seconds()
            loader.go()
            costs[tls].append((agent.cpu_seconds() - cpu) / given.requests * 1e6)
        ratios.append(costs[True][-1] / costs[False][-1])
    print("%-24s plain %.2f us, TLS %.2f us, ratio %.2f (%s)" % (target, statistics.median(costs[False]), statistics.median(costs[True]),
                                                              statistics.median(ratios), " ".join("%.2f" % r for r in ratios)), flush=True)
sizes = {}
for tls in (False, True):
    fresh = Secure(Authority(), limits={"http_max_conns_per_client": 0}).start()
    fresh.put("/v1/kv/watched", b"x")
    index = fresh.request("GET", "/v1/kv/watched")[1]["X-Consul-Index"]
    Loader(fresh, tls, 100, 1000, "/v1/kv/watched?raw").go()
    before = fresh.rss_kib("RssAnon")
    loader = Loader(fresh, tls, given.watchers, 0, "/v1/kv/watched?wait=600s&index=" + index)
    until("all wait", lambda: fresh.metric("coord_http_blocking_queries") == given.watchers, 60)
    sizes[tls] = (fresh.rss_kib("RssAnon") - before) / given.watchers
    print("a parked watcher, %s: %.1f KiB" % ("TLS" if tls else "plain", sizes[tls]))
    loader.proc.kill()
    fresh.stop()
print("more by TLS: %.1f KiB" % (sizes[True] - sizes[False]))
agent.stop()
