"""A service without healthy instances is answered from another region, and comes home once it has been healthy for a while: DNS and HTTP, on a server
and on a client agent, with checks that flap; orders of who answers; why an answer came."""
import json, threading, time
from coordtest import Agent, check, run, settings, until

RETURN = 1.0


class World:
    """Two regions of one server; us has a client agent too."""

    def __init__(self):
        quick = settings(failover_return="%dms" % (RETURN * 1000))
        self.eu = Agent("-datacenter=eu", settings(failover_return="10m"), name="eu1").start()     # what comes home there does so at once, or not at all
        self.us = Agent("-datacenter=us", "-retry-join-wan=" + self.eu.ip, quick, name="us1").start()
        self.agent = Agent("-datacenter=us", "-retry-join=" + self.us.ip, server=False, name="uc").start()
        self.here = (self.us, self.agent)
        for agent in (self.eu, self.us):
            self.register(agent, "web", 80)
        self.register(self.eu, "reader", 81)
        until("us has eu's", lambda: {e["Region"] for e in self.us.get("/v1/global/service/web")[2]} == {"eu", "us"})
        until("and the other", lambda: self.us.get("/v1/global/service/reader")[2])

    def register(self, agent, name, port, status="passing"):
        agent.put("/v1/agent/service/register", {"Name": name, "Port": port, "Check": {"TTL": "10m", "Status": status}})


world = None


def turn(agent, state, service="web"):
    agent.put("/v1/agent/check/%s/service:%s" % (state, service))


def by_dns(agent, service="web"):
    return {world.us.ip: "us", world.eu.ip: "eu"}.get("".join(agent.dig_short(service + ".service.coord")), "?")


def by_http(agent, service="web", *parameters):
    status, headers, entries = agent.get("/v1/health/service/%s?failover&%s" % (service, "&".join(parameters)))
    check(status == 200, "%d %r" % (status, entries))
    datacenters = {e["Node"]["Datacenter"] for e in entries}
    check(datacenters <= {headers["X-Coord-Region"]}, "entries of %s in an answer of %s" % (datacenters, headers["X-Coord-Region"]))
    return headers["X-Coord-Region"]


def all_say(region, within=10):
    for agent in world.here:
        until("%s answers from %s by DNS" % (agent.name, region), lambda: by_dns(agent) == region, within)
        until("%s answers from %s by HTTP" % (agent.name, region), lambda: by_http(agent, "web", "passing") == region, within)


def it_goes_and_comes_home():
    global world
    world = World()
    all_say("us")
    for agent in world.here:
        check("X-Coord-Region" not in agent.get("/v1/health/service/web")[1], "without ?failover")
        check(agent.ask("web.service.coord", "TXT").answer == [], "nothing to mark")
    turn(world.us, "fail")
    all_say("eu")
    for agent in world.here:
        check(agent.get("/v1/health/service/web?passing")[2] == [], "without ?failover nobody")
        texts = agent.ask("web.service.coord", "TXT").answer
        check([t.data for t in texts] == ['"coord-region=eu"'], "%r" % texts)
        srv = agent.ask("web.service.coord", "SRV")
        check([r.data for r in srv.answer] == ["1 1 80 eu1.node.eu.coord."], "%r" % (srv,))
        check(any(r.owner == "eu1.node.eu.coord." and r.data == world.eu.ip for r in srv.additional), "%r" % (srv,))
        for name, ips in (("eu1.node.eu.coord", [world.eu.ip]), ("EU1.node.eu.coord", [world.eu.ip]), ("us1.node.eu.coord", []), ("eu1.node.xx.coord", []), ("eu1.node.coord", [])):
            check(agent.dig_short(name) == ips, "%s: %r" % (name, agent.dig_short(name)))
        check(agent.ask("us1.node.eu.coord").status == "NXDOMAIN" and agent.ask("eu1.node.eu.coord", "TXT").status == "NOERROR", "what is not there, and what is")
        entry = agent.get("/v1/health/service/web?failover")[2][0]
        check(entry["Node"]["Node"] == "eu1" and entry["Checks"], "%r" % entry)
    turn(world.us, "pass")
    all_say("us")


class Waits(threading.Thread):
    """Asks again and again for what is newer, as blocking queries do; writes down which region answered."""

    def __init__(self, agent):
        super().__init__(daemon=True)
        self.agent, self.regions, self.over = agent, [], False
        self.index = agent.get("/v1/health/service/web?failover")[1]["X-Consul-Index"]
        self.start()

    def run(self):
        while not self.over:
            headers = self.agent.get("/v1/health/service/web?failover&passing&index=%s&wait=30s" % self.index, timeout=60)[1]
            self.index = headers["X-Consul-Index"]
            self.regions.append(headers["X-Coord-Region"])


def waiting_queries_wake_at_both():
    waits = [Waits(agent) for agent in world.here]
    for state, region in (("fail", "eu"), ("pass", "us")):
        turn(world.us, state)
        for wait in waits:
            until("%s: a wait ends with an answer from %s" % (wait.agent.name, region), lambda: wait.regions[-1:] == [region], 10)
    for wait in waits:
        wait.over = True
        check(len(wait.regions) <= 6, "woken by what changes: %r" % wait.regions)


class Watcher(threading.Thread):
    """Writes down each change of the region that answers."""

    def __init__(self, look):
        super().__init__(daemon=True)
        self.look, self.seen, self.looks, self.over, self.error = look, [], 0, False, None
        self.start()

    def run(self):
        try:
            while not self.over:
                region = self.look()
                self.looks += 1
                if not self.seen or self.seen[-1] != region:
                    self.seen.append(region)
                time.sleep(0.05)
        except Exception as e:
            self.error = e

    def stop(self):
        self.over = True
        self.join()
        if self.error:
            raise self.error
        return self.seen


def a_healthy_home_is_not_left():
    """Two regions whose checks begin critical, and pass one after the other: neither answers for the other one from then on."""
    both = (world.us, world.eu)
    for agent in both:
        world.register(agent, "x", 90, "critical")
    known = lambda agent, region: [c["Status"] for e in agent.get("/v1/global/service/x")[2] if e["Region"] == region for c in e["Checks"] if c["CheckID"] == "service:x"]
    until("both know both", lambda: all(known(agent, region) == ["critical"] for agent in both for region in ("eu", "us")))
    turn(world.us, "pass", "x")
    for agent in world.here:
        until("us answers at " + agent.name, lambda: by_dns(agent, "x") == by_http(agent, "x") == "us")
    watchers = [Watcher(lambda look=look, agent=agent: look(agent, "x")) for look in (by_dns, by_http) for agent in world.here]
    until("and for eu", lambda: by_dns(world.eu, "x") == by_http(world.eu, "x") == "us")
    turn(world.eu, "pass", "x")
    until("eu, which was never healthy before, is home at once", lambda: by_dns(world.eu, "x") == by_http(world.eu, "x") == "eu")
    check(world.eu.request("GET", "/v1/failover/x")[0] == 404, "nothing is on record")
    for state, status in (("pass", "passing"), ("fail", "critical"), ("pass", "passing")):
        turn(world.eu, state, "x")
        until("us knows", lambda: known(world.us, "eu") == [status])
        looks = [watcher.looks for watcher in watchers]
        until("all looked", lambda: all(w.error or w.looks > before + 1 for w, before in zip(watchers, looks)))
    for watcher in watchers:
        check(watcher.stop() == ["us"], "%r" % watcher.seen)
    until("eu waits to come home", lambda: world.eu.get("/v1/failover/x")[2].get("BackIndex") and by_dns(world.eu, "x") == "us")
    turn(world.us, "fail", "x")
    until("until nobody else is left", lambda: by_dns(world.eu, "x") == by_http(world.eu, "x") == "eu")
    turn(world.us, "pass", "x")
    until("eu knows", lambda: known(world.eu, "us") == ["passing"])
    check(by_dns(world.eu, "x") == by_http(world.eu, "x") == "eu", "for good")


def an_order_of_who_answers():
    agent = world.agent
    check(agent.request("GET", "/v1/failover/web")[0] == 404 and agent.get("/v1/failover")[2] == [], "nothing is on record")
    check(agent.put("/v1/failover/web", {"Targets": [{"Regions": ["nowhere"]}, {"Service": "reader", "Regions": ["eu"]}]}) == b"true", "put")
    found = world.us.get("/v1/failover/web")[2]
    check(found["Targets"][1]["Service"] == "reader" and found["Targets"][0]["Regions"] == ["nowhere"] and not found["Away"] and found["Healthy"], "%r" % found)
    turn(world.us, "fail")
    all_say("eu")
    for at in world.here:
        headers, entries = at.get("/v1/health/service/web?failover")[1:]
        check(headers["X-Coord-Service"] == "reader" and [e["Service"]["Port"] for e in entries] == [81], "%r %r" % (headers["X-Coord-Service"], entries))
        srv = at.ask("web.service.coord", "SRV").answer
        check(srv and srv[0].data.startswith("1 1 81 "), "%r" % srv)
    index = agent.get("/v1/health/service/web?failover")[1]["X-Consul-Index"]
    turn(world.eu, "warn", "reader")
    until("the other service is waited for too", lambda: agent.get("/v1/health/service/web?failover&index=%s&wait=20s" % index, timeout=40)[2][0]["Checks"][-1]["Status"] == "warning", 10)
    turn(world.eu, "fail", "reader")
    for at in world.here:
        until("no target has any: DNS", lambda: by_dns(at) == "?")
        until("no target has any", lambda: by_http(at) == "us" and at.get("/v1/health/service/web?failover&passing")[2] == [])
    turn(world.eu, "pass", "reader")
    all_say("eu")
    shown = {f["Service"]: f for f in agent.get("/v1/failover")[2]}
    check(shown["web"]["Away"] and not shown["web"]["Healthy"] and shown["web"]["AwayIndex"], "%r" % shown)
    check(agent.request("GET", "/v1/failover/web?dc=eu")[0] == 404, "eu has no order")
    check(agent.put("/v1/failover/web?dc=eu", {"Targets": [{"Regions": ["us"]}]}) == b"true", "an order for eu")
    check(world.eu.get("/v1/failover/web")[2]["Targets"] == [{"Service": "", "Tags": [], "Regions": ["us"]}], "is eu's")
    check(agent.request("DELETE", "/v1/failover/web?dc=eu")[2] == b"true" and world.eu.request("GET", "/v1/failover/web")[0] == 404, "and taken back")
    for body in ({}, {"Targets": 1}, {"Targets": [{"Region": "eu"}]}, {"Targets": [{"Regions": ["a b"]}]}, {"Targets": [{"Tags": [""]}]}, {"Targets": [{"Service": "x" * 300}]}):
        check(agent.request("PUT", "/v1/failover/web", body)[0] == 400, "taken: %r" % body)
    for parameter in ("near=_agent", "lb=p2c", "subset=1", "node-meta=a:b"):
        check(agent.request("GET", "/v1/health/service/web?failover&" + parameter)[0] == 400, parameter)


def the_commands_say_why():
    for agent in world.here:
        out = agent.coord("explain", "service", "web")
        check('Answered from region "eu" by service "reader": 1 passing' in out and "target 2 of 2" in out and "away     since index" in out, out)
        check("us" in out and "0        0        1" in out, out)
    check("web" in world.agent.coord("failover", "list") and "reader" in world.agent.coord("failover", "get", "web"), "list, get")
    world.agent.coord("failover", "put", "-to", "ap,eu", "web")
    check(world.us.get("/v1/failover/web")[2]["Targets"] == [{"Service": "", "Tags": [], "Regions": ["ap", "eu"]}], "put -to")
    world.agent.coord("failover", "put", "-service=reader", "-tag", "a", "-tag=b", "web")
    check(world.us.get("/v1/failover/web")[2]["Targets"] == [{"Service": "reader", "Tags": ["a", "b"], "Regions": []}], "put -service -tag")
    world.agent.coord("failover", "put", "web", code=2)
    world.agent.coord("failover", "put", '-targets=[{"Service":"reader"},{}]', "web")
    check(len(world.us.get("/v1/failover/web")[2]["Targets"]) == 2, "put -targets")
    world.agent.coord("failover", "delete", "web")
    until("by the nearest region", lambda: all(words in world.us.coord("explain", "service", "web") for words in ('Answered from region "eu": 1 passing', "nearest region")))
    all_say("eu")
    turn(world.us, "pass")
    all_say("us")
    until("nothing is on record", lambda: world.us.get("/v1/failover")[2] == [])
    out = world.us.coord("explain", "service", "web")
    check('Answered from region "us", this one: 1 passing' in out and "there are healthy instances here" in out, out)


def one_that_is_gone_for_good():
    world.us.put("/v1/agent/service/deregister/web")
    all_say("eu")
    check(world.us.get("/v1/failover/web")[2]["Away"], "it is away")
    world.eu.put("/v1/agent/service/deregister/web")
    until("nobody knows it any more", lambda: world.us.get("/v1/failover")[2] == [])
    check(by_dns(world.us) == "?" and by_http(world.us) == "us", "nobody has it")


run([it_goes_and_comes_home, a_healthy_home_is_not_left, waiting_queries_wake_at_both, an_order_of_who_answers, the_commands_say_why, one_that_is_gone_for_good])
