#!/usr/bin/env python3
"""Many client agents at three servers: all is registered, nothing goes to the log while nothing changes, every change arrives, and in the end the
catalog is what the agents know, though the leader was killed while they changed.

    test_many_agents.py [--agents N]
"""
import argparse, json, os, subprocess, sys, time
import harness
from harness import SLOW, STANDSTILL, check

IDLE = 7
TOOL = os.environ.get("COORD_AGENTS_BIN") or os.path.join(os.path.dirname(harness.COORD), "tests/agents/agents")


def values(line):
    return dict(pair.split("=", 1) for pair in line.split() if "=" in pair)


class Fleet:
    def __init__(self, cluster, ask, *words):
        argv = [TOOL, "--servers", ",".join(s.ip + ":8300" for s in cluster.servers), "--http", ask.ip + ":8500", "--patience", str(round(30 * SLOW)), *map(str, words)]
        self.proc = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def line(self, word):
        seen = []
        for line in self.proc.stdout:
            seen.append(line)
            if line.startswith(word + " "):
                return values(line)
        raise AssertionError("no \"%s\" before the end with %s: %s" % (word, self.proc.wait(), "".join(seen)))


def last_index(server):
    return int(server.get("/v1/agent/self")[2]["Stats"]["raft"]["last_log_index"])


def nothing_is_written(server):
    """For two of the seconds in which nothing changes. A leader that was elected meanwhile wrote a note: later ones count as well."""
    begun, moved = time.monotonic(), []
    while time.monotonic() - begun < IDLE - 3:
        first = last_index(server)
        time.sleep(2)
        last = last_index(server)
        if time.monotonic() - begun > IDLE - 1:
            break                        # this machine stood still: these may be changes
        moved.append(last - first)
        if last == first:
            return
    raise AssertionError("entries of the log while nothing changed: %r" % moved)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--agents", type=int, default=50)
    o = p.parse_args()
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        config = os.path.join(cluster.dir, "agents.json")
        with open(config, "w") as f:
            json.dump({"disable_coordinates": True}, f)      # those of the servers go to the log
        cluster.args.append("-config-file=" + config)
        cluster.start()
        cluster.wait_writable()
        leader = cluster.leader()
        ask = next(s for s in cluster.servers if s is not leader)
        fleet = Fleet(cluster, ask, "--agents", o.agents, "--idle", IDLE, "--seconds", 3, "--changes-per-minute", 3000, "--watched", 10, "--repeat", 1)
        try:
            line = fleet.line("registered")
            check(int(line["services"]) == 10 * o.agents and int(line["checks"]) == 20 * o.agents, line)
            connected = [s.log().count("a client agent came") for s in cluster.servers]
            check(min(connected) >= o.agents // 10, "the agents are spread over the servers: %s" % connected)
            time.sleep(0.3)                      # renewals and comparisons go on; what was written is written
            nothing_is_written(ask)
            fleet.line("changing")
            time.sleep(0.5)
            leader.kill()
            line = fleet.line("lag")
            check(int(line["seen"]) > 0 and line["not-seen"] == "0", line)
            line = fleet.line("equal")
            check(line == {**line, "agents": str(o.agents), "differ": "0"}, line)
            check(fleet.proc.wait(30 * SLOW + STANDSTILL) == 0, "the tool found a fault")
        finally:
            if fleet.proc.poll() is None:
                fleet.proc.kill()
            fleet.proc.wait()
        words = cluster.confessions()
        check(not words, words[:3])
    print("ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
