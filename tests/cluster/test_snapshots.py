#!/usr/bin/env python3
"""A server that lost its disk is sent the leader's snapshot. That is damaged: the leader takes another, and says so. Or there is no room for it:
it is not sent again and again, the others go on to cut their logs, and it arrives once there is space. Or the space goes while it arrives: the
server waits."""
import glob, json, os, re, shutil, threading, time
import harness
from full_disk import another_leads, filler, give_back, small_disk
from harness import check, until

VALUE, VALUES = 512 << 10, 60           # 30 MiB of state: each snapshot waits for as much log


def overwrite(leader, megabytes):
    for i in range(megabytes * 2):
        check(leader.put("/v1/kv/large/%02d" % (i % VALUES), os.urandom(VALUE), 10 * harness.SLOW), "a write")


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
    value = b"%d" % len(leader.log())
    check(leader.try_put("/v1/kv/mark", value), "a write")
    return lambda: server.says_leader() and server.request("GET", "/v1/kv/mark?stale&raw", timeout=10)[2] == value


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
    before = snapshots(leader)
    lost.start()
    until("it has all", has_all(lost, leader), 60)
    said = leader.log().count("this server's snapshot cannot be sent, another is taken")
    check(said == 1 and snapshots(leader) > before and not os.path.exists(newest), "said %d times, %d taken" % (said, snapshots(leader) - before))


def leave(server, megabytes):
    room = os.statvfs(server.data)
    with open(filler(server), "wb") as f:
        os.posix_fallocate(f.fileno(), 0, room.f_bavail * room.f_frsize - (megabytes << 20))


def no_room_for_it(leader, lost):
    lost.kill()
    empty(lost)
    leave(lost, 50)                     # for the file, and not for the state beside it
    quiet(leader)
    begun, before = len(lost.log()), snapshots(leader)
    lost.start()
    said = lambda: lost.log()[begun:].count("the leader's snapshot waits for space")
    until("it says so", said, 30)
    overwrite(leader, 150)
    until("the leader takes snapshots", lambda: snapshots(leader) > before, 30)
    check(said() <= 2 and not glob.glob(lost.data + "/raft/part-*"), "nothing is begun: %r" % glob.glob(lost.data + "/raft/*"))
    check(leader.try_put("/v1/kv/x"), "writes go on")
    give_back(lost)
    until("it has all", has_all(lost, leader), 60)


def space_goes_while_it_arrives(leader, lost):
    """The file has arrived, and the log begins behind it; the state is the one before."""
    lost.kill()
    empty(lost)
    quiet(leader)
    lost.start()
    part = lambda: sum(os.path.getsize(path) for path in glob.glob(lost.data + "/raft/part-*"))
    until("half of it is here", lambda: part() > 15 << 20, 30)
    leave(lost, (30 << 20) - part() + (10 << 20) >> 20)
    said = lambda: lost.log().count("the state waits for space")
    before = said()
    until("it waits", lambda: said() > before, 30)
    check(lost.alive() and leader.try_put("/v1/kv/x"), "the others go on")
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


def a_backup_that_did_not_arrive_leaves_nothing():
    """The leader is lost in between: whoever took it in gives it up. Its pieces would stand in every state and every backup."""
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        overwrite(cluster.leader(), 30)
        backup = cluster.leader().request("GET", "/v1/snapshot", timeout=30 * harness.SLOW)[2]
        for _ in range(10):
            check(cluster.leader().request("DELETE", "/v1/kv/?recurse", timeout=10 * harness.SLOW)[0] == 200, "deleted")
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
            arrived = len(asked.get("/v1/kv/large/?keys", 10 * harness.SLOW)[2] or []) == VALUES      # the end of it was in the log already
            if answer[0][0] != 200 and not arrived:
                break
            leader.start()
            cluster.wait_writable()
        else:
            raise AssertionError("it was always too quick")
        until("nothing of it is left", lambda: len(asked.request("GET", "/v1/snapshot", timeout=30 * harness.SLOW)[2]) < 1 << 20, 20)
        check(asked.request("PUT", "/v1/snapshot", backup, 60 * harness.SLOW)[0] == 200, "and it can be restored")
        check(len(asked.get("/v1/kv/large/?keys", 10)[2]) == VALUES, "all of it")


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
        overwrite(leader, 70)
        until("there is a snapshot", lambda: glob.glob(leader.data + "/raft/snap-*"))
        a_damaged_snapshot_is_replaced(leader, lost)
        no_room_for_it(leader, lost)
        space_goes_while_it_arrives(leader, lost)
        check(not cluster.confessions() and not cluster.unexpected_ends(), "all are well: %r" % cluster.confessions())
    a_backup_that_did_not_arrive_leaves_nothing()
    print("ok")


if __name__ == "__main__":
    main()
