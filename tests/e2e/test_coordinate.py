#!/usr/bin/env python3
"""Network coordinates on one server: its own report, updates of others, nearness, `coord rtt`, and python3-consul's view of it."""
import json, os, subprocess, threading
from coordtest import Agent, COORD, check, run, until

FAST = {"sync_coordinate_interval_min": "300ms", "consul": {"coordinate": {"update_period": "200ms"}}}


def fast_agent(config=FAST, **kw):
    agent = Agent(**kw)
    path = os.path.join(agent.dir, "coordinate.json")
    with open(path, "w") as f:
        json.dump(config, f)
    agent.args.append("-config-file=" + path)
    return agent.start()


def update(agent, node, seconds, segment=""):
    agent.put("/v1/coordinate/update", {"Node": node, "Segment": segment, "Coord": {
        "Vec": [seconds, 0, 0, 0, 0, 0, 0, 0], "Error": 1.5, "Adjustment": 0, "Height": 0.00001}})


def register(agent, node):
    agent.put("/v1/catalog/register", {"Node": node, "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 80}})


def places(agent, query=""):
    return {(c["Node"], c["Segment"]): c["Coord"]["Vec"][0] for c in agent.get("/v1/coordinate/nodes" + query)[2]}


def rtt(agent, *words):
    r = subprocess.run([COORD, "rtt", "-http-addr=%s:8500" % agent.ip, *words], capture_output=True, text=True)
    return r.returncode, r.stdout + r.stderr


def alone_at_the_origin():
    agent = fast_agent(dev=True)
    until("it reports itself", lambda: places(agent) == {("n1", ""): 0})
    expected = {"Node": "n1", "Segment": "", "Coord": {"Vec": [0] * 8, "Error": 1.5, "Adjustment": 0, "Height": 0.00001}}
    check(agent.get("/v1/coordinate/node/n1")[2] == [expected], "node/n1: %r" % agent.get("/v1/coordinate/node/n1")[2])
    check(agent.get("/v1/coordinate/datacenters")[2] == [{"Datacenter": "dc1", "AreaID": "wan", "Coordinates": [expected]}], "datacenters")
    check(agent.get("/v1/agent/self")[2]["Coord"] == expected["Coord"], "agent/self")
    check(agent.request("GET", "/v1/coordinate/node/nobody")[::2] == (404, b""), "an unknown node")
    # What changes nothing is not written: the index stays while it goes on reporting.
    applied = lambda: int(agent.get("/v1/agent/self")[2]["Stats"]["raft"]["applied_index"])
    begun, measured = agent.get("/v1/coordinate/nodes")[1]["X-Consul-Index"], []

    def rests():                     # a server that is new writes about itself, too
        before = applied()
        status, headers, _ = agent.request("GET", "/v1/coordinate/nodes?index=%s&wait=1500ms" % begun)
        check(status == 200 and headers["X-Consul-Index"] == begun, "a coordinate that stays wakes nobody")
        measured.append(applied() - before)
        return measured[-1] == 0
    check(any(rests() for _ in range(4)), "a coordinate that stays writes nothing: %r" % measured)


def nearness():
    agent = fast_agent(dev=True)
    for node in "abc":
        register(agent, node)
    update(agent, "a", 0.030), update(agent, "b", 0.010), update(agent, "c", 0.021), update(agent, "nobody", 1)
    until("they are in the catalog", lambda: set(places(agent)) == {("n1", ""), ("a", ""), ("b", ""), ("c", "")})
    order = lambda path: [e["Node"]["Node"] if "Service" in e else e["Node"] for e in agent.get(path)[2]]
    check(order("/v1/health/service/web?near=_agent") == ["b", "c", "a"], "near=_agent")
    check(order("/v1/health/service/web?near=a") == ["a", "c", "b"], "near=a")
    check(order("/v1/catalog/nodes?near=b") == ["b", "n1", "c", "a"], "nodes: %r" % order("/v1/catalog/nodes?near=b"))
    check(order("/v1/health/service/web?near=nobody") == ["a", "b", "c"], "near a node that nobody knows")

    # A watcher of the service sleeps while coordinates move, and wakes to the new order.
    index = agent.get("/v1/health/service/web?near=_agent")[1]["X-Consul-Index"]
    heard = []
    waiter = threading.Thread(target=lambda: heard.append(agent.get("/v1/health/service/web?near=_agent&index=%s&wait=60s" % index)))
    waiter.start()
    before = agent.get("/v1/coordinate/nodes")[1]["X-Consul-Index"]
    update(agent, "b", 0.500)
    status, headers, _ = agent.request("GET", "/v1/coordinate/nodes?index=%s&wait=30s" % before)
    check(status == 200 and int(headers["X-Consul-Index"]) > int(before), "a watcher of coordinates wakes")
    check(order("/v1/health/service/web?near=_agent") == ["c", "a", "b"], "sorted anew")
    check(not heard, "the service's watcher sleeps")
    register(agent, "d")
    waiter.join(30)
    check(heard and [e["Node"]["Node"] for e in heard[0][2]] == ["c", "a", "b", "d"], "unknown ones last: %r" % heard)


def goes_with_its_node_and_survives_a_crash():
    agent = fast_agent()
    register(agent, "a")
    update(agent, "a", 0.25), update(agent, "a", 0.5, "west")
    until("both", lambda: {("a", ""): 0.25, ("a", "west"): 0.5}.items() <= places(agent).items())
    agent.kill()
    agent.start()
    check({("a", ""): 0.25, ("a", "west"): 0.5}.items() <= places(agent).items(), "after kill -9: %r" % places(agent))
    check(places(agent, "?segment=west") == {("a", "west"): 0.5}, "one segment")
    agent.put("/v1/catalog/deregister", {"Node": "a"})
    check(("a", "") not in places(agent) and ("a", "west") not in places(agent), "gone with its node")
    check(agent.request("GET", "/v1/coordinate/node/a")[0] == 404, "404")


def command_line():
    agent = fast_agent(dev=True)
    for node in "ab":
        register(agent, node)
    update(agent, "a", 0.030)
    until("a's place", lambda: set(places(agent)) == {("n1", ""), ("a", "")})
    for words, code, text in (
            (["a"], 0, "Estimated a <-> n1 rtt: 30.020 ms (using LAN coordinates)\n"),
            (["n1", "a"], 0, "Estimated n1 <-> a rtt: 30.020 ms (using LAN coordinates)\n"),
            (["a", "b"], 1, "Could not find a coordinate for node \"b\"\n"),
            (["b", "a"], 1, "Could not find a coordinate for node \"b\"\n"),
            (["-wan", "n1.dc1"], 0, "Estimated n1.dc1 <-> n1.dc1 rtt: 0.020 ms (using WAN coordinates)\n"),
            (["-wan", "n1"], 2, "Node names must be specified as <node name>.<datacenter> with -wan\n"),
            (["-wan", "n1.dc1", "n1.dc2"], 1, "Could not find a coordinate for node \"n1.dc2\"\n")):
        check(rtt(agent, *words) == (code, text), "coord rtt %s: %r" % (" ".join(words), rtt(agent, *words)))
    for words in ([], ["a", "b", "c"]):
        code, text = rtt(agent, *words)
        check(code == 2 and text.startswith("One or two node names must be specified\n"), text)
    r = subprocess.run([COORD, "rtt", "-http-addr=%s:1" % agent.ip, "a"], capture_output=True, text=True)
    check(r.returncode == 3 and r.stderr.startswith("Error "), r.stderr)


def switched_off():
    agent = fast_agent(dict(FAST, disable_coordinates=True), dev=True)
    for path in ("nodes", "node/n1", "datacenters"):
        check(agent.request("GET", "/v1/coordinate/" + path)[::2] == (401, b"Coordinate support disabled"), path)
    agent.put("/v1/coordinate/update", {}, expect=401)
    check(agent.get("/v1/agent/self")[2]["Coord"] is None, "agent/self")


def python_consul():
    try:
        import consul
    except ImportError:
        print("     python3-consul is not installed: without it", flush=True)
        return
    agent = fast_agent(dev=True)
    c = consul.Consul(host=agent.ip, port=8500)
    register(agent, "a"), register(agent, "b")
    update(agent, "b", 0.1), update(agent, "a", 0.2)
    index, nodes = until("all three", lambda: (lambda r: r if len(r[1]) == 3 else None)(c.coordinate.nodes()))
    check([n["Node"] for n in nodes] == ["a", "b", "n1"] and nodes[0]["Coord"]["Vec"][0] == 0.2, "coordinate.nodes: %r" % nodes)
    check(c.coordinate.datacenters()[0]["Datacenter"] == "dc1", "coordinate.datacenters")
    check([s["Node"] for s in c.catalog.service("web", near="_agent")[1]] == ["b", "a"], "catalog.service(near)")
    check([s["Node"]["Node"] for s in c.health.service("web", near="_agent")[1]] == ["b", "a"], "health.service(near)")


run([alone_at_the_origin, nearness, goes_with_its_node_and_survives_a_crash, command_line, switched_off, python_consul])
