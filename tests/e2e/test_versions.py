"""Versions that clients compare: the level of Consul's API, with coord's own beside it. What Nomad's fingerprint reads of an agent."""
import os, re, shutil, subprocess
from coordtest import COORD, Agent, Cluster, check, run, settings, until
from test_client_agent import rows, words

OWN = subprocess.run([COORD, "version"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
CONSUL = os.environ.get("COORD_CONSUL") or os.environ.get("CONSUL_BIN") or shutil.which("consul")


def self_of(agent):
    """As Consul's Go client decodes it: an object of objects (or null), else the whole answer is an error."""
    answer = agent.get("/v1/agent/self")[2]
    check(all(part is None or isinstance(part, dict) for part in answer.values()), "map[string]map[string]interface{}: %r" % answer)
    return answer


def at_least(version, wanted):
    """A constraint `semver >= wanted`."""
    parts = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    check(parts, "a plain version: %r" % version)
    return tuple(map(int, parts.groups())) >= wanted


def fingerprint(answer):
    """What Nomad makes of it: attribute -> value. A wrong type is an error, for it would be left out there with a warning."""
    def typed(part, key, kind):
        value = answer[part][key]
        check(type(value) is kind, "%s.%s is %r, not %s" % (part, key, value, kind.__name__))
        return value
    for address in typed("DebugConfig", "DNSAddrs", list):
        check(re.fullmatch(r"(tcp|udp)://(\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):\d+", address), "netip.ParseAddrPort: %r" % address)
    return {"consul.server": typed("Config", "Server", bool), "consul.version": typed("Config", "Version", str),
            "consul.revision": typed("Config", "Revision", str), "unique.consul.name": typed("Config", "NodeName", str),
            "consul.datacenter": typed("Config", "Datacenter", str), "consul.segment": typed("Member", "Tags", dict)["segment"],
            "consul.connect": typed("DebugConfig", "ConnectEnabled", bool), "consul.grpc": typed("DebugConfig", "GRPCPort", int),
            "consul.dns.port": typed("DebugConfig", "DNSPort", int), "dns": typed("DebugConfig", "DNSAddrs", list),
            "license": answer["Stats"].get("license")}


def nomad_places_jobs_here():
    cluster = Cluster(1).start()
    server, client = cluster.servers[0], cluster.agent("a1").start()
    for agent in (server, client):
        found = fingerprint(self_of(agent))
        check(at_least(found["consul.version"], (1, 8, 0)), "Nomad's constraint on attr.consul.version: %r" % found)
        check(found == {"consul.server": agent is server, "consul.version": "1.8.7", "consul.revision": "", "unique.consul.name": agent.name,
                        "consul.datacenter": "dc1", "consul.segment": "", "consul.connect": False, "consul.grpc": -1, "consul.dns.port": 8600,
                        "dns": ["tcp://%s:8600" % agent.ip, "udp://%s:8600" % agent.ip], "license": None}, "%r" % found)


def everywhere_else():
    """Members, statistics, the servers' service (consul-esm compares its version), autopilot's health, metrics, command lines."""
    cluster = Cluster(1).start()
    server, client = cluster.servers[0], cluster.agent("a1").start()
    own = OWN[len("coord v"):]
    check(OWN == "coord v" + own and re.fullmatch(r"\d+\.\d+\.\d+", own) and own != "1.8.7", OWN)
    until("both are members", lambda: len(server.get("/v1/agent/members")[2]) == 2)
    for agent in (server, client):
        answer = self_of(agent)
        check(answer["Config"]["CoordVersion"] == own and answer["DebugConfig"]["Version"] == "1.8.7", "%r" % answer["Config"])
        check(answer["Stats"]["build"] == {"coord_version": own, "prerelease": "", "revision": "", "version": "1.8.7"}, "%r" % answer["Stats"])
        for member in agent.get("/v1/agent/members")[2] + [answer["Member"]]:
            check((member["Tags"]["build"], member["Tags"]["coord_version"]) == ("1.8.7:", own), "%r" % member)
        check({m["Build"] for m in rows(words(agent, "members"))} == {own}, "coord members shows what runs")
        check('coord_build_info{version="%s",consul_version="1.8.7"} 1\n' % own in agent.request("GET", "/v1/agent/metrics?format=prometheus")[2].decode(),
              "metrics")
    meta = [s["ServiceMeta"] for s in server.get("/v1/catalog/service/consul")[2]]
    check(meta == [{"coord_version": own, "version": "1.8.7"}], "%r" % meta)
    health = server.get("/v1/operator/autopilot/health")[2]["Servers"]
    check([(s["Version"], s["CoordVersion"]) for s in health] == [("1.8.7", own)], "%r" % health)
    if CONSUL:
        shown = subprocess.run([CONSUL, "members", "-http-addr=%s:8500" % server.ip], stdout=subprocess.PIPE, check=True).stdout.decode()
        check({m["Build"] for m in rows(shown)} == {"1.8.7"}, shown)


def another_level():
    """coord.consul_version changes what clients are told, not what coord calls itself."""
    agent = Agent(settings(consul_version="1.10.2"), dev=True).start()
    answer = self_of(agent)
    check(answer["Config"]["Version"] == "1.10.2" and answer["Config"]["CoordVersion"] == OWN[len("coord v"):], "%r" % answer["Config"])
    check(answer["Member"]["Tags"]["build"] == "1.10.2:", "%r" % answer["Member"])
    until("the servers' service follows", lambda: [s["ServiceMeta"]["version"] for s in agent.get("/v1/catalog/service/consul")[2]] == ["1.10.2"])
    for wrong in ("0.1", "v1.8.7", "latest"):
        refused = subprocess.run(Agent(settings(consul_version=wrong), dev=True).argv(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
        check(refused.returncode == 2 and b"is not a version as Consul's are, like 1.8.7" in refused.stderr, "%r" % refused)


def shapes_are_consuls():
    """Each field of DebugConfig that both have is of the type that the real one has (asked of Consul 1.8.7)."""
    kinds = {str: "ACLDatacenter AdvertiseAddrLAN BindAddr CheckUpdateInterval DNSAltDomain DNSDomain DataDir Datacenter NodeName Revision "
                  "HTTPSHandshakeTimeout SegmentName SessionTTLMin Version",
             bool: "ACLsEnabled Bootstrap ConnectEnabled DevMode LeaveOnTerm ServerMode SkipLeaveOnInt",
             int: "BootstrapExpect DNSPort GRPCPort HTTPMaxConnsPerClient HTTPPort HTTPSPort KVMaxValueSize ServerPort",
             list: "ClientAddrs DNSAddrs HTTPAddrs HTTPSAddrs RetryJoinLAN RetryJoinWAN"}
    agent = Agent("-alt-domain=alt", dev=True).start()
    debug = self_of(agent)["DebugConfig"]
    known = {name: kind for kind, names in kinds.items() for name in names.split()}
    for name, value in debug.items():
        check(name == "LogLevel" or type(value) is known[name], "%s: %r" % (name, value))
    check(debug["DNSDomain"] == "coord." and debug["DNSAltDomain"] == "alt." and debug["HTTPAddrs"] == ["tcp://%s:8500" % agent.ip], "%r" % debug)
    check(debug["CheckUpdateInterval"] == "5m0s" and debug["SessionTTLMin"] == "10s", "durations are texts: %r" % debug)


if __name__ == "__main__":
    run([nomad_places_jobs_here, everywhere_else, another_level, shapes_are_consuls])
