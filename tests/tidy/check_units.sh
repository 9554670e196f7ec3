#!/bin/sh
# That many test_*.c share a program changes nothing of what is tested:
# - each Test() of tests/<folder>/test_*.c is in one of the programs, once;
# - no file has a global name that the others of its program would get: a function of a library that it replaces, say.
#   check_units.sh ROOT PROGRAMS OBJECTS [FOLDER/TEST ...]     files with a path a line; tests that this build leaves out
set -eu
root=$1
written=$(mktemp)
linked=$(mktemp)
trap 'rm -f "$written" "$linked"' EXIT
grep -cE '^(Test|ParameterizedTest|Theory)\(' "$root"/tests/*/test_*.c | sed 's,.*/tests/,,' | sort >"$written"
programs=$2 objects=$3
shift 3
for name in "$@"; do
    sed -i "\\,^$name\\.c:,d" "$written"
done
while read -r program; do
    "$program" --files
done <"$programs" | sed 's,.*/tests/,,' | sort | uniq -c | sed -E 's/^ *([0-9]+) (.*)/\2:\1/' | sort >"$linked"
diff "$written" "$linked" || { echo "left: how many Test() a file has; right: how many of it are linked"; exit 1; }
# Criterion's macros make these; equal ones of two files do not link. What the compiler makes for a sanitizer is weak or local.
shared=$(xargs nm -A -g --defined-only <"$objects" | grep ' [TDBRSGC] ' | grep -vE '_(impl|jmp|extra|meta|ptr)$' || true)
if [ -n "$shared" ]; then
    echo "$shared"
    echo "make them static, or the file a program of its own (tests/CMakeLists.txt)"
    exit 1
fi
awk -F : '{n += $2} END {print n " tests in " NR " files"; exit n == 0}' "$linked"
