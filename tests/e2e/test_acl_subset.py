"""Random rules, data and changes: what lists, transactions, histories, the past, waits, streams, events, DNS and kept answers show to a token is
what plain reads of single things show to the same token: no more, and no less. On a server and through a client agent.

COORD_TEST_SEED draws others. Rules are judged one by one in tests/registry and tests/kv (test_access_subsets); here the whole way counts.
"""
import base64, http.client, json, os, random, threading, uuid
from coordtest import SLOW, Agent, ask, check, configuration, run, together, until
from streams import Follower

SEED = int(os.environ.get("COORD_TEST_SEED", "1"))
ROOT = "11111111-2222-4333-8444-555555555555"
KEYS = ["a", "a/1", "a/2", "a/b/1", "a/b/2", "ab", "b/1", "b/2", "c"]
SERVICES = ["web", "web-api", "db", "queue"]
NODES = ["n-1", "n-2", "m-1"]
EVENTS = ["deploy", "deploy-web", "halt"]
LOCKS = ["l/1", "l/2", "job"]
NAMED = {"key": KEYS, "service": SERVICES, "node": NODES + ["s1", "c1"], "session": NODES, "event": EVENTS, "lock": LOCKS, "quota": LOCKS}
TOKENS, ROUNDS, CHANGES = 5, 3, 25


class Plain(Agent):
    def __init__(self, *args, **kw):
        super().__init__(configuration(acl={"enabled": True, "default_policy": "deny", "tokens": {"initial_management": ROOT, "agent": ROOT}}), *args, **kw)
        self.lines = threading.local()

    def ask(self, token, path, method="GET", body=None):
        """Status, index and answer, over one connection of each thread."""
        for attempt in (1, 2):
            line = getattr(self.lines, "line", None) or http.client.HTTPConnection(self.ip, 8500, timeout=60 * SLOW)
            self.lines.line = line
            try:
                line.request(method, path, body=json.dumps(body) if isinstance(body, (dict, list)) else body, headers={"X-Consul-Token": token})
                answer = line.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, OSError):
                line.close()
                self.lines.line = None
                if attempt == 2:
                    raise
        try:
            text = json.loads(text)
        except ValueError:
            text = text.decode("utf-8", "replace")
        return answer.status, int(answer.headers.get("X-Consul-Index") or 0), text

    def do(self, method, path, body=None):
        status, _, answer = self.ask(ROOT, path, method, body)
        check(status == 200, "%s %s: %d %s" % (method, path, status, answer))
        return answer

    def rows(self, token, path):
        """Of a list: what the token gets."""
        status, _, answer = self.ask(token, path)
        check(status in (200, 404), "%s %s: %d %s" % (self.name, path, status, answer))
        return answer if status == 200 else []


# -- what is drawn ---------------------------------------------------------------------------------------------------------
def draw_rules(dice):
    rules = ['key_prefix "marker/" { policy = "read" }']        # by which a stream is known to be up to date
    for resource, names in NAMED.items():
        levels = {}
        for _ in range(dice.randrange(4)):
            name = dice.choice(names)
            prefix = dice.random() < 0.6
            levels[prefix, name[:dice.randrange(len(name) + 1)] if prefix else name] = dice.choice(("read", "read", "read", "deny", "write"))
        rules += ['%s%s "%s" { policy = "%s" }' % (resource, "_prefix" if prefix else "", name, level) for (prefix, name), level in levels.items()]
    return "\n".join(rules)


class Token:
    def __init__(self, n, dice):
        self.name = "t%d-%d" % (n, SEED)
        self.rules = draw_rules(dice)
        self.policy = server.do("PUT", "/v1/acl/policy", {"Name": self.name, "Rules": self.rules})["ID"]
        self.secret = server.do("PUT", "/v1/acl/token", {"Policies": [{"ID": self.policy}]})["SecretID"]

    def draw_again(self, dice):
        self.rules = draw_rules(dice)
        server.do("PUT", "/v1/acl/policy/" + self.policy, {"Name": self.name, "Rules": self.rules})


sessions, ports = {}, iter(range(1000, 9999))                   # ID: node


def change(dice):
    """One change of the data, by management."""
    kind, node, service = dice.choice(("put", "put", "put", "delete", "tree", "txn", "service", "service", "check", "gone", "session", "end", "lock", "event")), dice.choice(NODES), dice.choice(SERVICES)
    value = uuid.UUID(int=dice.getrandbits(128)).hex
    at = {"Node": node, "Address": "10.0.0.%d" % (NODES.index(node) + 1), "SkipNodeUpdate": True}
    if kind == "put":
        server.do("PUT", "/v1/kv/" + dice.choice(KEYS), value)
    elif kind == "delete":
        server.do("DELETE", "/v1/kv/" + dice.choice(KEYS))
    elif kind == "tree":
        server.do("DELETE", "/v1/kv/%s?recurse" % dice.choice(("a/b/", "b", "c")))
    elif kind == "txn":
        server.do("PUT", "/v1/txn", [{"KV": {"Verb": "set", "Key": key, "Value": base64.b64encode(value.encode()).decode()}} for key in dice.sample(KEYS, 3)])
    elif kind == "service":
        server.do("PUT", "/v1/catalog/register", dict(at, Service={"Service": service, "ID": "%s-%d" % (service, dice.randrange(2)), "Port": next(ports)}))
    elif kind == "check":
        server.do("PUT", "/v1/catalog/register", dict(at, Check={"CheckID": "disk", "Name": "disk", "Status": dice.choice(("passing", "warning")), "Output": value}))
    elif kind == "gone":
        server.do("PUT", "/v1/catalog/deregister", {"Node": node, "ServiceID": "%s-%d" % (service, dice.randrange(2))})
    elif kind == "session" and len(sessions) < 6:
        sessions[server.do("PUT", "/v1/session/create", {"Node": node, "Checks": []})["ID"]] = node
    elif kind == "end" and sessions:
        session = dice.choice(sorted(sessions))
        del sessions[session]
        server.do("PUT", "/v1/session/destroy/" + session)
    elif kind == "lock" and sessions:
        server.ask(ROOT, "/v1/lock/%s/acquire?session=%s" % (dice.choice(LOCKS), dice.choice(sorted(sessions))), "PUT", value)
    elif kind == "event":
        server.do("PUT", "/v1/event/fire/" + dice.choice(EVENTS), value)


# -- plain reads, and what is held against them ----------------------------------------------------------------------------
def plain_keys(agent, token, query=""):
    """Each key by itself: its value."""
    found = {}
    for key in KEYS:
        status, _, answer = agent.ask(token, "/v1/kv/%s%s" % (key, query))
        check(status in (200, 403, 404), "%s: %d %s" % (key, status, answer))
        if status == 200:
            found[key] = answer[0]["Value"]
    return found


def values(rows):
    return {row["Key"]: row["Value"] for row in rows if not row["Key"].startswith("marker/")}


def readable(agent, token):
    return {key for key in KEYS if agent.ask(token, "/v1/kv/" + key)[0] != 403}


def instances(rows):
    return {row["Service"]["Port"] for row in rows}


class Judge:
    def __init__(self, agent, token):
        self.agent, self.token, self.faults = agent, token, []

    def same(self, what, seen, plain):
        if seen != plain:
            self.faults.append("seed %d, %s, %s: %s, by plain reads %s; rules:\n%s" % (SEED, self.agent.name, what, seen, plain, self.token.rules))

    def judge(self, index):
        agent, secret = self.agent, self.token.secret
        rows = lambda path: agent.rows(secret, path)
        self.keys(plain_keys(agent, secret), lambda query: "?recurse" + query, "")
        self.keys(plain_keys(agent, secret, "?at=%d" % index), lambda query: "?recurse&at=%d" % index + query, "&at=%d" % index)
        plain = plain_keys(agent, secret)
        operations = [{"KV": {"Verb": "get", "Key": key}} for key in plain]
        hidden = [{"KV": {"Verb": "get", "Key": key}} for key in plain_keys(server, ROOT) if key not in plain]
        if operations + hidden:
            status, _, answer = agent.ask(secret, "/v1/txn", "PUT", operations + hidden)
            self.same("transaction (%d)" % status, values([result["KV"] for result in answer["Results"] or []]), plain)
        may = readable(agent, secret)
        self.same("histories", {key for key in KEYS if agent.ask(secret, "/v1/kv/%s?history" % key)[0] != 403}, may)
        # catalog and health
        by_service = {s: rows("/v1/health/service/" + s) for s in SERVICES}
        ports_of = {s: instances(found) for s, found in by_service.items()}
        for service in SERVICES:
            self.same("catalog/service", {row["ServicePort"] for row in rows("/v1/catalog/service/" + service)}, ports_of[service])
        nodes = {n: rows("/v1/catalog/node/" + n) for n in NODES}
        self.same("nodes", {row["Node"] for row in rows("/v1/catalog/nodes")} & set(NODES), {n for n, found in nodes.items() if found})
        on = lambda found: {s["Port"] for s in found["Services"].values()} if found else set()
        self.same("services of nodes", set().union(*map(on, nodes.values())), set().union(*ports_of.values()))
        names = set(rows("/v1/catalog/services"))
        may_service = {s for s in SERVICES if agent.ask(secret, "/v1/internal/acl/authorize", "POST", [{"Resource": "service", "Segment": s, "Access": "read"}])[2][0]["Allow"]}
        everything = {s for s in SERVICES if server.rows(ROOT, "/v1/catalog/service/" + s)}
        self.same("catalog/services", names & set(SERVICES), may_service & everything)
        checks = lambda found: {(c["Node"], c["CheckID"], c["Output"]) for c in found if c["Node"] in NODES}
        self.same("health/state/any", checks(rows("/v1/health/state/any")), set().union(*[checks(rows("/v1/health/node/" + n)) for n in NODES]))
        self.same("checks of instances", set().union(*[checks(row["Checks"]) for found in by_service.values() for row in found]) if any(by_service.values()) else set(),
                  {c for c in checks(rows("/v1/health/state/any")) if any(row["Node"]["Node"] == c[0] for found in by_service.values() for row in found)})
        # sessions, locks, events
        one = {s for s in sessions if rows("/v1/session/info/" + s)}
        self.same("session/list", {s["ID"] for s in rows("/v1/session/list")}, one)
        self.same("session/node", {s["ID"] for n in NODES for s in rows("/v1/session/node/" + n)}, one)
        held = {l["Name"] for l in server.rows(ROOT, "/v1/locks")}
        self.same("locks", {l["Name"] for l in rows("/v1/locks")}, {l for l in held if agent.ask(secret, "/v1/lock/" + l)[0] == 200})
        named = lambda found: {e["ID"] for e in found}
        self.same("event/list", named(rows("/v1/event/list")), set().union(*[named(rows("/v1/event/list?name=" + e)) for e in EVENTS]))
        self.same("may events", {e["Name"] for e in rows("/v1/event/list")} - {e for e in EVENTS if self.may("event", e)}, set())
        return self

    def may(self, resource, name):
        return self.agent.ask(self.token.secret, "/v1/internal/acl/authorize", "POST", [{"Resource": resource, "Segment": name, "Access": "read"}])[2][0]["Allow"]

    def keys(self, plain, tree, at):
        rows = lambda path: self.agent.rows(self.token.secret, path)
        self.same("recurse" + at, values(rows("/v1/kv/" + tree(""))), plain)
        self.same("recurse of a/" + at, values(rows("/v1/kv/a/" + tree(""))), {k: v for k, v in plain.items() if k.startswith("a/")})
        self.same("keys" + at, {k for k in rows("/v1/kv/?keys" + at) if not k.startswith("marker/")}, set(plain))
        folded = {k.split("/")[0] + "/" if "/" in k else k for k in plain}
        self.same("keys up to / " + at, {k for k in rows("/v1/kv/?keys&separator=/" + at) if k != "marker/"}, folded)
        if not at:
            self.same("stale", values(rows("/v1/kv/?recurse&stale")), plain)
            self.same("cached", values(rows("/v1/kv/?recurse&cached")), plain)


class Waiting(threading.Thread):
    """Blocking queries of a token, begun before the changes."""
    PATHS = ("/v1/kv/?recurse", "/v1/catalog/services", "/v1/health/state/any", "/v1/session/list")

    def __init__(self, agent, token, path):
        super().__init__(daemon=True)
        self.agent, self.token, self.path, self.answer = agent, token, path, None
        self.index, self.before = agent.ask(token.secret, path)[1:]
        self.start()

    def run(self):
        try:
            self.answer = self.agent.ask(self.token.secret, "%s%cindex=%d&wait=20s" % (self.path, "&" if "?" in self.path else "?", self.index))
        except OSError:
            pass                             # the server has ended in the meantime

    def judge(self):
        after = self.agent.ask(self.token.secret, self.path)[2]
        if after != self.before:
            until("%s wakes" % self.path, lambda: self.answer)
        if not self.answer or not self.path.startswith("/v1/kv"):
            return []
        status, index, answer = self.answer
        there = self.agent.ask(self.token.secret, "/v1/kv/?recurse&at=%d" % index)[2]
        seen, plain = (values(a) if isinstance(a, list) else {} for a in (answer, there))
        return [] if seen == plain else ["seed %d, %s: a wait for %s at %d: %s, then %s" % (SEED, self.agent.name, self.path, index, seen, plain)]


class Streamed:
    """A stream of all keys and services, over the whole test."""

    def __init__(self, agent, token):
        self.agent, self.token, self.read = agent, token, 0
        self.follower = Follower([agent], "prefix=&" + "".join("service=%s&" % s for s in SERVICES) + "token=" + token.secret)

    def judge(self, marker, since):
        until("the stream of %s is up to date" % self.agent.name, lambda: any(d.get("Key") == marker for _, _, d in self.follower.events if isinstance(d, dict)))
        events, faults = self.follower.events[self.read:], []
        self.read += len(events)
        index_of = lambda position: int(position.split(".")[0])
        secret = self.token.secret
        for key in KEYS:
            seen = [index_of(i) for e, i, d in events if e == "kv" and d["Key"] == key]
            status, _, changes = self.agent.ask(secret, "/v1/kv/%s?history" % key)
            plain = [c["Index"] for c in changes if c["Index"] > since] if status == 200 else []
            if seen != plain:
                faults.append("the stream of %s since %d: %s %s, its history %s" % (key, since, seen, [d for e, _, d in events if e == "kv" and d["Key"] == key], plain))
        for service in SERVICES:
            rows = [d for e, _, d in events if e == "service" and (d[0]["Service"]["Service"] == service if isinstance(d, list) else d["Service"] == service)]
            now = instances(self.agent.rows(secret, "/v1/health/service/" + service))
            last = (instances(rows[-1]) if isinstance(rows[-1], list) else set()) if rows else None
            if last is not None and last != now:
                faults.append("the stream of service %s: %s, read %s" % (service, last, now))
            if not self.may(service) and any(isinstance(d, list) for d in rows):
                faults.append("the stream of service %s, which is hidden: %s" % (service, rows))
        return ["seed %d, %s: %s; rules:\n%s" % (SEED, self.agent.name, fault, self.token.rules) for fault in faults]

    def may(self, service):
        return Judge(self.agent, self.token).may("service", service)


# -- the story -------------------------------------------------------------------------------------------------------------
def now(name="now"):
    """The index of a write that follows all others."""
    server.do("PUT", "/v1/kv/marker/" + name, uuid.uuid4().hex)
    return server.do("GET", "/v1/kv/marker/" + name)[0]["ModifyIndex"]


def setup():
    global server, client
    server = Plain(name="s1").start(wait=False)

    def there(agent):
        try:
            return any(n["Node"] == agent.name for n in agent.ask(ROOT, "/v1/catalog/nodes")[2])
        except (OSError, TypeError):
            return False
    until("the server", lambda: there(server), 30)
    client = Plain("-retry-join=" + server.ip, server=False, name="c1").start(wait=False)
    until("the client agent", lambda: there(client), 30)
    for n, node in enumerate(NODES):
        server.do("PUT", "/v1/catalog/register", {"Node": node, "Address": "10.0.0.%d" % (n + 1)})


def what_is_seen_is_what_may_be_read():
    dice = random.Random(SEED)
    for _ in range(CHANGES):
        change(dice)
    tokens = [Token(n, dice) for n in range(TOKENS)]
    both = (server, client)
    streams = [Streamed(agent, token) for token in tokens for agent in both]
    for turn in range(ROUNDS):
        since = now()
        middle = dice.randrange(CHANGES)
        waits = [Waiting(agent, token, path) for token in tokens[:3] for agent in both for path in Waiting.PATHS]
        for n in range(CHANGES):
            change(dice)
            if n == middle:
                index = now()
        marker = "marker/%d" % turn
        now(str(turn))
        faults = []
        together(*[lambda agent=agent: [faults.extend(Judge(agent, token).judge(index).faults) for token in tokens] for agent in both])
        faults += [f for s in streams for f in s.judge(marker, since)] + [f for w in waits for f in w.judge()]
        check(not faults, "round %d: %d\n%s" % (turn, len(faults), "\n".join(faults[:6])))
        for token in tokens[turn::2]:
            token.draw_again(dice)
    for stream in streams:
        stream.follower.stop()
    names_resolve(tokens)
    kept_answers(tokens)


def names_resolve(tokens):
    for agent in (server, client):
        for token in tokens:
            check(agent.ask(ROOT, "/v1/agent/token/default", "PUT", {"Token": token.secret})[0] == 200, "the default token")
            for service in SERVICES:
                plain = instances(agent.rows(token.secret, "/v1/health/service/" + service))          # nothing is critical
                ports_now = lambda: {int(r.data.split()[2]) for r in ask(agent.ip, 8600, service + ".service.coord", "SRV").answer if r.type == "SRV"}
                until("%s: %s resolves to %s by\n%s\n" % (agent.name, service, plain, token.rules), lambda: ports_now() == plain, 2)


def kept_answers(tokens):
    """Of an agent that is cut off: to those that it gave them to."""
    paths = ["/v1/kv/?recurse&stale", "/v1/health/state/any?stale", "/v1/health/service/web?stale", "/v1/catalog/services?stale", "/v1/session/list?stale"]
    known = {(token.secret, path): client.ask(token.secret, path)[::2] for token in tokens for path in paths}
    fresh = [Token(TOKENS + n, random.Random(SEED + n)) for n in range(2)]
    root = server.do("PUT", "/v1/acl/token", {"Policies": [{"Name": "global-management"}]})["SecretID"]
    server.kill()
    faults, kept = [], []

    def ask(secret, path):
        status, _, answer = client.ask(secret, path)
        if (secret, path) in known and status == 200:
            kept.append(path)
            if (status, answer) != known[secret, path]:
                faults.append("seed %d: kept %s: %s, before %s" % (SEED, path, answer, known[secret, path]))
        elif status == 200:
            faults.append("seed %d: %s is given to a token that the agent never saw: %s" % (SEED, path, answer))
    together(*[lambda secret=secret, path=path: ask(secret, path) for secret in [t.secret for t in tokens + fresh] + [root] for path in paths])
    check(not faults, "\n".join(faults[:5]))
    check(kept, "nothing was kept")


if __name__ == "__main__":
    setup()
    run([what_is_seen_is_what_may_be_read])
