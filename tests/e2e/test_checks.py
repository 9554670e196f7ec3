"""Checks of every kind on a real agent: scripts only where they are allowed, aliases, units of systemd, damping."""
import json, os, subprocess, time
from coordtest import SLOW, Agent, check, run, until

REMOTE = "Scripts are disabled on this agent from remote calls; to enable, configure 'enable_script_checks' to true"
LOCAL = "Scripts are disabled on this agent; to enable, configure 'enable_script_checks' or 'enable_local_script_checks' to true"


def shell(text, **more):
    return dict({"Name": "script", "Args": ["/bin/sh", "-c", text], "Interval": "1s"}, **more)


def state(agent, check_id):
    """Status and output of a local check."""
    found = agent.get("/v1/agent/checks")[2].get(check_id)
    return (found["Status"], found["Output"]) if found else None


def until_state(agent, check_id, status, output, within=15):
    until("%s is %s: %s" % (check_id, status, output), lambda: state(agent, check_id) == (status, output) or None, within)


def config_file(agent, content):
    path = os.path.join(agent.dir, "checks.json")
    with open(path, "w") as f:
        json.dump(content, f)
    return "-config-file=" + path


def scripts_are_refused_unless_enabled():
    agent = Agent().start()
    answer = agent.put("/v1/agent/check/register", shell("exit 0"), expect=500)
    check(answer.decode().strip() == REMOTE, "the refusal: %r" % answer)
    answer = agent.put("/v1/agent/service/register", {"Name": "web", "Check": {"ScriptArgs": ["true"], "Interval": "1s"}}, expect=500)
    check(answer.decode().strip() == REMOTE, "the refusal of a service: %r" % answer)
    check(agent.get("/v1/agent/services")[2] == {} and agent.get("/v1/agent/checks")[2] == {}, "nothing was registered")
    agent.stop()

    agent.args = [config_file(agent, {"check": {"name": "file", "args": ["true"], "interval": "1s"}})]
    r = subprocess.run(agent.argv(), capture_output=True, text=True, timeout=60)
    lines = (r.stdout + r.stderr).strip().splitlines()
    check(r.returncode == 2 and lines and "checks.json:1:2: check: " + LOCAL in lines[-1], "the start is refused: %d %r" % (r.returncode, lines))


def scripts_from_files_only():
    agent = Agent("-enable-local-script-checks")
    agent.args.append(config_file(agent, {"check": {"id": "file", "name": "file", "args": ["/bin/sh", "-c", "echo from a file; exit 1"], "interval": "1s"}}))
    agent.start()
    until_state(agent, "file", "warning", "from a file\n")
    answer = agent.put("/v1/agent/check/register", shell("exit 0"), expect=500)
    check(answer.decode().strip() == REMOTE, "over the API still refused: %r" % answer)


def scripts_run_and_survive_a_restart():
    agent = Agent("-enable-script-checks").start()
    mood = os.path.join(agent.dir, "mood")
    agent.put("/v1/agent/service/register", {"Name": "web", "Check": dict(shell("cat %s; exit $(cat %s)" % (mood, mood)), CheckID="c", Timeout="5s")})
    for code, status in (("0", "passing"), ("1", "warning"), ("2", "critical"), ("0", "passing")):
        with open(mood + ".new", "w") as f:
            f.write(code)
        os.rename(mood + ".new", mood)
        until_state(agent, "c", status, code)
        until("the catalog has it", lambda: [c["Status"] for c in agent.get("/v1/health/checks/web")[2]] == [status])
    check(agent.get("/v1/agent/checks")[2]["c"]["Type"] == "script", "its type")
    agent.stop()
    agent.start()
    with open(mood, "w") as f:
        f.write("1")
    until_state(agent, "c", "warning", "1")

    descriptors = agent.fd_count()
    agent.put("/v1/agent/check/register", shell("echo stuck; trap '' TERM; sleep 7601 & sleep 7601", CheckID="nasty", Timeout="300ms"))
    until_state(agent, "nasty", "critical", "Timed out (300ms) running check\n\nstuck\n")
    agent.put("/v1/agent/check/deregister/nasty")

    def children():
        with open("/proc/%d/task/%d/children" % (agent.proc.pid, agent.proc.pid)) as f:
            return f.read().split()
    until("nothing is left of its programs", lambda: children() == [] and agent.fd_count() <= descriptors)
    check(agent.stop()[0] == 0, "a clean end")

    agent.args = []
    agent.start()
    until_state(agent, "c", "critical", REMOTE)
    check("web" in agent.get("/v1/agent/services")[2], "the service stays")


def aliases_follow():
    agent = Agent(dev=True).start()
    agent.put("/v1/agent/service/register", {"Name": "front", "Check": {"CheckID": "a", "Name": "behind", "AliasService": "back"}})
    until_state(agent, "a", "critical", "Service back could not be found on node " + agent.name)
    agent.put("/v1/agent/service/register", {"Name": "back", "Check": {"CheckID": "b", "Name": "beat", "TTL": "10m"}})
    until_state(agent, "a", "critical", 'Aliased check "beat" failing: ')
    agent.put("/v1/agent/check/pass/b")
    until_state(agent, "a", "passing", "All checks passing.")
    until("DNS has it", lambda: agent.dig_short("front.service.coord") != [])
    agent.put("/v1/agent/check/fail/b?note=out+of+beer")
    until_state(agent, "a", "critical", 'Aliased check "beat" failing: out of beer')
    until("DNS drops it", lambda: agent.dig_short("front.service.coord") == [])
    agent.put("/v1/catalog/register", {"Node": "far", "Address": "10.0.0.7", "Service": {"Service": "db"}, "Check": {"CheckID": "d", "Name": "d", "ServiceID": "db", "Status": "warning", "Output": "slow"}})
    agent.put("/v1/agent/check/register", {"Name": "far", "AliasNode": "far", "AliasService": "db"})
    until_state(agent, "far", "warning", 'Aliased check "d" failing: slow')


def aliases_follow_other_nodes_from_a_client_agent():
    server = Agent().start()
    server.put("/v1/agent/service/register", {"Name": "db", "Check": {"CheckID": "d", "Name": "beat", "TTL": "10m", "Status": "passing"}})
    client = Agent("-retry-join=" + server.ip, server=False, name="c1").start()
    client.put("/v1/agent/service/register", {"Name": "front", "Check": {"CheckID": "a", "AliasNode": server.name, "AliasService": "db", "Status": "passing"}})
    until_state(client, "a", "passing", "All checks passing.")
    passing = lambda agent: [c["Status"] for c in agent.get("/v1/health/checks/front")[2]] == ["passing"]
    until("the catalog has it", lambda: passing(server))
    took = []
    for _ in range(5):
        for word, status, output in (("fail", "critical", 'Aliased check "beat" failing: '), ("pass", "passing", "All checks passing.")):
            begun = time.monotonic()
            server.put("/v1/agent/check/%s/d" % word)
            until_state(client, "a", status, output, within=1)
            until("the servers have it", lambda: passing(server) == (status == "passing"), within=1)
            took.append(time.monotonic() - begun)
    print("     an alias followed within %.0f to %.0f ms" % (1000 * min(took), 1000 * max(took)), flush=True)

    server.put("/v1/agent/service/deregister/db")
    until_state(client, "a", "critical", "Service db could not be found on node " + server.name, within=1)
    server.put("/v1/agent/service/register", {"Name": "db", "Check": {"CheckID": "d", "Name": "beat", "TTL": "10m", "Status": "passing"}})
    until_state(client, "a", "passing", "All checks passing.", within=1)
    server.stop()
    server.start()                                               # for the alias it was never away
    server.put("/v1/agent/check/fail/d?note=again")
    until_state(client, "a", "critical", 'Aliased check "beat" failing: again')
    check(client.proc.poll() is None, "the client agent lives")
    check(client.stop()[0] == 0, "a clean end with the question out")


def units_are_asked_of_systemd():
    agent = Agent(dev=True)
    folder = os.path.join(agent.dir, "bin")
    os.mkdir(folder)
    with open(os.path.join(folder, "systemctl"), "w") as f:
        f.write('#!/bin/sh\nfor unit; do :; done\ncat %s/$unit\n' % folder)
    os.chmod(os.path.join(folder, "systemctl"), 0o755)
    with open(os.path.join(folder, "web"), "w") as f:
        f.write("LoadState=loaded\nActiveState=active\nSubState=running\n")
    os.environ["PATH"], path = folder + ":" + os.environ["PATH"], os.environ["PATH"]
    try:
        agent.start()
    finally:
        os.environ["PATH"] = path
    agent.put("/v1/agent/check/register", {"Name": "u", "OSService": "web", "Interval": "1s"})
    until_state(agent, "u", "passing", 'Service "web" is healthy')
    with open(os.path.join(folder, "web"), "w") as f:
        f.write("LoadState=loaded\nActiveState=failed\nSubState=failed\n")
    until_state(agent, "u", "critical", "service status: failed (failed) - OS Service unhealthy")
    os.remove(os.path.join(folder, "web"))
    until("systemd is gone", lambda: state(agent, "u")[1].startswith('systemd cannot be asked about service "web": cat: '))
    answer = agent.put("/v1/agent/check/register", {"Name": "u", "OSService": "-H", "Interval": "1s"}, expect=400)
    check(b'OSService: "-H" is no name of a unit' in answer, "the refusal: %r" % answer)


def flapping_is_held():
    agent, window = Agent(dev=True), round(2 + 2 * SLOW)
    agent.args = [config_file(agent, {"coord": {"check_flap_limit": 3, "check_flap_window": "%ds" % window}})]
    agent.start()
    agent.put("/v1/agent/check/register", {"Name": "f", "TTL": "10m", "Status": "passing"})
    held = "Held as critical: more than 3 changes of state within %ds (check_flap_limit). It is passing now. Output: up" % window

    def in_the_catalog():
        return [(c["Status"], c["Output"]) for c in agent.get("/v1/health/node/" + agent.name)[2] if c["CheckID"] == "f"]

    def is_held():
        """Seen here and in the catalog. False: not within the window, as when the machine stood still for so long."""
        begun = time.monotonic()
        for _ in range(3):
            agent.put("/v1/agent/check/fail/f?note=down")
            agent.put("/v1/agent/check/pass/f?note=up")
        if state(agent, "f") == ("critical", held):
            while time.monotonic() < begun + window:
                if in_the_catalog() == [("critical", held)]:
                    return True
                time.sleep(0.02)
        until_state(agent, "f", "passing", "up")
        return False
    check(any(is_held() for _ in range(3)), "held, and the catalog says why: %r, %r" % (state(agent, "f"), in_the_catalog()))
    until_state(agent, "f", "passing", "up")


if __name__ == "__main__":
    run([scripts_are_refused_unless_enabled, scripts_from_files_only, scripts_run_and_survive_a_restart, aliases_follow, aliases_follow_other_nodes_from_a_client_agent,
         units_are_asked_of_systemd, flapping_is_held])
