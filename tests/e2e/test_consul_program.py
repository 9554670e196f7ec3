"""The consul command line at client agents: members, catalog, keys, locks, watches, services, maintenance, access control.

Needs a consul program (its path in COORD_CONSUL or CONSUL_BIN).
"""
import json, os, shutil, subprocess, sys, tempfile, time
from coordtest import SLOW, Agent, Cluster, check, configuration, run, until
from web_tokens import KEYS, PUBLIC, web_token

CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")


def environment(agent):
    return dict(os.environ, CONSUL_HTTP_ADDR="http://%s:8500" % agent.ip)


def consul(agent, *args, code=0, stdin=None, token=None):
    r = subprocess.run([CONSUL, *args], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60 * SLOW, env=dict(environment(agent), **({"CONSUL_HTTP_TOKEN": token} if token else {})))
    check(r.returncode == code, "consul %s: exit %d, wanted %d: %s%s" % (" ".join(args), r.returncode, code, r.stdout, r.stderr))
    return r.stdout + r.stderr


def rows(text):
    lines = [line.split() for line in text.splitlines() if line]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


class Background:
    """A consul program that goes on; what it says."""

    def __init__(self, agent, *args):
        self.file = tempfile.TemporaryFile()
        self.proc = subprocess.Popen([CONSUL, *args], stdin=subprocess.DEVNULL, stdout=self.file, stderr=self.file, env=environment(agent))

    def said(self):
        return os.pread(self.file.fileno(), 1 << 20, 0).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(20)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()


def who_is_there(cluster, one, two):
    found = rows(consul(one, "members"))
    kinds = {m["Node"]: (m["Status"], m["Type"]) for m in found}
    check(kinds == {**{s.name: ("alive", "server") for s in cluster.servers}, **{a.name: ("alive", "client") for a in (one, two)}}, "%r" % found)
    check(sorted(n["Node"] for n in rows(consul(two, "catalog", "nodes"))) == ["a1", "a2", "s1", "s2", "s3"], "catalog nodes")
    check(consul(one, "catalog", "datacenters") == "dc1\n", "catalog datacenters")
    check("server = false" in consul(one, "info").replace("\t", ""), "info")


def keys(one, two):
    consul(one, "kv", "put", "cli/a", "one")
    consul(one, "kv", "put", "cli/b", "-", stdin="two\n")
    check(consul(two, "kv", "get", "cli/a") == "one\n" and consul(two, "kv", "get", "-recurse", "cli/") == "cli/a:one\ncli/b:two\n\n", "get")
    check(consul(two, "kv", "get", "-keys", "cli/") == "cli/a\ncli/b\n", "keys")
    exported = consul(two, "kv", "export", "cli/")
    consul(one, "kv", "delete", "-recurse", "cli/")
    consul(two, "kv", "get", "cli/a", code=1)
    consul(two, "kv", "import", "-", stdin=exported)
    check(consul(one, "kv", "get", "cli/b") == "two\n\n", "imported")
    index = next(line.split()[1] for line in consul(one, "kv", "get", "-detailed", "cli/a").splitlines() if line.startswith("ModifyIndex"))
    consul(two, "kv", "put", "-cas", "-modify-index=" + index, "cli/a", "2")
    consul(one, "kv", "put", "-cas", "-modify-index=" + index, "cli/a", "3", code=1)
    check(consul(one, "kv", "get", "cli/a") == "2\n", "check and set")


def locks(cluster, one, two):
    """Held through one agent, waited for through another, over the loss of the leading server."""
    with Background(one, "lock", "cli/lock", "echo first; exec sleep 300") as first:
        until("the first has it", lambda: "first" in first.said())
        found = one.get("/v1/kv/cli/lock/.lock")[2][0]
        check(found["Flags"] == 3304740253564472344 and found["Session"], "%r" % found)
        session = two.get("/v1/session/info/" + found["Session"])[2][0]
        check(session["Node"] == "a1" and session["TTL"] == "15s", "%r" % session)
        with Background(two, "lock", "cli/lock", "echo second") as second:
            until("the second waits", lambda: any(s["Node"] == "a2" for s in two.get("/v1/session/list")[2]))
            leader = cluster.leader()
            leader.kill()
            until("another leads", lambda: any(two.get("/v1/status/leader")[2] == s.ip + ":8300" for s in cluster.servers if s is not leader))
            leader.start(wait=False)
            check(two.get("/v1/kv/cli/lock/.lock")[2][0]["Session"] == found["Session"], "the first still has it")
            check(first.proc.poll() is None and second.proc.poll() is None and "second" not in second.said(), "%r %r" % (first.said(), second.said()))
            first.proc.terminate()
            until("the second gets it", lambda: "second" in second.said(), 30)
            check(second.proc.wait(20) == 0, second.said())
    until("all is tidied up", lambda: one.get("/v1/kv/cli/lock/.lock")[0] == 404 and one.get("/v1/session/list")[2] == [])
    with Background(one, "lock", "-n=2", "cli/semaphore", "echo in; exec sleep 300") as first, \
            Background(two, "lock", "-n=2", "cli/semaphore", "echo in; exec sleep 300") as second:
        until("two hold a semaphore", lambda: "in" in first.said() and "in" in second.said())
        with Background(two, "lock", "-n=2", "-timeout=1s", "cli/semaphore", "echo in") as third:
            check(third.proc.wait(30) != 0 and "in\n" not in third.said(), "a third does not: %r" % third.said())


def watches(one, two):
    consul(one, "kv", "put", "cli/watched", "before")
    with Background(two, "watch", "-type=key", "-key=cli/watched", "cat") as key, \
            Background(two, "watch", "-type=service", "-service=shop", "-passingonly=true", "cat") as service, \
            Background(two, "watch", "-type=services", "cat") as services, \
            Background(two, "watch", "-type=checks", "-state=critical", "cat") as checks:
        until("the first values", lambda: "YmVmb3Jl" in key.said() and "[]" in service.said() and "consul" in services.said())
        consul(one, "kv", "put", "cli/watched", "after")
        until("a key's change", lambda: "YWZ0ZXI=" in key.said())
        consul(one, "services", "register", "-name=shop", "-port=9001", "-tag=v1", "-meta=team=x")
        until("a new service", lambda: '"shop"' in service.said() and '"shop":["v1"]' in services.said().replace(" ", ""))
        consul(one, "maint", "-enable", "-service=shop", "-reason=cleaning")
        until("its trouble", lambda: "cleaning" in checks.said())
        until("which leaves nobody", lambda: service.said().rstrip().endswith("[]"))
        check("cleaning" in consul(one, "maint"), "maint")
        consul(one, "maint", "-disable", "-service=shop")
        until("it is back", lambda: service.said().rstrip().endswith("}]"))
        check("shop" in consul(two, "catalog", "services", "-tags"), "catalog services")
        check([n["Node"] for n in rows(consul(two, "catalog", "nodes", "-service=shop"))] == ["a1"], "catalog nodes -service")
        consul(one, "services", "deregister", "-id=shop")
        until("it is gone", lambda: "shop" not in consul(two, "catalog", "services"))


def everyday_work():
    cluster = Cluster(3).start()
    one, two = cluster.agent("a1").start(), cluster.agent("a2").start()
    who_is_there(cluster, one, two)
    keys(one, two)
    locks(cluster, one, two)
    watches(one, two)


# -- access control --------------------------------------------------------------------------------------------------------
MASTER = "99999999-2222-4333-8444-555555555555"


class Secured:
    """`consul acl ... -format=json` with a token."""

    def __init__(self, agent, token):
        self.agent, self.token = agent, token

    def say(self, *args, **kw):
        return consul(self.agent, *args, token=self.token, **kw)

    def refused(self, text, *args):
        said = self.say(*args, code=1)
        check("403 (" + text in said, "%s: %s" % (args, said))

    def acl(self, *args, **kw):
        return json.loads(self.say("acl", *args, "-format=json", **kw))


def policies_roles_tokens(root):
    made = root.acl("policy", "create", "-name=app", "-description=d", "-valid-datacenter=dc1", "-rules=-", stdin='key_prefix "app/" { policy = "write" }')
    check(made["Name"] == "app" and made["Datacenters"] == ["dc1"] and root.acl("policy", "read", "-name=app") == made, "%r" % made)
    changed = root.acl("policy", "update", "-id=" + made["ID"][:10], "-description=e")
    check(changed["Description"] == "e" and changed["Rules"] == made["Rules"], "merged: %r" % changed)
    check({"app", "global-management"} <= {p["Name"] for p in root.acl("policy", "list")}, "policies")
    role = root.acl("role", "create", "-name=apps", "-policy-name=app", "-service-identity=web:dc1")
    check(role["Policies"] == [{"ID": made["ID"], "Name": "app"}] and role["ServiceIdentities"] == [{"ServiceName": "web", "Datacenters": ["dc1"]}], "%r" % role)
    role = root.acl("role", "update", "-id=" + role["ID"], "-description=r", "-node-identity=db:dc1")
    check(len(role["Policies"]) == len(role["ServiceIdentities"]) == len(role["NodeIdentities"]) == 1, "merged: %r" % role)
    check(root.acl("role", "read", "-name=apps") == role and [r["Name"] for r in root.acl("role", "list")] == ["apps"], "roles")
    token = root.acl("token", "create", "-description=t", "-role-name=apps", "-local", "-expires-ttl=1h")
    check(token["Roles"] == [{"ID": role["ID"], "Name": "apps"}] and token["Local"] and token["ExpirationTime"], "%r" % token)
    own = Secured(root.agent, token["SecretID"])
    check(own.acl("token", "read", "-self")["AccessorID"] == token["AccessorID"], "itself")
    own.say("kv", "put", "app/x", "1")
    own.refused("Permission denied", "kv", "put", "other", "1")
    token = root.acl("token", "update", "-id=" + token["AccessorID"], "-description=u", "-policy-name=app", "-merge-roles")
    check(len(token["Roles"]) == len(token["Policies"]) == 1 and token["Description"] == "u", "%r" % token)
    clone = root.acl("token", "clone", "-id=" + token["AccessorID"], "-description=c")
    check(clone["Roles"] == token["Roles"] and {token["AccessorID"], clone["AccessorID"]} <= {t["AccessorID"] for t in root.acl("token", "list")}, "%r" % clone)
    root.say("acl", "token", "delete", "-id=" + clone["AccessorID"])
    Secured(root.agent, clone["SecretID"]).refused("ACL not found", "acl", "token", "read", "-self")
    translated = root.say("acl", "translate-rules", "-", stdin='key "a" { policy = "read" }')          # which the program formats anew
    check(translated.split() == 'key_prefix "a" { policy = "read" }'.split(), translated)
    said = root.say("acl", "policy", "create", "-name=typo", '-rules=key "a" { policy = "reed" }', code=1)
    check("reed" in said, said)
    return token["SecretID"]


def tokens_of_agents(root, some):
    """The agent's default token counts for those who show none."""
    check("403" in consul(root.agent, "kv", "get", "app/x", code=1), "nobody may")
    root.say("acl", "set-agent-token", "agent", some)
    root.say("acl", "set-agent-token", "master", MASTER)
    check(json.loads(root.agent.request("GET", "/v1/agent/self", headers={"X-Consul-Token": MASTER})[2])["Config"], "the master token counts here")
    root.say("acl", "set-agent-token", "default", some)
    check(consul(root.agent, "kv", "get", "app/x") == "1\n", "the default token")
    root.say("acl", "set-agent-token", "default", "")
    check("403" in consul(root.agent, "kv", "get", "app/x", code=1), "taken back")


def logins(root):
    config = os.path.join(KEYS, "method.json")
    with open(config, "w") as f:
        json.dump({"BoundIssuer": "us", "JWTValidationPubKeys": [PUBLIC], "ClaimMappings": {"sub": "name"}}, f)
    method = root.acl("auth-method", "create", "-name=sso", "-type=jwt", "-max-token-ttl=5m", "-config=@" + config)
    check(method["Name"] == "sso" and method["MaxTokenTTL"] == "5m0s" and method["Config"]["BoundIssuer"] == "us", "%r" % method)
    changed = root.acl("auth-method", "update", "-name=sso", "-description=x")
    check(changed["Description"] == "x" and changed["Config"] == method["Config"], "%r" % changed)
    check(root.acl("auth-method", "read", "-name=sso")["Description"] == "x" and [m["Name"] for m in root.acl("auth-method", "list")] == ["sso"], "methods")
    rule = root.acl("binding-rule", "create", "-method=sso", "-bind-type=role", "-bind-name=apps", "-selector=value.name==ann")
    # the program writes -bind-type=service unless it is told otherwise
    changed = root.acl("binding-rule", "update", "-id=" + rule["ID"], "-description=y", "-bind-type=role")
    check(changed["Description"] == "y" and changed["Selector"] == rule["Selector"] and root.acl("binding-rule", "read", "-id=" + rule["ID"]) == changed, "%r" % changed)
    check([r["ID"] for r in root.acl("binding-rule", "list", "-method=sso")] == [rule["ID"]], "rules")
    bearer, sink, now = os.path.join(KEYS, "bearer"), os.path.join(KEYS, "sink"), int(time.time())

    def login(name, code=0):
        with open(bearer, "w") as f:
            f.write(web_token(iss="us", sub=name, iat=now, exp=now + 300))
        return consul(root.agent, "login", "-method=sso", "-bearer-token-file=" + bearer, "-token-sink-file=" + sink, "-meta=host=h1", code=code)
    check("403" in login("bob", code=1) and not os.path.exists(sink), "no rule fits")
    login("ann")
    with open(sink) as f:
        own = Secured(root.agent, f.read())
    token = own.acl("token", "read", "-self")
    check([r["Name"] for r in token.get("Roles", [])] == ["apps"], "%r %r" % (token, changed))
    check(own.say("kv", "get", "app/x") == "1\n", "logged in")
    root.refused("Permission denied", "logout")          # no login made it
    own.say("logout")
    own.refused("ACL not found", "acl", "token", "read", "-self")
    root.say("acl", "binding-rule", "delete", "-id=" + rule["ID"])
    root.say("acl", "auth-method", "delete", "-name=sso")
    root.say("acl", "role", "delete", "-name=apps")
    root.say("acl", "policy", "delete", "-name=app")
    check(root.acl("auth-method", "list") == root.acl("role", "list") == [], "all is gone")


def access_control():
    agent = Agent(configuration(acl={"enabled": True, "default_policy": "deny"}), dev=True).start(wait=False)

    def bootstrap():
        try:
            return json.loads(consul(agent, "acl", "bootstrap", "-format=json"))
        except AssertionError as error:                          # before there is a leader, and its key for the secrets
            return check("500" in str(error) or "connection refused" in str(error), str(error))
    first = until("the first token", bootstrap, 30)
    check(first["Policies"][0]["Name"] == "global-management", "%r" % first)
    check("no longer allowed" in consul(agent, "acl", "bootstrap", code=1), "once")
    root = Secured(agent, first["SecretID"])
    some = policies_roles_tokens(root)
    tokens_of_agents(root, some)
    logins(root)
    check(first["SecretID"] not in agent.log() and some not in agent.log(), "no secret is logged")


if __name__ == "__main__":
    if not CONSUL or not os.path.exists(CONSUL):
        print("skipped: no consul program (COORD_CONSUL)")
        sys.exit(77)
    run([everyday_work, access_control])
