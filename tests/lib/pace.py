"""How slow the program is here. Under sanitizers CMake sets COORD_TEST_SLOW: deadlines stretch by it, figures are not judged, and servers that
elect each other wait longer for one another (performance.raft_multiplier), else a leader that is only slow is replaced. STANDSTILL: a machine that
runs many tests may stand still for some seconds, its disk for longer; whoever polls for something gives it so many seconds more."""
import json, os


class Late(AssertionError):
    """Something did not come within its time. The release build fails by that. Under sanitizers, where two suites share a machine, the story is told
    once more, unless a server reported a fault or ended by itself. Late twice, it fails."""


SLOW = float(os.environ.get("COORD_TEST_SLOW", "1"))
STANDSTILL = 10
MULTIPLIER = max(1, min(10, round(SLOW)))
CONFESSIONS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer", "runtime error:", "internal error at")    # what no log may hold


def only_late(error):
    """Whether a story that ended so may be told once more."""
    return SLOW > 1 and isinstance(error, (Late, TimeoutError))


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
