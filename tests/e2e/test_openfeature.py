"""OpenFeature's remote evaluation protocol (OFREP) 0.3: its requests, word for word, and answers as its OpenAPI document wants them; the stream of
events; what browsers ask. OpenFeature's own providers: test_openfeature_providers.py."""
import http.client, json
from coordtest import SLOW, Agent, check, run
from waiters import want

FLAGS = "/ofrep/v1/evaluate/flags"
REASONS = ("STATIC", "TARGETING_MATCH", "SPLIT", "DISABLED", "UNKNOWN")
CODES = ("PARSE_ERROR", "TARGETING_KEY_MISSING", "INVALID_CONTEXT", "GENERAL")


def stage(agent, name, version, **keys):
    return want(agent, "PUT", "/v1/rollout/%s/current" % name, dict(keys, Version=version))


def flags(agent, **documents):
    """A rollout for each, with versions v1, v2, ..., of which the first is for everybody."""
    for name, versions in documents.items():
        for i, document in enumerate(versions):
            agent.put("/v1/rollout/%s/versions/v%d" % (name.replace("_", "-"), i + 1), document)
        stage(agent, name.replace("_", "-"), "v1")


def evaluate(agent, path="", context={"targetingKey": "me"}, headers=None, body=None):
    """(status, JSON or None, headers)"""
    headers = dict({"Content-Type": "application/json; charset=utf-8"}, **headers or {})
    code, got, text = agent.request("POST", FLAGS + path, json.dumps({"context": context}) if body is None else body, headers=headers)
    check(got["Access-Control-Allow-Origin"] == "*", got.items())
    check(not text or got["Content-Type"].startswith("application/json"), got.items())
    return code, json.loads(text) if text else None, got


# -- the specification's schemas ----------------------------------------------------------------------------------------

def success(answer):
    return (isinstance(answer.get("key"), str) and answer.get("reason") in REASONS and isinstance(answer.get("variant", ""), str)
            and set(answer) <= {"key", "reason", "variant", "value", "metadata"})


def failure(answer, codes=CODES):
    return isinstance(answer.get("key"), str) and answer.get("errorCode") in codes and isinstance(answer.get("errorDetails", ""), str)


def event_stream(entry):
    endpoint = entry.get("endpoint", {})
    return (isinstance(entry.get("type"), str) and ("url" in entry) != ("endpoint" in entry) and
            (not endpoint or endpoint["requestUri"].startswith("/")) and entry.get("inactivityDelaySec", 1) >= 1)


def bulk(answer):
    return (isinstance(answer["flags"], list) and all(success(f) != failure(f) for f in answer["flags"])
            and all(event_stream(s) for s in answer.get("eventStreams", [])))


# -- stories ------------------------------------------------------------------------------------------------------------

def evaluations():
    agent = Agent(dev=True).start()
    flags(agent, color=['"red"', '"blue"'], limits=['{"n":1}', '{"n":2}'], on=["false", "true"], motd=["hello there", "bye"])
    check(evaluate(agent, "/color")[:2] == (200, {"key": "color", "reason": "STATIC", "variant": "v1", "value": "red"}), evaluate(agent, "/color"))
    stage(agent, "color", "v2", Percent=99.9)
    check(evaluate(agent, "/color")[1] == {"key": "color", "reason": "SPLIT", "variant": "v2", "value": "blue"}, evaluate(agent, "/color"))
    stage(agent, "limits", "v2", Match={"Tags": ["beta"], "Nodes": ["n1"]})
    check(evaluate(agent, "/limits")[1]["reason"] == "STATIC", "it does not match")
    there = {"targetingKey": "me", "tags": ["beta"], "node": "n1", "email": "a@b"}
    check(evaluate(agent, "/limits", there)[1] == {"key": "limits", "reason": "TARGETING_MATCH", "variant": "v2", "value": {"n": 2}}, "it does")
    code, all_, headers = evaluate(agent)
    check(code == 200 and {f["key"]: f["variant"] for f in all_["flags"]} == {"color": "v2", "limits": "v1", "motd": "v1", "on": "v1"}, all_)
    tag = headers["ETag"]
    check(evaluate(agent, headers={"If-None-Match": tag})[:2] == (304, None), "the same")
    check(evaluate(agent, "", {"targetingKey": "me", "more": 1}, headers={"If-None-Match": '"x", W/' + tag})[0] == 304, "one of several")
    stage(agent, "motd", "v2")
    code, all_, headers = evaluate(agent, headers={"If-None-Match": tag})
    check(code == 200 and headers["ETag"] != tag, "another one")


def as_the_specification_has_it():
    """The examples of service/openapi.yaml, version 0.3.0, and every type of value."""
    agent = Agent(dev=True).start()
    values = {"discount-banner": True, "theme-color": "blue", "limit": 42, "ratio": 0.25, "banner": {"text": "hi", "sizes": [1, 2]}}
    for name, value in values.items():
        flags(agent, **{name: [json.dumps(value)]})
    flags(agent, code_default=["null"], broken=[b"\xff\xfe"])
    server_side = {"targetingKey": "user-123", "email": "user@example.com", "custom-plan": "premium", "country": "CA"}
    client_side = {"targetingKey": "user-456", "email": "user@example.com", "plan": "free", "country": "CA"}
    for name, value in values.items():
        code, answer, _ = evaluate(agent, "/" + name, server_side, headers={"Authorization": "Bearer abc", "X-API-Key": "abc"})
        check(code == 200 and success(answer) and answer["key"] == name and answer["value"] == value and type(answer["value"]) is type(value), answer)
    code, answer, _ = evaluate(agent, "/code-default", server_side)
    check(code == 200 and success(answer) and "value" not in answer, "the program's own default is to be used: %r" % answer)

    code, answer, headers = evaluate(agent, "", client_side)
    check(code == 200 and bulk(answer) and headers["ETag"], answer)
    check({f["key"] for f in answer["flags"]} == {*values, "code-default", "broken"}, answer)
    check([f["errorCode"] for f in answer["flags"] if "errorCode" in f] == ["PARSE_ERROR"], "one flag that fails leaves the others as they are: %r" % answer)
    for hints in ("?flagConfigEtag=abc123&flagConfigLastModified=1771622898", "?flagConfigEtag=550e8400-e29b-41d4-a716-446655440000&flagConfigLastModified=2026-02-20T21:28:18Z"):
        code, answer, got = evaluate(agent, hints, client_side, headers={"If-None-Match": headers["ETag"]})
        check((code, answer, got["ETag"]) == (304, None, headers["ETag"]), "what follows an event: %d %r" % (code, answer))
    check(evaluate(agent, "", client_side, headers={"If-None-Match": "abc123xyz"})[0] == 200, "a tag of another kind")

    rows = [("/non-existent-flag", server_side, None, 404, "FLAG_NOT_FOUND"), ("/a%2Fb", server_side, None, 404, "FLAG_NOT_FOUND"), ("/broken", server_side, None, 400, "PARSE_ERROR"),
            ("/theme-color", {}, None, 400, "TARGETING_KEY_MISSING"), ("/theme-color", {"targetingKey": ""}, None, 400, "TARGETING_KEY_MISSING"), ("/theme-color", {"targetingKey": None}, None, 400, "TARGETING_KEY_MISSING"), ("", {"email": "a@b"}, None, 400, "TARGETING_KEY_MISSING"),
            ("/theme-color", None, '{"context"', 400, "PARSE_ERROR"), ("/theme-color", None, "", 400, "PARSE_ERROR"), ("", None, "context=1", 400, "PARSE_ERROR"), ("", None, "", 400, "PARSE_ERROR"),
            ("/theme-color", None, "[]", 400, "INVALID_CONTEXT"), ("/theme-color", None, "{}", 400, "INVALID_CONTEXT"), ("", None, '{"context":"user-456"}', 400, "INVALID_CONTEXT"), ("", None, '{"context":null}', 400, "INVALID_CONTEXT"),
            ("/theme-color", {"targetingKey": 7}, None, 400, "INVALID_CONTEXT"), ("/theme-color", {"targetingKey": "x" * 2000}, None, 400, "INVALID_CONTEXT")]
    for path, context, body, status, expected in rows:
        code, answer, _ = evaluate(agent, path, context, body=body)
        check((code, answer["errorCode"]) == (status, expected) and answer["errorDetails"], (path, context, body, code, answer))
        check(failure(answer, CODES + ("FLAG_NOT_FOUND",)) if path else "key" not in answer, answer)
    # A document that somebody has removed: this flag fails, with a reason, and no other.
    agent.request("DELETE", "/v1/kv/config/limit/v1")
    code, answer, _ = evaluate(agent, "/limit", server_side)
    check(code == 400 and failure(answer) and answer["errorCode"] == "GENERAL" and "removed" in answer["errorDetails"], answer)
    check(bulk(evaluate(agent, "", client_side)[1]), "the others")
    for method in ("GET", "PUT", "DELETE"):
        check(agent.request(method, FLAGS)[0] == 405, method)


def events():
    """The stream that the bulk answer names: an event for each change of this caller's flags, and none for others'."""
    agent = Agent(dev=True).start()
    flags(agent, motd=["hello there", "bye"], on=["false", "true"])
    me = {"targetingKey": "a b&c"}
    path = evaluate(agent, "", me)[1]["eventStreams"][0]["endpoint"]["requestUri"]
    check(path.startswith("/ofrep/v1/events?targetingKey=a%20b%26c"), path)

    def opened(last=None):
        c = http.client.HTTPConnection(agent.ip, 8500, timeout=30 * SLOW)
        c.request("GET", path, headers=dict({"Accept": "text/event-stream", "Origin": "https://shop.example"}, **{"Last-Event-ID": last} if last else {}))
        r = c.getresponse()
        check(r.status == 200 and r.headers["Content-Type"] == "text/event-stream" and r.headers["Access-Control-Allow-Origin"] == "*", r.headers.items())
        return r

    def event(stream):
        lines = [line.decode().strip() for line in iter(stream.readline, b"\n")]
        return dict(line.split(": ", 1) for line in lines if line[:1] != ":")

    def tells(stream, tag):
        got = {}
        while not got:                                       # a comment, each 10 s
            got = event(stream)
        check(got["event"] == "message" and got["id"] == tag and json.loads(got["data"]) == {"type": "refetchEvaluation", "etag": tag}, (got, tag))

    def tag():
        return evaluate(agent, "", me)[2]["ETag"]
    stream = opened()
    tells(stream, tag())                                     # what has changed since the flags were fetched is not lost
    before = tag()
    stage(agent, "motd", "v2", Match={"Nodes": ["n77"]})
    stage(agent, "motd", "v2", Percent=0.01)
    check(evaluate(agent, "/motd", me)[1]["reason"] == "SPLIT" and tag() == before, "the reason is another one, and what it has the same")
    stage(agent, "on", "v2")
    tells(stream, tag())                                     # nothing was said of the stage for others
    known = tag()
    stage(agent, "on", "v1")
    tells(opened(known), tag())                              # who comes back is told what it has missed
    again = opened(tag())
    check(event(again) == {}, "and nothing when all is as it was")
    stage(agent, "on", "v2")
    tells(again, tag())


def browsers():
    agent = Agent(dev=True).start()
    flags(agent, on=["true"])
    asks = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,if-none-match,authorization,x-api-key"}
    for path in (FLAGS, FLAGS + "/on"):
        code, headers, body = agent.request("OPTIONS", path, headers=asks)
        allowed = headers["Access-Control-Allow-Headers"].lower().replace(" ", "").split(",")
        check(code == 204 and not body and headers["Access-Control-Allow-Origin"] == "*" and "POST" in headers["Access-Control-Allow-Methods"], headers.items())
        check(set(asks["Access-Control-Request-Headers"].split(",")) <= set(allowed), headers.items())
    # One that reads the stream with headers of its own, and not by EventSource.
    code, headers, _ = agent.request("OPTIONS", "/ofrep/v1/events?targetingKey=a", headers={"Origin": "https://shop.example", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "last-event-id"})
    check(code == 204 and "GET" in headers["Access-Control-Allow-Methods"] and "last-event-id" in headers["Access-Control-Allow-Headers"].lower(), (code, headers.items()))
    for context in ({"targetingKey": "a"}, {}):              # failures are for the page to read too
        check("ETag" in evaluate(agent, "", context, headers={"Origin": "https://shop.example"})[2]["Access-Control-Expose-Headers"], context)
    check(agent.request("OPTIONS", "/v1/kv/a", headers=asks)[0] != 204, "nothing else of the API is open to pages")


if __name__ == "__main__":
    run([evaluations, as_the_specification_has_it, events, browsers])
