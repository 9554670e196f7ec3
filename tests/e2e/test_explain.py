"""`coord elections`, `coord election`, `coord explain`: what a person asks who wants to know who leads, what a session holds and when it ends, whether a
node's agent is heard of, and why a check has its status. And what commands say when nobody answers: that there is no leader."""
import http.server, json, os, re, subprocess, tempfile, threading
from coordtest import COORD, SLOW, Agent, check, configuration, run, until

AGENT = None
FOLDER = tempfile.TemporaryDirectory(prefix="coord-explain-")


def agent_of_all():
    global AGENT
    AGENT = AGENT or Agent(configuration(session_ttl_min="1s"), dev=True).start()
    return AGENT


def coord(agent, *words, within=60):
    """(exit code, stdout, stderr)"""
    command, flags = list(words), ["-http-addr=%s:8500" % agent.ip]
    at = next((i for i, word in enumerate(command) if i and (word.startswith("-") or i == (3 if command[0] == "operator" else 2) or command[0] in ("elections", "locks", "members"))), len(command))
    r = subprocess.run([COORD, *command[:at], *flags, *command[at:]], capture_output=True, text=True, timeout=within * SLOW)
    return r.returncode, r.stdout, r.stderr


def holds(out, *parts):
    check(all(part in out for part in parts), "%r are in:\n%s" % ([part for part in parts if part not in out], out))


def campaign(agent, name, value, *more):
    """Leads, or stands as a candidate; (session, term)"""
    answer = json.loads(agent.put("/v1/election/%s/campaign?ttl=1h&enqueue%s" % (name, "".join("&" + m for m in more)), value))
    return answer["Session"], answer["Term"]


def elections():
    """A leader is seen: in the list, alone, explained, and by who observes. Nobody, a candidate with priority, another value."""
    agent = agent_of_all()
    heads = ["NAME", "TERM", "LEADER", "VALUE", "CANDIDATES"]
    code, out, err = coord(agent, "elections")
    check((code, out.split(), err) == (0, heads, ""), "none yet: %r" % out)
    code, out, _ = coord(agent, "election", "get", "db/primary")
    check(code == 0 and re.search(r"Leader +-\n", out), out)
    holds(coord(agent, "explain", "election", "db/primary")[1], "Nobody leads it", "No candidate waits")

    seen, observer = [], subprocess.Popen([COORD, "election", "observe", "-http-addr=%s:8500" % agent.ip, "db/primary"], stdout=subprocess.PIPE, text=True)
    threading.Thread(target=lambda: seen.extend(iter(observer.stdout.readline, "")), daemon=True).start()
    until("it has said that nobody leads", lambda: seen == ["nobody leads\n"])
    leader, term = campaign(agent, "db/primary", b"10.0.0.7:5432\x1b[2J")
    low, _ = campaign(agent, "db/primary", b"low")
    high, _ = campaign(agent, "db/primary", b"high", "priority=5")
    campaign(agent, "other", b"x")
    code, out, _ = coord(agent, "elections", "db/")
    check([line.split() for line in out.splitlines()] == [heads, ["db/primary", str(term), "n1", "10.0.0.7:5432?[2J", "2"]], "the table: %r" % out)
    check([e["Name"] for e in json.loads(coord(agent, "elections", "-json")[1])] == ["db/primary", "other"], "as JSON")
    code, out, _ = coord(agent, "election", "get", "db/primary")
    holds(re.sub(" +", " ", out), "Leader n1\n", "Value 10.0.0.7:5432?[2J\n", "Term %d\n" % term, "Session %s\n" % leader, "Candidates 2\n")
    check(json.loads(coord(agent, "election", "get", "-json", "db/primary")[1])["Leader"]["Session"] == leader, "get -json")
    code, out, err = coord(agent, "explain", "election", "db/primary")
    check(code == 0 and not err and "\x1b" not in out, "%d %r" % (code, err))
    holds(out, "leader   %s on n1, for " % leader, ", term %d" % term, "value    10.0.0.7:5432?[2J", "2 wait for it", "next     %s on n1, with priority 5" % high, "because  one leads at a time",
          " taken ", " queued ")

    check(coord(agent, "election", "proclaim", "-token=%d" % term, "db/primary", "10.0.0.8:5432")[0] == 0, "another value")
    check(coord(agent, "election", "resign", "-token=%d" % term, "db/primary")[0] == 0, "the leader resigns")
    agent.put("/v1/session/destroy/" + high)
    agent.put("/v1/session/destroy/" + low)
    until("all was observed", lambda: len(seen) == 6)
    check([re.sub(r"\d+:", "N:", line, 1) if line.startswith("term") else line for line in seen] ==
          ["nobody leads\n", "term N: n1 leads, 10.0.0.7:5432?[2J\n", "term N: n1 leads, 10.0.0.8:5432\n", "term N: n1 leads, high\n", "term N: n1 leads, low\n", "nobody leads\n"], "%r" % seen)
    observer.terminate()
    observer.wait()
    for words in (("election", "get"), ("election", "observe", "a", "b"), ("explain", "election", ""), ("elections", "a", "b"), ("election", "gte", "x")):
        code, _, err = coord(agent, *words)
        check(code == 2 and err, "%r: %d %r" % (words, code, err))


def sessions():
    """What a session holds, over all modules, and why it will end."""
    agent = agent_of_all()
    session = json.loads(agent.put("/v1/session/create", {"Name": "mine", "TTL": "1h", "LockDelay": "5s", "Behavior": "delete"}))["ID"]
    code, out, err = coord(agent, "explain", "session", session)
    check(code == 0 and not err, "%d %r" % (code, err))
    holds(out, 'Session %s on n1, "mine"' % session, "It holds nothing", "ends     when it is not renewed for its TTL, 1h; so much is left: ", "its node's agent is not heard of", "when its node is removed",
          "its keys are deleted", "stay free for 5 s")
    token = json.loads(agent.put("/v1/lock/explained/acquire?session=" + session))["FencingToken"]
    other, term = campaign(agent, "explained", b"x")
    agent.put("/v1/election/explained/campaign?enqueue&session=" + session)
    agent.put("/v1/kv/explained/" + 300 * "long?".replace("?", "") + "?acquire=" + session, b"x")
    agent.put("/v1/barrier/explained/enter?parties=2&session=" + session)
    agent.put("/v1/phaser/explained/register?session=" + session)
    agent.put("/v1/hazard/explained/protect?session=" + session)
    agent.put("/v1/quota/explained", {"Budget": 5, "Refill": {"Window": "minute"}})
    agent.put("/v1/quota/explained/lease?session=%s&want=2" % session)
    out = coord(agent, "explain", "session", session)[1]
    holds(out, 'lock "explained": held, token %d' % token, 'election "explained": waiting, place 1', 'key "explained/%s": held' % (300 * "long"), 'barrier "explained": waiting', 'phaser "explained": registered',
          'hazard "explained": protected', 'quota "explained": leased')
    there = agent.get("/v1/session/explain/" + session.upper())[2]
    check(len(there["Holdings"]) == 7 and not there["Made"] and there["Session"]["ID"] == session and there["Remaining"], "%r" % there)
    holds(coord(agent, "explain", "session", other)[1], 'election "explained": leading, token %d' % term, "with the last thing that it holds")
    endless = json.loads(agent.put("/v1/session/create", {"NodeChecks": []}))["ID"]
    holds(coord(agent, "explain", "session", endless)[1], "not by itself: it has no TTL")
    agent.put("/v1/session/destroy/" + session)
    for wrong in (session, "junk", ""):
        code, out, err = coord(agent, "explain", "session", wrong)
        check(code in (1, 2) and not out and err, "%r: %d %r" % (wrong, code, err))


def nodes_and_checks():
    agent = agent_of_all()
    agent.put("/v1/agent/service/register", {"Name": "api", "Port": 1, "Checks": [
        {"CheckID": "front", "TCP": agent.ip + ":1", "Interval": "1s", "SuccessBeforePassing": 3, "FailuresBeforeCritical": 2, "DeregisterCriticalServiceAfter": "2h"},
        {"CheckID": "told", "TTL": "1h"}]})
    holds(coord(agent, "explain", "check", "told")[1], "is critical", "last     nobody has told its status since", "next     nothing, until it is told")
    agent.put("/v1/agent/check/register", {"CheckID": "fresh", "Name": "fresh", "TTL": "1h", "Status": "passing"})
    until("it is known", lambda: coord(agent, "explain", "check", "fresh")[0] == 0)
    holds(coord(agent, "explain", "check", "fresh")[1], "is passing", "last     nobody has told its status since", "next     critical in 59m", "unless it is told")
    agent.put("/v1/agent/check/deregister/fresh")
    agent.put("/v1/agent/check/warn/told?note=slow")
    agent.put("/v1/catalog/register", {"Node": "ext", "Address": "10.0.0.9", "Check": {"CheckID": "up", "Name": "up", "Status": "warning", "Output": "by hand"}})
    until("it has failed", lambda: agent.get("/v1/agent/check/explain/front")[2]["Failures"] >= 2)
    out = coord(agent, "explain", "check", "front")[1]
    holds(out, 'Check "front" of service "api" on n1 is critical', " ago, index ", "output   ", "refused", "run by   the agent on n1: tcp %s:1, every 1s, timeout 10s" % agent.ip,
          "to passing after 3 successes in a row, to critical after 2 failures; so far ", "last     result ", "next     run in ", "removed when it has been critical for 2h")
    holds(coord(agent, "explain", "check", "told")[1], "is warning", "output   slow", "at least every 1h", "next     critical in 59m", "unless it is told")
    holds(coord(agent, "explain", "check", "serfHealth")[1], "is passing", "run by   the servers")
    holds(coord(agent, "explain", "check", "-node=ext", "up")[1], "is warning", "by hand", "whoever wrote it into the catalog")
    holds(coord(agent, "explain", "check", "told")[1], "last     told ")
    code, _, err = coord(agent, "explain", "check", "-node=nope", "told")
    check(code == 2 and 'there is no node "nope"' in err, "%d %r" % (code, err))
    agent.put("/v1/catalog/register", {"Node": "bare", "Address": "10.0.0.8"})
    code, _, err = coord(agent, "explain", "check", "-node=bare", "told")
    check(code == 2 and 'node "bare" has no check "told"; it has: none' in err, "%d %r" % (code, err))
    code, _, err = coord(agent, "explain", "check", "none")
    check(code in (1, 2) and "it has: front, serfHealth, told" in err, "%d %r" % (code, err))
    status, _, body = agent.request("GET", "/v1/agent/check/explain/none")
    check(status == 404 and b'no check "none"' in body, "%d %r" % (status, body))
    session = json.loads(agent.put("/v1/session/create", {"Name": "mine"}))["ID"]
    for words in (("explain", "node"), ("explain", "node", "n1")):
        out = coord(agent, *words)[1]
        holds(out, "Node n1, %s: its agent is alive" % agent.ip, "TTL 10s, granted at index ", "renewed  ", " ago by its agent, it ends in ", "api", "critical front", "warning  told", session + ', "mine"')
    holds(coord(agent, "explain", "node", "ext")[1], "Node ext, 10.0.0.9: nobody runs it", "it has no agent")
    code, out, err = coord(agent, "explain", "node", "none")
    check(code in (1, 2) and 'no node "none"' in err and not out, "%d %r" % (code, err))


def a_dead_node():
    """Its lease has ended."""
    server = Agent(configuration(coord={"node_lease_ttl": "1s"})).start()
    client = Agent("-retry-join=" + server.ip, configuration(coord={"node_lease_ttl": "1s"}), server=False, name="a1").start()
    until("it is alive", lambda: "its agent is alive" in coord(server, "explain", "node", "a1")[1])
    client.kill()
    until("it is dead", lambda: "its agent is not heard of" in coord(server, "explain", "node", "a1")[1])
    holds(coord(server, "explain", "node", "a1")[1], "because  ", "next     passing again as soon as its agent is back", "critical serfHealth")


def no_leader():
    """Each command says so once, long before its answer; one that waits for a lock as well. An agent without servers says that."""
    server = Agent("-server", "-bootstrap-expect=3", server=False).start(wait=False)
    lost = Agent("-retry-join=127.0.0.1:1", server=False, name="lost").start(wait=False)
    until("both answer", lambda: all(answers(a) for a in (server, lost)))
    texts = ((server, "no leader; see: coord operator raft list-peers -stale"), (lost, "the agent reaches no server; see its log: coord monitor"))
    until("the agent knows it", lambda: lost.request("GET", "/v1/status/leader")[0] == 500)
    procs = []
    for agent, text in texts:
        for words in (("kv", "get", "x"), ("locks",), ("kv", "put", "x", "y"), ("explain", "node"), ("lock", "x", "--", "true"), ("watch", "-type=key", "-key=x", "cat"), ("watch", "-stream", "-key=x")):
            at = 2 if words[0] in ("kv", "explain") else 1
            procs.append((text, words, subprocess.Popen([COORD, *words[:at], "-http-addr=%s:8500" % agent.ip, *words[at:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
    for text, words, proc in procs:
        line = proc.stderr.readline()
        check(line.startswith("coord: ") and line.endswith(text + "\n"), "%r: %r" % (words, line))
        check(proc.poll() is None, "%r says it long before its answer" % (words,))
    for _, _, proc in procs:
        proc.kill()
        proc.communicate(timeout=60 * SLOW)
    code, out, err = coord(server, "operator", "raft", "list-peers", "-stale")
    check(code == 0 and "waiting for servers: 1 of 3 seen" in out and not err, "what it names works: %d %r %r" % (code, out, err))


class Leaderless(http.server.BaseHTTPRequestHandler):
    """An agent that has waited for a leader."""

    def do_GET(self):
        self.send_response(500)
        self.end_headers()
        self.wfile.write(b"No cluster leader")
    do_PUT = do_GET

    def log_message(self, *args):
        pass


def refused_without_a_leader():
    """The answer in words for people, where it comes at once; with the hint, since nothing was said before."""
    with http.server.HTTPServer(("127.0.0.1", 0), Leaderless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for words in (["kv", "get", "x"], ["kv", "put", "x", "y"], ["locks"], ["elections"], ["explain", "node"], ["snapshot", "save", os.path.join(FOLDER.name, "x")], ["event", "-name=x"], ["members"]):
            r = subprocess.run([COORD, *words], capture_output=True, text=True, timeout=60 * SLOW, env=dict(os.environ, COORD_HTTP_ADDR="127.0.0.1:%d" % server.server_port))
            check(r.returncode not in (0, 2) and r.stderr.endswith(": no leader; see: coord operator raft list-peers -stale\n"), "%r: %r" % (words, r))
        server.shutdown()


def answers(agent):
    try:
        return agent.request("GET", "/v1/agent/self", timeout=5)[0] == 200
    except OSError:
        return False


run([elections, sessions, nodes_and_checks, a_dead_node, no_leader, refused_without_a_leader])
