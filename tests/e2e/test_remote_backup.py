"""Backups through a client agent: saved, checked and restored there as at a server; large ones in little memory, and without holding up what
else goes over the agent's connection; cut in the middle, with an error and without a trace."""
import gzip, hashlib, http.client, io, json, os, re, shutil, signal, socket, subprocess, tarfile, tempfile, threading, time
from coordtest import COORD, FIGURES, SLOW, Cluster, check, run, until
from test_operator import PROGRAMS, words

VALUE = 500000


def fill(agent, megabytes):
    """Bytes that do not shrink; what the last key holds."""
    count = (megabytes * 1000000 + VALUE - 1) // VALUE
    for i in range(count):
        agent.put("/v1/kv/big/%d" % i, os.urandom(VALUE))
    return count, agent.request("GET", "/v1/kv/big/%d?raw" % (count - 1))[2]


def nameless(agent, least=1):
    """Sizes of files without a name in its data folder that it has open: archives on their way."""
    sizes, folder = [], "/proc/%d/fd" % agent.proc.pid
    for fd in os.listdir(folder):
        try:
            name = os.readlink(os.path.join(folder, fd))
            if re.match(re.escape(agent.data) + r"/(#\d+|backup-\w+) \(deleted\)$", name):
                sizes.append(os.stat(os.path.join(folder, fd)).st_size)
        except OSError:
            continue
    return [size for size in sizes if size >= least]


def peak_kib(agent):
    with open("/proc/%d/status" % agent.proc.pid) as f:
        return next(int(l.split()[1]) for l in f if l.startswith("VmHWM"))


class Sending(threading.Thread):
    """A PUT of a file; `answer` is its status and text, or why there is none."""

    def __init__(self, agent, path):
        super().__init__(daemon=True)
        self.agent, self.path, self.answer = agent, path, None
        self.start()

    def run(self):
        try:
            with open(self.path, "rb") as f:
                c = http.client.HTTPConnection(self.agent.ip, 8500, timeout=120 * SLOW)
                c.request("PUT", "/v1/snapshot", body=f, headers={"Content-Length": str(os.path.getsize(self.path))})
                r = c.getresponse()
                self.answer = r.status, r.read().decode()
        except (OSError, http.client.HTTPException) as e:
            self.answer = 0, repr(e)


class Getting(threading.Thread):
    def __init__(self, agent):
        super().__init__(daemon=True)
        self.agent, self.answer = agent, None
        self.start()

    def run(self):
        try:
            status, _, body = self.agent.request("GET", "/v1/snapshot", timeout=120 * SLOW)
            self.answer = status, body
        except (OSError, http.client.HTTPException) as e:
            self.answer = 0, repr(e)


def consul_backup():
    """In the form of ours, with what `consul snapshot save` of Consul 1.8 begins its state with."""
    state = b"\x81\xa9LastIndex\x0d\x00\x8d\xa7Address\xa9127.0.0.1\xa5Check\xc0\xa6Checks\xc0"
    meta = json.dumps({"Version": 1, "ID": "2-13-1795757410282", "Index": 13, "Term": 2, "Peers": "ka8xMjcuMC4wLjE6MjgzMDA=", "Size": len(state),
                       "Configuration": {"Servers": [{"Suffrage": 0, "ID": "fdc5477b", "Address": "127.0.0.1:8300"}]}, "ConfigurationIndex": 1}).encode()
    sums = "".join("%s  %s\n" % (hashlib.sha256(data).hexdigest(), name) for name, data in (("meta.json", meta), ("state.bin", state))).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in (("meta.json", meta), ("state.bin", state), ("SHA256SUMS", sums)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def saved_and_restored():
    """With our command line and, where there is one, Consul's."""
    cluster = Cluster().start()
    agent = cluster.agent("a1").start(wait=False).wait_leader(30)
    folder = tempfile.mkdtemp(prefix="coord-backup-")
    for program in PROGRAMS:
        path = os.path.join(folder, os.path.basename(program) + ".snap")
        agent.put("/v1/kv/r/kept", b"\0\1bytes" * 50000)
        agent.put("/v1/kv/r/0", b"before")
        kept = agent.get("/v1/kv/r/kept")[2]
        words(program, agent, "snapshot", "save", path)
        for p in PROGRAMS:
            check("Index" in words(p, agent, "snapshot", "inspect", path), "inspect")
        agent.put("/v1/kv/r/0", b"after")
        agent.put("/v1/kv/r/new", b"1")
        highest = agent.get("/v1/kv/r/new")[2][0]["ModifyIndex"]
        words(program, agent, "snapshot", "restore", path)
        for a in cluster.servers + [agent]:
            status, headers, value = a.get("/v1/kv/r/0")
            check(a.request("GET", "/v1/kv/r/0?raw")[2] == b"before" and int(headers["X-Consul-Index"]) > highest, "restored on " + a.name)
            check(a.get("/v1/kv/r/kept")[2] == kept, "bytes as they were on " + a.name)
            check(a.request("GET", "/v1/kv/r/new")[0] == 404, "what came later is gone on " + a.name)
    status, headers, body = agent.request("GET", "/v1/snapshot?stale")
    check(status == 200 and headers["Content-Type"] == "application/x-gzip" and int(headers["X-Consul-Index"]) > 0 and
          headers["X-Consul-KnownLeader"] == "true", "%r" % headers.items())
    server = cluster.leader()
    flipped = body[:len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1:]
    for bad, said in ((body[:-20], "is cut off: it ends after %d bytes" % (len(body) - 20)), (b"x" * 300000, "this is text, no backup"), (flipped, "a"),
                      (consul_backup(), "a backup of Consul, not of coord"), (bytes(16) + b"\xed\xda\x0c\xed" + bytes(4076), "a snapshot of etcd, not of coord"),
                      (b"ZKSN\0\0\0\2" + bytes(100), "a snapshot of ZooKeeper, not of coord"), (b"No cluster leader", 'it begins "No cluster leader"'),
                      (gzip.compress(b"\0\1\2" * 999), "something else is compressed in this file"), (b"", "the file is empty")):
        theirs, ours = [a.request("PUT", "/v1/snapshot", bad) for a in (server, agent)]
        check(ours[0] == theirs[0] == 400 and ours[2] == theirs[2] and said in ours[2].decode(), "%s: %r, a server says %r" % (said, ours[::2], theirs[::2]))
        path = os.path.join(folder, "bad")
        with open(path, "wb") as f:
            f.write(bad)
        for command in ("inspect", "restore"):
            r = subprocess.run([COORD, "snapshot", command] + ["-http-addr=%s:8500" % agent.ip] * (command == "restore") + [path], capture_output=True, text=True, timeout=60 * SLOW)
            check(r.returncode == {"inspect": 1, "restore": 2}[command] and said in r.stderr and "Unexpected" not in r.stderr, "snapshot %s: %r" % (command, r))
    check(agent.request("GET", "/v1/kv/r/0?raw")[2] == b"before", "nothing was restored")
    for a in cluster.servers + [agent]:
        until("no file is left on " + a.name, lambda: not nameless(a))
    for server in cluster.servers:
        server.kill()
    until("the agent has noticed", lambda: "no server can be reached" in agent.log())
    for method, body in (("GET", None), ("PUT", body)):
        status, _, text = agent.request(method, "/v1/snapshot", body, timeout=60)
        check(status == 500 and text.strip() == b"No cluster leader", "without servers: %d %r" % (status, text))
    shutil.rmtree(folder)


def many_at_once():
    """They wait for each other, so that what a backup needs of room and threads is needed once. What else needs the threads' pool goes on."""
    cluster = Cluster().start()
    server = cluster.leader()
    fill(server, 12)
    agent = cluster.agent("a1").start(wait=False).wait_leader(30)
    for turn in range(3):                                # a disk that stands still holds up the definition, and no backup
        getting = [Getting(server if i % 4 else agent) for i in range(12)]
        until("the first is done, the others have been asked for", lambda: any(g.answer for g in getting))
        server.put("/v1/agent/service/register", {"Name": "meanwhile%d" % turn, "Port": 1})     # its definition is saved
        left = sum(g.answer is None for g in getting)
        for g in getting:
            g.join()
        if left > 6:
            break
    check(left > 6, "it waited for the backups: %d of 12 are under way" % left)
    for g in getting:
        check(g.answer[0] == 200, "%r" % (g.answer,))
        path = tempfile.mktemp()
        with open(path, "wb") as f:
            f.write(g.answer[1])
        check("Index" in words(COORD, server, "snapshot", "inspect", path), "it can be restored")
        os.unlink(path)
    for a in (server, agent):
        until("no file is left on " + a.name, lambda: not nameless(a))


def large_in_little_memory():
    """60 MB and more. A client that does not read holds up nobody: reads and writes through the same agent go on meanwhile."""
    cluster = Cluster(1).start()
    server = cluster.servers[0]
    agent = cluster.agent("a1").start(wait=False).wait_leader(30)
    count, last = fill(server, 66 if FIGURES else 20)
    agent.get("/v1/kv/big/?keys")
    before = peak_kib(agent), agent.rss_kib()
    slow = socket.create_connection((agent.ip, 8500))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(b"GET /v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n")
    until("its answer begins", lambda: slow.recv(16, socket.MSG_PEEK), 60)
    worst = 0
    for i in range(50):
        begun = time.monotonic()
        agent.put("/v1/kv/other", b"%d" % i)
        check(agent.request("GET", "/v1/kv/other?raw")[2] == b"%d" % i, "read back")
        worst = max(worst, time.monotonic() - begun)
    until("the server is done with it", lambda: not nameless(server))
    check(nameless(agent), "the agent has it")
    folder = tempfile.mkdtemp(prefix="coord-backup-")
    path = os.path.join(folder, "b")
    begun = time.monotonic()
    words(COORD, agent, "snapshot", "save", path)
    saved = time.monotonic() - begun
    size = os.path.getsize(path)
    check(size > count * VALUE, "%d bytes" % size)
    slow.close()
    agent.put("/v1/kv/big/%d" % (count - 1), b"changed")
    begun = time.monotonic()
    words(COORD, agent, "snapshot", "restore", path)
    restored = time.monotonic() - begun
    check(agent.request("GET", "/v1/kv/big/%d?raw" % (count - 1))[2] == last, "bytes as they were")
    for a in (server, agent):
        until("no file is left on " + a.name, lambda: not nameless(a))
    grown = peak_kib(agent) - before[0]
    print("     %.1f MB: saved in %.2f s, restored in %.2f s; the agent's peak grew by %d KiB (rss before: %d KiB); beside a client that does not read: "
          "%.0f ms at most for a write and a read" % (size / 1e6, saved, restored, grown, before[1], worst * 1e3))
    if SLOW == 1:
        check(grown < 8 * 1024, "the agent's peak memory grew by %d KiB" % grown)
    check("the connection is lost" not in agent.log(), "its connection was kept")
    shutil.rmtree(folder)


def caught(what, hosts, begin, moment):
    """Begins it until it was seen in the middle; returns what `begin` gave. What is left of an attempt goes little by little."""
    for _ in range(20):
        thread = begin()
        while thread.answer is None:
            if moment():
                return thread
        thread.join()
        until("nothing is left of it", lambda: not any(nameless(host) for host in hosts))
        print("     %s: was over before it was seen, once more" % what, flush=True)
    raise AssertionError("never seen in the middle: " + what)


def cut_in_the_middle():
    """The agent, its server, or the connection: an error for who waits, the state as it was, no file left."""
    cluster = Cluster().start()
    leader = cluster.leader()
    agent = cluster.agent("a1").start(wait=False).wait_leader(30)
    fill(leader, 60 if FIGURES else 20)
    folder = tempfile.mkdtemp(prefix="coord-backup-")
    path = os.path.join(folder, "b")
    words(COORD, agent, "snapshot", "save", path)
    size = os.path.getsize(path)
    agent.put("/v1/kv/which", b"new")

    def halted(whose, receiver):
        """Stops it as soon as the receiver's file is neither empty nor half of it: what is on its way between them is not the rest."""
        partly = lambda: any(s < size / 2 for s in nameless(receiver))
        if not partly():
            return False
        whose.proc.send_signal(signal.SIGSTOP)
        if partly():
            return True
        whose.proc.send_signal(signal.SIGCONT)
        return False

    def server_of():
        address = re.findall(r"connected server=(\S+) ", agent.log())[-1]
        return next(s for s in cluster.servers if s.name == address)

    # the agent dies while it brings a backup
    server = server_of()
    whole = lambda: any(s >= size for s in nameless(agent))      # its client's upload is there: what grows now is at the server
    sending = caught("restore, the agent dies", (agent, server), lambda: Sending(agent, path),
                     lambda: whole() and halted(agent, server))
    left = nameless(server)
    agent.kill()
    sending.join()
    check(left and left[0] < size, "in the middle: %r of %d" % (left, size))
    until("the server keeps nothing of it", lambda: not nameless(server))
    check("not restored" not in server.log(), "it was not even begun")
    check(server.request("GET", "/v1/kv/which?raw")[2] == b"new", "nothing was restored")
    agent.start(wait=False).wait_leader(30)

    # its server dies while it takes a backup
    server = server_of()
    sending = caught("restore, the server dies", (agent, server), lambda: Sending(agent, path), lambda: whole() and halted(server, server))
    server.kill()
    sending.join()
    check(sending.answer == (500, "nothing is restored: the connection with the server ended in the middle of the backup"), "%r" % (sending.answer,))
    until("the agent keeps nothing of it", lambda: not nameless(agent))
    which = until("a server answers", lambda: (lambda status, _, value: status == 200 and value)(*agent.request("GET", "/v1/kv/which?raw")), 30)
    check(which == b"new", "nothing was restored")
    server.start(wait=False)
    server.wait_leader(30)

    # its server dies while it gives one
    server = server_of()
    getting = caught("save, the server dies", (agent, server), lambda: Getting(agent),
                     lambda: halted(server, agent))
    server.kill()
    getting.join()
    check(getting.answer[0] == 500 and b"the backup is not saved: the connection with the server ended in the middle" in getting.answer[1], "%r" % (getting.answer,))
    until("the agent keeps nothing of it", lambda: not nameless(agent))
    server.start(wait=False)
    server.wait_leader(30)

    # and afterwards all is well
    words(COORD, agent, "snapshot", "save", path)
    until("it is restored", lambda: subprocess.run([COORD, "snapshot", "restore", path], env=dict(os.environ, COORD_HTTP_ADDR=agent.ip + ":8500"),
                                                   stdin=subprocess.DEVNULL, capture_output=True).returncode == 0, within=60)
    check(agent.request("GET", "/v1/kv/which?raw")[2] == b"new", "the newest")
    shutil.rmtree(folder)


if __name__ == "__main__":
    run([saved_and_restored, many_at_once, large_in_little_memory, cut_in_the_middle])
