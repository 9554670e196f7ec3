#!/usr/bin/env python3
"""A server that lost its disk is sent the leader's snapshot. That is damaged: the leader takes another, and says so. Or there is no room for it:
it is not sent again and again, the others go on to cut their logs, and it arrives once there is space. Or the space goes while it arrives: the
server waits."""
import glob, json, os, re, shutil, threading, time
import harness
from full_disk import another_leads, filler, give_back, small_disk
from harness import check

VALUE, VALUES = 128 << 10, 240          # 30 MiB of state: each snapshot waits for as much log


class Again(Exception):
    """What was to be seen was not to be seen this time."""


class Reign:
    """The stories are about a leader's snapshots. One whose disk stood still hands over: then a story is told again, of the one that leads now."""
    now = None

    def __init__(self, cluster, lost):
        self.cluster, self.leader = cluster, another_leads(cluster, lost)
        self.began = self.elections()

    def elections(self):
        return sum(s.log().count("raft: leading term=") for s in self.cluster.servers)

    def over(self):
        return self.elections() != self.began


def until(what, condition, within=15.0):
    def seen():
        value = condition()
        if not value and Reign.now and Reign.now.over():
            raise Again("another leads")
        return value
    return harness.until(what, seen, within)


def tell(story, cluster, lost):
    for turn in range(5):
        Reign.now = Reign(cluster, lost)
        try:
            return story(Reign.now.leader, lost)
        except Again as why:
            print("%s: again, as %s" % (story.__name__, why), flush=True)
        except AssertionError as why:
            if not Reign.now.over():
                raise
            print("%s: again, as another leads: %s" % (story.__name__, why), flush=True)
        finally:
            Reign.now = None
    raise AssertionError(story.__name__ + " again and again")


def overwrite(leader, megabytes):
    for i in range((megabytes << 20) // VALUE):
        leader.write("/v1/kv/large/%03d" % (i % VALUES), os.urandom(VALUE))


def overwrite_until_a_snapshot(leader, most):
    """It is taken once as much was written as the state has; when exactly depends on what is under way."""
    before = snapshots(leader)
    for _ in range(most // 10):
        if snapshots(leader) > before:
            return
        overwrite(leader, 10)
    until("the leader takes snapshots", lambda: snapshots(leader) > before, 30)


def snapshots(server):
    return server.log().count("snapshot taken")


def quiet(server):
    """Nothing is written, so that none begins once none is being taken."""
    busy = [time.monotonic()]

    def since():
        if glob.glob(server.data + "/raft/part-*"):
            busy[0] = time.monotonic()
        return time.monotonic() - busy[0] > 1
    until("no snapshot is being taken", since, 60)


def has_all(server, leader):
    value = b"%d" % time.monotonic_ns()
    leader.write("/v1/kv/mark", value)
    return lambda: server.says_leader() and server.request("GET", "/v1/kv/mark?stale&raw")[2] == value


def empty(server):
    for path in glob.glob(server.data + "/*"):
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def flip(path):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))


def a_damaged_snapshot_is_replaced(leader, lost):
    lost.kill()
    empty(lost)
    quiet(leader)
    newest = max(glob.glob(leader.data + "/raft/snap-*"))
    flip(newest)
    before, told = snapshots(leader), leader.log().count("this server's snapshot cannot be sent, another is taken")
    lost.start()
    until("it has all", has_all(lost, leader), 60)
    until("another is there", lambda: snapshots(leader) > before and not os.path.exists(newest))
    said = leader.log().count("this server's snapshot cannot be sent, another is taken") - told
    check(said == 1, "said %d times, %d taken" % (said, snapshots(leader) - before))


def leave(server, megabytes):
    room = os.statvfs(server.data)
    with open(filler(server), "wb") as f:
        os.posix_fallocate(f.fileno(), 0, room.f_bavail * room.f_frsize - (megabytes << 20))


def no_room_for_it(leader, lost):
    lost.kill()
    empty(lost)
    leave(lost, 50)                     # for the file, and not for the state beside it
    quiet(leader)
    begun = len(lost.log())
    lost.start()
    said = lambda: lost.log()[begun:].count("the leader's snapshot waits for space")
    until("it says so", said, 30)
    overwrite_until_a_snapshot(leader, 150)
    check(said() <= 2 and not glob.glob(lost.data + "/raft/part-*"), "nothing is begun: %r" % glob.glob(lost.data + "/raft/*"))
    leader.write("/v1/kv/x", b"1")      # writes go on
    give_back(lost)
    until("it has all", has_all(lost, leader), 60)


def space_goes_while_it_arrives(leader, lost):
    """The file has arrived, and the log begins behind it; the state is the one before."""
    lost.kill()
    empty(lost)
    quiet(leader)
    lost.start()
    part = lambda: sum(os.path.getsize(path) for path in glob.glob(lost.data + "/raft/part-*"))
    said = lambda: lost.log().count("the state waits for space")
    before, arrived = said(), lambda: lost.log().count("the leader's snapshot is in place")
    arrived_before = arrived()

    def half():
        if arrived() > arrived_before:
            raise Again("all of it was here before the space went")
        return part() > 15 << 20
    until("half of it is here", half, 30)
    leave(lost, (30 << 20) - part() + (10 << 20) >> 20)
    until("it waits", lambda: said() > before, 30)
    check(lost.alive(), "it runs")
    leader.write("/v1/kv/x", b"1")      # the others go on
    lost.kill()
    before = said()
    lost.start()
    until("it waits at its start, too", lambda: said() > before, 30)
    check(lost.terminate() == 1, "a signal ends that")
    lost.start()
    give_back(lost)
    until("it has all", has_all(lost, leader), 60)


def written(server):
    """Entries of its log."""
    metrics = server.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()
    return int(re.search(r"^coord_raft_log_entries_total (\d+)", metrics, re.M).group(1))


def known(server):
    """[how many of the keys there are]; None while no leader is known."""
    status, _, body = server.request("GET", "/v1/kv/large/?keys", timeout=10 * harness.SLOW)
    return [len(json.loads(body))] if status == 200 else [0] if status == 404 else None


def asked_for(server, otherwise):
    """The size of a backup; of this one while there is none."""
    status, _, backup = server.request("GET", "/v1/snapshot", timeout=30 * harness.SLOW)
    return len(backup if status == 200 else otherwise)


def a_backup_that_did_not_arrive_leaves_nothing():
    """The leader is lost in between: whoever took it in gives it up. Its pieces would stand in every state and every backup."""
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        overwrite(cluster.leader(), 30)
        backup = cluster.leader().request("GET", "/v1/snapshot", timeout=30 * harness.SLOW)[2]
        for _ in range(10):
            until("deleted", lambda: cluster.leader().request("DELETE", "/v1/kv/?recurse", timeout=10 * harness.SLOW)[0] == 200)
            leader = cluster.leader()
            asked = next(s for s in cluster.servers if s is not leader)
            answer = []
            thread = threading.Thread(target=lambda: answer.append(asked.request("PUT", "/v1/snapshot", backup, 60 * harness.SLOW)))
            thread.start()
            begun = written(leader)
            until("some of it is in the log", lambda: answer or written(leader) > begun + 8, 20)
            leader.kill()
            thread.join()
            check(answer, "an answer")
            cluster.wait_writable([asked])
            there = until("an answer", lambda: known(asked))[0]
            arrived = there == VALUES      # the end of it was in the log already
            if answer[0][0] != 200 and not arrived:
                break
            leader.start()
            cluster.wait_writable()
        else:
            raise AssertionError("it was always too quick")
        until("nothing of it is left", lambda: asked_for(asked, backup) < 1 << 20, 20)
        until("and it can be restored", lambda: asked.request("PUT", "/v1/snapshot", backup, 60 * harness.SLOW)[0] == 200)
        until("all of it", lambda: known(asked) == [VALUES])


def main():
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        lost = cluster.servers[2]
        for server in cluster.servers:
            with open(server.dir + "/snapshots.json", "w") as f:  # without history, whose rows would double this state
                json.dump({"coord": {"snapshot_log_bytes": 1 << 20, "snapshot_rate": 8 << 20, "history_changes": 0}}, f)
        cluster.args.append("-config-file=snapshots.json")
        small_disk(cluster, lost, 600)
        cluster.start()
        cluster.wait_writable()
        leader = another_leads(cluster, lost)
        overwrite(leader, VALUES * VALUE >> 20)
        # Whoever leads: one that has nearly all.
        whole = lambda: all(any(os.path.getsize(path) > 25 << 20 for path in glob.glob(s.data + "/raft/snap-*")) for s in cluster.servers if s is not lost)

        def whole_soon():                # what is written while one is taken does not call for the next
            if not whole():
                overwrite(leader, 10)
                time.sleep(0.5)
            return whole()
        until("there are snapshots", whole_soon, 30)
        for story in (a_damaged_snapshot_is_replaced, no_room_for_it, space_goes_while_it_arrives):
            tell(story, cluster, lost)
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    a_backup_that_did_not_arrive_leaves_nothing()
    print("ok")


if __name__ == "__main__":
    main()
