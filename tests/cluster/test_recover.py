#!/usr/bin/env python3
"""Two of three servers are lost for good: the third goes on alone (coord operator recover), and two new ones join."""
import hashlib, json, os, shutil, socket, subprocess, sys, threading, time
import harness
from harness import check


def until(what, condition, within=20.0):
    return harness.until(what, condition, within)


def recover(*args, code):
    r = subprocess.run([harness.COORD, "operator", "recover", *args], capture_output=True, text=True, timeout=60 * harness.SLOW, stdin=subprocess.DEVNULL)
    check(r.returncode == code, "recover %s: exit %d, wanted %d: %s" % (" ".join(args), r.returncode, code, r.stdout + r.stderr))
    return r.stdout + r.stderr


def contents(folder):
    """What a data folder holds: the log and snapshots byte for byte, of all files when they were written."""
    found = {}
    for base, _, names in os.walk(folder):
        for path in (os.path.join(base, name) for name in names):
            found[path] = os.stat(path).st_mtime_ns, os.stat(path).st_size
            if os.path.basename(base) == "raft":
                with open(path, "rb") as f:
                    found[path] += (hashlib.sha256(f.read()).hexdigest(),)
    return found


def status_of(server, query, key="fixed"):
    """Of a read. 500 while servers elect a leader: a default read is made again then."""
    ask = lambda: server.request("GET", "/v1/kv/%s?%s" % (key, query), timeout=20 * harness.SLOW)[0]
    return ask() if query else until("a default read of " + key, lambda: [status for status in [ask()] if status != 500])[0]


def voters(server):
    servers = (server.get("/v1/operator/raft/configuration?stale")[2] or {}).get("Servers", [])
    return {s["Node"]: s for s in servers if s["Voter"]}


def writes_until_killed(cluster, third, lost):
    """Clients write through the third server all the time; what was acknowledged is to be there afterwards."""
    acknowledged, over = [], threading.Event()

    def write(number):
        at = 0
        while not over.is_set():
            key = "w/%d/%d" % (number, at)
            if third.try_put("/v1/kv/" + key, key.encode(), timeout=1):
                acknowledged.append(key)
            at += 1
    threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(4)]
    for t in threads:
        t.start()
    until("some writes", lambda: len(acknowledged) > 200)
    for server in lost:
        server.kill()
    over.set()
    for t in threads:
        t.join()
    return acknowledged


def leads_alone(third, acknowledged):
    until("it leads", lambda: third.says_leader().startswith(third.ip + ":"))
    third.write("/v1/kv/after", b"1")
    check(sorted(voters(third)) == [third.name], "it votes alone: %r" % voters(third))
    index = next(int(line.rsplit(" ", 1)[1]) for line in third.log().splitlines() if "recovered by an operator at index" in line)
    metrics = third.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()
    check("coord_raft_recovered_index %d\n" % index in metrics, "the metric says it too")
    kept = set(until("the keys", lambda: third.get("/v1/kv/w/?keys", 20 * harness.SLOW)[2]))
    missing = [key for key in acknowledged if key not in kept]
    check(not missing, "of %d acknowledged writes %d are gone: %r" % (len(acknowledged), len(missing), missing[:5]))
    return index


def stays_out(leading, server, why):
    until("both say why", lambda: all(why in s.log() for s in (leading, server)))
    end = time.monotonic() + 1.5     # the leader looks ten times a second
    while time.monotonic() < end:
        servers = leading.get("/v1/operator/raft/configuration?stale")[2]["Servers"]
        check(len(servers) == 1, "what was lost stays out with its old data: %r" % servers)
        time.sleep(0.1)


def new_ones_join(cluster, third, lost, acknowledged):
    first, second = lost
    first.start()                    # with its old data: it is not taken in
    stays_out(third, first, "was removed from this cluster")
    first.kill()
    for server in lost:              # and empty it is a new server
        shutil.rmtree(server.data)
        os.makedirs(server.data)
        server.start()
    until("three voters", lambda: len(voters(third)) == 3, 30)
    until("each leads or follows", lambda: all(s.says_leader() for s in cluster.servers))
    for server in lost:
        until("it has everything", lambda: set(acknowledged) <= set(server.get("/v1/kv/w/?keys&stale", 20)[2] or []))
        server.write("/v1/kv/through/" + server.name, b"1")      # and takes writes
    third.kill()                     # the new ones go on without the one that was recovered
    cluster.wait_writable(lost)


def two_go_on():
    """Of five servers two are left: they go on together."""
    with harness.Cluster(5) as cluster:
        cluster.start()
        cluster.wait_writable()
        until("five voters", lambda: len(voters(cluster.servers[0])) == 5, 30)
        one, two = [s for s in cluster.servers if s is not cluster.leader()][:2]
        ids = {name: s["ID"] for name, s in voters(one).items()}
        one.write("/v1/kv/kept", b"1")
        until("both have it", lambda: all(s.request("GET", "/v1/kv/kept?stale")[0] == 200 for s in (one, two)))
        for server in cluster.servers:
            server.kill()
        shown = recover("-data-dir=" + one.data, "-data-dir=" + two.data, code=1)
        check("The furthest is" in shown and "Do not recover" not in shown, shown)
        best, other = (one, two) if "The furthest is " + one.data in shown else (two, one)
        for wrong, says in ((ids[other.name][:-1] + "@" + other.ip + ":8300", "none of the members"), (ids[other.name] + "@x:", "is not ID@IP:PORT"),
                            (ids[other.name] + "@" + other.ip + ":83OO", "is not ID@IP:PORT"), ("-1@" + other.ip + ":8300", "is not ID@IP:PORT")):
            check(says in recover("-data-dir=" + best.data, "-yes", "-voter=" + wrong, code=1), "a wrong voter: " + wrong)
        recover("-data-dir=" + best.data, "-yes", "-voter=%s@%s:8300" % (ids[other.name], other.ip), code=0)
        best.start()
        other.start()
        cluster.wait_writable([one, two])
        for s in (one, two):
            check(status_of(s, "", "kept") == 200, "what was acknowledged is there")
        check(sorted(voters(best)) == sorted([one.name, two.name]), "two vote: %r" % voters(best))


def one_that_was_not_known():
    """The survivor never heard of a fourth server, which has more than it: that does not come back with what it has either."""
    with harness.Cluster(4, expect=3) as cluster:
        first, second, third, fourth = cluster.servers
        for server in (first, second, third):
            server.start()
        cluster.wait_writable([first, second, third])
        third.kill()
        fourth.start()
        until("it votes", lambda: fourth.name in voters(first) and fourth.name in voters(fourth), 30)
        for number in range(60):
            first.write("/v1/kv/old/%d" % number, b"1")
        until("it has them", lambda: fourth.request("GET", "/v1/kv/old/59?stale")[0] == 200)
        for server in (first, second, fourth):
            server.kill()
        recover("-data-dir=" + third.data, "-yes", code=0)
        third.start()
        cluster.wait_writable([third])
        fourth.start()
        stays_out(third, fourth, "this cluster was recovered without it")
        third.write("/v1/kv/fresh", b"1")
        for key in ("fresh", "old/59"):
            check(fourth.request("GET", "/v1/kv/" + key, timeout=20 * harness.SLOW)[0] == 500, "it answers no default read")
        fourth.kill()
        shutil.rmtree(fourth.data)
        os.makedirs(fourth.data)
        fourth.start()
        until("empty it joins", lambda: fourth.name in voters(third), 30)
        check(status_of(fourth, "", "fresh") == 200 and status_of(fourth, "", "old/59") == 404, "with what the cluster has")


def moved(server):
    """Its folder as on another disk, or after a loss of power: the store is not believed, so it does not know what was committed."""
    subprocess.run(["cp", "-a", "--sparse=always", server.data, server.data + ".moved"], check=True)
    shutil.rmtree(server.data)
    os.rename(server.data + ".moved", server.data)


def less_was_chosen(move, times=1):
    """An operator goes on from the survivor that has less, together with the one that has more: that one says so and acknowledges nothing, so nothing
    is written into two histories; then it is done the right way round. times: done again, before it was started and after."""
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        less, more, lost = cluster.servers
        id_of = voters(more)[more.name]["ID"]
        less.kill()
        until("a leader", lambda: more.try_put("/v1/kv/first"))
        for number in range(40):
            more.write("/v1/kv/old/%d" % number, b"1")
        until("it has them", lambda: more.request("GET", "/v1/kv/old/39?stale")[0] == 200)
        for server in (more, lost):
            server.kill()
        if move:
            moved(more)
        for _ in range(times):
            recover("-data-dir=" + less.data, "-yes", "-voter=%s@%s:8300" % (id_of, more.ip), code=0)
        less.start()
        more.start()
        until("it is said", lambda: "contradicts what may be committed here" in more.log())
        if times > 1:
            for server in (less, more):
                server.kill()
            said = len(more.log())
            recover("-data-dir=" + less.data, "-yes", "-voter=%s@%s:8300" % (id_of, more.ip), code=0)
            less.start()
            more.start()
            until("it is said again", lambda: "contradicts what may be committed here" in more.log()[said:])
        check(not any(s.try_put("/v1/kv/into/two", timeout=3) for s in (less, more)), "no write is acknowledged")
        check(more.request("GET", "/v1/kv/old/39?stale")[0] == (404 if move else 200), "and what it has applied is still there")
        for server in (less, more):
            server.kill()
        shown = recover("-data-dir=" + less.data, "-data-dir=" + more.data, code=1)
        check("different histories" in shown and "furthest" not in shown and "majority" not in shown and shown.count("Of one history") == 2, "neither is called the better one: " + shown)
        recover("-data-dir=" + more.data, "-yes", code=0)
        more.start()
        cluster.wait_writable([more])
        check(status_of(more, "", "old/39") == 200, "nothing is lost")
        shutil.copytree(lost.data, lost.data + ".copy", ignore=lambda folder, names: [] if folder.endswith("/raft") else set(names) - {"raft", "server-id"})
        check("are of one server" in recover("-data-dir=" + lost.data, "-data-dir=" + lost.data + ".copy", code=1), "a copy counts as no second server")




def asks(server, query, header=b""):
    s = socket.create_connection((server.ip, 8500), timeout=20 * harness.SLOW)
    s.sendall(b"GET /v1/kv/fixed" + query + b" HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n")
    return s


def others_are_served(third):
    """While reads wait for a leader, who asks for something else on the same worker is answered, also with a header that comes in parts, and
    with a file that goes in parts."""
    waiting = [asks(third, b"") for _ in range(40)]      # on each of several workers
    took = []
    for size in (100, 3000, 6000, 8000):
        begun = time.monotonic()
        with asks(third, b"?stale", b"X-Long: " + b"x" * size + b"\r\n") as s:
            line = s.recv(100).split(b"\r\n")[0]
        took.append(time.monotonic() - begun)
        check(line == b"HTTP/1.1 200 OK", "a header of %d bytes: %r" % (size, line))
    begun = time.monotonic()
    status, _, body = third.request("GET", "/v1/snapshot?stale", timeout=20 * harness.SLOW)
    check(status == 200 and len(body) > 400000, "a backup meanwhile: %d, %d bytes" % (status, len(body)))
    took.append(time.monotonic() - begun)
    for s in waiting:
        with s:
            check(s.recv(100).startswith(b"HTTP/1.1 500 "), "no leader")
    return max(took), 3 * harness.SLOW


def is_not_too_stale(third):
    """What nobody leads for is as old as the last leader's word."""
    status = lambda query: status_of(third, query)
    until("it was a second ago", lambda: status("stale&max_stale=1s") == 500, 20)
    check(status("stale&max_stale=1h") == 200 and status("stale") == 200, "within the bound")
    third.kill()
    third.start()

    def answers():
        try:
            return status("stale") == 200
        except OSError:
            return False
    until("it answers", answers, 20)
    check(status("stale&max_stale=1h") == 500, "it has not heard of a leader in this life")


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        until("three voters", lambda: len(voters(cluster.servers[0])) == 3)
        third = next(s for s in cluster.servers if s is not cluster.leader())
        lost = [s for s in cluster.servers if s is not third]
        third.write("/v1/kv/fixed", b"1")
        third.write("/v1/kv/large", os.urandom(450000))
        until("its leader was heard", lambda: [status_of(third, "stale&max_stale=1s") for _ in range(4)] == [200] * 4)      # and is kept
        acknowledged = writes_until_killed(cluster, third, lost)
        status = third.request("PUT", "/v1/kv/alone", b"1", timeout=30 * harness.SLOW)[0]
        check(status in (500, 503), "no majority, no writes: %d" % status)
        harness.kept("others are answered while reads wait for a leader", lambda: others_are_served(third))
        is_not_too_stale(third)
        check("is in use" in recover("-data-dir=" + third.data, code=1), "refused while the server runs")
        check("is in use" in recover("-data-dir=" + third.data, "-yes", code=1), "refused while the server runs")
        third.kill()
        before = contents(third.data)
        os.rename(third.data + "/lock", third.data + "/lock.away")
        check("Nothing was changed" in recover("-data-dir=" + third.data, code=1), "a copy without the lock file")
        os.rename(third.data + "/lock.away", third.data + "/lock")
        shown = recover("-data-dir=" + third.data, code=1)
        check("Nothing was changed" in shown and shown.count("votes") >= 3 and "-yes" in shown, shown)
        check(contents(third.data) == before, "looking changes nothing")
        both = recover("-data-dir=" + third.data, "-data-dir=" + lost[0].data, code=1)
        check("The furthest is" in both and "Do not recover" in both, both)
        check("is for one" in recover("-data-dir=" + third.data, "-data-dir=" + lost[0].data, "-yes", code=2), "-yes is for one")
        check("not the data folder" in recover("-data-dir=" + cluster.dir, "-yes", code=1), "some folder")
        check("ID@IP:PORT" in recover("-data-dir=" + third.data, "-yes", "-voter=nobody", code=1), "a wrong voter")
        done = recover("-data-dir=" + third.data, "-yes", code=0)
        third.start()
        index = leads_alone(third, acknowledged)
        check("Recovered at index %d," % index in done, done)
        new_ones_join(cluster, third, lost, acknowledged)
    two_go_on()
    one_that_was_not_known()
    less_was_chosen(move=False)
    less_was_chosen(move=True, times=2)
    print("recovered at index %d with %d acknowledged writes; two new servers joined; two of five went on" % (index, len(acknowledged)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
