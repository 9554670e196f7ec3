#!/usr/bin/env python3
"""self-preservation: four hosts die at once and take a service with them. Its instances come back into answers, marked, until the hold
is over, while the catalog tells the truth; a change of leader and the return of a host meanwhile change what they should and no more."""
import json, threading
from coordtest import SLOW, Agent, Cluster, check, run, settings, until

HOLD = 12.0 * SLOW
SERVICES = {"web": (3, 4), "nine": (3, 3), "pair": (5, 2)}      # instances on each of so many of the agents


def answer(server, service, query=""):
    """{instance: held}"""
    entries = server.get("/v1/health/service/%s?passing&stale%s" % (service, query), timeout=10)[2]
    return {e["Service"]["ID"]: e.get("Held", False) for e in entries}


class Watcher:
    """Follows the instances that pass; every answer after the first must say something new."""

    def __init__(self, server, service):
        self.server, self.service, self.seen, self.stopping, self.failed = server, service, [], False, None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        index, path = 0, "/v1/health/service/%s?passing&stale&wait=2s" % self.service
        while not self.stopping:
            try:
                _, headers, entries = self.server.get("%s&index=%d" % (path, index), timeout=30)
            except OSError as e:
                self.failed = self.failed or repr(e)
                return
            if int(headers["X-Consul-Index"]) == index:
                continue        # the wait was over
            index = int(headers["X-Consul-Index"])
            self.seen.append({e["Service"]["ID"]: e.get("Held", False) for e in entries})

    def stop(self):
        self.stopping = True
        self.thread.join(10 * SLOW)
        check(not self.failed, "the watcher goes on: %s" % self.failed)
        for before, after in zip(self.seen, self.seen[1:]):
            check(before != after, "it woke for nothing: %r" % (before,))


def fleet(cluster):
    joins = ["-retry-join=" + s.ip for s in cluster.servers]
    agents = [Agent(*joins, settings(node_lease_ttl="2s"), server=False, name="a%d" % i) for i in range(4)]
    for agent in agents:
        agent.start(wait=False)
    for i, agent in enumerate(agents):
        agent.wait_leader(30)
        for name, (instances, hosts) in SERVICES.items():
            for n in range(instances if i < hosts else 0):
                agent.put("/v1/agent/service/register", {"ID": "%s-%d-%d" % (name, i, n), "Name": name, "Port": 1000 + n})
    for name, (instances, hosts) in SERVICES.items():
        until("all of %s passes" % name, lambda: len(answer(cluster.servers[0], name)) == instances * hosts)
    return agents


def gauge(server):
    text = server.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()
    return [line for line in text.splitlines() if line.startswith("coord_self_preservation_held_services ")]


def addresses(server):
    return sorted(server.dig_short("web.service.coord"))


def truth(server, agents, session):
    """Catalog and checks, sessions and locks do not wait."""
    for agent in agents:
        checks = server.get("/v1/health/node/%s?stale" % agent.name)[2]
        check([c["Status"] for c in checks if c["CheckID"] == "serfHealth"] == ["critical"], "the truth about %s: %r" % (agent.name, checks))
    entries = server.get("/v1/catalog/service/web?stale")[2]
    check(len(entries) == 12 and not any("Held" in e for e in entries), "the catalog: %r" % entries)
    check({c["Node"] for c in server.get("/v1/health/state/critical?stale")[2]} >= {a.name for a in agents}, "states of checks")
    until("the session ended with its node", lambda: server.request("GET", "/v1/session/info/%s?stale" % session)[2] == b"[]")
    until("its lock is free", lambda: "Session" not in server.get("/v1/kv/lock?stale")[2][0])


def held_marked_and_over():
    cluster = Cluster(3, settings(self_preservation_hold="%dms" % (HOLD * 1000))).start()
    agents = fleet(cluster)
    leader = cluster.leader()
    other, third = [s for s in cluster.servers if s is not leader]
    session = json.loads(agents[1].put("/v1/session/create", {}))["ID"]
    check(agents[1].put("/v1/kv/lock?acquire=" + session, b"x") == b"true", "locked")
    everybody = sorted(a.ip for a in agents)
    until("DNS knows all", lambda: addresses(other) == everybody)
    watcher = Watcher(other, "web")
    until("it watches", lambda: watcher.seen)
    for agent in agents:
        agent.kill()
    all_held = {"web-%d-%d" % (i, n): True for i in range(4) for n in range(3)}
    for server in cluster.servers:
        until("all are held at %s" % server.name, lambda: answer(server, "web") == all_held, 10)
        until("the metric says so", lambda: gauge(server) == ["coord_self_preservation_held_services 1"])
        check(addresses(server) == everybody, "DNS answers")
        truth(server, agents, session)
        until("the log says so", lambda: 'held service="web"' in server.log())
    for name in ("nine", "pair"):
        check(answer(other, name) == {}, "few are not held: %r" % answer(other, name))

    agents[0].start(wait=False)     # it has what it knew, and registers it again
    back = {id: held and not id.startswith("web-0-") for id, held in all_held.items()}
    until("one host is back", lambda: answer(other, "web") == back, 15)
    until("client agents say the same", lambda: answer(agents[0], "web") == back)
    leader.kill()
    until("another leads", lambda: other.get("/v1/status/leader")[2] not in ("", leader.ip + ":8300"), 15)
    check(answer(other, "web") == back and addresses(third) == everybody, "the hold outlives its leader")
    own = {id: False for id, held in back.items() if not held}
    until("it is over", lambda: answer(other, "web") == own, HOLD + 5)
    until("the watcher hears of it", lambda: watcher.seen[-1] == own)
    check(any(any(seen.values()) for seen in watcher.seen), "the watcher saw them held")
    for server in (other, third):
        until("the metric says so", lambda: gauge(server) == ["coord_self_preservation_held_services 0"])
        until("DNS knows it", lambda: addresses(server) == [agents[0].ip])
        until("the log says so", lambda: 'released service="web"' in server.log())
    watcher.stop()


def off():
    cluster = Cluster(1, settings(self_preservation_hold="0s")).start()
    agents = fleet(cluster)
    watcher = Watcher(cluster.servers[0], "web")
    for agent in agents:
        agent.kill()
    until("nothing passes", lambda: watcher.seen and watcher.seen[-1] == {}, 10)
    check(not any(any(seen.values()) for seen in watcher.seen), "nothing was held")
    check(gauge(cluster.servers[0]) == ["coord_self_preservation_held_services 0"], "the metric says so")
    watcher.stop()


if __name__ == "__main__":
    run([held_marked_and_over, off])
