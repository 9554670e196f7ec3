#!/usr/bin/env python3
"""A follower's disk is full, and its log has room that it made ready before, but its store has not: nothing is applied there any more.
Default reads through it go on, answered by the leader. And a leader has room for a backup's pieces, and none for the state that they become: another
leads, and the backup is restored."""
import json, threading, time
import harness
from full_disk import another_leads, fill, free_megabytes, give_back, leave_free, small_disk
from harness import check, until

VALUE = b"s" * 400000


def write(leader, key):
    leader.write("/v1/kv/" + key, VALUE)


def room_stays(server):
    """Nothing more is made ready."""
    free, since = free_megabytes(server), time.monotonic()

    def stays():
        nonlocal free, since
        if free_megabytes(server) != free:
            free, since = free_megabytes(server), time.monotonic()
        return time.monotonic() - since > 1
    until("the room on its disk stays the same", stays, 30)


def follower():
    with harness.Cluster(3) as cluster:
        full = cluster.servers[2]
        small_disk(cluster, full, 500)
        cluster.start()
        cluster.wait_writable()
        leader = another_leads(cluster, full)
        for i in range(40):      # the log's segments reach their full size, the store stays small
            write(leader, "before/%d" % (i % 4))
        until("it has all", lambda: full.request("GET", "/v1/kv/before/3?stale", timeout=5 * harness.SLOW)[0] == 200)
        room_stays(full)         # the next segment is made ready meanwhile
        fill(full)

        def healthy():
            status, _, answer = leader.request("GET", "/v1/operator/autopilot/health")
            return {s["Name"]: s["Healthy"] for s in json.loads(answer)["Servers"]} if status in (200, 429) else {"nobody": False}

        def default_read(i):
            """How long it took, and the bound; None while servers elect a leader."""
            begun = time.monotonic()
            status, _, body = full.request("GET", "/v1/kv/d/%d?raw" % i, timeout=10 * harness.SLOW + harness.STANDSTILL)
            check(status == 500 or (status == 200 and body == VALUE), "a default read %d: %d %r" % (i, status, body[:80]))
            return (time.monotonic() - begun, 3 * harness.SLOW) if status == 200 else None
        reads, behind = [], 0
        for i in range(120):
            write(leader, "d/%d" % i)
            reads.append(harness.kept("a default read", lambda: until("a default read", lambda: default_read(i))))
            behind += full.request("GET", "/v1/kv/d/%d?stale" % i, timeout=5 * harness.SLOW)[0] == 404
        check(behind > 20, "it was behind in %d of 120" % behind)
        check("a batch cannot be applied" in full.log(), "its store had no room")
        until("the leader knows", lambda: healthy() == {s.name: s is not full for s in cluster.servers})
        until("and says so", lambda: leader.request("GET", "/v1/operator/autopilot/health")[0] == 429)
        give_back(full)
        until("all are well", lambda: all(healthy().values()), 20)
        until("it catches up", lambda: full.request("GET", "/v1/kv/d/119?stale", timeout=5 * harness.SLOW)[0] == 200, 20)
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    print("ok: behind in %d of 120 reads, the longest took %.2f s" % (behind, max(reads)))


def answered(server, path):
    """The status of a read; none while servers elect a leader."""
    status = server.request("GET", path, timeout=10 * harness.SLOW + harness.STANDSTILL)[0]
    return status if status != 500 else None


def leader():
    with harness.Cluster(3) as cluster:
        small = cluster.servers[2]
        small_disk(cluster, small, 1000)
        cluster.start()
        cluster.wait_writable()
        for i in range(150):
            write(cluster.leader(), "state/%d" % i)
        other = another_leads(cluster, small)

        def saved():
            status, _, backup = other.request("GET", "/v1/snapshot", timeout=30 * harness.SLOW)
            return backup if status == 200 else None
        backup = until("saved", saved)
        write(other, "later")
        named = next(s["ID"] for s in other.get("/v1/operator/raft/configuration")[2]["Servers"] if s["Address"].startswith(small.ip + ":"))
        until("it leads", lambda: cluster.leader() is small or
              (other.request("PUT", "/v1/operator/raft/transfer-leader?id=" + named, timeout=10 * harness.SLOW) and False), 30)
        leave_free(small, 178)     # of 60 MB three times: in the log, aside, and as the new state
        answers = []
        asking = threading.Thread(target=lambda: answers.append(other.request("PUT", "/v1/snapshot", backup, 60 * harness.SLOW)[0]))
        asking.start()
        until("it has no room", lambda: "a backup cannot be restored here" in small.log(), 30)
        begun = time.monotonic()
        until("another leads", lambda: cluster.leader() not in (None, small), 20)      # handed over at most once in 10 s, and that was just before
        other.write("/v1/kv/after", b"1")      # and writes go on
        took = time.monotonic() - begun
        asking.join()
        for s in cluster.servers:
            status = until("a read through " + s.name, lambda: answered(s, "/v1/kv/later?raw"))
            check(status == 404, "it is restored: through %s %d" % (s.name, status))
        check(answers and answers[0] in (200, 500), "the one who asked is told: %r" % answers)
        give_back(small)
        until("the one without room too", lambda: small.request("GET", "/v1/kv/after?stale")[0] == 200, 30)
        check(small.request("GET", "/v1/kv/later?stale", timeout=10 * harness.SLOW)[0] == 404, "with the backup")
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    print("ok: another led, and writes went on, after %.1f s" % took)


def main():
    harness.tidy_on_signals()
    follower()
    leader()


if __name__ == "__main__":
    main()
