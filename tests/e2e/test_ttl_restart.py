"""What a restart of the agent must not begin anew: TTLs since the last report, thresholds, the time to removal. Agents are killed and started
again and again, as in a crash loop or an upgrade."""
import http.server, json, os, signal, socket, threading, time
from coordtest import SLOW, Agent, Cluster, check, free_address, run, until

LATE = 1.5 * SLOW          # what a start, a comparison with the catalog and an entry may take


def statuses(agent):
    """Check's id -> status, as the catalog has them; None while it cannot be asked."""
    try:
        return {c["CheckID"]: c["Status"] for c in agent.get("/v1/health/node/%s?stale" % agent.name, timeout=2)[2]}
    except (OSError, ValueError):
        return None


def with_file(agent, *services):
    folder = os.path.join(agent.dir, "conf.d")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "services.json"), "w") as f:
        json.dump({"services": list(services)}, f)
    if "-config-dir=" + folder not in agent.args:
        agent.args.append("-config-dir=" + folder)
    return agent


class Watched:
    """Agents die and come back every `every` seconds; meanwhile the catalog is looked at. `critical`: when each was first seen so."""

    def __init__(self, agent, every, how=signal.SIGKILL):
        self.agent, self.every, self.how = agent, every, how
        self.critical, self.restarts, self.next, self.worst = {}, 0, time.monotonic() + every, {}

    def look(self, feed=None):
        now = time.monotonic()
        if now >= self.next:
            self.agent.proc.send_signal(self.how)
            self.agent.proc.wait(10 * SLOW)
            self.agent.start()
            self.restarts += 1
            self.next = time.monotonic() + self.every
        if feed:
            feed()
        for check_id, status in (statuses(self.agent) or {}).items():
            self.worst.setdefault(check_id, set()).add(status)
            if status == "critical":
                self.critical.setdefault(check_id, time.monotonic())
        return self.critical


def service(name, ttl, **more):
    return {"Name": name, "Port": 80, "Check": dict({"CheckID": name, "TTL": ttl}, **more)}


def measured(story, *args):
    """A machine that stands still makes a time longer, and none shorter: of three times one is in its bounds. `story` gives what was too late, or None."""
    for _ in range(3):
        late = story(*args)
        if not late:
            return
        print("     %s; once more" % late, flush=True)
    raise AssertionError(late)


def crash_loop(every, how):
    """TTL of 10 s, reported once. One is reported all the time."""
    agent = with_file(Agent(), {"name": "file", "port": 80, "check": {"id": "file", "ttl": "10s", "status": "passing"}}).start()
    until("the file's service", lambda: (statuses(agent) or {}).get("file") == "passing")
    begun = time.monotonic()
    for name, more in (("passed", {}), ("given", {"Status": "passing"}), ("fed", {}), ("long", {})):
        agent.put("/v1/agent/service/register", service(name, "10m" if name == "long" else "10s", **more))
    agent.put("/v1/agent/check/register", {"Name": "node-ttl", "TTL": "10s"})
    for check_id in ("passed", "fed", "long", "node-ttl"):
        agent.put("/v1/agent/check/pass/%s?note=fine" % check_id)
    reported = time.monotonic()
    until("all pass", lambda: {c for c, s in (statuses(agent) or {}).items() if s == "passing"} >= {"passed", "given", "file", "fed", "long", "node-ttl"})
    watched = Watched(agent, every, how)
    fed = [0.0]

    def feed():
        if time.monotonic() - fed[0] > 1:
            agent.put("/v1/agent/check/pass/fed?note=fine")
            fed[0] = time.monotonic()
    expected = {"passed", "given", "file", "node-ttl"}
    until("what nobody reports is critical", lambda: expected <= set(watched.look(feed)), 12 + LATE)
    check(watched.restarts >= 1, "it was restarted")
    took = {name: watched.critical[name] - reported for name in expected}
    check(all(watched.critical[name] - begun > 9 for name in expected), "critical so long after the last report: %r" % took)
    check(watched.worst["fed"] == {"passing"} == watched.worst["long"], "the others never: %r" % watched.worst)
    agent.put("/v1/agent/check/deregister/node-ttl")                  # it speaks for every service of the node
    until("DNS leaves them out", lambda: feed() or agent.dig_short("passed.service.coord") == [] and agent.dig_short("fed.service.coord") == [agent.ip])
    output = {c["CheckID"]: c["Output"] for c in agent.get("/v1/health/node/n1")[2]}
    check(output["passed"] == "TTL expired (last output before timeout follows): fine" and output["long"] == "fine", "%r" % output)
    print("     %d restarts; critical after %s s" % (watched.restarts, ", ".join("%.1f" % took[n] for n in sorted(expected))))
    agent.kill()
    return None if max(took.values()) < 10 + LATE else "critical after %r" % took


def killed_every_6_seconds():
    measured(crash_loop, 6, signal.SIGKILL)


def stopped_every_2_seconds():
    measured(crash_loop, 2, signal.SIGTERM)


def a_client_agent():
    """Beside servers that live on; a report just before the kill counts."""
    cluster = Cluster(1).start()
    agent = cluster.agent("a1", "-config-file=" + keep_on_terminate(cluster)).start()
    agent.put("/v1/agent/service/register", service("web", "4s", Status="passing"))
    watched = Watched(agent, 1)
    reported = time.monotonic()

    def passes():
        return (statuses(agent) or {}).get("web") == "passing"

    def restarted(before):
        watched.look()
        if watched.critical.pop("web", None):                          # starts may take long: then its time was over indeed
            took = time.monotonic() - reported
            check(took >= 4, "critical %.1f s after a report" % took)
        return watched.restarts > before
    for _ in range(8):                                                 # 8 s and more: twice its TTL, reported before each kill
        until("a restart", lambda now=watched.restarts: restarted(now))
        before = kept(agent)
        reported = time.monotonic()
        agent.put("/v1/agent/check/pass/web")
        until("it is kept", lambda then=before: kept(agent) > then, 0.5)
        agent.kill()
        agent.start()
        until("it passes", lambda: passes() or time.monotonic() - reported >= 4)
        watched.next = time.monotonic() + 1

    def expires():
        watched.critical.clear()
        reported = time.monotonic()
        agent.put("/v1/agent/check/pass/web")                          # its process is back
        until("it passes", passes)
        until("it expires", lambda: watched.look().get("web"), 6 + LATE)
        took = watched.critical["web"] - reported
        check(took > 3, "critical after %.1f s" % took)
        return None if took < 4 + LATE else "critical after %.1f s" % took
    measured(expires)
    agent.put("/v1/agent/check/pass/web")                              # its process is back
    until("and passes again", passes)


def kept(agent):
    """When the states of its checks were written last: within a tenth of a second."""
    return os.stat(os.path.join(agent.data, "local/states")).st_mtime_ns


def keep_on_terminate(cluster):
    path = os.path.join(cluster.servers[0].dir, "stay.json")
    with open(path, "w") as f:
        json.dump({"leave_on_terminate": False}, f)
    return path


def reloads():
    """What a file says of a status is said once, not at each reload that brings something else of its service."""
    measured(reloads_while_it_expires)


def reloads_while_it_expires():
    agent = Agent()

    def write(tag):
        with_file(agent, {"name": "file", "tags": [tag], "check": {"id": "file", "ttl": "3s", "status": "passing"}})
    write("first")
    agent.start()
    until("it passes", lambda: (statuses(agent) or {}).get("file") == "passing")
    begun, reloaded = time.monotonic(), 0

    def gone():
        nonlocal reloaded
        if time.monotonic() - begun > reloaded * 0.5:
            reloaded += 1
            write("tag%d" % reloaded)
            agent.put("/v1/agent/reload")
        return (statuses(agent) or {}).get("file") == "critical"
    until("it expires", gone, 3 + LATE)
    agent.kill()
    return None if reloaded >= 5 else "%d reloads" % reloaded  # a machine that stands still makes fewer of them


def thresholds():
    """Five failures in a row, of which each life of the agent sees one or two; and two successes on the way back."""
    class Answer(http.server.BaseHTTPRequestHandler):
        code = 500

        def do_GET(self):
            self.send_response(Answer.code)
            self.end_headers()

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer((free_address(), 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    agent = Agent().start()
    agent.put("/v1/agent/service/register", {"Name": "web", "Check": {
        "CheckID": "web", "HTTP": "http://%s:%d/" % server.server_address, "Interval": "1500ms", "Status": "passing", "FailuresBeforeCritical": 5,
        "FailuresBeforeWarning": 5, "SuccessBeforePassing": 5}})
    watched = Watched(agent, 2)
    until("it falls", lambda: "web" in watched.look(), 30)
    check(watched.restarts >= 2, "%d restarts" % watched.restarts)
    Answer.code = 200
    until("and comes back", lambda: watched.look() is not None and (statuses(agent) or {}).get("web") == "passing", 30)
    server.shutdown()


def time_to_removal():
    """A critical service goes after its time, however often the agent restarts; one that is reported again stays."""
    agent = Agent().start()
    begun = time.monotonic()
    for name in ("dead", "back"):
        agent.put("/v1/agent/service/register", service(name, "1s", DeregisterCriticalServiceAfter="6s"))
    watched = Watched(agent, 3)

    def feed():
        if watched.restarts:
            agent.put("/v1/agent/check/pass/back")
    until("the dead one goes", lambda: watched.look(feed) is not None and "dead" not in agent.get("/v1/catalog/services")[2], 20)
    check(time.monotonic() - begun > 5.5 and watched.restarts >= 1, "after %.1f s, %d restarts" % (time.monotonic() - begun, watched.restarts))
    check("back" in agent.get("/v1/catalog/services")[2], "the other stays")


def maintenance_stays():
    agent = Agent().start()
    agent.put("/v1/agent/service/register", {"Name": "web"})
    agent.put("/v1/agent/maintenance?enable=true&reason=disk")
    agent.put("/v1/agent/service/maintenance/web?enable=true&reason=new+version")
    for _ in range(2):
        agent.kill()
        agent.start()
        notes = {c["CheckID"]: c["Notes"] for c in agent.get("/v1/agent/checks")[2].values()}
        check(notes == {"_node_maintenance": "disk", "_service_maintenance:web": "new version"}, "%r" % notes)
        until("in the catalog", lambda: {"_node_maintenance", "_service_maintenance:web"} <= set(statuses(agent) or ()))


def files_stand_as_before():
    """A check of a configuration file that asks by itself does not fall with a restart either, and passes nowhere because its file says so."""
    listener = socket.create_server((free_address(), 0))
    place = "%s:%d" % listener.getsockname()
    agent = with_file(Agent(), {"name": "up", "check": {"id": "up", "tcp": place, "interval": "1s"}},
                      {"name": "down", "check": {"id": "down", "tcp": "127.0.0.1:9", "interval": "10m", "status": "passing"}}).start()
    until("they have run", lambda: [(statuses(agent) or {}).get(c) for c in ("up", "down")] == ["passing", "critical"])
    watched = Watched(agent, 0.3)
    until("some restarts", lambda: watched.look() is not None and watched.restarts >= 10, 30)
    check(watched.worst["up"] == {"passing"} and watched.worst["down"] == {"critical"}, "%r" % watched.worst)
    listener.close()


if __name__ == "__main__":
    run([killed_every_6_seconds, stopped_every_2_seconds, a_client_agent, reloads, thresholds, time_to_removal, maintenance_stays, files_stand_as_before])
