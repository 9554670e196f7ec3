"""kill -9 under load, a flipped byte, a torn tail."""
import glob, http.client, os, random, shutil, subprocess, threading, time
from coordtest import COORD, SLOW, Agent, check, run, until

KILLS = int(os.environ.get("COORD_TEST_KILLS", "20"))


class Writers:
    """Threads that put keys until told to stop; they remember what was acknowledged."""

    def __init__(self, agent, round_, count=6):
        self.acked, self.stopping, self.lock = {}, False, threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(agent, round_, i), daemon=True) for i in range(count)]
        for t in self.threads:
            t.start()

    def work(self, agent, round_, number):
        n = 0
        try:
            c = http.client.HTTPConnection(agent.ip, 8500, timeout=60 * SLOW)       # a disk may stand still; who is killed hangs up
            while not self.stopping:
                n += 1
                key, value = "load/%d/%d/%d" % (round_, number, n), "v%d" % random.getrandbits(60)
                c.request("PUT", "/v1/kv/" + key, value)
                r = c.getresponse()
                if r.read().strip() == b"true":
                    with self.lock:
                        self.acked[key] = value
        except (OSError, http.client.HTTPException):
            pass

    def count(self):
        with self.lock:
            return len(self.acked)

    def join(self):
        self.stopping = True
        for t in self.threads:
            t.join(60 * SLOW)


def all_there(agent, acked):
    import base64
    _, _, items = agent.get("/v1/kv/load/?recurse", timeout=60)
    found = {i["Key"]: base64.b64decode(i["Value"]).decode() for i in items or []}
    lost = [k for k, v in acked.items() if found.get(k) != v]
    check(not lost, "%d of %d acknowledged writes are lost, such as %s" % (len(lost), len(acked), lost[:3]))


def kill_9_under_load():
    agent = Agent().start()
    acked, index = {}, 0
    for round_ in range(KILLS):
        writers = Writers(agent, round_)
        enough = random.randint(5, 400)
        until("%d writes" % enough, lambda: writers.count() >= enough, within=30)
        agent.kill()
        writers.join()
        acked.update(writers.acked)
        agent.start()
        all_there(agent, acked)
        now = int(agent.request("GET", "/v1/kv/load/?keys")[1]["X-Consul-Index"])
        check(now >= index, "the index went back: %d -> %d" % (index, now))
        index = now
    print("     %d kills, %d acknowledged writes, none lost" % (KILLS, len(acked)))


def stops_under_load():
    """A clean stop with writes under way: exit code 0 (a sanitizer's is another), nothing that was acknowledged is lost."""
    agent = Agent().start()
    acked = {}
    for round_ in range(6):
        writers = Writers(agent, round_)
        until("20 writes", lambda: writers.count() >= 20, within=30)
        code, _ = agent.stop()
        writers.join()
        check(code == 0, "stopped with %s:\n%s" % (code, agent.log()[-2000:]))
        acked.update(writers.acked)
        agent.start()
        all_there(agent, acked)


def filled():
    agent = Agent().start()
    for i in range(200):
        agent.put("/v1/kv/fill/%d" % i, os.urandom(300).hex())
    agent.kill()
    segments = sorted(glob.glob(agent.data + "/raft/log-*"))
    check(segments, "log segments exist")
    return agent, segments[0]


def last_data_offset(path):
    with open(path, "rb") as f:
        data = f.read()
    return len(data.rstrip(b"\0"))


def flipped_byte_is_refused():
    agent, segment = filled()
    end = last_data_offset(segment)
    with open(segment, "r+b") as f:
        f.seek(end // 2)
        byte = f.read(1)
        f.seek(end // 2)
        f.write(bytes([byte[0] ^ 0x55]))
    r = subprocess.run(agent.argv(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(r.returncode != 0, "it must not start on a damaged log")
    words = r.stdout + r.stderr
    check(os.path.basename(segment) in words and "offset" in words, "the refusal names file and offset: %s" % words[-600:])


def torn_tail_starts():
    agent, segment = filled()
    end = last_data_offset(segment)
    with open(segment, "r+b") as f:              # the last record, as if power went while it was written
        f.seek(end - 40)
        f.write(b"\0" * 40)
    agent.start()
    _, _, items = agent.get("/v1/kv/fill/?keys")
    check(len(items) == 200, "nothing is lost, the store has what the log lost: %d" % len(items))
    agent.put("/v1/kv/after", b"1")


def log_loses_its_end():
    """Whole records, or a whole segment: the store has what the log lost, nothing is lost and no index goes back."""
    for damage in ("cut", "zeros", "segment"):
        agent = Agent().start()
        for i in range(40):                                   # beyond the first segment of 1 MiB
            agent.put("/v1/kv/fill/%d" % i, os.urandom(30000).hex())
        index = int(agent.request("GET", "/v1/kv/fill/?keys")[1]["X-Consul-Index"])
        agent.kill()
        last = sorted(glob.glob(agent.data + "/raft/log-0*"))[-1]
        if damage == "segment":
            os.remove(last)
        else:
            with open(last, "r+b") as f:
                end = len(f.read().rstrip(b"\0"))
                f.truncate(end // 2)
                if damage == "zeros":
                    f.truncate(end * 2)
        for _ in range(2):                                    # and again from what the first start made of it
            agent.start()
            status, headers, items = agent.get("/v1/kv/fill/?keys")
            check(len(items) == 40, "%s: %d of 40 keys are there" % (damage, len(items)))
            check(int(headers["X-Consul-Index"]) >= index, "%s: the index went back" % damage)
            agent.put("/v1/kv/after/%s" % damage, b"1")
            agent.kill()


def log_that_is_gone_is_refused():
    agent, _ = filled()
    for path in glob.glob(agent.data + "/raft/log-*"):
        os.remove(path)
    r = subprocess.run(agent.argv(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(r.returncode != 0 and "log files are missing" in r.stdout + r.stderr, "no new cluster over an old store: %s" % (r.stdout + r.stderr)[-500:])


def store_is_rebuilt():
    """Without its store (as after a machine crash, when it is not trusted) a server rebuilds it from the log."""
    agent, _ = filled()
    before = len(glob.glob(agent.data + "/store/*"))
    check(before > 0, "there was a store")
    shutil.rmtree(agent.data + "/store")
    agent.start()
    check(len(agent.get("/v1/kv/fill/?keys")[2]) == 200, "everything is there again")


if __name__ == "__main__":
    run([kill_9_under_load, stops_under_load, flipped_byte_is_refused, torn_tail_starts, log_loses_its_end, log_that_is_gone_is_refused, store_is_rebuilt])
