"""Rates of requests: each client has its own, what is above them is 429 with the time to wait, and nobody else notices."""
import threading, time
from coordtest import Agent, check, configuration, run, until
from test_acl_agent import ROOT, acl, granted, started


def metric(agent, name):
    return next((float(line.split()[-1]) for line in agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode().splitlines() if line.startswith(name)), 0)


def answers(agent, count, method="GET", path="/v1/kv/x?stale", body=None, headers={}):
    """Of so many requests, one right after the other: the statuses, and the last refusal."""
    statuses, last = [], None
    for _ in range(count):
        status, given, answer = agent.request(method, path, body, headers=headers)
        statuses.append(status)
        if status == 429:
            last = given, answer.decode()
    return statuses, last


def above_its_rate_a_client_is_told_when_to_come_again():
    agent = Agent(configuration(limits={"client_write_rate": 1, "client_read_rate": 100000})).start()
    agent.wait_leader()
    statuses, refusal = answers(agent, 20, "PUT", "/v1/kv/x", b"1")
    check(200 in statuses and 429 in statuses, "%r" % statuses)
    headers, text = refusal
    check(headers.get("Retry-After") == "1", "%r" % headers)
    check(text == "too many requests: limits.client_write_rate is 1 a second for one address", text)
    check(metric(agent, 'coord_http_limited_total{limit="client_write_rate"}') == statuses.count(429), "they are counted")
    check(answers(agent, 50)[0] == [200] * 50, "reads have a limit of their own")
    until("writes are taken again", lambda: answers(agent, 1, "PUT", "/v1/kv/x", b"1")[0] == [200])
    # What was refused was not written: the key has as many versions as writes that were answered 200.
    check(agent.get("/v1/kv/x")[2][0]["Flags"] == 0, "the key is there")


def a_token_has_its_own_rate_and_slows_nobody():
    server = started(Agent(acl(), configuration(limits={"token_read_rate": 20})))
    _, greedy = granted(server, "greedy", 'key_prefix "" { policy = "read" }')
    _, modest = granted(server, "modest", 'key_prefix "" { policy = "read" }')
    over, seen = threading.Event(), []

    def ask():
        while not over.is_set():
            seen.extend(answers(server, 20, headers={"X-Consul-Token": greedy})[0])
    thread = threading.Thread(target=ask)
    began = time.monotonic()
    thread.start()
    try:
        until("the greedy one is refused", lambda: 429 in seen)
        for _ in range(10):
            check(429 not in answers(server, 1, headers={"X-Consul-Token": modest})[0], "the other token is served")
    finally:
        over.set()
        thread.join()
    passed = time.monotonic() - began
    check(len(seen) - seen.count(429) <= 21 + 20 * passed, "%d were served in %.1f s" % (len(seen) - seen.count(429), passed))
    # ?token= is the same token as the header.
    statuses, refusal = answers(server, 200, path="/v1/kv/x?stale&token=" + greedy)
    check(429 in statuses and "limits.token_read_rate" in refusal[1] and greedy not in refusal[1], "%r" % (refusal,))


def permissive_counts_and_refuses_nothing():
    limits = {"request_limits": {"mode": "permissive", "read_rate": 5, "write_rate": 5}}
    agent = Agent(configuration(limits=limits)).start()
    agent.wait_leader()
    check(429 not in answers(agent, 50)[0], "all are served")
    check(metric(agent, 'coord_http_limited_total{limit="read_rate"}') > 0, "they are counted")
    agent.stop()
    limits["request_limits"] = {"mode": "enforcing", "read_rate": -1, "write_rate": -1}    # as a Consul without limits writes it
    free = Agent(configuration(limits=limits)).start()
    free.wait_leader()
    check(429 not in answers(free, 50)[0], "-1 is no limit")
    limits["request_limits"]["mode"] = "enforced"
    wrong = Agent(configuration(limits=limits))
    wrong.start(wait=False)
    check(wrong.proc.wait(60) != 0 and "limits.request_limits.mode" in wrong.log(), wrong.log())


if __name__ == "__main__":
    run([above_its_rate_a_client_is_told_when_to_come_again, a_token_has_its_own_rate_and_slows_nobody, permissive_counts_and_refuses_nothing])
