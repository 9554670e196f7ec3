"""Three regions in the field, with the tools that people have (dig, curl, python3-consul): each registers what runs in it; a dashboard reads the catalog of
all; a configuration is prepared everywhere, then flipped; a service fails in one region and comes home; a region is lost and returns."""
import json, shutil, subprocess, sys, time
from coordtest import SLOW, Agent, check, configuration, run, until

try:
    import consul
except ImportError:
    print("skipped: no python3-consul")
    sys.exit(77)
for tool in ("dig", "curl"):
    if not shutil.which(tool):
        print("skipped: no " + tool)
        sys.exit(77)

RETURN = 1.0
REGIONS = ("eu", "us", "ap")


def curl(agent, path, *args):
    r = subprocess.run(["curl", "-sS", "--max-time", str(int(30 * SLOW)), *args, "http://%s:8500%s" % (agent.ip, path)], capture_output=True, text=True)
    check(r.returncode == 0, "curl %s: %s" % (path, r.stderr))
    return r.stdout


def curled(agent, path, *args):
    return json.loads(curl(agent, path, *args))


def client(agent):
    return consul.Consul(host=agent.ip, port=8500)


class World:
    """Each region has one server, and an agent on which things run; us and ap were told of eu alone."""

    def __init__(self):
        quick = configuration(coord={"failover_return": "%dms" % (RETURN * 1000)}, performance={"rpc_hold_timeout": "1s"})
        self.servers, self.agents = {}, {}
        for region in REGIONS:
            joins = ["-retry-join-wan=" + self.servers["eu"].ip] if region != "eu" else []
            self.servers[region] = Agent("-datacenter=" + region, quick, *joins, name=region + "1").start()
            self.agents[region] = Agent("-datacenter=" + region, "-retry-join=" + self.servers[region].ip, server=False, name=region + "-host").start()
        for agent in (*self.servers.values(), *self.agents.values()):
            until("%s knows all regions" % agent.name, lambda: sorted(client(agent).catalog.datacenters()) == sorted(REGIONS)
                  and all(r["Reachable"] for r in curled(agent, "/v1/global/regions")))


world = None


def registered_where_they_run():
    global world
    world = World()
    for port, (region, agent) in enumerate(world.agents.items(), 8000):
        c = client(agent)
        for name in ("shop", "db"):
            check(c.agent.service.register(name, port=port, tags=[region], check={"TTL": "10m", "Status": "passing"}), "registered")
        check(c.agent.service.register("only-" + region, port=port), "registered")
    for region, agent in world.agents.items():
        until("%s has its own" % region, lambda: [e["Node"]["Node"] for e in client(agent).health.service("shop", passing=True)[1]] == [agent.name])
        until("by DNS as well", lambda: agent.dig_short("shop.service.coord") == [agent.ip])
        check(client(agent).catalog.services()[1].get("shop") == [region], "the catalog is that of the region alone")


def a_dashboard_shows_all():
    """From any agent of any region; each entry says from where and of when it is."""
    for agent in world.agents.values():
        shown = lambda: {(e["Region"], e["Node"]["Node"], e["Service"]["Port"], e["Reachable"]) for e in curled(agent, "/v1/global/service/shop?passing")}
        expected = {(region, region + "-host", port, True) for port, region in enumerate(REGIONS, 8000)}
        until("%s shows all" % agent.name, lambda: shown() == expected)
        names = lambda: {(e["Service"], e["Region"]) for e in curled(agent, "/v1/global/services")}
        until("names of all", lambda: {("only-" + r, r) for r in REGIONS} | {("shop", r) for r in REGIONS} <= names())
        until("how old it is", lambda: all(e["AsOf"] is not None and e["AsOf"] < 10000 * SLOW for e in curled(agent, "/v1/global/service/shop")))
        until("all addresses", lambda: sorted(agent.dig_short("shop.service.global.coord")) == sorted(a.ip for a in world.agents.values()))
        for region in REGIONS:
            check(agent.dig_short("shop.service.%s.coord" % region) == [world.agents[region].ip], "the name with a region")
            found = client(agent).health.service("shop", dc=region, passing=True)[1]
            check([e["Service"]["Tags"] for e in found] == [[region]], "and python3-consul's dc=")
    begun = time.monotonic()
    client(world.agents["eu"]).agent.service.register("new", port=1)
    until("a change in one is seen in the others", lambda: all(curled(a, "/v1/global/service/new") for a in world.agents.values()), 5)
    print("a change was seen everywhere after %.2f s" % (time.monotonic() - begun))


def serving(region):
    """What a caller of that region is to use."""
    return curled(world.agents[region], "/v1/rollout/shop?id=caller-" + region).get("Version")


def put(agent, path, body):
    check(curl(agent, path, "-X", "PUT", "-d", json.dumps(body), "-w", "%{http_code}").endswith("200"), path)


def prepared_everywhere_then_flipped():
    """Published in one region; the command takes it to all of them before any is flipped."""
    eu = world.agents["eu"]
    for region in REGIONS:
        put(eu, "/v1/rollout/shop/versions/v1?dc=" + region, {"timeout": 1})
        put(eu, "/v1/rollout/shop/current?dc=" + region, {"Version": "v1"})
        until("%s has the first" % region, lambda: serving(region) == "v1")
    put(eu, "/v1/rollout/shop/versions/v2", {"timeout": 2})
    check([serving(r) for r in REGIONS] == ["v1"] * 3, "prepared is not flipped")
    eu.coord("rollout", "stage", "-regions", "eu,us,ap", "shop", "v2")
    until("all have it", lambda: [serving(r) for r in REGIONS] == ["v2"] * 3)
    check([curled(world.agents[r], "/v1/rollout/shop?id=x")["Document"] for r in REGIONS] == [{"timeout": 2}] * 3, "the document")


def turn(region, state, service="db"):
    curl(world.agents[region], "/v1/agent/check/%s/service:%s" % (state, service), "-X", "PUT", "-f")


def answers(agent):
    """The regions that answer for db here: by DNS, by HTTP as its header says."""
    of = {a.ip: region for region, a in world.agents.items()}
    head = curl(agent, "/v1/health/service/db?failover&passing", "-D", "-", "-o", "/dev/null")
    named = [line.split(":", 1)[1].strip() for line in head.splitlines() if line.lower().startswith("x-coord-region:")]
    return [of.get(ip) for ip in agent.dig_short("db.service.coord")] + named


def another_region_answers_until_it_is_well():
    eu = world.agents["eu"]
    until("local first", lambda: answers(eu) == ["eu", "eu"])
    turn("eu", "fail")
    until("the nearest answers", lambda: answers(eu) in (["us", "us"], ["ap", "ap"]))
    first = answers(eu)[0]
    eu.coord("failover", "put", "-to", "ap,us", "db")
    until("by the order", lambda: answers(eu) == ["ap", "ap"])
    turn("ap", "fail")
    until("the next of it", lambda: answers(eu) == ["us", "us"])
    check(answers(world.agents["us"]) == ["us", "us"], "us is at home all the while")
    said = eu.coord("explain", "service", "db")
    check("us" in said and "ap" in said, said)
    print("the nearest of eu was %s; why an answer came:\n%s" % (first, said))
    turn("eu", "pass")
    until("it comes home", lambda: answers(eu) == ["eu", "eu"])
    turn("ap", "pass")
    eu.coord("failover", "delete", "db")


def one_is_lost_and_returns():
    """What the others know of it stays; they work on; nobody waits for it long; its pointer is that of before."""
    ap, us = world.servers["ap"], world.agents["us"]
    ap.kill()
    until("it is shown as away", lambda: [e["Reachable"] for e in curled(us, "/v1/global/service/shop?region=ap")] == [False])
    check(us.dig_short("only-ap.service.coord") == [world.agents["ap"].ip], "the last that was known, also in DNS")
    check('"ap"' in curl(us, "/v1/catalog/services?dc=ap"), "an error that names it")
    put(us, "/v1/rollout/shop/versions/v3", {"timeout": 3})
    us.coord("rollout", "stage", "-regions", "us,eu,ap", "shop", "v3", code=3)
    check([serving(r) for r in ("eu", "us")] == ["v2"] * 2, "it is not everywhere, so it is flipped nowhere")
    us.coord("rollout", "stage", "-regions", "us,eu", "shop", "v3")
    until("the others go on", lambda: [serving(r) for r in ("eu", "us")] == ["v3"] * 2)
    check(client(us).agent.service.register("meanwhile", port=2), "registered")
    ap.start()
    until("it is back", lambda: [e["Reachable"] for e in curled(us, "/v1/global/service/shop?region=ap")] == [True])
    until("it has what came meanwhile", lambda: [e["Region"] for e in curled(world.agents["ap"], "/v1/global/service/meanwhile")] == ["us"])
    until("its own pointer is as it was", lambda: serving("ap") == "v2")
    us.coord("rollout", "stage", "-regions", "us,eu,ap", "shop", "v3")
    until("and goes on", lambda: serving("ap") == "v3")


run([registered_where_they_run, a_dashboard_shows_all, prepared_everywhere_then_flipped, another_region_answers_until_it_is_well, one_is_lost_and_returns])
