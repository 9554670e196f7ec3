"""Logins without secrets: by the credentials of the unix socket and by client certificates, on servers, through client agents, and by those who pose."""
import json, os, shutil, socket, subprocess, tempfile
from closed import Closed, Member, join
from coordtest import COORD, SLOW, Agent, check, configuration, run, until
from peer import HELLO, Peer, message, pair_of
from test_https import Authority

MASTER = "11111111-aaaa-4bbb-8ccc-222222222222"
MANAGEMENT = "00000000-0000-0000-0000-000000000001"
ACL, ACL_ANSWER, LOGIN = 54, 55, 3          # frames of rpc/cluster/peers.h, a verb of rpc/api/acl_admin.h
ROOT = os.geteuid() == 0
OTHER, OTHER_NAME = 65534, "nobody"
FOLDER = tempfile.mkdtemp(prefix="coord-e2e-socket-")
os.chmod(FOLDER, 0o755)


class Guarded:
    """Of an agent with access control, a unix socket and HTTPS. The harness asks with the management token."""

    def guard(self):
        self.socket = os.path.join(FOLDER, self.name + ".sock")
        self.args += [configuration(acl={"enabled": True, "default_policy": "deny", "token_ttl": "1s", "tokens": {"initial_management": MASTER, "agent": MASTER}},
                                    addresses={"http": "%s unix://%s" % (self.ip, self.socket)}, unix_sockets={"mode": "0666"})]
        return self

    def request(self, method, path, body=None, timeout=30, headers=None):
        return super().request(method, path, body, timeout, {"X-Consul-Token": MASTER} if headers is None else headers)

    def do(self, method, path, body=None, expect=200):
        status, _, text = self.request(method, path, body)
        check(status == expect, "%s %s: %d %r" % (method, path, status, text))
        try:
            return json.loads(text)
        except ValueError:
            return text.decode()


class Node(Guarded, Agent):
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.guard()


class ClosedNode(Guarded, Member):
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.args += [configuration(ports={"https": 8501})]
        self.guard()


def curl(*args, user=None):
    """(status, answer) of a request by curl as this user."""
    as_user = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
    r = subprocess.run(["curl", "-sS", "-m", str(int(60 * SLOW)), "-w", "\n%{http_code}", *args], capture_output=True, text=True, cwd="/", **as_user)
    if r.returncode:
        return r.returncode, r.stderr
    text, _, status = r.stdout.rpartition("\n")
    try:
        return int(status), json.loads(text)
    except ValueError:
        return int(status), text


def login(path, method="local", user=None, extra=(), **body):
    """Over the unix socket."""
    return curl("--unix-socket", path, "-d", json.dumps(dict({"AuthMethod": method}, **body)), *extra, "http://x/v1/acl/login", user=user)


def setup(agent, name="local", kind="unix", config=None, rules=()):
    agent.do("PUT", "/v1/acl/auth-method", dict({"Name": name, "Type": kind, "MaxTokenTTL": "10m"}, **({"Config": config} if config else {})))
    for selector, bind in rules:
        agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": name, "BindType": "service", "BindName": bind, "Selector": selector})


def names(token):
    return sorted(s["ServiceName"] for s in token.get("ServiceIdentities", []))


def refused(answer, words, status=403):
    check(answer[0] == status and words in str(answer[1]), "%r, wanted %d %s" % (answer, status, words))


def by_unit(agent):
    """A program in the unit of a name: a control group, as systemd makes it."""
    unit = "coord-e2e-%d.service" % os.getpid()
    above = next((path for path in ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup") if os.access(path + "/cgroup.procs", os.W_OK)), None)
    if not above or not ROOT:
        print("     no control groups that this user may make: the unit is not tried")
        return
    group = os.path.join(above, unit)
    os.mkdir(group)
    try:
        agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "local", "BindType": "service", "BindName": "by-unit", "Selector": 'value.unit == "%s"' % unit})
        ask = ["curl", "-s", "--unix-socket", agent.socket, "-d", '{"AuthMethod":"local"}', "http://x/v1/acl/login"]
        r = subprocess.run(["sh", "-c", 'echo $$ > %s/cgroup.procs && exec "$@"' % group, "sh", *ask], capture_output=True, text=True)
        check(r.returncode == 0, r.stderr)
        version = tuple(int(part) for part in os.uname().release.split(".")[:2])
        check(("by-unit" in names(json.loads(r.stdout))) == (version >= (6, 5)), r.stdout)
        check("by-unit" not in names(login(agent.socket)[1]), "this process is in another one")
    finally:
        until("the control group is empty", lambda: not open(group + "/cgroup.procs").read())
        os.rmdir(group)


def programs_of_a_server():
    agent = Node(name="s1")
    agent.start()
    agent.do("PUT", "/v1/acl/auth-method", {"Name": "bad", "Type": "unix", "Config": {"BoundNode": ["x"]}}, expect=400)
    wrong = agent.do("PUT", "/v1/acl/auth-method", {"Name": "bad", "Type": "unix", "Config": {"BoundNode": ["x"]}}, expect=400)
    check('unknown key "BoundNode" (nearest: "BoundNodes")' in str(wrong), wrong)
    check("[jwt unix certificate]" in str(agent.do("PUT", "/v1/acl/auth-method", {"Name": "bad", "Type": "unx"}, expect=400)), "the types")
    me = "root" if ROOT else None
    setup(agent, rules=[("value.uid == \"%d\" and value.host == s1" % os.geteuid(), "mine"), ("value.uid == \"%d\"" % OTHER, "other"),
                        ("value.user == root and value.group == root", "by-name")])
    wrong = agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "local", "BindType": "service", "BindName": "x", "Selector": "value.name == x"}, expect=400)
    check("value.name" in str(wrong), wrong)
    check([m["Type"] for m in agent.do("GET", "/v1/acl/auth-methods")] == ["unix"], "it is in the list")

    status, token = login(agent.socket, Meta={"a": "b"})
    check(status == 200 and names(token) == (["by-name", "mine"] if ROOT else ["mine"]), "%r" % token)
    check(token["AuthMethod"] == "local" and token["ExpirationTime"] and token["Local"], "%r" % token)
    if me:
        check(token["Description"] == 'unix:root@s1: token created via login: {"a":"b"}', token["Description"])
    secret = {"X-Consul-Token": token["SecretID"]}
    check(agent.request("PUT", "/v1/agent/service/register", {"Name": "mine"}, headers=secret)[0] == 200, "it counts")
    check(agent.request("PUT", "/v1/agent/service/register", {"Name": "other"}, headers=secret)[0] == 403, "for nothing else")
    check(agent.request("POST", "/v1/acl/logout", headers=secret)[0] == 200 and agent.request("GET", "/v1/acl/token/self", headers=secret)[0] == 403, "logout")
    if ROOT:
        status, token = login(agent.socket, user=OTHER)
        check(status == 200 and names(token) == ["other"] and token["Description"].startswith("unix:%s@s1: " % OTHER_NAME), "%r" % token)
        refused(login(agent.socket, user=4321), "no binding rule fits this login")
        # what a program says of itself counts for nothing
        words = ["-H", "X-Forwarded-User: root", "-H", "X-Uid: 0", "-H", "Authorization: Basic cm9vdDo="]
        refused(login(agent.socket, user=4321, extra=words), "no binding rule fits this login")
        refused(login(agent.socket, user=4321, UID=0), "unknown key", 400)
        by_unit(agent)
    refused(login(agent.socket, BearerToken="x"), "takes no BearerToken", 400)
    refused(curl("-d", '{"AuthMethod":"local"}', "http://%s:8500/v1/acl/login" % agent.ip), "this login came over TCP")
    setup(agent, "elsewhere", config={"BoundNodes": ["web-*"]}, rules=[("", "anywhere")])
    refused(login(agent.socket, "elsewhere"), "takes no logins on the node s1")
    setup(agent, "nobody")
    refused(login(agent.socket, "nobody"), "no binding rule fits")

    sink = os.path.join(agent.dir, "sink")
    at = "-http-addr=unix://" + agent.socket
    subprocess.run([COORD, "login", at, "-method=local", "-token-sink-file=" + sink, "-meta=job=x"], check=True, timeout=60 * SLOW)
    shown = subprocess.run([COORD, "acl", "token", "read", at, "-self", "-token-file=" + sink], capture_output=True, text=True, timeout=60 * SLOW)
    check('@s1: token created via login: {"job":"x"}' in shown.stdout, shown.stdout + shown.stderr)
    subprocess.run([COORD, "acl", "auth-method", "create", at, "-token=" + MASTER, "-name=made", "-type=unix"], check=True, capture_output=True, timeout=60 * SLOW)
    subprocess.run([COORD, "acl", "auth-method", "create", at, "-token=" + MASTER, "-name=made2", "-type=certificate"], check=True, capture_output=True, timeout=60 * SLOW)
    agent.do("DELETE", "/v1/acl/auth-method/local")
    with open(sink) as f:
        check(agent.request("GET", "/v1/acl/token/self", headers={"X-Consul-Token": f.read()})[0] == 403, "its tokens end with the method")
    check(agent.stop()[0] == 0, "a clean end")


def an_open_agent_proves_nothing():
    server = Node(name="o1")
    server.start()
    setup(server, rules=[("", "any")])
    agent = Node("-retry-join=" + server.ip, server=False, name="o2")
    agent.start()
    check(login(server.socket)[0] == 200, "the server's own socket counts")
    refused(login(agent.socket), "nothing proves from which node this login comes")


def https(agent, method, *args):
    return curl("-k", "-d", json.dumps({"AuthMethod": method}), *args, "https://%s:8501/v1/acl/login" % agent.ip)


def shows(pair):
    return ["--cert", pair[0], "--key", pair[1]]


def frame_login(server, member, proof, token):
    """A login by a frame that is made up, from a client agent with this certificate: the answer's outcome, text and token."""
    peer = Peer(server.ip, pair_of(member)).hello(member.name)
    check(peer.until(HELLO)[0] == HELLO, "hello")
    said = peer.send(ACL, message(f1=9, f2=LOGIN, f3=message(f1=token), f8=proof)).until(ACL_ANSWER)
    peer.close()
    return said[1]


def a_closed_cluster():
    c = Closed("acm", server=ClosedNode(name="acm-s1"), agent=ClosedNode(name="acm-a1", server=False))
    server, agent = c.server, c.agent
    setup(server, rules=[('value.host == "acm-a1"', "on-a1"), ('value.host == "acm-s1"', "on-s1")])
    for node, name in ((server, "on-s1"), (agent, "on-a1")):
        status, token = login(node.socket)
        check(status == 200 and names(token) == [name] and ("@%s: " % node.name) in token["Description"], "%r" % (token,))
    refused(curl("-d", '{"AuthMethod":"local"}', "http://%s:8500/v1/acl/login" % agent.ip), "this login came over TCP")

    # an agent that lies about its node, and asks for more than a login gives
    lies = message(f1="acm-s1", f2=1, f3=0)
    wishes = message(f3="", f4="token created via login", f5=message(f1=MANAGEMENT), f10="local")
    before = {t["AccessorID"] for t in server.do("GET", "/v1/acl/tokens")}
    check(b"on-a1" in frame_login(server, agent, lies, message(f4="token created via login", f10="local")), "it is the node of its certificate")
    check(b"on-a1" in frame_login(server, agent, lies, wishes), "and")
    made = [t for t in server.do("GET", "/v1/acl/tokens") if t["AccessorID"] not in before]
    check(len(made) == 2 and all(names(t) == ["on-a1"] and "Policies" not in t and "@acm-a1: " in t["Description"] for t in made), "%r" % made)
    check(b"does not begin as one" in frame_login(server, agent, lies, message(f4="unix:root@acm-s1: token created via login", f10="local")), "nor a name")

    # certificates: of the company's CA, of another one, of the cluster's own
    company, others = Authority("company"), Authority("others")
    with open(company.ca) as f:
        pem = f.read()
    bad = server.do("PUT", "/v1/acl/auth-method", {"Name": "bad", "Type": "certificate", "Config": {"CACert": [pem]}}, expect=400)
    check('nearest: "CACerts"' in str(bad), bad)
    server.do("PUT", "/v1/acl/auth-method", {"Name": "bad", "Type": "certificate", "Config": {"CACerts": ["x"]}}, expect=400)
    pair = company.give(name="Web.example", use="clientAuth")
    with open(pair[0]) as f:
        server.do("PUT", "/v1/acl/auth-method", {"Name": "bad", "Type": "certificate", "Config": {"CACerts": [f.read()]}}, expect=400)
    setup(server, "company", "certificate", {"CACerts": [pem]}, [('"web.example" in list.dns', "by-dns"), ('value.cn matches "^Web.example-1$"', "by-cn")])
    setup(server, "cluster", "certificate", None, [('list.uri contains "spiffe://%s/agent/acm-a1"' % domain(agent), "by-uri")])
    for node in (server, agent):
        status, token = https(node, "company", *shows(pair))
        check(status == 200 and names(token) == ["by-cn", "by-dns"], "%r" % (token,))
        check(token["Description"].startswith("certificate:Web.example-1@%s: " % node.name), token["Description"])
        status, token = https(node, "cluster", *shows(pair_of(agent)))
        check(status == 200 and names(token) == ["by-uri"], "%r" % (token,))
        refused(https(node, "company"), "this login showed none")
        refused(https(node, "company", *shows(others.give(use="clientAuth"))), "comes from a CA that is not trusted here")
        refused(https(node, "company", *shows(company.give(use="clientAuth", expired=True))), "expired on")
        refused(https(node, "company", *shows(company.give(use="serverAuth"))), "not made for clients")
        refused(https(node, "cluster", *shows(pair)), "comes from a CA that is not trusted here")
        refused(https(node, "company", *shows(pair_of(agent))), "comes from a CA that is not trusted here")
        refused(https(node, "company", *shows(company.give(name="db.example", use="clientAuth"))), "no binding rule fits")
        refused(https(node, "local", *shows(pair)), "this login came over TCP")
        refused(login(node.socket, "company"), "this login showed none")
        refused(curl("-d", '{"AuthMethod":"company"}', "-H", "X-Client-Cert: x", "http://%s:8500/v1/acl/login" % node.ip), "this login showed none")
        # the certificate of somebody else, behind one whose key is there
        refused(https(node, "company", *shows(in_front(others.give(use="clientAuth"), pair))), "comes from a CA that is not trusted here")
    # a node that was removed is nobody any more, whatever its certificate says
    kept = [os.path.join(FOLDER, name) for name in ("cert.pem", "key.pem")]
    [shutil.copy(a, b) for a, b in zip(pair_of(agent), kept)]
    agent.stop()
    subprocess.run([COORD, "force-leave", "-http-addr=%s:8500" % server.ip, "-token=" + MASTER, "-prune", agent.name], check=True, capture_output=True, timeout=60 * SLOW)
    until("it is removed", lambda: https(server, "cluster", *shows(kept))[0] == 403)
    refused(https(server, "cluster", *shows(kept)), "it was removed from the cluster")


def in_front(own, shown):
    """The own pair, with another certificate behind its own one in the chain."""
    path = os.path.join(FOLDER, "chain.pem")
    with open(path, "w") as f:
        f.write("".join(open(name).read() for name in (own[0], shown[0])))
    return path, own[1]


def domain(member):
    r = subprocess.run(["openssl", "x509", "-in", pair_of(member)[0], "-noout", "-ext", "subjectAltName"], check=True, capture_output=True, text=True)
    return r.stdout.split("URI:spiffe://")[1].split("/")[0]


if __name__ == "__main__":
    try:
        run([programs_of_a_server, an_open_agent_proves_nothing, a_closed_cluster])
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
