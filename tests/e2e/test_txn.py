"""Transactions: all or nothing, as Consul's clients send them, on a server, a follower and a client agent; with comparisons and fences; from
the command line; the examples of docs/transactions.md."""
import base64, json, os, subprocess, tempfile, threading
from coordtest import COORD, SLOW, Cluster, check, configuration, run, until
from waiters import documented

cluster, asked = None, []
READ = {"Index": 0, "LastContact": 0, "KnownLeader": True, "ConsistencyLevel": ""}


def begin():
    global cluster
    short = configuration(session_ttl_min="500ms")
    cluster = Cluster(3, short).start()
    client = cluster.agent("a1", short).start(wait=False)
    client.wait_leader(30)
    asked[:] = [cluster.leader(), cluster.followers()[0], client]
    until("transactions", lambda: txn(client, kv("set", "begun"))[0] == 200)


def b64(text):
    return base64.b64encode(text.encode()).decode()


def txn(agent, *operations, path="/v1/txn", headers=None):
    status, _, body = agent.request("PUT", path, json.dumps(list(operations)), headers=headers)
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode()


def when(agent, compares, then=(), otherwise=()):
    status, _, body = agent.request("PUT", "/v1/txn/if", {"If": compares, "Then": list(then), "Else": list(otherwise)})
    return status, json.loads(body)


def kv(verb, key, **more):
    return {"KV": dict({"Verb": verb, "Key": key}, **more)}


def value(agent, key):
    status, _, body = agent.request("GET", "/v1/kv/%s?raw" % key)
    return body.decode() if status == 200 else None


def errors(answer):
    check(answer["Results"] is None, answer)
    return [(error["OpIndex"], error["What"]) for error in answer["Errors"]]


def keys_as_consuls_clients_send_them():
    for number, agent in enumerate(asked):
        key = "shapes%d/a" % number
        # Go's client: every field, and null for what the operation is not
        go = dict(kv("set", key, Value=b64("1"), Flags=7, Index=0, Session=""), Node=None, Service=None, Check=None)
        status, answer = txn(agent, go)
        entry = answer["Results"][0]["KV"]
        check(status == 200 and answer["Errors"] is None, answer)
        check(list(entry) == ["LockIndex", "Key", "Flags", "Value", "CreateIndex", "ModifyIndex"] and entry["Value"] is None, entry)
        # npm's consul: application/json; python's: no content type, keys in lower case work too
        status, answer = txn(agent, kv("get", key), kv("get-tree", key[:-1]), headers={"Content-Type": "application/json"})
        check(status == 200 and [r["KV"]["Value"] for r in answer["Results"]] == [b64("1")] * 2, answer)
        check({k: answer[k] for k in READ} == READ, answer)
        status, answer = txn(agent, {"kv": {"verb": "delete-tree", "key": key[:-1]}}, kv("check-not-exists", key))
        check((status, answer) == (200, {"Results": [], "Errors": None}), answer)


def a_failure_leaves_nothing_and_names_all():
    for number, agent in enumerate(asked):
        key = "all%d/" % number
        status, answer = txn(agent, kv("set", key + "a", Value=b64("1")), kv("get", key + "x"), kv("cas", key + "b", Index=7), kv("set", key + "c"))
        check(status == 409 and errors(answer) == [(1, 'key "%sx" doesn\'t exist' % key), (2, 'failed to set key "%sb", index is stale' % key)], answer)
        check(agent.request("GET", "/v1/kv/%s?keys" % key)[0] == 404, "nothing is there")


def nobody_sees_half():
    """A writer moves both keys together, on one agent; readers of the others never see them apart."""
    writer, done, seen = asked[2], threading.Event(), []
    txn(writer, kv("set", "pair/a", Value=b64("0")), kv("set", "pair/b", Value=b64("0")))

    def read(agent, query):
        while not done.is_set():
            status, answer = txn(agent, kv("get", "pair/a"), kv("get", "pair/b"), path="/v1/txn" + query)
            if status == 200:
                seen.append(tuple(r["KV"]["Value"] for r in answer["Results"]))
    readers = [threading.Thread(target=read, args=(a, q)) for a, q in ((asked[0], ""), (asked[1], "?stale"), (asked[1], "?consistent"))]
    for reader in readers:
        reader.start()
    for i in range(200):
        moved = [kv("set", "pair/a", Value=b64(str(i))), kv("set", "pair/b", Value=b64(str(i)))]
        failing = [kv("set", "pair/a", Value=b64("half")), kv("get", "pair/none")]
        check(txn(writer, *moved)[0] == 200 and txn(writer, *failing)[0] == 409, "move %d" % i)
    done.set()
    for reader in readers:
        reader.join()
    check(len(set(seen)) > 1 and all(a == b for a, b in seen), "seen apart: %r" % [pair for pair in seen if pair[0] != pair[1]][:3])


def nobody_is_woken_by_a_failure():
    agent, woken = asked[1], []
    _, headers, _ = agent.get("/v1/kv/quiet?recurse&keys") if txn(agent, kv("set", "quiet/a"))[0] == 200 else None
    index = headers["X-Consul-Index"]

    def wait():
        woken.append(agent.request("GET", "/v1/kv/quiet?recurse&keys&wait=300s&index=" + index, timeout=400))
    waiter = threading.Thread(target=wait)
    waiter.start()
    for _ in range(20):
        check(txn(asked[0], kv("set", "quiet/b"), kv("delete", "quiet/a"), kv("get", "none"))[0] == 409, "it fails")
    check(not woken, "woken by what did not happen: %r" % woken)
    check(txn(asked[0], kv("set", "quiet/b"))[0] == 200, "and this happens")
    waiter.join(30 * SLOW)
    check(woken and json.loads(woken[0][2]) == ["quiet/a", "quiet/b"], woken)


def the_catalog():
    for number, agent in enumerate(asked):
        node, service, name = "txn%d" % number, "web%d" % number, {"Node": "txn%d" % number}
        status, answer = txn(agent, {"Node": {"Verb": "set", "Node": dict(name, Address="10.0.0.9", Meta={"a": "b"})}},
                             {"Service": {"Verb": "set", "Node": node, "Service": {"Service": service, "Port": 80, "Tags": ["v1"]}}},
                             {"Check": {"Verb": "set", "Check": dict(name, CheckID="c", Name="c", ServiceID=service, Status="passing")}})
        check(status == 200 and [list(r) for r in answer["Results"]] == [["Node"], ["Service"], ["Check"]], answer)
        check(answer["Results"][2]["Check"]["ServiceName"] == service, answer)
        _, _, health = agent.get("/v1/health/service/%s?passing" % service)
        check(len(health) == 1 and health[0]["Node"]["Meta"] == {"a": "b"}, health)
        index = answer["Results"][1]["Service"]["ModifyIndex"]
        status, answer = txn(agent, {"Service": {"Verb": "cas", "Node": node, "Service": {"Service": service, "Port": 81, "ModifyIndex": index}}},
                             {"Node": {"Verb": "delete-cas", "Node": dict(name, ModifyIndex=1)}})
        check(status == 409 and errors(answer) == [(1, 'failed to delete node "%s", index is stale' % node)], answer)
        check(txn(agent, {"Service": {"Verb": "delete", "Node": node, "Service": {"ID": service}}}, {"Node": {"Verb": "delete", "Node": name}})[0] == 200, "gone")
        until("it is gone", lambda: agent.get("/v1/catalog/service/" + service)[2] == [])


def sessions_and_locks():
    for number, agent in enumerate(asked):
        key = "locks%d" % number
        session = json.loads(agent.put("/v1/session/create", b'{"LockDelay":"0s"}'))["ID"]
        status, answer = txn(agent, kv("lock", key, Value=b64("mine"), Session=session.upper()), kv("check-session", key, Session=session))
        check(status == 200 and answer["Results"][1]["KV"]["Session"] == session, answer)
        check(txn(agent, {"Session": {"Verb": "delete", "Session": {"ID": session}}}, kv("check-session", key, Session=""))[0] == 200, "released with it")


def comparisons_choose():
    for number, agent in enumerate(asked):
        key = "if%d/" % number
        agent.put("/v1/kv/" + key + "a", b"1")
        index = agent.get("/v1/kv/" + key + "a")[2][0]["ModifyIndex"]
        compares = [{"KV": {"Key": key + "a", "ModifyIndex": index}}, {"KV": {"Key": key + "b", "Exists": False}}]
        for succeeds in (True, False):
            status, answer = when(agent, compares, [kv("set", key + "b", Value=b64("then"))], [kv("get", key + "b")])
            check(status == 200 and answer["Succeeded"] == succeeds and len(answer["Results"]) == 1, answer)
        lock = json.loads(agent.put("/v1/lock/%sl/acquire?ttl=60s" % key))
        term = json.loads(agent.put("/v1/election/%se/campaign?ttl=60s" % key))
        held = [{"Lock": {"Name": key + "l", "FencingToken": lock["FencingToken"]}}, {"Election": {"Name": key + "e", "Term": term["Term"]}}]
        check(when(agent, held)[1]["Succeeded"], (lock, term))
        agent.put("/v1/lock/%sl/release?token=%d" % (key, lock["FencingToken"]))
        check(not when(agent, held)[1]["Succeeded"], "released")


def fences_hold_back_who_lost_the_lock():
    for number, agent in enumerate(asked):
        name = "fenced%d" % number
        token = json.loads(agent.put("/v1/lock/%s/acquire?ttl=60s" % name))["FencingToken"]
        writes = [{"Fence": {"Resource": name, "Token": token, "Lock": name}}, kv("set", name + "/a", Value=b64("1"), Fence=name, Token=token), kv("set", name + "/b")]
        check(txn(agent, *writes)[0] == 200, "while it holds")
        agent.put("/v1/lock/%s/release?token=%d" % (name, token))
        writes[1]["KV"]["Value"] = b64("2")
        status, answer = txn(agent, *writes)
        why = 'token %d does not hold lock "%s": nobody does' % (token, name)
        check(status == 409 and errors(answer) == [(0, 'fence "%s": %s' % (name, why)), (1, "fence: " + why)], answer)
        check(value(agent, name + "/a") == "1", "the first one's")


def limits():
    few, agent = configuration(coord={"txn_max_operations": 2}, limits={"txn_max_req_len": 200000, "kv_max_value_size": 100000}), asked[2]
    status, body = txn(agent, *[kv("get", "a")] * 65)
    check(status == 413 and body == "Transaction contains too many operations (65 > 64). See the setting coord.txn_max_operations.", body)
    status, _, body = agent.request("PUT", "/v1/txn", b" " * 600000)
    check(status == 413 and b"limits.txn_max_req_len" in body, body)
    one = cluster.agent("a2", few).start(wait=False)
    one.wait_leader(30)
    check(txn(one, *[kv("set", "a")] * 2)[0] == 200, "two")
    check(txn(one, *[kv("set", "a")] * 3) == (413, "Transaction contains too many operations (3 > 2). See the setting coord.txn_max_operations."), "three")
    status, body = txn(one, kv("set", "a", Value=b64("x" * 100001)))
    check(status == 413 and body.startswith('Value for key "a" is too large (100001 > 100000 bytes)'), body)
    one.stop()


def large_results():
    """Reading gives them all; a transaction that writes refuses, and does nothing."""
    big = "x" * 400000
    for i in range(12):
        asked[0].put("/v1/kv/big/%d" % i, big.encode())
    for agent in asked:
        status, answer = txn(agent, kv("get-tree", "big/"))
        check(status == 200 and [len(r["KV"]["Value"]) for r in answer["Results"]] == [len(b64(big))] * 12, (agent.name, status))
        status, answer = txn(agent, kv("get-tree", "big/"), kv("set", "big-after"))
        check(status == 409 and errors(answer) == [(0, "the results of a transaction that writes have at most 4194304 bytes")], (agent.name, str(answer)[:300]))
        check(value(agent, "big-after") is None, "nothing was done")
    asked[0].request("DELETE", "/v1/kv/big/?recurse")


def words(agent, text, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(text)
        f.flush()
        r = subprocess.run([COORD, "txn", "-http-addr=%s:8500" % agent.ip, *flags, f.name], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
    return r.returncode, r.stdout, r.stderr


def the_command():
    for agent in asked:
        code, out, err = words(agent, json.dumps([kv("set", "cli", Value=b64("1"))]))
        check(code == 0 and json.loads(out)["Errors"] is None and not err, (code, out, err))
        code, out, err = words(agent, json.dumps({"If": [{"KV": {"Key": "cli", "Exists": True}}], "Then": [kv("get", "cli")]}))
        check(code == 0 and json.loads(out)["Succeeded"], (code, out, err))
        code, out, err = words(agent, json.dumps([kv("get", "cli"), kv("get", "no"), kv("check-not-exists", "cli")]))
        check((code, out, err) == (1, "", 'operation 1: key "no" doesn\'t exist\noperation 2: key "cli" exists\n'), (code, out, err))
    for text, why in (("[", "JSON"), ('{"Iff":[]}', 'unknown key "Iff"'), ("7", "a list of operations is wanted"), ('[{"KX":{}}]', 'unknown key "KX"')):
        code, out, err = words(asked[0], text)
        check(code == 2 and not out and why in err, (text, code, out, err))
    r = subprocess.run([COORD, "txn", "-http-addr=%s:8500" % asked[0].ip, "-"], input="[]", capture_output=True, text=True, timeout=60 * SLOW)
    check(r.returncode == 0 and json.loads(r.stdout)["Results"] == [], r)
    check(subprocess.run([COORD, "txn"], capture_output=True).returncode == 2, "no file")


def the_examples_of_the_document():
    for section in ("Operations", "Comparisons", "Fences", "From the shell"):
        for agent in asked:
            script = documented(section, "transactions.md").replace("localhost:8500", agent.ip + ":8500").replace("curl ", "curl -fsS ").replace("coord txn", COORD + " txn")
            r = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60 * SLOW, env=dict(os.environ, COORD_HTTP_ADDR=agent.ip + ":8500"))
            check(r.returncode == 0, "%s at %s: %r" % (section, agent.name, r))
            if section == "Comparisons":
                check('"Succeeded":true' in r.stdout and value(agent, "config/current") == "v43", r.stdout)
            if section == "Fences":
                check(value(agent, "ledger/bob") == "110", r.stdout)
            asked[0].request("DELETE", "/v1/kv/jobs/import")


if __name__ == "__main__":
    begin()
    run([keys_as_consuls_clients_send_them, a_failure_leaves_nothing_and_names_all, nobody_sees_half, nobody_is_woken_by_a_failure, the_catalog,
         sessions_and_locks, comparisons_choose, fences_hold_back_who_lost_the_lock, limits, large_results, the_command, the_examples_of_the_document])
