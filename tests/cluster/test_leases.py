#!/usr/bin/env python3
"""Leases on three servers: renewed through any of them, over the loss of the leader; ended not before its time, in one entry everywhere.

    test_leases.py [--kills N]
"""
import argparse, http.client, json, os, sys, threading, time
import harness
from harness import SLOW, check, until

now = time.monotonic
TTL = 3.0


class StoodStill(Exception):
    """This machine, for longer than a lease lives: nothing is shown, and it is told again."""


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kills", type=int, default=min(1, int(os.environ.get("COORD_TEST_KILLS", "1"))))
    return p.parse_args()


def ask(server, method, path, body=None, timeout=10):
    """(status, JSON or text); (0, why) when nobody answers."""
    try:
        status, _, text = server.request(method, path, json.dumps(body).encode() if body is not None else None, timeout)
    except (OSError, http.client.HTTPException) as e:
        return 0, str(e)
    return status, json.loads(text) if status == 200 else text.decode()


def grant(server):
    status, lease = ask(server, "PUT", "/v1/lease/grant", {"TTL": "%ds" % TTL})
    check(status == 200, "granted: %d %s" % (status, lease))
    id = lease["ID"]
    for key in ("a", "b", "c"):
        check(server.put("/v1/kv/%s?lease=%s" % (key, id), b"1"), "a key is bound")
    body = {"Node": "ext", "Address": "10.0.0.9", "Service": {"Service": "web"}, "Lease": id}
    check(ask(server, "PUT", "/v1/catalog/register", body) == (200, True), "a service is bound")
    return id


class Owner:
    """Renews through one server after the other. What counts is when an acknowledged renewal was sent."""

    def __init__(self, cluster, id, granted):
        self.cluster, self.id, self.sent, self.lost, self.stopping = cluster, id, granted, None, False
        self.wrong = None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        number = 0
        while not self.stopping:
            number += 1
            server = self.cluster.servers[number % len(self.cluster.servers)]
            if not server.alive():
                continue
            begun = now()
            status, answer = ask(server, "PUT", "/v1/lease/renew/" + self.id, timeout=2)
            if status == 200:
                self.sent = begun
                if not (0 < answer.pop("NotBefore") <= TTL * 1000 and answer.pop("NotAfter") == 2000 * (TTL + 1)
                        and answer == {"ID": self.id, "TTL": "%ds" % TTL}):
                    self.wrong = answer
                    return
            elif status == 404:
                self.lost = now() - self.sent
                return
            time.sleep(0.1)

    def is_well(self):
        check(not self.wrong, "a renewal was answered %r" % (self.wrong,))
        if self.lost is not None:
            check(self.lost > TTL, "a lease ended %.2f s after a renewal" % self.lost)
            raise StoodStill("nothing renewed the lease for %.2f s" % self.lost)

    def stop(self):
        self.stopping = True
        self.thread.join(10 * SLOW)
        self.is_well()


def everything_there(server, owner, what):
    status, lease = ask(server, "GET", "/v1/lease/%s?stale" % owner.id)
    if status == 404 and now() - owner.sent > TTL:
        raise StoodStill("nothing renewed the lease for %.2f s" % (now() - owner.sent))
    check(status in (0, 500) or status == 200 and sorted(lease["Keys"]) == ["a", "b", "c"] and len(lease["Services"]) == 1,
          "%s: %d %r" % (what, status, lease))


def ended(servers, id, sent, what):
    """Waits for the end as clients see it by blocking queries on each server: not before its TTL, and in one entry."""
    seen = []

    def wait_for(server, path):
        index = None
        while now() - sent < 10 * TTL:
            try:
                status, headers, text = server.request("GET", path + ("?index=%s&wait=20s" % index if index else ""), timeout=40)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
                continue
            if status == 404 or status == 200 and text.strip() == b"[]":
                seen.append((now() - sent, server.name, path, headers["X-Consul-Index"]))
                return
            index = headers["X-Consul-Index"] if status == 200 else None
            if status != 200:
                time.sleep(0.02)
    threads = [threading.Thread(target=wait_for, args=(s, p), daemon=True)
               for s in servers for p in ("/v1/kv/a", "/v1/kv/c", "/v1/health/service/web", "/v1/lease/" + id)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60 * SLOW)
    check(len(seen) == len(threads), "%s: seen by %d of %d" % (what, len(seen), len(threads)))
    check(min(seen)[0] > TTL, "%s: ended before its TTL: %r" % (what, min(seen)))
    check(len({index for _, _, _, index in seen}) == 1, "%s: in one entry: %r" % (what, seen))


def renewed(cluster, server):
    begun = now()
    return Owner(cluster, grant(server), begun)


def all_is_well(cluster):
    followers = [s for s in cluster.servers if s is not cluster.leader()]
    for server in (cluster.leader(), followers[0]):
        status, text = ask(server, "PUT", "/v1/lease/renew/00000000-0000-4000-8000-000000000000")
        check(status == 404 and "register again" in text, "%s: %d %s" % (server.name, status, text))
    owner = renewed(cluster, followers[0])
    begun = now()
    while now() - begun < 2 * TTL:
        everything_there(cluster.leader(), owner, "it lives while it is renewed")
        time.sleep(0.2)
    for server in cluster.servers:
        owner.is_well()
        status, lease = ask(server, "GET", "/v1/lease/" + owner.id)
        check(status == 200, "%s: %d %r" % (server.name, status, lease))
        if not (lease["Remaining"][0] in "12" or lease["Remaining"] == "3s"):
            raise StoodStill("%s: %s is left" % (server.name, lease["Remaining"]))
        status, leases = ask(server, "GET", "/v1/leases?remaining")
        leases = [l for l in leases if "Node" not in l]      # those of the servers themselves
        check(status == 200 and [l["ID"] for l in leases] == [owner.id] and leases[0]["Remaining"] > "1", "%s: %r" % (server.name, leases))
    owner.stop()
    ended(cluster.servers, owner.id, owner.sent, "all is well")


def the_leader_is_lost(cluster, kill):
    leader = cluster.leader()
    others = [s for s in cluster.servers if s is not leader]
    owner = renewed(cluster, others[0])
    leader.kill()
    until("writes go on", lambda: others[0].try_put("/v1/kv/ready"))
    begun = now()
    while now() - begun < TTL + 1:                # beyond what the dead leader had granted
        owner.is_well()
        time.sleep(0.1)
    everything_there(others[0], owner, "all of it is there")
    leader.start()
    cluster.wait_writable()
    leader = cluster.leader()
    others = [s for s in cluster.servers if s is not leader]
    owner.stop()
    time.sleep(kill % 3 * TTL / 3)                # lost at the beginning, in the middle, before the end of the TTL
    leader.kill()
    try:
        ended(others, owner.id, owner.sent, "leader killed %.0f s later" % (kill % 3 * TTL / 3))
    finally:
        leader.start()
        cluster.wait_writable()


def again(story, cluster, *more):
    """Three times at most."""
    for turn in range(3):
        try:
            return story(cluster, *more)
        except StoodStill as why:
            said = str(why)
            print("told again: " + said, flush=True)
        for server in cluster.servers:
            if not server.alive():
                server.start()
        cluster.wait_writable()
        until("nothing of it is left", lambda: ask(cluster.leader(), "GET", "/v1/leases")[0] == 200 and
              not [l for l in ask(cluster.leader(), "GET", "/v1/leases")[1] if "Node" not in l], 2 * TTL + 5)
    raise AssertionError(said)


def main():
    options = arguments()
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        again(all_is_well, cluster)
        for kill in range(options.kills):
            again(the_leader_is_lost, cluster, kill)
        said = cluster.confessions()
        check(not said, "\n".join(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
