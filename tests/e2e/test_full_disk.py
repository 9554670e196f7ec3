"""A disk without a free byte: reads go on, writes are refused, also over restarts; service resumes by itself.

The disk is a tmpfs of 64 MiB in a mount namespace of its own; where that is not allowed, the test is skipped."""
import atexit, os, re, subprocess, sys, tempfile
from coordtest import SLOW, Agent, check, run, until
import full

SIZE = 64 << 20


def enter_namespace():
    """Runs this script again where it may mount."""
    if os.environ.get("COORD_TEST_MOUNTS") == "1":
        return
    os.environ["COORD_TEST_MOUNTS"] = "1"
    for how in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            probe = subprocess.run(how + ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tempfile.gettempdir()], capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if probe.returncode == 0:
            os.execvp(how[0], how + [sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
    print("skipped: no mount namespace to be had")
    sys.exit(77)


class Disk:
    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="coord-disk-")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % SIZE, "tmpfs", self.path], check=True)
        atexit.register(self.release)

    def release(self):
        subprocess.run(["umount", "-l", self.path], capture_output=True)
        os.rmdir(self.path)

    def free(self):
        info = os.statvfs(self.path)
        return info.f_bavail * info.f_frsize

    def fill(self):
        def filled():                    # a server that runs may give something back meanwhile
            full.fill(self.path + "/filler")
            return self.free() == 0
        until("the disk is full", filled)

    def empty(self):
        os.truncate(self.path + "/filler", 0)


def on(disk):
    agent = Agent()
    agent.data = disk.path + "/data"
    return agent


def degraded(agent):
    return re.search(rb"^coord_raft_disk_degraded (\d)$", agent.request("GET", "/v1/agent/metrics?format=prometheus")[2], re.M).group(1)


def wait_refused(agent):
    def refused():
        status, _, body = agent.request("PUT", "/v1/kv/more/%d" % os.getpid(), b"x" * 20000)
        check(status in (200, 503), "a write on a full disk: %d %r" % (status, body))
        return status == 503 and body
    body = until("writes are refused", refused, within=30, every=0)
    check(b"disk full" in body, "the refusal says why: %r" % body)
    until("its metric says so, whoever writes or not", lambda: degraded(agent) == b"1")


def reads_go_on(agent, count):
    for query in ("", "&stale", "&consistent"):
        status, _, items = agent.get("/v1/kv/fill/?keys" + query)
        check(status == 200 and len(items) == count, "reads go on (%s): %d, %s" % (query, status, items and len(items)))
    check(agent.get("/v1/agent/services")[0] == 200, "the agent's own services are read")
    check(agent.get("/v1/health/service/web")[2][0]["Service"]["ID"] == "web", "the catalog is read")


def resumes(agent):
    until("the metric says that the disk is well, before anybody writes", lambda: degraded(agent) == b"0", within=20)
    until("writes are accepted again", lambda: agent.request("PUT", "/v1/kv/again", b"1")[0] == 200, within=10, every=0.05)


def words(agent, since=0):
    """What the log says about the disk, in order."""
    return re.findall(r"disk full: writes are refused|space is back|no more space|has space again", agent.log()[since:])


def started_on_a_full_disk():
    for end in ("kill", "stop"):
        disk = Disk()
        agent = on(disk).start()
        agent.put("/v1/agent/service/register", {"Name": "web", "Check": {"TTL": "1h"}})
        for i in range(300):
            agent.put("/v1/kv/fill/%d" % i, os.urandom(1000).hex())
        disk.fill()
        wait_refused(agent)
        for _ in range(3):
            agent.kill() if end == "kill" else check(agent.stop()[0] == 0, "a clean stop on a full disk")
            disk.fill()
            agent.start()
            reads_go_on(agent, 300)
            wait_refused(agent)
        agent.kill() if end == "kill" else agent.stop()
        disk.fill()
        agent.start()
        disk.empty()
        resumes(agent)
        reads_go_on(agent, 300)
        agent.stop()
        agent.start()
        reads_go_on(agent, 300)


def said_once():
    """Writes of all sizes against a disk that stays full, then has space, then is full again: two changes, two lines."""
    disk = Disk()
    agent = on(disk).start()
    agent.put("/v1/kv/small", b"1")
    for round_ in range(2):
        begun = len(agent.log())
        disk.fill()
        wait_refused(agent)
        for i in range(200):
            status = agent.request("PUT", "/v1/kv/sizes/%d" % i, b"x" * [10, 400000, 3000, 50][i % 4])[0]
            check(status in (200, 503), "status %d" % status)
        disk.empty()
        resumes(agent)
        said = words(agent, begun)
        check(said.count("disk full: writes are refused") == 1 and said.count("space is back") == 1, "once per change: %s" % said)
        check(said.count("no more space") <= 1 and said.count("has space again") <= 1, "the store too: %s" % said)


def untrusted_store_is_rebuilt_in_its_own_space():
    """Not to be trusted, and nowhere else to put it: the old file makes room for the new one."""
    disk = Disk()
    agent = on(disk).start()
    agent.put("/v1/agent/service/register", {"Name": "web", "Check": {"TTL": "1h"}})
    for i in range(300):
        agent.put("/v1/kv/fill/%d" % i, os.urandom(1000).hex())
    agent.kill()
    with open(agent.data + "/store/marker", "r+b") as f:
        f.write(b"another boot")
    disk.fill()
    agent.start()
    reads_go_on(agent, 300)


if __name__ == "__main__":
    enter_namespace()
    run([started_on_a_full_disk, said_once, untrusted_store_is_rebuilt_in_its_own_space])
