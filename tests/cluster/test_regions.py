#!/usr/bin/env python3
"""Three regions of three servers, and what a network does to them: one region is cut from all, each pair in a ring, one way only; leaders die on both sides
of a slow link while a copy catches up; a region far away behind a narrow link; one founded anew, one set back to a backup, one whose name another claims.

What holds all the time: a cut makes no election, local reads take no longer, the last state of all regions stays, and after the cut all know all again.
"""
import http.client, itertools, json, os, queue, shutil, socket, statistics, subprocess, sys, tempfile, threading, time
import harness
from agents import ask, do, get, now, resolve
from harness import FIGURES, MULTIPLIER, SLOW, check, kept, until

HOLD = 2.0          # performance.rpc_hold_timeout
BULK = 1500


class Region(harness.Cluster):
    def __init__(self, name, hosts, settings, join=(), count=3, prefix=None, more=()):
        super().__init__(count, ["-datacenter=" + name, settings, *["-retry-join-wan=" + s.ip for s in join], *more], prefix=prefix or name, hosts=hosts)
        self.region, self.number = name, 0
        self.reads = None

    def leader(self, within=20):
        """One that is alone may have another address for others."""
        return self.servers[0] if len(self.servers) == 1 else super().leader(within)

    def reign(self):
        leader = self.leader()
        return leader.name, get(leader, "/v1/agent/self")["Stats"]["raft"]["term"]

    def change(self, count=1):
        """New instances of "web", through each server in turn; one of before goes."""
        for _ in range(count):
            server = self.servers[self.number % len(self.servers)]
            self.number += 1
            node = "%s-web%d" % (self.region, self.number)
            do(server, "/v1/catalog/register", {"Node": node, "Address": "10.1.2.3", "Service": {"Service": "web", "Port": self.number}})
            if self.number > 20:
                do(server, "/v1/catalog/deregister", {"Node": "%s-web%d" % (self.region, self.number - 20)})

    def truth(self, service="web"):
        return rows(get(self.leader(), "/v1/health/service/" + service))


def rows(entries):
    return None if entries is None else sorted((e["Node"]["Node"], e["Service"]["ID"], e["Service"]["Port"]) for e in entries)


def entries(server, region, service="web"):
    return get(server, "/v1/global/service/%s?region=%s" % (service, region)) or []


def regions_of(server):
    return {r["Region"]: r for r in get(server, "/v1/global/regions") or []}


def reaches(server, region):
    return regions_of(server).get(region, {}).get("Reachable")


class Reads(threading.Thread):
    """Reads a key at one server after the other, without an end; what each took, and when."""

    def __init__(self, region):
        super().__init__(daemon=True)
        self.region, self.took, self.failed, self.over = region, [], [], False
        self.without = None          # a server that is asked nothing for now
        self.start()

    def run(self):
        connections = [http.client.HTTPConnection(s.ip, 8500, timeout=10) for s in self.region.servers]
        while not self.over:
            for server, connection in zip(self.region.servers, connections):
                if server is self.without:
                    connection.close()
                    time.sleep(0.01)
                    continue
                begun = now()
                try:
                    connection.request("GET", "/v1/kv/here?raw")
                    answer = connection.getresponse()
                    if answer.status != 200 or answer.read() != b'"here"':
                        self.failed.append((begun, answer.status))
                except (OSError, http.client.HTTPException) as e:
                    connection.close()
                    if server is self.without:
                        continue
                    self.failed.append((begun, str(e)))
                self.took.append((begun, now() - begun))
                time.sleep(0.01)

    def median(self, since, until_):
        took = [t for begun, t in self.took if since <= begun < until_]
        return statistics.median(took) if len(took) > 20 else None

    def none_failed(self, since, what):
        failed = [why for begun, why in self.failed if begun >= since]
        check(not failed, "%s: reads of region %s failed: %r" % (what, self.region.region, failed[:3]))


class Ticks(threading.Thread):
    """When this machine stood still, as who only sleeps sees it: elections come of that, and links are lost."""

    def __init__(self):
        super().__init__(daemon=True)
        self.gaps = []
        self.start()

    def run(self):
        last = now()
        while True:
            time.sleep(0.02)
            if now() - last > 0.5:
                self.gaps.append((last, now()))
            last = now()

    def stood_still(self, since):
        return [round(b - a, 2) for a, b in self.gaps if b > since]


ticks = None


class Quiet:
    """Nothing of this is felt within the regions: the leaders are who they were, in the same term; no read fails, and half of them are as quick."""

    def __init__(self, what, *regions):
        self.what, self.regions = what, regions

    def __enter__(self):
        self.reigns = [r.reign() for r in self.regions]
        self.begun = now()
        self.slow = self.slow_disks()
        return self

    def slow_disks(self):
        """Who leads hands over then. Nothing of what these stories do is felt by a disk."""
        return sum(s.log().count("the log's disk is slow") for r in self.regions for s in r.servers)

    def __exit__(self, kind, *rest):
        if kind:
            return
        ended = now()
        print("%s: %.1f s" % (self.what, ended - self.begun), flush=True)
        if not FIGURES:         # a busy machine elects by itself, too
            return
        if ticks.stood_still(self.begun) or self.slow_disks() > self.slow:
            print("%s: not judged, as this machine stood still: %r s, %d slow disks" % (
                self.what, ticks.stood_still(self.begun), self.slow_disks() - self.slow), flush=True)
            return
        for region, before in zip(self.regions, self.reigns):
            check(region.reign() == before, "%s: region %s had %r, has %r: an election" % (self.what, region.region, before, region.reign()))
            region.reads.none_failed(self.begun, self.what)
            usual, here = region.usual, region.reads.median(self.begun, ended)
            check(here is None or here < 3 * usual + 0.002, "%s: a read in %s takes %.2f ms, was %.2f" % (
                self.what, region.region, 1000 * (here or 0), 1000 * usual))


def all_equal(what, regions, within=20, service="web"):
    """Every server of every region has what each other region has."""
    begun = now()
    for source in regions:
        truth = until("%s has an answer" % source.region, lambda: source.truth(service) is not None and [source.truth(service)], within)[0]
        for server in [s for r in regions if r is not source for s in r.servers]:
            until("%s: %s has %s's %d instances of %s" % (what, server.name, source.region, len(truth), service),
                  lambda: rows(entries(server, source.region, service)) == truth, within)
    print("%s: all equal after %.2f s" % (what, now() - begun), flush=True)


def ages(region, source):
    return [max((e["AsOf"] for e in entries(s, source.region)), key=lambda age: float("inf") if age is None else age, default=None) for s in region.servers]


def know_how_old(regions):
    for region in regions:
        until("each server knows how old its copies are", lambda: all(age is not None for r in regions if r is not region for age in ages(region, r)), 10)


def every_server_knows_how_old(world):
    """Also those that do not lead, after many changes and after one of what copies do not have. (While it changes: multi-dc/test_copy_age.)"""
    with Quiet("how old copies are", *world.all):
        oldest = lambda: max(float("inf") if age is None else age / 1000 for age in ages(world.us, world.eu))
        for _ in range(20):
            world.eu.change()

        def after_other_changes():
            do(world.eu.servers[0], "/v1/catalog/register", {"Node": "bare", "Address": "10.1.1.1", "NodeMeta": {"at": str(now())}})     # no service: in no copy
            time.sleep(5)
            return oldest(), 7.5 * SLOW
        kept("the age of a copy after a change of what is in no copy", after_other_changes)
    all_equal("after many changes", world.all)


def all_know_all(regions, within=20):
    names = sorted(r.region for r in regions)
    for server in [s for r in regions for s in r.servers]:
        until("%s reaches %s" % (server.name, names), lambda: sorted(n for n, r in regions_of(server).items() if r["Reachable"]) == names, within)


def away(server, region):
    """?dc= of a region that cannot be reached: an error that names it. (When: ./dev sim, a_region_that_is_away_says_so_at_once.)"""
    for method, path in (("GET", "/v1/catalog/nodes?dc="), ("PUT", "/v1/kv/away?dc=")):
        status, _, answer = ask(server, method, path + region, "x" if method == "PUT" else None, timeout=30)
        check(status == 500 and ('"%s"' % region in answer or "outcome" in answer), "%s of %s at %s: %d %s" % (method, region, server.name, status, answer))


def cut_apart(world, what, cut, near, far, restart=None):
    """`near` and `far` do not reach each other. Each goes on by itself, and shows the last state of the other."""
    pairs = [(a, b) for a in near for b in far] + [(b, a) for a in near for b in far]
    with Quiet(what, *world.all):
        last = {(here.region, there.region): there.truth() for here, there in pairs}
        cut()
        seen = now()
        for here, there in pairs:
            for server in here.servers:
                until("%s: %s sees that %s is away" % (what, server.name, there.region), lambda: not reaches(server, there.region), 5)
        print("%s: all see it after %.2f s" % (what, now() - seen), flush=True)
        for region in near + far:
            region.change()
        away(near[0].servers[0], far[0].region)
        away(far[0].servers[1], near[0].region)
        if restart:
            restart.cluster.reads.without = restart
            restart.kill()
            restart.start()
            until("%s answers again" % restart.name, lambda: get(restart, "/v1/kv/here"), 20)
            restart.cluster.reads.without = None
        for here, there in pairs:
            for server in here.servers:
                asked = now()
                found = entries(server, there.region)
                check(rows(found) == last[(here.region, there.region)], "%s: %s has not the last state of %s" % (what, server.name, there.region))
                check(not any(e["Reachable"] for e in found), "%s: %s shows %s as reachable" % (what, server.name, there.region))
                age = found[0]["AsOf"]
                check(age is None and server is restart or age is not None and age + 100 >= (asked - seen - 1) * 1000,
                      "%s: %s says that its copy of %s is of %r ms ago" % (what, server.name, there.region, age))
        if len(near) + len(far) < len(world.all):
            third = next(r for r in world.all if r not in near + far)
            third.change()
            for region in near + far:
                until("%s: %s reaches %s" % (what, third.region, region.region), lambda: reaches(third.servers[0], region.region), 1)
                server, truth = region.servers[2], until("%s has an answer" % third.region, third.truth)
                until("%s: %s follows %s" % (what, server.name, third.region), lambda: rows(entries(server, third.region)) == truth, 5)
        world.heal()
        all_know_all(world.all)
        all_equal(what, world.all)
        know_how_old(world.all)          # also the one that was started again: it has heard nothing anew of what has not changed


def one_from_all(world):
    cut_apart(world, "one is cut from all", lambda: world.eu.cut(world.eu.servers, world.us.servers + world.ap.servers), [world.eu], [world.us, world.ap],
              restart=next(s for s in world.us.servers if s is not world.us.leader()))


def pairs_in_a_ring(world):
    for one, other in ((world.eu, world.us), (world.us, world.ap), (world.ap, world.eu)):
        cut_apart(world, "no way between %s and %s" % (one.region, other.region), lambda: one.cut(one.servers, other.servers), [one], [other])


def one_way(world):
    cut_apart(world, "nothing from eu arrives at us", lambda: world.eu.cut_one_way(world.eu.servers, world.us.servers), [world.eu], [world.us])
    cut_apart(world, "nothing from all arrives at ap", lambda: world.eu.cut_one_way(world.eu.servers + world.us.servers, world.ap.servers), [world.ap], [world.eu, world.us])


def bulk(region, number):
    """Many instances of "bulk" at once, all of them other than before."""
    text = "%d " % number * 100
    for begin in range(0, BULK, 60):
        operations = [{"Service": {"Verb": "set", "Node": region.servers[0].name, "Service": {
            "ID": "bulk%d" % i, "Service": "bulk", "Port": 1000 * number + i % 1000, "Meta": {"text": text}}}} for i in range(begin, min(begin + 60, BULK))]
        do(region.leader(), "/v1/txn", operations, timeout=30 * SLOW)


def leaders_die_during_a_catch_up(world):
    eu, us = world.eu, world.us
    bulk(eu, 1)
    all_equal("many at once", world.all, 30, "bulk")
    numbers = itertools.count(2)
    for both in (0.0, 0.5):
        # Who stands still meanwhile looks when the copy is complete.
        check(any(leaders_die(world, next(numbers), both) for _ in range(3)), "the copy was complete before they died")
    all_equal("both leaders died", world.all, 30)


def leaders_die(world, number, both):
    """Whether they did in the middle of it, as far as that can be known."""
    eu, us = world.eu, world.us
    us.cut(us.servers, eu.servers)
    until("us sees it", lambda: not any(reaches(s, "eu") for s in us.servers), 5)
    bulk(eu, number)
    narrow = all([us.hub.slow(s, eu.servers, 2000) for s in us.servers])
    world.heal()
    victims = [us.leader(), eu.leader()]
    until("us reaches eu again", lambda: reaches(victims[0], "eu"), 20)
    time.sleep(both)
    before = rows(entries(victims[0], "eu", "bulk"))
    check(not before or {p // 1000 for _, _, p in before} in ({number - 1}, {number - 1, number}, {number}), "a copy is of one time: %r" % before[:3])
    held = before and before[0][2] // 1000 == number - 1
    for victim in victims:
        victim.kill()
    print("both leaders die %s (the link is %s)" % ("in the middle of a catch-up" if held else "after a catch-up", "slow" if narrow else "fast"), flush=True)
    survivor = next(s for s in us.servers if s not in victims)
    mixture = {p // 1000 for _, _, p in until("it has a copy", lambda: rows(entries(survivor, "eu", "bulk")))}
    check(mixture == {number - 1} or mixture == {number}, "a mixture of two states: %r" % mixture)
    for victim in victims:
        victim.start()
    for region in (eu, us):
        region.wait_writable()
    for s in us.servers:
        us.hub.fast(s)
    all_know_all(world.all, 30)
    all_equal("both leaders died", world.all, 30, "bulk")
    return held or not narrow or not FIGURES


class Slow:
    """A TCP proxy in this process: what goes through arrives `delay` s later, at `rate` bytes/s each way of a connection."""

    def __init__(self, listen, target, delay, rate):
        self.target, self.delay, self.rate, self.passed = target, delay, rate, 0
        self.sockets = [socket.create_server(listen)]
        self.begin(self.accept)

    def begin(self, work, *with_):
        threading.Thread(target=work, args=with_, daemon=True).start()

    def accept(self):
        try:
            while True:
                here = self.sockets[0].accept()[0]
                try:
                    there = socket.create_connection(self.target)
                except OSError:
                    here.close()
                    continue
                self.sockets += [here, there]
                for source, destination in ((here, there), (there, here)):
                    waiting = queue.Queue(64)
                    self.begin(self.take, source, waiting)
                    self.begin(self.deliver, destination, waiting)
        except OSError:
            pass                         # stopped

    def take(self, source, waiting):
        free, data = 0.0, b"."
        while data:
            try:
                data = source.recv(8192)
            except OSError:
                data = b""
            free = max(free, now()) + len(data) / self.rate
            self.passed += len(data)
            waiting.put((free + self.delay, data))

    def deliver(self, destination, waiting):
        while True:
            due, data = waiting.get()
            time.sleep(max(0, due - now()))
            try:
                destination.sendall(data) if data else destination.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass                     # the other side takes note: what comes from there ends as well
            if not data:
                return

    def stop(self):
        for s in self.sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()


def far_away(world):
    """A region behind a link of 120 ms and 400 kB/s: its servers are known by the proxy's address."""
    where = "10.77.31.1"
    with Quiet("a far region", *world.all) as far:
        za = Region("za", 30, world.settings, [world.eu.servers[0]], count=1, more=["-advertise=" + where])
        proxy = Slow((where, 8300), (za.servers[0].ip, 8300), 0.06, 400000)
        try:
            za.start()
            za.wait_writable()
            do(za.servers[0], "/v1/catalog/register", {"Node": "near", "Address": "10.9.9.9", "Service": {"Service": "near", "Port": 1}})
            do(world.ap.servers[0], "/v1/catalog/register", {"Node": "near", "Address": "10.8.8.8", "Service": {"Service": "near", "Port": 1}})
            all_know_all(world.all + [za])
            for server in world.us.servers:
                until("%s measures it" % server.name, lambda: 120 <= milliseconds(regions_of(server)["za"].get("RoundTrip", "0s")) < 250 * SLOW + 100)
                until("the farthest is last", lambda: get(server, "/v1/catalog/datacenters")[-1] == "za")
                until("the nearest that has it answers", lambda: resolve(server, "near.service.coord") == ["10.8.8.8"])
            bulk(za, 1)
            all_equal("a far region", world.all + [za], 40, "bulk")
            lost = lambda: [s.name for r in world.all for s in r.servers if "the connection is lost server=za1" in s.log()]

            def seen():
                begun = now()
                za.change()
                truth = until("za has an answer", za.truth)
                until("a change there is seen here", lambda: rows(entries(world.us.servers[0], "za")) == truth, 10)
                took = now() - begun
                print("a change in the far region was seen after %.2f s" % took, flush=True)
                return took, 1.5 * SLOW + 1
            kept("a change in the far region", seen)
            do(world.us.servers[1], "/v1/kv/far?dc=za", "x")
            until("written there", lambda: get(za.servers[0], "/v1/kv/far"))
            check(proxy.passed > 1000000 and (not lost() or not FIGURES or ticks.stood_still(far.begun)), "%d bytes; links were lost at %s" % (proxy.passed, lost()))
        finally:
            proxy.stop()
            za.close()
        until("it is away", lambda: not reaches(world.us.leader(), "za"), 5)
        remove(world, "za")


def remove(world, name):
    for region in world.all:
        r = subprocess.run([harness.COORD, "region", "remove", "-http-addr=%s:8500" % region.leader().ip, name], capture_output=True, text=True)
        check(r.returncode == 0, r.stdout + r.stderr)
    for server in world.servers():
        until("%s forgets it" % server.name, lambda: name not in regions_of(server) and not entries(server, name), 10)


def milliseconds(duration):
    for unit, times in (("µs", 0.001), ("us", 0.001), ("ms", 1), ("s", 1000)):
        if duration.endswith(unit):
            return float(duration[:-len(unit)]) * times
    return 0.0


def founded_anew(world):
    ap = world.ap
    with Quiet("a region is founded anew", world.eu, world.us):
        before = regions_of(world.eu.servers[0])["ap"]["ClusterID"]
        for s in ap.servers:
            s.kill()
        for s in ap.servers:
            shutil.rmtree(s.data)
            os.makedirs(s.data)
            s.start()
        ap.wait_writable()
        ap.number = 100
        do(ap.servers[0], "/v1/kv/here", "here")
        ap.change()
        for server in world.eu.servers + world.us.servers:
            until("%s takes the new ap" % server.name, lambda: regions_of(server)["ap"]["ClusterID"] != before and reaches(server, "ap"), 30)
    all_know_all(world.all, 30)
    all_equal("a region was founded anew", world.all, 30)


def restored(world):
    """With the state of the time before ap was founded anew."""
    eu = world.eu
    with Quiet("a region is set back to a backup", *world.all):
        eu.change(3)
        all_equal("before the backup is restored", world.all)
        until("it is restored", lambda: eu.leader().request("PUT", "/v1/snapshot", world.backup, 30 * SLOW)[0] == 200)
        until("eu is as it was", lambda: eu.truth() == world.backed_up, 10)
        all_know_all(world.all, 30)
        all_equal("a region was set back to a backup", world.all, 30)
        eu.change()
        all_equal("and goes on", world.all)


def claimed(world):
    us = world.us
    with Quiet("another cluster claims the name of eu", *world.all):
        false = Region("eu", 20, world.settings, [us.servers[0]], count=1, prefix="false")
        try:
            false.start()
            false.wait_writable()
            false.change()
            told = until("us shows it", lambda: regions_of(us.servers[0])["eu"].get("Conflict"), 10)
            check("claims this name" in told and false.servers[0].ip in told, told)
            check("another cluster" in us.servers[0].log(), "and logs it")
            until("the false one learns why", lambda: "another cluster" in false.servers[0].log(), 10)
            check("us" not in regions_of(false.servers[0]) or not reaches(false.servers[0], "us"), "it is not linked")
            all_equal("another cluster claims the name of eu", world.all)
        finally:
            false.close()


def names(world):
    with Quiet("names of regions", *world.all):
        for server in world.us.servers:
            for name in ("xx", "x" * 300, "a%20b", "a" * 63):
                for method in ("GET", "PUT"):
                    status, _, answer = ask(server, method, "/v1/kv/a?dc=" + name, "x" if method == "PUT" else None)
                    check(status == 500 and answer == "No path to datacenter", "%s: %d %r" % (name, status, answer))
            check(ask(server, "GET", "/v1/kv/here?raw&dc=us")[2] == "here", "our own name")


class World:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="coord-regions-")
        path = os.path.join(self.folder, "settings.json")
        with open(path, "w") as f:      # elections take their time: none is to come of a busy machine
            json.dump({"performance": {"raft_multiplier": max(3, MULTIPLIER), "rpc_hold_timeout": "%dms" % (HOLD * 1000)}}, f)
        self.settings = "-config-file=" + path
        self.all = []

    def servers(self):
        return [s for r in self.all for s in r.servers]

    def __enter__(self):
        self.eu = self.add("eu", 0)
        self.us = self.add("us", 3, self.eu)
        self.ap = self.add("ap", 6, self.us)
        for region in self.all:
            region.start()
        for region in self.all:
            region.wait_writable()
            do(region.servers[0], "/v1/kv/here", "here")
            region.reads = Reads(region)
            region.change(5)
        begun = now()
        all_know_all(self.all)
        all_equal("at first", self.all)
        know_how_old(self.all)
        print("%.1f s until all know all" % (now() - begun), flush=True)
        self.backed_up = self.eu.truth()
        status, _, self.backup = self.eu.leader().request("GET", "/v1/snapshot", timeout=30 * SLOW)
        check(status == 200, "a backup")
        until("a second of reads", lambda: now() - begun > 1)
        for region in self.all:
            region.usual = region.reads.median(begun, now())
            print("a read in %s takes %.2f ms" % (region.region, 1000 * region.usual), flush=True)
        return self

    def add(self, name, hosts, join=None):
        region = Region(name, hosts, self.settings, join.servers[:1] if join else ())
        self.all.append(region)
        return region

    def heal(self):
        self.eu.heal()

    def __exit__(self, kind, *rest):
        for region in self.all:
            if region.reads:
                region.reads.over = True
            region.__exit__(kind, *rest)
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    harness.tidy_on_signals()
    if not harness.Hub.enter():
        harness.skip("no network namespaces, so nothing can be cut")
    global ticks
    begun, ticks = now(), Ticks()
    stories = [every_server_knows_how_old, one_from_all, pairs_in_a_ring, one_way, names, claimed, far_away, leaders_die_during_a_catch_up, founded_anew, restored]
    with World() as world:
        for story in stories:
            if not sys.argv[1:] or story.__name__ in sys.argv[1:]:
                since = now()
                story(world)
                print("ok   %s (%.1f s)" % (story.__name__, now() - since), flush=True)
        for region in world.all:
            said = region.confessions() + ["%s ended by itself" % s.name for s in region.unexpected_ends()]
            check(not said, "\n".join(said))
    print("%.0f s" % (now() - begun))
    return 0


if __name__ == "__main__":
    sys.exit(main())
