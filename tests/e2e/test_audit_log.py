"""The audit log of an agent with access control: what it records, ids of requests, rotation, disks and readers that fail. No secret is in it."""
import atexit, glob, http.client, json, os, re, shutil, signal, socket, stat, subprocess, tempfile, threading, time, uuid
from coordtest import COORD, Agent, check, configuration, free_address, run, settings, until
import test_acl

MASTER = test_acl.MASTER
SECRETS = [MASTER]


def folder():
    path = tempfile.mkdtemp(prefix="coord-e2e-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def with_audit(place, *args, **keys):
    """A server that records."""
    audit = dict({"enabled": True}, **keys)
    audit.setdefault("file", place + "/audit.json")
    if "socket" in keys:
        del audit["file"]
    return test_acl.Secured(test_acl.acl(tokens={"initial_management": MASTER}), configuration(audit=audit), *args, token=MASTER)


def texts(place):
    """All files, the older ones first."""
    parts = []
    for path in sorted(glob.glob(place + "/audit-*.json")) + [place + "/audit.json"]:
        try:
            with open(path) as f:
                parts.append(f.read())
        except FileNotFoundError:
            pass
    return "".join(parts)


def lines(place):
    return [json.loads(line) for line in texts(place).splitlines()]


def line_of(place, **wanted):
    """The only line with these members, once it is there."""
    def found():
        return [l for l in lines(place) if all(l.get(k) == v for k, v in wanted.items())]
    until("a line with %r" % wanted, found)
    check(len(found()) == 1, "%r: %r" % (wanted, found()))
    return found()[0]


def token(agent, rules, description):
    agent.do("PUT", "/v1/acl/policy", {"Name": description, "Rules": rules})
    made = agent.do("PUT", "/v1/acl/token", {"Description": description, "Policies": [{"Name": description}]})
    SECRETS.append(made["SecretID"])
    return made


def by(agent, method, path, secret, id=None, body=None):
    headers = {"X-Request-Id": id} if id else {}
    if secret:
        headers["X-Consul-Token"] = secret
    status, headers, text = agent.request(method, path, body, headers=headers)
    return status, headers, text.decode()


def requests(agent, place, web):
    """Who did what, from where, with which outcome."""
    by(agent, "PUT", "/v1/kv/web/a%20%22b?flags=1&token=" + web["SecretID"], None, "write-1", "1")
    l = line_of(place, request_id="write-1")
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", l["time"]), "%r" % l)
    check(abs(time.time() - time.mktime(time.strptime(l["time"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone) < 300, "%r" % l)
    check((l["kind"], l["accessor"], l["token"], l["slot"], l["method"], l["status"]) == ("write", web["AccessorID"], "web", "request", "PUT", 200), "%r" % l)
    check(l["path"] == "/v1/kv/web/a%20%22b?flags=1&token=<hidden>" and l["address"].startswith(agent.ip.rsplit(".", 1)[0][:4]), "%r" % l)
    index = agent.do("GET", "/v1/kv/web/a%20%22b")[0]["ModifyIndex"]
    check(l["index"] == index, "%r, the key has %d" % (l, index))

    # a denied write and a denied read: the id is in the answer, its header and the log
    for id, method, path, lacks in (("no-1", "PUT", "/v1/kv/other", 'key:write on "other"'), (None, "GET", "/v1/kv/other", 'key:read on "other"')):
        status, headers, text = by(agent, method, path, web["SecretID"], id)
        named = headers["X-Request-Id"]
        check(status == 403 and lacks in text and text.endswith("(request %s)" % named) and (not id or id == named), "%d %r" % (status, text))
        check(id or re.fullmatch("[0-9a-f]{16}", named), named)
        l = line_of(place, request_id=named)
        check((l["kind"], l["status"], l["accessor"], l["denied"]) == ("denial", 403, web["AccessorID"], text.rsplit(" (request", 1)[0]), "%r" % l)
        check("index" not in l, "%r" % l)
    status, headers, text = by(agent, "PUT", "/v1/kv/x", None)
    check(status == 403 and line_of(place, request_id=headers["X-Request-Id"])["slot"] == "anonymous", "%d %r" % (status, text))
    wrong = str(uuid.uuid4())
    SECRETS.append(wrong)
    status, headers, text = by(agent, "GET", "/v1/catalog/nodes", wrong)
    check((status, text) == (403, "ACL not found") and line_of(place, request_id=headers["X-Request-Id"])["denied"] == text, "%d %r" % (status, text))
    # an id that is none, or that holds the secret, is replaced
    for id in ("a b", "x" * 65, "a;b", web["SecretID"]):
        named = by(agent, "PUT", "/v1/kv/other", web["SecretID"], id)[1]["X-Request-Id"]
        check(re.fullmatch("[0-9a-f]{16}", named), "%r: %r" % (id, named))
        line_of(place, request_id=named)
    # reads are not recorded
    by(agent, "GET", "/v1/kv/web/?keys", web["SecretID"], "read-1")
    by(agent, "DELETE", "/v1/kv/web/", web["SecretID"], "write-2")
    line_of(place, request_id="write-2")
    check(not [l for l in lines(place) if l["request_id"] == "read-1"], "a read")


def logins(agent, place):
    agent.do("PUT", "/v1/acl/auth-method", {"Name": "jwt", "Type": "jwt", "Config": {"BoundIssuer": "me", "JWTValidationPubKeys": [test_acl.PUBLIC],
                                                                                    "ClaimMappings": {"sub": "name"}}})
    agent.do("PUT", "/v1/acl/binding-rule", {"AuthMethod": "jwt", "BindType": "service", "BindName": "web"})
    now = int(time.time())
    shown = test_acl.web_token(iss="me", sub="web", iat=now, exp=now + 600)
    SECRETS.append(shown)
    status, _, text = by(agent, "POST", "/v1/acl/login", None, "in", json.dumps({"AuthMethod": "jwt", "BearerToken": shown}))
    check(status == 200, text)
    made = json.loads(text)
    SECRETS.append(made["SecretID"])
    l = line_of(place, request_id="in")
    check((l["kind"], l["slot"], l["subject"], l["status"]) == ("login", "anonymous", made["AccessorID"], 200) and l["index"] == made["ModifyIndex"], "%r" % l)
    check(by(agent, "POST", "/v1/acl/logout", made["SecretID"], "out")[0] == 200, "logout")
    l = line_of(place, request_id="out")
    check((l["kind"], l["accessor"], l["status"]) == ("logout", made["AccessorID"], 200), "%r" % l)
    status, headers, text = by(agent, "POST", "/v1/acl/login", None, "in-2", json.dumps({"AuthMethod": "jwt", "BearerToken": shown[:-8] + "AAAAAAAA"}))
    check(status == 403 and line_of(place, request_id="in-2")["kind"] == "denial", text)


def clients_that_leave(agent, place):
    """A write whose client is gone before the answer is recorded like any other."""
    count = 40
    for i in range(count):
        with socket.create_connection((agent.ip, 8500), timeout=30) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")     # a reset
            s.sendall(("PUT /v1/kv/gone/%d HTTP/1.1\r\nHost: x\r\nX-Consul-Token: %s\r\nX-Request-Id: gone-%d\r\nContent-Length: 1\r\n\r\nx" %
                       (i, MASTER, i)).encode())
            time.sleep(i * 0.0001)                                                  # the sooner, the less of it was seen
    agent.do("PUT", "/v1/kv/gone/last", "x")
    def done():
        ids = {l["request_id"]: l for l in lines(place)}
        keys = {k["Key"]: k["ModifyIndex"] for k in agent.do("GET", "/v1/kv/gone/?recurse")}
        keys.pop("gone/last")
        missing = [k for k, index in keys.items() if ids.get("gone-" + k[5:], {}).get("index") != index]
        return not missing and keys
    keys = until("every write has its line", done)
    # one that waits for a lock, whose place in the queue is written: it has no answer
    agent.do("PUT", "/v1/lock/l/acquire?ttl=1m")
    with socket.create_connection((agent.ip, 8500), timeout=30) as s:
        s.sendall(("PUT /v1/lock/l/acquire?ttl=1m&wait=1m HTTP/1.1\r\nHost: x\r\nX-Consul-Token: %s\r\nX-Request-Id: waits\r\n\r\n" % MASTER).encode())
        until("it waits", lambda: len(agent.do("GET", "/v1/lock/l")["Queue"]) == 1)
    l = line_of(place, request_id="waits")
    check((l["status"], l["kind"], l["path"]) == (0, "write", "/v1/lock/l/acquire?ttl=1m&wait=1m") and l["index"] > 0, "%r" % l)
    print("     %d of %d writes were done, %d lines say that the client was gone" %
          (len(keys), count, len([l for l in lines(place) if l["request_id"].startswith("gone-") and l["status"] == 0])))


def no_secret(place):
    text = texts(place)
    for secret in SECRETS:
        check(secret not in text, "%s is in the audit log" % secret)


def what_is_recorded():
    place = folder()
    agent = with_audit(place).start()
    web = token(agent, 'key_prefix "web/" { policy = "write" }', "web")
    check(stat.S_IMODE(os.stat(place + "/audit.json").st_mode) == 0o600, "the file's mode")
    requests(agent, place, web)
    logins(agent, place)
    clients_that_leave(agent, place)
    # the same through a client agent: its server knows whose token it is
    client = test_acl.Secured(test_acl.acl(), configuration(audit={"enabled": True, "file": place + "/client.json", "reads": True}), "-retry-join=" + agent.ip,
                              server=False, name="c1").start(wait=False)
    until("the client agent", lambda: test_accepted(client, web))
    check(by(client, "PUT", "/v1/kv/other", web["SecretID"], "far-1")[0] == 403, "denied")
    by(client, "GET", "/v1/kv/web/z", web["SecretID"], "far-2")
    def far():
        with open(place + "/client.json") as f:
            return {l["request_id"]: l for l in map(json.loads, f.read().splitlines())}
    until("its lines", lambda: {"far-1", "far-2"} <= set(far()))
    for id, kind, status in (("far-1", "denial", 403), ("far-2", "read", 200)):
        l = far()[id]
        check((l["kind"], l["status"], l["accessor"], l["token"]) == (kind, status, web["AccessorID"], "web"), "%r" % l)
    check('key:write on "other"' in far()["far-1"]["denied"], "%r" % far()["far-1"])
    check(client.stop()[0] == 0, "the client agent's end")
    # what waited is written at the end
    for i in range(200):
        by(agent, "PUT", "/v1/kv/web/%d" % i, web["SecretID"], "last-%d" % i)
    check(agent.stop()[0] == 0, "the end")
    check({"last-%d" % i for i in range(200)} <= {l["request_id"] for l in lines(place)}, "the last lines")
    check(len(SECRETS) >= 5, "of the management token, two other tokens, a login and a wrong one")
    no_secret(place)
    with open(place + "/client.json") as f:
        text = f.read()
    check(not any(secret in text for secret in SECRETS), "a secret")


def test_accepted(agent, web):
    try:
        return by(agent, "PUT", "/v1/kv/web/z", web["SecretID"])[0] == 200
    except OSError:
        return False


def files():
    """Rotation by size, and a file that somebody has moved away. Bad places are refused."""
    place = folder()
    agent = with_audit(place, rotate_bytes=4000, rotate_max_files=3).start()
    for i in range(80):
        agent.do("PUT", "/v1/kv/%d" % i, "x")
    until("three older files", lambda: len(glob.glob(place + "/audit-*.json")) == 3)
    for path in glob.glob(place + "/audit*.json"):
        check(stat.S_IMODE(os.stat(path).st_mode) == 0o600 and os.stat(path).st_size < 5000, path)
    until("the last line", lambda: any(l["path"] == "/v1/kv/79" for l in lines(place)))
    numbers = [int(l["path"].rsplit("/", 1)[1]) for l in lines(place) if re.match(r"/v1/kv/\d+$", l["path"])]
    check(numbers == list(range(numbers[0], 80)), "lines in order, none missing: %r" % numbers)
    os.rename(place + "/audit.json", place + "/moved")
    agent.proc.send_signal(signal.SIGHUP)
    until("the new file", lambda: os.path.exists(place + "/audit.json"))
    agent.do("PUT", "/v1/kv/anew", "x")
    until("a line in it", lambda: any(l["path"] == "/v1/kv/anew" for l in lines(place)))
    agent.stop()
    no_secret(place)
    for change, text in ((lambda: os.chmod(place, 0o777), "others may write its folder"), (lambda: (os.chmod(place, 0o755), os.chmod(place + "/audit.json", 0o644)), "others may read or write it"),
                         (lambda: os.rename(place, place + "-"), "No such file")):
        change()
        agent = with_audit(place).start(wait=False)
        check(agent.proc.wait(20) != 0 and text in agent.log(), "%s: %s" % (text, agent.log()))
    os.rename(place + "-", place)
    for keys, text in (({}, "it needs audit.file or audit.socket"), ({"file": "/x/y", "socket": "/x/z"}, "only one may be"), ({"on_failure": "stop", "file": "/x/y"}, "neither continue nor refuse")):
        agent = Agent(configuration(audit=dict({"enabled": True}, **keys))).start(wait=False)
        check(agent.proc.wait(20) != 0 and text in agent.log(), "%s: %s" % (text, agent.log()))


def metric(agent, name):
    text = by(agent, "GET", "/v1/agent/metrics?format=prometheus", MASTER)[2]
    return int(float(re.search(r"^%s (\S+)$" % name, text, re.M).group(1)))


def full_disk_loses():
    """A full disk, on_failure continue: nobody is refused; what is lost is counted, and a line says so later."""
    place = folder()
    os.symlink("/dev/full", place + "/audit.json")
    agent = with_audit(place, buffer_bytes=65536).start()
    sent = 0
    while metric(agent, "coord_audit_log_lost_total") < 100:
        for _ in range(50):
            agent.do("PUT", "/v1/kv/n", "x")
        sent += 50
        check(sent < 5000, "nothing was lost")
    check(metric(agent, "coord_audit_log_failing") == 1, "the metric")
    said = [l for l in agent.log().splitlines() if "the audit log cannot be written: No space left" in l]
    check(len(said) == 1, "one line: %r" % said)
    lost = metric(agent, "coord_audit_log_lost_total")
    os.remove(place + "/audit.json")
    agent.proc.send_signal(signal.SIGHUP)
    l = line_of(place, kind="missing")
    check(l["lost"] == lost and l["refused"] == 0, "%r, the metric says %d" % (l, lost))
    agent.do("PUT", "/v1/kv/after", "x")
    line_of(place, path="/v1/kv/after")
    recorded = len([l for l in lines(place) if l.get("path") == "/v1/kv/n"])
    check(recorded + lost >= sent, "%d recorded, %d lost of %d" % (recorded, lost, sent))
    check(metric(agent, "coord_audit_log_failing") == 0, "the metric")
    agent.stop()


def full_disk_refuses():
    """The same with on_failure refuse: nothing that would be recorded is carried out; reads go on."""
    place = folder()
    agent = with_audit(place, on_failure="refuse").start()
    agent.do("PUT", "/v1/kv/a", "before")
    line_of(place, path="/v1/kv/a")  # it is in the first file, whatever comes
    os.rename(place + "/audit.json", place + "/full")
    os.symlink("/dev/full", place + "/audit.json")
    agent.proc.send_signal(signal.SIGHUP)
    carried_out = []

    def refused():
        status, headers, text = by(agent, "PUT", "/v1/kv/a", MASTER, body=str(len(carried_out)))
        check(status in (200, 503), "%d %r" % (status, text))
        if status == 200:
            carried_out.append(status)
        return status == 503 and text
    text = until("writes are refused", refused, within=20)
    check("the audit log cannot record" in text, text)
    value = by(agent, "GET", "/v1/kv/a?raw", MASTER)
    check(value[0] == 200 and value[2] == (str(len(carried_out) - 1) if carried_out else "before"), "reads go on: %r after %d" % (value, len(carried_out)))
    status, headers, text = by(agent, "GET", "/v1/catalog/nodes", str(uuid.uuid4()))
    check(status == 503, "a denial cannot be recorded either: %d %r" % (status, text))
    index = agent.do("GET", "/v1/kv/a")[0]["ModifyIndex"]
    for _ in range(20):
        check(by(agent, "PUT", "/v1/kv/a", MASTER, body="never")[0] == 503 and by(agent, "POST", "/v1/acl/login", None, body="{}")[0] == 503, "still refused")
    check(agent.do("GET", "/v1/kv/a")[0]["ModifyIndex"] == index, "refused means not carried out")
    os.remove(place + "/audit.json")
    agent.proc.send_signal(signal.SIGHUP)
    until("writes go on", lambda: by(agent, "PUT", "/v1/kv/a", MASTER, "again", "x")[0] == 200, within=20)
    l = line_of(place, kind="missing")
    check(l["lost"] == 0 and l["refused"] >= 41, "%r" % l)
    line_of(place, request_id="again")
    done = len([l for l in lines(place) if l.get("path") == "/v1/kv/a" and l["status"] == 200])
    check(done == len(carried_out) + 1, "%d lines of %d writes" % (done, len(carried_out) + 1))
    agent.stop()


class Reader:
    """A program that takes the lines, or does not."""

    def __init__(self, path, kind):
        self.socket = socket.socket(socket.AF_UNIX, kind)
        self.socket.bind(path)
        self.stream = kind == socket.SOCK_STREAM
        if self.stream:
            self.socket.listen()
        self.taken = b""

    def read(self):
        if self.stream:
            with self.socket.accept()[0] as connection:
                while True:
                    block = connection.recv(65536)
                    if not block:
                        return
                    self.taken += block
        while True:
            self.taken += self.socket.recv(65536) + b"\n"

    def begin(self):
        threading.Thread(target=self.read, daemon=True).start()

    def paths(self):
        return [json.loads(l)["path"] for l in self.taken.split(b"\n")[:-1]]


def timed(agent, count):
    """The slowest of so many writes over one connection, in seconds."""
    worst = 0
    connection = http.client.HTTPConnection(agent.ip, 8500, timeout=30)
    for i in range(count):
        begun = time.monotonic()
        connection.request("PUT", "/v1/kv/timed", body="x", headers={"X-Consul-Token": MASTER})
        check(connection.getresponse().read() == b"true", "a write")
        worst = max(worst, time.monotonic() - begun)
    connection.close()
    return worst


def sockets():
    """A stream, and datagrams; a reader that stalls, goes away and comes back."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        place = folder()
        reader = Reader(place + "/s", kind)
        agent = with_audit(place, socket=place + "/s", buffer_bytes=65536).start()
        quick = timed(agent, 100)
        # nobody reads: the kernel's buffer fills, then ours, then lines are lost; requests stay as fast
        sent, slow = 100, 0
        while metric(agent, "coord_audit_log_lost_total") == 0:
            slow = max(slow, timed(agent, 200))
            sent += 200
            check(sent < 20000, "nothing was lost")
        slow = max(slow, timed(agent, 100))
        check(slow < max(10 * quick, 2), "%.3f s while the reader stalls, %.3f s before" % (slow, quick))
        reader.begin()
        lost = until("it tells what is lost", lambda: b'"kind":"missing"' in reader.taken)
        agent.do("PUT", "/v1/kv/last", "x")
        until("the last line", lambda: b"/v1/kv/last" in reader.taken)
        check(reader.taken.count(b"/v1/kv/timed") < sent + 100, "some are lost")
        check(all(json.loads(l) for l in reader.taken.splitlines()), "whole lines")
        # another reader takes its place
        os.remove(place + "/s")
        if kind == socket.SOCK_STREAM:
            reader.socket.shutdown(socket.SHUT_RDWR)
        agent.stop()
        check(not any(secret.encode() in reader.taken for secret in SECRETS), "a secret")


def reader_comes_later():
    """No reader at the start: refused until it is there; when it goes away, lines are kept until the next one comes."""
    place = folder()
    agent = with_audit(place, socket=place + "/s", on_failure="refuse").start()
    check(by(agent, "PUT", "/v1/kv/a", MASTER)[0] == 503, "nobody listens")
    reader = Reader(place + "/s", socket.SOCK_STREAM)
    reader.begin()
    until("writes go on", lambda: by(agent, "PUT", "/v1/kv/a", MASTER)[0] == 200)
    until("its line", lambda: b"/v1/kv/a" in reader.taken)
    agent.stop()


if __name__ == "__main__":
    run([what_is_recorded, files, full_disk_loses, full_disk_refuses, sockets, reader_comes_later])
