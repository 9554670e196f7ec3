"""Limits: each client has its own rates and places to wait, what is above them is 429 with the time to wait, and nobody else notices. The
cluster's own rate of writes holds over all agents, and leaves coord's own work alone."""
import http.client, json, threading, time
from coordtest import SLOW, Agent, Cluster, check, configuration, free_address, run, until
from streams import stream_socket
from test_acl_agent import ROOT, acl, granted, started


def metric(agent, name):
    return next((float(line.split()[-1]) for line in agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines() if line.startswith(name)), 0)


def answers(agent, count, method="GET", path="/v1/kv/x?stale", body=None, headers={}):
    """Of so many requests, one right after the other: the statuses, and the last refusal."""
    statuses, last = [], None
    for _ in range(count):
        status, given, answer = agent.request(method, path, body, headers=headers)
        statuses.append(status)
        if status == 429:
            last = given, answer.decode()
    return statuses, last


def above_its_rate_a_client_is_told_when_to_come_again():
    agent = Agent(configuration(limits={"client_write_rate": 1, "client_read_rate": 100000})).start()
    agent.wait_leader()
    statuses, refusal = answers(agent, 20, "PUT", "/v1/kv/x", b"1")
    check(200 in statuses and 429 in statuses, "%r" % statuses)
    headers, text = refusal
    check(headers.get("Retry-After") == "1", "%r" % headers)
    check(text == "too many requests: limits.client_write_rate is 1 a second for one address", text)
    check(metric(agent, 'coord_http_limited_total{limit="client_write_rate"}') == statuses.count(429), "they are counted")
    check(answers(agent, 50)[0] == [200] * 50, "reads have a limit of their own")
    until("writes are taken again", lambda: answers(agent, 1, "PUT", "/v1/kv/x", b"1")[0] == [200])
    # What was refused was not written: the key has as many versions as writes that were answered 200.
    check(agent.get("/v1/kv/x")[2][0]["Flags"] == 0, "the key is there")


def a_token_has_its_own_rate_and_slows_nobody():
    server = started(Agent(acl(), configuration(limits={"token_read_rate": 20})))
    _, greedy = granted(server, "greedy", 'key_prefix "" { policy = "read" }')
    _, modest = granted(server, "modest", 'key_prefix "" { policy = "read" }')
    over, seen = threading.Event(), []

    def ask():
        while not over.is_set():
            seen.extend(answers(server, 20, headers={"X-Consul-Token": greedy})[0])
    thread = threading.Thread(target=ask)
    began = time.monotonic()
    thread.start()
    try:
        until("the greedy one is refused", lambda: 429 in seen)
        for _ in range(10):
            check(429 not in answers(server, 1, headers={"X-Consul-Token": modest})[0], "the other token is served")
    finally:
        over.set()
        thread.join()
    passed = time.monotonic() - began
    check(len(seen) - seen.count(429) <= 21 + 20 * passed, "%d were served in %.1f s" % (len(seen) - seen.count(429), passed))
    # ?token= is the same token as the header.
    statuses, refusal = answers(server, 200, path="/v1/kv/x?stale&token=" + greedy)
    check(429 in statuses and "limits.token_read_rate" in refusal[1] and greedy not in refusal[1], "%r" % (refusal,))


def permissive_counts_and_refuses_nothing():
    limits = {"request_limits": {"mode": "permissive", "read_rate": 5, "write_rate": 5}}
    agent = Agent(configuration(limits=limits)).start()
    agent.wait_leader()
    check(429 not in answers(agent, 50)[0], "all are served")
    check(metric(agent, 'coord_http_limited_total{limit="read_rate"}') > 0, "they are counted")
    agent.stop()
    limits["request_limits"] = {"mode": "enforcing", "read_rate": -1, "write_rate": -1}    # as a Consul without limits writes it
    free = Agent(configuration(limits=limits)).start()
    free.wait_leader()
    check(429 not in answers(free, 50)[0], "-1 is no limit")
    limits["request_limits"]["mode"] = "enforced"
    wrong = Agent(configuration(limits=limits))
    wrong.start(wait=False)
    check(wrong.proc.wait(60) != 0 and "limits.request_limits.mode" in wrong.log(), wrong.log())


def asked(agent, path, headers={}, source=None):
    """A connection on which this was asked, and nothing read yet."""
    connection = http.client.HTTPConnection(agent.ip, 8500, timeout=60 * SLOW, source_address=source and (source, 0))
    connection.request("GET", path, headers=headers)
    return connection


def blocking(agent, wait, key="x"):
    """A read that waits for the next change of the key."""
    index = agent.request("GET", "/v1/kv/%s?stale" % key, headers={"X-Consul-Token": ROOT})[1]["X-Consul-Index"]
    return "/v1/kv/%s?index=%s&wait=%s" % (key, index, wait)


def refused(agent, path, headers={}):
    """The refusal of one more wait; None: it was not refused."""
    status, given, answer = agent.request("GET", path, headers=headers, timeout=60)
    check(status in (200, 429), "%d %r" % (status, answer))
    return (given.get("Retry-After"), answer.decode()) if status == 429 else None


def places(agent):
    why = ("1", "too many blocking queries and streams: limits.client_parked is 3 for one address")
    agent.put("/v1/kv/x", b"1")
    waiting = [asked(agent, blocking(agent, "5m")) for _ in range(3)]
    check(until("a fourth is refused", lambda: refused(agent, blocking(agent, "1s")), 60) == why, "the limit is named")
    check(metric(agent, 'coord_http_limited_total{limit="client_parked"}') >= 1, "it is counted")
    for path in ("/v1/kv/x", "/v1/catalog/nodes"):
        check(agent.request("GET", path)[0] == 200, "what does not wait needs no place: " + path)
    # A client agent takes a read that its server has not answered after a moment for one that waits.
    until("what is answered at once needs no place", lambda: not refused(agent, "/v1/kv/x?index=1&wait=5m"), 60)
    other = asked(agent, blocking(agent, "1s"), source=free_address())
    check(other.getresponse().status == 200, "another address waits")
    waiting.pop().close()
    until("the place of one that hung up", lambda: not refused(agent, blocking(agent, "1s")), 60)
    waiting.append(asked(agent, blocking(agent, "5m")))
    until("it is taken again", lambda: refused(agent, blocking(agent, "1s")), 60)
    agent.put("/v1/kv/x", b"2")
    for connection in waiting:
        check(connection.getresponse().status == 200, "the change is told")
        connection.close()
    until("the places of those that were answered", lambda: not refused(agent, blocking(agent, "1s")), 60)

    streams = [stream_socket(agent, "key=x") for _ in range(2)] + [asked(agent, "/v1/agent/monitor")]
    until("streams and a monitor have all places", lambda: refused(agent, blocking(agent, "1s")) == why, 60)
    check(refused(agent, "/v1/watch?key=x") == why and refused(agent, "/v1/agent/monitor") == why, "more of them are refused")
    for stream in streams:
        stream.close()
    until("their places", lambda: not refused(agent, blocking(agent, "1s")), 60)


def one_address_has_so_many_waiting():
    server = Agent(configuration(limits={"client_parked": 3})).start()
    server.wait_leader()
    places(server)
    client = Agent("-retry-join=" + server.ip, configuration(limits={"client_parked": 3}), server=False, name="a1").start(wait=False)
    client.wait_leader(30)
    places(client)


def one_token_has_so_many_waiting():
    server = started(Agent(acl(), configuration(limits={"token_parked": 2, "client_parked": 4})))
    accessor, greedy = granted(server, "greedy", 'key_prefix "" { policy = "read" }')
    _, modest = granted(server, "modest", 'key_prefix "" { policy = "read" }')
    greedy, modest = {"X-Consul-Token": greedy}, {"X-Consul-Token": modest}
    until("a key", lambda: server.request("PUT", "/v1/kv/x", b"1", headers={"X-Consul-Token": ROOT})[0] == 200)
    streams = [asked(server, "/v1/watch?key=x", greedy) for _ in range(2)]
    why = until("a third is refused", lambda: refused(server, blocking(server, "1s"), greedy), 60)
    check(why == ("1", "too many blocking queries and streams: limits.token_parked is 2 for one token"), "%r" % (why,))
    check(not refused(server, blocking(server, "1s"), modest), "the other token waits")
    waiting = [asked(server, blocking(server, "5m"), modest) for _ in range(2)]
    until("now the address has no place", lambda: "client_parked" in (refused(server, blocking(server, "1s"), {"X-Consul-Token": ROOT}) or ("", ""))[1], 60)
    # The streams of a token that is deleted end, and give their places back.
    check(server.request("DELETE", "/v1/acl/token/" + accessor, headers={"X-Consul-Token": ROOT})[0] == 200, "it is deleted")
    until("its places", lambda: not refused(server, blocking(server, "1s"), {"X-Consul-Token": ROOT}), 60)
    for connection in waiting + streams:
        connection.close()


class Flood(threading.Thread):
    """Writes at one agent, as fast as that answers."""

    def __init__(self, agent):
        super().__init__(daemon=True)
        self.agent, self.statuses, self.refusals, self.over = agent, [], set(), False
        self.start()

    def run(self):
        while not self.over:
            try:
                status, headers, answer = self.agent.request("PUT", "/v1/kv/flood/" + self.agent.name, b"1", timeout=60)
            except OSError:
                continue
            self.statuses.append(status)
            if status == 429:
                self.refusals.add((headers.get("Retry-After"), answer.decode()))


def rows(agent, path):
    status, _, answer = agent.request("GET", path, timeout=60)
    return json.loads(answer) if status == 200 else []


def renewed(agent, session):
    """It is renewed; without a leader it may take a moment."""
    def once():
        status, _, answer = agent.request("PUT", "/v1/session/renew/" + session, timeout=60)
        check(status not in (404, 429), "%d %r" % (status, answer))
        return status == 200
    until("the session is renewed", once, 60)


def a_flood_of_writes_leaves_the_cluster_s_own_work_alone():
    limit = configuration(limits={"cluster_write_rate": 20}, coord={"node_lease_ttl": "5s"})
    cluster = Cluster(3, limit).start()
    agent = cluster.agent("a1", configuration(coord={"node_lease_ttl": "5s"})).start(wait=False)
    agent.wait_leader(30)
    def create():
        status, _, answer = agent.request("PUT", "/v1/session/create", {"TTL": "15s"})
        return json.loads(answer)["ID"] if status == 200 else None
    session = until("a session", create, 60)
    began = time.monotonic()
    floods = [Flood(a) for a in cluster.servers + [agent]]
    try:
        until("the flood is refused everywhere", lambda: all(429 in f.statuses for f in floods), 60)
        # What the agent says of its services and checks is nobody's flood.
        for n in range(3):
            name = "web%d" % n
            check(agent.request("PUT", "/v1/agent/service/register", {"Name": name, "Check": {"TTL": "1h"}})[0] == 200, "it is registered")
            until(name + " in the catalog", lambda: rows(agent, "/v1/catalog/service/" + name), 60)
            check(agent.request("PUT", "/v1/agent/check/pass/service:" + name)[0] == 200, "its check passes")
            until(name + " passes", lambda: rows(agent, "/v1/health/service/%s?passing" % name), 60)
            renewed(agent, session)
        # Longer than the session and the node's lease live without renewals.
        while time.monotonic() - began < 20:
            renewed(agent, session)
            time.sleep(0.2)
        until("the node and its services are well", lambda: [c["Status"] for c in rows(agent, "/v1/health/node/a1")] == ["passing"] * 4, 60)
    finally:
        for flood in floods:
            flood.over = True
        for flood in floods:
            flood.join()
    passed = time.monotonic() - began
    served = sum(f.statuses.count(200) for f in floods)
    check(served <= 20 * passed + 20 * 4, "%d were served in %.1f s" % (served, passed))    # a bucket of each leader, if they change
    why = ("1", "too many requests: limits.cluster_write_rate is 20 a second for all clients of the cluster")
    for flood in floods:
        check(flood.refusals == {why}, "%s: %r" % (flood.agent.name, flood.refusals))
        check(metric(flood.agent, 'coord_http_limited_total{limit="cluster_write_rate"}') >= flood.statuses.count(429), "they are counted")
    check(sum(metric(s, "coord_rpc_writes_limited_total") for s in cluster.servers) >= sum(f.statuses.count(429) for f in floods), "by the leader, too")
    until("writes are taken again", lambda: agent.request("PUT", "/v1/kv/after", b"1")[0] == 200)


if __name__ == "__main__":
    run([above_its_rate_a_client_is_told_when_to_come_again, a_token_has_its_own_rate_and_slows_nobody, permissive_counts_and_refuses_nothing,
         one_address_has_so_many_waiting, one_token_has_so_many_waiting, a_flood_of_writes_leaves_the_cluster_s_own_work_alone])
