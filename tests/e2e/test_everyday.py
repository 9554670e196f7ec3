"""Everyday work on any agent: join, leave, force-leave, maintenance, reload, on servers and client agents alike."""
import base64, json, os, re, select, signal, socket, subprocess, threading
from coordtest import COORD, SLOW, Agent, Cluster, check, free_address, run, settings, until
from test_client_agent import client_agent, rows, words


def members(agent):
    return {m["Node"]: m["Status"] for m in rows(words(agent, "members"))}


def joining():
    cluster = Cluster().start()
    nobody = free_address()
    agent = Agent("-retry-join=" + nobody, server=False, name="a1").start(wait=False)
    until("it answers", lambda: listening(agent))
    until("it says why it is alone", lambda: "no server can be reached: %s:8300 refuses connections\n" % nobody in agent.log())
    told = words(agent, "join", nobody, code=1)
    check("Error joining address '%s'" % nobody in told and "connection refused" in told and "Failed to join any nodes." in told, told)
    for address, why in not_joined(agent):
        told = words(agent, "join", address, code=1)
        check(why in told, "%s: %s" % (address, told))
    def joined():                        # a server that is silent for 2 s is no server
        told = words(agent, "join", cluster.servers[1].ip, code=None)
        check(told == "Successfully joined cluster by contacting 1 nodes.\n" or "no answer" in told, told)
        return "no answer" not in told
    until("joined", joined)
    agent.wait_leader(20)
    check("At least one address" in words(agent, "join", code=2), "an address is wanted")
    until("members", lambda: members(cluster.servers[0]).get("a1") == "alive")
    told = words(agent, "join", cluster.servers[0].ip, nobody)      # one of several
    check("Successfully joined cluster by contacting 1 nodes." in told and "Error joining address '%s'" % nobody in told, told)


def not_joined(agent):
    """Something that listens is not yet a server of this cluster."""
    silent = socket.create_server((free_address(), 8300))
    yield silent.getsockname()[0], "no answer"
    silent.close()
    yield agent.ip + ":8500", "(8300 is the servers' port)"          # HTTP
    yield "provider=aws tag_key=a", "cloud auto-join"
    other = Agent("-server", "-bootstrap-expect=1", "-datacenter=dc2", server=False, name="other").start()
    yield other.ip, "another cluster (datacenter"
    other.stop()
    yield "no-such-host.invalid", "Error joining"


def joining_later():
    """Without an address to join by an agent starts, keeps what is registered with it, and waits."""
    cluster = Cluster(1).start()
    agent = Agent(server=False, name="a1").start(wait=False)
    until("it answers", lambda: listening(agent))
    until("it says so", lambda: "waits for `coord join" in agent.log())
    agent.put("/v1/agent/service/register", {"Name": "web"})
    check(agent.get("/v1/agent/services")[2]["web"]["Service"] == "web", "kept")
    words(agent, "join", cluster.servers[0].ip)
    until("delivered", lambda: [s["Node"] for s in cluster.servers[0].get("/v1/catalog/service/web")[2]] == ["a1"])
    agent.kill()
    agent.start()                        # is with them again
    agent.stop()
    agent.args += ["-rejoin"]
    agent.start(wait=False)              # had left, and did not know of that then
    until("it waits again", lambda: agent.log().count("waits for `coord join") == 2)
    words(agent, "join", cluster.servers[0].ip)
    agent.wait_leader()
    agent.stop()
    agent.start()                        # is with them although it had left


def alone():
    """A server that waits for the others has heard of no leader since it started."""
    agent = Agent("-server", "-bootstrap-expect=3", server=False).start(wait=False)
    until("it answers", lambda: listening(agent))
    status, headers, _ = agent.request("GET", "/v1/kv/x?stale")
    check(status == 404 and headers["X-Consul-KnownLeader"] == "false" and int(headers["X-Consul-LastContact"]) < 30000 * SLOW, headers.items())


def peers(agent):
    return [s["Node"] for s in agent.get("/v1/operator/raft/configuration")[2]["Servers"]]


def dead_servers():
    """force-leave of a server that failed takes it out of Raft, too; of one that lives, nothing, and says so. A server that leaves is `left` on every
    agent at once, and out of Raft; with its folder it stays out. Not at the cost of the majority."""
    cluster = Cluster().start()
    leader, (gone, other) = cluster.leader(), cluster.followers()
    until("members", lambda: sorted(members(other)) == ["s1", "s2", "s3"])
    told = words(other, "force-leave", gone.name, code=1)
    check(told.startswith(gone.name + ": nothing: it is alive"), told)
    check(sorted(peers(leader)) == ["s1", "s2", "s3"], "one that lives is left alone")
    gone.kill()
    until("failed", lambda: members(leader).get(gone.name) == "failed")
    until("nor does one leave on which the majority hangs", lambda: "would be no majority" in words(other, "leave", code=1))
    check(sorted(peers(leader)) == ["s1", "s2", "s3"] and members(leader)[other.name] == "alive", "it stays")
    told = words(other, "force-leave", gone.name)
    check("listed as left; its server is out of Raft" in told, told)
    check(gone.name not in peers(leader) and len(peers(leader)) == 2, "%r" % peers(leader))
    until("left", lambda: members(other)[gone.name] == members(leader)[gone.name] == "left")
    check("nothing: it had left" in words(other, "force-leave", gone.name), "once")
    agent = cluster.agent("a1").start(wait=False)
    agent.wait_leader(30)
    told = words(leader, "leave")        # of two, and the leader
    check(told.startswith("Graceful leave complete\n") and "no member of the cluster any more" in told, told)
    check(leader.proc.wait(20 * SLOW) == 0, "the process ended well")
    for asked in (other, agent):
        until("left, on " + asked.name, lambda: members(asked).get(leader.name) == "left")
    check([m["Status"] for m in other.get("/v1/agent/members")[2] if m["Name"] == leader.name] == [3], "Consul's number")
    other.wait_leader(20)
    check(peers(other) == [other.name], "%r" % peers(other))
    check(leader.name not in [n["Node"] for n in other.get("/v1/catalog/nodes")[2]], "and out of the catalog")
    leader.start(wait=False)
    until("both say why it is out", lambda: all("it was removed from this cluster; with an empty data folder" in s.log() for s in (other, leader)))
    check(peers(other) == [other.name] and members(other)[leader.name] == "left", "it stays out: %r" % peers(other))


def a_dead_servers_name():
    """Another agent has taken the name of a server that died: it lives, and stays, when the server is taken out."""
    lease = settings(node_lease_ttl="%ds" % (1 + SLOW))
    cluster = Cluster(3, lease).start()
    gone = cluster.followers()[0]
    heir = cluster.agent(gone.name, lease).start(wait=False)
    until("it waits", lambda: "another agent has this node's name" in heir.log())
    gone.kill()
    server = cluster.leader()
    heir.put("/v1/agent/service/register", {"Name": "web"})
    until("it has the name", lambda: [s["Address"] for s in server.get("/v1/catalog/service/web")[2]] == [heir.ip], 20)
    check(any('expired kind="lease" node="%s" id=' % gone.name in s.log() for s in cluster.servers if s is not gone), "the log names the node that is dead")
    check(all("input/output error" not in s.log() for s in cluster.servers), "no connection that was closed is an error of a disk")
    words(server, "force-leave", gone.name)
    check(gone.name not in peers(server), "%r" % peers(server))
    check([s["Address"] for s in server.get("/v1/catalog/service/web")[2]] == [heir.ip], "its service stays")
    until("alive", lambda: members(server).get(heir.name) == "alive")


def the_nodes_own_check():
    """serfHealth is the agent's lease: nobody registers another one by that name."""
    agent = Agent().start()
    for check_in in ({"ID": "serfHealth", "Name": "mine", "TTL": "1h"}, {"Name": "serfHealth", "TTL": "1h"}):
        status, _, text = agent.request("PUT", "/v1/agent/check/register", check_in)
        check(status == 400 and b"the node's own" in text, "%d %r" % (status, text))
    status, _, text = agent.request("PUT", "/v1/agent/service/register", {"Name": "w", "Check": {"CheckID": "serfHealth", "TTL": "1h"}})
    check(status == 400 and b"the node's own" in text, "%d %r" % (status, text))


def listening(agent):
    try:
        return agent.request("GET", "/v1/agent/self", timeout=2)[0] == 200
    except OSError:
        return False


def leaving():
    cluster = Cluster().start()
    agents = [client_agent(cluster, "a%d" % i).start(wait=False) for i in (1, 2)]
    for agent in agents:
        agent.wait_leader(30)
    agents[0].put("/v1/agent/service/register", {"Name": "web"})
    server = cluster.servers[0]
    check(words(agents[0], "leave") == "Graceful leave complete\n", "left")
    check(agents[0].proc.wait(20 * SLOW) == 0, "the process ended well")
    for asked in cluster.servers + agents[1:]:
        until("it has left, on " + asked.name, lambda: members(asked).get("a1") == "left")
    check(server.get("/v1/catalog/node/a1")[2] is None, "its node is gone")
    went = until("a server saw it go", lambda: [line for s in cluster.servers for line in s.log().splitlines() if "a client agent went node=a1 " in line])
    check(not any("input/output" in line or 'reason=""' in line for line in went), "and why: %r" % went)
    check(server.get("/v1/catalog/service/web")[2] == [], "with its services")
    told = words(server, "force-leave", "a2", code=1)
    check("a2: nothing: it is alive" in told and members(server).get("a2") == "alive", "one that lives is left alone: %s" % told)
    check("No node found with name 'nosuch'" in words(server, "force-leave", "nosuch", code=2), "unknown: a mistake")
    server.put("/v1/catalog/register", {"Node": "dead", "Address": "10.0.0.9", "Service": {"Service": "old"},
                                        "Check": {"Name": "Serf Health Status", "CheckID": "serfHealth", "Status": "critical"}})
    until("it is failed", lambda: members(agents[1]).get("dead") == "failed")
    told = words(agents[1], "force-leave", "-prune", "dead")
    check(told == "dead: its node, services, checks and sessions are removed; it is listed no more\n", told)
    check("dead" not in members(server) and server.get("/v1/catalog/service/old")[2] == [], "it is gone")
    agents[0].start()                    # it comes back, and nothing says that it had left
    until("alive again", lambda: members(server).get("a1") == "alive")


def maintenance():
    agent = Agent().start()
    agent.put("/v1/agent/service/register", {"Name": "w"})
    check(words(agent, "maint") == "", "nothing")
    check(words(agent, "maint", "-enable", "-service=w", "-reason", "bad disk") == 'Service maintenance is now enabled for "w"\n', "service")
    check(words(agent, "maint", "-enable") == "Node maintenance is now enabled\n", "node")
    check(words(agent, "maint") == "Service:\n  ID:     w\n  Reason: bad disk\n\nNode:\n  Name:   n1\n  Reason: Maintenance mode is enabled for this "
          "node, but no reason was provided. This is a default message.\n\n", "as Consul prints it")
    check(words(agent, "maint", "-disable", "-service=w") == 'Service maintenance is now disabled for "w"\n', "off")
    check(words(agent, "maint", "-disable") == "Node maintenance is now disabled\n", "off")
    check(words(agent, "maint") == "", "nothing")
    for args in (["-enable", "-disable"], ["-reason=x"], ["-service=w"], ["-enable", "-service=none"]):
        words(agent, "maint", *args, code=None if "-service=none" in args else 2)


def reloading():
    agent = Agent()
    folder = os.path.join(agent.dir, "conf")
    os.mkdir(folder)

    def write(name, value):
        with open(os.path.join(folder, name), "w") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))
    write("a.json", {"services": [{"name": "stays", "check": {"ttl": "1h", "status": "passing"}}, {"name": "goes", "port": 1}],
                     "check": {"name": "c", "ttl": "1h"}})
    agent.args.append("-config-dir=" + folder)
    agent.start()
    agent.put("/v1/agent/service/register", {"Name": "api"})
    agent.put("/v1/agent/check/warn/service:stays?note=careful")
    check(sorted(agent.get("/v1/agent/services")[2]) == ["api", "goes", "stays"], "at the start")
    write("a.json", {"services": [{"name": "stays", "check": {"ttl": "1h", "status": "passing"}, "tags": ["new"]}, {"name": "comes"}]})
    check(words(agent, "reload") == "Configuration reload triggered\n", "reload")
    check(sorted(agent.get("/v1/agent/services")[2]) == ["api", "comes", "stays"], "what went is gone, what came over HTTP stays")
    checks = agent.get("/v1/agent/checks")[2]
    check(list(checks) == ["service:stays"] and checks["service:stays"]["Status"] == "warning", "a check keeps its state: %r" % checks)
    until("in the catalog too", lambda: sorted(agent.get("/v1/catalog/services")[2]) == ["api", "comes", "consul", "stays"])
    until("tags", lambda: agent.get("/v1/catalog/services")[2]["stays"] == ["new"])
    before = agent.get("/v1/agent/services")[2]
    for wrong, says in (('{"service":', "a.json"), ({"service": {"name": "x", "port": "many"}}, "Port"), ({"servce": {}}, "servce"),
                        ({"services": [{"name": "y"}], "check": {"name": "k", "ttl": "1s", "service_id": "stays"}}, "no service has the id"),
                        ({"check": {"name": "k", "service_id": "api"}}, "a.json")):
        write("a.json", wrong)
        status, _, text = agent.request("PUT", "/v1/agent/reload")
        check(status == 500 and says.encode() in text and b"\n" not in text, "%r: %d %r" % (wrong, status, text))
        check(agent.get("/v1/agent/services")[2] == before, "all stays as it was")
    check("Error reloading" in words(agent, "reload", code=1), "and so does the command line say")
    write("a.json", {"service": {"name": "hup"}})
    agent.proc.send_signal(signal.SIGHUP)
    until("SIGHUP does the same", lambda: sorted(agent.get("/v1/agent/services")[2]) == ["api", "hup"])


def events():
    """Fired at one agent, told to all that the filters take; waited for."""
    cluster = Cluster().start()
    agents = [client_agent(cluster, "a%d" % i).start(wait=False) for i in (1, 2)]
    for agent in agents:
        agent.wait_leader(30)
    everybody = cluster.servers + agents
    agents[1].put("/v1/agent/service/register", {"Name": "web", "Tags": ["blue", "v2"]})

    def names(agent, query=""):
        return [e["Name"] for e in agent.get("/v1/event/list" + query)[2]]
    check(names(agents[0]) == [], "none yet")
    index = int(agents[0].get("/v1/event/list")[1]["X-Consul-Index"])
    check(index > 0, "an index to wait from")
    waited = []
    thread = threading.Thread(target=lambda: waited.append(agents[0].get("/v1/event/list?wait=60s&index=%d" % index, timeout=90)))
    thread.start()
    told = words(agents[1], "event", "-name=deploy", "pay load")
    check(re.fullmatch(r"Event ID: [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n", told), told)
    thread.join(30)
    check(waited and [e["Name"] for e in waited[0][2]] == ["deploy"] and int(waited[0][1]["X-Consul-Index"]) > index, "%r" % waited)
    event = waited[0][2][0]
    check(base64.b64decode(event["Payload"]) == b"pay load" and event["ID"] == told.split()[2] and event["Version"] == 1 and event["LTime"] > 0, "%r" % event)
    halves = event["ID"].replace("-", "")
    check(int(halves[:16], 16) ^ int(halves[16:], 16) == int(waited[0][1]["X-Consul-Index"]), "Consul's clients find their place by it: %r" % event)
    for agent in everybody:
        check(names(agent) == ["deploy"], agent.name)
    agents[0].put("/v1/event/fire/some?node=^s[12]$")
    agents[0].put("/v1/event/fire/blue?service=^web$&tag=^bl")
    agents[0].put("/v1/event/fire/red?service=^web$&tag=^red")
    check({a.name: names(a) for a in everybody} == {"s1": ["deploy", "some"], "s2": ["deploy", "some"], "s3": ["deploy"], "a1": ["deploy"],
                                                   "a2": ["deploy", "blue"]}, "filters: %r" % {a.name: names(a) for a in everybody})
    check(names(agents[1], "?name=blue") == ["blue"] and names(agents[1], "?name=bl") == [], "by name")
    for query, says in (("q?node=(", "Invalid node filter"), ("q?tag=x", "Cannot provide tag filter without service filter"),
                        ("q?node=" + "a" * 129, "longer than"), ("q?node=(a{200}){200}", "Invalid node filter"), ("n" * 513, "exceeds configured limit")):
        status, _, text = agents[0].request("PUT", "/v1/event/fire/" + query)
        check(status == 500 and says.encode() in text, "%s: %d %r" % (query, status, text))
    check(agents[0].request("PUT", "/v1/event/fire/")[0] == 400, "a name is wanted")
    check("Event name must be specified" in words(agents[0], "event", code=2), "also by the command line")
    for i in range(260):
        cluster.servers[0].put("/v1/event/fire/n%d" % i)
    check(names(agents[0]) == ["n%d" % i for i in range(4, 260)], "the newest 256 are kept")


def monitoring():
    """Lines as they come, also of levels that the log leaves out; one that hangs up or does not read harms nobody."""
    agent = Agent().start()
    p = subprocess.Popen([COORD, "monitor", "-log-level=debug", "-http-addr=%s:8500" % agent.ip], stdout=subprocess.PIPE, text=True)
    try:
        seen = []
        threading.Thread(target=lambda: [seen.append(line) for line in p.stdout], daemon=True).start()

        def hup():
            agent.proc.send_signal(signal.SIGHUP)
            return any("the configuration was read again" in line for line in list(seen))
        until("a line", hup, every=0.1)
        agent.put("/v1/agent/service/register", {"Name": "seen"})
        until("what the catalog takes", lambda: any("the catalog has taken a change: service id=seen" in line for line in list(seen)))
        objects = subprocess.Popen([COORD, "monitor", "-log-json", "-http-addr=" + agent.ip], stdout=subprocess.PIPE, text=True)
        try:
            until("a line of JSON", lambda: (agent.put("/v1/agent/reload"), select.select([objects.stdout], [], [], 0.1)[0])[1])
            check(json.loads(objects.stdout.readline())["@module"], "an object with Consul's names")
        finally:
            objects.kill()
        check(agent.request("GET", "/v1/agent/monitor?loglevel=bogus")[::2] == (400, b"Bad request: Unknown log level: bogus"), "a wrong level")
        check("Unknown log level: bogus" in words(agent, "monitor", "-log-level=bogus", code=2), "also by the command line")
        before = agent.fd_count()
        lazy = [socket.create_connection((agent.ip, 8500)) for _ in range(5)]
        for s in lazy:
            s.sendall(b"GET /v1/agent/monitor?loglevel=trace HTTP/1.1\r\nHost: x\r\n\r\n")
            check(s.recv(1000).startswith(b"HTTP/1.1 200"), "it begins at once")
        for s in lazy[:4]:
            s.close()
        until("those that hung up are gone", lambda: agent.fd_count() <= before + 1)
        count = len(seen)
        for i in range(200):
            agent.proc.send_signal(signal.SIGHUP)
            check(agent.request("GET", "/v1/kv/x")[0] == 404, "it serves")
        until("the one that reads has more", lambda: len(seen) > count)
        code, seconds = agent.stop()
        check(code == 0 and seconds < 5 * SLOW, "it ends with monitors: %d, %.1f s" % (code, seconds))
        check(p.wait(10 * SLOW) == 0, "and so do they")
        lazy[4].close()
    finally:
        p.kill()
        p.wait()


run([joining, joining_later, alone, leaving, dead_servers, a_dead_servers_name, the_nodes_own_check, maintenance, reloading, events, monitoring])
