"""Fences: what a holder does with a token that is no longer good, on a server, a follower and a client agent."""
import http.client, json, os, signal, socket, subprocess, sys, threading, time
from coordtest import HERE, SLOW, Cluster, check, configuration, run, until

cluster, asked = None, []


def begin():
    global cluster
    short = configuration(session_ttl_min="500ms")
    cluster = Cluster(3, short).start()
    client = cluster.agent("a1", short).start(wait=False)
    client.wait_leader(30)
    asked[:] = [cluster.leader(), cluster.followers()[0], client]


def answer(agent, method, path, body=b""):
    status, headers, text = agent.request(method, path, body)
    return status, headers, text.decode()


def said(agent, method, path, body=b""):
    """(status, what is said): JSON where it is."""
    status, _, text = answer(agent, method, path, body)
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def acquire(agent, name, more="", ttl="60s"):
    status, grant = said(agent, "PUT", "/v1/lock/%s/acquire?ttl=%s%s" % (name, ttl, more))
    check(status == 200 and grant["Held"], "%s: %r" % (name, grant))
    return grant["FencingToken"]


def release(agent, name, token):
    check(said(agent, "PUT", "/v1/lock/%s/release?token=%d" % (name, token)) == (200, True), "released")


def value(agent, key):
    status, _, text = answer(agent, "GET", "/v1/kv/%s?raw" % key)
    return text if status == 200 else None


def session(agent):
    return said(agent, "PUT", "/v1/session/create", b'{"LockDelay":"0s"}')[1]["ID"]


# What a holder does to keys, in order; all say true when the fence lets them.
WRITES = [("PUT", "/v1/kv/%s/a?", b"1"), ("PUT", "/v1/kv/%s/a?flags=7&", b"2"), ("PUT", "/v1/kv/%s/b?cas=0&", b"3"),
          ("PUT", "/v1/kv/%s/l?acquire={session}&", b"4"), ("PUT", "/v1/kv/%s/l?release={session}&", b"5"), ("DELETE", "/v1/kv/%s/b?cas={index}&", b""),
          ("DELETE", "/v1/kv/%s/l?", b""), ("DELETE", "/v1/kv/%s/?recurse&", b"")]


def every_write(agent, name, fence, expect):
    """All of WRITES below the keys of `name`, each with this fence; the answers."""
    mine, answers = session(agent), []
    for method, path, body in WRITES:
        index = "0"
        if "{index}" in path:
            status, found = said(agent, "GET", "/v1/kv/%s/b" % name)
            index = str(found[0]["ModifyIndex"]) if status == 200 else "0"
        status, text = said(agent, method, (path % name).format(session=mine, index=index) + fence, body)
        check(status == expect, "%s %s %s: %d %s" % (method, path, fence, status, text))
        answers.append(text)
    return answers


def writes_count_only_while_the_token_holds():
    for number, agent in enumerate(asked):
        name = "w%d/x" % number
        token = acquire(agent, name)
        check(every_write(agent, name, "fence=%s&token=%d" % (name, token), 200) == [True] * len(WRITES), "all were done")
        check(said(agent, "GET", "/v1/kv/%s/?keys" % name)[0] == 404, "the last one removed all")
        agent.put("/v1/kv/%s/a" % name, b"before")
        check(said(agent, "PUT", "/v1/kv/%s/a?cas=1&fence=%s&token=%d" % (name, name, token), b"x") == (200, False), "cas says no, not the fence")
        release(agent, name, token)
        before = said(agent, "GET", "/v1/kv/?recurse")[1]
        for late in every_write(agent, name, "fence=%s&token=%d" % (name, token), 412):
            check(late == 'fence: token %d does not hold lock "%s": nobody does; nothing was written' % (token, name), late)
        other = acquire(asked[0], name)
        for late in every_write(agent, name, "fence=%s&token=%d" % (name, token), 412):
            check("it is held with token %d" % other in late, late)
        check(said(agent, "GET", "/v1/kv/?recurse")[1] == before, "nothing has changed, flags and indexes included")
        check(every_write(agent, name, "token=%d" % token, 200)[0] is True, "without a fence they go through")


def shared_and_counting():
    agent = asked[2]
    tokens = [acquire(asked[i], "pool", "&limit=2") for i in (0, 1)]
    check(tokens[0] < tokens[1], "two holders, two tokens")
    for token in tokens:
        check(said(agent, "PUT", "/v1/kv/pool?fence=pool&token=%d" % token, b"x") == (200, True), "both write")
        check(said(agent, "PUT", "/v1/fence/pool?lock=pool&token=%d" % token)[0] == 200, "in any order")
    check(said(agent, "PUT", "/v1/fence/pool?lock=pool&token=%d" % tokens[0]) == (200, {"Accepted": True, "Highest": tokens[1]}), "the older one too")
    check(said(agent, "PUT", "/v1/fence/pool?token=%d" % tokens[0])[0] == 412, "without the lock it is below")
    release(agent, "pool", tokens[0])
    status, refused = said(agent, "PUT", "/v1/fence/pool?lock=pool&token=%d" % tokens[0])
    check(status == 412 and not refused["Accepted"] and "shared by 1" in refused["Reason"], "%r" % refused)


def resources():
    leader, follower, client = asked
    first, second = [acquire(leader, "r%d" % i) for i in (1, 2)]
    check(said(client, "GET", "/v1/fence/disk/1")[0] == 404, "nothing yet")
    check(said(client, "PUT", "/v1/fence/disk/1?token=%d" % first) == (200, {"Accepted": True, "Highest": first}), "the first")
    status, headers, text = answer(follower, "GET", "/v1/fence/disk/1")
    seen = json.loads(text)
    check(seen == {"Resource": "disk/1", "Highest": first, "ModifyIndex": int(headers["X-Consul-Index"])}, "%r" % seen)
    woken = []

    def wait():
        woken.append(said(client, "GET", "/v1/fence/disk/1?index=%d&wait=20s" % seen["ModifyIndex"]))
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    check(said(leader, "PUT", "/v1/fence/disk/1?token=%d" % first)[0] == 200, "equal")
    check(said(follower, "PUT", "/v1/fence/disk/1?token=%d" % (first - 1))[1] ==
          {"Accepted": False, "Highest": first, "Reason": "token %d is below %d, which was accepted before" % (first - 1, first)}, "below")
    check(said(follower, "GET", "/v1/fence/disk/1")[1] == seen, "neither has written anything")
    check(said(follower, "PUT", "/v1/fence/disk/2?token=%d" % second)[0] == 200, "another resource")
    thread.join(0.3)
    check(not woken, "woke who waits for the first: %r" % woken)
    check(said(leader, "PUT", "/v1/fence/disk/1?token=%d" % second)[0] == 200, "higher")
    thread.join(20)
    check(woken and woken[0][1]["Highest"] == second, "woken by the rise: %r" % woken)
    for agent in asked:
        check(said(agent, "PUT", "/v1/fence/disk/1?token=%d" % first)[0] == 412, "everywhere")


def bad_input():
    token = acquire(asked[0], "bad")
    far = 1 << 60
    rows = [("PUT", "/v1/fence/x", 400, "token: it is missing"), ("PUT", "/v1/fence/x?token=one", 400, "token"), ("PUT", "/v1/fence/x?token=-1", 400, "token"),
            ("PUT", "/v1/fence/x?token=0", 400, "token"), ("PUT", "/v1/fence/x?token=%d" % far, 400, "never granted"),
            ("PUT", "/v1/fence/x?token=18446744073709551616", 400, "token"), ("PUT", "/v1/fence/?token=1", 400, "resource"),
            ("PUT", "/v1/fence/%s?token=1" % ("n" * 257), 400, "resource"), ("PUT", "/v1/fence/a%00b?token=1", 400, ""),
            ("PUT", "/v1/fence/x?token=1&lock=", 400, "lock"), ("PUT", "/v1/fence/x?token=1&lock=%s" % ("n" * 257), 400, "lock"),
            ("PUT", "/v1/fence/x?token=1&token=2", 400, "token: it is given twice"), ("PUT", "/v1/fence/x?token=1&wait=1s", 400, "wait"),
            ("DELETE", "/v1/fence/x", 405, ""), ("GET", "/v1/fence/", 400, "resource"),
            ("PUT", "/v1/kv/k?fence=bad", 400, "token: with fence"), ("PUT", "/v1/kv/k?fence=bad&token=", 400, "token: with fence"),
            ("PUT", "/v1/kv/k?fence=bad&token=one", 400, "token"), ("PUT", "/v1/kv/k?fence=bad&token=-1", 400, "token"),
            ("PUT", "/v1/kv/k?fence&token=1", 400, "fence: the name of a lock"), ("PUT", "/v1/kv/k?fence=&token=%d" % token, 400, "fence: the name of a lock"),
            ("PUT", "/v1/kv/k?fence=bad&fence=l&token=%d" % token, 400, "fence: it is given twice"),
            ("PUT", "/v1/kv/k?fence=bad&token=1&token=%d" % token, 400, "token: it is given twice"),
            ("PUT", "/v1/kv/k?fence=%s&token=1" % ("n" * 257), 400, "1 to 256 bytes"), ("DELETE", "/v1/kv/k?fence=bad", 400, "token: with fence"),
            ("DELETE", "/v1/kv/?recurse&fence=bad&token=one", 400, "token"), ("PUT", "/v1/kv/k?fence=bad&token=%d" % far, 412, "nothing was written"),
            ("PUT", "/v1/kv/k?fence=never&token=%d" % token, 412, 'lock "never": nobody does'),
            ("PUT", "/v1/kv/k?token=one", 200, "true")]          # Consul's: not looked at
    for agent in asked:
        for method, path, expected, word in rows:
            status, _, text = answer(agent, method, path)
            check(status == expected and word in text and text.count("\n") <= 1, "%s %s: %d %s" % (method, path[:80], status, text))
        check(said(agent, "GET", "/v1/fence/x")[0] == 404 and value(agent, "k") == "", "only the last one did anything")


# A client that holds a lock and writes with its token until it is refused; then everything else that it can do late.
WRITER = r"""
import http.client, json, sys, time
ip, name = sys.argv[1:]
c = http.client.HTTPConnection(ip, 8500, timeout=60)
def ask(method, path, body=b""):
    c.request(method, path, body=body)
    r = c.getresponse()
    return r.status, r.read().decode()
token = json.loads(ask("PUT", "/v1/lock/%s/acquire?ttl=1s&wait=30s" % name)[1])["FencingToken"]
fence = "fence=%s&token=%d" % (name, token)
print(token, flush=True)
written = 0
while True:
    status, said = ask("PUT", "/v1/kv/account?" + fence, b"%d" % token)
    if status != 200:
        break
    written += 1
    ask("PUT", "/v1/lock/%s/renew?token=%d" % (name, token))
    time.sleep(0.01)
late = [(status, said), ask("PUT", "/v1/kv/account?cas=0&" + fence), ask("DELETE", "/v1/kv/account?" + fence), ask("DELETE", "/v1/kv/?recurse&" + fence),
        ask("PUT", "/v1/fence/account?token=%d" % token), ask("PUT", "/v1/fence/account?token=%d&lock=%s" % (token, name))]
free = [ask("PUT", "/v1/kv/diary", b"late"), ask("PUT", "/v1/kv/diary?cas=0")]
print(json.dumps([written, late, free]), flush=True)
"""


def a_holder_is_paused(agent):
    """False: it had lost its lock before, as when the machine stood still for so long."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, agent.ip, "ledger"], stdout=subprocess.PIPE, text=True)
    try:
        first = int(writer.stdout.readline())
        until("it writes, or has lost its lock", lambda: value(agent, "account") == str(first) or not holds(agent, first))
        writer.send_signal(signal.SIGSTOP)
        if not holds(agent, first):
            return False
        second = acquire(agent, "ledger", "&wait=60s")
        check(second > first, "%d after %d" % (second, first))
        check(said(agent, "PUT", "/v1/kv/account?fence=ledger&token=%d" % second, b"%d" % second) == (200, True), "the next one writes")
        check(said(agent, "PUT", "/v1/fence/account?token=%d" % second)[0] == 200, "elsewhere too")
        writer.send_signal(signal.SIGCONT)
        written, late, free = json.loads(writer.stdout.readline())
        check(written > 0 and [status for status, _ in late] == [412] * 6, "%d, %r" % (written, late))
        check(free == [[200, "true"], [200, "false"]], "what has no fence goes through: %r" % free)
        check(value(agent, "account") == str(second), "and the account is the second one's")
        release(agent, "ledger", second)
        return True
    finally:
        writer.kill()
        writer.wait()


def holds(agent, token):
    status, lock = said(agent, "GET", "/v1/lock/ledger")
    return status == 200 and token in [holder["FencingToken"] for holder in lock["Holders"]]


def a_paused_holder():
    """Stopped in the middle of its work, past its TTL. The next one has written by the time it wakes."""
    for agent in (asked[0], asked[2]):
        agent.request("DELETE", "/v1/kv/diary")
        check(any(a_holder_is_paused(agent) for _ in range(3)), "it holds its lock while it works")


def a_write_races_a_release():
    """The holder's writes and its release run side by side, and the next one waits in the queue. In the log each write is before the next
    grant, or refused."""
    leader, follower, client = asked
    done = refused = 0
    for round in range(30):
        mine = acquire(leader, "race")
        granted, key = [], "race%d" % round
        nexts = threading.Thread(target=lambda: granted.append(acquire(client, "race", "&wait=20s")))
        nexts.start()
        until("the next one waits", lambda: len(said(leader, "GET", "/v1/lock/race?stale")[1]["Queue"]) == 1)
        answers, begun = [], threading.Event()

        def write(agent):
            for n in range(8):
                answers.append(said(agent, "PUT", "/v1/kv/%s?cas=0&fence=race&token=%d" % (key + agent.name + str(n), mine), b"x"))
                begun.set()
        writers = [threading.Thread(target=write, args=(agent,)) for agent in (follower, client)]
        for thread in writers:
            thread.start()
        begun.wait(20)
        release(leader, "race", mine)
        for thread in writers + [nexts]:
            thread.join(30)
        found = said(leader, "GET", "/v1/kv/%s?recurse" % key)
        keys = found[1] if found[0] == 200 else []
        check(all(a == (200, True) or a[0] == 412 for a in answers) and len(answers) == 16, "%r" % answers)
        yes = sum(a[0] == 200 for a in answers)
        check(len(keys) == yes, "%d said yes, %d were written" % (yes, len(keys)))
        check(granted and all(k["ModifyIndex"] < granted[0] for k in keys), "written after token %r: %r" % (granted, keys))
        done, refused = done + yes, refused + 16 - yes
        release(client, "race", granted[0])
    print("     %d written before, %d refused after" % (done, refused))
    check(done > 0 and refused > 0, "the race was one")


def tokens_of_keys():
    """X-Coord-Fencing-Token: grows from holder to holder of a key, whatever happens to the key."""
    def lock(agent, how, id, expect=True):
        status, headers, text = answer(agent, "PUT", "/v1/kv/service/leader?%s=%s" % (how, id), b"me")
        check(status == 200 and text == str(expect).lower(), "%s: %d %s" % (how, status, text))
        return int(headers["X-Coord-Fencing-Token"]) if "X-Coord-Fencing-Token" in headers else None
    last = 0
    for agent in asked:
        one, two = session(agent), session(agent)
        token = lock(agent, "acquire", one)
        check(token > last, "%d after %d" % (token, last))
        check(lock(agent, "acquire", two, False) is None, "no lock, no token")
        agent.put("/v1/kv/service/leader", b"plain")                  # LockIndex is 0 afterwards
        check([lock(a, "acquire", one) for a in asked] == [token] * 3, "acquired again: the same")
        check(lock(agent, "release", one) == token and lock(agent, "release", one, False) is None, "released, once")
        second = lock(agent, "acquire", two)
        check(second > token, "the next holder")
        check(said(agent, "PUT", "/v1/fence/elsewhere?token=%d" % second)[0] == 200, "what it is for")
        check(said(agent, "PUT", "/v1/fence/elsewhere?token=%d" % token)[0] == 412, "what it is for")
        agent.request("DELETE", "/v1/kv/service/leader")
        third = lock(agent, "acquire", two)
        check(third > second and said(agent, "GET", "/v1/kv/service/leader")[1][0]["LockIndex"] == 1, "deleted and made again")
        agent.put("/v1/session/destroy/" + two)
        last = lock(agent, "acquire", one)
        check(last > third, "the session before has ended")
        lock(agent, "release", one)
    check("X-Coord-Fencing-Token" not in answer(asked[0], "PUT", "/v1/kv/service/plain", b"x")[1], "only with locks")


def nothing_is_forgotten():
    """The leader dies: tokens and highests are what they were, also after its own restart."""
    leader, follower, client = asked
    held = acquire(client, "kept")
    mine = session(client)
    key = int(answer(client, "PUT", "/v1/kv/kept?acquire=" + mine)[1]["X-Coord-Fencing-Token"])
    check(said(client, "PUT", "/v1/fence/kept?token=%d" % held)[0] == 200, "accepted")
    leader.kill()
    until("the others go on", lambda: said(client, "PUT", "/v1/kv/kept2?fence=kept&token=%d" % held, b"1") == (200, True), 20)
    check(int(answer(client, "PUT", "/v1/kv/kept?acquire=" + mine)[1]["X-Coord-Fencing-Token"]) == key, "the same grant")
    check(said(follower, "PUT", "/v1/fence/kept?token=%d" % (held - 1))[0] == 412, "the highest is known")
    leader.start()
    check(said(leader, "PUT", "/v1/fence/kept?token=%d" % (held - 1))[0] == 412, "there too")
    check(said(leader, "GET", "/v1/fence/kept")[1]["Highest"] == held, "there too")
    release(leader, "kept", held)
    check(said(leader, "DELETE", "/v1/kv/kept2?fence=kept&token=%d" % held)[0] == 412, "released")


if __name__ == "__main__":
    begin()
    run([writes_count_only_while_the_token_holds, shared_and_counting, resources, bad_input, a_paused_holder, a_write_races_a_release, tokens_of_keys,
         nothing_is_forgotten])
