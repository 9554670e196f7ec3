"""How slow the program is here, and where the files of a story lie.

Under sanitizers CMake sets COORD_TEST_SLOW: deadlines stretch by it, figures are not judged, and servers that elect each other wait longer for one
another (performance.raft_multiplier), because a leader that is only slow would be replaced. STANDSTILL: a machine that runs many tests may stand still
for some seconds; a poll waits so many seconds more.

Where this process may mount, its temporary folder is in memory: a disk that stands still makes leaders hand over, and that is another story than the
one that is told. Stories about disks mount their own. The mounts are in a namespace of this process, so the kernel removes them with it."""
import ctypes, json, os, signal, subprocess, tempfile


class Late(AssertionError):
    """Something did not come within its time."""


SLOW = float(os.environ.get("COORD_TEST_SLOW", "1"))
STANDSTILL = 25
FIGURES = SLOW == 1 and "COORD_TEST_FIGURES" in os.environ    # promises of time are judged: ./dev test --all, where stories that judge them run alone
MULTIPLIER = max(1, min(10, round(SLOW)))
DISK = tempfile.gettempdir()     # what is kept for people after a failure goes here
CLONE_NEWNS = 0x00020000
CONFESSIONS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer", "runtime error:", "internal error at")    # what no log may hold


def undecided(status, answer):
    """What a write may be told while servers elect a leader (also because the leader's disk stood still): it may or may not have been done, or nobody
    took it. No failure of the program: it is written again, by the only writer of what it writes."""
    return status == 500 and (b"outcome unknown" in answer or b"No cluster leader" in answer)


def server_arguments(folder):
    """Arguments for each server of a cluster; what they name is written into `folder`."""
    if MULTIPLIER == 1:
        return []
    path = os.path.join(folder, "pace.json")
    with open(path, "w") as f:
        json.dump({"performance": {"raft_multiplier": MULTIPLIER}}, f)
    return ["-config-file=" + path]


def _in_memory():
    used = [os.path.abspath(path) + "/" for path in (__file__, os.getcwd(), os.environ.get("COORD_BIN", "."))]
    folder = next((path for path in ("/mnt", "/media", "/srv") if os.path.isdir(path) and not any(u.startswith(path + "/") for u in used)), None)
    if folder and os.geteuid() == 0 and ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0 and \
            all(subprocess.run(words, capture_output=True).returncode == 0
                for words in (["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", "size=75%,mode=1777", "coord-test", folder])):
        tempfile.tempdir = os.environ["TMPDIR"] = folder


_in_memory()
signal.signal(signal.SIGINT, signal.default_int_handler)     # a shell ignores it in what it starts in the background, and children would inherit that
