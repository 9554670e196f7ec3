"""HTTPS and Unix sockets: real clients of TLS, certificates that are wrong, cut and half handshakes, new certificates under load."""
import http.client, json, os, select, shutil, signal, socket, ssl, stat, subprocess, tempfile, threading, time
from coordtest import COORD, SLOW, STANDSTILL, Agent, check, configuration, run, until
from tls_client import only_new_versions

PORT = 8501
CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")


class Authority:
    """A CA and the certificates that it gave, made by openssl."""

    def __init__(self, name="ca"):
        self.dir = tempfile.mkdtemp(prefix="coord-e2e-ca-")
        self.name, self.count = name, 0
        self.key(self.path("ca.key"))
        self.openssl("req", "-x509", "-new", "-key", self.path("ca.key"), "-days", "30", "-subj", "/CN=" + name, "-out", self.path("ca.pem"))
        self.ca = self.path("ca.pem")

    def path(self, name):
        return os.path.join(self.dir, name)

    def openssl(self, *args):
        r = subprocess.run(["openssl", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        check(r.returncode == 0, "openssl %s: %s" % (" ".join(args), r.stderr))

    def key(self, path):
        self.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
        os.chmod(path, 0o600)

    def give(self, ip="127.0.0.1", name="localhost", use="serverAuth,clientAuth", expired=False, more=""):
        """(certificate, key): new files."""
        self.count += 1
        base = self.path("%d" % self.count)
        self.key(base + ".key")
        self.openssl("req", "-new", "-key", base + ".key", "-subj", "/CN=%s-%d" % (name, self.count), "-out", base + ".csr")
        with open(base + ".ext", "w") as f:
            f.write("subjectAltName=DNS:%s,DNS:localhost,IP:%s%s\nextendedKeyUsage=%s\nbasicConstraints=CA:FALSE\n" % (name, ip, more, use))
        args = ["x509", "-req", "-in", base + ".csr", "-CA", self.ca, "-CAkey", self.path("ca.key"), "-CAcreateserial", "-extfile", base + ".ext",
                "-out", base + ".pem"]
        if expired:                      # openssl x509 knows days from now only, so the CA command is used
            return self.expired(base)
        self.openssl(*args, "-days", "10")
        return base + ".pem", base + ".key"

    def expired(self, base):
        with open(self.path("ca.conf"), "w") as f:
            f.write("[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=%s\ndatabase=%s\nserial=%s\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
                    % (self.dir, self.path("index"), self.path("serial")))
        open(self.path("index"), "w").close()
        with open(self.path("serial"), "w") as f:
            f.write("%04x\n" % (0x1000 + self.count))
        self.openssl("ca", "-batch", "-config", self.path("ca.conf"), "-in", base + ".csr", "-cert", self.ca, "-keyfile", self.path("ca.key"), "-out",
                     base + ".pem", "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-extfile", base + ".ext", "-notext")
        return base + ".pem", base + ".key"


class Secure(Agent):
    """An agent with HTTPS on 8501 beside HTTP on 8500."""

    def __init__(self, ca, *args, pair=None, clients=None, **keys):
        super().__init__(*args, dev=True)
        self.ca = ca
        given = pair or ca.give(self.ip)
        self.pair = (os.path.join(self.dir, "cert.pem"), os.path.join(self.dir, "key.pem"))
        self.show(*given)
        config = {"ports": {"https": PORT}, "cert_file": self.pair[0], "key_file": self.pair[1]}
        if clients:
            config.update(ca_file=clients.ca, verify_incoming_https=True)
        config.update(keys)
        self.args.append(configuration(**config))

    def show(self, certificate, key):
        """Replaces the files; the key is in its place first."""
        for source, target in ((key, self.pair[1]), (certificate, self.pair[0])):
            shutil.copy(source, target + ".new")
            os.chmod(target + ".new", 0o600)
            os.rename(target + ".new", target)

    def context(self, pair=None, version=None, ca=None):
        context = ssl.create_default_context(cafile=(ca or self.ca).ca)
        if pair:
            context.load_cert_chain(*pair)
        if version:
            context.minimum_version = context.maximum_version = version
        return context

    def https(self, **kw):
        return http.client.HTTPSConnection(self.ip, PORT, context=self.context(**kw), timeout=30 * SLOW)

    def ask_by(self, connection, path, method="GET", body=None, headers=None):
        connection.request(method, path, body=body, headers=headers or {})
        r = connection.getresponse()
        return r.status, r.headers, r.read()

    def secure_get(self, path="/v1/status/leader", **kw):
        c = self.https(**kw)
        try:
            return self.ask_by(c, path)
        finally:
            c.close()

    def url(self, path="/v1/status/leader"):
        return "https://%s:%d%s" % (self.ip, PORT, path)

    def metric(self, name):
        for line in self.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return 0.0


def curl(*args):
    return subprocess.run(["curl", "-sS", "--max-time", "%d" % (30 * SLOW), *args], capture_output=True, text=True)


def tool(name):
    if shutil.which(name):
        return True
    print("     %s is not installed: left out" % name)
    return False


def clients_of_all_kinds():
    ca, other = Authority(), Authority("other")
    agent = Secure(ca, addresses={}).start()
    check("protected by TLS: HTTPS on %s (every client is served) | not protected: HTTP on %s" % (agent.ip, agent.ip) in agent.log(), agent.log())
    r = curl("--cacert", ca.ca, agent.url())
    check(r.returncode == 0 and ":8300" in r.stdout, "curl: %r" % r)
    r = curl("--cacert", ca.ca, "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", agent.url())
    check(r.stdout == "1.1 200", "curl that would like HTTP/2: %r" % r)
    r = curl("--cacert", other.ca, agent.url())
    check(r.returncode == 60 and not r.stdout, "curl with another CA: %r" % r)
    for version in ("-tls1_3", "-tls1_2"):
        r = subprocess.run(["openssl", "s_client", "-connect", "%s:%d" % (agent.ip, PORT), "-CAfile", ca.ca, "-verify_return_error", "-ign_eof", version],
                           input="GET /v1/status/leader HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", capture_output=True, text=True, timeout=60 * SLOW)
        check("Verify return code: 0 (ok)" in r.stdout and "HTTP/1.1 200 OK" in r.stdout and ':8300"' in r.stdout, "openssl %s: %r" % (version, r))
    only_new_versions(agent.ip, PORT)
    lenient = Secure(ca, tls_min_version="tls10").start()
    only_new_versions(lenient.ip, PORT, taken=("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"))
    if tool("gnutls-cli"):
        r = subprocess.run(["gnutls-cli", "--x509cafile", ca.ca, "-p", str(PORT), agent.ip], capture_output=True, text=True, timeout=60 * SLOW,
                           input="GET /v1/status/leader HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        check("The certificate is trusted" in r.stdout and "200 OK" in r.stdout, "gnutls-cli: %r" % r)
    env = dict(os.environ, COORD_HTTP_ADDR="https://%s:%d" % (agent.ip, PORT))
    r = subprocess.run([COORD, "kv", "put", "-ca-file=" + ca.ca, "a", "1"], env=env, capture_output=True, text=True)
    check(r.returncode == 0, "coord: %r" % r)
    env = dict(os.environ, CONSUL_HTTP_ADDR="%s:%d" % (agent.ip, PORT), CONSUL_HTTP_SSL="true", CONSUL_CACERT=ca.ca)
    r = subprocess.run([COORD, "kv", "get", "a"], env=env, capture_output=True, text=True)
    check(r.stdout == "1\n", "coord with the variables of Consul: %r" % r)
    r = subprocess.run([COORD, "kv", "get", "-tls-server-name=elsewhere", "a"], env=env, capture_output=True, text=True)
    check(r.returncode != 0 and "elsewhere" in r.stderr, "another name: %r" % r)
    r = subprocess.run([COORD, "kv", "get", "-ca-file=" + other.ca, "a"], env=env, capture_output=True, text=True)
    check(r.returncode != 0 and "verification failed" in r.stderr, "another CA: %r" % r)
    if CONSUL:
        r = subprocess.run([CONSUL, "kv", "get", "a"], env=env, capture_output=True, text=True)
        check(r.stdout == "1\n", "consul: %r" % r)
        r = subprocess.run([CONSUL, "members"], env=env, capture_output=True, text=True)
        check(r.returncode == 0 and "n1" in r.stdout, "consul members: %r" % r)
    else:
        print("     no consul program: left out")
    check(agent.metric('coord_https_handshakes_total{outcome="full"}') > 5, "handshakes are counted")


def resumes(agent, version, pair=None):
    """Is the session of a first connection taken for a second one?"""
    context, session, reused = agent.context(version=version, pair=pair), None, []
    for _ in range(2):
        with context.wrap_socket(socket.create_connection((agent.ip, PORT)), server_hostname="localhost", session=session) as s:
            s.sendall(b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n")
            check(s.recv(4096).startswith(b"HTTP/1.1 200"), "an answer")
            reused.append(s.session_reused)
            session = s.session
    check(not reused[0], "%s: the first session is a new one" % version)
    return reused[1]


def sessions_are_resumed():
    """Also with access control, when clients are asked for certificates: but a session in which one was shown is not, because a resumed one shows none."""
    ca = Authority()
    for acl in ({}, {"acl": {"enabled": True, "default_policy": "allow"}}):
        agent = Secure(ca, **acl).start()
        agent.wait_leader()
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            check(resumes(agent, version), "%s, %r: resumed" % (version, acl))
        check(agent.metric('coord_https_handshakes_total{outcome="resumed"}') == 2, "they are counted")
    check(not resumes(agent, ssl.TLSVersion.TLSv1_3, ca.give()), "not with a certificate")


def a_bad_certificate_of_the_server():
    """Its own certificate is expired: it starts, says so, and clients refuse it. Files that do not fit end the start."""
    ca = Authority()
    agent = Secure(ca, pair=ca.give("127.0.0.1", expired=True)).start()
    check("the certificate is expired" in agent.log(), agent.log())
    r = curl("--cacert", ca.ca, agent.url())
    check(r.returncode == 60, "curl: %r" % r)

    def ends(agent, words):
        agent.start(wait=False)
        check(agent.proc.wait(20 * SLOW + STANDSTILL) != 0, "it ends")
        check(words in agent.log() and agent.log().count("cannot start") == 1, agent.log())
    ends(Secure(ca, pair=(ca.give()[0], ca.give()[1])), "cert.pem")
    wide = Secure(ca)
    os.chmod(wide.pair[1], 0o644)
    ends(wide, "chmod")
    missing = Secure(ca)
    os.remove(missing.pair[0])
    ends(missing, "cert.pem: No such file")
    ends(Agent(configuration(ports={"https": PORT}), dev=True), "ports.https: needs cert_file and key_file")
    ends(Secure(ca, verify_incoming_https=True), "verify_incoming: needs the CAs of clients")


def client_certificates():
    ca, clients, other = Authority(), Authority("clients"), Authority("other")
    agent = Secure(ca, clients=clients, log_level="debug").start()
    check("(clients need a certificate)" in agent.log(), agent.log())
    good = clients.give(name="web-1")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context, session = agent.context(pair=good, version=version), None
        for _ in range(2):
            with context.wrap_socket(socket.create_connection((agent.ip, PORT)), server_hostname="localhost", session=session) as s:
                s.sendall(b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n")
                check(s.recv(4096).startswith(b"HTTP/1.1 200"), "a good certificate")
                check(not s.session_reused, "each connection is judged")
                session = s.session
        for what, pair in (("none", None), ("another CA", other.give()), ("expired", clients.give(expired=True)), ("for servers", clients.give(use="serverAuth"))):
            try:
                answer = agent.secure_get(pair=pair, version=version)
                raise AssertionError("%s: served: %r" % (what, answer))
            except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected) as e:
                check(isinstance(e, ssl.SSLError) and "alert" in str(e).lower(), "%s: the client learns why: %r" % (what, e))
    check("the client \"localhost" in agent.log() and "is refused: " in agent.log(), agent.log())
    r = curl("--cacert", ca.ca, "--cert", good[0], "--key", good[1], agent.url())
    check(r.returncode == 0 and ":8300" in r.stdout, "curl: %r" % r)
    flags = ["-http-addr=https://%s:%d" % (agent.ip, PORT), "-ca-file=" + ca.ca]
    r = subprocess.run([COORD, "kv", "put", *flags, "-client-cert=" + good[0], "-client-key=" + good[1], "a", "1"], capture_output=True, text=True)
    check(r.returncode == 0, "coord: %r" % r)
    r = subprocess.run([COORD, "kv", "get", *flags, "a"], capture_output=True, text=True)
    check(r.returncode != 0 and "may want a certificate of its clients (-client-cert, -client-key)" in r.stderr, "coord without a certificate: %r" % r)
    check(agent.request("GET", "/v1/status/leader")[0] == 200, "the plain port asks nobody")


def the_wrong_protocol():
    ca = Authority()
    agent = Secure(ca, log_level="debug", limits={"https_handshake_timeout": "1s"}).start()

    def says(port, data):
        with socket.create_connection((agent.ip, port), timeout=10 * SLOW + STANDSTILL) as s:
            s.sendall(data)
            out = b""
            while True:
                block = s.recv(65536)            # a reset would raise
                if not block:
                    return out
                out += block
    for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300000):
        answer = says(PORT, request)
        check(answer.startswith(b"HTTP/1.1 400 Bad Request\r\n") and answer.endswith(b"\r\n\r\nClient sent an HTTP request to an HTTPS server."), "%r" % answer)
    for junk in (b"\0\0\0\0", b"\x16\x03\x01\x01\xf4" + b"\xff" * 500, b"\x80\x2e\x01\x00\x02" + b"\0" * 50, b"\x15\x03\x01\x00\x02\x02\x28"):
        check(not says(PORT, junk).startswith(b"HTTP"), "junk: %r" % junk)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = agent.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    check(says(8500, outgoing.read()) == b"", "TLS to the plain port is closed, without words")
    check("a client speaks TLS to a port without" in agent.log(), "and logged")
    check(agent.secure_get()[0] == 200 and agent.request("GET", "/v1/status/leader")[0] == 200, "others are served")


class Memory:
    """A client of TLS whose records are in our hands: what it encrypts is cut up, what comes is read in pieces."""

    def __init__(self, agent, piece, version=None):
        self.socket = socket.create_connection((agent.ip, PORT), timeout=30 * SLOW + STANDSTILL)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.piece, self.incoming, self.outgoing = piece, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = agent.context(version=version).wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.do(self.tls.do_handshake)

    def flush(self):
        data = self.outgoing.read()
        for i in range(0, len(data), self.piece):
            self.socket.sendall(data[i:i + self.piece])

    def do(self, what, *args):
        while True:
            try:
                value = what(*args)
                self.flush()
                return value
            except ssl.SSLWantReadError:
                self.flush()
                data = self.socket.recv(max(self.piece, 64))
                self.incoming.write(data) if data else self.incoming.write_eof()

    def answer(self):
        text = b""
        while b"\r\n\r\n" not in text:
            text += self.do(self.tls.read, 65536)
        head, body = text.split(b"\r\n\r\n", 1)
        length = int(next(l.split(b":")[1] for l in head.split(b"\r\n") if l.lower().startswith(b"content-length")))
        while len(body) < length:
            body += self.do(self.tls.read, 65536)
        return int(head.split()[1]), body[:length], body[length:]


def records_of_every_length():
    ca = Authority()
    agent = Secure(ca).start()
    value = os.urandom(100000)
    for piece in (1, 2, 3, 4, 5, 6, 7, 21, 100, 1447, 16384, 16406):
        client = Memory(agent, piece)
        small = value[:200] if piece < 8 else value
        message = b"PUT /v1/kv/cut HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(small) + small
        size = len(message) if piece % 2 else 13     # one record, or many small ones
        for i in range(0, len(message), size):
            client.do(client.tls.write, message[i:i + size])
        check(client.answer()[:2] == (200, b"true"), "cut in pieces of %d" % piece)
        client.do(client.tls.write, b"GET /v1/kv/cut?raw HTTP/1.1\r\nHost: x\r\n\r\n")
        check(client.answer()[:2] == (200, small), "the value, cut in pieces of %d" % piece)
        client.socket.close()
    # A record that was changed under way ends the connection, and nothing of it is served.
    client = Memory(agent, 100000)
    client.tls.write(b"PUT /v1/kv/changed HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1")
    data = bytearray(client.outgoing.read())
    data[-1] ^= 1
    client.socket.sendall(data)
    until("it is closed", lambda: client.socket.recv(4096) == b"", 10)
    check(agent.request("GET", "/v1/kv/changed")[0] == 404, "nothing was written")


def large_and_long():
    """Large bodies both ways, headers longer than a connection's memory, and many requests in one write."""
    ca = Authority()
    agent = Secure(ca).start()
    c = agent.https()
    blob = os.urandom(500000)
    for i in range(34):
        check(agent.ask_by(c, "/v1/kv/blob/%d" % i, "PUT", blob)[0] == 200, "PUT")
    status, _, backup = agent.ask_by(c, "/v1/snapshot")
    check(status == 200 and len(backup) > 16 << 20, "a backup of %d bytes" % len(backup))
    check(agent.ask_by(c, "/v1/kv/blob/", "GET")[0] in (200, 404), "the connection goes on")
    check(agent.ask_by(c, "/v1/kv/after", "PUT", b"x")[0] == 200, "PUT")
    check(agent.ask_by(c, "/v1/snapshot", "PUT", backup)[0] == 200, "the backup is restored")
    check(agent.ask_by(c, "/v1/kv/after")[0] == 404, "what came later is gone")
    status, _, body = agent.ask_by(c, "/v1/kv/blob/33?raw")
    check(status == 200 and body == blob, "the value")
    status, _, body = agent.ask_by(c, "/v1/kv/blob/?recurse")
    check(status == 200 and len(json.loads(body)) == 34 and len(body) > 20 << 20, "22 MB in one answer")
    for size in (400, 3000, 5000, 9000, 20000, 30000):
        status, _, body = agent.ask_by(c, "/v1/kv/blob/1?raw", headers={"X-Long": "x" * size})
        check(status == 200 and body == blob, "a header of %d" % size)
    with agent.context().wrap_socket(socket.create_connection((agent.ip, PORT)), server_hostname="localhost") as s:
        s.settimeout(30 * SLOW + STANDSTILL)
        many = 300
        s.sendall(b"GET /v1/kv/blob/none?raw HTTP/1.1\r\nHost: x\r\n\r\n" * many + b"GET /v1/kv/blob/1?raw HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        out = b""
        while True:
            block = s.recv(1 << 20)
            if not block:
                break
            out += block
        check(out.count(b"HTTP/1.1 404") == many and out.endswith(blob), "%d answers" % out.count(b"HTTP/1.1 404"))
    status, _, body = agent.ask_by(agent.https(), "/v1/kv/x", headers={"X-Long": "x" * 60000})
    check(status == 431 and b"coord.http_header_max" in body, "%d %r" % (status, body))
    with agent.context().wrap_socket(socket.create_connection((agent.ip, PORT)), server_hostname="localhost") as s:
        s.sendall(b"\x01\x02 nonsense\r\n\r\n")
        check(s.recv(4096).startswith(b"HTTP/1.1 400"), "no request line")


def a_slow_reader():
    """A client that takes its answer slowly gets all of it, and others do not wait."""
    ca = Authority()
    agent = Secure(ca).start()
    blob = os.urandom(500000)
    for i in range(20):
        agent.put("/v1/kv/slow/%d" % i, blob)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    raw.connect((agent.ip, PORT))
    with agent.context().wrap_socket(raw, server_hostname="localhost") as s:
        s.settimeout(30 * SLOW + STANDSTILL)
        s.sendall(b"GET /v1/kv/slow/?recurse HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        out = bytearray()
        begun = time.monotonic()
        while True:
            block = s.recv(16384 if len(out) > 2 << 20 else 2000)
            if not block:
                break
            out += block
            if len(out) % 100 == 0:
                check(agent.secure_get()[0] == 200, "others are served")
        head, body = bytes(out).split(b"\r\n\r\n", 1)
        found = json.loads(body)
        check(len(found) == 20 and len(body) > 13000000, "all of it, in %.1f s" % (time.monotonic() - begun))


def waiting_and_streams():
    ca = Authority()
    agent = Secure(ca).start()
    agent.put("/v1/kv/w/a", b"1")
    index = agent.request("GET", "/v1/kv/w/a")[1]["X-Consul-Index"]
    waiters = [agent.https() for _ in range(60)]
    for c in waiters:
        c.request("GET", "/v1/kv/w/a?raw&wait=60s&index=" + index)
    gone = [agent.https() for _ in range(20)]
    for c in gone:
        c.request("GET", "/v1/kv/w/a?raw&wait=60s&index=" + index)
    until("all wait", lambda: agent.metric("coord_http_blocking_queries") == 80)
    for c in gone:
        c.close()
    until("those that hung up are noticed", lambda: agent.metric("coord_http_blocking_queries") == 60)
    for value in (b"2", b"3"):
        agent.put("/v1/kv/w/a", value)
        for c in waiters:
            r = c.getresponse()
            check(r.status == 200 and r.read() == value, "woken")
            c.request("GET", "/v1/kv/w/a?raw&wait=60s&index=" + r.headers["X-Consul-Index"])
    [c.close() for c in waiters]
    until("nobody waits", lambda: agent.metric("coord_http_blocking_queries") == 0)
    with agent.context().wrap_socket(socket.create_connection((agent.ip, PORT)), server_hostname="localhost") as s:
        s.settimeout(30 * SLOW + STANDSTILL)
        s.sendall(b"GET /v1/watch?prefix=w/ HTTP/1.1\r\nHost: x\r\n\r\n")
        seen = b""

        def has(words):
            nonlocal seen
            while words not in seen:
                block = s.recv(65536)
                check(block, "the stream ended: %r" % seen)
                seen += block
        has(b"text/event-stream")
        has(b"index")
        for i in range(50):
            agent.put("/v1/kv/w/key-%d" % i, b"x")
            has(b"w/key-%d\"" % i)
    r = subprocess.run([COORD, "monitor", "-http-addr=https://%s:%d" % (agent.ip, PORT), "-ca-file=" + ca.ca, "-h"], capture_output=True, text=True)
    check(r.returncode in (0, 2), "monitor")


def words_of_tls_within_a_connection():
    """Renegotiation is refused, new keys are taken, a client that has said its last word gets its answer and the end."""
    ca = Authority()
    agent = Secure(ca).start()

    def talk(version, *lines):
        p = subprocess.Popen(["openssl", "s_client", "-connect", "%s:%d" % (agent.ip, PORT), "-CAfile", ca.ca, version, "-crlf"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = b""
        os.set_blocking(p.stdout.fileno(), False)

        def has(words):
            def read():
                nonlocal said
                said += os.read(p.stdout.fileno(), 1 << 16) if select.select([p.stdout], [], [], 0.05)[0] else b""
                return words in said or p.poll() is not None
            until(words, read)
        has(b"Verify return code: 0 (ok)")
        for line, words in lines:
            p.stdin.write(line)
            p.stdin.flush()
            has(words)
        p.kill()
        p.wait()
        return said
    get = "GET /v1/status/leader HTTP/1.1\nHost: x\n\n"
    said = talk("-tls1_2", (get, b':8300"'), ("R\n", b"no renegotiation"))
    check(b"no renegotiation" in said, "%r" % said[-600:])
    said = talk("-tls1_3", (get, b':8300"'), ("K\n", b"KEYUPDATE"), (get, b"KEYUPDATE"), ("GET /v1/kv/none HTTP/1.1\nHost: x\n\n", b"404"))
    check(b"HTTP/1.1 404" in said and said.count(b"HTTP/1.1 200") == 2, "after new keys: %r" % said[-900:])
    for bye in (True, False):
        client = Memory(agent, 100000)
        client.tls.write(b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n")
        if bye:
            try:
                client.tls.unwrap()
            except ssl.SSLWantReadError:
                pass
        os.kill(agent.proc.pid, signal.SIGSTOP)          # so that all of it is there when the server looks
        client.flush()
        client.socket.shutdown(socket.SHUT_WR)
        os.kill(agent.proc.pid, signal.SIGCONT)
        if not bye:
            check(client.do(client.tls.read, 4096).startswith(b"HTTP/1.1 200"), "the answer")
            continue
        begun, data = time.monotonic(), b""              # openssl reads nothing after it has said goodbye
        while True:
            block = client.socket.recv(65536)
            if not block:
                break
            data += block
        check(len(data) > 100 and time.monotonic() - begun < 30 * SLOW + STANDSTILL, "closed at once: %.1f s" % (time.monotonic() - begun))
    check(agent.secure_get()[0] == 200, "others are served")


def slow_senders():
    ca = Authority()
    agent = Secure(ca, coord={"http_idle_timeout": "1500ms"}).start()
    clients = []
    for text in (b"GET /v1/kv/a HTTP/1.1\r\nHo", b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123", b""):
        s = agent.context().wrap_socket(socket.create_connection((agent.ip, PORT), timeout=30 * SLOW + STANDSTILL), server_hostname="localhost")
        s.sendall(text) if text else None
        clients.append(s)
    for s, words in zip(clients, (b"the header did not come in time", b"the body did not come in time", b"")):
        out = b""
        while True:
            block = s.recv(4096)             # raises when the end is not that of TLS
            if not block:
                break
            out += block
        check(words in out and (out.startswith(b"HTTP/1.1 408") or not words), "%r" % out)


def half_handshakes():
    """A hundred handshakes that stop halfway hold nothing of others, and are closed in time; also those that never begin."""
    ca = Authority()
    agent = Secure(ca, limits={"https_handshake_timeout": "1500ms"}).start()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = agent.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()
    before = agent.metric("coord_http_connections")
    halves = []
    for i in range(100):
        s = socket.create_connection((agent.ip, PORT), timeout=20 * SLOW + STANDSTILL)
        s.sendall(hello[:(0, 1, 4, 5, 60, len(hello) - 1, len(hello))[i % 7]])
        halves.append(s)
    begun = time.monotonic()
    check(agent.secure_get()[0] == 200 and agent.request("GET", "/v1/status/leader")[0] == 200, "others are served")
    served = 0
    while time.monotonic() < begun + 1:
        check(agent.secure_get()[0] == 200, "others are served")
        served += 1
    for s in halves:
        while s.recv(65536):
            pass
    check(served > 5 and time.monotonic() - begun < 10 * SLOW + STANDSTILL, "%d served" % served)
    until("they are gone", lambda: agent.metric("coord_http_connections") <= before + 1)
    check(agent.metric('coord_https_handshakes_total{outcome="failed"}') >= 70, "they are counted")
    few = Secure(ca, limits={"http_max_conns_per_client": 12}).start()
    held = []
    until("the limit is met", lambda: held.append(socket.create_connection((few.ip, PORT), timeout=20)) or not tried(few))
    check(len(held) >= 12, "%d held" % len(held))
    [s.close() for s in held]
    until("there is room again", lambda: tried(few))


def tried(agent):
    try:
        return agent.secure_get()[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def new_certificates_under_load():
    ca, next_ca = Authority(), Authority("next")
    agent = Secure(ca, log_level="info").start()
    first = open(agent.pair[0]).read()
    context = ssl.create_default_context()
    context.load_verify_locations(ca.ca)
    context.load_verify_locations(next_ca.ca)
    failed, done, stop = [], [0] * 4, threading.Event()

    def shown():
        with context.wrap_socket(socket.create_connection((agent.ip, PORT)), server_hostname="localhost") as s:
            return ssl.DER_cert_to_PEM_cert(s.getpeercert(True))

    def load(number):
        c = http.client.HTTPSConnection(agent.ip, PORT, context=context, timeout=30 * SLOW + STANDSTILL)
        try:
            while not stop.is_set():
                c.request("GET", "/v1/kv/none")
                r = c.getresponse()
                r.read()
                done[number] += 1
                if number % 2:                   # half of them dial anew each time
                    c.close()
        except Exception as e:
            failed.append(repr(e))
    threads = [threading.Thread(target=load, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    try:
        until("there is load", lambda: min(done) > 5)
        kept = http.client.HTTPSConnection(agent.ip, PORT, context=context, timeout=30 * SLOW + STANDSTILL)
        kept.connect()
        check(agent.ask_by(kept, "/v1/status/leader")[0] == 200, "kept")
        check(shown().strip() == first.strip(), "the first certificate")
        agent.show(*next_ca.give(agent.ip))
        agent.proc.send_signal(signal.SIGHUP)
        until("the next one, at once", lambda: shown().strip() == open(agent.pair[0]).read().strip(), 3)
        agent.show(*ca.give(agent.ip))
        until("one more, without a signal", lambda: shown().strip() == open(agent.pair[0]).read().strip(), 15)
        taken = shown()
        shutil.copy(ca.give(agent.ip)[0], agent.pair[0])
        until("one that does not fit is refused", lambda: "the new certificates are not taken, the old ones stay: " in agent.log(), 15)
        check(shown() == taken, "the old one stays")
        mark = agent.log().count("are not taken")
        agent.proc.send_signal(signal.SIGHUP)
        until("SIGHUP says so again", lambda: agent.log().count("are not taken") == mark + 1)
        check(agent.ask_by(kept, "/v1/status/leader")[0] == 200, "the connection of the beginning goes on")
        counts = list(done)
        until("the load goes on", lambda: all(n > m + 5 for n, m in zip(done, counts)))
    finally:
        stop.set()
        [t.join() for t in threads]
    check(not failed, "no request failed: %r" % failed[:3])


def many_come_back_at_once():
    """Three hundred full handshakes at once: answers on open connections do not wait for all of them."""
    ca = Authority()
    agent = Secure(ca, limits={"http_max_conns_per_client": 2000}).start()
    kept = agent.https()
    agent.ask_by(kept, "/v1/status/leader")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = agent.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()
    for _ in range(10):                      # the machine may be busy with other things
        many = [socket.create_connection((agent.ip, PORT), timeout=30 * SLOW + STANDSTILL) for _ in range(300)]
        os.kill(agent.proc.pid, signal.SIGSTOP)
        [s.sendall(hello) for s in many]
        kept.request("GET", "/v1/status/leader")
        begun = time.monotonic()
        os.kill(agent.proc.pid, signal.SIGCONT)
        kept.getresponse().read()
        first = time.monotonic() - begun
        for s in many:
            check(s.recv(10)[:3] == b"\x16\x03\x03", "its answer comes")
            s.close()
        whole = time.monotonic() - begun
        if first < whole / 4:
            break
    print("     300 handshakes took %.0f ms, an answer meanwhile %.1f ms" % (whole * 1000, first * 1000))
    check(first < whole / 4, "the answer waits for handshakes")


def unix_sockets():
    folder = tempfile.mkdtemp(prefix="coord-e2e-")
    path, secure = folder + "/http.sock", folder + "/https.sock"
    ca = Authority()
    agent = Secure(ca, "-log-level=debug", addresses={"http": "%s unix://%s" % ("127.0.0.1", path)}, unix_sockets={"mode": "0640"})
    agent.args[-1:] = [configuration(ports={"https": PORT}, cert_file=agent.pair[0], key_file=agent.pair[1], unix_sockets={"mode": "0640", "group": "0"},
                                     addresses={"http": "%s unix://%s" % (agent.ip, path), "https": "%s unix://%s" % (agent.ip, secure)})]
    agent.start()
    check(stat.S_IMODE(os.stat(path).st_mode) == 0o640 and stat.S_ISSOCK(os.stat(path).st_mode), "its mode")

    class Local(http.client.HTTPConnection):
        def connect(self):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(30 * SLOW + STANDSTILL)
            self.sock.connect(path)
    c = Local("local")
    value = os.urandom(400000)
    check(agent.ask_by(c, "/v1/kv/a", "PUT", value)[0] == 200 and agent.ask_by(c, "/v1/kv/a?raw")[2] == value, "http.client")
    status, headers, _ = agent.ask_by(c, "/v1/kv/a")
    c.request("GET", "/v1/kv/a?wait=60s&index=" + headers["X-Consul-Index"])
    until("it waits", lambda: agent.metric("coord_http_blocking_queries") == 1)
    agent.put("/v1/kv/a", b"new")
    check(json.loads(c.getresponse().read())[0]["Key"] == "a", "woken")
    check(agent.ask_by(c, "/v1/kv/a?raw", headers={"X-Long": "x" * 20000})[2] == b"new", "a long header")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(b"nonsense\r\n\r\n")
        check(s.recv(4096).startswith(b"HTTP/1.1 400"), "no request line")
    r = curl("--unix-socket", path, "http://x/v1/kv/a?raw")
    check(r.stdout == "new", "curl: %r" % r)
    r = curl("--unix-socket", secure, "--cacert", ca.ca, "https://localhost/v1/kv/a?raw")
    check(r.stdout == "new", "curl, TLS over a Unix socket: %r" % r)
    for args, env in ((["-http-addr=unix://" + path], {}), ([], {"COORD_HTTP_ADDR": "unix://" + path}), ([], {"CONSUL_HTTP_ADDR": "unix://" + path})):
        r = subprocess.run([COORD, "kv", "get", *args, "a"], env=dict(os.environ, **env), capture_output=True, text=True)
        check(r.stdout == "new\n", "coord: %r" % r)
    if CONSUL:
        r = subprocess.run([CONSUL, "kv", "get", "a"], env=dict(os.environ, CONSUL_HTTP_ADDR="unix://" + path), capture_output=True, text=True)
        check(r.stdout == "new\n", "consul: %r" % r)
    named = agent.get("/v1/agent/self")[2]["DebugConfig"]
    check("unix://" + path in named["HTTPAddrs"] and "unix://" + secure in named["HTTPSAddrs"], "%r" % named)

    def ends(keys, words):
        other = Agent(configuration(**keys), dev=True)
        other.start(wait=False)
        check(other.proc.wait(20 * SLOW + STANDSTILL) != 0 and words in other.log(), other.log())
    ends({"addresses": {"http": "unix://" + path}}, "another process listens on " + path)
    check(curl("--unix-socket", path, "http://x/v1/kv/a?raw").stdout == "new", "the living one is not disturbed")
    with open(folder + "/file", "w") as f:
        f.write("keep me")
    ends({"addresses": {"http": "unix://" + folder + "/file"}}, "is no socket")
    check(open(folder + "/file").read() == "keep me", "the file is as it was")
    ends({"addresses": {"http": "unix://%s/none/x.sock" % folder}}, "No such file or directory")
    ends({"addresses": {"http": "unix://%s/y.sock" % folder}, "unix_sockets": {"user": "nobody-here"}}, "no user \"nobody-here\"")
    check(not os.path.exists(folder + "/y.sock"), "nothing is left")
    ends({"addresses": {"http": "unix://" + folder + "/" + "x" * 100}}, "107 bytes")
    check(agent.stop()[0] == 0 and not os.path.exists(path) and not os.path.exists(secure), "the files are removed at a clean stop")
    agent.start()
    agent.kill()
    check(os.path.exists(path), "a kill leaves the file")
    agent.start()
    check(curl("--unix-socket", path, "http://x/v1/status/leader").returncode == 0, "and the next start replaces it")
    only = Agent(configuration(addresses={"http": "unix://%s/only.sock" % folder}, ports={"http": -1}, watches=[
        {"type": "key", "key": "seen", "handler_type": "script", "args": ["sh", "-c", "cat > %s/seen" % folder]}]), dev=True)
    only.start(wait=False)
    until("an agent with a socket alone", lambda: os.path.exists(folder + "/only.sock") and ":" in curl(
        "--unix-socket", folder + "/only.sock", "http://x/v1/status/leader").stdout)
    curl("--unix-socket", folder + "/only.sock", "-X", "PUT", "-d", "x", "http://x/v1/kv/seen")
    until("its watch runs by the socket", lambda: os.path.exists(folder + "/seen") and "seen" in open(folder + "/seen").read())


if __name__ == "__main__":
    run([clients_of_all_kinds, sessions_are_resumed, a_bad_certificate_of_the_server, client_certificates, the_wrong_protocol, records_of_every_length,
         large_and_long, a_slow_reader, waiting_and_streams, words_of_tls_within_a_connection,
         slow_senders, half_handshakes, new_certificates_under_load, many_come_back_at_once, unix_sockets])
