"""How soon a flip of a rollout reaches many callers that wait, and what that costs a server: tests/bench/callers.c beside a server
of its own. By hand:

    python3 tests/bench/measure_callers.py [--callers 10000] [--rounds 10] [--perf FILE]
"""
import argparse, json, os, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
from coordtest import Agent, configuration

LOADER = os.environ.get("COORD_CALLERS") or os.path.join(HERE, "../../build/tests/bench/callers")

parser = argparse.ArgumentParser()
parser.add_argument("--callers", type=int, default=10000)
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--perf", help="a profile of the server meanwhile, for `perf report -i FILE`")
given = parser.parse_args()

server = Agent(configuration(limits={"http_max_conns_per_client": 0})).start()
for version in ("v1", "v2"):
    server.put("/v1/rollout/web/versions/" + version, {"Color": version, "Sizes": list(range(20))})
server.put("/v1/rollout/web/current", {"Version": "v1"})
before = server.rss_kib()
loader = subprocess.Popen([LOADER, server.ip + ":8500", str(given.callers), str(given.rounds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
if loader.stdout.readline() != "ready\n":
    sys.exit("the loader failed: %s" % loader.wait())
waiting, cpu = server.rss_kib(), server.cpu_seconds()
perf = subprocess.Popen(["perf", "record", "-q", "-F", "800", "--call-graph", "dwarf,16384", "-o", given.perf, "-p", str(server.proc.pid)]) if given.perf else None
loader.stdin.write("\n")
loader.stdin.close()
said = loader.stdout.read()
used = server.cpu_seconds() - cpu
if perf:
    perf.send_signal(2)
    perf.wait()
print(said.strip())
told = json.loads(said) if said else {}
flips = told.get("flips", 0) * given.callers + sum(s["answered"] for s in told.get("stages", []))
print("server: %d MiB, with the callers %d MiB (%.1f KiB each); %.1f us of CPU for each answer" % (
    before >> 10, waiting >> 10, (waiting - before) / given.callers, used / max(flips, 1) * 1e6))
server.stop()
sys.exit(loader.wait())
