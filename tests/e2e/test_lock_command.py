"""coord lock, as a user of it: exit codes, signals, and that no two commands ever run under one lock, whoever is killed, stopped or cut off."""
import json, os, pty, re, select, signal, subprocess, sys, tempfile, threading, time
from coordtest import COORD, SLOW, Agent, Cluster, check, configuration, run, until

now = time.monotonic
TTL = max(3, 2 * SLOW)
SHORT = "-ttl=%ds" % TTL
FOLDER = tempfile.TemporaryDirectory(prefix="coord-lock-")

# A command that notes every few milliseconds under which token it lives: WORK FILE SECONDS [stubborn] [fork] [until=FILE]. "stubborn" ignores TERM,
# "fork" has a child do the same, with "until" it also goes on until there is that file.
WORK = """
import os, signal, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "fork" in sys.argv: os.fork()
end = time.monotonic() + float(sys.argv[2])
told = [word[6:] for word in sys.argv if word.startswith("until=")]
while time.monotonic() < end or not all(map(os.path.exists, told)):
    os.write(out, b"%s %d %.6f\\n" % (os.environb[b"COORD_FENCING_TOKEN"], os.getpid(), time.monotonic()))
    time.sleep(0.005)
"""


class Notes:
    """What such commands wrote."""

    def __init__(self, name):
        self.path = os.path.join(FOLDER.name, name)

    def command(self, seconds, *how):
        return ["--", sys.executable, "-c", WORK, self.path, str(seconds), *how]

    def until_told(self, seconds, who):
        """So long at least, and until end(who)."""
        return self.command(seconds, "until=%s.%s" % (self.path, who))

    def end(self, who):
        open("%s.%s" % (self.path, who), "w").close()

    def read(self):
        """(token, process, time), in the order of the tokens"""
        try:
            with open(self.path) as f:
                lines = [line.split() for line in f.read().splitlines()]
        except FileNotFoundError:
            return []
        return sorted((int(token), int(pid), float(at)) for token, pid, at in lines)

    def tokens(self):
        return sorted({token for token, _, _ in self.read()})

    def check_apart(self, holders):
        """No two tokens at one time, and the smaller ones earlier."""
        spans = {}
        for token, _, at in self.read():
            first, last = spans.get(token, (at, at))
            spans[token] = (min(first, at), max(last, at))
        check(len(spans) == holders, "%d holders: %r" % (holders, spans))
        for a, b in zip(sorted(spans), sorted(spans)[1:]):
            check(spans[a][1] < spans[b][0], "tokens %d and %d at one time: %r" % (a, b, spans))
        return [spans[token] for token in sorted(spans)]


class Lock:
    """A `coord lock` that runs."""

    def __init__(self, agent, *args, command="lock", **kw):
        self.proc = subprocess.Popen([COORD, command, "-http-addr=%s:8500" % agent.ip, *args], stdin=kw.pop("stdin", subprocess.DEVNULL),
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)

    def kill(self, sig):
        self.proc.send_signal(sig)

    def hear(self, count, within=20):
        """So many lines of its output, before it ends."""
        return hear(self.proc.stdout.fileno(), lambda text: text.count(b"\n") >= count, within).decode().splitlines()

    def end(self, within=20):
        """(exit code, stdout, stderr)"""
        out, err = self.proc.communicate(timeout=within * SLOW)
        return self.proc.returncode, out, err


def hear(fd, enough, within=20):
    """What comes until it is enough."""
    text = b""

    def more():
        nonlocal text
        if select.select([fd], [], [], 0)[0]:
            text += os.read(fd, 1000)
        return enough(text)
    until("enough of what it writes", more, within)
    return text


def lock(agent, *args, **kw):
    return Lock(agent, *args, **kw).end()


def state(agent, name):
    return agent.get("/v1/lock/" + name)[2]


def held(agent, name):
    return until(name + " is held", lambda: state(agent, name)["Holders"])[0]


def waiting(agent, name, count):
    return until("%d wait for %s" % (count, name), lambda: len(state(agent, name)["Queue"]) == count)


def short(dev=True, **kw):
    return Agent(configuration(session_ttl_min="1s"), dev=dev, **kw).start()


def nobody(agent, name):
    there = state(agent, name)
    return not there["Holders"] and not there["Queue"]


AGENT = None


def agent_of_all():
    global AGENT
    AGENT = AGENT or short()
    return AGENT


def codes():
    """Its exit code is the command's; what it cannot give has codes of its own. The lock is free afterwards, and no session is left."""
    agent = agent_of_all()
    for words, code in ((["sh", "-c", "exit 0"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 143), (["sh", "-c", "kill -KILL $$"], 137),
                        (["./none"], 127), (["/etc/passwd"], 126)):
        got, out, err = lock(agent, "job/code", "--", *words)
        check(got == code and (code in (126, 127)) == bool(err), "%r: %d %r" % (words, got, err))
        check(nobody(agent, "job/code") and not agent.get("/v1/session/list")[2], "it is free after %r" % words)
    got, out, err = lock(agent, "job/env", "--", "sh", "-c", "echo $COORD_FENCING_TOKEN $COORD_SESSION; curl -s http://%s:8500/v1/lock/job/env" % agent.ip)
    (token, session), seen = out.split("\n")[0].split(), json.loads(out.split("\n", 1)[1])
    holder = seen["Holders"][0]
    check((holder["FencingToken"], holder["Session"]) == (int(token), session), "token and session of %r: %s %s" % (seen, token, session))
    check((holder["Note"], holder["Node"]) == ("sh", "n1"), "the note: %r" % holder)

    wrong = (([], "a NAME is wanted"), (["a"], "-- is wanted"), (["a", "true"], "-- is wanted"), (["a", "--"], "a COMMAND is wanted"),
             (["--", "a", "true"], "a NAME is wanted"), (["-wiat=0", "a", "--", "true"], "did you mean -wait"), (["-wait=x", "a", "--", "true"], "-wait"),
             (["a", "-wait=-1s", "--", "true"], "-wait"), (["-ttl=0", "a", "--", "true"], "-ttl"), (["-ttl=1ms", "a", "--", "true"], "\"1ms\", must be between 1s and 24h0m0s"),
             (["-n=x", "a", "--", "true"], "-n"), (["", "--", "true"], "NAME is empty"), (["x" * 257, "--", "true"], "256"))
    for words, named in wrong:
        got, out, err = lock(agent, *words)
        check(got == 1 and named in err and len(err.splitlines()) <= 2, "%r: %d %r" % (words, got, err))
    check(lock(agent, "-h")[0] == 0, "help")
    nowhere = subprocess.run([COORD, "lock", "-http-addr=127.0.0.1:1", "a", "--", "true"], capture_output=True, text=True, timeout=20)
    check(nowhere.returncode == 75 and "no answer from 127.0.0.1:1" in nowhere.stderr, "nobody there: %r" % nowhere)


def waits_in_turn():
    """-wait 0 does not; others get it in the order in which they came. Who is interrupted, or whose time is up, leaves no entry behind."""
    agent = agent_of_all()
    notes = Notes("turn")
    first = Lock(agent, SHORT, "turn", *notes.until_told(1.1 * TTL, "first"))   # it is renewed
    held(agent, "turn")
    got, _, err = lock(agent, "-wait=0", "turn", *notes.command(1))
    check(got == 75 and "taken" in err, "-wait=0: %d %r" % (got, err))
    check(len(agent.get("/v1/session/list")[2]) == 1, "no session is left of it")
    second = Lock(agent, "turn", *notes.command(0.2))
    waiting(agent, "turn", 1)
    patient = [Lock(agent, "turn", *notes.command(0.2)) for _ in range(2)]
    waiting(agent, "turn", 3)
    third = Lock(agent, "turn", "-wait=120s", *notes.command(0.2))
    waiting(agent, "turn", 4)
    order = [entry["Session"] for entry in state(agent, "turn")["Queue"]]
    for proc, sig in zip(patient, (signal.SIGINT, signal.SIGTERM)):
        proc.kill(sig)
        check(proc.end()[0] == 128 + sig, "interrupted by %d" % sig)
    waiting(agent, "turn", 2)
    check([entry["Session"] for entry in state(agent, "turn")["Queue"]] == [order[0], order[3]], "the others wait on, in their order")
    got, _, err = lock(agent, "-wait=100ms", "turn", *notes.command(1))
    check(got == 75 and "in time" in err and len(state(agent, "turn")["Queue"]) == 2, "-wait=100ms: %d %r" % (got, err))
    notes.end("first")
    for proc in (first, second, third):
        got, _, err = proc.end()
        check(got == 0 and not quiet(err), "%d %r" % (got, err))
    notes.check_apart(3)
    check(nobody(agent, "turn") and not agent.get("/v1/session/list")[2], "nobody is left")


def several_at_once():
    """-n and -shared."""
    agent = agent_of_all()
    two = [Lock(agent, "-n=2", "slots", "--", "sleep", "30") for _ in range(2)]
    until("two hold it", lambda: len(state(agent, "slots")["Holders"]) == 2)
    check(lock(agent, "-n=2", "-wait=0", "slots", "--", "true")[0] == 75, "a third one")
    got, _, err = lock(agent, "-n=3", "-wait=0", "slots", "--", "true")
    check(got == 75 and "limit" in err, "another limit: %d %r" % (got, err))
    writer = Lock(agent, "book", "--", "sleep", "30")
    held(agent, "book")
    readers = []
    for count in (1, 2):
        readers.append(Lock(agent, "-shared", "book", "--", "sleep", "30"))
        waiting(agent, "book", count)
    writer.kill(signal.SIGTERM)
    until("both read", lambda: len(state(agent, "book")["Holders"]) == 2)   # granted together: one token
    for proc in two + readers:
        proc.kill(signal.SIGINT)
        check(proc.end()[0] == 130, "interrupted")
    check(writer.end()[0] == 143 and nobody(agent, "slots") and nobody(agent, "book"), "each released its own")


def words(agent, *args):
    r = subprocess.run([COORD, *args[:-1], "-http-addr=%s:8500" % agent.ip, *args[-1:]], capture_output=True, text=True, timeout=20)
    return r.returncode, r.stdout, r.stderr


def explains():
    """`coord locks`: a table. `coord explain lock`: who, since when, why the first one waits, and what happened."""
    agent = agent_of_all()

    def explained(*parts):
        code, out, err = words(agent, "explain", "lock", "why/x")
        out = re.sub(r", for \d+s, token", ", for so long, token", out)
        check(code == 0 and not err and all(part in out for part in parts), "%r are in %s%s" % (parts, out, err))
        return out
    explained("Nobody holds it", "Nobody waits")
    session = json.loads(agent.put("/v1/session/create", {"Name": "by\thand", "LockDelay": "%ds" % (1 + 2 * SLOW)}))["ID"]
    agent.put("/v1/lock/why/x/acquire?session=" + session, b"a note\x1b[2J")
    first = Lock(agent, "-shared", "why/x", "--", "sleep", "30")
    waiting(agent, "why/x", 1)
    second = Lock(agent, "-shared", "why/x", "--", "sleep", "30")
    waiting(agent, "why/x", 2)
    out = explained("1 holds it, exclusive", session + ' on n1, "by?hand"', ", for so long, token %d" % held(agent, "why/x")["FencingToken"], "a note?[2J", "2 wait",
                    "because  it is held exclusively by " + session, "wants it shared", " taken ", " queued ")
    check(out.index(" taken ") < out.index(" queued ") and "\x1b" not in out, "transitions in their order: %r" % out)
    code, out, _ = words(agent, "locks", "why/")
    check(code == 0 and [line.split() for line in out.splitlines()] == [["NAME", "MODE", "LIMIT", "TOKEN", "HOLDERS", "WAITING"],
          ["why/x", "exclusive", "-", str(held(agent, "why/x")["FencingToken"]), "1", "2"]], "the table: %r" % out)
    code, out, _ = words(agent, "locks", "-json", "why/")
    check(code == 0 and [lock["Name"] for lock in json.loads(out)] == ["why/x"], "as JSON: %r" % out)
    check(words(agent, "locks", "none/")[1].split()[-1] == "WAITING", "none")
    agent.put("/v1/session/destroy/" + session)
    explained("Nobody holds it", "because  the session of a holder has ended, and its lock-delay is under way", "session-ended")
    until("both have it", lambda: len(state(agent, "why/x")["Holders"]) == 2)
    third = Lock(agent, "why/x", "--", "sleep", "30")
    waiting(agent, "why/x", 1)
    explained("2 hold it, shared", "coord lock, process %d on " % first.proc.pid, "\n           sleep\n", "it wants to hold it exclusively, and 2 hold it shared", "delay-over", "passed-on")
    for proc in (third, first, second):
        proc.kill(signal.SIGINT)
        check(proc.end()[0] == 130, "interrupted")
    explained("Nobody holds it", "left-queue", "released")
    for args, named in ((("explain", "lock", ""), "one NAME is wanted"), (("explain", "lok", "x"), "did you mean"), (("locks", "a", "b"), "one PREFIX")):
        code, _, err = words(agent, *args)
        check(code == 2 and named in err, "%r: %d %r" % (args, code, err))


def elects():
    """The same for elections: the term, the value that is seen by others, the highest priority first."""
    agent = agent_of_all()

    def election():
        return agent.get("/v1/election/boss")[2]
    first = Lock(agent, "-value=10.0.0.7:5432", "boss", "--", "sh", "-c", "echo $COORD_TERM $COORD_FENCING_TOKEN $COORD_SESSION; exec sleep 30", command="elect")
    leader = until("it leads", lambda: election()["Leader"])
    check(leader["Value"] == "10.0.0.7:5432", "what it advertises: %r" % leader)
    low = Lock(agent, "boss", "--", "sh", "-c", "echo $COORD_TERM", command="elect")
    until("one more", lambda: len(election()["Candidates"]) == 1)
    high = Lock(agent, "boss", "-priority=5", "--", "sh", "-c", "echo $COORD_TERM; exit 9", command="elect")
    until("another one", lambda: len(election()["Candidates"]) == 2)
    check(Lock(agent, "-wait=0", "boss", "--", "true", command="elect").end()[0] == 75, "not without waiting")
    first.kill(signal.SIGTERM)
    got, out, _ = first.end()
    check(got == 143 and out.split() == [str(leader["Term"])] * 2 + [leader["Session"]], "%d %r, it was %r" % (got, out, leader))
    (low_code, low_term, _), (high_code, high_term, _) = low.end(), high.end()
    check((low_code, high_code) == (0, 9) and leader["Term"] < int(high_term) < int(low_term), "by priority: %r %r" % (high_term, low_term))
    check(not election()["Leader"], "nobody leads")


def signals_reach_the_group():
    agent = agent_of_all()
    text = """
import os, signal, sys
wanted = {1, 2, 3, 15}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
child = os.fork()
os.write(1, b"ready\\n")
os.write(1, b"%d\\n" % signal.sigwait(wanted))
if child: os.waitpid(child, 0)
sys.exit(5)
"""
    for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        proc = Lock(agent, "signals", "--", sys.executable, "-c", text)
        check(proc.hear(2) == ["ready"] * 2, "both run")
        proc.kill(sig)
        got, out, _ = proc.end()
        check(got == 5 and out.split() == [str(int(sig))] * 2, "%s: %d %r" % (sig, got, out))
    check(nobody(agent, "signals"), "it is free")


def what_is_left_of_the_group_ends():
    """Before the lock is free."""
    agent = agent_of_all()
    notes = Notes("left")
    worker = " ".join(["exec", sys.executable, "-c", '"$WORK"', notes.path, "30", "stubborn"])
    first = Lock(agent, "left", "--", "sh", "-c", "(%s) & for i in $(seq %d); do ! [ -s %s ] || exit 3; sleep 0.01; done; exit 4" % (worker, 2000 * SLOW, notes.path),
                 env=dict(os.environ, WORK=WORK))
    held(agent, "left")
    second = Lock(agent, "left", *notes.command(0.2))
    check((first.end()[0], second.end()[0]) == (3, 0), "both ended")
    notes.check_apart(2)


def never_two():
    """The holder is killed, stopped beyond its TTL, or cannot be ended but by KILL: the command is dead before the next one has the lock."""
    agent = agent_of_all()
    stories = {"killed": ([], "kill"), "killed-stubborn": (["stubborn", "fork"], "kill"), "stopped": (["fork"], "stop"), "stopped-stubborn": (["stubborn", "fork"], "stop")}
    running = {}
    for name, (how, _) in stories.items():
        notes = Notes(name)
        first = Lock(agent, SHORT, name, *notes.command(30, *how))
        held(agent, name)
        until(name + " runs", lambda: len({pid for _, pid, _ in notes.read()}) == (2 if "fork" in how else 1))
        running[name] = (notes, first, Lock(agent, SHORT, name, *notes.command(0.3)))
        waiting(agent, name, 1)
    at = {}
    for name, (_, what) in stories.items():
        at[name] = now()
        running[name][1].kill(signal.SIGKILL if what == "kill" else signal.SIGSTOP)
    for name, (how, what) in stories.items():
        notes, first, second = running[name]
        check(second.end()[0] == 0, name + ": the next one got it")
        (_, last), _ = notes.check_apart(2)
        check(last < at[name] + TTL, "%s: lived on for %.2f s of its %d s" % (name, last - at[name], TTL))
        first.kill(signal.SIGCONT)
        got, _, err = first.end()
        check(got == (-9 if what == "kill" else 76), "%s: %d %r" % (name, got, err))
        check(what == "kill" or "could not be renewed" in err, "%s: %r" % (name, err))
        print("     %s: dead after %.2f s of %d s" % (name, last - at[name], TTL))


def stopped_while_it_waits():
    """Its turn came and went meanwhile: it does not start the command on an old answer, and waits anew."""
    agent = agent_of_all()
    notes = Notes("late")
    first = Lock(agent, "late", *notes.until_told(0.1, "first"))
    held(agent, "late")
    second = Lock(agent, "-ttl=1s", "late", *notes.command(0.2))
    place = waiting(agent, "late", 1) and state(agent, "late")["Queue"][0]["Session"]
    second.kill(signal.SIGSTOP)
    third = Lock(agent, "late", *notes.until_told(0.1, "third"))
    until("the third one waits", lambda: [entry for entry in state(agent, "late")["Queue"] if entry["Session"] != place])
    notes.end("first")
    check(first.end()[0] == 0, "the first one")
    until("the third one runs", lambda: len(notes.tokens()) == 2)
    second.kill(signal.SIGCONT)
    waiting(agent, "late", 1)
    notes.end("third")
    got, _, err = second.end()
    check(third.end()[0] == 0 and got == 0 and "anew" in err, "%d %r" % (got, err))
    notes.check_apart(3)


def no_server():
    """It does not answer any more: the command is dead before the lock may be another's. One line says so. A server that is away while one waits is
    waited for, in the place that there was."""
    agent = short(dev=False)
    notes = Notes("frozen")
    first = Lock(agent, SHORT, "frozen", *notes.command(30, "stubborn", "fork"))
    until("it runs", notes.read)
    patient = Lock(agent, "-ttl=60s", "frozen", *notes.command(0.2))
    waiting(agent, "frozen", 1)
    place = state(agent, "frozen")["Queue"][0]["Session"]
    agent.proc.send_signal(signal.SIGSTOP)
    at = now()
    until("it is dead", lambda: now() - max(t for _, _, t in notes.read()) > 0.3)
    last = max(t for _, _, t in notes.read())
    check(last < at + TTL, "lived on for %.2f s of its %d s" % (last - at, TTL))
    got, _, err = first.end()
    check(got == 76 and len(err.splitlines()) <= 3 and "could not be renewed" in err, "%d %r" % (got, err))
    print("     frozen: dead after %.2f s of %d s" % (last - at, TTL))
    agent.kill()
    agent.start()
    got, _, err = patient.end()
    check(got == 0 and len(quiet(err)) == 1, "the one that waits: %d %r" % (got, err))
    notes.check_apart(2)
    causes = agent.get("/v1/lock/frozen?transitions")[2]["Transitions"]
    check(place in [t["Session"] for t in causes if t["Cause"] in ("passed-on", "taken")], "in its old place %s: %r" % (place, causes))


def its_agent_is_gone():
    """The agent that it asks dies, and so its node does, long before the TTL is over: that does not pass the lock on while the command runs."""
    config = configuration(session_ttl_min="1s", coord={"node_lease_ttl": "1s"})
    server = Agent(config).start()
    client = Agent(config, "-retry-join=" + server.ip, server=False, name="a1").start()
    notes = Notes("gone")
    ttl = 4 + 2 * SLOW
    first = Lock(client, "-ttl=%ds" % ttl, "gone", *notes.command(30, "stubborn"))
    until("it runs", notes.read)
    second = Lock(server, "gone", *notes.command(0.2))
    waiting(server, "gone", 1)
    client.kill()
    at = now()
    until("its node is dead", lambda: [c["Status"] for c in server.get("/v1/health/node/a1")[2]] == ["critical"])
    check(now() < at + ttl and held(server, "gone") and len(notes.tokens()) == 1, "it is held while its node is dead")
    check((first.end()[0], second.end()[0]) == (76, 0), "the command was ended, and then the other one ran")
    notes.check_apart(2)


def quiet(err):
    """What it says but for who is in the way, which is for people who wait."""
    return [line for line in err.splitlines() if " is held by " not in line and " is led by " not in line]


def says_who_is_in_the_way():
    """Who waits is told once, on stderr: who holds it, for how long, and how many come before."""
    agent = agent_of_all()

    def told(proc):
        """Its first line on stderr, without a time."""
        line = hear(proc.proc.stderr.fileno(), lambda text: b"\n" in text).decode()
        return re.sub(r"for (\d+h)?(\d+m)?\d+s", "for so long", line)

    def ended(proc):
        proc.kill(signal.SIGTERM)
        proc.proc.stdout.close()
        rest = proc.proc.stderr.read()
        check(proc.proc.wait(20 * SLOW) in (143, -15) and not quiet(rest), "it said it once: %r" % rest)
    sleep = ("--", "sh", "-c", "exec sleep 1000")
    first = Lock(agent, "way", *sleep)
    held(agent, "way")
    second = Lock(agent, "way", *sleep)
    waiting(agent, "way", 1)
    third = Lock(agent, "way", *sleep)
    waiting(agent, "way", 2)
    for proc, place in ((second, "you are next"), (third, "1 before you")):
        line = told(proc)
        check(line == 'coord: lock "way" is held by n1 (sh) for so long, %s\n' % place, line)
    for proc in (third, second, first):
        ended(proc)

    slots = [Lock(agent, "-n=2", "way-slots", *sleep) for _ in range(2)]
    until("two hold it", lambda: len(state(agent, "way-slots")["Holders"]) == 2)
    slots.append(Lock(agent, "-n=2", "-note=x", "way-slots", *sleep))
    line = told(slots[2])
    check(line == 'coord: lock "way-slots" is held by n1 (sh) for so long and 1 other, you are next\n', line)
    boss = Lock(agent, "-value=10.0.0.7", "way", *sleep, command="elect")
    until("it leads", lambda: agent.get("/v1/election/way")[2]["Leader"])
    other = Lock(agent, "way", *sleep, command="elect")
    line = told(other)
    check(line == 'coord: election "way" is led by n1 (10.0.0.7) for so long, you are next\n', line)
    for proc in (slots[2], slots[1], slots[0], other, boss):
        ended(proc)

    end = os.path.join(FOLDER.name, "way-end")
    parties = [Lock(agent, "-n=2", "-double", "way", "--", "sh", "-c", "while ! test -e %s.%d; do sleep 0.05; done" % (end, 0), command="barrier")]
    line = told(parties[0])
    check(line == 'coord: barrier "way" waits: 1 of 2 have entered\n', line)
    parties.append(Lock(agent, "-n=2", "-double", "way", "--", "true", command="barrier"))
    line = told(parties[1])
    check(line == 'coord: barrier "way" waits: 1 has not left yet\n', line)
    open(end + ".0", "w").close()
    check([proc.end()[0] for proc in parties] == [0, 0], "both end")


def lost():
    """Somebody destroys the session, releases the lock, or removes the node: the command is killed at once, whatever its TTL. Who waited behind it runs then."""
    agent = agent_of_all()
    stubborn = ("--", "sh", "-c", "trap '' TERM; sleep 1000 & wait; wait")

    def removed(holder):
        agent.put("/v1/catalog/deregister", {"Node": holder["Node"]})
    for command, path, how in (("lock", "/v1/lock/lost", "/v1/session/destroy/{Session}"), ("lock", "/v1/lock/lost", "/v1/lock/lost/release?token={FencingToken}"),
                               ("elect", "/v1/election/lost", "/v1/session/destroy/{Session}"), ("elect", "/v1/election/lost", "/v1/election/lost/resign?token={Term}"),
                               ("lock", "/v1/lock/lost", removed)):
        if how is removed:
            agent = short()   # others need its node
        def holder():
            there = agent.get(path)[2]
            return (there.get("Holders") or [None])[0] or there.get("Leader")
        first = Lock(agent, "-ttl=1h", "lost", *stubborn, command=command)
        mine = until("it is held", holder)
        own = "%s?session=%s&wait=5m" % (path, mine["Session"])
        _, headers, there = agent.get(own)
        check(there["Held" if command == "lock" else "Leader"] and there["Session"] == mine["Session"], "what it holds: %r" % there)
        news = []
        looking = threading.Thread(target=lambda: news.append(agent.get("%s&index=%s" % (own, headers["X-Consul-Index"]), timeout=60 * SLOW)[2]))
        looking.start()
        second = Lock(agent, "lost", "--", "true", command=command)
        until("one waits", lambda: len(agent.get(path)[2]["Queue" if command == "lock" else "Candidates"]) == 1)
        check(not news, "who waits behind it wakes nobody who looks at what it holds: %r" % news)
        if callable(how):
            how(mine)
        else:
            agent.put(how.format(**mine))
        got, _, err = first.end()
        check(got == 76 and "is lost" in err and len(err.splitlines()) == 1, "%s %s: %d %r" % (command, how, got, err))
        got, _, err = second.end()
        check(got == 0 or (how is removed and got == 75), "the other one, %s %s: %d %r" % (command, how, got, err))
        looking.join(60 * SLOW)
        check(news and not news[0]["Held" if command == "lock" else "Leader"] and not news[0]["Position"], "it has nothing there: %r" % news)


def a_leader_is_lost():
    """Neither that nor a server that is started anew is a word that the lock is lost; the end of the session is, through whichever server."""
    cluster = Cluster(3).start()
    leader = cluster.leader()
    asked, other = [s for s in cluster.servers if s is not leader]
    runs = os.path.join(FOLDER.name, "kept-runs")
    first = Lock(asked, "-ttl=1h", "kept", "--", "sh", "-c", "touch %s; exec sleep 1000" % runs)
    holder = held(asked, "kept")
    until("it knows that it holds the lock", lambda: os.path.exists(runs))

    def answered():
        return other.request("GET", "/v1/lock/kept")[0] == 200
    leader.kill()
    until("another one leads", answered, within=30)
    check(held(other, "kept") == holder and first.proc.poll() is None, "it goes on under another leader")
    leader.start()
    asked.kill()
    asked.start()
    until("it is answered again", answered, within=30)
    check(held(other, "kept") == holder and first.proc.poll() is None, "and without the server that it asks")
    other.put("/v1/session/destroy/" + holder["Session"])
    got, _, err = first.end()
    check(got == 76 and "is lost" in err, "%d %r" % (got, err))


def lost_at_work():
    """The same of a double barrier: the party's command is killed, and the others do not wait for it."""
    agent = agent_of_all()
    files = [os.path.join(FOLDER.name, "party-%d" % i) for i in (0, 1)]
    parties = [Lock(agent, "-n=2", "-double", "-ttl=1h", "lost", "--", "sh", "-c", "echo $COORD_SESSION > %s.new; mv %s.new %s; while ! test -e %s.end; do sleep 0.05; done" % (4 * (f,)),
                    command="barrier") for f in files]
    until("both are at work", lambda: all(map(os.path.exists, files)))
    sessions = [open(f).read().strip() for f in files]
    _, _, there = agent.get("/v1/barrier/lost?session=" + sessions[1])
    check(there["Standing"] == "inside", "where it stands: %r" % there)
    agent.put("/v1/session/destroy/" + sessions[0])
    got, _, err = parties[0].end()
    check(got == 76 and "is lost" in err, "%d %r" % (got, err))
    check(agent.get("/v1/barrier/lost?session=" + sessions[0])[2]["Standing"] == "outside", "it is there no more")
    check(parties[1].proc.poll() is None, "the other one goes on")
    open(files[1] + ".end", "w").close()
    check(parties[1].end()[0] == 0, "and waits for nobody")


def the_supervisor_is_killed():
    """`coord lock` kills the command's group. When it cannot, the kernel kills the command."""
    agent = agent_of_all()
    for stopped in (False, True):
        notes = Notes("supervisor-%d" % stopped)
        proc = Lock(agent, "supervisor", *notes.command(30, "stubborn", *([] if stopped else ["fork"])))
        until("all run", lambda: len({pid for _, pid, _ in notes.read()}) == 2 - stopped)
        if stopped:
            proc.kill(signal.SIGSTOP)
        with open("/proc/%d/task/%d/children" % (proc.proc.pid, proc.proc.pid)) as f:
            os.kill(int(f.read().split()[0]), signal.SIGKILL)
        until("the command is dead", lambda: now() - max(t for _, _, t in notes.read()) > 0.3)
        proc.kill(signal.SIGCONT)
        check(proc.end()[0] == 76 and nobody(agent, "supervisor"), "it ends, and the lock is free")


def at_a_terminal():
    """The command may read from it, and Ctrl-C is the command's."""
    agent = agent_of_all()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COORD, [COORD, "lock", "-http-addr=%s:8500" % agent.ip, "tty", "--", "sh", "-c", "read line; echo got $line; exec sleep 30"])
    held(agent, "tty")
    os.write(terminal, b"hello\n")
    text = hear(terminal, lambda text: b"got hello" in text)
    os.write(terminal, b"\x1a\x03")   # Ctrl-Z is ignored
    status = until("it ends", lambda: [status for ended, status in [os.waitpid(pid, os.WNOHANG)] if ended])[0]
    check(os.waitstatus_to_exitcode(status) == 130, "Ctrl-C: %r %r" % (status, text))
    check(nobody(agent, "tty"), "it is free")


run([codes, waits_in_turn, several_at_once, explains, elects, signals_reach_the_group, what_is_left_of_the_group_ends, never_two, stopped_while_it_waits, no_server, its_agent_is_gone, says_who_is_in_the_way, lost, a_leader_is_lost, lost_at_work, the_supervisor_is_killed,
     at_a_terminal])
