"""Access control, attacked: a token with few rights sees no more by lists, waits, streams, history, transactions, kept answers or DNS
than by plain reads, on the server and through a client agent, and writes nothing that its rules do not name."""
import base64, http.client, json, os, random, re, socket, struct, threading, time, uuid
from coordtest import Agent, check, configuration, run, together, until

ROOT = "11111111-2222-4333-8444-555555555555"
AGENT = "22222222-2222-4333-8444-555555555555"
RULES = 'key_prefix "web/" { policy = "write" } service "web" { policy = "write" } node_prefix "" { policy = "read" }'
NAME, VALUE = "zqhidden", "zvsecret"        # the name and the content of everything that the tokens may not read


class Plain(Agent):
    def call(self, method, path, body=None, token=None, **headers):
        status, given, text = self.request(method, path, body, headers=dict({"X-Consul-Token": token} if token else {}, **headers))
        try:
            return status, given, json.loads(text)
        except ValueError:
            return status, given, text.decode("utf-8", "replace")

    def do(self, method, path, body=None, token=ROOT, expect=200):
        status, _, answer = self.call(method, path, body, token)
        check(status == expect, "%s %s: %d %r, wanted %d" % (method, path, status, answer, expect))
        return answer


def acl(**tokens):
    return configuration(acl={"enabled": True, "default_policy": "deny", "token_ttl": "30s",
                              "tokens": dict({"initial_management": ROOT, "agent_master": AGENT}, **tokens)})


def token_of(rules):
    name = "p" + uuid.uuid4().hex
    policy = server.do("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules})
    token = server.do("PUT", "/v1/acl/token", {"Policies": [{"Name": name}]})
    return token["SecretID"], token["AccessorID"], policy


def b64(text):
    return base64.b64encode(text.encode()).decode()


def setup():
    global server, client, both, few, few_id, few_policy, session, lease
    server = Plain(acl(agent=ROOT), name="s1").start(wait=False)
    until("the management token", lambda: leads(server), 30)
    client = Plain("-retry-join=" + server.ip, acl(agent=ROOT), server=False, name="c1").start(wait=False)
    until("both nodes", lambda: nodes() >= {"s1", "c1"}, 30)
    both = (server, client)
    few, few_id, few_policy = token_of(RULES)
    do = server.do
    for prefix, value in (("web", "open"), (NAME, VALUE)):
        do("PUT", "/v1/kv/%s/a" % prefix, value)
        do("PUT", "/v1/kv/%s/a" % prefix, value + "2")
    do("PUT", "/v1/kv/web%s" % NAME, VALUE)
    do("PUT", "/v1/kv/a%s" % NAME, VALUE)
    for agent, name in ((server, "web"), (server, NAME), (client, NAME), (client, "web")):
        do_on(agent, "PUT", "/v1/agent/service/register", {"Name": name, "ID": name + "-" + agent.name, "Port": 80, "Meta": {"m": VALUE if name == NAME else "x"},
              "Tags": [NAME] if name == NAME else ["t"],
              "Check": {"TTL": "1h", "Status": "passing", "Notes": VALUE if name == NAME else "", "Name": "check of " + name}})
    session = do("PUT", "/v1/session/create", {"Name": NAME, "Node": "s1"})["ID"]
    do("PUT", "/v1/kv/%s/lock?acquire=%s" % (NAME, session), VALUE)
    do("PUT", "/v1/lock/%s/acquire?session=%s" % (NAME, session), VALUE)
    do("PUT", "/v1/quota/" + NAME, {"Budget": 10, "Refill": {"Tokens": 1, "Every": "1s"}, "LeaseTTL": "1m"})
    do("PUT", "/v1/hazard/%s/protect?session=%s" % (NAME, session))
    do("PUT", "/v1/phaser/%s/register?session=%s" % (NAME, session))
    do("PUT", "/v1/election/%s/campaign?session=%s" % (NAME, session), VALUE)
    do("PUT", "/v1/failover/" + NAME, {"Targets": [{"Service": NAME + "2"}]})
    lease = do("PUT", "/v1/lease/grant", {"TTL": "60s", "Name": NAME})["ID"]
    do("PUT", "/v1/kv/%s/leased?lease=%s" % (NAME, lease), VALUE)
    do("PUT", "/v1/event/fire/" + NAME, VALUE)
    do("PUT", "/v1/rollout/%s/versions/v1" % NAME, VALUE)
    do("PUT", "/v1/rollout/%s/current" % NAME, {"Version": "v1", "Comment": VALUE})
    until("all in the catalog", lambda: all(len(do("GET", "/v1/health/service/%s?passing" % name)) == 2 for name in ("web", NAME)))


def do_on(agent, method, path, body=None, token=ROOT, expect=200):
    return agent.do(method, path, body, token, expect)


def leads(agent):
    try:
        return agent.call("GET", "/v1/acl/token/self", token=ROOT)[0] == 200
    except OSError:
        return False


def nodes():
    status, _, answer = server.call("GET", "/v1/catalog/nodes", token=ROOT)
    return {n["Node"] for n in answer} if status == 200 else set()


LISTS = """/v1/kv/?recurse /v1/kv/?keys /v1/kv/?keys&separator=/ /v1/kv/z?recurse /v1/kv/web?keys /v1/kv/web?recurse /v1/kv/?recurse&at=-1s
/v1/kv/?keys&at=-1s /v1/kv/?recurse&stale /v1/kv/?recurse&cached /v1/kv/?keys&cached /v1/kv/?recurse&index=1&wait=1ms
/v1/catalog/services /v1/catalog/services?cached /v1/catalog/node/s1 /v1/catalog/node/c1 /v1/catalog/node-services/s1 /v1/catalog/nodes
/v1/health/node/s1 /v1/health/node/c1 /v1/health/state/any /v1/health/state/passing /v1/health/state/any?near=s1 /v1/health/service/web?near=s1 /v1/lb/pick/web /v1/lb/hot/web
/v1/lb/owner/web?key=x /v1/coordinate/nodes /v1/session/list /v1/session/node/s1 /v1/locks /v1/quotas /v1/rollouts /v1/event/list /v1/elections
/v1/fences /v1/barriers /v1/phasers /v1/hazards /v1/global/services /v1/global/service/web /v1/global/regions /v1/agent/services /v1/agent/checks
/v1/agent/members /v1/agent/self /v1/agent/metrics /v1/agent/metrics?format=prometheus /v1/agent/monitor /v1/leases /v1/failover
/v1/status/peers /v1/catalog/datacenters /v1/coordinate/datacenters /v1/acl/replication /v1/acl/tokens /v1/acl/policies /v1/region/keys
/v1/region/trust /v1/certificates /v1/ca /v1/secure /v1/join-tokens /v1/snapshot /v1/operator/raft/configuration /v1/operator/autopilot/configuration
/v1/operator/keyring /v1/agent/connect/ca/roots /v1/agent/services?filter=Service!=web /v1/catalog/services?filter=ServiceName!=web""".split()

ONE = """/v1/kv/@/a /v1/kv/@/a?raw /v1/kv/@/a?history /v1/kv/@/a?at=-1s /v1/kv/@/a?cached /v1/kv/@/a?stale /v1/kv/@?recurse /v1/kv/@?keys
/v1/kv/@/none /v1/kv/@/none?history /v1/kv/@/a?index=1&wait=1ms /v1/kv/a@?history /v1/kv/@/a?index=5&wait=1ms&cached
/v1/catalog/service/@ /v1/health/service/@ /v1/health/service/@?passing&near=s1 /v1/health/checks/@ /v1/catalog/service/@?cached
/v1/lb/pick/@ /v1/lb/owner/@?key=x /v1/lb/hot/@ /v1/global/service/@ /v1/lock/@ /v1/quota/@ /v1/quota/@/audit
/v1/agent/quota/@/owner /v1/rollout/@/status /v1/rollout/@/history /v1/rollout/@/schema /v1/event/list?name=@
/v1/agent/service/@-s1 /v1/agent/service/@-c1 /v1/agent/health/service/id/@-s1 /v1/agent/health/service/name/@ /v1/agent/check/explain/service:@-s1
/v1/failover/@ /v1/failover/@/explain /v1/session/info/$ /v1/session/explain/$ /v1/election/@ /v1/fence/@ /v1/barrier/@ /v1/hazard/@ /v1/phaser/@
/v1/rollout/@?id=x&node=s1 /v1/lease/% /v1/lock/@?transitions /v1/lock/@?session=$""".split()


def nothing_hidden_is_shown():
    for agent in both:
        for token in (few, None):
            for path in LISTS:
                status, headers, answer = agent.call("GET", path, token=token)
                text = str(answer) + str(headers)
                check(NAME not in text and VALUE not in text and b64(VALUE)[:8] not in text and session not in text, "%s %s: %d %s" % (agent.name, path, status, text))
                check(status < 500 or "can be picked: there are none" in answer, "%s %s: %d %s" % (agent.name, path, status, text))
            for pattern in ONE:
                path = pattern.replace("@", NAME).replace("$", session).replace("%", lease)
                status, headers, answer = agent.call("GET", path, token=token)
                text = str(answer) + str(headers)
                check(VALUE not in text and b64(VALUE)[:8] not in text, "%s %s: %d %s" % (agent.name, path, status, text))
                check(status < 500 or "can be picked: there are none" in answer, "%s %s: %d %s" % (agent.name, path, status, text))
                quiet = status in (403, 404) or answer in ([], None, {})
                check(quiet or "can be picked" in str(answer), "%s %s: %d %s" % (agent.name, path, status, text))
                # a thing that is there answers like one that is not
                absent = pattern.replace("@", "zqabsent").replace("$", session[:-4] + ("0000" if session[-4:] != "0000" else "1111")).replace("%", lease[:-4] + ("0000" if lease[-4:] != "0000" else "1111"))
                other = agent.call("GET", absent, token=token)
                by_id = any(word in path for word in ("-s1", "-c1", session, lease))   # whoever names an ID has seen it
                check(by_id or other[0] == status, "%s %s: %d %s; of one that is not there: %d %s" % (agent.name, path, status, answer, other[0], other[2]))


def the_few_rights_count():
    for agent in both:
        check(agent.call("GET", "/v1/kv/web/a?raw", token=few)[2] == "open2", "its key")
        check([k["Key"] for k in agent.call("GET", "/v1/kv/?recurse", token=few)[2]] == ["web/a"], "its keys alone")
        check([i["ServiceID"] for i in agent.call("GET", "/v1/catalog/service/web", token=few)[2]], "its service")


# -- what waits ------------------------------------------------------------------------------------------------------------
class Parked:
    """A request that waits, on a thread of its own."""

    def __init__(self, agent, path, token):
        self.agent, self.path, self.token, self.answer = agent, path, token, None
        self.thread = threading.Thread(target=self.ask, daemon=True)
        self.thread.start()

    def ask(self):
        try:
            self.answer = self.agent.call("GET", self.path, token=self.token)
        except OSError as error:
            self.answer = (0, {}, str(error))

    def ended(self, within=10):
        until("the end of %s at %s" % (self.path, self.agent.name), lambda: self.answer is not None, within)
        return self.answer

    def led_to(self, good, within=20):
        """The first answer that is good. Another agent's writes may raise the index before the question arrives: then it is asked again, with the index that came, as clients do."""
        by = time.monotonic() + within
        while True:
            status, headers, answer = self.ended(within)
            if good(status, str(answer)):
                return answer
            check(status == 200 and time.monotonic() < by, "%s %s: %d %s" % (self.agent.name, self.path, status, answer))
            self.path = re.sub(r"index=\d+", "index=" + headers["X-Consul-Index"], self.path)
            self.answer = None
            self.thread = threading.Thread(target=self.ask, daemon=True)
            self.thread.start()


class Stream:
    """/v1/watch: all that came, and whether it has ended."""

    def __init__(self, agent, query, token):
        self.text, self.over = "", False
        self.conn = http.client.HTTPConnection(agent.ip, 8500, timeout=60)
        self.conn.request("GET", "/v1/watch?" + query, headers={"X-Consul-Token": token})
        self.answer = self.conn.getresponse()
        self.status = self.answer.status
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            while True:
                block = self.answer.read1(65536)
                if not block:
                    break
                self.text += block.decode()
        except OSError:
            pass
        self.over = True


def index_of(agent, path, token):
    return int(agent.call("GET", path, token=token)[1]["X-Consul-Index"])


def set_rules(policy, rules):
    server.do("PUT", "/v1/acl/policy/" + policy["ID"], {"Name": policy["Name"], "Rules": rules})


def parked_reads_follow_the_rules():
    def at(agent):
        mine = "web-" + agent.name
        rules = RULES.replace("web/", mine + "/")
        secret, accessor, policy = token_of(rules)
        paths = ["/v1/kv/?recurse", "/v1/kv/?keys", "/v1/catalog/services", "/v1/health/state/any", "/v1/session/list"]
        waits = []
        for path in paths:
            now = index_of(agent, path, secret)
            waits.append(Parked(agent, path + ("&" if "?" in path else "?") + "wait=60s&index=%d" % now, secret))
        cause = Parked(agent, "/v1/kv/" + mine + "/?recurse&wait=60s&index=%d" % index_of(agent, "/v1/kv/" + mine + "/?recurse", secret), secret)
        # a request that arrives after the first write is answered at once, as the index says: then once more
        def undisturbed():
            for i, wait in enumerate(waits):
                if wait.answer is not None:
                    path = paths[i]
                    waits[i] = Parked(agent, path + ("&" if "?" in path else "?") + "wait=60s&index=%d" % index_of(agent, path, secret), secret)
            time.sleep(0.1)
            for i in range(20):
                server.do("PUT", "/v1/kv/%s/%s%d" % (NAME, agent.name, i), uuid.uuid4().hex)
            return all(w.answer is None for w in waits)
        check(any(undisturbed() for _ in range(8)), "woken by what is hidden each time: %r" % [w.path for w in waits if w.answer is not None])
        server.do("PUT", "/v1/kv/" + mine + "/b", "1")
        for wait in (cause, waits[0], waits[1]):
            status, headers, answer = wait.ended()
            check(status == 200 and NAME not in str(headers) + str(answer), "%d %s %s" % (status, headers, answer))
        # wider rules: an answer with more
        waits = [Parked(agent, path + ("&" if "?" in path else "?") + "wait=60s&index=%d" % index_of(agent, path, secret), secret) for path in paths]
        time.sleep(0.05)  # most of them are parked by now; the others see the change at once
        set_rules(policy, rules + ' key_prefix "" { policy = "write" } service_prefix "" { policy = "read" } session_prefix "" { policy = "read" }')
        for wait in waits:
            wait.led_to(lambda status, answer: status == 200 and (NAME in answer or session in answer))
        # narrower: without what is gone
        waits = [Parked(agent, path + ("&" if "?" in path else "?") + "wait=60s&index=%d" % index_of(agent, path, secret), secret) for path in paths]
        single = Parked(agent, "/v1/kv/%s/a?wait=60s&index=%d" % (NAME, index_of(agent, "/v1/kv/%s/a" % NAME, secret)), secret)
        time.sleep(0.05)
        set_rules(policy, rules)
        for wait in waits:
            wait.led_to(lambda status, answer: status == 200 and NAME not in answer and session not in answer)
        single.led_to(lambda status, answer: status == 403 and VALUE not in answer)
        # the token is deleted
        waits = [Parked(agent, path + ("&" if "?" in path else "?") + "wait=60s&index=%d" % index_of(agent, path, secret), secret) for path in paths]
        time.sleep(0.05)
        server.do("DELETE", "/v1/acl/token/" + accessor)
        for wait in waits:
            wait.led_to(lambda status, answer: status == 403 and answer.startswith("ACL not found"))
        for path in paths:
            status, headers, answer = agent.call("GET", path, token=secret)
            check(status == 403, "%s %s: %d %s" % (agent.name, path, status, answer))
            status, headers, answer = agent.call("GET", path + ("&" if "?" in path else "?") + "cached", token=secret)
            check(status == 403, "%s %s&cached: %d %s" % (agent.name, path, status, answer))
    together(*[lambda agent=agent: at(agent) for agent in both])


def streams_follow_the_rules():
    def at(agent):
        secret, accessor, policy = token_of(RULES)
        stream = Stream(agent, "prefix=&service=web&node=s1&node=c1", secret)
        check(stream.status == 200, "%d" % stream.status)
        for hidden in ("key=%s/a", "lock=%s", "quota=%s", "key=web/a&lock=%s"):
            status, headers, answer = quick(agent, "/v1/watch?" + hidden % NAME, secret)
            check(status == 403, "%s: %d %s" % (hidden, status, answer))
        server.do("PUT", "/v1/kv/%s/s%s" % (NAME, agent.name), VALUE)
        do_on(agent, "PUT", "/v1/agent/service/register", {"Name": NAME, "ID": NAME + "3", "Tags": [NAME]})
        server.do("PUT", "/v1/kv/web/s" + agent.name, "seen")
        agent.do("PUT", "/v1/agent/service/deregister/" + NAME + "3")
        until("its key's event", lambda: "web/s" + agent.name in stream.text)
        set_rules(policy, RULES + ' key_prefix "open" { policy = "read" }')
        server.do("PUT", "/v1/kv/open" + agent.name, "seen")
        until("the event of a key that may be read now", lambda: "open" + agent.name in stream.text)
        set_rules(policy, 'key_prefix "" { policy = "deny" } service "web" { policy = "write" } node_prefix "" { policy = "read" }')
        server.do("PUT", "/v1/kv/web/last" + agent.name, "seen")
        check(NAME not in stream.text and VALUE not in stream.text and b64(VALUE)[:8] not in stream.text, stream.text)
        again = Stream(agent, "service=web", secret)
        server.do("DELETE", "/v1/acl/token/" + accessor)
        begun = time.monotonic()
        until("the streams' end", lambda: stream.over and again.over)
        check("web/last" + agent.name not in stream.text, stream.text)
        check(quick(agent, "/v1/watch?service=web", secret)[0] == 403, "a new one")
    together(*[lambda agent=agent: at(agent) for agent in both])


def quick(agent, path, token):
    """Status and what comes at once."""
    conn = http.client.HTTPConnection(agent.ip, 8500, timeout=30)
    conn.request("GET", path, headers={"X-Consul-Token": token} if token else {})
    answer = conn.getresponse()
    text = answer.read() if answer.status != 200 else b""
    conn.close()
    return answer.status, answer.headers, text.decode()


# -- kept answers ----------------------------------------------------------------------------------------------------------
def two_tokens_in_turn():
    for agent in both:
        other, accessor, policy = token_of('key_prefix "%s" { policy = "read" } service_prefix "" { policy = "read" }' % NAME)
        paths = ["/v1/kv/?recurse", "/v1/kv/?keys", "/v1/kv/web/a", "/v1/kv/%s/a" % NAME, "/v1/kv/%s/a?raw" % NAME, "/v1/health/service/web", "/v1/health/service/" + NAME,
                 "/v1/catalog/services", "/v1/catalog/service/" + NAME, "/v1/catalog/nodes", "/v1/health/state/any", "/v1/quota/" + NAME]
        conn = http.client.HTTPConnection(agent.ip, 8500, timeout=30)

        def ask(path, token):
            conn.request("GET", path, headers={"X-Consul-Token": token} if token else {})
            answer = conn.getresponse()
            return answer.status, re.sub(rb" \(request [0-9a-f]+\)$", b"", answer.read())     # each request has an id of its own
        for path in paths:
            for query in ("", "stale", "cached"):
                full = path + (("&" if "?" in path else "?") + query if query else "")
                tokens = (few, other, ROOT, None)
                want = {t: ask(full, t) for t in tokens}
                for i in range(12):
                    for t in tokens:
                        got = ask(full, t)
                        check(got == want[t], "%s %s round %d: %r, before %r" % (agent.name, full, i, got, want[t]))
                check(VALUE.encode() not in want[few][1] and b64(VALUE).encode()[:8] not in want[few][1] and b64(VALUE).encode()[:8] not in (want[None][1] or b""), full)
                check(want[None][0] in (403, 404) or want[None][1] in (b"[]", b"{}"), "%s: %r" % (full, want[None]))
        # rules change while all is hot
        path = "/v1/kv/%s/a" % NAME
        for i in range(5):
            check(ask(path, other)[0] == 200, "it may")
            set_rules(policy, 'key_prefix "x" { policy = "read" }')
            begun = time.monotonic()
            until("it may not", lambda: ask(path, other)[0] == 403, 1)
            check(ask(path + "?cached", other)[0] == 403 and ask(path + "?stale", other)[0] == 403, "nor cached")
            set_rules(policy, 'key_prefix "%s" { policy = "read" }' % NAME)
            until("it may again", lambda: ask(path, other)[0] == 200, 1)
        server.do("DELETE", "/v1/acl/token/" + accessor)
        until("the token has ended", lambda: ask(path, other) [0] == 403, 1)
        check(ask(path + "?cached", other)[0] == 403, "cached")
        conn.close()


# -- writes ----------------------------------------------------------------------------------------------------------------
def state():
    """What may not change."""
    get = lambda path: server.do("GET", path)
    rows = lambda path, *fields: sorted(str([r.get(f) for f in fields]) for r in get(path))
    return {"keys": [k for k in rows("/v1/kv/?recurse", "Key", "Value", "Session", "Flags") if "'web/" not in k],
            "nodes": rows("/v1/catalog/nodes", "Node", "Address"), "sessions": rows("/v1/session/list", "ID", "Node"),
            "instances": rows("/v1/catalog/service/" + NAME, "ServiceID", "Node", "ServicePort", "ServiceTags"),
            "services": sorted(get("/v1/catalog/services")), "checks": rows("/v1/health/state/any", "Node", "CheckID", "Status", "ServiceName"),
            "locks": rows("/v1/locks", "Name", "Holders"), "quotas": rows("/v1/quotas", "Name", "Budget", "Leased"), "rollouts": rows("/v1/rollouts", "Name", "Current"),
            "leases": rows("/v1/leases", "ID"), "hazards": rows("/v1/hazards", "Name", "Epoch"), "elections": rows("/v1/elections", "Name"),
            "phasers": rows("/v1/phasers", "Name", "Phase"), "failover": rows("/v1/failover", "Service"), "events": rows("/v1/event/list", "Name"),
            "peers": get("/v1/status/peers"), "autopilot": get("/v1/operator/autopilot/configuration"),
            "tokens": rows("/v1/acl/tokens", "AccessorID"), "policies": rows("/v1/acl/policies", "ID", "Hash")}


def txn(*operations):
    return ("PUT", "/v1/txn", list(operations))


def kv(verb, key, **more):
    return {"KV": dict({"Verb": verb, "Key": key, "Value": b64("x")}, **more)}


def nothing_else_is_written():
    before = state()
    other_id = before["policies"]
    node = {"Node": "s1", "Address": "127.0.0.9"}
    writes = [("PUT", "/v1/kv/%s/a" % NAME, "x"), ("PUT", "/v1/kv/%s/n" % NAME, "x"), ("DELETE", "/v1/kv/%s/a" % NAME), ("DELETE", "/v1/kv/?recurse"),
              ("DELETE", "/v1/kv/%s?recurse" % NAME), ("DELETE", "/v1/kv/web?recurse"), ("PUT", "/v1/kv/%s/a?cas=0" % NAME, "x"),
              ("PUT", "/v1/kv/%s/lock?release=%s" % (NAME, session), "x"), ("PUT", "/v1/kv/%s/?restore&recurse&at=-1s" % NAME),
              ("PUT", "/v1/kv/?restore&recurse&at=-1s"), ("PUT", "/v1/kv/web?restore&recurse&at=-1s"), ("PUT", "/v1/kv/%s/a?restore&at=-1s" % NAME),
              ("PUT", "/v1/kv/%s/?restore&recurse&at=-1s&dry-run" % NAME), ("PUT", "/v1/kv/webx", "x"), ("PUT", "/v1/kv/web", "x"), ("PUT", "/v1/kv/WEB/a", "x"),
              txn(kv("set", NAME + "/a")), txn(kv("set", "web/ok"), kv("set", NAME + "/a")), txn(kv("get", NAME + "/a")),               txn(kv("get-tree", NAME)), txn(kv("check-index", NAME + "/a", Index=1)), txn(kv("check-session", NAME + "/lock", Session=session)),
              txn(kv("check-not-exists", NAME + "/none")), txn(kv("delete-tree", "")), txn(kv("delete-tree", "web")), txn(kv("lock", NAME + "/a", Session=session)),
              txn({"Node": {"Verb": "set", "Node": node}}), txn({"Node": {"Verb": "delete", "Node": node}}),
              txn({"Service": {"Verb": "set", "Node": "s1", "Service": {"Service": NAME, "ID": "x"}}}),
              txn({"Service": {"Verb": "set", "Node": "s1", "Service": {"Service": "web", "ID": NAME + "-s1"}}}),
              txn({"Service": {"Verb": "delete", "Node": "s1", "Service": {"ID": NAME + "-s1"}}}), txn({"Service": {"Verb": "get", "Node": "s1", "Service": {"ID": NAME + "-s1"}}}),
              txn({"Check": {"Verb": "set", "Check": {"Node": "s1", "CheckID": "x", "Status": "critical"}}}),
              txn({"Check": {"Verb": "delete", "Check": {"Node": "s1", "CheckID": "service:%s-s1" % NAME}}}),
              txn({"Check": {"Verb": "set", "Check": {"Node": "s1", "CheckID": "service:%s-s1" % NAME, "Status": "critical"}}}),
              txn({"Check": {"Verb": "set", "Check": {"Node": "s1", "CheckID": "service:%s-s1" % NAME, "ServiceID": "web-s1", "Status": "critical"}}}),
              txn({"Session": {"Verb": "delete", "Session": {"ID": session}}}),
              ("PUT", "/v1/catalog/register", node), ("PUT", "/v1/catalog/register", dict(node, Node="new", Service={"Service": "web"})),
              ("PUT", "/v1/catalog/register", dict(node, SkipNodeUpdate=True, Service={"Service": "web", "ID": NAME + "-s1", "Port": 1})),
              ("PUT", "/v1/catalog/register", dict(node, SkipNodeUpdate=True, Service={"Service": NAME, "ID": "more"})),
              ("PUT", "/v1/catalog/register", dict(node, SkipNodeUpdate=True, Check={"CheckID": "service:%s-s1" % NAME, "Status": "critical", "ServiceID": "web-s1"})),
              ("PUT", "/v1/catalog/register", dict(node, SkipNodeUpdate=True, Check={"CheckID": "serfHealth", "Status": "critical"})),
              ("PUT", "/v1/catalog/register", dict(node, SkipNodeUpdate=True, Check={"CheckID": "serfHealth", "Status": "critical", "ServiceID": "web-s1"})),
              ("PUT", "/v1/catalog/register", dict(node, SkipNodeUpdate=True, Check={"CheckID": "x", "Status": "critical", "ServiceID": NAME + "-s1"})),
              ("PUT", "/v1/catalog/deregister", {"Node": "s1"}), ("PUT", "/v1/catalog/deregister", {"Node": "s1", "ServiceID": NAME + "-s1"}),
              ("PUT", "/v1/catalog/deregister", {"Node": "s1", "CheckID": "service:%s-s1" % NAME}),
              ("PUT", "/v1/session/create", {}), ("PUT", "/v1/session/create", {"Node": "s1"}), ("PUT", "/v1/session/destroy/" + session),
              ("PUT", "/v1/session/renew/" + session), ("PUT", "/v1/lease/grant", {"TTL": "60s"}), ("PUT", "/v1/lease/renew/" + lease),
              ("PUT", "/v1/lease/revoke/" + lease), ("PUT", "/v1/kv/%s/x?lease=%s" % (NAME, lease), "x"), ("PUT", "/v1/lock/%s/acquire?ttl=10s" % NAME),
              ("PUT", "/v1/lock/%s/release?session=%s" % (NAME, session)), ("PUT", "/v1/lock/%s/renew?session=%s" % (NAME, session)),
              ("PUT", "/v1/lock/web/acquire?ttl=10s"), ("PUT", "/v1/election/%s/campaign?ttl=10s" % NAME, "x"), ("PUT", "/v1/election/%s/resign?session=%s" % (NAME, session)),
              ("PUT", "/v1/hazard/%s/retire" % NAME), ("PUT", "/v1/hazard/%s/clear?session=%s" % (NAME, session)), ("PUT", "/v1/phaser/%s/arrive?session=%s" % (NAME, session)),
              ("PUT", "/v1/phaser/%s/deregister?session=%s" % (NAME, session)), ("PUT", "/v1/barrier/%s/enter?parties=1&ttl=10s" % NAME),
              ("PUT", "/v1/quota/%s" % NAME, {"Budget": 99, "Refill": {"Tokens": 1, "Every": "1s"}, "LeaseTTL": "1m"}), ("DELETE", "/v1/quota/" + NAME),
              ("PUT", "/v1/quota/%s/lease?ttl=10s&want=1" % NAME), ("PUT", "/v1/quota/%s/settle?lease=1&token=1&spent=1" % NAME),
              ("PUT", "/v1/agent/quota/%s/take?n=1" % NAME), ("PUT", "/v1/rollout/%s/versions/v2" % NAME, "x"), ("PUT", "/v1/rollout/%s/current" % NAME, {"Version": "v1"}),
              ("PUT", "/v1/rollout/%s/ack?id=x&version=v1" % NAME), ("DELETE", "/v1/rollout/" + NAME), ("PUT", "/v1/rollout/%s/schema" % NAME, "json"),
              ("PUT", "/v1/rollout/%s/pause" % NAME), ("PUT", "/v1/rollout/%s/rollback" % NAME), ("PUT", "/v1/event/fire/" + NAME, "x"), ("PUT", "/v1/event/fire/web", "x"),
              ("PUT", "/v1/failover/" + NAME, {"Targets": []}), ("DELETE", "/v1/failover/" + NAME), ("PUT", "/v1/failover/web", {"Targets": [{"Service": NAME}]}),
              ("PUT", "/v1/coordinate/update", {"Node": "s1", "Coord": {"Vec": [0] * 8, "Error": 1, "Height": 1e-5}}),
              ("PUT", "/v1/agent/maintenance?enable=true"), ("PUT", "/v1/agent/leave"), ("PUT", "/v1/agent/force-leave/c1"), ("PUT", "/v1/agent/join/127.0.0.1"),
              ("PUT", "/v1/agent/reload"), ("PUT", "/v1/agent/token/default", {"Token": ROOT}), ("PUT", "/v1/agent/token/agent", {"Token": ROOT}),
              ("PUT", "/v1/agent/token/agent_master", {"Token": few}), ("DELETE", "/v1/operator/raft/peer?id=0123456789abcdef"),
              ("DELETE", "/v1/operator/raft/peer?address=%s:8300" % server.ip), ("PUT", "/v1/operator/raft/transfer-leader"),
              ("PUT", "/v1/operator/autopilot/configuration", {"CleanupDeadServers": False}), ("PUT", "/v1/operator/keyring", {"Key": "x"}),
              ("GET", "/v1/operator/keyring"), ("PUT", "/v1/join-token"), ("GET", "/v1/join-tokens"), ("PUT", "/v1/ca/rotate"), ("PUT", "/v1/ca/drop"),
              ("PUT", "/v1/secure/start"), ("PUT", "/v1/secure/finish"), ("PUT", "/v1/secure/abort"), ("PUT", "/v1/snapshot", "junk"), ("GET", "/v1/snapshot"),
              ("GET", "/v1/snapshot?stale"), ("DELETE", "/v1/global/region/dc2"), ("PUT", "/v1/region/keys?prefix=x&from=dc1"), ("DELETE", "/v1/region/keys?prefix=x"),
              ("PUT", "/v1/region/trust/dc2", "x"), ("DELETE", "/v1/region/trust/dc2"), ("PUT", "/v1/acl/bootstrap"), ("PUT", "/v1/acl/token", {}),
              ("PUT", "/v1/acl/token/" + few_id, {"Policies": [{"Name": "global-management"}]}), ("PUT", "/v1/acl/token/%s/clone" % few_id, {}),
              ("DELETE", "/v1/acl/token/" + few_id), ("GET", "/v1/acl/token/" + few_id), ("PUT", "/v1/acl/policy", {"Name": "mine", "Rules": 'acl = "write"'}),
              ("PUT", "/v1/acl/policy/" + few_policy["ID"], {"Name": few_policy["Name"], "Rules": 'acl = "write"'}), ("DELETE", "/v1/acl/policy/" + few_policy["ID"]),
              ("PUT", "/v1/acl/role", {"Name": "mine"}), ("PUT", "/v1/acl/binding-rule", {"AuthMethod": "m"}),
              ("GET", "/v1/acl/tokens"), ("GET", "/v1/acl/policies"), ("GET", "/v1/acl/roles"), ("GET", "/v1/acl/auth-methods"), ("GET", "/v1/acl/binding-rules"),
              ("POST", "/v1/acl/rules/translate", 'key "" { policy = "read" }')]
    def of_agent(name):
        own, check_of = NAME + "-" + name, "service:%s-%s" % (NAME, name)
        put = lambda path, *body: ("PUT", "/v1/agent/" + path, *body)
        return [put("service/register", {"Name": NAME, "ID": "y"}), put("service/register", {"Name": "web", "ID": own}), put("service/deregister/" + own),
                put("service/maintenance/%s?enable=true" % own), put("service/load/%s?load=1" % own), put("check/register", {"Name": "x", "TTL": "10s"}),
                put("check/register", {"Name": "x", "ServiceID": own, "TTL": "10s"}), put("check/fail/" + check_of), put("check/pass/" + check_of),
                put("check/update/" + check_of, {"Status": "critical"}), put("check/deregister/" + check_of),
                put("check/register", {"Name": "x", "ID": check_of, "ServiceID": "web-" + name, "TTL": "10s"})]
    for agent in both:
        for token in (few, None):
            for method, path, *body in writes + of_agent(agent.name):
                status, headers, answer = agent.call(method, path, body[0] if body else None, token=token)
                text = str(answer)
                check(VALUE not in text and b64(VALUE)[:8] not in text, "%s %s %s: %d %s" % (agent.name, method, path, status, text))
                denied = status == 403 and text.startswith("Permission denied")
                if path == "/v1/txn":
                    denied = denied or (status == 409 and "Permission denied: " in text) or (status == 200 and answer["Results"] == [] and "get" in str(body))
                check(denied, "%s %s %s %s: %d %s" % (agent.name, method, path, body, status, text))
    after = state()
    for name in before:
        check(before[name] == after[name], "%s: %s, before %s" % (name, after[name], before[name]))


# -- who asks --------------------------------------------------------------------------------------------------------------
def fencing_tokens_are_no_tokens_of_access_control():
    for agent in both:
        name = "own-" + agent.name
        grant = agent.do("PUT", "/v1/lock/%s/acquire?ttl=60s" % name, "x")
        fence = grant["FencingToken"]
        agent.do("PUT", "/v1/lock/%s/renew?token=%d" % (name, fence))
        agent.do("PUT", "/v1/kv/web/fenced?fence=%s&token=%d" % (name, fence), "x")
        check(agent.call("PUT", "/v1/lock/%s/renew?token=%d" % (name, fence), token=few)[0] == 403, "it takes the rules' word")
        check(agent.call("PUT", "/v1/kv/web/fenced?fence=%s&token=%d" % (name, fence), "x", token=few)[0] == 403, "the fence, too")
        check(agent.do("PUT", "/v1/kv/web/plain?token=" + few, "x", token=None) is True, "without fence it is Consul's")
        agent.do("PUT", "/v1/lock/%s/release?token=%d" % (name, fence))
        term = agent.do("PUT", "/v1/election/%s/campaign?ttl=60s" % name, "x")["Term"]
        agent.do("PUT", "/v1/election/%s/renew?token=%d" % (name, term))
        server.do("PUT", "/v1/quota/" + name, {"Budget": 10, "Refill": {"Tokens": 1, "Every": "1s"}, "LeaseTTL": "1m"})
        part = agent.do("PUT", "/v1/quota/%s/lease?ttl=1m&want=4&token=7306482591734" % name)["Lease"]
        agent.do("PUT", "/v1/quota/%s/settle?lease=%d&token=7306482591734&spent=1" % (name, part))


def forms_of_a_token():
    ask = lambda agent, query="", **headers: agent.request("GET", "/v1/kv/web/a?raw" + query, headers={k.replace("_", "-"): v for k, v in headers.items()})[0]
    wrong = str(uuid.uuid4())
    for agent in both:
        check(ask(agent, X_Consul_Token=few) == 200, "by its header")
        check(ask(agent, Authorization="Bearer " + few) == 200, "as a bearer's")
        check(ask(agent, Authorization="bearer   " + few) == 200, "in small letters")
        check(ask(agent, "&token=" + few) == 200 and ask(agent, "&%74oken=" + few) == 200, "in the query")
        # the query comes before X-Consul-Token, and this before a bearer's
        check(ask(agent, "&token=" + few, X_Consul_Token=wrong) == 200 and ask(agent, "&token=" + wrong, X_Consul_Token=few) == 403, "query, header")
        check(ask(agent, X_Consul_Token=few, Authorization="Bearer " + wrong) == 200, "header, bearer")
        check(ask(agent, Authorization="Bearer " + few, X_Consul_Token=wrong) == 403, "header, bearer, the other way")
        # empty ones are none
        check(ask(agent, "&token=", X_Consul_Token=few) == 200 and ask(agent, "&token", X_Consul_Token=few) == 200, "an empty one in the query")
        check(ask(agent, X_Consul_Token="", Authorization="Bearer " + few) == 200, "an empty header")
        check(ask(agent) == 403 and ask(agent, X_Consul_Token="") == 403 and ask(agent, Authorization="Bearer ") == 403, "none")
        for odd in ("x" * 300, "x" * 128, "x" * 129, few + "x", few[:-1], few.upper() if few != few.upper() else few[1:], few[:8] + "%00" + few[8:], few + "%0a", "%01%02%03", "%c3%a9",
                    "%27%22%5c", "00000000-0000-0000-0000-000000000000", "..%2f..%2fkey"):
            status = ask(agent, "&token=" + odd)
            check(status in (400, 403), "%s %r: %d" % (agent.name, odd, status))
            if "%" not in odd:
                status = ask(agent, X_Consul_Token=odd)
                check(status == 403, "%s %r: %d" % (agent.name, odd, status))
        # the secret of the anonymous token gives what anonymous has
        check(ask(agent, X_Consul_Token="anonymous") == 403, "anonymous")
        for raw in (b"X-Consul-Token: a\tb", b"X-Consul-Token: \x01\x02", b"X-Consul-Token: \xff\xfe", b"X-Consul-Token: " + wrong.encode() + b"\r\nX-Consul-Token: " + few.encode(),
                    b"X-Consul-Token: " + few.encode() + b"\r\nX-Consul-Token: " + wrong.encode()):
            answer = agent.raw(b"GET /v1/kv/%s/a?raw HTTP/1.1\r\nHost: x\r\n%s\r\nConnection: close\r\n\r\n" % (NAME.encode(), raw))
            check(answer[9:12] in (b"400", b"403") and VALUE.encode() not in answer, "%r: %r" % (raw, answer))
        check(few not in agent.log() and ROOT not in agent.log(), "no secret is logged")


def resolve(agent, name, kind=33):
    """Status, and how many answers there are. Without dig, because there are many questions."""
    question = os.urandom(2) + b"\x01\x00\x00\x01" + bytes(6) + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\x00" + struct.pack(">HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(30)
        s.sendto(question, (agent.ip, 8600))
        answer = s.recv(65536)
    return answer[3] & 15, struct.unpack(">H", answer[6:8])[0]


def dns_asks_as_the_default_token():
    nothing = (3, 0)
    for agent in both:
        path = "/v1/agent/token/default"
        names = lambda name: resolve(agent, name + ".service.coord")
        for i in range(20):
            check(names("web") == nothing and names(NAME) == nothing, "anonymous sees none: %r %r" % (names("web"), names(NAME)))
            check(resolve(agent, "s1.node.coord", 1) == nothing and resolve(agent, "c1.node.coord", 1) == nothing, "nor nodes")
        for token, web, hidden in ((few, 2, 0), (ROOT, 2, 2), (few, 2, 0), ("", 0, 0)):
            agent.do("PUT", path, {"Token": token})
            until("%s: web %d" % (agent.name, web), lambda: names("web")[1] == web, 1)
            until("%s: hidden %d" % (agent.name, hidden), lambda: names(NAME)[1] == hidden, 1)
            for i in range(20):
                check(names("web")[1] == web and names(NAME)[1] == hidden, "kept answers of %r" % token)
            check(resolve(agent, "%s.%s.service.coord" % (NAME, NAME))[1] == hidden, "by its tag")
        # rules of the default token
        secret, accessor, policy = token_of(RULES)
        agent.do("PUT", path, {"Token": secret})
        until("web", lambda: names("web")[1] == 2, 2)
        set_rules(policy, 'service_prefix "" { policy = "read" }')
        until("no node, no instance", lambda: names("web")[1] == 0, 2)
        set_rules(policy, RULES + ' service_prefix "" { policy = "read" }')
        until("all", lambda: names(NAME)[1] == 2 and names("web")[1] == 2, 2)
        server.do("DELETE", "/v1/acl/token/" + accessor)
        until("the token has ended", lambda: names(NAME)[1] == 0 and names("web")[1] == 0, 2)
        agent.do("PUT", path, {"Token": ""})


# -- junk ------------------------------------------------------------------------------------------------------------------
def junk_and_wrong_tokens_are_survived():
    dice = random.Random(int(os.environ.get("COORD_TEST_SEED", "1")))
    paths = ["token", "token/" + few_id, "token/%s/clone" % few_id, "policy", "policy/" + few_policy["ID"], "role", "role/x", "auth-method", "auth-method/m",
             "binding-rule", "binding-rule/x", "login", "logout", "rules/translate", "bootstrap"]
    good = ['{"Name":"n","Rules":"key \\"\\" { policy = \\"read\\" }"}', '{"Policies":[{"Name":"x"}],"ExpirationTTL":"1h"}', '{"AuthMethod":"m","BindType":"role","Selector":"a == b","BindName":"${x}"}',
            '{"Name":"m","Type":"jwt","Config":{"JWTValidationPubKeys":["-----BEGIN PUBLIC KEY-----"]}}', '{"AuthMethod":"m","BearerToken":"eyJhbGciOiJub25lIn0.e30."}',
            '{"Rules":"' + 'key \\"a\\" {' * 200 + '"}', "[" * 3000, '{"Rules":"' + "x" * 70000 + '"}', '{"Policies":' + "[" * 500 + "]" * 500 + "}", "key_prefix \"\" {", "null", "[]", "0",
            '{"Name":null,"Rules":5}', '{"SecretID":"' + "x" * 5000 + '"}', '{"AccessorID":"../../x"}', '{"ServiceIdentities":[{"ServiceName":"' + "a" * 600 + '"}]}']

    def attack(agent):
        for i in range(200):
            body = bytearray(dice.choice(good).encode())
            for _ in range(dice.randrange(4)):
                if body:
                    body[dice.randrange(len(body))] = dice.randrange(256)
            path = "/v1/acl/" + dice.choice(paths)
            token = few if path == "/v1/acl/logout" else dice.choice((few, ROOT, ""))
            status, headers, answer = agent.request(dice.choice(("PUT", "POST")), path, bytes(body), headers={"X-Consul-Token": token})
            check(status in (200, 400, 403, 404, 405, 413), "%s %r: %d %r" % (path, bytes(body[:80]), status, answer))
        conn = http.client.HTTPConnection(agent.ip, 8500, timeout=30)
        for i in range(1000):
            conn.request("GET", "/v1/kv/%s/a" % NAME, headers={"X-Consul-Token": "%032x" % dice.getrandbits(128)})
            answer = conn.getresponse()
            check(answer.status == 403 and answer.read().startswith(b"ACL not found"), "%d" % answer.status)
            if i == 299:
                memory = agent.rss_kib("RssAnon"), server.rss_kib("RssAnon")
        conn.close()
        grown = agent.rss_kib("RssAnon") - memory[0], server.rss_kib("RssAnon") - memory[1]
        check(max(grown) < 4096, "%s: 700 wrong tokens: %r KiB more" % (agent.name, grown))
    for agent in both:
        attack(agent)
    check(all(agent.proc.poll() is None for agent in both), "both live")
    check(server.call("GET", "/v1/kv/web/a", token=ROOT)[0] == 200, "and answer")


def a_cut_off_agent_keeps_answers_to_their_tokens():
    secret, accessor, policy = token_of('key_prefix "%s" { policy = "read" } service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }' % NAME)
    paths = ("/v1/kv/%s/a?cached" % NAME, "/v1/kv/%s/a?stale" % NAME, "/v1/health/service/%s?cached" % NAME, "/v1/health/service/%s?stale" % NAME)
    for path in paths:
        check(VALUE in str(client.call("GET", path, token=secret)[2]) or b64(VALUE)[:8] in str(client.call("GET", path, token=secret)[2]), path)
    check(client.call("GET", "/v1/agent/services", token=secret)[0] == 200, "its rules are known")
    server.kill()
    fresh = str(uuid.uuid4())

    def asks(path, token):
        status, headers, answer = client.call("GET", path, token=token)
        text = str(answer) + str(headers)
        check(VALUE not in text and b64(VALUE)[:8] not in text and (NAME not in text or status != 200), "%s: %d %s" % (path, status, text))
    more = ("/v1/agent/services", "/v1/agent/checks", "/v1/agent/service/%s-c1" % NAME, "/v1/agent/self")

    def writes():
        check(client.call("PUT", "/v1/agent/service/deregister/web-c1", token=fresh)[0] in (403, 500), "no write either")

    def still_has():
        status, headers, answer = client.call("GET", "/v1/agent/services", token=secret)
        check(status == 200 and NAME in str(answer), "extend-cache: %d %s" % (status, answer))
    together(writes, still_has, *[lambda path=path, token=token: asks(path, token) for path in paths + more for token in (fresh, None, "x" * 300)])
    server.start(wait=False)
    until("the server is back", lambda: leads(server) and client.call("GET", "/v1/kv/web/a?raw", token=ROOT)[0] == 200, 30)


if __name__ == "__main__":
    setup()
    run([the_few_rights_count, nothing_hidden_is_shown, parked_reads_follow_the_rules, streams_follow_the_rules, two_tokens_in_turn, nothing_else_is_written, fencing_tokens_are_no_tokens_of_access_control, forms_of_a_token,
         dns_asks_as_the_default_token, a_cut_off_agent_keeps_answers_to_their_tokens, junk_and_wrong_tokens_are_survived])
