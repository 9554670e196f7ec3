"""Whatever a client sends: one line that says what is wrong, nothing lost, the process up and not larger."""
import json, os, random, socket, struct, subprocess, tempfile, threading, time
from coordtest import COORD, FIGURES, SLOW, STANDSTILL, Agent, Cluster, check, run, until

agent = None


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else None


def body_of(answer):
    return answer.split(b"\r\n\r\n", 1)[1] if b"\r\n\r\n" in answer else b""


def refused(what, data, statuses=(400,), one_line=True, **kw):
    answer = agent.raw(data, **kw)
    check(status_of(answer) in statuses, "%s: %r" % (what, answer[:300]))
    if one_line:
        text = body_of(answer)
        check(text.strip() and text.strip().count(b"\n") == 0, "%s: not one line that names the fault: %r" % (what, text[:300]))
    return answer


def request(line, headers=(), body=b"", host=True):
    h = list(headers) + (["Host: x"] if host else []) + ["Connection: close"]
    return (line + "\r\n" + "".join(x + "\r\n" for x in h) + "\r\n").encode() + body


def put(path, body, *headers):
    return request("PUT %s HTTP/1.1" % path, ["Content-Length: %d" % len(body), *headers], body)


def json_bodies():
    for path in ("/v1/agent/service/register", "/v1/catalog/register", "/v1/session/create", "/v1/agent/check/register", "/v1/catalog/deregister"):
        for body in (b"{", b"[1", b'{"Name": 1,}', b"nonsense", b'{"a":"\xff\xfe"}', b'{"a":1}{"b":2}', b"[" * 200 + b"]" * 200, b"7", b'"x"', b"[]"):
            refused("%s %r" % (path, body[:20]), put(path, body))
    for path, body in (("/v1/agent/service/register", b'{"Name": 7}'), ("/v1/agent/service/register", b'{"Name":"x","Port":"80"}'),
                       ("/v1/agent/service/register", b'{"Name":"x","Port":70000}'), ("/v1/agent/service/register", b'{"Name":"x","Tags":"a"}'),
                       ("/v1/agent/service/register", b'{"Name":""}'), ("/v1/agent/service/register", b'{"Name":"x","Check":{"HTTP":"http://127.0.0.1/","Interval":"10"}}'),
                       ("/v1/agent/service/register", b'{"Name":"x","Check":{"HTTP":"http://127.0.0.1/"}}'), ("/v1/catalog/register", b'{"Node":"n"}'),
                       ("/v1/catalog/register", b'{"Node":7,"Address":"a"}'), ("/v1/session/create", b'{"TTL":"10"}'), ("/v1/session/create", b'{"TTL":"1s"}'),
                       ("/v1/session/create", b'{"TTL":"99999999999999h"}'), ("/v1/session/create", b'{"Behavior":"keep"}'),
                       ("/v1/session/create", b'{"LockDelay":"never"}'), ("/v1/agent/service/register", b'{"Name":"a\\u0000b"}')):
        refused("%s %r" % (path, body), put(path, body), statuses=(400, 500) if path == "/v1/session/create" else (400,))


def parameters():
    for path in ("/v1/kv/a?index=-1&wait=1s", "/v1/kv/a?index=abc", "/v1/kv/a?index=99999999999999999999999", "/v1/kv/a?index=1&wait=10",
                 "/v1/kv/a?index=1&wait=-5s", "/v1/kv/a?max_stale=5", "/v1/kv/a?index=1&wait=forever", "/v1/kv/%zz", "/v1/kv/a%", "/v1/kv/a%00b", "/v1/kv/a?wait=%q",
                 "/v1/health/service/x?index=1.5", "/v1/health/state/nonsense"):
        refused(path, request("GET %s HTTP/1.1" % path))
    for path in ("/v1/kv/a?flags=-1", "/v1/kv/a?cas=x", "/v1/kv/a?flags=18446744073709551616", "/v1/kv/a?acquire=x&release=y", "/v1/kv/a?cas=1&acquire=x"):
        refused(path, put(path, b"v"))
    refused("the value limit is named", put("/v1/kv/big", b"x" * (512 * 1024 + 1)), statuses=(413,))
    refused("an unknown path", request("GET /v1/nothing HTTP/1.1"), statuses=(404,), one_line=False)
    refused("a method that does not fit", request("DELETE /v1/status/leader HTTP/1.1"), statuses=(405,))


def framing():
    refused("no Host", request("GET /v1/status/leader HTTP/1.1", host=False))
    refused("two Content-Length", request("PUT /v1/kv/a HTTP/1.1", ["Content-Length: 3", "Content-Length: 3"], b"abc"))
    refused("differing Content-Length", request("PUT /v1/kv/a HTTP/1.1", ["Content-Length: 3", "Content-Length: 30"], b"abc"))
    smuggled = b"0\r\n\r\nPUT /v1/kv/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
    refused("Content-Length with Transfer-Encoding", request("PUT /v1/kv/a HTTP/1.1", ["Content-Length: 5", "Transfer-Encoding: chunked"], smuggled))
    check(agent.request("GET", "/v1/kv/smuggled")[0] == 404, "the smuggled request was not served")
    answer = agent.raw(b"PUT /v1/agent/service/register HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{", timeout=3)
    check(status_of(answer) == 413, "an oversized body is refused before it is sent: %r" % answer[:200])
    for line in (b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"SSH-2.0-x\r\n"):
        agent.raw(line, timeout=1, half_close=True)


def whole(what, data, status, *words, **kw):
    """One answer and nothing else: plain text, its length, one line with these words; then the connection ends."""
    answer = refused(what, data, statuses=(status,), **kw)
    head, body = answer.split(b"\r\n\r\n", 1)
    check(answer.count(b"HTTP/1.1 ") == 1, "%s: more than one answer: %r" % (what, answer[:400]))
    check(b"Content-Type: text/plain; charset=utf-8" in head and b"<" not in body, "%s: not plain text: %r" % (what, answer[:400]))
    check(b"\r\nContent-Length: %d" % len(body) in head, "%s: the length is wrong: %r" % (what, answer[:400]))
    for word in words:
        check(word.encode() in body, "%s: the line does not say %r: %r" % (what, word, body))


def refused_by_the_library():
    """What libmicrohttpd finds by itself is answered like everything else."""
    for length in ("-3", "+3", "abc", "0x3", "", "3 3", "3,3", "1e3", "3;"):
        whole("Content-Length %r" % length, b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\nabc" % length.encode(), 400, "Content-Length")
    whole("an overflow", b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413, "Content-Length")
    for size in (b"zz", b"-1", b"1 1", b"ffffffffffffffffff"):
        whole("chunk size %r" % size, b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nabc\r\n0\r\n\r\n", 400 if len(size) < 9 else 413, "chunk")
    whole("a chunk without end", b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n", 400, "chunk")
    for version in ("HTTP/9.9", "HTTP/2.0", "HTTP/0.9"):
        whole(version, b"GET /v1/kv/a %s\r\nHost: x\r\n\r\n" % version.encode(), 505, "version")
    for line in (b"GET /v1/kv/a", b"GET /v1/kv/a HTP/1.1", b"GET /v1/kv/a HTTP/1", b"GET /v1/kv/a HTTP/1.1x"):
        whole("%r" % line, line + b"\r\nHost: x\r\n\r\n", 400, "request line")
    whole("a header without a colon", b"GET /v1/kv/a HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400, "header")
    for size in (33000, 60000, 120000, 1000000):
        whole("a header of %d" % size, request("GET /v1/kv/a HTTP/1.1", ["X-Big: " + "h" * size]), 431, "header", "32768", "coord.http_header_max")
    whole("cookies", request("GET /v1/kv/a HTTP/1.1", ["Cookie: " + "; ".join("c%d=1" % i for i in range(5000))]), 431, "header", "coord.http_header_max")
    whole("many headers", request("GET /v1/kv/a HTTP/1.1", ["X-%d: 1" % i for i in range(2500)]), 431, "header", "coord.http_header_max")
    for size in (33000, 60000, 200000):
        whole("a URL of %d" % size, request("GET /v1/kv/%s HTTP/1.1" % ("k" * size)), 414, "URL", "coord.http_header_max")
    for count in (1057, 4000):
        whole("%d parameters" % count, request("GET /v1/kv/a?%s HTTP/1.1" % "&".join("a%d=1" % i for i in range(count))), 400, "more than 1056 parameters")
    big = b"x" * 70000
    chunked = b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"%x\r\n" % len(big) + big + b"\r\n") * 8 + b"0\r\n\r\n"
    whole("a chunked body above the limit", chunked, 413, "limits.kv_max_value_size")
    whole("a body far above the limit", put("/v1/kv/a", b"x" * (8 << 20)), 413, "limits.kv_max_value_size")
    whole("a body above the limit", put("/v1/session/create", b"x" * ((1 << 20) + 1)), 413, "coord.http_body_max")
    answer = agent.raw(b"GET /v1/kv/kept?raw HTTP/1.1\r\nHost: x\r\n\r\nPUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n")
    check(answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1 ") == 2 and b"\r\n\r\n1HTTP/1.1 400" in answer, "after a good one: %r" % answer)
    answer = agent.raw(b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n1")
    check(b" 200 OK" in answer, "100 Continue passes: %r" % answer)
    answer = agent.raw(b"PUT /v1/kv/page?raw HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 24\r\n\r\nHTTP/1.1 400 Bad Request\n")
    answer = agent.raw(request("GET /v1/kv/page?raw HTTP/1.1"))
    check(body_of(answer) == b"HTTP/1.1 400 Bad Request", "a value that looks like a page: %r" % answer)


def trailers():
    """What follows a chunked body is held to what headers are: names are tokens (RFC 9110, 5.6.2)."""
    agent.put("/v1/kv/trailed", b"before")
    start = b"PUT /v1/kv/trailed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    for bad in (b"Bad Name: x", b"Content-Length : 5", b"a(b): x", b"a\tb: x", b"n\xc3\xa9: x", b"Good: x\r\na@b: x", b"Good: a\x01z", b"nonsense", b": x"):
        whole("the trailer %r" % bad, start + bad + b"\r\n\r\n", 400, "header")
        check(agent.request("GET", "/v1/kv/trailed?raw")[2] == b"before", "%r: nothing was written" % bad)
    answer = agent.raw(start.replace(b"Host: x", b"Host: x\r\nConnection: close") + b"X-Sum: 900150983cd24fb0\r\nX-Other:\r\n\r\n")
    check(status_of(answer) == 200 and agent.request("GET", "/v1/kv/trailed?raw")[2] == b"abc", "good ones are no matter: %r" % answer)


def endless_chunk_lines():
    """The size line of a chunk may carry an extension of any length: one that no memory holds is refused at once, and keeps no thread busy."""
    head = b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    tail = b"\r\nabc\r\n0\r\n\r\n"
    for size in (9700, 20000, 200000):
        whole("an extension of %d" % size, head + b"3;" + b"a" * size + tail, 400, "chunked", "coord.http_connection_memory", timeout=5)
    for size in (5000, 9000):
        answer = agent.raw(head.replace(b"Host: x", b"Host: x\r\nConnection: close") + b"3;" + b"a" * size + tail)
        check(status_of(answer) == 200, "an extension of %d is skipped: %r" % (size, answer))
    fds = agent.fd_count()
    for _ in range(10):  # gone before it is found out
        with socket.create_connection((agent.ip, 8500)) as s:
            s.sendall(head + b"3;" + b"a" * 9640)
            time.sleep(0.05)
    until("their descriptors are freed", lambda: agent.fd_count() <= fds + 2, within=10)
    socks = []
    for size in range(9000, 9700, 8):  # one of them fills the memory to the last byte
        s = socket.create_connection((agent.ip, 8500))
        s.sendall(head + b"3;" + b"a" * size)
        socks.append(s)
    agent.request("GET", "/v1/kv/kept", headers={"X-Long": "h" * 8000})  # served by the same thread
    used = []

    def quiet():            # a thread that is kept busy is so in each of them; a machine that is short of processors makes one look so
        begun, before = time.monotonic(), agent.cpu_seconds()
        time.sleep(1)
        used.append((agent.cpu_seconds() - before) / (time.monotonic() - begun))
        return used[-1] < 0.2 * SLOW
    try:
        until("connections on which nothing happens use no CPU", quiet, within=5)
    finally:
        for s in socks:
            s.close()
        print("CPU beside %d idle connections: %s of a processor" % (len(socks), " ".join("%.2f" % u for u in used)))


def long_keys():
    """Up to the limit they work, above it the line says which limit."""
    headers = ["User-Agent: Go-http-client/1.1", "Accept-Encoding: gzip", "X-Consul-Token: 01234567-89ab-cdef-0123-456789abcdef", "Accept: */*"]
    value = os.urandom(100000)
    for size in (7000, 8000, 8192):
        key = "k" * size
        answer = agent.raw(request("PUT /v1/kv/%s HTTP/1.1" % key, headers + ["Content-Length: 100000"], value))
        check(status_of(answer) == 200 and answer.endswith(b"true"), "a key of %d is stored: %r" % (size, answer[:200]))
        answer = agent.raw(request("GET /v1/kv/%s?raw&index=1&wait=1s HTTP/1.1" % key, headers))
        check(status_of(answer) == 200 and answer.endswith(value), "and read: %r" % answer[:200])
        answer = agent.raw(request("DELETE /v1/kv/%s HTTP/1.1" % key, headers))
        check(status_of(answer) == 200 and agent.request("GET", "/v1/kv/" + key)[0] == 404, "and removed: %r" % answer[:200])
    whole("a key that is too long", request("GET /v1/kv/%s HTTP/1.1" % ("k" * 8193)), 400, "8192")
    for count in (1400, 4096):
        answer = agent.raw(request("GET /v1/kv/%s HTTP/1.1" % ("%C3%A9" * count), headers))
        check(status_of(answer) == 404, "escaped: %r" % answer[:200])
    whole("a long URL, escaped", request("GET /v1/kv/%s HTTP/1.1" % ("%C3%A9" * 4097), headers), 400, "8192")


def without_acls():
    """As a Consul without ACLs answers."""
    for call in ("GET /v1/acl/list", "GET /v1/acl/tokens", "PUT /v1/acl/token", "GET /v1/acl/token/self", "DELETE /v1/acl/token/x", "GET /v1/acl/policies",
                 "PUT /v1/acl/bootstrap", "GET /v1/acl/roles", "GET /v1/acl/auth-methods", "GET /v1/acl/binding-rules", "POST /v1/acl/login",
                 "PUT /v1/acl/create", "PUT /v1/acl/destroy/x", "GET /v1/acl/replication", "PUT /v1/agent/token/default"):
        method, path = call.split(" ")
        status, _, body = agent.request(method, path, b"{}" if method in ("PUT", "POST") else None)
        check((status, body) == (401, b"ACL support disabled"), "%s: %r %r" % (call, status, body))
    check(agent.request("PUT", "/v1/acl/list")[0] == 405 and agent.request("GET", "/v1/acl/nothing")[0] == 404, "other calls")


def large_answers():
    """Who reads hundreds of megabytes waits; nobody else does, and the memory goes back."""
    value, values = os.urandom(500000), 200 if FIGURES else 80
    for i in range(values):
        check(agent.request("PUT", "/v1/kv/large/%d" % i, value)[0] == 200, "stored")
    before, stop, sizes, reads = agent.rss_kib(), threading.Event(), [], []

    def reader():
        while not stop.is_set():
            began = time.monotonic()
            with socket.create_connection((agent.ip, 8500)) as s:
                s.sendall(request("GET /v1/kv/large/?recurse HTTP/1.1"))
                size = 0
                while True:
                    block = s.recv(1 << 20)
                    if not block:
                        break
                    size += len(block)
                sizes.append(size)
                reads.append(time.monotonic() - began)

    def others_meanwhile():
        """How long 99 of 100 others took, and a large answer."""
        stop.clear(), sizes.clear(), reads.clear()
        readers = [threading.Thread(target=reader) for _ in range(4)]
        for r in readers:
            r.start()
        took = []
        while (len(sizes) < 6 or len(took) < 100) and any(r.is_alive() for r in readers):
            began = time.monotonic()
            check(agent.request("GET", "/v1/status/leader")[0] == 200, "others are served")
            took.append(time.monotonic() - began)
            time.sleep(0.005)
        stop.set()
        for r in readers:
            r.join()
        check(len(sizes) >= 6 and min(sizes) == max(sizes) and min(sizes) > values * 500000 * 4 / 3, "all were whole: %r" % sizes)
        return sorted(took)[len(took) * 99 // 100], sorted(reads)[len(reads) // 2]
    measured = []
    while not measured or measured[-1][0] >= max(0.25, measured[-1][1] / 2):     # a machine that stands still is measured again
        check(len(measured) < 3, "seconds in which 99 of 100 were answered, and a large answer was: %r" % measured)
        measured.append(others_meanwhile())
    if SLOW == 1:  # sanitizers keep what is freed
        until("the memory goes back", lambda: agent.rss_kib() < before + 32 * 1024, within=5)
    check(agent.request("DELETE", "/v1/kv/large/?recurse")[0] == 200, "removed")


def nul_bytes():
    """Nowhere in a header, in whatever place and with whatever line breaks."""
    for header in (b"Host: a\0b", b"Host: a\0", b"Host: \0a", b"Host:\0", b"X: 1\r\nHost: a\0\0\0b", b"Host: x\r\nX: a\0", b"Host: x\r\nX: \0\r\nY: 1",
                   b"Host: x\r\nX: a\0Content-Length: 5", b"Ho\0st: x", b"Host\0: x", b"\0Host: x", b"Host: x\r\n\0"):
        for end in (b"\r\n", b"\n"):
            whole("%r, %r" % (header, end), (b"GET /v1/kv/a HTTP/1.1\r\n" + header + b"\r\n\r\n").replace(b"\r\n", end), 400)
    for line in (b"GET /v1/kv/a\0b HTTP/1.1", b"GET /v1/kv/a\0 HTTP/1.1", b"GET /v1/kv/a?b\0c HTTP/1.1", b"GE\0T /v1/kv/a HTTP/1.1", b"GET\0/v1/kv/a HTTP/1.1",
                 b"GET /v1/kv/a\0?" + b"&".join(b"a%d=1" % i for i in range(900)) + b" HTTP/1.1", b"GET /v1/kv/a HTTP/1.1\0"):
        refused("%r" % line[:60], line + b"\r\nHost: x\r\nConnection: close\r\n\r\n", statuses=(400, 405))
    for end in (b"\r\n", b"\n"):
        answer = agent.raw(request("PUT /v1/kv/nul HTTP/1.1", ["Content-Length: 3"]).replace(b"\r\n", end) + b"\0\0\0")
        check(status_of(answer) == 200, "a body may hold them: %r" % answer)
    check(agent.raw(request("GET /v1/kv/nul?raw HTTP/1.1")).endswith(b"\r\n\r\n\0\0\0"), "and it is stored")


def slow_and_half_open():
    socks = []
    for i in range(50):
        s = socket.create_connection((agent.ip, 8500))
        s.sendall([b"", b"GET /v1/kv/a HT", b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab"][i % 3])
        socks.append(s)
    check(agent.request("GET", "/v1/status/leader")[0] == 200, "others are served meanwhile")
    for s in socks:
        s.close()
    fds = agent.fd_count()
    waiting = []
    for _ in range(100):
        s = socket.create_connection((agent.ip, 8500))
        s.sendall(b"GET /v1/kv/none?index=1&wait=300s HTTP/1.1\r\nHost: x\r\n\r\n")
        waiting.append(s)
    metrics = lambda: agent.request("GET", "/v1/agent/metrics?format=prometheus")[2]
    until("all wait", lambda: b"coord_http_blocking_queries 100" in metrics())
    for s in waiting:
        s.close()
    until("clients that hang up are freed", lambda: b"coord_http_blocking_queries 0" in metrics(), within=3)
    until("their descriptors too", lambda: agent.fd_count() <= fds + 2, within=3)


def half_closed_write_is_answered(path, body, waited, pause=0):
    with socket.create_connection((agent.ip, 8500)) as s:
        s.settimeout(10 * SLOW + STANDSTILL)
        if waited:
            s.sendall(b"GET /v1/kv/none?index=1&wait=1ms HTTP/1.1\r\nHost: x\r\n\r\n")
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                block = s.recv(4096)
                check(block, "the connection ended: %r" % head)
                head += block
        s.sendall(b"PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body))
        time.sleep(pause)
        s.shutdown(socket.SHUT_WR)
        answer = s.recv(200)
    check(answer.startswith(b"HTTP/1.1 200"), "%s (waited: %s): %r" % (path, waited, answer))


def half_closed_writes_are_answered():
    for waited in (False, True):                     # also on a connection that waited for a change before
        for path, body in (("/v1/kv/half", b"1"), ("/v1/agent/service/register", b'{"Name":"half"}'), ("/v1/agent/check/register", b'{"Name":"half","TTL":"10s"}'),
                           ("/v1/agent/check/deregister/half", b""), ("/v1/agent/service/deregister/half", b"")):
            half_closed_write_is_answered(path, body, waited)
    for i in range(200):                             # some come while it is under way
        half_closed_write_is_answered("/v1/agent/service/register", b'{"Name":"half-%d"}' % i, True, i * 1e-5)


def dns_packets():
    def ask(packet, timeout):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(timeout * SLOW)
            s.sendto(packet, (agent.ip, 8600))
            try:
                return s.recv(65535)
            except socket.timeout:
                return None
    name = b"\x03api\x07service\x05coord\x00"
    head = lambda flags=0x0100, qd=1, an=0: struct.pack(">HHHHHH", 77, flags, qd, an, 0, 0)
    rcode = lambda answer: answer and answer[3] & 15
    cases = [("a loop", head() + b"\xc0\x0c\x00\x01\x00\x01", (1, None)), ("cut short", head() + name[:6], (1, None)), ("no question", head(qd=0), (1, None)),
             ("two questions", head(qd=2) + (name + b"\0\1\0\1") * 2, (1, 5, None)), ("an unknown class", head() + name + b"\0\1\0\x63", (4, 5)),
             ("an unknown opcode", head(flags=0x2800) + name + b"\0\1\0\1", (4,)), ("an answer", head(flags=0x8000) + name + b"\0\1\0\1", (None,)),
             ("a label of 64", head() + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", (1, None)), ("nothing", b"", (None,)), ("three bytes", b"abc", (None,)),
             ("another domain", head() + b"\x07example\x03com\0\0\1\0\1", (5, 2, 3))]
    for what, packet, expected in cases:
        answer = ask(packet, 0.3 if None in expected else 10)        # whoever may say nothing is not waited for
        check(rcode(answer) in expected, "%s: rcode %r" % (what, rcode(answer)))
    rng = random.Random(7)
    good = head() + name + b"\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _ in range(3000):
            p = bytearray(good if rng.random() < 0.7 else os.urandom(rng.randint(0, 200)))
            for _ in range(rng.randint(0, 4)):
                if p:
                    p[rng.randrange(len(p))] = rng.randrange(256)
            s.sendto(bytes(p), (agent.ip, 8600))
    until("DNS still answers", lambda: agent.dig_short("n1.node.coord") == [agent.ip])


def nothing_lost_nothing_grown():
    """Everything above once more, many times: the process is the same one and no larger."""
    everything = (json_bodies, parameters, framing, refused_by_the_library, nul_bytes, dns_packets)
    for f in everything:
        f()
    rss, fds, pid = agent.rss_kib("RssAnon"), agent.fd_count(), agent.proc.pid
    for _ in range(3 if SLOW == 1 else 1):
        for f in everything:
            f()
    check(agent.proc.poll() is None and agent.proc.pid == pid, "the process is up")
    if SLOW == 1:
        until("it is not larger than %d KiB were" % rss, lambda: agent.rss_kib("RssAnon") <= rss + 1024, within=5)
    until("no descriptor is left behind", lambda: agent.fd_count() <= fds + 2, within=5)
    check(agent.get("/v1/kv/kept")[2][0]["Value"] == "MQ==", "what was written before is there")


def largest_values():
    """As large as the configuration allows, several at a time, through a server that hands them on: none ends for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "limits.json")

        def limit(size):
            with open(path, "w") as f:
                json.dump({"limits": {"kv_max_value_size": size}}, f)
        most = 8 << 20
        limit(most + 1)
        refused = subprocess.run([COORD, "agent", "-dev", "-config-file=" + path], capture_output=True, text=True, timeout=20)
        check(refused.returncode != 0 and "kv_max_value_size" in refused.stderr + refused.stdout, "more than a frame has room for: %r" % refused)
        limit(most)
        cluster = Cluster(3, "-config-file=" + path).start()
        through, answers = cluster.followers()[0], []

        def write(number):
            value = b"v" * (most - 60 * (number % 2))      # a leader whose disk is slow hands over meanwhile
            until("it is written", lambda: through.request("PUT", "/v1/kv/large/%d" % number, value, timeout=60 * SLOW)[0] == 200, 60)
            answers.append(number)
        turns, writers = (2, 6) if FIGURES else (1, 3)
        for turn in range(turns):
            threads = [threading.Thread(target=write, args=(writers * turn + i,)) for i in range(writers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        check(len(answers) == turns * writers, "%r" % answers)
        check(through.request("PUT", "/v1/kv/large/more", b"v" * (most + 1))[0] == 413, "one byte more")
        check(all(s.proc.poll() is None for s in cluster.servers), "all run")
        until("all have all", lambda: all(len(s.get("/v1/kv/large/?keys&stale")[2] or []) == turns * writers for s in cluster.servers), 30)


if __name__ == "__main__":
    agent = Agent(dev=True).start()
    agent.put("/v1/kv/kept", b"1")
    run([json_bodies, parameters, framing, refused_by_the_library, nul_bytes, endless_chunk_lines, trailers, long_keys, without_acls, slow_and_half_open, largest_values, half_closed_writes_are_answered, dns_packets, nothing_lost_nothing_grown, large_answers])
