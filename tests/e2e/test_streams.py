"""Streams with real processes: servers and agents die, backups become the state, readers stop reading; each change comes once or the
stream says that it cannot know."""
import base64, http.client, json, os, signal, socket, subprocess, sys, tempfile
from coordtest import COORD, SLOW, Agent, Cluster, check, run, settings, until
from streams import Follower, Writer, documented, in_order, stream_socket


def numbers(values):
    return [int(base64.b64decode(v)) for v in values]


def once_each(follower, keys, last):
    """Each value from 1 to `last` of each key, once, in order; and nothing of other keys."""
    in_order(follower.events)
    for key in keys:
        seen = numbers(follower.values(key))
        check(seen == list(range(1, last + 1)), "%s: %d values of %d: %r" % (key, len(seen), last, seen[-10:]))
    check({e for e, _, _ in follower.events} == {"kv"}, {e for e, _, _ in follower.events})
    check({d["Key"] for _, _, d in follower.events} == set(keys), "other keys")


def has_all(follower, keys, last):
    return lambda: all(len(follower.values(k)) >= last for k in keys)


def the_leader_dies_under_it():
    """Three times over, while somebody writes: the client goes on at another server, through an agent whose server dies, or hanging up
    after every few events. Nothing is missing and nothing comes twice."""
    cluster = Cluster(3).start()
    client = cluster.agent("a1").start()
    keys = ["w/a", "w/b"]
    followers = [Follower(cluster.servers, "prefix=w/"), Follower([client], "key=w/a&key=w/b"),
                 Follower(cluster.servers + [client], "prefix=w/a&key=w/b", cut_after=7)]
    writer = Writer(cluster.servers, keys + ["other"])
    for _ in range(3):
        before = writer.number
        until("writes go on", lambda: writer.number > before + 40, 30)
        victim = cluster.leader()
        victim.kill()
        until("writes go on", lambda: writer.number > before + 80, 30)
        victim.start(wait=False)
        victim.wait_leader(30)
    last = writer.stop()
    for follower in followers:
        until("all of it", has_all(follower, keys, last), 30)
        follower.stop()
        once_each(follower, keys, last)
    check(followers[1].statuses == [200], "the agent's stream is one: %r" % followers[1].statuses)
    check(len(followers[2].statuses) > 20, "it hung up %d times" % len(followers[2].statuses))
    print("     %d values of each key; %d streams" % (last, sum(len(f.statuses) for f in followers)))


def documented_clients_survive():
    """Those of docs/streams.md, while the leader dies, while they are stopped for longer than the history reaches back, and when a backup
    becomes the state."""
    cluster = Cluster(3, settings(history_changes=200)).start()
    writer = Writer(cluster.servers, ["jobs/a"])
    folder = tempfile.mkdtemp(prefix="coord-e2e-")
    clients, outputs = [], []
    for language, name, words in (("sh", "follow.sh", ["sh", "follow.sh", "jobs/"]), ("python", "follow.py", [sys.executable, "follow.py"])):
        with open(os.path.join(folder, name), "w") as f:
            f.write(documented(language))
        outputs.append(os.path.join(folder, name + ".out"))
        with open(outputs[-1], "w") as out:
            clients.append(subprocess.Popen(words + [s.ip + ":8500" for s in cluster.servers], stdin=subprocess.DEVNULL, stdout=out, cwd=folder,
                                            start_new_session=True))

    def lines(path):
        with open(path) as f:
            return [line.split(" ", 2) for line in f.read().split("\n")[:-1]]

    def last_value(path):
        for _, _, data in reversed(lines(path)):
            data = json.loads(data)
            data = data[0] if isinstance(data, list) else data
            if data.get("Key") == "jobs/a":
                return int(base64.b64decode(data["Value"]))
        return 0

    def all_have(value):
        return lambda: all(last_value(path) >= value for path in outputs)
    try:
        until("they follow", lambda: all(len(lines(path)) > 20 for path in outputs), 30)
        victim = cluster.leader()
        victim.kill()
        now = writer.number
        until("they go on", all_have(now + 50), 60)
        victim.start(wait=False)
        victim.wait_leader(30)
        for path in outputs:
            said = lines(path)
            check([w[0] for w in said].count("all") == 1, "no gap when a leader dies: %s" % path)
            values = [int(base64.b64decode(json.loads(w[2])["Value"])) for w in said if w[0] == "kv"]
            check(values == list(range(values[0], values[0] + len(values))), "each once: %r" % values)
        leader = cluster.leader()
        for client in clients:
            os.killpg(client.pid, signal.SIGSTOP)
        for i in range(400):
            leader.put("/v1/kv/jobs/big", b"%d-" % i + b"x" * 60000)     # more than the buffers of the connections hold
        leader.request("DELETE", "/v1/kv/jobs/big")
        now = writer.number
        until("more than the history keeps", lambda: writer.number > now + 250, 100)
        for client in clients:
            os.killpg(client.pid, signal.SIGCONT)
        until("they have read anew, and go on", all_have(writer.number), 60)
        until("they said so", lambda: all([w[0] for w in lines(path)].count("all") > 1 for path in outputs))
        backup = leader.request("GET", "/v1/snapshot", timeout=60)[2]
        counts = [[w[0] for w in lines(path)].count("all") for path in outputs]
        until("the restore", lambda: cluster.leader().request("PUT", "/v1/snapshot", backup, timeout=60)[0] == 200, 30)
        until("they have read anew", lambda: all([w[0] for w in lines(p)].count("all") > c for p, c in zip(outputs, counts)), 30)
        now = writer.number
        until("and go on", all_have(now + 20), 60)
    finally:
        writer.stop()
        for client in clients:
            os.killpg(client.pid, signal.SIGKILL)
            client.wait()


def a_backup_becomes_the_state():
    """The streams of all servers and agents say reset, once, and go on."""
    cluster = Cluster(3).start()
    client = cluster.agent("a1").start()
    leader = cluster.leader()
    leader.put("/v1/kv/a", "1")
    followers = [Follower([agent], "key=a&service=none") for agent in cluster.servers + [client]]
    leader.put("/v1/kv/a", "2")
    backup = leader.request("GET", "/v1/snapshot", timeout=60)[2]
    leader.put("/v1/kv/a", "3")
    old = leader.request("GET", "/v1/kv/a")[1]["X-Consul-Index"]
    until("three", lambda: all(len(f.events) == 2 for f in followers))
    check(leader.request("PUT", "/v1/snapshot", backup, timeout=60)[0] == 200, "the restore")
    until("reset", lambda: all(f.events[-1][0] == "reset" for f in followers), 30)
    until("it can be written", lambda: leader.request("PUT", "/v1/kv/a", "4")[0] == 200)
    for follower in followers:
        until("the next", lambda: len(follower.events) == 4)
        follower.stop()
        in_order(follower.events)
        check([e for e, _, _ in follower.events] == ["kv", "kv", "reset", "kv"], follower.events)
        check(numbers(follower.values("a")) == [2, 3, 4], follower.events)
        check(follower.statuses == [200], follower.statuses)
    late = Follower([leader], "key=a&from=" + old)
    until("it is told, too", lambda: late.events and late.events[0][0] == "reset")
    late.stop()


def a_reader_that_stops_reading():
    """Much more passes by than the history keeps: the server's memory stays as it was, the client hears of the gap, and what comes then is
    complete."""
    server = Agent(settings(history_bytes=1 << 20, history_changes=3000)).start()
    value = b"x" * 100000
    total = int((1000 << 20) // len(value) // SLOW)
    server.put("/v1/kv/big/0", b"first")
    s = stream_socket(server, "prefix=big/", receive=65536)
    until("it begins", lambda: s.recv(65536, socket.MSG_PEEK))
    c = http.client.HTTPConnection(server.ip, 8500, timeout=60)

    def write(i):
        c.request("PUT", "/v1/kv/big/%d" % (i % 50), b"%d-" % i + value)
        check(c.getresponse().read().strip() == b"true", "write %d" % i)
    for i in range(200):
        write(i)
    before = server.rss_kib()
    for i in range(200, total):
        write(i)
    after = server.rss_kib()
    print("     %d MiB passed; the server had %d MiB, then %d MiB" % (total * len(value) >> 20, before >> 10, after >> 10))
    check(after - before < 24 << 10, "the server grew by %d KiB" % (after - before))
    seen, data = [], b""

    def take():
        nonlocal data
        data += s.recv(1 << 20)
        while b"\n\n" in data:
            event, data = data.split(b"\n\n", 1)
            seen.append(event[:400])
        return any(b"event: gap" in e for e in seen)
    until("gap", take, 30, 0)
    gap = next(i for i, e in enumerate(seen) if b"event: gap" in e)
    write(total)
    until("what comes after it", lambda: take() and any(b'"Key":"big/%d"' % (total % 50) in e for e in seen[gap:]), 30, 0)
    s.close()


def a_slow_reader_gets_all_of_it():
    """As long as the history reaches back."""
    agent = Agent().start()
    slow = Follower([agent], "prefix=s/", pause=0.003)
    keys = ["s/%d" % i for i in range(20)]
    writer = Writer([agent], keys)
    until("much is written", lambda: writer.number >= 60, 60)
    last = writer.stop()
    until("all of it", has_all(slow, keys, last), 60)
    slow.stop()
    once_each(slow, keys, last)
    check(slow.statuses == [200], slow.statuses)


def an_entry_is_cut_in_two():
    """Several changes of one entry share its index; whoever has some of them gets the others at any server."""
    cluster = Cluster(3).start()
    leader = cluster.leader()
    for i in range(5):
        leader.put("/v1/kv/t/%d" % i, "1")
    follower = Follower(cluster.servers, "prefix=t/", cut_after=1)
    whole = Follower([leader], "prefix=t/")
    status, _, _ = leader.request("DELETE", "/v1/kv/t/?recurse")
    check(status == 200, status)
    leader.put("/v1/kv/t/0", "2")
    for one in (follower, whole):
        until("all six", lambda: len(one.events) >= 6)
        one.stop()
        check(len(one.events) == 6, one.events)
        in_order(one.events)
        ids = [p for _, p, _ in one.events]
        check([p.count(".") for p in ids] == [2, 2, 2, 2, 0, 0], ids)
        check(len({p.split(".")[0] for p in ids[:5]}) == 1, ids)
        check(sorted(d["Key"] for _, _, d in one.events[:5]) == ["t/%d" % i for i in range(5)], one.events)
        check(all(d == {"Key": d["Key"], "Deleted": True} for _, _, d in one.events[:5]), one.events)
    check(follower.events == whole.events, "the same at all servers")


def services_nodes_and_locks():
    """All kinds in one stream; with delta what changed of a service; names in any case."""
    agent = Agent().start()
    whole, parts = Follower([agent], "service=API&node=N1&lock=l"), Follower([agent], "service=api&delta")

    def register(port):
        agent.put("/v1/catalog/register", {"Node": "web1", "Address": "10.0.0.9", "Service": {"Service": "Api", "ID": "x%d" % port, "Port": port}})
    register(1), register(2)
    agent.put("/v1/catalog/deregister", {"Node": "web1", "ServiceID": "x1"})
    session = json.loads(agent.put("/v1/session/create", {}))["ID"]
    agent.put("/v1/lock/l/acquire?session=" + session)
    agent.put("/v1/session/destroy/" + session)
    until("all of it", lambda: len([e for e, _, _ in whole.events if e == "service"]) >= 3 and [e for e, _, _ in whole.events].count("lock") >= 2)
    services = [d for e, _, d in whole.events if e == "service"]
    check([sorted(i["Service"]["Port"] for i in d) for d in services] == [[1], [1, 2], [2]], services)
    check(services[-1] == agent.get("/v1/health/service/api")[2], "as the endpoint shows it")
    locks = [d for e, _, d in whole.events if e == "lock"]
    check(locks[0]["Name"] == "l" and len(locks[0]["Holders"]) == 1, locks)
    check(locks[-1] == agent.get("/v1/lock/l")[2] or locks[-1].get("Deleted"), locks)
    until("the parts", lambda: len(parts.events) >= 3)
    changes = [([i["Service"]["ID"] for i in d["Changed"]], d["Removed"]) for _, _, d in parts.events]
    check(changes == [(["x1"], []), (["x2"], []), ([], [{"Node": "web1", "ID": "x1"}])], changes)
    for follower in (whole, parts):
        follower.stop()
        in_order(follower.events)


def without_chunks():
    """HTTP/1.0, as proxies speak it: the events as they are, until the connection ends."""
    agent = Agent().start()
    with socket.create_connection((agent.ip, 8500), timeout=30 * SLOW) as s:
        s.sendall(b"GET /v1/watch?key=a HTTP/1.0\r\n\r\n")
        text = b""
        while b": index" not in text:
            text += s.recv(4096)
        check(b"chunked" not in text.lower(), text)
        agent.put("/v1/kv/a", b"x" * 100000)
        while not text.endswith(b"}\n\n"):
            text += s.recv(65536)
        event = text.split(b"data: ")[1]
        check(len(base64.b64decode(json.loads(event)["Value"])) == 100000, event[:200])


def bad_questions():
    server = Agent().start()
    client = Agent("-retry-join=" + server.ip, server=False, name="a1").start()
    server.put("/v1/kv/a", "1")
    many = "&".join("key=k%d" % i for i in range(10000))
    for agent in (server, client):
        cases = [("", 400, "nothing to follow"), ("key=", 400, ""), ("key=" + "x" * 8193, 400, ""), ("service=" + "x" * 513, 400, ""),
                 ("key=a&from=-1", 400, "from"), ("key=a&from=0", 400, "from"), ("key=a&from=x", 400, "from"), ("key=a&from=", 400, "from"),
                 ("key=a&from=1.1", 400, "from"), ("key=a&from=1.0.1", 400, "from"), ("key=a&from=1.1.0", 400, "from"), ("key=a&from=1.9.1", 400, "from"),
                 ("key=a&from=1.1.1.1", 400, "from"), ("key=a&from=18446744073709551616", 400, "from"),
                 ("key=a&from=18446744073709551615", 400, "from"), ("key=a&from=18446744073709551614", 400, "not there yet"),
                 ("key=a&from=1000000", 400, "not there yet"), ("key=a&cluster=0123456789abcdef", 409, "another cluster"),
                 ("key=a&from=1000000&cluster=0123456789abcdef", 409, "another cluster"), ("key=a&dc=other", 500, ""),
                 ("&".join("key=%d" % i for i in range(1025)), 400, "too many"), ("lock=" + "x" * 257, 400, "")]
        for question, status, word in cases:
            got, _, body = agent.request("GET", "/v1/watch?" + question)
            check(got == status and word in body.decode(), "%s: %d %r" % (question[:60], got, body))
        got, _, body = agent.request("GET", "/v1/watch?" + many)
        check(got in (400, 414, 431), "10,000 subscriptions: %d %r" % (got, body[:100]))
        got, _, body = agent.request("GET", "/v1/watch?key=a", headers={"Last-Event-ID": "nonsense"})
        check(got == 400 and b"Last-Event-ID" in body, body)
        check(agent.request("HEAD", "/v1/watch?key=a")[0] == 200, "HEAD")
        check(agent.request("PUT", "/v1/watch?key=a")[0] == 405, "PUT")
        thousand = Follower([agent], "&".join("key=k%d" % i for i in range(1000)))
        agent.put("/v1/kv/k999", "1"), agent.put("/v1/kv/k1000", "1"), agent.put("/v1/kv/k0", "1")
        until("two of them", lambda: len(thousand.events) >= 2)
        check([d["Key"] for _, _, d in thousand.events] == ["k999", "k0"], thousand.events)
        thousand.stop()
        agent.request("DELETE", "/v1/kv/k?recurse")
        mine = Follower([agent], "key=a&cluster=" + first_comment(agent))
        mine.stop()
        check(mine.statuses[0] == 200, mine.statuses)


def first_comment(agent):
    with stream_socket(agent, "key=a") as s:
        text = b""
        while b": index " not in text:
            text += s.recv(4096)
    return text.decode().split(": cluster ")[1].split("\n")[0]


def there_are_limits():
    """A stream is a connection and a watch."""
    agent = Agent(settings(http_watches_max=3)).start()
    open_ones = [Follower([agent], "key=a") for _ in range(3)]
    status, _, body = agent.request("GET", "/v1/watch?key=a")
    check(status == 429 and b"limit 3" in body, (status, body))
    open_ones.pop().stop()
    until("there is room again", lambda: has_room(agent))
    for follower in open_ones:
        follower.stop()


def has_room(agent):
    with stream_socket(agent, "key=a") as s:
        return s.recv(100).startswith(b"HTTP/1.1 200")


def comments_come_when_nothing_does():
    """Every 10 s, with the index as it is by then; the server's stop ends the stream as an answer ends."""
    agent = Agent().start()
    follower = Follower([agent], "key=quiet")
    for i in range(20):
        agent.put("/v1/kv/other", "%d" % i)
    index = int(agent.request("GET", "/v1/kv/other")[1]["X-Consul-Index"])
    until("a comment", lambda: follower.progress >= index, 15)
    check(follower.events == [], follower.events)
    follower.over = True
    code, seconds = agent.stop()
    check(code == 0 and seconds < 5 * SLOW, (code, seconds))
    follower.join(10 * SLOW)
    check(follower.ended == 1, "the stream's end was no clean one")


def the_command_goes_on():
    """coord watch -stream: an event a line, over the death of servers and a gap; it ends on SIGINT."""
    cluster = Cluster(3, settings(history_changes=50)).start()
    addresses = ",".join(s.ip + ":8500" for s in cluster.servers)
    leader = cluster.leader()
    leader.put("/v1/kv/w/a", "0")
    old = leader.request("GET", "/v1/kv/w/a")[1]["X-Consul-Index"]

    def begin(*words):
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        return subprocess.Popen([COORD, "watch", "-stream", "-http-addr=" + addresses, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err), out, err

    def lines(out):
        out.seek(0)
        return [json.loads(line) for line in out.read().split("\n")[:-1]]
    command, out, _ = begin("-prefix", "w/", "-service=none", "-from", old)
    writer = Writer(cluster.servers, ["w/a"])
    until("it follows", lambda: len(lines(out)) > 20)
    cluster.leader().kill()
    now = writer.number
    until("it goes on", lambda: writer.number > now + 50 and len(lines(out)) > now + 50, 30)
    last = writer.stop()
    until("all of it", lambda: len(lines(out)) >= last)
    command.send_signal(signal.SIGINT)
    check(command.wait(10 * SLOW) == 0, "SIGINT is no failure")
    seen = lines(out)
    check(all(list(line) == ["Index", "Event", "Data"] and line["Event"] == "kv" for line in seen), seen[:3])
    check(numbers([line["Data"]["Value"] for line in seen]) == list(range(1, last + 1)), "each once")
    check([line["Index"] for line in seen] == [line["Data"]["ModifyIndex"] for line in seen], "the index")
    late, out, err = begin("-key=w/a", "-from=" + old)
    until("a gap", lambda: lines(out))
    check(lines(out)[0]["Event"] == "gap" and lines(out)[0]["Data"]["Index"] == lines(out)[0]["Index"] > int(old), lines(out))
    cluster.leader().request("PUT", "/v1/kv/w/a", "new", timeout=20 * SLOW)
    until("what comes after it", lambda: len(lines(out)) == 2)
    late.send_signal(signal.SIGTERM)
    check(late.wait(10 * SLOW) == 0, "SIGTERM is no failure")
    for words, code, word in ((["-key=a", "-from=-1"], 1, "from"), ([], 2, "nothing to follow"), (["-key=a", "program"], 2, "no program"),
                              (["-key=a", "-form=1"], 2, "-from")):
        wrong, _, err = begin(*words)
        check(wrong.wait(20 * SLOW) == code, words)
        err.seek(0)
        check(word in err.read(), words)


run([the_leader_dies_under_it, documented_clients_survive, a_backup_becomes_the_state, a_reader_that_stops_reading, a_slow_reader_gets_all_of_it, an_entry_is_cut_in_two,
     services_nodes_and_locks, without_chunks, bad_questions, there_are_limits, comments_come_when_nothing_does, the_command_goes_on])
