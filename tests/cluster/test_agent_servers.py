#!/usr/bin/env python3
"""Client agents when servers die, all of them or the one that matters, come back, or are set back to an old backup.

    test_agent_servers.py [--agents N]
"""
import argparse, concurrent.futures, http.client, json, os, select, subprocess, sys, time
import harness
from agents import ask, do, finish, get, metric, now, ready, resolve, wait_equal
from harness import MULTIPLIER, SLOW, check, undecided, until


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--agents", type=int, default=12)
    return p.parse_args()


def written(agent, what):
    """The next write through the agent succeeds in the end. Each is asked for once more when it was refused. (How soon: ./dev sim, links.)"""
    until(what, lambda: agent.try_put("/v1/kv/through/" + agent.name, timeout=8), 20)


def their_server_dies(cluster, agents):
    """The one that an agent is connected with, a follower; then the leader."""
    agent = one_at(cluster, agents, False)
    victim = agent.server()
    victim.kill()
    written(agent, "its server was killed")
    check(agent.server() is not victim, "it moved")
    victim.start()
    cluster.wait_writable()
    on_leader, elsewhere = one_at(cluster, agents, True), one_at(cluster, agents, False)
    leader = cluster.leader()
    leader.kill()
    for agent in (on_leader, elsewhere):
        written(agent, "the leader was killed, %s" % ("its own server" if agent is on_leader else "not its server"))
    leader.start()
    cluster.wait_writable()


def heard_elsewhere(cluster, agents, what, lose, return_it):
    """An agent only waits for a change when its server says nothing more; it hears of that change through another one."""
    heard(cluster, agents, what, lose, return_it)
    cluster.wait_writable()
    ready(agents)


def fetches(servers):
    """Those that last: others end at once."""
    return min(sum(metric(s, "coord_rpc_agent_fetches") for s in servers if s.alive()) for _ in range(5))


def heard(cluster, agents, what, lose, return_it):
    agent, leader = one_at(cluster, agents, False), cluster.leader()
    victim = agent.server()
    do(agent, "/v1/kv/vanish", "1")
    index = int(ask(agent, "GET", "/v1/kv/vanish")[1]["X-Consul-Index"])
    before = fetches([victim])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waits = pool.submit(lambda: ask(agent, "GET", "/v1/kv/vanish?raw&wait=60s&index=%d" % index, timeout=70))
        until("it waits", lambda: fetches([victim]) > before)
        lose(victim)
        do(leader, "/v1/kv/vanish", "2")
        check(waits.result()[2] == "2", "its server %s, woken: %r" % (what, waits.result()))
    return_it(victim)


def their_server_hangs(cluster, agents):
    """Its kernel goes on and acknowledges all."""
    heard_elsewhere(cluster, agents, "hung", lambda s: s.pause(), lambda s: s.resume())


def cut_from_the_others(cluster, victim):
    cluster.cut([victim], [s for s in cluster.servers if s is not victim])


def one_at(cluster, agents, leads):
    """An agent at the leader, or at another server. They may all be elsewhere after what was before; a restart brings one to where it belongs."""
    leader = cluster.leader()
    for agent in agents:
        if agent.server() and (agent.server() is leader) == leads:
            return agent
    for agent in agents:
        agent.kill()
        agent.start()
        ready([agent])
        if (agent.server() is leader) == leads:
            return agent
    raise AssertionError("no agent belongs there")


def cut_off(cluster, agents, leads):
    cluster.wait_writable()
    ready(agents)
    agent = one_at(cluster, agents, leads)
    victim = agent.server()
    begun = len(victim.log())
    cut_from_the_others(cluster, victim)
    written(agent, "its server was cut off%s" % (", the leader" if leads else ""))
    check(agent.server() is not victim, "it moved")
    check("cut off: no leader is known" in victim.log()[begun:], "its log says so")
    cluster.heal()


def their_server_is_cut_off(cluster, agents):
    """From the other servers only: the agent reaches them all. A follower, while it waits and while it writes; then the leader."""
    heard_elsewhere(cluster, agents, "was cut off", lambda victim: cut_from_the_others(cluster, victim), lambda _: cluster.heal())
    for leads in (False, True):
        cut_off(cluster, agents, leads)


def their_server_vanishes(cluster, agents):
    """From everybody, without a word."""
    heard_elsewhere(cluster, agents, "vanished",
                    lambda victim: cluster.cut([victim], [s for s in cluster.servers if s is not victim] + agents), lambda _: cluster.heal())


class Waiting:
    """Blocking queries at one agent, each on a key of its own, one connection each. Written down: what came, when."""

    def __init__(self, agent, count, index):
        self.agent, self.open, self.came = agent, {}, {}
        for number in range(count):
            c = http.client.HTTPConnection(agent.ip, 8500, timeout=60 * SLOW)
            c.request("GET", "/v1/kv/wait/%d?index=%d&wait=120s" % (number, index))
            self.open[number] = c

    def collect(self, numbers):
        for number in numbers:
            answer = self.open.pop(number).getresponse()
            check(answer.status == 200, "the query for %d: %d" % (number, answer.status))
            self.came[number] = (int(answer.headers["X-Consul-Index"]), json.loads(answer.read())[0]["ModifyIndex"])

    def hang_up(self):
        for c in self.open.values():
            c.close()
        self.open = {}


def wait_for_keys(cluster, agents, count=1000):
    """1,000 at once through one agent; each is woken by its own key, also after the loss of the server; hanging up frees them."""
    agent = agents[1]
    do(agent, "/v1/kv/wait/first", "1")
    index = int(ask(agent, "GET", "/v1/kv/wait/first")[1]["X-Consul-Index"])
    before = fetches(cluster.servers)
    queries = Waiting(agent, count, index)
    until("all wait at a server", lambda: fetches(cluster.servers) - before >= count, 15)
    touched = list(range(0, count, 10))
    for number in touched[:50]:
        do(agent, "/v1/kv/wait/%d" % number, "2")
    queries.collect(touched[:50])
    victim = agent.server()
    victim.kill()
    until("the agent moved", lambda: agent.server() not in (None, victim), 5)
    begun = now()
    for number in touched[50:]:
        until("writes go on", lambda: agent.try_put("/v1/kv/wait/%d" % number), 10)
    queries.collect(touched[50:])
    print("woken after the loss of the server: %d of %d queries, %.2f s" % (len(touched) - 50, count, now() - begun), flush=True)
    check(all(at == modified for at, modified in queries.came.values()), "each by its own key")
    victim.start()
    cluster.wait_writable()
    early = select.poll()
    for c in queries.open.values():
        early.register(c.sock, select.POLLIN)
    check(not early.poll(300), "nobody else was woken: %d" % len(early.poll(0)))
    queries.hang_up()
    until("those that hung up are forgotten", lambda: fetches(cluster.servers) <= before + 5, 10)


DISCOVERY = ["/v1/health/service/web?near=_agent", "/v1/health/checks/web?near=_agent", "/v1/health/state/any?near=_agent", "/v1/health/node/a1",
             "/v1/catalog/nodes?near=_agent", "/v1/catalog/service/web?near=_agent", "/v1/catalog/services", "/v1/coordinate/nodes"]


def all_servers_gone(cluster, agents):
    """Discovery goes on from what was asked before, marked with its age; a key is not read, and that is said in time."""
    agent = agents[0]
    do(agent, "/v1/agent/service/register", {"Name": "web", "Port": 80, "Check": {"TTL": "1h", "Status": "passing"}})
    path = "/v1/health/service/web?passing"
    until("DNS and HTTP know it", lambda: resolve(agent, "web.service.coord") == [agent.ip] and len(get(agent, path) or []) == 1, 5)
    before = {p: ask(agent, "GET", p) for p in DISCOVERY}
    check(all(status == 200 for status, _, _ in before.values()), "asked before: %r" % before)
    status, headers, fresh = ask(agent, "GET", path)
    check("X-Coord-Age" not in headers and headers["X-Consul-KnownLeader"] == "true", "fresh: %s" % dict(headers))
    for s in cluster.servers:
        s.kill()
    killed = now()
    until("old answers are given", lambda: ask(agent, "GET", path)[1].get("X-Coord-Age"), 5)

    def what_was(path, known):
        """An answer of before, and how old it is."""
        status, headers, answer = ask(agent, "GET", path)
        check(status == 200 and answer == known and int(headers["X-Coord-Age"]) > 0, "what was at %s: %d %s" % (path, status, answer))
        return headers
    for _ in range(5):
        headers = what_was(path, fresh)
        check(int(headers["X-Coord-Age"]) <= now() - killed + 10 * SLOW and int(headers["X-Consul-LastContact"]) > 0, dict(headers))
        found = until("DNS answers", lambda: resolve(agent, "web.service.coord"), 3)
        check(found == [agent.ip], "DNS goes on: %r" % found)
        time.sleep(0.3)
    for p, (_, _, known) in before.items():
        what_was(p, known)
    for p in ("/v1/status/leader", "/v1/status/peers"):
        status, _, why = ask(agent, "GET", p)
        check(status == 500 and "leader" in why.lower(), "%s: %d %s" % (p, status, why))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        consistent = pool.submit(ask, agent, "GET", path + "&consistent", timeout=30 * SLOW)
        status, _, why = ask(agent, "GET", "/v1/kv/through", timeout=30 * SLOW)
        refused = consistent.result()
    check(refused[0] == 500 and "leader" in refused[2].lower(), "?consistent is no answer of before: %r" % (refused,))
    check(status == 500 and "leader" in why.lower(), "a key: %d %s" % (status, why))
    check(not agent.try_put("/v1/kv/through/x", timeout=20 * SLOW), "no write is said to have been done")
    for s in cluster.servers:
        s.start()
    cluster.wait_writable()
    until("fresh again", lambda: "X-Coord-Age" not in ask(agent, "GET", path)[1] and ask(agent, "GET", path)[0] == 200, 10)
    do(agent, "/v1/agent/service/deregister/web")
    until("and DNS follows", lambda: resolve(agent, "web.service.coord") == 3, 5)
    until("and keys are read", lambda: ask(agent, "GET", "/v1/kv/?keys")[0] == 200, 5)


def old_backup(cluster, agents):
    """Restored to a time before half of what there is: every agent asserts itself again, once."""
    for agent in agents:
        do(agent, "/v1/agent/service/register", {"Name": "before", "Port": 1, "Check": {"CheckID": "before", "TTL": "1h", "Status": "passing"}})
    wait_equal("before the backup", agents, cluster.servers, 5)
    server, path = cluster.leader(), os.path.join(cluster.dir, "backup")

    def snapshot(word):
        argv = [harness.COORD, "snapshot", word, "-http-addr=%s:8500" % server.ip, path]

        def done():
            r = subprocess.run(argv, capture_output=True, text=True, timeout=60 * SLOW)
            said = r.stdout + r.stderr
            check(r.returncode == 0 or undecided(500, said.encode()), "snapshot %s: %s" % (word, said))
            return r.returncode == 0
        until("snapshot " + word, done)
    snapshot("save")
    for number, agent in enumerate(agents):
        do(agent, "/v1/agent/service/deregister/before")
        for port in range(3):
            do(agent, "/v1/agent/service/register", {"Name": "after%d" % port, "Port": port + 1, "Check": {"CheckID": "after%d" % port, "TTL": "1h"}})
    wait_equal("before the restore", agents, cluster.servers, 5)
    applied = metric(server, "coord_raft_applied_total")
    snapshot("restore")
    took = wait_equal("after the restore of an old backup", agents, cluster.servers, 30)
    until("all nodes are passing", lambda: all(c["Status"] == "passing" for c in get(server, "/v1/health/state/any") or [{"Status": "unknown", "CheckID": "serfHealth"}]
                                               if c["CheckID"] == "serfHealth"), 30)
    entries = metric(server, "coord_raft_applied_total") - applied
    print("%d agents asserted themselves within %.1f s, %d entries" % (len(agents), took, entries), flush=True)
    check(entries < 10 * (len(agents) + 3) + 20, "no stampede: %d entries" % entries)


def main():
    options = arguments()
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        agents = [cluster.agent("a%d" % n, {"node_id": "%08d-0000-4000-8000-000000000000" % n, "limits": {"http_max_conns_per_client": 2000},
                                              "coord": {"node_lease_ttl": "%ds" % (4 * MULTIPLIER)}})
                  for n in range(1, options.agents + 1)]
        for agent in agents:
            agent.start()
        ready(agents)
        their_server_dies(cluster, agents)
        ready(agents)
        their_server_hangs(cluster, agents)
        if cluster.hub:
            ready(agents)
            their_server_is_cut_off(cluster, agents)
            cluster.wait_writable()
            ready(agents)
            their_server_vanishes(cluster, agents)
        old_backup(cluster, agents)
        wait_for_keys(cluster, agents)
        all_servers_gone(cluster, agents)
        finish(cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main())
