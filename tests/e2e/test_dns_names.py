"""Names and addresses in DNS: what a registration may hold and DNS must not say, and names of RFC 2782."""
import json, os, re, signal
from coordtest import Agent, Cluster, check, run, until

# HTTP shows them, DNS leaves them out: they are neither addresses nor host names (RFC 1123)
NEITHER = ["10.0.0.1 ", " 10.0.0.1", "10.0.0.1:80", "[2001:db8::1]", "http://h/", "a b", "10.0.0.256", "010.0.0.1", "10.0.0", "2001:db8::1%eth0",
           "10.0.0.1\n", "h.example\r\nX-Evil: 1", "0x7f000001", "-h.example", "h..example", "h\u00f6st.example", "*.example", "x" * 64,
           ".".join(["x" * 49] * 6)]
HOSTS = {"10.7.0.1": ("A", "10.7.0.1"), "::ffff:10.7.0.2": ("A", "10.7.0.2"), "2001:db8::7": ("AAAA", "2001:db8::7"),
         "h7.example.com": ("CNAME", "h7.example.com."), "h7.example.com.": ("CNAME", "h7.example.com."), "stack_web_1": ("CNAME", "stack_web_1."),
         "7.example": ("CNAME", "7.example.")}
ALL_TYPES = ["A", "AAAA", "SRV", "ANY", "CNAME", "TXT"]


def register(agent, body, path="/v1/agent/service/register"):
    """X-Coord-Warning of the answer; None: there is none."""
    status, headers, answer = agent.request("PUT", path, body)
    check(status == 200, "PUT %s %.300r: %d %r" % (path, body, status, answer))
    check(headers["X-Evil"] is None, "no header of the client's making")
    return headers["X-Coord-Warning"]


def is_warning(text, *words):
    check(text is not None, "a warning for " + repr(words))
    check(all(" " <= c <= "~" for c in text), "plain text: %r" % text)
    for word in words:
        check(word in text, "%r in %r" % (word, text))


def lines_about(agent, what):
    return [line for line in agent.log().splitlines() if "DNS cannot say" in line and what in line]


def nothing(agent, name, types=ALL_TYPES):
    """The name is there, and has no records."""
    for rtype in types:
        got = agent.ask(name, rtype)
        check(got.status == "NOERROR" and got.answer == [], "%s %s: %s" % (name, rtype, got))
        check([r.type for r in got.authority] == ["SOA"], "%s %s: %s" % (name, rtype, got))


def addresses_of_services():
    agent = Agent(dev=True).start()
    for i, address in enumerate(NEITHER):
        warning = register(agent, {"ID": "bad%d" % i, "Name": "bad", "Port": 80, "Address": address})
        is_warning(warning, "service address", "neither an IP address nor a host name", "leaves this instance out")
        own = agent.get("/v1/agent/service/bad%d" % i)[2]
        check(own["Address"] == address, "shown as given: %r" % own)
    shown = sorted(s["ServiceAddress"] for s in agent.get("/v1/catalog/service/bad")[2])
    check(shown == sorted(NEITHER), "the catalog has them as given: %r" % shown)
    check(len(agent.get("/v1/health/service/bad?passing")[2]) == len(NEITHER), "so has health")
    nothing(agent, "bad.service.coord")
    nothing(agent, "_bad._tcp.service.coord")

    for i, (address, (rtype, data)) in enumerate(HOSTS.items()):
        check(register(agent, {"Name": "good%d" % i, "Port": 80, "Address": address}) is None, "no warning of %r" % address)
        got = agent.ask("good%d.service.coord" % i, "A" if rtype == "CNAME" else rtype)
        check([(r.type, r.data) for r in got.answer] == [(rtype, data)], "%r: %s" % (address, got))
    # good ones beside bad ones: those alone, in every kind of record
    register(agent, {"ID": "g1", "Name": "bad", "Port": 81, "Address": "10.7.0.1"})
    register(agent, {"ID": "g2", "Name": "bad", "Port": 82, "Address": "web_1.example.com"})
    for _ in range(5):
        check(agent.dig_short("bad.service.coord") == ["10.7.0.1"], "the address")
        srv = sorted(r.data for r in agent.ask("bad.service.coord", "SRV").answer)
        check(srv == ["1 1 81 0a070001.addr.dc1.coord.", "1 1 82 web_1.example.com."], "the targets: %r" % srv)

    # said once, however often the name is asked for and the service registers again
    for _ in range(3):
        register(agent, {"ID": "bad0", "Name": "bad", "Port": 80, "Address": NEITHER[0]})
    for i, address in enumerate(NEITHER):
        said = lines_about(agent, 'service="bad%d"' % i)
        check(len(said) == 1 and '[WARN]' in said[0] and 'node="n1"' in said[0], "%r is said once: %r" % (address, said))
    check(len(lines_about(agent, "")) == len(NEITHER), "and nothing else is: %r" % lines_about(agent, "good"))


def addresses_that_lead_back():
    """An instance whose address is the name that DNS answers with it, in any of its forms."""
    agent = Agent("-alt-domain=alt.example", dev=True).start()
    own = ["web.service.coord", "WEB.service.dc1.coord.", "web.service.alt.example", "blue.web.service.coord", "_web._tcp.service.coord"]
    for i, address in enumerate(own):
        for _ in range(2):
            warning = register(agent, {"ID": "w%d" % i, "Name": "web", "Tags": ["blue"], "Port": 80, "Address": address})
            is_warning(warning, address, "is its own name in DNS", "leaves this instance out")
        check(len(lines_about(agent, 'service="w%d"' % i)) == 1, "said once: %r" % lines_about(agent, address))
    nothing(agent, "web.service.coord")
    nothing(agent, "web.service.alt.example")
    register(agent, {"ID": "good", "Name": "web", "Port": 81, "Address": "10.7.0.1"})
    check(agent.dig_short("web.service.coord") == ["10.7.0.1"], "the others are left out")
    check([r.data for r in agent.ask("web.service.coord", "SRV").answer] == ["1 1 81 0a070001.addr.dc1.coord."], "of SRV too")
    # a node; and an instance that has the address of its node
    is_warning(register(agent, {"Node": "m1", "Address": "m1.node.coord"}, "/v1/catalog/register"), "node address", "its own name in DNS")
    nothing(agent, "m1.node.coord")
    is_warning(register(agent, {"Node": "m2", "Address": "api.service.coord", "Service": {"Service": "api"}}, "/v1/catalog/register"),
               "service address", "its own name in DNS")
    nothing(agent, "api.service.coord")
    # names of others are addresses as any
    check(register(agent, {"ID": "a", "Name": "app", "Address": "web.service.coord"}) is None, "no warning")
    check(agent.dig_short("app.service.coord") == ["web.service.coord.", "10.7.0.1"], agent.dig_short("app.service.coord"))


def names_that_lead_to_nothing():
    """A CNAME to a name of ours: the response code is that name's, and an SOA goes along (RFC 2308)."""
    agent = Agent(dev=True).start()
    register(agent, {"Name": "four", "Address": "10.7.0.1"})
    for name, address, rtype, status in (("gone", "no.service.coord", "A", "NXDOMAIN"), ("away", "no.node.coord", "AAAA", "NXDOMAIN"),
                                         ("far", "gone.service.coord", "A", "NXDOMAIN"), ("six", "four.service.coord", "AAAA", "NOERROR")):
        register(agent, {"Name": name, "Address": address})
        got = agent.ask(name + ".service.coord", rtype)
        check(got.status == status and got.answer[0].data == address + ".", "%s: %s" % (name, got))
        check([(r.type, r.owner) for r in got.authority] == [("SOA", "coord.")], "%s: %s" % (name, got))
    register(agent, {"Name": "out", "Address": "h.example.com"})
    got = agent.ask("out.service.coord", "A")
    check(got.status == "NOERROR" and got.authority == [], "whoever asks goes on there: %s" % (got,))
    register(agent, {"Name": "no", "Address": "10.7.0.2"})  # it appears
    until("gone leads to it", lambda: agent.dig_short("gone.service.coord")[-1:] == ["10.7.0.2"])


def tagged_addresses():
    """DNS does not use them, other clients do."""
    agent = Agent(dev=True).start()
    body = {"Name": "web", "Address": "10.7.0.1", "TaggedAddresses": {"lan": {"Address": "10.7.0.1", "Port": 1}, "wan": {"Address": "http://h/", "Port": 2}}}
    warning = register(agent, body)
    is_warning(warning, '"wan" "http://h/"')
    check("lan" not in warning, warning)
    check(agent.dig_short("web.service.coord") == ["10.7.0.1"], "DNS has its address")
    body["TaggedAddresses"]["wan"]["Address"] = "h.example"
    check(register(agent, body) is None, "a host name will do")
    many = {"t%d" % i: {"Address": "a b %d" % i + "x" * 4000, "Port": 1} for i in range(15)}
    warning = register(agent, {"Name": "many", "TaggedAddresses": many})
    check(0 < len(warning) < 2000, "a header of %d bytes" % len(warning))


def addresses_in_the_catalog():
    """Of nodes and services that others register; asked from a client agent, too."""
    cluster = Cluster(1).start()
    server, client = cluster.servers[0], cluster.agent("c1")
    client.start()
    register_at = "/v1/catalog/register"
    for i, address in enumerate(NEITHER):
        agent = (server, client)[i % 2]
        warning = register(agent, {"Node": "odd%d" % i, "Address": address, "Service": {"Service": "on-odd", "Port": 1}}, register_at)
        is_warning(warning, "node address", "neither an IP address nor a host name")
        check(len(lines_about(agent, 'node="odd%d"' % i)) == 1, "said at the agent that was asked: " + agent.log()[-500:])
    warning = register(server, {"Node": "even", "Address": "10.7.1.1", "TaggedAddresses": {"lan": "10.7.1.1", "wan": "10.7.1.1/24"},
                                "Service": {"Service": "odd-too", "Address": "h:80"}}, register_at)
    is_warning(warning, 'node\'s tagged address "wan" "10.7.1.1/24"', 'service address "h:80"')
    check(register(server, {"Node": "even", "SkipNodeUpdate": True, "Check": {"Name": "c", "Status": "passing"}}, register_at) is None, "no address, no warning")
    shown = {n["Node"]: n["Address"] for n in server.get("/v1/catalog/nodes")[2]}
    check([shown["odd%d" % i] for i in range(len(NEITHER))] == NEITHER, "nodes as given")
    for agent in (server, client):
        until("the client agent has heard", lambda: agent.ask("odd-too.service.coord").status == "NOERROR")
        for name in ["odd%d.node.coord" % i for i in range(len(NEITHER))] + ["on-odd.service.coord", "odd-too.service.coord"]:
            nothing(agent, name, ["A", "SRV"])
        check(agent.dig_short("even.node.coord") == ["10.7.1.1"], "a good one")
        check(agent.ask("1.1.7.10.in-addr.arpa", "PTR").answer[0].data == "even.node.dc1.coord.", "and back")


def addresses_in_files():
    """What configuration files define is said at the start, and at a reload what is new."""
    agent = Agent(dev=True)
    path = os.path.join(agent.dir, "web.json")
    agent.args.append("-config-file=" + path)

    def define(**addresses):
        with open(path, "w") as f:
            json.dump({"services": [{"name": n.replace("_", " "), "address": a} for n, a in addresses.items()]}, f)
    define(bad="10.0.0.1:80", good="10.7.0.1")
    agent.start()
    check(len(lines_about(agent, '"10.0.0.1:80"')) == 1, agent.log()[-2000:])
    define(bad="10.0.0.1:80", good="10.7.0.1", worse="a b", x_y="10.7.0.2")
    agent.proc.send_signal(signal.SIGHUP)
    until("the reload", lambda: "worse" in agent.get("/v1/agent/services")[2])
    until("it is said", lambda: lines_about(agent, 'service="worse"') and lines_about(agent, 'service name "x y"'))
    check(len(lines_about(agent, "")) == 3, "each once: %r" % lines_about(agent, ""))
    until("DNS has them", lambda: agent.ask("worse.service.coord").status == "NOERROR")
    nothing(agent, "worse.service.coord")


def names_that_dns_cannot_say():
    agent = Agent(name="n 1").start()
    check(len(lines_about(agent, 'node name "n 1" is no host name')) == 1, agent.log()[-2000:])
    for name in ("x y", "v1.web", "\u00fcber", "x" * 64, "a/b"):
        is_warning(register(agent, {"Name": name, "Address": "10.7.2.2"}), "service name", "may not find it")
        is_warning(register(agent, {"Node": "c1", "Address": "10.7.2.1", "Service": {"Service": name, "Address": "10.7.2.2"}}, "/v1/catalog/register"), "service name")
    for name in ("Web", "web-1", "web_1", "42", "x" * 63):
        check(register(agent, {"Name": name, "Port": 1}) is None, name)
    is_warning(register(agent, {"Node": "a b", "Address": "10.7.2.3"}, "/v1/catalog/register"), 'node name "a b"')
    for node in ("host1.example.com", "web_1", "42"):
        check(register(agent, {"Node": node, "Address": "10.7.2.4"}, "/v1/catalog/register") is None, node)
    # never a target: the node's address is said in another way, or nobody has it
    target = agent.ask("web.service.coord", "SRV").answer[0].data.split()[-1]
    check(re.fullmatch(r"[0-9a-f]{8}\.addr\.dc1\.coord\.", target), target)
    check(agent.dig_short(target) == [agent.ip], "which leads to it")
    for address in ("2.2.7.10", "3.2.7.10"):
        check(agent.ask(address + ".in-addr.arpa", "PTR").answer == [], address)
    servers = agent.ask("coord", "NS")
    check([r.data for r in servers.answer] == ["ns.coord."], "the server has no name of its own: %s" % (servers,))
    check(agent.dig_short("ns.coord") == [agent.ip], "ns.coord leads to it")


def names_of_rfc_2782():
    agent = Agent("-alt-domain=alt.example", dev=True).start()

    def put(name, port, *tags):
        agent.put("/v1/agent/service/register", {"ID": "%s-%d" % (name, port), "Name": name, "Port": port, "Tags": list(tags)})
    put("sip", 1, "udp", "blue")
    put("sip", 2, "tcp")
    put("sip", 3, "TLS")
    put("db", 4, "v1.2")
    put("plain", 5)
    put("ppid410", 6, "_sip._udp")
    put("ppid410", 7, "udp")
    put("_under", 8)

    def ports(name, rtype="SRV"):
        got = agent.ask(name, rtype)
        check(got.status == "NOERROR", "%s: %s" % (name, got))
        check(all(r.owner.lower() == name + "." for r in got.answer), "%s: %s" % (name, got))
        return sorted(int(r.data.split()[2]) for r in got.answer)

    for under in ("service.coord", "service.dc1.coord", "coord", "dc1.coord", "service.alt.example"):
        check(ports("_sip._udp." + under) == [1], under)
        check(ports("_sip._tcp." + under) == [1, 2, 3], "tcp is no tag, as in Consul: " + under)
        check(ports("_sip._tls." + under) == [3], under)
        check(ports("_sip._blue." + under) == [1], under)
        check(ports("_plain._tcp." + under) == [5], under)
        for missing in ("_plain._udp.", "_sip._sctp.", "_no._tcp.", "_a._b._c."):
            got = agent.ask(missing + under, "SRV")
            check(got.status == "NXDOMAIN" and got.answer == [] and got.authority[0].type == "SOA", "%s%s: %s" % (missing, under, got))
    check(len(agent.ask("_SIP._UDP.Service.Coord", "SRV").answer) == 1, "in any case")
    check(agent.ask("_sip._udp.service.coord", "A").answer[0].data == agent.ip, "and for every type")
    check(ports("udp.sip.service.coord") == [1] and ports("tcp.sip.service.coord") == [2], "tags in front of the name")
    # three labels are a tag with a dot, and a name
    check(ports("_sip._udp.ppid410.service.coord") == [6], "a tag like any other")
    check(ports("_ppid410._udp.service.coord") == [7], "and not this one")
    check(ports("_ppid410._tcp.service.coord") == [6, 7], "all")
    check(ports("v1.2.db.service.coord") == [4], "a tag with a dot")
    for name in ("_db._v1.2.service.coord", "_sip._tcp.ppid410.service.coord", "_udp.sip.service.coord", "_sip._udp.ppid410.coord"):
        check(agent.ask(name, "SRV").status == "NXDOMAIN", name)
    check(ports("_under.service.coord") == [8], "a service whose name begins like that")


run([addresses_of_services, addresses_that_lead_back, names_that_lead_to_nothing, tagged_addresses, addresses_in_the_catalog, addresses_in_files,
     names_that_dns_cannot_say, names_of_rfc_2782])
