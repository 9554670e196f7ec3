#!/usr/bin/env python3
"""A rolling upgrade to the next version of the program, while clients write and read through all servers: no acknowledged write is lost,
service goes on, the cluster version rises after the last server and not before, and nobody goes back afterwards. The command that the next
version brings is refused before, and works through every server afterwards; a backup that was taken before can be restored. Servers of both
versions give each other copies of the state.

    test_upgrade.py [--later PROGRAM] [--mixed SECONDS]

The next version is made up: `coord_later` is this program with one cluster version more and one command (tests/cluster/later_program.c).
"""
import argparse, http.client, os, re, shutil, socket, sys, threading, time
import harness, test_strangers as wire
from harness import until

LATER = os.environ.get("COORD_LATER") or os.path.join(os.path.dirname(harness.COORD), "tests/cluster/coord_later")
BEFORE, AFTER = harness.NEWEST, harness.NEWEST + 1
UNSUPPORTED = 8                                     # enum co_error
now = time.monotonic


# -- clients ------------------------------------------------------------------------------------------------------------
class Load:
    """One writer and one reader for each server, one request after the other."""

    def __init__(self, cluster):
        self.cluster, self.stopping, self.lock = cluster, threading.Event(), threading.Lock()
        self.acknowledged, self.times, self.reads, self.problems, self.refused = [], [], 0, [], 0
        self.threads = [threading.Thread(target=work, args=(s,), daemon=True) for s in cluster.servers for work in (self.write, self.read)]

    def start(self):
        for t in self.threads:
            t.start()
        return self

    def write(self, server):
        number = 0
        while not self.stopping.is_set():
            number += 1
            key = "up/%s/%d" % (server.name, number)
            if server.try_put("/v1/kv/" + key, key.encode(), timeout=10):
                with self.lock:
                    self.acknowledged.append(key)
                    self.times.append(now())
            else:
                self.refused += 1
                self.stopping.wait(0.02)

    def read(self, server):
        while not self.stopping.is_set():
            with self.lock:
                key = self.acknowledged[-1] if self.acknowledged else None
            if not key:
                self.stopping.wait(0.02)
                continue
            try:
                status, _, body = server.request("GET", "/v1/kv/%s?raw" % key, timeout=10)
            except (OSError, http.client.HTTPException):
                self.stopping.wait(0.02)
                continue
            if status == 404 or (status == 200 and body != key.encode()):
                self.problems.append("%s was acknowledged, and %s answers %d %r" % (key, server.name, status, body[:60]))
            self.reads += status == 200
            self.stopping.wait(0.002)

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(30)
        return self

    def gaps(self):
        """The longest times without an acknowledged write, longest first: (seconds, when it began)."""
        return sorted(((b - a, a) for a, b in zip(self.times, self.times[1:])), reverse=True)


# -- questions to servers ---------------------------------------------------------------------------------------------------
def version(server):
    """As the metric says."""
    _, _, text = server.request("GET", "/v1/agent/metrics?format=prometheus")
    return int(re.search(rb"^coord_cluster_version (\d+)$", text, re.M).group(1))


def held_up(server, before, why):
    """It says why the version cannot rise: as its leader it does so at once, and every minute."""
    return re.search("the cluster version stays at %d until every server supports more: server [^ ]+ %s" % (before, why), server.log())


def replace(server, program):
    server.terminate()
    server.program = program
    server.start()


def later(server):
    """What comes of the later version's command, sent as a client agent does: CO_OK, or why not."""
    with socket.create_connection((server.ip, 8300), timeout=20 * harness.SLOW) as s:
        s.sendall(wire.agent_hello(76) + wire.write(b"\xff\x01"))
        answer = wire.fields(wire.fields(next(wire.answers_on(s, wire.RESULTS)))[1])
        return answer.get(2, 0) or answer.get(5, 0)      # the outcome; the result's error


# -- the story -----------------------------------------------------------------------------------------------------------------
def mixed(cluster, fresh, seconds):
    """Both programs in one cluster: it works, and does nothing that the old one does not know."""
    end = now() + seconds
    while now() < end:
        time.sleep(0.2)
        assert all(version(s) == BEFORE for s in cluster.servers), "the version rose before the last server was upgraded"
    for s in cluster.servers:
        until("%s refuses what comes later" % s.name, lambda s=s: later(s) == UNSUPPORTED, 5)
    leader = cluster.leader()
    if leader in fresh:
        until("what holds the version up is named", lambda: held_up(leader, BEFORE, "supports only %d" % BEFORE), 5)


def upgrade(cluster, seconds):
    fresh = []
    for s in cluster.servers:
        was = cluster.leader()
        begun = now()
        replace(s, LATER)
        fresh.append(s)
        took = cluster.wait_writable([s])
        print("%s replaced%s, writes through it after %.2f s" % (s.name, ", the leader" if was is s else "", took), flush=True)
        if len(fresh) < len(cluster.servers):
            mixed(cluster, fresh, seconds)
        if len(fresh) == 1:              # until the version has risen one can go back
            for program in (harness.COORD, LATER):
                replace(s, program)
                cluster.wait_writable([s])
            assert version(s) == BEFORE
    until("the later version on every server", lambda: all(version(s) == AFTER for s in cluster.servers), 10)
    print("version %d on every server %.2f s after the last start" % (AFTER, now() - begun), flush=True)
    for s in cluster.servers:
        assert "the cluster version has changed from=%d to=%d" % (BEFORE, AFTER) in s.log(), s.name
        until("%s takes what has come" % s.name, lambda s=s: later(s) == 0, 5)


def check_all(cluster, load):
    """Every acknowledged write is there, through every server, and soon on its own copy."""
    def lost(s, query):
        keys = set(s.get("/v1/kv/up/?keys" + query, timeout=30)[2])
        return [k for k in load.acknowledged if k not in keys]

    for s in cluster.servers:
        missing = lost(s, "")
        assert not missing, "%d acknowledged writes are not there, says %s: %s" % (len(missing), s.name, missing[:5])
        until("%s has all itself" % s.name, lambda s=s: not lost(s, "&stale"), 10)
    assert not load.problems, load.problems[:5]


def downgrade(cluster):
    """One server goes back. On its own data the old program does not start; with an empty folder the others have nothing to do with it, say why,
    and go on. It comes back with the later program."""
    victim, others = cluster.servers[0], cluster.servers[1:]
    at, before = len(victim.log()), [len(s.log()) for s in others]
    replace(victim, harness.COORD)
    victim.expected_end = True
    until("the old program does not start", lambda: not victim.alive(), 10)
    last = victim.log()[at:].strip().splitlines()[-1]
    assert "the cluster is at version %d, this program supports up to %d: a newer one is needed" % (AFTER, BEFORE) in last, last
    assert victim.proc.returncode != 0, victim.proc.returncode
    print("downgrade on its own data: " + last[-160:], flush=True)
    os.rename(victim.data, victim.data + ".kept")
    at = len(victim.log())
    victim.start()
    until("it hears that it is refused", lambda: "it has to be upgraded" in victim.log()[at:], 10)
    until("the others refuse the old program", lambda: all(
        "its program supports only up to %d: it has to be upgraded" % BEFORE in s.log()[at:] for s, at in zip(others, before)), 10)
    assert not victim.try_put("/v1/kv/from-the-old-one", timeout=3), "a write through a server that went back was acknowledged"
    cluster.wait_writable(others)
    lines = [line for s, at in zip(others, before) for line in s.log()[at:].splitlines() if "has to be upgraded" in line]
    assert len(lines) <= 2 * len(others), "refusals are logged too often: %d" % len(lines)
    print("downgrade with an empty folder: " + lines[0][:200], flush=True)
    victim.kill()
    shutil.rmtree(victim.data)
    os.rename(victim.data + ".kept", victim.data)
    victim.program = LATER
    victim.start()
    print("the later program again: writes through it after %.2f s" % cluster.wait_writable([victim]), flush=True)


def has(server, key):
    """Of its own copy."""
    return server.get("/v1/kv/%s?stale" % key, timeout=10)[0] == 200


def restored(cluster, backup):
    """A backup of the version before becomes the state, and the cluster stays at its version."""
    leader = cluster.leader()
    assert leader.put("/v1/kv/later", timeout=10)
    status, _, body = leader.request("PUT", "/v1/snapshot", backup, timeout=60)
    assert status == 200, (status, body)
    for s in cluster.servers:
        until("it is the backup on " + s.name, lambda s=s: has(s, "before") and not has(s, "later"), 10)
        assert version(s) == AFTER and later(s) == 0, s.name


def rebuilt_from_another(cluster, victim):
    """Its state is damaged, as its mark says: it asks another for a copy, which may be of the other program, and takes it whole."""
    at = len(victim.log())
    victim.kill()
    with open(os.path.join(victim.data, "store", "fenced"), "w") as f:
        f.write("coord fenced 1\nindex=7 made by a test\n")
    victim.start()
    until("%s is rebuilt" % victim.name, lambda: "the state was rebuilt, this server serves again" in victim.log()[at:], 40)
    assert "a copy of the state is here" in victim.log()[at:], victim.log()[at:][-2000:]
    until("it serves it", lambda: has(victim, "before"), 10)
    cluster.wait_writable()


def founded_together():
    """Both programs found a cluster: it begins at what all of them support, and rises when the old one has gone for good."""
    with harness.Cluster(3) as cluster:
        old, fresh = cluster.servers[0], cluster.servers[1:]
        for s in fresh:
            s.program = LATER
        cluster.start()
        cluster.wait_writable()
        assert old.put("/v1/kv/before", timeout=10)
        mixed(cluster, fresh, 1)
        for victim in (old, fresh[0]):
            rebuilt_from_another(cluster, victim)
        old.kill()
        cluster.wait_writable(fresh)
        told = until("what holds it up is named", lambda: [t for t in (held_up(s, BEFORE, "is not connected") for s in fresh) if t], 90)
        print("one is away: " + told[0].group(0), flush=True)
        status, _, body = fresh[0].request("DELETE", "/v1/operator/raft/peer?address=%s:8300" % old.ip, timeout=15)
        assert status == 200, (status, body)
        until("the later version", lambda: all(version(s) == AFTER and later(s) == 0 for s in fresh), 10)
        print("founded together with an old one: version %d; it was removed: version %d" % (BEFORE, AFTER), flush=True)


def main():
    global LATER
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--later", default=LATER, help="the program of the next version")
    p.add_argument("--mixed", type=float, default=3.0, help="seconds with servers of both in one cluster, each time")
    options = p.parse_args()
    LATER = options.later
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        assert cluster.servers[0].put("/v1/kv/before", timeout=10)
        status, _, backup = cluster.servers[0].request("GET", "/v1/snapshot", timeout=30)
        assert status == 200, (status, backup[:200])
        load = Load(cluster).start()
        time.sleep(1)
        upgrade(cluster, options.mixed)
        time.sleep(1)
        load.stop()
        check_all(cluster, load)
        gaps = load.gaps()
        print("%d writes acknowledged, %d reads, %d requests refused or cut off; longest times without a write: %s" % (
            len(load.acknowledged), load.reads, load.refused, ", ".join("%.2f s" % g for g, _ in gaps[:3])), flush=True)
        assert gaps[0][0] < 5 or not harness.FIGURES, "service did not go on: %.1f s without a write" % gaps[0][0]
        downgrade(cluster)
        restored(cluster, backup)
        dead = cluster.unexpected_ends()
        assert not dead, [(s.name, s.proc.returncode) for s in dead]
    founded_together()
    return 0


if __name__ == "__main__":
    sys.exit(main())
