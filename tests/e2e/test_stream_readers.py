"""Streams whose clients read slowly, or stop reading, or have nothing to read."""
import http.client, socket
from coordtest import SLOW, Agent, check, run, settings, until
from streams import Follower, Writer, has_all, once_each, stream_socket


def a_reader_that_stops_reading():
    """Much more passes by than the history keeps: the server's memory stays as it was, the client hears of the gap, and what comes then is
    complete."""
    server = Agent(settings(history_bytes=1 << 20, history_changes=3000)).start()
    value = b"x" * 100000
    total = int((1000 << 20) // len(value) // SLOW)
    server.put("/v1/kv/big/0", b"first")
    s = stream_socket(server, "prefix=big/", receive=65536)
    until("it begins", lambda: s.recv(65536, socket.MSG_PEEK))
    c = http.client.HTTPConnection(server.ip, 8500, timeout=60)

    def write(i):
        c.request("PUT", "/v1/kv/big/%d" % (i % 50), b"%d-" % i + value)
        check(c.getresponse().read().strip() == b"true", "write %d" % i)
    for i in range(200):
        write(i)
    before = server.rss_kib("RssAnon")
    for i in range(200, total):
        write(i)
    after = server.rss_kib("RssAnon")
    print("     %d MiB passed; the server had %d MiB, then %d MiB" % (total * len(value) >> 20, before >> 10, after >> 10))
    if SLOW == 1:    # sanitizers keep what was freed
        check(after - before < 16 << 10, "the server grew by %d KiB" % (after - before))
    seen, data = [], b""

    def take():
        nonlocal data
        data += s.recv(1 << 20)
        while b"\n\n" in data:
            event, data = data.split(b"\n\n", 1)
            seen.append(event[:400])
        return any(b"event: gap" in e for e in seen)
    until("gap", take, 30, 0)
    gap = next(i for i, e in enumerate(seen) if b"event: gap" in e)
    write(total)
    until("what comes after it", lambda: take() and any(b'"Key":"big/%d"' % (total % 50) in e for e in seen[gap:]), 30, 0)
    s.close()


def a_slow_reader_gets_all_of_it():
    """As long as the history reaches back."""
    agent = Agent().start()
    slow = Follower([agent], "prefix=s/", pause=0.003)
    keys = ["s/%d" % i for i in range(20)]
    writer = Writer([agent], keys)
    until("much is written", lambda: writer.number >= 60, 60)
    last = writer.stop()
    until("all of it", has_all(slow, keys, last), 60)
    slow.stop()
    once_each(slow, keys, last)
    check(slow.statuses == [200], slow.statuses)


def comments_come_when_nothing_does():
    """Every 10 s, with the index as it is by then; the server's stop ends the stream as an answer ends."""
    agent = Agent().start()
    follower = Follower([agent], "key=quiet")
    for i in range(20):
        agent.put("/v1/kv/other", "%d" % i)
    index = int(agent.request("GET", "/v1/kv/other")[1]["X-Consul-Index"])
    until("a comment", lambda: follower.progress >= index, 15)
    check(follower.events == [], follower.events)
    follower.over = True
    code, seconds = agent.stop()
    check(code == 0, code)
    follower.join(10 * SLOW)
    check(follower.ended == 1, "the stream's end was no clean one")
    for _ in range(2):                   # a machine that stands still makes it longer
        if seconds < 5 * SLOW:
            break
        agent.start()
        follower = Follower([agent], "key=quiet")
        follower.over = True
        code, seconds = agent.stop()
    check(seconds < 5 * SLOW, "it ended after %.1f s" % seconds)


run([a_reader_that_stops_reading, a_slow_reader_gets_all_of_it, comments_come_when_nothing_does])
