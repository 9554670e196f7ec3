"""Clients that work during chaos, and remember what they were told: when each operation was begun, when it was
answered, and whether it was done, refused (surely not done) or may have been done."""
import base64, http.client, json, random, socket, threading, time
from checkers import Op

now = time.monotonic
KEY_OPS = 80                # a register's history stays short: then the next one is used
KEY_UNKNOWN = 5
TIMEOUT = 4.0


class Refused(Exception):
    """Surely not done."""


class Unknown(Exception):
    """May have been done."""


class Channel:
    """One client's connection to one server."""

    def __init__(self, server):
        self.server, self.connection = server, None

    def call(self, method, path, body=None, timeout=TIMEOUT):
        """(status, headers, body). Refused: never arrived."""
        fresh = self.connection is None
        if fresh:
            self.connection = http.client.HTTPConnection(self.server.ip, 8500, timeout=timeout)
            try:
                self.connection.connect()
            except OSError as e:
                self.connection = None
                raise Refused("connect: %s" % e)
        try:
            if self.connection.sock:
                self.connection.sock.settimeout(timeout)
            self.connection.request(method, path, body=body)
            response = self.connection.getresponse()
            status, headers, answer = response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.close()
            raise Unknown(str(e))
        return status, headers, answer

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


def write(channel, path, body):
    """True or False as answered; else Refused or Unknown."""
    status, _, answer = channel.call("PUT", path, body)
    text = answer.decode("utf-8", "replace").strip()
    if status == 200 and text in ("true", "false"):
        return text == "true"
    if "outcome unknown" in text.lower() or "stopping" in text.lower():
        raise Unknown(text)
    if status in (500, 503) and ("leader" in text.lower() or "disk" in text.lower()):
        raise Refused(text)
    raise Unknown("%d %s" % (status, text))


def read_key(channel, path):
    """The record or None; Refused when there is no answer."""
    try:
        status, headers, answer = channel.call("GET", path)
    except Unknown as e:
        raise Refused(str(e))
    if status == 404:
        return None, headers
    if status != 200:
        raise Refused("%d %r" % (status, answer[:80]))
    return json.loads(answer)[0], headers


class World:
    """What all clients share."""

    def __init__(self, cluster, seed):
        self.cluster, self.seed = cluster, seed
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.counts = {}
        self.histories, self.modify, self.problems = {}, {}, []
        self.keys = ["reg/0", "reg/1"]
        self.key_number = 2
        self.key_state = {k: [0, 0] for k in self.keys}
        self.acknowledged, self.refused = set(), set()
        self.tokens, self.holds, self.lock_faults = [], {}, []
        self.global_index, self.server_index = [], {}
        self.writes_ok = []              # times of acknowledged writes
        self.answers = {}                # what was answered instead, and how often
        self.threads = []

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def answered(self, what):
        with self.lock:
            what = str(what)[:60]
            self.answers[what] = self.answers.get(what, 0) + 1

    def start(self, writers=1):
        for server in self.cluster.servers:
            for k in range(writers):
                self._thread(Register(self, server, k).run)
            self._thread(Appender(self, server).run)
            self._thread(Locker(self, server).run)
            self._thread(Watcher(self, server).run)

    def _thread(self, work):
        def guarded():
            try:
                work()
            except Exception:
                import traceback
                self.problems.append("a client broke:\n" + traceback.format_exc())
        t = threading.Thread(target=guarded, daemon=True)
        self.threads.append(t)
        t.start()

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(60)

    # -- registers ---------------------------------------------------------------------------------------------------------
    def pick(self, rng):
        with self.lock:
            at = rng.randrange(len(self.keys))
            key = self.keys[at]
            ops, unknown = self.key_state[key]
            if ops >= KEY_OPS or unknown >= KEY_UNKNOWN:
                key = self.keys[at] = "reg/%d" % self.key_number
                self.key_number += 1
                self.key_state[key] = [0, 0]
            self.key_state[key][0] += 1
            return key

    def record(self, key, op):
        with self.lock:
            self.histories.setdefault(key, []).append(op)
            if op.outcome == "unknown":
                self.key_state[key][1] += 1

    def saw(self, key, value, index):
        """A value names one write, and so one index."""
        with self.lock:
            if self.modify.setdefault((key, value), index) != index:
                self.problems.append("%s=%s was seen at index %d and at %d" % (key, value, self.modify[(key, value)], index))


class Register:
    """Writes unique values, compares and swaps, reads: all through one server."""

    def __init__(self, world, server, number):
        self.world, self.who = world, "%s.%d" % (server.name, number)
        self.channel = Channel(server)
        self.rng = random.Random("%s register %s" % (world.seed, self.who))
        self.number = 0

    def run(self):
        while not self.world.stopping.is_set():
            key = self.world.pick(self.rng)
            try:
                kind = self.rng.random()
                if kind < 0.45:
                    self.read(key)
                elif kind < 0.75:
                    self.write(key)
                else:
                    self.cas(key)
            except Refused as e:
                self.world.count("refused")
                self.world.answered(e)
                time.sleep(0.05)
            time.sleep(self.rng.random() * 0.02)
        self.channel.close()

    def value(self):
        self.number += 1
        return "%s.%d" % (self.who, self.number)

    def read(self, key):
        begun = now()
        record, _ = read_key(self.channel, "/v1/kv/" + key)
        value = base64.b64decode(record["Value"]).decode() if record else None
        self.world.record(key, Op("read", value, begun, now(), who=self.who))
        self.world.count("reads")
        if record:
            self.world.saw(key, value, record["ModifyIndex"])
        return value, record["ModifyIndex"] if record else 0

    def change(self, kind, key, path, value, expected=None):
        begun = now()
        try:
            done = write(self.channel, path, value)
            outcome = "ok" if done else "no"
            self.world.count(kind)
            self.world.writes_ok.append(now())
        except Unknown as e:
            outcome = "unknown"
            self.world.count("unknown")
            self.world.answered(e)
        self.world.record(key, Op(kind, value, begun, now(), outcome, expected, self.who))

    def write(self, key):
        self.change("write", key, "/v1/kv/" + key, self.value())

    def cas(self, key):
        expected, index = self.read(key)
        if self.rng.random() < 0.5:
            time.sleep(self.rng.random() * 0.01)
        self.change("cas", key, "/v1/kv/%s?cas=%d" % (key, index), self.value(), expected)


class Appender:
    """Writes each key once: nothing else can explain its absence."""

    def __init__(self, world, server):
        self.world, self.server, self.channel = world, server, Channel(server)

    def run(self):
        number = 0
        while not self.world.stopping.is_set():
            key = "set/%s/%d" % (self.server.name, number)
            number += 1
            try:
                if write(self.channel, "/v1/kv/" + key, b"x" * (number % 400)):
                    self.world.acknowledged.add(key)
                    self.world.writes_ok.append(now())
                    self.world.count("appends")
            except Refused as e:
                self.world.refused.add(key)
                self.world.answered(e)
                time.sleep(0.05)
            except Unknown as e:
                self.world.count("unknown")
                self.world.answered(e)
            time.sleep(0.01)
        self.channel.close()


class Locker:
    """Takes one lock, works, gives it back; sometimes its session is destroyed instead."""

    KEY = "lock/a"

    def __init__(self, world, server):
        self.world, self.server, self.channel = world, server, Channel(server)
        self.rng = random.Random("%s locker %s" % (world.seed, server.name))
        self.session = None
        self.left = []                   # sessions given up; they may hold the lock

    def run(self):
        while not self.world.stopping.is_set():
            try:
                self.turn()
            except (Refused, Unknown, KeyError, ValueError):
                if self.session:
                    self.left.append(self.session)
                self.session = None
                time.sleep(0.1)
            time.sleep(0.02 + self.rng.random() * 0.05)
        self.channel.close()

    def create(self):
        body = json.dumps({"LockDelay": "0s", "TTL": "10s", "Name": self.server.name}).encode()
        status, _, answer = self.channel.call("PUT", "/v1/session/create", body)
        if status != 200:
            raise Refused(answer[:80])
        self.session = json.loads(answer)["ID"]

    def destroy(self, session):
        status, _, answer = self.channel.call("PUT", "/v1/session/destroy/" + session)
        if status != 200:
            raise Refused(answer[:80])

    def observe(self):
        record, _ = read_key(self.channel, "/v1/kv/" + self.KEY)
        if record:
            self.world.tokens.append((self.KEY, record.get("Session", ""), record["LockIndex"], record["ModifyIndex"]))
        return record

    def alive(self):
        status, _, answer = self.channel.call("GET", "/v1/session/info/" + self.session)
        return status == 200 and bool(json.loads(answer))

    def still_held(self):
        """The record, if it shows our session. Nobody but us releases it, and nothing of ours is under way: where it does not, the session has ended."""
        record = self.observe()
        if record and record.get("Session") == self.session:
            return record
        if self.alive():
            self.world.lock_faults.append("%s: acquired by %s, which lives, and then it was %r" % (self.KEY, self.session, record))
        return None

    def turn(self):
        while self.left:                 # waiting for them to expire would leave the lock idle for most of the run
            self.destroy(self.left[-1])
            record = self.observe()
            if record and record.get("Session") == self.left[-1]:
                self.world.lock_faults.append("%s: held by %s, which was destroyed" % (self.KEY, self.left[-1]))
            self.left.pop()
        if not self.session:
            self.create()
        if not write(self.channel, "/v1/kv/%s?acquire=%s" % (self.KEY, self.session), self.session.encode()):
            self.observe()
            if not self.alive():
                self.session = None
            return
        acquired = now()
        self.world.count("locks")
        for _ in range(self.rng.randrange(4)):
            time.sleep(self.rng.random() * 0.03)
            self.observe()
        record = self.still_held()
        if record:
            # Ours in a confirmed read begun now or later: it was ours from the acquisition on, if nobody else came between.
            held = now()
            record = self.still_held()
            if record and self.alive():
                self.world.holds.setdefault(self.KEY, []).append((self.session, acquired, held, record["LockIndex"]))
        if self.rng.random() < 0.2:
            self.left.append(self.session)
            self.session = None
        elif not write(self.channel, "/v1/kv/%s?release=%s" % (self.KEY, self.session), b"free") and self.alive():
            self.world.lock_faults.append("%s: %s, which lives and held it, may not release it" % (self.KEY, self.session))


class Watcher:
    """Indexes: stale ones never go back on a server, confirmed ones never go back anywhere."""

    def __init__(self, world, server):
        self.world, self.server, self.channel = world, server, Channel(server)

    def sample(self, path):
        begun = now()
        try:
            status, headers, _ = self.channel.call("GET", path, timeout=8)
        except (Refused, Unknown):
            return None
        if status != 200 or not headers.get("X-Consul-Index"):
            return None
        return begun, now(), int(headers["X-Consul-Index"])

    def run(self):
        while not self.world.stopping.is_set():
            life = self.server.life
            stale = self.sample("/v1/kv/reg/?keys&stale")
            if stale and life == self.server.life:
                self.world.server_index.setdefault((self.server.name, life), []).append(stale)
            fresh = self.sample("/v1/kv/reg/?keys")
            if fresh:
                self.world.global_index.append(fresh)
                self.world.count("index reads")
            time.sleep(0.05)
        self.channel.close()
