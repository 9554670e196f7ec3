#!/usr/bin/python3
"""Fails when docs/divergence.md does not tell something that the program says Consul has and coord has not.

    check_words.py ROOT            names each word of base/consul_words.c that the page lacks
    check_words.py --self-test     shows that it bites
"""

import pathlib
import re
import sys

ROW = re.compile(r'\{CONSUL_([A-Z_]+), "([^"]+)",')


def words(source):
    for kind, word in ROW.findall(source):
        yield ("-" + word) if kind in ("AGENT_FLAG", "CLIENT_FLAG") else word


def lacking(source, page):
    told = set(re.findall(r"`([^`]+)`", page))
    return [word for word in words(source) if word not in told]


def self_test():
    source = '{CONSUL_COMMAND, "acl", X},\n{CONSUL_CLIENT_FLAG, "ca-file", "x"},\n{CONSUL_PATH, "/v1/query",\n "x"},'
    assert lacking(source, "`acl`, `-ca-file` and `/v1/query`") == []
    assert lacking(source, "acl, `ca-file`, `/v1/query/x`") == ["acl", "-ca-file", "/v1/query"]
    print("it bites")


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    root = pathlib.Path(sys.argv[1])
    source = (root / "base/consul_words.c").read_text()
    faults = lacking(source, (root / "docs/divergence.md").read_text())
    if len(list(words(source))) < 100:
        faults.append("base/consul_words.c: its rows are not understood any more")
    for fault in faults:
        print("docs/divergence.md does not tell: %s" % fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
