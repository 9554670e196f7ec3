#!/usr/bin/env python3
"""Servers that keep their data folders and come back at other addresses, one after the other (a host that was given another one): Raft's configuration,
what is said of them, and the client agents follow."""
import sys
import harness
from agents import ready, get
from harness import check, until


def configuration(server, query=""):
    """Its servers. None while one is elected that leads."""
    return (get(server, "/v1/operator/raft/configuration" + query) or {}).get("Servers") or []


def addresses(server):
    return {s["Node"]: s["Address"] for s in configuration(server, "?stale")}


def move(cluster, server):
    server.terminate()
    cluster.plugged += 1
    if cluster.hub:
        server.namespace, server.ip = cluster.hub.plug(cluster.plugged)
    else:
        server.ip = harness._loopback()
    server.start()
    cluster.wait_writable()
    until("%s has its new address in the configuration" % server.name,
          lambda: all(addresses(s).get(server.name) == server.ip + ":8300" for s in cluster.servers), 15)


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        agent = cluster.agent("a1")
        agent.start()
        ready([agent])
        leader = cluster.leader()
        stays = next(s for s in cluster.servers if s is not leader)
        for server in [s for s in cluster.servers if s is not stays]:      # the leader first or last
            move(cluster, server)
        members = until("its members", lambda: configuration(stays, "?stale"))
        check(len(members) == 3, "no server twice: %r" % members)
        until("what is said of the leader is true",
              lambda: get(stays, "/v1/status/leader") in [s.ip + ":8300" for s in cluster.servers] and
              sorted(get(stays, "/v1/status/peers") or []) == sorted(s.ip + ":8300" for s in cluster.servers), 5)
        stays.kill()
        until("the agent goes on at the addresses that it learned", lambda: agent.try_put("/v1/kv/moved"), 15)
        stays.start()
        cluster.wait_writable()
        move(cluster, stays)
        until("all three vote", lambda: sum(s["Voter"] for s in configuration(stays)) == 3, 10)
        print("three servers moved, the agent with them", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
