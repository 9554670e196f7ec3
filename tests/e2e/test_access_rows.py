"""Each row of the routing table: with exactly the right that it declares its example works, without it 403, and with a denial for
the longer name 403. The rows, their permissions and their examples come from `coord api`."""
import json, re, subprocess
from coordtest import COORD, Agent, check, configuration, run, until

ROOT = "11111111-2222-4333-8444-555555555555"
NAMED = ("agent", "event", "key", "lock", "node", "query", "quota", "rollout", "service", "session")
# Rows whose commands need more than they declare, because they act on more than one thing.
NODES = {"read": 'node_prefix "" { policy = "read" }', "write": 'node_prefix "" { policy = "write" }'}
SESSIONS = 'session_prefix "" { policy = "write" }'
MORE = {
    "/v1/catalog/register": [NODES["write"]], "/v1/catalog/deregister": [NODES["write"]], "/v1/agent/check/register": [NODES["write"]],
    # the check of the example is the node's
    "/v1/agent/check/pass/*id": [NODES["write"]], "/v1/agent/check/warn/*id": [NODES["write"]], "/v1/agent/check/fail/*id": [NODES["write"]],
    "/v1/agent/check/update/*id": [NODES["write"]], "/v1/agent/check/deregister/*id": [NODES["write"]], "/v1/agent/check/explain/*id": [NODES["read"]],
    "/v1/lb/pick/*service": [NODES["read"]], "/v1/lb/owner/*service": [NODES["read"]],
    # with ?ttl= they make a session
    "/v1/lock/+name/acquire": [SESSIONS], "/v1/election/+name/campaign": [SESSIONS], "/v1/barrier/+name/enter": [SESSIONS],
    "/v1/hazard/+object/protect": [SESSIONS], "/v1/phaser/+name/register": [SESSIONS], "/v1/quota/:name/lease": [SESSIONS],
    # they renew the session
    "/v1/lock/+name/renew": [SESSIONS], "/v1/election/+name/renew": [SESSIONS],
}
# A thing that is hidden is answered as one that is not there.
AS_NOT_THERE = {("/v1/failover/:service", "GET")}


def by(token):
    return {"X-Consul-Token": token}


def rule(resource, level, name=None, prefix=False):
    if resource not in NAMED:
        return '%s = "%s"' % (resource, level)
    return '%s%s %s { policy = "%s" }' % (resource, "_prefix" if prefix else "", json.dumps(name or ""), level)


def token_of(agent, rules, made={}):
    """The secret of a token with these rules; equal ones share it."""
    text = "\n".join(rules)
    if text not in made:
        name = "p%d" % len(made)
        if text:
            status, _, answer = agent.request("PUT", "/v1/acl/policy", {"Name": name, "Rules": text}, headers=by(ROOT))
            check(status == 200, "%s: %r" % (text, answer))
        status, _, answer = agent.request("PUT", "/v1/acl/token", {"Policies": [{"Name": name}] if text else []}, headers=by(ROOT))
        check(status == 200, "%r" % answer)
        made[text] = json.loads(answer)["SecretID"]
    return made[text]


class Row:
    def __init__(self, endpoint, kept, agent):
        example = endpoint["Example"]
        plain = dict(kept, address=agent.ip)
        self.path, self.method, self.body, self.status = endpoint["Path"], example["Method"], example.get("Body"), example["Status"]
        self.keep = example.get("Keep")
        self.target = re.sub(r"{(\w+)}", lambda m: str(plain[m[1]]), re.sub(r"/[:*+]\w+", "/x", example["Target"]))
        if self.body:
            self.body = re.sub(r"{(\w+)}", lambda m: str(plain.get(m[1], m[0])), self.body)
        text = endpoint["Permission"]
        self.open = text.startswith("none")
        self.right, _, rest = text.partition(" ")
        self.rows = rest == "rows"
        self.of = rest[3:] if rest.startswith("of ") else None
        if not self.open:
            self.resource, self.level = self.right.split(":")

    def name(self, agent):
        """The name that the row says; None: it says none."""
        if not self.of:
            return None
        if self.of == "this agent":
            return agent.name
        at = self.target.split("?")[0].split("/")
        pattern = "/".join(re.escape(part) if part[:1] not in tuple(":*+") else "(.+)" if part[1:] == self.of[1:] else "[^/]+"
                           for part in self.path.split("/"))
        found = re.fullmatch(pattern, "/".join(at))
        check(found, "%s in %s" % (self.path, self.target))
        return found[1]

    def ask(self, agent, token):
        return agent.request(self.method, self.target, self.body, headers=by(token))


def each_row_asks_for_its_right():
    topics = json.loads(subprocess.run([COORD, "api"], capture_output=True, check=True).stdout)
    agent = Agent(configuration(acl={"enabled": True, "default_policy": "deny", "tokens": {"initial_management": ROOT}}), dev=True, name="web1")
    agent.start(wait=False)

    def passes():
        try:
            status, _, answer = agent.request("GET", "/v1/health/node/web1", headers=by(ROOT))
        except OSError:
            return False
        return status == 200 and [c for c in json.loads(answer) if c["Status"] == "passing"]
    until("the agent's check passes", passes, 30)
    nobody, kept, faults, seen = token_of(agent, []), {}, [], 0
    for topic in topics:
        if topic["Title"].startswith("Access control") or topic["Title"].startswith("Tokens of"):
            continue                                  # tests/e2e/test_acl.py; their examples are of an agent without access control
        for endpoint in topic["Endpoints"]:
            if "Example" not in endpoint or endpoint["Methods"] == ["OPTIONS"]:
                continue
            row = Row(endpoint, kept, agent)
            seen += 1
            what = "%s %s (%s)" % (row.method, row.target, endpoint["Permission"])
            if not row.open:
                status = row.ask(agent, nobody)[0]
                wanted = {200, 404, 503} if row.rows or (row.path, row.method) in AS_NOT_THERE else {403}
                if status not in wanted:
                    faults.append("%s: %d without the right" % (what, status))
                name = row.name(agent)
                if name:
                    rules = [rule(row.resource, "write", prefix=True), rule(row.resource, "deny", name)]
                    status = row.ask(agent, token_of(agent, rules))[0]
                    if status != 403:
                        faults.append("%s: %d with a denial for %s" % (what, status, name))
                right = [rule(row.resource, row.level, name)] if name else [rule(row.resource, row.level, prefix=True)]
                token = token_of(agent, right + MORE.get(row.path, []))
            else:
                token = ROOT
            last = []

            def works():
                last[:] = row.ask(agent, token)
                return last[0] == row.status
            try:
                until("", works, 1)
            except AssertionError:
                faults.append("%s: %d %r with %s" % (what, last[0], last[2][:150], [] if row.open else right))
                last[:] = row.ask(agent, ROOT)
                if last[0] != row.status:
                    break
            if row.keep:
                word, member = row.keep.split("=")
                kept[word] = json.loads(last[2])[member]
    check(not faults, "%d of %d:\n%s" % (len(faults), seen, "\n".join(faults)))
    check(seen > 100, "%d rows" % seen)


if __name__ == "__main__":
    run([each_row_asks_for_its_right])
