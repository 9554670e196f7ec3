"""What the pages speak of: agents that run, programs and folders that a reader has. A page without a row here has a fresh `coord agent -dev`."""
import os, pwd, shutil, socket, subprocess
from coordtest import COORD, Agent, settings, until
from pace import CONFESSIONS
from blocks import Skip, Wrong

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# As it is, but an answer that refuses is a failure (4xx, 5xx), unless the page says -f itself, and there is no meter between the lines.
CURL = """#!/bin/sh
fail=--fail-with-body
for word; do
    case $word in --fail* | -[!-]*f* | -f*) fail= ;; esac
done
exec %s --silent --show-error $fail "$@"
"""


class World:
    """One agent on a host of its own, at the ports that everybody knows."""
    name, arguments = "web1", []

    def __init__(self, work):
        """`work`: the folder in which the page's blocks are run. What pages call by its path in the repository is there."""
        self.work, self.agents = work, []
        os.makedirs(os.path.join(work, "build"))
        os.symlink(os.path.abspath(COORD), os.path.join(work, "build/coord"))
        for name in ("docs", "deploy", "tests"):
            os.symlink(os.path.join(ROOT, name), os.path.join(work, name))

    def environment(self):
        path = os.path.dirname(self.work) + "/bin"
        os.makedirs(path)
        with open(path + "/curl", "w") as f:
            f.write(CURL % shutil.which("curl"))
        os.chmod(path + "/curl", 0o755)
        os.symlink(os.path.abspath(COORD), path + "/coord")
        words = {k: v for k, v in os.environ.items() if not k.startswith(("COORD_HTTP", "CONSUL_"))}
        return dict(words, PATH=path + os.pathsep + os.environ["PATH"], HOME=self.work, LC_ALL="C.UTF-8")

    def agent(self, *arguments, ip="127.0.0.1", here=False, wait=True, data=None, **more):
        """Starts one at that address; `here`: it is the one at localhost, too. `data`: its folder."""
        if ip != "127.0.0.1":
            subprocess.run(["ip", "address", "replace", ip + "/32", "dev", "lo"], check=True)
        self.agents.append(Agent(*["-client=%s 127.0.0.1" % ip] * here, *arguments, ip=ip, **more))
        self.agents[-1].data = data or self.agents[-1].data
        return self.agents[-1].start(wait=wait)

    def program(self, name, text="exit 0"):
        """A program of the reader's own, in his folder."""
        path = os.path.join(self.work, name)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n%s\n" % text)
        os.chmod(path, 0o755)

    def start(self):
        self.agent(*self.arguments, dev=True, name=self.name)

    def linked(self, regions):
        """Whether so many regions reach each other."""
        seen = [a.get("/v1/global/regions")[2] for a in self.agents]
        return all(len(s) == regions and all(r["Reachable"] for r in s) for s in seen)

    def before(self, block):
        """What has happened when a reader comes to this block."""

    def end(self):
        """All ends as it should."""
        for agent in self.agents:
            if agent.proc.poll() is None and agent.stop(within=20)[0] != 0:
                raise Wrong("%s does not end well:\n%s" % (agent.name, agent.log()[-3000:]))
            if any(word in agent.log() for word in CONFESSIONS):
                raise Wrong("%s reports a fault:\n%s" % (agent.name, agent.log()[-3000:]))

    def kill(self):
        for agent in self.agents:
            agent.kill()
            agent.cleanup()


class Readme(World):
    name = "laptop"


class Coordination(World):
    def start(self):
        super().start()
        for name in ("backup.sh", "upload.sh", "report.sh", "primary.sh", "load.sh"):
            self.program(name)


class Rollouts(World):
    """Other regions have a server each."""

    def start(self):
        for region, ip in (("eu", "10.1.0.1"), ("us", "10.2.0.1"), ("ap", "10.3.0.1")):
            self.agent("-datacenter=" + region, *["-retry-join-wan=10.1.0.1"] * (region != "eu"), ip=ip, here=region == "eu", name=region + "1")
        until("regions know each other", lambda: self.linked(3))

    def before(self, block):
        if "v37" in block.text:                        # a stage that has been under way for some minutes
            here = self.agents[0]
            here.put("/v1/rollout/web/promote")
            for version in ("v35", "v36", "v37"):
                here.put("/v1/rollout/web/versions/" + version, {"Color": version})
            for version in ("v35", "v36"):
                here.put("/v1/rollout/web/current", {"Version": version})
            here.put("/v1/catalog/register", {"Node": "n9", "Address": "10.1.0.9", "Service": {"Service": "api"}})
            here.put("/v1/rollout/web/current", {
                "Version": "v37", "Comment": "greener", "Steps": [{"Percent": 10, "Hold": "5m"}, {"Percent": 50, "Hold": "10m"}],
                "Guard": {"Service": "api", "MaxFailing": 0.02, "MinSamples": 50, "OnFail": "rollback"}})
            refuse = (5, 6, 17)
            for i in [i for i in range(500) if i not in refuse] + list(refuse):
                said = "version=v37&ok=false&reason=cannot+parse+it" if i in refuse else "version=v37" if i < 415 else "version=v36"
                here.put("/v1/rollout/web/ack?id=web-%d&node=n1&%s" % (i, said))


class Operating(World):
    """Three servers. Those who come to the runbooks of stopped ones have stopped them."""
    STOPPED = ("The majority is lost for good", "The state or the log is damaged")

    def start(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/lib"], check=True)
        for i in (1, 2, 3):
            joins = ["-retry-join=10.0.0.%d" % other for other in (1, 2, 3) if other != i]
            self.agent("-server", "-bootstrap-expect=3", *joins, ip="10.0.0.%d" % i, here=i == 1, data="/var/lib/coord" if i == 1 else None,
                       name="s%d" % i, server=False, wait=False)
        self.wait()

    def wait(self):
        for agent in self.agents:
            agent.wait_leader(30)
        until("all are well", lambda: self.agents[0].request("GET", "/v1/operator/autopilot/health")[0] == 200)

    def before(self, block):
        running = self.agents[0].proc.poll() is None
        if running and block.section in self.STOPPED:
            for agent in self.agents:
                agent.stop()
        if not running and block.section not in self.STOPPED:
            for agent in self.agents:
                agent.start(wait=False)
            self.wait()


class Regions(World):
    """eu, here, of one server; us of three. What runs in them is told as the page goes on."""

    def start(self):
        keeps = settings(failover_return="1h")         # so that what is shown while a service is away lasts
        self.agent("-datacenter=eu", keeps, ip="10.1.0.1", here=True, name="e1")
        self.us = self.agent("-datacenter=us", ip="10.2.0.3", name="u3")
        for i in (1, 2):
            self.agent("-server", "-datacenter=us", "-retry-join=10.2.0.3", ip="10.2.0.%d" % i, name="u%d" % i, server=False)

    def register(self, agent, id, status):
        agent.put("/v1/agent/service/register", {"Name": "api", "ID": id, "Check": {"CheckID": id, "TTL": "1h", "Status": status}})

    def before(self, block):
        here = self.agents[0]
        if block.section == "Failover" and block.language == "console":
            for id in ("api-1", "api-2"):
                self.register(self.us, id, "passing")
                self.register(here, id, "passing")
            until("eu has its own", lambda: len(here.get("/v1/health/service/api?passing")[2]) == 2)
            until("us as well", lambda: len(here.get("/v1/health/service/api?passing&dc=us")[2]) == 2)
            for id in ("api-1", "api-2"):
                here.put("/v1/agent/check/fail/" + id)
            until("us answers", lambda: here.request("GET", "/v1/health/service/api?failover")[1].get("X-Coord-Region") == "us")
            here.put("/v1/agent/check/pass/api-1")
        if block.section == "Keys of another region":
            for i in range(3):
                self.us.put("/v1/kv/app/config/%d" % i, "x")


class Deploy(World):
    """A host where nothing of coord is installed; the folders of the system may be written to."""

    def start(self):
        if os.getuid() or open("/proc/self/uid_map").read().split()[2] == "1":
            raise Skip("only root can add users")
        layers = os.path.join(os.path.dirname(self.work), "layers")
        os.mkdir(layers)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layers], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/var/lib"], check=True)
        for i, folder in enumerate(("/etc", "/usr/bin")):
            upper, work = ("%s/%d-%s" % (layers, i, name) for name in ("upper", "work"))
            os.mkdir(upper), os.mkdir(work)
            if subprocess.run(["mount", "-t", "overlay", "-o", "lowerdir=%s,upperdir=%s,workdir=%s" % (folder, upper, work), "overlay", folder]).returncode:
                raise Skip("no overlays for folders of the system")

    def end(self):
        """What systemd would do: the words of the unit that was installed start a server, as its user."""
        with open("/etc/systemd/system/coord.service") as f:
            unit = dict(line.strip().split("=", 1) for line in f if "=" in line and not line.startswith("#"))
        user = pwd.getpwnam(unit["User"])
        folder = "/var/lib/" + unit["StateDirectory"]
        os.mkdir(folder, int(unit["StateDirectoryMode"], 8))
        os.chown(folder, user.pw_uid, user.pw_gid)
        unit_agent = Agent(ip="127.0.0.1", name=socket.gethostname())
        unit_agent.argv = lambda: ["setpriv", "--reuid", unit["User"], "--regid", unit["Group"], "--init-groups", *unit["ExecStart"].split()]
        self.agents.append(unit_agent.start())
        super().end()


WORLDS = {"README.md": Readme, "deploy/README.md": Deploy, "docs/coordination.md": Coordination, "docs/rollouts.md": Rollouts,
          "docs/operating.md": Operating, "docs/regions.md": Regions}


def world_of(page):
    return WORLDS.get(page, World)
