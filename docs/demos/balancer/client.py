import http.client, json, random, threading


class Client:
    """Sends requests to the instances of a service; coord says to which."""

    def __init__(self, service, policy, agent="127.0.0.1"):
        self.service, self.policy, self.agent, self.of_thread = service, policy, agent, threading.local()

    def ask(self, path):
        if not hasattr(self.of_thread, "connection"):  # one for each thread, which stays
            self.of_thread.connection = http.client.HTTPConnection(self.agent, 8500)
        self.of_thread.connection.request("GET", path)
        return json.load(self.of_thread.connection.getresponse())

    def pick(self):
        if self.policy == "random":  # what a client without coord's hints does
            return random.choice(self.ask(f"/v1/health/service/{self.service}?passing"))["Service"]
        return self.ask(f"/v1/lb/pick/{self.service}?passing&policy={self.policy}")["Picked"]["Service"]

    def get(self, path):
        instance = self.pick()
        connection = http.client.HTTPConnection(instance["Address"], instance["Port"])
        connection.request("GET", path)
        return instance["ID"], connection.getresponse().read()
