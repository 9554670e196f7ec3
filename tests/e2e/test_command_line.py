"""As a new user: wrong flags, typos, stopping, starting fast."""
import json, os, shutil, signal, socket, ssl, subprocess, tempfile, threading, time
from coordtest import COORD, FIGURES, SLOW, Agent, check, run, until


def words(*args, timeout=20):
    r = subprocess.run([COORD, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    return r.returncode, r.stdout + r.stderr


def wrong_flag():
    code, out = words("agent", "-dev", "-htp-port=1")
    check(code != 0 and "-htp-port" in out and "-http-port" in out, "names the nearest flag: %r" % out)
    code, out = words("agnt")
    check(code != 0 and "agent" in out, "names the nearest command: %r" % out)
    for args, named in ((("members", "-detailled"), "-detailed"), (("operator", "raft", "list-peers", "-http-add=x"), "-http-addr"),
                        (("operator", "raft", "list-peer"), "list-peers"), (("operator", "recover", "-data-dr=x"), "-data-dir"),
                        (("members", "-token"), "-token wants a value"), (("members", "-status=aliv"), "alive, leaving")):
        code, out = words(*args)
        check(code == 2 and named in out, "%s: %r" % (" ".join(args), out))
    code, out = words("operator", "raft")
    check(code == 2 and all(w in out for w in ("list-peers", "remove-peer", "transfer-leader", "-h")), "the commands are listed: %r" % out)
    code, out = words("agent", "--http-port=70000", "--dev")
    check(code != 0 and "70000" in out, "a port out of range: %r" % out)


def typo_in_configuration():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "coord.json")
        for text, expected in (('{"datacentre": "x"}', ("datacentre", "datacenter", path)), ('{"ports": {"htpp": 1}}', ("htpp", "http", path)),
                               ('{"datacenter": 7}', ("datacenter", path)), ('{"server": true', (path,)),
                               ('{"dns_config": {"node_ttl": "5"}}', ("node_ttl", path))):
            with open(path, "w") as f:
                f.write(text)
            code, out = words("agent", "-dev", "-config-file=" + path)
            check(code != 0 and all(e in out for e in expected), "%s: %r" % (text, out))
        code, out = words("agent", "-dev", "-config-file=" + path + ".none")
        check(code != 0 and path + ".none" in out, "a missing file is named: %r" % out)


def known_keys_and_definitions():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "a.json"), "w") as f:
            json.dump({"limits": {"http_max_conns_per_client": 15000}, "disable_update_check": True, "performance": {"raft_multiplier": 1},
                       "telemetry": {"statsd_address": "127.0.0.1:1"}, "connect": {"ca_provider": "consul"},
                       "services": [{"name": "one", "port": 1}, {"name": "two", "port": 2, "tags": ["a"]}],
                       "service": {"name": "three", "port": 3, "check": {"ttl": "30s", "status": "passing"}}}, f)
        agent = Agent("-config-dir=" + d, dev=True).start()
        until("the services of the file are found", lambda: set(agent.get("/v1/catalog/services")[2]) >= {"one", "two", "three"})
        log = agent.log()
        check("statsd_address" in log or "telemetry" in log, "a key without effect is named in the log")


def seconds_of_a_stop(sig):
    agent = Agent(dev=True).start()
    with socket.create_connection((agent.ip, 8500)) as waiting:
        waiting.sendall(b"GET /v1/kv/none?index=1&wait=60s HTTP/1.1\r\nHost: x\r\n\r\n")
        until("it waits", lambda: b"coord_http_blocking_queries 1" in agent.request("GET", "/v1/agent/metrics?format=prometheus")[2])
        code, seconds = agent.stop(sig)
    check(code == 0, "signal %d: exit %s" % (sig, code))
    return seconds


def stops_quickly():
    """10 ms on an idle machine, and whatever waits is not waited for. A busy machine delays some stops, a slow program all of them."""
    for sig in (signal.SIGINT, signal.SIGTERM):
        took = []
        while not took or took[-1] >= 2 * SLOW:
            check(len(took) < 5, "signal %d: no stop was quick: %r s" % (sig, took))
            took.append(seconds_of_a_stop(sig))


def seconds_of_a_start():
    agent = Agent(dev=True)
    begun = time.monotonic()
    agent.start(wait=False)

    def answers():
        try:
            return agent.request("GET", "/v1/status/leader", timeout=1)[0]
        except OSError:
            return None
    until("the first answer", answers, every=0.002)
    first = time.monotonic() - begun
    until("the first write", lambda: agent.put("/v1/kv/first", b"1"), every=0.002)
    write = time.monotonic() - begun
    agent.kill()
    print("     first answer %.0f ms, first write %.0f ms" % (first * 1000, write * 1000))
    return first, write


def answers_at_once():
    """A busy machine delays some starts, a slow program all of them. The bound is measured by the benchmark; here only sanity."""
    for _ in range(8):
        first, write = seconds_of_a_start()
        if not FIGURES or (first < 0.5 and write < 1.0):
            return
    check(False, "no start was quick")


def port_in_use():
    agent = Agent(dev=True).start()
    r = subprocess.run([COORD, "agent", "-dev", "-bind=" + agent.ip, "-client=" + agent.ip], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    check(r.returncode != 0 and "8500" in r.stdout + r.stderr, "the port in use is named: %r" % (r.stdout + r.stderr)[-400:])


def nothing_is_ignored_in_silence():
    """What a flag says happens, or the log names it."""
    a = Agent("-server", "-bootstrap-expect=2", "-default-query-time=300ms", "-recursor=127.0.0.1", server=False, name="a").start(wait=False)
    b = Agent("-server", "-bootstrap-expect=2", "-join=" + a.ip, server=False, name="b").start(wait=False)
    a.wait_leader()
    b.wait_leader()
    index = a.get("/v1/kv/none?index=0")[1]["X-Consul-Index"]
    begun = time.monotonic()
    a.request("GET", "/v1/kv/none?index=" + index, timeout=60)
    took = time.monotonic() - begun
    check(0.3 <= took < 10 * SLOW, "-default-query-time: %.1f s" % took)
    check("without effect in this version key=-recursor" in a.log(), "-recursor is named: %s" % a.log())
    check("without effect" not in b.log(), "-join has an effect: %s" % b.log())


def names_are_no_paths():
    """A user's word never leads to another endpoint: keys, and the names of services, nodes, events and leases, with "." and ".." in them."""
    agent = Agent(dev=True).start()
    http = "-http-addr=%s:8500" % agent.ip

    def keys():
        return sorted(agent.get("/v1/kv/?keys")[2] or [])
    agent.put("/v1/kv/a", b"1"), agent.put("/v1/kv/y/b", b"1")
    tried = ["y/../x", "y/./x", "a/../b", "../agent/leave", "../session/create", "./../../v1/agent/leave", "..", ".", "...", "a/..", "%2e%2e/x", "x?recurse", "x#y"]
    for key in tried:
        before = keys()
        code, out = words("kv", "put", http, key, "v of " + key)
        check(code == 0 and keys() == sorted({*before, key}), "kv put %s: %d %r, keys are %r" % (key, code, out, keys()))
        code, out = words("kv", "get", http, key)
        check(code == 0 and out == "v of %s\n" % key, "kv get %s: %r" % (key, out))
    for prefix, gone in (("y/../", {"y/../x"}), ("./", {"./../../v1/agent/leave"}), ("../", {"../agent/leave", "../session/create"})):
        before = keys()
        code, out = words("kv", "delete", http, "-recurse", prefix)
        check(code == 0 and keys() == sorted(set(before) - gone), "kv delete -recurse %s: %r left %r" % (prefix, out, keys()))
    for key in set(tried) & set(keys()):
        code, out = words("kv", "delete", http, key)
        check(code == 0 and key not in keys(), "kv delete %s: %r" % (key, out))
    check(keys() == ["a", "y/b"], "only what was there before is left: %r" % keys())

    export = json.dumps([{"key": "e/../../agent/leave", "flags": 0, "value": "djE="}])
    r = subprocess.run([COORD, "kv", "import", http, "-"], input=export, capture_output=True, text=True, timeout=20)
    check(r.returncode == 0 and keys() == ["a", "e/../../agent/leave", "y/b"], "kv import: %r, keys are %r" % (r.stdout + r.stderr, keys()))
    code, out = words("watch", http, "-type=key", "-key=e/../../agent/leave")
    check(code == 0 and json.loads(out)["Key"] == "e/../../agent/leave", "watch -type=key: %r" % out)
    code, out = words("watch", http, "-type=keyprefix", "-prefix=e/../")
    check(code == 0 and [e["Key"] for e in json.loads(out)] == ["e/../../agent/leave"], "watch -type=keyprefix: %r" % out)

    for name in ("..", ".", "../../kv"):
        agent.put("/v1/agent/service/register", json.dumps({"Name": name, "ID": name, "Port": 1}))
        code, out = words("watch", http, "-type=service", "-service=" + name)
        check(code == 0 and [e["Service"]["Service"] for e in json.loads(out)] == [name], "watch of the service %s: %r" % (name, out))
        code, out = words("maint", http, "-enable", "-service=" + name)
        check(code == 0 and any(c["ServiceID"] == name for c in agent.get("/v1/agent/checks")[2].values()), "maint of the service %s: %r" % (name, out))
        code, out = words("event", http, "-name=" + name)
        check(code == 0 and agent.get("/v1/event/list")[2][-1]["Name"] == name, "event %s: %r" % (name, out))
    for args in (("force-leave", "../leave"), ("join", "../leave"), ("lease", "renew", "../../agent/leave"), ("lease", "revoke", "..")):
        code, out = words(*args[:-1], http, args[-1])
        check(code in (1, 2), "%s is an error: %d %r" % (" ".join(args), code, out))
    check(agent.proc.poll() is None, "the agent runs on")


def proxy_is_for_others():
    """http_proxy in the environment, as in many companies: the agent on this host is asked directly."""
    agent = Agent(dev=True).start()
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": "example.org"}
    r = subprocess.run([COORD, "kv", "put", "-http-addr=%s:8500" % agent.ip, "a", "1"], env=environment, capture_output=True, text=True, timeout=20)
    check(r.returncode == 0 and agent.request("GET", "/v1/kv/a?raw")[2] == b"1", "put past the proxy: %r" % (r.stdout + r.stderr))


def who_counts_on_tls_asks_with_it():
    """CONSUL_HTTP_SSL, however the address is written: an agent without TLS is not asked in the clear."""
    agent = Agent(dev=True).start()
    for address in (agent.ip + ":8500", "http://%s:8500" % agent.ip):
        for value, asked in (("true", False), ("1", False), ("false", True), ("", True)):
            environment = {**os.environ, "CONSUL_HTTP_SSL": value, "CONSUL_HTTP_ADDR": address}
            environment.pop("COORD_HTTP_ADDR", None)
            r = subprocess.run([COORD, "kv", "put", "tls", "1"], env=environment, capture_output=True, text=True, timeout=20)
            check((r.returncode == 0) == asked, "%s with %r: %r" % (address, value, r.stdout + r.stderr))
            check((agent.request("GET", "/v1/kv/tls")[0] == 200) == asked, "%s with %r" % (address, value))
            agent.request("DELETE", "/v1/kv/tls")


class TlsFront:
    """A TLS server in front of an agent, as a proxy may be: its certificate is for `name`; it may want one of clients."""

    def __init__(self, agent, folder, name, client_ca=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("%s/%s.crt" % (folder, name), "%s/%s.key" % (folder, name))
        if client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_ca)
        self.names, self.agent = [], agent
        context.sni_callback = lambda connection, asked, _: self.names.append(asked)
        self.context, self.listener = context, socket.create_server((agent.ip, 0))
        self.address = "%s:%d" % self.listener.getsockname()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            threading.Thread(target=self.hand_on, args=(self.listener.accept()[0],), daemon=True).start()

    def hand_on(self, plain):
        plain.settimeout(10)
        try:
            with self.context.wrap_socket(plain, server_side=True) as tls, socket.create_connection((self.agent.ip, 8500), timeout=10) as to:
                head = tls.recv(65536)
                to.sendall(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                for part in iter(lambda: head and to.recv(65536), b""):
                    tls.sendall(part)
        except OSError:  # a client that does not trust it
            plain.close()


def tls_as_the_environment_says():
    """CONSUL_CACERT, CONSUL_CAPATH, CONSUL_CLIENT_CERT, CONSUL_CLIENT_KEY, CONSUL_TLS_SERVER_NAME, CONSUL_HTTP_SSL_VERIFY."""
    if not shutil.which("openssl"):
        print("     skipped: there is no openssl to make certificates with")
        return
    agent = Agent(dev=True).start()
    with tempfile.TemporaryDirectory(prefix="coord-e2e-") as folder:
        for name, subject in (("here", "IP:" + agent.ip), ("elsewhere", "DNS:agent.example"), ("client", "DNS:client.example")):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=" + name, "-addext", "subjectAltName=" + subject,
                            "-keyout", "%s/%s.key" % (folder, name), "-out", "%s/%s.crt" % (folder, name)], check=True, capture_output=True)
        file = lambda name: "%s/%s" % (folder, name)
        os.mkdir(file("ca"))
        shutil.copy(file("here.crt"), file("ca/one.pem"))
        digest = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", file("here.crt")], check=True, capture_output=True, text=True).stdout.strip()
        os.symlink("one.pem", file("ca/%s.0" % digest))  # the name that OpenSSL looks for
        here, elsewhere = TlsFront(agent, folder, "here"), TlsFront(agent, folder, "elsewhere")
        strict = TlsFront(agent, folder, "here", client_ca=file("client.crt"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CONSUL_", "COORD_"))}

        def told(front, *command, **variables):
            """Whether the command had its answer, and what it said."""
            environment = {**clean, "CONSUL_HTTP_SSL": "true", "CONSUL_HTTP_ADDR": front.address, **variables}
            r = subprocess.run([COORD, *(command or ("kv", "get", "tls"))], env=environment, capture_output=True, text=True, timeout=20)
            return r.returncode == 0, r.stdout + r.stderr

        agent.put("/v1/kv/tls", b"by tls")
        ca, client = {"CONSUL_CACERT": file("here.crt")}, {"CONSUL_CLIENT_CERT": file("client.crt"), "CONSUL_CLIENT_KEY": file("client.key")}
        for what, front, good, variables in (
                ("nobody is trusted", here, False, {}),
                ("a file", here, True, ca),
                ("the address says https", here, True, {**ca, "CONSUL_HTTP_SSL": "", "CONSUL_HTTP_ADDR": "https://" + here.address}),
                ("another's file", here, False, {"CONSUL_CACERT": file("elsewhere.crt")}),
                ("no such file", here, False, {"CONSUL_CACERT": file("none.crt")}),
                ("a folder", here, True, {"CONSUL_CAPATH": file("ca")}),
                ("the file comes first", here, False, {"CONSUL_CAPATH": file("ca"), "CONSUL_CACERT": file("elsewhere.crt")}),
                ("not verified", here, True, {"CONSUL_HTTP_SSL_VERIFY": "false"}),
                ("verified", here, False, {"CONSUL_HTTP_SSL_VERIFY": "true"}),
                ("another name", elsewhere, False, {"CONSUL_CACERT": file("elsewhere.crt")}),
                ("that name", elsewhere, True, {"CONSUL_CACERT": file("elsewhere.crt"), "CONSUL_TLS_SERVER_NAME": "agent.example"}),
                ("past the proxy", elsewhere, True, {"CONSUL_CACERT": file("elsewhere.crt"), "CONSUL_TLS_SERVER_NAME": "agent.example", "https_proxy": "http://127.0.0.1:9"}),
                ("not that name", here, False, {**ca, "CONSUL_TLS_SERVER_NAME": "agent.example"}),
                ("no name at all", elsewhere, False, {"CONSUL_CACERT": file("elsewhere.crt"), "CONSUL_TLS_SERVER_NAME": "a b"}),
                ("without a certificate", strict, False, ca),
                ("with one", strict, True, {**ca, **client}),
                ("without its key", strict, False, {**ca, "CONSUL_CLIENT_CERT": file("client.crt")})):
            got, said = told(front, **variables)
            check(got == good and ("by tls" in said) == good, "%s: %r" % (what, said))
        check("agent.example" in elsewhere.names, "the server hears the name: %r" % elsewhere.names)
        # a watch is a client as well
        with subprocess.Popen([COORD, "watch", "-type=key", "-key=tls", "cat; echo"], env={**clean, **ca, "CONSUL_HTTP_SSL": "1", "CONSUL_HTTP_ADDR": here.address},
                              stdout=subprocess.PIPE, text=True) as watch:
            check('"Key":"tls"' in watch.stdout.readline().replace(" ", ""), "the watch has its answer")
            watch.terminate()


def all_mistakes_at_once():
    with tempfile.TemporaryDirectory() as d:
        def file(name, text):
            with open(os.path.join(d, name), "w") as f:
                f.write(text)
        file("a.json", '{\n  "datacentre": "x",\n  "ports": {"htpp": 1},\n  "service": {"name": "a",\n    "prot": 1}\n}\n')
        file("b.json", '{"server": tru}')
        file("c.json", '{"xds": {}, "acl_datacenter": "dc1"}')
        wanted = ["a.json:2:3: unknown key \"datacentre\"", "a.json:3:13: unknown key \"ports.htpp\"", "a.json:5:5: service: unknown key \"prot\"",
                  "b.json:1:15: JSON: ", "c.json:1:2: Consul's `xds`", "access control by acl_datacenter"]
        code, out = words("agent", "-dev", "-config-dir=" + d, "-htp-port=1")
        check(code == 2 and all(w in out for w in wanted + ["unknown flag -htp-port"]), "all of them: %s" % out)
        code, out = words("validate", d)
        check(code == 2 and all(w in out for w in wanted), "validate says the same: %s" % out)
        code, out = words("validate", d + "/none.json")
        check(code == 2 and d + "/none.json: No such file or directory" in out, "a file that is not there: %d %r" % (code, out))
        os.mkdir(os.path.join(d, "folder"))
        file("w.json", json.dumps({"log_file": d + "/none/x.log", "pid_file": d + "/folder"}))
        code, out = words("validate", os.path.join(d, "w.json"))
        check(code == 2 and "w.json:1:2: log_file: %s/none/x.log: No such file or directory" % d in out
              and "pid_file: %s/folder: Is a directory" % d in out, "what could not be written: %d %s" % (code, out))
        file("w.json", json.dumps({"log_file": d + "/folder/", "pid_file": d + "/pid"}))
        code, out = words("validate", os.path.join(d, "w.json"))
        check(code == 0 and os.listdir(d + "/folder") == [] and not os.path.exists(d + "/pid"), "nothing is made: %d %s" % (code, out))
        os.unlink(os.path.join(d, "w.json"))
        for name in ("a.json", "b.json"):
            os.unlink(os.path.join(d, name))
        file("c.json", '{"service": {"name": "a"}}')
        code, out = words("validate", d)
        check(code == 0 and out == "Configuration is valid!\n", "and when all is well: %d %r" % (code, out))


def json_of_users_has_its_place():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "tx.json")
        with open(path, "w") as f:
            f.write('[\n  {"KV": {"Verb": "set",,}}\n]\n')
        for args in (("txn", path), ("kv", "import", "@" + path)):
            code, out = words(*args)
            check(code != 0 and path + ":2:25: JSON: " in out, "%s: %r" % (args, out))
        code, out = words("kv", "import", "[1,}")
        check(code != 0 and " 1:4: JSON: " in out, "the text itself: %r" % out)


def words_that_are_unknown_take_three_lines():
    for args, named in ((("snap",), '"snapshot"'), (("lb",), "`coord help`"), (("exec",), "Consul's `exec`"), (("reg",), '"region" or "regions"'),
                        (("operator", "area"), "Consul's `operator area`"), (("kv", "put", "-namespace=x"), "Consul's `-namespace`"), (("kv", "g"), "`coord kv -h`"),
                        (("agent", "-auto-reload-config", "-dev"), "Consul's `-auto-reload-config`")):
        code, out = words(*args)
        check(code != 0 and named in out and out.count("\n") <= 3, "%s: %r" % (args, out))


def log_and_pid_file():
    """A file and JSON; opened anew by SIGHUP; the pid file ends with the process. What cannot be written is refused by name."""
    with tempfile.TemporaryDirectory() as d:
        log, pid, config = os.path.join(d, "x.log"), os.path.join(d, "pid"), os.path.join(d, "c.json")
        def write(**keys):
            with open(config, "w") as f:
                json.dump({"pid_file": pid, "log_rotate_bytes": 1 << 20, **keys}, f)
        def text(path):
            with open(path) as f:
                return f.read()
        write(datacenter="dc1")
        agent = Agent("-config-file=" + config, "-log-file=" + log[:-4], "-log-json", dev=True).start()
        check(int(text(pid)) == agent.proc.pid, "the pid file")
        code, out = words("agent", "-dev", "-bind=" + agent.ip, "-client=" + agent.ip, "-pid-file=" + pid)
        check(code == 1 and "%s is that of another agent, which runs: process %d" % (pid, agent.proc.pid) in out, "a second agent: %d %r" % (code, out))
        check(int(text(pid)) == agent.proc.pid, "it is as it was")
        lines = until("lines in the file", lambda: os.path.exists(log) and text(log).splitlines())
        check(all({"@level", "@message", "@module", "@timestamp"} <= set(json.loads(line)) for line in lines[:-1]), "objects: %r" % lines)
        check(all(json.loads(line)["@level"] for line in agent.log().splitlines()[:-1]), "on stderr too")
        os.rename(log, log + ".1")
        agent.proc.send_signal(signal.SIGHUP)
        until("the file is there again", lambda: os.path.exists(log) and "read again" in text(log))
        # a key that a reload cannot change; then one that is wrong
        write(datacenter="dc2", log_level="debug")
        code, out = words("reload", "-http-addr=" + agent.ip)           # without its port
        check(code == 0 and 'datacenter: "dc2" counts after a restart; it is "dc1" until then' in out, "said: %r" % out)
        until("and in the log", lambda: "dc2" in text(log) and "counts after a restart" in text(log))
        write(datacenter="dc2", domain="other", log_level="debug")
        code, out = words("reload", "-http-addr=" + agent.ip)
        check(code == 0 and "?" not in out and '; domain: "other"' in out, "two keys in one line: %r" % out)
        with open("/dev/full", "w") as full:
            r = subprocess.run([COORD, "members", "-http-addr=" + agent.ip], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
        check(r.returncode == 2 and "No space left on device" in r.stderr, "an output that is not whole: %r" % r)
        write(datacenter="dc2", dataa=1, portz=2)
        code, out = words("reload", "-http-addr=" + agent.ip)
        check(code == 1 and "dataa" in out and "portz" in out, "both mistakes: %r" % out)
        code, _ = agent.stop()
        check(code == 0 and not os.path.exists(pid), "the pid file is gone")
        check("stopped" in text(log).splitlines()[-1], "the last line is there")
        with open(pid, "w") as f:
            f.write("%d and more than the number of an agent that was killed\n" % os.getpid())
        stale = Agent("-pid-file=" + pid, dev=True).start()
        check(text(pid) == "%d\n" % stale.proc.pid, "a stale file is overwritten: %r" % text(pid))
        stale.kill()
        check(os.path.exists(pid), "it was killed")
        stale.start()
        check(text(pid) == "%d\n" % stale.proc.pid, "and it starts again: %r" % text(pid))
        for flag, path in (("-log-file", os.path.join(d, "none/x.log")), ("-pid-file", os.path.join(d, "none/pid"))):
            code, out = words("agent", "-dev", "-bind=" + agent.ip, "-client=" + agent.ip, "%s=%s" % (flag, path))
            check(code == 2 and "%s: %s: No such file or directory" % (flag[1:].replace("-", "_"), path) in out, "refused: %r" % out)


if __name__ == "__main__":
    run([wrong_flag, typo_in_configuration, all_mistakes_at_once, json_of_users_has_its_place, words_that_are_unknown_take_three_lines, log_and_pid_file, known_keys_and_definitions, stops_quickly, answers_at_once, port_in_use, nothing_is_ignored_in_silence,
         names_are_no_paths, proxy_is_for_others, who_counts_on_tls_asks_with_it, tls_as_the_environment_says])
