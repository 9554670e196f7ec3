"""Faults, drawn by a seed. Each begins with a cluster that is well, hurts it, mends it and returns a word about it; what is
broken while it lasts is judged by the checkers, and that the cluster gets well again by the caller."""
import glob, os, shutil, struct, subprocess, time
import full_disk
from harness import SLOW, STANDSTILL, until

SECTOR, HEAD = 512, 64


class Fair(Exception):
    """The fault could not be done: it does not count."""


class Chaos:
    def __init__(self, cluster, rng):
        self.cluster, self.rng = cluster, rng
        self.service = []                # (fault, seconds until others wrote again)
        self.told = []                   # (begun, ended, fault)
        self.full_disk = None            # the server whose data is on a small file system

    def names(self):
        names = ["kill_any", "kill_leader", "kill_all", "pause_any", "pause_leader", "rolling_restart", "delete_data", "corrupt_tail", "corrupt_middle"]
        if self.cluster.hub:
            names += ["cut_leader", "cut_any", "cut_one_way_from_leader", "cut_one_way_to_leader", "cut_one_way_any", "cut_ring"]
        if self.full_disk:
            names += ["disk_full"]
        return names

    # -- helpers ------------------------------------------------------------------------------------------------------------
    def any(self):
        return self.rng.choice(self.cluster.servers)

    def others(self, server):
        return [s for s in self.cluster.servers if s is not server]

    def linger(self, least=0.2, most=3.0):
        time.sleep(self.rng.uniform(least, most))

    def others_write(self, fault, server, within=10):
        """A minority is away: the rest goes on. Several probes at a time: one of them may hang with the lost leader."""
        begun = time.monotonic()
        others = self.others(server)
        while not any(s.try_put("/v1/kv/_probe", timeout=0.5 * SLOW) for s in others):
            if time.monotonic() - begun > within * SLOW + STANDSTILL:
                raise AssertionError("%s: the others do not write within %.0f s" % (fault, within * SLOW + STANDSTILL))
        self.service.append((fault, time.monotonic() - begun))

    # -- processes ------------------------------------------------------------------------------------------------------------
    def _kill(self, fault, server):
        server.kill()
        self.others_write(fault, server)
        self.linger(0, 2)
        server.start()
        return server.name

    def kill_any(self):
        return self._kill("kill_any", self.any())

    def kill_leader(self):
        return self._kill("kill_leader", self.cluster.leader())

    def kill_all(self):
        servers = list(self.cluster.servers)
        self.rng.shuffle(servers)
        for s in servers:
            s.kill()
        self.linger(0, 0.5)
        for s in servers:
            s.start()
            self.linger(0, 0.3)
        return "all"

    def _pause(self, fault, server):
        seconds = self.rng.choice([1, 2, 3, 5, 10])
        server.pause()
        begun = time.monotonic()
        try:
            self.others_write(fault, server)
            time.sleep(max(0, seconds - (time.monotonic() - begun)))
        finally:
            server.resume()
        return "%s for %d s" % (server.name, seconds)

    def pause_any(self):
        return self._pause("pause_any", self.any())

    def pause_leader(self):
        return self._pause("pause_leader", self.cluster.leader())

    def rolling_restart(self):
        for s in self.cluster.servers:
            code = s.terminate()
            if code != 0:
                raise AssertionError("%s ended with %d after SIGTERM" % (s.name, code))
            s.start()
            self.cluster.wait_writable()
        return "all"

    # -- the network ------------------------------------------------------------------------------------------------------------
    def _cut(self, fault, server):
        self.cluster.cut([server], self.others(server))
        self.others_write(fault, server)
        self.linger(0.2, 8)
        self.cluster.heal()
        return server.name

    def cut_leader(self):
        return self._cut("cut_leader", self.cluster.leader())

    def cut_any(self):
        return self._cut("cut_any", self.any())

    def cut_one_way_from_leader(self):
        leader = self.cluster.leader()
        self.cluster.cut_one_way([leader], self.others(leader))
        self.others_write("cut_one_way_from_leader", leader)
        self.linger(0.2, 6)
        self.cluster.heal()
        return leader.name

    def cut_one_way_to_leader(self):
        leader = self.cluster.leader()
        self.cluster.cut_one_way(self.others(leader), [leader])
        self.others_write("cut_one_way_to_leader", leader)
        self.linger(0.2, 6)
        self.cluster.heal()
        return leader.name

    def cut_one_way_any(self):
        a = self.any()
        b = self.rng.choice(self.others(a))
        self.cluster.cut_one_way([a], [b])
        self.linger(1, 6)
        begun = time.monotonic()
        while not any(s.try_put("/v1/kv/_probe", timeout=0.5 * SLOW) for s in self.cluster.servers):
            if time.monotonic() - begun > 10 * SLOW + STANDSTILL:
                raise AssertionError("cut_one_way_any: nobody writes within %.0f s" % (10 * SLOW + STANDSTILL))
        self.cluster.heal()
        return "%s to %s" % (a.name, b.name)

    def cut_ring(self):
        """Each reaches the next one and not the one before."""
        servers = self.cluster.servers
        for i, s in enumerate(servers):
            self.cluster.cut_one_way([s], [servers[i - 1]])
        self.linger(1, 5)
        self.cluster.heal()
        return "all"

    # -- disks ------------------------------------------------------------------------------------------------------------------
    def delete_data(self):
        server = self.any()
        server.kill()
        self.linger(0, 1)
        self._forget(server)
        server.start()
        return server.name

    def _forget(self, server):
        server.life += 1
        for name in os.listdir(server.data):
            path = os.path.join(server.data, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.remove(path)

    def batches(self, server):
        """The newest segment with something in it, and [(offset, size)] of the batches there."""
        for path in sorted(glob.glob(server.data + "/raft/*"), reverse=True):
            with open(path, "rb") as f:
                data = f.read()
            found, at = [], 0
            while data[at:at + 4] == b"cwal" and at + HEAD <= len(data):
                size = struct.unpack_from("<I", data, at + 32)[0]
                found.append((at, size))
                at += size
            if found:
                return path, found
        return None, []

    def _damage(self, path, at):
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ (1 << self.rng.randrange(8))]))
            f.flush()
            os.fsync(f.fileno())

    def _data_byte(self, batch):
        at, size = batch
        return at + self.rng.randrange(HEAD + 28)      # the head or the first record's: surely no padding

    def corrupt_tail(self):
        server = self.any()
        server.kill()
        path, found = self.batches(server)
        if len(found) < 2:               # the first is the segment's own: it may not be torn
            server.start()
            raise Fair(server.name + ": its newest segment is empty")
        server.life += 1                 # what it forgets it has to fetch again: stale reads go back meanwhile
        at = self._data_byte(found[-1])
        self._damage(path, at)
        before = len(server.log())
        server.start()
        until("%s says that its log's end is torn: %s at %d" % (server.name, path, at), lambda: "the log's last record was torn and is cut off" in server.log()[before:], 15)
        return "%s %s at %d" % (server.name, os.path.basename(path), at)

    def corrupt_middle(self):
        """Has to be refused with file and offset; without its log and store the server comes back as a new member."""
        server = self.any()
        server.kill()
        path, found = self.batches(server)
        if len(found) < 4:
            server.start()
            raise Fair(server.name + ": its log is short")
        batch = found[self.rng.randrange(1, len(found) - 2)]
        at = self._data_byte(batch)
        self._damage(path, at)
        before = len(server.log())
        server.start()
        server.expected_end = True
        try:
            code = server.proc.wait(15 * SLOW + STANDSTILL)
        except subprocess.TimeoutExpired:
            raise AssertionError("%s runs with a damaged log: %s byte %d in the batch at %d" % (server.name, path, at, batch[0]))
        said = server.log()[before:]
        if code == 0 or os.path.basename(path) not in said or str(batch[0]) not in said:
            raise AssertionError("%s ended with %d without naming %s and offset %d:\n%s" % (server.name, code, path, batch[0], said[-1500:]))
        server.life += 1
        shutil.rmtree(server.data + "/raft")
        shutil.rmtree(server.data + "/store")
        server.start()
        return "%s %s at %d" % (server.name, os.path.basename(path), at)

    # -- a full disk --------------------------------------------------------------------------------------------------------------
    def prepare_small_disk(self, megabytes=256):
        """Before the start. Puts one server's data on a small file system, if that is allowed."""
        server = self.any()
        refused = full_disk.on_small_disk(self.cluster, server, megabytes)
        if refused:
            print("no disk_full: nothing can be mounted: " + refused, flush=True)
        else:
            self.full_disk = server

    def disk_full(self):
        server = self.full_disk
        before = len(server.log())
        full_disk.fill(server)
        begun, wrote, refused = time.monotonic(), 0, 0
        over = begun + self.rng.uniform(3, 6)
        full = lambda: "disk full" in server.log()[before:]      # as a follower it need not refuse any
        while time.monotonic() < over or (not full() and time.monotonic() < begun + 30 * SLOW):  # more than the space that is reserved ahead covers; reads go on, whoever leads
            for s in self.cluster.servers:
                status = s.request("GET", "/v1/kv/_probe?stale")[0]
                if status not in (200, 404):
                    raise AssertionError("disk_full: a read through %s answers %d" % (s.name, status))
            for _ in range(5):
                try:
                    status, _, answer = server.request("PUT", "/v1/kv/_bulk", b"b" * 400000, 5)
                except OSError:
                    continue
                wrote += status == 200
                refused += status == 503 and b"disk" in answer.lower()
                if status == 503:
                    time.sleep(0.05)
        full_disk.give_back(server)
        if not full():
            raise AssertionError("disk_full: %s took %d big writes, refused %d and never was full" % (server.name, wrote, refused))
        return "%s (%d big writes, %d refused)" % (server.name, wrote, refused)
