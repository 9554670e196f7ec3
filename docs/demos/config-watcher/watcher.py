#!/usr/bin/env python3
"""Watchers of one configuration: a version that reaches them in stages, a bad one that the guard takes back, and the way back.

    watcher.py [--watchers N] [--hold SECONDS] [--coord PROGRAM]

Each watcher is a thread that does what a program would do with its configuration: it asks for its version, waits for the
next one, and calls back with the document. What the callback cannot use it refuses, and the watcher goes on with what it has.
One more watcher knows only keys: it follows the key config/shop/current to the document, and gets no stages.

Each line shows the version that every watcher uses, after all have heard of the change. Exit code 0 when everything went as
the text says.
"""
import argparse, http.client, json, os, sys, threading, time, urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from demo_agent import PROGRAM, Agent, play, say

NAME = "shop"
DOCUMENTS = {"v1": {"pool": 10}, "v2": {"pool": 20}, "v3": {"pool": 0}}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--watchers", type=int, default=40)
    p.add_argument("--hold", type=float, default=3.0, help="seconds that each step lasts")
    p.add_argument("--coord", default=PROGRAM)
    return p.parse_args()


# ---- the watchers -------------------------------------------------------------------------------------------------
class Watcher(threading.Thread):
    """Follows what coord gives the caller `id`, and acknowledges it. `told`: the version that it called back with last."""

    def __init__(self, server, id, callback):
        super().__init__(daemon=True)
        self.server, self.id, self.callback, self.told = server, id, callback, None
        self.start()

    def run(self):
        try:
            self.follow()
        except (OSError, http.client.HTTPException):
            pass                                                     # the run is over, and the server gone

    def follow(self):
        index = 0
        while True:
            now = self.server.json("GET", "/v1/rollout/%s?id=%s&wait=5m&index=%d" % (NAME, self.id, index))
            if now["Index"] == index:
                continue                                             # five minutes without a change
            try:
                self.callback(now["Version"], now["Document"])
                said = "ok=true"
            except ValueError as e:
                said = "ok=false&reason=" + urllib.parse.quote(str(e))
            self.server.json("PUT", "/v1/rollout/%s/ack?id=%s&version=%s&%s" % (NAME, self.id, now["Version"], said))
            self.told, index = now["Version"], now["Index"]


class KeyWatcher(Watcher):
    """Follows the pointer, with plain keys, as a program that has never heard of rollouts does."""

    def follow(self):
        index = 0
        while True:
            version, index = self.server.key("config/%s/current" % NAME, index)
            if version and version != self.told:
                self.callback(version, json.loads(self.server.key("config/%s/%s" % (NAME, version))[0]))
                self.told = version


class Program:
    """What a watcher belongs to: it uses the last configuration that it could use."""

    def __init__(self):
        self.uses, self.refused = "-", None

    def configure(self, version, document):
        if document["pool"] < 1:
            self.refused = version
            raise ValueError("a pool of %d" % document["pool"])
        self.uses, self.refused = version, None

    def letter(self):
        return "x" if self.refused else self.uses[1:]


# ---- a server of this run's own -----------------------------------------------------------------------------------
class Server(Agent):
    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection(self.ip, 8500, timeout=600)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None)
            answer = c.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            c.close()

    def json(self, method, path, body=None):
        status, _, text = self.ask(method, path, body)
        if status != 200:
            raise ValueError("%s %s: %d %s" % (method, path, status, text.decode()))
        return json.loads(text)

    def key(self, key, index=0):
        """(text, index), newer than `index`; text is None where there is none."""
        status, headers, text = self.ask("GET", "/v1/kv/%s?raw&wait=5m&index=%s" % (key, index))
        return (text.decode() if status == 200 else None), int(headers["X-Consul-Index"])


# ---- the run ------------------------------------------------------------------------------------------------------
class Run:
    def __init__(self, server, count, hold):
        self.server, self.hold, self.begun, self.index = server, hold, time.monotonic(), 0
        for version, document in DOCUMENTS.items():
            server.json("PUT", "/v1/rollout/%s/versions/%s" % (NAME, version), document)
        self.current({"Version": "v1"})
        self.programs = [Program() for _ in range(count + 1)]
        self.watchers = [Watcher(server, "shop-%d" % i, self.programs[i].configure) for i in range(count)]
        self.watchers.append(KeyWatcher(server, "", self.programs[count].configure))

    def current(self, body):
        self.server.json("PUT", "/v1/rollout/%s/current" % NAME, body)

    def stage(self, version, *percents, guard):
        self.current({"Version": version, "Steps": [{"Percent": p, "Hold": "%dms" % (self.hold * 1000)} for p in percents], "Guard": guard})

    def status(self):
        return self.server.json("GET", "/v1/rollout/%s/status" % NAME)

    def settled(self):
        """All have heard of the version that they are to have."""
        wanted = [self.server.json("GET", "/v1/rollout/%s?id=%s" % (NAME, w.id))["Version"] for w in self.watchers[:-1]]
        wanted.append(self.status()["Current"])
        return [w.told for w in self.watchers] == wanted

    def show(self, what):
        deadline = time.monotonic() + 30
        while not self.settled():
            if time.monotonic() > deadline:
                raise AssertionError("not all have heard of: " + what)
            time.sleep(0.02)
        *staged, keys = [p.letter() for p in self.programs]
        say("%5.1f s  %-32s %s  %s" % (time.monotonic() - self.begun, what, "".join(staged), keys))
        return "".join(staged), keys

    def wait(self, condition):
        """Until the rollout's state is so."""
        deadline = time.monotonic() + 30 + 4 * self.hold
        while not condition(self.status()):
            if time.monotonic() > deadline:
                raise AssertionError("it has not come to that: %r" % self.status())
            time.sleep(0.02)


def at(percent):
    return lambda state: state["Stage"] and state["Stage"]["Percent"] == percent


def alone(version):
    return lambda state: state["Current"] == version and not state["Stage"]


def story(run):
    count = len(run.watchers) - 1
    say("   time  %-32s %-*s  keys" % ("what", count, "watchers"))
    assert run.show("v1 for everybody") == ("1" * count, "1")

    guard = {"MaxFailing": 0.05, "MinSamples": 1, "OnFail": "rollback"}
    run.stage("v2", 10, 50, guard=guard)
    ten, keys = run.show("v2 for 10 %")
    assert keys == "1" and "2" in ten
    run.wait(at(50))
    fifty, keys = run.show("v2 for 50 %, by itself")
    assert keys == "1" and all(b == "2" for a, b in zip(ten, fifty) if a == "2") and "1" in fifty
    run.wait(alone("v2"))
    assert run.show("v2 for everybody, by itself") == ("2" * count, "2")

    run.stage("v3", 10, 50, guard=guard)
    bad, keys = run.show("v3, which is bad, for 10 %")
    assert bad.replace("x", "2") == "2" * count and bad.count("x") == ten.count("2") and keys == "2"
    run.wait(alone("v2"))
    assert run.show("the guard has taken it back") == ("2" * count, "2")

    run.server.json("PUT", "/v1/rollout/%s/rollback?comment=not+so+many" % NAME)
    assert run.show("`rollback`: v1 for everybody") == ("1" * count, "1")

    say("\nx: refused it, and goes on with v2. What coord remembers:\n")
    for change in reversed(run.server.json("GET", "/v1/rollout/%s/history" % NAME)):
        if change["Kind"] != "publish":
            by = "an operator" if change["By"].startswith("node ") else "the " + change["By"]
            line = "  %-9s %-11s %2s -> %-2s %3.0f %%  %s" % (change["Kind"], by, change["From"], change["To"], change["Percent"], change["Comment"])
            say(line.rstrip())


def main():
    args = arguments()
    server = Server(args.coord, limits={"http_max_conns_per_client": 2 * args.watchers + 50})
    try:
        story(Run(server, args.watchers, args.hold))
    except AssertionError as e:
        say("it went another way: %s" % e)
        return 1
    return 0


if __name__ == "__main__":
    play(main)
