"""The consul command line at client agents: members, catalog, keys, locks, watches, services, maintenance.

Needs a consul program (its path in COORD_CONSUL or CONSUL_BIN).
"""
import os, shutil, subprocess, sys, tempfile
from coordtest import SLOW, Cluster, check, run, until

CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")


def environment(agent):
    return dict(os.environ, CONSUL_HTTP_ADDR="http://%s:8500" % agent.ip)


def consul(agent, *args, code=0, stdin=None):
    r = subprocess.run([CONSUL, *args], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60 * SLOW, env=environment(agent))
    check(r.returncode == code, "consul %s: exit %d, wanted %d: %s%s" % (" ".join(args), r.returncode, code, r.stdout, r.stderr))
    return r.stdout + r.stderr


def rows(text):
    lines = [line.split() for line in text.splitlines() if line]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


class Background:
    """A consul program that goes on; what it says."""

    def __init__(self, agent, *args):
        self.file = tempfile.TemporaryFile()
        self.proc = subprocess.Popen([CONSUL, *args], stdin=subprocess.DEVNULL, stdout=self.file, stderr=self.file, env=environment(agent))

    def said(self):
        return os.pread(self.file.fileno(), 1 << 20, 0).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(20)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()


def who_is_there(cluster, one, two):
    found = rows(consul(one, "members"))
    kinds = {m["Node"]: (m["Status"], m["Type"]) for m in found}
    check(kinds == {**{s.name: ("alive", "server") for s in cluster.servers}, **{a.name: ("alive", "client") for a in (one, two)}}, "%r" % found)
    check(sorted(n["Node"] for n in rows(consul(two, "catalog", "nodes"))) == ["a1", "a2", "s1", "s2", "s3"], "catalog nodes")
    check(consul(one, "catalog", "datacenters") == "dc1\n", "catalog datacenters")
    check("server = false" in consul(one, "info").replace("\t", ""), "info")


def keys(one, two):
    consul(one, "kv", "put", "cli/a", "one")
    consul(one, "kv", "put", "cli/b", "-", stdin="two\n")
    check(consul(two, "kv", "get", "cli/a") == "one\n" and consul(two, "kv", "get", "-recurse", "cli/") == "cli/a:one\ncli/b:two\n\n", "get")
    check(consul(two, "kv", "get", "-keys", "cli/") == "cli/a\ncli/b\n", "keys")
    exported = consul(two, "kv", "export", "cli/")
    consul(one, "kv", "delete", "-recurse", "cli/")
    consul(two, "kv", "get", "cli/a", code=1)
    consul(two, "kv", "import", "-", stdin=exported)
    check(consul(one, "kv", "get", "cli/b") == "two\n\n", "imported")
    index = next(line.split()[1] for line in consul(one, "kv", "get", "-detailed", "cli/a").splitlines() if line.startswith("ModifyIndex"))
    consul(two, "kv", "put", "-cas", "-modify-index=" + index, "cli/a", "2")
    consul(one, "kv", "put", "-cas", "-modify-index=" + index, "cli/a", "3", code=1)
    check(consul(one, "kv", "get", "cli/a") == "2\n", "check and set")


def locks(cluster, one, two):
    """Held through one agent, waited for through another, over the loss of the leading server."""
    with Background(one, "lock", "cli/lock", "echo first; exec sleep 300") as first:
        until("the first has it", lambda: "first" in first.said())
        found = one.get("/v1/kv/cli/lock/.lock")[2][0]
        check(found["Flags"] == 3304740253564472344 and found["Session"], "%r" % found)
        session = two.get("/v1/session/info/" + found["Session"])[2][0]
        check(session["Node"] == "a1" and session["TTL"] == "15s", "%r" % session)
        with Background(two, "lock", "cli/lock", "echo second") as second:
            until("the second waits", lambda: any(s["Node"] == "a2" for s in two.get("/v1/session/list")[2]))
            leader = cluster.leader()
            leader.kill()
            until("another leads", lambda: any(two.get("/v1/status/leader")[2] == s.ip + ":8300" for s in cluster.servers if s is not leader))
            leader.start(wait=False)
            check(two.get("/v1/kv/cli/lock/.lock")[2][0]["Session"] == found["Session"], "the first still has it")
            check(first.proc.poll() is None and second.proc.poll() is None and "second" not in second.said(), "%r %r" % (first.said(), second.said()))
            first.proc.terminate()
            until("the second gets it", lambda: "second" in second.said(), 30)
            check(second.proc.wait(20) == 0, second.said())
    until("all is tidied up", lambda: one.get("/v1/kv/cli/lock/.lock")[0] == 404 and one.get("/v1/session/list")[2] == [])
    with Background(one, "lock", "-n=2", "cli/semaphore", "echo in; exec sleep 300") as first, \
            Background(two, "lock", "-n=2", "cli/semaphore", "echo in; exec sleep 300") as second:
        until("two hold a semaphore", lambda: "in" in first.said() and "in" in second.said())
        with Background(two, "lock", "-n=2", "-timeout=1s", "cli/semaphore", "echo in") as third:
            check(third.proc.wait(30) != 0 and "in\n" not in third.said(), "a third does not: %r" % third.said())


def watches(one, two):
    consul(one, "kv", "put", "cli/watched", "before")
    with Background(two, "watch", "-type=key", "-key=cli/watched", "cat") as key, \
            Background(two, "watch", "-type=service", "-service=shop", "-passingonly=true", "cat") as service, \
            Background(two, "watch", "-type=services", "cat") as services, \
            Background(two, "watch", "-type=checks", "-state=critical", "cat") as checks:
        until("the first values", lambda: "YmVmb3Jl" in key.said() and "[]" in service.said() and "consul" in services.said())
        consul(one, "kv", "put", "cli/watched", "after")
        until("a key's change", lambda: "YWZ0ZXI=" in key.said())
        consul(one, "services", "register", "-name=shop", "-port=9001", "-tag=v1", "-meta=team=x")
        until("a new service", lambda: '"shop"' in service.said() and '"shop":["v1"]' in services.said().replace(" ", ""))
        consul(one, "maint", "-enable", "-service=shop", "-reason=cleaning")
        until("its trouble", lambda: "cleaning" in checks.said())
        until("which leaves nobody", lambda: service.said().rstrip().endswith("[]"))
        check("cleaning" in consul(one, "maint"), "maint")
        consul(one, "maint", "-disable", "-service=shop")
        until("it is back", lambda: service.said().rstrip().endswith("}]"))
        check("shop" in consul(two, "catalog", "services", "-tags"), "catalog services")
        check([n["Node"] for n in rows(consul(two, "catalog", "nodes", "-service=shop"))] == ["a1"], "catalog nodes -service")
        consul(one, "services", "deregister", "-id=shop")
        until("it is gone", lambda: "shop" not in consul(two, "catalog", "services"))


def everyday_work():
    cluster = Cluster(3).start()
    one, two = cluster.agent("a1").start(), cluster.agent("a2").start()
    who_is_there(cluster, one, two)
    keys(one, two)
    locks(cluster, one, two)
    watches(one, two)


if __name__ == "__main__":
    if not CONSUL or not os.path.exists(CONSUL):
        print("skipped: no consul program (COORD_CONSUL)")
        sys.exit(77)
    run([everyday_work])
