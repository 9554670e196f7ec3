"""Keys as they were, and how they changed: at each server and at a client agent, after kills and restarts, and as far back as is kept."""
import base64, json, os, re, subprocess, time
from coordtest import COORD, HERE, SLOW, Agent, Cluster, check, run, settings, undecided, until
from waiters import run_documented


def index_of(agent):
    return int(agent.get("/v1/kv/?keys")[1]["X-Consul-Index"])


def write(agent, key, value, query=""):
    """The index of the change."""
    agent.put("/v1/kv/%s%s" % (key, query), value)
    return agent.get("/v1/kv/" + key)[2][0]["ModifyIndex"]


def ask(agent, path):
    """Again, while servers elect a leader."""
    def answered():
        answer = agent.request("GET", path)
        return None if undecided(answer[0], answer[2]) else answer
    return until("an answer to GET " + path, answered)


def raw(agent, path):
    status, _, body = ask(agent, path)
    return status, body.decode().strip()


def value_at(agent, key, at):
    status, body = raw(agent, "/v1/kv/%s?raw&at=%d" % (key, at))
    return body if status == 200 else status


def at(agent, path):
    status, headers, body = ask(agent, path)
    return json.loads(body) if status == 200 else status


def words(agent, *args, told=None):
    r = subprocess.run([COORD, *args[:2], "-http-addr=%s:8500" % agent.ip, *args[2:]], input=told or "", capture_output=True, text=True,
                       timeout=30 * SLOW)
    return r.returncode, r.stdout + r.stderr


def fill(agent):
    """Some changes of some keys; what has to be answered from then on, by path."""
    first = write(agent, "app/color", b"red")
    second = write(agent, "app/color", b"blue")
    agent.put("/v1/kv/app/size?flags=7", b"large")
    both = index_of(agent)
    check(agent.request("DELETE", "/v1/kv/app/color")[0] == 200, "deleted")
    gone = index_of(agent)
    session = json.loads(agent.put("/v1/session/create", {"LockDelay": "0s", "Behavior": "delete"}))["ID"]
    agent.put("/v1/kv/app/lock?acquire=" + session, b"mine")
    held = index_of(agent)
    agent.put("/v1/session/destroy/" + session)
    ended = index_of(agent)
    answers = {}
    for path, wanted in (("/v1/kv/app/color?raw&at=%d" % first, (200, "red")), ("/v1/kv/app/color?raw&at=%d" % (second - 1), (200, "red")),
                         ("/v1/kv/app/color?raw&at=%d" % second, (200, "blue")), ("/v1/kv/app/lock?raw&at=%d" % held, (200, "mine"))):
        answers[path] = wanted
    for path in ("/v1/kv/app/color?at=%d" % gone, "/v1/kv/app/color?at=%d" % (first - 1), "/v1/kv/app/lock?at=%d" % ended, "/v1/kv/none?history"):
        answers[path] = 404
    answers["/v1/kv/app?keys&at=%d" % both] = ["app/color", "app/size"]
    answers["/v1/kv/?keys&separator=/&at=%d" % both] = ["app/"]
    answers["/v1/kv/app?keys&at=%d" % gone] = ["app/size"]
    answers["/v1/kv/app/color?history"] = [{"Index": first, "Kind": "set", "Value": "cmVk", "Flags": 0}, {"Index": second, "Kind": "set", "Value": "Ymx1ZQ==", "Flags": 0},
                                           {"Index": gone, "Kind": "delete"}]
    answers["/v1/kv/app/lock?history"] = [{"Index": held, "Kind": "lock", "Value": "bWluZQ==", "Flags": 0, "Session": session},
                                          {"Index": ended, "Kind": "expire", "Session": session}]
    entries = at(agent, "/v1/kv/app?recurse&at=%d" % both)
    check([(e["Key"], base64.b64decode(e["Value"]), e["Flags"]) for e in entries] == [("app/color", b"blue", 0), ("app/size", b"large", 7)], "%r" % entries)
    check(entries[0]["CreateIndex"] == first and entries[0]["ModifyIndex"] == second, "its indexes are those of then: %r" % entries[0])
    answers["/v1/kv/app?recurse&at=%d" % both] = entries
    answers["/v1/kv/app/size?at=%d" % gone] = entries[1:]
    return answers


def judge(agent, answers, when):
    for path, wanted in list(answers.items()):
        if path.endswith(" times"):
            continue
        seen = raw(agent, path) if isinstance(wanted, tuple) else at(agent, path)
        if path.endswith("?history") and isinstance(seen, list):
            times = [change.pop("Time") for change in seen]
            check(times == sorted(times) and times == answers.setdefault(path + " times", times), "the same times everywhere: %r" % times)
        check(seen == wanted, "%s, at %s: GET %s: %r, wanted %r" % (when, agent.name, path, seen, wanted))


def the_same_everywhere():
    cluster = Cluster().start()
    agent = cluster.agent("a1").start()
    leader = cluster.leader()
    answers = fill(cluster.followers()[0])
    until("all have applied it", lambda: all(index_of(a) >= max(e["Index"] for e in answers["/v1/kv/app/lock?history"]) for a in cluster.servers))
    for asked in cluster.servers + [agent]:
        judge(asked, answers, "at first")
    leader.kill()
    for asked in [s for s in cluster.servers if s is not leader] + [agent]:
        asked.wait_leader(30)
        judge(asked, answers, "after the leader died")
    write(agent, "later", b"1")
    leader.start()
    judge(leader, answers, "when it is back")
    for server in cluster.servers:
        server.kill()
    for server in cluster.servers:
        server.start(wait=False)
    for asked in cluster.servers + [agent]:
        asked.wait_leader(30)
        judge(asked, answers, "after a restart of all")


def bad_input():
    agent = Agent(dev=True).start()
    agent.put("/v1/kv/a", b"1")
    known = index_of(agent)
    rows = [("a?at=", 400, "at"), ("a?at=0", 400, "above 0"), ("a?at=-1", 400, "at"), ("a?at=abc", 400, "at"), ("a?at=1.5", 400, "at"), ("a?at=18446744073709551616", 400, "at"),
            ("a?at=%d&index=5" % known, 400, "nothing to wait for"), ("a?at=18446744073709551615", 400, "is not there yet"),
            ("a?at=%d" % (known + 1000000), 400, "is not there yet"), ("a?history&recurse", 400, "history"), ("a?history&keys", 400, "history"),
            ("a?history&raw", 400, "history"), ("a?history&at=%d" % known, 400, "history"), ("?at=%d" % known, 400, ""), ("?history", 400, ""),
            ("a?at=1", 410, "no longer kept: the history reaches back to"), ("a?recurse&at=1", 410, "no longer kept"), ("a?keys&at=1", 410, "no longer kept"),
            *(("a?at=" + wrong, 400, "at: wanted: an index above 0, a time such as 2026-11-26T10:00:00Z, or how long ago, such as -5m")
              for wrong in ("yesterday", "5m", "-5", "2026-11-26", "2026-11-31T10:00:00Z", "2026-11-26T10:00:00", "-5m-", "1969-12-31T23:59:59Z")),
            ("a?at=2999-01-01T00:00:00Z", 400, "is not there yet: the index is %d (20" % known), ("a?at=1990-01-01T00:00:00Z", 410, "reaches back to "),
            ("a?at=-2h", 410, "-2h is no longer kept: the history reaches back to"), ("a?at=-0s&raw", 200, "1"),
            ("none?at=%d" % known, 404, ""), ("none?recurse&at=%d" % known, 404, ""), ("none?keys&at=%d" % known, 404, ""), ("?keys&at=%d" % known, 200, "a")]
    for path, wanted, word in rows:
        for _ in range(3):      # what is asked again and again may come from a cache
            status, text = raw(agent, "/v1/kv/" + path)
            check(status == wanted and word in text and "\n" not in text, "GET /v1/kv/%s: %d %s" % (path, status, text))
    check(agent.proc.poll() is None, "it lives")


def stamp(seconds, zone="Z"):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + ".%03d%s" % (seconds % 1 * 1000, zone)


def by_time():
    """As of a time, in each way to say one; and back to it."""
    agent = Agent(dev=True).start()
    write(agent, "app/color", b"red")
    agent.put("/v1/kv/app/size?flags=7", b"large")
    before = index_of(agent)
    until("the clock goes on", lambda: stamp(time.time()) > at(agent, "/v1/kv/app/size?history")[0]["Time"])
    asked = time.time()
    then = stamp(asked)
    until("the clock goes on", lambda: stamp(time.time()) > then)
    write(agent, "app/color", b"blue")
    write(agent, "app/new", b"1")
    agent.request("DELETE", "/v1/kv/app/size")
    zone = stamp(asked + 3600, "+01:00")
    for way in (then, zone, zone.replace("+", "%2B"), then.lower(), str(before)):
        status, headers, body = ask(agent, "/v1/kv/app?keys&at=" + way)
        check(status == 200 and json.loads(body) == ["app/color", "app/size"] and int(headers["X-Consul-Index"]) == before, "%s: %d %s" % (way, status, body))
        check(raw(agent, "/v1/kv/app/color?raw&at=" + way) == (200, "red"), way)
    for _ in range(3):          # the same words mean another moment each time
        ago = "-%dms" % ((time.time() - asked) * 1000)
        check(raw(agent, "/v1/kv/app/color?raw&at=" + ago)[1] in ("red", "blue"), ago)
        check(raw(agent, "/v1/kv/app/color?raw&at=-1ms") == (200, "blue"), "now")
    times = [change["Time"] for change in at(agent, "/v1/kv/app/color?history")]
    check(len(times) == 2 and times[0] < then < times[1], "%r, %s" % (times, then))
    check([raw(agent, "/v1/kv/app/color?raw&at=" + t)[1] for t in times] == ["red", "blue"], "each change by its own time")
    restored(agent, then, before)


def restored(agent, then, before):
    code, out = words(agent, "kv", "restore", "-at", then, "-prefix", "-dry-run", "app/")
    check(code == 0 and [line.split() for line in out.splitlines()[:3]] == [["set", "app/color"], ["delete", "app/new"], ["set", "app/size"]] and
          "nothing was changed" in out, out)
    path = "/v1/kv/app?restore&recurse&at=" + then
    told = json.loads(agent.put(path + "&dry-run"))
    check(told == {"At": before, "Set": 2, "Deleted": 1, "Changes": [{"Key": "app/color", "Kind": "set", "Value": "cmVk", "Flags": 0}, {"Key": "app/new", "Kind": "delete"},
                                                                      {"Key": "app/size", "Kind": "set", "Value": "bGFyZ2U=", "Flags": 7}]}, "%r" % told)
    code, out = words(agent, "kv", "restore", "-at", then, "app/new")
    check(code == 1 and "was not there then" in out and raw(agent, "/v1/kv/app/new?raw") == (200, "1"), "%d %s" % (code, out))
    code, out = words(agent, "kv", "restore", "-at", then, "-prefix", "app/")
    check(code == 0 and "to index %d: 2 set, 1 deleted" % before in out, "%d %s" % (code, out))
    entries = at(agent, "/v1/kv/app?recurse")
    check([(e["Key"], base64.b64decode(e["Value"]), e["Flags"]) for e in entries] == [("app/color", b"red", 0), ("app/size", b"large", 7)] and
          entries[0]["ModifyIndex"] == entries[1]["ModifyIndex"], "in one entry: %r" % entries)
    check("Nothing to do" in words(agent, "kv", "restore", "-at", str(before), "-prefix", "app/")[1], "it is so already")
    check([c["Kind"] for c in at(agent, "/v1/kv/app/new?history")] == ["set", "delete"], "the history has it")
    index = index_of(agent)
    for query, wanted, word in (("restore", 400, "at: wanted"), ("restore&at=1", 410, "no longer kept"), ("restore&at=%d" % (index + 1000), 400, "is not there yet"),
                                ("restore&at=%d&flags=1" % index, 400, "not with flags"), ("restore&at=%d&cas=0" % index, 400, "not with cas"),
                                ("restore&at=%d&recurse&delete" % index, 400, "without delete"), ("restore&at=-1y", 400, "how long ago")):
        status, _, body = agent.request("PUT", "/v1/kv/app/color?" + query)
        check(status == wanted and word in body.decode(), "%s: %d %s" % (query, status, body))
    status, _, body = agent.request("PUT", "/v1/kv/app/color?restore&at=%d" % index, b"a body")
    check(status == 400 and "not with a body" in body.decode(), body)
    check(agent.request("PUT", "/v1/kv/?restore&at=%d" % index)[0] == 400 and index_of(agent) == index, "nothing was written")


def errors_are_not_stored():
    """What the left side of a pipe leaves when it fails."""
    agent = Agent(dev=True).start()
    write(agent, "a", b"1")
    code, left = words(agent, "kv", "get", "-at", "1", "a")
    check(code == 1 and "no longer kept" in left, left)
    empty = os.path.join(agent.dir, "empty")
    open(empty, "w").close()
    for source in ("-", "@" + empty):
        for more in ((), ("-base64",)):
            code, out = words(agent, "kv", "put", *more, "a", source)
            check(code == 2 and "is empty, as it is after a command that failed: nothing was sent" in out, "%d %s" % (code, out))
        for args in (("rollout", "create", "web", "v1", source), ("rollout", "put", "web", "v1", source), ("rollout", "schema", "web", source)):
            code, out = words(agent, *args)
            check(code == 2 and "is empty" in out, "%r: %d %s" % (args, code, out))
    check(agent.request("GET", "/v1/kv/config?keys")[0] == 404, "nor is there anything else")
    check(raw(agent, "/v1/kv/a?raw") == (200, "1"), "it is what it was")
    # what is asked of a restore is not done to the key because a word is missing
    for method, more in (("PUT", "at=-1s"), ("PUT", "dry-run"), ("PUT", "delete"), ("DELETE", "dry-run"), ("DELETE", "restore&at=-1s"),
                         ("DELETE", "recurse&dry-run")):
        status, _, said = agent.request(method, "/v1/kv/a?" + more, b"x" if method == "PUT" else None)
        check(status == 400 and b"nothing was done" in said, "%s %s: %d %r" % (method, more, status, said))
    code, out = words(agent, "kv", "restore", "-at", "-1s", "-prefix")
    check(code == 2 and "KEY or PREFIX is wanted" in out, "all keys only when that is said: %d %s" % (code, out))
    check(raw(agent, "/v1/kv/a?raw") == (200, "1"), "and it is still what it was")
    for meant in (("-allow-empty", "a", "-"), ("a", ""), ("a",)):
        write(agent, "a", b"1")
        check(words(agent, "kv", "put", *meant)[0] == 0 and raw(agent, "/v1/kv/a?raw") == (200, ""), "%r" % (meant,))
    check(words(agent, "kv", "put", "a", "-", told="2")[0] == 0 and raw(agent, "/v1/kv/a?raw") == (200, "2"), "a value")


def an_index_that_comes_later():
    """What was said of it before it was there is not said again."""
    agent = Agent(dev=True).start()
    agent.put("/v1/kv/a", b"1")
    later = index_of(agent) + 5
    for _ in range(4):
        check(raw(agent, "/v1/kv/a?raw&at=%d" % later)[0] == 400, "not there yet")
    until("the index", lambda: write(agent, "other", os.urandom(4)) >= later)
    check(value_at(agent, "a", later) == "1", raw(agent, "/v1/kv/a?at=%d" % later))


def a_wait_for_the_next_change():
    agent = Agent(dev=True).start()
    index = write(agent, "a", b"1")
    status, headers, changes = agent.get("/v1/kv/a?history")
    check(int(headers["X-Consul-Index"]) == index and [c["Index"] for c in changes] == [index], "%r" % changes)
    watch = subprocess.Popen([COORD, "kv", "put", "-http-addr=%s:8500" % agent.ip, "a", "2"], stdout=subprocess.DEVNULL)
    status, headers, changes = agent.get("/v1/kv/a?history&index=%d&wait=60s" % index, timeout=70)
    check(len(changes) == 2 and int(headers["X-Consul-Index"]) == changes[1]["Index"] > index, "woken by the next: %r" % changes)
    check(watch.wait(20) == 0, "written")


def so_much_is_kept():
    agent = Agent(settings(history_changes=20, history_age="2s"), dev=True).start()
    marks = [write(agent, "a", b"%d" % i) for i in range(60)]
    until("the leader's settings count", lambda: write(agent, "a", os.urandom(4)) and raw(agent, "/v1/kv/a?at=%d" % marks[0])[0] == 410)
    rows = lambda: int(re.search(r"\ncoord_history_rows (\d+)\n", agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()).group(1))
    until("the gauge counts what is kept", lambda: write(agent, "a", os.urandom(4)) and 0 < rows() <= 40, 30)
    last = write(agent, "a", b"last")
    check(value_at(agent, "a", last) == "last" and len(at(agent, "/v1/kv/a?history")) <= 20, "the newest are there")
    until("by and by all are older than the age", lambda: at(agent, "/v1/kv/a?history") == [], 30)
    until("the gauge says so", lambda: rows() == 0, 30)
    check(raw(agent, "/v1/kv/a?at=%d" % (last - 1))[0] == 410 and raw(agent, "/v1/kv/a?raw")[1] == "last", "the key itself stays")


def none_is_kept():
    agent = Agent(settings(history_changes=0), dev=True).start()
    agent.put("/v1/kv/a", b"1")
    until("the setting counts", lambda: raw(agent, "/v1/kv/a?history")[0] == 400)
    for path in ("a?at=%d" % index_of(agent), "a?at=1", "?recurse&at=5", "a?history", "none?history"):
        status, text = raw(agent, "/v1/kv/" + path)
        check(status == 400 and text == "no history is kept here: the setting coord.history_changes is 0", "%s: %d %s" % (path, status, text))
    check(words(agent, "kv", "get", "-at=5", "a")[0] == 2, "and on the command line")


def a_backup_raises_the_floor():
    agent = Agent(dev=True).start()
    before = write(agent, "a", b"1")
    backup = os.path.join(agent.dir, "backup")
    check(words(agent, "snapshot", "save", backup)[0] == 0, "saved")
    write(agent, "a", b"2")
    code, out = words(agent, "snapshot", "restore", backup)
    check(code == 0, out)
    after = index_of(agent)
    check(value_at(agent, "a", after) == "1", "the present is there")
    for index in (before, after - 1):
        check(raw(agent, "/v1/kv/a?at=%d" % index)[0] == 410, "what was before the backup is not: %d, now %d" % (index, after))
    check(at(agent, "/v1/kv/a?history") == [], "nothing has changed since")
    index = write(agent, "a", b"3")
    check(value_at(agent, "a", index - 1) == "1" and [c["Index"] for c in at(agent, "/v1/kv/a?history")] == [index], "and from there on")


def on_the_command_line():
    agent = Agent(dev=True).start()
    first = write(agent, "app/color", b"red")
    session = json.loads(agent.put("/v1/session/create", {"LockDelay": "0s"}))["ID"]
    second = write(agent, "app/color", b"two\nlines", "?acquire=" + session)
    check(words(agent, "kv", "get", "-at=%d" % first, "app/color") == (0, "red\n"), "get -at")
    check(words(agent, "kv", "get", "-at", str(second), "/app/color") == (0, "two\nlines\n"), "get -at, of the last")
    check(words(agent, "kv", "get", "-recurse", "-at=%d" % first, "app") == (0, "app/color:red\n"), "get -recurse -at")
    check(words(agent, "kv", "get", "-keys", "-separator=", "-at=%d" % first, "a") == (0, "app/color\n"), "get -keys -at")
    code, out = words(agent, "kv", "get", "-at=%d" % (first - 1), "app/color")
    check((code, out) == (1, "Error! No key exists at: app/color\n"), "before it was there: %d %s" % (code, out))
    for value, code, word in (("0", 2, "above 0"), ("x", 2, "how long ago"), ("", 2, "how long ago"), ("-5h", 1, "no longer kept"), ("1", 1, "no longer kept"), ("99999999", 2, "not there yet")):
        seen = words(agent, "kv", "get", "-at=" + value, "app/color")
        check(seen[0] == code and word in seen[1], "-at=%s: %r" % (value, seen))
    code, out = words(agent, "kv", "history", "app/color")
    lines = [line.split() for line in out.splitlines()]
    times = [line.pop(1) for line in lines]
    check(code == 0 and lines == [["INDEX", "KIND", "SESSION", "VALUE"], [str(first), "set", "-", "red"],
                                  [str(second), "lock", session, "base64:dHdvCmxpbmVz"]], "history: %d %s" % (code, out))
    check(times == ["TIME"] + [c["Time"] for c in at(agent, "/v1/kv/app/color?history")], "history: %r" % times)
    code, out = words(agent, "kv", "history", "-json", "/app/color")
    check(code == 0 and [c["Kind"] for c in json.loads(out)] == ["set", "lock"], "history -json: %s" % out)
    code, out = words(agent, "kv", "history", "none")
    check(code == 1 and out == "Error! No key exists at: none, and none did as far back as changes are kept\n", "%d %s" % (code, out))
    for args in ([], ["a", "b"], [""], ["/"], ["-jason", "a"]):
        check(words(agent, "kv", "history", *args)[0] == 2, "wrong arguments: %r" % args)


def as_documented():
    """The examples of docs/history.md, one after the other."""
    with open(os.path.join(HERE, "../../docs/history.md")) as f:
        examples = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
    check(len(examples) == 3, "they are found")
    out = run_documented(Agent(dev=True).start(), "\n".join(examples))
    check('"Kind":"set"' in out and '"Set":1,"Deleted":0' in out and '["app/color","app/size"]' in out, out)


if __name__ == "__main__":
    run([the_same_everywhere, bad_input, by_time, errors_are_not_stored, an_index_that_comes_later, a_wait_for_the_next_change, so_much_is_kept, none_is_kept,
         a_backup_raises_the_floor, on_the_command_line, as_documented])
