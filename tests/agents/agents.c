/* agents: many client agents in one process, against servers of the real program (fleet.h). Prints a line for each
 * part of the run:
 *
 *     registered seconds=S agents=A services=N checks=N     everything is in the catalog, S after the start
 *     idle seconds=S                                        nothing changes; begins (--idle)
 *     changing seconds=S rate=R                             R changes of status a minute; begins (--seconds)
 *     changed changes=N a-minute=N settled=S                as many were made; all of them had been delivered S after the last
 *     lag seen=N overtaken=N not-seen=N median=MS p99=MS longest=MS       from a change to a blocking query (--watched)
 *     equal agents=N differ=N seconds=S                     the catalog, asked over HTTP, against what the agents know
 *     hold                                                  until its standard input ends (--hold); a line "cut" there ends
 *                                                           all connections, one "watch" waits until one has ended, and then
 *     back agents=A half=S all=S                            all have a server again, so long after the first had none
 *
 * Exit status 1: something was not delivered in time, not seen, or differs. */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fleet.h"
#include "truth.h"
#include "watchers.h"

#define SERVERS_MAX 16

struct options {
    struct fleet_config fleet;
    const char *servers[SERVERS_MAX + 1];
    const char *http;
    unsigned rate, seconds, idle, patience;
    bool hold;
};

static void usage(void) {
    puts(
        "usage: agents --servers HOST:PORT[,HOST:PORT...] --http HOST:PORT [--agents 2000] [--services 10] [--checks "
        "20]\n"
        "  [--changes-per-minute 0] [--seconds 60] [--idle 0] [--names N: of services in all, a twentieth of the "
        "instances]\n"
        "  [--watched 20: agents whose changes are timed] [--repeat 10: seconds after which a check says the same "
        "again; 0: never]\n"
        "  [--lease-ttl 10] [--threads 2] [--prefix sim] [--datacenter dc1] [--patience 120: seconds for all to be "
        "delivered]\n"
        "  [--loads 0: reports of load a second of each agent, of its services in turn]\n"
        "  [--coordinates: network coordinates are measured and reported, too]\n"
        "  [--waiting: somebody at each waits for a change that does not come] [--hold]\n"
        "  [--tls FOLDER: the data folder of a server of a closed cluster, for certificates of its CA]\n"
        "--servers: rpc ports (8300); --http: what is asked whether the catalog is right");
}

static unsigned number(const char *name, const char *text) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (!*text || *end || value > 10000000) {
        fprintf(stderr, "agents: --%s: \"%s\" is not a number up to 10000000\n", name, text);
        exit(2);
    }
    return (unsigned)value;
}

static void split_servers(struct options *options, char *text) {
    unsigned count = 0;
    for (char *at = strtok(text, ","); at && count < SERVERS_MAX; at = strtok(NULL, ","))
        options->servers[count++] = at;
}

static void parse(struct options *o, int argc, char **argv) {
    unsigned lease_ttl_s = 10;
    struct {
        const char *name;
        unsigned *to;
    } numbers[] = {{"agents", &o->fleet.agents},     {"services", &o->fleet.services}, {"checks", &o->fleet.checks},
                   {"names", &o->fleet.names},       {"threads", &o->fleet.threads},   {"watched", &o->fleet.watched},
                   {"repeat", &o->fleet.repeat_s},   {"lease-ttl", &lease_ttl_s},      {"loads", &o->fleet.loads},
                   {"changes-per-minute", &o->rate}, {"seconds", &o->seconds},         {"idle", &o->idle},
                   {"patience", &o->patience}};
    enum { NUMBERS = sizeof numbers / sizeof numbers[0] };
    struct option all[NUMBERS + 9] = {
        {"servers", 1, NULL, 's'},    {"http", 1, NULL, 'h'}, {"prefix", 1, NULL, 'p'},
        {"datacenter", 1, NULL, 'd'}, {"hold", 0, NULL, 'o'}, {"coordinates", 0, NULL, 'c'},
        {"waiting", 0, NULL, 'w'},    {"tls", 1, NULL, 't'},  {"help", 0, NULL, '?'}};
    for (int i = 0; i < NUMBERS; i++) all[i + 8] = (struct option){numbers[i].name, 1, NULL, 256 + i};
    for (int code; (code = getopt_long(argc, argv, "", all, NULL)) != -1;) {
        if (code == 's') split_servers(o, optarg);
        else if (code == 'h') o->http = optarg;
        else if (code == 'p') o->fleet.prefix = optarg;
        else if (code == 'd') o->fleet.datacenter = optarg;
        else if (code == 't') o->fleet.tls = optarg;
        else if (code == 'o') o->hold = true;
        else if (code == 'c') o->fleet.coordinates = true;
        else if (code == 'w') o->fleet.waiting = true;
        else if (code >= 256) *numbers[code - 256].to = number(numbers[code - 256].name, optarg);
        else {
            usage();
            exit(2);
        }
    }
    if (optind < argc || !o->servers[0] || !o->http || !o->fleet.agents || !o->fleet.threads) {
        usage();
        exit(2);
    }
    o->fleet.servers = o->servers;
    o->fleet.lease_ttl_ns = (int64_t)lease_ttl_s * 1000000000;
    if (!o->fleet.names) o->fleet.names = o->fleet.agents * o->fleet.services / 20 + 1;
    if (o->fleet.threads > o->fleet.agents) o->fleet.threads = o->fleet.agents;
    if (!o->fleet.checks) o->rate = o->fleet.watched = 0;
}

static double seconds_since(uint64_t begun_ns) { return (double)(clock_mono_ns() - begun_ns) / 1e9; }

/* Until all agents have delivered what they know; false: not within `patience`. */
static bool settle(struct fleet *fleet, unsigned patience) {
    uint64_t begun_ns = clock_mono_ns();
    while (fleet_synced(fleet) < fleet->config.agents) {
        if (seconds_since(begun_ns) > patience) {
            printf("not delivered agents=%u\n", fleet->config.agents - fleet_synced(fleet));
            return false;
        }
        usleep(20000);
    }
    return true;
}

static bool change(struct fleet *fleet, const struct options *o) {
    struct watchers *watchers = watchers_start(fleet, o->http);
    struct watchers_result lag;
    sleep(1); /* they are waiting now */
    printf("changing seconds=%u rate=%u\n", o->seconds, o->rate);
    uint64_t begun_ns = clock_mono_ns();
    fleet_rate(fleet, o->rate);
    sleep(o->seconds);
    fleet_rate(fleet, 0);
    double took = seconds_since(begun_ns);
    uint64_t over_ns = clock_mono_ns();
    bool delivered = settle(fleet, o->patience);
    printf("changed changes=%llu a-minute=%.0f settled=%.2f\n", (unsigned long long)atomic_load(&fleet->changes),
           (double)atomic_load(&fleet->changes) * 60 / took, seconds_since(over_ns));
    sleep(1); /* one that overtakes another may just be made */
    for (uint64_t waits_ns = clock_mono_ns(); watchers_unseen(watchers) && seconds_since(waits_ns) < o->patience;)
        usleep(20000);
    watchers_stop(watchers, &lag);
    printf("lag seen=%u overtaken=%llu not-seen=%u median=%.1f p99=%.1f longest=%.1f\n", lag.watched,
           (unsigned long long)atomic_load(&fleet->overtaken), lag.not_seen, lag.median_ms, lag.p99_ms, lag.longest_ms);
    return delivered && lag.not_seen == 0;
}

static bool compare(struct fleet *fleet, const struct options *o) {
    uint64_t begun_ns = clock_mono_ns();
    unsigned differ = truth_compare(fleet, o->http, false);
    while (differ && seconds_since(begun_ns) < o->patience) { /* servers that elect a leader tell nothing */
        usleep(100000);
        differ = truth_compare(fleet, o->http, false);
    }
    if (differ) differ = truth_compare(fleet, o->http, true);
    printf("equal agents=%u differ=%u seconds=%.2f\n", fleet->config.agents - differ, differ, seconds_since(begun_ns));
    return differ == 0;
}

/* From the first agent without a server until all have one. */
static bool come_back(struct fleet *fleet, unsigned patience) {
    uint64_t begun_ns = clock_mono_ns();
    unsigned all = fleet->config.agents, connected;
    while (fleet_connected(fleet) == all && seconds_since(begun_ns) < patience) usleep(2000);
    double half = 0;
    for (begun_ns = clock_mono_ns(); (connected = fleet_connected(fleet)) < all;) {
        /* half of them at the end of the outage: at its beginning many are still connected */
        if (connected < all / 2) half = seconds_since(begun_ns);
        if (seconds_since(begun_ns) > patience) return false;
        usleep(5000);
    }
    printf("back agents=%u half=%.2f all=%.2f\n", all, half, seconds_since(begun_ns));
    return true;
}

static bool hold(struct fleet *fleet, unsigned patience) {
    char line[16];
    bool good = true;
    puts("hold");
    log_level_now = getenv("WARN") ? LOG_WARN : LOG_ERROR; /* each tells that it has lost its server */
    while (good && fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "cut\n") == 0) fleet_cut(fleet);
        good = come_back(fleet, patience);
    }
    return good;
}

int main(int argc, char **argv) {
    struct options o = {.fleet = {.agents = 2000,
                                  .services = 10,
                                  .checks = 20,
                                  .threads = 2,
                                  .watched = 20,
                                  .repeat_s = 10,
                                  .prefix = "sim",
                                  .datacenter = "dc1"},
                        .seconds = 60,
                        .patience = 120};
    struct rlimit files;
    parse(&o, argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    log_level_now = LOG_WARN;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    uint64_t begun_ns = clock_mono_ns();
    struct fleet *fleet = fleet_start(&o.fleet);
    bool good = settle(fleet, o.patience);
    if (good) {
        printf("registered seconds=%.2f agents=%u services=%u checks=%u\n", seconds_since(begun_ns), o.fleet.agents,
               o.fleet.agents * o.fleet.services, o.fleet.agents * o.fleet.checks);
        if (o.idle) printf("idle seconds=%u\n", o.idle), sleep(o.idle);
        if (o.rate) good = change(fleet, &o);
        good = compare(fleet, &o) && good;
        if (o.hold) good = hold(fleet, o.patience) && good;
    }
    fleet_stop(fleet);
    return good ? 0 : 1;
}
