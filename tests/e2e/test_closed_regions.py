"""Two closed regions: each trusts the other's CA by an operator's word, and only then they are linked."""
import json, os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from closed import Member, found, join
from coordtest import check, run, until


def founded(region, *args, beside=None):
    """The first server of a region; its first token is that of the region beside it."""
    member = Member(*args, name=region + "1")
    if beside:
        os.mkdir(member.data, 0o700)
        with open(os.open(os.path.join(member.data, "management.token"), os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(beside.management)
    found(member, "-datacenter", region)
    check(not beside or member.management == beside.management, "a token that is there stays")
    return member.start()


def fingerprint(agent):
    until("the cluster has its CA", lambda: agent.request("GET", "/v1/ca")[0] == 200)
    return agent.get("/v1/ca")[2]["CAs"][0]["Pin"]


def reached(agent):
    return {r["Region"] for r in agent.get("/v1/global/regions")[2] if r["Reachable"]}


def what_is_asked_over_a_link_is_judged_there(us, eu):
    """As what is asked in the region itself: a link's frames name the region once more."""
    lease = json.loads(eu.put("/v1/lease/grant", {"TTL": "10m"}))["ID"]
    session = json.loads(eu.put("/v1/session/create", {"TTL": "10m"}))["ID"]
    backup = eu.request("GET", "/v1/snapshot")[2]
    asked = [("GET", "/v1/kv/far"), ("PUT", "/v1/kv/far"), ("GET", "/v1/snapshot"), ("PUT", "/v1/snapshot"), ("GET", "/v1/operator/raft/configuration"),
             ("DELETE", "/v1/operator/raft/peer?address=10.9.9.9:8300"), ("PUT", "/v1/operator/raft/transfer-leader"), ("PUT", "/v1/lease/renew/" + lease),
             ("GET", "/v1/lease/" + lease), ("PUT", "/v1/session/renew/" + session), ("GET", "/v1/session/explain/" + session), ("GET", "/v1/acl/tokens")]
    for method, path in asked:
        body = backup if (method, path) == ("PUT", "/v1/snapshot") else None
        status, _, said = us.request(method, path + ("&" if "?" in path else "?") + "dc=eu", body, headers={"X-Consul-Token": ""})
        check(status == 403, "without a token %s %s: %d %r" % (method, path, status, said[:200]))
    for method, path in (("GET", "/v1/snapshot"), ("GET", "/v1/operator/raft/configuration"), ("PUT", "/v1/lease/renew/" + lease), ("GET", "/v1/lease/" + lease),
                         ("PUT", "/v1/session/renew/" + session)):
        status, _, said = us.request(method, path + "?dc=eu")
        check(status == 200, "with one %s %s: %d %r" % (method, path, status, said[:200]))


def regions_trust_each_other():
    eu = founded("eu")
    us = founded("us", "-retry-join-wan=" + eu.ip, beside=eu)
    until("us is told that the CA there is not trusted", lambda: "no encrypted connection" in us.log() or "signed by" in us.log() or "CA" in us.log())
    check(reached(eu) == {"eu"} and reached(us) == {"us"}, "no link yet")

    shown = json.loads(us.coord("region", "trust", "-address", eu.ip, "-json", "eu"))
    check(shown == {"Region": "eu", "Fingerprint": fingerprint(eu), "Trusted": False}, "%r" % shown)
    wrong = fingerprint(us)
    check(fingerprint(eu) in us.coord("region", "trust", "-address", eu.ip, "-fingerprint", wrong, "eu", code=1), "a wrong fingerprint is refused, and the right one is named")
    us.coord("region", "trust", "-address", eu.ip, "-fingerprint", fingerprint(eu), "eu")
    check([r["Region"] for r in us.get("/v1/region/trust")[2]] == ["eu"], "it is listed")
    until("eu says why it refuses", lambda: "no encrypted connection" in eu.log())
    check(reached(us) == {"us"}, "one side is not enough")

    eu.coord("region", "trust", "-address", us.ip, "-fingerprint", fingerprint(us), "us")
    until("they are linked", lambda: reached(us) == {"us", "eu"} and reached(eu) == {"us", "eu"}, within=45)
    us.put("/v1/kv/far?dc=eu", b"by a link")
    check(eu.request("GET", "/v1/kv/far?raw")[2] == b"by a link", "a write goes over it")

    what_is_asked_over_a_link_is_judged_there(us, eu)

    # another region is asked, or it is said that this is not done from here: never is this one's answer given for it
    check([c["Pin"] for c in us.get("/v1/ca?dc=eu")[2]["CAs"]] == [fingerprint(eu)] and fingerprint(eu) != fingerprint(us), "the CA there")
    check([c["Node"] for c in us.get("/v1/certificates?dc=eu")[2]] == ["eu1"] and us.get("/v1/secure?dc=eu")[2]["With"] == ["eu1"], "the certificates there")
    check([r["Region"] for r in us.get("/v1/region/trust?dc=eu")[2]] == ["us"], "whom eu trusts")
    for path in ("/v1/ca/rotate", "/v1/ca/drop", "/v1/secure/start", "/v1/secure/finish", "/v1/secure/abort", "/v1/join-token", "/v1/region/trust/asia"):
        status, _, why = us.request("PUT", path + "?dc=eu", b"")
        check(status == 400 and b"ask an agent there" in why, "%s: %d %r" % (path, status, why))
    check("ask an agent there" in us.coord("ca", "rotate", "-datacenter=eu", code=2), "the command says so, too")
    us.put("/v1/secure/finish?dc=us", b"")
    check([len(x.get("/v1/ca")[2]["CAs"]) for x in (us, eu)] == [1, 1], "nothing was done")

    eu.coord("region", "distrust", "us")
    until("the link ends", lambda: reached(eu) == {"eu"} and reached(us) == {"us"}, within=30)


def clients_of_a_region_without_access_control_are_nobody_elsewhere():
    """Its servers may copy; who asks them over HTTP has no more rights for that."""
    eu, us = founded("eu"), Member(name="us1")
    us.args = ["-retry-join-wan=" + eu.ip]
    found(us, "-datacenter", "us", "-no-acl")
    us.start()
    until("us is closed", lambda: us.get("/v1/secure")[2]["Mode"] == "closed")
    us.coord("region", "trust", "-address", eu.ip, "-fingerprint", fingerprint(eu), "eu")
    eu.coord("region", "trust", "-address", us.ip, "-fingerprint", fingerprint(us), "us")
    until("they are linked", lambda: reached(us) == {"us", "eu"} and reached(eu) == {"us", "eu"}, within=45)
    eu.put("/v1/kv/secret", b"x")
    eu.put("/v1/agent/service/register", {"Name": "web"})
    until("the service is copied", lambda: us.get("/v1/global/service/web")[2], within=30)
    for method, path in (("GET", "/v1/kv/secret"), ("PUT", "/v1/kv/secret"), ("GET", "/v1/snapshot")):
        status, _, said = us.request(method, path + "?dc=eu")
        check(status == 403, "%s %s: %d %r" % (method, path, status, said[:200]))
    check(us.get("/v1/catalog/services?dc=eu")[2] == {}, "no service is shown")


def a_region_may_not_call_itself_another():
    """Its CA is trusted as that of one region, so its servers cannot speak for a second one."""
    eu = founded("eu")
    us = founded("us", "-retry-join-wan=" + eu.ip, beside=eu)
    theirs, ours = fingerprint(eu), fingerprint(us)
    us.coord("region", "trust", "-address", eu.ip, "-fingerprint", theirs, "asia")
    eu.coord("region", "trust", "-address", us.ip, "-fingerprint", ours, "us")
    until("us refuses eu, which it trusts as asia", lambda: "not trusted here" in us.log() or "of another cluster" in us.log(), within=45)
    check(reached(us) == {"us"}, "no link")


def file_of(agent, name):
    return os.path.join(agent.data, "tls", name)


def openssl(*words):
    r = subprocess.run(["openssl", *words], capture_output=True, text=True)
    check(r.returncode == 0, "openssl %s: %s" % (" ".join(words), r.stderr))
    return r.stdout


def give_forged(agent, region):
    """Replaces the agent's certificate by one with the same name, signed by the CA of `region`."""
    name = re.search(r"URI:([^,\s]+)", openssl("x509", "-noout", "-ext", "subjectAltName", "-in", file_of(agent, "cert.pem"))).group(1)
    request, asked, leaf = (os.path.join(agent.data, n) for n in ("extensions", "asked.pem", "leaf.pem"))
    with open(request, "w") as f:
        f.write("subjectAltName=URI:%s\nbasicConstraints=critical,CA:false\nextendedKeyUsage=clientAuth,serverAuth\n" % name)
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + agent.name, "-keyout", file_of(agent, "key.pem"), "-out", asked)
    openssl("x509", "-req", "-in", asked, "-CA", file_of(region, "ca.pem"), "-CAkey", file_of(region, "ca.key"), "-CAcreateserial", "-CAserial", leaf + ".srl",
            "-days", "5", "-extfile", request, "-out", leaf)
    with open(file_of(agent, "cert.pem"), "w") as f:
        f.write(open(leaf).read() + open(file_of(region, "ca.pem")).read())
    os.chmod(file_of(agent, "key.pem"), 0o600)


def a_trusted_region_cannot_make_our_certificates():
    """Who has the CA's key of one region must not become a node of another one by it."""
    eu, us = founded("eu"), founded("us")
    theirs, ours = fingerprint(eu), fingerprint(us)
    us.coord("region", "trust", "-address", eu.ip, "-fingerprint", theirs, "eu")
    agent = join(us.coord("join-token").strip(), us, "a1").start()
    agent.stop()
    give_forged(agent, eu)
    agent.start(wait=False)
    until("it is refused for its CA", lambda: "signed by the CA of another cluster" in us.log(), within=30)
    agent.kill()
    give_forged(agent, us)
    agent.start(wait=False)
    until("not even a stolen key of the own CA makes one that the cluster does not know", lambda: "another certificate was issued" in agent.log(), within=30)


run([regions_trust_each_other, clients_of_a_region_without_access_control_are_nobody_elsewhere, a_region_may_not_call_itself_another,
     a_trusted_region_cannot_make_our_certificates])
