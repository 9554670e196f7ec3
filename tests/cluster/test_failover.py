#!/usr/bin/env python3
"""How long clients wait: the leader is killed, until the first write through another server; servers start, until the first write.

    test_failover.py [--kills N] [--starts N] [--closed]

--closed: the kills in an encrypted cluster, too.
"""
import argparse, math, os, sys, threading, time
import harness

now = time.monotonic


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kills", type=int, default=int(os.environ.get("COORD_TEST_KILLS", "20")))
    p.add_argument("--starts", type=int, default=int(os.environ.get("COORD_TEST_STARTS", "5")))
    p.add_argument("--closed", action="store_true")
    return p.parse_args()


def first_write(servers, begun, within=20):
    """Seconds from `begun` until a write that was sent afterwards is acknowledged. Each server has a client of its own that sends one
    after the other, as clients do."""
    done, answered, limit = threading.Event(), [], within * harness.SLOW + harness.STANDSTILL

    def work(server):
        while not done.is_set() and now() - begun < limit:
            if server.try_put("/v1/kv/failover", timeout=5):
                answered.append(now() - begun)
                done.set()
                return
            time.sleep(0.005)
    threads = [threading.Thread(target=work, args=(s,), daemon=True) for s in servers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if not answered:
        raise AssertionError("no write within %.0f s" % limit)
    return min(answered)


def starts(count):
    took = []
    for _ in range(count):
        with harness.Cluster(3) as cluster:
            begun = now()
            cluster.start()
            took.append(first_write(cluster.servers, begun))
    return sorted(took)


def kills(count, closed=False):
    took = []
    with harness.Cluster(3) as cluster:
        (cluster.start_closed if closed else cluster.start)()
        cluster.wait_writable()
        for _ in range(count):
            leader = cluster.leader()
            others = [s for s in cluster.servers if s is not leader]
            leader.kill()
            took.append(first_write(others, now()))
            leader.start()
            cluster.wait_writable()
            time.sleep(0.3)
        said = cluster.confessions()
        if said:
            raise AssertionError("\n".join(said))
    return sorted(took)


def median(sorted_list):
    return sorted_list[len(sorted_list) // 2]


def kept(what, measure, middle, longest):
    """Whether one of three measurements is within the bounds: the machine may stand still during one, and what is too slow is so in each. Where figures
    are not judged (pace.FIGURES), it has to happen."""
    for _ in range(3):
        took = measure()
        good = not harness.FIGURES or median(took) <= middle and took[-1] <= longest
        print("%s: median %.2f s, maximum %.2f s of %d%s" % (what, median(took), took[-1], len(took), "" if good else ": too slow"), flush=True)
        if good:
            return True
    return False


def main():
    options = arguments()
    harness.tidy_on_signals()
    good = kept("3 servers from start to the first write", lambda: starts(options.starts), 1.0, math.inf)
    good = kept("leader killed to the first write through another", lambda: kills(options.kills), 0.8, 1.5) and good
    if options.closed:
        good = kept("the same in an encrypted cluster", lambda: kills(options.kills, True), 0.8, 1.5) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
