#!/usr/bin/env python3
"""The catalog is what the agents know: registered while no server is there, changed while all are away, removed for good, and the entries of others
stay as they left them.

    test_agents.py [--away SECONDS]
"""
import argparse, http.server, sys, threading, time
import harness
from agents import do, finish, get, local_truth, log_index, now, ready, wait_equal
from harness import SLOW, check, kept, until


CHECKS = 20


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--away", type=float, default=4, help="how long all servers are away")
    return p.parse_args()


def service(name, port, *checks):
    return {"Name": name, "Port": port, "Checks": [{"CheckID": c, "Name": c, "TTL": "1h", "Status": "passing"} for c in checks]}


def registered_before_servers(cluster, agents):
    """No server runs: all is taken, and kept over a kill; then all is delivered."""
    for agent in agents:
        agent.start()
        until("%s answers" % agent.name, lambda: get(agent, "/v1/agent/services", 1) is not None)
        for number in range(3):
            def registered():
                begun = now()
                do(agent, "/v1/agent/service/register", service("early%d" % number, 1000 + number, "%s-early%d" % (agent.name, number)))
                return now() - begun, 1 + SLOW
            kept("registering waits for nobody", registered)
        do(agent, "/v1/agent/check/register", {"CheckID": "host", "Name": "host", "TTL": "1h"})
        do(agent, "/v1/agent/check/warn/host")
        do(agent, "/v1/agent/service/deregister/early2")
    agents[0].kill()
    agents[0].start()
    cluster.start()
    cluster.wait_writable()
    wait_equal("registered while there was no server", agents, cluster.servers, 5)
    check(set(local_truth(agents[0])[0]) == {"early0", "early1"}, local_truth(agents[0]))
    check(local_truth(agents[1])[1]["host"] == "warning", local_truth(agents[1]))


def changed_while_servers_are_away(cluster, agents, away):
    for s in cluster.servers:
        s.kill()
    begun, turn = now(), 0
    while now() - begun < away:
        for agent in agents:
            do(agent, "/v1/agent/service/register", service("away%d" % turn, 2000 + turn, "%s-away%d" % (agent.name, turn)))
            do(agent, "/v1/agent/check/fail/%s-away%d" % (agent.name, turn))
            do(agent, "/v1/agent/check/%s/%s-early0" % (("warn", "fail", "pass")[turn % 3], agent.name))
            if turn % 2:
                do(agent, "/v1/agent/service/deregister/away%d" % (turn - 1))
        turn += 1
        time.sleep(0.3)
    for agent in agents:
        do(agent, "/v1/agent/service/deregister/early1")
    check(turn > 3, "changes were made")
    for s in cluster.servers:
        s.start()
    cluster.wait_writable()
    wait_equal("changed while all servers were away for %.0f s" % away, agents, cluster.servers, 5)


def gone_for_good(cluster, agents):
    """Restarts of agents and servers in every order bring nothing back."""
    orders = ([agents[0]], cluster.servers), (cluster.servers, [agents[0]]), ([agents[0]], []), ([], cluster.servers)
    for number, (first, second) in enumerate(orders):
        name = "mayfly%d" % number
        do(agents[0], "/v1/agent/service/register", service(name, 3000 + number, name))
        until("%s is known" % name, lambda: get(cluster.servers[0], "/v1/catalog/service/" + name), 10)
        for p in first + second:
            if p in cluster.servers:
                p.kill()                               # the servers do not hear of it before they come again
        do(agents[0], "/v1/agent/service/deregister/" + name)
        for p in first + second:
            p.kill()
            p.start()
        cluster.wait_writable()
        wait_equal("deregistered, then restarted %s" % ([p.name for p in first + second],), agents, cluster.servers, 12)
        check(name not in local_truth(agents[0])[0], "%s came back" % name)


def answer(server, path):
    """Servers that elect a leader have none."""
    return until("an answer", lambda: [found for found in [get(server, path)] if found is not None])[0]


def entries_of_others(cluster, agents):
    """Under another node, and under the agent's own: by the catalog's interface, with a lease and without, also over the agent's restart."""
    agent, server = agents[0], cluster.servers[1]
    address = get(server, "/v1/catalog/node/" + agent.name)["Node"]["Address"]
    do(server, "/v1/catalog/register", {"Node": "elsewhere", "Address": "10.9.9.9", "Service": {"Service": "foreign"}})
    for lease in ("", do(server, "/v1/lease/grant", {"TTL": "3600s"})["ID"]):
        name = "guest-" + ("leased" if lease else "free")
        body = {"Node": agent.name, "Address": address, "SkipNodeUpdate": True, "Service": {"ID": name, "Service": name, "Port": 1},
                "Check": {"CheckID": name, "Name": name, "Status": "passing", "ServiceID": name}}
        if lease:
            body["Lease"] = lease
        do(server, "/v1/catalog/register", body)
    guests = {"guest-leased", "guest-free"}
    do(agent, "/v1/agent/service/register", service("own", 4000, "own"))
    until("the agent's own is there", lambda: get(server, "/v1/catalog/service/own"))
    # Somebody writes over what the agent has, and leaves something that only looks like it: the agent's stands.
    do(server, "/v1/catalog/register", {"Node": agent.name, "Address": address, "SkipNodeUpdate": True,
                                        "Service": {"ID": "own", "Service": "own", "Port": 1}})
    agent.kill()                                       # a new life compares at once
    agent.start()
    until("the agent's own stands as it is at the agent",
          lambda: [s["ServicePort"] for s in get(server, "/v1/catalog/service/own") or []] == [4000], 15)
    for name in guests:
        check(len(answer(server, "/v1/catalog/service/" + name)) == 1, "%s is left alone" % name)
        check([c["Status"] for c in answer(server, "/v1/health/checks/" + name)] == ["passing"], "the check of %s is left alone" % name)
    check(len(answer(server, "/v1/catalog/service/foreign")) == 1, "entries of other nodes are left alone")
    check("removing an unknown" not in agent.log() or "guest" not in agent.log().split("removing an unknown", 1)[1], "the log names no guest")
    for name in guests:
        do(server, "/v1/catalog/deregister", {"Node": agent.name, "ServiceID": name})
    do(agent, "/v1/agent/service/deregister/own")
    wait_equal("after the guests", agents, cluster.servers, 5)


class Dated(http.server.BaseHTTPRequestHandler):
    """Every answer has another text. 503 when told so."""
    failing, count = False, 0

    def do_GET(self):
        Dated.count += 1
        text = b"at %d: %r\n" % (Dated.count, time.time())
        self.send_response(503 if Dated.failing else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def changing_output(cluster, agent):
    """Output alone costs no entry of the log; a status is there at once."""
    web = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Dated)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    host = cluster.hub and agent.ip.rsplit(".", 1)[0] + ".1" or "127.0.0.1"
    url = "http://%s:%d/" % (host, web.server_port)
    for number in range(CHECKS):
        do(agent, "/v1/agent/check/register", {"CheckID": "dated%d" % number, "Name": "dated", "HTTP": url, "Interval": "1s", "Timeout": "5s"})

    def statuses(server):
        return {c["Status"] for c in get(server, "/v1/health/node/%s?stale" % agent.name) or [] if c["CheckID"].startswith("dated")}
    until("all of them pass", lambda: statuses(cluster.servers[0]) == {"passing"})
    server = cluster.leader()

    def quiet():                                       # 5 attempts of each check
        applied, runs = log_index(server), Dated.count
        until("5 intervals", lambda: Dated.count - runs >= 5 * CHECKS, 20)
        return log_index(server) - applied
    # The cluster's own entries (a leader's notes, coordinates) are few: some window is without any, were there one for each text none would be.
    moved = [quiet()]
    while min(moved) > 0 and len(moved) < 3:
        moved.append(quiet())
    print("entries during %d attempts with changing output: %s" % (5 * CHECKS, moved), flush=True)
    check(min(moved) <= 2, "output alone costs entries: %s" % moved)
    output = get(agent, "/v1/agent/checks")["dated0"]["Output"]
    until("the agent itself has the newest text", lambda: get(agent, "/v1/agent/checks")["dated0"]["Output"] != output, 5)
    Dated.failing = True
    begun = now()
    until("the status travels", lambda: statuses(server) == {"critical"}, 4)
    print("%d checks are critical in the catalog %.2f s after their target failed (interval 1 s)" % (CHECKS, now() - begun), flush=True)
    Dated.failing = False
    for number in range(CHECKS):
        do(agent, "/v1/agent/check/deregister/dated%d" % number)
    web.shutdown()


def main():
    options = arguments()
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        agents = [cluster.agent("a%d" % number, {"coord": {"node_lease_ttl": "3s"}}) for number in (1, 2, 3)]
        registered_before_servers(cluster, agents)
        ready(agents)
        changed_while_servers_are_away(cluster, agents, options.away)
        gone_for_good(cluster, agents)
        entries_of_others(cluster, agents)
        changing_output(cluster, agents[1])
        wait_equal("in the end", agents, cluster.servers, 5)
        finish(cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main())
