"""A server's disk that is small, and full."""
import os, subprocess
import harness
import full


def on_small_disk(cluster, server, megabytes):
    """Before the start. Its data lies on a file system of its own. Says why not, if nothing can be mounted here."""
    r = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dm" % megabytes, "coord-test", server.data], capture_output=True, text=True)
    if r.returncode != 0:
        return r.stderr.strip() or "mount ended with %d" % r.returncode
    cluster.mounts.append(server.data)
    return None


def small_disk(cluster, server, megabytes):
    """As that, or the test is skipped."""
    refused = on_small_disk(cluster, server, megabytes)
    if refused:
        cluster.close()
        harness.skip("nothing can be mounted: " + refused)


def fill(server):
    full.fill(filler(server))


def free_megabytes(server):
    disk = os.statvfs(server.data)
    return disk.f_bavail * disk.f_frsize >> 20


def leave_free(server, megabytes):
    fd = os.open(filler(server), os.O_CREAT | os.O_WRONLY, 0o600)
    os.posix_fallocate(fd, 0, free_megabytes(server) - megabytes << 20)
    os.close(fd)


def give_back(server):
    os.truncate(filler(server), 0)


def filler(server):
    return os.path.join(server.data, "filler")


def another_leads(cluster, server):
    """The leader; never `server`."""
    def leads():
        leader = cluster.leader()
        if leader is not server:
            return leader
        # Asked again: by then another may have led and have handed it back, as its disk stood still; or nobody is fit for it at the moment.
        subprocess.run([harness.COORD, "operator", "raft", "transfer-leader", "-http-addr=%s:8500" % server.ip], capture_output=True, timeout=60 * harness.SLOW)
        return None
    return harness.until("another leads", leads)
