"""docs/api.md is what the routing table says, with examples that were run: an agent is started, the example of each row is made in the
order of the table, and the answers are shown, with indexes, IDs, times and addresses replaced. The test compares; `--write` (./dev docs)
writes the file."""
import difflib, json, os, re, subprocess, sys
from closed import Member, found
from coordtest import COORD, HERE, Agent, Cluster, check, configuration, run, until

PATH = os.path.join(HERE, "../../docs/api.md")
LISTED, WIDTH, TEXT = 1, 100, 60          # items of a list that are shown, characters of a line of JSON, of a text in it

UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
SHOWN_UUID = "8e3a6c9e-2d5b-4f0a-9c1d-7b2f5e8a1c40"
TIMES = {"LastContact": "0s", "Remaining": "59.9s", "StatusAge": "1.5s", "ResultAge": "1.5s", "NextIn": "9m58.5s", "Timestamp": "2026-01-01 00:00:00 +0000 UTC", "StableSince": "2026-01-01T00:00:00Z"}
NUMBERS = {"LTime": 42, "index": 42, "LastTerm": 2, "NotBefore": 59990}
RATES = {"Rate": 1, "MeanRate": 0.998}     # less when a second has passed since
GROWING = {"FencingToken": 42, "Term": 42, "Round": 42, "WorkingRound": 42, "ReleasedRound": 42, "Epoch": 42, "Highest": 42,
           "Since": 1767225600000, "Time": 1767225600000, "CurrentTime": 1767225600000, "BeganTime": 1767225600000, "SinceTime": 1767225600000,
           "PausedTime": 1767225600000}                                                     # 0 stays 0

HEAD = """# HTTP API

Written by `./dev docs` from the routing table (`http/api/*.c`); the examples were run, and the test suite runs them again. Indexes, IDs, times
and addresses are replaced, long answers shortened.

An agent answers at `localhost:8500`, in JSON, and refuses in one line of text with a status of 4xx or 5xx. Endpoints are Consul 1.8's, which
ignore parameters that they do not know, unless they are called *coord's own*: those refuse with 400 what is not declared here, or not as
declared. *Permission* is what a token has to allow where access control is on ([security](security.md#access-control)).

Every endpoint takes `pretty` (indented JSON) and `token`.
"""


# ---- the answer, as it is shown ----
def replaced(value, key=""):
    if isinstance(value, dict):
        return {UUID.sub(SHOWN_UUID, k): replaced(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [replaced(v, key) for v in value]
    if key in TIMES and isinstance(value, str):
        return TIMES[key]
    if key in RATES and isinstance(value, (int, float)) and value > 0:
        return RATES[key]
    if isinstance(value, int) and not isinstance(value, bool):
        grown = 42 if key.endswith("Index") else GROWING.get(key, value)
        return NUMBERS.get(key, grown if value > 0 else value)
    if isinstance(value, str):
        value = UUID.sub(SHOWN_UUID, value)
        value = re.sub(r"^[0-9a-f]{16}$", "f3c21a7b9d4e5f60", value)
        return value if len(value) <= TEXT else value[:TEXT] + "..."
    return value


def shortened(value, depth):
    """Text of a value in lines; deeper than `depth` only that there is more."""
    if not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    if depth == 0:
        return begin + "..." + end
    if not value:
        return begin + end
    if isinstance(value, dict):
        items = [json.dumps(k) + ": " + shortened(v, depth - 1) for k, v in value.items()]
    else:
        items = [shortened(v, depth - 1) for v in value[:LISTED]] + (["..."] if len(value) > LISTED else [])
    line = begin + ", ".join(items) + end
    if len(line) <= WIDTH and "\n" not in line:
        return line
    return begin + "\n  " + ",\n".join(items).replace("\n", "\n  ") + "\n" + end


def shown(agent, headers, body, depth):
    kind = (headers.get("Content-Type") or "").split(";")[0]
    if kind not in ("application/json", "text/plain", ""):
        return "(%s)" % kind
    try:
        return shortened(replaced(json.loads(body.decode().replace(agent.ip, "10.0.0.1"))), depth)
    except ValueError:
        return body.decode().replace(agent.ip, "10.0.0.1")


# ---- running the examples ----
def made(agent, example, kept):
    """Makes the request; returns its lines in the document."""
    target = re.sub(r"/[:*+]\w+", "/x", example["Target"])
    plain = dict(kept, address=agent.ip)
    send = re.sub(r"{(\w+)}", lambda m: str(plain[m[1]]), target)
    body = example.get("Body")

    def answered():                                   # some things take a moment: coordinates are written in batches
        last[:] = agent.request(example["Method"], send, body)
        return last[0] == example["Status"]
    last = []
    try:
        until("", answered)
    except AssertionError:
        raise AssertionError("%s %s: %d is wanted, not %r" % (example["Method"], send, example["Status"], last)) from None
    _, headers, answer = last
    if "Keep" in example:
        word, member = example["Keep"].split("=")
        kept[word] = json.loads(answer)[member]
    method = "" if example["Method"] == "GET" else "-X %s " % example["Method"]
    shows = {word: 42 if isinstance(value, int) else value for word, value in plain.items()}
    target = re.sub(r"{(\w+)}", lambda m: str(shows[m[1]]), target)
    target = UUID.sub(SHOWN_UUID, target).replace(agent.ip, "10.0.0.1")
    line = "$ curl %s%s" % (method, "'localhost:8500%s'" % target if re.search(r"[?&]", target) else "localhost:8500" + target)
    if body:
        line += " -d '%s'" % body
    text = shown(agent, headers, answer, example["Depth"])
    return [line, "%d" % example["Status"] + (" " + text if text and "\n" not in text else "")] + (text.split("\n") if "\n" in text else [])


# ---- the document ----
def parameter_line(p):
    notes = [p["Wanted"]] + ["required"] * p["Required"] + ["may repeat"] * p["Repeats"]
    if "Default" in p:
        notes.append("default `%s`" % p["Default"])
    return "- `%s` (%s)" % (p["Name"].lstrip(":*+"), "; ".join(notes)) + (": " + p["Help"] if "Help" in p else "")


def members_lines(members, indent=""):
    for p in members:
        yield indent + parameter_line(p)
        yield from members_lines(p.get("Group", []), indent + "  ")


def endpoint_lines(agent, e, groups, kept):
    yield "### %s `%s`" % (" ".join(e["Methods"]), e["Path"])
    yield ""
    facts = [e["Summary"] + "."]
    if e["Own"]:
        facts.append("coord's own.")
    if e["Since"] > 1:
        facts.append("Since cluster version %d." % e["Since"])
    facts.append("Permission `%s`." % e["Permission"])
    if "Command" in e:
        facts.append("Command: `coord %s`." % e["Command"])
    yield " ".join(facts)
    yield ""
    lines = []
    for p in e["Parameters"]:
        if "Group" in p:
            groups[p["Name"]] = p["Group"]
            lines.append("- as all [%s](#%s)" % (p["Name"], p["Name"].replace(" ", "-")))
        else:
            lines.append(parameter_line(p))
    if e["Members"]:
        lines.append("- body: an object")
        lines += members_lines(e["Members"], "  ")
    if "Body" in e:
        lines.append("- body:" + parameter_line(e["Body"])[1:])
    yield from lines + [""] * bool(lines)
    if "Example" in e:
        yield "```console"
        yield from made(agent, e["Example"], kept)
        yield "```"
    else:
        yield "No example: %s." % e["NoExample"]
    yield ""


def alike_lines(agent, summary, endpoints, kept):
    yield summary + "."
    yield ""
    for e in endpoints:
        answer = " ".join(made(agent, e["Example"], kept)[1:])
        yield "- %s `%s`: %s" % (" ".join(e["Methods"]), e["Path"], answer)
    yield ""


def document():
    topics = json.loads(subprocess.run([COORD, "api"], capture_output=True, check=True).stdout)
    agent = Agent(dev=True, name="web1").start()
    until("the agent's check passes", lambda: [c for c in agent.get("/v1/health/node/web1")[2] if c["Status"] == "passing"])
    groups, kept, lines = {}, {}, []
    for topic in topics:
        lines += ["## " + topic["Title"], ""]
        alike = {}                                   # those of which the table says the same: once
        for e in topic["Endpoints"]:
            alike.setdefault(e["Summary"], []).append(e)
        for summary, endpoints in alike.items():
            if len(endpoints) > 1:
                lines += alike_lines(agent, summary, endpoints, kept)
            else:
                lines += endpoint_lines(agent, endpoints[0], groups, kept)
    shared = []
    for name, group in groups.items():
        shared += ["## " + name[0].upper() + name[1:], ""] + list(members_lines(group)) + [""]
    index = ["- [%s](#%s): %d endpoint%s" % (t["Title"], re.sub(r"[^a-z -]", "", t["Title"].lower()).replace(" ", "-"), len(t["Endpoints"]), "s"[:len(t["Endpoints"]) - 1])
             for t in topics]
    return "\n".join([HEAD] + index + [""] + shared + lines)


def api_md_is_what_the_routing_table_says():
    now = document()
    with open(PATH) as f:
        then = f.read()
    diff = list(difflib.unified_diff(then.split("\n"), now.split("\n"), "docs/api.md", "the routing table", lineterm=""))
    check(not diff, "docs/api.md is stale: ./dev docs writes it anew\n" + "\n".join(diff))


def a_server_prints_every_metric_of_the_reference():
    with open(os.path.join(HERE, "../../docs/reference.md")) as f:
        told = {name: (kind, text) for name, kind, text in re.findall(r"^\| `((?:coord|process)_\w+)` \| (\w+) \| [^|]* \| (.+) \|$", f.read(), re.M)}
    agent = Cluster(1).start().servers[0]
    text = agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()
    # Some are only printed where there are certificates, or where DNS over TLS is on.
    closed = Member(configuration(ports={"dns_tls": 8853}), name="f1")
    found(closed)
    closed.start()
    certificates = re.findall("^(?:# \\w+ )?coord_(?:certificate|dns_tls)_.*\n", closed.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode(), re.M)
    check("coord_certificate_" not in text and sum("coord_certificate_" in line for line in certificates) == 5, certificates)
    text += "".join(certificates)
    helps, kinds = (dict(re.findall(r"^# %s (\S+) (.+)$" % what, text, re.M)) for what in ("HELP", "TYPE"))
    printed = {name: (kinds[name], helps[name]) for name in helps}
    check(printed == told and len(told) > 30, "%s" % (set(printed.items()) ^ set(told.items())))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        text = document()
        with open(PATH, "w") as f:
            f.write(text)
    else:
        run([api_md_is_what_the_routing_table_says, a_server_prints_every_metric_of_the_reference])
