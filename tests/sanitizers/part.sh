#!/bin/sh
# One of the other builds' tests, as a single test of this one: part.sh asan | tsan | fuzz. What passed has a line in the log
# of that build (build/PRESET/Testing/Temporary/LastTest.log) only, so that what failed is not lost among it. The fuzzers
# belong to the build of asan, and have a log of their own in build/asan/tests/fuzz/.
set -u
case $1 in
    fuzz)
        log=build/asan/tests/fuzz/part.log
        ctest --test-dir build/asan/tests/fuzz -j 2 --output-on-failure >"$log" 2>&1
        ;;
    *)
        log=build/$1/part.log
        ctest --preset "$1" >"$log" 2>&1
        ;;
esac
result=$?
grep -vE '^ *Start +[0-9]+:|^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed ' "$log"
exit $result
