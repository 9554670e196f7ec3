"""Quotas: gateways on servers and client agents spend one budget; what they admit is the budget and not more, whatever ends meanwhile."""
import json, os, signal, subprocess, time, urllib.parse
from coordtest import COORD, SLOW, STANDSTILL, Agent, Cluster, check, run, together, until
from waiters import documented, run_documented

NEVER = {"Window": "month"}


def define(agent, name, expect=200, **keys):
    keys.setdefault("Refill", NEVER)
    return agent.put("/v1/quota/" + name, keys, expect)


def take(agent, name, n=1, key=None, timeout=30):
    """(status, JSON or text, headers)"""
    target = "/v1/agent/quota/%s/take?n=%d" % (name, n)
    if key is not None:
        target += "&key=" + urllib.parse.quote(key, safe="")
    status, headers, body = agent.request("PUT", target, timeout=timeout * SLOW)
    return status, json.loads(body) if status in (200, 429) else body.decode(), headers


def state(agent, name):
    return agent.get("/v1/quota/" + name)[2]


def adds_up(agent, name):
    """Each row of the trail changes the sums before it by its amount; the last has those of the budget."""
    rows = agent.get("/v1/quota/%s/audit" % name)[2]
    check([r["Number"] for r in rows] == list(range(1, len(rows) + 1)), "no gaps: %r" % rows)
    spent = held = stranded = 0
    for r in rows:
        kind, amount = r["Kind"], r["Amount"]
        if kind == "granted":
            held += amount
        elif kind == "settled":
            spent, held = spent + amount, held - amount - r["Back"]
        elif kind == "reclaimed":
            stranded, held = stranded + amount, held - amount
        elif kind == "taken":
            spent += amount
        elif kind == "refilled":
            spent, stranded = r["Spent"], r["Stranded"]
        check((r["Spent"], r["Stranded"], r["Leased"] + r["Slack"]) == (spent, stranded, held), "%r: %r" % (r, (spent, stranded, held)))
        check(spent + stranded + r["Leased"] <= r["Capacity"] or r["Slack"], r)
    return rows


def spend_all(agents, name, budget, bound=0):
    """Takes 1 after the other until as much as the budget is admitted, and all agents refuse."""
    admitted, unanswered = [0], []

    def more():
        allowed, refused = 0, 0
        for agent in agents:
            status, answer, _ = take(agent, name)
            if status == 503:            # its lease is over, and no server has answered in time: the machine stood still, and does not do so often
                unanswered.append(answer)
                check(len(unanswered) <= len(agents), unanswered)
            check(status in (200, 429, 503), answer)
            allowed, refused = allowed + (status == 200), refused + (status == 429)
        admitted[0] += allowed
        # An agent that had no CPU for a TTL lost its lease, and nothing of that comes back in this window.
        return refused == len(agents) and admitted[0] >= budget - state(agents[0], name)["Stranded"]
    try:
        until("%s is spent" % name, more, 20)
    except AssertionError as e:
        raise AssertionError("%s: admitted %d, %r" % (e, admitted[0], state(agents[0], name)))
    check(admitted[0] <= budget + bound, "admitted %d of %d" % (admitted[0], budget))


def one_budget_for_all():
    cluster = Cluster(3).start()
    a1, a2 = [cluster.agent(name).start(wait=False) for name in ("a1", "a2")]
    for agent in (a1, a2):
        agent.wait_leader(30)
    server = cluster.servers[0]
    define(a1, "calls", Budget=60, MaxLeaseFraction=0.2, LeaseTTL="1s")
    check(take(server, "calls", 0)[0] == 200 and state(a2, "calls")["Spent"] == 0, "a look spends nothing")
    spend_all((a1, a2, server), "calls", 60)
    for agent in (a1, a2, server):
        status, answer, headers = take(agent, "calls")
        check(status == 429 and answer["Allowed"] is False, answer)
        check(headers["RateLimit-Policy"].startswith('"calls";q=60;w='), headers["RateLimit-Policy"])
        check(headers["RateLimit"].startswith('"calls";r=0;t=') and int(headers["Retry-After"]) >= 1, headers)
    until("all is settled", lambda: state(a1, "calls")["Spent"] + state(a1, "calls")["Stranded"] == 60 and state(a1, "calls")["Leased"] == 0)
    adds_up(a1, "calls")

    define(a1, "loose", Budget=200, Mode="bounded", Drift=0.05, LeaseTTL="1s")
    check(state(a1, "loose")["WorstCaseOverAdmission"] == 10, state(a1, "loose"))
    spend_all((a1, a2, server), "loose", 200, bound=10)
    until("all is reported", lambda: state(a1, "loose")["Slack"] == 0)
    adds_up(a1, "loose")

    # refill
    define(a1, "burst", Budget=10, Refill={"Tokens": 10, "Every": "1s"}, MaxLeaseFraction=1)
    begun = time.monotonic()
    check(take(a1, "burst", 10)[0] == 200, "the first")
    status, answer, headers = take(a1, "burst", 10)
    while status == 200 and time.monotonic() - begun >= 1:  # the machine stood still meanwhile
        begun = time.monotonic()
        until("it is refilled", lambda: take(a1, "burst", 10)[0] == 200, 6)
        status, answer, headers = take(a1, "burst", 10)
    check(status == 429 and 1 <= int(headers["Retry-After"]) <= 2, (status, answer, headers))
    until("it is refilled", lambda: take(a1, "burst", 10)[0] == 200, 6)

    # what comes for a client that was refused and stays away is not kept from those at another agent
    define(a1, "single", Budget=1, Refill={"Tokens": 1, "Every": "1s"}, LeaseTTL="5m")
    until("from a1", lambda: take(a1, "single")[0] == 200)
    until("and refused there", lambda: take(a1, "single")[0] == 429)
    for n in range(3):
        until("from a2, %d" % n, lambda: take(a2, "single")[0] == 200, 30)

    # an agent that is stopped gives back, one that is killed does not
    define(a1, "held", Budget=100, Refill={"Tokens": 100, "Every": "3s"}, MaxLeaseFraction=0.5, LeaseTTL="1s")
    for _ in range(3):
        until("from a2", lambda: take(a2, "held", 20)[0] == 200)
        code, _ = a2.stop()
        check(code == 0, "it stops")
        after = state(a1, "held")
        a2.start(wait=False).wait_leader(30)
        if after["Leased"] == 0 and after["Stranded"] == 0:
            break
        print("     its lease was over before it stopped? once more: %r" % after, flush=True)
    check(after["Leased"] == 0 and after["Stranded"] == 0, "what it held came back: %r" % after)
    reclaimed = lambda: sum(r["Amount"] for r in adds_up(a1, "held") if r["Kind"] == "reclaimed")
    before = reclaimed()
    until("taken again, and it holds a lease", lambda: take(a2, "held", 20)[0] == 200 and state(a1, "held")["Leases"])
    a2.kill()
    until("its lease is stranded", lambda: reclaimed() - before >= 20, 15)      # until the next refill, which may come at once
    until("and comes back with a refill", lambda: state(a1, "held")["Available"] == 100 and state(a1, "held")["Stranded"] == 0, 15)
    adds_up(a1, "held")

    # deleted under its leases
    until("a take before", lambda: take(a1, "held", 5)[0] == 200)
    check(json.loads(server.request("DELETE", "/v1/quota/held")[2]) is True, "deleted")
    until("nobody may spend of it", lambda: take(a1, "held")[0] == 404)
    define(a1, "held", Budget=7, MaxLeaseFraction=1)
    until("made again it is another one", lambda: take(a1, "held", 7)[0] == 200)
    check(take(a1, "held")[0] == 429, "and spent")

    # the leader dies
    leader = cluster.leader()
    define(a1, "long", Budget=1000, MaxLeaseFraction=0.1)
    until("a take before", lambda: take(a1, "long", 3)[0] == 200)
    leader.kill()
    until("takes go on", lambda: take(a1, "long", 60)[0] == 200, 20)
    leader.start(wait=False)
    adds_up(a1, "long")


def what_makes_no_sense():
    agent = Agent(dev=True).start()
    status, text, _ = take(agent, "nowhere")
    check(status == 404 and "nowhere" in text, (status, text))
    check(agent.request("GET", "/v1/quota/nowhere")[0] == 404 and agent.request("DELETE", "/v1/quota/nowhere")[0] == 404, "nor elsewhere")
    define(agent, "q", Budget=100, MaxLeaseFraction=1)
    for n, words in ((10 ** 18, "n: "), (101, "quota"), (2 ** 64, "n: ")):
        status, text, _ = take(agent, "q", n)
        check(status == 400 and words in text and "\n" not in text, (n, status, text))
    check(state(agent, "q")["Spent"] == 0 and take(agent, "q", 100)[0] == 200, "nothing was half done")
    define(agent, "k", Budget=100, MaxLeaseFraction=1)
    key = "\xff\x01/&?%" * 1400
    key = key.encode("latin-1")[:8192].decode("latin-1")
    quoted = urllib.parse.quote(key.encode("latin-1"), safe="")
    status, _, body = agent.request("PUT", "/v1/agent/quota/k/take?key=" + quoted)
    check(status == 200 and len(quoted) > 20000, (status, body))
    status, _, body = agent.request("PUT", "/v1/agent/quota/k/take?key=" + "x" * 8193)
    check(status == 400 and b"key" in body, (status, body))
    for size, expected in ((8192, 200), (8193, 400)):
        status, _, body = agent.request("PUT", "/v1/agent/quota/take", [{"Name": "k", "Key": "x" * size, "N": 2}])
        check(status == expected, (size, status, body))
    lease = json.loads(agent.put("/v1/quota/k/lease?ttl=1m&want=10"))
    check(lease["Granted"] == 10 and 0 < lease["NotBefore"] <= 10000, lease)
    settle = "/v1/quota/k/settle?lease=%d&token=%d&spent=" % (lease["Lease"], lease["Token"])
    check(agent.request("PUT", settle + "11")[0] == 400, "more than it holds")
    agent.put(settle + "4")
    check(agent.request("PUT", settle + "4")[0] == 404, "settled already")
    check(sum(r["Amount"] for r in adds_up(agent, "k") if r["Kind"] == "settled" and r["Lease"] == lease["Lease"]) == 4, "it counted once")
    define(agent, "window", Budget=10 ** 15, Refill={"Window": "minute", "Offset": "+05:45"}, MaxLeaseFraction=1)
    _, _, headers = take(agent, "window")
    check('"window";q=999999999999999;w=60' == headers["RateLimit-Policy"], headers["RateLimit-Policy"])
    check(0 < int(headers["RateLimit"].split(";t=")[1]) <= 60, headers["RateLimit"])


def who_obeys_is_served():
    """A client that sleeps for exactly Retry-After is served then; and who waits for more is served when it comes."""
    agent = Agent(dev=True).start()
    define(agent, "second", Budget=2, Refill={"Tokens": 2, "Every": "1s"}, MaxLeaseFraction=1)
    served, again, row, end = 0, 0, 0, time.monotonic() + 5
    while time.monotonic() < end:
        status, answer, headers = take(agent, "second")
        row = 0 if status == 200 else row + 1
        served, again = served + (status == 200), again + (row > 1)
        if row:
            check(status == 429 and int(headers["Retry-After"]) == 1, (status, headers))
            time.sleep(1)
    # It stood still for a second? Then a take waited in vain, once.
    check(again <= 1 and served >= (10 if SLOW == 1 else 4), "%d served, %d refused again" % (served, again))

    # so much takes so many refills
    define(agent, "five", Budget=5, Refill={"Tokens": 1, "Every": "10s"})
    until("spent", lambda: take(agent, "five", 5)[0] == 200)
    status, answer, headers = take(agent, "five", 5)
    check(status == 429 and 40 < int(headers["Retry-After"]) <= 50, (status, headers))

    window = {"Window": "month"}
    lost = 0
    for n, (mode, loss) in enumerate((mode, loss) for mode in ("lease", "bounded") for loss in ("closed", "open")):
        define(agent, "small%d" % n, Budget=5, Refill=window, Mode=mode, OnLoss=loss, LocalCap=1)
        status, answer, _ = take(agent, "small%d" % n)       # the first one: before anything is held
        lost += status == 503                                # the machine stood still? Not twice
        check(lost <= 1 and (status == 503 or answer["Source"] == "renewed"), (mode, loss, status, answer))
    for mode in ("lease", "bounded"):
        define(agent, mode, Budget=5, Refill=window, Mode=mode, LeaseTTL="1m")
        until("spent", lambda: take(agent, mode)[0] == 429)
        status, answer, headers = take(agent, mode)
        check(status == 429 and int(headers["Retry-After"]) > 60 and ";t=" + headers["Retry-After"] in headers["RateLimit"], headers)
        define(agent, mode, Budget=25, Refill=window, Mode=mode, LeaseTTL="1m")
        begun = time.monotonic()
        until("raised", lambda: take(agent, mode)[0] == 200)
        check(time.monotonic() - begun < 1.1 * SLOW + STANDSTILL, "at once: %.1f s" % (time.monotonic() - begun))

    # somebody gives back
    lease = json.loads(agent.put("/v1/quota/lease/lease?ttl=5m&want=1000"))
    until("the rest is spent", lambda: take(agent, "lease")[0] == 429)
    agent.put("/v1/quota/lease/settle?lease=%d&token=%d&spent=0" % (lease["Lease"], lease["Token"]))
    begun = time.monotonic()
    until("given back", lambda: take(agent, "lease")[0] == 200)
    check(lease["Granted"] > 0 and time.monotonic() - begun < 1.1 * SLOW + STANDSTILL, "at once: %r" % lease)


def without_servers():
    cluster = Cluster(3).start()
    agent = cluster.agent("a1").start(wait=False).wait_leader(30)
    define(agent, "closed", Budget=1000, MaxLeaseFraction=0.01, LeaseTTL="2s")
    slow = {"Tokens": 1, "Every": "8s"}  # in its first period an agent admits nothing by itself
    define(agent, "open", Budget=1000, Refill=slow, MaxLeaseFraction=0.01, LeaseTTL="2s", OnLoss="open", LocalCap=5)
    define(agent, "last", Budget=1000, Refill=slow, MaxLeaseFraction=0.01, LeaseTTL="2s", OnLoss="last", LastFor="60s")
    bound = state(agent, "open")
    check(bound["WorstCaseOverAdmission"] == bound["Bound"]["LocalCaps"] == 5 * 4, bound)
    for name in ("closed", "open", "last"):
        check(take(agent, name)[0] == 200, name)
    for server in cluster.servers:
        server.kill()
    refused = until("closed: nothing", lambda: take(agent, "closed") if take(agent, "closed")[0] == 503 else None, 15)
    check("closed" in refused[1] and int(refused[2]["Retry-After"]) >= 1, refused)

    def fallback(name):
        status, answer, _ = take(agent, name)
        return status == 200 and answer["Source"] == "fallback"
    admitted = 0
    until("open: by the cap", lambda: fallback("open"), 15)
    admitted += 1
    while take(agent, "open")[0] == 200:
        admitted += 1
        check(admitted <= 5, "not more than the cap")
    check(admitted == 5 and take(agent, "open")[0] == 429, "the whole cap: %d" % admitted)
    until("last: what it was granted last", lambda: fallback("last"), 15)
    check(take(agent, "never-heard-of")[0] == 503, "nobody can say whether there is such a budget")
    for server in cluster.servers:
        server.start(wait=False)
    for name in ("closed", "open", "last"):
        until(name + ": as before", lambda: [a for s, a, _ in [take(agent, name)] if s == 200 and a["Source"] in ("local", "renewed")], 40)
    adds_up(agent, "closed")


def coord(agent, *words, code=0, stdin=None):
    env = dict(os.environ, CONSUL_HTTP_ADDR=agent.ip + ":8500")
    env.pop("COORD_HTTP_ADDR", None)
    r = subprocess.run([COORD, *words], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60 * SLOW, env=env)
    check(r.returncode == code, "coord %s: exit %d, wanted %d: %s%s" % (" ".join(words), r.returncode, code, r.stdout, r.stderr))
    return r.stdout + r.stderr


def as_commands_and_as_documented():
    agent = Agent(dev=True).start()
    coord(agent, "quota", "put", "calls", "-budget=5", "-tokens", "1", "-every=744h", "-max-lease-fraction=1")
    coord(agent, "quota", "put", "json", '{"Budget":9,"Refill":{"Window":"day"}}')
    coord(agent, "quota", "put", "-cas=0", "piped", "-", stdin='{"Budget":9,"Refill":{"Window":"hour"},"OnLoss":"open","LocalCap":3}')
    check("budget" in coord(agent, "quota", "put", "calls", "-budget=-5", "-window=day", code=2), "refused here")
    check("Refill" in coord(agent, "quota", "put", "calls", "-budget=5", code=2), "refused there")
    check("do not go together" in coord(agent, "quota", "put", "calls", "{}", "-budget=5", code=2), "refused here")
    listed = coord(agent, "quota", "list").splitlines()
    check(len(listed) == 4 and listed[0].split()[:3] == ["Name", "Mode", "Budget"], listed)
    check("allowed" in coord(agent, "quota", "take", "calls", "-n=3"), "3 of 5")
    check("allowed" in coord(agent, "quota", "take", "-n", "2", "calls"), "5 of 5")
    check("refused" in coord(agent, "quota", "take", "calls", code=1), "spent")
    check("no such budget" in coord(agent, "quota", "take", "nowhere", code=2), "no such budget")
    check("1000000" in coord(agent, "quota", "take", "calls", "-n=99999999999999999", code=2), "a mistake")
    check("no answer" in coord(agent, "quota", "take", "-http-addr=%s:1" % agent.ip, "calls", code=3), "no agent can say")
    for words in (("quota", "get", "nowhere"), ("quota", "delete", "nowhere"), ("quota", "audit", "nowhere"), ("rollout", "show", "nowhere", "v1")):
        coord(agent, *words, code=2)
    for words in (("quota", "list"), ("locks",), ("members",), ("kv", "get", "x"), ("kv", "put", "x", "y"), ("kv", "delete", "x"), ("txn", "-"), ("rollout", "list")):
        coord(agent, words[0], *([words[1]] if len(words) > 1 and words[1] != "-" else []), "-http-addr=%s:1" % agent.ip, *words[2:], *(["-"] if words[-1] == "-" else []),
              code=3, stdin="[]")
    check("Exit codes" in coord(agent, "help"), "help tells them")
    coord(agent, "kv", "put", "-cas", "-modify-index=7", "x", "y", code=1)
    coord(agent, "quota", "put", "-cas=7", "calls", "-budget=5", "-window=day", code=1)
    check("Spent" in coord(agent, "quota", "get", "calls"), "as a table")

    told = coord(agent, "explain", "quota", "calls")
    for words in ('"calls"', "at most 5 are unspent", "would refuse", "Never more than the budget"):
        check(words in told, "%r is missing in: %s" % (words, told))
    told = coord(agent, "explain", "quota", "piped", "some key")
    for words in ("9 in each hour", "Nobody holds a lease", "3  what agents admit while no server answers", "could take of it now"):
        check(words in told, "%r is missing in: %s" % (words, told))
    check("not known" in coord(agent, "explain", "quota", "nowhere", code=2), "no such budget")

    env = dict(os.environ, CONSUL_HTTP_ADDR=agent.ip + ":8500")
    watching = subprocess.Popen([COORD, "quota", "watch", "json"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    check("defined" in watching.stdout.readline(), "what was")
    check(take(agent, "json")[0] == 200, "a take")
    check("granted" in watching.stdout.readline(), "and what comes")
    coord(agent, "quota", "delete", "json")
    rest = watching.communicate(timeout=30 * SLOW)[0]
    check(watching.returncode == 2 and "not known" in rest, rest)
    run_documented(agent, documented("A first budget", "quotas.md"))

    # ... and the one of keys, of which nobody has an owner where no gateway is registered
    define(agent, "lonely", Budget=5, Mode="owner", Service="gateway")
    status, text, _ = take(agent, "lonely", key="alice")
    check(status == 503 and "no node has a passing instance of its Service" in text, (status, text))
    told = run_documented(agent, documented("Budgets for each key", "quotas.md"))
    check('"Owner":"%s"' % agent.name in told and '"Remaining":99' in told, told)
    until("the other one has an owner by now, too", lambda: take(agent, "lonely", key="alice")[0] == 200)


def side_by_side():
    together(one_budget_for_all, without_servers, who_obeys_is_served)


run([side_by_side, what_makes_no_sense, as_commands_and_as_documented])
