"""What a pick and an owner cost beside a health read of one instance, from one server, in turn. By hand; wants wrk:

    python3 tests/bench/measure_lb.py [--instances 10] [--connections 32] [--seconds 4] [--rounds 3]
"""
import argparse, os, re, statistics, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from coordtest import Agent, configuration

parser = argparse.ArgumentParser()
parser.add_argument("--instances", type=int, default=10)
parser.add_argument("--connections", type=int, default=32)
parser.add_argument("--seconds", type=int, default=4)
parser.add_argument("--rounds", type=int, default=3)
given = parser.parse_args()

server = Agent(configuration(limits={"http_max_conns_per_client": 0}), dev=True).start()
for service, count in (("one", 1), ("api", given.instances)):
    for i in range(count):
        server.put("/v1/agent/service/register", {"ID": "%s-%d" % (service, i), "Name": service, "Port": 9000 + i})
        server.put("/v1/agent/service/load/%s-%d?load=%g&inflight=%d&latency_ms=%d" % (service, i, i / 8, i, 10 + i))
keys = tempfile.NamedTemporaryFile("w", suffix=".lua")  # many keys, some of them often
keys.write("function request() return wrk.format('GET', wrk.path .. math.floor(1000 * math.random() ^ 3)) end\n")
keys.flush()
PATHS = {"health read of one instance": ("/v1/health/service/one?passing",), "pick among %d, p2c" % given.instances: ("/v1/lb/pick/api",),
         "pick, hcl": ("/v1/lb/pick/api?policy=hcl",), "pick of one instance": ("/v1/lb/pick/one",),
         "owner of a key among %d" % given.instances: ("/v1/lb/owner/api?key=user-1",),
         "owner, 1,000 keys": ("/v1/lb/owner/api?key=user-", "-s", keys.name), "health read of %d" % given.instances: ("/v1/health/service/api?passing",), "health, ?lb=p2c": ("/v1/health/service/api?passing&lb=p2c",)}
rates, costs = {name: [] for name in PATHS}, {name: [] for name in PATHS}
for _ in range(given.rounds):
    for name, (path, *more) in PATHS.items():
        before = server.cpu_seconds()
        said = subprocess.run(["wrk", "-t1", "-c%d" % given.connections, "-d%d" % given.seconds, *more, "http://%s:8500%s" % (server.ip, path)],
                              capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in said:
            sys.exit(said)
        requests = int(re.search(r"(\d+) requests in", said).group(1))
        rates[name].append(float(re.search(r"Requests/sec: +([\d.]+)", said).group(1)))
        costs[name].append((server.cpu_seconds() - before) / requests * 1e6)
first = next(iter(PATHS))
for name in PATHS:
    rate, cost = statistics.median(rates[name]), statistics.median(costs[name])
    print("%-30s %8.0f/s, %.2f of the health read; %5.1f us of CPU, %.2f times" % (
        name, rate, rate / statistics.median(rates[first]), cost, cost / statistics.median(costs[first])))
