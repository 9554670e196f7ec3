#!/bin/sh
# An input that burns CPU time fails the run and is saved; one that only takes long does not.
#   check_cpu_limit.sh PROGRAM
set -eu
program=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
printf B >"$tree/burns"
printf W >"$tree/waits"
mkdir "$tree/found"

"$program" -timeout=300 "$tree/waits" >"$tree/log" 2>&1 || { cat "$tree/log"; echo "an input that waits fails the run"; exit 1; }
if "$program" -timeout=300 -artifact_prefix="$tree/found/" "$tree/burns" >"$tree/log" 2>&1; then
    echo "an input that burns CPU time passes"
    exit 1
fi
grep -q "one input took 2 s of CPU time" "$tree/log" || { cat "$tree/log"; echo "it failed for another reason"; exit 1; }
# As in a run: found among inputs that were made up.
mkdir "$tree/corpus"
cp "$tree/burns" "$tree/corpus"
if "$program" -timeout=300 -runs=1000 -artifact_prefix="$tree/found/" "$tree/corpus" >"$tree/log" 2>&1; then
    echo "a run with an input that burns CPU time passes"
    exit 1
fi
for saved in "$tree"/found/crash-*; do
    cmp -s "$saved" "$tree/burns" || { cat "$tree/log"; echo "the input was not saved"; exit 1; }
done
