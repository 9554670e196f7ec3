#!/usr/bin/env python3
"""A follower's disk is full, and another server is away: the leader depends on the one that can take nothing in. Reads go on, writes are
refused as on a full disk of its own, and service resumes by itself."""
import os, subprocess, time
import harness
from harness import check, until


def small_disk(cluster, server, megabytes):
    r = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dm" % megabytes, "coord-test", server.data], capture_output=True, text=True)
    if r.returncode != 0:
        cluster.close()
        harness.skip("nothing can be mounted: " + r.stderr.strip())
    cluster.mounts.append(server.data)


def fill(path):
    """Until not even one more page is to be had."""
    with open(path, "wb", buffering=0) as f:
        size = 1 << 20
        while size >= 1:
            try:
                if f.write(b"f" * size) < size:
                    size //= 2
            except OSError:
                size //= 2


def follower_is_full(leader, full):
    """More than its log and its store have reserved ahead."""
    for i in range(600):
        check(leader.request("PUT", "/v1/kv/bulk/%d" % (i % 20), b"b" * 400000, 10)[0] == 200, "the other two go on")
        if "disk full: writes are refused" in full.log():
            return
    raise AssertionError("the follower's disk never was full:\n" + full.log()[-2000:])


def leader_goes_on(leader):
    end = time.monotonic() + 3
    while time.monotonic() < end:
        begun = time.monotonic()
        status = leader.request("GET", "/v1/kv/bulk/1", timeout=10 * harness.SLOW)[0]
        check(status == 200, "a default read: %d after %.1f s" % (status, time.monotonic() - begun))
        status, _, body = leader.request("PUT", "/v1/kv/more", b"1", 10 * harness.SLOW)
        check(status == 503 and b"disk full" in body, "a write: %d %r" % (status, body))
        time.sleep(0.05)


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        full = cluster.servers[2]
        small_disk(cluster, full, 400)
        cluster.start()
        cluster.wait_writable()
        if cluster.leader() is full:
            subprocess.run([harness.COORD, "operator", "raft", "transfer-leader", "-http-addr=%s:8500" % full.ip], check=True, capture_output=True)
            until("another leads", lambda: cluster.leader() is not full)
        leader = cluster.leader()
        other = next(s for s in cluster.servers if s not in (leader, full))
        fill(full.data + "/filler")
        follower_is_full(leader, full)
        other.kill()
        # What is accepted before the leader knows has an unknown outcome.
        until("the leader knows", lambda: leader.request("PUT", "/v1/kv/more", b"1", 10 * harness.SLOW)[0] == 503)
        leader_goes_on(leader)
        os.truncate(full.data + "/filler", 0)
        until("service resumes", lambda: leader.try_put("/v1/kv/again") and full.try_put("/v1/kv/again"), 10)
        check("opened again" not in full.log(), "its log was not opened again and again")
        other.start()
        cluster.wait_writable()
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    print("ok")


if __name__ == "__main__":
    main()
