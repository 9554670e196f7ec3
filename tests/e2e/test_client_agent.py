"""Client agents: beside three servers, what is asked there is answered as a server answers it, or refused in one clear line."""
import glob, json, os, re, subprocess
from coordtest import COORD, HERE, SLOW, Agent, Cluster, check, run, undecided, until


def client_agent(cluster, name="a1", *args):
    joins = ["-retry-join=" + server.ip for server in cluster.servers[:1]]
    return Agent(*joins, *args, server=False, name=name)


def words(agent, *args, code=0, stdin=None):
    env = dict(os.environ, CONSUL_HTTP_ADDR="%s:8500" % agent.ip)
    env.pop("COORD_HTTP_ADDR", None)
    r = subprocess.run([COORD, *args], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60 * SLOW, env=env)
    check(code in (None, r.returncode), "coord %s: exit %d, wanted %s: %s%s" % (" ".join(args), r.returncode, code, r.stdout, r.stderr))
    return r.stdout + r.stderr


def rows(text):
    lines = [line.split() for line in text.splitlines() if line]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def routes():
    """(methods, path) of the whole routing table, as the sources have it."""
    found = []
    for path in sorted(glob.glob(os.path.join(HERE, "../../http/api/*.c"))):
        with open(path) as f:
            for methods, route in re.findall(r'\{\s*((?:HTTP_[A-Z]+\s*\|?\s*)+),\s*"(/[^"]*)"', f.read()):
                found.append(([m[5:] for m in re.findall("HTTP_[A-Z]+", methods)], route))
    check(len(found) > 55, "the tables are found: %d rows" % len(found))
    return found


# What cannot be told by asking twice: it ends the process, does not end, or changes what the next one finds.
NOT_HERE = {"/v1/agent/leave", "/v1/agent/monitor", "/v1/operator/raft/transfer-leader", "/v1/secure/start", "/v1/secure/finish", "/v1/secure/abort"}
BODIES = {"/v1/event/fire/*name": "payload", "/v1/catalog/register": {"Node": "x1", "Address": "10.0.0.1"}, "/v1/catalog/deregister": {"Node": "x1"},
          "/v1/agent/service/register": {"Name": "w"}, "/v1/agent/check/register": {"Name": "c", "TTL": "1h"},
          "/v1/session/create": {"TTL": "600s"}, "/v1/operator/autopilot/configuration": {"MaxTrailingLogs": 250},
          "/v1/coordinate/update": {"Node": "x1", "Coord": {"Vec": [0] * 8, "Error": 1.5, "Adjustment": 0, "Height": 1e-5}},
          "/v1/txn": [{"KV": {"Verb": "get", "Key": "t"}}], "/v1/txn/if": {"If": [{"KV": {"Key": "t", "Exists": True}}]}}


def every_route():
    """No crash, and the status that a server gives; where that is a failure, a line of text. Requests that change something are made at
    both too: what they change is the same for both, or not there."""
    cluster = Cluster().start()
    agent, server = client_agent(cluster).start(wait=False), cluster.servers[0]
    agent.wait_leader(30)
    walked = 0
    for methods, route in routes():
        if route in NOT_HERE:
            continue
        path = re.sub(r"[:*+](\w+)", lambda m: {"id": "none", "uuid": "00000000-0000-0000-0000-000000000000"}.get(m.group(1), "none"), route)
        for method in methods:
            body = BODIES.get(route) if method in ("PUT", "POST") else None
            def asked():
                both = [a.request(method, path, body, timeout=60) for a in (agent, server)]
                return both if not any(undecided(status, text) for status, _, text in both) else None
            ours, theirs = until("%s %s is answered" % (method, path), asked)
            check(ours[0] == theirs[0], "%s %s: %r, a server says %r" % (method, path, (ours[0], ours[2][:200]), (theirs[0], theirs[2][:200])))
            if ours[0] >= 400:
                check(len(ours[2]) < 300 and b"\n" not in ours[2].strip(), "%s %s: one line: %r" % (method, path, ours[2]))
            elif ours[0] == 200 and ours[1].get("Content-Type", "").startswith("application/json") and method == "GET" and theirs[2]:
                check(type(json.loads(ours[2])) is type(json.loads(theirs[2])), "%s %s: %r" % (method, path, ours[2][:200]))
            check(agent.proc.poll() is None, "%s %s: it lives" % (method, path))
            walked += 1
    check(walked > 55, "%d requests" % walked)
    for path in ("/v1/status/leader", "/v1/operator/raft/configuration", "/v1/operator/autopilot/configuration"):
        until("the same answer as a server's: " + path, lambda: agent.get(path)[2] == server.get(path)[2], 5)
    check(sorted(agent.get("/v1/status/peers")[2]) == sorted(server.get("/v1/status/peers")[2]), "peers")
    def health():            # a follower that has been silent for 200 ms is called unhealthy
        return {s["Name"]: s["Healthy"] for s in agent.get("/v1/operator/autopilot/health")[2]["Servers"]}
    until("all are healthy", lambda: health() == {"s1": True, "s2": True, "s3": True})


def bound_to_leases():
    """What is bound to a lease through a client agent goes with it; an ID that is not known is refused there, too."""
    cluster = Cluster().start()
    agent = client_agent(cluster).start()
    server = cluster.servers[0]

    def bind(id, expect=200):
        agent.put("/v1/agent/service/register", {"Name": "own", "Lease": id}, expect=expect)
        agent.put("/v1/kv/bound?lease=" + id, b"x", expect=expect)
        agent.put("/v1/catalog/register", {"Node": "ext", "Address": "10.0.0.9", "Service": {"Service": "other"}, "Lease": id}, expect=expect)

    def there():
        return (len(server.get("/v1/catalog/service/own")[2]) + len(server.get("/v1/catalog/service/other")[2]) +
                (server.request("GET", "/v1/kv/bound?raw")[0] == 200))
    bind("00000000-0000-4000-8000-000000000000", expect=404)
    bind(json.loads(agent.put("/v1/lease/grant", {"TTL": "60s"}))["ID"])
    until("all are there", lambda: there() == 3)
    lease = agent.get("/v1/leases")[2]
    agent.put("/v1/lease/revoke/" + next(l["ID"] for l in lease if not l.get("Node")))
    until("all are gone", lambda: there() == 0)


def operators_on_a_client_agent():
    cluster = Cluster().start()
    agent = client_agent(cluster).start(wait=False)
    agent.wait_leader(30)

    def handed_over():       # not to one that is behind
        old = cluster.leader()
        status, _, body = agent.request("PUT", "/v1/operator/raft/transfer-leader")
        check(status == 500 or status == 200 and json.loads(body) == {"Success": True}, "%d %r" % (status, body))
        return status == 200 and old
    old = until("another is to lead", handed_over)
    until("another leads", lambda: cluster.leader() is not old)
    peers = rows(words(agent, "operator", "raft", "list-peers"))
    check(sorted(p["Node"] for p in peers) == ["s1", "s2", "s3"], "%r" % peers)
    gone = cluster.followers()[0]
    gone.kill()
    words(agent, "operator", "raft", "remove-peer", "-address=%s:8300" % gone.ip)
    until("it is out", lambda: gone.name not in [p["Node"] for p in rows(words(agent, "operator", "raft", "list-peers"))])
    check(agent.request("DELETE", "/v1/operator/raft/peer?id=ffff")[0] == 500, "no such server")


def all_members():
    cluster = Cluster().start()
    agents = [client_agent(cluster, "a%d" % i).start(wait=False) for i in (1, 2)]
    for agent in agents:
        agent.wait_leader(30)
    names = ["a1", "a2", "s1", "s2", "s3"]
    build = re.match(r"coord v(\S+)", subprocess.run([COORD, "version"], capture_output=True, text=True).stdout).group(1)
    body = {"Node": "x1", "Address": "10.0.0.1", "Check": {"CheckID": "serfHealth", "Name": "Serf Health Status", "Status": "passing"}}
    for asked in cluster.servers + agents:
        until("all members on " + asked.name, lambda: [(m["Node"], m["Status"]) for m in rows(words(asked, "members"))] == [(n, "alive") for n in names])
        for m in rows(words(asked, "members")):
            check(m["Status"] == "alive" and m["Type"] == ("server" if m["Node"][0] == "s" else "client") and m["DC"] == "dc1", "%r" % m)
            check(m["Build"] == build, "%r says %s" % (m, asked.name))
            check(m["Segment"] == ("<all>" if m["Type"] == "server" else "<default>") and m["Protocol"] == "2", "%r" % m)
    agents[0].put("/v1/catalog/register", body)
    for asked in cluster.servers + agents:      # as one that was registered by hand, which says none
        until("a node that says no version, on " + asked.name, lambda: {m["Node"]: m["Build"] for m in rows(words(asked, "members"))}.get("x1") == "unknown")
    gone = cluster.followers()[0]
    gone.kill()
    for asked in [s for s in cluster.servers if s is not gone] + agents:
        until("it shows as failed on " + asked.name,
              lambda: {m["Node"]: m["Status"] for m in rows(words(asked, "members"))}[gone.name] == "failed")
    for server in cluster.servers:
        server.kill()
    until("what is known is shown without servers", lambda: {m["Node"] for m in rows(words(agents[0], "members"))} >= {"a1"}, 20)


if __name__ == "__main__":
    run([bound_to_leases, every_route, operators_on_a_client_agent, all_members])
