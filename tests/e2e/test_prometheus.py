"""Prometheus with consul_sd_configs at a client agent: it finds what is registered on any host, relabels by tags and metadata, drops what it is told
to and what goes, and works on while the leading server, or all servers, are lost.

Needs a Prometheus that knows consul_sd_configs (its path in COORD_PROMETHEUS); Debian 12's does not, the release before has it.
"""
import atexit, http.client, http.server, json, os, shutil, subprocess, sys, tempfile, threading, time, urllib.parse
from coordtest import SLOW, Cluster, check, run, until

PROMETHEUS = os.environ.get("COORD_PROMETHEUS") or shutil.which("prometheus")

SETTINGS = """
global: {scrape_interval: 500ms, scrape_timeout: 400ms}
scrape_configs:
- job_name: fleet
  consul_sd_configs:
  - server: %(agent)s:8500
    refresh_interval: 1s
  relabel_configs:
  - {source_labels: [__meta_consul_tags], regex: '.*,unwatched,.*', action: drop}
  - {source_labels: [__meta_consul_service], regex: consul, action: drop}
  - {source_labels: [__meta_consul_health], regex: critical, action: drop}
  - {source_labels: [__meta_consul_service_metadata_team], target_label: team}
  - {source_labels: [__meta_consul_service_id], target_label: id}
  - {source_labels: [__meta_consul_node], target_label: node}
  - {source_labels: [__meta_consul_dc], target_label: dc}
  - {source_labels: [__meta_consul_tags], regex: '.*,(v[0-9]+),.*', target_label: version}
- job_name: one_service
  consul_sd_configs:
  - server: %(agent)s:8500
    refresh_interval: 1s
    services: [web]
    tags: [v2]
    node_meta: {rack: r2}
  relabel_configs:
  - {source_labels: [__meta_consul_service_id], target_label: id}
  - {source_labels: [__meta_consul_metadata_rack], target_label: rack}
"""


def missing():
    """What is not there, or None."""
    if not PROMETHEUS or not os.path.exists(PROMETHEUS):
        return "no prometheus program (COORD_PROMETHEUS)"
    promtool = os.path.join(os.path.dirname(PROMETHEUS), "promtool")
    if not os.path.exists(promtool):
        return "no promtool beside " + PROMETHEUS
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "try.yml")
        with open(path, "w") as f:
            f.write(SETTINGS % {"agent": "127.0.0.1"})
        r = subprocess.run([promtool, "check", "config", path], capture_output=True, text=True)
        return None if r.returncode == 0 else "this Prometheus knows no consul_sd_configs (COORD_PROMETHEUS): " + r.stderr.strip().splitlines()[-1].strip()


class Metrics:
    """Something to scrape; its health is what it is told."""

    def __init__(self, ip):
        owner = self
        self.healthy = True

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                try:
                    self.send_response(200 if owner.healthy or self.path == "/metrics" else 503)
                    self.send_header("Content-Length", "8")
                    self.end_headers()
                    self.wfile.write(b"work 42\n")
                except OSError:
                    pass        # who asked waits no more

            def log_message(self, *a):
                pass
        self.server = http.server.ThreadingHTTPServer((ip, 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Prometheus:
    def __init__(self, agent):
        self.ip = agent.ip
        self.dir = tempfile.mkdtemp(prefix="coord-prometheus-")
        with open(os.path.join(self.dir, "prometheus.yml"), "w") as f:
            f.write(SETTINGS % {"agent": agent.ip})
        argv = [PROMETHEUS, "--config.file=" + os.path.join(self.dir, "prometheus.yml"), "--storage.tsdb.path=" + os.path.join(self.dir, "data"),
                "--web.listen-address=%s:9090" % self.ip]
        with open(os.path.join(self.dir, "log"), "wb") as log:
            self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir)
        atexit.register(self.cleanup)

    def cleanup(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def log(self):
        with open(os.path.join(self.dir, "log")) as f:
            return f.read()

    def ask(self, path):
        check(self.proc.poll() is None, "Prometheus ended: " + self.log()[-2000:])
        c = http.client.HTTPConnection(self.ip, 9090, timeout=5)
        try:
            c.request("GET", path)
            return json.loads(c.getresponse().read())["data"]
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return None
        finally:
            c.close()

    def targets(self, job="fleet"):
        """id -> labels, of those that were scraped well."""
        found = self.ask("/api/v1/targets?state=active") or {"activeTargets": []}
        return {t["labels"].get("id"): t["labels"] for t in found["activeTargets"] if t["labels"]["job"] == job and t["health"] == "up"}

    def dropped(self):
        """The ids of those that relabelling dropped."""
        found = self.ask("/api/v1/targets?state=dropped") or {"droppedTargets": []}
        return {t["discoveredLabels"].get("__meta_consul_service_id") for t in found["droppedTargets"]}

    def value(self, query):
        found = self.ask("/api/v1/query?query=" + urllib.parse.quote(query))
        return float(found["result"][0]["value"][1]) if found and found["result"] else None


def register(agent, id, name, tags, team):
    metrics = Metrics(agent.ip)
    agent.put("/v1/agent/service/register", {
        "ID": id, "Name": name, "Port": metrics.port, "Tags": tags, "Meta": {"team": team},
        "Check": {"HTTP": "http://%s:%d/health" % (agent.ip, metrics.port), "Interval": "300ms", "Status": "passing"}})
    return metrics


def finds_relabels_and_drops():
    cluster = Cluster(3).start()
    near, far = cluster.agent("near").start(), cluster.agent("far", "-node-meta=rack:r2").start()
    degraded = register(near, "web-1", "web", ["v1", "blue"], "shop")
    register(far, "web-2", "web", ["v2", "blue"], "shop")
    register(far, "db-1", "db", ["v2"], "store")
    register(far, "quiet-1", "quiet", ["unwatched"], "store")
    prometheus = Prometheus(near)
    everyone = {"web-1", "web-2", "db-1"}
    until("what is registered on all hosts is scraped", lambda: set(prometheus.targets()) == everyone, 30)
    found = prometheus.targets()
    check(found["web-2"]["team"] == "shop" and found["web-2"]["node"] == "far" and found["web-2"]["dc"] == "dc1", "relabelled: %r" % found["web-2"])
    check({id: t["version"] for id, t in found.items()} == {"web-1": "v1", "web-2": "v2", "db-1": "v2"}, "relabelled by tags: %r" % found)
    check(prometheus.dropped() >= {"quiet-1"}, "dropped: %r" % prometheus.dropped())
    until("with tag and node's metadata", lambda: {id: t["rack"] for id, t in prometheus.targets("one_service").items()} == {"web-2": "r2"}, 30)
    check(until("values are there", lambda: prometheus.value('work{id="db-1",job="fleet"}')) == 42, "scraped")

    degraded.healthy = False
    until("who is critical is dropped", lambda: set(prometheus.targets()) == everyone - {"web-1"} and "web-1" in prometheus.dropped(), 30)
    degraded.healthy = True
    until("who is well again comes back", lambda: set(prometheus.targets()) == everyone, 30)
    far.put("/v1/agent/service/deregister/db-1")
    until("who is gone is gone", lambda: set(prometheus.targets()) == everyone - {"db-1"} and "db-1" not in prometheus.dropped(), 30)

    leader = cluster.leader()
    leader.kill()
    register(far, "late-1", "late", ["v3"], "store")
    everyone = {"web-1", "web-2", "late-1"}
    until("what comes after the loss of the leading server is found", lambda: set(prometheus.targets()) == everyone, 30)
    for server in cluster.servers:
        server.kill()
    # Answers from what the agent has kept, to Prometheus beginning anew as well.
    prometheus.cleanup()
    prometheus = Prometheus(near)
    until("without any server all is found", lambda: set(prometheus.targets()) == everyone, 30)
    for server in cluster.servers:
        server.start(wait=False)
    cluster.leader(30)
    far.put("/v1/agent/service/deregister/late-1")
    until("with servers it follows again", lambda: set(prometheus.targets()) == everyone - {"late-1"}, 60)
    check("panic" not in prometheus.log(), prometheus.log()[-3000:])


if __name__ == "__main__":
    why = missing()
    if why:
        print("skipped: " + why)
        sys.exit(77)
    run([finds_relabels_and_drops])
