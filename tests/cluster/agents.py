"""What tests of client agents ask and compare: the truth of an agent, what the catalog says, DNS."""
import http.client, json, os, socket, struct, time
from harness import SLOW, STANDSTILL, check, undecided, until

now = time.monotonic
ROOM = float(os.environ.get("COORD_TEST_ROOM", "2")) - 1 + 3 * (SLOW - 1)       # seconds for a machine that is busy with other tests


def ask(process, method, path, body=None, timeout=10 * SLOW + STANDSTILL):
    """(status, headers, JSON or text); (0, {}, why) when nobody answers."""
    try:
        status, headers, text = process.request(method, path, json.dumps(body).encode() if body is not None else None, timeout)
    except (OSError, http.client.HTTPException) as e:
        return 0, {}, str(e)
    text = text.decode("utf-8", "replace")
    return status, headers, json.loads(text) if status == 200 and text[:1] in ("[", "{", '"', "t", "f", "n") else text


def do(process, path, body=None, timeout=10 * SLOW + STANDSTILL):
    """A PUT that has to succeed, and that may be done twice: made again while servers elect a leader."""
    def done():
        status, _, answer = ask(process, "PUT", path, body, timeout)
        check(status == 200 or undecided(status, str(answer).encode()), "PUT %s at %s: %d %s" % (path, process.name, status, answer))
        return [answer] if status == 200 else None
    return until("PUT %s at %s" % (path, process.name), done)[0]


def get(process, path, timeout=10 * SLOW + STANDSTILL):
    """What a GET answers, or None."""
    status, _, answer = ask(process, "GET", path, timeout=timeout)
    return answer if status == 200 else None


def ready(agents, within=15):
    """Each agent runs and holds its node lease, and the catalog knows it."""
    for agent in agents:
        until("%s is passing" % agent.name, lambda: life(agent, agent.name) == "passing", within)


def life(process, node):
    """The state of a node's serfHealth: "" when there is none."""
    checks = get(process, "/v1/health/node/%s?stale" % node) or []
    return next((c["Status"] for c in checks if c["CheckID"] == "serfHealth"), "")


def local_truth(agent):
    """({service: port}, {check: status}) as the agent has them."""
    services, checks = get(agent, "/v1/agent/services"), get(agent, "/v1/agent/checks")
    if services is None or checks is None:
        return None
    return {i: s["Port"] for i, s in services.items()}, {i: c["Status"] for i, c in checks.items()}


def catalog_truth(server, node):
    """The same as a server has it of that node. None: nobody answers."""
    services, checks = get(server, "/v1/catalog/node/%s?stale" % node, 3), get(server, "/v1/health/node/%s?stale" % node, 3)
    if checks is None:
        return None
    services = services["Services"] if services else {}
    return {i: s["Port"] for i, s in services.items()}, {c["CheckID"]: c["Status"] for c in checks if c["CheckID"] != "serfHealth"}


def equal(agents, servers):
    """Every server's catalog is what every agent knows."""
    return all(local_truth(a) == catalog_truth(s, a.name) != None for a in agents for s in servers)        # noqa: E711


def differences(agents, server):
    return "; ".join("%s: local %s, catalog %s" % (a.name, local_truth(a), catalog_truth(server, a.name))
                     for a in agents if local_truth(a) != catalog_truth(server, a.name))


def wait_equal(what, agents, servers, within):
    """Seconds until it was so."""
    begun, limit = now(), within + ROOM + STANDSTILL
    while not equal(agents, servers):
        check(now() - begun < limit, "%s: not equal within %.1f s: %s" % (what, limit, differences(agents, servers[0])))
        time.sleep(0.02)
    took = now() - begun
    print("%s: the catalog is equal after %.2f s" % (what, took), flush=True)
    return took


def resolve(process, name, timeout=2.0):
    """The addresses that DNS gives for a name, sorted; None without an answer; a number: the error code."""
    query = struct.pack(">HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0)
    query += b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        try:
            s.sendto(query, (process.ip, 8600))
            answer = s.recv(65536)
        except OSError:
            return None
    _, flags, _, count, _, _ = struct.unpack(">HHHHHH", answer[:12])
    if flags & 15:
        return flags & 15
    at, found = len(query), []
    for _ in range(count):
        at += 2                                       # a pointer to the question's name
        kind, _, _, size = struct.unpack(">HHIH", answer[at:at + 10])
        if kind == 1:
            found.append(socket.inet_ntoa(answer[at + 10:at + 14]))
        at += 10 + size
    return sorted(found)


def metric(process, name):
    text = get(process, "/v1/agent/metrics?format=prometheus", 5) or ""
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


def log_index(server):
    """How far the log has come, by what every entry costs."""
    return metric(server, "coord_raft_applied_total")


def finish(cluster):
    said = cluster.confessions()
    check(not said, "\n".join(said))
    ended = cluster.unexpected_ends()
    check(not ended, "%s ended by themselves" % [p.name for p in ended])
