"""Streams with real processes: servers and agents die, backups become the state, questions make no sense; each change comes once."""
import base64, json, re, socket, threading, time
from coordtest import SLOW, Agent, Cluster, check, run, settings, until
from test_client_agent import client_agent
from streams import Follower, Writer, has_all, in_order, numbers, once_each, stream_socket


def server_of(cluster, client):
    """That a client agent is connected with."""
    name = re.findall(r"client: connected server=(\S+)", client.log())[-1]
    return next(s for s in cluster.servers if s.name == name)


def the_leader_dies_under_it():
    """Or the server that an agent is connected with, while somebody writes: clients go on at another server, or through the agent, or hang up
    after every few events. Nothing is missing and nothing comes twice."""
    cluster = Cluster(3).start()
    client = cluster.agent("a1").start()
    keys = ["w/a", "w/b"]
    followers = [Follower(cluster.servers, "prefix=w/"), Follower([client], "key=w/a&key=w/b"),
                 Follower(cluster.servers + [client], "prefix=w/a&key=w/b", cut_after=7)]
    writer = Writer(cluster.servers, keys + ["other"])
    for whose in (cluster.leader, lambda: server_of(cluster, client), cluster.leader):
        before = writer.number
        until("writes go on", lambda: writer.number > before + 40, 30)
        victim = whose()
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


def what_woke_a_query():
    """Blocking queries say what woke them: at a server, at a client agent, and not when nothing did."""
    cluster = Cluster().start()
    server = cluster.servers[0]
    client = client_agent(cluster)
    client.start(wait=False).wait_leader(30)
    server.put("/v1/catalog/register", {"Node": "db1", "Address": "10.0.0.9", "Service": {"Service": "db"}, "Check": {"Name": "alive", "CheckID": "alive", "ServiceID": "db", "Status": "passing"}})
    server.put("/v1/kv/jobs/7", b"x")
    causes = {}

    def ask(agent, path):
        cause = None
        while not cause:                                     # a change came before it waited
            index = agent.get("/v1/" + path)[1]["X-Consul-Index"]
            _, headers, _ = agent.request("GET", "/v1/%s?index=%s&wait=60s" % (path, index), timeout=90)
            cause = headers["X-Coord-Cause"]
        causes[agent.ip, path] = (cause, headers["X-Consul-Index"])
    paths = ["health/service/db", "kv/jobs/7"]
    threads = [threading.Thread(target=ask, args=(agent, path)) for agent in (server, client) for path in paths]
    for thread in threads:
        thread.start()
    turn = 0
    while any(thread.is_alive() for thread in threads):      # whoever was not waiting yet is woken by the next change
        status = ("critical", "passing")[turn % 2]
        server.put("/v1/catalog/register", {"Node": "db1", "Address": "10.0.0.9", "Check": {"Name": "alive", "CheckID": "alive", "ServiceID": "db", "Status": status}})
        server.request("PUT" if turn % 2 else "DELETE", "/v1/kv/jobs/7", b"x" if turn % 2 else None)
        turn += 1
        for thread in threads:
            thread.join(0.2)
    changes = ("passing->critical", "critical->passing")
    for agent in (server, client):
        for path, wanted in (paths[0], ["service db " + c for c in changes]), (paths[1], ["key jobs/7 deleted", "key jobs/7 created"]):
            said, index = causes[agent.ip, path]
            check(said in ["%s index %s" % (cause, index) for cause in wanted], "%s: %s, index %s" % (path, said, index))
    _, headers, _ = server.request("GET", "/v1/kv/jobs/7?index=%s&wait=10ms" % causes[server.ip, "kv/jobs/7"][1])
    check(headers["X-Coord-Cause"] is None, "nothing woke it: %s" % headers["X-Coord-Cause"])
    check(server.get("/v1/health/service/db")[1]["X-Coord-Cause"] is None, "it did not wait")
    # Its index rises with a check that the answer does not show: it is not woken, and ends with its time. A query that comes behind the first change is
    # answered at once, and told of it: another one is begun.
    for agent in (server, client):
        for attempt in range(5):
            index = agent.get("/v1/catalog/node/db1")[1]["X-Consul-Index"]
            ended, first, begun = [], None, time.monotonic()
            thread = threading.Thread(target=lambda: ended.append(agent.request("GET", "/v1/catalog/node/db1?index=%s&wait=2s" % index)[1]))
            thread.start()
            while thread.is_alive():
                thread.join(0.2)
                turn += 1
                server.put("/v1/catalog/register", {"Node": "db1", "Address": "10.0.0.9", "Check": {"Name": "alive", "CheckID": "alive", "ServiceID": "db", "Status": ("critical", "passing")[turn % 2]}})
                first = first or int(server.get("/v1/catalog/node/db1")[1]["X-Consul-Index"])
            if time.monotonic() - begun >= 2:
                break
            check(int(ended[0]["X-Consul-Index"]) <= first, "it waited, and a later change woke it: %r" % list(ended[0].items()))
        check(int(ended[0]["X-Consul-Index"]) > int(index) and ended[0]["X-Coord-Cause"] is None, "%r" % list(ended[0].items()))


def it_begins_where_its_client_stands():
    """The first comment is the position that the client has, not one behind events that are still on their way."""
    agent = Agent().start()
    for i in range(600):
        agent.put("/v1/kv/m/%d" % i, b"x")
    before = agent.get("/v1/kv/m/?keys")[1]["X-Consul-Index"]
    agent.request("DELETE", "/v1/kv/m/?recurse")             # more events than one answer has
    for start in (before, None):
        with stream_socket(agent, "prefix=m/&from=" + (start or inside)) as s:
            text = b""
            while text.count(b"data: ") < (600 if start else 590):
                text += s.recv(65536)
        comments = re.findall(rb"\n: index (\S+)\n", text)
        check(comments[0].decode() == (start or inside) and len(comments) == 1, "%r, began after %s" % (comments, start or inside))
        inside = re.findall(rb"\nid: (\S+)\n", text)[9].decode()
        check("." in inside, inside)


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


run([the_leader_dies_under_it, a_backup_becomes_the_state, an_entry_is_cut_in_two, services_nodes_and_locks, what_woke_a_query, it_begins_where_its_client_stands, without_chunks, bad_questions,
     there_are_limits])
