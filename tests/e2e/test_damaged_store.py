"""A damaged store: the server starts, serves only what was written, and has everything again; while it runs, a damaged record is an error
and never another value, and the server mends itself."""
import atexit, http.client, json, os, random, re, struct, tempfile
from coordtest import FIGURES, SLOW, STANDSTILL, Agent, check, run, settings, until

PAGE = 4096
NO_SCRUBS = tempfile.mkstemp(prefix="coord-e2e-", suffix=".json")[1]  # what is found is found by who reads it
atexit.register(os.remove, NO_SCRUBS)
with open(NO_SCRUBS, "w") as settings_file:
    json.dump({"performance": {"scrub_interval": "0s"}}, settings_file)
PLACEMENTS = 40 if FIGURES else 6


def store_file(agent):
    return agent.data + "/store/data.mdb"


def used_pages(agent):
    """As the newer of LMDB's two meta pages says."""
    with open(store_file(agent), "rb") as f:
        metas = [struct.unpack("<QQ", f.read(PAGE)[136:152]) for _ in range(2)]
    return max(metas, key=lambda m: m[1])[0] + 1


# -- what is in it -----------------------------------------------------------------------------------
class World:
    """A lone server with keys of all sizes, services, checks and sessions, of which some were removed again."""

    def __init__(self, seed, *args):
        self.random = random.Random(seed)
        self.agent = Agent(*args).start()
        agent = self.agent
        self.values, self.writes = {}, 0
        for i in range(300):
            self.put("many/%03d" % i)
        for i in range(0, 300, 3):
            self.put("many/%03d" % i)
        for i in range(5, 300, 10):
            agent.request("DELETE", "/v1/kv/many/%03d" % i)
            del self.values["many/%03d" % i]
        for i in range(20):
            agent.put("/v1/catalog/register", {"Node": "host%d" % (i % 5), "Address": "10.0.0.%d" % (i % 5 + 1),
                                               "Service": {"ID": "web%d" % i, "Service": "web%d" % (i % 3), "Tags": ["t%d" % (i % 2)], "Port": 8000 + i},
                                               "Check": {"Name": "alive", "CheckID": "c%d" % i, "ServiceID": "web%d" % i, "Status": "passing"}})
        for i in range(0, 20, 6):
            agent.put("/v1/catalog/deregister", {"Node": "host%d" % (i % 5), "ServiceID": "web%d" % i})
        for i in range(4):
            session = agent.request("PUT", "/v1/session/create", {"Node": "host%d" % i, "Checks": [], "NodeChecks": [], "Behavior": "release"})[2]
            check(b"ID" in session, session)
            self.values["lock/%d" % i] = b"held"
            agent.put("/v1/kv/lock/%d?acquire=%s" % (i, re.search(rb'"ID": *"([^"]+)"', session).group(1).decode()), b"held")
        self.kept = self.look()

    def put(self, key):
        size = self.random.choice((10, 100, 300, 900, 2500, 6000, 20000))
        self.values[key] = self.random.randbytes(size // 2).hex().encode()
        self.agent.put("/v1/kv/" + key, self.values[key])

    def look(self):
        """All that was written, as it is read."""
        get = lambda path: self.agent.get(path)[2]
        keys = {k["Key"]: (k["Value"], k["Session"] if "Session" in k else None, k["CreateIndex"], k["ModifyIndex"]) for k in get("/v1/kv/?recurse")}
        catalog = [get("/v1/health/service/web%d" % i) for i in range(3)] + [get("/v1/catalog/node/host%d" % i) for i in range(5)]
        self.writes += 1
        self.agent.put("/v1/kv/index", b"%d" % self.writes)  # its index counts on
        return keys, catalog, get("/v1/session/list"), int(self.agent.request("GET", "/v1/kv/index")[1]["X-Consul-Index"])

    def whole(self, where):
        for key, value in self.values.items():
            status, _, found = self.agent.request("GET", "/v1/kv/%s?raw" % key)
            check((status, found) == (200, value), "%s: %s: %d %r" % (where, key, status, found[:60]))
        now = self.look()
        for name, before, after in zip(("keys", "catalog", "sessions"), self.kept, now):
            without = lambda all: {k: v for k, v in all.items() if k != "index"} if isinstance(all, dict) else all
            check(without(before) == without(after), "%s: %s differ" % (where, name))
        check(now[3] > self.kept[3], "%s: the index went from %d to %d" % (where, self.kept[3], now[3]))
        self.kept = now

    def end(self, killed):
        if killed:
            self.agent.kill()
        else:
            check(self.agent.stop()[0] == 0, "a clean end")


# -- damage ------------------------------------------------------------------------------------------
def flip(rng, page, begin, end, bits):
    for _ in range(rng.randint(1, bits)):
        page[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)


def forty(rng, page, _):
    at = rng.randrange(PAGE - 40)
    page[at:at + 40] = bytes(b ^ 0xff for b in page[at:at + 40])


KINDS = {
    "bits": lambda rng, page, _: flip(rng, page, 0, PAGE, 8),
    "header": lambda rng, page, _: flip(rng, page, 0, 16, 2),
    "places": lambda rng, page, _: flip(rng, page, 16, 64, 3),
    "the last bytes": lambda rng, page, _: flip(rng, page, PAGE - 64, PAGE, 8),
    "forty bytes": forty,
    "zeroes": lambda rng, page, _: page.__setitem__(slice(None), bytes(PAGE)),
    "noise": lambda rng, page, _: page.__setitem__(slice(None), rng.randbytes(PAGE)),
    "another page": lambda rng, page, other: page.__setitem__(slice(None), other),
}


def damage(rng, agent, number, kind):
    with open(store_file(agent), "r+b") as f:
        f.seek(rng.randrange(used_pages(agent)) * PAGE)
        other = f.read(PAGE)
        f.seek(number * PAGE)
        page = bytearray(f.read(PAGE))
        KINDS[kind](rng, page, other)
        f.seek(number * PAGE)
        f.write(page)


def new_log(agent):
    """What it has said since the last time."""
    said = agent.log()
    fresh, agent.said = said[getattr(agent, "said", 0):], len(said)
    return fresh


# -- a server that is stopped ------------------------------------------------------------------------
def at_the_next_start():
    world, rng, found = World(1), random.Random(2), 0
    agent = world.agent
    for placement in range(PLACEMENTS):
        world.end(placement % 2)
        pages, kind = used_pages(agent), list(KINDS)[placement % len(KINDS)]
        number = placement // len(KINDS) if placement % 5 == 0 else rng.randrange(pages)  # the meta pages, too
        damage(rng, agent, number, kind)
        where = "%s of page %d of %d" % (kind, number, pages)
        new_log(agent)
        agent.start()
        world.whole(where)
        found += "damaged, it is rebuilt from snapshot and log" in new_log(agent)
        world.put("many/%03d" % rng.randrange(0, 300, 2))  # and free pages
        world.kept = world.look()
        world.end(placement % 3 == 0)
        agent.start()
        check("[ERROR]" not in new_log(agent), "%s: the start after that is clean: %s" % (where, agent.log()[-1500:]))
    print("     %d of %d were in use" % (found, PLACEMENTS))
    check(found > PLACEMENTS // 3 if FIGURES else found >= PLACEMENTS // 3, "%d of %d were in use" % (found, PLACEMENTS))


def of_the_last_used_bytes():
    """Of a store of small keys: what lies there is a record of a tree's root, or the list of free pages. A start after it ended by a signal,
    and every one after that."""
    agent = Agent().start()
    values = {"key/%d" % i: ("value %d " % i) * (i % 40 + 1) for i in range(300)}
    for key, value in values.items():
        agent.put("/v1/kv/" + key, value)
    for turn in range(24 if FIGURES else 4):
        if turn % 2:
            agent.kill()
        else:
            check(agent.stop()[0] == 0, "a clean end")
        with open(store_file(agent), "r+b") as f:
            data = bytearray(f.read(used_pages(agent) * PAGE))
            end = len(data.rstrip(b"\0"))
            flip(random.Random(turn), data, end - 64, end, 8)
            f.seek(0)
            f.write(data)
        agent.start()
        for key, value in values.items():
            found = agent.request("GET", "/v1/kv/%s?raw" % key)
            check((found[0], found[2].decode()) == (200, value), "turn %d: %s: %r" % (turn, key, found))
        for i in range(turn % 3):
            agent.put("/v1/kv/other", "%d %d" % (turn, i))


def of_the_marker_or_the_length():
    world, rng = World(5), random.Random(6)
    agent = world.agent
    for turn in range(6):
        world.end(turn % 2)
        if turn < 3:
            with open(agent.data + "/store/marker", "r+b") as f:
                text = bytearray(f.read())
                flip(rng, text, 0, 60, 8)
                f.seek(0)
                f.write(text)
        else:
            os.truncate(store_file(agent), (used_pages(agent) - 1) * PAGE)
        agent.start()
        world.whole("turn %d" % turn)


def behind_a_snapshot():
    """The log begins behind a snapshot: both are needed."""
    world = World(7, settings(snapshot_log_bytes=1 << 18))
    agent = world.agent
    until("a snapshot", lambda: [n for n in os.listdir(agent.data + "/raft") if n.startswith("snap-")])
    for turn in range(4):
        world.end(turn % 2)
        damage(random.Random(turn), agent, used_pages(agent) - 2, "zeroes")
        with open(store_file(agent), "r+b") as f:
            f.write(bytes(20))  # a meta page, for certain
        agent.start()
        check("damaged, it is rebuilt" in new_log(agent), "it is found")
        world.whole("turn %d" % turn)


def of_another_version():
    """A store in which records have no checksums: what the server of before left is in snapshot and log."""
    world = World(8)
    for text in (b"coord store 2\nclosed\n", b""):
        world.end(False)
        with open(world.agent.data + "/store/marker", "wb") as f:
            f.write(text)
        world.agent.start()
        world.whole("after %r" % text)
    check("another version's format, it is rebuilt from snapshot and log" in world.agent.log(), "it says so")


# -- a server that runs ------------------------------------------------------------------------------
def read(agent, key):
    """What it says of a key; None: nothing, it has ended, or an error."""
    try:
        status, _, found = agent.request("GET", "/v1/kv/%s?raw" % key, timeout=10 * SLOW + STANDSTILL)
    except (OSError, http.client.HTTPException):
        return None
    return found if status == 200 else None


def values_of_a_running_server():
    world = World(9, "-config-file=" + NO_SCRUBS)
    agent = world.agent
    rebuilt = lambda: agent.log().count("the state was rebuilt, this server serves again")
    for turn, key in enumerate([k for k in sorted(world.values) if len(world.values[k]) >= 100][::60]):
        value = world.values[key]
        with open(store_file(agent), "r+b") as f:
            data = f.read(used_pages(agent) * PAGE)
            places = [m.start() for m in re.finditer(re.escape(value[:60]), data)]
            check(places, "the value of %s is in the file" % key)
            for at in places:
                f.seek(at + 10)
                f.write(bytes(b ^ 1 for b in value[10:50]))
        check(read(agent, key) in (None, value), "%s: a kept answer, or none" % key)
        status, _, found = agent.request("GET", "/v1/kv/%s" % key)  # which nobody has asked for before; a mended one if the answer was not kept
        check(status in (500, 503) or rebuilt() > turn, "%s: an error, not a value: %d %r" % (key, status, found[:60]))
        until("it mends itself", lambda: rebuilt() == turn + 1, within=20)
        until("it serves", lambda: read(agent, key) == value, within=20)
        world.whole(key)
    check(agent.proc.poll() is None and "FENCED" in agent.log(), "the same process")


def listings_of_a_running_server():
    """By ranges: keys below a prefix, instances of a service, and in DNS."""
    world = World(10, "-config-file=" + NO_SCRUBS)
    agent = world.agent
    for turn, (name, ask) in enumerate({
            b"10.0.0.3": lambda: agent.request("GET", "/v1/catalog/node/host2"),
            b"many/150": lambda: agent.request("GET", "/v1/kv/many/?keys"),
            b"many/151": lambda: agent.request("GET", "/v1/kv/many/?recurse"),
            b"alive": lambda: agent.request("GET", "/v1/health/service/web1?passing")}.items()):
        with open(store_file(agent), "r+b") as f:
            data = f.read(used_pages(agent) * PAGE)
            for m in re.finditer(re.escape(name), data):
                f.seek(m.end() - 1)
                f.write(b"!")
        status, _, body = ask()
        check(status in (500, 503) and name[:-1] + b"!" not in body, "%s: an error: %d %r" % (name, status, body[:200]))
        check("!" not in agent.dig("host2.node.coord"), "nor in DNS")
        until("it mends itself", lambda: agent.log().count("this server serves again") == turn + 1, within=20)
        world.whole(name)


def nodes(page):
    """Of a branch or leaf page of LMDB: where the key of each is in it, and its size."""
    kind, lower = struct.unpack("<HH", page[10:14])
    places = struct.unpack("<%dH" % ((lower - 16) // 2), page[16:lower]) if kind in (1, 2) and 16 <= lower <= PAGE else ()
    return kind, [(place + 8, struct.unpack("<H", page[place + 6:place + 8])[0]) for place in places]


def keys_that_the_search_goes_by(agent, kind, prefix):
    """Offsets in the file, and sizes: of separators (kind 1: in branch pages) or of keys (2: in leaves)."""
    with open(store_file(agent), "rb") as f:
        data = f.read(used_pages(agent) * PAGE)
    for start in range(2 * PAGE, len(data), PAGE):
        found, keys = nodes(data[start:start + PAGE])
        for at, size in keys if found == kind else ():
            if prefix in data[start + at:start + at + size]:
                yield start + at, size


def the_search_of_a_running_server():
    """One bit of what LMDB finds its way by: nothing that is there is missed, or made a second time."""
    agent, rng, turns, met = Agent("-config-file=" + NO_SCRUBS).start(), random.Random(13), 0, 0
    keys = ["sep/%04d" % i for i in range(600)]
    value = lambda key: b"value of " + key.encode() * 9
    for key in keys:
        agent.put("/v1/kv/" + key, value(key))
    asks = {"get": ("GET", "raw", value), "put if it is not there": ("PUT", "cas=0", lambda key: b"false"),
            "list": ("GET", "keys", lambda key: b'["%s"]' % key.encode())}
    for kind in (1, 2):
        for what, (method, query, right) in asks.items():
            for digit in (1, 2, 3):
                turns += 1
                at, size = rng.choice(list(keys_that_the_search_goes_by(agent, kind, b"sep/")))
                with open(store_file(agent), "r+b") as f:
                    f.seek(at)
                    key = bytearray(f.read(size))
                    where = "%s after a flip in the %s %r" % (what, ("separator", "key")[kind - 1], bytes(key))
                    key[key.index(b"sep/") + 4 + digit] ^= 1 << rng.randrange(5)
                    f.seek(at)
                    f.write(key)
                for key in keys:
                    status, _, body = agent.request(method, "/v1/kv/%s?%s" % (key, query), b"again" if method == "PUT" else None)
                    if status in (500, 503):
                        break
                    check((status, body.strip()) == (200, right(key)), "%s: %s: %d %r" % (where, key, status, body[:60]))
                mended = agent.log().count("this server serves again")
                if status != 200 or mended > met:  # a change waits for that, and is made afterwards
                    until("it mends itself", lambda: agent.log().count("this server serves again") > met, within=20)
                    until("it serves", lambda: read(agent, keys[0]), within=20)
                    met += 1
    check(met > turns // 2, "%d of %d were met" % (met, turns))
    check(agent.proc.poll() is None, "the same process")


def anything_of_a_running_server():
    """LMDB may end the process of it, once; no value is another one."""
    world, rng, ends = World(11), random.Random(12), 0
    agent = world.agent
    for placement in range(PLACEMENTS // 2):
        kind = [k for k in KINDS if k != "another page"][placement % 7]
        number = rng.randrange(2, used_pages(agent))
        damage(rng, agent, number, kind)
        where = "%s of page %d while it ran" % (kind, number)
        for key in rng.sample(sorted(world.values), 40):
            found = read(agent, key)
            check(found in (None, world.values[key]), "%s: %s is %r" % (where, key, (found or b"")[:60]))
        try:
            agent.request("PUT", "/v1/kv/index", b"x", timeout=5)  # a change walks the list of free pages
        except (OSError, http.client.HTTPException):
            pass
        if agent.proc.poll() is None:
            agent.kill()
        else:
            ends += 1
        agent.start()
        world.whole(where)
    print("     %d of %d ended the process" % (ends, PLACEMENTS // 2))


if __name__ == "__main__":
    run([at_the_next_start, of_the_last_used_bytes, of_the_marker_or_the_length, behind_a_snapshot, of_another_version, values_of_a_running_server,
         listings_of_a_running_server, the_search_of_a_running_server, anything_of_a_running_server])
