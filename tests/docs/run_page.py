#!/usr/bin/python3
"""Runs the blocks of a page as they stand, in order, in one shell, beside what the page speaks of (worlds.py): run_page.py PAGE [PAGE...]

Each page has a network and processes of its own, so that ports are free, addresses are what the page calls them, and nothing is left when it ends:
kernel namespaces, which root may make, and mostly everybody. Skipped (77) where nobody may."""
import json, os, shutil, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests/lib"), os.path.join(ROOT, "tests/e2e")]
from blocks import Wrong, blocks_of
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
        if subprocess.run([*words, "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0:
            os.execvpe("unshare", [*words, sys.executable, *sys.argv], dict(os.environ, **{INSIDE: "yes"}))
    print("skipped: no namespaces for networks and processes here")
    sys.exit(77)


def run(page, blocks):
    """One page. Raises Wrong."""
    from worlds import world_of
    from session import Session
    folder = tempfile.mkdtemp(prefix="coord-docs-")
    work = os.path.join(folder, "work")
    os.mkdir(work)
    world = session = None
    try:
        world = world_of(page)(work)
        world.start()
        session = Session(work, world.environment())
        for block in blocks:
            if block.shell() and not block.reason:
                world.before(block)
                try:
                    session.run(block)
                except Wrong as e:
                    raise Wrong("the block at line %d: %s" % (block.line, e)) from None
        session.end()
        world.end()
    finally:
        if session:
            session.end()
        if world:
            world.kill()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    if not os.environ.get(INSIDE):
        go_inside()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    failed = False
    for page in sys.argv[1:]:
        begun, blocks, path = time.monotonic(), [], os.path.relpath(os.path.abspath(page), ROOT)
        try:
            with open(page) as f:
                blocks = blocks_of(f.read())
            run(path, blocks)
            word = "ok  "
        except Wrong as e:
            failed, word = True, "FAIL"
            print("%s: %s" % (path, e), flush=True)
        shell = [b for b in blocks if b.shell()]
        print("%s %s: %d blocks run, %d not (%.1f s)" % (word, path, sum(not b.reason for b in shell), sum(bool(b.reason) for b in shell),
                                                        time.monotonic() - begun), flush=True)
        for block in shell:
            if block.reason:
                print("     line %d not run: %s" % (block.line, block.reason), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
