"""docs/demos/balancer in a small size: real servers of different speed, and a client that goes by their loads."""
import os, re, subprocess, sys, tempfile
from coordtest import COORD, HERE, SLOW, check, run
from demos import ends_in_the_middle


def measured():
    """The slowest server's share of the requests in percent, and the milliseconds that 90 % of them took: by policy."""
    demo, draws = os.path.join(HERE, "../../docs/demos/balancer/balancer.py"), os.path.join(os.path.dirname(COORD), "tests/balance/balance")
    with tempfile.TemporaryDirectory() as folder:
        plot = os.path.join(folder, "plot.svg")
        more = ["--plot=" + plot, "--draw=" + draws] if os.path.exists(draws) else []
        done = subprocess.run([sys.executable, demo, "--policies=random,p2c", "--seconds=3", "--coord=" + COORD] + more, capture_output=True, text=True, timeout=200 * SLOW)
        print("     " + done.stdout.strip().replace("\n", "\n     "))
        check(done.returncode == 0, done)
        rows = {row[0].strip(): row[1:] for row in (line.strip("|").split("|") for line in done.stdout.splitlines()) if row[0].strip() in ("random", "p2c")}
        check(all(int(row[0]) > 200 and int(row[1]) == 0 for row in rows.values()), rows)
        slowest = {policy: int(row[-1].split()[-1]) for policy, row in rows.items()}
        if more:
            with open(plot) as f:
                text = f.read()
            check(text.startswith("<svg") and len(re.findall("<path", text)) == 2 and ">random<" in text and ">p2c<" in text, text)
    return slowest, {policy: float(row[3]) for policy, row in rows.items()}


def loads_take_requests_away_from_slow_servers():
    """In one of three runs: a machine that is busy with others is slow wherever a request goes."""
    runs = []
    while not any(share["p2c"] < 0.75 * share["random"] and took["p2c"] < took["random"] for share, took in runs):
        check(len(runs) < 3, "shares and times: %r" % runs)
        runs.append(measured())


def ended_in_the_middle():
    ends_in_the_middle("balancer", "random: 20 s")


run([loads_take_requests_away_from_slow_servers, ended_in_the_middle])
