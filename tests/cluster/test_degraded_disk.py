#!/usr/bin/env python3
"""The disk of the leader's log fails, or becomes slow: another leads before clients give up, one whose disk is well. The degraded one says so, in its log
and its metrics, stops campaigning, and is well again by itself. Through a library that is preloaded."""
import os, re, struct, time
import harness
from harness import check, until

WELL = 5                                 # disk_health.h


class Disk:
    def __init__(self, cluster, server, library):
        self.path = os.path.join(server.dir, "degraded")
        self.set()
        server.environment = harness.preloaded(library, SICK_DISK=self.path)

    def set(self, delay_ms=0, failures=0):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("=qq", delay_ms, failures))


def degraded(server):
    metrics = server.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()
    said = re.search(r"^coord_raft_disk_degraded (\d)", metrics, re.M)
    return bool(said) and said.group(1) == "1"


def another_after(cluster, old, damage):
    """Writes go on through the others; who leads then, and after how long the first of them succeeded."""
    others = [s for s in cluster.servers if s is not old]
    begun = time.monotonic()
    damage()
    i = 0
    while True:
        old.try_put("/v1/kv/at-the-degraded-one", timeout=0.2) if i % 4 == 0 else None
        done = all(s.try_put("/v1/kv/%s-%d" % (s.name, i), timeout=1) for s in others)
        leader = cluster.leader()
        if done and leader and leader is not old:
            return leader, time.monotonic() - begun
        check(time.monotonic() - begun < 30 * harness.SLOW, "nobody else leads after %.1f s" % (time.monotonic() - begun))
        i += 1


def is_well_again(server, begun):
    until("it is well again", lambda: not degraded(server) and "the log's disk is well again" in server.log()[begun:], 2 * WELL + 5)
    until("it has all", lambda: server.request("GET", "/v1/kv/?keys&stale")[2] == server.request("GET", "/v1/kv/?keys")[2], 20)


class Logs:
    """What servers say from now on."""

    def __init__(self, cluster):
        self.at = {s: len(s.log()) for s in cluster.servers}

    def of(self, server):
        return server.log()[self.at[server]:]

    def slow(self, server):
        """Its own disk, which is that of this machine, stood still."""
        return "the log's disk is slow" in self.of(server)


handed = 0.0


def may_be_handed_over(cluster):
    """Once in 10 s."""
    until("no disk is degraded", lambda: not any(degraded(s) for s in cluster.servers), 2 * WELL)
    until("leadership may be handed over again", lambda: time.monotonic() - handed > 10, 15)


def did_not_want_to_lead(logs, old, others):
    """Until it was well again. It does all the same where nobody is well."""
    meanwhile = logs.of(old).split("the log's disk is well again")[0]
    check("raft: leading term=" not in meanwhile or any(logs.slow(s) for s in others), "it did not want to lead meanwhile: " + meanwhile)


def a_failed_sync(cluster, disks):
    global handed
    may_be_handed_over(cluster)
    old, logs = cluster.leader(), Logs(cluster)
    _, took = another_after(cluster, old, lambda: disks[old].set(failures=1))
    handed = time.monotonic()
    until("it says so", lambda: "the log's disk is failing: this server does not lead" in logs.of(old), 5)
    until("its log is open again", lambda: "the log was opened again" in logs.of(old), 10)
    check("the log cannot be written" in logs.of(old), "and why")
    is_well_again(old, logs.at[old])
    did_not_want_to_lead(logs, old, [s for s in cluster.servers if s is not old])
    return took, 2 * harness.MULTIPLIER


def slow_syncs(cluster, disks):
    """Not to the one whose disk has just failed."""
    global handed
    may_be_handed_over(cluster)
    old, logs = cluster.leader(), Logs(cluster)
    failed, well = [s for s in cluster.servers if s is not old]
    failed_ms = time.monotonic()
    disks[failed].set(failures=1)
    cluster.leader().try_put("/v1/kv/x")
    until("its disk failed", lambda: "the log was opened again" in logs.of(failed), 10)
    new, took = another_after(cluster, old, lambda: disks[old].set(delay_ms=1500))
    handed = time.monotonic()
    check(new is well or time.monotonic() - failed_ms > WELL or logs.slow(well), "the other one's disk has just failed")
    until("it says so", lambda: "the log's disk is slow: this server does not lead" in logs.of(old), 5)
    until("and in its metrics", lambda: degraded(old), 5)
    disks[old].set()
    is_well_again(old, logs.at[old])
    did_not_want_to_lead(logs, old, [well])
    return took, 4 * harness.MULTIPLIER


def syncs_go_on_failing(cluster, disks):
    """Also where the log is opened again. It answers what needs no log, says so, and is back by itself."""
    bad = next(s for s in cluster.servers if s is not cluster.leader())
    begun = len(bad.log())
    disks[bad].set(failures=1 << 40)
    cluster.leader().write("/v1/kv/without-it", b"1")
    again = "the log cannot be opened again, tried again later"
    until("it is tried twice", lambda: bad.log()[begun:].count(again) >= 2, 20)
    cluster.leader().write("/v1/kv/without-it", b"2")
    until("it is degraded for as long as that goes on", lambda: bad.log()[begun:].count(again) >= 4 and degraded(bad), 30)
    check("the log's disk is well again" not in bad.log()[begun:], "it was not called well meanwhile")
    other = next(s for s in cluster.servers if s not in (bad, cluster.leader()))

    def asked():
        status, _, text = cluster.leader().request("DELETE", "/v1/operator/raft/peer?address=%s:8300" % other.ip)
        return None if harness.undecided(status, text) else (status, text)
    status, text = until("an answer", asked)
    check(status == 500 and b"would be no majority" in text, "the leader and the one whose log is down: %d %r" % (status, text))
    check(bad.request("GET", "/v1/kv/at-the-degraded-one?stale")[0] in (200, 404), "what needs no log is answered")
    disks[bad].set()
    is_well_again(bad, begun)
    check(bad.alive(), "it ran all the time")
    bad.write("/v1/kv/with-it", b"1")
    check(bad.request("GET", "/v1/kv/without-it?stale&raw")[2] == b"2", "it takes part again")


def a_stop_while_it_fails(cluster, disks):
    bad = next(s for s in cluster.servers if s is not cluster.leader())
    begun = len(bad.log())
    disks[bad].set(failures=1 << 40)
    cluster.leader().write("/v1/kv/stop", b"1")
    until("it fails", lambda: "the log cannot be opened again" in bad.log()[begun:], 20)
    check(bad.terminate() == 0, "it ends as told")
    disks[bad].set()
    bad.start()
    cluster.wait_writable()
    until("it has all", lambda: bad.request("GET", "/v1/kv/stop?stale&raw")[2] == b"1", 20)


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        library = harness.preload(cluster, "degraded_disk.c")
        if not library:
            harness.skip("no compiler for the library that is preloaded")
        disks = {server: Disk(cluster, server, library) for server in cluster.servers}
        cluster.start()
        cluster.wait_writable()
        failed = harness.kept("a write after a failed sync", lambda: a_failed_sync(cluster, disks))
        slow = harness.kept("a write after slow syncs", lambda: slow_syncs(cluster, disks))
        syncs_go_on_failing(cluster, disks)
        a_stop_while_it_fails(cluster, disks)
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    print("a write through another server after a failed sync: %.2f s; after slow ones: %.2f s" % (failed, slow))


if __name__ == "__main__":
    main()
