"""Access control beside a real Consul 1.8: the same data, policies and tokens on both, and the same requests. Status and visible names agree, or
the difference stands in DIFFERENCES with its reason.

Needs a consul program (its path in COORD_CONSUL or CONSUL_BIN). COORD_TEST_SEED draws other mixed tokens and another order.
"""
import atexit, base64, concurrent.futures, http.client, json, os, random, re, shutil, subprocess, sys, tempfile, uuid
from coordtest import SLOW, Agent, check, configuration, free_address, run, until
from web_tokens import PUBLIC

CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")
SEED = int(os.environ.get("COORD_TEST_SEED", "1"))
ROOT = "11111111-aaaa-4bbb-8ccc-222222222222"
ANONYMOUS = "00000000-0000-0000-0000-000000000002"
MANAGEMENT = "00000000-0000-0000-0000-000000000001"


def b64(text):
    return base64.b64encode(text.encode()).decode()


# -- the two ---------------------------------------------------------------------------------------------------------------
class Peer:
    """What both servers have in common: requests over one connection, and what is to be seen in an answer."""

    def __init__(self):
        self.names, self.words, self.line = {}, {}, None    # words: what stands for an ID of this server, {word}

    def ask(self, method, path, body=None, token=ROOT):
        fill = lambda text: re.sub(r"{(\w[\w-]*)}", lambda m: self.words.get(m[1], m[0]), text)
        if body is not None:
            body = fill(body if isinstance(body, str) else json.dumps(body))
        for attempt in (1, 2):
            if not self.line:
                self.line = http.client.HTTPConnection(self.ip, 8500, timeout=30 * SLOW)
            try:
                self.line.request(method, fill(path), body=body, headers={"X-Consul-Token": token} if token else {})
                answer = self.line.getresponse()
                return answer.status, answer.read().decode("utf-8", "replace")
            except (http.client.HTTPException, OSError):
                self.line.close()
                self.line = None
                if attempt == 2:
                    raise

    def do(self, method, path, body=None):
        status, text = self.ask(method, path, body)
        check(status == 200, "%s: %s %s: %d %s" % (self.what, method, path, status, text))
        try:
            return json.loads(text)
        except ValueError:
            return text

    def call(self, word, made):
        """An ID of this server has a name that both know."""
        self.words[word], self.names[made] = made, word

    def ready(self):
        try:
            return self.ask("GET", "/v1/acl/token/self")[0] == 200 and "n1" in self.ask("GET", "/v1/health/state/passing")[1]
        except OSError:
            return False

    def seen(self, path):
        return self.visible(path, self.ask("GET", path)[1])

    def visible(self, path, text):
        """The known names in an answer, as its strings; a text that is no JSON is one."""
        found = set()
        if path == "/v1/agent/metrics":
            return found

        def walk(value):
            if isinstance(value, dict):
                for key, more in value.items():
                    walk(key)
                    walk(more)
            elif isinstance(value, list):
                for more in value:
                    walk(more)
            elif isinstance(value, str) and (value in NAMES or value in self.names):
                found.add(self.names.get(value, value))
        try:
            walk(json.loads(text))
        except ValueError:
            walk(text)
        return found - {"n1"} if path.startswith("/v1/coordinate") else found      # its own coordinate comes some time


class Coord(Peer, Agent):
    what = "coord"

    def __init__(self, policy):
        Agent.__init__(self, settings(policy), dev=True)
        Peer.__init__(self)
        self.start(wait=False)


class Consul(Peer):
    what = "consul"

    def __init__(self, policy):
        super().__init__()
        self.ip, self.dir = free_address(), tempfile.mkdtemp(prefix="coord-consul-")
        with open(os.path.join(self.dir, "log"), "wb") as log:
            self.proc = subprocess.Popen([CONSUL, "agent", "-dev", "-node=n1", "-bind=" + self.ip, "-client=" + self.ip, settings(policy)],
                                         stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        atexit.register(self.end)

    def end(self):
        self.proc.kill()
        self.proc.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def settings(policy):
    return configuration(acl={"enabled": True, "default_policy": policy, "tokens": {"master": ROOT}})


# -- what both have --------------------------------------------------------------------------------------------------------
KEYS = ["app/a", "app/b/c", "app/secret/x", "appx", "pub/1", "pub/2", "lock/leader", "zz", "deep/a/b"]
NODES = {"ext-1": ["web", "web-api", "db"], "ext-2": ["web", "secret"], "web-node": ["secret-api", "web-api"]}
EVENTS = ["deploy", "deploy-web", "restart"]
LOCAL = ["web", "secret"]                                  # of the agent itself
POLICIES = {
    "keys": 'key_prefix "app/" { policy = "write" } key "app/b/c" { policy = "read" } key_prefix "app/secret/" { policy = "deny" }',
    "lists": 'key_prefix "" { policy = "list" } key "zz" { policy = "deny" } key_prefix "pub/" { policy = "read" }',
    "no-secrets": 'key_prefix "app/" { policy = "deny" } service_prefix "secret" { policy = "deny" } node "ext-2" { policy = "deny" }',
    "web": 'service "web" { policy = "write" } node_prefix "" { policy = "read" }',
    "webs": 'service_prefix "web" { policy = "read" } service "web-api" { policy = "deny" } node_prefix "ext-" { policy = "read" } node "ext-2" { policy = "deny" }',
    "services": 'service_prefix "" { policy = "read" } service_prefix "web-" { policy = "write" }',
    "nodes": 'node_prefix "" { policy = "write" } service_prefix "" { policy = "read" } node_prefix "web" { policy = "read" }',
    "sessions": 'session "n1" { policy = "write" } session_prefix "ext" { policy = "read" } session "ext-2" { policy = "deny" } key_prefix "lock/" { policy = "write" }',
    "agent": 'agent_prefix "n" { policy = "read" } node "n1" { policy = "write" }',
    "agents": 'agent_prefix "" { policy = "write" } agent "other" { policy = "deny" }',
    "operator": 'operator = "read" keyring = "read"',
    "operators": '{"operator": "write", "keyring": "deny", "event_prefix": {"": {"policy": "read"}}}',
    "events": 'event_prefix "deploy" { policy = "read" } event "deploy-web" { policy = "write" } query_prefix "" { policy = "read" }',
    "acl-reader": 'acl = "read" key "pub/1" { policy = "read" }',
    "acl-writer": 'acl = "write"',
    "all": " ".join('%s_prefix "" { policy = "write" }' % r for r in ("agent", "event", "key", "node", "query", "service", "session"))
           + ' operator = "write" keyring = "write"',
    "denials": " ".join('%s_prefix "" { policy = "deny" }' % r for r in ("agent", "event", "key", "node", "service", "session"))
            + ' operator = "deny" keyring = "deny" acl = "deny"',
    "public": 'key_prefix "pub/" { policy = "read" } service "db" { policy = "read" } node "ext-1" { policy = "read" }',
}
ROLES = {"role-web": ["web", "keys"], "role-reader": ["services", "nodes"]}
SERVICES = sorted({name for names in NODES.values() for name in names})
NAMES = set(KEYS) | set(NODES) | set(SERVICES) | set(EVENTS) | set(POLICIES) | set(ROLES) | {"n1", "consul", "serfHealth", "disk", "local-web", "local-secret",
        "service:local-web", "service:local-secret", "local-disk", "Session one", "app/", "app/b/", "app/secret/", "pub/", "lock/", "deep/"}
NAMES |= {"%s-%s" % (s, n) for n, names in NODES.items() for s in names} | {"check-%s-%s" % (s, n) for n, names in NODES.items() for s in names}


def local_services(peer):
    for service in LOCAL:
        peer.do("PUT", "/v1/agent/service/register", {"Name": service, "ID": "local-" + service, "Check": {"TTL": "1h", "Status": "passing"}})


def fill(peer):
    """Through the management token; coord's and Consul's IDs get the same names."""
    do = peer.do
    for key in KEYS:
        do("PUT", "/v1/kv/" + key, "value")
    for n, (node, services) in enumerate(NODES.items()):
        address = "10.0.0.%d" % (n + 1)
        do("PUT", "/v1/catalog/register", {"Node": node, "Address": address, "Check": {"CheckID": "disk", "Name": "disk", "Status": "passing"}})
        for service in services:
            do("PUT", "/v1/catalog/register", {"Node": node, "Address": address, "Service": {"Service": service, "ID": service + "-" + node, "Port": 80},
                                               "Check": {"CheckID": "check-%s-%s" % (service, node), "Name": "c", "Status": "passing" if n else "critical",
                                                         "ServiceID": service + "-" + node}})
    local_services(peer)
    do("PUT", "/v1/agent/check/register", {"Name": "local-disk", "ID": "local-disk", "TTL": "1h", "Status": "passing"})
    for node in ("n1", "ext-1", "ext-2"):
        peer.call("session-" + node, do("PUT", "/v1/session/create", {"Name": "Session one", "Node": node, "Checks": []})["ID"])
    do("PUT", "/v1/kv/lock/leader?acquire={session-n1}", "value")
    for event in EVENTS:
        peer.call("event-" + event, do("PUT", "/v1/event/fire/" + event)["ID"])
    for node in ("ext-1", "ext-2"):
        do("PUT", "/v1/coordinate/update", {"Node": node, "Coord": {"Vec": [0] * 8, "Error": 1, "Adjustment": 0, "Height": 1e-5}})
    for name, rules in POLICIES.items():
        peer.call("policy-" + name, do("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules})["ID"])
    for name, policies in ROLES.items():
        peer.call(name + "-id", do("PUT", "/v1/acl/role", {"Name": name, "Policies": [{"Name": p} for p in policies]})["ID"])
    for name, more in TOKENS.items():
        if more is not None:
            do("PUT", "/v1/acl/token", dict(more, Description=name, AccessorID=accessor(name), SecretID=secret(name)))
    do("DELETE", "/v1/acl/token/" + accessor("deleted"))
    do("PUT", "/v1/acl/token/" + ANONYMOUS, {"Policies": [{"Name": "public"}]})
    do("PUT", "/v1/acl/auth-method", {"Name": "method-one", "Type": "jwt", "Config": {"JWTValidationPubKeys": [PUBLIC]}})
    peer.call("rule-one", do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "method-one", "BindType": "role", "BindName": "role-web"})["ID"])
    until("all of the agent in the catalog of " + peer.what, lambda: {"local-web", "local-secret", "local-disk"} <=
          peer.seen("/v1/health/node/n1") | peer.seen("/v1/catalog/node/n1"), 30)
    until("coordinates at " + peer.what, lambda: {"ext-1", "ext-2"} <= peer.seen("/v1/coordinate/nodes"), 30)


def of(*policies):
    return {"Policies": [{"Name": p} for p in policies]}


def draw_tokens(dice):
    """Each policy alone; some together; roles, identities; none, unknown, deleted, management."""
    tokens = {name: of(name) for name in POLICIES}
    for n in range(4):
        tokens["mixed-%d" % n] = of(*sorted(dice.sample(sorted(set(POLICIES) - {"all", "denials"}), 3)))
    tokens.update({"role": {"Roles": [{"Name": "role-web"}]}, "both": dict(of("sessions"), Roles=[{"Name": "role-reader"}, {"Name": "role-web"}]),
                   "service": {"ServiceIdentities": [{"ServiceName": "web"}]}, "elsewhere": {"ServiceIdentities": [{"ServiceName": "web", "Datacenters": ["dc9"]}]},
                   "node": {"NodeIdentities": [{"NodeName": "ext-1", "Datacenter": "dc1"}]}, "management": {"Policies": [{"ID": MANAGEMENT}]},
                   "later": dict(of("web"), ExpirationTTL="1h"), "empty": {}, "deleted": of("all"), "anonymous": None, "unknown": None})
    return tokens


def accessor(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, "accessor " + name))


def secret(name):
    return "" if name == "anonymous" else str(uuid.uuid5(uuid.NAMESPACE_DNS, "secret " + name))


TOKENS = draw_tokens(random.Random(SEED))


# -- what is asked ---------------------------------------------------------------------------------------------------------
def reads():
    for key in KEYS + ["app/none", "none"]:
        yield "GET", "/v1/kv/" + key
    for query in ("zz?raw", "app/secret/x?raw", "pub/1?raw", "?recurse", "app?recurse", "app/?recurse", "app/secret/?recurse", "none?recurse", "pub/?recurse&stale",
                  "?keys", "?keys&separator=/", "app/?keys", "app/?keys&separator=/", "none/?keys", "lock/?keys", "?recurse&consistent"):
        yield "GET", "/v1/kv/" + query
    for path in ("nodes", "nodes?near=ext-1", "services", "datacenters", "services?stale"):
        yield "GET", "/v1/catalog/" + path
    for node in list(NODES) + ["n1", "none"]:
        for path in ("catalog/node/", "catalog/node-services/", "health/node/", "session/node/", "coordinate/node/"):
            if (path, node) != ("coordinate/node/", "n1"):         # an agent tells its own some time
                yield "GET", "/v1/" + path + node
    for service in SERVICES + ["none", "consul"]:
        for path in ("catalog/service/", "health/service/", "health/checks/"):
            yield "GET", "/v1/" + path + service
    yield "GET", "/v1/health/service/web?passing"
    for state in ("any", "passing", "critical", "warning"):
        yield "GET", "/v1/health/state/" + state
    for node in ("n1", "ext-1", "ext-2"):
        yield "GET", "/v1/session/info/{session-%s}" % node
    yield "GET", "/v1/session/info/" + secret("none")
    for path in ("session/list", "event/list", "event/list?name=deploy", "event/list?name=restart", "coordinate/nodes", "coordinate/datacenters", "status/leader",
                 "status/peers", "operator/raft/configuration", "operator/autopilot/configuration", "operator/autopilot/health", "snapshot"):
        yield "GET", "/v1/" + path
    for path in ("self", "members", "services", "checks", "metrics", "service/local-web", "service/local-secret", "service/none", "health/service/id/local-web",
                 "health/service/id/local-secret", "health/service/name/web", "health/service/name/secret", "health/service/id/none", "health/service/name/none"):
        yield "GET", "/v1/agent/" + path
    for path in ("tokens", "token/self", "token/" + accessor("web"), "token/" + accessor("deleted"), "policies", "policy/{policy-web}", "policy/" + secret("none"),
                 "policy/name/keys", "policy/name/none", "roles", "role/{role-web-id}", "role/name/role-web", "role/name/none", "auth-methods", "auth-method/method-one",
                 "auth-method/none", "binding-rules", "binding-rule/{rule-one}", "binding-rules?authmethod=method-one", "replication", "tokens?policy={policy-web}",
                 "tokens?role={role-web-id}", "roles?policy={policy-web}"):
        yield "GET", "/v1/acl/" + path
    yield "POST", "/v1/acl/rules/translate", 'key "a" { policy = "read" }'
    get = lambda verb, key: {"KV": {"Verb": verb, "Key": key}}
    for operations in ([get("get", "app/a")], [get("get", "zz"), get("get", "pub/1")], [get("get-tree", "app/")], [get("get", "none")], [get("get", "app/secret/x")],
                       [{"Node": {"Verb": "get", "Node": {"Node": "ext-1"}}}], [{"Service": {"Verb": "get", "Node": "ext-1", "Service": {"ID": "web-ext-1"}}}],
                       [{"Check": {"Verb": "get", "Check": {"Node": "ext-1", "CheckID": "disk"}}}],
                       [{"Check": {"Verb": "get", "Check": {"Node": "ext-2", "CheckID": "check-secret-ext-2"}}}]):
        yield "PUT", "/v1/txn", operations
    rights = [("key", "app/a"), ("key", "zz"), ("service", "web"), ("service", "secret"), ("node", "ext-1"), ("node", "ext-2"), ("session", "n1"), ("agent", "n1"),
              ("event", "deploy"), ("query", "q"), ("operator", ""), ("keyring", ""), ("acl", "")]
    yield "POST", "/v1/internal/acl/authorize", [{"Resource": r, "Segment": n, "Access": a} for r, n in rights for a in ("read", "write")]


def writes(n):
    """Each draw has names of its own, so that an answer does not depend on the draws before."""
    node = {"Node": "ext-1", "Address": "10.0.0.1"}
    set_key = lambda key, verb="set", **more: {"KV": dict({"Verb": verb, "Key": key, "Value": b64("x")}, **more)}
    new = "new-%d" % n
    return [
        ("PUT", "/v1/kv/app/%s" % new, "x"), ("PUT", "/v1/kv/app/b/c", "x"), ("PUT", "/v1/kv/app/secret/x", "x"), ("PUT", "/v1/kv/zz", "x"), ("PUT", "/v1/kv/pub/1", "x"),
        ("PUT", "/v1/kv/lock/%s" % new, "x"), ("PUT", "/v1/kv/app/a?cas=1", "x"), ("PUT", "/v1/kv/%s?flags=3" % new, "x"), ("PUT", "/v1/kv/lock/leader?release={session-n1}", "x"),
        ("PUT", "/v1/kv/lock/leader?acquire={session-n1}", "x"), ("PUT", "/v1/kv/app/a?acquire={session-ext-1}", "x"), ("PUT", "/v1/kv/app/a?release={session-ext-1}", "x"),
        ("DELETE", "/v1/kv/app/none"), ("DELETE", "/v1/kv/zz/none"), ("DELETE", "/v1/kv/app/none/?recurse"), ("DELETE", "/v1/kv/app?recurse&cas=0"),
        ("DELETE", "/v1/kv/app/sec?recurse"), ("DELETE", "/v1/kv/%s/?recurse" % new), ("DELETE", "/v1/kv/lock/new?recurse"), ("DELETE", "/v1/kv/app/b/c?cas=1"),
        ("PUT", "/v1/txn", [set_key("app/" + new)]), ("PUT", "/v1/txn", [set_key("app/" + new), set_key("zz")]), ("PUT", "/v1/txn", [set_key("lock/none", "delete")]),
        ("PUT", "/v1/txn", [set_key("app/none/", "delete-tree")]), ("PUT", "/v1/txn", [set_key("app/none", "check-not-exists")]),
        ("PUT", "/v1/txn", [set_key("app/a", "check-index", Index=1)]), ("PUT", "/v1/txn", [{"KV": {"Verb": "get", "Key": "zz"}}, set_key("app/" + new)]),
        ("PUT", "/v1/txn", [set_key("lock/leader", "check-session", Session="{session-n1}")]),
        ("PUT", "/v1/txn", [{"Node": {"Verb": "set", "Node": {"Node": new, "Address": "10.1.0.1"}}}]), ("PUT", "/v1/txn", [{"Node": {"Verb": "delete", "Node": {"Node": new}}}]),
        ("PUT", "/v1/txn", [{"Service": {"Verb": "set", "Node": "ext-1", "Service": {"Service": "web", "ID": "t" + new}}}]),
        ("PUT", "/v1/txn", [{"Service": {"Verb": "set", "Node": "ext-1", "Service": {"Service": "secret", "ID": "t" + new}}}]),
        ("PUT", "/v1/txn", [{"Check": {"Verb": "set", "Check": {"Node": "ext-1", "CheckID": "t" + new, "Status": "passing"}}}]),
        ("PUT", "/v1/txn", [{"Check": {"Verb": "set", "Check": {"Node": "ext-1", "CheckID": "s" + new, "Status": "passing", "ServiceID": "web-ext-1"}}}]),
        ("PUT", "/v1/catalog/register", node), ("PUT", "/v1/catalog/register", {"Node": new, "Address": "10.1.0.1"}),
        ("PUT", "/v1/catalog/register", {"Node": "web-" + new, "Address": "10.1.0.1"}),
        ("PUT", "/v1/catalog/register", dict(node, Service={"Service": "web", "ID": "c" + new})), ("PUT", "/v1/catalog/register", dict(node, Service={"Service": "web-" + new})),
        ("PUT", "/v1/catalog/register", dict(node, Service={"Service": "secret", "ID": "c" + new})),
        ("PUT", "/v1/catalog/register", dict(node, Service={"Service": "web", "ID": "db-ext-1"})),
        ("PUT", "/v1/catalog/register", dict(node, Check={"CheckID": "c" + new, "Status": "passing"})),
        ("PUT", "/v1/catalog/register", dict(node, Check={"CheckID": "d" + new, "Status": "passing", "ServiceID": "web-ext-1"})),
        ("PUT", "/v1/catalog/deregister", {"Node": new}), ("PUT", "/v1/catalog/deregister", {"Node": "ext-1", "ServiceID": "c" + new}),
        ("PUT", "/v1/catalog/deregister", {"Node": "ext-1", "CheckID": "c" + new}), ("PUT", "/v1/catalog/deregister", {"Node": "ext-2", "CheckID": "check-web-ext-2"}),
        ("PUT", "/v1/session/create", {"Node": "n1"}), ("PUT", "/v1/session/create", {"Node": "ext-2", "Checks": []}), ("PUT", "/v1/session/create", {}),
        ("PUT", "/v1/session/renew/{session-n1}"), ("PUT", "/v1/session/renew/{session-ext-2}"), ("PUT", "/v1/session/destroy/" + secret("none")),
        ("PUT", "/v1/session/renew/" + secret("none")),
        ("PUT", "/v1/event/fire/deploy"), ("PUT", "/v1/event/fire/deploy-web"), ("PUT", "/v1/event/fire/" + new),
        ("PUT", "/v1/coordinate/update", {"Node": "ext-1", "Coord": {"Vec": [0] * 8, "Error": 1, "Adjustment": 0, "Height": 1e-5}}),
        ("PUT", "/v1/coordinate/update", {"Node": "ext-2", "Coord": {"Vec": [0] * 8, "Error": 1, "Adjustment": 0, "Height": 1e-5}}),
        ("PUT", "/v1/agent/service/register", {"Name": "web", "ID": new}), ("PUT", "/v1/agent/service/register", {"Name": "secret", "ID": new}),
        ("PUT", "/v1/agent/service/register", {"Name": "web", "ID": "local-secret"}), ("PUT", "/v1/agent/service/deregister/" + new),
        ("PUT", "/v1/agent/service/deregister/local-none"), ("PUT", "/v1/agent/service/maintenance/local-web?enable=false"),
        ("PUT", "/v1/agent/service/maintenance/local-secret?enable=false"), ("PUT", "/v1/agent/service/maintenance/none?enable=false"), ("PUT", "/v1/agent/maintenance?enable=false"),
        ("PUT", "/v1/agent/check/register", {"Name": new, "TTL": "1h"}), ("PUT", "/v1/agent/check/register", {"Name": new, "TTL": "1h", "ServiceID": "local-web"}),
        ("PUT", "/v1/agent/check/register", {"Name": new, "TTL": "1h", "ServiceID": "local-secret"}),
        ("PUT", "/v1/agent/check/pass/service:local-web"), ("PUT", "/v1/agent/check/warn/service:local-secret"), ("PUT", "/v1/agent/check/pass/service:local-secret"),
        ("PUT", "/v1/agent/check/pass/local-disk"), ("PUT", "/v1/agent/check/fail/none"), ("PUT", "/v1/agent/check/update/service:local-web", {"Status": "passing"}),
        ("PUT", "/v1/agent/check/deregister/none"), ("PUT", "/v1/agent/token/default", {"Token": ""}), ("PUT", "/v1/agent/token/agent", {"Token": ""}),
        ("PUT", "/v1/agent/token/agent_master", {"Token": ""}), ("PUT", "/v1/agent/token/acl_token", {"Token": ""}), ("PUT", "/v1/agent/token/none", {"Token": ""}),
        ("PUT", "/v1/agent/reload"), ("PUT", "/v1/agent/leave"), ("PUT", "/v1/agent/force-leave/none"), ("PUT", "/v1/agent/join/127.0.0.1"),
        ("PUT", "/v1/operator/autopilot/configuration", {"CleanupDeadServers": True}), ("DELETE", "/v1/operator/raft/peer?address=10.9.9.9:8300"),
        ("PUT", "/v1/acl/bootstrap"), ("PUT", "/v1/acl/token", {"Description": new}), ("PUT", "/v1/acl/token", dict(of("web"), Local=True)),
        ("PUT", "/v1/acl/token", dict(of("none"))), ("PUT", "/v1/acl/token", {"ExpirationTTL": "1s"}),
        ("PUT", "/v1/acl/token", {"ServiceIdentities": [{"ServiceName": "web", "Datacenters": ["dc1"]}], "Local": True}),
        ("PUT", "/v1/acl/token/" + accessor("empty"), {"AccessorID": accessor("empty")}),
        ("PUT", "/v1/acl/token/%s/clone" % accessor("web"), {}), ("PUT", "/v1/acl/token/%s/clone" % accessor("deleted"), {}), ("DELETE", "/v1/acl/token/" + accessor("deleted")),
        ("DELETE", "/v1/acl/token/" + ANONYMOUS), ("PUT", "/v1/acl/policy", {"Name": "p" + new}), ("PUT", "/v1/acl/policy", {"Name": "web"}),
        ("PUT", "/v1/acl/policy", {"Name": "q" + new, "Rules": 'key "a" { policy = "reed" }'}),
        ("PUT", "/v1/acl/policy/{policy-web}", {"Name": "web", "Rules": POLICIES["web"]}), ("DELETE", "/v1/acl/policy/" + secret("none")), ("DELETE", "/v1/acl/policy/" + MANAGEMENT),
        ("PUT", "/v1/acl/role", {"Name": "r" + new, "ServiceIdentities": [{"ServiceName": "web"}]}), ("PUT", "/v1/acl/role", {"Name": "role-web"}),
        ("DELETE", "/v1/acl/role/" + secret("none")), ("DELETE", "/v1/acl/auth-method/none"), ("DELETE", "/v1/acl/binding-rule/" + secret("none")),
        ("PUT", "/v1/acl/binding-rule", {"AuthMethod": "none", "BindType": "role", "BindName": "x"}), ("POST", "/v1/acl/logout"),
        ("POST", "/v1/acl/login", {"AuthMethod": "none", "BearerToken": "x"}), ("PUT", "/v1/acl/create", {}), ("PUT", "/v1/snapshot", "junk"),
    ]


# -- where they differ -----------------------------------------------------------------------------------------------------
# Method and path (an expression that finds them), what Consul and coord say, and the reason. Each has to be of use.
ANY = object()
NOT_FOUND, DENIED = "403 ACL not found", "403 Permission denied"
MISTAKE, TAKEN = ("500", "400"), ("500", "409")
DIFFERENCES = [
    # what one is not to learn
    ("GET /v1/agent/(service|health/service/id)/none", ("404", DENIED), "IDs are not to be guessed"),
    ("PUT /v1/agent/service/(deregister|maintenance)/", ("500", DENIED), "the same"),
    ("PUT /v1/agent/check/(fail|deregister)/none", ("500", DENIED), "the same"),
    ("PUT /v1/catalog/deregister", ("500", DENIED), "the same"),
    (r'PUT /v1/txn \[{"KV": {"Verb": "get", "Key": "none"}}\]', ("409", "200"), "a key that is not there answers like one that is hidden"),
    ('PUT /v1/txn .*"Service": {"Verb": "get"', (["web", "web-ext-1"], []), "a service needs node:read of its node everywhere"),
    ('PUT /v1/txn .*"Check": {"Verb": "get"', (["check-secret-ext-2", "ext-2", "secret", "secret-ext-2"], []), "a check, too"),
    ("GET /v1/agent/health/service/", (["local-disk"], []), "checks of the node need node:read"),
    ("GET /v1/coordinate/datacenters", ("200", NOT_FOUND), "coordinates of servers need node:read, as all coordinates do"),
    # where Consul takes one thing for another
    ("GET /v1/catalog/node/", ANY, "Consul judges the services of a node by their IDs in place of their names"),
    ('PUT /v1/txn .*"Check": {"Verb": "set"', ("409", "200"), "in a transaction Consul takes a service's check for the node's, unless ServiceName is given"),
    ('PUT /v1/txn .*"check-not-exists"', ("409", "200"), "it reads: key:read will do. Consul wants write"),
    # what is as wanted is no error
    ("PUT /v1/(agent/(service|check)|catalog)/deregister", ("500", "200"), "it is gone, as wanted"),
    ("PUT /v1/agent/service/maintenance/none", ("500", "404"), "the status of before access control"),
    # a client's mistake is no fault of the server, and nobody's secret
    ("PUT /v1/event/fire/", ("500", NOT_FOUND), "a token that is not there is 403 everywhere"),
    ("DELETE /v1/kv/app.recurse&cas=0", ("400", NOT_FOUND), "who asks is looked at before what"),
    ("GET /v1/acl/token/self", (NOT_FOUND, "200"), "who asks without a token learns that it counts as the anonymous one"),
    ('PUT /v1/acl/token {"Policies"', MISTAKE, "there is no such policy"),
    ('PUT /v1/acl/token {"ExpirationTTL"', MISTAKE, "too short"),
    ('PUT /v1/acl/token {"ServiceIdentities"', MISTAKE, "a local token"),
    ("DELETE /v1/acl/(token|policy)/00000000-", MISTAKE, "the built-in one stays"),
    ('PUT /v1/acl/policy {"Name": "web"}', TAKEN, "the name"),
    ('PUT /v1/acl/role {"Name": "role-web"}', TAKEN, "the name"),
    ('PUT /v1/acl/policy {"Name": "q', MISTAKE, "a level that is none"),
    ("PUT /v1/acl/binding-rule", MISTAKE, "there is no such method"),
    ("PUT /v1/acl/create", (DENIED, "410"), "tokens of before Consul 1.4"),
    ("PUT /v1/acl/create", ("200", "410"), "the same"),
    ("PUT /v1/acl/create", (NOT_FOUND, "410"), "the same"),
    ("PUT /v1/snapshot", MISTAKE, "no backup"),
]


# Requests that are made only with tokens that may not: Consul's -dev forgets its services with a reload, and others would end the test.
DENIED_ONLY = ("/v1/agent/reload", "/v1/agent/leave", "/v1/agent/join/127.0.0.1")


ASIDE = concurrent.futures.ThreadPoolExecutor(1)


def kind(status, text):
    """Two answers with 403 that clients tell apart."""
    return "%d %s" % (status, next((w for w in ("ACL not found", "Permission denied") if w in text), "")) if status == 403 else str(status)


def compare(consul, coord, request, name, used):
    method, path, *body = request
    body = body[0] if body else None
    token = secret(name) if name != "root" else ROOT
    asked = ASIDE.submit(consul.ask, method, path, body, token)               # both at the same time
    (of_coord, ours), (of_consul, theirs) = coord.ask(method, path, body, token), asked.result()
    says = kind(of_consul, theirs), kind(of_coord, ours)
    seen = (consul.visible(path, theirs), coord.visible(path, ours)) if of_consul == of_coord == 200 else (set(), set())
    if says[0] == says[1] and seen[0] == seen[1]:
        return None
    what = "%s %s %s" % (method, path, json.dumps(body) if body is not None else "")
    for n, (pattern, wanted, reason) in enumerate(DIFFERENCES):
        if re.match(pattern, what) and (wanted is ANY or wanted in (says, (sorted(seen[0] - seen[1]), sorted(seen[1] - seen[0])))):
            used.add(n)
            return None
    return "%-12s %s: consul %s %s, coord %s %s%s" % (name, what, says[0], sorted(seen[0] - seen[1]), says[1], sorted(seen[1] - seen[0]),
                                                      "\n    " + theirs[:150].strip() + "\n    " + ours[:200].strip() if says[0] != says[1] else "")


def may_not(consul, token):
    status, text = consul.ask("POST", "/v1/internal/acl/authorize", [{"Resource": "agent", "Segment": "n1", "Access": "write"}], token)
    return status == 403 or not json.loads(text)[0]["Allow"]


def round_of(policy, count, dice, used):
    """Each request with so many tokens, drawn; then all reads by management, who sees what the writes have left."""
    consul, coord = Consul(policy), Coord(policy)
    for peer in (consul, coord):
        until(peer.what + " answers", peer.ready, 30)
        fill(peer)
    faults, asked = [], 0
    for request in reads():
        for name in dice.sample(sorted(TOKENS), count):
            faults.append(compare(consul, coord, request, name, used))
            asked += 1
    for n, _ in enumerate(writes(0)):
        for m, name in enumerate(dice.sample(sorted(TOKENS), count)):
            method, path, *body = writes(1000 * n + m)[n]
            if path in DENIED_ONLY and not may_not(consul, secret(name)):
                continue
            faults.append(compare(consul, coord, (method, path, *body), name, used))
            asked += 1
            if body and isinstance(body[0], dict) and body[0].get("ID") == "local-secret":
                local_services(consul)
                local_services(coord)
    for request in reads():
        faults.append(compare(consul, coord, request, "root", used))
        asked += 1
    print("     default_policy=%s, seed %d: %d requests" % (policy, SEED, asked), flush=True)
    return [fault for fault in faults if fault]


def answers_agree():
    dice, used = random.Random(SEED), set()
    faults = round_of("deny", len(TOKENS), dice, used) + round_of("allow", 2, dice, used)
    check(not faults, "%d differ:\n%s" % (len(faults), "\n".join(faults)))
    check(len(used) == len(DIFFERENCES), "not of use: %s" % [d[0] for n, d in enumerate(DIFFERENCES) if n not in used])


if __name__ == "__main__":
    if not CONSUL or not os.path.exists(CONSUL):
        print("skipped: no consul program (COORD_CONSUL)")
        sys.exit(77)
    run([answers_agree])
