"""Quotas in owner mode: each key is counted by one agent of three, whatever ends, moves or is out of date meanwhile."""
import json, os, signal, socket, subprocess, threading, time, urllib.parse
from coordtest import COORD, SLOW, Cluster, check, run, together, until

MONTH = {"Window": "month"}
SERVICE = {"ID": "gw", "Name": "gw"}


def define(agent, name, **keys):
    """An owner whose lease is over counts no more: with a short LeaseTTL a disk that stands still is seen, too."""
    keys = dict({"Budget": 20, "Refill": MONTH, "Mode": "owner", "Service": "gw", "LeaseTTL": "1s"}, **keys)
    agent.put("/v1/quota/" + name, keys)


def take(agent, name, key=None, n=1):
    """(status, JSON or text, headers)"""
    target = "/v1/agent/quota/%s/take?n=%d" % (name, n)
    if key is not None:
        target += "&key=" + urllib.parse.quote(key, safe="")
    status, headers, body = agent.request("PUT", target, timeout=30 * SLOW)
    return status, json.loads(body) if status in (200, 429) else body.decode(), headers


def several(agent, takes):
    status, _, body = agent.request("PUT", "/v1/agent/quota/take", takes, timeout=30 * SLOW)
    return status, body.decode()


def left(agent, name, key):
    status, answer, headers = take(agent, name, key, 0)
    check(status == 200, answer)
    return int(headers["RateLimit"].split(";r=")[1].split(";")[0])


def state(agent, name):
    return agent.get("/v1/quota/" + name)[2]


def owner(agent, name, key):
    return agent.get("/v1/agent/quota/%s/owner?key=%s" % (name, key))[2]


def key_of(agent, name, node, but=()):
    return next(k for k in ("key%d" % i for i in range(1000)) if k not in but and owner(agent, name, k)["Owner"] == node)


def members(agent, name, nodes):
    s = state(agent, name)
    return s["Epoch"] == s["ActiveEpoch"] and sorted(s["ActiveMembers"]) == sorted(nodes)


def settled(agents, name, nodes):
    """All agree on the ring, and it is this one."""
    until("%s is counted by %s" % (name, nodes), lambda: members(agents[0], name, nodes), 20)
    epoch = state(agents[0], name)["Epoch"]
    until("all know", lambda: all(owner(a, name, "x")["ActiveEpoch"] >= epoch for a in agents), 10)


def metric(agent, name):
    lines = agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines()
    return sum(float(l.split()[1]) for l in lines if l.startswith(name))


def counted_once(agents):
    a1, a2, a3 = agents
    told = [owner(a, "user", "alice") for a in agents]
    check(len({t["Owner"] for t in told}) == 1, "one owner: %r" % told)
    check([t["Counts"] for t in told] == [t["Node"] == t["Owner"] for t in told], "and only it counts: %r" % told)
    admitted = 0
    for i in range(30):
        agent = agents[i % 3]
        status, answer, headers = take(agent, "user", "alice")
        check(status == (200 if i < 20 else 429), (i, status, answer))
        check(answer["Source"] == ("local" if agent.name == told[0]["Owner"] else "owner"), (agent.name, told[0], answer))
        check(headers["RateLimit-Policy"].startswith('"user";q=20;w=') and headers["RateLimit"].startswith('"user";r=%d;t=' % max(0, 19 - i)), headers)
        check(i < 20 or int(headers["Retry-After"]) > 0, headers)
        admitted += status == 200
    check(admitted == 20 and left(a1, "user", "bob") == 20, "each key has the budget")
    check(len({owner(a1, "user", "key%d" % i)["Owner"] for i in range(40)}) == 3, "all three own keys")
    seen = state(a1, "user")
    check({m["Node"] for m in seen["Members"] if m["Counts"]} == {"a1", "a2", "a3"}, seen)
    check(seen["WorstCaseOverAdmission"] == seen["Bound"]["HandOver"] == 20, seen)


def several_at_once(agents):
    a1 = agents[0]
    a1.put("/v1/quota/plain", {"Budget": 10, "Refill": MONTH, "MaxLeaseFraction": 1})
    keys = [key_of(a1, "user", node, ("alice",)) for node in ("a1", "a2", "a3")]
    takes = [{"Name": "user", "Key": k, "N": 4} for k in keys]
    status, body = several(a1, takes + [{"Name": "plain", "N": 6}])
    check(status == 200 and '"Source":"owner"' in body, (status, body))
    check([left(a1, "user", k) for k in keys] == [16] * 3, "all of them")
    status, body = several(a1, takes + [{"Name": "plain", "N": 6}])
    check(status == 429 and json.loads(body)["Refused"] == "plain", (status, body))
    until("what was taken comes back", lambda: [left(a1, "user", k) for k in keys] == [16] * 3)
    status, body = several(a1, [{"Name": "plain", "N": 1}, takes[0], {"Name": "user", "Key": "alice"}])
    check(status == 429 and json.loads(body)["Refused"] == "user", (status, body))
    until("likewise", lambda: left(a1, "user", keys[0]) == 16)
    check(several(a1, [{"Name": "plain", "N": 4}])[0] == 200, "nothing of it was spent")


def what_makes_no_sense(agents):
    a1, a2 = agents[:2]
    for agent in agents:
        status, text, _ = take(agent, "user")
        check(status == 400 and "key= is needed" in text and "\n" not in text.strip(), (status, text))
        status, text, _ = take(agent, "user", "k", 21)
        check(status == 400 and "more than" in text, (status, text))
        for size, expected in ((8192, 200), (8193, 400)):
            status, body = several(agent, [{"Name": "user", "Key": "x" * size, "N": 1}])
            check(status == expected and "\n" not in body.strip(), (size, status, body))
            check(agent.request("PUT", "/v1/agent/quota/user/take?n=0&key=" + "y" * size)[0] == expected, size)
        check(take(agent, "nowhere", "k")[0] == 404, "an unknown name")
        check(agent.request("GET", "/v1/agent/quota/nowhere/owner?key=k")[0] == 404, "nor an owner")
        status, _, body = agent.request("GET", "/v1/agent/quota/plain/owner?key=k")
        check(status == 400 and b"no owners" in body, (status, body))
    define(a1, "short")
    until("it is counted", lambda: take(a2, "short", "k")[0] == 200)
    a1.request("DELETE", "/v1/quota/short")
    until("deleted for all", lambda: all(take(a, "short", "k")[0] == 404 for a in agents))
    a1.put("/v1/quota/short", {"Budget": 5, "Refill": MONTH, "MaxLeaseFraction": 1})
    until("made again, with another mode", lambda: take(a2, "short", "k")[0] == 200)


def explained(agents):
    for agent in agents:
        env = dict(os.environ, CONSUL_HTTP_ADDR=agent.ip + ":8500")
        env.pop("COORD_HTTP_ADDR", None)
        r = subprocess.run([COORD, "explain", "quota", "user", "alice"], capture_output=True, text=True, timeout=60 * SLOW, env=env)
        node = owner(agent, "user", "alice")["Owner"]
        check(r.returncode == 0 and 'node "%s"' % node in r.stdout and 'instance of "gw"' in r.stdout, r.stdout + r.stderr)
        check(("this one asks" in r.stdout) == (agent.name != node), r.stdout)


def handed_over(agents):
    """An instance turns critical, and comes back: its keys go with what is left of them."""
    a1, a2, a3 = agents
    key = key_of(a1, "user", "a2", ("alice",))
    spent = 20 - left(a1, "user", key)
    check(take(a1, "user", key, 3)[0] == 200, "before")
    for enable, nodes in (("true", ["a1", "a3"]), ("false", ["a1", "a2", "a3"])):
        a2.put("/v1/agent/service/maintenance/gw?enable=" + enable)
        settled(agents, "user", nodes)
        check([left(a, "user", key) for a in agents] == [17 - spent] * 3, "it went along: %r" % [left(a, "user", key) for a in agents])
    check(not state(a1, "user")["Losses"], "in order: %r" % state(a1, "user")["Losses"])


def waiting(agent, count):
    """So many requests are in the agent's sockets, which it has not read."""
    own = "%s:%04X" % (socket.inet_aton(agent.ip)[::-1].hex().upper(), 8500)
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f][1:]
    return sum(1 for row in rows if row[1] == own and row[3] == "01" and int(row[4].split(":")[1], 16) > 0) >= count


def asked_again(agents, taker):
    """Who asks by an old ring, because it stood still meanwhile, is told so, and asks again."""
    a1, a2, a3 = agents
    key = key_of(a1, "user", "a3", ("alice",))
    check(left(taker, "user", key) > 0, "it knows the ring")
    for enable, nodes in [("true", ["a1", "a3"]), ("false", ["a1", "a2", "a3"])] * 10:
        os.kill(taker.proc.pid, signal.SIGSTOP)
        try:
            a2.put("/v1/agent/service/maintenance/gw?enable=" + enable)
            until("another ring", lambda: members(a1, "user", nodes), 20)
            results = []
            threads = [threading.Thread(target=lambda: results.append(take(taker, "user", key, 0)[0])) for _ in range(16)]
            [t.start() for t in threads]
            until("all have asked", lambda: waiting(taker, 16))  # when it goes on they are there, as the new ring is; either may be read first
        finally:
            os.kill(taker.proc.pid, signal.SIGCONT)
        [t.join() for t in threads]
        check(results == [200] * 16, results)
        if metric(taker, "coord_quota_takes_stale_total") and len(nodes) == 3:
            break
    check(metric(taker, "coord_quota_takes_stale_total"), "some were refused because of an old ring, and asked again")
    settled(agents, "user", ["a1", "a2", "a3"])


def owner_killed(agents):
    for turn in range(3):           # a machine that stands still makes it longer
        seconds = owner_killed_once(agents, "brief%d" % turn)
        if seconds < (1 + 1 + 1) * SLOW + 1:
            return
    raise AssertionError("TTL, a second, and the last take's own: %.1f s" % seconds)


def owner_killed_once(agents, name):
    a1, a2, a3 = agents
    define(a1, name)
    settled(agents, name, ["a1", "a2", "a3"])
    key = key_of(a1, name, "a3")
    until("before", lambda: take(a1, name, key, 6)[0] == 200)
    admitted = 6
    a3.kill()
    begun = time.monotonic()

    def again():
        status, answer, _ = take(a1, name, key)
        if status == 429:           # others' leases were over as well: what was admitted of its keys is not known any more
            check(len(state(a1, name)["Losses"]) > 1, (answer, state(a1, name)))
        else:
            check(status in (200, 503), (status, answer))
        return status if status != 503 else None
    status = until("the next owner counts it", again, 10)
    seconds = time.monotonic() - begun if status == 200 else float("inf")
    admitted += status == 200
    check(status == 429 or owner(a1, name, key)["Owner"] in ("a1", "a2") and "a3" in [l["Node"] for l in state(a1, name)["Losses"]], state(a1, name))
    until("who that is knows all", lambda: owner(a1, name, key)["Owner"] == owner(a2, name, key)["Owner"])

    def spent():
        nonlocal admitted
        status, answer, _ = take(agents[admitted % 2], name, key)
        admitted += status == 200
        check(status in (200, 429, 503) and admitted <= 20 + 20, "the budget and the published bound: %d, %r" % (admitted, answer))
        return status == 429
    until("it is spent", spent, every=0)
    a3.start(wait=False).wait_leader(30)
    settled(agents, name, ["a1", "a2", "a3"])

    def stays():
        answer = take(a3, name, key)
        check(answer[0] in (429, 503), "it stays spent: %r" % (answer,))
        return answer[0] == 429
    until("it stays spent", stays)
    until("it counts again", lambda: status == 429 or take(a1, name, key_of(a1, name, "a3", (key,)))[0] == 200)
    return seconds


def without_servers(agents, server):
    a1 = agents[0]
    for name, keys in (("closed", {}), ("open", {"OnLoss": "open", "LocalCap": 3}), ("last", {"OnLoss": "last", "LastFor": "30s", "MaxLeaseFraction": 0.1})):
        # In its first refill period an agent admits nothing by itself.
        define(a1, name, Refill=MONTH if name == "closed" else {"Tokens": 1, "Every": "2s" if name == "last" else "6s"}, **keys)
        until("counted", lambda: take(a1, name, "k")[0] == 200)
    check(state(a1, "open")["Bound"]["LocalCaps"] == 3 * 5 and state(a1, "last")["Bound"]["Last"] == 2 * 5 * 30, (state(a1, "open"), state(a1, "last")))
    server.kill()
    refused = until("closed: nothing", lambda: [t for t in [take(a1, "closed", "k")] if t[0] == 503], 10)[0]
    check("OnLoss" in refused[1] and int(refused[2]["Retry-After"]) >= 1, refused)
    until("open", lambda: [t for t in [take(a1, "open", "k")] if t[0] == 200 and t[1]["Source"] == "fallback"], 15)
    rest = [take(a1, "open", k)[0] for k in ("k", "k", "l")]
    check(rest == [200, 200, 429], "the cap is the budget's, not a key's: %r" % rest)
    until("last", lambda: [t for t in [take(a1, "last", "k")] if t[0] == 200 and t[1]["Source"] == "fallback"], 10)
    server.start(wait=False)
    for name in ("closed", "open", "last"):
        until(name + ": as before", lambda: [a for s, a, _ in [take(a1, name, "k")] if s in (200, 429) and a["Source"] in ("local", "owner")], 30)


def a_key_has_one_owner():
    cluster = Cluster(1).start()
    server = cluster.servers[0]
    agents = [cluster.agent(name).start(wait=False) for name in ("a1", "a2", "a3")]
    for agent in agents:
        agent.wait_leader(30)
        agent.put("/v1/agent/service/register", SERVICE)
    taker = cluster.agent("taker").start(wait=False).wait_leader(30)
    define(server, "user", LeaseTTL="20s")
    settled(agents + [server, taker], "user", ["a1", "a2", "a3"])
    counted_once(agents)
    several_at_once(agents)
    what_makes_no_sense(agents + [server, taker])
    explained(agents)
    handed_over(agents)
    asked_again(agents, taker)
    owner_killed(agents)
    without_servers(agents, server)


def a_hot_key_is_split_and_the_leader_dies():
    """Owners are servers here, and ask each other. Keys are judged each 10 s, so the leader dies meanwhile."""
    cluster = Cluster(3).start()
    leader = cluster.leader()
    owners = [s for s in cluster.servers if s is not leader]
    for server in owners:
        server.put("/v1/agent/service/register", SERVICE)
    define(leader, "hot", Budget=50001, Split=2, LeaseTTL="60s")
    settled(owners, "hot", [s.name for s in owners])
    admitted, i, unanswered = 0, 0, []

    def spend(n):
        nonlocal admitted, i
        i += 1

        def asked():                     # nobody counts it while its owners change and the machine stands still, which it does not do often
            status, answer, _ = take(owners[i % 2], "hot", "everybody", n)
            if status == 503:
                unanswered.append(answer)
                check(len(unanswered) <= 3, unanswered)
            check(status in (200, 429, 503), answer)
            return status if status != 503 else None
        status = until("somebody counts it", asked)
        admitted += n if status == 200 else 0
        return status

    def pump(split=False):
        for n in range(20):
            check(spend(1) == 200 or split, "it is not spent")
        check(take(owners[0], "hot", "key%d" % (i % 7))[0] == 200, "others are taken from, too")
    pump()
    leader.kill()
    pump()
    until("another leader", lambda: pump() or owners[0].get("/v1/status/leader")[2], 20, 0.1)

    def listed():
        pump(split=True)  # just then its parts have nothing for a moment, until their shares come
        return state(owners[0], "hot")["HotKeys"]
    hot = until("it is listed", listed, 25, 0.1)[0]
    check(hot["Key"] == "everybody" and hot["Rate"] >= 10, hot)
    split = until("and split", lambda: state(owners[0], "hot")["Splits"], 10, 0.1)[0]
    check(split["Key"] == "everybody" and sorted(split["Amounts"]) == [25000, 25001], split)

    def more():
        for n in (5000, 500, 50, 5, 1):
            while spend(n) == 200:
                check(admitted <= 50001, "the parts are not more than the budget: %d" % admitted)
        return admitted == 50001
    until("all of both parts is spent, the share of each has come", more, 10)
    check([spend(1) for _ in range(4)] == [429] * 4, "and nothing more")


def side_by_side():
    together(a_key_has_one_owner, a_hot_key_is_split_and_the_leader_dies)


run([side_by_side])
