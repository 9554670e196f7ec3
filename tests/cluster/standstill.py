"""When this machine itself stood still: a virtual machine is paused by its host (others want the processors, or its share of them
for this tenth of a second is used up), and whatever is measured then pauses with it.

For each processor one process sleeps for a millisecond at a time at the highest real-time priority: no other program comes before it, so
that when it wakes up late its processor was not running, or was held by the kernel for as long. `stolen_ms` is what the kernel itself knows of
the first (/proc/stat), in steps of 10 ms."""
import json, os, select, subprocess, sys, time

PERIOD = 0.001
LATE = 0.004                    # seconds; below it is the timers' own spread


def watch(cpu):
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO)))
    print("ready", flush=True)
    spans, last = [], time.monotonic()
    while not select.select([0], [], [], PERIOD)[0]:
        at = time.monotonic()
        if at - last > PERIOD + LATE:
            spans.append((last + PERIOD, at))
        last = at
    print(json.dumps(spans), flush=True)


def stolen_ms():
    with open("/proc/stat") as f:
        return int(f.readline().split()[8]) * 1000 // os.sysconf("SC_CLK_TCK")


class Standstill:
    def __init__(self):
        self.stolen_ms = stolen_ms()
        self.watchers = [subprocess.Popen([sys.executable, __file__, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                         for cpu in sorted(os.sched_getaffinity(0))]
        for w in self.watchers:
            if w.stdout.readline() != "ready\n":
                raise SystemExit("the highest real-time priority is not to be had: run as root")

    def stop(self):
        """[(begin, end)], by time.monotonic(), of each time when a processor stood still; sorted, no two overlap. `stolen_ms` is that of the time since."""
        self.stolen_ms = stolen_ms() - self.stolen_ms
        spans = sorted(tuple(s) for w in self.watchers for s in json.loads(w.communicate()[0]))
        merged = []
        for begin, end in spans:
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return merged


def within(spans, begin, end):
    """Seconds of [begin, end] that the machine stood still."""
    return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in spans)


if __name__ == "__main__":
    watch(int(sys.argv[1]))
