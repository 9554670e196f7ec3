"""Consul's Go client against coord: the tests that it brings itself, of transactions, keys, sessions, locks, semaphores, events, the cluster's
state, datacenters and access control. Each starts servers of its own by the name `consul`.

Needs Go, and the sources of github.com/hashicorp/consul/{api,sdk} (1.8) and of what they import in a folder of GOPATH or in /usr/share/gocode:
docs/testing.md. Nothing is downloaded.
"""
import atexit, os, re, shutil, subprocess, sys, tempfile
from coordtest import COORD, SLOW, check, run

GO = shutil.which("go")
PACKAGE = "github.com/hashicorp/consul/api"
DISTRIBUTION = "/usr/share/gocode"
where = tempfile.mkdtemp(prefix="coord-go-")
atexit.register(shutil.rmtree, where, True)


def go_path():
    own = subprocess.run([GO, "env", "GOPATH"], capture_output=True, text=True, check=True).stdout.strip()
    return [folder for folder in own.split(os.pathsep) if folder] + [DISTRIBUTION]


def environment():
    """GOPATH mode, which asks no network; `consul` is coord, without the port for HTTPS, for which these configurations have no certificate."""
    return dict(os.environ, GO111MODULE="off", GOPROXY="off", GOFLAGS="", GOPATH=os.pathsep.join(go_path()), TMPDIR=where,
                PATH=where + os.pathsep + os.environ["PATH"])


def sources():
    """The folder of the client with its tests, or None."""
    folders = [os.path.join(folder, "src", PACKAGE) for folder in go_path()]
    return next((f for f in folders if os.path.exists(os.path.join(f, "txn_test.go"))), None)


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def build():
    """The client's tests as a program. A datacenter is joined by the address of its gossip, which coord has none of: servers listen there instead."""
    r = subprocess.run([GO, "test", "-vet=off", "-c", "-o", os.path.join(where, "api.test"), PACKAGE], env=environment(), capture_output=True,
                       text=True)
    missing = re.search(r'cannot find package "([^"]+)"', r.stdout + r.stderr)
    if missing:
        skip("no Go package %s (GOPATH)" % missing.group(1))
    check(r.returncode == 0, "it does not build: %s%s" % (r.stdout, r.stderr))
    program = os.path.join(where, "consul")
    with open(program, "w") as f:
        f.write('#!/bin/sh\ntest "$1" = agent || exit 2\nshift\n'
                'for file; do test ! -f "$file" || sed -i -E \'s/("serf_wan":)([0-9]+)(.*"server":)[0-9]+/\\1\\2\\3\\2/; s/"https":[0-9]+/"https":-1/\' "$file"; done\n'
                'exec "%s" agent "$@"\n' % os.path.abspath(COORD))
    os.chmod(program, 0o755)


def passes(file, *only, without=()):
    """All tests of one file, or some, or all but some, each with servers of its own, several at once."""
    with open(os.path.join(sources(), file)) as f:
        found = re.findall(r"^func (Test\w+)\(", f.read(), re.M)
    check(set(without) <= set(found), "no test in %s: %s" % (file, without))
    names = [name for name in found if name in only or not only and name not in without]
    check(len(names) >= max(1, len(only)), "no test in %s: %s" % (file, only))
    said, left = "", names
    for _ in range(3):                    # they have times of their own, which a machine that stands still does not keep
        r = subprocess.run([os.path.join(where, "api.test"), "-test.v", "-test.parallel=3", "-test.timeout=%ds" % (60 * SLOW),
                            "-test.run=^(%s)$" % "|".join(left)], cwd=where, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           errors="replace")
        passed = re.findall(r"^--- PASS: (\w+) ", r.stdout, re.M)
        said, left = said + r.stdout + r.stderr, sorted(set(left) - set(passed))
        if not left:
            check(r.returncode == 0, said)
            return
        print("     %s: without success: %s" % (file, left), flush=True)
    check(False, "%s: without success: %s\n%s" % (file, left, said))


def transactions():
    passes("txn_test.go")


def keys():
    passes("kv_test.go")


def sessions():
    passes("session_test.go")


def locks():
    passes("lock_test.go")


def semaphores():
    passes("semaphore_test.go")


def events():
    passes("event_test.go")


def the_clusters_state():
    passes("status_test.go")
    passes("operator_raft_test.go")


def datacenters():
    """The first starts two, which join each other."""
    passes("agent_test.go", "TestAPI_AgentMembersOpts")
    passes("catalog_test.go", "TestAPI_CatalogDatacenters")
    passes("coordinate_test.go", "TestAPI_CoordinateDatacenters")


OLD = "makes tokens of before Consul 1.4, which are 410"
NOT_OURS = {
    "TestAPI_ACLCreateDestroy": OLD, "TestAPI_ACLCloneDestroy": OLD, "TestAPI_ACLInfo": OLD, "TestAPI_ACLList": OLD, "TestAPI_RulesTranslate_FromToken": OLD,
    "TestAPI_RulesTranslate_Raw": "wants the text formatted anew; what is translated keeps its own blanks",
}


def access_control():
    """Of agent_test.go, TestAPI_AgentUpdateToken sets the token `replication` too, which is refused; of snapshot_test.go, TestAPI_Snapshot_Options
    restores an empty file, which is refused."""
    passes("acl_test.go", without=NOT_OURS)
    passes("agent_test.go", "TestMemberACLMode")


if __name__ == "__main__":
    if not GO:
        skip("no go program")
    if not sources():
        skip("no %s with its tests (GOPATH)" % PACKAGE)
    build()
    run([transactions, keys, sessions, locks, semaphores, events, the_clusters_state, datacenters, access_control])
