"""docs/demos/ratelimit in a small size: no budget admits more than it may, whatever is killed, and a limiter that syncs does."""
import os, re, subprocess, xml.etree.ElementTree
from coordtest import COORD, SLOW, check, run, until
from demos import ROOT, command, ends_in_the_middle, files


def budgets_hold_and_a_limiter_that_syncs_does_not():
    before = files()
    done = subprocess.run(command("ratelimit") + ["--gateways=8", "--agents=4", "--windows=4", "--window=2", "--rate=200"], cwd=ROOT,
                          capture_output=True, text=True, timeout=200 * SLOW, env=dict(os.environ, COORD_BIN=COORD))
    print("     " + done.stdout.strip().replace("\n", "\n     "))
    check(done.returncode == 0 and len(done.stdout.splitlines()) == 5, done)
    check(len(re.findall(r"^ +\d\.\d s  lease ", done.stderr, re.M)) == 4 and "all servers stand still" in done.stderr, "it tells what goes on: " + done.stderr)
    check(files() == before, "it leaves what is kept as it is")
    path = os.path.join(ROOT, re.search(r"^drawn: (.+)$", done.stderr, re.M)[1])

    def lines():
        """Of the picture, which another build's test may be writing at this moment."""
        try:
            return xml.etree.ElementTree.parse(path).findall("{http://www.w3.org/2000/svg}path")
        except xml.etree.ElementTree.ParseError:
            return []
    until("a line for each limiter", lambda: len(lines()) == 4)


def ended_in_the_middle():
    """While its servers stand still."""
    ends_in_the_middle("ratelimit", "all servers stand still", "--gateways=2", "--agents=2", "--windows=30", "--window=1", "--rate=50")


run([budgets_hold_and_a_limiter_that_syncs_does_not, ended_in_the_middle])
