"""Consul's `encrypt`: a shared key keeps others out and hides what is said; `coord keyring` changes it while the cluster works."""
import base64, json, os, shutil, socket, stat, subprocess, threading
from coordtest import COORD, SLOW, STANDSTILL, Agent, Cluster, check, configuration, free_address, run, until

CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")
DENIED = "no encrypted connection"


def new_key():
    key = subprocess.run([COORD, "keygen"], capture_output=True, text=True, check=True).stdout.strip()
    check(len(base64.b64decode(key, validate=True)) == 32, key)
    return key


def lines(agent, *words):
    return [line for line in agent.log().splitlines() if all(word in line for word in words)]


def kept(agent):
    """The keys in its data folder."""
    path = os.path.join(agent.data, "keyring.json")
    check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "the mode of %s" % path)
    with open(path) as f:
        return json.load(f)


class Writer:
    """Writes key after key at one agent, and counts those that were not taken."""

    def __init__(self, agent):
        self.agent, self.done, self.failed, self.on = agent, 0, [], True
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while self.on:
            try:
                status, _, body = self.agent.request("PUT", "/v1/kv/load-%s" % self.agent.name, b"%d" % self.done)
                if status != 200 or body.strip() != b"true":
                    self.failed.append((status, body))
            except OSError as e:
                self.failed.append(repr(e))
            self.done += 1

    def wrote(self, more):
        goal = self.done + more
        until("%d more writes at %s" % (more, self.agent.name), lambda: self.done >= goal, 30)

    def stop(self):
        self.on = False
        self.thread.join()
        check(not self.failed, "writes failed at %s: %r" % (self.agent.name, self.failed[:5]))


class Proxy:
    """Carries what comes to IP:8300 on to a server, and keeps a copy."""

    def __init__(self, ip, target):
        self.target, self.seen, self.lock = target, bytearray(), threading.Lock()
        self.listener = socket.create_server((ip, 8300))
        threading.Thread(target=self.take, daemon=True).start()

    def take(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((self.target, 8300))
            except OSError:
                near.close()
                continue
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, a, b):
        try:
            while True:
                block = a.recv(65536)
                if not block:
                    break
                with self.lock:
                    self.seen += block
                b.sendall(block)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def saw(self, text):
        with self.lock:
            return text in self.seen


def others_are_kept_out():
    """A wrong key and none: each is refused, in one line on both sides; then the right one lets it in."""
    key = new_key()
    cluster = Cluster(3, "-encrypt=" + key).start()
    agent = cluster.agent("a1", "-encrypt=" + key).start()
    agent.put("/v1/kv/x", b"1")
    check("protected by TLS: servers and agents among themselves (by the key of encrypt)" in agent.log(), agent.log())
    wrong = cluster.agent("wrong", "-encrypt=" + new_key()).start(wait=False)
    plain = cluster.agent("plain").start(wait=False)
    for server in cluster.servers:
        until("%s refuses the wrong key" % server.name, lambda: lines(server, DENIED, wrong.ip, "its shared key (encrypt) is none of this side's"))
        until("%s refuses plain connections" % server.name, lambda: lines(server, DENIED, plain.ip, "it does not encrypt"))
    until("it knows why", lambda: lines(wrong, DENIED, "it does not have the shared key (encrypt) of this side"))
    until("it knows why", lambda: lines(plain, "is refused by", "give this host its key (encrypt)"))
    check(not lines(wrong, "connected server") and not lines(plain, "connected server"), wrong.log() + plain.log())
    until("it says that no server is reached", lambda: lines(wrong, "no server can be reached", "shared key (encrypt)"))
    servers = [(s, lines(s, DENIED, wrong.ip)) for s in cluster.servers]
    check(all(len(said) == 1 for _, said in servers), "%r" % [said for _, said in servers])
    plain.stop()
    plain.args.append("-encrypt=" + key)
    plain.start()
    plain.put("/v1/kv/y", b"2")
    encrypted_one = cluster.agent("mistake", "-encrypt=c2VjcmV0").argv()
    r = subprocess.run(encrypted_one, capture_output=True, text=True, timeout=20 * SLOW + STANDSTILL)
    check(r.returncode == 2 and "encrypt: is no key of 16, 24 or 32 bytes in base64" in r.stderr and "c2VjcmV0" not in r.stderr, r.stderr)


def an_encrypted_host_does_not_join_an_open_cluster():
    """It makes no plain connections, and is told so."""
    cluster = Cluster(1).start()
    closed = cluster.agent("closed", "-encrypt=" + new_key()).start(wait=False)
    until("it says why", lambda: lines(closed, DENIED))
    check(not lines(closed, "connected server"), closed.log())


def a_rotation_under_load():
    """Install, use, remove: no write fails, no connection ends, and no key is anywhere but in the keyrings."""
    first, second = new_key(), new_key()
    cluster = Cluster(3, "-encrypt=" + first).start()
    agent = cluster.agent("a1", "-encrypt=" + first).start()
    leader, everyone = cluster.leader(), cluster.servers + [agent]
    until("all are members", lambda: len(agent.get("/v1/agent/members")[2]) == 4)
    writers = [Writer(agent), Writer(leader), Writer(cluster.followers()[0])]
    for writer in writers:
        writer.wrote(20)

    def listed():
        status, _, rings = agent.get("/v1/operator/keyring")
        check(status == 200 and len(rings) == 1, "%r" % rings)
        ring = rings[0]
        check(ring["WAN"] is False and ring["Datacenter"] == "dc1" and ring["Segment"] == "" and ring["NumNodes"] == 4, "%r" % ring)
        return ring["Keys"], ring["PrimaryKeys"]

    check(listed() == ({first: 4}, {first: 4}), "%r" % (listed(),))
    ended = lambda one: len(lines(one, "connection lost")) + len(lines(one, "a connection ends"))
    before = {one.name: ended(one) for one in everyone}      # servers that dial each other at one moment end one of the two connections
    said = agent.coord("keyring", "-use", second, code=1)
    check("4/4 nodes reported failure" in said and "s1: the key is not in the keyring" in said, said)
    said = agent.coord("keyring", "-install", second)
    check(said == "==> Installing new gossip encryption key...\n", said)
    check(listed() == ({first: 4, second: 4}, {first: 4}), "%r" % (listed(),))
    agent.coord("keyring", "-install", second)                                      # twice is once
    late = cluster.agent("late", "-encrypt=" + second).start()                      # a host that has only the new key
    late.put("/v1/kv/late", b"x")
    check(late.stop(within=20)[0] == 0, "it leaves")
    until("it has left", lambda: listed()[0] == {first: 4, second: 4})
    said = agent.coord("keyring", "-remove", first, code=1)
    check("the key is the primary one" in said, said)
    for writer in writers:
        writer.wrote(20)
    said = cluster.servers[1].coord("keyring", "-use", second)
    check(said == "==> Changing primary gossip encryption key...\n", said)
    check(listed() == ({first: 4, second: 4}, {second: 4}), "%r" % (listed(),))
    said = agent.coord("keyring", "-remove", first)
    check(said == "==> Removing gossip encryption key...\n", said)
    check(listed() == ({second: 4}, {second: 4}), "%r" % (listed(),))
    said = agent.coord("keyring", "-list")
    check(said == "==> Gathering installed encryption keys...\n\ndc1 (LAN):\n  %s [4/4]\n" % second, said)
    for writer in writers:
        writer.wrote(20)
        writer.stop()
    for one in everyone:
        check(ended(one) == before[one.name], one.log())
        check(kept(one) == [second], "%r" % kept(one))
    if CONSUL:
        r = subprocess.run([CONSUL, "keyring", "-list"], capture_output=True, text=True, env=dict(os.environ, CONSUL_HTTP_ADDR="%s:8500" % agent.ip))
        check(r.returncode == 0 and "dc1 (LAN):" in r.stdout and "%s [4/4]" % second in r.stdout, r.stdout + r.stderr)
        third = new_key()
        for action, key in (("-install", third), ("-use", third), ("-remove", second)):
            r = subprocess.run([CONSUL, "keyring", action, key], capture_output=True, text=True, env=dict(os.environ, CONSUL_HTTP_ADDR="%s:8500" % agent.ip))
            check(r.returncode == 0, "consul keyring %s: %s" % (action, r.stdout + r.stderr))
        check(listed() == ({third: 4}, {third: 4}), "%r" % (listed(),))
        second = third
    # The keyring wins over `encrypt`, which still names the first key: the whole cluster comes back.
    backup = os.path.join(leader.dir, "backup")
    leader.coord("snapshot", "save", backup)
    for one in everyone:
        one.kill()
    for one in everyone:
        one.start(wait=False)
    for one in everyone:
        one.wait_leader(30)
        check(lines(one, "the keys are those of the file, and encrypt is not looked at"), one.log())
    agent.put("/v1/kv/after", b"x")
    nowhere(everyone, [backup], [first, second])


def nowhere(agents, files, keys):
    """No key, in base64 or as it is, is in a log, the data folders or a backup, but for keyring.json."""
    needles = [k.encode() for k in keys] + [base64.b64decode(k) for k in keys]
    found = 0
    for folder in {a.dir for a in agents}:
        for path, _, names in os.walk(folder):
            files = files + [os.path.join(path, name) for name in names]
    for name in files:
        with open(name, "rb") as f:
            content = f.read()
        has = any(needle in content for needle in needles)
        if os.path.basename(name) == "keyring.json":
            found += has
        else:
            check(not has, "a key is in " + name)
    check(found == len(agents), "%d keyrings" % found)


def a_change_names_those_who_did_not_do_it():
    """One host has a keyring that cannot be written: it is named, and the change is done when it is asked for again."""
    key, more = new_key(), new_key()
    cluster = Cluster(1, "-encrypt=" + key).start()
    agent = cluster.agent("a1", "-encrypt=" + key).start()
    until("both are members", lambda: len(agent.get("/v1/agent/members")[2]) == 2)
    blocked = os.path.join(agent.data, "keyring.json.new")
    os.mkdir(blocked)                                                               # in the way of the file to be written
    said = agent.coord("keyring", "-install", more, code=1)
    check("1/2 nodes reported failure" in said and "a1: " in said and "s1: " not in said, said)
    check(kept(agent) == [key] and kept(cluster.servers[0]) == [key, more], "%r" % kept(agent))
    os.rmdir(blocked)
    agent.coord("keyring", "-install", more)
    check(kept(agent) == [key, more], "%r" % kept(agent))
    r = subprocess.run([COORD, "keyring", "-list", "-install=x"], capture_output=True, text=True)
    check(r.returncode == 2 and "Only a single action is allowed" in r.stderr, r.stderr)
    status, _, body = agent.request("POST", "/v1/operator/keyring", {"Key": "c2VjcmV0"})
    check(status == 400 and b"16, 24 or 32 bytes" in body, "%d %r" % (status, body))


def a_key_is_introduced_step_by_step():
    """Consul's way: first nobody demands it, then all use it, then all demand it. Meanwhile no key goes over the wire."""
    key = new_key()
    cluster = Cluster(3).start()
    cluster.servers[0].put("/v1/kv/x", b"0")

    def again(agent, *flags):
        agent.stop(within=20)
        agent.args = [a for a in agent.args if "encrypt" not in a and a not in agent.steps] if hasattr(agent, "steps") else agent.args
        agent.steps = list(flags)
        agent.args += flags
        agent.start(wait=False)
        agent.wait_leader(30)

    def verify(incoming, outgoing):
        return configuration(encrypt_verify_incoming=incoming, encrypt_verify_outgoing=outgoing)

    old = cluster.agent("old").start()
    for flags in (("-encrypt=" + key, verify(False, False)), ("-encrypt=" + key, verify(False, True))):
        for server in cluster.servers:
            again(server, *flags)
        cluster.servers[0].put("/v1/kv/x", flags[1].encode())
        old.put("/v1/kv/old", b"taken, because plain connections are")
        said = cluster.servers[0].coord("keyring", "-install", new_key(), code=1)
        check("plain connections, over which keys must not go" in said and "the key was sent to nobody" in said, said)
    for server in cluster.servers:
        again(server, "-encrypt=" + key)
    until("a plain agent is refused now", lambda: lines(old, "is refused by", "give this host its key (encrypt)"), 30)
    again(old, "-encrypt=" + key)
    old.put("/v1/kv/old", b"by key")
    until("all are members", lambda: len(old.get("/v1/agent/members")[2]) == 4)
    until("keys are listed now", lambda: old.request("GET", "/v1/operator/keyring")[0] == 200)


def nobody_between_reads_along():
    """A proxy carries everything that a server and an agent say: of a key that was written it sees no byte, and without `encrypt` it does."""
    for flags in (["-encrypt=" + new_key()], []):
        place = free_address()
        server = Agent("-advertise=" + place, *flags, name="s1").start()
        proxy = Proxy(place, server.ip)
        agent = Agent("-retry-join=" + place, *flags, server=False, name="a1").start()
        value = b"what-nobody-else-may-read-" * 20
        agent.put("/v1/kv/a-key-with-a-name", value)
        check(agent.request("GET", "/v1/kv/a-key-with-a-name?raw")[2] == value, "read back")
        seen = [proxy.saw(value[:26]), proxy.saw(b"a-key-with-a-name"), proxy.saw(b"dc1")]
        check(len(proxy.seen) > len(value), "the proxy carries it")
        check(seen == ([False] * 3 if flags else [True] * 3), "%r: %r" % (flags, seen))
        agent.stop(within=20)


def regions_share_the_key():
    """A link to another region is encrypted by the same key; a region with another key is not reached."""
    key = new_key()
    first = Cluster(1, "-encrypt=" + key).start().servers[0]
    for name, its, reached in (("dc2", key, True), ("dc3", new_key(), False)):
        other = Cluster(1, "-encrypt=" + its, "-datacenter=" + name, "-retry-join-wan=" + first.ip).servers[0]
        other.start()
        if reached:
            until("dc2 is known", lambda: "dc2" in first.get("/v1/catalog/datacenters")[2])
            first.put("/v1/kv/far?dc=dc2", b"1")
            check(other.request("GET", "/v1/kv/far?raw")[2] == b"1", "written over the link")
        else:
            until("it is refused", lambda: lines(first, DENIED, "its shared key (encrypt) is none of this side's"))
            check(other.get("/v1/catalog/datacenters")[2] == [name], "it is alone")


def no_keyring_no_file():
    """An open cluster has no keyring; with disable_keyring_file none is kept, and `encrypt` counts at each start."""
    open_one = Cluster(1).start().servers[0]
    said = open_one.coord("keyring", "-list", code=1)
    check("there is no keyring: encrypt is not given" in said, said)
    said = open_one.coord("keyring", "-install", new_key(), code=1)
    check("the key was sent to nobody" in said, said)
    key, more = new_key(), new_key()
    agent = Cluster(1, "-encrypt=" + key, "-disable-keyring-file").start().servers[0]
    said = agent.coord("secure", "start", code=1)
    check("encrypt, or a CA of yours, protects connections, and this would cut them" in said, said)
    agent.coord("keyring", "-install", more)
    agent.coord("keyring", "-use", more)
    check(not os.path.exists(os.path.join(agent.data, "keyring.json")), "no file")
    agent.stop(within=20)
    agent.start()
    check(agent.get("/v1/operator/keyring")[2][0]["Keys"] == {key: 1}, "only that of encrypt")


def a_certificate_of_the_cluster_wins():
    agent = Agent("-encrypt=" + new_key(), server=False, name="n1")
    r = subprocess.run([COORD, "init", "-data-dir=" + agent.data, "-bind=" + agent.ip, "-node=n1"], capture_output=True, text=True)
    check(r.returncode == 0, r.stdout + r.stderr)
    agent.start(wait=False)
    until("it ends", lambda: agent.proc.poll() is not None)
    check(agent.proc.returncode != 0 and len(lines(agent, "[ERR", "encrypt: this node has a certificate of its cluster")) == 1, agent.log())


def a_keyring_that_others_may_read_is_refused():
    agent = Cluster(1, "-encrypt=" + new_key()).start().servers[0]
    agent.stop(within=20)
    path = os.path.join(agent.data, "keyring.json")
    os.chmod(path, 0o644)
    agent.start(wait=False)
    until("it ends", lambda: agent.proc.poll() is not None)
    check(lines(agent, "keyring.json", "chmod 600"), agent.log())


if __name__ == "__main__":
    run([others_are_kept_out, an_encrypted_host_does_not_join_an_open_cluster, a_rotation_under_load, a_change_names_those_who_did_not_do_it,
         a_key_is_introduced_step_by_step, nobody_between_reads_along, regions_share_the_key, no_keyring_no_file, a_certificate_of_the_cluster_wins,
         a_keyring_that_others_may_read_is_refused])
