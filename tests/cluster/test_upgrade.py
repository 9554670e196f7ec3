#!/usr/bin/env python3
"""A rolling upgrade from the release before this one, while clients write and read through all servers: no acknowledged write is lost,
service goes on, the cluster version rises after the last server and not before, and nobody goes back afterwards. What the newest version
brings (names without regard to case; locks, elections, fences, barriers, phasers, hazards, transactions) is not there before on any server, and there afterwards on all of them alike; a backup that was taken
before is as if it had been taken afterwards. Old and new servers give each other copies of the state.

    test_upgrade.py [--old PROGRAM] [--mixed SECONDS]

The old program is built from history: the newest tag v* below this commit, else the commit below, the last of cluster version 3.
"""
import argparse, http.client, json, os, re, shutil, subprocess, sys, threading, time
import harness
from harness import until

BEFORE = "082ca2677114da9b2fa14b48b0c80c7f6d68a80b"      # cluster version 3
ROOT = os.path.join(harness.HERE, "../..")
now = time.monotonic


# -- the program before this one ------------------------------------------------------------------------------------
def git(*words):
    r = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, *words], capture_output=True, text=True)
    return r.stdout.strip() if r.returncode == 0 else None


def previous():
    if not shutil.which("git") or git("rev-parse", "HEAD") is None:
        harness.skip("no git history here")
    for tag in (git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-v:refname") or "").split():
        if git("rev-parse", tag + "^{commit}") != git("rev-parse", "HEAD"):
            return tag
    if git("cat-file", "-e", BEFORE + "^{commit}") is None:
        harness.skip("the history does not reach back to " + BEFORE)
    return BEFORE


def build_previous():
    commit = git("rev-parse", previous() + "^{commit}")
    if not (shutil.which("cmake") and shutil.which("ninja") and (shutil.which("cc") or shutil.which("gcc"))):
        harness.skip("no cmake, ninja and C compiler to build the previous release with")
    base = os.path.join(os.environ.get("COORD_UPGRADE_DIR") or os.path.join(ROOT, "build/upgrade"), commit[:12])
    program, source = os.path.join(base, "build/coord"), os.path.join(base, "source")
    if not os.path.exists(program):
        begun = now()
        os.makedirs(source, exist_ok=True)
        archive = subprocess.Popen(["git", "-c", "safe.directory=*", "-C", ROOT, "archive", commit], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", source], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            harness.skip("git archive of %s failed" % commit)
        for command in (["cmake", "-G", "Ninja", "-S", source, "-B", os.path.join(base, "build")],
                        ["ninja", "-C", os.path.join(base, "build"), "coord"]):
            r = subprocess.run(command, capture_output=True, text=True)
            if r.returncode != 0:
                raise AssertionError("%s failed:\n%s" % (" ".join(command), (r.stdout + r.stderr)[-3000:]))
        print("built %s in %.0f s" % (commit[:12], now() - begun), flush=True)
    return os.path.abspath(program)


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
    """As the metric says; 0: a program that has none."""
    _, _, text = server.request("GET", "/v1/agent/metrics?format=prometheus")
    found = re.search(rb"^coord_cluster_version (\d+)$", text, re.M)
    return int(found.group(1)) if found else 0


def held_up(server, before, why):
    """It says why the version cannot rise: as its leader it does so at once, and every minute."""
    return re.search("the cluster version stays at %d until every server supports more: server [^ ]+ %s" % (before, why), server.log())


def register(server, **body):
    assert server.put("/v1/catalog/register", json.dumps(dict(Address="10.0.0.1", **body)).encode(), timeout=10), body


def write_names(server):
    """Nodes, services and checks, some of which are one without regard to case."""
    register(server, Node="Carl", Service={"ID": "W1", "Service": "Web"}, Check={"CheckID": "Up", "ServiceID": "W1", "Status": "passing"})
    register(server, Node="CARL", Service={"ID": "w1", "Service": "web"})
    register(server, Node="CARL", Service={"ID": "api", "Service": "Api"})
    register(server, Node="dora", Service={"ID": "A", "Service": "API"})
    register(server, Node="dora", Service={"ID": "a", "Service": "Api"})


def names(server):
    """What this server's own copy has of them: nodes, instances by service."""
    ask = lambda path: server.get(path + "?stale", timeout=10)[2] or []
    nodes = sorted(n["Node"] for n in ask("/v1/catalog/nodes") if n["Node"].lower() in ("carl", "dora"))
    return nodes, {name: sorted((i["Node"], i["ServiceID"], i["ServiceName"]) for i in ask("/v1/catalog/service/" + name))
                   for name in ("Web", "WEB", "web", "Api", "aPI")}


EXACT = (["CARL", "Carl", "dora"], {"Web": [("Carl", "W1", "Web")], "WEB": [], "web": [("CARL", "w1", "web")],
                                    "Api": [("CARL", "api", "Api"), ("dora", "a", "Api")], "aPI": []})
WEB, API = [("CARL", "w1", "web")], [("CARL", "api", "Api"), ("dora", "a", "Api")]
FOLDED = (["CARL", "dora"], {"Web": WEB, "WEB": WEB, "web": WEB, "Api": API, "aPI": API})


def replace(server, program):
    server.terminate()
    server.program = program
    server.start()


# Commands of the newest version, which old servers cannot apply.
COORDINATION = ("/v1/lock/up/acquire?ttl=60s&enqueue", "/v1/election/up/campaign?ttl=60s&enqueue", "/v1/barrier/up/enter?ttl=60s&parties=100",
                "/v1/phaser/up/register?ttl=60s", "/v1/hazard/up/protect?ttl=60s", "/v1/fence/up?token=1", "/v1/kv/fenced?fence=nobody&token=1",
                "/v1/txn")
BODIES = {"/v1/txn": b'[{"KV":{"Verb":"set","Key":"txn","Value":"MQ=="}}]'}


def refuses_coordination(server):
    for path in COORDINATION:
        status, _, body = server.request("PUT", path, BODIES.get(path, b""), timeout=10)
        assert status == 400 and b"cluster version" in body, "%s on %s: %d %r" % (path, server.name, status, body)


def coordinates(cluster):
    """All of it works through every server, and all have the same state of it."""
    for s in cluster.servers:
        for path in COORDINATION:
            status, _, body = s.request("PUT", path, BODIES.get(path, b""), timeout=10)
            assert status == (412 if "/kv/" in path else 200), "%s on %s: %d %r" % (path, s.name, status, body)
    for path in ("/v1/lock/up", "/v1/election/up", "/v1/barrier/up", "/v1/phaser/up", "/v1/hazard/up", "/v1/fence/up"):
        answers = [s.request("GET", path, timeout=10)[::2] for s in cluster.servers]
        assert answers[0][0] == 200 and all(a == answers[0] for a in answers), "%s: %r" % (path, answers)


# -- the story -----------------------------------------------------------------------------------------------------------------
def mixed(cluster, fresh, seconds, before):
    """Old and new programs in one cluster: it works, and does nothing that the old ones do not know."""
    end = now() + seconds
    while now() < end:
        time.sleep(0.2)
        assert all(version(s) == before for s in fresh), "the version rose before the last server was upgraded"
    for s in cluster.servers:
        until("names are exact on " + s.name, lambda s=s: names(s) == EXACT, 5)
    for s in fresh:
        refuses_coordination(s)
    leader = cluster.leader()
    if leader in fresh:
        until("what holds the version up is named", lambda: held_up(leader, before, "supports only %d" % before), 5)


def upgrade(cluster, load, old, seconds):
    fresh, marks, before = [], [], version(cluster.servers[0])
    for s in cluster.servers:
        was = cluster.leader()
        begun = now()
        replace(s, harness.COORD)
        fresh.append(s)
        took = cluster.wait_writable([s])
        marks.append((begun, "%s%s" % (s.name, ", the leader," if was is s else "")))
        print("%s replaced, writes through it after %.2f s" % (marks[-1][1], took), flush=True)
        if len(fresh) < len(cluster.servers):
            mixed(cluster, fresh, seconds, before)
        if len(fresh) == 1:              # until the version has risen one can go back
            for program in (old, harness.COORD):
                replace(s, program)
                cluster.wait_writable([s])
            assert version(s) == before
    until("the newest version on every server", lambda: all(version(s) == harness.NEWEST for s in cluster.servers), 10)
    print("version %d on every server %.2f s after the last start" % (harness.NEWEST, now() - begun), flush=True)
    for s in cluster.servers:
        assert "the cluster version has changed from=%d to=%d" % (before, harness.NEWEST) in s.log(), s.name
        until("names have no case on " + s.name, lambda s=s: names(s) == FOLDED, 5)
    coordinates(cluster)
    return marks, before


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


def downgrade(cluster, old, before_version):
    """One server goes back. On its own data the old program does not start, or, where it does not know the format of the store, has none to
    serve from and is refused by the others; with an empty folder the others have nothing to do with it, say why, and go on. It comes back with
    the new program."""
    victim, others = cluster.servers[0], cluster.servers[1:]
    at, before = len(victim.log()), [len(s.log()) for s in others]
    replace(victim, old)
    victim.expected_end = True
    until("the old program does not start, or is refused", lambda: not victim.alive() or "it has to be upgraded" in victim.log()[at:], 10)
    if victim.alive():
        assert "store open trusted=no applied=0" in victim.log()[at:] and not victim.try_put("/v1/kv/from-the-old-one", timeout=3)
        victim.kill()
    else:
        last = victim.log()[at:].strip().splitlines()[-1]
        assert "newer version of coord" in last or "this program supports up to %d" % before_version in last, last
    assert victim.proc.returncode != 0, victim.proc.returncode
    print("downgrade on its own data: " + victim.log()[at:].strip().splitlines()[-1][-160:], flush=True)
    os.rename(victim.data, victim.data + ".kept")
    at = len(victim.log())
    victim.start()
    until("it hears that it is refused", lambda: "it has to be upgraded" in victim.log()[at:], 10)
    until("the others refuse the old program", lambda: all(
        "its program supports only up to %d: it has to be upgraded" % before_version in s.log()[at:] for s, at in zip(others, before)), 10)
    assert not victim.try_put("/v1/kv/from-the-old-one", timeout=3), "a write through a server that went back was acknowledged"
    cluster.wait_writable(others)
    lines = [line for s, at in zip(others, before) for line in s.log()[at:].splitlines() if "has to be upgraded" in line]
    assert len(lines) <= 2 * len(others), "refusals are logged too often: %d" % len(lines)
    print("downgrade with an empty folder: " + lines[0][:200], flush=True)
    victim.kill()
    shutil.rmtree(victim.data)
    os.rename(victim.data + ".kept", victim.data)
    victim.program = harness.COORD
    victim.start()
    print("the new program again: writes through it after %.2f s" % cluster.wait_writable([victim]), flush=True)


def restored(cluster, backup):
    """A backup of the version before becomes the state of this one."""
    leader = cluster.leader()
    register(leader, Node="later")
    status, _, body = leader.request("PUT", "/v1/snapshot", backup, timeout=60)
    assert status == 200, (status, body)
    for s in cluster.servers:
        until("the backup's names have no case on " + s.name, lambda s=s: names(s) == FOLDED, 10)
        until("it is the backup on " + s.name, lambda s=s: "later" not in [n["Node"] for n in s.get("/v1/catalog/nodes?stale")[2]], 10)


def rebuilt_from_another(cluster, victim):
    """Its state is damaged, as its mark says: it asks another for a copy, which may be of the other program, and takes it whole."""
    at = len(victim.log())
    victim.kill()
    with open(os.path.join(victim.data, "store", "fenced"), "w") as f:
        f.write("coord fenced 1\nindex=7 made by a test\n")
    victim.start()
    until("%s is rebuilt" % victim.name, lambda: "the state was rebuilt, this server serves again" in victim.log()[at:], 40)
    assert "a copy of the state is here" in victim.log()[at:], victim.log()[at:][-2000:]
    until("it serves it", lambda: names(victim) == EXACT, 10)
    cluster.wait_writable()


def founded_together(old):
    """Old and new programs found a cluster: it begins at what all of them support, and rises when the old one has gone for good."""
    with harness.Cluster(3) as cluster:
        cluster.servers[0].program = old
        cluster.start()
        cluster.wait_writable()
        fresh = cluster.servers[1:]
        before = version(cluster.servers[0])
        write_names(cluster.servers[0])
        mixed(cluster, fresh, 1, before)
        for victim in (cluster.servers[0], fresh[0]):
            rebuilt_from_another(cluster, victim)
        assert fresh[0].put("/v1/catalog/deregister", b'{"Node": "Carl"}') and fresh[0].put("/v1/catalog/deregister", b'{"Node": "CARL"}')
        cluster.servers[0].kill()
        cluster.wait_writable(fresh)
        leader = cluster.leader()
        told = until("what holds it up is named", lambda: held_up(leader, before, "is not connected"), 90)
        print("one is away: " + told.group(0), flush=True)
        status, _, body = leader.request("DELETE", "/v1/operator/raft/peer?address=%s:8300" % cluster.servers[0].ip, timeout=15)
        assert status == 200, (status, body)
        until("the newest version", lambda: all(version(s) == harness.NEWEST for s in fresh), 10)
        register(fresh[0], Node="Carl", Service={"Service": "Web"})
        until("names have no case", lambda: all(names(s)[1]["WEB"] == [("Carl", "Web", "Web")] for s in fresh), 5)
        print("founded together with an old one: version %d; it was removed: the newest" % before, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--old", help="a program built before; else it is built from history")
    p.add_argument("--mixed", type=float, default=3.0, help="seconds with old and new servers in one cluster, each time")
    options = p.parse_args()
    harness.tidy_on_signals()
    old = options.old or build_previous()
    with harness.Cluster(3) as cluster:
        for s in cluster.servers:
            s.program = old
        cluster.start()
        cluster.wait_writable()
        write_names(cluster.servers[0])
        status, _, backup = cluster.servers[0].request("GET", "/v1/snapshot", timeout=30)
        assert status == 200, (status, backup[:200])
        load = Load(cluster).start()
        time.sleep(1)
        marks, before = upgrade(cluster, load, old, options.mixed)
        time.sleep(1)
        load.stop()
        check_all(cluster, load)
        gaps = load.gaps()
        print("%d writes acknowledged, %d reads, %d requests refused or cut off; longest times without a write: %s" % (
            len(load.acknowledged), load.reads, load.refused, ", ".join("%.2f s" % g for g, _ in gaps[:3])), flush=True)
        assert gaps[0][0] < 5 * harness.SLOW, "service did not go on: %.1f s without a write" % gaps[0][0]
        downgrade(cluster, old, before)
        restored(cluster, backup)
        dead = cluster.unexpected_ends()
        assert not dead, [(s.name, s.proc.returncode) for s in dead]
    founded_together(old)
    return 0


if __name__ == "__main__":
    sys.exit(main())
