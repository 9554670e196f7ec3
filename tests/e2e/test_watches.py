"""Watches: handlers of configuration files and of the command line, on servers and client agents."""
import base64, http.server, json, os, subprocess, threading
from coordtest import COORD, SLOW, Agent, Cluster, check, run, undecided, until
from test_client_agent import client_agent, words
from waiters import ends_soon


def lines(path):
    try:
        with open(path) as f:
            return [json.loads(line) for line in f.read().split("\n")[:-1]]        # without one that is being written
    except FileNotFoundError:
        return []


def fire(agent, name, payload):
    """Once, also when nobody knows at first whether it was done."""
    status, _, answer = agent.request("PUT", "/v1/event/fire/" + name, payload)
    while undecided(status, answer):
        read = lambda status, _, body: status == 200 and (json.loads(body),)
        events = until("a confirmed read", lambda: read(*agent.request("GET", "/v1/event/list?name=" + name)))[0]
        if payload in [base64.b64decode(e["Payload"] or "") for e in events]:
            return
        status, _, answer = agent.request("PUT", "/v1/event/fire/" + name, payload)
    check(status == 200, "%d %r" % (status, answer))


def handlers_in_files():
    got = []

    class Taker(http.server.BaseHTTPRequestHandler):
        def do_PUT(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["X-Who"], int(self.headers["X-Consul-Index"]), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass
    taker = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    threading.Thread(target=taker.serve_forever, daemon=True).start()
    cluster = Cluster().start()
    agent = client_agent(cluster)
    out = os.path.join(agent.dir, "out")
    script = os.path.join(agent.dir, "take.py")
    with open(script, "w") as f:
        f.write("import json, os, sys\nwith open(sys.argv[1], 'a') as f: f.write(json.dumps([int(os.environ['CONSUL_INDEX']), json.load(sys.stdin)]) + '\\n')\n"
                "print('handled ' + sys.argv[1])\n")
    conf = os.path.join(agent.dir, "watch.json")

    def write(watches):
        with open(conf, "w") as f:
            json.dump({"watches": watches}, f)
    take = ["python3", script]
    write([{"type": "key", "key": "color", "args": take + [out + ".key"]}, {"type": "event", "name": "deploy", "args": take + [out + ".event"]},
           {"type": "services", "handler": "cat >> %s.services; echo >> %s.services" % (out, out)},
           {"type": "service", "service": "web", "passingonly": True, "tag": "blue", "args": take + [out + ".service"]},
           {"type": "keyprefix", "prefix": "p/", "handler_type": "http",
            "http_handler_config": {"path": "http://127.0.0.1:%d/hook" % taker.server_address[1], "method": "PUT", "header": {"X-Who": ["me"]}, "timeout": "5s"}}])
    agent.args.append("-config-file=" + conf)
    fire(cluster.servers[0], "deploy", b"before it was there")
    agent.start(wait=False).wait_leader(30)
    server = cluster.servers[0]
    until("the first answer", lambda: [l[1] for l in lines(out + ".key")] == [None] and lines(out + ".services"), 20)
    server.put("/v1/kv/color", b"blue")
    until("the key", lambda: [l[1] and l[1]["Key"] for l in lines(out + ".key")] == [None, "color"])
    check(lines(out + ".key")[1][0] == lines(out + ".key")[1][1]["ModifyIndex"], "its index: %r" % lines(out + ".key"))
    until("its output is logged", lambda: "handled %s.key" % out in agent.log())
    server.put("/v1/kv/p/1", b"x")
    until("the request", lambda: got and got[-1][3] is not None)
    check(got[-1][0] == "/hook" and got[-1][1] == "me" and got[-1][2] > 0 and got[-1][3][0]["Key"] == "p/1", "%r" % got)
    agent.put("/v1/agent/service/register", {"Name": "web", "Tags": ["blue"]})
    until("the service", lambda: lines(out + ".service") and len(lines(out + ".service")[-1][1]) == 1)
    until("services", lambda: "web" in lines(out + ".services")[-1])
    fire(server, "other", b"1")
    fire(server, "deploy", b"2")
    until("the event", lambda: lines(out + ".event"))
    check([e["Name"] for l in lines(out + ".event") for e in l[1]] == ["deploy"], "that one alone, once: %r" % lines(out + ".event"))
    fire(server, "deploy", b"3")
    until("the next", lambda: len(lines(out + ".event")) == 2)
    check(len(lines(out + ".event")[1][1]) == 1, "without those before")
    # A reload that changes another watch leaves this one alone: its handler goes on, and of the events none is missed.
    slow = {"type": "event", "name": "slow", "handler": "cat >> %s.slow; echo begin >> %s.slow; until test -e %s.go; do sleep 0.05; done; echo end >> %s.slow" % ((out,) * 4)}
    write([slow, {"type": "key", "key": "one", "args": take + [out + ".one"]}])
    words(agent, "reload")
    until("the watch of another key", lambda: lines(out + ".one"))
    slow_text = lambda: open(out + ".slow").read() if os.path.exists(out + ".slow") else ""
    # Its baseline may still be on its way: fired until it is told.
    until("it runs", lambda: fire(server, "slow", b"x") or "begin" in slow_text())
    write([slow, {"type": "key", "key": "two", "args": take + [out + ".two"]}])
    words(agent, "reload")
    until("the changed watch", lambda: lines(out + ".two"))
    fire(server, "slow", b"y")
    open(out + ".go", "w").close()
    # How often it runs for those before depends on when they came.
    after = lambda value, word: word in slow_text().rpartition('"%s"' % value)[2] and '"%s"' % value in slow_text()
    until("it ended, and was told the last", lambda: after("eQ==", "end"))
    # One that is taken away ends its handler.
    os.unlink(out + ".go")
    fire(server, "slow", b"z")
    until("it runs again", lambda: after("eg==", "begin"))
    write([{"type": "key", "key": "two", "args": take + [out + ".two"]}])
    words(agent, "reload")
    open(out + ".go", "w").close()
    until("its handler ended by itself", lambda: after("eg==", "end"))
    # Other watches, by reload; then none.
    write([{"type": "key", "key": "shape", "args": take + [out + ".shape"]}])
    words(agent, "reload")
    until("the new one", lambda: lines(out + ".shape"))
    before = len(lines(out + ".key"))
    server.put("/v1/kv/color", b"red")
    server.put("/v1/kv/shape", b"round")
    until("it is told", lambda: len(lines(out + ".shape")) == 2)
    check(len(lines(out + ".key")) == before, "the old one has ended")
    for wrong, says in (([{"type": "key"}], "Must specify a single key to watch"), ([{"type": "nodes"}], "Must define a watch handler"),
                        ([{"type": "bogus", "handler": "x"}], "Unsupported watch type"), ([{"type": "nodes", "handlr": "x"}], "handlr")):
        write(wrong)
        check(says in words(agent, "reload", code=1), says)
    taker.shutdown()


def handlers_that_misbehave():
    """One at a time; its children do not outlive it, nor the agent; endless output costs nothing; the process stops at once."""
    agent = Agent()
    mark = os.path.join(agent.dir, "mark")
    conf = os.path.join(agent.dir, "watch.json")
    with open(conf, "w") as f:
        json.dump({"watches": [
            {"type": "key", "key": "a", "handler": "echo begin >> %s; (trap '' TERM; sleep 1000) & echo $! >> %s.child; exit 3" % (mark, mark)},
            {"type": "key", "key": "b", "handler": "echo $$ > %s.endless; exec yes endless" % mark},
            {"type": "key", "key": "c", "args": ["/no/such/program"]}]}, f)
    agent.args.append("-config-file=" + conf)
    agent.start()
    until("it ran", lambda: os.path.exists(mark + ".child") and os.path.exists(mark + ".endless"))

    def gone(path):
        with open(path) as f:
            pids = f.read().split()
        return pids and not any(os.path.exists("/proc/" + pid) for pid in pids)
    until("its child is gone with it", lambda: gone(mark + ".child"))
    until("its failure is logged", lambda: "a handler failed" in agent.log() and "exit=3" in agent.log())
    until("one that is not there, too", lambda: "a handler cannot be started" in agent.log())
    agent.put("/v1/kv/a", b"1")
    until("again", lambda: open(mark).read().count("begin") == 2)
    check(agent.rss_kib() < 200000 * SLOW, "memory: %d KiB" % agent.rss_kib())
    ends_soon(agent, 5 * SLOW)
    until("and the endless one with it", lambda: gone(mark + ".endless"))


def on_the_command_line():
    agent = Agent().start()
    until("all of it is registered", lambda: agent.get("/v1/health/service/consul?passing")[2])
    check(words(agent, "watch", "-type=key", "-key=none") == "null\n", "nothing")
    agent.put("/v1/kv/k", b"1")
    check(json.loads(words(agent, "watch", "-type=key", "-key=k"))["Key"] == "k", "a key")
    check(len(json.loads(words(agent, "watch", "-type=keyprefix", "-prefix=k"))) == 1, "a prefix")
    check("consul" in json.loads(words(agent, "watch", "-type=services")), "services")
    check(json.loads(words(agent, "watch", "-type=nodes"))[0]["Node"] == "n1", "nodes")
    check(json.loads(words(agent, "watch", "-type=checks"))[0]["CheckID"] == "serfHealth", "checks")
    check(json.loads(words(agent, "watch", "-type=service", "-service=consul"))[0]["Service"]["ID"] == "consul", "service")
    check(json.loads(words(agent, "watch", "-type=event")) == [], "events")
    for args, says in ((["-type=key"], "Must specify a single key to watch"), ([], "Watch type must be specified"), (["-type=bogus"], "Unsupported watch type: bogus")):
        check(says in words(agent, "watch", *args, code=2), says)
    p = subprocess.Popen([COORD, "watch", "-http-addr=" + agent.ip, "-type=key", "-key=k", "cat; echo; echo $CONSUL_INDEX $CONSUL_HTTP_ADDR"],
                         stdout=subprocess.PIPE, text=True)
    try:
        first = json.loads(p.stdout.readline())
        check(p.stdout.readline() == "%d %s:8500\n" % (first["ModifyIndex"], agent.ip), "its environment")
        agent.put("/v1/kv/k", b"2")
        check(json.loads(p.stdout.readline())["ModifyIndex"] > first["ModifyIndex"], "the next")
    finally:
        p.kill()
        p.wait()


run([handlers_in_files, handlers_that_misbehave, on_the_command_line])
