"""DNS over TLS: kdig and Python's ssl as clients, half handshakes, records in pieces, new certificates, large answers."""
import os, shutil, signal, socket, ssl, struct, subprocess, tempfile, threading, time
from coordtest import COORD, SLOW, STANDSTILL, Agent, check, configuration, run, until
from tls_client import only_new_versions

PORT = 8853                              # 853 is for those who may
PATIENCE = 30 * SLOW + STANDSTILL
NAME = "server.dc1.coord"                # in every certificate that `coord tls cert create -server` makes
A, SRV = 1, 33


class Authority:
    """A CA and the certificates that it gave, made by `coord tls`."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="coord-e2e-ca-")
        self.tls("ca", "create")
        self.ca, self.count = os.path.join(self.dir, "coord-agent-ca.pem"), 0

    def tls(self, *args):
        r = subprocess.run([COORD, "tls", *args], cwd=self.dir, capture_output=True, text=True, timeout=60 * SLOW)
        check(r.returncode == 0, "coord tls: %r" % r)

    def give(self, ip):
        """(certificate, key): new files."""
        self.tls("cert", "create", "-server", "-additional-ipaddress=" + ip)
        base = os.path.join(self.dir, "dc1-server-coord-%d" % self.count)
        self.count += 1
        return base + ".pem", base + "-key.pem"


class Secure(Agent):
    def __init__(self, ca, *args, ports=None, **keys):
        super().__init__(*args, dev=True)
        self.ca, self.pair = ca, (os.path.join(self.dir, "cert.pem"), os.path.join(self.dir, "key.pem"))
        self.show(*ca.give(self.ip))
        self.args.append(configuration(ports=dict({"dns_tls": PORT}, **(ports or {})), cert_file=self.pair[0], key_file=self.pair[1], **keys))

    def show(self, certificate, key):
        for source, target in ((key, self.pair[1]), (certificate, self.pair[0])):
            shutil.copy(source, target + ".new")
            os.chmod(target + ".new", 0o600)
            os.rename(target + ".new", target)

    def services(self, name, count):
        for i in range(count):
            self.put("/v1/agent/service/register", {"ID": "%s-%d" % (name, i), "Name": name, "Port": 1000 + i, "Address": "10.1.%d.%d" % divmod(i, 256)})
        until("all %s are there" % name, lambda: len(self.get("/v1/health/service/%s?passing" % name)[2]) == count, 60)

    def context(self, version=None, alpn=None, ca=None):
        context = ssl.create_default_context(cafile=(ca or self.ca).ca)
        if version:
            context.minimum_version = context.maximum_version = version
        if alpn:
            context.set_alpn_protocols(alpn)
        return context

    def dial(self, port=PORT, buffer=None):
        s = socket.socket()
        if buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        s.settimeout(PATIENCE)
        s.connect((self.ip, port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def secure(self, name=NAME, session=None, buffer=None, context=None, **kw):
        return (context or self.context(**kw)).wrap_socket(self.dial(buffer=buffer), server_hostname=name, session=session, suppress_ragged_eofs=False)

    def kdig(self, *args):
        return subprocess.run(["kdig", "@" + self.ip, "-p", str(PORT), "+retry=0", "+timeout=%d" % PATIENCE, *args], capture_output=True, text=True)

    def metric(self, name):
        for line in self.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return 0.0


def query(name, number, kind=A, padding=None):
    """With its length. `padding`: an EDNS option of so many bytes."""
    question = b"".join(struct.pack("B", len(l)) + l.encode() for l in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
    options = b"" if padding is None else struct.pack(">HH", 12, padding) + b"\0" * padding
    extra = b"" if padding is None else b"\0" + struct.pack(">HHIH", 41, 1232, 0, len(options)) + options
    message = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 1 if extra else 0) + question + extra
    return struct.pack(">H", len(message)) + message


def hear(s):
    """The next answer: (id, code, records, size, truncated); None: the other side said goodbye."""
    def take(size, may_end=False):
        data = b""
        while len(data) < size:
            block = s.recv(size - len(data))
            if not block:
                check(may_end and not data, "it ended amid an answer")
                return None
            data += block
        return data
    length = take(2, True)
    if length is None:
        return None
    message = take(struct.unpack(">H", length)[0])
    number, flags, _, count = struct.unpack(">HHHH", message[:8])
    return number, flags & 15, count, len(message), bool(flags & 0x200)


def asked(s, name="web.service.coord", number=1, kind=A, **kw):
    s.sendall(query(name, number, kind, **kw))
    return hear(s)


def good(answer, number=1, count=3):
    check(answer is not None and answer[:3] == (number, 0, count), "an answer with %d records: %r" % (count, answer))
    return True


def ends(s, what, bytes_too=False):
    """The other side closes; returns what it said before."""
    said = b""
    try:
        while True:
            block = s.recv(65536)
            if not block:
                break
            said += block
    except ConnectionResetError:
        pass
    check(bytes_too or not said, "%s: closed without a word: %r" % (what, said))
    return said


def clients_of_all_kinds():
    ca, other = Authority(), Authority()
    agent = Secure(ca, log_level="debug").start()
    agent.services("web", 3)
    line = "protected by TLS: DNS over TLS on %s (every client is answered) | not protected: HTTP on %s; DNS on %s" % ((agent.ip,) * 3)
    check(line in agent.log(), agent.log())
    for extra in ((), ("+padding=128",), ("+nopadding",)) if shutil.which("kdig") else ():
        r = agent.kdig("+tls", "+tls-ca=" + ca.ca, "+tls-hostname=" + NAME, *extra, "web.service.coord")
        check(r.returncode == 0 and "status: NOERROR" in r.stdout and r.stdout.count("10.1.0.") == 3, "kdig: %r" % r)
        check(("468 B" in r.stdout) == (extra != ("+nopadding",)), "padded when kdig pads: %r" % r.stdout)
    for trusted, name in ((ca.ca, "elsewhere.example"), (other.ca, NAME)) if shutil.which("kdig") else ():
        r = agent.kdig("+tls", "+tls-ca=" + trusted, "+tls-hostname=" + name, "web.service.coord")
        check(r.returncode != 0 and "10.1.0." not in r.stdout, "kdig with %s and %s: %r" % (trusted, name, r))
    if not shutil.which("kdig"):
        print("     kdig is not installed: left out")
    for what, arguments in (("another name", {"name": "elsewhere.example"}), ("another CA", {"ca": other})):
        try:
            agent.secure(**arguments)
            raise AssertionError(what + ": the client took it")
        except ssl.SSLCertVerificationError:
            pass
    until("the agent's log says so", lambda: "dns: TLS ended: " in agent.log())
    with agent.secure(name=agent.ip) as s:
        good(asked(s))
    only_new_versions(agent.ip, PORT)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        session, context = None, agent.context(version=version)
        for turn in range(2):
            with agent.secure(session=session, context=context) as s:
                good(asked(s))
                check(s.session_reused == (turn == 1), "%s: resumed in turn %d" % (version, turn))
                session = s.session
        for alpn, chosen in ((None, None), (["dot"], "dot"), (["h2", "dot"], "dot")):
            with agent.secure(version=version, alpn=alpn) as s:
                check(s.selected_alpn_protocol() == chosen, "%s: %r" % (alpn, s.selected_alpn_protocol()))
                good(asked(s))
        try:
            with agent.secure(version=version, alpn=["h2"]) as s:
                asked(s)
            raise AssertionError("a client of HTTP/2 is taken")
        except (ssl.SSLError, ConnectionError):
            pass
    check(agent.metric('coord_dns_tls_handshakes_total{outcome="full"}') >= 8, "full handshakes are counted")
    check(agent.metric('coord_dns_tls_handshakes_total{outcome="resumed"}') == 2, "resumed ones, too")
    until("and failed ones", lambda: agent.metric('coord_dns_tls_handshakes_total{outcome="failed"}') >= 4)
    check(agent.metric('coord_dns_queries_total{transport="tls"}') >= 10, "queries are counted")


def many_at_once_and_padded():
    agent = Secure(Authority()).start()
    agent.services("web", 3)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with agent.secure(version=version) as s:
            s.sendall(b"".join(query("web.service.coord", i, SRV if i % 2 else A) for i in range(1000)))
            for i in range(1000):
                good(hear(s), i)
            for i in range(300):                 # a record for each
                s.sendall(query("web.service.coord", i))
            for i in range(300):
                good(hear(s), i)
            plain = asked(s)[3]
            check(asked(s, padding=0)[3] == 468 and asked(s, padding=90)[3] == 468 and plain < 200, "padded only when asked with padding")
            nothing = asked(s, "none.service.coord", padding=8)
            check(nothing[1] == 3 and nothing[3] == 468, "an answer without records is padded: %r" % (nothing,))
    with agent.dial(8600) as s:
        check(asked(s, padding=8)[3] < 200, "plain TCP is not padded")
    # A client may say that it sends no more, and reads its answers nevertheless.
    incoming, outgoing, s = ssl.MemoryBIO(), ssl.MemoryBIO(), agent.dial()
    tls = agent.context().wrap_bio(incoming, outgoing, server_hostname=NAME)

    def flush():
        data = outgoing.read()
        if data:
            s.sendall(data)

    def moved(what, *args):
        while True:
            try:
                value = what(*args)
                flush()
                return value
            except ssl.SSLWantReadError:
                flush()
                data = s.recv(65536)
                incoming.write(data) if data else incoming.write_eof()
    moved(tls.do_handshake)
    tls.write(query("web.service.coord", 7) * 3)
    flush()
    s.shutdown(socket.SHUT_WR)
    answer = b""
    while len(answer) < 3 * len(query("web.service.coord", 7)):
        answer += moved(tls.read, 65536)
    check(answer[2:4] == b"\0\x07", "answered")
    # Junk inside the encrypted stream ends it, and what was answered for it before reaches nobody else.
    with agent.secure() as bad:
        bad.sendall(query("web.service.coord", 9) * 5 + b"\xff\xff" * 10)
        try:
            ends(bad, "junk")
        except ssl.SSLEOFError:
            pass
    with agent.secure() as s:
        good(asked(s, number=77), 77)


def records_cut_at_every_byte():
    agent = Secure(Authority()).start()
    agent.services("web", 3)

    class Client:
        def __init__(self, version, piece):
            self.s, self.piece, self.incoming, self.outgoing = agent.dial(), piece, ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = agent.context(version=version).wrap_bio(self.incoming, self.outgoing, server_hostname=NAME)
            self.do(self.tls.do_handshake)

        def send(self, data):
            for at in range(0, len(data), self.piece):
                self.s.sendall(data[at:at + self.piece])
                arrived()

        def do(self, what, *args):
            while True:
                try:
                    value = what(*args)
                    self.send(self.outgoing.read())
                    return value
                except ssl.SSLWantReadError:
                    self.send(self.outgoing.read())
                    data = self.s.recv(max(1, self.piece))
                    self.incoming.write(data) if data else self.incoming.write_eof()

        def recv(self, size):
            return self.do(self.tls.read, size)

    with agent.secure() as other:
        def arrived():
            """The thread has looked at what was sent before: it answered something that was sent after that."""
            good(asked(other))
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for piece in (1, 3, 7, 61):
                client = Client(version, piece)
                for i in range(3):
                    client.tls.write(query("web.service.coord", i)[:i + 1])       # the length and the message are cut, too
                    client.do(client.tls.write, query("web.service.coord", i)[i + 1:])
                    good(hear(client), i)
                client.s.close()
            client = Client(version, 65536)
            client.tls.write(query("web.service.coord", 1))
            size = len(client.outgoing.read())
            client = Client(version, 65536)
            for cut in range(1, size):
                client.tls.write(query("web.service.coord", cut))
                record = client.outgoing.read()
                client.s.sendall(record[:cut])
                arrived()
                client.s.sendall(record[cut:])
                good(hear(client), cut)
            client.tls.write(query("web.service.coord", 1))                       # a byte of it was changed under way
            record = bytearray(client.outgoing.read())
            record[-1] ^= 1
            client.s.sendall(record)
            ends(client.s, "a changed record", bytes_too=True)


def hello_of(agent):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        agent.context().wrap_bio(incoming, outgoing, server_hostname=NAME).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def the_wrong_protocol():
    agent = Secure(Authority(), log_level="debug").start()
    agent.services("web", 3)
    for what, data in (("a plain query", query("web.service.coord", 1)), ("HTTP", b"GET / HTTP/1.1\r\n\r\n"), ("an alert", b"\x15\x03\x01\0\x02\x02\x28")):
        with agent.dial() as s:
            s.sendall(data)
            ends(s, what)
    check("a client does not speak TLS" in agent.log(), agent.log())
    with agent.dial() as s:                      # it begins like a handshake
        s.sendall(b"\x16\x03\x01\x01\xf4" + b"\xff" * 500)
        ends(s, "no handshake", bytes_too=True)
    with agent.dial(8600) as s:
        s.sendall(hello_of(agent))
        ends(s, "TLS to the plain port")
    with agent.dial(8600) as s:
        good(asked(s))
    with agent.secure() as s:
        good(asked(s))


def half_handshakes():
    """They hold nobody up: neither a hundred, nor many more than shake hands at once. Each is closed in time."""
    agent = Secure(Authority()).start()
    agent.services("web", 3)
    hello, kept = hello_of(agent), agent.secure()
    failed = 'coord_dns_tls_handshakes_total{outcome="failed"}'

    def halves(many):
        """How long the slowest new client waited for its answer beside so many of them."""
        open_ones, before, slowest = [], agent.metric(failed), 0
        for i in range(many):
            s = agent.dial()
            s.sendall(hello[:(0, 1, 4, 5, 60, len(hello) - 1, len(hello))[i % 7]])
            open_ones.append(s)
            if i % 20 == 0:
                good(asked(kept, number=i), i)
                with agent.dial(8600) as plain:
                    good(asked(plain))
        for i in range(30):
            one = time.monotonic()
            with agent.secure() as s:
                good(asked(s))
            good(asked(kept))
            slowest = max(slowest, time.monotonic() - one)
        for s in open_ones:
            ends(s, "half a handshake", bytes_too=True)
            good(asked(kept))                    # which would be closed, too, if it were idle all that time
        until("they are counted", lambda: agent.metric(failed) - before >= many * 6 // 7)
        print("     beside %d halves the slowest new client took %.0f ms" % (many, slowest * 1000))
        return slowest
    for many in (100, 600):                  # it would be 5 s if they held others up; a machine that stands still gets another try
        check(any(halves(many) < 2.5 * SLOW for _ in range(4)), "new clients waited for %d that stopped halfway" % many)


def many_come_back_at_once():
    """More than shake hands at once, and none of them fails."""
    agent = Secure(Authority()).start()
    agent.services("web", 3)
    failed, threads, context = [], [], agent.context()

    def one(number):
        try:
            with agent.secure(context=context) as s:
                good(asked(s, number=number), number)
        except Exception as e:
            failed.append(repr(e))
    many = 300 if SLOW == 1 else 60        # each has 5 s for its handshake
    for i in range(many):
        threads.append(threading.Thread(target=one, args=(i,)))
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(not failed, "%d of %d: %r" % (len(failed), many, failed[:3]))


def new_certificates():
    ca, following = Authority(), Authority()
    agent = Secure(ca, log_level="info").start()
    agent.services("web", 3)
    kept = agent.secure()
    good(asked(kept))
    first = kept.getpeercert(True)
    agent.show(*following.give(agent.ip))

    def shown():
        good(asked(kept))
        try:
            with agent.secure(ca=following) as s:
                good(asked(s))
                return s.getpeercert(True)
        except ssl.SSLCertVerificationError:
            return None
    until("new connections get the new one", lambda: shown() not in (None, first), 15)
    good(asked(kept))
    check(kept.getpeercert(True) == first, "the open one goes on")
    try:
        agent.secure()
        raise AssertionError("the old CA is still enough")
    except ssl.SSLCertVerificationError:
        pass


def large_answers():
    agent = Secure(Authority()).start()
    agent.services("large", 900)
    agent.services("web", 3)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with agent.secure(version=version, buffer=65536) as s:
            number, code, count, size, truncated = asked(s, "large.service.coord")
            check(code == 0 and count == 900 and size > 14000 and not truncated, "900 addresses in %d bytes" % size)
            number, code, count, size, truncated = asked(s, "large.service.coord", kind=SRV)
            check(code == 0 and size > 40000, "%d records in %d bytes" % (count, size))
            _, _, _, size, _ = asked(s, "large.service.coord", kind=SRV, padding=16)
            check(size % 468 == 0 and size > 40000, "padded to %d bytes" % size)
            s.sendall(b"".join(query("large.service.coord", i, SRV) for i in range(200)))  # 10 MB, which nobody reads for now
            with agent.secure(version=version) as other:
                good(asked(other))
            for i in range(200):
                number, code, _, size, _ = hear(s)
                check((number, code) == (i, 0) and size > 40000, "answer %d" % i)
            good(asked(s))


def idle_connections_end():
    agent = Secure(Authority()).start()
    agent.services("web", 3)
    begun = time.monotonic()
    silent, once, busy = agent.secure(), agent.secure(), agent.secure()
    good(asked(once))
    waiting = {silent: "no query", once: "one query"}
    while waiting:
        good(asked(busy))
        for s in list(waiting):
            s.settimeout(0.2)
            try:
                check(hear(s) is None, "no answer")     # a goodbye of TLS, no torn connection
                check(time.monotonic() - begun > 9, "%s: closed after %.1f s" % (waiting[s], time.monotonic() - begun))
                del waiting[s]
            except TimeoutError:
                pass
        check(time.monotonic() - begun < 20 * SLOW + STANDSTILL, "closed in time: %r" % waiting.values())
    good(asked(busy))


def alone_and_without():
    ca = Authority()
    agent = Secure(ca, ports={"dns": -1}).start()
    agent.services("web", 3)
    check("not protected: HTTP on %s\n" % agent.ip in agent.log(), agent.log())
    with agent.secure() as s:
        good(asked(s))
    try:
        agent.dial(8600)
        raise AssertionError("plain DNS is off")
    except ConnectionRefusedError:
        pass
    bare = Agent(configuration(ports={"dns_tls": PORT}), dev=True)
    bare.start(wait=False)
    check(bare.proc.wait(20 * SLOW + STANDSTILL) != 0 and "ports.dns_tls: needs cert_file and key_file" in bare.log(), bare.log())
    taken = Secure(ca)
    with socket.socket() as s:
        s.bind((taken.ip, PORT))
        s.listen()
        taken.start(wait=False)
        check(taken.proc.wait(20 * SLOW + STANDSTILL) != 0 and "cannot answer DNS over TLS on %s port %d" % (taken.ip, PORT) in taken.log(), taken.log())


if __name__ == "__main__":
    run([clients_of_all_kinds, many_at_once_and_padded, records_cut_at_every_byte, the_wrong_protocol, half_handshakes, many_come_back_at_once,
         new_certificates, large_answers, idle_connections_end, alone_and_without])
