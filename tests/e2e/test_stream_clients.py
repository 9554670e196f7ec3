"""Clients of streams that come back by themselves: those of docs/streams.md, and coord watch -stream."""
import base64, json, os, select, signal, subprocess, sys, tempfile, time
from coordtest import COORD, SLOW, STANDSTILL, Agent, Cluster, check, run, settings, until
from streams import Writer, documented, numbers


def documented_clients_survive():
    """Those of docs/streams.md, while the leader dies, while they are stopped for longer than the history reaches back, and when a backup
    becomes the state."""
    cluster = Cluster(3, settings(history_bytes=4 << 20)).start()
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
        for i in range(400):             # more than the history keeps, and than the buffers of the connections hold
            leader.put("/v1/kv/jobs/big", b"%d-" % i + b"x" * 60000)
        leader.request("DELETE", "/v1/kv/jobs/big")
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


def documented_clients_end():
    """By SIGTERM to them alone, by Ctrl-C, and when nobody reads what they print: soon, in silence, and with all that they started."""
    agent = Agent(dev=True).start()
    agent.put("/v1/kv/jobs/a", "0")
    with tempfile.TemporaryDirectory(prefix="coord-e2e-") as folder:
        for language, name in (("sh", "follow.sh"), ("python", "follow.py")):
            with open(os.path.join(folder, name), "w") as f:
                f.write(documented(language))

        def ends(how, *words):
            """Started as by a shell with jobs: in a group of its own, which is its children's too."""
            client = subprocess.Popen(words + (agent.ip + ":8500",), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      start_new_session=True, env=dict(os.environ, TMPDIR=folder), text=True)
            check(client.stdout.readline().startswith("all "), "it has begun")
            agent.put("/v1/kv/jobs/a", "%d" % client.pid)          # another value: else nothing has changed
            check(client.stdout.readline().startswith("kv "), "it follows")
            begun = time.monotonic()
            how(client)
            client.wait(60 * SLOW)
            check(time.monotonic() - begun < 2 * SLOW + STANDSTILL, "%r took %.1f s to end" % (words, time.monotonic() - begun))
            until("nothing is left of %r" % (words,), lambda: not group_lives(client.pid), 2)
            said = client.stderr.read()
            check(not said, "%r says at its end: %s" % (words, said))

        def nobody_reads(client):
            client.stdout.close()
            agent.put("/v1/kv/jobs/a", "last %d" % client.pid)
        for words in (("dash", "follow.sh", "jobs/"), ("bash", "follow.sh", "jobs/"), (sys.executable, "follow.py")):
            ends(lambda client: client.terminate(), *words)
            ends(lambda client: os.killpg(client.pid, signal.SIGINT), *words)
            ends(nobody_reads, *words)
        check(sorted(os.listdir(folder)) == ["follow.py", "follow.sh"], os.listdir(folder))


def documented_clients_read_anew():
    """A client that comes back with a position of before the history is told so (410), and reads anew."""
    agent = Agent().start()
    with tempfile.TemporaryDirectory(prefix="coord-e2e-") as folder:
        clients = []
        for language, name, words in (("sh", "follow.sh", ["sh", "follow.sh", "jobs/"]), ("python", "follow.py", [sys.executable, "follow.py"])):
            with open(os.path.join(folder, name), "w") as f:
                f.write(documented(language))
            clients.append(subprocess.Popen(words + [agent.ip + ":8500"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            start_new_session=True, env=dict(os.environ, TMPDIR=folder), text=True))
        try:
            for client in clients:
                check(client.stdout.readline() == "all 1 \n", "there is nothing yet")
                os.killpg(client.pid, signal.SIGSTOP)
            agent.stop(), agent.start()
            agent.put("/v1/kv/jobs/a", "0")
            for client in clients:
                os.killpg(client.pid, signal.SIGCONT)
                ready = select.select([client.stdout], [], [], 30 * SLOW + STANDSTILL)[0]
                check(ready and '"jobs/a"' in client.stdout.readline(), "it reads anew")
        finally:
            for client in clients:
                os.killpg(client.pid, signal.SIGKILL)
                client.wait()


def group_lives(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


def the_command_goes_on():
    """coord watch -stream: an event a line, over the death of servers and a gap; it ends on SIGINT."""
    cluster = Cluster(3).start()
    small = Agent(settings(history_changes=50), name="small").start()
    addresses = ",".join(s.ip + ":8500" for s in cluster.servers)
    leader = cluster.leader()
    leader.put("/v1/kv/w/a", "0")
    old = leader.request("GET", "/v1/kv/w/a")[1]["X-Consul-Index"]

    def begin(*words, addresses=addresses):
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        return subprocess.Popen([COORD, "watch", "-stream", "-http-addr=" + addresses, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err), out, err

    def text(file):
        """Without moving the offset, which the command that writes shares."""
        return os.pread(file.fileno(), 1 << 24, 0).decode()

    def lines(out):
        return [json.loads(line) for line in text(out).split("\n")[:-1]]
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
    small.put("/v1/kv/w/a", "0")
    old = small.request("GET", "/v1/kv/w/a")[1]["X-Consul-Index"]
    for i in range(100):
        small.put("/v1/kv/w/a", "%d" % i)
    late, out, err = begin("-key=w/a", "-from=" + old, addresses=small.ip + ":8500")
    until("a gap", lambda: lines(out))
    check(lines(out)[0]["Event"] == "gap" and lines(out)[0]["Data"]["Index"] == lines(out)[0]["Index"] > int(old), lines(out))
    small.put("/v1/kv/w/a", "new")
    until("what comes after it", lambda: len(lines(out)) == 2)
    late.send_signal(signal.SIGTERM)
    check(late.wait(10 * SLOW) == 0, "SIGTERM is no failure")
    for words, code, word in ((["-key=a", "-from=-1"], 2, "from"), ([], 2, "nothing to follow"), (["-key=a", "program"], 2, "no program"),
                              (["-key=a", "-form=1"], 2, "-from")):
        wrong, _, err = begin(*words)
        check(wrong.wait(20 * SLOW) == code, words)
        check(word in text(err), words)


run([documented_clients_survive, documented_clients_read_anew, documented_clients_end, the_command_goes_on])
