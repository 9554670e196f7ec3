"""Hazards: an owner retires what readers on servers, followers and client agents protect, and is told when the last of them has done."""
import concurrent.futures, http.client, json, os, re, socket, subprocess, time
from coordtest import COORD, HERE, SLOW, Agent, check, configuration, run, until
from waiters import cluster_and_agent, documented, session, short, surely

NOBODY = "00000000-0000-4000-8000-000000000000"
pool = concurrent.futures.ThreadPoolExecutor(64)


def put(agent, path, expect=200, timeout=60):
    status, _, body = agent.request("PUT", "/v1/hazard/" + path, timeout=timeout * SLOW)
    check(status == expect, "PUT %s: %d %r" % (path, status, body))
    return json.loads(body) if status == 200 else body.decode()


def readers_and_an_owner():
    cluster, agent = cluster_and_agent()
    everybody = cluster.servers + [agent]
    sessions = [session(a) for a in everybody]
    epochs = [put(a, "index/v1/protect?session=" + s)["Epoch"] for a, s in zip(everybody, sessions)]
    check(epochs == sorted(epochs) and len(set(epochs)) == 4, epochs)
    check(put(agent, "index/v1/protect?session=" + sessions[0])["Epoch"] == epochs[0], "again, elsewhere: the same")
    state = agent.get("/v1/hazard/index/v1")[2]
    check([(p["Session"], p["Epoch"]) for p in state["Protections"]] == list(zip(sessions, epochs)) and state["Oldest"] == epochs[0], state)
    first = put(agent, "index/v1/retire?wait=100ms")
    check(not first["Retired"] and first["Waiting"] == 4, first)
    waits = [pool.submit(put, a, "index/v1/retire?wait=60s&epoch=%d" % first["Epoch"]) for a in everybody]
    late = session(agent)
    put(agent, "index/v1/protect?session=" + late)
    for a, s in list(zip(everybody, sessions))[1:]:
        check(put(a, "index/v1/clear?session=" + s) is True, "cleared")
    check(put(agent, "index/v1/retire?epoch=%d" % first["Epoch"])["Waiting"] == 1, "one is left of those before")
    check(not any(w.done() for w in waits), "nobody is told early")
    cluster.servers[1].put("/v1/session/destroy/" + sessions[0])
    for wait in waits:
        check(wait.result() == {"Retired": True, "Waiting": 0, "Epoch": first["Epoch"]}, wait.result())
    check(put(agent, "index/v1/retire")["Waiting"] == 1, "a new retire waits for the later one")
    watched = agent.get("/v1/hazard/index/v1")[1]["X-Consul-Index"]
    observer = pool.submit(agent.request, "GET", "/v1/hazard/index/v1?wait=60s&index=" + watched, timeout=90)
    put(agent, "index/v1/clear?session=" + late)
    check(observer.result()[0] == 404, "an observer sees that it is not protected: %r" % (observer.result(),))
    check("does not protect" in put(agent, "index/v1/clear?session=" + late, 404), "cleared once")
    check(agent.get("/v1/hazards?prefix=index/")[2] == [], "the list")


def epochs_are_indexes():
    """An owner that cannot lose its place: it retires at the index of its own write."""
    agent = Agent(dev=True).start()
    old, new = session(agent), session(agent)
    put(agent, "doc/protect?session=" + old)
    agent.put("/v1/kv/current", b"v2")
    written = agent.get("/v1/kv/current")[2][0]["ModifyIndex"]
    put(agent, "doc/protect?session=" + new)
    check(put(agent, "doc/retire?epoch=%d" % written)["Waiting"] == 1, "only the reader from before the write")
    put(agent, "doc/clear?session=" + old)
    check(put(agent, "doc/retire?epoch=%d" % written)["Retired"], "it has done")
    check("above every index" in put(agent, "doc/retire?epoch=99999999", 400), "that was never an index")


def readers_that_die_and_owners_that_hang_up():
    cluster, agent = cluster_and_agent()
    server = cluster.servers[0]
    reader = until("an answer before its TTL may be over", lambda: (lambda reader: reader["NotBefore"] and reader)(put(agent, "o/protect?ttl=1s")))
    check(0 < reader["NotBefore"] <= 1000 < reader["NotAfter"], reader)
    with socket.create_connection((agent.ip, 8500)) as owner:       # gone between write and wait
        owner.sendall(b"PUT /v1/hazard/o/retire?wait=60s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    begun = time.monotonic()
    retired = put(server, "o/retire?wait=60s")
    check(retired["Retired"] and time.monotonic() - begun < 20 * SLOW, "the reader's TTL is over: %r" % retired)
    node_reader = cluster.agent("a2", configuration(coord={"node_lease_ttl": "%ds" % (1 + SLOW)}), short()).start(wait=False)
    node_reader.wait_leader(30)
    hung = json.loads(node_reader.put("/v1/session/create", {"TTL": "600s"}))["ID"]       # ends with its node's agent, too
    put(node_reader, "o/protect?session=" + hung)
    epoch = put(server, "o/retire")["Epoch"]
    waits = pool.submit(put, agent, "o/retire?wait=60s")
    log_index = lambda: int(server.get("/v1/agent/self")[2]["Stats"]["raft"]["last_log_index"])
    until("the retire is written", lambda: log_index() > epoch)
    check(not waits.done(), "it waits")
    node_reader.kill()
    check(waits.result(40 * SLOW)["Retired"], "the reader's host is dead")


def the_leader_dies_while_many_wait():
    cluster, agent = cluster_and_agent()
    leader, followers = cluster.leader(), cluster.followers()
    reader = session(followers[0], TTL="60s")
    put(followers[0], "o/protect?session=" + reader)
    epoch = put(agent, "o/retire")["Epoch"]
    askers = [followers[0], followers[1], agent]
    waits = [pool.submit(surely, askers[i % 3], "/v1/hazard/o/retire?wait=60s&epoch=%d" % epoch) for i in range(30)]
    lost = pool.submit(leader.request, "PUT", "/v1/hazard/o/retire?wait=60s&epoch=%d" % epoch, timeout=60)
    log_index = lambda: int(leader.get("/v1/agent/self")[2]["Stats"]["raft"]["last_log_index"])
    until("all are written", lambda: log_index() >= epoch + 31)
    check(not lost.done() and not any(w.done() for w in waits), "all wait")
    leader.kill()
    check(isinstance(lost.exception(), (OSError, http.client.HTTPException)), "its connection is lost")
    followers[0].wait_leader(30)

    again = surely(agent, "/v1/hazard/o/retire?epoch=%d" % epoch)
    check(not again["Retired"] and again["Waiting"] == 1, again)
    check(not any(w.done() for w in waits), "the others wait on: %r" % [w.result() for w in waits if w.done()])
    put(agent, "o/clear?session=" + reader)
    for wait in waits:
        check(wait.result() == {"Retired": True, "Waiting": 0, "Epoch": epoch}, wait.result())


def bad_input():
    agent = Agent(dev=True).start()
    mine = session(agent)
    put(agent, "o/protect?session=" + mine)
    rows = [("o/protect?session=" + NOBODY, 404, "invalid session"), ("o/protect", 400, "session, ttl"), ("o/protect?ttl=5s&session=" + mine, 400, "not both"),
            ("o/protect?ttl=1ms", 400, "ttl"), ("o/protect?session=x", 400, "UUID"), ("o/protect?wait=1s&session=" + mine, 400, "unknown parameter"),
            ("o/clear?session=" + NOBODY, 404, "invalid session"), ("o/clear", 400, "session"), ("o/clear?session=x", 400, "UUID"),
            ("other/clear?session=" + mine, 404, "does not protect"), ("o/retire?wait=10m1s", 400, "wait"), ("o/retire?epoch=x", 400, "epoch"),
            ("o/retire?epoch=0", 400, "epoch"), ("o/retire?epoch=99999999", 400, "above every index"), ("o/retire?session=" + mine, 400, "unknown parameter"),
            ("x" * 257 + "/retire", 400, "256 bytes"), ("o%00/retire", 400, "NUL"), ("x" * 8192 + "/retire", (400, 414), ""), ("o/go", (404, 405), "")]
    for path, expected, word in rows:
        status, _, body = agent.request("PUT", "/v1/hazard/" + path)
        text = body.decode()
        check(status in (expected if isinstance(expected, tuple) else (expected,)) and word in text and "\n" not in text.strip(), "%s: %d %s" % (path[:80], status, text))
    check(agent.request("PUT", "/v1/hazard/o/retire", b"body")[0] == 400, "it takes no body")
    status, _, body = agent.request("GET", "/v1/hazard/none")
    check((status, body) == (404, b'object "none" is not protected'), (status, body))
    check([(h["Object"], h["Count"]) for h in agent.get("/v1/hazards")[2]] == [("o", 1)], "nothing of that was written")


def as_documented_and_as_commands():
    agent = Agent(dev=True).start()
    script = documented("Hazards")
    done = subprocess.run(["bash", "-c", script.replace("localhost", agent.ip)], capture_output=True, text=True, timeout=60 * SLOW)
    first, cleared, second = [json.loads(line) for line in done.stdout.splitlines()]
    check(not first["Retired"] and first["Waiting"] == 1 and cleared is True and second["Retired"] and second["Epoch"] > first["Epoch"], done)

    def words(*args):
        return subprocess.run([COORD, "hazard", args[0], "-http-addr=%s:8500" % agent.ip, *args[1:]], capture_output=True, text=True, timeout=60 * SLOW).stdout
    reader = re.search(r"Session +(\S+)", words("protect", "cli")).group(1)
    check("cli" in words("list") and re.search(r"Retired +false", words("retire", "-wait=0s", "cli")), "it waits")
    check(words("clear", "-session=" + reader, "cli").strip() == "true" and re.search(r"Retired +true", words("retire", "cli")), "it has done")


if __name__ == "__main__":
    run([readers_and_an_owner, epochs_are_indexes, readers_that_die_and_owners_that_hang_up, the_leader_dies_while_many_wait, bad_input,
         as_documented_and_as_commands])
