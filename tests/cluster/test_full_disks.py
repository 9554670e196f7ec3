#!/usr/bin/env python3
"""The disks of all servers are filled to the last byte, one after the other, while clients write; all are killed and started again, then the
leader is killed for good: default reads go on, with all that was acknowledged. With space service resumes by itself."""
import json, threading, time
import harness
from full_disk import fill, give_back, small_disk
from harness import check, until

VALUE = b"v" * 3000


class Writer(threading.Thread):
    """Writes new keys through a server until told to stop; remembers what was acknowledged."""
    def __init__(self, number, server):
        super().__init__(daemon=True)
        self.number, self.server, self.count, self.acknowledged, self.refusals, self.stop = number, server, 0, 0, 0, False

    def run(self):
        while not self.stop:
            try:
                status, _, body = self.server.request("PUT", "/v1/kv/w/%d/%d" % (self.number, self.count), VALUE, 10 * harness.SLOW)
            except OSError:
                time.sleep(0.05)
                continue
            if status == 200:
                self.acknowledged, self.count = self.acknowledged + 1, self.count + 1
            elif b"disk full" in body:
                self.refusals += 1
                time.sleep(0.01)
            else:
                self.count += 1      # its outcome is unknown


def written(server, within, what):
    """How many keys a default read shows."""
    def ask():
        try:
            status, _, body = server.request("GET", "/v1/kv/w/?keys", timeout=10 * harness.SLOW + harness.STANDSTILL)
        except OSError:
            return None
        return len(json.loads(body)) if status == 200 else None
    return until("a default read of %s %s" % (server.name, what), ask, within)


def refused(server):
    """Whether a write is; one that is not has been done, or servers elect a leader."""
    status, _, body = server.request("PUT", "/v1/kv/more", VALUE, 10 * harness.SLOW + harness.STANDSTILL)
    check(status == 200 or (status == 503 and b"disk full" in body) or harness.undecided(status, body), "a write: %d %r" % (status, body))
    return status == 503


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        for server in cluster.servers:
            small_disk(cluster, server, 80)
        cluster.start()
        cluster.wait_writable()
        leader = cluster.leader()
        writers = [Writer(i, leader) for i in range(3)]
        for writer in writers:
            writer.start()
        for server in sorted(cluster.servers, key=lambda s: s is leader):
            time.sleep(0.3)      # a load between
            fill(server)
        until("all is refused", lambda: all(w.refusals > 20 for w in writers), 60)
        for writer in writers:
            writer.stop = True
        for writer in writers:
            writer.join()
        acknowledged = sum(w.acknowledged for w in writers)
        for server in cluster.servers:
            server.kill()
        for server in cluster.servers:
            server.start()
        seen = [written(s, 20, "after all were killed") for s in cluster.servers]
        check(min(seen) >= acknowledged, "what was acknowledged is there: %r of %d" % (seen, acknowledged))
        until("a write is refused", lambda: refused(leader))      # what was made ready for the log before may be free again
        lost = cluster.leader()
        lost.kill()
        left = [s for s in cluster.servers if s is not lost]
        seen = [written(s, 10, "without the leader") for s in left]
        check(min(seen) >= acknowledged, "what was acknowledged is there: %r of %d" % (seen, acknowledged))
        for server in cluster.servers:
            give_back(server)
        until("service resumes", lambda: all(s.try_put("/v1/kv/again") for s in left), 20)
        lost.start()
        cluster.wait_writable()
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    print("ok: %d keys acknowledged" % acknowledged)


if __name__ == "__main__":
    main()
