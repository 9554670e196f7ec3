"""Rollouts: 200 callers that follow a configuration in stages, guards that stop it, a leader that dies in the middle, the way back; clients that only
know keys. Files: test_rollout_files.py. OpenFeature: test_openfeature.py."""
import concurrent.futures, http.client, json, os, re, signal, subprocess, sys, tempfile, threading, time
from coordtest import COORD, HERE, SLOW, Agent, Cluster, check, configuration, run, until
from waiters import cluster_and_agent, page, run_documented, want

CALLERS = 200


def crowded():
    """A configuration for many callers that come from one address."""
    return configuration(limits={"http_max_conns_per_client": 2 * CALLERS})


def publish(agent, name, *versions):
    for v in versions:
        check(want(agent, "PUT", "/v1/rollout/%s/versions/%s" % (name, v), json.dumps({"v": v})) is True, v)


def stage(agent, name, version, **keys):
    return want(agent, "PUT", "/v1/rollout/%s/current" % name, dict(keys, Version=version))


def change(agent, name, verb):
    return want(agent, "PUT", "/v1/rollout/%s/%s" % (name, verb))


def status(agent, name):
    return want(agent, "GET", "/v1/rollout/%s/status" % name)


def story(agent, name):
    """The oldest first, without publications."""
    return [(c["Kind"], c["By"], c["To"], c["Percent"]) for c in reversed(want(agent, "GET", "/v1/rollout/%s/history" % name)) if c["Kind"] != "publish"]


def command(agent, *args):
    return subprocess.run([COORD, "rollout", args[0], "-http-addr=%s:8500" % agent.ip, *args[1:]], capture_output=True, text=True, timeout=60 * SLOW)


def words(agent, *args, code=0):
    done = command(agent, *args)
    check(done.returncode == code, done)
    return done.stdout


def refused(agent, *args):
    """Why."""
    done = command(agent, *args)
    check(done.returncode in (1, 2) and not done.stdout, done)
    return done.stderr


class Follower(threading.Thread):
    """A caller: asks, waits for his version, acknowledges it, or refuses one. `seen`: versions in order."""

    def __init__(self, agents, name, number, node="", refuses=None, acks=False, wait=20):
        super().__init__(daemon=True)
        self.agents, self.name_, self.id, self.node, self.refuses, self.acks = agents, name, "caller-%d" % number, node, refuses, acks
        self.number, self.seen, self.answers, self.stop, self.wrong, self.wait = number, [], 0, False, None, wait
        self.start()

    def run(self):
        index = 0
        while not self.stop:
            agent = self.agents[self.number % len(self.agents)]
            try:
                status, headers, body = agent.request("GET", "/v1/rollout/%s?id=%s&node=%s&wait=%ds&index=%d" % (self.name_, self.id, self.node, self.wait, index),
                                                       timeout=2 * self.wait + 30 * SLOW)
                if status != 200:
                    time.sleep(0.2)
                    continue
                now = json.loads(body)
                self.answers += 1
                if now["Document"] != {"v": now["Version"]} or now["Index"] < index:
                    self.wrong = now
                if not self.seen or self.seen[-1] != now["Version"]:
                    self.seen.append(now["Version"])
                    if self.acks or now["Version"] == self.refuses:
                        ok = "false&reason=no" if now["Version"] == self.refuses else "true"
                        agent.request("PUT", "/v1/rollout/%s/ack?id=%s&node=%s&version=%s&ok=%s" % (self.name_, self.id, self.node, now["Version"], ok), timeout=30 * SLOW)
                index = now["Index"]
            except (OSError, http.client.HTTPException):
                self.number += 1                     # the next server
                time.sleep(0.1)


def followers(agents, name, count=CALLERS, **keys):
    all_ = [Follower(agents, name, i, **keys) for i in range(count)]
    until("all callers have a version", lambda: all(f.seen for f in all_), 60)
    return all_


def end(all_):
    for f in all_:
        f.stop = True
        check(not f.wrong, f.wrong)


def on(all_, version):
    return [f for f in all_ if f.seen[-1] == version]


def staged_by_percent():
    """Each step wakes those who come in and nobody else, on servers and client agents; back is one command."""
    cluster = Cluster(3, crowded()).start()
    agent = cluster.agent("a1", crowded()).start(wait=False).wait_leader(30)
    everybody = cluster.servers + [agent]
    publish(agent, "web", "v1", "v2", "v3")
    stage(agent, "web", "v1")
    pointer = [agent.get("/v1/kv/config/web/current")[1]["X-Consul-Index"]]
    keys = []

    def key_reader():                                # knows keys and nothing else
        while len(keys) < 3:
            code, headers, body = cluster.servers[1].request("GET", "/v1/kv/config/web/current?raw&wait=60s&index=" + pointer[0], timeout=90 * SLOW)
            if code == 200 and headers["X-Consul-Index"] != pointer[0]:
                pointer[0] = headers["X-Consul-Index"]
                keys.append(body.decode())
    reader = threading.Thread(target=key_reader, daemon=True)
    reader.start()
    all_ = followers(everybody, "web", wait=500)             # a wait that ended by its time would be an answer too
    check(len(on(all_, "v1")) == CALLERS, "everybody begins with v1")
    answers, had = [f.answers for f in all_], set()
    for percent in (1, 20, 50):
        stage(agent, "web", "v2", Percent=percent, Guard={"MaxFailing": 1})
        want_ = [f for f in all_ if json.loads(agent.request("GET", "/v1/rollout/web?id=%s" % f.id)[2])["Version"] == "v2"]
        until("they have it", lambda: set(on(all_, "v2")) == set(want_), 20)
        check(had <= set(want_) and abs(len(want_) / CALLERS * 100 - percent) < 7, "%d of %d at %d %%" % (len(want_), CALLERS, percent))
        had = set(want_)
    for f, before in zip(all_, answers):
        check(f.answers - before == (f in had), "%s was answered %d times, %s" % (f.id, f.answers - before, f.seen))
    check(agent.get("/v1/rollout/web?id=" + next(iter(had)).id)[2]["Stage"]["Percent"] == 50, "it is the stage's")
    change(agent, "web", "promote")
    until("all have v2", lambda: len(on(all_, "v2")) == CALLERS, 20)
    check(all(f.seen == ["v1", "v2"] for f in all_), "each moved once")
    stage(agent, "web", "v3")
    until("all have v3", lambda: len(on(all_, "v3")) == CALLERS, 20)
    change(agent, "web", "rollback")
    until("all are back", lambda: all(f.seen == ["v1", "v2", "v3", "v2"] for f in all_), 20)
    until("who knows keys has followed", lambda: keys == ["v2", "v3", "v2"], 20)
    check([s[0] for s in story(agent, "web")] == ["flip", "stage", "stage", "stage", "promote", "flip", "rollback"], story(agent, "web"))
    end(all_)


def a_guard_stops_it():
    agent = Agent(crowded(), dev=True).start()
    publish(agent, "web", "v36", "v37", "v38", "v39")
    stage(agent, "web", "v36")
    # Beside all this: of a stage without an end the guard looks every 5 s.
    publish(agent, "slow", "v1", "v2")
    stage(agent, "slow", "v1")
    stage(agent, "slow", "v2", Steps=[{"Percent": 50}], Guard={"MaxFailing": 0, "OnFail": "rollback"})
    want(agent, "PUT", "/v1/rollout/slow/ack?id=a&version=v2&ok=false&reason=no")

    all_ = [Follower([agent], "web", i, node="n%d" % (i % 4), refuses="v37" if i % 20 == 0 else None, acks=True) for i in range(200)]
    until("all have acknowledged it", lambda: status(agent, "web")["Callers"] == 200, 30)
    hold = "10m"                                     # no hold ends: the guard looks every 5 s, however long acknowledgements take
    begun = time.monotonic()
    stage(agent, "web", "v37", Steps=[{"Percent": 50, "Hold": hold}], Guard={"MaxFailing": 0.02, "MinSamples": 50, "OnFail": "pause"})
    paused = until("the guard pauses it", lambda: status(agent, "web")["Stage"] and status(agent, "web")["Stage"]["Paused"] and status(agent, "web"), 30)
    check(time.monotonic() - begun < 15 * SLOW and "refused it" in paused["Stage"]["Reason"], paused)
    counts = {v["Version"]: (v["Ok"], v["Refused"]) for v in paused["Versions"]}
    check(counts["v37"][1] == len(paused["Refusals"]) > 0 and all(r["Reason"] == "no" for r in paused["Refusals"]), paused)
    text = words(agent, "status", "web")
    check("%d of 200 on v37, %d refused it" % counts["v37"] in text and "paused: of " in text, text)
    change(agent, "web", "rollback")
    until("all are back", lambda: not on(all_, "v37"), 20)

    # The next one turns nodes critical, and goes back by itself. No caller on these nodes says anything of it.
    for i in range(4):
        agent.put("/v1/catalog/register", {"Node": "n%d" % i, "Address": "10.0.0.%d" % (i + 1), "Service": {"ID": "api", "Service": "api"},
                                           "Check": {"CheckID": "alive", "Name": "alive", "Status": "passing", "ServiceID": "api"}})
    agent.put("/v1/catalog/register", {"Node": "n9", "Address": "10.0.0.9", "Service": {"ID": "api", "Service": "api"}})
    stage(agent, "web", "v38", Steps=[{"Percent": 50, "Hold": hold}], Guard={"Service": "api", "MaxFailing": 0.02, "MinSamples": 50, "OnFail": "rollback"})
    until("the samples", lambda: status(agent, "web")["Judgement"]["Samples"] > 50, 20)
    check(status(agent, "web")["SilentNodes"] == ["n9"], "one node never asked: %r" % status(agent, "web"))
    agent.put("/v1/catalog/register", {"Node": "n1", "Address": "10.0.0.2", "Check": {"CheckID": "alive", "Name": "alive", "Status": "critical", "ServiceID": "api"}})
    until("it goes back by itself", lambda: status(agent, "web")["Stage"] is None, 30)
    last = want(agent, "GET", "/v1/rollout/web/history")[0]
    check((last["Kind"], last["By"], last["From"], last["To"]) == ("rollback", "guard", "v38", "v36") and "\"api\" turned critical" in last["Comment"], last)
    until("all are back", lambda: all(f.seen[-1] == "v36" for f in all_), 20)

    # Callers that never acknowledge anything: nothing is known of the version, so it goes no further.
    for f in all_:
        f.acks = False
    stage(agent, "web", "v39", Steps=[{"Percent": 50, "Hold": "500ms"}], Guard={"MaxFailing": 0.02, "MinSamples": 50, "OnFail": "rollback"})
    until("the guard pauses it", lambda: status(agent, "web")["Stage"]["Paused"], 30)
    check(status(agent, "web")["Stage"]["Reason"] == "inconclusive: 0 of at least 50 callers have acknowledged it", status(agent, "web"))
    check("0 of 200 on v39, 0 refused it" in words(agent, "status", "web"), words(agent, "status", "web"))
    check(story(agent, "web")[-1] == ("pause", "guard", "v39", 50), story(agent, "web"))

    until("the guard has looked at the other one", lambda: status(agent, "slow")["Stage"] is None, 30)
    check(story(agent, "slow")[-1][:3] == ("rollback", "guard", "v1"), story(agent, "slow"))
    end(all_)


def the_leader_dies_in_the_middle_of_steps():
    cluster, agent = cluster_and_agent()
    publish(agent, "web", "v1", "v2")
    stage(agent, "web", "v1")
    all_ = followers([agent] + cluster.servers, "web", 60, acks=True)
    stage(agent, "web", "v2", Steps=[{"Percent": p, "Hold": "1500ms"} for p in (10, 40, 70)], Guard={"MaxFailing": 0.5})
    until("the first step", lambda: status(agent, "web")["Stage"]["Position"] >= 1, 20)
    leader = cluster.leader()
    before = {f.id for f in on(all_, "v2")}
    leader.kill()
    rest = [s for s in cluster.servers if s is not leader]
    until("it goes on", lambda: any(try_current(s) == "v2" for s in rest), 60)
    steps = until("the story", lambda: [s for s in story(rest[0], "web") if s[0] != "flip"], 20)
    check(steps == [("stage", "node a1", "v2", 10), ("advance", "step", "v2", 40), ("advance", "step", "v2", 70), ("promote", "step", "v2", 100)], "each step once: %r" % steps)
    times = [c["Time"] for c in reversed(want(rest[0], "GET", "/v1/rollout/web/history"))][-4:]
    check(all(b - a >= 1450 for a, b in zip(times, times[1:])), "no hold is cut short: %r" % times)
    until("all have it", lambda: len(on(all_, "v2")) == len(all_), 60)
    check(all(f.seen == ["v1", "v2"] for f in all_) and before, "nobody changed sides: %r" % [f.seen for f in all_ if f.seen != ["v1", "v2"]])
    end(all_)


def try_current(server):
    try:
        code, _, body = server.request("GET", "/v1/rollout/web/status", timeout=5 * SLOW)
        return json.loads(body)["Current"] if code == 200 else None
    except (OSError, http.client.HTTPException):
        return None


PUT = "web: %s is published; `coord rollout stage` gives it to callers\n"


def as_documented_and_as_commands():
    """Every example of docs/rollouts.md, one after the other, against a server that knows nothing; then the commands."""
    agent = Agent(dev=True).start()
    text = page("rollouts.md")
    said = run_documented(agent, "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S)))
    for expected in ("web: v1 for everybody\n", "web: v2 for 1 % of the callers, v1 for the others\n", "step 1 of 2\n", "50 % at ", " (in 4m", "rollback when more than 2 % fail, of 50 or more; now 0 of 0", "0 of 0 on v2, 0 refused it\n", "too green", "old: there is no such rollout any more\n", '"Version":"v1"', '"MinSamples":50', '"variant":"v1"'):
        check(expected in said, "%r in %s" % (expected, said))
    program = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    check(len(program.splitlines()) <= 20, "twenty lines")
    client = subprocess.Popen([sys.executable, "-c", program, "http://%s:8500" % agent.ip, "py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        check(client.stdout.readline() == "v1 {'Color': 'blue'}\n", "the first")
        check(words(agent, "put", "web", "v3", '{"Color":"red"}') == PUT % "v3", "the same once more")
        check(words(agent, "stage", "-percent", "100", "web", "v3") == "web: v3 for everybody\n", "for everybody")
        check(client.stdout.readline() == "v3 {'Color': 'red'}\n", "callback")
        words(agent, "rollback", "web")
        check(client.stdout.readline() == "v1 {'Color': 'blue'}\n", "back")
        until("it has acknowledged it", lambda: {"Version": "v1", "Ok": 2, "Refused": 0} in status(agent, "web")["Versions"], 20)
        client.send_signal(signal.SIGINT)
        check(client.communicate(timeout=20 * SLOW) == ("", "") and client.returncode == -signal.SIGINT, "it ends in silence")
    finally:
        client.kill()
    text = words(agent, "stage", "-step", "1:5m", "-step", "50:10m", "-max-failing", "0.02", "-service", "api", "-comment", "slowly", "web", "v3")
    check(text.startswith("web: v3 for 1 % of the callers, v1 for the others\n  since ") and "step 1 of 2, \"slowly\"\n  next     50 % at " in text, text)
    row = [line for line in words(agent, "list").splitlines() if line.startswith("web ")][0]
    check("v3 1 %" in row and "50 % in 4m5" in row and row.endswith("slowly"), row)
    for wrong, said in ((("-step", "abc"), '-step: "abc" is not PERCENT:HOLD'), (("-step", "10:soon"), '-step: "10:soon" is not PERCENT:HOLD'),
                        (("-step", "1,2"), '-step: "1,2" is not'), (("-percent", "x"), '-percent: "x" is not a number'), (("-percent", "07"), '-percent: "07" is not'),
                        (("-max-failing", "1."), '-max-failing: "1." is not a number')):
        told = refused(agent, "stage", *wrong, "web", "v3")
        check(said in told and told.count("\n") == 1, told)
    words(agent, "pause", "-comment", "lunch", "web")
    check("paused: lunch, since 20" in words(agent, "status", "web") and "resume begins its hold anew" in words(agent, "status", "web"), "paused")
    words(agent, "resume", "web"), words(agent, "promote", "web")
    check(words(agent, "get", "-id", "x", "web") == '{"Color":"red"}' and words(agent, "get", "-version", "-id", "x", "web") == "v3\n", "get")
    check(words(agent, "ack", "-id", "cli", "-version", "v3", "web") == "web: acknowledged\n", "acknowledged")
    agent.put("/v1/rollout/web/ack?id=liar&version=v3&ok=false&reason=%1b%5b2J%0Aweb:%20v9%20for%20everybody")
    told = words(agent, "status", "web")
    check("\033" not in told and not any(line.startswith("web: v9") for line in told.splitlines()), "what a caller says is no line of the page: %r" % told)
    check("1 of 4 on v3, 1 refused it" in words(agent, "status", "web"), words(agent, "status", "web"))
    check("promote" in words(agent, "history", "web") and re.search(r"UTC +stage .*slowly", words(agent, "history", "web")), "history")
    diff = words(agent, "diff", "web", "v1", "v3", code=1)
    check("--- v1" in diff and '+{"Color":"red"}' in diff, diff)
    check("have to fit the schema" in words(agent, "schema", "web", '{"required":["Color"]}'), "schema")
    check(agent.request("DELETE", "/v1/rollout/web?cas=1")[0] == 412, "another index")
    words(agent, "delete", "-keys", "web"), words(agent, "delete", "web")
    check("web" not in words(agent, "list") and agent.request("GET", "/v1/rollout/web/status")[0] == 404, "deleted")
    check(agent.request("GET", "/v1/kv/config/web/v1")[0] == 404, "with its keys")


def create_and_put():
    agent = Agent(dev=True).start()
    check(words(agent, "create", "-comment", "first", "web", "v1", '{"a":1}') == "web: v1 for everybody\n", "created")
    last = want(agent, "GET", "/v1/rollout/web/history")[0]
    check((last["Kind"], last["To"], last["Comment"]) == ("flip", "v1", "first") and status(agent, "web")["Current"] == "v1", last)
    before = want(agent, "GET", "/v1/rollout/web/history")
    for version, document in (("v1", '{"a":1}'), ("v2", "2")):
        check("exists, and v1 is current" in refused(agent, "create", "web", version, document), "there is one already")
    check(want(agent, "GET", "/v1/rollout/web/history") == before and agent.request("GET", "/v1/kv/config/web/v2")[0] == 404, "nothing of that was done")
    check(words(agent, "put", "web", "v2", '{"a":2}') == PUT % "v2" and status(agent, "web")["Current"] == "v1", "a version for nobody")
    check("versions never change" in refused(agent, "put", "web", "v2", "{}"), "versions never change")
    check("the document is wanted" in command(agent, "put", "web", "v3").stderr and agent.request("GET", "/v1/kv/config/web/v3")[0] == 404, "it was forgotten")
    check("is no version" in refused(agent, "diff", "web", "v1", "current"), "the pointer")
    # From a file and from stdin; a version that was put before, or an earlier try, is in nobody's way.
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write('{"from":"a file"}')
        f.flush()
        words(agent, "put", "other", "v0", "0")
        words(agent, "create", "other", "v1", "@" + f.name)
    check(words(agent, "get", "-id", "x", "other") == '{"from":"a file"}', "from a file")
    check("No such file" in refused(agent, "create", "third", "v1", "@/none"), "no file")
    # What does not fit a schema that was there before makes no rollout.
    words(agent, "schema", "strict", '{"required":["a"]}')
    check("does not fit the schema" in refused(agent, "create", "strict", "v1", "{}") and status(agent, "strict")["Current"] == "", "refused")
    check(words(agent, "create", "strict", "v1", '{"a":1}') == "strict: v1 for everybody\n", "and then one that fits")
    # A pointer that was written by hand, before there was a rollout, is taken over: create does not replace it for everybody.
    agent.put("/v1/kv/config/byhand/v7", "7"), agent.put("/v1/kv/config/byhand/current", "v7")
    check("v7 is current" in refused(agent, "create", "byhand", "v8", "8") and status(agent, "byhand")["Current"] == "v7", "taken over")
    # Many at once: one of them has created it.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda i: command(agent, "create", "race", "v%d" % i, str(i)).returncode, range(4)))
    current = status(agent, "race")["Current"]
    check(codes.count(0) == 1 and current == "v%d" % codes.index(0), (codes, current))


def bad_input():
    agent = Agent(dev=True).start()
    publish(agent, "web", "v1", "v2")
    stage(agent, "web", "v1")
    agent.put("/v1/rollout/web/schema", '{"type":"object","properties":{"port":{"maximum":65535}}}')
    current = "/v1/rollout/web/current"
    rows = [("/v1/rollout/web/versions/v1", "other", 400, "JSON"), ("/v1/rollout/web/versions/v1", "{}", 409, "never change"), ("/v1/rollout/web/versions/v3", '{"port":70000}', 400, "/port: a number up to 65535 is wanted"),
            ("/v1/rollout/web/versions/current", "{}", 400, "current"), ("/v1/rollout/web/versions/a%2fb", "{}", 400, "'/'"), ("/v1/rollout/a%2fb/versions/v1", "{}", 400, "'/'"), ("/v1/rollout/" + "x" * 129 + "/versions/v1", "{}", 400, "name"),
            ("/v1/rollout/web/versions/v9", "{\"a\":\"" + "x" * (600 << 10) + "\"}", 413, ""), ("/v1/rollout/web/schema", '{"format":"date"}', 400, "\"format\" is no keyword"), ("/v1/rollout/web/schema", "", 400, "schema"),
            (current, {"Version": "v9"}, 404, "no version"), (current, {}, 400, "Version"), (current, {"Version": "v2", "Percent": 101}, 400, "Percent"), (current, {"Version": "v2", "Percent": -1}, 400, "Percent"), (current, '{"Version":"v2","Percent":NaN}', 400, "JSON"),
            (current, {"Version": "v2", "Percent": "10"}, 400, "Percent"), (current, {"Version": "v2", "Precent": 10}, 400, "Percent"), (current, {"Version": "v2", "Steps": [{"Hold": "1s"}]}, 400, "Steps[0].Percent"),
            (current, {"Version": "v2", "Steps": [{"Percent": 5}, {"Percent": 5}]}, 400, "higher"), (current, {"Version": "v2", "Steps": [{"Percent": 5, "Hold": "1y"}]}, 400, "Hold"), (current, {"Version": "v2", "Guard": {"Service": "a"}}, 400, "MaxFailing"),
            (current, {"Version": "v2", "Steps": [{"Percent": 5, "Hold": 300}]}, 400, "from 10ms"), (current, {"Version": "v2", "Percent": 1e300}, 400, "Percent"), (current, {"Version": "v2", "Percent": 100.001}, 400, "Percent"),
            (current, {"Version": "v2", "Match": {}}, 400, "names no tags"), (current, {"Version": "v2", "Match": {"Nodes": [], "Tags": []}, "Percent": 100}, 400, "names no tags"), (current, {"Version": "v2", "Match": {"Nodes": ["n" * 201]}}, 400, "Nodes"),
            (current, {"Version": "v2", "Guard": {"MaxFailing": 2}}, 400, "MaxFailing"), (current, {"Version": "v2", "Guard": {"MaxFailing": 0, "OnFail": "cry"}}, 400, "OnFail"), (current, {"Version": "v2", "Percent": 5, "Cas": 1}, 412, "Cas"),
            (current, {"Version": "v1", "Percent": 5}, 409, "already"), ("/v1/rollout/web/promote", "", 409, "no stage"), ("/v1/rollout/web/rollback", "", 409, "no version before"), ("/v1/rollout/none/pause", "", 404, "no rollout"), ("/v1/rollout/web/rollback?cas=1", "", 412, "Cas"),
            ("/v1/rollout/web/ack?id=a&version=v9", "", 404, "no version"), ("/v1/rollout/web/ack?version=v1", "", 400, "id"), ("/v1/rollout/web/ack?id=a&version=v1&ok=maybe", "", 400, "ok"), ("/v1/rollout/web/go", "", (404, 405), "")]
    before = want(agent, "GET", "/v1/rollout/web/history")
    for path, body, expected, word in rows:
        code, _, text = agent.request("PUT", path, body if isinstance(body, str) else json.dumps(body))
        text = text.decode()
        check(code in (expected if isinstance(expected, tuple) else (expected,)) and word in text and "\n" not in text.strip(), "%s %.60s: %d %s" % (path[:80], body, code, text))
    check(want(agent, "GET", "/v1/rollout/web/history") == before, "nothing of that was done")
    for path, expected, word in [("/v1/rollout/web", 400, "id"), ("/v1/rollout/none?id=a", 404, "no current version"), ("/v1/rollout/none/status", 404, "does not exist"), ("/v1/rollout/none/schema", 404, "has no schema"), ("/v1/rollout/web?id=" + "x" * 129, 400, "id")]:
        code, _, text = agent.request("GET", path)
        check(code == expected and word in text.decode(), (path, code, text))
    # A pointer to nothing: the document's key is gone.
    agent.request("DELETE", "/v1/kv/config/web/v1")
    code, _, text = agent.request("GET", "/v1/rollout/web?id=a")
    check(code == 404 and json.loads(text)["Format"] == "missing" and json.loads(text)["Version"] == "v1", text)
    # Two operators at once: one of them wins.
    index = status(agent, "web")["ModifyIndex"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda i: agent.request("PUT", current, {"Version": "v2", "Percent": i + 1, "Cas": index})[0], range(8)))
    check(sorted(codes) == [200] + [412] * 7, codes)


if __name__ == "__main__":
    run([staged_by_percent, a_guard_stops_it, the_leader_dies_in_the_middle_of_steps, as_documented_and_as_commands, create_and_put, bad_input])
