"""What an operation costs the servers over a long time, with snapshots between: the same as before the first one? By hand:

    LOAD=PATH python3 tests/bench/measure_steady.py [--work locks|puts|register|sessions] [--servers 1] [--seconds 600] [--connections 64] [--every 5]

LOAD is a load generator that takes `custom -t HOST -c N -d S --step "METHOD PATH BODY"` and prints `ops/s`; that of
../shared/bench (load.c) is compiled where it is there. A line is printed for each interval: operations a second, CPU of the
leader for one, the store's file and what is in it, snapshots so far. At the end: the cost after the second snapshot beside
that before the first, and the largest share of the file that nothing was in.
"""
import argparse, os, re, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
given, sys.argv = sys.argv[1:], sys.argv[:1]
from coordtest import Agent, Cluster

SESSION = ["--setup", 'PUT /v1/session/create {"LockDelay":"0s"}', "--setup-take", '"ID":"']
WORK = {
    "locks": ["fenced-lock-ttl"],
    "puts": ["custom", "--step", "PUT /v1/kv/steady/<k> <v>", "-K", "400000", "--expect", "true"],
    "register": ["custom", "--step", 'PUT /v1/catalog/register {"Node":"n<c>","Address":"10.0.0.1","Service":{"Service":"s<c>","ID":"s<k>","Port":80}}',
                 "--step", 'PUT /v1/catalog/deregister {"Node":"n<c>","ServiceID":"s<k>"}', "-K", "1000", "--expect", "true"],
    "sessions": ["custom", "--step", 'PUT /v1/session/create {"TTL":"60s","LockDelay":"0s"}', "--take", '"ID":"', "--step", "PUT /v1/session/destroy/<y>"],
}


def load_program():
    if "LOAD" in os.environ:
        return os.environ["LOAD"]
    source = os.path.join(HERE, "../../../shared/bench/load.c")
    if not os.path.exists(source):
        sys.exit("measure_steady: no load generator: LOAD names one")
    program = os.path.join(tempfile.mkdtemp(), "load")
    subprocess.run(["cc", "-O2", "-o", program, source, "-lm"], check=True)
    return program


def snapshots(agent):
    folder = os.path.join(agent.data, "raft")
    return {name for name in os.listdir(folder) if re.fullmatch(r"snap-[0-9a-f]{16}|snap-.{16}", name)}


def metric(agent, name):
    lines = agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="locks", choices=sorted(WORK))
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--every", type=float, default=5)
    parser.add_argument("--flag", action="append", default=[], help="more flags of the servers")
    args = parser.parse_args(given)
    load = load_program()
    cluster = None
    if args.servers == 1:
        leader = Agent("-bootstrap-expect=1", *args.flag)
        leader.start()
        agents = [leader]
    else:
        cluster = Cluster(args.servers, *args.flag)
        cluster.start()
        leader, agents = cluster.leader(), cluster.servers
    generator = subprocess.Popen([load, *WORK[args.work], "-t", leader.ip + ":8500", "-c", str(args.connections), "-d", str(args.seconds + 5)],
                                 stdout=subprocess.PIPE, text=True)
    try:
        begun, seen, known, taken = time.monotonic(), [], set(), 0
        last = (metric(leader, "coord_raft_applied_total"), leader.cpu_seconds(), time.monotonic())
        while time.monotonic() - begun < args.seconds:
            time.sleep(args.every)
            now = (metric(leader, "coord_raft_applied_total"), leader.cpu_seconds(), time.monotonic())
            entries, cpu, took = (b - a for a, b in zip(last, now))
            last = now
            here = snapshots(leader)
            taken += len(here - known)
            known |= here
            sizes = [metric(leader, "coord_store_" + what) / 1e6 for what in ("bytes", "live_bytes")]
            seen.append((taken, 1e6 * cpu / max(entries, 1), sizes[0], sizes[1]))
            print("%5.0f s: %6.0f entries/s at %5.1f us, file %4.0f MB, in it %4.0f MB, %d snapshots, leader's RSS %.0f MB" %
                  (now[2] - begun, entries / took, seen[-1][1], *sizes, taken, leader.rss_kib() / 1024), flush=True)
        # The first interval warms up; on a fast machine it is the only one before the first snapshot.
        before = statistics.median([cost for taken, cost, *_ in seen[1:] if taken == 0] or [seen[0][1]])
        after = [cost for taken, cost, *_ in seen if taken >= 2]
        if after:
            print("cost of an entry: %.1f us before the first snapshot, %.1f after the second: %.2f of it" %
                  (before, statistics.median(after), statistics.median(after) / before))
        print("the file is at most %.2f of what is in it" % max(file / max(live, 1) for _, _, file, live in seen[2:]))
    finally:
        generator.terminate()
        print(generator.communicate()[0])
        for agent in agents:
            agent.cleanup()


if __name__ == "__main__":
    main()
