"""`coord verify`: says yes to what an agent starts from, no to damage with its place, and never changes a byte."""
import glob, hashlib, os, re, shutil, struct, subprocess
from coordtest import COORD, Agent, Cluster, check, run, until
from test_damage import filled, flip, whole, with_snapshot


def content_of(path, size):
    """The hash of the pages that are not all zeros, with their places. Holes are skipped, since a store that was killed is
    as large as its map; but not counted: of room that was asked for and never written, a page counts as data once it was read."""
    digest, at, zeros = hashlib.sha256(), 0, bytes(4096)
    with open(path, "rb", buffering=0) as f:
        while at < size:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
                end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            except OSError:                                      # only a hole is left
                break
            while at < end:
                page = os.pread(f.fileno(), min(end - at, 4096 - at % 4096), at)
                if page != zeros[:len(page)]:
                    digest.update(b"%d %d " % (at, len(page)) + page)
                at += len(page)
    return digest.hexdigest()


def picture(folder):
    """Every file with its content, size, inode and times."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in files + folders + ["."]:
            path = os.path.join(where, name)
            info = os.stat(path)
            content = content_of(path, info.st_size) if name in files else None
            found[path] = (content, info.st_size, info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_blocks)
    return found


def settle(folder):
    """What the page cache still has to write changes a file's blocks when it does."""
    for where, _, files in os.walk(folder):
        for name in files:
            fd = os.open(os.path.join(where, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def verify(folder, *args):
    settle(folder)
    before = picture(folder) if os.path.isdir(folder) else None
    r = subprocess.run([COORD, "verify", *(args or ["-data-dir=" + folder])], capture_output=True, text=True, timeout=120)
    if before:
        after = picture(folder)
        changed = [(p, before.get(p), after.get(p)) for p in set(before) | set(after) if before.get(p) != after.get(p)]
        check(not changed, "not a byte changes: %s" % changed[:5])
    return r


def yes(agent, *wanted):
    r = verify(agent.data)
    check(r.returncode == 0 and r.stdout.endswith("\nyes\n") and r.stderr == "", "%d %s %s" % (r.returncode, r.stdout, r.stderr))
    for w in wanted:
        check(re.search(w, r.stdout, re.M), "%s in: %s" % (w, r.stdout))
    return r.stdout


def no(agent, *wanted):
    r = verify(agent.data)
    last = r.stdout.strip().splitlines()[-1]
    check(r.returncode == 1 and last.startswith("no: ") and r.stderr == "", "%d %s %s" % (r.returncode, r.stdout, r.stderr))
    for w in wanted:
        check(re.search(w, last), "%s in: %s" % (w, r.stdout))
    return last


class Kept:
    """The folder as it was, to be damaged again and again."""

    def __init__(self, agent):
        self.agent, self.aside = agent, agent.data + ".kept"
        subprocess.run(["cp", "-a", "--sparse=always", agent.data, self.aside], check=True)

    def again(self):
        shutil.rmtree(self.agent.data)
        subprocess.run(["cp", "-a", "--sparse=always", self.aside, self.agent.data], check=True)


def crc32c(data, table=[]):
    if not table:
        for n in range(256):
            for _ in range(8):
                n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
            table.append(n)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def patch(path, offset, new, sum_from, sum_to):
    """Other bytes, and the checksum that fits them."""
    with open(path, "r+b") as f:
        head = bytearray(f.read(sum_to))
        head[offset:offset + len(new)] = new
        f.seek(0)
        f.write(head)
        f.write(struct.pack("<I", crc32c(head[sum_from:])))


# -- yes ---------------------------------------------------------------------------------------------
def what_an_agent_left():
    agent = filled()
    r = subprocess.run([COORD, "verify", "-data-dir", agent.data], capture_output=True, text=True, timeout=120)      # it may touch its own files itself
    check(r.returncode == 1 and "in use by a running agent" in r.stdout, "%s" % r)
    agent.kill()
    yes(agent, r"^log .* entries 1 to \d+", r"^hard state +term 2", r"^store +applied entry", r"^server +[0-9a-f]{16} at .* a voter of 1 member", r"^node +[0-9a-f-]{36}$")
    agent.start()
    agent.stop()
    yes(agent, r"^hard state +term 3")
    agent.start()
    whole(agent)
    agent.stop()


def with_and_without_parts():
    agent, _ = with_snapshot()
    yes(agent, r"^snapshot +snap-[0-9a-f]{16}: entry \d+, term 2, \d+ bytes, whole$")
    kept = Kept(agent)
    # What a power loss leaves heals by itself: a torn record, a next segment that was begun, a store that is not to be trusted.
    segment = sorted(glob.glob(agent.data + "/raft/log-0*"))[-1]
    with open(segment, "r+b") as f:
        end = len(f.read().rstrip(b"\0")) + 511 & ~511
        f.seek(end)
        f.write(b"torn" * 100)
    open(agent.data + "/raft/log-spare", "wb").write(b"\0" * 4096)
    open(agent.data + "/raft/log-00000000ffffffff", "wb").close()
    no(agent, "damaged at offset %d" % end, "segment log-00000000ffffffff follows")
    os.remove(agent.data + "/raft/log-00000000ffffffff")
    yes(agent, r"a torn record of \d+ bytes, never acknowledged")
    kept.again()
    shutil.rmtree(agent.data + "/store")
    yes(agent, r"^store +none; will be rebuilt")
    kept.again()
    with open(agent.data + "/store/marker", "r+b") as f:
        f.write(b"another boot")
    yes(agent, r"not closed by this boot: will be rebuilt")
    for page in range(2, 40):
        with open(agent.data + "/store/data.mdb", "r+b") as f:
            f.seek(page * 4096)
            f.write(os.urandom(4096))
    yes(agent, r"^store .*damaged.*will be rebuilt from snapshot and log$")
    agent.start()
    whole(agent)


def of_several_servers():
    cluster = Cluster(3).start()
    for i in range(50):
        cluster.leader().put("/v1/kv/fill/%d" % i, b"x")
    for server in cluster.servers:
        server.kill()
    for server in cluster.servers:
        yes(server, r"^server .* a voter of 3 members$")


# -- no ----------------------------------------------------------------------------------------------
def damage_is_named():
    agent, snapshot = with_snapshot()
    kept = Kept(agent)
    snapshot_name, size = os.path.basename(snapshot), os.path.getsize(snapshot)
    segment = sorted(glob.glob(agent.data + "/raft/log-0*"))[0]
    name = os.path.basename(segment)

    def damaged(damage, *wanted):
        kept.again()
        damage()
        return no(agent, *wanted)

    damaged(lambda: flip(segment, 20000), "raft/%s: damaged at offset \\d+" % name)
    damaged(lambda: flip(snapshot, size // 2), "raft/%s: damaged at offset \\d+: a block's checksum" % snapshot_name)
    damaged(lambda: flip(snapshot, 100), "raft/%s: damaged at offset 0" % snapshot_name)
    damaged(lambda: os.truncate(snapshot, size - 5), "raft/%s: damaged at offset" % snapshot_name)
    damaged(lambda: os.remove(snapshot), "entries \\d+ to \\d+: its beginning is missing")
    damaged(lambda: [os.remove(p) for p in glob.glob(agent.data + "/raft/log-*")], "log files are missing")
    damaged(lambda: os.remove(agent.data + "/raft/server-id"), "raft/server-id: is missing")
    damaged(lambda: open(agent.data + "/raft/server-id", "w").write("0123456789abcdef\n"), "server-id: says 0123456789abcdef, but the cluster consists of")
    damaged(lambda: open(agent.data + "/raft/server-id", "w").close(), "raft/server-id holds no server id")
    damaged(lambda: open(agent.data + "/node-id", "w").write("x"), "node-id holds no node id")
    damaged(lambda: shutil.rmtree(agent.data + "/raft"), "/raft: is not there")
    damaged(lambda: patch(segment, 4, b"\x09\0", 0, 56), "raft/%s: offset 0: written by a newer version" % name)
    damaged(lambda: patch(snapshot, 8, b"\2\0\0\0", 0, 4092), "raft/%s: offset 8: written by a newer version" % snapshot_name)


def lost_end_of_the_log():
    """The store has applied what the log no longer holds: that was acknowledged."""
    for end in ("stop", "kill"):
        agent = filled()
        agent.kill() if end == "kill" else agent.stop()
        segment = sorted(glob.glob(agent.data + "/raft/log-0*"))[-1]
        with open(segment, "r+b") as f:
            data = f.read()
            f.truncate(len(data.rstrip(b"\0")) // 1024 * 512)
            f.truncate(len(data))
        no(agent, r"store/data.mdb: has applied entry \d+, but the log ends at \d+")


def damaged_store():
    agent = filled(600)
    agent.stop()
    kept = Kept(agent)
    path = agent.data + "/store/data.mdb"
    with open(path, "rb") as f:
        data = f.read()
    # In pages that are free too, but not where a branch holds the key alone: there it is no value that is hit.
    values = [m.end() - 1 for m in re.finditer(rb"fill/599[^0-9a-f].{0,40}?[0-9a-f]{200}", data, re.S)]
    check(values, "the value is in the file")

    def trusted(damage, *wanted):
        kept.again()
        damage()
        no(agent, "store: .*data.mdb: damaged", *wanted)

    trusted(lambda: [flip(path, value) for value in values], r"page \d+ at offset \d+: a record's checksum does not match")
    trusted(lambda: os.truncate(path, 65536), "the file ends at offset 65536")
    for page in range(2, 30, 3):                                    # whatever page it is: a verdict, not an accident
        kept.again()
        with open(path, "r+b") as f:
            f.seek(page * 4096)
            f.write(b"\xa5" * 4096)
        r = verify(agent.data)
        check(r.returncode in (0, 1) and r.stdout.splitlines()[-1].startswith(("yes", "no: store")), "page %d: %s" % (page, r))


def fenced():
    """A store that is whole in itself, and that the cluster's other servers have outvoted."""
    agent = filled(20)
    agent.stop()
    yes(agent)
    with open(agent.data + "/store/fenced", "w") as f:
        f.write("coord: this store is not to be trusted\nindex=17 sums differ\n")
    no(agent, "self-audit.*index=17 sums differ")


def wrong_usage():
    for words in ([], ["-data-dir"], ["-data-dir="], ["somewhere"], ["-data-dir=/x", "y"], ["-datadir=/x"]):
        r = subprocess.run([COORD, "verify", *words], capture_output=True, text=True, timeout=20)
        check(r.returncode == 2 and r.stdout == "" and r.stderr.startswith("coord: "), "%s: %s" % (words, r))
    for words in (["-data-dir=/nowhere/at/all"], ["--data-dir", "/nowhere/at/all"]):
        r = subprocess.run([COORD, "verify", *words], capture_output=True, text=True, timeout=20)
        check(r.returncode == 1 and r.stdout.startswith("no: /nowhere/at/all: ") and not os.path.exists("/nowhere"), "%s: %s" % (words, r))
    agent = Agent()
    os.makedirs(agent.data)
    no(agent, "/raft: is not there")
    check(os.listdir(agent.data) == [], "nothing was made")


if __name__ == "__main__":
    run([what_an_agent_left, with_and_without_parts, of_several_servers, damage_is_named, lost_end_of_the_log, damaged_store, fenced, wrong_usage])
