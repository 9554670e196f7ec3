"""A running open cluster is closed without a stop: `coord secure start`, `status`, `finish`, under writes at servers and client agents."""
import json, os, socket, subprocess, sys, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from coordtest import COORD, Agent, Cluster, check, run, settings, until
from pace import SLOW


class Writers:
    """A writer at each process, one write after the other: what fails is kept."""

    def __init__(self, agents):
        self.agents, self.failed, self.count, self.going = agents, [], 0, True
        self.threads = [threading.Thread(target=self.write, args=(agent,)) for agent in agents]

    def write(self, agent):
        i = 0
        while self.going:
            try:
                status, _, answer = agent.request("PUT", "/v1/kv/%s/%d" % (agent.name, i % 50), b"%d" % i, timeout=30 * SLOW)
                if status != 200:
                    self.failed.append("%s: %d %r" % (agent.name, status, answer))
            except OSError as e:
                self.failed.append("%s: %r" % (agent.name, e))
            i += 1
            self.count += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        for thread in self.threads:
            thread.join()


def terms(cluster):
    def term(agent):
        lines = agent.coord("info").splitlines()
        return next(line.split("=")[1].strip() for line in lines if line.strip().startswith("term"))
    return {agent.name: term(agent) for agent in cluster.servers}


def plain_is_taken(agent):
    """Does the port of servers answer a plain hello-like frame otherwise than by the refusal?"""
    with socket.create_connection((agent.ip, 8300), timeout=10 * SLOW) as s:
        s.sendall(b"\x02\x00\x00\x00\x01xx")
        said = b""
        try:
            while True:
                part = s.recv(4096)
                if not part:
                    break
                said += part
        except OSError:
            pass
    return b"encrypted connections only" not in said


def opened(cluster, agents):
    cluster.start()
    for agent in agents:
        agent.start(wait=False)
    for agent in agents:
        agent.wait_leader(30)


def without_a_failed_write():
    cluster = Cluster(3)
    agents = [cluster.agent("a1"), cluster.agent("a2")]
    everybody = cluster.servers + agents
    opened(cluster, agents)
    asked = agents[0]
    before, leader = terms(cluster), cluster.leader()
    with Writers(everybody) as writers:
        until("writes go on", lambda: writers.count > 200)
        check(plain_is_taken(leader), "the cluster is open")
        asked.coord("secure", "start")
        names = {agent.name for agent in everybody}

        def with_certificate():
            return {c["Node"] for c in asked.get("/v1/certificates")[2] if c["State"] == "valid"}
        until("every node has a certificate", lambda: with_certificate() >= names, within=30)
        said = asked.coord("secure", "status")
        check(all(name in said for name in names), said)
        check(plain_is_taken(leader), "both kinds are taken")
        count = writers.count
        until("writes go on meanwhile", lambda: writers.count > count + 200)
        until("finish is possible", lambda: subprocess.run([COORD, "secure", "finish"], env=dict(os.environ, COORD_HTTP_ADDR=asked.ip + ":8500"), capture_output=True).returncode == 0, within=30)
        until("plain connections are refused", lambda: not any(plain_is_taken(server) for server in cluster.servers))
        count = writers.count
        until("writes go on afterwards", lambda: writers.count > count + 200)
        for server in cluster.servers:
            until("%s has the key of the CA" % server.name, lambda: os.path.exists(os.path.join(server.data, "tls/ca.key")))
        count = {server.name: server.log().count("certificates: renewed") for server in cluster.servers}
        time.sleep(3)                        # as long as it would take to come for the key again
        again = {server.name: server.log().count("certificates: renewed") for server in cluster.servers}
        check(all(again[name] <= count[name] + 1 for name in again), "who has the key comes for it no more: %s, then %s" % (count, again))
    check(not writers.failed, "%d of %d writes failed: %s" % (len(writers.failed), writers.count, writers.failed[:5]))
    check(terms(cluster) == before, "no election: %s %s" % (before, terms(cluster)))
    for agent in everybody:
        agent.stop()
    for agent in everybody:
        agent.start(wait=False)
    for agent in everybody:
        agent.wait_leader(30)
    check(not any(plain_is_taken(server) for server in cluster.servers), "it stays closed")
    for server in cluster.servers:
        until("%s has the key of the CA" % server.name, lambda: os.path.exists(os.path.join(server.data, "tls/ca.key")))
    until("any server makes join tokens", lambda: all(server.coord("join-token").startswith("coord1a.") for server in cluster.servers), within=20)


def who_is_without_is_named():
    """An agent that cannot take part is named, and finish waits for it unless it is said to be left behind."""
    cluster = Cluster(1)
    agent = cluster.agent("late")
    opened(cluster, [agent])
    server = cluster.servers[0]
    agent.kill()
    server.coord("secure", "start")
    until("the server has its certificate", lambda: [c["Node"] for c in server.get("/v1/certificates")[2]] == ["s1"])
    said = server.coord("secure", "finish", code=1)
    check("late" in said, said)
    said = server.coord("secure", "status")
    check("late" in said, said)
    server.coord("secure", "finish", "-without", "late")
    until("it is closed", lambda: not plain_is_taken(server))
    agent.start(wait=False)
    until("it is told what is wanted", lambda: "encrypted connections only" in agent.log())


def it_may_be_given_up():
    cluster = Cluster(1)
    agent = cluster.agent("a1")
    opened(cluster, [agent])
    server = cluster.servers[0]
    server.coord("secure", "start")
    until("both have certificates", lambda: len(server.get("/v1/certificates")[2]) == 2, within=20)
    server.coord("secure", "abort")
    for one in (server, agent):
        until("%s has none any more" % one.name, lambda: not os.path.exists(os.path.join(one.data, "tls/cert.pem")))
    check(plain_is_taken(server), "it is open")
    agent.put("/v1/kv/after", b"x")
    for one in (server, agent):
        one.stop()
        one.start()
    agent.put("/v1/kv/again", b"x")


def certificates_of_strangers_are_named():
    """In an open cluster anybody may ask for a certificate. Those of nodes that the catalog does not have are taken back before the end."""
    cluster = Cluster(1)
    agent = cluster.agent("gone")
    opened(cluster, [agent])
    server = cluster.servers[0]
    server.coord("secure", "start")
    until("both have certificates", lambda: len(server.get("/v1/certificates")[2]) == 2, within=20)
    agent.kill()
    server.put("/v1/catalog/deregister", {"Node": "gone"})
    until("it is a stranger", lambda: server.get("/v1/secure")[2]["Strangers"] == ["gone"])
    said = server.coord("secure", "finish", code=1)
    check("gone (agent)" in said and "force-leave -prune" in said, said)
    server.coord("force-leave", "-prune", "gone")
    check(server.get("/v1/secure")[2]["Strangers"] == [], "its certificate counts no more")
    server.coord("secure", "finish")
    until("it is closed", lambda: not plain_is_taken(server))


def without_its_certificate_a_server_does_not_open():
    """It would take plain connections of everybody."""
    cluster = Cluster(1)
    opened(cluster, [])
    server = cluster.servers[0]
    server.coord("secure", "start")
    until("it has its certificate", lambda: len(server.get("/v1/certificates")[2]) == 1, within=20)
    server.coord("secure", "finish")
    until("it is closed", lambda: not plain_is_taken(server))
    server.stop()
    kept = os.path.join(server.data, "kept")
    os.rename(os.path.join(server.data, "tls"), kept)
    server.start(wait=False)
    check(server.proc.wait(30 * SLOW) == 1 and "has no certificate of this server" in server.log(), server.log())
    os.rename(kept, os.path.join(server.data, "tls"))
    server.start()
    check(not plain_is_taken(server), "with it, the cluster is closed as before")


run([without_a_failed_write, who_is_without_is_named, it_may_be_given_up,
     certificates_of_strangers_are_named, without_its_certificate_a_server_does_not_open])
