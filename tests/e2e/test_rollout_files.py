"""`coord rollout follow`, for programs that read files: the file is replaced whole, a command that fails refuses the version, nothing is lost while
servers are away."""
import os, signal, stat, subprocess, tempfile
from coordtest import COORD, SLOW, STANDSTILL, Cluster, check, run, until
from test_rollouts import change, publish, stage, status
from waiters import want

FAILS = "the command ended with 1"


class Follow:
    """It runs in a folder of its own, where the file is web.json and what its command says is in `log`."""

    def __init__(self, agent, id, command, *more):
        self.folder = tempfile.mkdtemp()
        self.errors = open(os.path.join(self.folder, "errors"), "w+")
        words = [COORD, "rollout", "follow", "-http-addr=%s:8500" % agent.ip, "-id", id, "-node", "a1", "-out", "web.json", "-exec", command, *more, "web"]
        self.process = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=self.errors)

    def read(self, name="web.json"):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return ""
        with open(path) as f:
            return f.read()

    def has(self, version):
        until("the file has " + version, lambda: self.read() == '{"v": "%s"}' % version, 60)

    def end(self):
        self.process.kill()
        self.process.wait()


def counted(agent, version):
    """(Ok, Refused)"""
    return next(((v["Ok"], v["Refused"]) for v in status(agent, "web")["Versions"] if v["Version"] == version), (0, 0))


def a_lost_server():
    """On a client agent, over a time without a server: the file stays, and follows afterwards."""
    cluster = Cluster(1).start()
    server = cluster.servers[0]
    agent = cluster.agent("a1").start(wait=False).wait_leader(30)
    publish(server, "web", "v1", "v2", "v3")
    stage(server, "web", "v1")
    follow = Follow(agent, "f1", "echo $COORD_ROLLOUT $COORD_ROLLOUT_VERSION >> log; ! grep -q v2 web.json")
    try:
        follow.has("v1")
        os.chmod(os.path.join(follow.folder, "web.json"), 0o640)
        stage(server, "web", "v2", Match={"Nodes": ["a1"]})
        follow.has("v2")
        refused = until("it is refused", lambda: status(server, "web")["Refusals"], 20)
        check(refused[0]["ID"] == "f1" and refused[0]["Reason"] == FAILS and counted(server, "v2") == (0, 1), refused)
        server.kill()
        until("nobody answers", lambda: agent.request("GET", "/v1/rollout/web?id=other", timeout=60)[0] == 500, 30)
        check(follow.read() == '{"v": "v2"}', "the file stays")
        server.start()
        stage(server, "web", "v3")
        follow.has("v3")
        until("it is acknowledged", lambda: counted(server, "v3") == (1, 0), 60)
        check(follow.read("log") == "web v1\nweb v2\nweb v3\n", follow.read("log"))
        check(sorted(os.listdir(follow.folder)) == ["errors", "log", "web.json"] and follow.process.poll() is None, os.listdir(follow.folder))
        check(stat.S_IMODE(os.stat(os.path.join(follow.folder, "web.json")).st_mode) == 0o640, "who may read it stays the same")
    finally:
        follow.end()


def acknowledgements_are_not_lost():
    server = Cluster(1).start().servers[0]
    publish(server, "web", "v1", "v2")
    stage(server, "web", "v1")
    follow = Follow(server, "f1", "echo $COORD_ROLLOUT_VERSION >> log; grep -q v1 web.json || while ! test -e go; do sleep 0.05; done")
    try:
        follow.has("v1")
        stage(server, "web", "v2", Match={"Nodes": ["a1"]}, Guard={"MaxFailing": 0.5})
        until("the command runs", lambda: follow.read("log") == "v1\nv2\n", 20)
        server.kill()                                # before it can be acknowledged
        open(os.path.join(follow.folder, "go"), "w").close()
        until("no server takes it", lambda: "acknowledging" in follow.read("errors"), 20)
        server.start()
        until("it is acknowledged", lambda: counted(server, "v2") == (1, 0), 30)

        # A stage that came and went while nobody asked: the version is the same, and yet has to be acknowledged anew.
        follow.process.send_signal(signal.SIGSTOP)
        server.kill()
        server.start()
        change(server, "web", "rollback")
        stage(server, "web", "v2", Match={"Nodes": ["a1"]}, Guard={"MaxFailing": 0.5})
        check(status(server, "web")["Judgement"]["Samples"] == 0, "nobody has said anything of this stage")
        follow.process.send_signal(signal.SIGCONT)
        until("it is acknowledged again", lambda: status(server, "web")["Judgement"]["Samples"] == 1, 20)
        check(follow.read("log") == "v1\nv2\n", "and is not run again: %r" % follow.read("log"))
    finally:
        follow.end()
    for command, code in (("true", 0), ("false", 1)):
        follow = Follow(server, "once-" + command, command, "-once")
        check(follow.process.wait(30 * SLOW + STANDSTILL) == code and follow.read() == '{"v": "v2"}', command)
    check(want(server, "GET", "/v1/rollout/web/status")["Refusals"][0]["Reason"] == FAILS, "the last one has refused it")


if __name__ == "__main__":
    run([a_lost_server, acknowledgements_are_not_lost])
