#!/usr/bin/env python3
"""A follower's disk is full. It lags: reads through it go on, the leader answers them. Then another server is away: the leader depends on the one
that can take nothing in. Reads go on, writes are refused as on a full disk of its own, and service resumes by itself."""
import math, re, threading, time
import full_disk, harness
from full_disk import another_leads, fill, give_back, small_disk
from harness import check, until


def follower_is_full(leader, full):
    """More than its log and its store have reserved ahead."""
    begun = len(full.log())
    for i in range(600):
        leader.write("/v1/kv/bulk/%d" % (i % 20), b"b" * 400000)
        if "disk full: writes are refused" in full.log()[begun:]:
            return
    raise AssertionError("the follower's disk never was full:\n" + full.log()[-2000:])


def follower_lags(leader, full):
    """Its log has no room any more for what the other two agree on. The number of the last write."""
    for i in range(1, 600):
        leader.write("/v1/kv/bulk/%d" % (i % 20), b"b" * 400000)
        leader.write("/v1/kv/newest", b"%d" % i)
        end = time.monotonic() + 1.5 * harness.SLOW
        while full.request("GET", "/v1/kv/newest?stale&raw")[2] != b"%d" % i:
            if time.monotonic() > end:
                return i
            time.sleep(0.01)
    raise AssertionError("the follower never was behind:\n" + full.log()[-2000:])


def read_soon(full, path, value):
    """Its index. 500 while servers elect a leader, and late where this machine stood still: it is read again then."""
    def once():
        begun = time.monotonic()
        status, headers, body = full.request("GET", path, timeout=10 * harness.SLOW + harness.STANDSTILL)
        took = time.monotonic() - begun
        check(status == 500 or status == 200 and body == value, "%s: %d %r after %.2f s" % (path, status, body[:200], took))
        index.append(int(headers["X-Consul-Index"]) if status == 200 else 0)
        return took if status == 200 else math.inf, 1 * harness.SLOW
    index = []
    harness.kept(path, once, 5)
    return index[-1]


def with_the_leader(server):
    """How many of its reads are."""
    return int(re.search(rb"^coord_rpc_leader_reads (\d+)", server.request("GET", "/v1/agent/metrics?format=prometheus")[2], re.M).group(1))


class Waiting:
    """A blocking query for a key, in a thread."""

    def __init__(self, server, key, index, wait="60s"):
        self.answer = None
        self.thread = threading.Thread(target=self.run, args=(server, "/v1/kv/%s?raw&index=%d&wait=%s" % (key, index, wait)), daemon=True)
        self.thread.start()

    def run(self, server, path):
        self.answer = server.request("GET", path, timeout=90 * harness.SLOW)

    def hears(self, value):
        self.thread.join(3 * harness.SLOW)
        check(self.answer and self.answer[0] == 200 and self.answer[2] == value, "a blocking query: %r" % (self.answer,))


def lagging_follower_answers(leader, full, waiting_before):
    last = follower_lags(leader, full)
    newest = b"%d" % last
    for _ in range(20):
        read_soon(full, "/v1/kv/newest?raw", newest)
        read_soon(full, "/v1/kv/newest?consistent&raw", newest)
        check(int(full.request("GET", "/v1/kv/newest?stale&raw")[2]) < last, "?stale says what it has")
    read_soon(full, "/v1/kv/bulk/%d?raw" % (last % 20), b"b" * 400000)
    missing = until("an answer", lambda: [status for status in [full.request("GET", "/v1/kv/missing")[0]] if status != 500])[0]
    check(missing == 404, "what is not there: %d" % missing)
    waiting = Waiting(full, "newest", read_soon(full, "/v1/kv/newest?raw", newest))
    until("it waits at the leader", lambda: with_the_leader(full) == 2)
    leader.write("/v1/kv/newest", b"again")
    waiting.hears(b"again")
    begun = time.monotonic()
    waiting = Waiting(full, "newest", read_soon(full, "/v1/kv/newest?raw", b"again"), "1s")
    waiting.hears(b"again")
    check(time.monotonic() - begun >= 1, "it waited its time")
    until("who waited before waits there, too", lambda: with_the_leader(full) == 1)
    leader.write("/v1/kv/early", b"changed")
    waiting_before.hears(b"changed")
    until("nothing is with the leader", lambda: with_the_leader(full) == 0)


def caught_up_follower_answers(leader, full):
    """By itself."""
    leader.write("/v1/kv/newest", b"with space")
    until("it has caught up", lambda: full.request("GET", "/v1/kv/newest?stale&raw", timeout=10)[2] == b"with space", 20)
    waiting = Waiting(full, "newest", read_soon(full, "/v1/kv/newest?raw", b"with space"))
    time.sleep(0.3)                      # an index that it has not applied yet would be waited for at the leader, until it has
    until("it waits here", lambda: with_the_leader(full) == 0, 3)
    leader.write("/v1/kv/newest", b"more")
    waiting.hears(b"more")


def the_third_is_needed(leader, other):
    """The one that is left would be connected, and could not agree to anything."""
    def asked():
        status, _, text = leader.request("DELETE", "/v1/operator/raft/peer?address=%s:8300" % other.ip)
        return None if harness.undecided(status, text) else (status, text)
    status, text = until("an answer", asked)
    check(status == 500 and b"would be no majority" in text, "%s is to be removed: %d %r" % (other.name, status, text))
    leader.write("/v1/kv/newest", b"unharmed")


def leader_goes_on(leader):
    end = time.monotonic() + 3
    while time.monotonic() < end:
        begun = time.monotonic()
        status = leader.request("GET", "/v1/kv/bulk/1", timeout=10 * harness.SLOW)[0]
        check(status == 200, "a default read: %d after %.1f s" % (status, time.monotonic() - begun))
        status, _, body = leader.request("PUT", "/v1/kv/more", b"1", 10 * harness.SLOW)
        check(status == 503 and b"disk full" in body, "a write: %d %r" % (status, body))
        time.sleep(0.05)


class Load:
    """Writes through the leader, as many as it takes, until it is told to end."""

    def __init__(self, leader):
        self.leader, self.over = leader, False
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, i):
        while not self.over:
            self.leader.try_put("/v1/kv/bulk/%d" % i, b"b" * 400000, 10)

    def end(self):
        self.over = True
        for thread in self.threads:
            thread.join()


def space_comes_back_under_load(leader, full):
    """A snapshot of its own failed for the want of it. The log, which grows again at once, is cut before it has filled the disk, again."""
    begun = len(full.log())
    load = Load(leader)
    until("its log has grown", lambda: full_disk.free_megabytes(full) < 250, 60)
    full_disk.fill(full)
    failed = ("snapshot failed, tried again later: disk full", "disk full: writes are refused")      # rarely the second: the log was cut just before
    until("a snapshot of its own failed", lambda: any(what in full.log()[begun:] for what in failed), 60)
    full_disk.give_back(full)
    time.sleep(4)
    load.end()
    until("a write", lambda: leader.try_put("/v1/kv/newest", b"after the load", 10))
    until("it has all", lambda: full.request("GET", "/v1/kv/newest?stale&raw", timeout=10)[2] == b"after the load", 30)


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        full = cluster.servers[2]
        small_disk(cluster, full, 400)
        cluster.start()
        cluster.wait_writable()
        leader = another_leads(cluster, full)
        other = next(s for s in cluster.servers if s not in (leader, full))
        full.write("/v1/kv/newest", b"0")
        full.write("/v1/kv/early", b"0")
        waiting = Waiting(full, "early", read_soon(full, "/v1/kv/early?raw", b"0"))
        fill(full)
        follower_is_full(leader, full)
        lagging_follower_answers(leader, full, waiting)
        the_third_is_needed(leader, other)
        give_back(full)
        caught_up_follower_answers(leader, full)
        cluster.wait_writable()
        fill(full)
        follower_is_full(leader, full)
        other.kill()
        # What is accepted before the leader knows has an unknown outcome.
        until("the leader knows", lambda: leader.request("PUT", "/v1/kv/more", b"1", 10 * harness.SLOW)[0] == 503)
        leader_goes_on(leader)
        give_back(full)
        until("service resumes", lambda: leader.try_put("/v1/kv/again") and full.try_put("/v1/kv/again"), 10)
        check("opened again" not in full.log(), "its log was not opened again and again")
        other.start()
        cluster.wait_writable()
        space_comes_back_under_load(another_leads(cluster, full), full)
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    print("ok")


if __name__ == "__main__":
    main()
