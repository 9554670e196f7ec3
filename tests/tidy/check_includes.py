#!/usr/bin/python3
"""Checks the house: no include runs up or sideways, and no file grows past 900 lines.

    check_includes.py ROOT         checks a tree, one line per fault
    check_includes.py --self-test  shows on small trees that each rule bites
"""

import pathlib
import re
import sys
import tempfile

# From the ground up. A folder includes itself and the floors below; neighbours on one floor never meet.
FLOORS = [
    ["base"],
    ["tls"],
    ["registry", "consensus"],
    ["acl", "kv", "lb"],
    ["rpc"],
    ["health", "multi-dc"],
    ["http", "dns"],
    ["agent"],
]
FLOOR_OF = {folder: number for number, floor in enumerate(FLOORS) for folder in floor}
# Folders with rooms. Rooms have floors of their own, by the same rule; "" stands for files of the folder itself, and where it
# is not listed all files are in rooms.
ROOMS = {
    "http": [[""], ["api"]],
    "kv": [["session", "event"], ["lock"], ["*"], ["txn", "stream", "rollout", "holding", "quota_owner"]],  # "*": every other folder, a module of its own
    "rpc": [
        ["wire", "offline"],
        ["api"],
        ["cluster", "quota", "keyring"],
        ["forward", "ask"],
        ["core"],
        ["backup", "leader"],
        ["audit", "reads"],
        ["agents"],
        ["server"],
        ["client"],
    ],
}
# Headers with the inside of a folder: only the sources of the folder itself (of no room) include them, and these headers.
INSIDE = {"http/impl.h", "http/answers.h"}
MOST_LINES = 900
COUNTED = {".c", ".h", ".proto", ".py", ".sh", ".cmake", ".supp"}
COUNTED_NAMES = {"dev", "CMakeLists.txt"}
SKIPPED = {"build", ".git", "bench-results", "__pycache__", "node_modules"}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
IMPORT = re.compile(r'^\s*import\s+(?:public\s+)?"([^"]+)"\s*;', re.MULTILINE)


def order(there, here, floor_of):
    """What is wrong with `here` including `there`; None when it is fine."""
    if there == here or floor_of[there] < floor_of[here]:
        return None
    return "runs sideways" if floor_of[there] == floor_of[here] else "runs up"


def judge(folder, room, target, root):
    """What is wrong with a file of folder/room (room "": of the folder) including `target`; None when it is fine."""
    *folders, name = target.split("/")
    there, there_room = (folders + [""])[:2] if folders else ("", "")
    own_files = there not in ROOMS or [""] in ROOMS[there]
    if there not in FLOOR_OF or len(folders) > 2 or (not there_room and not own_files) or (there_room and there not in ROOMS):
        return "is not written as folder/file, or folder/room/file where the folder has rooms"
    fault = order(there, folder, FLOOR_OF)
    if not fault and there == folder and folder in ROOMS:
        floor_of = {name: number for number, floor in enumerate(ROOMS[folder]) for name in floor}
        if "*" in floor_of:
            floor_of = {there_room: floor_of["*"], room: floor_of["*"], **floor_of}
        fault = "names no room" if there_room not in floor_of else order(there_room, room, floor_of)
    source = root / re.sub(r"\.pb-c\.h$", ".proto", target)
    return fault or (None if source.is_file() else "names no file")


def enters(inside, target):
    """Does this file include the inside of a folder that is not its own?"""
    own = inside.parent.as_posix() == target.rpartition("/")[0] and inside.suffix == ".c"
    return target in INSIDE and not own and inside.as_posix() not in INSIDE


def include_faults(root):
    for folder in FLOOR_OF:
        known = {room for floor in ROOMS.get(folder, []) for room in floor}
        for path in sorted((root / folder).rglob("*")):
            pattern = IMPORT if path.suffix == ".proto" else INCLUDE
            if path.suffix not in (".c", ".h", ".proto"):
                continue
            inside = path.relative_to(root)
            room = "/".join(inside.parts[1:-1])
            if room not in (known or {""}) and not ("*" in known and room and "/" not in room):
                yield f"{inside}: is in no room" if folder in ROOMS else f"{inside}: {folder}/ has no rooms"
                continue
            for target in pattern.findall(path.read_text()):
                fault = judge(folder, room, target, root)
                if not fault and enters(inside, target):
                    fault = "enters the inside of the engine: its headers for endpoints are the others of http/"
                if fault:
                    yield f"{inside}: include of {target} {fault}"


def length_faults(root):
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if SKIPPED.intersection(inside.parts) or not path.is_file():
            continue
        if path.suffix not in COUNTED and path.name not in COUNTED_NAMES:
            continue
        lines = path.read_bytes().count(b"\n")
        if lines >= MOST_LINES:
            yield f"{inside}: {lines} lines, at most {MOST_LINES - 1} are allowed"


def faults(root):
    return list(include_faults(root)) + list(length_faults(root))


def self_test():
    cases = [  # files, a part of the one fault that is expected ("" for none)
        ({"lb/a.c": '#include "registry/store.h"\n', "registry/store.h": ""}, ""),
        ({"http/a.c": '#include "kv/keys/kv.pb-c.h"\n', "kv/keys/kv.proto": 'import "registry/c.proto";\n',
          "registry/c.proto": ""}, ""),
        ({"base/a.c": '#include "lb/lb.h"\n', "lb/lb.h": ""}, "runs up"),
        ({"base/a.h": '  #  include "agent/agent.h"\n', "agent/agent.h": ""}, "runs up"),
        ({"kv/keys/a.c": '#include "lb/lb.h"\n', "lb/lb.h": ""}, "runs sideways"),
        ({"consensus/a.c": '#include "registry/store.h"\n', "registry/store.h": ""}, "runs sideways"),
        ({"dns/a.c": '#include "http/http.h"\n', "http/http.h": ""}, "runs sideways"),
        ({"registry/a.proto": 'import "kv/keys/kv.proto";\n', "kv/keys/kv.proto": ""}, "runs up"),
        ({"lb/a.c": '#include "lb.h"\n', "lb/lb.h": ""}, "not written as folder/file"),
        ({"lb/a.c": '#include "tests/help.h"\n', "tests/help.h": ""}, "not written as folder/file"),
        ({"lb/a.c": '#include "base/gone.h"\n'}, "names no file"),
        ({"kv/keys/a.c": '#include "kv/session/s.h"\n', "kv/session/s.h": ""}, ""),
        ({"kv/session/a.c": '#include "kv/keys/kv.h"\n', "kv/keys/kv.h": ""}, "runs up"),
        ({"kv/session/a.c": '#include "kv/event/e.h"\n', "kv/event/e.h": ""}, "runs sideways"),
        ({"kv/a.c": ""}, "in no room"),
        ({"rpc/cellar/a.c": ""}, "in no room"),
        ({"kv/lock/a.c": '#include "kv/session/s.h"\n', "kv/session/s.h": ""}, ""),
        ({"kv/lock/a.c": '#include "kv/keys/k.h"\n', "kv/keys/k.h": ""}, "runs up"),
        ({"kv/fence/a.c": '#include "kv/lock/l.h"\n', "kv/lock/l.h": ""}, ""),
        ({"kv/fence/a.c": '#include "kv/keys/k.h"\n', "kv/keys/k.h": ""}, "runs sideways"),
        ({"kv/session/a.c": '#include "kv/lock/l.h"\n', "kv/lock/l.h": ""}, "runs up"),
        ({"lb/cellar/a.c": ""}, "has no rooms"),
        ({"http/api/a.c": '#include "http/h.h"\n', "http/h.h": ""}, ""),
        ({"http/api/a.c": '#include "http/api/b.h"\n', "http/api/b.h": ""}, ""),
        ({"http/a.c": '#include "http/h.h"\n', "http/h.h": ""}, ""),
        ({"http/a.c": '#include "http/api/b.h"\n', "http/api/b.h": ""}, "runs up"),
        ({"agent/a.c": '#include "http/h.h"\n', "http/h.h": ""}, ""),
        ({"http/cellar/a.c": ""}, "in no room"),
        ({"http/a.c": '#include "http/impl.h"\n', "http/impl.h": '#include "http/answers.h"\n',
          "http/answers.h": '#include "http/impl.h"\n'}, ""),
        ({"http/api/a.c": '#include "http/impl.h"\n', "http/impl.h": ""}, "enters the inside"),
        ({"http/api/a.c": '#include "http/answers.h"\n', "http/answers.h": ""}, "enters the inside"),
        ({"http/sse.h": '#include "http/impl.h"\n', "http/impl.h": ""}, "enters the inside"),  # endpoints include sse.h
        ({"agent/a.c": '#include "http/impl.h"\n', "http/impl.h": ""}, "enters the inside"),
        ({"http/a.c": '#include "kv/kv.h"\n', "kv/keys/kv.h": ""}, "not written as folder/file"),
        ({"tests/kv/test_a.c": "\n" * (MOST_LINES - 1)}, ""),
        ({"tests/kv/test_a.c": "\n" * MOST_LINES}, "lines, at most"),
        ({"build/generated.c": "\n" * MOST_LINES}, ""),
    ]
    bad = 0
    for files, expected in cases:
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            found = faults(root)
        fine = not found if expected == "" else len(found) == 1 and expected in found[0]
        if not fine:
            bad += 1
            print(f"self-test: {files!r}: expected {expected!r}, found {found!r}"[:400])
    return bad


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    found = faults(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
