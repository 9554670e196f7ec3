"""Certificates of one's own CA between servers and agents: Consul's verify_* keys, wrong certificates, new ones under load."""
import atexit, os, shutil, socket, ssl, subprocess, tempfile
from coordtest import COORD, SLOW, Agent, Cluster, check, configuration, free_address, run, until
from test_acl_agent import ROOT, acl, ask, seen, started
from test_encrypt import Proxy, Writer, lines
from test_https import Authority

DENIED = "no encrypted connection"


class Ca:
    """`coord tls` in a folder of its own: a CA, and certificates of servers and clients as Consul names them."""

    def __init__(self, domain="coord"):
        self.dir, self.domain = tempfile.mkdtemp(prefix="coord-e2e-tls-"), domain
        atexit.register(shutil.rmtree, self.dir, True)
        self.tls("ca", "create", "-domain=" + domain)
        self.ca = os.path.join(self.dir, domain + "-agent-ca.pem")

    def tls(self, *args):
        r = subprocess.run([COORD, "tls", *args], cwd=self.dir, capture_output=True, text=True)
        check(r.returncode == 0, "coord tls %s: %s" % (" ".join(args), r.stdout + r.stderr))

    def give(self, kind, *args, dc="dc1"):
        before = set(os.listdir(self.dir))
        self.tls("cert", "create", "-" + kind, "-dc=" + dc, "-domain=" + self.domain, *args)
        made = sorted(os.path.join(self.dir, name) for name in set(os.listdir(self.dir)) - before)
        return [name for name in made if name.endswith("-key.pem")][0], [name for name in made if not name.endswith("-key.pem")][0]

    def keys(self, kind="server", pair=None, **more):
        """Configuration keys."""
        key, certificate = pair or self.give(kind)
        return dict(ca_file=self.ca, cert_file=certificate, key_file=key, **more)


def cluster_of(ca, servers=3, **keys):
    cluster = Cluster(servers)
    for server in cluster.servers:
        server.args.append(configuration(**ca.keys(**keys)))
    return cluster


def joins(agent):
    agent.start()
    agent.put("/v1/kv/from-" + agent.name, b"1")
    check(lines(agent, "connected server"), agent.log())
    agent.stop(within=20)


def stays_out(agent, *why):
    agent.start(wait=False)
    until("%s says why: %r" % (agent.name, why), lambda: all(any(word in line for line in agent.log().splitlines()) for word in why))
    check(not lines(agent, "connected server"), agent.log())
    agent.kill()


def all_is_verified():
    """Three servers that demand everything. Who has a right certificate comes in; every other one stays out, and is told why on both sides."""
    ca, other = Ca(), Ca()
    cluster = cluster_of(ca, verify_incoming=True, verify_outgoing=True, verify_server_hostname=True).start()
    server = cluster.leader()
    check("servers and agents among themselves (by certificates of your CA)" in server.log(), server.log())
    strict = dict(verify_outgoing=True, verify_server_hostname=True)
    joins(cluster.agent("a1", configuration(**ca.keys("client", **strict))))
    joins(cluster.agent("a2", configuration(**ca.keys("server", **strict))))
    stays_out(cluster.agent("plain"), "give this host ca_file, cert_file and key_file")
    stays_out(cluster.agent("bare", configuration(ca_file=ca.ca, **strict)), DENIED)
    until("the servers say so", lambda: any(lines(s, DENIED, "it shows no certificate") for s in cluster.servers))
    stays_out(cluster.agent("stranger", configuration(**other.keys("client", **strict))), DENIED)
    mixed = dict(other.keys("client"), ca_file=ca.ca)
    stays_out(cluster.agent("foreign", configuration(**mixed, **strict)), DENIED)
    until("the servers say so", lambda: any(lines(s, DENIED, "its certificate is of no CA that is trusted here") for s in cluster.servers)
          or any(lines(s, DENIED, "CA") for s in cluster.servers))
    # A client's certificate makes no server.
    key, certificate = ca.give("client")
    impostor = Agent("-server", *["-retry-join=" + s.ip for s in cluster.servers],
                     configuration(ca_file=ca.ca, cert_file=certificate, key_file=key, verify_incoming=True, **strict), server=False, name="impostor")
    impostor.start(wait=False)
    until("it is no server", lambda: any(lines(s, "server.dc1.coord (verify_server_hostname)") for s in cluster.servers))
    servers = server.get("/v1/operator/raft/configuration")[2]["Servers"]
    check(len(servers) == 3, "%r" % servers)
    impostor.kill()


def certificates_that_are_wrong():
    """Expired, of another datacenter, no TLS 1.3: refused. Servers whose name is not checked may have any."""
    ca, made = Ca(), Authority()
    expired = made.give("127.0.0.1", "server.dc1.coord", expired=True)
    good = made.give("127.0.0.1", "server.dc1.coord")
    server = Cluster(1).servers[0]
    server.args.append(configuration(ca_file=made.ca, cert_file=good[0], key_file=good[1], verify_incoming=True, verify_outgoing=True))
    server.start()
    old = Agent("-retry-join=" + server.ip, configuration(ca_file=made.ca, cert_file=expired[0], key_file=expired[1], verify_outgoing=True), server=False,
                name="old")
    stays_out(old, DENIED, "the certificate is expired")
    until("the server says so", lambda: lines(server, DENIED, "expired"))
    for least, most, works in ((ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3, True), (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2, False)):
        check(speaks(server, made.ca, good, least, most) == works, "%s" % most)
    # Another datacenter's server.
    named = Cluster(1).servers[0]
    key, certificate = ca.give("server", dc="dc2")
    named.args.append(configuration(ca_file=ca.ca, cert_file=certificate, key_file=key))
    named.start()
    for checks, fits in ((True, False), (False, True)):
        agent = Agent("-retry-join=" + named.ip, configuration(ca_file=ca.ca, verify_outgoing=True, verify_server_hostname=checks), server=False, name="a%d" % checks)
        joins(agent) if fits else stays_out(agent, "does not have the name server.dc1.coord (verify_server_hostname)")


def speaks(server, ca, pair, least, most):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    context.load_cert_chain(*pair)
    context.check_hostname = False
    context.minimum_version, context.maximum_version = least, most
    context.set_alpn_protocols(["coord/1"])
    try:
        with socket.create_connection((server.ip, 8300), timeout=10 * SLOW) as s:
            with context.wrap_socket(s) as secure:
                return secure.version() == "TLSv1.3" and secure.selected_alpn_protocol() == "coord/1"
    except (ssl.SSLError, ConnectionError):
        return False


def each_key_means_what_it_means_in_consul():
    """The matrix: what a server demands and what an agent shows."""
    ca = Ca()
    demands = {"nothing": {}, "incoming": {"verify_incoming": True, "verify_outgoing": True}, "rpc": {"verify_incoming_rpc": True, "verify_outgoing": True},
               "block": {"tls": {"internal_rpc": {"verify_incoming": True, "verify_outgoing": True}}}}
    shows = {"plain": {}, "ca": dict(ca_file=ca.ca, verify_outgoing=True), "client": ca.keys("client", verify_outgoing=True),
             "unused": ca.keys("client")}          # has a certificate, and dials plain
    for name, keys in demands.items():
        server = Cluster(1).servers[0]
        server.args.append(configuration(**ca.keys(**keys)))
        server.start()
        for kind, shown in shows.items():
            agent = Agent("-retry-join=" + server.ip, configuration(**shown), server=False, name="%s-%s" % (name, kind))
            if name == "nothing" or kind == "client":
                joins(agent)
            else:
                stays_out(agent, DENIED if kind == "ca" else "is refused by")
        server.stop(within=20)


def servers_of_other_regions_have_the_name_of_theirs():
    """With verify_server_hostname a link needs server.REGION.DOMAIN on both ends."""
    ca = Ca()
    first = Cluster(1).servers[0]
    strict = dict(verify_incoming=True, verify_outgoing=True, verify_server_hostname=True)
    first.args.append(configuration(**ca.keys(**strict)))
    first.start()
    for region, named, works in (("dc3", "dc1", False), ("dc2", "dc2", True)):
        other = Cluster(1, "-datacenter=" + region, "-retry-join-wan=" + first.ip).servers[0]
        other.args.append(configuration(**ca.keys(pair=ca.give("server", dc=named), **strict)))
        other.start()
        if works:
            until("it is known", lambda: "dc2" in first.get("/v1/catalog/datacenters")[2])
            first.put("/v1/kv/far?dc=dc2", b"1")
        else:
            until("it is refused", lambda: "does not have the name server.dc3.coord (verify_server_hostname)" in first.log() + other.log())
            check(first.get("/v1/catalog/datacenters")[2] == ["dc1"], "it is not known")


def mistakes_end_the_start():
    ca = Ca()

    def ends(line, server=True, **keys):
        agent = Agent(configuration(**keys), server=server)
        agent.start(wait=False)
        until("it ends", lambda: agent.proc.poll() is not None)
        check(agent.proc.returncode != 0 and line in agent.log(), "%r: %s" % (line, agent.log()))

    one, two = ca.give("server"), ca.give("server")
    ends("verify_outgoing: needs the CAs of the other side", verify_outgoing=True)
    ends("verify_server_hostname: needs the CAs of the other side", server=False, verify_server_hostname=True)
    ends("verify_incoming: a server needs a certificate", ca_file=ca.ca, verify_incoming=True)
    ends("the private key belongs to another certificate", ca_file=ca.ca, cert_file=one[1], key_file=two[0], verify_outgoing=True)
    ends("No such file or directory", ca_file=ca.ca, cert_file="/nowhere.pem", key_file=one[0], verify_outgoing=True)
    ends("holds no certificate", ca_file=one[0], cert_file=one[1], key_file=one[0], verify_outgoing=True)
    os.chmod(two[0], 0o640)
    ends("chmod 600", ca_file=ca.ca, cert_file=two[1], key_file=two[0], verify_outgoing=True)


def place(pair, folder):
    """Replaces the files, the key first."""
    for source, name in ((pair[0], "key.pem"), (pair[1], "cert.pem")):
        target = os.path.join(folder, name)
        shutil.copy(source, target + ".new")
        os.chmod(target + ".new", 0o600)
        os.rename(target + ".new", target)


def new_certificates_under_load():
    """A pair that does not fit is named, and the old one stays; a new one is taken, and no connection ends and no write fails."""
    ca = Ca()
    cluster = Cluster(3)
    agent = cluster.agent("a1")
    everyone = cluster.servers + [agent]
    for one in everyone:
        place(ca.give("server"), one.dir)
        one.args.append(configuration(ca_file=ca.ca, cert_file=one.dir + "/cert.pem", key_file=one.dir + "/key.pem", verify_incoming=True,
                                      verify_outgoing=True, verify_server_hostname=True))
    cluster.start()
    agent.start()
    writers = [Writer(agent), Writer(cluster.followers()[0])]
    for writer in writers:
        writer.wrote(20)
    foreign = Ca().give("server")
    shutil.copy(foreign[0], agent.dir + "/key.pem")
    until("it says so", lambda: lines(agent, "the new certificates are not taken, the old ones stay"), 20)
    ended = lambda one: len(lines(one, "connection lost")) + len(lines(one, "a connection ends"))
    before = {one.name: ended(one) for one in everyone}      # servers that dial each other at one moment end one of the two connections
    for one in everyone:
        place(ca.give("server"), one.dir)
    for one in everyone:
        until("it is taken", lambda: lines(one, "the certificates were replaced of=servers-and-agents"), 20)
    for writer in writers:
        writer.wrote(20)
    late = cluster.agent("late", configuration(**ca.keys("client", verify_outgoing=True, verify_server_hostname=True)))
    joins(late)
    for writer in writers:
        writer.stop()
    for one in everyone:
        check(ended(one) == before[one.name], one.log())
    # The new one is shown: its serial is another than before.
    shown = subprocess.run(["openssl", "s_client", "-connect", cluster.servers[0].ip + ":8300", "-alpn", "coord/1", "-cert", agent.dir + "/cert.pem", "-key",
                            agent.dir + "/key.pem"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    serial = lambda text: subprocess.run(["openssl", "x509", "-noout", "-serial"], input=text, capture_output=True, text=True).stdout
    with open(cluster.servers[0].dir + "/cert.pem") as f:
        check(serial(shown) and serial(shown) == serial(f.read()), shown[-2000:])


def nobody_between_reads_along():
    ca = Ca()
    there = free_address()
    server = Agent("-advertise=" + there, configuration(**ca.keys(verify_incoming=True, verify_outgoing=True)), name="s1").start()
    proxy = Proxy(there, server.ip)
    agent = Agent("-retry-join=" + there, configuration(**ca.keys("client", verify_outgoing=True)), server=False, name="a1").start()
    value = b"what-nobody-else-may-read-" * 20
    agent.put("/v1/kv/a-key-with-a-name", value)
    check(agent.request("GET", "/v1/kv/a-key-with-a-name?raw")[2] == value, "read back")
    check(len(proxy.seen) > len(value) and not proxy.saw(value[:26]) and not proxy.saw(b"a-key-with-a-name"), "nothing is seen")
    agent.stop(within=20)


def a_certificate_of_ones_own_ca_is_no_token():
    """Only certificates of the cluster's own CA say which node it is: with those of another CA an agent needs a token."""
    ca = Authority()
    keys = lambda pair: dict(ca_file=ca.ca, cert_file=pair[0], key_file=pair[1], verify_incoming=True, verify_outgoing=True)
    claim = ",URI:spiffe://%032x/agent/a1" % 7
    server = started(Agent(acl(), configuration(**keys(ca.give())), name="s1"))
    agent = Agent("-retry-join=" + server.ip, acl(), configuration(**keys(ca.give(more=claim))), server=False, name="a1").start(wait=False)
    until("the agent says that it is denied", lambda: any("node:write" in line for line in lines(agent, "lease of this node is denied")))
    check([n["Node"] for n in seen(server, ROOT, "/v1/catalog/nodes")] == ["s1"], "the node is not in the catalog")
    check(ask(agent, ROOT, "PUT", "/v1/agent/token/agent", {"Token": ROOT})[0] == 200, "its token is set")
    until("the node is there", lambda: len(seen(server, ROOT, "/v1/catalog/nodes") or []) == 2, within=20)
    agent.stop(within=20)


if __name__ == "__main__":
    run([all_is_verified, certificates_that_are_wrong, each_key_means_what_it_means_in_consul, servers_of_other_regions_have_the_name_of_theirs, mistakes_end_the_start, new_certificates_under_load,
         nobody_between_reads_along, a_certificate_of_ones_own_ca_is_no_token])
