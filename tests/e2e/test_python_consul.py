"""Debian's python3-consul against coord: discover, follow, balance, KV, locks. Against a server by itself, and against the client agents of a
cluster of three."""
import sys
try:
    import consul
except ImportError:
    print("skipped: python3-consul is not installed")
    sys.exit(77)
import http.server, random, threading, time
from coordtest import Agent, Cluster, check, run, until


def client(agent):
    return consul.Consul(host=agent.ip, port=8500)


class Backend:
    def __init__(self, ip):
        owner = self
        self.healthy, self.served = True, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.served += self.path == "/work"
                self.send_response(200 if owner.healthy else 500)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *a):
                pass
        self.server = http.server.ThreadingHTTPServer((ip, 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def discover_follow_balance(agent):
    c = client(agent)
    backends = [Backend(agent.ip) for _ in range(3)]
    for i, b in enumerate(backends):
        # python3-consul 0.7.1 sends lower-case keys and the old-style check
        check(c.agent.service.register("web", service_id="web%d" % i, address=agent.ip, port=b.port, tags=["t%d" % i],
                                       check=consul.Check.http("http://%s:%d/health" % (agent.ip, b.port), "200ms")), "registered")
    index, instances = until("three pass", lambda: (lambda r: r if len(r[1]) == 3 else None)(c.health.service("web", passing=True)))
    ports = sorted(i["Service"]["Port"] for i in instances)
    check(ports == sorted(b.port for b in backends), "all three are found")

    backends[1].healthy = False
    while len(instances) != 2:                       # follows with blocking queries, as its users do
        new_index, instances = c.health.service("web", passing=True, index=index, wait="300s")
        check(int(new_index) > int(index), "the index rises: %s -> %s" % (index, new_index))
        index = new_index
    check(backends[1].port not in [i["Service"]["Port"] for i in instances], "the degraded one is gone")
    backends[1].healthy = True
    while len(instances) != 3:
        index, instances = c.health.service("web", passing=True, index=index, wait="20s")

    import urllib.request
    for _ in range(300):
        pick = random.choice(instances)["Service"]
        urllib.request.urlopen("http://%s:%d/work" % (pick["Address"], pick["Port"]), timeout=30).read()
    check(all(b.served > 50 for b in backends), "the load is spread: %r" % [b.served for b in backends])
    check(set(c.agent.services()) >= {"web0", "web1", "web2"}, "agent.services")
    check(any(n["Node"] == agent.name for n in c.catalog.nodes()[1]), "catalog.nodes")
    check("web" in c.catalog.services()[1], "catalog.services")
    check(c.status.leader() in c.status.peers(), "status.leader")


def keys(agent):
    c = client(agent)
    check(c.kv.put("a/b", "1") is True, "put")
    index, item = c.kv.get("a/b")
    check(item["Value"] == b"1" and item["LockIndex"] == 0 and item["Flags"] == 0, "get: %r" % item)
    check(c.kv.put("a/b", "2", cas=item["ModifyIndex"]) is True, "cas with the right index")
    check(c.kv.put("a/b", "3", cas=item["ModifyIndex"]) is False, "cas with an old index")
    check(c.kv.put("a/b", "3", cas=0) is False and c.kv.put("a/c", "3", cas=0, flags=2**64 - 1) is True, "cas=0 creates only")
    check(c.kv.get("a/c")[1]["Flags"] == 2**64 - 1, "flags of 64 bits")
    check([i["Key"] for i in c.kv.get("a/", recurse=True)[1]] == ["a/b", "a/c"], "recurse")
    c.kv.put("a/d/e", "4")
    check(c.kv.get("a/", keys=True, separator="/")[1] == ["a/b", "a/c", "a/d/"], "keys and separator")
    check(c.kv.get("none") [1] is None, "a missing key is None")
    index, _ = c.kv.get("a/b")
    threading.Timer(0.3, lambda: client(agent).kv.put("a/b", "5")).start()
    begun = time.monotonic()
    _, item = c.kv.get("a/b", index=index, wait="60s")
    check(item["Value"] == b"5" and time.monotonic() - begun < 10, "a blocking read answers with the change")
    check(c.kv.delete("a/", recurse=True) and c.kv.get("a/", recurse=True)[1] is None, "delete with recurse")


def lock(agent):
    c = client(agent)
    one = c.session.create(name="one", ttl=60, lock_delay=0, behavior="release")
    two = c.session.create(name="two", ttl=60, lock_delay=0, behavior="delete")
    check(c.kv.put("lock", "one", acquire=one) is True, "taken")
    check(c.kv.put("lock", "two", acquire=two) is False, "held by another")
    check(c.kv.get("lock")[1]["Session"] == one, "the holder is named")
    check(c.session.renew(one)["ID"] == one, "renewed")
    check(c.kv.put("lock", "", release=one) is True, "released")
    check(c.kv.put("lock", "two", acquire=two) is True, "taken by the other")
    check(c.session.destroy(two) is True, "destroyed")
    check(c.kv.get("lock")[1] is None, "behavior delete removed the key")
    check([s["ID"] for s in c.session.list()[1]] == [one], "one session is left")


def session_expires(agent):
    c = client(agent)
    begun = time.monotonic()
    s = c.session.create(ttl=10, lock_delay=0)
    check(c.kv.put("held", "x", acquire=s) is True, "held")
    until("the TTL ends it", lambda: "Session" not in c.kv.get("held")[1], within=14, every=0.05)
    took = time.monotonic() - begun
    check(took >= 9.9, "not before its TTL: %.2f s" % took)


STORIES = (discover_follow_balance, keys, lock, session_expires)


def a_server_by_itself():
    for story in STORIES:
        story(Agent(dev=True).start())


def client_agents_of_a_cluster():
    """Each story through an agent of its own; what the others have left in the cluster is in nobody's way."""
    cluster = Cluster(3).start()
    for number, story in enumerate(STORIES):
        story(cluster.agent("a%d" % number).start())


if __name__ == "__main__":
    run([a_server_by_itself, client_agents_of_a_cluster])
