#!/bin/sh
# Fails, and shows them, when the sanitizers wrote a report under DIR/*/sanitizer-reports/. The exit code of a test
# alone does not tell: a leak inside a Criterion test, or a race in a server that a test started, leaves it at 0.
#   check_reports.sh DIR | --self-test
set -eu

check() {
    found=0
    for report in "$1"/*/sanitizer-reports/*; do
        [ -e "$report" ] || continue
        found=1
        echo "==== $report"
        # The whole is in the file; what is far from the fault would fill the log.
        grep -vE '^ +#([7-9]|[1-9][0-9]+) ' "$report" | head -n 70
    done
    return $found
}

self_test() {
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    mkdir -p "$tree/asan/sanitizer-reports" "$tree/tsan/sanitizer-reports"
    check "$tree" >/dev/null || { echo "no report, but the check fails"; return 1; }
    echo "WARNING: data race" >"$tree/tsan/sanitizer-reports/report.17"
    if check "$tree" >/dev/null; then echo "a report, but the check passes"; return 1; fi
}

case ${1-} in
    --self-test) self_test ;;
    '') echo "usage: check_reports.sh DIR | --self-test" >&2; exit 2 ;;
    *) check "$1" ;;
esac
