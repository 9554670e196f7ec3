"""What hangs on a lease vanishes with it, at once and never before its time."""
import json, os, threading, time
from coordtest import Agent, SLOW, check, run, until

now = time.monotonic
NOBODY = "00000000-0000-4000-8000-000000000000"


def grant(agent, ttl="60s", **more):
    return json.loads(agent.put("/v1/lease/grant", dict(TTL=ttl, **more)))


def register(agent, node, lease=None, service=None, expect=200, **more):
    body = dict(Node=node, Address="10.0.0.9", **more)
    if service:
        body["Service"] = {"Service": service, "Port": 80}
    if lease:
        body["Lease"] = lease
    return agent.put("/v1/catalog/register", body, expect=expect)


def raw(agent, method, path, body=None):
    status, _, answer = agent.request(method, path, body)
    return status, answer.decode()


def granted_renewed_revoked():
    agent = Agent(dev=True).start()
    least = lambda begun: 90000 - 1000 * (now() - begun) - 2        # as much as has passed since it was asked for is taken off
    begun = now()
    lease = grant(agent, "1m30s", Name="job")
    check(lease["TTL"] == "1m30s" and lease["CreateIndex"] > 0 and set(lease) == {"ID", "TTL", "CreateIndex", "NotBefore", "NotAfter"}, lease)
    check(least(begun) <= lease["NotBefore"] <= 90000 and lease["NotAfter"] == 182000, "%r" % lease)
    id = lease["ID"]
    index = agent.get("/v1/status/leader") and int(agent.get("/v1/kv/?keys")[1]["X-Consul-Index"])
    begun = now()
    renewed = json.loads(agent.put("/v1/lease/renew/" + id))
    check(least(begun) <= renewed.pop("NotBefore") <= 90000 and renewed == {"ID": id, "TTL": "1m30s", "NotAfter": 182000}, "renewed: %r" % renewed)
    check(json.loads(agent.put("/v1/lease/renew/" + id.upper()))["ID"] == id, "an ID in upper case is the same")
    seen = agent.get("/v1/lease/" + id)[2]
    check(seen["Name"] == "job" and seen["Keys"] == [] and seen["Services"] == [] and seen["CreateIndex"] == lease["CreateIndex"], seen)
    check(seen.get("Remaining", "").startswith(("1m2", "1m30s")), "what is left of it: %r" % seen)
    check("Remaining" not in agent.get("/v1/lease/%s?stale" % id)[2], "only the leader knows")
    agent.put("/v1/kv/a?lease=" + id, b"1")
    register(agent, "ext1", id, "web")
    register(agent, "ext2", id)
    seen = agent.get("/v1/lease/" + id)[2]
    check(seen["Keys"] == ["a"] and seen["Services"] == [{"Node": "ext1", "ID": "web"}] and seen["Nodes"] == ["ext2"], seen)
    other = grant(agent, "1m")["ID"]
    left = {l["ID"]: l["Remaining"] for l in agent.get("/v1/leases?remaining")[2] if "Node" not in l}
    check(set(left) == {id, other} and left[id].startswith(("1m2", "1m30s")) and left[other].startswith(("5", "1m0s")), left)
    agent.put("/v1/lease/revoke/" + other)
    check([(l["ID"], "Remaining" in l) for l in agent.get("/v1/leases")[2] if "Node" not in l] == [(id, False)], "the list")
    check(agent.get("/v1/kv/a")[2][0]["Lease"] == id, "the key says on what it hangs")
    check(agent.put("/v1/lease/revoke/" + id).strip() == b"true", "revoked")
    for path, gone in (("/v1/kv/a", None), ("/v1/catalog/service/web", []), ("/v1/catalog/node/ext2", None)):
        check(agent.get(path)[2] == gone, "%s: %r" % (path, agent.get(path)))
    check([l for l in agent.get("/v1/leases")[2] if "Node" not in l] == [], "only the lease of the agent's own node is left")
    for method, path in (("PUT", "/v1/lease/renew/"), ("GET", "/v1/lease/")):
        status, text = raw(agent, method, path + id)
        check(status == 404 and "register again" in text, "%s %s: %d %s" % (method, path, status, text))
    check(agent.put("/v1/lease/revoke/" + id).strip() == b"true", "again")


def keys_without_a_lease_look_as_ever():
    agent = Agent(dev=True).start()
    id = grant(agent)["ID"]
    agent.put("/v1/kv/a?lease=" + id, b"1")
    agent.put("/v1/kv/a", b"1")
    entry = agent.get("/v1/kv/a")[2][0]
    check(set(entry) == {"LockIndex", "Key", "Flags", "Value", "CreateIndex", "ModifyIndex"}, entry)
    agent.put("/v1/lease/revoke/" + id)
    check(agent.get("/v1/kv/a")[0] == 200, "a write without lease detaches")


def bad_input():
    agent = Agent(dev=True).start()
    id = grant(agent)["ID"]
    rows = [("PUT", "/v1/lease/grant", b"", 400, ""), ("PUT", "/v1/lease/grant", b"[]", 400, ""), ("PUT", "/v1/lease/grant", b"{}", 400, "TTL"),
            ("PUT", "/v1/lease/grant", b'{"TTL":"x"}', 400, "TTL"), ("PUT", "/v1/lease/grant", b'{"TTL":"999ms"}', 400, "TTL"),
            ("PUT", "/v1/lease/grant", b'{"TTL":"24h1s"}', 400, "TTL"), ("PUT", "/v1/lease/grant", b'{"TTL":"-5s"}', 400, "TTL"),
            ("PUT", "/v1/lease/grant", b'{"TTL":"5s","Nme":"x"}', 400, "Nme"), ("PUT", "/v1/lease/grant", b'{"TTL":"5s","Name":7}', 400, "Name"),
            ("PUT", "/v1/lease/grant", b'{"TTL":"5s","Name":"%s"}' % (b"n" * 513), 400, "Name"),
            ("PUT", "/v1/lease/renew/x", b"", 400, "UUID"), ("PUT", "/v1/lease/revoke/x", b"", 400, "UUID"), ("GET", "/v1/lease/x", None, 400, "UUID"),
            ("PUT", "/v1/lease/renew/" + NOBODY, b"", 404, "register again"), ("GET", "/v1/lease/" + NOBODY, None, 404, "register again"),
            ("PUT", "/v1/lease/renew/", b"", 404, ""), ("GET", "/v1/lease/grant", None, 400, "grant"), ("DELETE", "/v1/lease/" + id, None, 405, ""),
            ("GET", "/v1/leases?remaining&index=3", None, 400, "remaining"), ("GET", "/v1/leases?remaning", None, 400, '(nearest: "remaining")'),
            ("PUT", "/v1/lease/grant?ttl=10s", None, 400, 'a member of the body: {"TTL": ...}'),
            ("GET", "/v1/leases?remaining=maybe", None, 400, "remaining"), ("GET", "/v1/leases?wait=1s&wait=2s", None, 400, "wait: it is given twice"),
            ("PUT", "/v1/lease/grant?ttl=5s", b'{"TTL":"5s"}', 400, '"ttl"'), ("PUT", "/v1/lease/grant", b'{"TTL":"5s","TTL":"6s"}', 400, "TTL"),
            ("PUT", "/v1/lease/renew/%s?dc=dc1&token=x" % id, b"", 200, "TTL"),
            ("PUT", "/v1/kv/a?lease=", b"", 400, "lease"), ("PUT", "/v1/kv/a?lease=x", b"", 400, "lease"),
            ("PUT", "/v1/kv/a?lease=" + NOBODY, b"", 404, "register again"), ("GET", "/v1/lease/%s?index=x" % id, None, 400, "index"),
            ("PUT", "/v1/catalog/register", b'{"Node":"n","Address":"1.2.3.4","Lease":7}', 400, "Lease"),
            ("PUT", "/v1/catalog/register", b'{"Node":"n","Address":"1.2.3.4","Lease":"x"}', 400, "Lease"),
            ("PUT", "/v1/catalog/register", b'{"Node":"n1","SkipNodeUpdate":true,"Lease":"%s"}' % id.encode(), 400, "SkipNodeUpdate"),
            ("PUT", "/v1/catalog/register", b'{"Node":"n","Address":"1.2.3.4","Lease":"%s"}' % NOBODY.encode(), 404, "register again"),
            ("PUT", "/v1/agent/service/register", b'{"Name":"n","Lease":7}', 400, "Lease"), ("PUT", "/v1/agent/service/register", b'{"Name":"n","Lease":"x"}', 400, "UUID"),
            ("PUT", "/v1/agent/service/register", b'{"Name":"n","Lease":"%s"}' % NOBODY.encode(), 404, "register again")]
    for method, path, body, expected, word in rows:
        status, text = raw(agent, method, path, body)
        check(status == expected and word in text and text.count("\n") <= 1, "%s %s %r: %d %s" % (method, path, body, status, text))
    check(agent.get("/v1/kv/a")[0] == 404 and agent.get("/v1/catalog/node/n")[2] is None, "nothing of that was written")
    check(agent.get("/v1/agent/services")[2] == {}, "nor kept by the agent")


def of_the_agents_own_services():
    agent = Agent(dev=True).start()
    id = grant(agent)["ID"]
    body = dict(Name="web", Port=80, Lease=id.upper(), Check=dict(CheckID="c", TTL="1h", Status="passing"))
    agent.put("/v1/agent/service/register", body)
    check([s["ID"] for s in agent.get("/v1/lease/" + id)[2]["Services"]] == ["web"], "bound")
    check(raw(agent, "PUT", "/v1/agent/service/register", json.dumps(dict(body, Lease=NOBODY)).encode())[0] == 404, "unknown")
    check(len(agent.get("/v1/catalog/service/web")[2]) == 1, "and what was there stays")
    agent.put("/v1/lease/revoke/" + id)
    check(agent.get("/v1/catalog/service/web")[2] == [], "gone at once")
    agent.put("/v1/agent/check/fail/c")                              # refused: the catalog is compared 5 s later instead of after a minute
    until("the agent has forgotten it", lambda: agent.get("/v1/agent/services")[2] == {} and agent.get("/v1/agent/checks")[2] == {}, 9)
    check(agent.get("/v1/catalog/service/web")[2] == [], "and it does not come back")
    agent.put("/v1/agent/service/register", dict(body, Lease=grant(agent)["ID"]))
    check(len(agent.get("/v1/catalog/service/web")[2]) == 1, "with a new one it is there again")


def ends_in_one_entry():
    """Renewed it stays, without an entry of the log; then all that hangs on it goes at once, and each watcher hears of it."""
    agent = Agent(dev=True)
    quiet = os.path.join(agent.dir, "quiet.json")
    with open(quiet, "w") as f:
        json.dump({"disable_coordinates": True}, f)               # they cost an entry now and then
    agent.args.append("-config-file=" + quiet)
    agent.start()
    until("the agent's own lease is there", lambda: [l for l in agent.get("/v1/leases")[2] if "Node" in l])
    lease = grant(agent, "5s")
    register(agent, "ext1", lease["ID"], "web")
    agent.put("/v1/kv/a?lease=" + lease["ID"], b"1")
    log_index = lambda: agent.get("/v1/agent/self")[2]["Stats"]["raft"]["last_log_index"]

    def renewed():
        before = log_index()
        for _ in range(5):
            agent.put("/v1/lease/renew/" + lease["ID"])
        return log_index() == before
    until("renewals write nothing", renewed)
    woken = []

    def wait_for(path, index):
        answer = agent.request("GET", "%s?index=%s&wait=60s" % (path, index), timeout=90)
        woken.append((path, int(answer[1]["X-Consul-Index"]), answer[0]))
    paths = ["/v1/kv/a", "/v1/health/service/web", "/v1/catalog/node/ext1", "/v1/lease/" + lease["ID"], "/v1/leases"]
    threads = [threading.Thread(target=wait_for, args=(p, agent.request("GET", p)[1]["X-Consul-Index"]), daemon=True) for p in paths]
    for t in threads:
        t.start()
    for t in threads:
        t.join(90)
    check(len(woken) == len(paths), "all were woken: %r" % woken)
    check(len({index for _, index, _ in woken}) == 1, "in one entry: %r" % woken)
    check(raw(agent, "PUT", "/v1/lease/renew/" + lease["ID"])[0] == 404, "over")
    check(agent.get("/v1/kv/a")[0] == 404 and agent.get("/v1/catalog/service/web")[2] == [], "gone")


def survives_a_restart():
    agent = Agent().start()
    ttl = max(3, 2 * SLOW)
    lease = grant(agent, "%ds" % ttl)
    agent.put("/v1/kv/a?lease=" + lease["ID"], b"1")
    agent.kill()
    agent.start()
    check(agent.get("/v1/kv/a")[2][0]["Lease"] == lease["ID"], "it is there")
    renewed = now()
    agent.put("/v1/lease/renew/" + lease["ID"])
    until("it ends", lambda: agent.get("/v1/kv/a")[0] == 404, ttl + 3)
    check(now() - renewed > ttl, "not before its TTL")


def by_the_command_line():
    import subprocess
    from coordtest import COORD
    agent = Agent(dev=True).start()

    def coord(*words, code=0):
        r = subprocess.run([COORD, *words, ], capture_output=True, text=True, env={"COORD_HTTP_ADDR": agent.ip + ":8500"})
        check(r.returncode == code, "coord %s: %d %s%s" % (" ".join(words), r.returncode, r.stdout, r.stderr))
        return r.stdout.strip() if code == 0 else r.stderr.strip()
    id = coord("lease", "grant", "-ttl=10m", "-name=nightly job")
    check(coord("lease", "renew", id) == "10m0s", "renewed")
    coord("kv", "put", "-lease=" + id, "a", "1")
    register(agent, "ext1", id, "web")
    check(coord("lease", "get", id).startswith("ID           %s\nName         nightly job\nTTL          10m0s\n" % id), coord("lease", "get", id))
    check(json.loads(coord("lease", "get", id, "-json"))["Services"] == [{"Node": "ext1", "ID": "web"}], "as JSON, with a flag behind the argument")
    listed = coord("lease", "list")
    check(id in listed and "nightly job" in listed and "key:a service:ext1/web" in listed, listed)
    check(coord("lease", "revoke", id) == "true", "revoked")
    check(agent.get("/v1/kv/a")[0] == 404, "gone")
    check("register again" in coord("lease", "renew", id, code=2), "unknown")
    check("UUID" in coord("lease", "renew", "x", code=2), "no id")
    coord("lease", "renew", code=2)
    coord("lease", "grant", "-ttl=soon", code=2)
    coord("lease", "grant", "-ttl=1ms", code=2)


if __name__ == "__main__":
    run([granted_renewed_revoked, keys_without_a_lease_look_as_ever, bad_input, of_the_agents_own_services, ends_in_one_entry, survives_a_restart,
         by_the_command_line])
