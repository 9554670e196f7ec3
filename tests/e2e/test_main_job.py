"""A service registers, its health is checked, clients find it; it dies and returns."""
import http.server, json, os, socket, subprocess, sys, threading, time
from coordtest import SLOW, STANDSTILL, Agent, check, run, until


class Web:
    """A small real web server, in a process of its own so that it can die like one."""

    def __init__(self, ip):
        self.ip = ip
        with socket.socket() as s:
            s.bind((ip, 0))
            self.port = s.getsockname()[1]
        self.proc = None

    def start(self):
        self.proc = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", self.ip, str(self.port)],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=os.path.dirname(os.path.abspath(__file__)))
        return self

    def kill(self):
        self.proc.kill()
        self.proc.wait()


def srv_ports(agent):
    return [line.split()[2] for line in agent.dig_short("api.service.coord", "SRV")]


def follow(agent, index, out):
    """A blocking query as a client makes it, on a thread."""
    def ask():
        begun = time.monotonic()
        status, headers, body = agent.get("/v1/health/service/api?passing&wait=60s&index=%d" % index, timeout=90)
        out.append((time.monotonic() - begun, int(headers["X-Consul-Index"]), body))
    t = threading.Thread(target=ask, daemon=True)
    t.start()
    return t


def service_lives_dies_returns():
    agent = Agent(dev=True).start()
    web = Web(agent.ip).start()
    try:
        check_ = {"HTTP": "http://%s:%d/" % (agent.ip, web.port), "Interval": "200ms", "Timeout": "10s"}
        agent.put("/v1/agent/service/register", {"Name": "api", "Port": web.port, "Tags": ["v1"], "Check": check_})
        until("dig finds the service", lambda: srv_ports(agent) == [str(web.port)])
        check(agent.dig_short("api.service.coord") == [agent.ip], "its address: %r" % agent.dig_short("api.service.coord"))
        check(agent.dig_short("v1.api.service.coord") == [agent.ip], "by tag")
        check(agent.dig_short("_api._tcp.service.coord", "SRV") != [], "by RFC 2782 name")
        check("NXDOMAIN" in agent.dig("v2.api.service.coord"), "another tag does not exist")
        _, headers, entries = agent.get("/v1/health/service/api?passing")
        check(len(entries) == 1 and entries[0]["Service"]["Port"] == web.port, "found by HTTP")

        news = []
        waiter = follow(agent, int(headers["X-Consul-Index"]), news)
        web.kill()
        waiter.join(20 * SLOW + STANDSTILL)
        check(news and news[0][2] == [], "the blocking query answers that it is gone: %r" % news)
        until("DNS drops it", lambda: srv_ports(agent) == [])

        waiter = follow(agent, news[0][1], news)
        web.start()
        waiter.join(20 * SLOW + STANDSTILL)
        check(len(news) == 2 and len(news[1][2]) == 1, "the blocking query answers that it is back")
        until("DNS has it back", lambda: srv_ports(agent) == [str(web.port)])
    finally:
        web.kill()


def registration_survives_restart():
    agent = Agent().start()
    agent.put("/v1/agent/service/register", {"Name": "db", "ID": "db1", "Port": 5432, "Check": {"TTL": "60s", "Status": "passing"}})
    until("in the catalog", lambda: len(agent.get("/v1/health/service/db?passing")[2]) == 1)
    agent.kill()
    agent.start()
    check("db1" in agent.get("/v1/agent/services")[2], "the agent knows its service after kill -9")
    until("still in the catalog", lambda: len(agent.get("/v1/health/service/db")[2]) == 1)
    agent.put("/v1/agent/service/deregister/db1")
    until("gone from the catalog", lambda: agent.get("/v1/catalog/service/db")[2] == [])
    code, _ = agent.stop()
    check(code == 0, "a clean stop exits with 0, not %s" % code)
    agent.start()
    check("db1" not in agent.get("/v1/agent/services")[2], "a deregistered service does not come back")


def unsaved_registration_is_not_acknowledged():
    agent = Agent().start()
    agent.put("/v1/agent/service/register", {"Name": "before", "Port": 1})
    folder = agent.data + "/local"
    os.rename(folder, folder + ".away")
    with open(folder, "w"):                                   # nothing can be written below a file, not even by root
        pass
    status, _, body = agent.request("PUT", "/v1/agent/service/register", {"Name": "during", "Port": 1})
    check(status == 503 and b"saved" in body, "a registration that a restart would forget: %d %r" % (status, body))
    os.remove(folder)
    os.rename(folder + ".away", folder)
    agent.put("/v1/agent/service/register", {"Name": "after", "Port": 1})
    until("all are saved", lambda: open(folder + "/definitions").read().count("\"Name\"") >= 3)
    agent.kill()
    agent.start()
    check(set(agent.get("/v1/agent/services")[2]) == {"before", "during", "after"}, "all three are known after kill -9")


def exact_watches():
    """Others' writes wake nobody; own writes wake at once; a client that hangs up is freed."""
    agent = Agent(dev=True).start()
    agent.put("/v1/kv/mine", b"1")
    index = int(agent.request("GET", "/v1/kv/mine")[1]["X-Consul-Index"])
    answers = []

    def wait_for(path):
        begun = time.monotonic()
        status, headers, body = agent.request("GET", path, timeout=400)
        answers.append((path, status, time.monotonic() - begun, int(headers["X-Consul-Index"])))
    paths = ["/v1/kv/mine?index=%d&wait=300s" % index, "/v1/kv/none?index=1&wait=300s", "/v1/health/service/none?index=1&wait=300s",
             "/v1/kv/deep/?recurse&index=1&wait=300s"]
    threads = [threading.Thread(target=wait_for, args=(p,), daemon=True) for p in paths]
    for t in threads:
        t.start()
    until("all four wait", lambda: b"coord_http_blocking_queries 4" in agent.request("GET", "/v1/agent/metrics?format=prometheus")[2])
    for i in range(200):
        agent.put("/v1/kv/other/%d" % i, b"x")
        agent.put("/v1/catalog/register", {"Node": "n%d" % i, "Address": "10.0.0.1", "Service": {"Service": "other"}})
    check(answers == [], "writes of others woke a watcher: %r" % answers)
    agent.put("/v1/kv/mine", b"2")
    agent.put("/v1/kv/none", b"2")
    agent.put("/v1/kv/deep/er/still", b"2")
    agent.put("/v1/catalog/register", {"Node": "nx", "Address": "10.0.0.1", "Service": {"Service": "none"}})
    for t in threads:
        t.join(10 * SLOW + STANDSTILL)
    check(len(answers) == 4, "every watcher was answered: %r" % answers)


if __name__ == "__main__":
    run([service_lives_dies_returns, registration_survives_restart, unsaved_registration_is_not_acknowledged, exact_watches])
