"""Agents with access control: whose tokens decide over their services and checks, and on whose behalf these are in the catalog."""
import http.client, json, os, stat, time
from coordtest import Agent, check, configuration, run, until

ROOT = "11111111-2222-4333-8444-555555555555"
MASTER = "99999999-2222-4333-8444-555555555555"
WRONG = "00000000-2222-4333-8444-555555555555"


def by(token):
    return {"X-Consul-Token": token} if token else {}


def ask(agent, token, method, path, body=None):
    status, headers, answer = agent.request(method, path, body, headers=by(token))
    return status, answer.decode()


def seen(agent, token, path):
    """What the token gets as JSON; None: it is refused, or there is no leader yet."""
    try:
        status, answer = ask(agent, token, "GET", path)
    except OSError:
        return None
    return json.loads(answer) if status == 200 and answer else None


def started(agent, within=30):
    agent.start(wait=False)
    until("the node in the catalog, for the management token",
          lambda: any(n["Node"] == agent.name for n in seen(agent, ROOT, "/v1/catalog/nodes?stale") or []), within)
    return agent


def acl(tokens={}, **keys):
    given = dict({"initial_management": ROOT, "agent_master": MASTER}, **tokens)
    return configuration(acl=dict({"enabled": True, "default_policy": "deny", "enable_token_persistence": True, "tokens": given}, **keys))


def instances(agent, name):
    return [i["ServiceID"] for i in seen(agent, ROOT, "/v1/catalog/service/" + name) or []]


def private(path):
    return stat.S_IMODE(os.stat(path).st_mode) == 0o600


def a_server_decides_by_tokens_and_keeps_them():
    agent = started(Agent(acl()))
    body = {"Name": "web", "Check": {"TTL": "1h", "Status": "passing"}}
    check(ask(agent, None, "PUT", "/v1/agent/service/register", body)[0] == 403, "nobody may register")
    status, text = ask(agent, WRONG, "PUT", "/v1/agent/service/register", body)
    check(status == 403 and text.startswith("ACL not found"), text)
    check(ask(agent, ROOT, "PUT", "/v1/agent/service/register", body)[0] == 200, "the management token may")
    until("the service in the catalog", lambda: instances(agent, "web") == ["web"])
    check(seen(agent, None, "/v1/agent/services") == {} and seen(agent, None, "/v1/agent/checks") == {}, "nobody sees it")
    check(seen(agent, None, "/v1/agent/members") == [], "nor the members")
    check(list(seen(agent, ROOT, "/v1/agent/services")) == ["web"], "the management token does")
    check(ask(agent, None, "GET", "/v1/agent/service/web")[0] == 403, "one service")
    check(ask(agent, None, "GET", "/v1/agent/service/none")[0] == 403, "and one that is not there")
    check(ask(agent, None, "GET", "/v1/agent/self")[0] == 403, "the agent itself")

    # the agent's master token counts for this agent alone
    check(ask(agent, MASTER, "GET", "/v1/agent/self")[0] == 200, "the agent's master token")
    check(seen(agent, MASTER, "/v1/agent/services") == {}, "has nothing else")
    check(ask(agent, MASTER, "PUT", "/v1/agent/service/deregister/web")[0] == 403, "nor may it write")

    # the default token counts at once, and again after a restart
    check(ask(agent, None, "PUT", "/v1/agent/token/default", {"Token": ROOT})[0] == 403, "it takes agent:write")
    check(ask(agent, MASTER, "PUT", "/v1/agent/token/default", {"Token": ROOT})[0] == 200, "set")
    check(list(seen(agent, None, "/v1/agent/services")) == ["web"], "requests without a token have it")
    kept = os.path.join(agent.data, "acl/agent-tokens.json")
    check(private(kept) and json.load(open(kept)) == {"default": ROOT}, "kept")
    definitions = os.path.join(agent.data, "local/definitions")
    check(private(definitions) and ROOT in open(definitions).read(), "the service is kept with its token")
    agent.kill()
    started(agent)
    check(list(seen(agent, None, "/v1/agent/services")) == ["web"], "after a restart")
    until("the service in the catalog", lambda: instances(agent, "web") == ["web"])
    check(ask(agent, None, "PUT", "/v1/agent/token/default", {"Token": ""})[0] == 200, "taken back")
    check(seen(agent, None, "/v1/agent/services") == {}, "at once")
    check(json.load(open(kept)) == {}, "and from the file")
    check(ROOT not in agent.log() and MASTER not in agent.log(), "no secret is logged")
    check(agent.stop()[0] == 0, "a clean end")


def what_the_servers_deny_holds_up_nobody():
    services = configuration(services=[{"name": "bad", "token": WRONG}, {"name": "good", "token": ROOT, "check": {"ttl": "1h"}},
                                       {"name": "other"}])
    server = started(Agent(acl(tokens={"default": ROOT}), services, name="s1"))
    agents = [server]
    client = Agent("-retry-join=" + server.ip, acl(tokens={"agent": ROOT}), services, server=False, name="c1")
    agents.append(started(client))
    for agent in agents:
        until("what may be written is", lambda: len(instances(agent, "good")) == len(instances(agent, "other")) == 2)
        lines = lambda: [l for l in agent.log().split("\n") if "denies a service" in l]
        until("the denial is logged", lambda: len(lines()) == 1)
        check("id=bad" in lines()[0] and "ACL not found" in lines()[0] and WRONG not in lines()[0], lines()[0])
        check(instances(agent, "bad") == [], "what is denied is not there")
        # registered anew with a good token it goes at once
        check(ask(agent, ROOT, "PUT", "/v1/agent/service/register", {"Name": "bad"})[0] == 200, "registered")
        until("it is there", lambda: instances(agent, "bad") == ["bad"])
        check(ask(agent, ROOT, "PUT", "/v1/agent/service/deregister/bad")[0] == 200, "deregistered")
        until("it is gone", lambda: instances(agent, "bad") == [])
        check(len(lines()) == 1, "logged once: %r" % lines())


def an_agent_without_rights_says_so_once():
    server = started(Agent(acl(), name="s1"))
    client = Agent("-retry-join=" + server.ip, acl(), server=False, name="c1").start(wait=False)
    lines = lambda: [l for l in client.log().split("\n") if "lease of this node is denied" in l]
    until("the agent says so", lambda: len(lines()) == 1)
    check("node:write" in lines()[0], lines()[0])
    check([n["Node"] for n in seen(server, ROOT, "/v1/catalog/nodes")] == ["s1"], "the node is not in the catalog")
    check(ask(client, ROOT, "PUT", "/v1/agent/token/agent", {"Token": ROOT})[0] == 200, "its token is set")
    until("the node is there", lambda: len(seen(server, ROOT, "/v1/catalog/nodes") or []) == 2, within=20)
    check(len(lines()) == 1, "%r" % lines())


def an_agent_whose_token_nobody_knows_does_not_ask_in_a_loop():
    server = started(Agent(acl(), name="s1"))
    client = Agent("-retry-join=" + server.ip, acl(tokens={"agent": WRONG}), server=False, name="c1").start(wait=False)
    until("its lease is denied", lambda: "lease of this node is denied" in client.log())
    before = client.cpu_seconds()
    time.sleep(4)  # a window to measure over, not a wait for something
    check(client.cpu_seconds() - before < 0.5, "it is nearly idle")


def granted(agent, name, rules):
    """A new token with these rules: its accessor and its secret."""
    status, text = ask(agent, ROOT, "PUT", "/v1/acl/policy", {"Name": name, "Rules": rules})
    check(status == 200, text)
    status, text = ask(agent, ROOT, "PUT", "/v1/acl/token", {"Policies": [{"Name": name}]})
    check(status == 200, text)
    return json.loads(text)["AccessorID"], json.loads(text)["SecretID"]


def a_token_counts_for_what_it_may_and_as_long_as_it_is_there():
    agent = started(Agent(acl()))
    accessor, web = granted(agent, "web", 'service "web" { policy = "write" } node_prefix "" { policy = "read" }')
    check(ask(agent, web, "PUT", "/v1/agent/service/register", {"Name": "db"})[0] == 403, "another name")
    body = {"Name": "web", "ID": "web1", "Check": {"TTL": "1h"}}
    check(ask(agent, web, "PUT", "/v1/agent/service/register", body)[0] == 200, "its own name")
    until("the service in the catalog", lambda: instances(agent, "web") == ["web1"])
    check(list(seen(agent, web, "/v1/agent/services")) == ["web1"], "it sees it")
    check(ask(agent, web, "PUT", "/v1/agent/check/pass/service:web1")[0] == 200, "it reports")
    reader, may_read = granted(agent, "reader", 'agent_prefix "" { policy = "read" }')

    c = http.client.HTTPConnection(agent.ip, 8500, timeout=60)
    c.request("GET", "/v1/agent/monitor?loglevel=debug", headers=by(may_read))
    monitor = c.getresponse()
    check(monitor.status == 200, "the log's lines as they come")
    for gone in (reader, accessor):
        check(ask(agent, ROOT, "DELETE", "/v1/acl/token/" + gone)[0] == 200, "the tokens are deleted")
    monitor.read()                       # to its end
    c.close()
    until("the token is not known", lambda: ask(agent, web, "PUT", "/v1/agent/check/warn/service:web1")[0] == 403)
    check(ask(agent, ROOT, "PUT", "/v1/agent/check/warn/service:web1")[0] == 200, "a change")
    lines = lambda: [l for l in agent.log().split("\n") if "denies a check" in l and "id=service:web1" in l]
    until("the catalog does not take it for a token that is gone", lambda: len(lines()) == 1)
    check(ask(agent, ROOT, "PUT", "/v1/agent/service/register", body)[0] == 200, "another token takes it over")
    state = lambda: [c["Status"] for c in seen(agent, ROOT, "/v1/health/checks/web") or []]
    until("what was denied is there", lambda: state() == ["warning"])


def watches_ask_as_the_default_token():
    agent = Agent(acl())
    out = os.path.join(agent.dir, "out")
    agent.args.append(configuration(watches=[
        {"type": "key", "key": "open", "args": ["sh", "-c", "cat >> %s.default" % out]},
        {"type": "key", "key": "open", "token": ROOT, "args": ["sh", "-c", "cat >> %s.own" % out]}]))
    text = lambda which: open(out + which).read() if os.path.exists(out + which) else ""
    started(agent)
    check(ask(agent, ROOT, "PUT", "/v1/kv/open", "v")[0] == 200, "a key")
    until("the watch with a token of its own sees it", lambda: '"open"' in text(".own"))
    check('"open"' not in text(".default"), "the other one does not")
    check(ask(agent, MASTER, "PUT", "/v1/agent/token/default", {"Token": ROOT})[0] == 200, "until there is a default token")
    until("then it does", lambda: '"open"' in text(".default"), within=30)


if __name__ == "__main__":
    run([a_server_decides_by_tokens_and_keeps_them, what_the_servers_deny_holds_up_nobody, an_agent_without_rights_says_so_once,
         an_agent_whose_token_nobody_knows_does_not_ask_in_a_loop,
         a_token_counts_for_what_it_may_and_as_long_as_it_is_there, watches_ask_as_the_default_token])
