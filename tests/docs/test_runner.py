#!/usr/bin/python3
"""The runner of pages finds what is wrong in them: small pages that are right, and such that say what is not so."""
import os, sys
import run_page
from blocks import Wrong, blocks_of, matches

RIGHT = {
    "commands, variables and functions are those of the blocks before": "```sh\nf() { echo $((x + 1)); }\nx=1\n```\n```console\n$ f\n2\n$ x=5; f\n6\n```\n",
    "a failure that is asked for": "```sh\nif false; then exit 1; fi\n! false\nfalse || true\n```\n",
    "an error that is shown, and its code": "```console\n$ ls /nowhere\nls: cannot access '/nowhere': No such file or directory\n$ echo $?\n2\n```\n",
    "a command of several lines": "```console\n$ printf '%s\n> ' 'a\n    b'\na\n    b\n>\n```\n",
    "what a command in the background says later": "```console\n$ (sleep 0.3; echo late) & (sleep 1000) &\n$ wait %1\nlate\n$ kill %2\n```\n",
    "something that takes a moment": "```console\n$ python3 -m http.server 8500 > /dev/null 2>&1 &\n$ curl -o /dev/null -w '%{http_code}\\n' localhost:8500/\n200\n$ kill %1\n```\n",
    "refused, as it is shown": "```sh\nnc() { python3 -m http.server 8500; }; nc > /dev/null 2>&1 &\nuntil curl localhost:8500/ 2> /dev/null; do sleep 0.05; done\n```\n"
                               "```console\n$ curl localhost:8500/none | grep -o 'File not found' | head -1\nFile not found\n```\n",
    "a program": "```sh\n#!/bin/sh\n# hello.sh NAME  greets\necho hello $1\n```\n```console\n$ sh hello.sh world\nhello world\n```\n",
    "not run": "<!-- not run: it would fail -->\n```sh\nfalse\n```\n",
    "in the background, until it is ended": "```sh\nsleep 1000 &\nfalse & wait $! || true\nkill %1\n```\n",
    "tildes, and a block in a block": "~~~sh\ntrue\n~~~\n````console\n$ echo '```'\n```\n````\n",
    "in a list": "- so:\n\n  ```console\n  $ echo a\n  a\n  ```\n",
}
WRONG = {
    "```sh\ntrue\nfalse\ntrue\n```\n": "line 3: exit code 1 of: false",
    "```sh\nfalse | true\n```\n": "exit code 1",
    "```sh\necho $nothing\n```\n": "nothing: unbound variable",
    "```sh\nf() { false; }\nf\n```\n": "exit code 1 of: false",
    "```sh\nfor i in 1 2; do (exit $((i % 2))) & done; wait\n```\n": "exit code 1",
    "```sh\nexit 0\n```\n```sh\ntrue\n```\n": "exit code None",
    "~~~sh\nfalse\n~~~\n": "exit code 1 of: false",
    "~~~ sh\nfalse\n```\n": "has no end",
    "```sh -e\nfalse\n```\n": "is one word in lower case",
    "```sh\n(exit 3) &\nsleep 0.3\n```\n": "in the background ended with exit code 3",
    "```sh\npython3 -m http.server 8500 > /dev/null 2>&1 &\nuntil curl localhost:8500/ 2> /dev/null; do sleep 0.05; done\ncurl localhost:8500/none\n```\n": "returned error: 404",
    "```console\n$ echo a\nb\n```\n": "the page shows:\nb\nit printed:\na",
    "```console\n$ echo a\n```\n": "it printed:\na",
    "```console\n$ true\na\n```\n": "the page shows:\na",
    "```console\n$ printf 'a\\nb\\n'\na\n```\n": "it printed:\na\nb",
    "```console\n$ false\n```\n": "exit code 1",
    "```console\n$ echo said; exit 1\nsaid\n```\n": "the shell ended",
    "```console\na\n```\n": "begins with \"$ \"",
    "```console\n$ echo 'a\n```\n": "no whole command",
    "```\n$ echo a\n```\n": "is \"console\" or \"sh\"",
    "```sh\ntrue\n": "has no end",
    "<!-- not run: why -->\n\ntext\n": "no block comes",
    "<!-- not run: why -->\n": "no block comes",
    "<!-- not run: why -->\n```sh\npython3 tests/none.py\n```\n": "there is no tests/none.py",
    "<!-- not run: why -->\n```sh\nif\n```\n": "no shell understands it",
}
MATCH = [("index 7", "index 4711"), ('{"ModifyIndex":7,"LockIndex":0}', '{"ModifyIndex":12,"LockIndex":0}'), ("a   b", "a\tb"), ("a ... d", "a b c d"), ("took 82.1ms", "took 3s"),
         ("took 82.1ms", "took 168µs"), ("(2m3s ago)", "(1s ago)"), ("(in 2m56s)", "(in 10m0s)"), ("at 2026-01-01T00:00:00Z", "at 2027-10-11T12:13:14.5Z"), ("8e3a6c9e-2d5b-4f0a-9c1d-7b2f5e8a1c40 x", "00000000-0000-0000-0000-000000000000 x"),
         ("a\n...\nd", "a\nb\nc\nd"), ("a\n...\nd", "a\nd"), ("a", "a  \n\n"), ("(a|b)*", "(a|b)*")]
NO_MATCH = [("index 7", "index 0"), ('"LockIndex":0', '"LockIndex":1'), ("every 5m", "every 6m"), ("in 10s", "in 11s"), ("(2m3s ago)", "(long ago)"), ("3 passing", "2 passing"), ("a b", "ab"), ("a\n...\nd", "a\nb"),
            ("", "..."), ("10.0.0.1:8300", "10.0.0.2:8300"), ("took 82.1ms", "took long"), ("index 7", "index"), ("a.b", "axb"), ("a", "A")]


def check(condition, what):
    if not condition:
        print("FAIL " + what)
        sys.exit(1)


def main():
    if not os.environ.get(run_page.INSIDE):
        run_page.go_inside()
    import session, worlds
    run_page.subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    class Bare(worlds.World):
        def start(self):
            pass
    worlds.WORLDS["bare"] = Bare
    for name, text in RIGHT.items():
        try:
            run_page.run("bare", blocks_of(text))
        except Wrong as e:
            check(False, "%s: %s" % (name, e))
    session.SOON = 0.5                      # what is wrong stays so
    for text, why in WRONG.items():
        try:
            run_page.run("bare", blocks_of(text))
        except Wrong as e:
            check(why in str(e), "%r: wanted is %r in: %s" % (text, why, e))
        else:
            check(False, "it goes through: %r" % text)
    for shown, printed in MATCH:
        check(matches(shown.split("\n"), printed), "%r is not %r" % (shown, printed))
    for shown, printed in NO_MATCH:
        check(not matches(shown.split("\n"), printed), "%r is %r" % (shown, printed))
    print("%d right pages, %d wrong ones, %d lines" % (len(RIGHT), len(WRONG), len(MATCH) + len(NO_MATCH)))


main()
