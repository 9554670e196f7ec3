"""A client of /v1/watch that keeps all that it was told, and what tests of streams say again and again."""
import base64, http.client, json, os, re, socket, threading, time
from coordtest import HERE, SLOW, check, until


class Follower(threading.Thread):
    """Follows at one of `agents`; when that ends, goes on at the next with the id that it has."""

    def __init__(self, agents, question, cut_after=None, pause=0):
        super().__init__(daemon=True)
        self.agents, self.question = list(agents), question
        self.events = []                 # (event, id, data)
        self.last = None                 # id
        self.progress = 0                # of comments
        self.statuses, self.ended = [], 0
        self.cut_after = cut_after       # hangs up after so many events, again and again
        self.pause = pause               # seconds, after each event
        self.over = False
        self.connection = None
        self.start()
        until("the stream begins", lambda: self.progress)

    def run(self):
        turn = 0
        while not self.over:
            try:
                self.stream(self.agents[turn % len(self.agents)])
                self.ended += 1
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass
            turn += 1
            time.sleep(0.02)

    def stream(self, agent):
        self.connection = http.client.HTTPConnection(agent.ip, 8500, timeout=30 * SLOW)
        headers = {"Last-Event-ID": self.last} if self.last else {}
        self.connection.request("GET", "/v1/watch?" + self.question, headers=headers)
        answer = self.connection.getresponse()
        self.statuses.append(answer.status)
        if answer.status != 200:
            return
        here = 0
        fields = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "" and value.startswith("index "):
                self.progress = int(value[6:].partition(".")[0])
                self.last = self.last or value[6:]
            elif name:
                fields[name] = value
            elif fields:
                self.last = fields["id"]
                self.events.append((fields["event"], fields["id"], json.loads(fields["data"])))
                fields = {}
                here += 1
                time.sleep(self.pause)
                if self.over or here == self.cut_after:
                    self.connection.close()
                    return

    def stop(self):
        self.over = True
        try:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass
        self.join(30 * SLOW)

    def values(self, key):
        return [d.get("Value") for e, _, d in self.events if e == "kv" and d["Key"] == key]


def order(position):
    """Ids as what sorts like the log: an index alone is the last of its index."""
    parts = [int(p) for p in position.split(".")]
    return (parts[0], 0, parts[1], parts[2]) if len(parts) == 3 else (parts[0], 1, 0, 0)


def in_order(events):
    positions = [order(p) for _, p, _ in events]
    check(all(a < b for a, b in zip(positions, positions[1:])), "ids do not rise: %r" % [p for _, p, _ in events][-20:])


def numbers(values):
    return [int(base64.b64decode(v)) for v in values]


def once_each(follower, keys, last):
    """Each value from 1 to `last` of each key, once, in order; and nothing of other keys."""
    in_order(follower.events)
    for key in keys:
        seen = numbers(follower.values(key))
        check(seen == list(range(1, last + 1)), "%s: %d values of %d: %r" % (key, len(seen), last, seen[-10:]))
    check({e for e, _, _ in follower.events} == {"kv"}, {e for e, _, _ in follower.events})
    check({d["Key"] for _, _, d in follower.events} == set(keys), "other keys")


def has_all(follower, keys, last):
    return lambda: all(len(follower.values(k)) >= last for k in keys)


class Writer(threading.Thread):
    """Writes 1, 2, 3 ... to its keys, each until it is acknowledged: the same value again would be no change."""

    def __init__(self, agents, keys):
        super().__init__(daemon=True)
        self.agents, self.keys = list(agents), keys
        self.number = 0                  # acknowledged, of all keys
        self.over = False
        self.start()

    def run(self):
        while not self.over:
            for key in self.keys:
                self.write(key, b"%d" % (self.number + 1))
            self.number += 1
            time.sleep(0.002)

    def write(self, key, value):
        for turn in range(100000):
            try:
                status, _, answer = self.agents[turn % len(self.agents)].request("PUT", "/v1/kv/" + key, value, timeout=5 * SLOW)
                if status == 200 and answer.strip() == b"true":
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)

    def stop(self):
        self.over = True
        self.join(60 * SLOW)
        return self.number


def documented(language):
    """The client of docs/streams.md in that language."""
    with open(os.path.join(HERE, "../../docs/streams.md")) as f:
        text = f.read().split("\n## A client in %s\n" % {"sh": "shell", "python": "Python"}[language])[1]
    return re.search(r"```%s\n(.*?)```" % language, text, re.S).group(1)


def stream_socket(agent, question, headers="", receive=None):
    """A connection on which a stream was asked for, and nothing read yet."""
    s = socket.socket()
    if receive:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    s.settimeout(30 * SLOW)
    s.connect((agent.ip, 8500))
    s.sendall(("GET /v1/watch?%s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (question, headers)).encode())
    return s
