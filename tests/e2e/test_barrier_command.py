"""coord barrier, as a user of it: nobody goes on before all have come, and with -double nobody is done before all are."""
import json, signal, subprocess, time
from coordtest import COORD, SLOW, Agent, check, run, until

AGENT = Agent(dev=True)


class Party:
    def __init__(self, *args):
        self.proc = subprocess.Popen([COORD, "barrier", "-http-addr=%s:8500" % AGENT.ip, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)

    def end(self):
        out, err = self.proc.communicate(timeout=20 * SLOW)
        return self.proc.returncode, out, err


def entered(name):
    status, _, body = AGENT.request("GET", "/v1/barrier/" + name)
    return len(json.loads(body)["Entered"]) if status == 200 else 0


def nothing_left():
    check(not AGENT.get("/v1/barriers")[2] and not AGENT.get("/v1/session/list")[2], "no party and no session is left")


def released_together():
    """Three rounds of three, with and without a command."""
    for command in ([], ["--", "sh", "-c", "echo $COORD_BARRIER_ROUND; exit 4"], []):
        early = [Party("go", "-n", "3", *command) for _ in range(2)]
        until("two have entered", lambda: entered("go") == 2)
        check(all(party.proc.poll() is None for party in early), "they wait")
        ends = [party.end() for party in early + [Party("-n=3", "go", *command)]]
        check([(code, err) for code, _, err in ends] == [(4 if command else 0, "")] * 3, "%r" % ends)
        check(len({out for _, out, _ in ends}) == 1 and (not command or int(ends[0][1]) > 0), "one round: %r" % ends)
    nothing_left()


def leaves_when_its_time_is_up():
    """Or it is interrupted: it does not count any more."""
    got, _, err = Party("late", "-n=2", "-wait=100ms").end()
    check(got == 75 and "in time" in err and entered("late") == 0, "%d %r" % (got, err))
    got, _, err = Party("late", "-n=2", "-wait=0").end()
    check(got == 75 and "not all parties" in err and entered("late") == 0, "%d %r" % (got, err))
    check(Party("late", "-n=1", "-wait=0", "--", "true").end()[0] == 0, "it was the only one")
    party = Party("late", "-n=2", "--", "true")
    until("it has entered", lambda: entered("late") == 1)
    got, _, err = Party("late", "-n=3").end()
    check(got == 75 and "refused" in err, "other parties: %d %r" % (got, err))
    party.proc.send_signal(signal.SIGINT)
    check(party.end()[0] == 130 and entered("late") == 0, "interrupted")
    party = Party("late", "-n=2")
    until("it has entered", lambda: entered("late") == 1)
    check(party.proc.poll() is None, "it waits: those before do not count")
    check(Party("late", "-n=2").end()[0] == 0 and party.end()[0] == 0, "both go on")
    nothing_left()


def double():
    """Nobody is done before all commands have ended; a party that dies is not waited for."""
    begun = time.monotonic()
    quick = Party("twice", "-n=2", "-double", "--", "true")
    slow = Party("twice", "-n=2", "-double", "--", "sh", "-c", "sleep 0.7; exit 3")
    check(quick.end()[0] == 0 and time.monotonic() - begun >= 0.7, "the quick one waited for the slow one: %.2f s" % (time.monotonic() - begun))
    check(slow.end()[0] == 3, "the slow one")
    impatient = Party("twice", "-n=2", "-double", "-wait=1s", "--", "true")
    slow = Party("twice", "-n=2", "-double", "--", "sleep", "30")
    got, _, err = impatient.end()
    check(got == 75 and "in time" in err, "%d %r" % (got, err))
    slow.proc.send_signal(signal.SIGTERM)
    check(slow.end()[0] == 143, "the slow one")
    nothing_left()


def wrong_words():
    for words, named in ((["-n=2"], "a NAME"), (["a"], "-n"), (["-n=0", "a"], "-n"), (["a", "-n=2", "true"], "-- is wanted"),
                         (["a", "-n=2", "--"], "a COMMAND"), (["a", "-n=2", "-duble"], "did you mean -double"), (["a", "-n=10001"], "10000")):
        got, _, err = Party(*words).end()
        check(got == 1 and named in err and len(err.splitlines()) <= 2, "%r: %d %r" % (words, got, err))


AGENT.start()
run([released_together, leaves_when_its_time_is_up, double, wrong_words])
