#!/bin/sh
# One of the other builds' tests, as a single test of this one: part.sh PRESET. What passed has a line in the log of that
# build (build/PRESET/Testing/Temporary/LastTest.log) only, so that what failed is not lost among it.
set -u
log=build/$1/part.log
ctest --preset "$1" >"$log" 2>&1
result=$?
grep -vE '^ *Start +[0-9]+:|^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed ' "$log"
exit $result
