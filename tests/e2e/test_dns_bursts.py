"""Bursts of DNS queries over a network with an MTU: each is answered exactly once, whole, from the address that was asked,
also where answers that could leave together are longer than a packet.

Server and client are in namespaces of their own, between them a veth. The server stands still (SIGSTOP) while a burst is sent, so
that it finds all of it at once. Where namespaces are not allowed, the test is skipped."""
import atexit, os, signal, socket, struct, subprocess, sys, time
from coordtest import SLOW, Agent, check, run, until

V4, V4_SECOND, V6, V6_SECOND = "10.99.0.2", "10.99.0.3", "fd99::2", "fd99::3"
BURST = 64
TYPES = {"A": 1, "SRV": 33}


def enter_namespace():
    """Runs this script again with a network of its own."""
    if os.environ.get("COORD_TEST_NETWORK") == "1":
        return
    os.environ["COORD_TEST_NETWORK"] = "1"
    for how in (["unshare", "-n"], ["unshare", "-rn"]):
        try:
            probe = subprocess.run(how + ["ip", "link", "add", "probe", "type", "veth"], capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if probe.returncode == 0:
            os.execvp(how[0], how + [sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
    print("skipped: no network namespace to be had")
    sys.exit(77)


def sh(command):
    subprocess.run(command.split(), check=True, timeout=20)


class FarAgent(Agent):
    """An agent in a namespace of its own behind a veth; all its addresses are listened on."""

    def __init__(self):
        super().__init__("-client=0.0.0.0 ::", ip=V4)      # the last one counts
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        atexit.register(self.let_go)
        mine = os.readlink("/proc/self/ns/net")
        until("its namespace", lambda: os.readlink("/proc/%d/ns/net" % self.holder.pid) != mine)
        self.inside = "nsenter --net=/proc/%d/ns/net " % self.holder.pid
        sh("ip link set lo up")
        sh("ip link add near type veth peer name far netns %d" % self.holder.pid)
        sh("ip addr add 10.99.0.1/24 dev near")
        sh("ip addr add fd99::1/64 dev near nodad")
        sh("ip link set near up")
        for address in (V4 + "/24 dev far", V4_SECOND + "/24 dev far", V6 + "/64 dev far nodad", V6_SECOND + "/64 dev far nodad"):
            sh(self.inside + "ip addr add " + address)
        sh(self.inside + "ip link set lo up")
        sh(self.inside + "ip link set far up")

    def let_go(self):
        self.holder.kill()
        self.holder.wait()

    def argv(self):
        return self.inside.split() + super().argv()

    def mtu(self, bytes):
        sh("ip link set near mtu %d" % bytes)
        sh(self.inside + "ip link set far mtu %d" % bytes)

    def service(self, name, instances):
        for i in range(instances):
            self.put("/v1/catalog/register", {"Node": "%s-%d" % (name, i), "Address": "10.1.%d.%d" % (instances, i),
                                              "Service": {"ID": name, "Service": name, "Port": 8080}})
        until(name + " in DNS", lambda: len(self.get("/v1/catalog/service/%s?stale" % name)[2]) == instances)


def query(ident, name, kind, edns):
    question = b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack(">HH", TYPES[kind], 1)
    return struct.pack(">HHHHHH", ident, 0x100, 1, 0, 0, 1 if edns else 0) + question + (struct.pack(">BHHIH", 0, 41, edns, 0, 0) if edns else b"")


def packets_received():
    with open("/proc/net/dev") as f:     # /sys is that of the namespace it was mounted in
        return next(int(line.split()[2]) for line in f if line.split()[0] == "near:")


def burst(agent, address, asked, sockets=1, edns=4096):
    """`asked`: (service, type, records in the answer, or None when it is cut) of each query, over so many sockets in turn. Returns the
    packets that came for them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    ends = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(sockets)]
    for s in ends:
        s.connect((address, 8600))      # an answer from another address would not arrive
        s.settimeout(20)
    before = packets_received()
    agent.proc.send_signal(signal.SIGSTOP)
    for i, (name, kind, _) in enumerate(asked):
        ends[i % sockets].send(query(1000 + i, name + ".service.coord", kind, edns))
    agent.proc.send_signal(signal.SIGCONT)
    seen = set()
    for i in range(len(asked)):
        s = ends[i % sockets]
        data = s.recv(65535)
        ident, flags, questions, answers = struct.unpack(">HHHH", data[:8])
        at = ident - 1000
        check(at not in seen and 0 <= at < len(asked) and at % sockets == i % sockets, "answer %d, once, to who asked" % at)
        seen.add(at)
        name, kind, records = asked[at]
        question = query(ident, name + ".service.coord", kind, 0)[12:]
        check(data[12:].startswith(question), "%s %s: its question" % (name, kind))
        check(flags & 15 == 0 and questions == 1 and len(data) <= (edns or 512), "%s %s: %x, %d bytes" % (name, kind, flags, len(data)))
        check(bool(flags & 0x200) == (records is None), "%s %s: cut or not, %d answers in %d bytes" % (name, kind, answers, len(data)))
        check(records is None or answers == records, "%s %s: %d answers" % (name, kind, answers))
        if kind == "A":                  # whole to the last record: addresses of the service, none twice
            body = data[12 + len(question):]
            addresses = {body[n * 16 + 12:n * 16 + 16] for n in range(answers)}
            check(len(addresses) == answers and all(a[:2] == b"\x0a\x01" for a in addresses), "%s: %d addresses" % (name, len(addresses)))
    for s in ends:
        s.settimeout(0)
        try:
            s.recv(65535)
            raise AssertionError("an answer came twice")
        except BlockingIOError:
            s.close()
    return packets_received() - before


def stories(agent):
    """(what, queries, sockets, whether several leave together)"""
    equal = [("few", "A", 3)] * BURST
    return [("equal ones", equal, 1, True),
            ("equal ones of several sockets", equal, 8, True),
            ("as long as resolvers offer", [("most", "A", 74)] * BURST, 1, True),
            ("two lengths in turn", [("few", "A", 3), ("some", "A", 10)] * (BURST // 2), 4, True),
            ("all lengths", [("few", "SRV", 3), ("some", "A", 10), ("most", "A", 74), ("few", "A", 3)] * (BURST // 4), 3, True),
            ("one", [("few", "A", 3)], 1, False)]


def over_a_network():
    for mtu in (1500, 1280):
        AGENT.mtu(mtu)
        for address in (V4, V4_SECOND, V6, V6_SECOND):
            for what, asked, sockets, together in stories(AGENT):
                # How many queries the server finds waiting is chance: of some bursts one has to show it.
                until("MTU %d, %s, %s: answers leave together" % (mtu, address, what),
                      lambda: burst(AGENT, address, asked, sockets) < len(asked) or not together, 20)


def longer_than_a_packet():
    """Such answers are fragments, as they always were, and those behind them arrive too; in time nothing is lost to trying."""
    for mtu in (1500, 1280):
        AGENT.mtu(mtu)
        for address in (V4_SECOND, V6_SECOND):
            for _ in range(3):
                burst(AGENT, address, [("long", "A", 120)] * 16)
                burst(AGENT, address, [("long", "A", 120), ("most", "A", 74), ("few", "A", 3)] * 8, sockets=2)
            until("short ones leave together afterwards", lambda: burst(AGENT, address, [("few", "A", 3)] * BURST) < BURST, 20)


def without_edns():
    AGENT.mtu(1500)
    for address in (V4_SECOND, V6):
        burst(AGENT, address, [("most", "A", None), ("few", "A", 3)] * (BURST // 2), sockets=2, edns=0)


def policy():
    """How the thread that answers is scheduled."""
    tasks = "/proc/%d/task" % AGENT.proc.pid
    for task in os.listdir(tasks):
        with open("%s/%s/comm" % (tasks, task)) as f:
            if f.read().strip() == "dns-udp":
                return os.sched_getscheduler(int(task))
    raise AssertionError("no thread dns-udp")


def a_rush_and_its_end():
    """While queries stream in the worker lets others finish first; afterwards it is as before."""
    if SLOW > 1:
        print("     left out: too slow here for a rush", flush=True)
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((V4, 8600))
        one = query(1, "few.service.coord", "A", 0)

        def streaming():
            for _ in range(30):
                AGENT.proc.send_signal(signal.SIGSTOP)
                for _ in range(250):         # what the smallest of queues takes
                    s.send(one)
                AGENT.proc.send_signal(signal.SIGCONT)
                time.sleep(0.001)
                if policy() == os.SCHED_BATCH:
                    return True

        def trickling():
            s.send(one)
            return policy() == os.SCHED_OTHER
        until("nothing special at first", trickling)
        until("a rush", streaming)
        until("its end", trickling)


if __name__ == "__main__":
    enter_namespace()
    AGENT = FarAgent().start()
    for service, count in (("few", 3), ("some", 10), ("most", 74), ("long", 120)):
        AGENT.service(service, count)
    run([over_a_network, longer_than_a_packet, without_edns, a_rush_and_its_end])
