#!/usr/bin/env python3
"""Three servers measure each other: soon each has a network coordinate, every server knows all of them, and it stays so when one is lost."""
import json, os, subprocess, time
import harness
from harness import check, until

# As fast as it goes. By default the first report comes 15 to 30 seconds after the start.
FAST = {"sync_coordinate_interval_min": "500ms", "consul": {"coordinate": {"update_period": "300ms"}}}
MINUTE = 60


def places(server, query="?stale"):
    return {c["Node"]: c["Coord"] for c in server.get("/v1/coordinate/nodes" + query)[2] or []}


def metric(server, name):
    for line in server.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines():
        if line.startswith(name + " "):
            return int(float(line.split()[1]))
    return 0


def measured(server, names):
    """All have a place, found by measuring: trust in it has grown, and no two are at one."""
    there = [places(server).get(name) for name in names]
    return all(there) and all(c["Error"] < 1.2 for c in there) and len({tuple(c["Vec"]) for c in there}) == len(names)


def update(server, node, seconds):
    body = {"Node": node, "Coord": {"Vec": [seconds] + [0] * 7, "Error": 1.5, "Adjustment": 0, "Height": 0.00001}}
    return server.request("PUT", "/v1/coordinate/update", json.dumps(body).encode())[0] == 200


def rtt_ms(server, a, b):
    r = subprocess.run([harness.COORD, "rtt", "-http-addr=%s:8500" % server.ip, a, b], capture_output=True, text=True)
    check(r.returncode == 0 and "Estimated %s <-> %s rtt: " % (a, b) in r.stdout, r.stdout + r.stderr)
    return float(r.stdout.split(" rtt: ")[1].split()[0])


def main():
    with harness.Cluster(3) as cluster:
        path = os.path.join(cluster.dir, "fast.json")
        with open(path, "w") as f:
            json.dump(FAST, f)
        cluster.args.append("-config-file=" + path)
        begun = time.monotonic()
        cluster.start()
        cluster.wait_writable()
        names = [s.name for s in cluster.servers]
        for s in cluster.servers:
            until("%s knows where all are" % s.name, lambda: measured(s, names), MINUTE)
        print("all have coordinates %.1f s after the start" % (time.monotonic() - begun), flush=True)
        estimates = []

        def near():                      # more samples mend what one says that was taken as this machine stood still
            estimates[:] = [rtt_ms(s, "s1", other) for s in cluster.servers for other in ("s2", "s3")]
            return all(0 < e < 100 * harness.SLOW for e in estimates)
        until("they are near each other, as on one host", near, 20)
        print("estimates, ms: %s" % estimates, flush=True)
        check(all(metric(s, "coord_coordinate_refused_total") == 0 for s in cluster.servers), "no sample is refused")

        # A follower takes updates; the leader's loss stops nothing.
        leader = cluster.leader()
        follower = next(s for s in cluster.servers if s is not leader)
        until("registered", lambda: follower.put("/v1/catalog/register", json.dumps({"Node": "host", "Address": "10.0.0.9"}).encode()))
        until("an update taken by a follower is everywhere", lambda: update(follower, "host", 0.25) and
              all(places(s).get("host", {}).get("Vec", [0])[0] == 0.25 for s in cluster.servers), 15)
        leader.kill()
        rest = [s for s in cluster.servers if s is not leader]
        cluster.wait_writable(rest)
        before = {s.name: (metric(s, "coord_coordinate_samples_total"), places(s)[s.name]) for s in rest}
        for s in rest:
            until("%s goes on measuring" % s.name, lambda: metric(s, "coord_coordinate_samples_total") > before[s.name][0] + 5, 30)
            until("and reporting", lambda: places(s)[s.name] != before[s.name][1], 30)
        until("an update with another leader", lambda: update(follower, "host", 0.5) and
              all(places(s).get("host", {}).get("Vec", [0])[0] == 0.5 for s in rest), 15)
        leader.start()
        cluster.wait_writable()
        until("it finds its place again", lambda: measured(leader, names), MINUTE)
        check(not cluster.unexpected_ends() and not cluster.confessions(), "%s %s" % (cluster.unexpected_ends(), cluster.confessions()))


if __name__ == "__main__":
    harness.tidy_on_signals()
    main()
