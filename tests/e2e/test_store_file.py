"""The store's file: about as long as what is in it, so that anything may copy a data folder."""
import json, os, shutil, subprocess
from coordtest import COORD, Agent, check, run, until

MIB = 1 << 20
STEP = 16 * MIB  # of the store's file, reserved ahead at most
MAP = 64 << 30


def store_file(agent):
    return agent.data + "/store/data.mdb"


def length(agent):
    return os.path.getsize(store_file(agent))


def folder_length(agent):
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(agent.data) for name in names)


def fits(agent, least, most, when):
    size = length(agent)
    check(least <= size <= most + STEP, "%s the file has %.1f MiB" % (when, size / MIB))
    allocated = os.stat(store_file(agent)).st_blocks * 512
    check(allocated >= size - MIB, "%s all of it has space: %.1f of %.1f MiB" % (when, allocated / MIB, size / MIB))


def fill(agent, count, size):
    for i in range(count):
        agent.put("/v1/kv/fill/%d" % i, bytes([i % 251]) * size)
    return {"fill/%d" % i: size for i in range(count)}


def whole(agent, kept):
    items = agent.get("/v1/kv/fill/?recurse")[2] or []
    check(len(items) == len(kept), "%d of %d keys" % (len(items), len(kept)))


def ends(agent):
    """By SIGTERM, and by kill -9."""
    yield "stopped", agent.stop
    yield "killed", agent.kill


def as_long_as_what_is_in_it():
    agent = Agent().start()
    fits(agent, 1, MIB, "new")
    check(folder_length(agent) <= 20 * MIB, "all of an empty server has %.1f MiB" % (folder_length(agent) / MIB))
    kept = fill(agent, 100, 400000)
    fits(agent, 38 * MIB, 50 * MIB, "with 40 MB")
    for how, end in ends(agent):
        end()
        fits(agent, 38 * MIB, 50 * MIB, how)
        agent.start()
        fits(agent, 38 * MIB, 50 * MIB, "started after it was " + how)
        whole(agent, kept)
    for i in range(60):  # from where it began anew it grows on
        agent.put("/v1/kv/more/%d" % i, b"m" * 400000)
    fits(agent, 61 * MIB, 74 * MIB, "with 64 MB")


def shorter_with_a_smaller_state():
    agent = Agent().start()
    backup = agent.dir + "/small.snap"
    subprocess.run([COORD, "snapshot", "save", "-http-addr=%s:8500" % agent.ip, backup], check=True, capture_output=True)
    fill(agent, 100, 400000)
    fits(agent, 38 * MIB, 50 * MIB, "with 40 MB")
    subprocess.run([COORD, "snapshot", "restore", "-http-addr=%s:8500" % agent.ip, backup], check=True, capture_output=True)
    until("the file is short again", lambda: length(agent) <= MIB + STEP)
    check(agent.get("/v1/kv/fill/?keys")[0] == 404, "the state is the small one")


def any_copy_will_do():
    agent = Agent().start()
    kept = fill(agent, 50, 5000)
    for how, end in ends(agent):
        end()
        for tool in (["cp", "-r", agent.data, agent.dir + "/copy"],
                     ["sh", "-c", "mkdir %s/copy && tar -C %s -cf - . | tar -C %s/copy -xf -" % (agent.dir, agent.data, agent.dir)]):
            shutil.rmtree(agent.dir + "/copy", ignore_errors=True)
            subprocess.run(tool, check=True)
            copy = Agent(ip=agent.ip)
            copy.data = agent.dir + "/copy"
            copy.start()
            whole(copy, kept)
            copy.put("/v1/kv/after", b"1")
            check(copy.stop()[0] == 0, "the copy ends cleanly")
        agent.start()
        whole(agent, kept)


def a_process_that_ended_while_it_opened_the_store():
    """LMDB makes the file as long as its map when it opens it; it may be left like that."""
    agent = Agent().start()
    kept = fill(agent, 50, 5000)
    for how, end in ends(agent):
        end()
        os.truncate(store_file(agent), MAP)
        agent.start()
        fits(agent, 1, 2 * MIB, how)
        whole(agent, kept)
    agent.kill()
    os.truncate(store_file(agent), MAP)
    with open(agent.data + "/store/marker", "w") as f:  # of another boot: after a crash of the machine
        f.write("coord store 1\nboot 00000000-0000-0000-0000-000000000000\nfile 1:1 1\n")
    agent.start()
    whole(agent, kept)
    check(os.path.getsize(store_file(agent) + ".aside") < 2 * MIB + STEP, "what is put aside is no longer either")


if __name__ == "__main__":
    run([as_long_as_what_is_in_it, shorter_with_a_smaller_state, any_copy_will_do, a_process_that_ended_while_it_opened_the_store])
