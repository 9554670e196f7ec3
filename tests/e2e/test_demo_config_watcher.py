"""docs/demos/config-watcher in a small size: stages add watchers, the guard takes the bad version back, keys follow the pointer."""
import os, subprocess, sys
from coordtest import COORD, HERE, SLOW, check, run
from demos import ends_in_the_middle


def as_the_readme_has_it():
    demo = os.path.join(HERE, "../../docs/demos/config-watcher/watcher.py")
    for hold in (1, 3, 6):         # each step is to be seen while it lasts: on a machine that stands still for longer, it has to last longer
        done = subprocess.run([sys.executable, demo, "--watchers=20", "--hold=%g" % (hold * SLOW), "--coord=" + COORD], capture_output=True, text=True, timeout=200 * SLOW)
        print("     " + done.stdout.strip().replace("\n", "\n     "))
        if done.returncode == 0:
            break
    check(done.returncode == 0 and not done.stderr, done)
    with open(os.path.join(os.path.dirname(demo), "README.md")) as f:
        readme = f.read()
    for line in done.stdout.split("\n\n")[0].splitlines():
        check(line[9:40].strip() in readme, "the README has this step: " + line)
    check("refused it: more than 5 %" in done.stdout, "the reason")


def ended_in_the_middle():
    ends_in_the_middle("config-watcher", "v2 for 10 %")


run([as_the_readme_has_it, ended_in_the_middle])
