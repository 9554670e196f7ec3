"""OpenFeature's own SDKs and OFREP providers against coord, unchanged: those of npm (server and web), and Python's.

They are not Debian packages, and nothing is downloaded here: docs/testing.md says how to bring them. Needs Node 18 or later and a folder of packages,
$COORD_OPENFEATURE_NODE or ~/.cache/coord-openfeature/node_modules; or Python's openfeature-sdk and openfeature-provider-ofrep.
"""
import json, os, shutil, subprocess, sys
from coordtest import HERE, Agent, check, run, until
from test_openfeature import flags, stage

MODULES = os.environ.get("COORD_OPENFEATURE_NODE") or os.path.expanduser("~/.cache/coord-openfeature/node_modules")
NODE = shutil.which("node")
PACKAGES = ("server-sdk", "web-sdk", "ofrep-provider", "ofrep-web-provider")


def node_lacks():
    """What is missing, or None."""
    if not NODE:
        return "no node program"
    missing = [p for p in PACKAGES if not os.path.exists(os.path.join(MODULES, "@openfeature", p, "package.json"))]
    return "no npm package @openfeature/%s in %s" % (missing[0], MODULES) if missing else None


def python_lacks():
    done = subprocess.run([sys.executable, "-c", "import openfeature.api, openfeature.contrib.provider.ofrep"], capture_output=True, text=True)
    return None if done.returncode == 0 else "no Python package openfeature-provider-ofrep for %s" % sys.executable


class Program:
    """A client in another language: a question a line, an answer a line."""

    def __init__(self, *words, **more):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ, **more))
        self.changed = []
        check(self.line() == "ready", "it has begun")

    def line(self):
        """The next that is not about changes."""
        while True:
            text = self.process.stdout.readline()
            check(text, "the client has ended with %s" % self.process.poll())
            answer = json.loads(text)
            if not isinstance(answer, dict) or "changed" not in answer:
                return answer
            self.changed.append(answer["changed"])

    def ask(self, *question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.line()

    def until_changed(self, before, *question):
        """The first other answer to it: the client hears of the change by itself."""
        return until("another answer", lambda: [a for a in [self.ask(*question)] if a != before], 30)[0]


def world():
    agent = Agent(dev=True).start()
    flags(agent, color=['"red"', '"blue"'], limits=['{"n":1}', '{"n":2}'], on=["false", "true"], ratio=["0.25", "0.5"])
    return agent


def evaluates(client, agent):
    """What the server-side SDK gives, one request each."""
    me = {"targetingKey": "me", "node": "n1"}
    check(client.ask("server", "string", "color", "none", me) == {"value": "red", "variant": "v1", "reason": "STATIC"}, "text")
    check(client.ask("server", "boolean", "on", True, me)["value"] is False, "a boolean")
    check(client.ask("server", "number", "ratio", 9, me)["value"] == 0.25, "a number")
    check(client.ask("server", "object", "limits", {}, me)["value"] == {"n": 1}, "an object")
    stage(agent, "color", "v2", Percent=99.9)
    check(client.ask("server", "string", "color", "none", me) == {"value": "blue", "variant": "v2", "reason": "SPLIT"}, "a percentage")
    stage(agent, "limits", "v2", Match={"Nodes": ["n1"]})
    check(client.ask("server", "object", "limits", {}, me) == {"value": {"n": 2}, "variant": "v2", "reason": "TARGETING_MATCH"}, "a match")
    check(client.ask("server", "object", "limits", {}, {"targetingKey": "you"})["value"] == {"n": 1}, "and who does not match")
    failed = [client.ask("server", *q) for q in (("string", "none", "otherwise", me), ("string", "color", "otherwise", {}), ("boolean", "color", True, me))]
    check([f["errorCode"] for f in failed] == ["FLAG_NOT_FOUND", "TARGETING_KEY_MISSING", "TYPE_MISMATCH"], failed)
    check([f["value"] for f in failed] == ["otherwise", "otherwise", True], "the program's own default")


def npm():
    agent = world()
    client = Program(NODE, os.path.join(HERE, "openfeature_client.cjs"), "http://%s:8500" % agent.ip, "browser-1", NODE_PATH=MODULES)
    try:
        check(client.ask("web", "boolean", "on", True)["value"] is False and client.ask("web", "string", "color", "none")["value"] == "red", "fetched at once")
        evaluates(client, agent)
        before = client.ask("web", "boolean", "on", False)
        stage(agent, "on", "v2", Percent=99.9)
        check(client.until_changed(before, "web", "boolean", "on", False) == {"value": True, "variant": "v2", "reason": "SPLIT"}, "the stream tells the web provider")
        check(client.ask("web", "string", "on", "mine")["errorCode"] == "TYPE_MISMATCH" and client.ask("web", "string", "none", "mine")["value"] == "mine", "failures")
    finally:
        client.process.kill()


PYTHON = """
import json, sys
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
api.set_provider(OFREPProvider(base_url=sys.argv[1]))
client = api.get_client()
print(json.dumps("ready"), flush=True)
types = {"boolean": "boolean", "string": "string", "number": "float", "object": "object"}
for line in sys.stdin:
    _, kind, key, otherwise, context = json.loads(line)
    context = EvaluationContext(context.pop("targetingKey", None), context)
    details = getattr(client, "get_%s_details" % types[kind])(key, otherwise, context)
    answer = {"value": details.value, "variant": details.variant, "reason": details.reason, "errorCode": details.error_code}
    print(json.dumps({k: v for k, v in answer.items() if v is not None}), flush=True)
"""


def python():
    agent = world()
    client = Program(sys.executable, "-c", PYTHON, "http://%s:8500" % agent.ip)
    try:
        evaluates(client, agent)
    finally:
        client.process.kill()


if __name__ == "__main__":
    lacks = {npm: node_lacks(), python: python_lacks()}
    for why in filter(None, lacks.values()):
        print("skipped: " + why)
    if all(lacks.values()):
        sys.exit(77)
    run([test for test in (npm, python) if not lacks[test]])
