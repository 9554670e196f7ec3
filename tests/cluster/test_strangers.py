#!/usr/bin/env python3
"""Whatever arrives at the servers' port: they stay up, stay a cluster of three, and go on writing. Two clusters of one name stay two."""
import collections, json, os, random, shutil, socket, struct, sys, threading, time
import harness
from harness import check, until


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """One field of a protobuf message: a number or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(kind, payload):
    return struct.pack("<IB", len(payload), kind) + payload


HELLO, WRITES, RESULTS, KINDS, FETCH, FETCH_END, FETCHED, REFUSED, COORDINATE, BACKUP, BACKUP_PIECE, AGENT_KINDS = 1, 3, 4, 16, 20, 21, 22, 32, 35, 36, 37, 40
NOLEADER, UNKNOWN_OUTCOME = 10, 11      # enum co_error


def hello(identity, cluster=b"dc1", cluster_id=0, least=1, most=harness.NEWEST):
    """As a server of this version says it; cluster versions `least` to `most`."""
    return frame(HELLO, field(1, b"coord-peer") + field(2, 1) + field(3, 1) + field(4, cluster) + field(5, identity) +
                 field(6, b"10.9.9.9:8300") + field(7, b"stranger") + field(8, 3) + varint(11 << 3 | 1) + struct.pack("<Q", cluster_id) +
                 field(12, least) + field(13, most))


def agent_hello(identity, cluster=b"dc1"):
    """As a client agent says it."""
    return frame(HELLO, field(1, b"coord-peer") + field(2, 1) + field(3, 1) + field(4, cluster) + field(5, identity) + field(6, b"10.9.9.8") +
                 field(7, b"strange-agent") + field(15, 1))


def agents_junk(rng):
    """What one stranger says who is taken for a client agent."""
    known = agent_hello(rng.randrange(1, 1 << 63))
    fetch = lambda request: frame(FETCH, field(1, rng.randrange(4)) + field(2, rng.randrange(70)) + field(3, request) + field(5, rng.randrange(1 << 64)) + field(6, rng.randrange(1 << 64)))
    return rng.choice([
        lambda: known + b"".join(frame(kind, rng.randbytes(rng.randrange(40))) for kind in range(AGENT_KINDS)),
        lambda: known + b"".join(fetch(rng.randbytes(rng.randrange(30))) for _ in range(50)),
        lambda: known + b"".join(fetch(field(1, rng.randbytes(rng.randrange(20000)))) for _ in range(20)),
        lambda: known + b"".join(fetch(b"") + frame(FETCH_END, field(1, rng.randrange(4))) for _ in range(200)),
        lambda: known + frame(COORDINATE, field(1, b"s1") + field(3, rng.randbytes(64))),
        lambda: known + known,
        lambda: known + write(rng.choice([b"", b"\xfe\x01of a newer version", UNREADABLE, rng.randbytes(30)])),
        lambda: agent_hello(0),
        lambda: agent_hello(7, b"elsewhere"),
        lambda: frame(FETCH, b"before any hello"),
    ])()


def peak_kib(server):
    with open("/proc/%d/status" % server.proc.pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


NOTHINGS = 4 << 20 if harness.FIGURES else 1 << 20 if harness.SLOW == 1 else 256 << 10


def many_of_nothing(server):
    """Four million empty commands, or fields of one, are 8 MB on the wire, and would be hundreds here. So is what a read asks for (of nodes, of services)."""
    before = peak_kib(server)
    told = lambda: server.log().count("a frame that client agents do not send")
    unknown = b"\x78\x00" * NOTHINGS
    reads = b"".join(frame(FETCH, field(1, query) + field(2, query) + field(3, nothing)) for query in (1, 4) for nothing in (unknown, b"\x12\x00" * NOTHINGS))
    for kind, payload, first in [(WRITES, b"\x0a\x00" * NOTHINGS, reads), (WRITES, field(1, b"\x18\x00" * NOTHINGS), b"")] + [(kind, unknown, b"") for kind in range(HELLO + 2, AGENT_KINDS)]:
        had = told()
        with socket.create_connection((server.ip, 8300), timeout=20 * harness.SLOW) as s:
            try:
                s.sendall(agent_hello(79) + first + frame(kind, payload))
            except OSError:        # it was refused before all of it was sent
                pass
            until("it is refused", lambda: told() > had, 10)
    grown = peak_kib(server) - before
    assert grown < 28 * 1024 + NOTHINGS * 72 // 4096 or harness.SLOW > 1, "it took %d KiB" % grown


def answers_on(s, wanted):
    """The frames of that kind that come back, one after the other."""
    data = b""
    while True:
        while len(data) < 5 or len(data) < 5 + struct.unpack("<I", data[:4])[0]:
            more = s.recv(65536)
            assert more, "the connection ended"
            data += more
        size, kind = struct.unpack("<IB", data[:5])
        payload, data = data[5:5 + size], data[5 + size:]
        if kind == wanted:
            yield payload


def answer_to(server, sent, wanted):
    """The first frame of that kind that comes back."""
    with socket.create_connection((server.ip, 8300), timeout=20 * harness.SLOW) as s:
        s.sendall(agent_hello(76) + sent)
        return next(answers_on(s, wanted))


def outcome_of(server, sent):
    """Of one write. A disk that is busy with 12 MiB may cost a slow machine its leader, and the outcome is unknown then: asked again."""
    end = time.monotonic() + 30 * harness.SLOW + harness.STANDSTILL
    while True:
        outcome = fields(fields(answer_to(server, sent, RESULTS))[1]).get(2, 0)
        if outcome not in (NOLEADER, UNKNOWN_OUTCOME) or time.monotonic() > end:
            return outcome


def largest_frames(server):
    """What fills a frame to its last byte goes on in frames of ours, with a little more around it: to the leader, and to the log of the others."""
    put = lambda size: write(b"\x20\x01" + field(2, b"largest") + field(3, bytes(size)))
    room = (16 << 20) - (len(put(16 << 20)) - (16 << 20) - 5)
    assert len(put(room)) == (16 << 20) + 5, "exactly the largest: %d" % len(put(room))
    for size, wanted in ((room, 5), ((12 << 20), 5), ((12 << 20) - 30, 0)):      # CO_TOOLARGE
        answer = outcome_of(server, put(size))
        assert answer == wanted, "a value of %d: %r" % (size, answer)
    answer = fields(answer_to(server, frame(FETCH, field(1, 1) + field(2, 1) + field(3, field(9, bytes((16 << 20) - 40)))), FETCHED))
    assert answer.get(2) == 5, "a read's request: %r" % answer
    with socket.create_connection((server.ip, 8300), timeout=20 * harness.SLOW) as s:
        s.sendall(agent_hello(75) + frame(COORDINATE, field(1, b"n" * ((16 << 20) - 5))))
        until("it is refused", lambda: s.recv(65536) == b"", 10)
    assert outcome_of(server, write(b"\x20\x01" + field(1, 4) + field(2, b"largest"))) == 0


def servers_own_commands(server):
    """A client agent may not raise the cluster's version, remove a server or restore a backup: CO_UNSUPPORTED, and nothing is in the log."""
    for command in (b"\x10\x01\x08\x63", b"\x09\x01\x09" + b"\x01" * 8, b"\x0a\x01", b"\x0b\x01"):
        with socket.create_connection((server.ip, 8300), timeout=5 * harness.SLOW + harness.STANDSTILL) as s:
            s.sendall(agent_hello(77) + write(command))
            payload = next(answers_on(s, RESULTS))
            assert payload == field(1, field(1, 7) + field(2, 8)), "%r was answered %r" % (command, payload)


class Backups:
    """A client agent's backups, by hand."""
    SAVE, RESTORE, END = 1, 2, 3
    INVALID, TOOLARGE, TIMEOUT, BUSY, CORRUPT = 4, 5, 12, 14, 16      # enum co_error

    def __init__(self, server):
        self.socket, self.data = socket.create_connection((server.ip, 8300), timeout=10 * harness.SLOW), b""
        self.socket.sendall(agent_hello(78))

    def send(self, number, kind, offset=0, size=0, data=b""):
        self.socket.sendall(frame(BACKUP, field(1, number) + field(2, kind) + field(4, offset) + field(5, size) + field(6, data)))

    def answer(self):
        """The next one: its fields, by number."""
        while True:
            while len(self.data) < 5 or len(self.data) < 5 + struct.unpack("<I", self.data[:4])[0]:
                more = self.socket.recv(65536)
                assert more, "the connection ended"
                self.data += more
            size, kind = struct.unpack("<IB", self.data[:5])
            payload, self.data = self.data[5:5 + size], self.data[5 + size:]
            if kind == BACKUP_PIECE:
                return fields(payload)

    def refused(self, outcome, *args, **kw):
        self.send(*args, **kw)
        answer = self.answer()
        assert answer[1] == args[0] and answer.get(2) == outcome, "wanted %d: %r" % (outcome, answer)


def pairs(payload):
    """Each field of a protobuf message: its number and value."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value
    while at < len(payload):
        key = number()
        value = number()
        if key & 7 == 2:
            value, at = payload[at:at + value], at + value
        yield key >> 3, value


def fields(payload):
    """By number; of repeated ones the last."""
    return dict(pairs(payload))


def files_of(server):
    """Files without a name that it has open in its data folder."""
    folder = "/proc/%d/fd" % server.proc.pid
    names = []
    for fd in os.listdir(folder):
        try:
            names.append(os.readlink(os.path.join(folder, fd)))
        except OSError:
            continue
    return [name for name in names if name.startswith(server.data + "/#") and name.endswith("(deleted)")]


def backups_that_do_not_fit(server):
    """Pieces of backups that no agent of ours sends: refused, and nothing is kept of them. Whole ones are checked as everybody's."""
    b, piece, end = Backups(server), b"x" * 1000, time.monotonic() + 30 * harness.SLOW
    for number, (outcome, args) in enumerate([
            (b.TIMEOUT, dict(kind=b.RESTORE, offset=5, size=10, data=b"12345")), (b.TIMEOUT, dict(kind=b.SAVE, offset=5)), (b.INVALID, dict(kind=9)),
            (b.INVALID, dict(kind=0)), (b.INVALID, dict(kind=b.RESTORE)), (b.INVALID, dict(kind=b.RESTORE, size=9, data=piece)),
            (b.INVALID, dict(kind=b.RESTORE, size=1000)), (b.INVALID, dict(kind=b.RESTORE, size=1 << 30, data=b"x" * 131073)),
            (b.TOOLARGE, dict(kind=b.RESTORE, size=1 << 60, data=piece)), (b.TOOLARGE, dict(kind=b.RESTORE, size=(1 << 64) - 1, data=piece)),
            (b.CORRUPT, dict(kind=b.RESTORE, size=1000, data=piece))], 1):
        b.refused(outcome, number, **args)
    for what in (dict(offset=999, size=5000, data=piece), dict(offset=1000, size=5001, data=piece), dict(offset=1000, size=5000, data=piece * 5),
                 dict(kind=b.SAVE, offset=1000)):
        b.send(50, b.RESTORE, size=5000, data=piece)
        assert b.answer()[4] == 1000, "it wants what follows"
        b.refused(b.INVALID, 50, **dict(dict(kind=b.RESTORE), **what))
    b.send(60, b.SAVE)
    first = b.answer()
    while first.get(2, 0) in (NOLEADER, UNKNOWN_OUTCOME) and time.monotonic() < end:      # it is the leader who saves, and one is elected
        b.send(60, b.SAVE)
        first = b.answer()
    assert first.get(2, 0) == 0 and len(first[6]) > 0 and first[7] > 0, "%r" % first
    if first[5] > len(first[6]):
        b.refused(b.INVALID, 60, b.SAVE, offset=1)
    until("nothing is kept", lambda: not files_of(server), 5)
    for number in range(70, 74):
        b.send(number, b.RESTORE, size=5000, data=piece)
        b.answer()
    b.refused(b.BUSY, 74, b.RESTORE, size=5000, data=piece)
    b.send(73, b.END)
    b.send(74, b.RESTORE, size=5000, data=piece)
    assert b.answer()[4] == 1000, "there is room again"
    until("only theirs are left", lambda: len(set(files_of(server))) == 4, 5)
    b.send(1, b.SAVE)
    b.socket.close()
    until("what its connection brought goes with it", lambda: not files_of(server), 10)
    b = Backups(server)
    b.send(1, b.SAVE)
    b.socket.close()
    until("and what it asked for", lambda: not files_of(server), 10)
    def saved():
        status, _, whole = server.request("GET", "/v1/snapshot")
        return whole if status == 200 else None
    whole = until("a backup", saved)

    def restored():
        b = Backups(server)
        b.send(1, b.RESTORE, size=len(whole), data=whole[:1000])
        assert b.answer()[4] == 1000
        b.send(1, b.RESTORE, offset=1000, size=len(whole), data=whole[1000:])
        answer = b.answer()
        b.socket.close()
        assert answer.get(2, 0) in (0, NOLEADER, UNKNOWN_OUTCOME), "restored: %r" % answer
        assert answer.get(2, 0) != 0 or answer[7] > 0, "restored: %r" % answer
        return answer.get(2, 0) == 0
    until("it is restored", restored, 30)


def write(command):
    return frame(WRITES, field(1, field(1, 7) + field(2, command)))


# Registers a node with a field of number 0, written with two bytes: kept as it is, nobody could read the node any more.
UNREADABLE = b"\x01\x01" + field(1, field(1, b"unreadable") + field(3, b"10.9.9.9") + b"\x85\x00" + b"1234")


def junk(rng):
    """What one stranger says."""
    known = hello(rng.randrange(1, 1 << 63))
    return rng.choice([
        lambda: rng.randbytes(rng.randrange(1, 5000)),
        lambda: b"\xff" * 9,                                          # a frame of 4 GiB
        lambda: frame(HELLO, rng.randbytes(50)),
        lambda: hello(rng.randrange(1, 1 << 63), b"elsewhere"),
        lambda: hello(rng.randrange(1, 1 << 63), cluster_id=rng.randrange(1, 1 << 63)),
        lambda: hello(rng.randrange(1, 1 << 63), least=rng.randrange(9), most=rng.randrange(9)),
        lambda: known + hello(rng.randrange(1, 1 << 63)),             # another server's second hello
        lambda: known + frame(REFUSED, rng.randbytes(rng.randrange(300))),
        lambda: known + write(b"\x10\x01\x08\x03\x11" + rng.randbytes(8)),      # raises the cluster version: not theirs to do
        lambda: write(b"before any hello"),
        lambda: known + b"".join(frame(kind, rng.randbytes(rng.randrange(40))) for kind in range(KINDS)),
        lambda: known + write(b""),
        lambda: known + frame(WRITES, b"\x0a\x00" * rng.randrange(513, 9000)),  # many of nothing: small here, large there
        lambda: known + write(b"\xfe\x01of a newer version"),          # once committed it would stop every server
        lambda: known + write(rng.randbytes(30)),
        lambda: known + write(UNREADABLE),
    ])()


class ThinLine(threading.Thread):
    """An agent whose frame of 12 MiB takes for ever: some bytes of it come now and then, and are a sign of life. Who says nothing is gone after 20 s
    (rpc/agents/agents.h)."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stayed = server, 0
        self.start()

    def run(self):
        begun = time.monotonic()
        with socket.create_connection((self.server.ip, 8300), timeout=5 * harness.SLOW + harness.STANDSTILL) as s:
            s.sendall(agent_hello(75) + struct.pack("<IB", 12 << 20, WRITES))
            s.settimeout(0.5)
            while self.stayed < 25:
                try:
                    s.sendall(b"\0")
                    if not s.recv(65536):
                        return
                except TimeoutError:
                    pass
                except ConnectionError:
                    return
                self.stayed = time.monotonic() - begun

    def stays(self):
        self.join()
        check(self.stayed >= 25, "an agent on a thin line was given up after %.1f s" % self.stayed)


def members(server):
    return (server.get("/v1/operator/raft/configuration?stale")[2] or {}).get("Servers") or []


def settings(server, stabilization):
    body = json.dumps({"CleanupDeadServers": True, "ServerStabilizationTime": stabilization}).encode()
    until("autopilot's settings", lambda: server.try_put("/v1/operator/autopilot/configuration", body, timeout=5), 10)


def learners_go(cluster):
    """Strangers that said hello, were taken in and vanished leave again, also when the leader that knew them is gone."""
    rng = random.Random(6)
    settings(cluster.servers[0], "1h")
    greeting = hello(rng.randrange(1, 1 << 63))

    def taken_in():
        """Says hello to whoever leads now and goes on, as a server does that is not heard: who leads may change between the two."""
        with socket.create_connection((cluster.leader().ip, 8300), timeout=2 * harness.SLOW + harness.STANDSTILL) as s:
            s.sendall(greeting)
            end = time.monotonic() + 3       # then the leader gives up who says nothing more
            while time.monotonic() < end:
                if all(len(members(server)) > 3 for server in cluster.servers):     # whoever leads next has to have it, too
                    return True
                time.sleep(0.05)
        return False
    try:
        until("a stranger is a learner", taken_in, 10)
    except AssertionError:
        print("\n".join("%s: %s\n%s" % (s.name, members(s), s.log()[-2000:]) for s in cluster.servers), flush=True)
        raise
    leader = cluster.leader()
    leader.kill()
    cluster.wait_writable([s for s in cluster.servers if s is not leader])
    assert len(members(cluster.leader())) > 3, "it stays for the threshold"
    leader.start()
    cluster.wait_writable()
    settings(cluster.servers[0], "2s")
    begun = time.monotonic()
    until("three members are left", lambda: all(len(members(s)) == 3 for s in cluster.servers), 30)
    print("learners that vanished are gone after %.1f s" % (time.monotonic() - begun), flush=True)


def cluster_id(server):
    return server.get("/v1/agent/self")[2]["Stats"]["consul"]["cluster_id"]


def two_clusters():
    """Two servers that each founded a cluster of the same name and are told to join each other."""
    with harness.Cluster(2, expect=1) as cluster:
        a, b = cluster.servers
        cluster.start()
        for s in (a, b):
            cluster.wait_writable([s])
        until("both sides say why", lambda: all("it belongs to another cluster of the same name" in s.log() for s in (a, b)), 10)
        time.sleep(3)                    # they go on dialling
        assert cluster_id(a) and cluster_id(b) and cluster_id(a) != cluster_id(b)
        for s, other in ((a, b), (b, a)):
            assert s.put("/v1/kv/mine/" + s.name)
            assert s.get("/v1/kv/mine/" + other.name)[0] == 404, "two clusters were mixed"
            assert len(members(s)) == 1, members(s)
            assert b"\ncoord_cluster_version %d\n" % harness.NEWEST in s.request("GET", "/v1/agent/metrics?format=prometheus")[2], "a new cluster begins at the newest version"
            assert s.get("/v1/agent/self")[2]["Stats"]["consul"]["cluster_version"] == str(harness.NEWEST)
            lines = [line for line in s.log().splitlines() if "another cluster" in line]
            assert len(lines) <= 4, "refusals are logged too often: %d" % len(lines)
        b.terminate()                    # without its data it is nobody's, and welcome
        shutil.rmtree(b.data)
        cluster.expect = 2
        b.start()
        cluster.wait_writable([b])
        until("it knows where it belongs", lambda: cluster_id(b) == cluster_id(a), 5)
        until("two members", lambda: len(members(a)) == 2, 10)
        print("two clusters of one name stayed apart", flush=True)


def announces_much(server):
    """Who has not said hello may announce no more than one needs: the connection ends then, not after the time for a hello."""
    def ended():
        with socket.create_connection((server.ip, 8300), timeout=5 * harness.SLOW + harness.STANDSTILL) as s:
            begun = time.monotonic()
            s.sendall(struct.pack("<IB", 1 << 20, HELLO))
            try:
                check(s.recv(1) == b"", "nothing is said to it")
            except ConnectionError:
                pass                     # ended all the same
            return time.monotonic() - begun, 1.5 * harness.SLOW
    harness.kept("the end of a connection that announced much", ended)


def long_refusals(cluster):
    """Sessions that are refused for checks whose names have a megabyte, which the refusals quote: what a server says of many at once fits its frames.
    So much at once makes the disk of a slow machine degraded and may cost its leader, and who asked then hears that: asked again until it is refused."""
    name, frames, each = b"n" * ((1 << 20) - 30), 4, 12
    create = lambda number: field(1, field(1, number) + field(2, b"\x21\x01" + field(1, field(1, b"%08d-0000-4000-8000-000000000000" % number) + field(3, b"s1") + field(4, name))))

    def refusals(server):
        with socket.create_connection((server.ip, 8300), timeout=30 * harness.SLOW) as s:
            s.sendall(agent_hello(74))
            sender = threading.Thread(target=lambda: [s.sendall(frame(WRITES, b"".join(create(f * each + i) for i in range(each)))) for f in range(frames)])
            sender.start()
            outcomes = []
            for payload in answers_on(s, RESULTS):
                outcomes += [fields(answer) for _, answer in pairs(payload)]
                if len(outcomes) >= frames * each:
                    break
            sender.join()
        others = collections.Counter(o[2] for o in outcomes if o.get(2, 0) != 0)
        assert len(outcomes) == frames * each and set(others) <= {NOLEADER, UNKNOWN_OUTCOME}, "%d answers, of them no refusals: %r" % (len(outcomes), others)
        texts = [o[6] for o in outcomes if o.get(2, 0) == 0]
        assert all(text.startswith(b"Missing check 'nnn") and len(text) <= 1024 for text in texts), max(texts, key=len)[:2000]
        return len(texts)
    for server in cluster.servers:
        until("most of them are refused", lambda: refusals(server) > frames * each / 2, 60)
        dead = cluster.unexpected_ends()
        assert not dead, "%s ended with %s:\n%s" % (dead[0].name, dead[0].proc.returncode, dead[0].log()[-2000:])


def main():
    harness.tidy_on_signals()
    rng = random.Random(5)
    with harness.Cluster(3) as cluster:
        path = os.path.join(cluster.dir, "patient.json")
        with open(path, "w") as f:      # elections take their time: few are to come of a busy machine
            json.dump({"performance": {"raft_multiplier": max(4, harness.MULTIPLIER)}}, f)
        cluster.args.append("-config-file=" + path)
        cluster.start()
        cluster.wait_writable()
        thin = ThinLine(cluster.servers[2])
        for _ in range(400):
            server = rng.choice(cluster.servers)
            try:
                with socket.create_connection((server.ip, 8300), timeout=2) as s:
                    s.sendall(agents_junk(rng) if rng.random() < 0.4 else junk(rng))
                    s.settimeout(0.005)
                    s.recv(1)
            except OSError:
                pass
            dead = cluster.unexpected_ends()
            if dead:
                raise AssertionError("%s ended with %s:\n%s" % (dead[0].name, dead[0].proc.returncode, dead[0].log()[-2000:]))
        announces_much(cluster.servers[0])
        many_of_nothing(cluster.servers[1])
        for s in cluster.servers:
            largest_frames(s)
            servers_own_commands(s)
            backups_that_do_not_fit(s)
        long_refusals(cluster)
        thin.stays()
        took = cluster.wait_writable()
        # Strangers are learners at most, and none is left a voter.
        until("three voters", lambda: all(len(s.get("/v1/status/peers")[2] or []) == 3 for s in cluster.servers), 10)
        for s in cluster.servers:
            until("the nodes through " + s.name, lambda: {n["Node"] for n in s.get("/v1/catalog/nodes?stale")[2] or []} >= {"s1", "s2", "s3"})
        print("400 strangers, writes again after %.2f s" % took, flush=True)
        learners_go(cluster)
        said = cluster.confessions()
        if said:
            raise AssertionError("\n".join(said))
    two_clusters()
    return 0


if __name__ == "__main__":
    sys.exit(main())
