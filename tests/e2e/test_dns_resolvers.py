"""Resolvers in front: BIND with strict QNAME minimisation and with parts of the domain forwarded, Unbound the same way. Each name resolves,
what has no such type is NODATA, what is not there is NXDOMAIN, and nothing is ever SERVFAIL.

Where there is no `named`, the test is skipped."""
import atexit, os, random, shutil, socket, subprocess, sys, tempfile, time
from coordtest import Agent, ask, check, run, until

ADMIN_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
NAMED, UNBOUND = (shutil.which(name, path=ADMIN_PATH) for name in ("named", "unbound"))
if not NAMED:
    print("skipped: there is no named (Debian: bind9)")
    sys.exit(77)


def free_port():
    """Of 127.0.0.1, since named listens on addresses that an interface has, and others of 127.0.0.0/8 are none. None that the kernel gives to
    whoever asks for any."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            port = random.randint(10000, 30000)
            try:
                tcp.bind(("127.0.0.1", port))
                udp.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


HINTS = ". 3600 NS root.test.\nroot.test. 3600 A 127.0.0.1\n"      # nothing is asked of the real ones


class Resolver:
    """A resolver in the foreground with a folder of its own."""

    def __init__(self, program, arguments, config):
        self.dir = tempfile.mkdtemp(prefix="coord-e2e-")
        self.port = free_port()
        atexit.register(self.close)
        path, self.log_path = os.path.join(self.dir, "config"), os.path.join(self.dir, "log")
        for file, text in ((path, config % {"dir": self.dir, "port": self.port}), (os.path.join(self.dir, "hints"), HINTS)):
            with open(file, "w") as f:
                f.write(text)
        # A copy: AppArmor's profile of the installed one would keep it out of the folder.
        copy = shutil.copy(program, os.path.join(self.dir, "resolver"))
        with open(self.log_path, "wb") as log:
            self.proc = subprocess.Popen([copy, *arguments, "-c", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("the resolver answers", self.answers, 20)

    def answers(self):
        check(self.proc.poll() is None, "the resolver ended: " + self.log())
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            return True
        except OSError:
            return False

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()[-3000:]

    def ask(self, name, rtype="A"):
        return ask("127.0.0.1", self.port, name, rtype)

    def close(self):
        self.proc.terminate()
        self.proc.wait(20)
        shutil.rmtree(self.dir, ignore_errors=True)


def bind(zones, minimization="strict"):
    """Other servers are asked at port 8600, coord's."""
    return Resolver(NAMED, ["-g", "-n", "1"], """
options {
    directory "%%(dir)s"; pid-file none; session-keyfile none; managed-keys-directory "%%(dir)s";
    port 8600; listen-on port %%(port)d { 127.0.0.1; }; listen-on-v6 { none; };
    recursion yes; dnssec-validation no; qname-minimization %s; empty-zones-enable no; max-cache-size 16m;
};
controls { };
zone "." { type hint; file "hints"; };
%s
""" % (minimization, zones))


def unbound(zones):
    return Resolver(UNBOUND, ["-d"], """
server:
  directory: "%%(dir)s"
  chroot: ""
  username: ""
  pidfile: ""
  interface: 127.0.0.1@%%(port)d
  do-not-query-localhost: no
  do-ip6: no
  qname-minimisation: yes
  qname-minimisation-strict: yes
  harden-below-nxdomain: yes
  module-config: "iterator"
  root-hints: "hints"
  use-syslog: no
remote-control:
  control-enable: no
%s
""" % zones)


def catalog():
    agent = Agent("-alt-domain=alt.example", dev=True).start()

    def service(name, port, *tags, **more):
        agent.put("/v1/agent/service/register", {"ID": "%s-%d" % (name, port), "Name": name, "Port": port, "Tags": list(tags), **more})
    service("web", 80, "v1.2", "a.b.c", Address="10.8.0.1")
    service("six", 81, Address="2001:db8::81")
    service("here", 82, "blue")
    service("alias", 83, "blue", Address="n1.node.coord")
    service("sip", 84, "udp", Address="10.8.0.4")
    service("ppid410", 85, "_sip._udp", Address="10.8.0.5")
    for node, address in (("host1.rack7.example", "10.8.1.1"), ("host2", "10.8.1.2")):
        agent.put("/v1/catalog/register", {"Node": node, "Address": address})
    return agent


# name, type, last word of each record; None: NXDOMAIN. "HERE" is the agent's address.
SERVICES = [
    ("web.service", "A", ["10.8.0.1"]), ("web.service", "AAAA", []), ("web.service", "SRV", ["0a080001.addr.dc1.coord."]),
    ("web.service", "NS", []), ("web.service", "SOA", []), ("web.service", "MX", []), ("web.service", "TXT", []),
    ("six.service", "AAAA", ["2001:db8::81"]), ("six.service", "A", []),
    ("here.service", "A", ["HERE"]), ("here.service", "SRV", ["n1.node.dc1.coord."]), ("blue.here.service", "A", ["HERE"]),
    ("v1.2.web.service", "A", ["10.8.0.1"]), ("v1.2.web.service", "AAAA", []), ("a.b.c.web.service", "SRV", ["0a080001.addr.dc1.coord."]),
    ("2.web.service", "A", []), ("b.c.web.service", "A", []),
    ("_web._tcp.service", "SRV", ["0a080001.addr.dc1.coord."]), ("_sip._udp.service", "SRV", ["0a080004.addr.dc1.coord."]),
    ("_sip._udp.service", "A", ["10.8.0.4"]), ("_sip._udp.ppid410.service", "SRV", ["0a080005.addr.dc1.coord."]),
    ("_sip._udp.ppid410.service", "AAAA", []),
    ("nope.service", "A", None), ("nope.service", "AAAA", None), ("nope.service", "SRV", None), ("nope.service", "NS", None),
    ("nope.service", "SOA", None), ("nope.web.service", "A", None), ("x.y.web.service", "A", None), ("_web._udp.service", "SRV", None),
]
NODES = [
    ("n1.node", "A", ["HERE"]), ("n1.node", "AAAA", []), ("n1.node", "NS", []), ("host2.node", "A", ["10.8.1.2"]),
    ("host1.rack7.example.node", "A", ["10.8.1.1"]), ("host1.rack7.example.node", "AAAA", []), ("nope.node", "A", None),
    ("nope.rack7.example.node", "A", None),
]
OTHERS = [
    ("0a080001.addr", "A", ["10.8.0.1"]), ("0a080001.addr", "AAAA", []), ("_web._tcp", "SRV", ["0a080001.addr.dc1.coord."]),
    ("_sip._udp", "A", ["10.8.0.4"]), ("nope", "A", None), ("nope.nope.nope", "A", None),
]


def in_datacenter(rows, suffix):
    return [(name + suffix, rtype, data) for name, rtype, data in rows]


def through(resolver, agent, rows, domain="coord"):
    for name, rtype, data in rows:
        name += "." + domain
        got = resolver.ask(name, rtype)
        for _ in range(2):                # a server that stands still for seconds has not answered; one that answers wrongly does so again
            if got.status in ("", "SERVFAIL"):
                print("     %s %s: %s, asked again" % (name, rtype, got.status or "no answer"), flush=True)
                time.sleep(2)             # SERVFAIL is kept for a second
                got = resolver.ask(name, rtype)
        wanted = "NXDOMAIN" if data is None else "NOERROR"
        check(got.status == wanted, "%s %s: %s, wanted %s\n%s" % (name, rtype, got.status or "no answer", wanted, resolver.log()))
        last = sorted(r.data.split()[-1] for r in got.answer)
        check(last == sorted(agent.ip if d == "HERE" else d for d in data or []), "%s %s: %s" % (name, rtype, got))
        check(all(r.owner == name + "." for r in got.answer), "%s %s: %s" % (name, rtype, got))
        if data == []:
            check([r.type for r in got.authority] == ["SOA"], "%s %s: a resolver passes the SOA on that it took: %s" % (name, rtype, got))


def directly():
    """What coord itself says: the domain's own records only to who asks for the domain."""
    agent = catalog()
    for name in ("coord", "alt.example"):
        got = agent.ask(name, "SOA")
        check([(r.owner, r.type) for r in got.answer] == [(name + ".", "SOA")], "%s: %s" % (name, got))
        got = agent.ask(name, "NS")
        check([(r.owner, r.type) for r in got.answer] == [(name + ".", "NS")], "%s: %s" % (name, got))
    zones = [("service.coord", "web."), ("service.coord", "v1.2.web."), ("service.coord", ""), ("service.dc1.coord", "web."), ("service.dc1.dc.coord", "web."),
             ("node.coord", "n1."), ("node.coord", ""), ("dc1.coord", ""), ("dc1.coord", "_web._tcp."), ("addr.coord", "0a080001."), ("coord", "ns."),
             ("coord", "_tcp."), ("coord", "dc."), ("service.coord", "_tls."), ("service.coord", "2.web."), ("service.alt.example", "web."), ("node.coord", "example.")]
    missing = [("service.coord", "nope."), ("service.coord", "nope.web."), ("node.coord", "nope."), ("coord", "nope."), ("coord", "a.b.c."),
               ("coord", "web.service.dc9."), ("coord", "service.dc9."), ("service.dc1.coord", "nope."), ("alt.example", "nope.")]
    for status, rows in (("NOERROR", zones), ("NXDOMAIN", missing)):
        for zone, below in rows:
            for rtype in ("NS", "SOA"):
                got = agent.ask(below + zone, rtype)
                check(got.status == status and "aa" in got.flags and got.answer == [], "%s%s %s: %s" % (below, zone, rtype, got))
                check([(r.owner, r.type) for r in got.authority] == [(zone + ".", "SOA")], "%s%s %s: %s" % (below, zone, rtype, got))
    for name in ("service.coord", "node.coord", "dc1.coord"):
        got = agent.ask(name, "A")
        check(got.status == "NOERROR" and got.answer == [], "%s has names below it: %s" % (name, got))
    # a name for an address: records of it and of what it leads to, whatever is asked
    for rtype, kinds in (("A", [("alias.service.coord.", "CNAME"), ("n1.node.coord.", "A")]), ("NS", [("alias.service.coord.", "CNAME")])):
        got = agent.ask("alias.service.coord", rtype)
        check(sorted((r.owner, r.type) for r in got.answer) == kinds, "%s: %s" % (rtype, got))


def minimised():
    """A static stub: BIND asks for one more label at a time, by NS, and NXDOMAIN ends it."""
    agent = catalog()
    for minimization in ("strict", "relaxed"):
        resolver = bind("".join('zone "%s" { type static-stub; server-addresses { %s; }; };\n' % (zone, agent.ip) for zone in ("coord", "alt.example")),
                        minimization)
        if minimization == "relaxed":       # it differs in what it does after an NXDOMAIN
            through(resolver, agent, SERVICES + OTHERS)
            continue
        through(resolver, agent, SERVICES + NODES + OTHERS)
        through(resolver, agent, in_datacenter(SERVICES + NODES, ".dc1"))
        through(resolver, agent, in_datacenter(SERVICES[:8], ".dc1.dc"))
        through(resolver, agent, SERVICES, "alt.example")
        for name in ("alias.service.coord", "blue.alias.service.coord"):
            got = resolver.ask(name)
            check([r.data for r in got.answer] == ["n1.node.coord.", agent.ip], "%s: %s" % (name, got))


def forwarded():
    """Parts of the domain by themselves: an SOA from above the part would be refused."""
    agent = catalog()

    def forward(*zones):
        return bind("".join('zone "%s" { type forward; forward only; forwarders { %s port 8600; }; };\n' % (zone, agent.ip) for zone in zones))
    resolver = forward("service.coord", "node.coord", "dc1.coord", "alt.example")
    through(resolver, agent, SERVICES + NODES)
    through(resolver, agent, in_datacenter(SERVICES + NODES, ".dc1"))
    through(resolver, agent, [("0a080001.addr.dc1", "A", ["10.8.0.1"]), ("0a080001.addr.dc1", "AAAA", []), ("_sip._udp.dc1", "SRV", ["0a080004.addr.dc1.coord."]),
                              ("service", "A", []), ("service", "AAAA", []), ("dc1", "A", []), ("service.dc1", "NS", [])])
    through(resolver, agent, SERVICES, "alt.example")
    through(forward("coord"), agent, SERVICES + NODES + OTHERS + [("dc1", "A", []), ("service", "SOA", [])])
    through(forward("service.dc1.coord"), agent, in_datacenter(SERVICES, ".dc1"))


def through_unbound():
    if not UNBOUND:
        print("     there is no unbound (Debian: unbound)")
        return
    agent = catalog()
    through(unbound('stub-zone:\n  name: "coord."\n  stub-addr: %s@8600\n' % agent.ip), agent, SERVICES + NODES + OTHERS + in_datacenter(SERVICES, ".dc1"))
    forwards = "".join('forward-zone:\n  name: "%s."\n  forward-addr: %s@8600\n' % (zone, agent.ip) for zone in ("service.coord", "node.coord"))
    through(unbound(forwards), agent, SERVICES + NODES)


run([directly, minimised, forwarded, through_unbound])
