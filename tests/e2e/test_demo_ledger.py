"""docs/demos/ledger in a small size: pauses lose deposits without fences, and none with them."""
import os, re, subprocess, sys
from coordtest import COORD, HERE, SLOW, check, run
from demos import ends_in_the_middle


def fences_lose_nothing():
    demo = os.path.join(HERE, "../../docs/demos/ledger/ledger.py")
    done = subprocess.run([sys.executable, demo, "--writers=4", "--pauses=2", "--coord=" + COORD], capture_output=True, text=True, timeout=200 * SLOW)
    lost = [int(n) for n in re.findall(r"lost +(\d+)", done.stdout)]
    print("     " + done.stdout.strip().replace("\n", "\n     "))
    check(done.returncode == 0 and len(lost) == 2 and lost[0] > 0 and lost[1] == 0, done)


def ended_in_the_middle():
    ends_in_the_middle("ledger", "without fences: pause 2")


run([fences_lose_nothing, ended_in_the_middle])
