"""Requests as other programs send them: through what takes coord for a proxy, with the headers of a login proxy, about things that bear the names of endpoints,
and right after a start."""
import http.client, json, signal, socket, subprocess, tempfile, threading, time, urllib.request
from coordtest import MULTIPLIER, SLOW, STANDSTILL, Agent, Cluster, check, configuration, free_address, run, settings, until

agent = None


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else None


def body_of(answer):
    return answer.split(b"\r\n\r\n", 1)[1] if b"\r\n\r\n" in answer else b""


def ask(line, *headers, host="x", body=b""):
    h = (["Host: " + host] if host is not None else []) + list(headers) + ["Connection: close"] + (["Content-Length: %d" % len(body)] if body else [])
    answer = agent.raw((line + "\r\n" + "".join(x + "\r\n" for x in h) + "\r\n").encode("latin-1") + body)
    return status_of(answer), body_of(answer)


def expect(what, got, status, body=None):
    check(got[0] == status and (body is None or got[1] == body), "%s: %r" % (what, got))


# -- targets ----------------------------------------------------------------------------------------

def targets():
    agent.put("/v1/kv/a", b"value")
    here = "http://%s:8500" % agent.ip
    for url in (here, here.upper().replace("HTTP", "http"), "HTTP://127.0.0.1:8500", "https://coord.example", "http://h:", "http://u:p@h:1", "http://[::1]:8500", "http://[2001:db8::1]"):
        expect(url, ask("GET %s/v1/kv/a?raw HTTP/1.1" % url), 200, b"value")
        expect(url + ", its host is not the header's", ask("GET %s/v1/kv/a?raw HTTP/1.1" % url, host="elsewhere:80"), 200, b"value")
    expect("HTTP/1.0", ask("GET %s/v1/kv/a?raw HTTP/1.0" % here, host=None), 200, b"value")
    expect("a write", ask("PUT %s/v1/kv/url HTTP/1.1" % here, body=b"by url"), 200, b"true")
    expect("its path", ask("GET /v1/kv/url?raw HTTP/1.1"), 200, b"by url")
    expect("no path", ask("GET %s HTTP/1.1" % here), 200, b"Coord Agent")
    expect("parameters without a path", ask("GET %s?pretty HTTP/1.1" % here), 200, b"Coord Agent")
    expect("escaped", ask("GET %s/v1/kv/%%61?raw HTTP/1.1" % here), 200, b"value")
    expect("a deletion", ask("DELETE %s/v1/kv/url HTTP/1.1" % here), 200, b"true")
    for path in ("/v1/catalog/nodes", "/v1/kv/a", "/v1/health/service/none", "/v1/agent/self"):     # also from ready bytes
        for _ in range(3):
            a, b = ask("GET %s HTTP/1.1" % path), ask("GET %s%s HTTP/1.1" % (here, path))
            check(a[0] == b[0] == 200 and (a[1] == b[1] or path == "/v1/agent/self"), "%s: %r, %r" % (path, a, b))
    expect("all there is", ask("OPTIONS * HTTP/1.1"), 200, b"")
    expect("one endpoint", ask("OPTIONS %s/v1/kv/a HTTP/1.1" % here), 200, b"")
    for target in ("*", "v1/kv/a", "http:/v1/kv/a", "http://", "http:///v1/kv/a", "http://:8500/v1/kv/a", "http://h:x/v1/kv/a", "http://[::1/v1/kv/a", "http://a\\b/v1/kv/a", "ftp://h/v1/kv/a",
                   "http//h/v1/kv/a", "http://h/v1/kv/a\x7f", "http://u@/v1/kv/a"):
        expect(target, ask("GET %s HTTP/1.1" % target), 400)
    expect("a tunnel", ask("CONNECT h:80 HTTP/1.1"), 400)
    expect("no Host", ask("GET %s/v1/kv/a HTTP/1.1" % here, host=None), 400)
    expect("two Hosts", ask("GET %s/v1/kv/a HTTP/1.1" % here, "Host: y"), 400)
    expect("two lengths", ask("PUT %s/v1/kv/smuggled HTTP/1.1" % here, "Content-Length: 1", "Content-Length: 1"), 400)
    check(agent.request("GET", "/v1/kv/smuggled")[0] == 404, "nothing was smuggled")


def clients_behind_a_proxy_setting():
    """They send the whole URL to what they take for a proxy."""
    agent.put("/v1/kv/a", b"value")
    proxy, url = "http://%s:8500" % agent.ip, "http://127.0.0.1:8500/v1/kv/"
    curl = lambda *args: subprocess.run(["curl", "-s", "--proxy", proxy, "--noproxy", "", *args], capture_output=True, timeout=20 * SLOW).stdout
    check(curl(url + "a?raw") == b"value", "curl reads")
    check(curl("-X", "PUT", "-d", "1", url + "by-curl") == b"true" and curl(url + "by-curl?raw") == b"1", "curl writes")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
    check(opener.open(url + "a?raw", timeout=10).read() == b"value", "urllib reads")
    index = opener.open(url + "a", timeout=10).headers["X-Consul-Index"]
    woken = []
    waits = threading.Thread(target=lambda: woken.append(opener.open(url + "a?raw&wait=60s&index=" + index, timeout=60).read()))
    waits.start()
    until("it waits", lambda: b"coord_http_blocking_queries 1" in agent.request("GET", "/v1/agent/metrics?format=prometheus")[2])
    agent.put("/v1/kv/a", b"news")
    waits.join(10 * SLOW + STANDSTILL)
    check(woken == [b"news"], "a blocking query: %r" % woken)


# -- header names -----------------------------------------------------------------------------------

def header_names():
    agent.put("/v1/kv/a", b"before")
    line = "PUT /v1/kv/a HTTP/1.1"
    for name in ("X y", "X-y ", "X\ty", "X-y\t", "X(y", "X)y", "X,y", "X/y", "X;y", "X=y", "X?y", "X@y", "X[y", "X]y", "X{y", "X}y", 'X"y', "X\\y", "X\x01y", "X\x7fy", "X\xe9y", "\xc3\xa9", "", "Content-Length ",
                 "Transfer-Encoding\t"):
        for value in ("1", ""):
            expect("%r" % name, ask(line, name + ": " + value, body=b"after"), 400)
    for header in ("nonsense", "X-y", "X: a\x01b", "X: \x7f", "X: a\rb", "X: a\x1b[0m", "X: \x0b"):
        expect("%r" % header, ask(line, header, body=b"after"), 400)
    for host in ("a b", "a/b", "a?b", "a:b", "[::1", "a,b c", 'a"b', "a@"):
        expect("Host %r" % host, ask(line, host=host, body=b"after"), 400)
    expect("nothing was written", ask("GET /v1/kv/a?raw HTTP/1.1"), 200, b"before")
    for name in ("!#$%&'*+-.^_`|~", "0123456789", "x_y", "X-Forwarded-For", "sec-ch-ua-platform"):
        for value in ("1", "", "\t tab\tand blank ", "\xc3\xa9 \xff", '"(,)/:;<=>?@[\\]{}"'):
            expect("%s: %r" % (name, value), ask("GET /v1/kv/a?raw HTTP/1.1", name + ": " + value), 200, b"before")
    for host in ("", "x", "x:8500", "127.0.0.1:8500", "[::1]:8500", "consul.service_x.example", "%2Fvar%2Frun%2Fcoord.sock"):
        expect("Host %r" % host, ask("GET /v1/kv/a?raw HTTP/1.1", host=host), 200, b"before")


# -- names of endpoints -----------------------------------------------------------------------------

WORDS = ("register", "deregister", "maintenance", "service", "services", "check", "checks", "nodes", "node", "list", "self", "deregister/x", "maintenance/register", "pass", "info", "any", "id", "name")


def quoted(word):
    return word.replace("/", "%2F")


def names_of_endpoints():
    """A service, check, node, key, event that is named as an endpoint is read, changed and removed like any other."""
    for word in WORDS:
        for path in (word, quoted(word)):
            agent.put("/v1/agent/service/register", json.dumps({"ID": word, "Name": "named", "Port": 80, "Check": {"CheckID": word, "TTL": "60s"}}))
            status, headers, service = agent.get("/v1/agent/service/" + path)
            check(status == 200 and service["ID"] == word and service["Port"] == 80, "service %s: %r" % (word, service))
            check(agent.request("GET", "/v1/agent/service/%s?hash=%s&wait=10ms" % (path, service["ContentHash"]))[0] == 200, "it waits for a change")
            for verb in ("pass", "warn", "fail"):
                check(agent.request("PUT", "/v1/agent/check/%s/%s" % (verb, path))[0] == 200, "check %s: %s" % (word, verb))
            check(agent.get("/v1/agent/checks")[2][word]["Status"] == "critical", "what was told of check %s" % word)
            check(agent.request("PUT", "/v1/agent/check/update/" + path, b'{"Status":"passing"}')[0] == 200, "check %s: update" % word)
            check(agent.get("/v1/agent/health/service/id/" + path)[2]["AggregatedStatus"] == "passing", "health of %s" % word)
            check(agent.request("PUT", "/v1/agent/service/maintenance/%s?enable=true" % path)[0] == 200, "maintenance of %s" % word)
            check(agent.request("PUT", "/v1/agent/check/deregister/" + path)[0] == 200, "check %s is removed" % word)
            check(agent.request("PUT", "/v1/agent/service/deregister/" + path)[0] == 200, "service %s is removed" % word)
            check(agent.request("GET", "/v1/agent/service/" + path)[0] == 404, "service %s is gone" % word)
    for word in WORDS:
        path = quoted(word)
        body = {"Node": word, "Address": "10.0.0.9", "Service": {"ID": word, "Service": word}, "Check": {"CheckID": word, "Name": word, "ServiceID": word, "Status": "passing"}}
        check(agent.request("PUT", "/v1/catalog/register", json.dumps(body))[0] == 200, "registered")
        check(agent.get("/v1/catalog/node/" + path)[2]["Node"]["Node"] == word, "node %s" % word)
        check(agent.get("/v1/catalog/node-services/" + path)[2]["Services"][0]["ID"] == word, "its services")
        for kind in ("health/node", "health/checks", "health/service", "catalog/service"):
            check(len(agent.get("/v1/%s/%s" % (kind, path))[2]) == 1, "%s/%s" % (kind, word))
        check(agent.get("/v1/session/node/" + path)[0] == 200 and agent.request("GET", "/v1/coordinate/node/" + path)[0] in (200, 404), "sessions and coordinates of %s" % word)
        check(agent.request("PUT", "/v1/event/fire/" + path)[0] == 200, "event %s" % word)
        agent.put("/v1/kv/" + word, b"1")
        check(agent.get("/v1/kv/" + word)[2][0]["Key"] == word, "key %s" % word)
        check(agent.request("PUT", "/v1/catalog/deregister", json.dumps({"Node": word}))[0] == 200, "removed")
    for method, path in (("DELETE", "/v1/agent/service/register"), ("POST", "/v1/agent/service/deregister/x"), ("PUT", "/v1/agent/service/other"), ("GET", "/v1/agent/check/register")):
        check(agent.request(method, path)[0] in (404, 405), "%s %s is nothing" % (method, path))
    status, headers, _ = agent.request("PUT", "/v1/agent/service/other")
    check((status, headers["Allow"]) == (405, "OPTIONS,GET"), "what is allowed: %r" % headers)


# -- long headers -----------------------------------------------------------------------------------

def cookies(size, count=1):
    lines = ["%s: %s" % ("Cookie" if i == 0 else "X-Forwarded-Login-%d" % i, "c" * (size // count - 24)) for i in range(count)]
    return [line[:size // count] for line in lines]


def long_headers():
    agent.put("/v1/kv/a", b"value")
    for what, headers in (("cookies of 5.6 kB", cookies(5600)), ("cookies of 16 kB", cookies(16000)), ("16 kB in 8", cookies(16000, 8)), ("100 headers", cookies(100 * 60, 100)),
                          ("100 headers of 32 kB", cookies(100 * 318, 100)), ("one of 32 kB", cookies(32500)), ("500 headers", cookies(500 * 60, 500))):
        expect(what, ask("GET /v1/kv/a?raw HTTP/1.1", *headers), 200, b"value")
        expect(what + ", a URL", ask("GET http://h/v1/kv/a?raw HTTP/1.1", *headers), 200, b"value")
        expect(what + ", a write", ask("PUT /v1/kv/long HTTP/1.1", *headers, body=what.encode() * 3000), 200, b"true")
        expect(what + ", what was written", ask("GET /v1/kv/long?raw HTTP/1.1"), 200, what.encode() * 3000)
    before = agent.fd_count()
    for _ in range(300):
        expect("again and again", ask("GET /v1/kv/a?raw HTTP/1.1", *cookies(6000)), 200, b"value")
    until("no descriptor is left behind", lambda: agent.fd_count() <= before + 2, within=5)
    answer = agent.raw(b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nCookie: " + b"c" * 6000 + b"\r\n\r\n3;" + b"a" * 300000 + b"\r\nabc\r\n0\r\n\r\n")
    check(status_of(answer) == 400 and b"chunked" in answer, "an endless line of a chunk: %r" % answer)
    status, body = ask("GET /v1/kv/a?raw HTTP/1.1", *cookies(33000))
    check(status == 431 and b"coord.http_header_max" in body and b"32768" in body, "above the limit: %r %r" % (status, body))
    status, body = ask("GET /v1/kv/%s HTTP/1.1" % ("k" * 33000))
    check(status == 414 and b"coord.http_header_max" in body, "a URL above the limit: %r %r" % (status, body))
    key = "%C3%A9" * 4096            # of 8192 bytes, the most that there may be
    expect("an escaped key", ask("PUT /v1/kv/%s HTTP/1.1" % key, body=b"1"), 200, b"true")
    expect("and read", ask("GET /v1/kv/%s?raw HTTP/1.1" % key), 200, b"1")
    limited = Agent(settings(http_header_max=2000), dev=True, name="n2").start()
    got = [status_of(limited.raw(b"GET /v1/kv/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nCookie: " + b"c" * size + b"\r\n\r\n")) for size in (1900, 2000)]
    check(got == [404, 431], "another limit: %r" % got)
    limited.stop()


def on_one_connection():
    """A login proxy keeps its connections, and sends what its users send."""
    agent.put("/v1/kv/a", b"value")
    before = agent.fd_count()
    connections = [http.client.HTTPConnection(agent.ip, 8500, timeout=20 * SLOW) for _ in range(20)]
    for size in (100, 6000, 100, 31000, 700, 4900, 16000, 100):
        for connection in connections:
            connection.request("GET", "/v1/kv/a?raw", headers={"Cookie": "c" * size})
        for connection in connections:
            answer = connection.getresponse()
            check((answer.status, answer.read()) == (200, b"value"), "%d bytes" % size)
    check(agent.fd_count() <= before + 2 * len(connections), "a descriptor each, and those of their epolls")
    for connection in connections:
        connection.request("GET", "/v1/kv/a?raw&index=%d&wait=60s" % (1 << 40), headers={"Cookie": "c" * 6000})   # an index of another life: answered at once
        check(connection.getresponse().read() == b"value", "answered")
    index = agent.get("/v1/kv/a")[1]["X-Consul-Index"]
    for connection in connections:
        connection.request("GET", "/v1/kv/a?raw&index=%s&wait=60s" % index, headers={"Cookie": "c" * 6000})
    waiting = lambda n: b"coord_http_blocking_queries %d\n" % n in agent.request("GET", "/v1/agent/metrics?format=prometheus")[2]
    until("they wait", lambda: waiting(20))
    for connection in connections[:10]:
        connection.close()
    until("who hangs up is noticed", lambda: waiting(10))
    agent.put("/v1/kv/a", b"news")
    for connection in connections[10:]:
        check(connection.getresponse().read() == b"news", "the others are woken")
        connection.close()
    until("their descriptors are freed", lambda: agent.fd_count() <= before + 4)


def short_headers_cost_no_memory():
    """Whatever others send: a connection that is kept holds about 10 KiB."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as limits:
        json.dump({"limits": {"http_max_conns_per_client": 4000}}, limits)
        limits.flush()
        server = Agent("-config-file=" + limits.name, dev=True, name="n3").start()
        line = b"GET /v1/kv/none?raw HTTP/1.1\r\nHost: x\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n"

        def open_many(count, *more):
            before, made = server.rss_kib("RssAnon"), []
            for _ in range(count):
                s = socket.create_connection((server.ip, 8500), timeout=20 * SLOW)
                for header in (b"", *more, b""):
                    s.sendall(line + header + b"\r\n")
                    check(s.recv(4096).startswith(b"HTTP/1.1 404"), "served")
                made.append(s)
            return made, (server.rss_kib("RssAnon") - before) / count
        first, _ = open_many(200)                    # whatever the program needs besides
        long, each_long = open_many(20, b"Cookie: " + b"c" * 16000 + b"\r\n")
        short, each = open_many(1000)
        print("     %.1f KiB for each of 1000 connections, %.1f for those with long headers" % (each, each_long))
        if SLOW == 1:
            check(each < 13, "%.1f KiB a connection" % each)
        for s in first + long + short:
            s.close()
        server.stop()


# -- right after a start ----------------------------------------------------------------------------

AT_ONCE = 2                          # seconds without a leader: then no answer waits any more
WAITS = 0.95                         # of a second that an answer waits for a leader; clocks of milliseconds, taken at the start of a turn


def first_answers(ip, process, paths=("/v1/status/leader", "/v1/status/peers"), known=False, since=None):
    """What those get who ask in the first moment in which the agent listens: an answer for each path. `known`: the first that knows a leader; that none
    is known may be told only after waiting for one, as when the disk stands still while one is elected. `since`: before the servers were started."""
    got, started = [], time.monotonic()

    def asked(path):
        try:
            begun = time.monotonic()
            connection = http.client.HTTPConnection(ip, 8500, timeout=20 * SLOW)
            connection.request("GET", path)
            answer = connection.getresponse()
            said = path, answer.status, answer.read()
            if known and (said[1] == 500 or said[2] in (b'""', b"[]")):
                # 500: of an agent that has reached no server since its start
                now = time.monotonic()
                at_once = said[1] == 200 and now - (since or started) >= AT_ONCE
                check(at_once or now - (started if said[1] == 500 else begun) >= WAITS, "told too soon that nobody leads: %r" % (said,))
                return False
            got.append(said)
            return True
        except ConnectionError:
            check(process.poll() is None, "it runs")
            return False
    for path in paths:
        until("the first answer to " + path, lambda: asked(path), within=30, every=0.001)
    return got


def status_right_after_a_start():
    server = Agent(name="n4")
    for how in ("new", "again", "after a kill"):
        server.start(wait=False)
        got = first_answers(server.ip, server.proc, known=True)
        address = b"%s:8300" % server.ip.encode()
        check(got == [("/v1/status/leader", 200, b'"' + address + b'"'), ("/v1/status/peers", 200, b'["' + address + b'"]')], "%s: %r" % (how, got))
        server.stop() if how == "new" else server.kill()
    server.start(wait=False)
    client = Agent("-retry-join=" + server.ip, server=False, name="c1")
    client.start(wait=False)
    for path, status, body in first_answers(client.ip, client.proc, known=True):
        check(status == 200 and server.ip.encode() in body, "a client agent: %s %d %r" % (path, status, body))
    client.stop()
    server.stop()


def in_bounded_time(seconds):
    """One of three: what seconds() measures, right after a start."""
    took = []
    while not any(t < 4 * SLOW for t in took):
        check(len(took) < 3, "in bounded time: %r" % took)
        took.append(seconds())


def status_without_a_leader():
    """Answered within a second or two, and at once when there was no leader for longer."""
    alone = Agent("-server", "-bootstrap-expect=3", "-retry-join=" + free_address(), server=False, name="n5")

    def seconds():
        alone.kill()
        alone.start(wait=False)
        begun = time.monotonic()
        got = first_answers(alone.ip, alone.proc)
        check([(status, body) for _, status, body in got] == [(200, b'""'), (200, b"[]")], "%r" % got)
        return time.monotonic() - begun
    in_bounded_time(seconds)

    def at_once():
        begun = time.monotonic()
        check(alone.request("GET", "/v1/status/leader")[2] == b'""' and alone.request("GET", "/v1/status/peers")[2] == b"[]", "nobody leads")
        return time.monotonic() - begun < 0.2 * SLOW
    until("nobody waits any more, five times in a row", lambda: all(at_once() for _ in range(5)), within=5)
    alone.kill()
    lost = Agent("-retry-join=" + free_address(), server=False, name="c2")

    def seconds_of_the_lost():
        lost.kill()
        lost.start(wait=False)
        begun = time.monotonic()
        until("an agent without servers says so", lambda: [(s, b) for _, s, b in first_answers(lost.ip, lost.proc)] == [(500, b"No cluster leader")] * 2, within=5)
        return time.monotonic() - begun
    in_bounded_time(seconds_of_the_lost)
    lost.kill()


def ask_who_leads(server, what, over):
    """Asks until over(answer). That nobody leads may be told only after waiting for a leader, or when none was known for long (http/api/status.c),
    however long the election takes."""
    long = 1.95
    named = time.monotonic()         # when it was asked that last told of a leader
    told = []

    def asked():
        nonlocal named
        begun = time.monotonic()
        answer = json.loads(server.request("GET", "/v1/status/leader")[2])
        ended = time.monotonic()
        told.append((answer, round(ended - begun, 3), round(ended - named, 3)))
        if answer:
            named = begun
        else:
            check(ended - begun >= WAITS or ended - named >= long, "told too soon that nobody leads: (answer, it took, since one was named) %r" % told[-5:])
        return over(answer)
    until(what, asked, 40, every=0.001)


def status_while_another_is_elected():
    for lost in (signal.SIGKILL, signal.SIGSTOP):
        cluster = Cluster(3).start()
        leader, asked = cluster.leader(), cluster.followers()[0]
        leader.proc.send_signal(lost)
        ask_who_leads(asked, "another leads", lambda answer: answer not in ("", leader.ip + ":8300"))
        for server in cluster.servers:
            server.kill()


def status_when_the_majority_is_lost():
    """With the multiplier that is Consul's default the leader has been silent for seconds before it is taken for lost."""
    for lost in (signal.SIGKILL, signal.SIGSTOP):
        cluster = Cluster(3, configuration(performance={"raft_multiplier": max(5, MULTIPLIER)})).start()
        leader, (asked, third) = cluster.leader(), cluster.followers()
        leader.proc.send_signal(lost), third.proc.send_signal(lost)
        ask_who_leads(asked, "nobody leads", lambda answer: answer == "")
        for server in cluster.servers:
            server.kill()


def status_after_all_start_again():
    cluster = Cluster(3).start()
    for server in cluster.servers:
        server.kill()
    since = time.monotonic()
    for server in cluster.servers:
        server.start(wait=False)
    for server in cluster.servers:
        for path, status, body in first_answers(server.ip, server.proc, known=True, since=since):
            check(status == 200, "%s %r" % (path, body))
    cluster.leader(20)
    for server in cluster.servers:
        server.kill()


if __name__ == "__main__":
    agent = Agent(dev=True).start()
    run([targets, clients_behind_a_proxy_setting, header_names, names_of_endpoints, long_headers, on_one_connection, short_headers_cost_no_memory, status_right_after_a_start,
         status_without_a_leader, status_while_another_is_elected, status_when_the_majority_is_lost, status_after_all_start_again])
