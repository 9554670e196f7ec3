"""Access control: tokens, policies and roles over the API and by the command line, on servers and on a client agent."""
import json, os, shutil, subprocess, tempfile, time, uuid
from coordtest import COORD, SLOW, Agent, check, configuration, run, until
from web_tokens import KEYS, PUBLIC, web_token

CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")
if not CONSUL or not os.path.exists(CONSUL):
    CONSUL = None
    print("     no consul program (COORD_CONSUL): only our own command line is driven")
PROGRAMS = [COORD] + ([CONSUL] if CONSUL else [])
MASTER = "11111111-aaaa-4bbb-8ccc-222222222222"
MANAGEMENT = "00000000-0000-0000-0000-000000000001"
ANONYMOUS = "00000000-0000-0000-0000-000000000002"


def acl(**keys):
    return configuration(acl=dict({"enabled": True, "default_policy": "deny"}, **keys))


class Secured(Agent):
    """A server with access control. The harness itself asks without a token."""

    def __init__(self, *args, token=None, **kw):
        super().__init__(*args, **kw)
        self.token = token

    def wait_leader(self, within=15):
        def ready():
            if self.proc.poll() is not None:
                raise AssertionError("coord exited with %s:\n%s" % (self.proc.returncode, self.log()[-3000:]))
            try:
                return json.loads(self.request("GET", "/v1/status/leader", timeout=2)[2]) != ""
            except (OSError, ValueError):
                return False
        until("a leader", ready, within)
        if self.token:
            until("its token counts", lambda: self.call("GET", "/v1/acl/token/self", token=self.token)[0] == 200, within)
        return self

    def call(self, method, path, body=None, token=None):
        """Status and answer: JSON where it is JSON."""
        status, headers, text = self.request(method, path, body, headers={"X-Consul-Token": token} if token else {})
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode()

    def do(self, method, path, body=None, token=MASTER, expect=200):
        status, answer = self.call(method, path, body, token)
        check(status == expect, "%s %s: %d %r, wanted %d" % (method, path, status, answer, expect))
        return answer


def command(agent, *args, token=MASTER, code=0, program=COORD, stdin=None, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COORD_HTTP", "CONSUL_HTTP"))}
    env.update({"CONSUL_HTTP_ADDR": "%s:8500" % agent.ip}, **variables)
    if token:
        env["CONSUL_HTTP_TOKEN"] = token
    r = subprocess.run([program, *args], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60 * SLOW, env=env)
    check(r.returncode == code, "%s %s: exit %d, wanted %d: %s" % (program, " ".join(args), r.returncode, code, r.stdout + r.stderr))
    return r.stdout + r.stderr


def fields(text):
    """'Label:   value' of the first columns."""
    return dict((line.split(":", 1)[0], line.split(":", 1)[1].strip()) for line in text.splitlines() if ":" in line and not line.startswith(" "))


def server(*args, **keys):
    return Secured(acl(tokens={"initial_management": MASTER}, **keys), *args, token=MASTER)


def off():
    agent = Agent().start()
    for method, path in (("PUT", "bootstrap"), ("GET", "tokens"), ("PUT", "token"), ("GET", "token/self"), ("PUT", "token/x/clone"), ("DELETE", "token/x"),
                         ("GET", "policies"), ("PUT", "policy"), ("GET", "policy/name/x"), ("GET", "roles"), ("PUT", "role"), ("PUT", "role/x"),
                         ("GET", "auth-methods"), ("PUT", "auth-method/x"), ("GET", "binding-rules"), ("PUT", "binding-rule"), ("POST", "login"),
                         ("POST", "logout"), ("POST", "rules/translate"), ("GET", "replication"), ("PUT", "create"), ("GET", "list")):
        status, _, body = agent.request(method, "/v1/acl/" + path, "{}" if method in ("PUT", "POST") else None)
        check((status, body) == (401, b"ACL support disabled"), "%s %s: %d %r" % (method, path, status, body))
    status, _, body = agent.request("POST", "/v1/internal/acl/authorize", "[]")
    check(status == 401, "authorize: %d %r" % (status, body))
    check("off" in agent.coord("acl", "status"), "status")
    agent.stop()


def bootstrap():
    agent = Secured(acl()).start()
    first = until("the key is there", lambda: (lambda s: s[1] if s[0] == 200 else None)(agent.call("PUT", "/v1/acl/bootstrap")))
    check(first["Policies"] == [{"ID": MANAGEMENT, "Name": "global-management"}] and first["Description"] == "Bootstrap Token (Global Management)",
          "%r" % first)
    check(uuid.UUID(first["SecretID"]) and uuid.UUID(first["AccessorID"]) and first["SecretID"] != first["AccessorID"], "%r" % first)
    status, text = agent.call("PUT", "/v1/acl/bootstrap")
    check(status == 403 and text.startswith("Permission denied: ACL bootstrap no longer allowed (reset index: "), "%d %r" % (status, text))
    check(agent.call("GET", "/v1/acl/token/self", token=first["SecretID"])[1]["AccessorID"] == first["AccessorID"], "itself")
    check(agent.call("GET", "/v1/acl/token/self")[1]["AccessorID"] == ANONYMOUS, "without a token")
    check(agent.call("GET", "/v1/acl/tokens")[0] == 403, "anonymous may not list")
    check(agent.call("GET", "/v1/acl/tokens", token=str(uuid.uuid4())) == (403, "ACL not found"), "an unknown token")
    check(first["SecretID"] not in agent.log(), "the secret is in the log")
    # The right to begin anew is that of writing to the data folder.
    index = text.split("reset index: ")[1].rstrip(")")
    check("no longer allowed" in command(agent, "acl", "bootstrap", token=None, code=1), "refused")
    path = os.path.join(agent.data, "acl-bootstrap-reset")
    for wrong in ("nonsense", str(int(index) + 1)):
        with open(path, "w") as f:
            f.write(wrong)
        check(agent.call("PUT", "/v1/acl/bootstrap")[0] in (403, 409) and not os.path.exists(path), "a wrong index: %s" % wrong)
    with open(path, "w") as f:
        f.write(index + "\n")
    second = agent.do("PUT", "/v1/acl/bootstrap", token=None)
    check(second["SecretID"] != first["SecretID"] and not os.path.exists(path), "%r" % second)
    check(agent.call("PUT", "/v1/acl/bootstrap")[0] == 403, "once")
    third = fields(command(agent, "acl", "reset", "-data-dir=" + agent.data, token=None))
    for secret in (first["SecretID"], second["SecretID"], third["SecretID"]):
        check(agent.call("GET", "/v1/acl/tokens", token=secret)[0] == 200, "all of them count")
    check("the file acl-bootstrap-reset" in agent.log(), "it is told")
    # The key is lost: every token ends.
    agent.stop()
    os.remove(os.path.join(agent.data, "acl", "key"))
    agent.start()
    fourth = fields(command(agent, "acl", "reset", "-new-key", "-data-dir=" + agent.data, token=None))
    check(agent.call("GET", "/v1/acl/tokens", token=fourth["SecretID"])[0] == 200, "%r" % fourth)
    check(agent.call("GET", "/v1/acl/tokens", token=third["SecretID"]) == (403, "ACL not found"), "those of before")
    agent.stop()


def tokens(agent):
    rules = 'key_prefix "app/" { policy = "write" }'
    policy = agent.do("PUT", "/v1/acl/policy", {"Name": "app", "Rules": rules, "Description": "of the app"})
    check(policy["Rules"] == rules and policy["Name"] == "app" and "Datacenters" not in policy and policy["Hash"], "%r" % policy)
    role = agent.do("PUT", "/v1/acl/role", {"Name": "apps", "Policies": [{"Name": "app"}], "ServiceIdentities": [{"ServiceName": "web", "Datacenters": ["dc1"]}]})
    check(role["Policies"] == [{"ID": policy["ID"], "Name": "app"}] and role["ServiceIdentities"] == [{"ServiceName": "web", "Datacenters": ["dc1"]}], "%r" % role)
    one = agent.do("PUT", "/v1/acl/token", {"Description": "one", "Policies": [{"Name": "app"}]})
    check(one["Policies"] == [{"ID": policy["ID"], "Name": "app"}] and one["Local"] is False and one["CreateIndex"] == one["ModifyIndex"] > 0, "%r" % one)
    two = agent.do("PUT", "/v1/acl/token", {"Roles": [{"ID": role["ID"]}], "NodeIdentities": [{"NodeName": "db", "Datacenter": "dc1"}], "Local": True})
    check(two["Roles"] == [{"ID": role["ID"], "Name": "apps"}] and two["NodeIdentities"] == [{"NodeName": "db", "Datacenter": "dc1"}] and two["Local"], "%r" % two)
    given = {"AccessorID": str(uuid.uuid4()), "SecretID": str(uuid.uuid4())}
    three = agent.do("PUT", "/v1/acl/token", given)
    check({k: three[k] for k in given} == given and "Policies" not in three, "%r" % three)
    for token in (one, two):
        check(agent.call("PUT", "/v1/kv/app/x", "1", token=token["SecretID"]) == (200, True), "its rules count")
        check(agent.call("PUT", "/v1/kv/other", "1", token=token["SecretID"])[0] == 403, "and no others")
    check(agent.call("PUT", "/v1/kv/app/x", "1", token=three["SecretID"])[0] == 403, "no rules")

    # lists and their filters
    def listed(query=""):
        found = agent.do("GET", "/v1/acl/tokens" + query)
        check(all("SecretID" not in t for t in found), "%r" % found)
        return {t["AccessorID"] for t in found}
    check({one["AccessorID"], two["AccessorID"], three["AccessorID"], ANONYMOUS} <= listed(), "all")
    check(listed("?policy=" + policy["ID"]) == {one["AccessorID"]}, "by policy")
    check(listed("?role=" + role["ID"]) == {two["AccessorID"]}, "by role")
    check(listed("?authmethod=none") == set(), "by method")

    # reading: the secret only for those who may write
    reader = agent.do("PUT", "/v1/acl/token", {"ServiceIdentities": [{"ServiceName": "r"}, {"ServiceName": "r", "Datacenters": ["dc1"]}]})
    check(reader["ServiceIdentities"] == [{"ServiceName": "r"}], "two of the same service are one: %r" % reader)
    agent.do("PUT", "/v1/acl/policy", {"Name": "reads-acl", "Rules": 'acl = "read"'})
    reader = agent.do("PUT", "/v1/acl/token/" + reader["AccessorID"], {"Policies": [{"Name": "reads-acl"}]})
    check(agent.do("GET", "/v1/acl/token/" + one["AccessorID"])["SecretID"] == one["SecretID"], "for management")
    check(agent.do("GET", "/v1/acl/token/" + one["AccessorID"], token=reader["SecretID"])["SecretID"] == "<hidden>", "for readers")
    check(agent.call("PUT", "/v1/acl/token", {}, token=reader["SecretID"])[0] == 403, "readers do not write")
    check(agent.call("PUT", "/v1/acl/policy", {"Name": "x"}, token=reader["SecretID"])[0] == 403, "readers do not write")
    check(agent.do("GET", "/v1/acl/token/self", token=one["SecretID"])["SecretID"] == one["SecretID"], "of itself")
    check(agent.call("GET", "/v1/acl/token/" + str(uuid.uuid4()), token=MASTER) == (403, "ACL not found"), "none")

    # changes
    changed = agent.do("PUT", "/v1/acl/token/" + one["AccessorID"], {"Description": "other"})
    check(changed["Description"] == "other" and "Policies" not in changed and changed["SecretID"] == one["SecretID"], "%r" % changed)
    until("it may not write any more", lambda: agent.call("PUT", "/v1/kv/app/x", "1", token=one["SecretID"])[0] == 403)
    path = "/v1/acl/token/" + one["AccessorID"]
    for body, status, text in (({"SecretID": str(uuid.uuid4())}, 400, "SecretID"), ({"Local": True}, 400, "local"), ({"AccessorID": str(uuid.uuid4())}, 400, "match"),
                               ({"ExpirationTTL": "1h"}, 400, "expiration"), ({"AuthMethod": "m"}, 400, "AuthMethod"), ({"Nonsense": 1}, 400, "Nonsense"),
                               ({"Policies": [{"Name": "nope"}]}, 400, "nope"), ({"Policies": ["app"]}, 400, "Policies")):
        answer = agent.do("PUT", path, body, expect=status)
        check(text.lower() in str(answer).lower(), "%r: %r" % (body, answer))
    agent.do("PUT", path, {"SecretID": one["SecretID"], "AccessorID": one["AccessorID"]})
    agent.do("PUT", "/v1/acl/token/" + str(uuid.uuid4()), {}, expect=404)
    agent.do("PUT", "/v1/acl/token", {"SecretID": one["SecretID"]}, expect=409)
    agent.do("PUT", "/v1/acl/token", {"AccessorID": one["AccessorID"]}, expect=409)
    agent.do("PUT", "/v1/acl/token", "{", expect=400)
    for body in ({"ExpirationTTL": "59s"}, {"ExpirationTTL": "25h"}, {"ExpirationTime": "2001-01-01T00:00:00Z"}, {"ExpirationTime": "soon"},
                 {"ServiceIdentities": [{"ServiceName": "Web"}]}, {"NodeIdentities": [{"NodeName": "n"}]}, {"AuthMethod": "m"}):
        agent.do("PUT", "/v1/acl/token", body, expect=400)

    # a clone, the end
    clone = agent.do("PUT", "/v1/acl/token/" + two["AccessorID"] + "/clone", {"Description": "of two"})
    check(clone["AccessorID"] != two["AccessorID"] and clone["SecretID"] != two["SecretID"] and clone["Roles"] == two["Roles"] and
          clone["Description"] == "of two" and clone["Local"], "%r" % clone)
    check(agent.do("PUT", "/v1/acl/token/" + clone["AccessorID"] + "/clone")["Description"] == "of two", "a clone without a body")
    check(agent.call("PUT", "/v1/acl/token/" + str(uuid.uuid4()) + "/clone", {}, token=MASTER) == (403, "ACL not found"), "of none")
    check(agent.call("PUT", "/v1/acl/token/" + two["AccessorID"] + "/clone", {}, token=reader["SecretID"])[0] == 403, "by a reader")
    check(agent.do("DELETE", "/v1/acl/token/" + clone["AccessorID"]) is True, "deleted")
    check(agent.do("DELETE", "/v1/acl/token/" + clone["AccessorID"]) is True, "deleted once more")
    check(agent.call("GET", "/v1/acl/token/self", token=clone["SecretID"]) == (403, "ACL not found"), "it is gone")
    agent.do("DELETE", "/v1/acl/token/" + ANONYMOUS, expect=400)
    # the anonymous token gets rights
    agent.do("PUT", "/v1/acl/token/" + ANONYMOUS, {"Policies": [{"Name": "app"}]})
    until("anonymous may", lambda: agent.call("PUT", "/v1/kv/app/x", "2") == (200, True))
    agent.do("PUT", "/v1/acl/token/" + ANONYMOUS, {})
    return one


def policies(agent):
    made = agent.do("PUT", "/v1/acl/policy", {"Name": "p1", "Rules": 'operator = "read"', "Datacenters": ["dc1"]})
    check(agent.do("GET", "/v1/acl/policy/" + made["ID"]) == made and made["Datacenters"] == ["dc1"], "%r" % made)
    check(agent.do("GET", "/v1/acl/policy/name/p1") == made, "by name")
    listed = {p["Name"]: p for p in agent.do("GET", "/v1/acl/policies")}
    check("Rules" not in listed["p1"] and listed["global-management"]["Datacenters"] is None and listed["p1"]["Datacenters"] == ["dc1"], "%r" % listed)
    changed = agent.do("PUT", "/v1/acl/policy/" + made["ID"], {"Name": "p1-b", "Rules": 'operator = "write"'})
    check(changed["Name"] == "p1-b" and changed["Hash"] != made["Hash"] and changed["CreateIndex"] == made["CreateIndex"] < changed["ModifyIndex"], "%r" % changed)
    check(agent.call("GET", "/v1/acl/policy/name/p1", token=MASTER) == (403, "ACL not found"), "the name of before")
    for body, status, text in (({"Name": "p1-b"}, 409, "already exists"), ({"Name": "a b"}, 400, "Only alphanumeric"), ({}, 400, "Name"),
                               ({"Name": "x", "ID": made["ID"]}, 400, "Cannot specify the ID"), ({"Name": "x", "Nonsense": 1}, 400, "Nonsense"),
                               ({"Name": "x", "Rules": 'keyz "a" { policy = "read" }'}, 400, 'unknown word "keyz" (nearest: "key") at line 1, column 1'),
                               ({"Name": "x", "Rules": 'key "a" { policy = "reed" }'}, 400, "line 1")):
        answer = agent.do("PUT", "/v1/acl/policy", body, expect=status)
        check(text in answer, "%r: %r" % (body, answer))
    agent.do("PUT", "/v1/acl/policy/" + str(uuid.uuid4()), {"Name": "y"}, expect=404)
    agent.do("PUT", "/v1/acl/policy/" + MANAGEMENT, {"Name": "global-management"}, expect=400)
    agent.do("DELETE", "/v1/acl/policy/" + MANAGEMENT, expect=400)
    status, headers, body = agent.request("PUT", "/v1/acl/policy", {"Name": "warned", "Rules": 'mesh = "write"'}, headers={"X-Consul-Token": MASTER})
    check(status == 200 and "mesh" in headers["X-Coord-Warning"], "%d %r" % (status, headers.items()))
    check(agent.do("DELETE", "/v1/acl/policy/" + made["ID"]) is True and agent.do("DELETE", "/v1/acl/policy/" + made["ID"]) is True, "deleted")
    check(agent.call("GET", "/v1/acl/policy/" + made["ID"], token=MASTER) == (403, "ACL not found"), "gone")
    check(agent.do("POST", "/v1/acl/rules/translate", '# old\nkey "a" { policy = "read" }') == '# old\nkey_prefix "a" { policy = "read" }', "translated")
    agent.do("POST", "/v1/acl/rules/translate", 'key "a', expect=400)
    check(agent.call("POST", "/v1/acl/rules/translate", "")[0] == 403, "needs acl:read")
    agent.do("PUT", "/v1/acl/create", "{}", expect=410)
    check(agent.do("GET", "/v1/acl/replication", token=None)["Enabled"] is False, "replication")


def roles_and_methods(agent):
    role = agent.do("PUT", "/v1/acl/role", {"Name": "r1", "Policies": [{"ID": MANAGEMENT}]})
    check(agent.do("GET", "/v1/acl/role/" + role["ID"]) == role == agent.do("GET", "/v1/acl/role/name/r1"), "%r" % role)
    check([r["Name"] for r in agent.do("GET", "/v1/acl/roles?policy=" + MANAGEMENT)] == ["r1"], "by policy")
    changed = agent.do("PUT", "/v1/acl/role/" + role["ID"], {"Name": "r2", "Description": "d"})
    check("Policies" not in changed and changed["Description"] == "d", "%r" % changed)
    check(agent.call("GET", "/v1/acl/role/name/r1", token=MASTER) == (404, ""), "none")
    agent.do("PUT", "/v1/acl/role", {"Name": "r2"}, expect=409)
    agent.do("PUT", "/v1/acl/role", {"Name": "r3", "Policies": [{"Name": "nope"}]}, expect=400)
    agent.do("PUT", "/v1/acl/role/" + str(uuid.uuid4()), {"Name": "r4"}, expect=404)
    check(agent.do("DELETE", "/v1/acl/role/" + role["ID"]) is True and agent.do("DELETE", "/v1/acl/role/" + role["ID"]) is True, "deleted")

    method = {"Name": "jwt1", "Type": "jwt", "MaxTokenTTL": "5m", "Config": {"BoundIssuer": "me", "JWTValidationPubKeys": [PUBLIC], "ClaimMappings": {"sub": "name"}}}
    made = agent.do("PUT", "/v1/acl/auth-method", method)
    check(made["MaxTokenTTL"] == "5m0s" and made["Config"] == method["Config"] and made["Description"] == "", "%r" % made)
    check(agent.do("GET", "/v1/acl/auth-method/jwt1") == made, "read")
    check([m["Name"] for m in agent.do("GET", "/v1/acl/auth-methods")] == ["jwt1"] and "Config" not in agent.do("GET", "/v1/acl/auth-methods")[0], "listed")
    agent.do("PUT", "/v1/acl/auth-method/jwt1", dict(method, Name="other"), expect=400)
    agent.do("PUT", "/v1/acl/auth-method", {"Name": "k", "Type": "kubernetes"}, expect=400)
    agent.do("PUT", "/v1/acl/auth-method", dict(method, MaxTokenTTL="1s"), expect=400)
    check(agent.do("PUT", "/v1/acl/auth-method/jwt1", {"Type": "jwt", "Description": "x", "Config": method["Config"]})["Description"] == "x", "changed by its path")
    rule = agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "jwt1", "BindType": "role", "BindName": "r-${value.name}", "Selector": "value.name==web"})
    check(agent.do("GET", "/v1/acl/binding-rule/" + rule["ID"]) == rule and rule["Selector"] == "value.name==web", "%r" % rule)
    check(agent.do("GET", "/v1/acl/binding-rules?authmethod=jwt1") == [rule] and agent.do("GET", "/v1/acl/binding-rules?authmethod=x") == [], "listed")
    check(agent.do("PUT", "/v1/acl/binding-rule/" + rule["ID"], {"AuthMethod": "jwt1", "BindType": "service", "BindName": "web"})["Selector"] == "", "changed")
    agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "none", "BindType": "role", "BindName": "r"}, expect=400)
    agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "jwt1", "BindType": "thing", "BindName": "r"}, expect=400)
    for wrong, text in (({"BindName": "r-${value.other}"}, "other"), ({"Selector": "value.nope==x"}, "nope"), ({"Selector": "value.name"}, "wanted")):
        answer = agent.do("PUT", "/v1/acl/binding-rule", dict({"AuthMethod": "jwt1", "BindType": "role", "BindName": "r"}, **wrong), expect=400)
        check(text in answer, "%r: %r" % (wrong, answer))
    agent.do("PUT", "/v1/acl/binding-rule/" + str(uuid.uuid4()), {"AuthMethod": "jwt1", "BindType": "role", "BindName": "r"}, expect=404)
    agent.do("DELETE", "/v1/acl/auth-method/jwt1")
    check(agent.call("GET", "/v1/acl/auth-method/jwt1", token=MASTER) == (404, "") and agent.do("GET", "/v1/acl/binding-rules") == [], "its rules are gone too")
    check(agent.do("DELETE", "/v1/acl/binding-rule/" + rule["ID"]) is True, "once more")
    check(agent.call("POST", "/v1/acl/logout", token=MASTER)[0] == 403, "no login made it")
    check(agent.call("POST", "/v1/acl/logout")[0] == 403, "nor the anonymous one")


def authorize(agent):
    agent.do("PUT", "/v1/acl/policy", {"Name": "some", "Rules": 'key_prefix "a/" { policy = "list" } service "web" { policy = "write" } operator = "read"'})
    token = agent.do("PUT", "/v1/acl/token", {"Policies": [{"Name": "some"}]})["SecretID"]
    asked = [("key", "a/b", "read", True), ("key", "a/b", "list", True), ("key", "a/b", "write", False), ("key", "b", "read", False),
             ("service", "web", "write", True), ("service", "webs", "read", False), ("operator", "", "read", True), ("acl", "", "read", False)]
    body = [{"Resource": r, "Segment": s, "Access": a} for r, s, a, _ in asked]
    answer = agent.do("POST", "/v1/internal/acl/authorize", body, token=token)
    check([(a["Resource"], a["Segment"], a["Access"], a["Allow"]) for a in answer] == asked, "%r" % answer)
    agent.do("POST", "/v1/internal/acl/authorize", [{"Resource": "nope", "Access": "read"}], expect=400)
    agent.do("POST", "/v1/internal/acl/authorize", [{"Resource": "key", "Access": "deny"}], expect=400)
    agent.do("POST", "/v1/internal/acl/authorize", {}, expect=400)
    check(command(agent, "acl", "can-i", "read", "key", "a/b", token=token) == "yes\n", "can-i")
    check(command(agent, "acl", "can-i", "write", "key", "a/b", token=token, code=1) == "no\n", "can-i")
    said = command(agent, "acl", "status", token=token)
    check("on" in said and "operator   read" in said and "key        -" in said and token not in said, said)


def command_line(agent):
    for program in PROGRAMS:
        say = lambda *args, **kw: command(agent, *args, program=program, **kw)
        name = "cli-" + os.path.basename(program)
        made = fields(say("acl", "policy", "create", "-name=" + name, "-description=d", "-rules=-", stdin='key_prefix "cli/" { policy = "write" }'))
        check(made["Name"] == name and uuid.UUID(made["ID"]), "%r" % made)
        check('key_prefix "cli/" { policy = "write" }' in say("acl", "policy", "read", "-name=" + name), "rules")
        say("acl", "policy", "update", "-id=" + made["ID"][:12], "-description=other")
        read = say("acl", "policy", "read", "-id=" + made["ID"])
        check(fields(read)["Description"] == "other" and "cli/" in read, read)
        check(name + ":" in say("acl", "policy", "list"), "list")
        role = fields(say("acl", "role", "create", "-name=" + name, "-policy-name=" + name, "-service-identity=web:dc1"))
        shown = say("acl", "role", "read", "-name=" + name)
        check(made["ID"] + " - " + name in shown and "web (Datacenters: dc1)" in shown, shown)
        say("acl", "role", "update", "-id=" + role["ID"], "-node-identity=db:dc1")
        shown = say("acl", "role", "read", "-id=" + role["ID"])
        check("web (Datacenters: dc1)" in shown and "db (Datacenter: dc1)" in shown, shown)
        token = fields(say("acl", "token", "create", "-description=t", "-policy-name=" + name, "-role-name=" + name, "-expires-ttl=1h"))
        check(token["Expiration Time"] > token["Create Time"] and uuid.UUID(token["SecretID"]), "%r" % token)
        shown = say("acl", "token", "read", "-id=" + token["AccessorID"][:13])
        check(fields(shown)["SecretID"] == token["SecretID"] and made["ID"] + " - " + name in shown, shown)
        check(fields(say("acl", "token", "read", "-self", token=token["SecretID"]))["AccessorID"] == token["AccessorID"], "self")
        shown = say("acl", "token", "update", "-id=" + token["AccessorID"], "-description=u", "-merge-policies", "-merge-roles")
        check(fields(shown)["Description"] == "u" and shown.count(" - " + name) == 2, shown)
        clone = fields(say("acl", "token", "clone", "-id=" + token["AccessorID"], "-description=c"))
        check(clone["Description"] == "c" and clone["SecretID"] != token["SecretID"], "%r" % clone)
        check(clone["AccessorID"] in say("acl", "token", "list") and clone["SecretID"] not in say("acl", "token", "list"), "list")
        check("deleted successfully" in say("acl", "token", "delete", "-id=" + clone["AccessorID"]), "deleted")
        # -token and its companions, for all commands
        secret = token["SecretID"]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(secret + "\n")
            file.flush()
            for n, variables in enumerate(({"CONSUL_HTTP_TOKEN": secret}, {"CONSUL_HTTP_TOKEN_FILE": file.name})):
                say("kv", "put", "cli/%d" % n, "x", token=None, **variables)
            say("kv", "put", "-token=" + secret, "cli/2", "x", token=None)
            say("kv", "put", "-token-file=" + file.name, "cli/3", "x", token=None)
            if program == COORD:
                say("kv", "put", "cli/4", "x", token=None, COORD_HTTP_TOKEN=secret, CONSUL_HTTP_TOKEN="wrong")
                say("kv", "put", "cli/5", "x", token=None, COORD_HTTP_TOKEN_FILE=file.name)
                say("kv", "put", "-token=" + secret, "-token-file=" + file.name, "cli/6", "x", token=None, code=2)
                say("kv", "put", "-token-file=/nowhere", "cli/6", "x", token=None, code=2)
        denied = say("kv", "put", "other", "x", token=secret, code=1)
        check("Permission denied" in denied and secret not in denied, denied)
        check("Permission denied" in say("kv", "put", "cli/7", "x", token=None, code=1), "without a token")
        check('key_prefix "a"' in say("acl", "translate-rules", 'key "a" { policy = "read" }'), "translated")
        say("acl", "role", "delete", "-name=" + name)
        say("acl", "policy", "delete", "-name=" + name)
        method = say("acl", "auth-method", "create", "-name=" + name, "-type=jwt", "-config=" + json.dumps({"JWTValidationPubKeys": [PUBLIC]}))
        check(fields(method)["Name"] == name, method)
        rule = fields(say("acl", "binding-rule", "create", "-method=" + name, "-bind-type=role", "-bind-name=r"))
        say("acl", "binding-rule", "update", "-id=" + rule["ID"], "-description=d")
        check(fields(say("acl", "binding-rule", "read", "-id=" + rule["ID"]))["Description"] == "d", "rule")
        check(rule["ID"] in say("acl", "binding-rule", "list", "-method=" + name), "rules")
        say("acl", "binding-rule", "delete", "-id=" + rule["ID"])
        check(name in say("acl", "auth-method", "list"), "methods")
        say("acl", "auth-method", "delete", "-name=" + name)
    refused = command(agent, "acl", "policy", "create", "-name=typo", '-rules=keyz "a" { policy = "read" }', code=2)
    check('nearest: "key"' in refused and "line 1" in refused, refused)
    warned = command(agent, "acl", "policy", "create", "-name=warned2", '-rules=mesh = "read"')
    check("Warning: " in warned and "mesh" in warned, warned)
    check("several" in command(agent, "acl", "token", "read", "-id=", code=2), "an ID that is the beginning of many")
    check("no policy has the name" in command(agent, "acl", "policy", "read", "-name=nope", code=2), "none")
    check(json.loads(command(agent, "acl", "policy", "list", "-format=json"))[0]["Name"], "JSON")


def logins(agent):
    now = int(time.time())
    config = {"JWTValidationPubKeys": [PUBLIC], "BoundIssuer": "us", "BoundAudiences": ["coord"], "ClaimMappings": {"sub": "name"},
              "ListClaimMappings": {"groups": "groups"}}
    agent.do("PUT", "/v1/acl/auth-method", {"Name": "sso", "Type": "jwt", "MaxTokenTTL": "5m", "Config": config})
    agent.do("PUT", "/v1/acl/role", {"Name": "role-ann", "Policies": [{"ID": MANAGEMENT}]})
    agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "sso", "BindType": "role", "BindName": "role-${value.name}", "Selector": '"ops" in list.groups'})
    agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "sso", "BindType": "service", "BindName": "svc-${value.name}", "Selector": "value.name != nobody"})
    good = {"iss": "us", "aud": "coord", "sub": "ann", "groups": ["dev", "ops"], "iat": now, "exp": now + 300}

    def login(expect=200, method="sso", meta=None, **claims):
        body = {"AuthMethod": method, "BearerToken": web_token(**dict(good, **claims))}
        return agent.do("POST", "/v1/acl/login", dict(body, Meta=meta) if meta else body, token=None, expect=expect)
    token = login(meta={"host": "web1"})
    check(token["AuthMethod"] == "sso" and token["Description"] == 'token created via login: {"host":"web1"}' and token["Local"], "%r" % token)
    check([r["Name"] for r in token["Roles"]] == ["role-ann"] and token["ServiceIdentities"] == [{"ServiceName": "svc-ann"}], "%r" % token)
    check(token["ExpirationTime"] and uuid.UUID(token["SecretID"]), "%r" % token)
    check(agent.call("GET", "/v1/acl/tokens", token=token["SecretID"])[0] == 200, "its role counts")
    check([t["AccessorID"] for t in agent.do("GET", "/v1/acl/tokens?authmethod=sso")] == [token["AccessorID"]], "by method")
    agent.do("PUT", "/v1/acl/token/" + token["AccessorID"] + "/clone", {}, expect=400)
    other = login(sub="Bob")                            # his role is not there; names of services are small
    check("Roles" not in other and other["ServiceIdentities"] == [{"ServiceName": "svc-bob"}], "%r" % other)
    for expect, claims in ((403, {"iss": "them"}), (403, {"aud": "x"}), (403, {"exp": now - 300, "iat": now - 600}), (403, {"sub": "nobody", "groups": []}),
                           (400, {"sub": "-"}), (403, {"method": "none"})):
        login(expect=expect, **claims)
    forged = web_token(**good)
    agent.do("POST", "/v1/acl/login", {"AuthMethod": "sso", "BearerToken": forged[:-8] + "AAAAAAAA"}, token=None, expect=403)
    agent.do("POST", "/v1/acl/login", {"AuthMethod": "sso"}, token=None, expect=400)
    check(forged not in agent.log(), "what was shown is in the log")
    check(agent.request("GET", "/v1/acl/login")[0] == 405, "only POST")
    check(agent.do("POST", "/v1/acl/logout", token=token["SecretID"]) is True, "logout")
    check(agent.call("POST", "/v1/acl/logout", token=token["SecretID"]) == (403, "ACL not found"), "once")
    for program in PROGRAMS:
        bearer, sink = os.path.join(KEYS, "bearer"), os.path.join(KEYS, "sink")
        with open(bearer, "w") as f:
            f.write(web_token(**good) + "\n")
        command(agent, "login", "-method=sso", "-bearer-token-file=" + bearer, "-token-sink-file=" + sink, "-meta=a=b", token=None, program=program)
        with open(sink) as f:
            secret = f.read()
        check(os.stat(sink).st_mode & 0o777 == 0o600, "only for its owner")
        check('via login: {"a":"b"}' in command(agent, "acl", "token", "read", "-self", token=secret, program=program), "a token")
        command(agent, "logout", token=secret, program=program)
        check(agent.call("GET", "/v1/acl/token/self", token=secret)[0] == 403, "it is over")
    agent.do("DELETE", "/v1/acl/auth-method/sso")
    check(agent.call("GET", "/v1/acl/token/self", token=other["SecretID"])[0] == 403, "tokens end with their method")


def expiry(agent):
    # The shortest time that the API takes is a minute; a restart does not give a second one.
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 63))
    token = agent.do("PUT", "/v1/acl/token", {"ExpirationTime": soon, "Policies": [{"ID": MANAGEMENT}]})
    check(token["ExpirationTime"].startswith(soon[:-1]), "%r" % token)
    return token


def ended(agent, token):
    until("its time is over", lambda: agent.call("GET", "/v1/acl/tokens", token=token["SecretID"]) == (403, "ACL not found"), 80)
    until("the record is gone too", lambda: agent.call("GET", "/v1/acl/token/" + token["AccessorID"], token=MASTER)[0] == 403)




def one_server():
    agent = server().start()
    check("<hidden>" not in str(agent.do("GET", "/v1/acl/token/self")), "the configured token")
    token = expiry(agent)
    tokens(agent)
    policies(agent)
    roles_and_methods(agent)
    logins(agent)
    authorize(agent)
    command_line(agent)
    ended(agent, token)
    agent.stop()


def through_a_client_agent():
    """An agent has no key: a server makes the secrets for it."""
    leader = server().start()
    agent = Secured(acl(), "-retry-join=" + leader.ip, server=False, name="a1", token=MASTER).start()
    tokens(agent)
    policies(agent)
    roles_and_methods(agent)
    logins(agent)
    authorize(agent)
    check(agent.call("PUT", "/v1/acl/bootstrap")[0] == 403, "it was done by the configuration")
    made = agent.do("PUT", "/v1/acl/token", {"Description": "by the agent"})
    for process in (agent, leader):
        check(made["SecretID"] not in process.log() and MASTER not in process.log(), "a secret is in the log")
    held = subprocess.run(["grep", "-rlaF", made["SecretID"], leader.data], capture_output=True, text=True).stdout
    check(held == "", "a secret is on disk: " + held)
    agent.stop()
    leader.stop()


if __name__ == "__main__":
    run([off, bootstrap, one_server, through_a_client_agent])
