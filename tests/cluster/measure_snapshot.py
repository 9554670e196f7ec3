#!/usr/bin/env python3
"""A large state: what a snapshot and its installation cost those who write meanwhile. Not a test: it prints figures.

    measure_snapshot.py [--megabytes N] [--value BYTES] [--rate MB] [--slow MS] [--tell PID]

Three servers get N MB of values. Then one client writes small values one after the other, another overwrites large ones at a
bounded rate, so that snapshots are taken, and a follower's data folder is emptied: the whole state travels to it. Prints
latencies of the small writes and RssAnon of each server, at rest and at most.
"""
import argparse, http.client, multiprocessing, os, random, signal, sys, threading, time
import harness, standstill

now = time.monotonic


def rss_anon(server):
    try:
        with open("/proc/%d/status" % server.proc.pid) as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith("RssAnon"))
    except (OSError, StopIteration):
        return 0.0


def gives_back(server):
    """Blocks of files that it has removed (base/lazy_unlink.h)."""
    folder = "/proc/%d/fd/" % server.proc.pid
    for fd in os.listdir(folder):
        try:
            if os.readlink(folder + fd).endswith(" (deleted)") and os.stat(folder + fd).st_blocks > 0:
                return True
        except OSError:
            pass
    return False


class Client(multiprocessing.Process):
    """A process that keeps a connection and makes one request after the other. One of its own: it shares no interpreter, so that it
    waits for its answers only. `samples` are its requests, (begin, seconds taken)."""
    MOST = 1 << 20

    def __init__(self, server, work, period=0.0, told=None):
        super().__init__(daemon=True)
        self.server, self.work, self.period, self.told = server, work, period, told
        self.over, self.failures, self.count = multiprocessing.Event(), multiprocessing.RawValue("i"), multiprocessing.RawValue("i")
        self.times = multiprocessing.RawArray("d", 2 * self.MOST)
        self.start()

    def run(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)         # the cluster's folder and namespaces are the parent's
        connection, told = None, now()
        while not self.over.is_set() and self.count.value < self.MOST:
            try:
                if connection is None:
                    connection = http.client.HTTPConnection(self.server.ip, 8500, timeout=30)
                begun = now()
                self.work(connection)
                took = now() - begun
                self.times[2 * self.count.value], self.times[2 * self.count.value + 1] = begun, took
                self.count.value += 1
                if self.told and took * 1e3 > self.told[1] and begun > told:
                    os.kill(self.told[0], signal.SIGUSR2)
                    told = begun + 1
                if took < self.period:
                    time.sleep(self.period - took)
            except (OSError, http.client.HTTPException):
                self.failures.value += 1
                connection = None
                time.sleep(0.05)

    @property
    def samples(self):
        n = self.count.value
        return list(zip(self.times[0:2 * n:2], self.times[1:2 * n:2]))

    def stop(self):
        self.over.set()
        self.join()


def put(connection, key, value):
    connection.request("PUT", "/v1/kv/" + key, body=value)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200 or text.strip() != b"true":
        raise http.client.HTTPException("%d %r" % (answer.status, text))


def load(cluster, leader, count, size):
    todo, lock = iter(range(count)), threading.Lock()
    errors = []

    def one():
        connection = http.client.HTTPConnection(leader.ip, 8500, timeout=30)
        while True:
            with lock:
                n = next(todo, None)
            if n is None:
                return
            for attempt in range(20):
                try:
                    put(connection, "large/%06d" % n, os.urandom(size))
                    break
                except (OSError, http.client.HTTPException) as e:
                    connection.close()
                    time.sleep(0.2)
                    last = e
            else:
                errors.append(last)
                return
    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise SystemExit("loading failed: %s" % errors[0])


def show(name, times):
    times = sorted(t for _, t in times)
    if times:
        print("%-44s %6d writes  p50 %6.2f  p99 %6.2f  longest %7.2f ms" %
              (name, len(times), times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3, times[-1] * 1e3), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--megabytes", type=int, default=1024)
    p.add_argument("--value", type=int, default=65536)
    p.add_argument("--rate", type=float, default=8, help="MB/s of overwriting")
    p.add_argument("--slow", type=float, help="also print each small write that took longer than so many ms, and when")
    p.add_argument("--tell", type=int, metavar="PID", help="send SIGUSR2 there after each slow one (perf record --switch-output=signal)")
    options = p.parse_args()
    harness.tidy_on_signals()
    with harness.Cluster(3) as cluster:
        cluster.start()
        cluster.wait_writable()
        leader = cluster.leader()
        count = options.megabytes * (1 << 20) // options.value
        begun = now()
        load(cluster, leader, count, options.value)
        print("%d MB in %d values loaded in %.1f s" % (options.megabytes, count, now() - begun), flush=True)
        time.sleep(5)                    # what is under way settles
        leader = cluster.leader()
        followers = [s for s in cluster.servers if s is not leader]
        most, over = {}, threading.Event()
        rest = {s.name: rss_anon(s) for s in cluster.servers}

        def watch_memory():
            while not over.wait(0.02):
                for s in cluster.servers:
                    most[s.name] = max(most.get(s.name, 0), rss_anon(s))
        memory = threading.Thread(target=watch_memory, daemon=True)

        def small(connection):
            put(connection, "small/%d" % random.randrange(1000), b"x" * 100)

        def large(connection):
            put(connection, "large/%06d" % random.randrange(count), os.urandom(options.value))
        still = standstill.Standstill(cluster.dir)
        writer = Client(leader, small, 0.001, options.tell and (options.tell, options.slow or 30))
        time.sleep(5)
        show("small writes alone", writer.samples)
        memory.start()
        churn = Client(leader, large, options.value / (options.rate * (1 << 20)))
        taken = lambda server: server.log().count("snapshot taken")
        before = {server: taken(server) for server in cluster.servers}
        first, begun = writer.count.value, now()
        while now() - begun < 20 or (taken(leader) == before[leader] and now() - begun < 240):      # due once as much was written as the state holds
            time.sleep(0.5)
        time.sleep(2)
        name = "with %g MB/s overwritten for %.0f s" % (options.rate, now() - begun)
        show(name, writer.samples[first:])
        print("snapshots taken meanwhile: %d by the leader, %s by the followers" % (taken(leader) - before[leader], [taken(s) - before[s] for s in followers]))
        victim = followers[0]
        until = now() + 300
        while gives_back(victim) and now() < until:       # or all comes back at once with its end, on the one disk that the three share here
            time.sleep(0.1)
        victim.kill()
        os.rename(victim.data, victim.data + ".lost")     # removing it were work for the disk of the others
        os.makedirs(victim.data)
        mark, begun = writer.count.value, now()
        victim.start()
        wanted = "%d" % time.monotonic_ns()
        cluster_put = leader.put("/v1/kv/_mark", wanted.encode())
        while now() - begun < 300:
            try:
                if cluster_put and victim.request("GET", "/v1/kv/_mark?stale&raw")[2].decode() == wanted:
                    break
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        else:
            raise SystemExit("the emptied server has not caught up in 300 s")
        took = now() - begun
        time.sleep(1)
        show("while %s fetched all in %.1f s" % (victim.name, took), writer.samples[mark:])
        print("snapshots that it put in place: %d" % victim.log().count("the leader's snapshot is in place"))
        over.set()
        churn.stop()
        writer.stop()
        still.stop()
        still.show()
        samples = writer.samples
        own = [(at, took - standstill.within(still.all, at, at + took)) for at, took in samples]
        show("overwriting, without standstills", own[first:mark])
        show("while %s fetched all, without standstills" % victim.name, own[mark:])
        for (at, took), (_, net) in zip(samples, own):
            if options.slow and took * 1e3 > options.slow:
                print("    %7.1f ms (the disk stood still for %.1f of them, flushed for %.1f), %.1f without standstills, %.2f s after %s was emptied, at %.4f" %
                      (took * 1e3, standstill.within(still.disk, at, at + took) * 1e3, standstill.within(still.flush, at, at + took) * 1e3,
                       net * 1e3, at - begun, victim.name, at))
        gaps = [b[0] - a[0] for a, b in zip(samples, samples[1:])]
        print("longest time between two small writes that began: %.1f ms; failed: %d small, %d large" % (max(gaps) * 1e3, writer.failures.value, churn.failures.value))
        for s in cluster.servers:
            role = "leader" if s is leader else "emptied" if s is victim else "follower"
            print("%s %-9s RssAnon at rest %6.1f MiB, at most %6.1f MiB" % (s.name, role, rest[s.name], most.get(s.name, 0)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
