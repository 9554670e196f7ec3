"""Made-up processes at the port of a closed cluster's servers: with a certificate that is good and a name or a role that is not its own, with frames that
only servers send, with certificates of their own making, with old versions of TLS, with an expired one. The server refuses them, and says why."""
import json, os, subprocess, tempfile, time
from closed import Closed, Member, command, faked, join, kept
from coordtest import SLOW, check, run, together, until
from peer import AUDIT, BACKUP, BACKUP_PIECE, CHANGE, CHANGE_ANSWER, CLUSTER, CLUSTER_ANSWER, COPY_ASK, ECHO, ECHO_ANSWER, ENROL_ANSWER, ENROL_REQUEST, FOUND, HELLO, JOIN, MEMBER, PING, RAFT, REFUSED, RENEW, RENEW_LEASE, RENEW_ANSWER, RESULTS, SECURE, WRITES, \
    Peer, fields, message, pair_of
from tls_client import only_new_versions


def refused(server, peer, words, *kinds):
    """It is told so, or its connection just ends; the server's log says why, and names where it came from."""
    said = peer.until(*(kinds or (HELLO, ECHO_ANSWER)))
    check(said is None or said[0] == REFUSED, "it is answered: %r" % (said,))
    here = "remote=" + peer.here
    until("the log says why: " + words, lambda: any(words in line and (here in line or "remote=" not in line) for line in server.log().splitlines()))
    peer.close()


def a_name_or_role_that_is_not_its_own():
    c = Closed("imp")
    server, own = c.server, pair_of(c.agent)
    good = lambda node="imp-a1", **more: Peer(server.ip, own).hello(node, **more)
    peer = good()                                        # as the agent itself would
    check(peer.until(HELLO)[0] == HELLO, "its own name is taken")
    peer.send(ECHO, message(f1=7))
    check(fields(peer.until(ECHO_ANSWER)[1])[1] == 7, "and what it asks is answered")
    check(good("IMP-A1").until(HELLO)[0] == HELLO, "names count without regard to case")

    refused(server, good("imp-s1"), "it says that it is node imp-s1, and its certificate is that of imp-a1")
    refused(server, good("other"), "it says that it is node other, and its certificate is that of imp-a1")
    refused(server, good(agent=False), "its certificate is that of client agent imp-a1, no server's")
    refused(server, good("imp-s1", agent=False), "its certificate is that of client agent imp-a1, no server's")
    refused(server, good(f18="dc9"), "the CA of region dc9 is not trusted here")
    refused(server, Peer(server.ip, own).send(ECHO, message(f1=7)), "it did not say hello")
    # a server's certificate makes no other server
    theirs = pair_of(server)
    refused(server, Peer(server.ip, theirs).hello("imp-s2", agent=False), "it says that it is node imp-s2, and its certificate is that of imp-s1")
    check(Peer(server.ip, theirs).hello("imp-s1", agent=False).until(HELLO)[0] == HELLO, "its own name is taken")

    # frames of servers
    for kind in (RAFT, FOUND, AUDIT, COPY_ASK):
        peer = good()
        check(peer.until(HELLO)[0] == HELLO, "hello")
        refused(server, peer.send(kind, message(f1=1)), "a frame that client agents do not send type=%d node=imp-a1" % kind)
    # commands that only servers propose: another CA, another node's certificate
    before = server.get("/v1/ca")[2]
    for command_type in (12, 17, 18):
        peer = good()
        check(peer.until(HELLO)[0] == HELLO, "hello")
        inner = message(f1="imp-s1", f2=1) if command_type == 18 else message(f1=b"")
        said = peer.send(WRITES, message(f1=message(f1=5, f2=bytes([command_type, 1]) + inner))).until(RESULTS)
        check(said and said[0] == RESULTS and fields(fields(said[1])[1]).get(2), "command %d is refused: %r" % (command_type, said))
    check(server.get("/v1/ca")[2] == before and c.certificate("imp-s1")["State"] == "valid", "nothing has changed")
    check([n["Node"] for n in server.get("/v1/catalog/nodes")[2]] == ["imp-a1", "imp-s1"], "nobody is in the catalog")


def made(folder, name, ca=None, uri=None, days=30):
    """A certificate by openssl: of its own, or of this (certificate, key)."""
    base = os.path.join(folder, name)
    names = "subjectAltName=URI:%s,DNS:server.dc1.coord" % uri
    by = ["-CA", ca[0], "-CAkey", ca[1]] if ca else []
    r = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", base + ".key", "-out", base + ".pem",
                        "-days", str(days), "-subj", "/CN=" + name, "-addext", names, "-addext", "extendedKeyUsage=serverAuth,clientAuth", *by],
                       capture_output=True, text=True)
    check(r.returncode == 0, r.stderr)
    return base + ".pem", base + ".key"


def certificates_of_their_own_making():
    c = Closed("own")
    server = c.server
    with tempfile.TemporaryDirectory() as folder:
        domain = next(line for line in subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", pair_of(server)[0]], capture_output=True,
                                                      text=True).stdout.replace(",", "\n").split() if "spiffe" in line)[len("URI:"):]
        check(domain.startswith("spiffe://") and domain.endswith("/server/own-s1"), domain)
        agent = domain.replace("server/own-s1", "agent/own-a1")
        for alpn in (MEMBER, RENEW):
            for name, uri in (("self-server", domain), ("self-agent", agent)):
                peer = Peer(server.ip, made(folder, name, uri=uri), alpn)
                refused(server, peer.hello("own-s1", agent=False), "its certificate is signed by itself, and is not trusted here")
            # a node's certificate is no CA, whatever it signs
            peer = Peer(server.ip, made(folder, "below", ca=pair_of(c.agent), uri=domain), alpn)
            refused(server, peer.hello("own-s1", agent=False), "its certificate comes from a CA that is not trusted here")
            refused(server, Peer(server.ip, None, alpn).hello("own-a1"), "it shows no certificate")
        # the same made of the cluster's CA is taken: nothing else is wrong with it (openssl's -CA takes the key of a CA)
        peer = Peer(server.ip, made(folder, "signed", ca=(os.path.join(server.data, "tls/ca.pem"), os.path.join(server.data, "tls/ca.key")), uri=domain))
        refused(server, peer.hello("own-s1", agent=False), "another certificate was issued for its name since")


def requests_that_name_their_own_region():
    """An agent leaves the region out when it is this one. Whoever names it has no more rights."""
    c = Closed("own-r")
    server = c.server
    server.put("/v1/kv/secret", "x")
    session = json.loads(server.put("/v1/session/create", {"TTL": "10m"}))["ID"]
    until("the session's time runs", lambda: server.request("PUT", "/v1/session/renew/" + session)[0] == 200)
    peer = Peer(server.ip, pair_of(c.agent)).hello("own-r-a1")
    check(peer.until(HELLO)[0] == HELLO, "hello")
    forged = [(CLUSTER, CLUSTER_ANSWER, dict(f1=1), 3), (CHANGE, CHANGE_ANSWER, dict(f1=1, f2=1, f4="10.9.9.9:8300"), 5),
              (BACKUP, BACKUP_PIECE, dict(f1=1, f2=1), 7), (BACKUP, BACKUP_PIECE, dict(f1=2, f2=2, f5=7, f6=b"archive"), 7),
              (RENEW_LEASE, RENEW_ANSWER, dict(f1=1, f2=session), 5), (RENEW_LEASE, RENEW_ANSWER, dict(f1=1, f2=session, f4=1), 5),
              (RENEW_LEASE, RENEW_ANSWER, dict(f1=1, f2="", f4=1), 5)]
    denied = 7                                           # CO_DENIED
    for region in ("", "dc1"):
        for kind, answer, words, at in forged:
            said = fields(peer.send(kind, message(**words, **{"f%d" % at: region})).until(answer)[1])
            check(said.get(2) == denied, "frame %d %r of region %r: %r" % (kind, words, region, said))
    check(server.request("GET", "/v1/kv/secret?raw")[2] == b"x", "nothing was restored")


def old_versions_of_tls():
    c = Closed("old")
    only_new_versions(c.server.ip, 8300, taken=("TLSv1.3",), pair=pair_of(c.agent), alpn=MEMBER)
    only_new_versions(c.server.ip, 8300, taken=("TLSv1.3",), alpn=JOIN)
    only_new_versions(c.server.ip, 8501)


def a_removed_node_is_cut_off():
    """By what happens meanwhile, not by the clock: the removed node asks twenty times a second, and is answered less often than it would be in a second."""
    c = Closed("cut")
    for name, pair, agent in (("cut-a1", pair_of(c.agent), True), ("cut-s2", pair_of(join(c.tokens[0], c.server, "cut-s2")), False)):
        c.agent.kill()
        peer = Peer(c.server.ip, pair).hello(name, agent=agent)
        check(peer.until(HELLO)[0] == HELLO, "it is taken")
        peer.send(ECHO, message(f1=1))
        check(peer.until(ECHO_ANSWER)[0] == ECHO_ANSWER, "and answered")
        c.server.coord("force-leave", "-prune", name)
        answers, said = 0, (ECHO_ANSWER, b"")
        while said and said[0] == ECHO_ANSWER:
            time.sleep(0.05)                             # no answer comes sooner than this after the one before: 20 take a second at least
            try:
                said = peer.send(ECHO, message(f1=1)).until(ECHO_ANSWER)
            except OSError:
                said = None
            answers += 1
            check(answers <= 20, "%s is answered a second after it was removed" % name)
        print("     %s got %d answers" % (name, answers - 1))
        refused(c.server, Peer(c.server.ip, pair).hello(name, agent=agent), "it was removed from the cluster")


def an_expired_certificate():
    """Within 30 days of its end a node renews with its key, and may do nothing else; later, or when it was removed, it may not."""
    environment = faked()
    if not environment:
        return print("     no libfaketime, or a sanitizer: left out")
    server, agent = (Member(name=name, server=False, environment=environment) for name in ("exp-s1", "exp-a1"))

    def go_on(to):
        """In steps that the server's own certificate outlives."""
        while environment.day < to:
            before = kept(server, "cert.pem")
            environment.set(min(to, environment.day + 20))
            until("the server renews on day %d" % environment.day, lambda: kept(server, "cert.pem") != before, within=30)
    c = Closed("exp", server=server, agent=agent)
    old, key = pair_of(agent), kept(agent, "key.pem")
    agent.stop()
    first = kept(agent, "cert.pem")
    go_on(20)
    # 13 days too old: not for a member, who has to renew first
    refused(server, Peer(server.ip, old).hello("exp-a1"), "its certificate expired on")
    agent.start()
    check(kept(agent, "key.pem") == key and kept(agent, "cert.pem") != first, "it has renewed with its key")
    agent.put("/v1/kv/back", "x")
    agent.stop()

    # a removed one renews no more, expired or not
    removed = join(json.loads(server.put("/v1/join-token"))["Token"], server, "exp-a2", member=Member(name="exp-a2", server=False, environment=environment)).start()
    removed.stop()
    go_on(40)
    server.coord("force-leave", "-prune", "exp-a2")
    before = kept(removed, "cert.pem")
    removed.start(wait=False)
    until("it may not renew", lambda: "removed from the cluster" in removed.log(), within=20)
    until("it says so", lambda: "it has to join anew" in removed.log(), within=20)
    check(kept(removed, "cert.pem") == before, "it has what it had")
    removed.kill()

    # more than 30 days after its end: neither asked for by the node nor given by a server
    go_on(60)
    refused(server, Peer(server.ip, old, RENEW).send(ENROL_REQUEST, message(f2="exp-a1")), "its certificate expired on", ENROL_ANSWER)
    before = kept(agent, "cert.pem")
    agent.start(wait=False)
    until("it says so", lambda: "expired more than 30 days ago: it has to join anew" in agent.log(), within=20)
    check(kept(agent, "cert.pem") == before, "it has what it had")


SIDE_BY_SIDE = [a_name_or_role_that_is_not_its_own, certificates_of_their_own_making, requests_that_name_their_own_region, old_versions_of_tls, a_removed_node_is_cut_off,
                an_expired_certificate]


def side_by_side():
    together(*SIDE_BY_SIDE)


if __name__ == "__main__":
    import sys
    run([*(SIDE_BY_SIDE if sys.argv[1:] else []), side_by_side])
