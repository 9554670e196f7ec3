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
    ["registry", "consensus"],
    ["kv", "lb"],
    ["rpc"],
    ["health", "multi-dc"],
    ["http", "dns"],
    ["agent"],
]
FLOOR_OF = {folder: number for number, floor in enumerate(FLOORS) for folder in floor}
MOST_LINES = 900
COUNTED = {".c", ".h", ".proto", ".py", ".sh", ".cmake", ".supp"}
COUNTED_NAMES = {"dev", "CMakeLists.txt"}
SKIPPED = {"build", ".git", "bench-results", "__pycache__", "node_modules"}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
IMPORT = re.compile(r'^\s*import\s+(?:public\s+)?"([^"]+)"\s*;', re.MULTILINE)


def judge(folder, target, root):
    """What is wrong with `folder` including `target`; None when it is fine."""
    parts = target.split("/")
    if len(parts) != 2 or parts[0] not in FLOOR_OF:
        return "is not written as folder/file"
    there = parts[0]
    if there != folder and FLOOR_OF[there] >= FLOOR_OF[folder]:
        return "runs sideways" if FLOOR_OF[there] == FLOOR_OF[folder] else "runs up"
    source = re.sub(r"\.pb-c\.h$", ".proto", target)
    return None if (root / source).is_file() else "names no file"


def include_faults(root):
    for folder in FLOOR_OF:
        for path in sorted((root / folder).glob("*")):
            pattern = IMPORT if path.suffix == ".proto" else INCLUDE
            if path.suffix not in (".c", ".h", ".proto"):
                continue
            for target in pattern.findall(path.read_text()):
                fault = judge(folder, target, root)
                if fault:
                    yield f"{folder}/{path.name}: include of {target} {fault}"


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
        ({"kv/a.c": '#include "registry/store.h"\n', "registry/store.h": ""}, ""),
        ({"http/a.c": '#include "kv/kv.pb-c.h"\n', "kv/kv.proto": 'import "registry/c.proto";\n',
          "registry/c.proto": ""}, ""),
        ({"base/a.c": '#include "kv/kv.h"\n', "kv/kv.h": ""}, "runs up"),
        ({"base/a.h": '  #  include "agent/agent.h"\n', "agent/agent.h": ""}, "runs up"),
        ({"kv/a.c": '#include "lb/lb.h"\n', "lb/lb.h": ""}, "runs sideways"),
        ({"consensus/a.c": '#include "registry/store.h"\n', "registry/store.h": ""}, "runs sideways"),
        ({"dns/a.c": '#include "http/http.h"\n', "http/http.h": ""}, "runs sideways"),
        ({"registry/a.proto": 'import "kv/kv.proto";\n', "kv/kv.proto": ""}, "runs up"),
        ({"kv/a.c": '#include "kv.h"\n', "kv/kv.h": ""}, "not written as folder/file"),
        ({"kv/a.c": '#include "tests/help.h"\n', "tests/help.h": ""}, "not written as folder/file"),
        ({"kv/a.c": '#include "base/gone.h"\n'}, "names no file"),
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
