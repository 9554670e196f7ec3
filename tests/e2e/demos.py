"""For tests of the demos in docs/demos: each is started as its README says, and ended in the middle."""
import os, re, signal, subprocess, tempfile, time
from coordtest import COORD, HERE, SLOW, STANDSTILL, check, together, until

ROOT = os.path.abspath(os.path.join(HERE, "../.."))
DEMOS = os.path.join(ROOT, "docs/demos")


def command(name):
    """The words that start the demo, of its README."""
    with open(os.path.join(DEMOS, name, "README.md")) as f:
        block = re.search(r"```sh\n(.*?)```", f.read(), re.S)[1]
    lines = [line.partition("#")[0].split() for line in block.splitlines()]
    return next(words for words in lines if words and any("docs/demos/" in word for word in words))


def files():
    """What lies in docs/demos, and since when it is as it is."""
    found = {}
    for folder, _, names in os.walk(DEMOS):
        if not folder.endswith("__pycache__"):
            for name in names:
                status = os.stat(os.path.join(folder, name))
                found[os.path.join(folder, name)] = (status.st_size, status.st_mtime_ns)
    return found


def living(folder):
    """The processes whose folder for temporary files lies there: the demo's, whatever they have become."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                if b"\0TMPDIR=" + folder.encode() in b"\0" + f.read():
                    found.append(int(pid))
        except OSError:
            pass                                    # it has ended meanwhile
    return found


def seconds_to_end(words, sign, how):
    """Starts it; when it has printed `sign`, ends it, which takes so long. Nothing is left, and it has no complaints."""
    with tempfile.TemporaryDirectory(prefix="coord-e2e-") as folder:
        said = open(os.path.join(folder, "said"), "w+b")
        out = subprocess.PIPE if how == "nobody reads" else said
        demo = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=said, start_new_session=True,
                                env=dict(os.environ, COORD_BIN=COORD, TMPDIR=folder))

        def text():
            return os.pread(said.fileno(), 1 << 20, 0).decode() + shown
        shown = ""
        while out == subprocess.PIPE and sign not in text() and demo.poll() is None:     # on stdout or on stderr
            shown += line_of(demo)
        until("%s: %s" % (" ".join(words), sign), lambda: sign in text() or demo.poll() is not None, 60)
        check(demo.poll() is None, "it has ended by itself: %s" % text())
        begun = time.monotonic()
        if how == "Ctrl-C":
            os.killpg(demo.pid, signal.SIGINT)
        elif how == "SIGTERM":
            demo.terminate()
        else:
            demo.stdout.close()
        try:
            demo.wait(60 * SLOW)
            took = time.monotonic() - begun
            until("nothing is left of it", lambda: not living(folder), 2)
        finally:
            for pid in living(folder):
                os.kill(pid, signal.SIGKILL)
        check(demo.returncode > 128, "%s: exit code %d" % (how, demo.returncode))
        check("Traceback" not in text() and "Exception" not in text(), "%s: %s" % (how, text()))
        said.close()
        os.remove(said.name)
        check(not os.listdir(folder), "%s leaves %s" % (how, os.listdir(folder)))
    return took


def line_of(demo):
    """More of its stdout, if there is more at once."""
    os.set_blocking(demo.stdout.fileno(), False)
    more = demo.stdout.read()
    time.sleep(0 if more else 0.02)
    return more.decode() if more else ""


def ends_in_the_middle(name, sign, *more):
    """By Ctrl-C, SIGTERM, and when nobody reads what it prints: within 2 s. A machine that stands still makes that longer, so it is measured again."""
    before = files()

    def ends(how):
        took = []
        while not took or took[-1] > 2 * SLOW:
            check(len(took) < 3, "%s by %s ends after %r s" % (name, how, took))
            took.append(seconds_to_end(command(name) + list(more), sign, how))
    together(*(named(ends, how) for how in ("Ctrl-C", "SIGTERM", "nobody reads")))
    check(files() == before, "docs/demos is as it was")


def named(story, how):
    def told():
        story(how)
    told.__name__ = how
    return told
