"""Each row of the routing table, by a server and through a client agent: with exactly the rights that its request needs it works; without
one of them, with the level below, and with a denial for the longer name it does not. The rows and what they declare come from `coord api`,
the requests from concurrent.futures import ThreadPoolExecutor
from access_requests.py: a row without a request, or a request without a row, is a fault."""
import http.client, json, os, re, subprocess, time, uuid
from concurrent.futures import ThreadPoolExecutor
from access_requests import requests
from coordtest import COORD, HERE, SLOW, Agent, check, configuration, run, until
from web_tokens import PUBLIC, web_token

ROOT = "11111111-2222-4333-8444-555555555555"
UNNAMED = ("acl", "keyring", "operator")
OPTIONS = {"status", "shows", "hides", "keep", "token", "stop", "sees", "headers"}


def by(token):
    return {"X-Consul-Token": token} if token else {}


class Right:
    """RESOURCE:LEVEL NAME"""

    def __init__(self, text):
        self.what, _, name = text.partition(" ")
        self.resource, self.level = self.what.split(":")
        self.named = self.resource not in UNNAMED
        check(self.named == bool(name), text)
        self.prefix = name.endswith("*")
        self.name = "" if name == '""' else name.rstrip("*")

    def rule(self, level=None, prefix=None, name=None):
        level = level or self.level
        if not self.named:
            return '%s = "%s"' % (self.resource, level)
        prefix = self.prefix if prefix is None else prefix
        return '%s%s %s { policy = "%s" }' % (self.resource, "_prefix" if prefix else "", json.dumps(self.name if name is None else name), level)

    def too_little(self):
        """What is less than this right, each as a list of rules."""
        yield []
        if self.level == "write":
            yield [self.rule("read")]
        if self.named:
            yield [self.rule("write", True, ""), self.rule("deny", False, self.name + "zz" if self.prefix else self.name)]


def rights_of(text):
    return [] if text == "none" else [Right(one) for one in text.split(" + ")]


def too_few(rights):
    """Each way to have one of the rights not, or not enough of it: its number, the rules of the others, and its own."""
    for i, right in enumerate(rights):
        for less in right.too_little():
            yield i, [r.rule() for r in rights[:i] + rights[i + 1:]], less


class Rows:
    """All requests to one agent; `server` makes the tokens."""

    def __init__(self, agent, server):
        self.agent, self.server, self.tokens, self.faults = agent, server, {}, []
        self.words = {"agent": agent.name, "address": server.ip}

    def fill(self, text):
        return re.sub(r"{(\w+)}", lambda m: str(self.words.get(m[1], m[0])), text)

    def token_of(self, rules):
        """The secret of a token with these rules; equal ones share it."""
        text = "\n".join(rules)
        if text not in self.tokens:
            name = "p" + uuid.uuid4().hex
            made = self.managed("PUT", "/v1/acl/policy", {"Name": name, "Rules": text}) if text else None
            self.tokens[text] = self.managed("PUT", "/v1/acl/token", {"Policies": [{"Name": made["Name"]}] if made else []})["SecretID"]
        return self.tokens[text]

    def managed(self, method, target, body):
        status, _, answer = self.server.request(method, target, body, headers=by(ROOT))
        check(status == 200, "%s %s %r: %d %r" % (method, target, body, status, answer))
        return json.loads(answer)

    def send(self, method, target, body, token, more):
        """Status, headers and answer. Of a stream as much as is wanted."""
        if "stop" not in more and "headers" not in more:
            return self.agent.request(method, target, body, headers=by(token))
        connection = http.client.HTTPConnection(self.agent.ip, 8500, timeout=30 * SLOW)
        try:
            connection.request(method, target, headers=by(token))
            response, seen = connection.getresponse(), b""
            while "stop" in more and response.status == 200 and more["stop"].encode() not in seen:
                line = response.readline()
                check(line, "%s ended before %s: %r" % (target, more["stop"], seen))
                seen += line
            return response.status, response.headers, seen
        finally:
            connection.close()

    def one(self, row, target, body, rights, more):
        method, path = row.split(" ")
        target = self.fill(target or path)
        body = body if body is None or isinstance(body, str) else self.fill(json.dumps(body))
        more = {key: self.fill(value) if isinstance(value, str) else value for key, value in more.items()}
        rights, beside = rights_of(self.fill(rights)), [r.rule() for r in rights_of(more.get("sees", "none"))]
        wanted, shows = more.get("status", 200), more.get("shows", "")
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        lists = shows and rights and rights[0].level == "read"
        what = "%s %s" % (method, target)
        hides = more.get("hides", 200 if lists else 403)
        for i, others, less in too_few(rights):
            hidden = hides[i] if isinstance(hides, tuple) else hides
            others = beside + others
            got, headers, answer = self.send(method, target, body, self.token_of(others + less), more)
            if got != hidden:
                self.faults.append("%s: %d in place of %d with %s: %r" % (what, got, hidden, others + less, answer[:150]))
            elif lists and shows.encode() in answer:
                self.faults.append("%s shows %s with %s" % (what, shows, others + less))
            elif lists and got == 200 and "stop" not in more and not (
                    int(headers.get("X-Coord-Filtered") or 0) and headers.get("X-Consul-Results-Filtered-By-ACLs") == "true"):
                self.faults.append("%s does not say that it was filtered with %s: %r" % (what, others + less, answer[:150]))
        rules, last = beside + [r.rule() for r in rights], []
        token = self.token_of(rules) if rules else more.get("token")

        def works():
            last[:] = self.send(method, target, body, token, more)
            self.words["index"] = last[1].get("X-Consul-Index") or self.words.get("index")
            return last[0] in wanted and shows.encode() in last[2]
        try:
            check(works() if len(self.faults) > 2 else until("", works, 1), "")     # many are not waited for
        except AssertionError:
            self.faults.append("%s: %d %r with %s" % (what, last[0], last[2][:200], rules))
            last[:] = self.send(method, target, body, ROOT, more)
        if "keep" in more:
            word, member = more["keep"].split("=")
            check(last[0] in wanted, "\n".join(self.faults))
            self.words[word] = json.loads(last[2])[member]

    def all(self):
        sets = {"": []}                               # made side by side, because each waits for the disk
        for row, _, _, *rest in requests(PUBLIC, ""):
            if row:
                rights = rights_of(self.fill(rest[0]))
                beside = [r.rule() for r in rights_of(rest[1].get("sees", "none") if len(rest) > 1 else "none")]
                for rules in [[r.rule() for r in rights]] + [others + less for _, others, less in too_few(rights)]:
                    sets["\n".join(beside + rules)] = beside + rules
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self.token_of, sets.values()))
        for row, target, body, *rest in requests(PUBLIC, web_token(sub="web", iat=int(time.time()))):
            if row:
                self.one(row, target, body, rest[0], rest[1] if len(rest) > 1 else {})
            else:
                method, target = self.fill(target).split(" ")
                status, _, answer = self.agent.request(method, target, body, headers=by(ROOT))
                check(status == 200, "%s %s: %d %r" % (method, target, status, answer))
        check(not self.faults, "%d faults of %s:\n%s" % (len(self.faults), self.agent.name, "\n".join(self.faults)))


def table():
    """The routing table: what each row declares."""
    topics = json.loads(subprocess.run([COORD, "api"], capture_output=True, check=True).stdout)
    return {"%s %s" % (e["Methods"][0], e["Path"]): e["Permission"] for topic in topics for e in topic["Endpoints"]}


def every_row_has_a_request_for_what_it_declares():
    rows, asked = table(), {}
    for row, _, _, *rest in requests(PUBLIC, ""):
        if row:
            asked.setdefault(row, []).append(rest[0])
            check(not set(rest[1] if len(rest) > 1 else {}) - OPTIONS, "%s: %r" % (row, rest))
    check(not set(rows) - set(asked), "rows without a request in access_requests.py: %s" % sorted(set(rows) - set(asked)))
    check(not set(asked) - set(rows), "requests in access_requests.py that no row takes: %s" % sorted(set(asked) - set(rows)))
    with open(os.path.join(HERE, "../../docs/api.md")) as f:
        text = f.read()
    documented = {a + b: line for a, b, line in re.findall(r"^### (\w+)(?: \w+)*( `/.*?`)\n\n(.*)$", text, re.M)}
    gone = set(re.findall(r"^- (\w+ `/v1/acl/.*?`): ", text, re.M))         # Consul's former endpoints are only listed
    faults = []
    for row, permission in rows.items():
        rights = {right.what for texts in asked[row] for right in rights_of(texts)}
        right, _, name = permission.partition(" ")
        shown = row.replace(" ", " `") + "`"
        if "Permission `%s`." % permission not in documented.get(shown, "") and not (shown in gone and permission == "none: it does nothing"):
            faults.append("%s: docs/api.md does not say %s" % (row, permission))
        if right == "none:":
            if not name or (not rights) == ("judged by itself" in name):
                faults.append("%s: %s, and its requests need %s" % (row, permission, rights or "nothing"))
        elif right not in rights:
            faults.append("%s declares %s, and its requests need %s" % (row, permission, rights))
    check(not faults, "\n".join(faults))
    print("     %d rows, %d of them open to all" % (len(rows), sum(p.startswith("none") for p in rows.values())))


def access(**tokens):
    return configuration(acl={"enabled": True, "default_policy": "deny", "tokens": dict(tokens, initial_management=ROOT, agent=ROOT)})


def alive(agent, server):
    """Its node's check passes."""
    def passes():
        try:
            status, _, answer = server.request("GET", "/v1/health/node/" + agent.name, headers=by(ROOT))
        except OSError:
            return False
        return status == 200 and [c for c in json.loads(answer) if c["Status"] == "passing"]
    until("%s is healthy" % agent.name, passes, 30)


def a_server_asks_for_each_right():
    agent = Agent(access(), dev=True, name="web1")
    agent.start(wait=False)
    alive(agent, agent)
    Rows(agent, agent).all()


def a_client_agent_asks_for_each_right():
    server = Agent(access(), name="s1")
    server.start(wait=False)
    alive(server, server)
    agent = Agent("-retry-join=" + server.ip, access(), server=False, name="web1")
    agent.start(wait=False)
    alive(agent, server)
    Rows(agent, server).all()


if __name__ == "__main__":
    run([every_row_has_a_request_for_what_it_declares, a_server_asks_for_each_right, a_client_agent_asks_for_each_right])
