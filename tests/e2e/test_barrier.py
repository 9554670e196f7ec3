"""Barriers: parties on servers, followers and client agents are released together, whatever dies meanwhile."""
import concurrent.futures, http.client, json, os, re, socket, subprocess, time
from coordtest import COORD, HERE, SLOW, STANDSTILL, Agent, check, run, until
from waiters import cluster_and_agent, documented, session, surely

NOBODY = "00000000-0000-4000-8000-000000000000"
pool = concurrent.futures.ThreadPoolExecutor(64)


def put(agent, path, expect=200, timeout=60):
    status, _, body = agent.request("PUT", path, timeout=timeout * SLOW)
    check(status == expect, "PUT %s: %d %r" % (path, status, body))
    return json.loads(body) if status == 200 else body.decode()


def enter(agent, name, who, parties, wait="60s", **more):
    query = "&".join(k if v is True else "%s=%s" % (k, v) for k, v in more.items())
    return put(agent, "/v1/barrier/%s/enter?%s&parties=%d&wait=%s&%s" % (name, who, parties, wait, query))


def look(agent, name):
    status, _, body = agent.request("GET", "/v1/barrier/" + name)
    return json.loads(body) if status == 200 else None


def entered(agent, name, count):
    until("%d wait at %s" % (count, name), lambda: len((look(agent, name) or {"Entered": []})["Entered"]) == count)


def all_parties_are_released_together():
    cluster, agent = cluster_and_agent()
    everybody = cluster.servers + [agent]
    sessions = [session(a) for a in everybody]
    rounds = []
    for _ in range(2):
        begun = [pool.submit(enter, a, "jobs/load", "session=" + s, 4, after=(rounds or [0])[-1]) for a, s in list(zip(everybody, sessions))[:3]]
        entered(agent, "jobs/load", 3)
        state = look(cluster.servers[0], "jobs/load")
        check(sorted(p["Session"] for p in state["Entered"]) == sorted(sessions[:3]) and (state["Parties"], state["Double"]) == (4, False), state)
        check(not any(b.done() for b in begun), "nobody is released early")
        again = enter(cluster.followers()[0], "jobs/load", "session=" + sessions[0], 4, wait="0s", after=(rounds or [0])[-1])
        check(not again["Released"] and again["Entered"] == 3, "a session counts once: %r" % again)
        watched = agent.get("/v1/barrier/jobs/load")[1]["X-Consul-Index"]
        observer = pool.submit(agent.get, "/v1/barrier/jobs/load?wait=60s&index=" + watched)
        answers = [enter(agent, "jobs/load", "session=" + sessions[3], 4)] + [b.result() for b in begun]
        check(all(a["Released"] and a["Entered"] == 4 for a in answers) and len({a["Round"] for a in answers}) == 1, answers)
        check([a["Session"] for a in answers] == sessions[3:] + sessions[:3], answers)
        check(observer.result()[2]["ReleasedRound"] == answers[0]["Round"] and observer.result()[2]["Entered"] == [], observer.result()[2])
        rounds.append(answers[0]["Round"])
    check(rounds[1] > rounds[0], "rounds grow: %r" % rounds)
    lost = enter(agent, "jobs/load", "session=" + sessions[0], 4, after=rounds[0])
    check(lost["Released"] and lost["Round"] == rounds[1], "the answer that was lost: %r" % lost)
    check(look(agent, "jobs/load")["Entered"] == [], "and it is not in the next round")
    check([b["Name"] for b in agent.get("/v1/barriers?prefix=jobs/")[2]] == ["jobs/load"] and agent.get("/v1/barriers?prefix=x")[2] == [], "the list")
    made = enter(agent, "made", "ttl=60s", 1)
    check(made["Released"] and 0 < made["NotBefore"] <= 60000 < made["NotAfter"], made)
    put(agent, "/v1/barrier/made/leave?session=" + made["Session"])
    check(agent.request("GET", "/v1/session/info/" + made["Session"])[2].strip() == b"[]", "its session ended with it")


def nobody_leaves_a_double_barrier_alone():
    cluster, agent = cluster_and_agent()
    everybody = [cluster.servers[0], cluster.servers[1], agent]
    sessions = [session(a) for a in everybody]
    parties = [pool.submit(enter, a, "d", "session=" + s, 3, double=True) for a, s in zip(everybody, sessions)]
    first = [p.result() for p in parties][0]
    check(all(p.result()["Released"] for p in parties), "all are inside")
    check({p["Session"] for p in look(agent, "d")["Working"]} == set(sessions) and look(agent, "d")["WorkingRound"] == first["Round"], look(agent, "d"))
    early = put(agent, "/v1/barrier/d/leave?session=%s" % sessions[2])
    check(not early["Released"] and early["Entered"] == 2, early)
    leaving = [pool.submit(put, a, "/v1/barrier/d/leave?wait=60s&session=" + s) for a, s in ((agent, sessions[2]), (everybody[0], sessions[0]))]
    until("one is inside", lambda: len(look(agent, "d")["Working"]) == 1)
    new = session(agent)
    after = pool.submit(enter, agent, "d", "session=" + new, 1, double=True)
    entered(agent, "d", 1)
    check(not after.done() and not any(l.done() for l in leaving), "neither those who left nor the next round go on")
    everybody[0].put("/v1/session/destroy/" + sessions[1])         # the last one dies
    for wait in leaving:
        check(wait.result()["Released"] and wait.result()["Round"] == first["Round"], wait.result())
    check(after.result()["Released"] and after.result()["Round"] > first["Round"], "the next round: %r" % after.result())
    check(put(agent, "/v1/barrier/d/leave?session=" + sessions[2])["Released"], "who lost that answer asks again")


def sessions_that_end_and_clients_that_hang_up():
    cluster, agent = cluster_and_agent()
    server = cluster.servers[0]
    doomed, other = session(server), session(agent)
    waits = pool.submit(put, agent, "/v1/barrier/b/enter?parties=3&wait=60s&session=" + doomed, 404)
    rest = pool.submit(enter, agent, "b", "session=" + other, 3)
    entered(server, "b", 2)
    server.put("/v1/session/destroy/" + doomed)
    check("no longer in barrier" in waits.result(5 * SLOW + STANDSTILL), "told at once: %r" % waits.result())
    entered(server, "b", 1)
    gone = session(server)
    with socket.create_connection((agent.ip, 8500)) as client:      # gone between write and wait; its session is its own
        client.sendall(b"PUT /v1/barrier/b/enter?parties=3&wait=60s&session=%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % gone.encode())
        entered(server, "b", 2)

    def stays():
        """Renewed while it waits, and not after. False: it was not there for all that time, as when the machine stood still for so long."""
        with socket.create_connection((agent.ip, 8500)) as client:
            client.sendall(b"PUT /v1/barrier/c/enter?parties=3&wait=60s&ttl=1s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            entered(server, "c", 1)
            renewed_until, there = time.monotonic() + 3.5 * SLOW, True
            while there and time.monotonic() < renewed_until:
                time.sleep(0.1)
                there = look(server, "c") is not None
        until("its session has ended", lambda: look(server, "c") is None, 10)
        return there
    check(any(stays() for _ in range(3)), "it is there for as long as it waits")
    check(len(look(server, "b")["Entered"]) == 2, "an own session stays: %r" % look(server, "b"))
    check(enter(server, "b", "ttl=60s", 3)["Released"] and rest.result()["Released"], "and counts")


def the_leader_dies_while_many_wait():
    cluster, agent = cluster_and_agent()
    leader = cluster.leader()
    followers = cluster.followers()
    askers = [followers[0], followers[1], agent]
    sessions = [session(askers[i % 3], TTL="60s") for i in range(31)]
    path = "/v1/barrier/b/enter?parties=32&wait=60s&after=0&session="
    waits = [pool.submit(surely, askers[i % 3], path + s) for i, s in enumerate(sessions[1:])]
    lost = pool.submit(leader.request, "PUT", "/v1/barrier/b/enter?parties=32&wait=60s&session=" + sessions[0], timeout=60)
    entered(followers[0], "b", 31)
    round = look(agent, "b")["Round"]
    leader.kill()
    check(isinstance(lost.exception(), OSError) or isinstance(lost.exception(), http.client.HTTPException), "its connection is lost")
    followers[0].wait_leader(30)
    again = surely(followers[1], "/v1/barrier/b/enter?parties=32&after=0&session=" + sessions[0])
    check(not again["Released"] and again["Round"] == round and again["Entered"] == 31, "as it stands: %r" % again)
    check(not any(w.done() for w in waits), "the others wait on: %r" % [w.result() for w in waits if w.done()])
    last = session(agent)
    answer = surely(agent, "/v1/barrier/b/enter?parties=32&after=0&session=" + last)
    check(answer["Released"] and answer["Round"] == round, answer)
    for wait in waits:
        check(wait.result()["Released"] and wait.result()["Round"] == answer["Round"], wait.result())


def bad_input():
    agent = Agent(dev=True).start()
    mine = session(agent)
    enter(agent, "b", "session=" + mine, 3, wait="0s")
    of_mine, of_nobody = "&session=" + mine, "&session=" + NOBODY
    rows = [("b/enter?parties=3" + of_nobody, 404, "invalid session"), ("b/enter?parties=4" + of_mine, 409, "3 parties (single), not for 4 (single)"),
            ("b/enter?parties=3&double" + of_mine, 409, "not for 3 (double)"), ("b/enter?x" + of_mine, 400, "unknown parameter"), ("b/enter?a=1" + of_mine, 400, "a"),
            ("b/enter?" + of_mine[1:], 400, "parties: it is missing"), ("b/enter?parties=0" + of_mine, 400, "from 1 to 10000"),
            ("b/enter?parties=10001" + of_mine, 400, "from 1 to 10000"), ("b/enter?parties=-1" + of_mine, 400, "parties"),
            ("b/enter?parties=3&wait=10m1s" + of_mine, 400, "wait"), ("b/enter?parties=3", 400, "session, ttl"), ("b/enter?parties=3&ttl=5s" + of_mine, 400, "not both"),
            ("b/enter?parties=3&ttl=1ms", 400, "ttl"), ("b/enter?parties=3&session=x", 400, "UUID"), ("b/enter?parties=3&after=99999999" + of_mine, 400, "no such round"),
            ("b/enter?parties=3&after=x" + of_mine, 400, "after"), ("x" * 257 + "/enter?parties=3" + of_mine, 400, "256 bytes"), ("b%00/enter?parties=3" + of_mine, 400, "NUL"),
            ("x" * 8192 + "/enter?parties=3" + of_mine, (400, 414), ""), ("b/leave?session=" + NOBODY, 404, "invalid session"), ("b/leave", 400, "session"),
            ("other/leave?session=" + mine, 404, "not in barrier"), ("b/go?session=" + mine, (404, 405), "")]
    for path, expected, word in rows:
        status, _, body = agent.request("PUT", "/v1/barrier/" + path)
        text = body.decode()
        check(status in (expected if isinstance(expected, tuple) else (expected,)) and word in text and "\n" not in text.strip(), "%s: %d %s" % (path[:80], status, text))
    check(agent.request("PUT", "/v1/barrier/b/enter?parties=3" + of_mine, b"body")[0] == 400, "it takes no body")
    status, _, body = agent.request("GET", "/v1/barrier/none")
    check((status, body) == (404, b'barrier "none" is empty'), (status, body))
    check(len(agent.get("/v1/barriers")[2]) == 1 and len(look(agent, "b")["Entered"]) == 1, "nothing of that was written")


def as_documented_and_as_commands():
    agent = Agent(dev=True).start()
    script = documented("Barriers")
    done = subprocess.run(["bash", "-c", script.replace("localhost", agent.ip)], capture_output=True, text=True, timeout=60 * SLOW)
    answers = [json.loads(a) for a in re.findall(r"\{.*?\}", done.stdout)]
    check(len(answers) == 3 and all(a["Released"] for a in answers) and len({a["Round"] for a in answers}) == 1, done)
    words = [COORD, "barriers", "enter", "-http-addr=%s:8500" % agent.ip, "-parties=2", "-ttl=15s", "cli"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        out = process.communicate(timeout=60 * SLOW)[0]
        check(process.returncode == 0 and re.search(r"Released +true", out), out)
    listed = subprocess.run([COORD, "barriers", "list", "-http-addr=%s:8500" % agent.ip], capture_output=True, text=True)
    check("nightly/load" in listed.stdout and "cli" in listed.stdout, listed)


if __name__ == "__main__":
    run([all_parties_are_released_together, nobody_leaves_a_double_barrier_alone, sessions_that_end_and_clients_that_hang_up,
         the_leader_dies_while_many_wait, bad_input, as_documented_and_as_commands])
