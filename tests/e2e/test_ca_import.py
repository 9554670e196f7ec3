"""A CA of a company signs for a cluster: `coord ca import`, `coord init -ca-cert`; and what is refused."""
import json, os, re, socket, ssl, subprocess, tempfile
from closed import Closed, Member, command, found, join
from coordtest import COORD, Agent, check, run, together, until
from test_trust import everything_that_is_kept


def openssl(*words, text=None):
    r = subprocess.run(["openssl", *words], input=text, capture_output=True, text=True)
    check(r.returncode == 0, "openssl %s: %s" % (" ".join(words), r.stderr))
    return r.stdout


class Company:
    """A root, a CA for policies below it, and below that the CAs that sign for clusters."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="coord-e2e-company-")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-nodes", "-days", "3650", "-subj", "/O=Example/CN=Example Root", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout",
                self.path("root.key"), "-out", self.path("root.pem"))
        self.issue("policy", "root", "/O=Example/CN=Policy CA", 3000, pathlen=1)

    def path(self, name):
        return os.path.join(self.dir, name)

    def text(self, name):
        with open(self.path(name)) as f:
            return f.read()

    def issue(self, name, by, subject, days, pathlen=0, ca=True, key=None):
        """name.pem, and name.key (or `key`, which stays as it is)."""
        how = ["-key", key] if key else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(name + ".key")]
        openssl("req", "-new", *how, "-subj", subject, "-out", self.path("asked"))
        with open(self.path("more"), "w") as f:
            f.write("basicConstraints=critical,CA:%s\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
                    % ("TRUE,pathlen:%d" % pathlen if ca else "FALSE"))
        openssl("x509", "-req", "-in", self.path("asked"), "-CA", self.path(by + ".pem"), "-CAkey", self.path(by + ".key"), "-CAcreateserial",
                "-days", str(days), "-extfile", self.path("more"), "-out", self.path(name + ".pem"))

    def signer(self, name, days=2000, key=None):
        """A CA for a cluster: the files of its chain and of its key."""
        self.issue(name, "policy", "/O=Example/CN=Cluster CA " + name, days, key=key)
        with open(self.path(name + "-chain.pem"), "w") as f:
            f.write(self.text(name + ".pem") + self.text("policy.pem") + self.text("root.pem"))
        return self.path(name + "-chain.pem"), key or self.path(name + ".key")


def pin_of(path):
    public = openssl("x509", "-in", path, "-noout", "-pubkey")
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"], input=public.encode(), capture_output=True, check=True).stdout
    return subprocess.run(["openssl", "dgst", "-sha256", "-r"], input=der, capture_output=True, check=True).stdout.decode()[:64]


def cas(agent):
    return agent.get("/v1/ca")[2]["CAs"]


def shown_over_https(company, agent):
    """OpenSSL, which trusts the company's root alone, takes the certificate; so does a client that does nothing special."""
    chain = openssl("s_client", "-connect", agent.ip + ":8501", "-showcerts", text="")
    pems = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", chain, re.S)
    check(len(pems) >= 3, "the node's, the CA's, and the one above it: %d" % len(pems))
    leaf, more = company.path(agent.name + "-leaf.pem"), company.path(agent.name + "-more.pem")
    with open(leaf, "w") as f:
        f.write(pems[0])
    with open(more, "w") as f:
        f.write("".join(pems[1:]))
    openssl("verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", company.path("root.pem"), "-untrusted", more, leaf)
    context = ssl.create_default_context(cafile=company.path("root.pem"))
    with context.wrap_socket(socket.create_connection((agent.ip, 8501), timeout=20), server_hostname=agent.ip) as s:
        check(s.version() in ("TLSv1.2", "TLSv1.3"), s.version())


def trusted_by(agent):
    with open(os.path.join(agent.data, "tls/ca.pem")) as f:
        return f.read()


def subjects_of(pem):
    """A line for each certificate."""
    names = openssl("storeutl", "-noout", "-text", "-certs", "/dev/stdin", text=pem)
    return "\n".join(re.sub(r" *([=,]) *", r"\1", name) for name in re.findall(r"^ *Subject: (.*)$", names, re.M))


def key_of(agent):
    with open(os.path.join(agent.data, "tls/ca.key")) as f:
        return f.read()


def a_cluster_moves_to_the_company():
    company = Company()
    chain, key = company.signer("one")
    c = Closed("imp")
    servers = [c.server] + [join(c.tokens[0], c.server, "imp-s%d" % n).start() for n in (2, 3)]
    until("there are three voters", lambda: c.server.coord("operator", "raft", "list-peers").count("true") == 3, within=30)
    away = join(c.server.coord("join-token").strip(), c.server, "imp-away").start()
    away.stop()
    before = cas(c.server)[0]["Pin"]
    said = servers[1].coord("ca", "import", "-ca-cert", chain, "-ca-key", key)
    check("signs from now on" in said and "warning" not in said, said)
    now = cas(c.server)
    check([x["Pin"] for x in now] == [pin_of(company.path("one.pem")), before] and now[0]["Signs"], now)
    for i in range(20):                                  # while it goes on, everything works
        c.agent.put("/v1/kv/i%d" % i, "x")

    def moved(names):
        return {x["Node"] for x in c.server.get("/v1/certificates")[2] if x["CA"] == now[0]["Pin"]} >= set(names)
    until("who is there has moved", lambda: moved(["imp-s1", "imp-s2", "imp-s3", "imp-a1"]), within=120, every=0.5)
    check(len(cas(c.server)) == 2 and "imp-away" in c.server.coord("ca", "status"), "one is away, and is named")
    away.start()
    until("the old CA is gone", lambda: len(cas(c.server)) == 1, within=120, every=0.5)
    check(moved(["imp-away"]), "it came back, and has moved")
    for server in servers:
        until("%s has the key" % server.name, lambda: key_of(server) == key_of(servers[1]))
        check(not os.path.exists(os.path.join(server.data, "tls/ca-import.key")) and not os.path.exists(os.path.join(server.data, "tls/ca-next.key")), "no copy is left")
        until("%s makes tokens" % server.name, lambda: server.coord("join-token").startswith("coord1a."), within=20)
    late = join(c.server.coord("join-token").strip(), servers[2], "imp-late").start()
    server = join(c.server.coord("join-token", "-server").strip(), servers[2], "imp-s4").start()
    check(key_of(server) == key_of(servers[1]), "a new server has the key at once")
    for one in (servers[0], late, server):
        shown_over_https(company, one)
    until("the old CA is trusted no more", lambda: "coord CA" not in subjects_of(trusted_by(late)))
    check(set(subjects_of(trusted_by(late)).split("\n")) == {"O=Example,CN=Cluster CA one"}, "the CA alone is trusted, and no root of it")
    secret = "".join(company.text("one.key").split("\n")[1:-2]).encode()[:40]
    for path, content in everything_that_is_kept(*servers, c.agent, late):
        check(secret not in content.replace(b"\n", b"") or path.endswith("tls/ca.key"), "the CA's key is in %s" % path)

    # another certificate for the same key, as before its end: nobody has to renew for it
    serials = {x["Node"]: x["Serial"] for x in c.server.get("/v1/certificates")[2]}
    chain, key = company.signer("again", days=300, key=key)
    said = c.server.coord("ca", "import", "-ca-cert", chain, "-ca-key", key, "-data-dir", c.server.data)
    check("warning: its chain ends on 20" in said, said)
    check([x["Pin"] for x in cas(c.server)] == [now[0]["Pin"]] and cas(c.server)[0]["NotAfter"] != now[0]["NotAfter"], cas(c.server))
    until("the others have it", lambda: company.text("again.pem").strip() in trusted_by(servers[1]))
    last = join(servers[1].coord("join-token").strip(), servers[1], "imp-last").start()
    shown_over_https(company, last)
    with open(os.path.join(last.data, "tls/cert.pem")) as f:
        check(company.text("again.pem").strip() in f.read(), "every server signs by the new certificate")
    certificates = {x["Node"]: x for x in c.server.get("/v1/certificates")[2]}
    check(all(certificates[name]["Serial"] == serial for name, serial in serials.items()), "nobody else has renewed")

    # it may sign no other CA, so nodes that are away cannot follow
    said = c.server.coord("ca", "rotate")
    check("nodes that are down" in said, said)
    check(len(cas(c.server)) == 2, "it is under way")


def what_does_not_fit_is_refused():
    company = Company()
    chain, key = company.signer("good")
    c = Closed("ref")
    before = cas(c.server)

    def refused(why, chain, key, agent=c.server, code=2):
        said = agent.coord("ca", "import", "-ca-cert", chain, "-ca-key", key, "-data-dir", c.server.data, code=code)
        check(why in said, "%s: %s" % (why, said))
        check(not os.path.exists(os.path.join(c.server.data, "tls/ca-import.key")), "its key is not left behind")
    os.chmod(key, 0o640)
    refused("chmod 600", chain, key)
    os.chmod(key, 0o600)
    refused("belongs to another certificate", chain, company.path("root.key"))
    refused("empty", "/dev/null", key)
    company.issue("leaf", "policy", "/CN=www", 30, ca=False)
    refused("is no CA", company.path("leaf.pem"), company.path("leaf.key"))
    with open(company.path("cut.pem"), "w") as f:
        f.write(company.text("good.pem") + company.text("root.pem"))
    refused("is not issued by the next one", company.path("cut.pem"), key)
    refused("at a server only", chain, key, agent=c.agent, code=1)
    status, _, why = c.server.request("PUT", "/v1/ca/import", {"Certificates": company.text("good-chain.pem")})
    check(status == 400 and b"coord ca import" in why, why)
    status, _, why = c.server.request("PUT", "/v1/ca/rotate?dc=elsewhere", b"")
    check(status == 400 and b"by itself" in why, why)
    check(cas(c.server) == before, "nothing has changed")
    opened = Agent(name="ref-o1").start()
    said = opened.coord("ca", "import", "-ca-cert", chain, "-ca-key", key, code=2)
    check("tls" in said or "open" in said, said)


def a_cluster_begins_with_it():
    company = Company()
    chain, key = company.signer("first")
    server = Member(name="ini-s1")
    words = ["init", "-data-dir", server.data, "-bind", server.ip, "-node", server.name]
    os.chmod(key, 0o644)
    check("chmod 600" in command(*words, "-ca-cert", chain, "-ca-key", key, code=2), "others may read its key")
    os.chmod(key, 0o600)
    check("together" in command(*words, "-ca-cert", chain, code=2), "its key is wanted")
    tokens = re.findall(r"coord1[sa]\.\S+", found(server, "-ca-cert", chain, "-ca-key", key))
    server.start()
    agent = join(tokens[1], server, "ini-a1").start()
    check([x["Pin"] for x in cas(agent)] == [pin_of(company.path("first.pem"))], cas(agent))
    for one in (server, agent):
        shown_over_https(company, one)
    other = Closed("ini-other").server
    shown = json.loads(other.coord("region", "trust", "-address", server.ip, "-json", "ini"))
    check(shown["Fingerprint"] == pin_of(company.path("first.pem")), "another region trusts it, and nothing above it: %r" % shown)


def side_by_side():
    together(a_cluster_moves_to_the_company, what_does_not_fit_is_refused, a_cluster_begins_with_it)


if __name__ == "__main__":
    run([side_by_side])
