"""Three servers, puts of keys at the leader: an encrypted cluster beside a plain one, in turns. By hand:

    LOAD=PATH python3 tests/bench/measure_encrypted.py [--rounds 5] [--seconds 3] [--connections 64]

HTTP is plain in both, so only the servers' own port differs. For each: operations a second, and CPU of all servers for one.
The load generator is that of measure_steady.py.
"""
import argparse, json, os, re, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../e2e")]
given, sys.argv = sys.argv[1:], sys.argv[:1]
from coordtest import COORD, Cluster, until
from measure_steady import load_program


def closed_cluster():
    cluster = Cluster(3)
    first, *others = cluster.servers

    def run(agent, *words):
        return subprocess.run([COORD, *words, "-data-dir=" + agent.data, "-bind=" + agent.ip, "-node=" + agent.name], check=True, capture_output=True, text=True).stdout
    for agent in cluster.servers:
        agent.args = [word for word in agent.args if not word.startswith("-bootstrap-expect")]
    token = re.search(r"coord1s\.[\w.-]+", run(first, "init", "-no-acl")).group(0)
    first.start()
    for agent in others:
        words = ["-data-dir=" + agent.data, "-bind=" + agent.ip, "-node=" + agent.name, token, first.ip]
        subprocess.run([COORD, "join", *words], check=True, capture_output=True)
        agent.start()
    until("all vote", lambda: sum(s["Voter"] for s in first.get("/v1/operator/raft/configuration")[2]["Servers"]) == 3)
    return cluster


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    args = parser.parse_args(given)
    load = load_program()
    clusters = {"plain": Cluster(3).start(), "encrypted": closed_cluster()}
    seen = {name: [] for name in clusters}
    for _ in range(args.rounds):
        for name, cluster in clusters.items():
            leader = cluster.leader()
            words = ["custom", "--step", "PUT /v1/kv/bench/<k> <v>", "--expect", "true", "-t", leader.ip + ":8500", "-c", str(args.connections),
                     "-d", str(args.seconds), "-w", "1", "--json", "--pids", ",".join(str(agent.proc.pid) for agent in cluster.servers)]
            said = json.loads(subprocess.run([load, *words], check=True, capture_output=True, text=True).stdout)
            seen[name].append(said)
            print("%-10s %8.0f/s, p50 %d us, CPU of the servers %.1f us a put" % (name, said["ops_s"], said["p50_us"], said["server_cpu_us_op"]), flush=True)
    for key in ("ops_s", "server_cpu_us_op", "p50_us"):
        plain, encrypted = (statistics.median(one[key] for one in seen[name]) for name in ("plain", "encrypted"))
        print("%-20s plain %.1f, encrypted %.1f: %.2f of it" % (key, plain, encrypted, encrypted / plain))
    for cluster in clusters.values():
        for agent in cluster.servers:
            agent.cleanup()


if __name__ == "__main__":
    main()
