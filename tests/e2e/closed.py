"""A closed cluster on loopback addresses: `coord init`, `coord join`, and agents that start from what these left."""
import atexit, os, re, subprocess, tempfile
from coordtest import COORD, SLOW, Agent, check, settings, until

SPREAD = settings(renewal_spread="2s")   # as long as nodes take to renew after a rotation


FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


class faked(dict):
    """The environment of processes whose wall clock is set by a test; timers go on as they are. Empty where that is not possible."""

    def __init__(self):
        if not os.path.exists(FAKETIME) or SLOW > 1:     # sanitizers bring clocks of their own
            return
        handle, self.path = tempfile.mkstemp(prefix="coord-e2e-time-")
        os.close(handle)
        atexit.register(os.remove, self.path)
        super().__init__(LD_PRELOAD=FAKETIME, FAKETIME_TIMESTAMP_FILE=self.path, FAKETIME_NO_CACHE="1", FAKETIME_DONT_FAKE_MONOTONIC="1")
        self.set(0)

    def set(self, day):
        self.day = day
        with open(self.path + ".new", "w") as f:
            f.write("+%dd" % day)
        os.replace(self.path + ".new", self.path)


class Member(Agent):
    """A node of a closed cluster: `coord agent` starts from what `coord init` or `coord join` left."""

    def __init__(self, *args, environment=None, **more):
        super().__init__(*args, **more)
        self.environment = environment

    def argv(self):
        return [COORD, "agent", "-data-dir", self.data, "-client", self.ip, SPREAD] + self.args


def command(*args, code=0, within=60, environment=None):
    r = subprocess.run([COORD, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within * SLOW, env=dict(os.environ, **(environment or {})))
    check(r.returncode == code, "coord %s: exit %d: %s" % (" ".join(args[:4]), r.returncode, r.stdout + r.stderr))
    return r.stdout + r.stderr


def found(member, *words):
    """Makes a cluster, whose first server this is; what the command says. The member asks with the token of the operator, if there is one."""
    said = command("init", "-data-dir", member.data, "-bind", member.ip, "-node", member.name, *words, environment=member.environment)
    path = os.path.join(member.data, "management.token")
    if os.path.exists(path):
        with open(path) as f:
            member.management = f.read().strip()
    return said


def join(token, server, name, code=0, member=None):
    """A host that shows the token; with the code 1 it is refused, and what the command says is returned."""
    member = member or Member(name=name, server=False)
    said = command("join", "-data-dir", member.data, "-bind", member.ip, "-node", name, "-timeout", "20s", token, server.ip, code=code,
                   environment=member.environment)
    member.management = server.management
    return said if code else member


class Closed:
    """One server and one client agent."""

    def __init__(self, name, server=None, agent=None):
        self.server = server or Member(name=name + "-s1")
        said = found(self.server)
        self.tokens = re.findall(r"coord1[sa]\.\S+", said)
        check(len(self.tokens) == 2, said)
        self.server.start()
        until("the cluster is closed", lambda: self.server.get("/v1/secure")[2]["Mode"] == "closed")
        self.agent = join(self.tokens[1], self.server, name + "-a1", member=agent).start()

    def certificate(self, name):
        return next((c for c in self.server.get("/v1/certificates")[2] if c["Node"] == name), None)

    def cas(self):
        """The pins of the CAs that the cluster trusts, the newest first."""
        return [ca["Pin"] for ca in self.server.get("/v1/ca")[2]["CAs"]]


def kept(member, name):
    """The content of a file of its folder of certificates."""
    with open(os.path.join(member.data, "tls", name), "rb") as f:
        return f.read()
