"""For tests of what is waited for: requests in threads, a cluster of three with a client agent."""
import http.client, json, os, re, subprocess, threading, time
from coordtest import COORD, HERE, Cluster, SLOW, check, configuration, undecided, until

now = time.monotonic


def passed_ms(since):
    """So much of what was granted then may be over when the answer is here."""
    return (now() - since) * 1000


def short():
    """A configuration in which sessions may have a TTL of a second."""
    return configuration(session_ttl_min="1s")


def ask(agent, method, path, body=None, timeout=60):
    """(status, JSON or text)"""
    status, _, text = agent.request(method, path, body, timeout=timeout)
    text = text.decode()
    return status, json.loads(text) if status == 200 else text


def want(agent, method, path, body=None, **kw):
    status, answer = ask(agent, method, path, body, **kw)
    check(status == 200, "%s %s: %d %r" % (method, path, status, answer))
    return answer


def surely(agent, path, timeout=90):
    """The answer to a PUT that may be repeated: it is, while servers elect a leader and nobody knows what came of it."""
    def asked():
        status, _, body = agent.request("PUT", path, timeout=timeout * SLOW)
        check(status == 200 or undecided(status, body), "PUT %s: %d %r" % (path, status, body))
        return (json.loads(body),) if status == 200 else None
    return until("an answer to PUT " + path, asked, timeout)[0]


def session(agent, **keys):
    return json.loads(agent.put("/v1/session/create", dict({"LockDelay": "0s"}, **keys)))["ID"]


class Waiter:
    """A request that waits, in a thread. `answer`: as ask gives it; (0, why) when nobody answers."""

    def __init__(self, agent, target, body=None):
        self.answer, self.done = None, None
        self.agent, self.target, self.body = agent, target, body
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        try:
            self.answer = ask(self.agent, "PUT", self.target, self.body, timeout=150)
        except (OSError, http.client.HTTPException) as e:
            self.answer = (0, str(e))
        self.done = now()

    def joined(self):
        self.thread.join(60 * SLOW)
        check(self.done is not None, "an answer to " + self.target)
        return self.answer


def cluster_and_agent():
    """A cluster of three, a client agent."""
    cluster = Cluster(3, short()).start()
    agent = cluster.agent("a1", short()).start(wait=False)
    return cluster, agent.wait_leader(30)


def world():
    """A cluster, and whom to ask: the leader, a follower, a client agent."""
    cluster, agent = cluster_and_agent()
    return cluster, [cluster.leader(), cluster.followers()[0], agent]


def woken(agents):
    """How many waiters changes have woken, on these servers together."""
    total = 0
    for agent in agents:
        text = agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode()
        total += sum(int(float(line.split()[1])) for line in text.splitlines() if line.startswith("coord_watch_woken_total "))
    return total


def ends_soon(agent, within):
    """It stops cleanly, and soon: a machine that stands still makes that longer, so it is measured again."""
    for _ in range(3):
        code, seconds = agent.stop()
        check(code == 0, "%s ends with %s" % (agent.name, code))
        if seconds < within:
            return
        print("     %s ended after %.1f s, once more" % (agent.name, seconds), flush=True)
        agent.start()
    raise AssertionError("%s ends after %.1f s" % (agent.name, seconds))


def page(name):
    """The text of a page of docs/."""
    with open(os.path.join(HERE, "../../docs", name)) as f:
        return f.read()


def documented(section, name="coordination.md"):
    """The first shell example of a section of docs/coordination.md, or of another page."""
    text = page(name).split("\n## %s\n" % section)[1].split("\n## ")[0]
    return re.search(r"```sh\n(.*?)```", text, re.S).group(1)


def run_documented(agent, script):
    """Each of its requests and commands succeeds, at this agent in place of localhost."""
    script = script.replace("localhost:8500", agent.ip + ":8500").replace("curl ", "curl -fsS ")
    environment = dict(os.environ, COORD_HTTP_ADDR=agent.ip + ":8500", PATH=os.path.dirname(os.path.abspath(COORD)) + os.pathsep + os.environ["PATH"])
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, capture_output=True, text=True, timeout=60 * SLOW)
    check(done.returncode == 0, done)
    return done.stdout
