"""Keys that are copied from another region, versions of rollouts that go to several regions, and names that belong to one."""
import json, os, signal
from coordtest import SLOW, Agent, check, run, until
from waiters import ends_soon


class World:
    """Region eu copies from region us. eu has a client agent. Region ap is known, and gone since then."""

    def __init__(self):
        self.us = Agent("-datacenter=us", name="us1").start()
        self.eu = Agent("-datacenter=eu", "-retry-join-wan=" + self.us.ip, name="eu1").start()
        self.ap = Agent("-datacenter=ap", "-retry-join-wan=" + self.us.ip, name="ap1").start()
        self.uc = Agent("-datacenter=eu", "-retry-join=" + self.eu.ip, server=False, name="uc").start()
        for agent in (self.us, self.eu, self.uc):
            until("all regions are known", lambda: len([r for r in agent.get("/v1/global/regions")[2] if r["Reachable"]]) == 3)
        self.ap.kill()


world = None


def value(agent, key):
    status, _, body = agent.request("GET", "/v1/kv/%s?raw" % key)
    return body.decode() if status == 200 else None


def rule(agent, prefix):
    return next(r for r in agent.get("/v1/region/keys")[2] if r["Prefix"] == prefix)


def equal(agent=None):
    """The copied keys here are those there."""
    def now(at):
        status, _, found = at.get("/v1/kv/app/?recurse")
        return [(e["Key"], e["Value"], e["Flags"]) for e in found] if status == 200 else []
    until("the copy equals its source", lambda: now(world.us) == now(agent or world.eu))


def keys_come_from_their_source():
    global world
    world = World()
    us, eu = world.us, world.eu
    for i in range(400):
        us.put("/v1/kv/app/%d?flags=%d" % (i, i), "v%d" % i)
    us.put("/v1/kv/other", "not copied")
    eu.put("/v1/kv/app/mine", "here before")
    line = eu.coord("region", "keys", "add", "app/", "us", code=1)
    check("there are keys below this prefix here" in line, line)
    eu.coord("region", "keys", "add", "-replace", "app/", "us")
    equal()
    check(value(eu, "app/mine") is None and value(eu, "other") is None, "what the source has, below the prefix")
    state = until("it is whole, and new", lambda: (lambda r: r if r["Whole"] and r["Reachable"] and r["Lag"] is not None and r["Lag"] < 5000 * SLOW else None)(rule(eu, "app/")))
    check(state["Keys"] == 400 and state["Source"] == "us", "%r" % state)
    check("app/" in world.uc.coord("region", "keys", "list"), "a client agent lists it")


def nobody_else_writes_them():
    eu = world.eu
    line = 'keys below "app/" are copied from region us: write them there, or with ?dc=us'
    session = json.loads(eu.request("PUT", "/v1/session/create", b"{}")[2])["ID"]
    for method, path in (("PUT", "/v1/kv/app/1"), ("DELETE", "/v1/kv/app/1"), ("DELETE", "/v1/kv/ap?recurse"), ("PUT", "/v1/kv/app/new?cas=0"),
                         ("PUT", "/v1/kv/app/1?acquire=" + session)):
        for agent in (eu, world.uc):
            status, _, body = agent.request(method, path, b"x" if method == "PUT" else None)
            check(status == 403 and line in body.decode(), "%s %s: %d %r" % (method, path, status, body))
    ops = b'[{"KV":{"Verb":"set","Key":"free","Value":"eA=="}},{"KV":{"Verb":"set","Key":"app/1","Value":"eA=="}}]'
    status, _, body = eu.request("PUT", "/v1/txn", ops)
    check(status == 409 and "are copied from region us" in body.decode() and value(eu, "free") is None, "%d %r" % (status, body))
    check(eu.put("/v1/kv/app/1?dc=us", "with dc") == b"true", "there it is written")
    until("it comes back", lambda: value(eu, "app/1") == "with dc")
    for bad, says, code in ((("app/x", "us"), "already", 1), (("mine/", "eu"), "another region", 2), (("mine/", "mars"), "another region", 2)):
        check(says in eu.coord("region", "keys", "add", *bad, code=code), "%r" % (bad,))


def waits_end_by_changes():
    us, eu = world.us, world.eu
    _, headers, _ = eu.get("/v1/kv/app/?recurse")
    index = int(headers["X-Consul-Index"])
    us.request("DELETE", "/v1/kv/app/2")
    status, headers, found = eu.get("/v1/kv/app/?recurse&index=%d&wait=20s" % index, timeout=30)
    check(int(headers["X-Consul-Index"]) > index and "app/2" not in [e["Key"] for e in found], "woken by a change that came")


def current(agent):
    status, _, state = agent.get("/v1/rollout/web/status")
    return (state["Current"], (state.get("Stage") or {}).get("Version")) if status == 200 else None


def versions_go_everywhere_first():
    us, eu = world.us, world.eu
    eu.coord("rollout", "create", "web", "v1", '{"Color":"blue"}')
    eu.put("/v1/rollout/web/schema", '{"type":"object","required":["Color"]}')
    eu.coord("rollout", "put", "web", "v2", '{"Color":"green"}')
    text = eu.coord("rollout", "stage", "-regions", "eu,us", "-step", "1:1h", "web", "v2")
    check(text.splitlines() == ["eu: v2 is staged", "us: v2 is staged"], text)
    check(current(eu) == current(us) == ("v1", "v2"), "%r %r" % (current(eu), current(us)))
    check(b"required" in us.request("GET", "/v1/rollout/web/schema")[2], "the schema goes along")
    text = eu.coord("rollout", "stage", "-regions", "eu,us", "-step", "1:1h", "web", "v2")
    check(text.count("was staged already") == 2, text)
    text = world.uc.coord("rollout", "stage", "-regions", "us,eu", "web", "v2")
    check(text.splitlines() == ["us: v2 is for everybody", "eu: v2 is for everybody"], text)
    check(current(eu) == current(us) == ("v2", None), "%r %r" % (current(eu), current(us)))
    eu.coord("rollout", "put", "web", "v3", '{"Color":"red"}')
    text = eu.coord("rollout", "stage", "-regions", "eu,mars", "web", "v3", code=1)
    check("nothing is staged: mars: " in text and text.count("\n") == 1 and current(eu) == ("v2", None), text)


def names_of_a_region_are_its_own():
    us, eu = world.us, world.eu
    line = '%s "db@us" belongs to region us: ask there, or with ?dc=us'
    budget = '{"Budget":10,"Refill":{"Tokens":10,"Every":"1h"},"LeaseTTL":"1m"}'
    for noun, path, body in (("lock", "/v1/lock/db@us/acquire?ttl=10s", ""), ("election", "/v1/election/db@us/campaign?ttl=10s", ""),
                             ("barrier", "/v1/barrier/db@us/enter?parties=2&ttl=10s", ""), ("phaser", "/v1/phaser/db@us/register?ttl=10s", ""),
                             ("hazard", "/v1/hazard/db@us/protect?ttl=10s", ""), ("budget", "/v1/quota/db@us", budget),
                             ("budget", "/v1/agent/quota/db@us/take", "")):
        for agent in (eu, world.uc):
            status, _, answer = agent.request("PUT", path, body)
            says = ('budget "db@us" belongs to region us: take of it at an agent there, or lease a part of it with ?dc=us'
                    if "agent" in path else line % noun)
            check(status == 403 and answer.decode() == says, "%s: %d %r" % (path, status, answer))
    for agent, path in ((us, "/v1/lock/db@us/acquire?ttl=10s"), (eu, "/v1/lock/x@us/acquire?ttl=10s&dc=us"), (eu, "/v1/lock/db@mars/acquire?ttl=10s"), (eu, "/v1/lock/db@eu/acquire?ttl=10s")):
        check(agent.request("PUT", path)[0] == 200, path)
    for agent in (eu, world.uc):
        agent.coord("lock", "-datacenter=us", "job@us", "--", "true")
        agent.coord("elect", "-datacenter=us", "job@us", "--", "true")
    check(not any(s["Name"].startswith("coord ") for s in us.get("/v1/session/list")[2]), "their sessions end with them")


def while_cut():
    eu = world.eu
    before = rule(eu, "app/")["Position"]
    until("it lags", lambda: (lambda r: not r["Reachable"] and r["Lag"] >= 1500)(rule(eu, "app/")))
    check(value(eu, "app/1") == "with dc" and rule(eu, "app/")["Position"] >= before, "the keys stay")
    lag = next(l for l in eu.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines() if l.startswith("coord_region_keys_lag_seconds "))
    check(int(lag.split()[1]) >= 1, lag)


def a_cut_keeps_them():
    world.us.proc.send_signal(signal.SIGSTOP)
    try:
        while_cut()
    finally:
        world.us.proc.send_signal(signal.SIGCONT)
    world.us.put("/v1/kv/app/3", "after the cut")
    equal()
    text = world.eu.coord("rollout", "stage", "-regions", "eu,ap,us", "web", "v3", code=3)
    check("nothing is staged: ap: " in text and text.count("\n") == 1, text)
    check(current(world.eu) == current(world.us) == ("v2", None), "each region keeps its last pointer")


def a_restart_goes_on():
    world.uc.stop()
    world.eu.stop()
    world.us.put("/v1/kv/app/4", "while away")
    world.eu.start()
    equal()
    check(rule(world.eu, "app/")["Keys"] == 399, "%r" % rule(world.eu, "app/"))


def a_target_that_is_set_back_catches_up():
    backup = os.path.join(world.eu.dir, "eu.snap")
    world.eu.coord("snapshot", "save", backup)
    world.us.put("/v1/kv/app/5", "since then")
    equal()
    world.eu.coord("snapshot", "restore", backup)
    equal()
    check(value(world.eu, "app/5") == "since then", "what came after the backup")


def a_rule_that_goes_leaves_them():
    eu = world.eu
    eu.coord("region", "keys", "remove", "app/")
    check(eu.put("/v1/kv/app/1", "ours") == b"true" and value(eu, "app/4") == "while away", "they are this region's")
    check(value(world.us, "app/1") == "with dc", "and only here")
    check(eu.coord("region", "keys", "remove", "app/", code=2).count("\n") == 1, "one line")


def the_end_is_quick():
    for agent in (world.eu, world.us):
        ends_soon(agent, 4 * SLOW)


run([keys_come_from_their_source, nobody_else_writes_them, waits_end_by_changes, versions_go_everywhere_first, names_of_a_region_are_its_own, a_cut_keeps_them, a_restart_goes_on, a_target_that_is_set_back_catches_up, a_rule_that_goes_leaves_them, the_end_is_quick])
