"""Access control, attacked: a token with few rights sees no more by lists, waits, streams, history, transactions, kept answers or DNS
than by plain reads, on the server and through a client agent, and writes nothing that its rules do not name."""
import base64, http.client, json, os, random, socket, sys, threading, time, uuid
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
/v1/agent/quota/@/owner /v1/rollout/@ /v1/rollout/@/status /v1/rollout/@/history /v1/rollout/@/schema /v1/event/list?name=@
/v1/agent/service/@-s1 /v1/agent/service/@-c1 /v1/agent/health/service/id/@-s1 /v1/agent/health/service/name/@ /v1/agent/check/explain/service:@-s1
/v1/failover/@ /v1/failover/@/explain /v1/session/info/$ /v1/session/explain/$ /v1/election/@ /v1/fence/@ /v1/barrier/@ /v1/hazard/@ /v1/phaser/@
/v1/rollout/@?id=x&node=s1 /v1/lease/% /v1/lock/@?transitions /v1/lock/@?session=$""".split()


def nothing_hidden_is_shown():
    for agent in both:
        for token in (few, None):
            for path in LISTS:
                if path == "/v1/agent/monitor" and token == ROOT:
                    continue
                status, headers, answer = agent.call("GET", path, token=token)
                text = str(answer) + str(headers)
                check(NAME not in text and VALUE not in text and b64(VALUE)[:8] not in text and session not in text, "%s %s: %d %s" % (agent.name, path, status, text))
                check(status < 500, "%s %s: %d %s" % (agent.name, path, status, text))
            for pattern in ONE:
                path = pattern.replace("@", NAME).replace("$", session).replace("%", lease)
                status, headers, answer = agent.call("GET", path, token=token)
                text = str(answer) + str(headers)
                check(VALUE not in text and b64(VALUE)[:8] not in text, "%s %s: %d %s" % (agent.name, path, status, text))
                check(status < 500 or "can be picked: there are none" in answer, "%s %s: %d %s" % (agent.name, path, status, text))
                quiet = status in (403, 404) or answer in ([], None, {})
                if os.environ.get("SHOW") or not quiet:
                    print("    ", agent.name, path, status, text[:160])
                # a thing that is there answers like one that is not
                absent = pattern.replace("@", "zqabsent").replace("$", session[:-4] + ("0000" if session[-4:] != "0000" else "1111")).replace("%", lease[:-4] + ("0000" if lease[-4:] != "0000" else "1111"))
                other = agent.call("GET", absent, token=token)
                if other[0] != status:
                    print("   DIFF ", agent.name, path, status, str(answer)[:150], other[0], str(other[2])[:150])


def the_few_rights_count():
    for agent in both:
        check(agent.call("GET", "/v1/kv/web/a?raw", token=few)[2] == "open2", "its key")
        check([k["Key"] for k in agent.call("GET", "/v1/kv/?recurse", token=few)[2]] == ["web/a"], "its keys alone")
        check([i["ServiceID"] for i in agent.call("GET", "/v1/catalog/service/web", token=few)[2]], "its service")


def stories():
    setup()


if __name__ == "__main__":
    setup()
    run([the_few_rights_count, nothing_hidden_is_shown])
