"""docs/demos/ratelimit in a small size: no budget admits more than it may, whatever is killed, and a limiter that syncs does."""
import os, subprocess, sys, xml.etree.ElementTree
from coordtest import COORD, HERE, SLOW, check, run


def budgets_hold_and_a_limiter_that_syncs_does_not():
    demo = os.path.join(HERE, "../../docs/demos/ratelimit/ratelimit.py")
    done = subprocess.run([sys.executable, demo, "--gateways=8", "--agents=4", "--windows=4", "--window=2", "--rate=200", "--svg=/dev/stdout"],
                          capture_output=True, text=True, timeout=200 * SLOW, env=dict(os.environ, COORD_BIN=COORD))
    report, _, svg = done.stdout.partition("<svg")
    print("     " + report.strip().replace("\n", "\n     "))
    check(done.returncode == 0, done)
    lines = xml.etree.ElementTree.fromstring("<svg" + svg).findall("{http://www.w3.org/2000/svg}path")
    check(len(lines) == 4, "a line for each limiter")


run([budgets_hold_and_a_limiter_that_syncs_does_not])
