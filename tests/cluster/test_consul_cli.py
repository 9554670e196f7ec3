#!/usr/bin/env python3
"""Operating a cluster of three through a server that does not lead: with the HTTP API, and with the consul command line.

The second part needs a consul program: its path in COORD_CONSUL (or CONSUL_BIN). Without one the test says so.
"""
import base64, json, os, re, shutil, subprocess, sys, tempfile, time
import harness
from harness import check, until

HOLD = 6                                 # seconds; less than performance.rpc_hold_timeout
CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")


def followers(cluster):
    leader = cluster.leader()
    return [s for s in cluster.servers if s is not leader]


def raft_servers(server, query=""):
    """By name; nobody while servers elect a leader."""
    return {s["Node"]: s for s in (server.get("/v1/operator/raft/configuration" + query)[2] or {}).get("Servers") or []}


def asked(server, method, path, body=None):
    """(status, text) of what is asked of the leader. While one is elected there is no answer, and it is asked again."""
    def answer():
        status, _, text = server.request(method, path, body, 15 * harness.SLOW + harness.STANDSTILL)
        return None if harness.undecided(status, text) else (status, text)
    return until("%s %s is answered" % (method, path), answer)


def led(cluster, what, seen):
    """Whether the one who leads is seen as that; another is elected where a disk stands still."""
    until(what, lambda: seen(cluster.leader()))


def well(server):
    status, _, body = server.request("GET", "/v1/operator/autopilot/health", timeout=10)
    health = json.loads(body) if status == 200 else {}
    return health if health.get("Healthy") and health["FailureTolerance"] == 1 else None


def settings(server):
    status, text = asked(server, "GET", "/v1/operator/autopilot/configuration")
    check(status == 200, "settings: %d %r" % (status, text))
    return json.loads(text)


# -- by HTTP -----------------------------------------------------------------------------------------------------------
def questions(cluster):
    voters = lambda: all(len(raft_servers(s)) == 3 and all(v["Voter"] for v in raft_servers(s).values()) for s in cluster.servers)
    until("three voters", voters)
    for s in cluster.servers:
        led(cluster, "who leads, says " + s.name, lambda leader: {name: v["Leader"] for name, v in raft_servers(s).items()} == {o.name: o is leader for o in cluster.servers})
        # Names come from the other servers themselves: not before this one is connected with them.
        until("as %s itself knows it" % s.name, lambda: sorted(raft_servers(s, "?stale")) == ["s1", "s2", "s3"])
        led(cluster, "healthy, and led, says " + s.name, lambda leader: [
            v["Name"] for v in (well(s) or {"Servers": []})["Servers"] if v["Leader"] and v["LastIndex"] > 0] == [leader.name])
        check(settings(s)["CleanupDeadServers"] is True, "settings")
    one, two = followers(cluster)

    def set_by_index():                  # what was done and not answered has another index
        config = settings(one)
        done = asked(one, "PUT", "/v1/operator/autopilot/configuration?cas=%d" % config["ModifyIndex"], json.dumps(dict(config, MaxTrailingLogs=333)))
        return done[0] == 200 and done[1].strip() == b"true"
    until("set through a follower", set_by_index)
    check(settings(two)["MaxTrailingLogs"] == 333, "and read through the other")
    one.write("/v1/kv/before", b"1")

    def saved():
        status, headers, backup = two.request("GET", "/v1/snapshot", timeout=20 * harness.SLOW + harness.STANDSTILL)
        return None if harness.undecided(status, backup) else (status, headers, backup)
    status, headers, backup = until("an answer", saved)
    check(status == 200 and backup[:2] == b"\x1f\x8b" and int(headers["X-Consul-Index"]) > 0, "a backup from a follower: %d" % status)
    one.write("/v1/kv/before", b"2")
    check(asked(one, "PUT", "/v1/snapshot", backup)[0] == 200, "restored through the other follower")
    until("everywhere", lambda: all(s.request("GET", "/v1/kv/before?raw")[2] == b"1" for s in cluster.servers))


def changes(cluster):
    for bad, wanted in (("", 400), ("?id=xyz", 400), ("?id=ffff", 500), ("?address=1.2.3.4:1", 500)):
        status, text = asked(followers(cluster)[0], "DELETE", "/v1/operator/raft/peer" + bad)
        check(status == wanted, "%r: %d %r" % (bad, status, text))
    for _ in range(2):
        def transferred():               # where its disk has just stood still the named one does not lead, or not for long
            via, other = followers(cluster)
            status, text = asked(via, "PUT", "/v1/operator/raft/transfer-leader?id=" + until("its ID", lambda: raft_servers(via).get(other.name, {}).get("ID")))
            check(status == 200 or any("disk is slow" in s.log() for s in cluster.servers), "transfer through a follower: %d %r" % (status, text))
            return status == 200 and cluster.leader() is other
        until("the named one leads", transferred)
    via, gone = followers(cluster)
    for who in (gone, via):              # the one through which it goes removes another, then itself
        status, text = asked(via, "DELETE", "/v1/operator/raft/peer?address=%s:8300" % who.ip)
        check(status == 200 or who.name not in raft_servers(next(s for s in cluster.servers if s not in (via, gone)), "?stale"), "removal of %s through %s: %d %r" % (who.name, via.name, status, text))
        until("it is gone", lambda: (found := raft_servers(cluster.leader(), "")) and who.name not in found)
        if who is gone:
            who.kill()
            shutil.rmtree(who.data)      # a new server then
            os.makedirs(who.data)
            who.start()
            until("it is taken in again", lambda: raft_servers(via).get(who.name, {}).get("Voter"), 30)
    via.kill()
    via.start()                          # with the folder of before
    until("it says why it is alone", lambda: re.search(r"this server is refused .*it was removed from this cluster", via.log()), 10)
    until("and so do the others", lambda: any("was removed from this cluster" in s.log() for s in cluster.servers if s is not via), 10)


def the_leader_is_lost():
    """What is asked meanwhile waits for the next one; without any it ends with an error in time."""
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        until("three voters", lambda: sum(v["Voter"] for v in raft_servers(cluster.servers[0]).values()) == 3)
        via, other = followers(cluster)
        dead = cluster.leader()
        dead.kill()

        def waits():
            begun = time.monotonic()
            status, _, health = via.request("GET", "/v1/operator/autopilot/health", timeout=15 * harness.SLOW + harness.STANDSTILL)
            if not harness.undecided(status, health):
                return status, health
            check(time.monotonic() - begun > HOLD, "it did not wait for the next leader: %d %r" % (status, health))
            return None                  # an election that took longer
        status, health = until("the next leader answers", waits)
        check(status == 429 and not json.loads(health)["Healthy"], "the next leader answers: %d %r" % (status, health))
        other.kill()
        until("it leads no longer, if it did", lambda: not via.says_leader())
        def lost():                      # should it lead, it answers until it notices that it is alone
            status, _, text = via.request("GET", "/v1/operator/raft/configuration", timeout=30 * harness.SLOW)
            return status == 500 and b"No cluster leader" in text
        until("no majority", lost)

        def refused():
            begun = time.monotonic()
            status, _, text = via.request("DELETE", "/v1/operator/raft/peer?address=%s:8300" % other.ip, timeout=60 * harness.SLOW)
            check(status == 500 and text, "no majority: %d %r" % (status, text))
            return time.monotonic() - begun, 15 * harness.SLOW
        harness.kept("what needs a majority is refused in time", refused)
        check(sorted(raft_servers(via, "?stale")) == ["s1", "s2", "s3"], "what it knows itself it still says")


# -- with the consul program ------------------------------------------------------------------------------------------
def consul(server, *args, code=0, stdin=None):
    env = dict(os.environ, CONSUL_HTTP_ADDR="http://%s:8500" % server.ip)
    r = subprocess.run([CONSUL, *args], input=stdin, capture_output=True, text=True, timeout=60 * harness.SLOW, env=env)
    check(r.returncode == code, "consul %s: exit %d, wanted %d: %s" % (" ".join(args), r.returncode, code, r.stdout + r.stderr))
    return r.stdout + r.stderr


def rows(text):
    lines = [line.split() for line in text.splitlines() if line]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def program_members(cluster, via):
    leader = cluster.leader()
    found = rows(consul(via, "members"))
    check([(m["Node"], m["Status"], m["Type"]) for m in found] == [(s.name, "alive", "server") for s in cluster.servers], "%r" % found)
    found = rows(consul(via, "operator", "raft", "list-peers"))
    check({p["Node"]: p["State"] for p in found} == {s.name: "leader" if s is leader else "follower" for s in cluster.servers}, "%r" % found)


def program_autopilot(via):
    check("Configuration updated" in consul(via, "operator", "autopilot", "set-config", "-max-trailing-logs=321", "-cleanup-dead-servers=true"), "set")
    check("MaxTrailingLogs = 321" in consul(via, "operator", "autopilot", "get-config"), "get")


def program_keys(via, folder):
    consul(via, "kv", "put", "cli/a", "one")
    consul(via, "kv", "put", "cli/b", "-", stdin="two\n")
    check(consul(via, "kv", "get", "cli/a") == "one\n" and consul(via, "kv", "get", "-recurse", "cli/") == "cli/a:one\ncli/b:two\n\n", "get")
    exported = consul(via, "kv", "export", "cli/")
    check([(e["key"], base64.b64decode(e["value"])) for e in json.loads(exported)] == [("cli/a", b"one"), ("cli/b", b"two\n")], exported)
    consul(via, "kv", "delete", "-recurse", "cli/")
    consul(via, "kv", "get", "cli/a", code=1)
    path = os.path.join(folder, "keys.json")
    with open(path, "w") as f:
        f.write(exported)
    consul(via, "kv", "import", "@" + path)
    check(consul(via, "kv", "get", "cli/b") == "two\n\n", "imported")


def program_snapshot(via, folder):
    path = os.path.join(folder, "backup.snap")
    check("Saved and verified snapshot" in consul(via, "snapshot", "save", path), "saved")
    inspected = consul(via, "snapshot", "inspect", path)
    check("Index" in inspected and "Version" in inspected, inspected)
    consul(via, "kv", "put", "cli/a", "later")
    check("Restored snapshot" in consul(via, "snapshot", "restore", path), "restored")
    check(consul(via, "kv", "get", "cli/a") == "one\n", "the value of the backup")


def program(cluster, folder):
    for via in followers(cluster):
        program_members(cluster, via)
        program_autopilot(via)
        program_keys(via, folder)
        program_snapshot(via, folder)
    via, gone = followers(cluster)
    consul(via, "operator", "raft", "remove-peer", "-address=%s:8300" % gone.ip)
    check(sorted(p["Node"] for p in rows(consul(via, "operator", "raft", "list-peers"))) == sorted(s.name for s in cluster.servers if s is not gone), "removed")
    consul(via, "operator", "raft", "remove-peer", "-id=ffffffff", code=1)


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        questions(cluster)
        changes(cluster)
    the_leader_is_lost()
    print("questions and changes through servers that do not lead: done", flush=True)
    if not CONSUL or not os.path.exists(CONSUL):
        print("no consul program (COORD_CONSUL): its command line was not tried")
        return 0
    with harness.Cluster(3) as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.start()
        cluster.wait_writable()
        until("three voters", lambda: sum(v["Voter"] for v in raft_servers(cluster.servers[0]).values()) == 3)
        program(cluster, folder)
    print("the consul command line through servers that do not lead: done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
