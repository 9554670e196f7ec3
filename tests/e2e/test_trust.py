"""A closed cluster: join tokens, certificates of nodes, removed nodes, the CA; and warnings before a certificate ends."""
import json, os, re, subprocess, sys, tempfile, time
from closed import Closed, Member, command, join, kept
from coordtest import COORD, SLOW, Agent, check, configuration, run, together, until
import full


def everything_that_is_kept(*agents):
    """The bytes of their logs and data folders."""
    for agent in agents:
        for folder, _, files in os.walk(agent.dir):
            for name in files:
                path = os.path.join(folder, name)
                try:
                    with open(path, "rb") as f:
                        yield path, f.read()
                except FileNotFoundError:
                    pass


def service_of(server, token, mode=0o400):
    """The environment of a service of systemd's with LoadCredential=coord.join-token:...; None: a folder is in its place."""
    folder = tempfile.mkdtemp(prefix="credentials-", dir=server.dir)
    path = os.path.join(folder, "coord.join-token")
    if token is None:
        os.mkdir(path)
    else:
        with open(path, "w") as f:
            f.write(token)
        os.chmod(path, mode)
    os.chmod(folder, 0o500)
    return {"CREDENTIALS_DIRECTORY": folder}


def tokens_are_made_listed_and_end():
    c = Closed("tok")
    server, agent = c.server, c.agent
    made = json.loads(agent.put("/v1/join-token", {"Role": "agent", "TTL": "1h", "Uses": 2, "Node": "web-*"}))
    check(sorted(made) == sorted(["ID", "Token", "Role", "Node", "Uses", "TTL", "ExpiresAt"]), made)
    check(made["Token"].startswith("coord1a.") and made["Token"].split(".")[2] == made["ID"], made)
    alone = server.coord("join-token", "-server", "-ttl", "10m").strip()
    check(re.fullmatch(r"coord1s(\.[\w-]+){4}", alone), alone)
    through_agent = agent.coord("join-token").strip()
    check(re.fullmatch(r"coord1a(\.[\w-]+){4}", through_agent), through_agent)
    for one in (server, agent):
        listed = {t["ID"]: t for t in one.get("/v1/join-tokens")[2]}
        check(listed[made["ID"]]["Node"] == "web-*" and listed[made["ID"]]["Uses"] == 2 and listed[made["ID"]]["Used"] == 0, listed)
        check(listed[alone.split(".")[2]]["Role"] == "server" and listed[alone.split(".")[2]]["TTL"] == "10m0s", listed)
        check(all("Hash" not in t and "Token" not in t for t in listed.values()), listed)
        check(made["ID"] in one.coord("join-token", "list"), "the command lists it")

    # names, roles, uses
    check("other names" in join(made["Token"], server, "db1", code=1), "the pattern")
    join(made["Token"], server, "web-1"), join(made["Token"], server, "WEB-2")
    check("used up" in join(made["Token"], server, "web-3", code=1), "two uses")
    check(next(t for t in agent.get("/v1/join-tokens")[2] if t["ID"] == made["ID"])["Used"] == 2, "both are counted")

    # blocking: a list wakes when a token is revoked
    status, headers, _ = agent.get("/v1/join-tokens")
    woken = []
    together(lambda: woken.append(agent.get("/v1/join-tokens?wait=60s&index=" + headers["X-Consul-Index"])[2]),
             lambda: agent.coord("join-token", "revoke", through_agent.split(".")[2]))
    check(through_agent.split(".")[2] not in [t["ID"] for t in woken[0]], woken)
    check("not known" in join(through_agent, server, "late", code=1), "it was revoked")
    agent.coord("join-token", "revoke", through_agent.split(".")[2], code=2)
    agent.coord("join-token", "revoke", "nonsense!", code=2)

    # from a file, from the environment, from systemd; of another cluster
    path = os.path.join(server.dir, "token")
    for how in ("file", "environment", "systemd", "other"):
        token = server.coord("join-token").strip()
        with open(path, "w") as f:
            f.write(token + "\n")
        host = Member(name="tok-" + how, server=False)
        words = ["join", "-data-dir", host.data, "-bind", host.ip, "-node", host.name, "-timeout", "20s", *(["-token-file", path] if how == "file" else [])]
        if how == "other":
            elsewhere = Member(name="tok-else")
            words.append(re.search(r"coord1a\.\S+", command("init", "-data-dir", elsewhere.data, "-bind", elsewhere.ip, "-node", elsewhere.name)).group(0))
        r = subprocess.run([COORD, *words, server.ip], capture_output=True, text=True, timeout=60 * SLOW,
                           env=dict(os.environ, **({"COORD_JOIN_TOKEN": token} if how == "environment" else service_of(server, token) if how == "systemd" else {})))
        check(r.returncode == (how == "other"), "%s: %d %s" % (how, r.returncode, r.stdout + r.stderr))
        if how == "other":
            check("CA" in r.stderr and not os.path.exists(os.path.join(host.data, "tls/cert.pem")), r.stderr)
    os.unlink(path)
    host = Member(name="tok-service", server=False)
    for content, mode, said in (("", 0o400, "it is empty"), (token[:-5], 0o440, "cut short"), (token, 0, "Permission denied"), (None, 0, "cannot be read")):
        words = [COORD, "join", "-data-dir", host.data, "-bind", host.ip, "-timeout", "20s", server.ip]
        if mode == 0 and content and os.geteuid() == 0:      # whom no mode keeps out
            continue
        r = subprocess.run(words, capture_output=True, text=True, timeout=60 * SLOW, env=dict(os.environ, **service_of(server, content, mode)))
        check(r.returncode == 2 and said in r.stderr and "coord.join-token" in r.stderr and not os.path.exists(host.data), "%r: %d %s" % (said, r.returncode, r.stderr))

    # a short life
    short = json.loads(server.put("/v1/join-token", {"TTL": "2s", "Uses": 0}))
    until("it ends by itself", lambda: short["ID"] not in [t["ID"] for t in server.get("/v1/join-tokens")[2]])
    check("not known" in join(short["Token"], server, "late", code=1), "it has ended")

    # no secret anywhere
    secrets = [t.split(".")[3].encode() for t in (*c.tokens, made["Token"], alone, through_agent, short["Token"])]
    for one in (server, agent):
        for path in ("/v1/join-tokens", "/v1/certificates", "/v1/ca", "/v1/secure", "/v1/agent/self", "/v1/agent/metrics"):
            body = one.request("GET", path)[2]
            check(not any(s in body for s in secrets), "a secret is in %s" % path)
    for path, content in everything_that_is_kept(server, agent):
        check(not any(s in content for s in secrets), "a secret is in %s" % path)


def certificates_are_listed():
    c = Closed("cert")
    both = {k["Node"]: k for k in c.agent.get("/v1/certificates")[2]}
    check(sorted(both) == ["cert-a1", "cert-s1"], both)
    for name, role in (("cert-a1", "agent"), ("cert-s1", "server")):
        one = both[name]
        at = {k: time.strptime(one[k], "%Y-%m-%dT%H:%M:%SZ") for k in ("NotBefore", "NotAfter", "RenewAt")}
        at = {k: time.mktime(v) for k, v in at.items()}
        check(one["Role"] == role and one["State"] == "valid" and len(one["Serial"]) > 8, one)
        check(abs(at["RenewAt"] - (at["NotBefore"] + at["NotAfter"]) / 2) <= 1, one)
        check(abs(at["NotAfter"] - at["NotBefore"] - 7 * 86400) < 3600, one)
    ca = c.agent.get("/v1/ca")[2]["CAs"]
    check(len(ca) == 1 and ca[0]["Signs"] and ca[0]["Nodes"] == 2 and sorted(ca[0]["Names"]) == sorted(both), ca)
    check(all(one["CA"] == ca[0]["Pin"] for one in both.values()), ca)
    table = c.agent.coord("certificates").splitlines()
    check(table[0].split() == ["Node", "Role", "Until", "Renewed", "State"] and len(table) == 3, table)
    check(ca[0]["Pin"] in c.server.coord("ca", "status"), "status shows the pin")
    check(c.agent.get("/v1/secure")[2] == {"Mode": "closed", "With": ["cert-a1", "cert-s1"], "Without": [], "Strangers": []}, c.agent.get("/v1/secure"))
    check("secure start" not in c.server.coord("secure", "status"), "it is closed")
    for verb in ("start", "abort"):
        c.server.put("/v1/secure/" + verb, expect=409)
    c.server.put("/v1/secure/finish")                    # nobody is without, and it is closed already

    # this process's own
    own = c.agent.get("/v1/agent/metrics/certificates")[2]
    check([(o["Type"], o["Severity"]) for o in own["Certificates"]] == [("node", "ok"), ("ca", "ok"), ("https", "ok")], own)
    check(own["Certificates"][0]["Serial"] == both["cert-a1"]["Serial"] and own["Certificates"][0]["AutoRenewable"], own)
    text = c.agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()
    left = dict(re.findall(r'^coord_certificate_expires_seconds\{which="(\w+)"\} (\d+)$', text, re.M))
    check(sorted(left) == ["ca", "https", "node"] and 6 * 86400 < int(left["node"]) <= 7 * 86400, left)
    checks = lambda: {k["CheckID"]: k["Status"] for k in c.agent.get("/v1/health/node/cert-a1")[2]}
    check("certificate" not in checks(), "a check, which could take the node's services out of ?passing, is for those who ask for it")
    line = next(l for l in c.agent.log().splitlines() if "protected by TLS" in l).split("agent: ", 1)[1]
    tls = c.agent.get("/v1/agent/self")[2]["Stats"]["tls"]
    check(line == "protected by TLS: %s | not protected: %s" % (tls["protected"], tls["not_protected"]), (line, tls))
    check("by the cluster's certificates" in tls["protected"] and "among themselves" not in tls["not_protected"], tls)
    check("protected = " + tls["protected"] in c.agent.coord("info"), "coord info says the same")


def a_removed_node_stays_out():
    c = Closed("rem")
    server, agent = c.server, c.agent
    check("alive" in server.coord("force-leave", agent.name, code=1), "an agent that lives stays")
    check(c.certificate(agent.name)["State"] == "valid", "and keeps its certificate")
    before = agent.log().count("the connection is lost")
    said = []

    def remove():
        said.append(server.coord("force-leave", "-prune", agent.name))

    def write():                                         # the agent has something to tell the catalog all the time
        i = 0
        while not said:
            agent.put("/v1/agent/service/register", {"Name": "web", "Meta": {"i": str(i)}})
            i += 1
    together(remove, write)
    said = said[0]
    check("certificate counts no more" in said, said)
    until("its connection ends", lambda: agent.log().count("the connection is lost") > before, within=1)
    check(c.certificate(agent.name)["State"] == "removed", c.certificate(agent.name))
    gone = lambda: agent.name not in [m["Name"] for m in server.get("/v1/agent/members")[2]]
    check(gone(), "it is listed no more")
    until("it is refused", lambda: "removed from the cluster" in agent.log())
    check(gone(), "it did not come back")
    agent.stop()
    agent.start(wait=False)
    count = agent.log().count("removed from the cluster")
    until("it is refused after a restart, too", lambda: agent.log().count("removed from the cluster") > count)
    check(gone(), "nor after a restart")
    agent.kill()
    again = join(c.tokens[1], server, agent.name).start()
    check(not gone() and c.certificate(again.name)["State"] == "valid", "it has joined anew")

    # the same for the second time: nothing is left to remove but the node
    again.kill()
    server.coord("force-leave", "-prune", again.name)
    check(c.certificate(again.name)["State"] == "removed", "it is removed again")
    server.coord("force-leave", "-prune", "nobody", code=2)
    check("alive" in server.coord("force-leave", "-prune", server.name, code=1), "nobody removes himself")

    # a server
    second = join(c.tokens[0], server, "rem-s2").start()
    peers = lambda: server.get("/v1/operator/raft/configuration")[2]["Servers"]
    until("two servers vote", lambda: len([p for p in peers() if p["Voter"]]) == 2, within=30)
    until("it has a record", lambda: (c.certificate("rem-s2") or {}).get("State") == "valid")
    server.coord("operator", "raft", "remove-peer", "-id=" + next(p["ID"] for p in peers() if p["Node"] == "rem-s2"))
    check(c.certificate("rem-s2")["State"] == "removed" and len(peers()) == 1, "its certificate counts no more")
    until("it is refused", lambda: "removed from the cluster" in second.log())


def a_rotation_ends_by_itself():
    c = Closed("rot")
    first = c.server.get("/v1/ca")[2]["CAs"][0]
    serials = {name: c.certificate(name)["Serial"] for name in ("rot-s1", "rot-a1")}
    check("at a server only" in c.agent.coord("ca", "rotate", code=1), "a host with an agent is not enough")
    c.server.coord("ca", "rotate")
    cas = c.server.get("/v1/ca")[2]["CAs"]
    check(len(cas) == 2 and cas[0]["Pin"] != first["Pin"] and cas[0]["Signs"] and not cas[1]["Signs"], cas)
    old = first["Certificate"].strip().encode()
    check(old in kept(c.agent, "ca.pem"), "it is trusted until then")
    for i in range(20):                                  # while it goes on, everything works
        c.agent.put("/v1/kv/r%d" % i, "x")

    def one():
        now = c.server.get("/v1/ca")[2]["CAs"]
        return len(now) == 1 and now
    now = until("the old CA is gone", one, within=30, every=0.2)
    check(now[0]["Pin"] == cas[0]["Pin"] and now[0]["Nodes"] == 2, now)
    for name, serial in serials.items():
        check(c.certificate(name)["Serial"] != serial and c.certificate(name)["CA"] == cas[0]["Pin"], c.certificate(name))
    until("the agent trusts only the new one", lambda: [o["Type"] for o in c.agent.get("/v1/agent/metrics/certificates")[2]["Certificates"]]
          == ["node", "ca", "https"], within=10)
    until("the old one is not in its file", lambda: old not in kept(c.agent, "ca.pem"), within=10)
    c.agent.put("/v1/kv/after", "x")
    c.agent.stop()
    c.agent.start()
    join(json.loads(c.agent.put("/v1/join-token"))["Token"], c.server, "rot-a2").start()
    check("only the CA" in c.server.coord("ca", "drop"), "nothing is left to drop")


def a_rotation_waits_for_who_is_away():
    """The old CA is trusted until the last node has moved; one that was away during two rotations comes back with what it has."""
    c = Closed("away")
    c.agent.stop()
    for count in (2, 3):
        c.server.coord("ca", "rotate")
        new = c.cas()[0]
        until("the server has moved", lambda: c.certificate("away-s1")["CA"] == new, within=30, every=0.2)
        check(len(c.cas()) == count, "the old CA is still trusted")
    said = c.server.coord("ca", "status")
    check("away-a1" in said, said)
    c.agent.start()
    c.agent.put("/v1/kv/back", "x")
    until("the old CAs are gone", lambda: c.cas() == [new], within=30, every=0.2)
    check(c.certificate("away-a1")["CA"] == new, "it has moved, too")


def a_full_disk_while_a_renewed_certificate_is_written():
    """With every amount of space that is too little: the old pair stays and counts, and so does its CA. With space it is renewed."""
    agent = Member(name="full-a1", server=False)
    agent.data = os.path.join(agent.dir, "disk", "data")
    os.makedirs(os.path.dirname(agent.data))
    r = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "coord-test", os.path.dirname(agent.data)], capture_output=True, text=True)
    if r.returncode:
        return print("     nothing can be mounted: left out: " + r.stderr.strip())
    try:
        c = Closed("full", agent=agent)
        pair = lambda: (kept(agent, "cert.pem"), kept(agent, "key.pem"))
        before, filler = pair(), os.path.join(agent.dir, "disk", "filler")
        full.fill(filler)
        c.server.coord("ca", "rotate")
        new, failures = c.cas()[0], 0
        until("the server has moved", lambda: c.certificate("full-s1")["CA"] == new, within=30, every=0.2)
        while pair() == before:
            count = agent.log().count("was not renewed")
            until("it tries", lambda: pair() != before or agent.log().count("was not renewed") > count, within=20)
            if pair() == before:
                failures += 1
                agent.kill()
                agent.start()                            # with what is there
                agent.put("/v1/kv/full", str(failures))
                check(c.certificate("full-a1")["CA"] != new and len(c.cas()) == 2, "the old CA counts, because the agent needs it")
            os.truncate(filler, os.path.getsize(filler) - 4096)
        print("     %d renewals found too little space" % failures)
        check(failures >= 2 and "cert.pem.new: No space left" in agent.log(), "%d failures: %s" % (failures, agent.log()[-2000:]))
        check(pair()[1] == before[1], "it keeps its key")
        until("the old CA is gone", lambda: c.cas() == [new], within=30, every=0.2)
        agent.kill()
        agent.start()
        agent.put("/v1/kv/full", "renewed")
    finally:
        agent.kill()
        subprocess.run(["umount", "-l", os.path.dirname(agent.data)], capture_output=True)


def a_rotation_whose_key_was_lost():
    """The disk of the server that made the new CA is lost before another server has its key: another rotation ends it."""
    c = Closed("lost")
    c.agent.stop()                                       # the old CA stays until it has moved
    before = kept(c.server, "ca.key")
    c.server.coord("ca", "rotate")
    lost = c.cas()[0]
    until("it has moved", lambda: c.certificate("lost-s1")["CA"] == lost, within=30, every=0.2)
    check(kept(c.server, "ca.key") != before, "it has the new key")
    c.server.kill()
    with open(os.path.join(c.server.data, "tls/ca.key"), "wb") as f:
        f.write(before)
    c.server.start()
    check("does not have the CA's key" in c.server.coord("join-token", code=3), "it cannot make tokens that the newest CA stands for")
    c.server.coord("ca", "rotate")
    new = c.cas()[0]
    c.agent.start()
    until("all have moved", lambda: c.cas() == [new], within=30, every=0.2)
    check(c.certificate("lost-a1")["CA"] == new, "the agent, too")
    check(c.server.coord("join-token").startswith("coord1a."), "it makes tokens")


def a_rotation_while_servers_are_down():
    """At each server of three in turn: whichever made the new CA, the others come for its key, and stop when they have it."""
    c = Closed("dwn")
    others = [join(c.tokens[0], c.server, "dwn-s%d" % n).start() for n in (2, 3)]
    servers = [c.server, *others]
    until("there are three voters", lambda: c.server.coord("operator", "raft", "list-peers").count("true") == 3, within=30)
    for maker in servers:
        before = {one.name: one.log().count("certificates: renewed") for one in servers}
        maker.coord("ca", "rotate")
        new = maker.get("/v1/ca")[2]["CAs"][0]["Pin"]
        for other in servers:
            if other is not maker:
                other.kill()
                other.start(wait=False)
        for one in servers:
            one.wait_leader(30)

        def moved():
            return {x["Node"]: x["CA"] for x in maker.get("/v1/certificates")[2]} == {name: new for name in ("dwn-s1", "dwn-s2", "dwn-s3", "dwn-a1")}
        until("all have moved", moved, within=120, every=0.2)       # an attempt that failed is repeated after up to 300 s
        until("the old CA is gone", lambda: c.cas() == [new], within=60, every=0.2)
        for one in servers:                              # each has the new key: it signs
            until("%s makes tokens" % one.name, lambda: one.request("PUT", "/v1/join-token")[0] == 200)
            count = one.log().count("certificates: renewed") - before[one.name]
            check(count <= 4, "%s, after %s rotated: %d renewals: %s" % (one.name, maker.name, count, one.log()[-2000:]))


def an_open_cluster_names_who_is_without():
    a = Agent(name="n1").start()
    check(a.request("GET", "/v1/ca")[0] == 404 and a.get("/v1/certificates")[2] == [], "it has no CA")
    status, _, why = a.request("PUT", "/v1/join-token")
    check(status == 400 and b"coord secure start" in why, why)
    check("open" in a.coord("secure", "status"), "it is open")
    check("certificate" not in [k["CheckID"] for k in a.get("/v1/health/node/n1")[2]], "there is nothing to warn about")
    a.coord("secure", "finish", code=2)


def warnings_before_the_end():
    """An agent with a certificate of its own that ends in five days; one that ends in twenty; one without warnings."""
    folder = tempfile.mkdtemp(prefix="coord-e2e-tls-")

    def tls(*args):
        r = subprocess.run([COORD, "tls", *args], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        check(r.returncode == 0, r.stdout + r.stderr)
    tls("ca", "create", "-domain", "consul")

    def agent(number, days, **telemetry):
        tls("cert", "create", "-server", "-domain", "consul", "-days", str(days))
        base = os.path.join(folder, "dc1-server-consul-%d" % number)
        more = telemetry.pop("coord", {"certificate_check": True})
        return Agent(configuration(ports={"https": 8501}, cert_file=base + ".pem", key_file=base + "-key.pem", coord=more,
                                   telemetry={"certificate": telemetry}), name="w%d" % number).start()

    def check_of(a):
        return next((k for k in a.get("/v1/health/node/" + a.name)[2] if k["CheckID"] == "certificate"), None)
    five, twenty, silent, calm, unchecked = agent(0, 5), agent(1, 20), agent(2, 5, enabled=False), \
        agent(3, 20, warning_threshold_days=10, info_threshold_days=25), agent(4, 5, coord={})
    until("critical", lambda: (check_of(five) or {}).get("Status") == "critical")
    check("https certificate of" in check_of(five)["Output"], check_of(five))
    check(re.search(r"WARN\] certificates: https certificate .* ends in [45] days", five.log()), five.log())
    until("warning", lambda: (check_of(twenty) or {}).get("Status") == "warning")
    until("passing", lambda: (check_of(calm) or {}).get("Status") == "passing")
    check(re.search(r"INFO\] certificates: https certificate .* ends in (19|20) days", calm.log()), calm.log())
    check(check_of(silent) is None and "https certificate of" not in silent.log(), "no warnings are wanted")
    check(check_of(unchecked) is None and "https certificate of" in unchecked.log(), "the log alone")
    severity = lambda a: sorted({c["Severity"] for c in a.get("/v1/agent/metrics/certificates")[2]["Certificates"]})
    check([severity(a) for a in (five, twenty, silent, calm)] == [["critical"], ["warning"], ["critical"], ["info"]], "severities")
    taken = Agent(configuration(check={"id": "certificate", "name": "mine", "ttl": "1h", "status": "passing"}, ports={"https": 8501}, coord={"certificate_check": True},
                                cert_file=os.path.join(folder, "dc1-server-consul-0.pem"),
                                key_file=os.path.join(folder, "dc1-server-consul-0-key.pem")), name="w8").start()
    until("it is the user's", lambda: (check_of(taken) or {}).get("Name") == "mine")
    check("which keeps this name" in taken.log() and check_of(taken)["Status"] == "passing", check_of(taken))
    wrong = Agent(configuration(telemetry={"certificate": {"critical_threshold_days": 31}}), name="w9")
    wrong.start(wait=False)
    wrong.proc.wait(30 * SLOW)
    check(wrong.proc.returncode == 2 and "have to be in this order" in wrong.log(), wrong.log())


SIDE_BY_SIDE = [a_rotation_ends_by_itself, tokens_are_made_listed_and_end, certificates_are_listed, a_removed_node_stays_out, a_rotation_waits_for_who_is_away,
                a_rotation_whose_key_was_lost, a_full_disk_while_a_renewed_certificate_is_written,
                a_rotation_while_servers_are_down]


def side_by_side():
    """They wait most of the time."""
    together(*SIDE_BY_SIDE)


if __name__ == "__main__":
    run([an_open_cluster_names_who_is_without, warnings_before_the_end, *(SIDE_BY_SIDE if sys.argv[1:] else []), side_by_side])
