"""Patroni with PostgreSQL on three hosts, each with a client agent of a cluster of three servers: the loss of the leading server costs the primary
nothing; the loss of the primary's host gives another primary, when coord's session of it has ended.

Needs patroni (its path in COORD_PATRONI; python3-psycopg2 and others come with it) and PostgreSQL (the folder of its programs in COORD_POSTGRES).
Patroni's own shortest TTL makes the sessions' 10 s.
"""
import glob, os, pwd, shutil, signal, subprocess, sys, tempfile, threading, time
import atexit, http.client, json
from coordtest import SLOW, Cluster, check, run, until

PATRONI = os.environ.get("COORD_PATRONI") or shutil.which("patroni")
POSTGRES = os.environ.get("COORD_POSTGRES") or max(glob.glob("/usr/lib/postgresql/*/bin"), default="", key=lambda p: int(p.split("/")[4]))
KILLS = min(3, int(os.environ.get("COORD_TEST_KILLS", "3")))
SCOPE = "db"
SESSION_TTL = 10.0
now = time.monotonic


def missing():
    """What is not there, or None."""
    if not PATRONI or not os.path.exists(PATRONI):
        return "no patroni program (COORD_PATRONI)"
    if not os.path.exists(os.path.join(POSTGRES, "initdb")):
        return "no PostgreSQL (COORD_POSTGRES: the folder with initdb)"
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        return "no setpriv: PostgreSQL does not run as root"
    return None


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "PATRONI_"))}
    beside = os.path.join(os.path.dirname(PATRONI), "../lib/python3/dist-packages")        # an unpacked package
    if os.path.isdir(beside):
        env["PYTHONPATH"] = os.path.abspath(beside)
    return env


class Host:
    """A client agent, a Patroni and its PostgreSQL, on one address."""

    def __init__(self, cluster, name):
        self.name, self.agent = name, cluster.agent(name).start()
        self.ip = self.agent.ip
        self.dir = tempfile.mkdtemp(prefix="coord-patroni-")
        self.data = os.path.join(self.dir, "pg")
        self.log_path = os.path.join(self.dir, "log")
        self.proc = None
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self.user:
            os.chown(self.dir, self.user.pw_uid, self.user.pw_gid)
        atexit.register(self.cleanup)

    def settings(self):
        return {
            "scope": SCOPE, "name": self.name,
            "restapi": {"listen": self.ip + ":8008", "connect_address": self.ip + ":8008"},
            "consul": {"host": self.ip + ":8500", "register_service": True, "service_check_interval": "1s"},
            "bootstrap": {
                "dcs": {"ttl": 2 * int(SESSION_TTL), "loop_wait": 1, "retry_timeout": 5, "maximum_lag_on_failover": 1 << 20},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "no-sync"]},
            "postgresql": {
                "listen": self.ip + ":5432", "connect_address": self.ip + ":5432", "data_dir": self.data, "bin_dir": POSTGRES,
                "pgpass": os.path.join(self.dir, "pgpass"),
                "authentication": {"superuser": {"username": "boss"}, "replication": {"username": "boss"}},
                "pg_hba": ["local all all trust", "host all all 127.0.0.0/8 trust", "host replication all 127.0.0.0/8 trust"],
                "parameters": {"unix_socket_directories": self.dir, "fsync": "off", "shared_buffers": "16MB", "max_connections": 20}}}

    def start(self):
        path = os.path.join(self.dir, "patroni.json")
        with open(path, "w") as f:
            json.dump(self.settings(), f)        # which is YAML as well
        argv = [PATRONI, path]
        if self.user:
            argv = ["setpriv", "--reuid=%d" % self.user.pw_uid, "--regid=%d" % self.user.pw_gid, "--clear-groups", "--pdeathsig=KILL", *argv]
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir, env=dict(environment(), HOME=self.dir))
        return self

    def log(self):
        with open(self.log_path, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def postmaster(self):
        """Its process id, when it is surely ours."""
        try:
            with open(os.path.join(self.data, "postmaster.pid")) as f:
                pid = int(f.readline())
            return pid if os.path.samefile("/proc/%d/cwd" % pid, self.data) else None
        except (OSError, ValueError):
            return None

    def kill(self):
        """The host is gone: all at once, nobody says good-bye."""
        pid = self.postmaster()
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
        if pid:
            os.kill(pid, signal.SIGKILL)
        self.agent.kill()
        if self.proc:
            self.proc.wait()

    def cleanup(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        pid = self.postmaster()
        if pid:
            os.kill(pid, signal.SIGQUIT)
            end = now() + 10
            while self.postmaster() and now() < end:
                time.sleep(0.05)
        shutil.rmtree(self.dir, ignore_errors=True)

    def status(self):
        """What Patroni says of itself; {} when it does not answer."""
        c = http.client.HTTPConnection(self.ip, 8008, timeout=3)
        try:
            c.request("GET", "/patroni")
            return json.loads(c.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        finally:
            c.close()

    def sql(self, words, timeout=5):
        """The answer's text, or None."""
        try:
            r = subprocess.run([os.path.join(POSTGRES, "psql"), "-XAtq", "-h", self.ip, "-U", "boss", "-d", "postgres", "-c", words], text=True,
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, env=dict(environment(), PGCONNECT_TIMEOUT="3"))
        except subprocess.TimeoutExpired:
            return None
        return r.stdout.strip() if r.returncode == 0 else None


class Writer:
    """Inserts into the primary, one row after the other, and remembers which were acknowledged and which failed."""

    def __init__(self, host):
        self.host, self.acknowledged, self.failed, self.stopping = host, [], [], False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        number = 0
        while not self.stopping:
            number += 1
            row = "%s-%d" % (self.host.name, number)
            (self.acknowledged if self.host.sql("insert into rows values ('%s')" % row) is not None else self.failed).append(row)
            time.sleep(0.05)

    def stop(self):
        self.stopping = True
        self.thread.join(20)


def leader_key(agent):
    """(whose it is, its session, LockIndex, CreateIndex), or None."""
    status, _, found = agent.get("/v1/kv/service/%s/leader" % SCOPE)
    if status != 200:
        return None
    import base64
    item = found[0]
    return base64.b64decode(item["Value"]).decode(), item.get("Session"), item["LockIndex"], item["CreateIndex"]


def all_stream(hosts):
    """The primary, when there is one and the others follow it."""
    states = {h: h.status() for h in hosts}
    primaries = [h for h, s in states.items() if s.get("role") == "master" and s.get("state") == "running"]
    if len(primaries) != 1:
        return None
    return primaries[0] if len(states[primaries[0]].get("replication", [])) == len(hosts) - 1 else None


def seen_since(host, moment):
    """Its Patroni has had an answer since; it tells whole seconds."""
    return host.status().get("dcs_last_seen", 0) > moment + 1


def nobody_notices(primary, trouble):
    """Rows are written during the trouble; none fails, and the primary stays what it is by the same session."""
    before, timeline = leader_key(primary.agent), primary.status()["timeline"]
    check(before[0] == primary.name and before[1] and before[2] == 1, "the primary's key: %r" % (before,))
    writer = Writer(primary)
    trouble()
    writer.stop()
    check(len(writer.acknowledged) > 3 and not writer.failed, "%d writes, failed: %r" % (len(writer.acknowledged), writer.failed))
    after = leader_key(primary.agent)
    check(after == before, "its key is the same: %r, %r" % (before, after))
    status = primary.status()
    check(status["role"] == "master" and status["timeline"] == timeline, "the same primary: %r" % status)
    check("demot" not in primary.log(), primary.log()[-3000:])
    print("     %s: %d writes, none failed" % (trouble.__doc__, len(writer.acknowledged)), flush=True)


def the_leading_server_is_lost(cluster, hosts):
    def trouble():
        """the leading server killed again and again"""
        for _ in range(KILLS):
            leader = cluster.leader()
            leader.kill()
            killed = time.time()
            until("a change of leader", lambda: any(s.get("/v1/status/leader")[2] not in ("", leader.ip + ":8300")
                                                    for s in cluster.servers if s is not leader))
            for host in hosts:
                until("%s works with the next leader" % host.name, lambda: seen_since(host, killed), 20)
            leader.start()
    return trouble


def its_agent_is_lost(primary):
    def trouble():
        """the primary's agent killed and started again"""
        primary.agent.kill()
        killed = time.time()
        primary.agent.start()
        until("Patroni works with it again", lambda: seen_since(primary, killed), 20)
    return trouble


def discovered(agent, tag):
    return sorted(agent.dig_short("%s.%s.service.coord" % (tag, SCOPE)))


def the_primary_is_lost(cluster, hosts, primary):
    others = [h for h in hosts if h is not primary]
    until("DNS names the primary", lambda: discovered(others[0].agent, "master") == [primary.ip])
    until("and the others", lambda: discovered(others[0].agent, "replica") == sorted(h.ip for h in others))
    check(primary.sql("insert into rows values ('last')") is not None, "a last row")
    position = primary.sql("select pg_current_wal_lsn()")
    for h in others:
        until("it is everywhere", lambda: h.sql("select pg_last_wal_replay_lsn() >= '%s'" % position) == "t")
    old = leader_key(others[0].agent)
    killed = now()
    primary.kill()
    new = until("another primary", lambda: next((h for h in others if h.status().get("role") == "master" and h.sql("select pg_is_in_recovery()") == "f"), None), 40)
    took = now() - killed
    key = leader_key(new.agent)
    check(key[0] == new.name and key[1] != old[1], "its key: %r" % (key,))
    check(old[1] not in [s["ID"] for s in new.agent.get("/v1/session/list")[2]], "the session of the dead is over")
    check(new.sql("select count(*) from rows where row = 'last'") == "1", "with all rows")
    check(new.sql("insert into rows values ('after')") is not None, "it takes writes")
    until("DNS names the new one", lambda: discovered(new.agent, "master") == [new.ip])
    dns = now() - killed
    follower = next(h for h in others if h is not new)
    until("the third follows it", lambda: follower.sql("select count(*) from rows where row = 'after'") == "1", 30)
    print("     another primary %.1f s after the host of the first was lost (sessions of %.0f s), in DNS after %.1f s" % (took, SESSION_TTL, dns), flush=True)
    # The last renewal was up to loop_wait before; then the session's time, coord's second, Patroni's turn and the promotion.
    check(SESSION_TTL - 2 < took < (SESSION_TTL + 6) * SLOW, "by the session's end: %.1f s" % took)


def primary_and_two_that_follow():
    cluster = Cluster(3).start()
    hosts = [Host(cluster, "p%d" % i) for i in (1, 2, 3)]
    try:
        for h in hosts:
            h.start()
        primary = until("a primary and two that follow it", lambda: all_stream(hosts), 60)
        check(primary.sql("create table rows (row text)") is not None, "a table")
        nobody_notices(primary, the_leading_server_is_lost(cluster, hosts))
        nobody_notices(primary, its_agent_is_lost(primary))
        the_primary_is_lost(cluster, hosts, primary)
    except AssertionError:
        for h in hosts:
            print("---- %s\n%s" % (h.name, h.log()[-2500:]), file=sys.stderr)
        raise


if __name__ == "__main__":
    why = missing()
    if why:
        print("skipped: " + why)
        sys.exit(77)
    run([primary_and_two_that_follow])
