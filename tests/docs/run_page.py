#!/usr/bin/python3
"""Runs the blocks of a page as they stand, in order, in one shell, beside what the page speaks of (worlds.py): run_page.py PAGE [PAGE...]

Each page has a network and processes of its own, so that ports are free, addresses are what the page calls them, and nothing is left when it ends:
kernel namespaces, which root may make, and mostly everybody. Skipped (77) where nobody may."""
import contextlib, os, shutil, signal, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests/lib"), os.path.join(ROOT, "tests/e2e")]
from blocks import Skip, Wrong, blocks_of, look_over
INSIDE = "COORD_TEST_INSIDE"
TOOLS = ("curl", "dig", "jq", "ip", "bash")


def go_inside():
    """Starts this program again, in namespaces of its own."""
    for tool in TOOLS:
        if not shutil.which(tool):
            print("skipped: no " + tool)
            sys.exit(77)
    for user in ([], ["--user", "--map-root-user"]):
        words = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*words, "sh", "-c", "ip link set lo up && mount -t tmpfs tmpfs /tmp"], capture_output=True).returncode == 0:
            os.execvpe("unshare", [*words, sys.executable, *sys.argv], dict(os.environ, **{INSIDE: "yes"}))
    print("skipped: no namespaces for networks and processes here")
    sys.exit(77)


def run(page, blocks):
    """One page. Raises Wrong, Skip, and what a world cannot bring about."""
    from worlds import world_of
    from session import Session
    for block in blocks:
        if block.shell() and block.reason:
            look_over(block, ROOT)
    if not any(runs(block) for block in blocks):
        return
    folder = tempfile.mkdtemp(prefix="coord-docs-")
    work = os.path.join(folder, "work")
    os.mkdir(work)
    world, session = world_of(page)(work), None
    try:
        world.start()
        session = Session(work, world.environment())
        for block in filter(runs, blocks):
            world.before(block)
            session.run(block)
        session.finish()
        session.end()
        world.end()
    finally:
        if session:
            session.end()
        world.kill()
        if os.getpid() == 1:                                # of this namespace: all others are the page's
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def runs(block):
    return block.shell() and not block.reason


def tell(page):
    """Runs a page, and says what came of it: "ok", "FAIL" or "skip"."""
    begun, blocks, path = time.monotonic(), [], os.path.relpath(os.path.abspath(page), ROOT)
    try:
        with open(page) as f:
            blocks = blocks_of(f.read())
        run(path, blocks)
        word = "ok"
    except Skip as e:
        word = "skip"
        print("skipped: %s" % e)
    except (Wrong, AssertionError) as e:                    # AssertionError: of coordtest
        word = "FAIL"
        print("%s: %s" % (path, e))
    left = [block for block in blocks if block.shell() and block.reason]
    print("%-4s %s: %d blocks run, %d not (%.1f s)" % (word, path, sum(map(runs, blocks)), len(left), time.monotonic() - begun))
    for block in left:
        print("     line %d: not run, %s" % (block.line, block.reason), flush=True)
    return word


def main():
    if not os.environ.get(INSIDE):
        go_inside()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if not any(path.startswith("/tmp/") for path in (ROOT, os.path.abspath(os.environ.get("COORD_BIN", "")))):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/tmp"], check=True)       # pages leave nothing there
    words = [tell(page) for page in sys.argv[1:]]
    sys.exit(1 if "FAIL" in words else 77 if "skip" in words else 0)


if __name__ == "__main__":
    main()
