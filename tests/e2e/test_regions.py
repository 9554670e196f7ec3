"""Regions that know each other: how they are joined, ?dc= over their links, what is said of one that cannot be reached, and who is refused."""
import base64, json, re, shutil, threading, time
import consul
from coordtest import SLOW, Agent, check, configuration, run, until
from waiters import ends_soon

HOLD = configuration(performance={"rpc_hold_timeout": "2s"})        # a region that is away is waited for so long


def server(region, *args, **kw):
    return Agent("-datacenter=" + region, HOLD, *args, name=region + "1", **kw)


def regions_of(agent):
    return {r["Region"]: r for r in agent.get("/v1/global/regions")[2]}


def knows(agent, *names):
    return until("%s knows %s" % (agent.name, names), lambda: [r for r in regions_of(agent).values() if r["Region"] in names and r["Reachable"]
                                                            and (r["Own"] or "RoundTrip" in r)].__len__() == len(names))


class World:
    """Three regions of one server; us joins eu, ap joins us. us has a client agent."""

    def __init__(self):
        self.eu = server("eu").start()
        self.us = server("us", "-retry-join-wan=" + self.eu.ip).start()
        self.ap = server("ap", "-retry-join-wan=" + self.us.ip).start()
        self.agent = Agent("-datacenter=us", "-retry-join=" + self.us.ip, server=False, name="uc").start()
        self.all = (self.eu, self.us, self.ap)


world = None


def one_address_is_enough():
    global world
    world = World()
    for agent in (*world.all, world.agent):
        knows(agent, "eu", "us", "ap")
        names = agent.get("/v1/catalog/datacenters")[2]
        own = next(a for a in agent.args if a.startswith("-datacenter="))[len("-datacenter="):]
        check(names[0] == own and sorted(names) == ["ap", "eu", "us"], "datacenters at %s: %r" % (agent.name, names))
        members = {m["Name"]: m for m in agent.get("/v1/agent/members?wan=1")[2]}
        check(sorted(members) == ["ap1.ap", "eu1.eu", "us1.us"], "members -wan: %r" % sorted(members))
        check(all(m["Status"] == 1 and m["Tags"]["dc"] == name.split(".")[1] for name, m in members.items()), "%r" % members)
        areas = {a["Datacenter"]: a for a in agent.get("/v1/coordinate/datacenters")[2]}
        check(sorted(areas) == ["ap", "eu", "us"], "areas: %r" % areas)
        far = areas["eu" if own != "eu" else "ap"]["Coordinates"]
        check(len(far) == 1 and far[0]["Coord"]["Height"] > 0, "a region's servers are as far as was measured: %r" % far)
    table = world.agent.coord("regions")
    check(table.splitlines()[1].split()[:2] == ["us", "here"], table)
    check("eu1.eu" in world.agent.coord("members", "-wan"), "members -wan")


def servers_of_a_region_are_known_whole():
    """Names and builds, on both sides, after a join by an address."""
    one, two = server("one").start(), server("two").start()
    one.coord("join", "-wan", two.ip)
    for agent, name in ((one, "two1.two"), (two, "one1.one")):
        until("%s knows %s" % (agent.name, name), lambda: re.search(r"^%s .* server +\d" % name, agent.coord("members", "-wan"), re.M), 30)
    one.kill(), two.kill()


def another_region_is_asked():
    for agent in (world.us, world.agent, world.ap):
        key = "from/" + agent.name
        check(agent.put("/v1/kv/%s?dc=eu" % key, "value") == b"true", "a write")
        check(world.eu.request("GET", "/v1/kv/%s?raw" % key)[2] == b"value", "it is there")
        check(agent.request("GET", "/v1/kv/" + key)[0] == 404, "and not here")
        for mode in ("", "&stale", "&consistent"):
            status, headers, found = agent.get("/v1/kv/%s?dc=eu%s" % (key, mode))
            check(status == 200 and base64.b64decode(found[0]["Value"]) == b"value", "%s: %r" % (mode, found))
            check(int(headers["X-Consul-Index"]) == found[0]["ModifyIndex"], "its index")
        nodes = agent.get("/v1/catalog/nodes?dc=eu")[2]
        check([n["Node"] for n in nodes] == ["eu1"] and nodes[0]["Datacenter"] == "eu", "nodes: %r" % nodes)
        check(agent.request("GET", "/v1/status/leader?dc=eu")[2] == ('"%s:8300"' % world.eu.ip).encode(), "its leader")
        check(agent.get("/v1/status/peers?dc=eu")[2] == [world.eu.ip + ":8300"], "its peers")
        peers = agent.get("/v1/operator/raft/configuration?dc=eu")[2]["Servers"]
        check([p["Node"] for p in peers] == ["eu1"], "its servers: %r" % peers)


def a_wait_ends_by_a_change_there():
    for agent in (world.us, world.agent):
        world.eu.put("/v1/kv/waited", "0")
        index = agent.get("/v1/kv/waited?dc=eu")[1]["X-Consul-Index"]
        answer = []
        waiter = threading.Thread(target=lambda: answer.append(agent.get("/v1/kv/waited?dc=eu&index=%s&wait=60s" % index, timeout=90)))
        begun = time.monotonic()
        waiter.start()
        world.us.put("/v1/kv/waited", "a change here is none there")
        waiter.join(0.5)
        check(waiter.is_alive(), "woken by a key of this region")
        world.eu.put("/v1/kv/waited", "1")
        waiter.join(60)
        check(answer and base64.b64decode(answer[0][2][0]["Value"]) == b"1", "woken: %r" % answer)
        check(time.monotonic() - begun < 15, "woken by the change")


def sessions_locks_transactions_and_the_catalog():
    agent = world.agent
    session = json.loads(agent.put("/v1/session/create?dc=eu", {"Node": "eu1", "TTL": "20s"}))["ID"]
    check(world.eu.get("/v1/session/info/" + session)[2], "the session is there")
    check(agent.put("/v1/kv/held?dc=eu&acquire=" + session, "x") == b"true", "acquired")
    check(agent.put("/v1/session/renew/%s?dc=eu" % session), "renewed")
    check(agent.request("PUT", "/v1/session/renew/" + session)[0] == 404, "not a session of ours")
    txn = [{"KV": {"Verb": "set", "Key": "t/1", "Value": base64.b64encode(b"1").decode()}}, {"KV": {"Verb": "get", "Key": "held"}}]
    done = json.loads(agent.put("/v1/txn?dc=eu", txn))
    check(done["Results"][1]["KV"]["Session"] == session and not done["Errors"], "%r" % done)
    lock = json.loads(agent.put("/v1/lock/deploy/acquire?dc=eu&ttl=20s"))
    check(lock["Acquired"] if "Acquired" in lock else lock["FencingToken"], "%r" % lock)
    check(world.eu.get("/v1/lock/deploy")[2]["FencingToken"] == lock["FencingToken"], "the lock is eu's")
    agent.put("/v1/session/destroy/%s?dc=eu" % session)
    entry = {"Datacenter": "eu", "Node": "far", "Address": "10.9.9.9", "Service": {"Service": "web", "Port": 80}}
    agent.put("/v1/catalog/register", entry)
    check(world.eu.get("/v1/catalog/service/web")[2][0]["Node"] == "far", "a body names its datacenter")
    check(agent.get("/v1/catalog/service/web")[2] == [], "not here")
    agent.put("/v1/catalog/deregister", {"Datacenter": "eu", "Node": "far"})
    check(world.eu.get("/v1/catalog/service/web")[2] == [], "gone there")
    client = consul.Consul(host=agent.ip, port=8500)
    check(client.kv.put("py", "3", dc="ap") and client.kv.get("py", dc="ap")[1]["Value"] == b"3", "python3-consul")
    check(sorted(client.catalog.datacenters()) == ["ap", "eu", "us"], "python3-consul's datacenters")


def register(agent, name, port, **more):
    agent.put("/v1/agent/service/register", dict({"Name": name, "Port": port}, **more))


def found(agent, service, *parameters):
    return agent.get("/v1/global/service/%s?%s" % (service, "&".join(parameters)))[2]


def one_catalog_of_all():
    register(world.eu, "api", 81, Tags=["blue"], Check={"TTL": "10m", "Status": "passing"})
    register(world.us, "api", 82)
    register(world.ap, "api", 83, Check={"TTL": "10m", "Status": "critical"})
    register(world.eu, "only", 91)
    for agent in (world.us, world.agent):
        until("%s sees all" % agent.name, lambda: sorted(e["Region"] for e in found(agent, "api")) == ["ap", "eu", "us"])
        until("only eu's", lambda: [e["Service"]["Port"] for e in found(agent, "only")] == [91])
        until("what is shown is new", lambda: all(e["Reachable"] and e["AsOf"] is not None and e["AsOf"] < 5000 * SLOW for e in found(agent, "api")))
        entries = {e["Region"]: e for e in found(agent, "api")}
        check(entries["eu"]["Node"]["Datacenter"] == "eu" and entries["eu"]["Service"]["Port"] == 81, "%r" % entries["eu"])
        until("those that pass", lambda: sorted(e["Region"] for e in found(agent, "api", "passing")) == ["eu", "us"])
        check([e["Region"] for e in found(agent, "api", "tag=blue")] == ["eu"] and [e["Region"] for e in found(agent, "api", "region=ap")] == ["ap"], "filters")
        names = {(e["Service"], e["Region"]) for e in agent.get("/v1/global/services")[2]}
        check({("api", "ap"), ("api", "eu"), ("api", "us"), ("only", "eu")} <= names, "%r" % names)
        for name, ips in (("api", [world.us.ip]), ("api.eu", [world.eu.ip]), ("blue.api.eu", [world.eu.ip]), ("api.ap", []), ("only", [world.eu.ip]),
                          ("only.us", []), ("api.global", [world.eu.ip, world.us.ip])):
            service, _, region = name.rpartition(".") if name.count(".") and name.split(".")[-1] in ("eu", "us", "ap", "global") else (name, "", "")
            host = "%s.service%s.coord" % (service, "." + region if region else "")
            until("%s asks %s" % (agent.name, host), lambda: sorted(agent.dig_short(host)) == sorted(ips))
        srv = agent.ask("only.service.coord", "SRV")
        check(srv.answer and srv.answer[0].data.startswith("1 1 91 ") and any(r.data == world.eu.ip for r in srv.additional), "%r" % (srv,))
    register(world.us, "only", 92)
    for agent in (world.us, world.agent):
        until("home again at " + agent.name, lambda: agent.dig_short("only.service.coord") == [world.us.ip], 2)
    world.us.put("/v1/agent/service/deregister/only")
    for agent in (world.us, world.agent):
        until("away again at " + agent.name, lambda: agent.dig_short("only.service.coord") == [world.eu.ip], 2)
    world.eu.put("/v1/agent/check/fail/service:api")
    until("a check that fails there shows here", lambda: sorted(e["Region"] for e in found(world.agent, "api", "passing")) == ["us"])
    world.eu.put("/v1/agent/check/pass/service:api")


def names_that_are_no_region():
    for agent in (world.us, world.agent):
        for name in ("xx", "x" * 300, "a%20b", "%22"):
            status, _, body = agent.request("GET", "/v1/kv/a?dc=" + name)
            check(status == 500 and body == b"No path to datacenter", "%s: %d %r" % (name, status, body))
            status, _, body = agent.request("PUT", "/v1/kv/a?dc=" + name, "x")
            check(status == 500 and body == b"No path to datacenter", "%s: %d %r" % (name, status, body))
        check(agent.put("/v1/kv/own?dc=us", "x") == b"true" and agent.get("/v1/kv/own?dc=us")[0] == 200, "our own name")
    status, _, body = world.agent.request("PUT", "/v1/agent/join/127.0.0.1?wan=1")
    check(status == 500 and b"only servers" in body, "%d %r" % (status, body))
    out = world.us.coord("join", "-wan", world.us.ip, code=1)
    check("of this region itself" in out, out)


def asked_while_away():
    """All who ask are told. (When: ./dev sim, a_region_that_is_away_says_so_at_once.)"""
    world.eu.kill()
    answers = []
    waiters = [threading.Thread(target=lambda a=agent, m=method: answers.append(a.request(m, "/v1/kv/a?dc=eu")))
               for agent in (world.us, world.agent) for method in ("GET", "PUT")]
    for waiter in waiters:
        waiter.start()
    for agent in (world.us, world.agent):
        check(agent.put("/v1/kv/here", "x") == b"true", "this region works on")
    for waiter in waiters:
        waiter.join(60)
    check(len(answers) == 4, "%r" % answers)
    for status, _, body in answers:
        check(status == 500 and (b'"eu"' in body or b"outcome" in body), "%d %r" % (status, body))


def one_that_cannot_be_reached():
    asked_while_away()
    check(world.us.request("GET", "/v1/kv/a?dc=eu")[0] == 500, "it is away")
    until("eu is away", lambda: not regions_of(world.us)["eu"]["Reachable"])
    check("eu" in world.us.get("/v1/catalog/datacenters")[2], "and still known")
    entries = {e["Region"]: e for e in found(world.us, "api")}
    check(not entries["eu"]["Reachable"] and entries["us"]["Reachable"], "the last state of eu stays, and is shown as old: %r" % entries["eu"])
    check(world.us.dig_short("only.service.coord") == [world.eu.ip], "also in DNS")
    members = {m["Name"]: m["Status"] for m in world.us.get("/v1/agent/members?wan=1")[2]}
    check(members["eu1.eu"] == 4 and members["ap1.ap"] == 1, "%r" % members)
    world.eu.start()
    knows(world.us, "eu")
    until("answers again", lambda: world.agent.request("GET", "/v1/catalog/nodes?dc=eu")[0] == 200)


def one_that_is_removed_stays_away():
    world.us.coord("region", "remove", "eu")
    until("us has no eu", lambda: "eu" not in regions_of(world.us) and "eu" not in regions_of(world.agent))
    check("No path" in world.us.request("GET", "/v1/kv/a?dc=eu")[2].decode(), "not asked any more")
    until("eu notices", lambda: not regions_of(world.eu)["us"]["Reachable"])
    check("eu" in regions_of(world.ap), "ap keeps it")
    until("its copy is gone", lambda: "eu" not in {e["Region"] for e in world.us.get("/v1/global/services")[2]})
    refused = lambda: world.eu.log().count("its region was removed here") >= 2
    until("eu's links are refused, again and again", refused)       # and what ap says does not bring it back either
    check("eu" not in regions_of(world.us), "it came back")
    world.us.coord("join", "-wan", world.eu.ip)
    knows(world.us, "eu")
    until("eu answers", lambda: world.us.request("GET", "/v1/catalog/nodes?dc=eu")[0] == 200)
    knows(world.eu, "us")


def another_cluster_of_the_name_is_refused():
    false = server("eu", "-retry-join-wan=" + world.us.ip).start()
    until("us tells", lambda: "claims this name" in regions_of(world.us)["eu"].get("Conflict", ""))
    check(false.ip in regions_of(world.us)["eu"]["Conflict"], "and by whom")
    check("claims this name" in world.us.coord("regions"), "coord regions tells")
    check("another cluster" in world.us.log(), "the log tells")
    check(world.us.get("/v1/catalog/nodes?dc=eu")[2][0]["Address"] == world.eu.ip, "eu is who it was")
    until("the false one learns why", lambda: "another cluster" in false.log())
    false.stop()


def one_that_is_founded_anew_is_taken():
    before = regions_of(world.us)["eu"]["ClusterID"]
    world.eu.put("/v1/kv/old", "x")
    world.eu.kill()
    shutil.rmtree(world.eu.data)
    world.eu.start()
    for agent in (world.us, world.ap):
        until("%s takes the new eu" % agent.name, lambda: regions_of(agent)["eu"]["ClusterID"] != before and regions_of(agent)["eu"]["Reachable"], 30)
        until("and asks it", lambda: agent.request("GET", "/v1/kv/old?dc=eu")[0] == 404)
    knows(world.eu, "us", "ap")


def the_end_is_quick():
    for agent in (world.agent, *world.all):
        ends_soon(agent, 8 * SLOW)


def a_link_that_is_fine_is_not_logged():
    """An address of retry_join_wan is asked again and again who is there."""
    there = server("sa", "-log-level=debug").start()
    here = server("af", "-retry-join-wan=" + there.ip, "-retry-interval-wan=200ms").start()
    for agent in (here, there):
        knows(agent, "af", "sa")
    asked = lambda: there.log().count("another region asks who is here region=af")
    before, told = asked(), {agent: len(agent.log()) for agent in (here, there)}
    until("it is asked three times more", lambda: asked() >= before + 3)
    for agent in (here, there):
        lines = [line for line in agent.log()[told[agent]:].splitlines() if any(" %s: " % of in line for of in ("agents", "client", "peer", "region", "regions"))]
        check(not [line for line in lines if "[DEBUG]" not in line], "%s: %r" % (agent.name, lines))
    check("a link from another region went" not in there.log(), there.log())
    for agent in (here, there):
        agent.stop()


run([a_link_that_is_fine_is_not_logged, one_address_is_enough, servers_of_a_region_are_known_whole, another_region_is_asked,
    a_wait_ends_by_a_change_there, sessions_locks_transactions_and_the_catalog, one_catalog_of_all, names_that_are_no_region,
    one_that_cannot_be_reached, one_that_is_removed_stays_away, another_cluster_of_the_name_is_refused, one_that_is_founded_anew_is_taken, the_end_is_quick])
