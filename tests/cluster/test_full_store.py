#!/usr/bin/env python3
"""A follower's disk is full, and its log has room that it made ready before, but its store has not: nothing is applied there any more.
Default reads through it go on, answered by the leader."""
import time
import harness
from full_disk import another_leads, fill, give_back, small_disk
from harness import check, until

VALUE = b"s" * 400000


def write(leader, key):
    check(leader.request("PUT", "/v1/kv/" + key, VALUE, 10 * harness.SLOW)[0] == 200, "the other two go on")


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        full = cluster.servers[2]
        small_disk(cluster, full, 500)
        cluster.start()
        cluster.wait_writable()
        leader = another_leads(cluster, full)
        for i in range(40):      # the log's segments reach their full size, the store stays small
            write(leader, "before/%d" % (i % 4))
        until("it has all", lambda: full.request("GET", "/v1/kv/before/3?stale", timeout=5 * harness.SLOW)[0] == 200)
        time.sleep(1)            # the next segment is made ready meanwhile
        fill(full)
        longest, behind = 0.0, 0
        for i in range(120):
            write(leader, "d/%d" % i)
            begun = time.monotonic()
            status, _, body = full.request("GET", "/v1/kv/d/%d?raw" % i, timeout=10 * harness.SLOW)
            longest = max(longest, time.monotonic() - begun)
            check(status == 200 and body == VALUE, "a default read %d: %d %r" % (i, status, body[:80]))
            behind += full.request("GET", "/v1/kv/d/%d?stale" % i, timeout=5 * harness.SLOW)[0] == 404
        check(behind > 20, "it was behind in %d of 120" % behind)
        check("a batch cannot be applied" in full.log(), "its store had no room")
        check(longest < 3 * harness.SLOW, "a default read took %.1f s" % longest)
        give_back(full)
        until("it catches up", lambda: full.request("GET", "/v1/kv/d/119?stale", timeout=5 * harness.SLOW)[0] == 200, 20)
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    print("ok: behind in %d of 120 reads, the longest took %.2f s" % (behind, longest))


if __name__ == "__main__":
    main()
