"""One server with access control beside one without, in turns: CPU of the server for an operation. By hand:

    LOAD=PATH python3 tests/bench/measure_acl.py [--rounds 5] [--seconds 3] [--connections 64]

Requests are those of a default token with ten policies of twenty rules. The load generator is that of measure_steady.py.
"""
import argparse, json, os, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../e2e")]
given, sys.argv = sys.argv[1:], sys.argv[:1]
from coordtest import Agent, check, configuration
from measure_steady import load_program
from test_acl_agent import ROOT, acl, ask, started

WORK = {"get": ["GET /v1/kv/bench/<k>"], "get, consistent": ["GET /v1/kv/bench/<k>?consistent"], "put": ["PUT /v1/kv/bench/<k> <v>"],
        "health": ["GET /v1/health/service/web?passing"], "list of 1,000": ["GET /v1/kv/list/?recurse"]}


def controlled():
    agent = started(Agent(acl()))
    names = []
    for number in range(10):
        rules = "".join('key_prefix "%s/%d" { policy = "write" }\n' % ("bench" if i == 0 and number == 0 else "list" if i == 1 else "team-%d" % i, number) for i in range(18))
        rules += 'key_prefix "bench/" { policy = "write" }\nkey_prefix "list/" { policy = "read" }\n' if number == 9 else \
            'service_prefix "web" { policy = "read" }\nnode_prefix "" { policy = "read" }\n'
        names.append("p%d" % number)
        check(ask(agent, ROOT, "PUT", "/v1/acl/policy", {"Name": names[-1], "Rules": rules})[0] == 200, rules)
    status, text = ask(agent, ROOT, "PUT", "/v1/acl/token", {"Policies": [{"Name": name} for name in names]})
    check(status == 200, text)
    check(ask(agent, ROOT, "PUT", "/v1/agent/token/default", {"Token": json.loads(text)["SecretID"]})[0] == 200, "the default token")
    return agent


def fill(agent, token):
    for i in range(1000):
        check(ask(agent, token, "PUT", "/v1/kv/list/%d" % i, "x")[0] == 200, "a key")
    for i in range(10):
        body = {"Node": "n%d" % i, "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 80}, "Check": {"Name": "c", "Status": "passing"}}
        check(ask(agent, token, "PUT", "/v1/catalog/register", body)[0] == 200, "an instance")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    args = parser.parse_args(given)
    load = load_program()
    plain = Agent().start()
    plain.wait_leader()
    agents = {"without": plain, "with": controlled()}
    for agent, token in ((plain, None), (agents["with"], ROOT)):
        fill(agent, token)
    for name, step in WORK.items():
        seen = {kind: [] for kind in agents}
        for _ in range(args.rounds):
            for kind, agent in agents.items():
                words = ["custom", "--step", *step, "-t", agent.ip + ":8500", "-c", str(args.connections), "-d", str(args.seconds), "-w", "1", "-K", "10000",
                         "--json", "--pids", str(agent.proc.pid)]
                seen[kind].append(json.loads(subprocess.run([load, *words], check=True, capture_output=True, text=True).stdout))
        cpu = {kind: statistics.median(one["server_cpu_us_op"] for one in seen[kind]) for kind in agents}
        rate = {kind: statistics.median(one["ops_s"] for one in seen[kind]) for kind in agents}
        print("%-16s CPU %.2f us without, %.2f with: %.2f of it; %.0f and %.0f/s" %
              (name, cpu["without"], cpu["with"], cpu["with"] / cpu["without"], rate["without"], rate["with"]), flush=True)
    for agent in agents.values():
        agent.cleanup()


if __name__ == "__main__":
    main()
