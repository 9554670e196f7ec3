"""A closed cluster as docs/security.md has it: its session, word for word, on four hosts with networks and folders of their own; and bad weather."""
import base64, gzip, json, os, re, shlex, signal, socket, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../e2e")]
from closed import FAKETIME
from coordtest import COORD, check, run, until
from pace import FIGURES, SLOW, STANDSTILL

PAGE = os.path.join(ROOT, "docs/security.md")
DATA = "/var/lib/coord"
TOKEN = re.compile(r"coord1[sa]\.[\w.-]{60,}")


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Host:
    """A host: a network namespace at a bridge, and a mount namespace in which DATA is its own."""

    def __init__(self, net, name, address):
        self.net, self.name, self.address = net, name, address
        self.folder = tempfile.mkdtemp(prefix="coord-closed-")
        self.namespace = "%s-%s" % (net.name, name)
        ip("netns", "add", self.namespace)
        ip("link", "add", "v" + name, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        ip("link", "set", "v" + name, "master", "br0", "up")
        ip("-n", self.namespace, "addr", "add", address + "/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.namespace, "link", "set", device, "up")
        self.agent, self.log = None, self.folder + ".log"
        self.exported = {}
        open(self.log, "w").close()

    def words(self, text):
        """The command as it is typed on this host."""
        inside = "mkdir -p {0} && mount --bind {1} {0} && hostname {2} && exec {3}".format(DATA, shlex.quote(self.folder), self.name, text)
        return ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "--uts", "sh", "-c", inside]

    def run(self, text, within=60, environment=None, **more):
        r = subprocess.run(self.words(text), capture_output=True, text=True, timeout=within * SLOW + STANDSTILL, env=dict(self.net.environment, **self.exported, **(environment or {})), **more)
        return r.returncode, r.stdout, r.stderr

    def ok(self, text, **more):
        code, out, err = self.run(text, **more)
        check(code == 0, "%s$ %s: %d\n%s%s\n%s" % (self.name, text, code, out, err, self.said()[-2000:]))
        return out

    def start(self, text="coord agent -data-dir " + DATA, environment=None):
        log = open(self.log, "ab")
        self.agent = subprocess.Popen(self.words(text), stdout=log, stderr=log, env=dict(self.net.environment, **(environment or {})))
        log.close()

    def stop(self, number=signal.SIGTERM):
        if self.agent:
            self.agent.send_signal(number)
            self.agent.wait(30 * SLOW + STANDSTILL)
            self.agent = None

    def said(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def curl(self, path, words="", within=60):
        """What curl says, with the token of the operator."""
        return self.run("curl -s -m 5 -H 'X-Consul-Token: %s' %s http://127.0.0.1:8500%s" % (self.net.management, words, path), within)

    def get(self, path):
        code, out, _ = self.curl(path)
        try:
            return json.loads(out)
        except ValueError:
            return None

    def leads(self):
        return code_of(self.curl("/v1/status/leader"))

    def remove(self):
        self.stop(signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True)
        subprocess.run(["rm", "-rf", self.folder, self.log])


def code_of(answer):
    return answer[0] == 0 and answer[1].strip('"\n')


class Net:
    """The bridge, in a namespace that this process has entered (see the end of the file), and what passes over it."""

    def __init__(self):
        self.name = "closed%d" % os.getpid()
        self.hosts = {}
        self.bin = tempfile.mkdtemp(prefix="coord-closed-bin-")
        os.symlink(os.path.abspath(COORD), os.path.join(self.bin, "coord"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("COORD_", "CONSUL_"))}
        self.environment["PATH"] = self.bin + os.pathsep + os.environ["PATH"]
        ip("link", "add", "br0", "type", "bridge")
        ip("link", "set", "br0", "up")
        self.management = ""             # the token of commands and requests, once the cluster is made
        self.seen, self.watching = bytearray(), True
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.wire.bind(("br0", 0))
        self.wire.settimeout(0.2)
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        # A bridge shows only what is for this host. Promiscuous ports show the rest: one socket sees all of them.
        every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        every.settimeout(0.2)
        while self.watching:
            try:
                data, _ = every.recvfrom(65536)
            except socket.timeout:
                continue
            if len(self.seen) < 1 << 28:
                self.seen += data

    def host(self, name, address=None):
        if name not in self.hosts:
            self.hosts[name] = Host(self, name, address or "10.0.0." + re.sub(r"\D", "", name))
        return self.hosts[name]

    def remove(self):
        self.watching = False
        for host in self.hosts.values():
            host.remove()
        subprocess.run(["rm", "-rf", self.bin])


NET = None
TOKENS = {}


def take_tokens(text):
    for token in TOKEN.findall(text):
        TOKENS[token[:8]] = token


def operator_has_his_token():
    """From now on requests and commands have it on all hosts."""
    with open(os.path.join(NET.host("s1").folder, "management.token")) as f:
        check(os.fstat(f.fileno()).st_mode & 0o7777 == 0o600, "its owner alone reads it")
        NET.management = f.read().strip()
    NET.host("s1").exported.clear()
    NET.environment["CONSUL_HTTP_TOKEN"] = NET.management


def session():
    """Every line of the page that begins with a host's name and $ is run on that host; what is shown below it has to be printed."""
    with open(PAGE) as f:
        page = f.read()
    steps, secret = 0, ""
    for block in re.findall(r"```console\n(.*?)```", page, re.S):
        parts = re.split(r"^(\w\d)\$ (.*)\n", block, flags=re.M)
        for name, command, shown in zip(parts[1::3], parts[2::3], parts[3::3]):
            steps += 1
            host = NET.host(name)
            for prefix, token in TOKENS.items():
                command = command.replace(prefix + "…", token)
            command = command.replace("THE-SECRETID", secret)
            if command.startswith("coord agent"):
                host.start(command)
                until("%s answers" % name, lambda: host.get("/v1/status/leader"), within=30)
                continue
            if command.startswith("export "):
                host.exported.update([command.split(" ", 1)[1].split("=", 1)])
                continue
            out = host.ok(command)
            take_tokens(out)
            secret = "".join(re.findall(r"^SecretID: +(\S+)", out, re.M)) or secret
            for line in shown.splitlines():
                wanted = "^%s$" % ".*".join(map(re.escape, line.split("…")))
                check(re.search(wanted, out, re.M), "%s$ %s prints no %r but\n%s" % (name, command, line, out))
    check(steps >= 17, "the page has %d steps" % steps)
    operator_has_his_token()
    nothing_beyond(secret)
    first = NET.host("s1")
    until("three servers", lambda: sum(s["Voter"] for s in first.get("/v1/operator/raft/configuration")["Servers"]) == 3, within=30)
    until("four nodes", lambda: {n["Node"] for n in first.get("/v1/catalog/nodes")} == {"s1", "s2", "s3", "h9"}, within=30)


def nothing_beyond(web):
    """What the page's web server may do, and what it may not."""
    host = NET.host("h9")
    until("it is in the catalog", lambda: [s["Node"] for s in host.get("/v1/catalog/service/web") or []] == ["h9"], within=30)

    def status(words, path, token=web):
        return host.ok("curl -s -m 5 -o /dev/null -w '%%{http_code}' -H 'X-Consul-Token: %s' %s http://127.0.0.1:8500%s" % (token, words, path))
    register = "-X PUT -d '{\"Name\":\"%s\"}'"
    for words, path, wanted in (("", "/v1/kv/web/config/color", "200"), ("", "/v1/kv/web/secret", "403"), ("-X PUT -d x", "/v1/kv/web/config/color", "403"),
                                (register % "web", "/v1/agent/service/register", "200"), (register % "db", "/v1/agent/service/register", "403"),
                                ("-X PUT", "/v1/join-token", "403"), ("", "/v1/acl/tokens", "403")):
        check(status(words, path) == wanted, "%s %s: %s instead of %s" % (words, path, status(words, path), wanted))
    for words, path in (("", "/v1/kv/web/config/color"), (register % "web", "/v1/agent/service/register"), ("-X PUT", "/v1/join-token")):
        check(status(words, path, token="") == "403", "%s %s without a token" % (words, path))


def an_open_cluster_is_readable():
    """The same search finds a key that is written in an open cluster: so it can find one."""
    server, agent = NET.host("c1", "10.0.0.62"), NET.host("c2", "10.0.0.63")
    server.start("coord agent -data-dir %s -server -bootstrap-expect=1 -bind 10.0.0.62" % DATA)
    agent.start("coord agent -data-dir %s -bind 10.0.0.63 -retry-join 10.0.0.62" % DATA)
    value = "a-value-that-everybody-may-read-%d" % os.getpid()
    until("it is written", lambda: agent.run("curl -sf -X PUT -d %s http://127.0.0.1:8500/v1/kv/open" % value)[1].strip() == "true", within=30)
    until("it is seen", lambda: value.encode() in NET.seen and b"coord-peer" in NET.seen)
    server.stop()
    agent.stop()
    del NET.seen[:]


def keys_of(host):
    """Its keys, as they might be met: the file, parts of its text, its DER, the private number as DER and as libraries keep it."""
    keys = {}
    for name in ("ca.key", "key.pem", "secret.key"):
        with open(os.path.join(host.folder, "tls", name), "rb") as f:
            content = f.read()
        body = b"".join(content.split(b"\n")[1:-2]) if b"BEGIN" in content else content
        keys[name] = [content, body, body[20:60]]
        if name != "secret.key":
            der = base64.b64decode(body)
            at = der.index(b"\x02\x01\x01\x04") + 4
            number = der[at + 1:at + 1 + der[at]].lstrip(b"\0")
            check(len(number) > 28, "%d bytes" % len(number))
            keys[name] += [der, number, number[::-1]]
    return keys


def nothing_is_readable():
    """A key that is written at one host is read at another, and nobody on the network sees it, nor the keys that servers handed over."""
    secret = "a-secret-that-nobody-else-may-read-%d" % os.getpid()
    check(NET.host("h9").curl("/v1/kv/secret", "-f -X PUT -d " + secret)[1].strip() == "true", "it is written")
    for name in ("s1", "s2", "s3", "h9"):
        until("%s has it" % name, lambda: NET.host(name).curl("/v1/kv/secret?raw")[1] == secret)
    check(len(NET.seen) > 100000, "%d bytes were seen" % len(NET.seen))
    for word in (secret.encode(), b"coord-peer", TOKENS["coord1s."].split(".")[3].encode(), b"PRIVATE KEY"):
        check(word not in NET.seen, "%r was on the network" % word)
    with open(os.path.join(NET.host("s3").folder, "tls/ca.key"), "rb") as f, open(os.path.join(NET.host("s1").folder, "tls/ca.key"), "rb") as g:
        check(f.read() == g.read(), "it was handed over while the network was watched")
    for name in ("s1", "s2", "s3"):
        for file, parts in keys_of(NET.host(name)).items():
            check(not any(part in NET.seen for part in parts), "%s of %s was on the network" % (file, name))


def join(host, *words, environment=None):
    return host.run("coord join -data-dir %s %s" % (DATA, " ".join(words)), environment=environment)


def tokens_are_checked():
    """Cut short, mistyped, of another cluster, revoked, used up, for other names: each is refused with a line, and nothing is kept."""
    x = NET.host("x1", "10.0.0.50")
    good = NET.host("s1").ok("coord join-token -uses 1 -node 'x*'").strip()
    for bad, said in ((good[:-4], "cut short"), (good.replace(good[20], "A" if good[20] != "A" else "B"), "changed"), ("coord1a.hello", "join token")):
        code, _, err = join(x, bad, "10.0.0.1")
        check(code == 2 and said in err, "%s: %d %s" % (bad, code, err))
    code, _, err = join(x, "-node", "web1", good, "10.0.0.1")
    check(code == 1 and "other names" in err, "%d %s" % (code, err))
    code, out, err = join(x, good, "10.0.0.1")
    check(code == 0 and "joined" in out, "%d %s" % (code, err))
    y = NET.host("x2", "10.0.0.51")
    code, _, err = join(y, good, "10.0.0.1")
    check(code == 1 and "used up" in err, "%d %s" % (code, err))
    revoked = NET.host("s1").ok("coord join-token").strip()
    NET.host("s1").ok("coord join-token revoke " + revoked.split(".")[2])
    code, _, err = join(y, revoked, "10.0.0.1")
    check(code == 1 and "not known" in err, "%d %s" % (code, err))
    short = NET.host("s1").ok("coord join-token -ttl 1s -node nobody").strip()
    until("it is over", lambda: any(word in join(y, short, "10.0.0.1")[2] for word in ("time is over", "not known")))
    code, _, err = join(y, "-timeout", "2s", revoked, "10.0.0.77")
    check(code == 1 and "waiting" in err and "10.0.0.77" in err, "%d %s" % (code, err))


def nobody_else_is_let_in():
    """A plain agent, one of another cluster, an agent's certificate in a server's place, another node's name."""
    plain = NET.host("p1", "10.0.0.60")
    plain.start("coord agent -data-dir %s -bind 10.0.0.60 -retry-join 10.0.0.1" % DATA)
    until("it is told what is wanted", lambda: "encrypted connections only" in plain.said())
    plain.stop()
    other = NET.host("o1", "10.0.0.61")
    other.ok("coord init -data-dir %s -bind 10.0.0.61" % DATA)
    other.start("coord agent -data-dir %s -retry-join 10.0.0.1" % DATA)
    until("its CA is not known", lambda: "no encrypted connection" in other.said())
    until("nor is that one there", lambda: "no encrypted connection" in NET.host("s1").said())
    other.stop()
    x = NET.host("x1")
    code, _, err = x.run("timeout 5 coord agent -data-dir %s -node impostor" % DATA)
    check("has to join anew" in err, "%d %s" % (code, err))
    code, _, err = x.run("timeout 5 coord agent -data-dir %s -server -bootstrap-expect=1" % DATA)
    check("is that of a client agent" in err, "%d %s" % (code, err))
    check("p1" not in {n["Node"] for n in NET.host("s1").get("/v1/catalog/nodes")}, "no plain agent is in the catalog")


def a_removed_node_is_cut_off():
    x = NET.host("x1")
    x.start()
    until("it is a member", lambda: "x1" in {n["Node"] for n in NET.host("s2").get("/v1/catalog/nodes")}, within=20)
    NET.host("s3").ok("coord force-leave -prune x1")
    begun = time.monotonic()
    until("its connection ends", lambda: "it was removed from the cluster" in x.said())
    took = time.monotonic() - begun          # e2e/test_impostors.py proves it by the order of what happens
    print("     cut off after %.2f s" % took)
    check(not FIGURES or took <= 1, "%.2f s" % took)
    x.stop()
    code, _, err = join(x, NET.host("s1").ok("coord join-token").strip(), "10.0.0.2")
    check(code == 1 and "belongs to a cluster already" in err, err)
    subprocess.run("rm -rf %s/*" % x.folder, shell=True, check=True)
    code, out, err = join(x, NET.host("s1").ok("coord join-token").strip(), "10.0.0.2")
    check(code == 0, "with an empty folder it joins anew: %d %s" % (code, err))


def the_leader_dies_while_it_signs():
    """A join goes on with the servers that are left: when the leader stands still, and when it is killed at some moment of a join."""
    leader = next(NET.host(n) for n in ("s1", "s2", "s3") if NET.host(n).address in (NET.host(n).leads() or ""))
    others = [h for h in (NET.host(n) for n in ("s1", "s2", "s3")) if h is not leader]
    token = others[0].ok("coord join-token").strip()
    z = NET.host("z1", "10.0.0.70")
    leader.agent.send_signal(signal.SIGSTOP)
    joining = threading.Thread(target=lambda: joined.append(join(z, token, leader.address, others[0].address, others[1].address)))
    joined = []
    joining.start()
    joining.join(60 * SLOW + STANDSTILL)
    check(joined and joined[0][0] == 0, "%r" % joined)
    leader.agent.send_signal(signal.SIGCONT)
    until("it is back", lambda: leader.get("/v1/status/leader"))
    for i, after in enumerate((0.0, 0.01, 0.03)):
        servers = [NET.host(n) for n in ("s1", "s2", "s3")]
        leader = until("one leads", lambda: next((h for h in servers if h.address in (servers[0].leads() or servers[1].leads() or "")), None))
        token = leader.ok("coord join-token -uses 1").strip()
        y, done = NET.host("k%d" % i, "10.0.0.7%d" % (i + 1)), []
        joining = threading.Thread(target=lambda: done.append(join(y, token, leader.address, *(h.address for h in servers if h is not leader))))
        joining.start()
        until("it has begun", lambda: os.path.exists(os.path.join(y.folder, "tls")) or done)
        time.sleep(after)                    # any moment is right: the join has to hold for each
        leader.stop(signal.SIGKILL)
        joining.join(60 * SLOW + STANDSTILL)
        check(done and done[0][0] == 0, "%r" % done)
        leader.start()
        until("it is back", lambda: leader.get("/v1/status/leader"))
    listed = [c["Node"] for c in NET.host("s1").get("/v1/certificates")]
    check(len(listed) == len(set(listed)) and {"k0", "k1", "k2", "z1"} <= set(listed), listed)


def core_of(pid):
    """The memory of a process that a core dump would have: all that may be read, but for what the kernel leaves out (VmFlags dd)."""
    with open("/proc/%d/smaps" % pid) as f:
        blocks = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", f.read(), flags=re.M)[1:]
    memory = bytearray()
    with open("/proc/%d/mem" % pid, "rb") as f:
        for block in blocks:
            begin, end = (int(x, 16) for x in block.split(" ", 1)[0].split("-"))
            flags = re.search(r"^VmFlags:(.*)$", block, re.M).group(1).split()
            private = re.search(r"^Private_Dirty: *(\d+)", block, re.M).group(1) != "0"
            if "rd" in flags and "dd" not in flags and private and end - begin < 1 << 28:
                try:
                    f.seek(begin)
                    memory += f.read(end - begin)
                except OSError:
                    pass
    return bytes(memory)


def no_secret_is_where_it_does_not_belong():
    """Keys and secrets of tokens: only in the files that are meant to hold them."""
    first = NET.host("s1")
    settings = first.folder + ".json"
    with open(settings, "w") as f:
        json.dump({"coord": {"snapshot_log_bytes": 65536}}, f)
    first.stop()
    first.start("coord agent -data-dir %s -config-file=%s" % (DATA, settings))
    until("it is back", lambda: first.get("/v1/status/leader"), within=30)
    secrets = keys_of(first)
    tokens = [t.split(".")[3].encode() for t in TOKENS.values()]
    core = core_of(first.agent.pid)
    check(len(core) > 1 << 20 and b"10.0.0.1" in core, "%d bytes of a core" % len(core))
    for name, parts in secrets.items():
        check(not any(part in core for part in parts), "%s is in a core dump" % name)
    # A token that this very process has just made is in its answer; one that hosts came with must not stay.
    check(TOKENS["coord1s."].split(".")[3].encode() not in core, "a token is in a core dump")
    first.ok("coord kv put where/is/it in-the-backup")
    big = first.folder + ".big"
    with open(big, "wb") as f:
        f.write(os.urandom(100000))
    taken = lambda: re.findall(r"snapshot taken index=(\d+)", first.said())
    until("a snapshot is taken", lambda: first.curl("/v1/kv/big", "-f -X PUT -T " + big)[0] == 0 and taken(), within=30)
    first.ok("coord kv put where/is/it in-the-log")
    searched = []
    first.ok("coord snapshot save %s/backup.snap" % DATA)
    with gzip.open(os.path.join(first.folder, "backup.snap")) as f:
        check(b"in-the-backup" in f.read(), "a backup is read as what is in it")
    for folder, _, files in [*os.walk(first.folder), (os.path.dirname(first.log), [], [os.path.basename(first.log)])]:
        for file in files:
            with open(os.path.join(folder, file), "rb") as f:
                content = f.read()
            if content.startswith(b"\x1f\x8b"):
                content = gzip.decompress(content)
            if b"where/is/it" in content:
                searched.append(os.path.relpath(os.path.join(folder, file), first.folder))
            for name, parts in secrets.items():
                check(file == name or not any(part and part in content for part in parts), "%s is in %s" % (name, file))
            check(not any(token in content for token in tokens), "a token's secret is in %s" % file)
            check(file == "management.token" or NET.management.encode() not in content, "the management token is in %s" % file)
    print("     what was written is in %s, and no secret" % " ".join(sorted(searched)))
    for kind in ("backup.snap", "store/", "raft/snap-", "raft/log-"):
        check(any(re.search(kind, name) for name in searched), "no %s was searched: %s" % (kind, searched))


def faked(path):
    """The wall clock is what the file says; timers go on as they are. None: there is no libfaketime, and the story is left out."""
    if not os.path.exists(FAKETIME):
        return print("     no libfaketime: left out")
    return {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": path, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def the_clock_of_a_joiner_is_wrong():
    """A day ahead, the certificates are still good. A day behind, the joiner is told that they are not good yet."""
    token = NET.host("s1").ok("coord join-token -uses 0").strip()
    for name, address, offset, wanted in (("f1", "10.0.0.81", "+1d", 0), ("f2", "10.0.0.82", "-1d", 1)):
        host = NET.host(name, address)
        with open(host.folder + ".time", "w") as f:
            f.write(offset)
        environment = faked(host.folder + ".time")
        if not environment:
            return
        code, out, err = join(host, token, "10.0.0.1", environment=environment)
        check(code == wanted and (code == 0 or "is a clock wrong" in err), "%s: %d %s%s" % (offset, code, out, err))


def three_years_of_renewals():
    """A cluster of one whose clock goes on by half a certificate's life each time: it renews, and never stops to serve."""
    host = NET.host("y1", "10.0.0.90")
    clock = host.folder + ".time"
    day = 0.0

    def go_on(days):
        with open(clock + ".new", "w") as f:
            f.write("+%dd" % round(days))
        os.replace(clock + ".new", clock)
    go_on(0)
    environment = faked(clock)
    if not environment:
        return
    host.ok("coord init -no-acl -data-dir %s -bind 10.0.0.90" % DATA, environment=environment)
    host.start(environment=environment)
    until("it answers", lambda: host.get("/v1/status/leader"), within=30)
    until("it is closed", lambda: "the cluster is closed" in host.said())
    path, renewals = os.path.join(host.folder, "tls/cert.pem"), 0
    while day < 3 * 365:
        with open(path) as f:
            before = f.read()
        day += 5
        go_on(day)
        host.agent.send_signal(signal.SIGHUP)
        try:
            until("a new certificate on day %d" % day, lambda: open(path).read() != before, within=20, every=0.005)
        except Exception:
            print(host.said()[-1500:])
            raise
        renewals += 1
        if renewals % 20 == 1:
            join_line = host.ok("coord join-token").strip()
            check(join_line.startswith("coord1a."), join_line)
    print("     %d renewals" % renewals)
    check(renewals >= 200, "%d" % renewals)
    check(host.get("/v1/kv/none") is None and host.get("/v1/status/leader"), "it serves")
    host.stop()


def a_restored_backup_brings_no_token_back():
    first = NET.host("s1")
    token = first.ok("coord join-token").strip()
    first.ok("coord snapshot save %s/then.snap" % DATA)
    first.ok("coord join-token revoke " + token.split(".")[2])
    first.ok("coord snapshot restore %s/then.snap" % DATA)
    code, _, err = join(NET.host("x2"), token, "10.0.0.1")
    check(code == 1 and "not known" in err, "%d %s" % (code, err))
    check(NET.host("h9").ok("coord certificates").count("valid") >= 4, "the certificates are those of now")


STORIES = [an_open_cluster_is_readable, session, nothing_is_readable, tokens_are_checked, nobody_else_is_let_in, a_removed_node_is_cut_off, the_leader_dies_while_it_signs,
           a_restored_backup_brings_no_token_back, the_clock_of_a_joiner_is_wrong, three_years_of_renewals,
           no_secret_is_where_it_does_not_belong]

if __name__ == "__main__":
    if os.environ.get("COORD_CLOSED_INSIDE") != "yes":
        if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode:
            skip("no namespaces here")
        os.execvpe("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv],
                   dict(os.environ, COORD_CLOSED_INSIDE="yes"))
    subprocess.run("mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link set lo up", shell=True, check=True)
    NET = Net()
    try:
        run(STORIES)
    finally:
        NET.remove()
