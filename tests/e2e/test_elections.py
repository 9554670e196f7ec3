"""Elections over HTTP, asked of a leader, a follower and a client agent: one leads, its terms only grow, observers see it change."""
import json, threading
from coordtest import SLOW, Agent, check, run, until
from waiters import Waiter, documented, run_documented, ask, now, passed_ms, session, want, world


def campaign(agent, name, how, value=None):
    return want(agent, "PUT", "/v1/election/%s/campaign?%s" % (name, how), value)


def election(agent, name):
    return want(agent, "GET", "/v1/election/" + name)


def standing(agent, name, count):
    until("%d candidates" % count, lambda: len(election(agent, name)["Candidates"]) == count)


class Observer:
    """Follows the leader by blocking queries. `seen`: what they said, in order."""

    def __init__(self, agent, name):
        self.agent, self.path, self.seen, self.stopping = agent, "/v1/election/%s?leader" % name, [], False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        until("it observes", lambda: self.seen)

    def work(self):
        index = 0
        while not self.stopping:
            try:
                status, headers, body = self.agent.request("GET", "%s&index=%d&wait=20s" % (self.path, index), timeout=60)
            except OSError:
                continue
            if status == 200:
                before, index = index, int(headers["X-Consul-Index"])
                if index != before:              # else its wait is over
                    self.seen.append(json.loads(body)["Leader"])


def one_leads_and_the_others_follow():
    cluster, agents = world()
    check(election(agents[1], "db")["Leader"] is None, "nobody yet")
    observers = [Observer(agent, "db") for agent in agents]
    asked = now()
    one = campaign(agents[2], "db", "ttl=60s", "one")
    check(one["Leader"] and one["Term"] > 0 and 59000 - passed_ms(asked) < one["NotBefore"] <= 60000, one)
    waiting = []
    for i, priority in enumerate((1, 5, 5, 0)):
        waiting.append(Waiter(agents[i % 3], "/v1/election/db/campaign?ttl=60s&wait=60s&priority=%d" % priority, "c%d" % i))
        standing(agents[0], "db", i + 1)
    check([c["Priority"] for c in election(agents[2], "db")["Candidates"]] == [5, 5, 1, 0], "the highest first, then who came first")
    check(want(agents[1], "PUT", "/v1/election/db/proclaim?token=%d" % one["Term"], "one, moved") is True, "proclaimed")
    for observer in observers:
        until("three states", lambda: len(observer.seen) >= 3)
        values = [leader and (leader["Term"], leader["Value"]) for leader in observer.seen]
        check(values == [None, (one["Term"], "one"), (one["Term"], "one, moved")], "candidates wake nobody: %r" % values)
    term, order = one["Term"], []
    for _ in range(4):
        check(want(agents[0], "PUT", "/v1/election/db/resign?token=%d" % term) is True, "resigned")
        leader = until("another leader", lambda: election(agents[1], "db")["Leader"])
        check(leader["Term"] > term, "%r after %d" % (leader, term))
        order.append(leader["Value"])
        term = leader["Term"]
        until("it knows", lambda: [w for w in waiting if w.answer and w.answer[1].get("Term") == term])
    check(order == ["c1", "c2", "c0", "c3"], "in the order of priority, then of coming: %r" % order)
    answers = [w.joined() for w in waiting]
    check(all(status == 200 and got["Leader"] for status, got in answers), answers)
    check(ask(agents[0], "PUT", "/v1/election/db/proclaim?token=%d" % one["Term"], "late")[0] == 409, "an old term says nothing")
    check(ask(agents[2], "PUT", "/v1/election/db/renew?token=%d" % one["Term"])[0] == 404, "nor does it live on")
    check(want(agents[2], "PUT", "/v1/election/db/renew?token=%d" % term)["Term"] == term, "the last one's does")
    # the leader's server dies: the term stays, and who observes goes on
    cluster.leader().kill()
    until("the same leader", lambda: ask(agents[2], "GET", "/v1/election/db")[0] == 200 and election(agents[2], "db")["Leader"]["Term"] == term, 20)
    until("resigned", lambda: ask(agents[2], "PUT", "/v1/election/db/resign?token=%d" % term)[0] in (200, 409), 20)
    until("it is seen", lambda: observers[2].seen[-1] is None, 20)
    for observer in observers:
        observer.stopping = True


def the_end_of_a_session_is_the_end_of_a_term():
    agent = Agent(dev=True).start()
    a, b = session(agent, TTL="60s"), session(agent, TTL="60s")
    first = campaign(agent, "e", "session=" + a, "a")
    check(campaign(agent, "e", "session=" + a, "a")["Term"] == first["Term"], "the same again")
    check(not campaign(agent, "e", "session=" + b)["Leader"] and election(agent, "e")["Candidates"] == [], "it asks, and leaves no trace")
    second = Waiter(agent, "/v1/election/e/campaign?wait=60s&session=" + b, "b")
    standing(agent, "e", 1)
    agent.put("/v1/session/destroy/" + a)
    status, got = second.joined()
    check(status == 200 and got["Leader"] and got["Term"] > first["Term"], got)
    check(election(agent, "e")["Leader"]["Value"] == "b", "and its value is shown")
    for target, status, words in (("e/campaign", 400, "one of them"), ("e/campaign?ttl=10s&priority=1000001", 400, "priority"),
                                  ("e/campaign?ttl=10s&mode=shared", 400, "mode"), ("e/proclaim", 400, "token"),
                                  ("e/resign?session=" + a, 409, "neither"), ("e/campaign?session=" + a, 404, "invalid session")):
        got, text = ask(agent, "PUT", "/v1/election/" + target)
        check(got == status and words in text and "\n" not in text.strip(), "%s: %d %r" % (target, got, text))


def each_hears_of_its_term_at_once():
    """Also beside observers and others that wait at the same server. Eighty changes of the leader, because an answer that is late depends on
    what else the server does at that moment. When the machine stood still meanwhile: eighty more."""
    cluster, agents = world()
    late = []
    while not late or len(late[-1]) > 1:                                   # one: the disk of the machine stood still
        check(len(late) < 3, "seconds until they knew: %r" % late)
        late.append(late_answers(agents, range(20 * len(late), 20 * len(late) + 20)))


def late_answers(agents, numbers):
    late = []
    for number in numbers:
        name = "e%d" % number
        term = campaign(agents[2], name, "ttl=60s")["Term"]
        observers = [Observer(agent, name) for agent in agents]
        waiting = []
        for i in range(4):
            waiting.append(Waiter(agents[i % 3], "/v1/election/%s/campaign?ttl=60s&wait=60s" % name))
            standing(agents[0], name, i + 1)
        for waiter in waiting:
            want(agents[0], "PUT", "/v1/election/%s/resign?token=%d" % (name, term))
            begun = now()
            until("it knows of its term", lambda: waiter.answer)
            late += [now() - begun] * (now() - begun > 2 * SLOW)
            term = waiter.answer[1]["Term"]
        for observer in observers:
            observer.stopping = True
    return late


def as_documented():
    agent = Agent(dev=True).start()
    run_documented(agent, documented("Elections"))


run([one_leads_and_the_others_follow, the_end_of_a_session_is_the_end_of_a_term, each_hears_of_its_term_at_once,
     as_documented])
