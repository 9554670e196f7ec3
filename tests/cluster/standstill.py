"""When this machine itself stood still, so that whatever is measured paused with it. A virtual machine is paused by its host (others want the
processors, or its share of them for this tenth of a second is used up), and its disk is one of many on a disk of the host's.

Processors: for each, one process looks at the clock every millisecond at the highest real-time priority: no other program comes before it, so
that when it wakes up late, or has not gone back to sleep soon, its processor was not running, or was held by the kernel for as long. A host that
gives slices of less than a millisecond, with milliseconds between them, is seen slice by slice. `stolen_ms` is what the kernel itself knows of that
(/proc/stat), in steps of 10 ms.
Disk: one process reads every few milliseconds what the kernel counts (/sys/dev/block/*/stat, of Linux 5.5 and later). A disk with much to do
completes requests all the time; one that has some and completes none, whoever asked, stands still.

    standstill.py [--rate MB] [--seconds N] [FOLDER]

shows what a machine does of its own accord: one program writes to a file at that rate, past the page cache and one request at a time, and
syncs a small one beside it.
"""
import argparse, json, mmap, os, select, subprocess, sys, tempfile, threading, time

CPU_PERIOD = 0.001              # seconds. A look takes 20 us with the waking up: 2 % of a processor; oftener, and the watching itself is felt
CPU_LATE = 0.001                # ten times the timers' own spread
DISK_PERIOD = 0.005
DISK_LATE = 0.02                # a hundred times what a request takes
AFTER = 4                       # looks


def every(period):
    """Yields (the time it should be, the time it is), until whoever started this process closes its stdin. By a timetable: a look that took long
    makes the next one late, as does waking up late."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO)))
    print("ready", flush=True)
    due = time.monotonic() + period
    while not select.select([0], [], [], max(0, due - time.monotonic()))[0]:
        at = time.monotonic()
        yield due, at
        due = max(due + period, at)


def watch_cpu(cpu):
    os.sched_setaffinity(0, {int(cpu)})
    return [(due, at) for due, at in every(CPU_PERIOD) if at - due > CPU_LATE]


def standing(looks):
    """Two lists of [(begin, end, MiB completed right after: little, and it was not these that it was busy with)], of a disk that completed nothing for long: while it had requests under way, and while it flushed. `looks`:
    (time, what the kernel counts), in order. Counts that have not changed between two looks mean so however far apart these are. A flush is
    not among the requests under way: that there was one, and for how long, is counted when it ends. It may take long for what was written
    before it, where the host keeps that in memory."""
    asked, flushed, first = [], [], 0
    for i in range(1, len(looks) + 1):
        at, n = looks[min(i, len(looks) - 1)]
        _, was = looks[i - 1]
        if i < len(looks) and (n[0], n[4], n[11], n[15]) == (was[0], was[4], was[11], was[15]):
            continue
        busy = next((when for when, counts in looks[first:i] if counts[8]), at)
        flush = at - (n[16] - was[16]) / (n[15] - was[15]) / 1e3 if n[15] > was[15] else at
        _, then = looks[min(i + AFTER, len(looks) - 1)]
        mib = sum(then[k] - was[k] for k in (2, 6, 13)) / 2048
        for spans, begin in [(asked, busy), (flushed, max(looks[first][0], flush))]:
            if at - DISK_PERIOD - begin > DISK_LATE:
                spans.append((begin, at, mib))
        first = i
    return asked, flushed


def watch_disk(device):
    looks = []
    with open("/sys/dev/block/%s/stat" % device, "rb", buffering=0) as f:
        for _, at in every(DISK_PERIOD):
            looks.append((at, [int(word) for word in os.pread(f.fileno(), 512, 0).split()]))
    return standing(looks)


def device_of(folder):
    """The disk's number, not a partition's: flushes are the disk's. None: none that counts (a tmpfs, an old kernel)."""
    device = os.stat(folder).st_dev
    place = os.path.realpath("/sys/dev/block/%d:%d" % (os.major(device), os.minor(device)))
    if os.path.exists(place + "/partition"):
        place = os.path.dirname(place)
    try:
        with open(place + "/stat") as stat, open(place + "/dev") as dev:
            return dev.read().strip() if len(stat.read().split()) >= 17 else None
    except OSError:
        return None


def stolen_ms():
    with open("/proc/stat") as f:
        return int(f.readline().split()[8]) * 1000 // os.sysconf("SC_CLK_TCK")


def start(*args):
    watcher = subprocess.Popen([sys.executable, __file__, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if watcher.stdout.readline() != "ready\n":
        raise SystemExit("the highest real-time priority is not to be had: run as root")
    return watcher


def union(*lists):
    """Sorted, no two overlap."""
    merged = []
    for begin, end in sorted(tuple(span) for spans in lists for span in spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


class Standstill:
    def __init__(self, folder):
        self.stolen_ms = stolen_ms()
        self.cpu_watchers = [start("cpu", str(cpu)) for cpu in sorted(os.sched_getaffinity(0))]
        device = device_of(folder)
        self.disk_watchers = [start("disk", device)] if device else []

    def stop(self):
        """Leaves in `cpu`, `disk`, `flush` and `all` (the first two) the spans [(begin, end)], by time.monotonic()."""
        self.stolen_ms = stolen_ms() - self.stolen_ms
        self.cpu = union(*(json.loads(w.communicate()[0]) for w in self.cpu_watchers))
        found = [json.loads(w.communicate()[0]) for w in self.disk_watchers] or [((), ())]
        self.gaps = sorted(found[0][0])
        self.disk, self.flush = [union([span[:2] for span in spans]) for spans in found[0]]
        self.all = union(self.cpu, self.disk)

    def show(self):
        if not self.disk_watchers:
            print("the machine's disk is not watched: the kernel counts nothing for that folder")
        for name, spans in [("processors stood still", self.cpu)] + [("disk stood still", self.disk), ("disk flushed for long", self.flush)] * bool(self.disk_watchers):
            print("the machine's %s %d times, %.0f ms in all, %.1f ms at the longest" %
                  (name, len(spans), sum(b - a for a, b in spans) * 1e3, max([b - a for a, b in spans], default=0) * 1e3), flush=True)
        for begin, end, mib in self.gaps:
            print("    its disk: %.0f ms, then %.1f MiB were read, written and discarded within %.0f ms" %
                  ((end - begin) * 1e3, mib, (AFTER + 1) * DISK_PERIOD * 1e3))
        print("stolen from its processors: %d ms" % self.stolen_ms)


def within(spans, begin, end):
    """Seconds of [begin, end] that the machine stood still."""
    return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in spans)


def steady_load(folder, rate, seconds):
    """[(begin, seconds taken)] of small syncs, while a file is written at `rate` MB/s."""
    piece, size, samples, over = 256 << 10, 1 << 30, [], threading.Event()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        small = os.open(place + "/small", os.O_RDWR | os.O_CREAT)
        os.write(small, bytes(1 << 20))
        os.fsync(small)

        def sync():
            while not over.wait(0.001):
                begun = time.monotonic()
                os.pwrite(small, b"x" * 4096, len(samples) % 256 * 4096)
                os.fdatasync(small)
                samples.append((begun, time.monotonic() - begun))
        syncer = threading.Thread(target=sync)
        large = os.open(place + "/large", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        os.posix_fallocate(large, 0, size)
        room = mmap.mmap(-1, piece)                      # O_DIRECT wants whole pages
        syncer.start()
        try:
            begun, done = time.monotonic(), 0
            while time.monotonic() < begun + seconds:
                os.pwritev(large, [room], done % size)
                done += piece
                time.sleep(max(0, begun + done / (rate * 1e6) - time.monotonic()))
        finally:
            over.set()
            syncer.join()
        os.close(large)
        os.close(small)
    return samples


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rate", type=float, default=100, help="MB/s")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("folder", nargs="?", default=tempfile.gettempdir())
    options = p.parse_args()
    still = Standstill(options.folder)
    samples = steady_load(options.folder, options.rate, options.seconds)
    still.stop()
    still.show()
    times = sorted(took for _, took in samples)
    print("%d small syncs beside %g MB/s: p50 %.2f  p99 %.2f  longest %.1f ms" %
          (len(times), options.rate, times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3, times[-1] * 1e3))
    for at, took in samples:
        if took > DISK_LATE:
            print("    %.1f ms, %.1f of them while the machine stood still, %.1f while its disk flushed" %
                  (took * 1e3, within(still.all, at, at + took) * 1e3, within(still.flush, at, at + took) * 1e3))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("cpu", "disk"):
        print(json.dumps({"cpu": watch_cpu, "disk": watch_disk}[sys.argv[1]](sys.argv[2])), flush=True)
    else:
        main()
