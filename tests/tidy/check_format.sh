#!/bin/sh
# Fails when a C file is not as `./dev format` would write it. check_format.sh ROOT
set -eu
cd "$1"
find . \( -name build -o -name .git \) -prune -o -name '*.[ch]' -print0 | xargs -0 -P 2 -n 40 clang-format --dry-run -Werror
echo "formatted"
