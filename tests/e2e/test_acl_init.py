"""A cluster that `coord init` made has access control from its first second; hosts that join have it, too; and what agents warn of."""
import json, os, re, stat, subprocess, sys, threading
from closed import Closed, Member, command, found, join
from coordtest import COORD, Agent, check, configuration, run, together, until

OWN = "11111111-2222-4333-8444-555555555555"
WEB = 'service "web" { policy = "write" } key_prefix "web/config/" { policy = "read" }'


def by(token):
    return {"X-Consul-Token": token or ""}


def status(agent, token, method, path, body=None):
    return agent.request(method, path, body, headers=by(token))[0]


def granted(agent, name, rules):
    """A new token with these rules: its secret."""
    agent.put("/v1/acl/policy", {"Name": name, "Rules": rules})
    return json.loads(agent.put("/v1/acl/token", {"Policies": [{"Name": name}]}))["SecretID"]


def counts(agent, token):
    return status(agent, token, "GET", "/v1/acl/token/self") == 200


def files_with(agent, text):
    """The files of its folder and its log that have the text."""
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(agent.dir) for name in names]
    return [os.path.relpath(path, agent.data) for path in paths if text.encode() in open(path, "rb").read()]


def the_first_token_is_in_a_file_and_made_once():
    server = Member(name="one-s1")
    said = found(server)
    path = os.path.join(server.data, "management.token")
    check(stat.S_IMODE(os.stat(path).st_mode) == 0o600 and len(server.management) == 36, "its owner alone reads it")
    check("CONSUL_HTTP_TOKEN_FILE=" + path in said and server.management not in said, said)

    # nobody is faster than the token of the file
    answers, over = set(), threading.Event()

    def bootstrap():
        while not over.is_set():
            try:
                answers.add(server.request("PUT", "/v1/acl/bootstrap")[0])
            except OSError:
                pass
    eager = [threading.Thread(target=bootstrap) for _ in range(2)]
    [t.start() for t in eager]
    server.start(wait=False)
    until("the token counts", lambda: "makes the configured" in server.log() and counts(server, server.management))
    over.set()
    [t.join() for t in eager]
    check(answers and 200 not in answers, "a bootstrap by somebody else: %r" % answers)
    server.wait_leader()

    # without it next to nothing goes; commands take it from the file
    check(status(server, None, "GET", "/v1/kv/a") == 403 and status(server, None, "PUT", "/v1/kv/a", "x") == 403, "nobody reads or writes")
    for variable in ("CONSUL_HTTP_TOKEN_FILE", "COORD_HTTP_TOKEN_FILE"):
        r = subprocess.run([COORD, "kv", "put", "-http-addr", server.ip + ":8500", "a", "x"], capture_output=True, text=True, env=dict(os.environ, **{variable: path}))
        check(r.returncode == 0, variable + r.stderr)
    check(command("kv", "get", "-http-addr", server.ip + ":8500", "-token-file", path, "a").strip() == "x", "-token-file")
    check("lacks key:read" in command("kv", "get", "-http-addr", server.ip + ":8500", "a", code=1), "no token")
    check(files_with(server, server.management) == ["management.token"], "the secret is nowhere else: %r" % files_with(server, server.management))

    # once it was deleted, it does not come back
    first, accessor = server.management, server.get("/v1/acl/token/self")[2]["AccessorID"]
    server.management = json.loads(server.put("/v1/acl/token", {"Policies": [{"Name": "global-management"}]}))["SecretID"]
    check(server.request("DELETE", "/v1/acl/token/" + accessor)[0] == 200, "deleted")
    server.stop()
    server.start()
    server.put("/v1/kv/b", "later")                       # it leads, and has looked at the tokens
    until("a turn more", lambda: counts(server, server.management))
    check(not counts(server, first), "it was deleted")
    os.chmod(path, 0o644)
    server.stop()
    server.start(wait=False)
    until("it refuses a file that others may read", lambda: server.proc.poll() is not None)
    check("chmod 600 " + path in server.log(), server.log()[-1000:])
    os.unlink(path)
    server.start()
    check(counts(server, server.management), "the file may go")


def hosts_that_join_have_access_control():
    c = Closed("hst")
    other = join(c.tokens[0], c.server, "hst-s2").start()
    for one in (other, c.agent):
        with open(os.path.join(one.data, "joined.json")) as f:
            check(json.load(f)["acl"] == {"enabled": True, "default_policy": "deny"}, "it learned it")
        check(not os.path.exists(os.path.join(one.data, "management.token")), "but no secret")
        check(status(one, None, "GET", "/v1/kv/a") == 403 and status(one, None, "PUT", "/v1/kv/a", "x") == 403, "nobody reads or writes")
        check(status(one, c.server.management, "PUT", "/v1/kv/a", "x") == 200, "the operator does")

    # an agent's certificate is enough for its own work: its node is in the catalog, it takes part in budgets
    web = granted(c.server, "web", WEB + ' quota "api" { policy = "write" }')
    c.server.put("/v1/quota/api", {"Budget": 1000, "Refill": {"Window": "month"}, "LeaseTTL": "1s"})
    until("a share of the budget", lambda: status(c.agent, web, "PUT", "/v1/agent/quota/api/take?n=5") == 200)
    until("the agent tells what was spent", lambda: c.server.get("/v1/quota/api")[2]["Spent"] == 5)

    # a program with its token does what it may, and nothing beyond
    check(status(c.agent, web, "PUT", "/v1/agent/service/register", {"Name": "web"}) == 200, "it registers itself")
    until("it is in the catalog", lambda: [s["Node"] for s in c.server.get("/v1/catalog/service/web")[2]] == ["hst-a1"])
    c.server.put("/v1/kv/web/config/color", "blue")
    check(c.agent.request("GET", "/v1/kv/web/config/color?raw", headers=by(web))[2] == b"blue", "it reads its prefix")
    for method, path, body in (("GET", "/v1/kv/web/secret", None), ("PUT", "/v1/kv/web/config/color", "red"), ("PUT", "/v1/agent/service/register", {"Name": "db"}),
                               ("PUT", "/v1/join-token", None), ("GET", "/v1/acl/tokens", None)):
        check(status(c.agent, web, method, path, body) == 403, path)

    # a default token with few rights takes none from the agent's own work
    weak = join(c.server.coord("join-token").strip(), c.server, "hst-a2",
                member=Member(configuration(acl={"tokens": {"default": web}}), name="hst-a2", server=False)).start()
    check("the certificate of this node" in weak.coord("acl", "status"), "its certificate counts")
    check(weak.request("GET", "/v1/kv/web/config/color?raw", headers=by(None))[2] == b"blue", "requests without a token have the default one")


def the_operator_decides_otherwise():
    without = Member(name="oth-s1")
    said = found(without, "-no-acl")
    check("no access control" in said and without.management is None, said)
    without.start().put("/v1/kv/a", "x")
    agent = join(re.findall(r"coord1a\.\S+", said)[0], without, "oth-a1").start()
    agent.put("/v1/kv/a", "x")
    check("off" in agent.coord("acl", "status"), "off")
    with open(os.path.join(agent.data, "joined.json")) as f:
        check("acl" not in json.load(f), "nothing is said of it")

    off = Member(configuration(acl={"enabled": False}), name="off-s1")
    found(off)
    off.start().put("/v1/kv/a", "x", headers=by(None))

    own = Member(configuration(acl={"tokens": {"initial_management": OWN}}), name="own-s1")
    found(own)
    own.management, of_file = OWN, own.management
    own.start(wait=False)
    until("the configured token counts", lambda: "HTTP" in own.log() and counts_soon(own, OWN))
    check(not counts(own, of_file), "that of the file does not")


def counts_soon(agent, token):
    try:
        return counts(agent, token)
    except OSError:
        return False


def tokens_that_give_too_much_are_warned_of():
    c = Closed("wrn")
    said = c.server.coord("acl", "status")
    check("Access control is on." in said and re.search(r"Default policy: +deny", said) and "a server needs no token" in said and "Warning" not in said, said)
    said = c.agent.coord("acl", "status")
    check("the certificate of this node" in said and "the anonymous token" in said and "Warning" not in said, said)
    logged = lambda agent: [l.split("] acl: ")[1] for l in agent.log().splitlines() if "[WARN] acl: " in l]
    check(logged(c.server) == [] and logged(c.agent) == [], "nothing is wrong")

    c.server.put("/v1/acl/policy", {"Name": "open", "Rules": 'key_prefix "tmp/" { policy = "write" }'})
    c.server.put("/v1/acl/token/00000000-0000-0000-0000-000000000002", {"Policies": [{"Name": "open"}]})
    for agent, default in ((c.server, c.server.management), (c.agent, c.server.management), (c.agent, OWN)):
        agent.stop()
        agent.args = [configuration(acl={"tokens": {"default": default}})]
        before = len(agent.log())
        agent.start(wait=False)
        first = "is not there" if default == OWN else "has management rights"
        until("both are logged", lambda: [w in agent.log()[before:] for w in (first, "the anonymous token may write (key)")] == [True, True], within=30)
        said = agent.coord("acl", "status")
        check(said.count("Warning: ") == 2 and first in said and "may write (key)" in said and "the agent's default token" in said, said)
        check(default not in said and default not in agent.log(), "no secret")


SIDE_BY_SIDE = [the_first_token_is_in_a_file_and_made_once, hosts_that_join_have_access_control, the_operator_decides_otherwise, tokens_that_give_too_much_are_warned_of]


def side_by_side():
    together(*SIDE_BY_SIDE)


if __name__ == "__main__":
    run([*(SIDE_BY_SIDE if sys.argv[1:] else []), side_by_side])
