"""docs/demos/ratelimit in a small size: no budget admits more than it may, whatever is killed, and a limiter that syncs does."""
import os, subprocess, sys, xml.etree.ElementTree
from coordtest import COORD, HERE, SLOW, check, run
from demos import ends_in_the_middle


def budgets_hold_and_a_limiter_that_syncs_does_not():
    demo = os.path.join(HERE, "../../docs/demos/ratelimit/ratelimit.py")
    done = subprocess.run([sys.executable, demo, "--gateways=8", "--agents=4", "--windows=4", "--window=2", "--rate=200", "--svg=/dev/stdout"],
                          capture_output=True, text=True, timeout=200 * SLOW, env=dict(os.environ, COORD_BIN=COORD))
    report, _, svg = done.stdout.partition("<svg")
    print("     " + report.strip().replace("\n", "\n     "))
    check(done.returncode == 0, done)
    lines = xml.etree.ElementTree.fromstring("<svg" + svg).findall("{http://www.w3.org/2000/svg}path")
    check(len(lines) == 4, "a line for each limiter")


def ended_in_the_middle():
    """While its servers stand still."""
    ends_in_the_middle("ratelimit", "all servers stand still", "--gateways=2", "--agents=2", "--windows=30", "--window=1", "--rate=50")


run([budgets_hold_and_a_limiter_that_syncs_does_not, ended_in_the_middle])
