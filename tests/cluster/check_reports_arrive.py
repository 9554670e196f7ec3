#!/usr/bin/env python3
"""Under sanitizers: what they have to say about a server of a cluster arrives where tests/sanitizers/check_reports.sh looks, though the
server runs in a namespace and a folder of its own. Shown with a server that gets SIGSEGV."""
import glob, os, re, signal, sys, tempfile
import harness

RUNTIME = {"ASAN_OPTIONS": "AddressSanitizer", "TSAN_OPTIONS": "ThreadSanitizer"}


def main():
    harness.tidy_on_signals()
    with tempfile.TemporaryDirectory() as folder:
        for name in (*RUNTIME, "UBSAN_OPTIONS"):  # one runtime reads both; as in CMakePresets.json, but into a folder of ours
            kept = re.sub("(^|:)log_path=[^:]*", "", os.environ.get(name, ""))
            os.environ[name] = "log_path=%s/report:exitcode=99" % folder + (":" + kept.strip(":") if kept.strip(":") else "")
        with harness.Cluster(1) as cluster:
            cluster.start()
            cluster.wait_writable()
            server = cluster.servers[0]
            server.expected_end = True
            server.proc.send_signal(signal.SIGSEGV)
            code = server.proc.wait(30 * harness.SLOW)
            reports = [open(path, errors="replace").read() for path in glob.glob(folder + "/report*")]
            if not any(who in text for who in RUNTIME.values() for text in reports):
                raise AssertionError("it ended with %d, and there is no report: %r; its log:\n%s" % (code, reports, server.log()[-2000:]))
            print("it ended with %d, and the report arrived" % code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
