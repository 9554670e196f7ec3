#!/usr/bin/env python3
"""A client agent that is cut off from all servers while a rollout goes on without it: who follows there keeps the last version, sees nothing half done, and
has the newest one soon after the cut is healed."""
import os, shutil, subprocess, sys, tempfile
import harness
from agents import ask, do, get, ready
from harness import COORD, check, until


def version(process):
    return (get(process, "/v1/rollout/web?id=f1&node=a1", 5) or {}).get("Version")


def main():
    harness.tidy_on_signals()
    folder = tempfile.mkdtemp()
    out = os.path.join(folder, "web.json")
    with harness.Cluster(3) as cluster:
        if not cluster.hub:
            harness.skip("no network namespaces, so nothing can be cut")
        cluster.start()
        cluster.wait_writable()
        agent = cluster.agent("a1")
        agent.start()
        ready([agent])
        for number in (1, 2, 3):
            do(agent, "/v1/rollout/web/versions/v%d" % number, {"v": number})
        do(agent, "/v1/rollout/web/current", {"Version": "v1"})
        words = [COORD, "rollout", "follow", "-http-addr=%s:8500" % agent.ip, "-id", "f1", "-node", "a1", "-out", out, "-exec", "cat %s >> %s/log" % (out, folder), "web"]
        follow = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def content(name="web.json"):
            path = os.path.join(folder, name)
            return open(path).read() if os.path.exists(path) else ""
        try:
            until("the first version", lambda: content("log") == '{"v": 1}', 20)
            cluster.cut([agent], cluster.servers)
            leader = cluster.leader()
            for number in (2, 3):
                do(leader, "/v1/rollout/web/current", {"Version": "v%d" % number, "Match": {"Nodes": ["a1"]}})
                until("it is given to the caller, who cannot hear of it", lambda: version(leader) == "v%d" % number, 5)
                do(leader, "/v1/rollout/web/promote")
            until("nobody answers at the agent", lambda: ask(agent, "GET", "/v1/rollout/web?id=other", timeout=30)[0] == 500, 30)
            check(content() == '{"v": 1}' and follow.poll() is None, "the file stays")
            cluster.heal()
            until("the newest version", lambda: content() == '{"v": 3}', 30)
            until("it is acknowledged", lambda: [v["Version"] for v in (get(leader, "/v1/rollout/web/status") or {"Versions": []})["Versions"] if v["Ok"]] == ["v3"], 20)
            check(content("log") == '{"v": 1}{"v": 3}', "each that it was given was whole: %r" % content("log"))
        finally:
            follow.kill()
            shutil.rmtree(folder, ignore_errors=True)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
