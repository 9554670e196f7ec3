#!/bin/sh
# Fails when docs/reference.md is not what the program's tables say. check_reference.sh COORD ROOT
if "$1" reference | diff -u "$2/docs/reference.md" -; then
    echo "as the tables say"
else
    echo "docs/reference.md is stale: ./dev docs writes it anew" >&2
    exit 1
fi
