#!/bin/sh
# The runner of units under sanitizers (lib/units_forked.c) tells what passes from what does not: check_units_bite.sh PROGRAM
set -u
reports=$(mktemp -d) # these are expected
trap 'rm -rf "$reports"' EXIT
options="log_path=$reports/report:exitcode=99"
export ASAN_OPTIONS="$options" TSAN_OPTIONS="$options" UBSAN_OPTIONS="$options" LSAN_OPTIONS="log_path=$reports/report"
for apart in "" --apart; do
# shellcheck disable=SC2086
said=$("$1" $apart 2>&1) && { echo "it ends with 0: $said"; exit 1; }
one() { echo "$said" | grep -qF "$1" || { echo "it does not say \"$1\":"; echo "$said"; exit 1; }; }
one "bite::is_skipped: as it says"
one "expected"
one "asserted"
one "the test comes before its end"
one "bite::crashes: Aborted"
one "bite::takes_too_long: Alarm clock"
if strings -n 9 "$1" | grep -q __asan_init; then
    one "bite::leaks"
    one "bite::writes_beyond"
    one "Tested: 10 | Passing: 3 | Failing: 7 | Crashing: 4"
else
    one "Tested: 8 | Passing: 3 | Failing: 5 | Crashing: 2"
fi
done
"$1" --filter 'bite/passes*' >/dev/null || { echo "what passes ends with another code than 0"; exit 1; }
"$1" --filter 'bite/crashes' 2>/dev/null >/dev/null && { echo "a crash ends with 0"; exit 1; }
echo "each way to end is told"
