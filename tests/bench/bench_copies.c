/* Copies of other regions: 20 regions of 10,000 instances each in one store. Bytes on disk and in memory, CPU of the first
 * copy, the longest entry, what one change costs at its source and here, a catch-up of 10,000 changes, and what is left for local reads and
 * writes beside all that. The regions are one catalog that is
 * copied under 20 names; nothing goes over a network or through a log. An argument: the folder. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/log.h"
#include "base/message.h"
#include "multi-dc/follower.h"
#include "registry/history.h"
#include "registry/version.h"
#include "tests/bench/cpu.h"

enum { REGIONS = 20, NODES = 2000, ON_NODE = 5, SERVICES = 100, CHANGES = 10000, ROUNDS = 200, BESIDE_ROUNDS = 7 };

struct place {
    char folder[512];
    struct machine *machine;
    struct store_reader *reader;
};
static struct place source, own;
static struct follower *followers[REGIONS];
static uint64_t now_ms = 1000000, longest_ns[256], commands[256], logged;
static struct machine_result last;

static void done(void *data, void *origin, const struct machine_result *result) {
    (void)data, (void)origin;
    last = *result;
}

/* CPU in ns. */
static uint64_t apply(struct place *place, uint8_t type, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    machine_command(&bytes, type, message);
    struct machine_input input = {
        .index = machine_applied(place->machine) + 1, .term = 1, .command = buffer_slice(&bytes), .is_command = true};
    uint64_t began = cpu_ns();
    CHECK(machine_apply(place->machine, &input, 1, done, NULL, NULL) == CO_OK);
    uint64_t took = cpu_ns() - began;
    CHECK(last.error == CO_OK);
    if (took > longest_ns[type]) longest_ns[type] = took;
    commands[type]++;
    if (place == &own) logged += bytes.size;
    buffer_free(&bytes);
    return took;
}

static void place_open(struct place *place, const char *base) {
    struct fault fault = {0};
    snprintf(place->folder, sizeof place->folder, "%s/bench-copies-XXXXXX", base);
    CHECK(mkdtemp(place->folder));
    struct machine_config config = {.store = {.folder = place->folder}, .modules = agent_modules};
    CHECK(machine_open(&config, &place->machine, &fault) == CO_OK);
    place->reader = store_reader_new(machine_store(place->machine));
    Pb__ClusterVersionCommand raise = PB__CLUSTER_VERSION_COMMAND__INIT;
    raise.version = MACHINE_VERSION_NEWEST, raise.cluster_id = 7;
    (void)apply(place, CLUSTER_VERSION, &raise.base);
}

static void place_close(struct place *place) {
    char command[600];
    store_reader_free(place->reader);
    machine_close(place->machine);
    snprintf(command, sizeof command, "rm -r %s", place->folder);
    CHECK(system(command) == 0);
}

/* -- the source --------------------------------------------------------------------------------------------------- */

#define PAIR(k, v) \
    &(Pb__Pair) { PROTOBUF_C_MESSAGE_INIT(&pb__pair__descriptor), k, v }
#define TAGGED(n, a, p) \
    &(Pb__TaggedAddress) { PROTOBUF_C_MESSAGE_INIT(&pb__tagged_address__descriptor), n, a, p }

/* As an agent registers itself and its services. */
static void register_node(unsigned node) {
    struct arena arena = {0};
    Pb__Node self = PB__NODE__INIT;
    self.name = arena_printf(&arena, "host-%05u.rack-%02u.example.net", node, node % 40);
    self.id = arena_printf(&arena, "4f3c2b1a-0000-4000-8000-%012u", node);
    self.address = arena_printf(&arena, "10.%u.%u.%u", node / 65536, node / 256 % 256, node % 256);
    self.datacenter = arena_printf(&arena, "region-1");
    self.tagged_addresses =
        (Pb__TaggedAddress *[]){TAGGED((char *)"lan", self.address, 0), TAGGED((char *)"lan_ipv4", self.address, 0),
                                TAGGED((char *)"wan", self.address, 0), TAGGED((char *)"wan_ipv4", self.address, 0)};
    self.n_tagged_addresses = 4;
    self.meta = (Pb__Pair *[]){PAIR((char *)"consul-network-segment", (char *)""), PAIR((char *)"rack", (char *)"12")};
    self.n_meta = 2;
    for (unsigned i = 0; i < ON_NODE; i++) {
        Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
        Pb__Service service = PB__SERVICE__INIT;
        Pb__Check checks[2] = {PB__CHECK__INIT, PB__CHECK__INIT};
        unsigned name = (node * ON_NODE + i) % SERVICES;
        command.node = &self, command.service = &service;
        service.name = arena_printf(&arena, "service-%03u", name);
        service.id = arena_printf(&arena, "service-%03u-%u", name, i);
        service.port = 8000 + i;
        service.tags = (char *[]){(char *)"production", name % 2 ? (char *)"v1" : (char *)"v2"}, service.n_tags = 2;
        service.meta = (Pb__Pair *[]){PAIR((char *)"version", (char *)"1.24.3")}, service.n_meta = 1;
        checks[0].check_id = arena_printf(&arena, "service:%s", service.id);
        checks[0].name = arena_printf(&arena, "Service '%s' check", service.name);
        checks[0].service_id = service.id, checks[0].type = (char *)"http";
        checks[0].output = message_bytes(slice_text("HTTP GET http://10.0.0.1:8000/health: 200 OK Output: ok"));
        checks[1].check_id = (char *)"serfHealth", checks[1].name = (char *)"Serf Health Status";
        checks[1].output = message_bytes(slice_text("Agent alive and reachable"));
        command.checks = (Pb__Check *[]){&checks[0], &checks[1]}, command.n_checks = 2;
        (void)apply(&source, CATALOG_REGISTER, &command.base);
    }
    arena_free(&arena);
}

/* Of a check of one instance. */
static uint64_t change_one(unsigned number) {
    struct arena arena = {0};
    unsigned node = number % NODES, i = number / NODES % ON_NODE, name = (node * ON_NODE + i) % SERVICES;
    Pb__Node self = PB__NODE__INIT;
    Pb__Check check = PB__CHECK__INIT;
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    self.name = arena_printf(&arena, "host-%05u.rack-%02u.example.net", node, node % 40);
    check.service_id = arena_printf(&arena, "service-%03u-%u", name, i);
    check.check_id = arena_printf(&arena, "service:%s", check.service_id);
    check.name = arena_printf(&arena, "Service '%s' check", check.service_id);
    check.status = number / NODES / ON_NODE % 2 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL;
    check.type = (char *)"http";
    command.node = &self, command.skip_node_update = true;
    command.checks = (Pb__Check *[]){&check}, command.n_checks = 1;
    uint64_t took = apply(&source, CATALOG_REGISTER, &command.base);
    arena_free(&arena);
    return took;
}

/* -- following ---------------------------------------------------------------------------------------------------- */

static uint64_t asked_ns, read_ns, took_ns, answer_most;

/* The packed result, in the arena; *index of it. */
static struct slice ask(struct place *place, const struct query_type *type, const ProtobufCMessage *request,
                        uint64_t *index, struct arena *arena, uint64_t *ns) {
    struct query_result result;
    struct arena inner = {0};
    uint64_t began = cpu_ns();
    CHECK(type->run(store_read(place->reader), request, &inner, &result) == CO_OK);
    struct slice packed = message_pack(arena, result.message);
    store_read_done(place->reader);
    arena_free(&inner);
    *ns += cpu_ns() - began;
    *index = result.index;
    return packed;
}

/* Until it waits for a change. CPU of all of it, here: without asking the source. */
static void follow(struct follower *follower) {
    for (;;) {
        struct arena arena = {0};
        struct follower_effect effect;
        now_ms += FOLLOWER_PACE_MS;
        uint64_t began = cpu_ns();
        follower_next(follower, now_ms, &effect);
        took_ns += cpu_ns() - began;
        CHECK(effect.wish != FOLLOWER_RESTS);
        struct follower_answer answer = {.as_of_ms = now_ms};
        if (effect.wish == FOLLOWER_READS) {
            answer.records = ask(&own, effect.query, effect.message, &answer.index, &arena, &read_ns);
            follower_answered(follower, effect.ticket, &answer, now_ms);
        } else if (effect.wish == FOLLOWER_ASKS) {
            answer.records = ask(&source, effect.query, effect.message, &answer.index, &arena, &asked_ns);
            if (answer.records.size > answer_most) answer_most = answer.records.size;
            began = cpu_ns();
            follower_answered(follower, effect.ticket, &answer, now_ms);
            took_ns += cpu_ns() - began;
            struct follower_state state;
            follower_state(follower, &state);
            if (state.current && answer.index <= effect.index) {
                arena_free(&arena);
                return;
            }
        } else {
            took_ns += apply(&own, effect.command, effect.message);
            follower_proposed(follower, effect.ticket, CO_OK, last.error, last.yes, last.index, now_ms);
        }
        arena_free(&arena);
    }
}

static void follow_all(void) {
    for (size_t i = 0; i < REGIONS; i++) follow(followers[i]);
}

static uint64_t rss_kib(void) {
    unsigned long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%llu %llu", &pages, &resident) == 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void begin_figures(void) {
    asked_ns = read_ns = took_ns = answer_most = logged = 0;
    memset(longest_ns, 0, sizeof longest_ns);
    memset(commands, 0, sizeof commands);
}

static void print_longest(void) {
    static const char *const names[] = {"update", "stage", "commit", "tidy"};
    for (uint8_t i = 0; i < 4; i++)
        if (commands[COPY_UPDATE + i])
            printf("  %-7s %6llu entries, the longest %.2f ms\n", names[i],
                   (unsigned long long)commands[COPY_UPDATE + i], (double)longest_ns[COPY_UPDATE + i] / 1e6);
}

/* -- beside it ---------------------------------------------------------------------------------------------------- */

static void write_here(struct place *place, unsigned number) {
    char name[32], address[] = "10.0.0.1", service_name[] = "here";
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    snprintf(name, sizeof name, "node-%u", number % 10);
    node.name = name, node.address = address;
    service.name = service.id = service_name, service.port = 1 + number % 60000;
    command.node = &node, command.service = &service;
    (void)apply(place, CATALOG_REGISTER, &command.base);
}

static void read_here(struct place *place) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    struct arena arena = {0};
    uint64_t index, ns = 0;
    request.service = (char *)"here";
    (void)ask(place, &query_service_entries, &request.base, &index, &arena, &ns);
    arena_free(&arena);
}

/* Local writes, each with nine reads, for a second of CPU: how many. Beside them, a hundred times in that second, a copy takes what its region
 * changed since the copy's last turn; what that costs at the source does not count. */
static unsigned done_here(struct place *place, bool copies) {
    static unsigned changed, turn;
    unsigned count = 0;
    uint64_t used_ns = 0;
    for (unsigned slice = 0; slice < 100; slice++) {
        begin_figures();
        if (copies && turn % REGIONS == 0) (void)change_one(changed++);
        if (copies) follow(followers[turn++ % REGIONS]);
        used_ns += took_ns + read_ns;
        uint64_t began = cpu_ns();
        for (; used_ns + cpu_ns() - began < (uint64_t)(slice + 1) * 10000000; count++) {
            write_here(place, count);
            for (int i = 0; i < 9; i++) read_here(place);
        }
        used_ns += cpu_ns() - began;
    }
    return count;
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
}

/* In turn, since the machine is not always as fast: a store without copies, one with them, one with them and their changes. */
static void beside(const char *base) {
    static struct place bare;
    double alone[BESIDE_ROUNDS], quiet[BESIDE_ROUNDS], busy[BESIDE_ROUNDS];
    place_open(&bare, base);
    for (size_t i = 0; i < BESIDE_ROUNDS; i++) {
        alone[i] = done_here(&bare, false);
        quiet[i] = done_here(&own, false) / alone[i];
        busy[i] = done_here(&own, true) / alone[i];
    }
    printf(
        "local writes with nine reads each in a second of CPU: %.0f alone; of that %.2f beside the copies, %.2f beside "
        "their changes\n",
        median(alone, BESIDE_ROUNDS), median(quiet, BESIDE_ROUNDS), median(busy, BESIDE_ROUNDS));
    place_close(&bare);
}

static double ms(uint64_t ns) { return (double)ns / 1e6; }

int main(int count, char **arguments) {
    const char *base = count > 1 ? arguments[1] : "/tmp";
    log_level_set(LOG_WARN);
    place_open(&source, base);
    place_open(&own, base);
    for (unsigned i = 0; i < NODES; i++) register_node(i);
    uint64_t before_kib = rss_kib();
    for (size_t i = 0; i < REGIONS; i++) {
        char name[32];
        snprintf(name, sizeof name, "region-%zu", i + 1);
        followers[i] = follow_catalog(name);
        follower_leads(followers[i], true, now_ms);
    }
    begin_figures();
    follow(followers[0]);
    printf(
        "first copy of a region of %d instances: %.0f ms of CPU here, %.0f ms at its source, %.1f MB answer, %.1f MB "
        "of log\n",
        NODES * ON_NODE, ms(took_ns + read_ns), ms(asked_ns), (double)answer_most / 1e6, (double)logged / 1e6);
    follow_all();
    print_longest();
    struct store_txn *txn = store_read(own.reader);
    uint64_t live = store_live_bytes(txn);
    store_read_done(own.reader);
    printf("%d regions: %.1f MB of pages, %.0f bytes an instance; resident %.1f MB more than before\n", REGIONS,
           (double)live / 1e6, (double)live / REGIONS / NODES / ON_NODE, (double)(rss_kib() - before_kib) / 1024);

    begin_figures();
    unsigned number = 0;
    uint64_t changed_ns = 0;
    for (int round = 0; round < ROUNDS; round++) {
        changed_ns += change_one(number++);
        follow_all();
    }
    double changes = (double)ROUNDS * REGIONS;
    printf(
        "one change after the other: %.0f us of CPU a change here, %.0f us at its source; at 100 a second %.2f %% of a "
        "core\n",
        (double)(took_ns + read_ns) / changes / 1e3, (double)asked_ns / changes / 1e3,
        (double)(took_ns + read_ns) / changes * 100 / 1e7);
    print_longest();

    beside(base);
    begin_figures();
    for (unsigned i = 0; i < CHANGES; i++) (void)change_one(number++);
    follow(followers[0]);
    printf("catch-up of %d changes: %.0f ms of CPU here, %.0f ms at its source, %.1f MB answer\n", CHANGES,
           ms(took_ns + read_ns), ms(asked_ns), (double)answer_most / 1e6);
    print_longest();

    /* As after a cut that is longer than the history. */
    begin_figures();
    Pb__HistoryMarkCommand off = PB__HISTORY_MARK_COMMAND__INIT;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    limits.bytes = limits.age_ms = 1000, off.term = 1, off.now_unix_ms = 1000, off.limits = &limits;
    (void)apply(&source, HISTORY_MARK, &off.base);
    for (unsigned i = 0; i < CHANGES / 10; i++) (void)change_one(number++);
    follow(followers[1]);
    printf("catch-up of %d changes without history: %.0f ms of CPU here, %.0f ms at its source, %.1f MB answer\n",
           CHANGES / 10, ms(took_ns + read_ns), ms(asked_ns), (double)answer_most / 1e6);
    print_longest();
    for (size_t i = 0; i < REGIONS; i++) follower_free(followers[i]);
    place_close(&source);
    place_close(&own);
    return 0;
}
