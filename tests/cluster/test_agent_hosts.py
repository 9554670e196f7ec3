#!/usr/bin/env python3
"""Hosts of client agents die, hang, are cut off, leave, come back, share a name, have clocks that jump: what the cluster says of them, and when.

    test_agent_hosts.py
"""
import datetime, os, struct, subprocess, sys, time
import harness
from agents import ROOM, ask, do, finish, get, life, log_index, now, ready, resolve, wait_equal
from harness import SLOW, check, kept, until

TTL = 3.0 * min(SLOW, 2)


def settings(**more):
    return dict({"coord": {"node_lease_ttl": "%dms" % (TTL * 1000)}}, **more)


def serve(agent, name="web"):
    do(agent, "/v1/agent/service/register", {"Name": name, "Port": 80, "Check": {"CheckID": name, "TTL": "1h", "Status": "passing"}})


class StoodStill(Exception):
    """This machine, for so long that an agent's lease may have ended: another one is right to take its name then."""


def stays(seconds, *truths):
    """For so long each (condition, what it says) holds, unless this machine stands still."""
    looked = begun = now()
    while now() - begun < seconds:
        for truth, what in truths:
            if not truth():
                late = now() - looked
                check(late > TTL / 3, what)
                raise StoodStill("%s: %.2f s after it was seen" % (what, late))
        looked = now()
        time.sleep(0.1)


def again(story, cluster, agent, servers):
    """Where this machine stood still, twice at most. Agents that the story brought go."""
    for turn in range(3):
        brought = len(cluster.agents)
        try:
            return story(cluster, agent, servers)
        except StoodStill as why:
            check(turn < 2, str(why))
            print("told again: %s" % why, flush=True)
        for other in cluster.agents[brought:]:
            other.kill()
        agent.kill()
        agent.start()
        until("it has its name", lambda: address_of(servers, agent.name) == agent.ip and life(servers[0], agent.name) == "passing", 3 * TTL)


class Host:
    """An agent with a service, and a session that hangs on it."""

    def __init__(self, agent, servers):
        self.agent, self.servers = agent, servers
        self.session = do(agent, "/v1/session/create", {"LockDelay": "0s", "Checks": ["serfHealth"]})["ID"]
        check(do(agent, "/v1/kv/lock/%s?acquire=%s" % (agent.name, self.session), "1") is True, "it locks a key")

    def in_dns(self, server):
        found = resolve(server, "web.service.coord")
        return found is None or isinstance(found, list) and self.agent.ip in found

    def gone(self, server):
        return (not self.in_dns(server) and life(server, self.agent.name) == "critical"
                and get(server, "/v1/session/info/%s?stale" % self.session, 3) == [])

    def lives_until(self):
        """At least: its last renewal counts, which is a third of a TTL ago where nothing stood still."""
        def left():
            asked = now()
            leases = [l for l in get(self.servers[0], "/v1/leases?remaining") or [] if l.get("Node") == self.agent.name]
            return [asked + seconds(leases[0]["Remaining"]) - 0.1] if leases else None      # it is rounded
        return until("its lease", left)[0]

    def ends(self, what, lose):
        """Out of DNS, critical, without its session at each server: not before its lease has ended, and in time. (How long that took, the bound.)"""
        least, elected = self.lives_until(), self.elections()
        begun = now()
        lose()
        while True:
            check(self.in_dns(self.servers[0]) or now() >= least, "%s: out of DNS after %.2f s already" % (what, now() - begun))
            if all(self.gone(s) for s in self.servers):
                break
            check(now() - begun < 20 * TTL, "%s: still there after %.1f s: %s" % (what, now() - begun, [
                (s.name, self.in_dns(s), life(s, self.agent.name)) for s in self.servers]))
            time.sleep(0.02)
        took, elected = now() - begun, self.elections() - elected
        print("%s: gone after %.2f s (TTL %.0f s)%s" % (what, took, TTL, ", elections: %d" % elected if elected else ""), flush=True)
        return took, (TTL + 1) * (1 + elected) + ROOM      # who leads anew begins the time anew

    def elections(self):
        return sum(s.log().count("raft: leading term=") for s in self.servers)

    def returns(self, what, within):
        begun = now()
        until("%s: it is back" % what, lambda: all(life(s, self.agent.name) == "passing" and self.in_dns(s) for s in self.servers), within)
        print("%s: back after %.2f s" % (what, now() - begun), flush=True)


def seconds(duration):
    """Of "2.95s" or "850ms"."""
    return float(duration[:-2]) / 1000 if duration.endswith("ms") else float(duration[:-1]) if duration.endswith("s") else 0.0


def ends_in_time(agent, servers, what, lose, back, meanwhile=lambda: None):
    def once():
        host = Host(agent, servers)
        took = host.ends(what, lose)
        meanwhile()
        back()
        host.returns("after that", 10)
        return took
    kept(what, once)


def killed(cluster, agent, servers):
    ends_in_time(agent, servers, "killed", agent.kill, agent.start)


def hangs(cluster, agent, servers):
    ends_in_time(agent, servers, "stopped by SIGSTOP", agent.pause, agent.resume)


def cut_off(cluster, agent, servers):
    if not cluster.hub:
        return
    for what, sources, destinations in (("nothing from it arrives", [agent], servers), ("nothing arrives at it", servers, [agent])):
        # What is local goes on.
        ends_in_time(agent, servers, what, lambda: cluster.cut_one_way(sources, destinations), cluster.heal, lambda: serve(agent, "meanwhile"))
        until("what came meanwhile is there", lambda: get(servers[0], "/v1/catalog/service/meanwhile"), 10)
        do(agent, "/v1/agent/service/deregister/meanwhile")


def leaves(cluster, agent, servers):
    begun = now()
    check(agent.terminate() == 0, "it ends well")
    until("the node is gone at once", lambda: all(get(s, "/v1/catalog/node/%s?stale" % agent.name) is None for s in servers), 1)
    print("left by SIGTERM: gone after %.2f s" % (now() - begun), flush=True)
    until("its services as well", lambda: isinstance(found := resolve(servers[0], "web.service.coord"), list) and agent.ip not in found, 3)
    agent.start()
    ready([agent])
    until("its services come again", lambda: isinstance(found := resolve(servers[0], "web.service.coord"), list) and agent.ip in found, 5)


def reaped(cluster, agent, servers):
    """Its meta says: reconnect_timeout 2 s."""
    def removed(server):
        status, _, found = ask(server, "GET", "/v1/catalog/node/%s?stale" % agent.name)
        return status == 404 or status == 200 and not found

    def once():
        """How much of the time between was not seen. Who looks late sees less of it, or none."""
        serve(agent, "short")
        until("it is there", lambda: get(servers[0], "/v1/catalog/service/short"), 5)
        agent.kill()
        begun = now()
        until("dead first", lambda: life(servers[0], agent.name) == "critical" or removed(servers[0]), TTL + 20)
        dead = now() - begun
        until("then removed", lambda: all(removed(s) for s in servers), 6)
        took = now() - begun
        print("killed: critical after %.2f s, reaped after %.2f s (reconnect_timeout 2 s)" % (dead, took), flush=True)
        agent.start()
        ready([agent])
        wait_equal("after it was reaped", [agent], servers, 5)
        return 2 - (took - dead), 1
    kept("the node of a dead agent stays for its time", once)


def two_of_a_name(cluster, first, servers):
    second = cluster.agent(first.name, settings())
    second.start()
    words = "another agent has this node's name: waiting until its lease has ended"
    until("the second says that it waits", lambda: words in second.log(), 10)
    until("it answers", lambda: get(second, "/v1/agent/services") is not None, 5)
    do(second, "/v1/agent/service/register", {"Name": "seconds", "Port": 2})
    stays(TTL + 1, (lambda: address_of(servers, first.name) == first.ip, "the first keeps the name"),
          (lambda: life(servers[0], first.name) == "passing", "the first is well"),
          (lambda: not get(servers[0], "/v1/catalog/service/seconds"), "the second writes nothing"))
    check(second.log().count(words) == 1, "it says so once")
    first.kill()
    begun = now()
    until("the second has the name", lambda: (get(servers[0], "/v1/catalog/node/" + first.name) or {"Node": {"Address": ""}})["Node"]["Address"] == second.ip, TTL + 4)
    print("the second of a name took over %.2f s after the first was killed" % (now() - begun), flush=True)
    wait_equal("the second of a name", [second], servers, 5)
    first.start()
    waits = first.log().count(words)
    until("now the first waits", lambda: first.log().count(words) > waits, 10)
    until("the second is well", lambda: life(servers[0], first.name) == "passing" and get(servers[0], "/v1/catalog/service/seconds"), 3)
    second.terminate()
    until("and has it again", lambda: (get(servers[0], "/v1/catalog/node/" + first.name) or {"Node": {"Address": ""}})["Node"]["Address"] == first.ip, 5)
    wait_equal("the first of a name", [first], servers, 5)


def twins(cluster, first, servers):
    """The image of a host was copied, with the node ID: the second waits like any other, and costs little."""
    node_id = get(first, "/v1/agent/self")["Config"]["NodeID"]
    second = cluster.agent(first.name, settings(node_id=node_id))
    second.start()
    words = "is held by an agent with the same node ID"
    until("the twin says that it waits", lambda: words in second.log(), 10)
    begun, index = now(), log_index(servers[0])
    stays(TTL, (lambda: address_of(servers, first.name) == first.ip, "the first keeps the name"))
    entries = log_index(servers[0]) - index
    check(entries < 5 * (now() - begun + 1), "%d entries in %.1f s" % (entries, now() - begun))
    first.kill()
    until("the twin has the name", lambda: (get(servers[0], "/v1/catalog/node/" + first.name) or {"Node": {"Address": ""}})["Node"]["Address"] == second.ip, TTL + 4)
    second.terminate()
    first.start()
    ready([first])


def address_of(servers, name):
    return (get(servers[0], "/v1/catalog/node/" + name) or {"Node": {"Address": ""}})["Node"]["Address"]


def copies(cluster, first, servers):
    """Likewise, but the copy was given a name of its own: it does not take the first one's place."""
    host = Host(first, servers)
    second = cluster.agent("copy", settings(node_id=get(first, "/v1/agent/self")["Config"]["NodeID"]))
    second.start()
    until("the copy says that it waits", lambda: 'is that of node "%s"' % first.name in second.log(), 10)
    stays(TTL, (lambda: address_of(servers, first.name) == first.ip and not address_of(servers, "copy"), "the first stays"),
          (lambda: get(servers[0], "/v1/session/info/" + host.session), "with its session"))
    first.kill()
    until("the copy is there", lambda: address_of(servers, "copy") == second.ip and not address_of(servers, first.name), TTL + 4)
    second.terminate()
    first.start()
    ready([first])


def removed_by_somebody(agent, servers):
    """A living agent's node is deregistered in the catalog: with the next thing registered on it, all of it is there again."""
    do(servers[0], "/v1/catalog/deregister", {"Node": agent.name})
    check(not address_of(servers, agent.name), "it is gone")
    do(agent, "/v1/agent/service/register", {"Name": "next"})
    until("it is there again", lambda: address_of(servers, agent.name) == agent.ip and life(servers[0], agent.name) == "passing", 5)
    check([s["Address"] for s in get(servers[0], "/v1/catalog/service/next")] == [agent.ip], "with its address")
    do(agent, "/v1/agent/service/deregister/next")


def clocks(cluster, agent, servers):
    """An hour either way: nothing happens. Through a library that is preloaded."""
    library, shift = harness.preload(cluster, "shifted_clock.c"), os.path.join(cluster.dir, "shift")
    if not library:
        print("no compiler: clocks are not shifted", flush=True)
        return

    def jump(seconds):
        with open(shift, "r+b" if os.path.exists(shift) else "wb") as f:
            f.write(struct.pack("=q", seconds))

    def passes(name):
        found = get(servers[0], "/v1/health/node/" + agent.name)
        return found is None or {c["CheckID"]: c["Status"] for c in found}.get(name) == "passing"
    jump(0)
    agent.kill()
    agent.environment = harness.preloaded(library, SHIFTED_CLOCK=shift)
    agent.start()
    ready([agent])
    do(agent, "/v1/agent/check/register", {"CheckID": "alive", "Name": "alive", "TTL": "30s", "Status": "passing"})
    host = Host(agent, servers)
    until("all is well", lambda: host.in_dns(servers[0]), 5)
    index = get(servers[0], "/v1/session/info/" + host.session)[0]["ModifyIndex"]
    for seconds in (3600, -3600, 0):
        told = agent.log().count("check is now passing check=alive")
        jump(seconds)
        do(agent, "/v1/agent/check/warn/alive")        # written down with the agent's wall clock
        do(agent, "/v1/agent/check/pass/alive")
        line = until("its log says so", lambda: [l for l in agent.log().splitlines() if "check is now passing check=alive" in l][told:], 5)[0]
        off = datetime.datetime.fromisoformat(line.split("Z")[0] + "+00:00").timestamp() - time.time()
        check(abs(off - seconds) < 30 * SLOW, "its clock is off by %d s, wanted %d" % (off, seconds))
        elected, lines = host.elections(), len(agent.log().splitlines())
        stays(TTL + 1, (lambda: life(servers[0], agent.name) == "passing", "%+d s: it is passing" % seconds), (lambda: host.in_dns(servers[0]), "%+d s: in DNS" % seconds),
              (lambda: passes("alive"), "%+d s: its TTL check is passing" % seconds))
        check(do(agent, "/v1/kv/clock", "1") is True and get(agent, "/v1/kv/clock"), "%+d s: it reads and writes" % seconds)
        said = agent.log().splitlines()[lines:]
        wrong = [l for l in said if "WARN" in l or "ERROR" in l]
        if wrong and host.elections() != elected:
            raise StoodStill("a leader was elected: %s" % wrong)
        check(not wrong, "%+d s: it has nothing to say: %s" % (seconds, said))
    check(get(servers[0], "/v1/session/info/" + host.session)[0]["ModifyIndex"] == index, "its session lives")
    print("the clock of an agent jumped by an hour, and back by two: nothing happened", flush=True)


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        agents = [cluster.agent("a%d" % n, settings(**({"node_meta": {"reconnect_timeout": "2s"}} if n == 3 else {}))) for n in (1, 2, 3)]
        for agent in agents:
            agent.start()
        ready(agents)
        for agent in agents[:2]:
            serve(agent)
        servers = cluster.servers
        until("both are in DNS", lambda: all(resolve(s, "web.service.coord") == sorted(a.ip for a in agents[:2]) for s in servers), 5)
        killed(cluster, agents[0], servers)
        hangs(cluster, agents[0], servers)
        cut_off(cluster, agents[0], servers)
        leaves(cluster, agents[0], servers)
        reaped(cluster, agents[2], servers)
        again(two_of_a_name, cluster, agents[0], servers)
        again(twins, cluster, agents[2], servers)
        again(copies, cluster, agents[2], servers)
        removed_by_somebody(agents[2], servers)
        again(clocks, cluster, agents[1], servers)
        finish(cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main())
