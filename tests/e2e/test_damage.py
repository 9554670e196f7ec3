"""What stands wrong in the data folder or in the configuration when an agent starts: refused with the place and the reason, or healed."""
import glob, hashlib, json, os, re, shutil, subprocess
from coordtest import COORD, Agent, check, run, until


def start_refused(agent, *extra, code=1):
    """Starts it, expects it to end by itself with this code, returns what it says."""
    r = subprocess.run(agent.argv() + list(extra), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    words = r.stdout + r.stderr
    check(r.returncode == code, "it ends with %d, not %s: %s" % (code, r.returncode, words[-800:]))
    return words


def filled(count=300, size=1000, *args):
    agent = Agent(*args).start()
    for i in range(count):
        agent.put("/v1/kv/fill/%d" % i, os.urandom(size // 2).hex())
    return agent


def whole(agent, count=300):
    items = agent.get("/v1/kv/fill/?keys")[2]
    check(len(items) == count, "%d of %d keys are there" % (len(items), count))


def flip(path, offset):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)
        f.seek(offset)
        f.write(bytes([byte[0] ^ 0x55]))


def with_snapshot():
    """A server whose log was cut behind a snapshot."""
    agent = Agent()
    config = os.path.join(agent.dir, "small.json")
    with open(config, "w") as f:
        json.dump({"coord": {"snapshot_log_bytes": 1 << 20}}, f)
    agent.args = ["-config-file=" + config]
    agent.start()
    for i in range(300):
        agent.put("/v1/kv/fill/%d" % i, os.urandom(5000).hex())
    until("a snapshot", lambda: glob.glob(agent.data + "/raft/snap-*"))
    until("the first segment is gone", lambda: not os.path.exists(agent.data + "/raft/log-0000000000000001"))
    agent.kill()
    return agent, sorted(glob.glob(agent.data + "/raft/snap-*"))[-1]


# -- the data folder -------------------------------------------------------------------------------
def flipped_snapshot_is_refused():
    agent, snapshot = with_snapshot()
    size = os.path.getsize(snapshot)
    for offset in (5000, size // 2, size - 3000):
        copy = snapshot + ".whole"
        shutil.copy(snapshot, copy)
        flip(snapshot, offset)
        shutil.rmtree(agent.data + "/store", ignore_errors=True)
        words = start_refused(agent)
        place = re.search(r"snap-[0-9a-f]{16}: damaged at offset (\d+): a block's checksum does not match", words)
        check(place, "file, offset and reason: %s" % words[-600:])
        check(int(place.group(1)) <= offset < int(place.group(1)) + (70 << 10), "the offset is that of the block: %s, flipped at %d" % (place.group(0), offset))
        check("ends early" not in words, "not the wrong reason: %s" % words[-600:])
        os.rename(copy, snapshot)
    shutil.rmtree(agent.data + "/store", ignore_errors=True)
    agent.start()
    whole(agent)


def missing_server_id_is_refused():
    agent = filled()
    agent.kill()
    path = agent.data + "/raft/server-id"
    with open(path) as f:
        kept = f.read()
    os.remove(path)
    for gone in ([], glob.glob(agent.data + "/raft/log-*")):
        aside = agent.dir + "/aside"
        os.makedirs(aside, exist_ok=True)
        for name in gone:
            shutil.move(name, aside)
        words = start_refused(agent)
        check("raft/server-id is missing" in words and "put the file back" in words, "named, with what to do: %s" % words[-600:])
        check(gone or "by the log it held " + kept.strip() in words, "the log knows it: %s" % words[-600:])
        check(not os.path.exists(path), "no new id is made up")
        for name in gone:
            shutil.move(os.path.join(aside, os.path.basename(name)), name)
    with open(path, "w") as f:
        f.write(kept)
    agent.start()
    whole(agent)


def shortened_store_is_rebuilt():
    for end in ("kill", "stop"):
        agent = filled()
        index = int(agent.request("GET", "/v1/kv/fill/?keys")[1]["X-Consul-Index"])
        agent.kill() if end == "kill" else agent.stop()
        os.truncate(agent.data + "/store/data.mdb", 65536)
        agent.start()
        whole(agent)
        check("the file ends at offset 65536" in agent.log(), "it says why: %s" % agent.log()[-1500:])
        check(int(agent.request("GET", "/v1/kv/fill/?keys")[1]["X-Consul-Index"]) >= index, "the index does not go back")
        agent.put("/v1/kv/after", b"1")


# -- the configuration ------------------------------------------------------------------------------
def configured(*texts):
    agent = Agent()
    folder = os.path.join(agent.dir, "conf")
    os.makedirs(folder)
    for i, text in enumerate(texts):
        with open("%s/%c.json" % (folder, ord("a") + i), "w") as f:
            f.write(text if isinstance(text, str) else json.dumps(text))
    agent.args = ["-config-dir=" + folder]
    return agent


def refused_before_anything(agent, *wanted):
    words = start_refused(agent, code=2)
    check(all(w in words for w in wanted), "%s: %s" % (wanted, words[-800:]))
    check(not os.path.exists(agent.data), "nothing was made: %s" % words[-800:])
    check(len(words.strip().splitlines()) == 1, "one line: %s" % words)


def wrong_definitions_leave_no_trace():
    web = {"service": {"name": "web", "port": 80}}
    refused_before_anything(configured(web, {"service": {"name": "api", "prt": 80}}), "b.json:1:", ": service: ", "prt")
    refused_before_anything(configured({"services": [{"name": "a"}, {"name": "b", "check": {"http": "http://x"}}]}), "a.json:1:", ": services[1]: ")
    refused_before_anything(configured({"check": {"name": "disk"}}), "a.json:1:2: check: ")
    refused_before_anything(configured({"check": {"name": "disk", "ttl": "1m", "service_id": "nowhere"}}), "a.json:1:2: check: ", "nowhere")
    refused_before_anything(configured(web, web), "b.json:1:2: service: ", '"web"', "a.json")
    refused_before_anything(configured({"services": [{"id": "x", "name": "a"}, {"id": "x", "name": "b"}]}), "services[1]", '"x"')
    refused_before_anything(configured({"check": {"id": "c", "name": "n", "ttl": "1m"}}, {"checks": [{"id": "c", "name": "m", "ttl": "1m"}]}), "b.json:1:13: checks[0]: ", '"c"')
    refused_before_anything(configured('{"node_name": "a",\n "node_name": "b"}'), "a.json:2:2: ", '"node_name"')
    refused_before_anything(configured('{"service": {"name": "a", "port": 1, "port": 2}}'), "a.json", '"port"')
    refused_before_anything(configured({"datacenter": "a", "Datacenter": "b"}), "a.json", '"Datacenter" stands twice')
    nameless = Agent(name="")
    refused_before_anything(nameless, "-node: the name is empty")
    # the same key in two files, in two objects, and as text: none of that is twice
    fine = configured({"datacenter": "dc7", "services": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}, {"datacenter": "dc7", "node_meta": {"x": '"x":1,"x":2'}})
    fine.start()
    check(sorted(fine.get("/v1/agent/services")[2]) == ["a", "b"], "both are there")


def check_of_a_saved_service():
    """A check in a file may be for a service that was registered over HTTP and saved."""
    agent = Agent().start()
    agent.put("/v1/agent/service/register", {"Name": "saved"})
    agent.stop()
    config = os.path.join(agent.dir, "check.json")
    with open(config, "w") as f:
        json.dump({"check": {"name": "alive", "ttl": "1m", "service_id": "saved"}}, f)
    agent.args = ["-config-file=" + config]
    agent.start()
    check(agent.get("/v1/agent/checks")[2]["alive"]["ServiceID"] == "saved", "it is the service's")


def names_that_dns_cannot_find():
    agent = Agent(name="a b").start()
    check(re.search(r"WARN.*DNS clients may not find it", agent.log()), agent.log()[-1500:])
    plain = Agent(name="plain-7").start()
    check("may not find it" not in plain.log(), plain.log()[-1500:])


def versions():
    for words in (["version"], ["-version"], ["--version"], ["-v"], ["agent", "-version"], ["agent", "--version"], ["agent", "-dev", "-version"]):
        r = subprocess.run([COORD, *words], capture_output=True, text=True, timeout=20)
        check(r.returncode == 0 and re.fullmatch(r"coord v\d+\.\d+\.\d+\n", r.stdout), "%s: %r" % (words, r))


if __name__ == "__main__":
    run([flipped_snapshot_is_refused, missing_server_id_is_refused, shortened_store_is_rebuilt, wrong_definitions_leave_no_trace,
         check_of_a_saved_service, names_that_dns_cannot_find, versions])
