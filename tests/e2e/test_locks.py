"""Fenced locks over HTTP, asked of a leader, a follower and a client agent: first come, first served, by session or by token alone."""
import http.client, json, time
from coordtest import Agent, SLOW, check, run, settings, until
from waiters import Waiter, documented, run_documented, ask, now, passed_ms, session, short, want, woken, world

NOBODY = "00000000-0000-4000-8000-000000000000"


def acquire(agent, name, how, body=None):
    return want(agent, "PUT", "/v1/lock/%s/acquire?%s" % (name, how), body)


def waiter(agent, name, how, wait="30s"):
    return Waiter(agent, "/v1/lock/%s/acquire?%s&wait=%s" % (name, how, wait))


def lock(agent, name):
    return want(agent, "GET", "/v1/lock/" + name)


def queued(agent, name, count):
    until("%d wait" % count, lambda: len(lock(agent, name)["Queue"]) == count)


def leaders(cluster):
    """Who leads, and in which term each server knows it."""
    return [agent.get("/v1/agent/self")[2]["Stats"]["raft"]["term"] for agent in cluster.servers]


def a_token_is_enough():
    cluster, agents = world()
    last = 0
    for agent in agents:
        got = acquire(agent, "billing/ledger", "ttl=60s", "on %s" % agent.name)
        check(got["Held"] and got["Name"] == "billing/ledger" and got["Mode"] == "exclusive" and got["FencingToken"] > last, got)
        check(0 < got["NotBefore"] <= 60000 and got["NotAfter"] >= 62000, got)
        last = token = got["FencingToken"]
        for other in agents:
            again = acquire(other, "billing/ledger", "token=%d" % token)
            check(again["Held"] and again["FencingToken"] == token and again["Session"] == got["Session"], again)
            check(acquire(other, "billing/ledger", "session=" + got["Session"])["FencingToken"] == token, "the same again")
            refused = acquire(other, "billing/ledger", "ttl=10s")
            check(not refused["Held"] and refused["Session"] == "" and refused["Position"] == 0, refused)
            asked = now()
            renewed = ask(other, "PUT", "/v1/lock/billing/ledger/renew?token=%d" % token)[1]
            check(renewed["FencingToken"] == token and renewed["TTL"] == "1m0s" and 59000 - passed_ms(asked) < renewed["NotBefore"] <= 60000, renewed)
            seen = lock(other, "billing/ledger")
            check(seen["FencingToken"] == token and [(h["Session"], h["Note"]) for h in seen["Holders"]] == [(got["Session"], "on " + agent.name)], seen)
        asked = now()
        longer = ask(agents[0], "PUT", "/v1/lock/billing/ledger/renew?token=%d&ttl=100s" % token)[1]
        check(longer["TTL"] == "1m40s" and 90000 - passed_ms(asked) < longer["NotBefore"] <= 100000, longer)
        check(ask(agent, "PUT", "/v1/lock/billing/ledger/release?token=%d" % token) == (200, True), "released")
        check(ask(agent, "PUT", "/v1/lock/billing/ledger/release?token=%d" % token)[0] == 409, "not twice")
        check(ask(agent, "PUT", "/v1/lock/billing/ledger/renew?token=%d" % token)[0] == 404, "it is not held any more")
        check(ask(agent, "PUT", "/v1/lock/billing/ledger/acquire?token=%d" % token)[0] == 404, "nor is it taken by an old token")
        check(lock(agent, "billing/ledger")["Holders"] == [] and ask(agent, "GET", "/v1/locks")[1] == [], "free")
    check(ask(agents[0], "GET", "/v1/session/list")[1] == [], "sessions that were made for it are gone with it")


def sessions_that_only_their_ttl_ends_say_for_how_long():
    cluster, agents = world()
    for agent in agents:
        for keys, told in (({"TTL": "30s", "Checks": []}, True), ({"TTL": "30s"}, False), ({"Checks": []}, False),
                           ({"TTL": "30s", "NodeChecks": [], "ServiceChecks": []}, True)):
            status, made, body = agent.request("PUT", "/v1/session/create", keys)
            check(status == 200, body)
            status, renewed, body = agent.request("PUT", "/v1/session/renew/" + json.loads(body)["ID"])
            check(status == 200 and "X-Consul-Index" in renewed, body)
            for headers in (made, renewed):
                bounds = [headers[name] and int(headers[name]) for name in ("X-Coord-Not-Before", "X-Coord-Not-After")]
                check(20000 < bounds[0] <= 30000 and bounds[1] == 62000 if told else bounds == [None, None], "%r at %s: %r" % (keys, agent.name, bounds))


def they_take_turns():
    cluster, agents = world()
    holder = acquire(agents[0], "turn", "ttl=600s")
    waiters = []
    ttl = 3                             # seconds: also a server that stands still for some renews it in time
    for i in range(6):
        waiters.append(waiter(agents[i % 3], "turn", "ttl=%ds" % ttl, "60s"))   # longer than its TTL: the server renews it meanwhile
        queued(agents[0], "turn", i + 1)
    begun = now()
    newcomer = acquire(agents[1], "turn", "ttl=10s")
    check(not newcomer["Held"] and newcomer["Waiters"] == 6, "nobody overtakes: %r" % newcomer)
    time.sleep(2 * ttl)
    check(all(w.done is None for w in waiters) and len(lock(agents[2], "turn")["Queue"]) == 6, "sessions of those that wait live on")
    token, before, led = holder["FencingToken"], woken(cluster.servers), leaders(cluster)
    for i, turn in enumerate(waiters):
        check(ask(agents[i % 2], "PUT", "/v1/lock/turn/release?token=%d" % token) == (200, True), "released")
        status, got = turn.joined()
        check(status == 200 and got["Held"] and got["FencingToken"] > token and 0 < got["NotBefore"] <= 1000 * ttl, "%d: %r" % (i, got))
        check(all(w.done is None for w in waiters[i + 1:]), "one is woken")
        token = got["FencingToken"]
        ask(agents[0], "PUT", "/v1/lock/turn/renew?token=%d&ttl=60s" % token)
    if leaders(cluster) == led:         # else who waits has asked anew
        check(woken(cluster.servers) - before == len(waiters), "one wake-up for each hand-over, %d for %d" % (woken(cluster.servers) - before, len(waiters)))


def shared_ones_and_limits():
    agent = Agent(short(), dev=True).start()
    a, b, c, d, e = (session(agent, TTL="60s") for _ in range(5))
    check(acquire(agent, "rw", "mode=shared&session=" + a)["Held"] and acquire(agent, "rw", "mode=shared&session=" + b)["Held"], "two read")
    writer = waiter(agent, "rw", "session=" + c)
    queued(agent, "rw", 1)
    readers = [waiter(agent, "rw", "mode=shared&session=" + s) for s in (d, e)]
    queued(agent, "rw", 3)
    for s in (a, b):
        check(writer.done is None, "the writer waits for both")
        agent.put("/v1/lock/rw/release?session=" + s)
    check(writer.joined()[1]["Held"] and all(r.done is None for r in readers), "and those who came later do not starve it")
    agent.put("/v1/session/destroy/" + c)
    tokens = {r.joined()[1]["FencingToken"] for r in readers}
    check(len(tokens) == 1 and lock(agent, "rw")["Mode"] == "shared", "both readers are let in together: %r" % tokens)
    token = tokens.pop()
    for verb in ("release", "renew", "acquire"):
        status, why = ask(agent, "PUT", "/v1/lock/rw/%s?token=%d" % (verb, token))
        check(status == 409 and "name the session" in why, "%s: %r" % (verb, why))
    check(ask(agent, "PUT", "/v1/lock/rw/acquire?limit=2&session=" + a) ==
          (409, 'limit: lock "rw" has 0, this request 2 (0: none); it stays for as long as somebody is there'), "the limit")
    for s in (d, e):
        agent.put("/v1/lock/rw/release?session=" + s)
    got = [acquire(agent, "rw", "limit=3&session=" + s)["Held"] for s in (a, b, d, e)]
    check(got == [True, True, True, False], "three of four: %r" % got)
    status, why = ask(agent, "PUT", "/v1/lock/rw/acquire?session=" + a)
    check(status == 409 and "another mode" in why, why)


def a_circle_is_refused():
    agent = Agent(dev=True).start()
    a, b, c = (session(agent, TTL="60s") for _ in range(3))
    for s, name in ((a, "x"), (b, "y"), (c, "z")):
        acquire(agent, name, "session=" + s)
    waits = [waiter(agent, "y", "session=" + a), waiter(agent, "z", "session=" + b)]
    queued(agent, "y", 1)
    queued(agent, "z", 1)
    status, why = ask(agent, "PUT", "/v1/lock/x/acquire?wait=10s&session=" + c)
    check(status == 409 and all(s in why for s in (a, b, c)) and '"x"' in why and '"y"' in why and '"z"' in why, why)
    check(not acquire(agent, "x", "session=" + c)["Held"], "without a wait it is no circle")
    agent.put("/v1/lock/z/release?session=" + c)
    check(waits[1].joined()[1]["Held"], "b")
    agent.put("/v1/lock/y/release?session=" + b)
    check(waits[0].joined()[1]["Held"], "a")


def expired(agents, name):
    """The next one's lock, and whether it came as late as a machine that stood still has it."""
    before = now()
    holder = acquire(agents[0], name, "ttl=1s")                           # nobody renews it
    begun = now()
    first = waiter(agents[2], name, "ttl=60s")
    status, got = first.joined()
    check(status == 200 and got["FencingToken"] > holder["FencingToken"] and first.done - before >= 1, got)
    print("     %.1f s after it was taken" % (first.done - begun), flush=True)
    return got, first.done - begun >= holder["NotAfter"] / 1000 * SLOW + 5 * (SLOW - 1)


def whoever_goes_makes_room():
    cluster, agents = world()
    got, late = expired(agents, "room")
    check(not late or not all(expired(agents, name)[1] for name in ("room1", "room2")), "before NotAfter")
    # who hangs up between write and wait keeps its place until its session ends
    c = http.client.HTTPConnection(agents[1].ip, 8500)
    c.request("PUT", "/v1/lock/room/acquire?ttl=3s&wait=60s")
    queued(agents[0], "room", 1)
    second = waiter(agents[2], "room", "ttl=10s")
    queued(agents[0], "room", 2)
    c.close()
    queued(agents[0], "room", 1)
    agents[0].put("/v1/lock/room/release?token=%d" % got["FencingToken"])
    got = second.joined()[1]
    check(got["Held"], got)
    # a lock-delay
    slow = json.loads(agents[0].put("/v1/session/create", {"LockDelay": "1s", "TTL": "60s"}))["ID"]
    acquire(agents[0], "late", "session=" + slow)
    third = waiter(agents[1], "late", "ttl=60s")
    queued(agents[0], "late", 1)
    begun = now()
    agents[0].put("/v1/session/destroy/" + slow)
    check(lock(agents[1], "late")["Delays"] == 1 or now() - begun >= 1, "nobody yet")
    check(third.joined()[1]["Held"] and now() - begun >= 1, "after the delay: %.2f s" % (now() - begun))
    # a session that ends while it waits is told so
    s = session(agents[0], TTL="60s")
    fourth = waiter(agents[2], "late", "session=" + s)
    queued(agents[0], "late", 1)
    agents[0].put("/v1/session/destroy/" + s)
    status, why = fourth.joined()
    check(status == 404 and "waits no more" in why, "%d %r" % (status, why))
    # time is up: the place stays, and asking again is the same place
    s = session(agents[0], TTL="60s")
    got = acquire(agents[2], "late", "wait=200ms&session=" + s)
    check(not got["Held"] and got["Position"] == 1 and got["Session"] == s, got)
    check(acquire(agents[1], "late", "session=" + s)["Position"] == 1 and len(lock(agents[0], "late")["Queue"]) == 1, "once")
    check(ask(agents[0], "PUT", "/v1/lock/late/release?session=" + s) == (200, True) and lock(agents[0], "late")["Queue"] == [], "it leaves")


def a_leader_that_dies_changes_nothing():
    """Twelve take turns while leaders are killed: every grant has a greater token, and all get their turn in the order in which they came."""
    cluster, agents = world()
    holder = acquire(agents[2], "m", "ttl=60s")
    waiters = []
    for i in range(12):
        waiters.append(waiter(agents[2], "m", "ttl=60s", wait="120s"))
        queued(agents[2], "m", i + 1)
    token, killed = holder["FencingToken"], None
    for i, turn in enumerate(waiters):
        if i in (3, 8):
            if killed:
                killed.start()
            killed = cluster.leader()
            killed.kill()

        def released():
            try:
                status, answer = ask(agents[2], "PUT", "/v1/lock/m/release?token=%d" % token)
            except OSError:
                return False
            return status == 200 or (status == 409 and "nobody holds" in answer)    # an answer that was lost
        until("released", released, 30)
        status, got = turn.joined()
        check(status == 200 and got["Held"] and got["FencingToken"] > token, "%d: %d %r" % (i, status, got))
        check(all(w.done is None for w in waiters[i + 1:]), "one at a time")
        token = got["FencingToken"]


def what_makes_no_sense_is_refused():
    agent = Agent(dev=True).start()
    s = session(agent, TTL="60s")
    for target, status, words in (
            ("x/acquire", 400, "session, ttl, token: one of them is wanted"),
            ("x/acquire?session=%s&ttl=10s" % s, 400, "one of them"),
            ("x/acquire?session=" + NOBODY, 404, "invalid session"),
            ("x/acquire?session=me", 400, "session"),
            ("x/acquire?ttl=10s&mode=best", 400, "exclusive, shared"),
            ("x/acquire?ttl=10s&limit=-1", 400, "limit"),
            ("x/acquire?ttl=10s&wait=11m", 400, "wait"),
            ("x/acquire?ttl=10s&wait=soon", 400, "wait"),
            ("x/acquire?ttl=10ms", 400, "ttl"),
            ("x/acquire?ttl=10", 400, "it has no unit"),
            ("x/acquire?ttl=10s&modus=shared", 400, "modus"),
            ("x/acquire?token=me", 400, "token"),
            ("x/acquire?token=0", 400, "token"),
            ("x/acquire?token=18446744073709551615", 404, "nobody holds"),
            ("x/renew?session=" + s, 404, "not held"),
            ("x/renew", 400, "session, token"),
            ("x/renew?token=9&ttl=1h&session=" + s, 400, "session, token"),
            ("x/release?session=" + s, 409, "neither holds"),
            ("x/release?token=999999", 409, "nobody holds"),
            ("x/release", 400, "session, token"),
            ("/acquire?ttl=10s", 400, "name"),
            ("a%00b/acquire?ttl=10s", 400, "NUL"),
            ("n" * 257 + "/acquire?ttl=10s", 400, "name"),
            ("n" * 8192 + "/acquire?ttl=10s", 400, "name")):
        got, text = ask(agent, "PUT", "/v1/lock/" + target)
        check(got == status and words in text and "\n" not in text.strip(), "%s: %d %r" % (target[:80], got, text))
    status, text = ask(agent, "PUT", "/v1/lock/x/acquire?ttl=10s", "n" * 4097)
    check(status == 400 and "4096" in text, text)
    check(ask(agent, "GET", "/v1/locks")[1] == [] and [x["ID"] for x in ask(agent, "GET", "/v1/session/list")[1]] == [s], "nothing half done")
    name = "deep/" * 50 + "lock"
    check(acquire(agent, name, "session=" + s)["Name"] == name and lock(agent, name)["Holders"][0]["Session"] == s, "slashes")
    check([l["Name"] for l in ask(agent, "GET", "/v1/locks?prefix=deep/")[1]] == [name], "by prefix")
    # the other method's: said so; a word that is mistyped: which endpoint was meant
    for method, target, status, words in (
            ("GET", "x/acquire?ttl=10s", 400, 'unknown parameter "ttl" of GET /v1/lock/:name; it is one of PUT /v1/lock/:name/acquire'),
            ("PUT", "x/aquire?ttl=10s", 405, "method PUT not allowed; allowed: GET; nearest: PUT /v1/lock/:name/acquire")):
        got, _, text = agent.request(method, "/v1/lock/" + target)
        check(got == status and words in text.decode(), "%s %s: %d %r" % (method, target, got, text))


def limits_of_the_configuration():
    agent = Agent(settings(lock_waiters_max=1, lock_session_max=2, lock_note_max=8), dev=True).start()
    a, b, c = [session(agent) for _ in range(3)]

    def refused(target, status, words, body=None):
        got, text = ask(agent, "PUT", target, body)
        check(got == status and words in text and "\n" not in text.strip(), "%s: %d %r" % (target, got, text))
    for path, begin in (("/v1/lock/%s/", "acquire"), ("/v1/election/%s/", "campaign")):
        take = lambda name, who, body=None: want(agent, "PUT", (path + "%s?enqueue&session=%s") % (name, begin, who), body)
        held = take("one", a, "8 bytes.")
        check(take("one", b)["Position"] == 1, "one may wait")
        refused((path + "%s?enqueue&session=%s") % ("one", begin, c), 429, "coord.lock_waiters_max")
        refused((path + "%s?ttl=10s&wait=1s") % ("one", begin), 429, "coord.lock_waiters_max")
        check(take("one", b)["Position"] == 1, "asking again is no other one")
        take("two", a)
        refused((path + "%s?session=%s") % ("three", begin, a), 429, "coord.lock_session_max")
        refused((path + "%s?session=%s") % ("three", begin, c), 400, "coord.lock_note_max", "9 bytes...")
    refused("/v1/election/one/proclaim?token=%d" % held["Term"], 400, "coord.lock_note_max", "9 bytes...")
    check(want(agent, "GET", "/v1/election/one")["Leader"]["Value"] == "8 bytes.", "as it was")
    check([sorted(x["Name"] for x in want(agent, "GET", path)) for path in ("/v1/locks", "/v1/elections")] == [["one", "two"]] * 2, "nothing else")


def as_documented():
    agent = Agent(dev=True).start()
    run_documented(agent, documented("Locks"))


run([a_token_is_enough, sessions_that_only_their_ttl_ends_say_for_how_long, they_take_turns, shared_ones_and_limits, a_circle_is_refused, whoever_goes_makes_room,
     a_leader_that_dies_changes_nothing, what_makes_no_sense_is_refused, limits_of_the_configuration, as_documented])
