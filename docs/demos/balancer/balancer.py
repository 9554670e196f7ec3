#!/usr/bin/env python3
"""Six real web servers of different speed, and clients that let coord say where each request goes: what each policy makes of it.

    balancer.py [--policies random,weighted,p2c,hcl] [--seconds N] [--load PART] [--plot FILE.svg] [--coord PROGRAM]

Each server is a process with four workers; more requests wait. Three servers are fast, two half as fast, one works at a quarter
of the speed. Operators know that, so the servers' weights say it. What nobody knows: in the middle third of each run a
neighbour takes two thirds of the speed of one fast server away. Each server tells its agent ten times a second how many
requests it has in flight and how long they took. A check asks each server every second whether it lives.

Requests come at random moments, as many as --load says (a part of what all servers can do together), and each takes another
time: a few are much longer than most. A latency counts from the moment at which the request was due, with the pick in it.
Prints a table, and draws the latencies with --plot (by build/tests/balance/balance, which `./dev balance` makes).
"""
import argparse, collections, concurrent.futures, http.client, http.server, json, math, multiprocessing, os, random, signal
import subprocess, sys, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from client import Client
from demo_agent import PROGRAM, Agent, dies_with_its_parent, play, progress, request, say

SPEEDS, WORKERS, WORK = (1, 1, 1, 0.5, 0.5, 0.25), 4, 0.05  # WORK: seconds of a request at speed 1, on average
NEIGHBOUR = 1 / 3                                           # what it leaves of the speed
REPORT = 0.1                                                # seconds between reports of load
THREADS = 600                                               # of the client: requests in flight at most


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--policies", default="random,weighted,p2c,hcl")
    p.add_argument("--seconds", type=float, default=20, help="of each policy's run")
    p.add_argument("--load", type=float, default=0.7, help="a part of what the servers can do without the neighbour")
    p.add_argument("--plot", help="where to write the plot")
    p.add_argument("--draw", default=os.path.join(HERE, "../../../build/tests/balance/balance"), help="the program that draws")
    p.add_argument("--coord", default=PROGRAM)
    return p.parse_args()


# ---- a web server -------------------------------------------------------------------------------------------------
class Web(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 200

    def __init__(self, agent, id, speed):
        super().__init__((agent, 0), Handler)
        self.agent, self.id, self.speed = agent, id, speed
        self.workers, self.lock = threading.Semaphore(WORKERS), threading.Lock()
        self.inflight, self.took_ms = 0, {0: WORK / speed.value * 1000}  # by the requests in flight when it came
        threading.Thread(target=self.report, daemon=True).start()

    def work(self):
        began = time.monotonic()
        with self.lock:
            before, self.inflight = self.inflight, self.inflight + 1
        with self.workers:
            time.sleep(random.lognormvariate(-0.5, 1) * WORK / self.speed.value)
        with self.lock:
            self.inflight -= 1
            took_ms = (time.monotonic() - began) * 1000
            self.took_ms[before] = self.took_ms.get(before, took_ms) * 0.9 + took_ms * 0.1

    def latency_ms(self):
        """What a request that comes now may expect: as those that found about as many in flight."""
        with self.lock:
            return self.took_ms[min(self.took_ms, key=lambda before: abs(before - self.inflight))]

    def report(self):
        connection = http.client.HTTPConnection(self.agent, 8500)
        while True:
            connection.request("PUT", "/v1/agent/service/load/%s?load=%g&inflight=%d&latency_ms=%g" %
                               (self.id, self.inflight / WORKERS, self.inflight, self.latency_ms()))
            connection.getresponse().read()
            time.sleep(REPORT)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/alive":
            self.server.work()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_):
        pass


def serve(agent, id, speed, port):
    dies_with_its_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    web = Web(agent, id, speed)
    port.value = web.server_address[1]
    web.serve_forever()


class Fleet:
    def __init__(self, agent):
        self.agent, self.speeds, self.processes = agent, [], []
        for i, speed in enumerate(SPEEDS):
            self.start("web-%d" % (i + 1), speed)
        while len(json.loads(request(agent, "GET", "/v1/health/service/web?passing")[1])) < len(SPEEDS):
            time.sleep(0.05)

    def start(self, id, speed):
        now, port = multiprocessing.Value("d", speed), multiprocessing.Value("i", 0)
        process = multiprocessing.Process(target=serve, args=(self.agent, id, now, port), daemon=True)
        process.start()
        self.speeds.append(now), self.processes.append(process)
        while not port.value:
            time.sleep(0.01)
        status, text = request(self.agent, "PUT", "/v1/agent/service/register", json.dumps({
            "ID": id, "Name": "web", "Address": self.agent, "Port": port.value, "Weights": {"Passing": int(speed * 4), "Warning": 1},
            "Check": {"HTTP": "http://%s:%d/alive" % (self.agent, port.value), "Interval": "1s"}}))
        assert status == 200, text


# ---- a run --------------------------------------------------------------------------------------------------------
class Run:
    def __init__(self, client):
        self.client, self.lock = client, threading.Lock()
        self.threads = concurrent.futures.ThreadPoolExecutor(THREADS)
        self.latencies, self.instances, self.failed = [], collections.Counter(), 0

    def one(self, due):
        try:
            instance, _ = self.client.get("/")
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            with self.lock:
                self.failed += 1
            return
        with self.lock:
            self.latencies.append(time.monotonic() - due)
            self.instances[instance] += 1

    def go(self, seconds, rate, speed):
        began = due = time.monotonic()
        while due < began + seconds:
            time.sleep(max(0, due - time.monotonic()))
            speed.value = NEIGHBOUR if 1 / 3 < (due - began) / seconds < 2 / 3 else 1
            self.threads.submit(self.one, due)
            due += random.expovariate(rate)
        self.threads.shutdown()
        self.latencies.sort()

    def within(self, part):
        """How long it took at most, for that part of the requests, in milliseconds."""
        return self.latencies[min(math.ceil(part * len(self.latencies)), len(self.latencies)) - 1] * 1000


def measure(args, policy, fleet):
    progress("%s: %g s" % (policy, args.seconds))
    run = Run(Client("web", policy, fleet.agent))
    run.go(args.seconds, args.load * sum(SPEEDS) * WORKERS / WORK, fleet.speeds[0])
    shares = " ".join("%3.0f" % (100 * run.instances["web-%d" % (i + 1)] / len(run.latencies)) for i in range(len(SPEEDS)))
    say("| %-8s | %8d | %6d | %6.0f | %6.0f | %6.0f | %s |" % (
        policy, len(run.latencies), run.failed, run.within(0.5), run.within(0.9), run.within(0.99), shares))
    return run


def draw(args, runs):
    """x: one request in so many is slower."""
    lines = ["%d web servers of different speed, %d %% load" % (len(SPEEDS), args.load * 100), "one request in so many takes longer",
             "than this, ms", "\t".join(runs)]
    least = min(len(run.latencies) for run in runs.values())
    for step in range(61):
        many = 10 ** (step / 20)
        if many <= least / 3:
            lines.append("\t".join("%g" % v for v in [many] + [run.within(1 - 1 / many) if many > 1 else run.latencies[0] * 1000
                                                               for run in runs.values()]))
    svg = subprocess.run([args.draw, "plot"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout
    with open(args.plot, "w") as f:
        f.write(svg)


def main():
    args = arguments()
    agent = Agent(args.coord, limits={"http_max_conns_per_client": 2 * THREADS})
    fleet = Fleet(agent.ip)
    say("| policy   | requests | failed | median | 90 %%   | 99 %%, ms | %% of the requests at each server (speeds %s) |" %
        ", ".join("%g" % s for s in SPEEDS))
    say("|---|---|---|---|---|---|---|")
    runs = {policy: measure(args, policy, fleet) for policy in args.policies.split(",")}
    if args.plot:
        draw(args, runs)
    return 1 if any(run.failed for run in runs.values()) else 0


if __name__ == "__main__":
    play(main)
