"""Operating a cluster: our command line and, where there is one, the consul program, against the same servers."""
import base64, hashlib, io, json, os, shutil, subprocess, tarfile, tempfile, threading, time
from coordtest import COORD, SLOW, Agent, Cluster, check, run, until

CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")
if not CONSUL or not os.path.exists(CONSUL):
    CONSUL = None
    print("     no consul program (COORD_CONSUL): only our own command line is driven")
PROGRAMS = [COORD] + ([CONSUL] if CONSUL else [])


def words(program, agent, *args, code=0, stdin=None):
    """Runs a command against an agent; returns what it printed."""
    env = dict(os.environ, CONSUL_HTTP_ADDR="%s:8500" % agent.ip)
    env.pop("COORD_HTTP_ADDR", None)
    r = subprocess.run([program, *args], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60 * SLOW, env=env)
    out = r.stdout + r.stderr
    check(r.returncode == code, "%s %s: exit %d, wanted %d: %s" % (os.path.basename(program), " ".join(args), r.returncode, code, out))
    return out


def rows(text):
    lines = [line.split() for line in text.splitlines() if line]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def peers(agent):
    return {s["Node"]: s for s in agent.get("/v1/operator/raft/configuration")[2]["Servers"]}


def members_and_peers():
    cluster = Cluster().start()

    def listed(program, agent):
        return {p["Node"]: p["State"] for p in rows(words(program, agent, "operator", "raft", "list-peers")) if p["Voter"] == "true"}
    for agent in cluster.servers:
        for program in PROGRAMS:
            until("all are alive", lambda: [(m["Node"], m["Status"]) for m in rows(words(program, agent, "members"))] == [(s.name, "alive") for s in cluster.servers])
            members = rows(words(program, agent, "members"))
            check(all(m["Type"] == "server" and m["Address"].endswith(":8300") for m in members), "%r" % members)
            until("peers", lambda: (lambda leader: listed(program, agent) == {s.name: "leader" if s is leader else "follower" for s in cluster.servers})(cluster.leader()))
    leader = cluster.leader()
    gone = next(s for s in cluster.servers if s is not leader)
    gone.kill()
    until("it shows as failed", lambda: {m["Node"]: m["Status"] for m in rows(words(COORD, leader, "members"))}[gone.name] == "failed")
    until("and as not healthy", lambda: leader.request("GET", "/v1/operator/autopilot/health")[0] == 429)

    def health_of_the_others():          # one that stood still is not healthy for a moment
        health = leader.get("/v1/operator/autopilot/health")[2]
        return {s["Name"]: s["Healthy"] for s in health["Servers"]} == {s.name: s is not gone for s in cluster.servers} and health
    health = until("it alone is not healthy", health_of_the_others)
    check(health["FailureTolerance"] == 0 and not health["Healthy"], "%r" % health)
    version = subprocess.run([COORD, "version"], capture_output=True, text=True).stdout.split("v")[-1].split()[0]
    check([s["CoordVersion"] for s in health["Servers"]] == [version] * 3, "the one that is gone said so before: %r" % health)
    check("may lose 0 more" in words(COORD, leader, "operator", "autopilot", "health", code=2), "our words for it")
    gone.start(wait=False).wait_leader(30)
    until("healthy again", lambda: leader.request("GET", "/v1/operator/autopilot/health")[0] == 200, 20)
    leader = cluster.leader()
    told = words(COORD, leader, "info")
    check(all(line in told for line in ("leader = true", "num_peers = 2", "voter = true", "log_disk = well", "recovered_index = 0")), told)
    until("info of the one that came back", lambda: "leader_addr = %s:8300" % leader.ip in words(COORD, gone, "info"))
    until("all alive", lambda: len(rows(words(COORD, leader, "members", "-status=alive"))) == 3)
    check(words(COORD, leader, "members", "-status=failed", code=2) == "", "none failed")
    check("role=consul" in words(COORD, leader, "members", "-detailed"), "tags")


def leadership_and_removal():
    cluster = Cluster().start()
    old = cluster.leader()
    status, _, body = cluster.followers()[0].request("PUT", "/v1/operator/raft/transfer-leader")
    check(status == 200 and json.loads(body) == {"Success": True}, "through a follower: %d %r" % (status, body))
    until("another leads", lambda: cluster.leader() is not old)
    leader = cluster.leader()
    for bad in ("0", "0000000000000000", "xyz"):
        for method in ("PUT", "POST"):      # as newer clients ask
            check(leader.request(method, "/v1/operator/raft/transfer-leader?id=" + bad)[0] == 400, "to nobody: %s %s" % (method, bad))
    check(cluster.leader() is leader, "nothing has changed")
    wanted = next(a for a in cluster.servers if a not in (old, leader))
    until("the new leader knows whose id that is", lambda: wanted.name in peers(leader))
    words(COORD, wanted, "operator", "raft", "transfer-leader", "-id=" + peers(leader)[wanted.name]["ID"])
    until("the named one leads", lambda: cluster.leader() is wanted)
    leader, removed = wanted, old
    for bad, named in (("id=ffff", 'id "000000000000ffff"'), ("address=1.2.3.4:1", 'address "1.2.3.4:1"')):
        status, _, text = leader.request("DELETE", "/v1/operator/raft/peer?" + bad)
        check(status == 500 and text.decode().startswith(named + " was not found in the Raft configuration"), "no such server: %r" % text)
    check(leader.request("DELETE", "/v1/operator/raft/peer")[0] == 400, "nobody named")
    check(leader.request("DELETE", "/v1/operator/raft/peer?id=xyz")[0] == 400, "not an id")
    words(PROGRAMS[-1], leader, "operator", "raft", "remove-peer", "-address=%s:8300" % removed.ip)
    check(removed.name not in peers(leader), "it is gone")
    # It runs and stays out: also for the next leader, and after it was started again.
    other = next(a for a in cluster.servers if a not in (leader, removed))
    words(COORD, leader, "operator", "raft", "transfer-leader")
    until("the other leads", lambda: json.loads(other.request("GET", "/v1/status/leader")[2]).startswith(other.ip))
    removed.kill()
    removed.start(wait=False)
    until("both say why", lambda: all("was removed from this cluster" in server.log() for server in (other, removed)))
    end = time.monotonic() + 1.5      # the leader looks ten times a second
    while time.monotonic() < end:
        check(removed.name not in peers(other), "it is not taken in again")
        time.sleep(0.1)
    other.put("/v1/kv/after", b"1")
    # With an empty folder it is a new server.
    removed.kill()
    shutil.rmtree(removed.data)
    removed.start(wait=False)
    until("it is taken in as a voter", lambda: peers(other).get(removed.name, {}).get("Voter"), 20)
    until("and has the data", lambda: removed.request("GET", "/v1/kv/after?stale")[0] == 200, 20)
    the_wrong_one(cluster)


def the_wrong_one(cluster):
    """One is down, and the one that is not is named: without it the leader would be alone among two."""
    leader = cluster.leader()
    dead, live = [s for s in cluster.servers if s is not leader]
    dead.kill()
    until("the leader misses it", lambda: {s["Name"]: s["SerfStatus"] for s in json.loads(leader.request("GET", "/v1/operator/autopilot/health")[2])["Servers"]}[dead.name] == "failed")
    named = peers(leader)[dead.name]["ID"]

    def refused():                       # by whoever leads
        begun = time.monotonic()
        status, _, text = leader.request("PUT", "/v1/operator/raft/transfer-leader?id=" + named, timeout=20 * SLOW)
        return status == 400 and b"connected" in text and time.monotonic() - begun < 3 * SLOW
    until("leadership for one that is down is refused at once", refused, 30)
    for asked in (leader, live):
        for victim in (live, leader):
            status, _, text = asked.request("DELETE", "/v1/operator/raft/peer?address=%s:8300" % victim.ip)
            check(status == 500 and b"would be no majority" in text, "%s asked to remove %s: %d %r" % (asked.name, victim.name, status, text))
    check(sorted(peers(leader)) == sorted(s.name for s in cluster.servers), "all are there")
    leader.put("/v1/kv/unharmed", b"1")
    dead.start(wait=False)
    until("it is back", lambda: leader.request("GET", "/v1/operator/autopilot/health")[0] == 200, 20)
    until("and has the data", lambda: dead.request("GET", "/v1/kv/unharmed?stale")[0] == 200, 20)


def comes_back_empty():
    """A server lost its data folder: under its old name and address it is in the catalog again within seconds, with its new id."""
    cluster = Cluster().start()
    other, gone = cluster.leader(), cluster.followers()[0]
    gone.put("/v1/agent/service/register", {"Name": "old", "ID": "old", "Port": 1})
    until("its service is there", lambda: other.get("/v1/catalog/service/old")[2])
    before = other.get("/v1/catalog/node/" + gone.name)[2]["Node"]["ID"]
    check(other.get("/v1/health/node/" + gone.name)[2][0]["Status"] == "passing", "it is taken for alive")
    gone.kill()
    shutil.rmtree(gone.data)
    gone.start(wait=False)

    def registered():
        found = other.get("/v1/catalog/node/" + gone.name)[2]
        with_folder = os.path.exists(os.path.join(gone.data, "node-id"))
        return with_folder and found["Node"]["ID"] == open(os.path.join(gone.data, "node-id")).read() and found
    found = until("it is in the catalog, once the lease of the one before it has ended", registered, 15)
    check(found["Node"]["ID"] != before and found["Node"]["Address"] == gone.ip, "%r" % found)
    until("what the one before it had is gone", lambda: other.get("/v1/catalog/service/old")[2] == [], 5)
    gone.put("/v1/agent/service/register", {"Name": "new", "Port": 2})
    until("its services too", lambda: other.get("/v1/health/service/new?passing")[2], 5)
    check("refuses this node" not in gone.log(), "nothing was refused")
    # Another host with that name is refused as ever.
    status, _, text = other.request("PUT", "/v1/catalog/register", {"Node": gone.name, "Address": "10.1.1.1", "ID": before})
    check(status in (400, 500) and b"is reserved by node" in text, "%d %r" % (status, text))


def replacement():
    """A server dies for good, another comes: the dead one leaves by itself, and stays out until its folder is empty."""
    cluster = Cluster().start()
    leader, (dead, other) = cluster.leader(), cluster.followers()
    words(COORD, leader, "operator", "autopilot", "set-config", "-server-stabilization-time=1s")
    dead.kill()
    until("it is missed", lambda: leader.request("GET", "/v1/operator/autopilot/health")[0] == 429)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        check(dead.name in peers(leader), "without a replacement it stays")
        time.sleep(0.1)
    fresh = Agent("-server", "-bootstrap-expect=3", "-retry-join=" + leader.ip, server=False, name="s4")
    fresh.start(wait=False)
    until("the new one votes, the dead one is gone", lambda: {n: s["Voter"] for n, s in peers(leader).items()} ==
          {leader.name: True, other.name: True, "s4": True}, 20)
    until("all is well", lambda: leader.request("GET", "/v1/operator/autopilot/health")[0] == 200)
    check("a server is removed, and stays out as long as it has its data folder node=%s address=%s:8300" % (dead.name, dead.ip) in leader.log(), "named")
    dead.start(wait=False)      # with its votes and entries of before it stays out, and says what is to be done
    until("both say why", lambda: all("it was removed from this cluster; with an empty data folder" in s.log() for s in (leader, dead)))
    check(dead.name not in peers(leader), "it is not taken in again: %r" % peers(leader))
    dead.kill()
    shutil.rmtree(dead.data)
    dead.start(wait=False)
    until("empty, it is taken in as a new one", lambda: peers(leader).get(dead.name, {}).get("Voter"), 20)


def a_new_server_waits():
    """What for, list-peers says; a lock is waited for no longer than it says; and two servers that have one name, by mistake, say so."""
    first = Agent("-server", "-bootstrap-expect=3", server=False, name="twin").start(wait=False)
    until("it listens", lambda: "http address=" in first.log())
    told = words(COORD, first, "operator", "raft", "list-peers", "-stale")
    check("belongs to no cluster yet: waiting for servers: 1 of 3 seen" in told and told.count("\n") == 1, told)
    start = time.monotonic()
    told = words(COORD, first, "lock", "-wait=1s", "x", "--", "true", code=75)
    check(time.monotonic() - start < 5, "an agent waits for a leader for 7 s: %.1f s" % (time.monotonic() - start))
    check("was not obtained: no answer in time" in told, told)
    second = Agent("-server", "-bootstrap-expect=3", "-retry-join=" + first.ip, server=False, name="Twin").start(wait=False)
    for here, there in ((first, second), (second, first)):
        warnings = until("the clash is told", lambda: [line for line in here.log().splitlines() if "another server has this server's name" in line])
        check(len(warnings) == 1 and "[WARN]" in warnings[0] and "here=%s:8300 there=%s:8300" % (here.ip, there.ip) in warnings[0], warnings)
    until("both are counted", lambda: "2 of 3 seen" in words(COORD, first, "operator", "raft", "list-peers", "-stale"))


def long_elections():
    """With the longest elections that can be set an idle cluster is as healthy as with the shortest."""
    folder = tempfile.mkdtemp(prefix="coord-e2e-")
    try:
        path = os.path.join(folder, "slow.json")
        with open(path, "w") as f:
            json.dump({"performance": {"raft_multiplier": 10}}, f)
        cluster = Cluster(3, "-config-file=" + path).start()
        leader = cluster.leader()

        def steady():
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                if leader.request("GET", "/v1/operator/autopilot/health")[0] != 200:
                    return False
                time.sleep(0.01)
            return True
        until("healthy for 1.5 s in a row", steady)
    finally:
        shutil.rmtree(folder)


def autopilot_settings():
    cluster = Cluster().start()
    path = "/v1/operator/autopilot/configuration"
    first, second = cluster.followers()
    check(first.get(path)[2]["MaxTrailingLogs"] == 250 and first.get(path)[2]["LastContactThreshold"] == "200ms", "the defaults")
    for number, program in enumerate(PROGRAMS):
        words(program, first, "operator", "autopilot", "set-config", "-max-trailing-logs=%d" % (300 + number), "-last-contact-threshold=5s")
        config = second.get(path)[2]
        check(config["MaxTrailingLogs"] == 300 + number and config["LastContactThreshold"] == "5s", "%r" % config)
        check("MaxTrailingLogs = %d" % (300 + number) in words(program, second, "operator", "autopilot", "get-config"), "get-config")
    index = config["ModifyIndex"]
    check(second.put(path + "?cas=%d" % (index - 1), {"MaxTrailingLogs": 1}) == b"false", "an old cas")
    check(second.put(path + "?cas=%d" % index, {"MaxTrailingLogs": 77}) == b"true", "the right cas")
    check(second.put(path, {"MaxTrailingLogs": 2 ** 64 - 1}) == b"true", "however far behind")
    until("all are healthy with that", lambda: first.request("GET", "/v1/operator/autopilot/health")[0] == 200)
    check(second.put(path, {"MaxTrailingLogs": 77}) == b"true", "as before")
    for wrong in ({"MaxTrailingLog": 1}, {"LastContactThreshold": "fast"}, {"RedundancyZoneTag": "zone"}, {"MaxTrailingLogs": -1}):
        check(first.request("PUT", path, wrong)[0] == 400, "%r" % wrong)
    check(first.get(path)[2]["MaxTrailingLogs"] == 77, "nothing of that was stored")


def keys_on_the_command_line():
    agent = Agent().start()
    for program in PROGRAMS:
        name = "c/" + os.path.basename(program)
        words(program, agent, "kv", "put", "-flags=42", name + "/a", "one")
        words(program, agent, "kv", "put", name + "/b", "-", stdin="two")
        check(words(program, agent, "kv", "get", name + "/a") == "one\n", "get")
        check(words(program, agent, "kv", "get", "-recurse", name + "/") == "%s/a:one\n%s/b:two\n" % (name, name), "get -recurse")
        check(words(program, agent, "kv", "get", "-keys", "-separator=", name) == "%s/a\n%s/b\n" % (name, name), "get -keys")
        check("Flags            42" in words(program, agent, "kv", "get", "-detailed", name + "/a"), "get -detailed")
        check("CAS failed" in words(program, agent, "kv", "put", "-cas", "-modify-index=1", name + "/a", "no", code=1), "put -cas")
        check("No key exists" in words(program, agent, "kv", "get", name + "/none", code=1), "no key")
    ours, theirs = [json.loads(words(p, agent, "kv", "export", "c/")) for p in (PROGRAMS[0], PROGRAMS[-1])]
    check(ours == theirs and ours[0]["flags"] == 42 and base64.b64decode(ours[0]["value"]) == b"one", "%r %r" % (ours, theirs))
    text = words(COORD, agent, "kv", "export", "c/")
    for program in PROGRAMS:
        words(program, agent, "kv", "delete", "-recurse", "c/")
        check(agent.request("GET", "/v1/kv/c/?recurse")[0] == 404, "all deleted")
        words(program, agent, "kv", "import", "-", stdin=text)
        check(words(COORD, agent, "kv", "export", "c/") == text, "imported as exported")
    words(COORD, agent, "kv", "put", "odd/ä b%2F+?#", "@" + os.path.abspath(__file__))
    check(words(COORD, agent, "kv", "get", "odd/ä b%2F+?#") == open(__file__).read() + "\n", "an odd name")
    words(COORD, agent, "kv", "delete", "odd/ä b%2F+?#")
    check(agent.request("GET", "/v1/kv/odd/?keys")[0] == 404, "deleted")
    # Wrong words name the right ones.
    for args, wanted in ((["kv", "gett", "x"], "get"), (["kv", "get", "-recurs", "x"], "-recurse"), (["members", "-http-adr=x"], "-http-addr"),
                         (["snapshot", "sav", "x"], "save"), (["operator", "raft", "list-peer"], "list-peers"), (["kv", "put"], "KEY"),
                         (["operator", "raft", "remove-peer"], "-id"), (["kv", "put", "-flags=-1", "k", "v"], "-flags")):
        check(wanted in words(COORD, agent, *args, code=2), "%r names %s" % (args, wanted))
    check("no answer" in words(COORD, agent, "members", "-http-addr=127.0.0.1:1", code=3), "nobody there")


def backup_and_restore():
    cluster = Cluster().start()
    folder = tempfile.mkdtemp(prefix="coord-e2e-")
    try:
        for program in PROGRAMS:
            restore_story(cluster, program, os.path.join(folder, os.path.basename(program)))
        into_another_cluster(cluster, os.path.join(folder, os.path.basename(COORD)))
    finally:
        shutil.rmtree(folder)


def lock(agent, key, session):
    """Its token."""
    check(agent.put("/v1/kv/r/%s?acquire=%s" % (key, session)) == b"true", "%s is got" % key)
    return agent.get("/v1/kv/r/" + key)[2][0]["LockIndex"]


def restore_story(cluster, program, path):
    agent = cluster.followers()[0]
    agent.put("/v1/kv/r/kept", os.urandom(300000))
    for i in range(20):
        agent.put("/v1/kv/r/%d" % i, b"before")
    session = json.loads(agent.put("/v1/session/create", {"TTL": "600s", "LockDelay": "0s"}))["ID"]
    agent.put("/v1/kv/r/free")
    saved = [lock(agent, "lock", session), lock(agent, "free", session)]
    check(agent.put("/v1/kv/r/free?release=" + session) == b"true", "one is free")
    kept = agent.get("/v1/kv/r/kept")[2]
    words(program, agent, "snapshot", "save", path)
    for p in PROGRAMS:
        check("Index" in words(p, agent, "snapshot", "inspect", path), "inspect")
    for i in range(20):
        agent.put("/v1/kv/r/%d" % i, b"after")
    for _ in range(3):
        given = lock(agent, "free", session)
        check(agent.put("/v1/kv/r/free?release=" + session) == b"true", "it is free again")
    agent.put("/v1/kv/r/new", b"1")
    highest = agent.get("/v1/kv/r/new")[2][0]["ModifyIndex"]
    seen = [int(a.get("/v1/kv/r/0")[1]["X-Consul-Index"]) for a in cluster.servers]
    waits, answers = [], {}
    for a in cluster.servers:      # at the newest index: they hear of the restore
        for stale in ("", "&stale"):
            wait = threading.Thread(target=lambda a=a, s=stale: answers.__setitem__((a.name, s), a.get("/v1/kv/r/0?wait=300s&index=%d%s" % (highest, s), timeout=400)))
            wait.start()
            waits.append(wait)
    until("they wait", lambda: all(b"coord_http_blocking_queries 2" in a.request("GET", "/v1/agent/metrics?format=prometheus")[2] for a in cluster.servers))
    words(program, agent, "snapshot", "restore", path)
    for wait in waits:
        wait.join(30 * SLOW)
        check(not wait.is_alive(), "every waiter wakes")
    check(len(answers) == len(waits), "and is answered: %r" % answers)
    for who, (status, headers, value) in answers.items():
        check(status == 200 and base64.b64decode(value[0]["Value"]) == b"before" and int(headers["X-Consul-Index"]) > highest, "%r %r" % (who, value))
    for a, index in zip(cluster.servers, seen):
        status, headers, value = a.get("/v1/kv/r/0")
        check(base64.b64decode(value[0]["Value"]) == b"before" and int(headers["X-Consul-Index"]) > index, "restored on " + a.name)
        check(a.get("/v1/kv/r/kept")[2] == kept, "bytes as they were")
        check(a.request("GET", "/v1/kv/r/new")[0] == 404, "what came later is gone")
    agent.put("/v1/kv/r/0", b"on")
    check(agent.get("/v1/kv/r/0")[2][0]["ModifyIndex"] > highest, "indexes go on above")
    check(agent.get("/v1/kv/r/lock")[2][0].get("Session") == session, "the lock is held")
    check(agent.put("/v1/session/renew/" + session) and agent.put("/v1/kv/r/lock?release=" + session) == b"true", "its session lives")
    tokens = [agent.get("/v1/kv/r/" + key)[2][0]["LockIndex"] for key in ("lock", "free")]
    check(tokens == saved, "as they were in the backup: %r" % tokens)
    check(lock(agent, "lock", session) > given and lock(agent, "free", session) > given, "no holder's token is given again")
    check(agent.put("/v1/session/destroy/" + session) == b"true", "and ends")


def restorer_is_lost():
    """The server that takes a backup in is killed in the middle: what it had handed to the others does not stay in the state, and in every backup."""
    cluster = Cluster().start()
    agent = cluster.leader()
    for i in range(25):
        agent.put("/v1/kv/big/%d" % i, os.urandom(400000))
    backup = agent.request("GET", "/v1/snapshot")[2]
    saved = lambda: len(agent.request("GET", "/v1/snapshot")[2])

    def ask(via):
        try:
            via.request("PUT", "/v1/snapshot", backup, timeout=60)
        except OSError:
            pass
    for _ in range(20):
        agent = cluster.leader()
        agent.request("DELETE", "/v1/kv/big/?recurse")
        via = cluster.followers()[0]
        thread = threading.Thread(target=ask, args=(via,))
        thread.start()
        until("it begins", lambda: saved() > 1 << 20, 20)
        via.kill()
        thread.join()
        if agent.request("GET", "/v1/kv/big/?keys")[0] == 404 and saved() > 1 << 20:
            break
        via.start(wait=False)
        cluster.leader()
    else:
        raise AssertionError("it was always too quick")
    until("the leader says so", lambda: any("a restore was begun and not ended" in s.log() for s in cluster.servers), 60)
    until("nothing of it is left", lambda: saved() < 1 << 20, 60, every=1)


def crash_during_restore():
    """The leader is killed at some moment of a restore: all servers have the old state, or all the new one; and the next restore works."""
    cluster = Cluster().start()
    block = os.urandom(400000)
    agent = cluster.followers()[0]
    blocks = 20 if SLOW == 1 else 10
    for i in range(blocks):
        agent.put("/v1/kv/big/%d" % i, block)
    agent.put("/v1/kv/which", b"old")
    status, _, backup = agent.request("GET", "/v1/snapshot")
    check(status == 200 and len(backup) > blocks * len(block), "a backup of %d bytes" % len(backup))
    outcomes = set()
    for number, delay in enumerate((0.02, 0.3, 0.6)):
        agent.put("/v1/kv/which", b"new%d" % number)
        leader = cluster.leader()
        via = cluster.followers()[0]
        got = []

        def restore():
            try:
                got.append(via.request("PUT", "/v1/snapshot", backup, timeout=60 * SLOW)[0])
            except OSError as e:
                got.append(e)
        thread = threading.Thread(target=restore)
        thread.start()
        time.sleep(delay)
        leader.kill()
        thread.join()
        leader.start(wait=False)
        agent = via

        def same():
            # Servers that hear of the next leader in a moment all have the state before a restore that was acknowledged.
            status, _, confirmed = via.request("GET", "/v1/kv/which?raw")
            values = [a.request("GET", "/v1/kv/which?raw&stale")[2] if listening(a) else None for a in cluster.servers]
            return confirmed if status == 200 and values == [confirmed] * 3 else None
        value = until("all servers agree", same, 20)
        check(value in (b"old", b"new%d" % number), "%r" % value)
        check(value == b"old" or got != [200], "an acknowledged restore is there: %r %r" % (value, got))
        outcomes.add(value[:3])
        check(agent.get("/v1/kv/big/?keys")[2] == sorted("big/%d" % i for i in range(blocks)), "all keys")
        check(agent.request("GET", "/v1/kv/big/%d?raw" % (blocks - 1))[2] == block, "bytes as they were")
    check(agent.request("PUT", "/v1/snapshot", backup, timeout=60 * SLOW)[0] == 200, "the next restore works")
    print("     the state after a crash was: %s" % b", ".join(sorted(outcomes)).decode())


def into_another_cluster(cluster, path):
    """A backup of a cluster that is further on; then kill -9 and a start from log and snapshot."""
    fresh = Agent().start()
    fresh.put("/v1/kv/own", b"1")
    theirs = int(next(line.split()[1] for line in words(COORD, fresh, "snapshot", "inspect", path).splitlines() if line.startswith("Index")))
    check(theirs > fresh.get("/v1/kv/own")[2][0]["ModifyIndex"], "it is further on")
    words(COORD, fresh, "snapshot", "restore", path)
    check(fresh.request("GET", "/v1/kv/own")[0] == 404 and base64.b64decode(fresh.get("/v1/kv/r/0")[2][0]["Value"]) == b"before", "restored")
    fresh.put("/v1/kv/next", b"1")
    index = fresh.get("/v1/kv/next")[2][0]["ModifyIndex"]
    check(index > theirs, "the index jumped: %d, %d" % (index, theirs))
    fresh.kill()
    fresh.start(wait=False)
    until("it is back", lambda: fresh.request("GET", "/v1/kv/next")[0] == 200 if listening(fresh) else False)
    fresh.put("/v1/kv/next", b"2")
    check(fresh.get("/v1/kv/next")[2][0]["ModifyIndex"] > index, "and goes on there")
    words(COORD, fresh, "snapshot", "save", path + ".again")
    words(COORD, fresh, "snapshot", "restore", path + ".again")
    check(fresh.request("GET", "/v1/kv/next")[0] == 200, "a backup of that can be restored too")


def listening(agent):
    try:
        return json.loads(agent.request("GET", "/v1/status/leader", timeout=2)[2]) != ""
    except OSError:
        return False


def archive(files, sums=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.USTAR_FORMAT) as tar:
        if sums is None:
            sums = "".join("%s  %s\n" % (hashlib.sha256(data).hexdigest(), name) for name, data in files)
        for name, data in files + [("SHA256SUMS", sums.encode())]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def inspect(agent, body):
    path = os.path.join(agent.data, "inspected")
    with open(path, "wb") as f:
        f.write(body)
    return subprocess.run([COORD, "snapshot", "inspect", path], capture_output=True, text=True, timeout=60)


def bad_backups():
    agent = Agent().start()
    agent.put("/v1/kv/stays", b"1")
    good = agent.request("GET", "/v1/snapshot")[2]
    with tarfile.open(fileobj=io.BytesIO(good)) as tar:
        names = tar.getnames()
        meta, state = tar.extractfile("meta.json").read(), tar.extractfile("state.bin").read()
    check(names == ["meta.json", "state.bin", "SHA256SUMS"], "%r" % names)
    told = json.loads(meta)
    check(told["Version"] == 1 and told["Size"] == len(state) and told["Index"] > 0, "%r" % told)

    def with_state(other):
        return archive([("meta.json", json.dumps(dict(told, Size=len(other))).encode()), ("state.bin", other)])
    flipped = bytearray(good)
    flipped[len(flipped) // 2] ^= 1
    table = bytearray(state)
    table[8] = 15      # of the first record: no such table
    for what, body in (("empty", b""), ("not gzip", b"x" * 1000), ("cut off", good[:-20]), ("a bit flipped", bytes(flipped)),
                       ("wrong sum", archive([("meta.json", meta), ("state.bin", state)], "0" * 64 + "  state.bin\n")),
                       ("no meta", archive([("state.bin", state)])), ("no state", archive([("meta.json", meta)])),
                       ("a stranger's file", archive([("meta.json", meta), ("state.bin", state), ("../../etc/passwd", b"x")])),
                       ("a file twice", archive([("meta.json", meta), ("state.bin", state), ("state.bin", state)])),
                       ("not JSON", archive([("meta.json", b"{"), ("state.bin", state)])), ("no state at all", with_state(b"")),
                       ("a state of something else", with_state(b"hello" * 100)), ("half a state", with_state(state[: len(state) // 2])),
                       ("a state with more behind it", with_state(state + b"x")), ("an unknown table", with_state(bytes(table))),
                       ("a changed record", with_state(state.replace(b"stays", b"goes!")))):
        status, _, text = agent.request("PUT", "/v1/snapshot", body)
        check(status == 400 and len(text) > 10 and b"\n" not in text, "%s: %d %r" % (what, status, text))
        inspected = inspect(agent, body)
        check(inspected.returncode == 1 and len(inspected.stderr.strip().splitlines()) == 1, "%s: inspect: %r" % (what, inspected))
    check("Index" in inspect(agent, good).stdout, "inspect")
    check(agent.request("PUT", "/v1/snapshot", archive([("meta.json", meta), ("state.bin", state)]))[0] == 200, "the same, as python writes it")
    check(agent.request("GET", "/v1/kv/stays")[0] == 200, "all is there")
    left = [n for n in os.listdir(agent.data) if "backup" in n]
    check(not left, "no temporary files stay: %r" % left)


def recover_of_two_clusters():
    agents = [Agent().start(), Agent().start()]
    for agent in agents:
        agent.put("/v1/kv/a", b"1")
        agent.stop()
    r = subprocess.run([COORD, "operator", "recover"] + ["-data-dir=" + a.data for a in agents], capture_output=True, text=True, timeout=60)
    check(r.returncode == 1 and "different clusters" in r.stderr and "furthest" not in r.stdout, "%r" % r)


if __name__ == "__main__":
    run([recover_of_two_clusters, members_and_peers, leadership_and_removal, comes_back_empty, replacement, a_new_server_waits, long_elections, autopilot_settings, keys_on_the_command_line, backup_and_restore, crash_during_restore, bad_backups, restorer_is_lost])
