"""A configuration that counts on protection which is not there: refused at start and at reload, unless for a trial."""
import json, os, signal, subprocess
from coordtest import SLOW, STANDSTILL, Agent, check, run, until

HANDED_OUT = ("handing out certificates to agents that show none (`coord join` brings them in by a token, `coord tls cert create -client` makes certificates)"
              " is not there yet")
COPIED = "copying tokens from another region is not there yet"
BY_DATACENTER = "access control by acl_datacenter (see acl.enabled) is not there yet"
HINT = "coord agent: not started, because this configuration counts on that protection; for a trial without it: -insecure-ignore-security"


def with_files(*args, **files):
    """An agent that reads conf.d/NAME.json."""
    agent = Agent(*args, dev=True)
    folder = os.path.join(agent.dir, "conf.d")
    os.mkdir(folder)
    agent.args.append("-config-dir=" + folder)
    for name, keys in files.items():
        write(agent, name, keys)
    return agent


def write(agent, name, keys):
    path = os.path.join(agent.dir, "conf.d", name + ".json")
    with open(path + ".new", "w") as f:
        json.dump(keys, f)
    os.rename(path + ".new", path)


def refused(agent):
    """What it says instead of starting: for each key the file's name with what follows it, or the flag."""
    argv = agent.argv()
    before = os.listdir(agent.dir)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20 * SLOW + STANDSTILL)
    lines = done.stderr.decode().splitlines()
    check(done.returncode == 2 and not done.stdout, "%d %r" % (done.returncode, done.stdout))
    check(lines and lines[-1] == HINT, "%r" % lines)
    check(os.listdir(agent.dir) == before, "nothing was made")
    return [line.split("coord agent: ", 1)[1].rsplit("/", 1)[-1] for line in lines[:-1]]


def all_at_once():
    """Hosts that come in by JWT, copied tokens and certificates handed out as a production configuration has them: one line for each key, in one go."""
    agent = with_files("-allow-write-http-from=127.0.0.1/32",
                       acl={"acl": {"enabled": True, "enable_token_replication": True, "tokens": {"replication": "very-secret"}}, "auto_config": {"enabled": True}},
                       tls={"verify_outgoing": True, "ca_file": "/etc/ca.pem", "auto_encrypt": {"tls": True}, "acl_replication_token": "c2VjcmV0"})
    lines = refused(agent)
    check(lines == ["acl.json:1:27: acl.enable_token_replication: " + COPIED,
                    "acl.json:1:72: acl.tokens.replication: " + COPIED,
                    "acl.json:1:120: auto_config.enabled: bringing hosts in by JWT (see `coord join-token`) is not there yet",
                    "tls.json:1:70: auto_encrypt.tls: " + HANDED_OUT,
                    "tls.json:1:84: acl_replication_token: " + COPIED,
                    "-allow-write-http-from: a limit on who may write is not there yet"], "%r" % lines)
    check(not any("secret" in line or "c2VjcmV0" in line for line in lines), "no secret is repeated")


def each_for_itself():
    for keys in ({"auto_config": {"enabled": True}}, {"acl_datacenter": "dc1"}, {"enable_acl_replication": True}, {"acl_replication_token": "x"},
                 {"auto_encrypt": {"tls": True}}, {"auto_encrypt": {"allow_tls": True}},
                 {"http_config": {"allow_write_http_from": ["127.0.0.0/8"]}}, {"http_config": {"block_endpoints": ["/v1/kv"]}}):
        check(len(refused(with_files(one=keys))) == 1, "%r" % keys)
    for flag, what in (("-serf-lan-allowed-cidrs=10.0.0.0/8", "a limit on who may join"), ("-allow-write-http-from=127.0.0.1/32", "a limit on who may write")):
        check(refused(with_files(flag)) == [flag.split("=")[0] + ": " + what + " is not there yet"], flag)


def keys_that_protect_nothing_start():
    """Off, empty, or without a meaning beside none of the others: a warning, and no more."""
    agent = with_files(off={"acl": {"enabled": False, "default_policy": "allow", "token_ttl": "30s"}, "verify_incoming": False, "encrypt": "",
                            "encrypt_verify_incoming": True, "ports": {"https": -1}, "primary_datacenter": "dc1", "connect": {"enabled": True}},
                       over={"verify_outgoing": True}, zz={"verify_outgoing": False}).start()
    check("without effect in this version key=primary_datacenter" in agent.log() and "not there yet" not in agent.log(), agent.log())
    check(agent.stop(signal.SIGINT)[0] == 0, "it stops")


def a_trial_and_its_reload():
    """With the flag it starts and warns of each key. What a reload brings is warned of too."""
    agent = with_files("-insecure-ignore-security", one={"auto_config": {"enabled": True}, "acl_replication_token": "x"}).start()
    for key in ("1:18: auto_config.enabled: bringing hosts in by JWT (see `coord join-token`)", "1:36: acl_replication_token: copying tokens from another region"):
        check("[WARN] config: " in agent.log() and "/one.json:%s is not there yet: ignored, because of -insecure-ignore-security" % key in agent.log(),
              agent.log())
    write(agent, "two", {"acl_datacenter": "dc1", "services": [{"name": "web"}]})
    agent.put("/v1/agent/reload")
    check("web" in agent.get("/v1/agent/services")[2], "reloaded")
    check("/two.json:1:2: acl_datacenter: %s: ignored" % BY_DATACENTER in agent.log(), agent.log())


def a_reload_does_not_let_them_in():
    agent = with_files(web={"services": [{"name": "web"}]}).start()
    write(agent, "tls", {"acl_datacenter": "dc1", "acl_replication_token": "x", "services": [{"name": "other"}]})
    status, _, body = agent.request("PUT", "/v1/agent/reload")
    check(status >= 400 and b"tls.json:1:2: acl_datacenter: " + BY_DATACENTER.encode() in body, "%d %r" % (status, body))
    agent.proc.send_signal(signal.SIGHUP)
    until("the log says so twice", lambda: agent.log().count("tls.json:1:27: acl_replication_token: " + COPIED) == 2)
    until("all stays as it was", lambda: agent.log().count("the configuration is not read again") == 2)
    check(list(agent.get("/v1/agent/services")[2]) == ["web"], "nothing of the file was taken")
    write(agent, "tls", {"services": [{"name": "other"}]})
    agent.put("/v1/agent/reload")
    check(sorted(agent.get("/v1/agent/services")[2]) == ["other", "web"], "reloaded")


if __name__ == "__main__":
    run([all_at_once, each_for_itself, keys_that_protect_nothing_start, a_trial_and_its_reload, a_reload_does_not_let_them_in])
