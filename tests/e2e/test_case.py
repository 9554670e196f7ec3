"""Names without regard to case, as with Consul: nodes, services, their IDs and those of checks, over HTTP, with the agent and in DNS; what
has case and keeps it: keys, tags of answers, event names, filters."""
import json, os, re, subprocess, threading, time
from coordtest import COORD, Agent, check, run, until


def same(have, want, what):
    check(have == want, "%s: %r, wanted %r" % (what, have, want))


def register(agent, expect=200, **body):
    return agent.put("/v1/catalog/register", body, expect)


def deregister(agent, **body):
    agent.put("/v1/catalog/deregister", body)


def nodes(agent):
    return [n["Node"] for n in agent.get("/v1/catalog/nodes")[2] if n["Node"] != agent.name]


def services(agent, node):
    found = agent.get("/v1/catalog/node/" + node)[2]
    return found and {key: s["Service"] for key, s in found["Services"].items()}


def instances(agent, service, query=""):
    return [(i["Node"], i["ServiceID"], i["ServiceName"]) for i in agent.get("/v1/catalog/service/%s%s" % (service, query))[2]]


def checks(agent, path):
    return sorted((c["CheckID"], c["Status"]) for c in agent.get(path)[2])


ID, OTHER = "11111111-aaaa-4aaa-8aaa-111111111111", "22222222-aaaa-4aaa-8aaa-111111111111"


# -- the catalog --------------------------------------------------------------------------------------------------------------
def a_node_is_one_in_any_case():
    agent = Agent(dev=True).start()
    register(agent, Node="carl", Address="10.0.0.1", Service={"Service": "Web"})
    register(agent, Node="CARL", Address="10.0.0.2")
    same(nodes(agent), ["CARL"], "one node, as it was written last")
    same(agent.get("/v1/catalog/node/cArL")[2]["Node"]["Address"], "10.0.0.2", "its record")
    same(services(agent, "carl"), {"Web": "Web"}, "without an ID its services stay")
    register(agent, Node="Carl", SkipNodeUpdate=True, Service={"Service": "Api"})
    same((nodes(agent), sorted(services(agent, "CARL"))), (["CARL"], ["Api", "Web"]), "a service written under another case")
    deregister(agent, Node="carl")
    same(nodes(agent), [], "it is deregistered in any case")


def a_node_with_an_id():
    agent = Agent(dev=True).start()
    alive = {"CheckID": "serfHealth", "Name": "alive", "Status": "passing"}
    register(agent, Node="carl", ID=ID, Address="10.0.0.1", Service={"Service": "web"}, Check=alive)
    answer = register(agent, 400, Node="CARL", ID=OTHER, Address="10.0.0.2").decode()
    check("is reserved by node " + ID in answer, "another ID, carl alive: refused: " + answer)
    register(agent, Node="carl", ID=ID.upper(), Address="10.0.0.3")
    same(services(agent, "carl"), {"web": "web"}, "the ID in capitals is the same ID")
    register(agent, Node="CARL", ID=ID, Address="10.0.0.4")
    same((nodes(agent), services(agent, "carl")), (["CARL"], {}), "the same ID, another case: renamed; its services go")
    register(agent, Node="carl", ID=OTHER, Address="10.0.0.5")
    same(nodes(agent), ["carl"], "another ID, and nobody lives there")


def services_are_found():
    agent = Agent(dev=True).start()
    register(agent, Node="carl", Address="10.0.0.1", Service={"ID": "W1", "Service": "Web", "Tags": ["Blue"]}, NodeMeta={"Rack": "R1"},
             Check={"CheckID": "Up", "Name": "up", "ServiceID": "W1", "Status": "passing"})
    for name in ("Web", "WEB", "web", "wEb"):
        same(instances(agent, name), [("carl", "W1", "Web")], "/v1/catalog/service/" + name)
        same([e["Service"]["ID"] for e in agent.get("/v1/health/service/%s?passing" % name)[2]], ["W1"], "/v1/health/service/" + name)
        same(checks(agent, "/v1/health/checks/" + name), [("Up", "passing")], "/v1/health/checks/" + name)
        same(instances(agent, name, "?tag=bLUE"), [("carl", "W1", "Web")], "?tag= has no case either")
        same(instances(agent, name, "?node-meta=Rack:R1"), [("carl", "W1", "Web")], "?node-meta=")
    same(instances(agent, "web", "?node-meta=rack:R1") + instances(agent, "web", "?node-meta=Rack:r1"), [], "meta has case")
    same(checks(agent, "/v1/health/node/CARL"), [("Up", "passing")], "/v1/health/node")
    same(agent.get("/v1/catalog/services")[2], {"Web": ["Blue"]} | {"consul": []}, "names are shown as they are written")
    register(agent, Node="dora", Address="10.0.0.2", Service={"Service": "WEB", "Tags": ["Red"]})
    same(agent.get("/v1/catalog/services")[2], {"WEB": ["Red"], "Web": ["Blue"], "consul": []}, "by each who wrote them")
    same(instances(agent, "web"), [("carl", "W1", "Web"), ("dora", "WEB", "WEB")], "and are one service")
    register(agent, Node="carl", SkipNodeUpdate=True, Service={"ID": "w1", "Service": "web"},
             Check={"CheckID": "uP", "Name": "up", "ServiceID": "w1", "Status": "warning"})
    same(services(agent, "carl"), {"w1": "web"}, "W1, then w1: one service")
    same(checks(agent, "/v1/health/node/carl"), [("uP", "warning")], "one check")
    register(agent, Node="CARL", SkipNodeUpdate=True, Check={"CheckID": "more", "Name": "more", "ServiceID": "W1", "Status": "passing"})
    same(checks(agent, "/v1/health/checks/WEB"), [("more", "passing"), ("uP", "warning")], "a check on W1 is one on w1")
    deregister(agent, Node="CARL", CheckID="UP")
    deregister(agent, Node="CARL", ServiceID="W1")
    same((services(agent, "carl"), checks(agent, "/v1/health/node/carl")), ({}, []), "deregistered in any case")
    same(instances(agent, "web"), [("dora", "WEB", "WEB")], "the other is left")


def who_waits_is_woken():
    agent = Agent(dev=True).start()
    register(agent, Node="carl", Address="10.0.0.1", Service={"Service": "web"})
    for path, count in (("/v1/health/service/WEB", 2), ("/v1/catalog/service/Web", 3), ("/v1/catalog/node/CARL", None)):
        index, answers = agent.get(path)[1]["X-Consul-Index"], []

        def wait(path=path, index=index, answers=answers):
            answers.append(agent.get("%s?index=%s&wait=60s" % (path, index)))
        thread = threading.Thread(target=wait)
        thread.start()
        begun = time.monotonic()
        if count:
            register(agent, Node="n%d" % count, Address="10.0.0.2", Service={"Service": "wEB"})
        else:
            register(agent, Node="cARL", Address="10.0.0.3")
        thread.join(30)
        check(answers and time.monotonic() - begun < 20, "woken: " + path)
        check(int(answers[0][1]["X-Consul-Index"]) > int(index), "by a higher index")
        same(len(answers[0][2]) if count else answers[0][2]["Node"]["Node"], count or "cARL", "with the news")
    asked = agent.get("/v1/health/service/WEB")[1]["X-Consul-Index"]
    same(agent.get("/v1/health/service/web")[1]["X-Consul-Index"], asked, "one index")


# -- what hangs on names ----------------------------------------------------------------------------------------------------------
def sessions():
    agent = Agent(dev=True).start()
    register(agent, Node="carl", Address="10.0.0.1", Check={"CheckID": "Up", "Name": "up", "Status": "passing"})
    make = lambda **body: json.loads(agent.put("/v1/session/create", dict({"LockDelay": "0s"}, **body)))["ID"]
    first, second = make(Node="CARL", NodeChecks=["uP"]), make(Node="cArl", NodeChecks=["UP"])
    same(len(agent.get("/v1/session/node/Carl")[2]), 2, "/v1/session/node")
    same(agent.get("/v1/session/info/" + first.upper())[2][0]["ID"], first, "a session's ID in capitals")
    same(agent.put("/v1/kv/Lock?acquire=" + first.upper()).strip(), b"true", "it acquires")
    same(agent.put("/v1/kv/Lock?acquire=" + second).strip(), b"false", "it holds")
    same(agent.request("GET", "/v1/kv/lock")[0], 404, "keys have case")
    register(agent, Node="CARL", SkipNodeUpdate=True, Check={"CheckID": "UP", "Name": "up", "Status": "critical"})
    same(agent.get("/v1/session/node/carl")[2], [], "they end with their check, in whatever case")
    check("Session" not in agent.get("/v1/kv/Lock")[2][0], "and the lock is free")
    status, _, answer = agent.request("PUT", "/v1/session/create", {"Node": "carl", "NodeChecks": ["up"]})
    check(status == 500 and b"critical state" in answer, "no session on a critical check: %r" % answer)


def coordinates():
    agent = Agent(dev=True)
    path = os.path.join(agent.dir, "coordinate.json")
    with open(path, "w") as f:
        json.dump({"sync_coordinate_interval_min": "300ms", "consul": {"coordinate": {"update_period": "200ms"}}}, f)
    agent.args.append("-config-file=" + path)
    agent.start()
    for node, place in (("alpha", 0.03), ("Beta", 0.01), ("gamma", 0.02)):
        register(agent, Node=node, Address="10.0.0.1", Service={"Service": "web"})
        agent.put("/v1/coordinate/update", {"Node": node.upper(), "Coord": {"Vec": [place] + [0] * 7, "Error": 1.5, "Adjustment": 0, "Height": 1e-5}})
    until("they are there", lambda: agent.request("GET", "/v1/coordinate/node/GAMMA")[0] == 200)
    same([c["Coord"]["Vec"][0] for c in agent.get("/v1/coordinate/node/bETA")[2]], [0.01], "/v1/coordinate/node")
    for near in ("alpha", "ALPHA", "Alpha"):
        same([e["Node"]["Node"] for e in agent.get("/v1/health/service/WEB?near=" + near)[2]], ["alpha", "gamma", "Beta"], "?near=" + near)
    rtt = subprocess.run([COORD, "rtt", "-http-addr=%s:8500" % agent.ip, "BETA", "gamma"], capture_output=True, text=True)
    check(rtt.returncode == 0 and "Estimated BETA <-> gamma rtt" in rtt.stdout, "coord rtt: %s%s" % (rtt.stdout, rtt.stderr))


def leases():
    agent = Agent(dev=True).start()
    lease = agent.put("/v1/lease/grant", {"TTL": "60s"})
    lease = json.loads(lease)["ID"]
    register(agent, Node="carl", Address="10.0.0.1")
    register(agent, Node="CARL", SkipNodeUpdate=True, Service={"ID": "W1", "Service": "Web"}, Lease=lease)
    register(agent, Node="carl", SkipNodeUpdate=True, Service={"ID": "w1", "Service": "Web"}, Lease=lease)
    agent.put("/v1/lease/revoke/" + lease.upper())
    until("what is bound goes", lambda: services(agent, "carl") == {})


# -- the agent --------------------------------------------------------------------------------------------------------------------
def the_agents_own_services_and_checks():
    agent = Agent().start()
    agent.put("/v1/agent/service/register", {"ID": "W1", "Name": "Web", "Port": 1, "Check": {"CheckID": "Ck", "TTL": "600s"}})
    agent.put("/v1/agent/check/register", {"Name": "More", "TTL": "600s", "ServiceID": "w1"})
    same(agent.get("/v1/agent/service/w1")[2]["ID"], "W1", "/v1/agent/service")
    for word in ("pass", "warn", "fail", "pass"):
        agent.put("/v1/agent/check/%s/cK" % word)
    agent.put("/v1/agent/check/update/MORE", {"Status": "passing", "Output": "good"})
    same(agent.get("/v1/agent/health/service/id/w1?format=json")[2]["AggregatedStatus"], "passing", "health by ID")
    same([s["Service"]["ID"] for s in agent.get("/v1/agent/health/service/name/WEB")[2]], ["W1"], "health by name")
    until("the catalog", lambda: checks(agent, "/v1/health/checks/web") == [("Ck", "passing"), ("More", "passing")])
    agent.put("/v1/agent/service/maintenance/w1?enable=true&reason=x")
    same(agent.request("GET", "/v1/agent/health/service/id/W1")[0], 503, "maintenance")
    agent.put("/v1/agent/service/maintenance/W1?enable=false")
    agent.put("/v1/agent/service/register", {"ID": "w1", "Name": "web", "Port": 2, "Check": {"CheckID": "ck", "TTL": "600s"}})
    same({k: s["Port"] for k, s in agent.get("/v1/agent/services")[2].items()}, {"w1": 2}, "one service, as it was written last")
    same(sorted(agent.get("/v1/agent/checks")[2]), ["More", "ck"], "one check")
    until("in the catalog too", lambda: services(agent, agent.name.upper()) == {"consul": "consul", "w1": "web"})
    index = agent.get("/v1/catalog/service/web")[1]["X-Consul-Index"]
    agent.kill()
    agent.start()
    same({k: s["Port"] for k, s in agent.get("/v1/agent/services")[2].items()}, {"w1": 2}, "after a restart")
    until("compared", lambda: instances(agent, "WEB") == [(agent.name, "w1", "web")])
    agent.put("/v1/agent/check/deregister/MORE")
    agent.put("/v1/agent/service/deregister/W1")
    same((agent.get("/v1/agent/services")[2], agent.get("/v1/agent/checks")[2]), ({}, {}), "deregistered in any case")
    until("from the catalog too", lambda: instances(agent, "web") == [])
    check(int(agent.get("/v1/catalog/service/web")[1]["X-Consul-Index"]) > int(index), "its index rises")


def what_others_write_under_its_node():
    agent = Agent(dev=True).start()
    agent.put("/v1/agent/service/register", {"Name": "web", "Port": 1})
    until("there", lambda: instances(agent, "web"))
    register(agent, Node=agent.name.upper(), SkipNodeUpdate=True, Service={"Service": "WEB", "Port": 9})
    register(agent, Node=agent.name.upper(), SkipNodeUpdate=True, Service={"Service": "theirs"})
    agent.put("/v1/agent/service/register", {"Name": "web", "Port": 2})
    until("its own is put right", lambda: [(i["ServiceID"], i["ServicePort"]) for i in agent.get("/v1/catalog/service/Web")[2]] == [("web", 2)])
    same(sorted(services(agent, agent.name)), ["consul", "theirs", "web"], "theirs stays")


def aliases():
    agent = Agent(dev=True).start()
    agent.put("/v1/agent/service/register", {"ID": "Db", "Name": "db", "Check": {"CheckID": "beat", "TTL": "600s", "Status": "passing"}})
    register(agent, Node="Far", Address="10.0.0.9", Service={"ID": "S", "Service": "s"},
             Check={"CheckID": "d", "Name": "d", "ServiceID": "S", "Status": "warning", "Output": "slow"})
    agent.put("/v1/agent/service/register", {"Name": "front"})
    agent.put("/v1/agent/check/register", {"Name": "near", "ServiceID": "FRONT", "AliasService": "dB"})
    agent.put("/v1/agent/check/register", {"Name": "own", "ServiceID": "Front", "AliasNode": agent.name.upper(), "AliasService": "DB"})
    agent.put("/v1/agent/check/register", {"Name": "far", "ServiceID": "front", "AliasNode": "FAR", "AliasService": "s"})
    states = lambda: {k: c["Status"] for k, c in agent.get("/v1/agent/checks")[2].items() if k in ("near", "own", "far")}
    until("they follow", lambda: states() == {"near": "passing", "own": "passing", "far": "warning"})
    agent.put("/v1/agent/check/fail/BEAT")
    register(agent, Node="fAR", SkipNodeUpdate=True, Check={"CheckID": "D", "Name": "d", "ServiceID": "s", "Status": "passing"})
    until("at once", lambda: states() == {"near": "critical", "own": "critical", "far": "passing"})


def configuration_files():
    agent = Agent(dev=True)
    path = os.path.join(agent.dir, "two.json")
    with open(path, "w") as f:
        json.dump({"services": [{"id": "W1", "name": "web"}, {"id": "w1", "name": "web"}]}, f)
    agent.args.append("-config-file=" + path)
    agent.start(wait=False)
    check(agent.proc.wait(20) != 0 and 'a second service with the id "W1"' in agent.log(), "two of one ID are refused: " + agent.log()[-500:])
    with open(path, "w") as f:
        json.dump({"service": {"id": "W1", "name": "web"}, "check": {"id": "c", "name": "c", "service_id": "w1", "ttl": "600s"}}, f)
    agent.start()
    until("a check finds its service", lambda: checks(agent, "/v1/health/checks/WEB") == [("c", "critical")])


# -- DNS --------------------------------------------------------------------------------------------------------------------------
def dns():
    agent = Agent(dev=True).start()
    register(agent, Node="Carl", Address="10.0.0.1", Service={"ID": "W1", "Service": "Web", "Port": 80, "Tags": ["Blue"]})
    register(agent, Node="dora", Address="10.0.0.2", Service={"Service": "web", "Port": 81, "Address": "10.0.1.2"})
    for name in ("web", "WEB", "Web"):
        same(sorted(agent.dig_short(name + ".service.coord")), ["10.0.0.1", "10.0.1.2"], "both spellings are one service: " + name)
        same(agent.dig_short("bLUE.%s.SERVICE.coord" % name), ["10.0.0.1"], "with a tag")
        same(sorted(l.split()[2] for l in agent.dig_short(name + ".service.coord", "SRV")), ["80", "81"], "SRV")
    same(agent.dig_short("cARL.node.coord"), ["10.0.0.1"], "a node")
    same(agent.dig_short("-x", "10.0.0.1"), ["Carl.node.dc1.coord."], "PTR: as it is written")
    register(agent, Node="CARL", Address="10.0.0.7")
    until("kept answers are written anew", lambda: sorted(agent.dig_short("web.service.coord")) == ["10.0.0.7", "10.0.1.2"])
    same(agent.dig_short("carl.node.coord"), ["10.0.0.7"], "the node's too")
    until("PTR", lambda: agent.dig_short("-x", "10.0.0.7") == ["CARL.node.dc1.coord."])
    deregister(agent, Node="carl", ServiceID="w1")
    until("it is gone", lambda: agent.dig_short("WEB.service.coord") == ["10.0.1.2"])


# -- what has case ----------------------------------------------------------------------------------------------------------------
def what_keeps_its_case():
    agent = Agent(dev=True).start()
    agent.put("/v1/kv/a", b"1")
    agent.put("/v1/kv/A", b"2")
    same([k for k in agent.get("/v1/kv/?keys")[2]], ["A", "a"], "keys")
    same(agent.request("GET", "/v1/catalog/nodes?dc=DC1")[0], 500, "datacenters, as with Consul")
    agent.put("/v1/event/fire/Deploy", b"x")
    until("an event", lambda: len(agent.get("/v1/event/list?name=Deploy")[2]) == 1)
    same(agent.get("/v1/event/list?name=deploy")[2], [], "event names")
    agent.put("/v1/event/fire/Other?node=N1", b"x")
    same(agent.get("/v1/event/list?name=Other")[2], [], "events' filters are regular expressions")
    answer = register(agent, 400, Node="carl", Address="10.0.0.1", Check={"Node": "CARL", "Name": "c"})
    check(b"is not the registered node" in answer, "a check that names another node than its registration, as with Consul")
    register(agent, Node="GR\u00d6SSE", Address="10.0.0.1")
    same(agent.get("/v1/catalog/node/gr%C3%96sse")[2]["Node"]["Node"], "GR\u00d6SSE", "letters of ASCII")
    same(agent.request("GET", "/v1/catalog/node/gr%C3%B6sse")[2].strip(), b"null", "and no others")


def operators():
    agent = Agent(dev=True, name="Srv").start()
    register(agent, Node="SRV", SkipNodeUpdate=True, Service={"Service": "x"})
    same([(m["Name"], m["Status"]) for m in agent.get("/v1/agent/members")[2]], [("Srv", 1)], "members")
    same(agent.request("PUT", "/v1/agent/force-leave/sRV")[0], 200, "force-leave finds it")
    status, _, answer = agent.request("PUT", "/v1/agent/force-leave/other")
    check(status == 500 and b"No node found" in answer, "and others not: %r" % answer)


run([a_node_is_one_in_any_case, a_node_with_an_id, services_are_found, who_waits_is_woken, sessions, coordinates, leases,
     the_agents_own_services_and_checks, what_others_write_under_its_node, aliases, configuration_files, dns, what_keeps_its_case, operators])
