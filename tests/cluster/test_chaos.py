#!/usr/bin/env python3
"""A real cluster under chaos: clients write, cas, read and lock through every server while processes are killed and
paused, networks cut and disks damaged. Then the history is judged. A seed draws the faults.

    test_chaos.py [--seed N] [--seconds S | --count N] [--servers N] [--faults a,b,...] [--keep]
"""
import argparse, http.client, json, os, random, sys, time
import chaos, checkers, clients, harness

now = time.monotonic


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    p.add_argument("--seconds", type=float, default=float(os.environ.get("COORD_TEST_SECONDS", "35")))
    p.add_argument("--count", type=int, default=int(os.environ.get("COORD_TEST_FAULTS", "0")), help="so many faults, however long they take")
    p.add_argument("--servers", type=int, default=3)
    p.add_argument("--faults", default="", help="only these, in this order, again and again")
    p.add_argument("--list", action="store_true", help="the names of the faults")
    p.add_argument("--keep", action="store_true", help="keep logs and data")
    return p.parse_args()


def blow(options, cluster, trouble, rng, faults, recoveries):
    end = now() + options.seconds
    wanted = options.faults.split(",") if options.faults else None
    bag, fair = [], 0
    while len(recoveries) < options.count if options.count else now() < end:
        if not bag:                      # each fault once, in an order of the seed's, before any comes again
            bag = list(wanted or trouble.names())
            if not wanted:
                rng.shuffle(bag)
        fault = bag.pop(0)
        begun = now()
        what = "?"
        try:
            what = getattr(trouble, fault)()
            took = cluster.wait_writable(within=20)
            caught_up(cluster)
        except chaos.Fair as e:
            fair += 1
            if fair > 100:
                raise AssertionError("%s: it cannot be done, a hundred times" % fault)
            print("%7.2f %-24s not done: %s" % (begun - trouble.begun, fault, e), flush=True)
            cluster.wait_writable(within=20)
            caught_up(cluster)
            continue
        except (AssertionError, OSError) as e:
            raise AssertionError("%s (%s): %s" % (fault, what, e))
        trouble.told.append((begun, now(), fault))
        faults[fault] = faults.get(fault, 0) + 1
        recoveries.append((took, fault))
        print("%7.2f %-24s %-32s well again after %.2f s" % (begun - trouble.begun, fault, what, took), flush=True)
        time.sleep(rng.uniform(0, 1))


def caught_up(cluster, within=30):
    """All servers are voters, follow one leader and show one key written now: the next fault meets a healthy cluster."""
    end = now() + within * harness.SLOW + harness.STANDSTILL
    mark = "%d" % time.monotonic_ns()
    state = "nothing"
    while now() < end:
        try:
            if not cluster.servers[0].put("/v1/kv/_mark", mark.encode()):
                continue
            views = []
            for s in cluster.servers:
                status, _, peers = s.get("/v1/status/peers")
                views.append(sorted(peers or []))
                raw = s.request("GET", "/v1/kv/_mark?stale&raw")[2].decode()
                if raw != mark:
                    views[-1] = ["behind"]
            leaders = {s.says_leader() for s in cluster.servers}
            state = "%r %r" % (views, leaders)
            if all(v == sorted("%s:8300" % s.ip for s in cluster.servers) for v in views) and len(leaders) == 1 and "" not in leaders:
                return
        except (OSError, ValueError, http.client.HTTPException) as e:
            state = repr(e)
        time.sleep(0.05)
    raise AssertionError("the cluster has not come together: " + state)


def same_state(cluster, problems):
    """All keys, as each server shows them without asking others, are the same. (Of the rest of the state the self-audit's sums tell.)"""
    end, shown = now() + 15 * harness.SLOW + harness.STANDSTILL, {}
    while now() < end:
        for s in cluster.servers:
            _, headers, records = s.get("/v1/kv/?recurse&stale", timeout=20 * harness.SLOW)
            shown[s.name] = {r["Key"]: (r["Value"], r["CreateIndex"], r["ModifyIndex"], r["LockIndex"], r.get("Session", "")) for r in records or []}
        first = shown[cluster.servers[0].name]
        if all(v == first for v in shown.values()):
            return first
        time.sleep(0.2)
    for s in cluster.servers[1:]:
        other = shown[s.name]
        differs = sorted(k for k in set(first) | set(other) if first.get(k) != other.get(k))
        if differs:
            problems.append("%s and %s differ in %d keys, e.g. %s: %r and %r" % (
                cluster.servers[0].name, s.name, len(differs), differs[0], first.get(differs[0]), other.get(differs[0])))
    return first


def judge(cluster, world):
    problems = world.problems
    present = same_state(cluster, problems)
    for s in cluster.servers:            # and confirmed, through each
        def confirmed():                 # 500 where another leader is elected just now
            status, _, keys = s.get("/v1/kv/set/?keys", timeout=20 * harness.SLOW)
            return (status, keys) if status != 500 else None
        try:
            status, keys = harness.until("a confirmed read through " + s.name, confirmed)
        except AssertionError as e:
            problems.append("at the end: %s" % e)
            continue
        if status in (200, 404):
            checkers.check_kept(world.acknowledged, world.refused, set(keys or []), problems)
        else:
            problems.append("at the end a confirmed read through %s answers %d" % (s.name, status))
    registers, hard = checkers.check_registers(world.histories, problems)
    checkers.check_tokens(world.tokens, problems)
    checkers.check_exclusive(world.holds, problems)
    problems += world.lock_faults
    checkers.check_rising(world.global_index, "the confirmed index", problems)
    for (name, life), samples in world.server_index.items():
        checkers.check_rising(samples, "the index of %s (life %d)" % (name, life), problems)
    if hard * 10 > registers:
        problems.append("%d of %d registers were too hard to check" % (hard, registers))
    return len(present), registers, hard


# While these last no majority can talk (a ring leaves no pair with both directions, and TCP needs both).
NO_MAJORITY = ("kill_all", "cut_ring")


def longest_gap(times, told, spared=()):
    """The longest time between two acknowledged writes, and the faults that fell into it; without those that touch `spared` ones."""
    best = (0.0, "")
    for a, b in zip(times, times[1:]):
        if b - a <= best[0]:
            continue
        during = [fault for begun, ended, fault in told if begun < b and a < ended]
        if not any(fault in spared for fault in during):
            best = (b - a, ", ".join(during) or "no fault")
    return best


def report(options, cluster, world, trouble, faults, recoveries, sizes):
    keys, registers, hard = sizes
    times = sorted(world.writes_ok)
    print("seed %d: %d faults %s" % (options.seed, sum(faults.values()), json.dumps(faults, sort_keys=True)))
    print("operations %s" % json.dumps(world.counts, sort_keys=True))
    print("not done: %s" % json.dumps(dict(sorted(world.answers.items(), key=lambda i: -i[1])[:8])))
    print("registers %d (%d too hard), keys %d" % (registers, hard, keys))
    print("longest time without any acknowledged write %.2f s (%s); while a majority could talk %.2f s (%s)" %
          (*longest_gap(times, trouble.told), *longest_gap(times, trouble.told, NO_MAJORITY)))
    if recoveries:
        took = sorted(recoveries)
        print("recovery: median %.2f s, maximum %.2f s (%s)" % (took[len(took) // 2][0], took[-1][0], took[-1][1]))
    if trouble.service:
        by = sorted(trouble.service, key=lambda s: s[1])
        print("the others wrote again: median %.2f s, maximum %.2f s (%s)" % (by[len(by) // 2][1], by[-1][1], by[-1][0]))


def main():
    options = arguments()
    if options.list:
        print("\n".join(sorted(n for n in dir(chaos.Chaos) if n.split("_")[0] in ("kill", "pause", "cut", "rolling", "delete", "corrupt", "disk"))))
        return 0
    harness.tidy_on_signals()
    checkers.self_test()
    rng = random.Random(options.seed)
    with harness.Cluster(options.servers, keep=options.keep) as cluster:
        if not cluster.hub and not os.environ.get("COORD_TEST_LOOPBACK"):
            cluster.close()
            harness.skip("network namespaces are not allowed here (COORD_TEST_LOOPBACK=1 runs what needs none)")
        trouble = chaos.Chaos(cluster, rng)
        trouble.prepare_small_disk()
        trouble.begun = now()
        cluster.start()
        print("seed %d: %d servers in %s, first writes after %.2f s" % (options.seed, options.servers, cluster.dir, cluster.wait_writable(within=30)), flush=True)
        world = clients.World(cluster, options.seed)
        world.start()
        faults, recoveries = {}, []
        try:
            blow(options, cluster, trouble, rng, faults, recoveries)
            caught_up(cluster)
        except AssertionError as e:
            world.problems.append(str(e))
        finally:
            world.stop()
        ended = cluster.unexpected_ends()
        for s in ended:
            world.problems.append("%s ended by itself with %s:\n%s" % (s.name, s.proc.returncode, s.log()[-3000:]))
        sizes = (0, 0, 0)
        try:
            if not ended:
                sizes = judge(cluster, world)
        except (OSError, http.client.HTTPException) as e:
            world.problems.append("at the end: %r" % e)
        report(options, cluster, world, trouble, faults, recoveries, sizes)
        for s in cluster.servers:        # and they end when told to
            if s.alive() and s.terminate() != 0:
                world.problems.append("%s ended with %d after SIGTERM" % (s.name, s.proc.returncode))
        world.problems += cluster.confessions()
        for text in world.problems[:10]:
            print("PROBLEM " + text)
        if world.problems:
            cluster.keep = True
            length = "--count %d" % options.count if options.count else "--seconds %g" % options.seconds
            print("again: COORD_BIN=%s COORD_TEST_SLOW=%g %s --seed %d %s" % (harness.COORD, harness.SLOW, sys.argv[0], options.seed, length))
        return 1 if world.problems else 0


if __name__ == "__main__":
    sys.exit(main())
