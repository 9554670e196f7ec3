"""Phasers on servers and client agents: phases end when all have arrived, never before, and nobody who is gone holds them up."""
import concurrent.futures, http.client, json, os, re, socket, subprocess, threading, time
from coordtest import SLOW, Cluster, check, configuration, run, undecided, until
from waiters import documented
from test_client_agent import words

NOBODY = "00000000-0000-4000-8000-000000000000"
cluster = agent = None


def start():
    """Three servers and a client agent, for all stories but those that kill."""
    global cluster, agent
    if cluster is None:
        cluster = Cluster(3, configuration(session_ttl_min="1s")).start()
        agent = cluster.agent("a1", configuration(session_ttl_min="1s")).start(wait=False)
        agent.wait_leader(30)


def places():
    """The leader, a follower, the client agent."""
    return cluster.leader(), cluster.followers()[0], agent


def ask(at, name, verb, **parameters):
    """What names its phase is asked again when nobody knows what came of it."""
    query = "&".join("%s=%s" % (k, v) for k, v in parameters.items())
    for _ in range(5):
        status, _, body = at.request("PUT", "/v1/phaser/%s/%s?%s" % (name, verb, query), timeout=90 * SLOW)
        if "phase" not in parameters or not undecided(status, body):
            break
    return status, body.decode()


def want(at, name, verb, **parameters):
    status, text = ask(at, name, verb, **parameters)
    check(status == 200, "%s %s at %s: %d %s" % (verb, name, at.name, status, text))
    return json.loads(text)


def join(at, name, **parameters):
    if "session" not in parameters:
        parameters.setdefault("ttl", "600s")      # nobody renews them
    return want(at, name, "register", **parameters)


def state(name, at=None):
    return (at or agent).get("/v1/phaser/" + name)[2]


class Later:
    """A request on a thread of its own."""

    def __init__(self, at, name, verb, **parameters):
        self.answer = None
        self.thread = threading.Thread(target=self.main, args=(at, name, verb, parameters), daemon=True)
        self.thread.start()

    def main(self, at, name, verb, parameters):
        try:
            self.answer = ask(at, name, verb, **parameters)
        except (OSError, http.client.HTTPException) as e:
            self.answer = (0, str(e))

    def over(self):
        return self.answer is not None

    def get(self, within=20):
        until("an answer", self.over, within)
        return self.answer[0], json.loads(self.answer[1]) if self.answer[0] == 200 else self.answer[1]


def everybody_arrives_from_everywhere():
    start()
    name, phases = "walk/steps", 12
    members = [(at, join(at, name)) for at in places()]
    check([m["Phase"] for _, m in members] == [0, 0, 0] and all(0 < m["NotBefore"] <= 600000 < m["NotAfter"] for _, m in members), members)
    consumer = join(agent, name, mode="wait")["Session"]
    trace, lock = [], threading.Lock()

    def walk(at, session):
        phase = 0
        while phase < phases:
            with lock:
                trace.append(phase)
            answer = want(at, name, "arrive", session=session, phase=phase, wait="60s")
            check(answer == {"Phase": phase + 1, "Advanced": True, "Registered": 3}, answer)
            phase = answer["Phase"]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = [pool.submit(walk, at, m["Session"]) for at, m in members]
        for phase in range(phases):
            answer = want(agent, name, "await", session=consumer, phase=phase, wait="60s")
            check(answer["Advanced"] and answer["Phase"] > phase, answer)
        for d in done:
            d.result()
    check(trace == sorted(trace), "nobody was in a phase before all had left the one before: %s" % trace)
    seen = state(name)
    check(seen["Phase"] == phases and seen["Registered"] == 3 and len(seen["Members"]) == 4, seen)
    for at, m in members:
        check(want(at, name, "deregister", session=m["Session"]) is True, "left")
        check(at.get("/v1/session/info/" + m["Session"])[2] == [], "the session that was made for it is gone, too")
    check(state(name)["Phase"] == phases + 1 and state(name)["Registered"] == 0, "the last who signalled has ended the phase")
    want(agent, name, "deregister", session=consumer)
    status, _, text = agent.request("GET", "/v1/phaser/" + name)
    check(status == 404 and text == b'phaser "walk/steps" does not exist: nobody is registered', text)
    check(not [p for p in agent.get("/v1/phasers?prefix=walk/")[2]], "nothing is left")


def requests_that_cannot_be():
    start()
    a, b, c, stranger = [join(agent, n, **p)["Session"] for n, p in
                         (("wrong", {}), ("wrong", {"mode": "wait"}), ("wrong", {"mode": "signal"}), ("other", {}))]
    join(agent, "below", session=a, parent="wrong")
    join(agent, "lower", session=a, parent="below")
    long_name = "x" * 256
    check(join(agent, long_name, session=a)["Phase"] == 0, "just as long as it may be")
    refused = [
        (404, "wrong", "register", {"session": NOBODY}, "invalid session"),
        (400, "wrong", "register", {}, "session, ttl"),
        (400, "wrong", "register", {"session": a, "ttl": "10s"}, "session, ttl"),
        (400, "wrong", "register", {"session": "x"}, "UUID"),
        (400, "wrong", "register", {"ttl": "1ms"}, "from 1s"),
        (400, "wrong", "register", {"session": a, "mode": "shout"}, "signal-wait"),
        (409, "wrong", "register", {"session": a, "mode": "wait"}, "another one"),
        (409, "wrong", "register", {"session": stranger, "parent": "lower"}, "wrong < lower < below < wrong"),
        (409, "self", "register", {"session": a, "parent": "self"}, "self < self"),
        (409, "below", "register", {"session": b, "parent": "other"}, 'has the parent "wrong"'),
        (400, "below", "register", {"session": b, "parent": ""}, "parent"),
        (400, long_name + "x", "register", {"session": a}, "256"),
        (400, "y" * 8192, "register", {"session": a}, "256"),
        (400, "a%00b", "register", {"session": a}, "NUL"),
        (404, "wrong", "arrive", {"session": stranger}, "not registered"),
        (404, "nowhere", "arrive", {"session": a}, "not registered"),
        (400, "wrong", "arrive", {}, "session"),
        (409, "wrong", "arrive", {"session": b}, "wait only"),
        (409, "wrong", "arrive", {"session": c, "wait": "1s"}, "signal only"),
        (409, "wrong", "arrive", {"session": a, "phase": 1}, "phase 0"),
        (400, "wrong", "arrive", {"session": a, "phase": -1}, "whole number"),
        (400, "wrong", "arrive", {"session": a, "wait": "11m"}, "10m"),
        (400, "wrong", "arrive", {"session": a, "wait": "soon"}, "duration"),
        (400, "wrong", "arrive", {"session": a, "phse": 0}, "phse"),
        (400, "wrong", "await", {"session": a, "wait": "1s"}, "phase"),
        (409, "wrong", "await", {"session": a, "phase": 5, "wait": "60s"}, "phase 0"),
        (409, "wrong", "await", {"session": c, "phase": 0, "wait": "60s"}, "signal only"),
        (404, "wrong", "await", {"session": stranger, "phase": 0, "wait": "60s"}, "not registered"),
        (404, "nowhere", "await", {"session": NOBODY, "phase": 0, "wait": "60s"}, "not registered"),
    ]
    for at in places():
        before = state("wrong", at)
        for status, name, verb, parameters, words in refused:
            got, text = ask(at, name, verb, **parameters)
            check(got == status and words in text and "\n" not in text, "%s %s %s: %d %r" % (name[:20], verb, parameters, got, text))
        check(state("wrong", at) == before, "nothing is half done")
    check(want(agent, "wrong", "await", session=a, phase=0)["Advanced"] is False, "without a wait: how things are")
    check(want(agent, "wrong", "deregister", session=stranger) is False, "it was not in it")
    for session in (a, b, c, stranger):
        agent.put("/v1/session/destroy/" + session)
    check(agent.get("/v1/phasers")[2] == [], agent.get("/v1/phasers")[2])


def who_is_gone_holds_up_nobody():
    """A session that is destroyed, one that is not renewed, a client that hangs up, and waits that end for one alone."""
    start()
    leader, follower, _ = places()
    a, b, lost = [join(at, "gone")["Session"] for at in places()]
    waits = [Later(leader, "gone", "arrive", session=a, wait="60s"), Later(agent, "gone", "arrive", session=b, phase=0, wait="60s")]
    until("they have arrived", lambda: state("gone")["Arrived"] == 2)
    begun = time.monotonic()
    follower.put("/v1/session/destroy/" + lost)
    for w in waits:
        check(w.get() == (200, {"Phase": 1, "Advanced": True, "Registered": 2}), w.answer)
    check(time.monotonic() - begun < 5 * SLOW, "at once")
    late = want(agent, "gone", "arrive", session=b, phase=0)
    check(late["Phase"] == 0 and late["Advanced"] and state("gone")["Arrived"] == 0, "an answer that was lost is asked for again: %s" % late)

    crashed = join(follower, "gone", ttl="1s")["Session"]          # nobody renews it
    waits = [Later(follower, "gone", "arrive", session=a, wait="60s"), Later(agent, "gone", "arrive", session=b, wait="60s")]
    for w in waits:
        status, answer = w.get(30)
        check(status == 200 and answer["Advanced"] and answer["Phase"] == 2, answer)
    check(crashed not in [m["Session"] for m in state("gone")["Members"]], "gone")

    own = [Later(at, "gone", "await", session=join(at, "gone", mode="wait")["Session"], phase=2, wait="60s") for at in places()]
    for at in places():
        check(not want(at, "gone", "await", session=a, phase=2, wait="100ms")["Advanced"], "nothing has changed")
    check(not any(w.over() for w in own), "they wait")
    consumers = [m["Session"] for m in state("gone")["Members"] if m["Mode"] == "wait"]
    agent.put("/v1/session/destroy/" + consumers[0])
    until("its own wait ends", lambda: sum(w.over() for w in own) == 1)
    want(follower, "gone", "deregister", session=consumers[1])
    until("so does that of who deregisters", lambda: sum(w.over() for w in own) == 2)
    check(all(w.answer[0] == 404 and "is not registered" in w.answer[1] for w in own if w.over()), [w.answer for w in own])

    with socket.create_connection((agent.ip, 8500)) as s:          # arrives, and hangs up while it waits
        s.sendall(("PUT /v1/phaser/gone/arrive?session=%s&phase=2&wait=60s HTTP/1.1\r\nHost: x\r\n\r\n" % a).encode())
        until("it has arrived", lambda: state("gone")["Arrived"] == 1)
    check(want(leader, "gone", "arrive", session=b, phase=2)["Advanced"], "it counts")
    check(sum(w.over() for w in own) >= 2 and [w for w in own if w.get() == (200, {"Phase": 3, "Advanced": True, "Registered": 2})], "the third was answered")
    check(want(agent, "gone", "arrive", session=a, phase=2, wait="60s") == {"Phase": 3, "Advanced": True, "Registered": 2}, "asked again")
    for session in [a, b] + consumers[2:]:
        want(agent, "gone", "deregister", session=session)
    check(agent.request("GET", "/v1/phaser/gone")[0] == 404, "all have left")


def a_thousand_below_32_children():
    """The root is read at most 33 times in a phase by who follows it, and one entry lets all go."""
    start()
    children, each = 32, 31
    ips = [a.ip for a in cluster.servers]

    def many(targets):
        def batch(number):
            connection, answers = http.client.HTTPConnection(ips[number % len(ips)], 8500, timeout=60 * SLOW), []
            for target in targets[number::8]:
                connection.request("PUT", target)
                r = connection.getresponse()
                answers.append((target, r.status, json.loads(r.read())))
            connection.close()
            return answers
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return [a for answers in pool.map(batch, range(8)) for a in answers]
    joined = many(["/v1/phaser/tree%%2Fc%02d/register?ttl=600s&parent=tree" % (i // each) for i in range(children * each)])
    check(all(status == 200 for _, status, _ in joined), "all joined")
    root = state("tree")
    check(root["Registered"] == children and root["Descendants"] == children and len(root["Children"]) == children, root)
    reads, index = [], int(agent.get("/v1/phaser/tree")[1]["X-Consul-Index"])

    def follow():
        at = index
        while not reads or reads[-1]["Phase"] == 0:
            _, headers, answer = agent.get("/v1/phaser/tree?index=%d&wait=60s" % at, timeout=90)
            at = int(headers["X-Consul-Index"])
            reads.append(answer)
    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    waits = [Later(places()[i % 3], "tree/c%02d" % i, "await", session=next(a["Session"] for t, _, a in joined if "c%02d/" % i in t), phase=0, wait="60s")
             for i in range(children)]
    arrivals = [t.split("?")[0].replace("register", "arrive?phase=0&session=") + a["Session"] for t, _, a in joined]
    last = arrivals.pop()
    check(not any(a["Advanced"] for _, _, a in many(arrivals)), "nobody goes before the last has come")
    check(not any(w.over() for w in waits) and state("tree")["Arrived"] == children - 1, "all wait")
    check(many([last])[0][2]["Advanced"], "the last one")
    for w in waits:
        check(w.get() == (200, {"Phase": 1, "Advanced": True, "Registered": each}), w.answer)
    reader.join(20 * SLOW)
    check(not reader.is_alive() and reads and reads[-1]["Phase"] == 1 and len(reads) <= children + 1, "%d reads, the last: %r" % (len(reads), reads[-1:]))
    states = agent.get("/v1/phasers?prefix=tree")[2]
    check(len(states) == children + 1 and {s["Phase"] for s in states} == {1} and {s["Arrived"] for s in states} == {0}, "all of them")
    check(len({s["ModifyIndex"] for s in states}) == 1, "in one entry")
    print("     %d arrivals, the root was read %d times" % (children * each, len(reads)), flush=True)
    many(["/v1/session/destroy/" + a["Session"] for _, _, a in joined])
    check(agent.get("/v1/phasers?prefix=tree")[2] == [], "with their sessions all are gone")


def the_example_of_the_docs():
    start()
    script = documented("Phasers")
    script = "set -e\n" + script.replace("localhost:8500", agent.ip + ":8500")
    r = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60 * SLOW)
    check(r.returncode == 0, r.stderr)
    answers, decoder, at = [], json.JSONDecoder(), 0
    while at < len(r.stdout.strip()):
        value, at = decoder.raw_decode(r.stdout, at)
        answers.append(value)
    on = {"Phase": 1, "Advanced": True, "Registered": 2}
    check(answers == [on, on, True, {"Phase": 1, "Arrived": 1, "Registered": 1, "Advanced": True}, True], r.stdout)


def commands():
    start()
    session = json.loads(words(agent, "phaser", "register", "-json", "cli/steps", "-ttl=60s"))["Session"]
    arrived = words(agent, "phaser", "arrive", "cli/steps", "-session=" + session, "-phase=0", "-wait=10s").split()
    check(arrived == ["Phase", "1", "Advanced", "true", "Registered", "1"], arrived)
    check(json.loads(words(agent, "phaser", "await", "-json", "cli/steps", "-session=" + session, "-phase=0"))["Advanced"], "waited")
    check("7 is ahead" in words(agent, "phaser", "await", "cli/steps", "-session=" + session, "-phase=7", code=1), "ahead")
    listed = words(agent, "phaser", "list").splitlines()
    check(listed[0].split()[:3] == ["Name", "Phase", "Registered"] and listed[1].split()[:3] == ["cli/steps", "1", "1"], listed)
    check(session + "/signal-wait/false" in words(agent, "phaser", "get", "cli/steps"), "one")
    check(words(agent, "phaser", "deregister", "cli/steps", "-session=" + session).strip() == "true", "left")


def the_leader_is_killed_while_many_wait():
    """The last story: a server is gone afterwards."""
    start()
    leader, others = cluster.leader(), cluster.followers() + [agent]
    members = [(others[i % 3], join(others[i % 3], "crowd")["Session"]) for i in range(40)]
    last = join(agent, "crowd")["Session"]
    waits = [Later(at, "crowd", "arrive", session=session, phase=0, wait="60s") for at, session in members]
    until("all have arrived", lambda: state("crowd")["Arrived"] == 40)
    leader.kill()
    until("another one leads", lambda: others[0].get("/v1/status/leader")[2] not in ("", leader.ip + ":8300"), 30)
    check(not any(w.over() for w in waits), "nobody is let go, and nobody is told of an error: %s" % [w.answer for w in waits if w.over()][:3])

    def arrives():
        status, text = ask(agent, "crowd", "arrive", session=last, phase=0)
        return status == 200 and json.loads(text)
    check(until("another leader takes the last arrival", arrives, 30)["Advanced"], "it was the last")
    for w in waits:
        check(w.get(30) == (200, {"Phase": 1, "Advanced": True, "Registered": 41}), w.answer)


run([everybody_arrives_from_everywhere, requests_that_cannot_be, who_is_gone_holds_up_nobody, a_thousand_below_32_children, the_example_of_the_docs,
     commands, the_leader_is_killed_while_many_wait])
