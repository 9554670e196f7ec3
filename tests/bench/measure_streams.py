"""How soon streams hear of a change, and what they cost a server: tests/bench/streams.c beside a server of its own. By hand:

    python3 tests/bench/measure_streams.py [--streams 10000] [--rounds 20] [--seconds 20]
"""
import argparse, json, os, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
from coordtest import Agent, configuration

LOADER = os.environ.get("COORD_STREAMS") or os.path.join(HERE, "../../build/tests/bench/streams")


def measure(what, *words):
    server = Agent(configuration(limits={"http_max_conns_per_client": 0})).start()
    server.put("/v1/kv/first", "1")
    before = server.rss_kib()
    loader = subprocess.Popen([LOADER, server.ip + ":8500", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if loader.stdout.readline() != "ready\n":
        sys.exit("the loader failed: %s" % loader.wait())
    with_streams, cpu = server.rss_kib(), server.cpu_seconds()
    loader.stdin.write("\n")
    loader.stdin.close()
    said = loader.stdout.read()
    print("%s: %s" % (what, said.strip()))
    print("    server: %d MiB, with the streams %d MiB (%.1f KiB each), afterwards %d MiB; %.1f s of CPU" % (
        before >> 10, with_streams >> 10, (with_streams - before) / int(words[1]), server.rss_kib() >> 10, server.cpu_seconds() - cpu), flush=True)
    server.stop()
    if loader.wait() != 0:
        sys.exit("the loader failed")
    return json.loads(said)


parser = argparse.ArgumentParser()
parser.add_argument("--streams", type=int, default=10000)
parser.add_argument("--rounds", type=int, default=20)
parser.add_argument("--seconds", type=int, default=20)
given = parser.parse_args()
measure("%d streams of one key" % given.streams, "one", given.streams, given.rounds)
measure("1,000 streams of 100 keys, 1,000 writes a second", "many", 1000, 100, 1000, given.seconds)
