/* Fetches on servers: at once, waiting, woken by what they wait for and by nothing else, cancelled at any moment,
 * ended with their server. A plain main: runs under the sanitizers. */
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "asked.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "registry/catalog.h"
#include "rpc/reads/fetch_service.h"
#include "tests/lib/servers.h"

static struct server server;

/* -- one fetch, waited for ---------------------------------------------------------------------------------------- */
static void begin(struct asked *asked, struct server *at, const struct query_type *type, const char *key,
                  struct how how) {
    asked_begin_key(asked, at->rpc, type, key, how);
}

static void ask(struct asked *asked, struct server *at, const struct query_type *type, const char *key,
                struct how how) {
    uint64_t deadline = clock_mono_ms() + 60000;
    for (;;) {
        begin(asked, at, type, key, how);
        asked_await(asked);
        if (!server_elects(at, asked->error) || clock_mono_ms() >= deadline) break;
        asked_end(asked);
    }
    if (asked->error) fprintf(stderr, "fetch of %s: %s\n", key, co_strerror(asked->error));
    CHECK(asked->error == CO_OK);
}

static uint64_t index_now(struct server *at, const struct query_type *type, const char *key) {
    struct asked asked;
    ask(&asked, at, type, key, (struct how){0});
    asked_end(&asked);
    return asked.fetched.index;
}

/* All that was begun or fired before is past its turn when two fetches, one after the other, are done. */
static void pass_turns(struct server *at) {
    for (int i = 0; i < 2; i++) (void)index_now(at, &query_kv_get, "turn");
}

/* -- alone -------------------------------------------------------------------------------------------------------- */
static void at_once(void) {
    struct asked asked;
    ask(&asked, &server, &query_kv_get, "color", (struct how){0});
    CHECK(!asked.fetched.found && asked.fetched.none && asked.fetched.index > 0 && asked.records.size == 0);
    asked_end(&asked);
    server_put(&server, "color", "blue");
    for (int stale = 0; stale < 2; stale++) {
        ask(&asked, &server, &query_kv_get, "color", (struct how){.stale = stale});
        CHECK(asked_value_is(&asked, "blue") && asked.fetched.known_leader && !asked.fetched.none);
        CHECK(asked.fetched.last_contact_ms == 0 && asked.fetched.age_ms == 0);
        asked_end(&asked);
    }
    uint64_t index = index_now(&server, &query_kv_get, "color");
    /* Older than what is there, and of another cluster's life. */
    uint64_t indexes[] = {index - 1, index + 1000000};
    for (size_t i = 0; i < ARRAY_COUNT(indexes); i++) {
        ask(&asked, &server, &query_kv_get, "color", (struct how){.index = indexes[i], .wait_ms = 600000});
        CHECK(asked_value_is(&asked, "blue"));
        asked_end(&asked);
    }
    char longer[2000] = {0}; /* does not fit into the struct */
    memset(longer, 'k', sizeof longer - 1);
    server_put(&server, longer, "long");
    ask(&asked, &server, &query_kv_get, longer, (struct how){0});
    CHECK(asked_value_is(&asked, "long"));
    asked_end(&asked);
}

static void woken_by_its_own(void) {
    for (int stale = 0; stale < 2; stale++) {
        struct asked asked;
        uint64_t index = index_now(&server, &query_kv_get, "color");
        begin(&asked, &server, &query_kv_get, "color", (struct how){.stale = stale, .index = index, .wait_ms = 600000});
        server_put(&server, "shape", "round");
        server_put(&server, "colors", "many");
        pass_turns(&server);
        CHECK(!asked_over(&asked));
        server_put(&server, "color", stale ? "green" : "red");
        asked_await(&asked);
        CHECK(asked.error == CO_OK && asked.fetched.index > index && asked_value_is(&asked, stale ? "green" : "red"));
        asked_end(&asked);
    }
}

/* The names below a prefix, woken by two of the keys there alone: a query with a watch key of its own beside that
 * which it shares. */
static struct watch_key first_watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_KEY, SLICE_LITERAL("storm/0")};
}
static struct watch_key own_watched(const ProtobufCMessage *request, size_t i) {
    (void)request;
    if (i > 0) return (struct watch_key){0};
    return (struct watch_key){SPACE_KEY, SLICE_LITERAL("storm/1")};
}
static struct query_type query_two;

static void woken_by_either_key(void) {
    query_two = query_kv_keys;
    query_two.watched = first_watched, query_two.own = own_watched;
    server_put(&server, "storm/0", "0"), server_put(&server, "storm/1", "0"), server_put(&server, "storm/2", "0");
    static const char *const wakes[] = {"storm/1", "storm/0"};
    for (size_t i = 0; i < ARRAY_COUNT(wakes); i++) {
        struct asked asked;
        uint64_t index = index_now(&server, &query_two, "storm/");
        begin(&asked, &server, &query_two, "storm/", (struct how){.index = index, .wait_ms = 600000});
        pass_turns(&server);                 /* it waits: what is new to its first read would be answered with */
        server_delete(&server, "storm/2");   /* what is read changes, but by neither of the two */
        server_put(&server, "storm/2", "0"); /* and is as it was */
        for (char value[] = "1"; value[0] <= '3'; value[0]++) {
            server_put(&server, wakes[i], value); /* woken, for nothing */
            pass_turns(&server);
            CHECK(!asked_over(&asked));
        }
        server_delete(&server, wakes[i]);
        asked_await(&asked);
        CHECK(asked.error == CO_OK && asked.fetched.index > index);
        asked_end(&asked);
    }
    CHECK(watch_count(rpc_watches(server.rpc)) == 0);
}

/* The names below a prefix stay the same although a value changes, and with it the index. */
static void same_bytes_are_no_change(void) {
    server_put(&server, "list/a", "1");
    uint64_t index = index_now(&server, &query_kv_keys, "list/");
    struct asked asked;
    begin(&asked, &server, &query_kv_keys, "list/", (struct how){.index = index, .wait_ms = 600000});
    pass_turns(&server); /* it waits: what is new to its first read would be answered with */
    for (int i = 0; i < 5; i++) {
        server_put(&server, "list/a", i % 2 ? "1" : "2");
        pass_turns(&server);
        CHECK(!asked_over(&asked));
    }
    server_put(&server, "list/b", "1");
    asked_await(&asked);
    CHECK(asked.fetched.index > index);
    asked_end(&asked);
}

/* As on a server that is behind: the client has seen a later state elsewhere. When the thing is as it was again,
 * that is a change. */
static void behind_the_client(void) {
    for (int slowly = 0; slowly < 2; slowly++) {
        struct asked asked;
        uint64_t index = rpc_applied(server.rpc) + 1;
        begin(&asked, &server, &query_kv_keys, "back/", (struct how){.stale = true, .index = index, .wait_ms = 600000});
        if (slowly) pass_turns(&server);
        server_put(&server, "back/a", "what it has seen");
        if (slowly) pass_turns(&server);
        CHECK(!asked_over(&asked) && rpc_applied(server.rpc) == index);
        server_delete(&server, "back/a");
        asked_await(&asked);
        CHECK(asked.error == CO_OK && asked.fetched.index > index);
        asked_end(&asked);
    }
}

static void time_is_up(void) {
    uint64_t index = index_now(&server, &query_kv_get, "color"),
             listed_before = index_now(&server, &query_kv_keys, "list/");
    struct asked asked, longer;
    uint64_t before = clock_mono_ms();
    begin(&longer, &server, &query_kv_keys, "list/", (struct how){.index = listed_before, .wait_ms = 400});
    begin(&asked, &server, &query_kv_get, "color", (struct how){.index = index, .wait_ms = 100});
    pass_turns(&server);                /* they wait: what is new to the first read is answered with at once */
    server_put(&server, "list/a", "3"); /* a new index, the same bytes */
    bool in_time = clock_mono_ms() - before < 400;
    asked_await(&asked);
    CHECK(asked.error == CO_OK && asked.fetched.index == index && clock_mono_ms() - before >= 100);
    asked_end(&asked);
    asked_await(&longer);
    CHECK(longer.error == CO_OK && clock_mono_ms() - before >= 400);
    CHECK(longer.fetched.index > listed_before || !in_time);
    asked_end(&longer);
}

/* -- none is lost ------------------------------------------------------------------------------------------------- */
enum { FOLLOWERS = 6, ROUNDS = 150, STEPS = 4, PADDINGS = 4, PADDING_BYTES = 50000 };
static _Atomic unsigned at_step[FOLLOWERS];

/* Of a listing, whose last key it is, or of the key. */
static unsigned step_in(const struct asked *asked, bool listing) {
    const uint8_t *bytes = (const uint8_t *)asked->records.data;
    Pb__KvEntriesResult *entries = listing ? pb__kv_entries_result__unpack(NULL, asked->records.size, bytes) : NULL;
    Pb__KvEntry *entry = listing ? NULL : pb__kv_entry__unpack(NULL, asked->records.size, bytes);
    CHECK(listing ? entries && entries->n_entries > 0 : entry != NULL);
    const ProtobufCBinaryData *value = listing ? &entries->entries[entries->n_entries - 1]->value : &entry->value;
    char text[16] = {0};
    CHECK(value->len < sizeof text);
    memcpy(text, value->data, value->len);
    if (entries) pb__kv_entries_result__free_unpacked(entries, NULL);
    if (entry) pb__kv_entry__free_unpacked(entry, NULL);
    return (unsigned)atoi(text);
}

/* From value to value, each time waiting for what comes after the one seen. Two read much, so that changes do fall
 * between reading and waiting. */
static void *follower_main(void *data) {
    size_t number = (uintptr_t)data;
    bool much = number < 2;
    struct asked asked;
    uint64_t index = 0;
    while (at_step[number] < ROUNDS * STEPS) {
        ask(&asked, &server, much ? &query_kv_list : &query_kv_get, much ? "step" : "step/last",
            (struct how){.stale = number % 2, .index = index, .wait_ms = 600000});
        CHECK(asked.fetched.index > index);
        index = asked.fetched.index;
        atomic_store(&at_step[number], step_in(&asked, much));
        asked_end(&asked);
    }
    return NULL;
}

/* A change that was lost would leave somebody behind: nothing else comes before all have seen it. */
static void await_followers(unsigned step) {
    uint64_t deadline = clock_mono_ms() + 60000;
    for (size_t i = 0; i < FOLLOWERS; i++) {
        while (atomic_load(&at_step[i]) < step) {
            CHECK(clock_mono_ms() < deadline);
            usleep(100);
        }
    }
}

static void none_is_lost(void) {
    pthread_t followers[FOLLOWERS];
    char padding[PADDING_BYTES] = {0};
    for (char name[] = "step/0"; name[5] < '0' + PADDINGS; name[5]++)
        server_put_bytes(&server, name, slice_make(padding, sizeof padding));
    server_put(&server, "step/last", "0");
    for (uintptr_t i = 0; i < FOLLOWERS; i++) CHECK(pthread_create(&followers[i], NULL, follower_main, (void *)i) == 0);
    for (unsigned step = 1; step <= ROUNDS * STEPS; step++) {
        char value[16];
        snprintf(value, sizeof value, "%u", step);
        server_put(&server, "step/last", value);
        if (step % STEPS == 0) await_followers(step);
    }
    for (size_t i = 0; i < FOLLOWERS; i++) pthread_join(followers[i], NULL);
}

/* -- large reads -------------------------------------------------------------------------------------------------- */
enum { LARGE = 600, LARGE_BYTES = 4096 };

static size_t listed(const struct asked *asked) {
    Pb__KvEntriesResult *entries =
        pb__kv_entries_result__unpack(NULL, asked->records.size, (const uint8_t *)asked->records.data);
    CHECK(entries);
    size_t count = entries->n_entries;
    pb__kv_entries_result__free_unpacked(entries, NULL);
    return count;
}

static void large_reads(void) {
    char value[LARGE_BYTES], key[32];
    memset(value, 'x', sizeof value);
    for (int i = 0; i < LARGE; i++) {
        snprintf(key, sizeof key, "large/%04d", i);
        server_put_bytes(&server, key, slice_make(value, sizeof value));
    }
    struct asked asked[8];
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++)
        begin(&asked[i], &server, &query_kv_list, i % 4 ? "large/" : "large/0", (struct how){.stale = i % 2});
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) {
        asked_await(&asked[i]);
        CHECK(asked[i].error == CO_OK && listed(&asked[i]) == LARGE);
        asked_end(&asked[i]);
    }
    uint64_t index = index_now(&server, &query_kv_list, "large/");
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++)
        begin(&asked[i], &server, &query_kv_list, "large/",
              (struct how){.stale = i % 2, .index = index, .wait_ms = 600000});
    server_put(&server, "largest", "no");
    pass_turns(&server);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) CHECK(!asked_over(&asked[i]));
    server_put(&server, "large/more", "yes");
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) {
        asked_await(&asked[i]);
        CHECK(asked[i].error == CO_OK && listed(&asked[i]) == LARGE + 1 && asked[i].fetched.index > index);
        asked_end(&asked[i]);
    }
}

/* -- cancelled at any moment -------------------------------------------------------------------------------------- */
enum { CANCELLERS = 4, WRITERS = 2, SLOTS = 8 };
static atomic_bool storm_over;
static _Atomic uint64_t answered, cancelled;

static void *writer_main(void *data) {
    struct rng rng;
    rng_seed(&rng, 4711 + (uintptr_t)data);
    while (!atomic_load(&storm_over)) {
        char key[32];
        snprintf(key, sizeof key, "storm/%u", (unsigned)rng_below(&rng, 8));
        server_put(&server, key, "again");
    }
    return NULL;
}

static void storm_begin(struct asked *asked, struct rng *rng) {
    char key[32];
    snprintf(key, sizeof key, "storm/%u", (unsigned)rng_below(rng, 8));
    /* Of the names every write is news, and changes nothing: one that is cancelled while it waits ends by that
     * alone. */
    const struct query_type *type = &query_kv_get;
    unsigned kind = (unsigned)rng_below(rng, 16);
    if (kind == 0) type = &query_kv_list;
    if (kind == 1) type = &query_two;
    if (kind > 10) type = &query_kv_keys;
    /* The index of what was applied last: it waits, unless a write comes at this moment. */
    uint64_t index = rng_below(rng, 4) ? rpc_applied(server.rpc) : 0,
             wait_ms = rng_below(rng, 3) ? 600000 : rng_below(rng, 3);
    bool stale = kind > 10 || rng_below(rng, 2); /* only those wait for what is far ahead */
    begin(asked, &server, type,
          kind == 0   ? "large/"
          : kind == 1 ? "storm/"
          : kind > 10 ? "storm/"
                      : key,
          (struct how){.stale = stale, .index = index + (kind > 10 ? 1000000000 : 0), .wait_ms = wait_ms});
}

static void *canceller_main(void *data) {
    struct asked *asked = mem_zalloc(SLOTS * sizeof *asked);
    struct rng rng;
    rng_seed(&rng, 815 + (uintptr_t)data);
    while (!atomic_load(&storm_over)) {
        for (size_t i = 0; i < SLOTS; i++) storm_begin(&asked[i], &rng);
        for (uint64_t wait = rng_below(&rng, 4) ? rng_below(&rng, 2000) : 0, i = 0; i < wait; i++)
            __asm__ volatile("" ::: "memory");
        if (rng_below(&rng, 4) == 0) usleep((unsigned)rng_below(&rng, 2000));
        for (size_t i = 0; i < SLOTS; i++) rpc_fetch_cancel(server.rpc, &asked[i].fetch);
        for (size_t i = 0; i < SLOTS; i++) {
            asked_await(&asked[i]);
            CHECK(asked[i].error == CO_OK || asked[i].error == CO_CLOSED);
            atomic_fetch_add(asked[i].error ? &cancelled : &answered, 1);
            rpc_fetch_cancel(server.rpc, &asked[i].fetch); /* it is over: nothing happens */
            asked_end(&asked[i]);
        }
    }
    free(asked);
    return NULL;
}

static void cancelled_at_any_moment(void) {
    pthread_t cancellers[CANCELLERS], writers[WRITERS];
    for (char name[] = "storm/0"; name[6] < '8'; name[6]++) server_put(&server, name, "first");
    for (uintptr_t i = 0; i < CANCELLERS; i++)
        CHECK(pthread_create(&cancellers[i], NULL, canceller_main, (void *)i) == 0);
    for (uintptr_t i = 0; i < WRITERS; i++) CHECK(pthread_create(&writers[i], NULL, writer_main, (void *)i) == 0);
    uint64_t begun = clock_mono_ms();
    while (clock_mono_ms() - begun < 3000 || atomic_load(&answered) < 50 || atomic_load(&cancelled) < 50) usleep(10000);
    atomic_store(&storm_over, true);
    for (size_t i = 0; i < CANCELLERS; i++) pthread_join(cancellers[i], NULL);
    for (size_t i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
    printf("storm: %llu answered, %llu cancelled\n", (unsigned long long)answered, (unsigned long long)cancelled);
    CHECK(watch_count(rpc_watches(server.rpc)) == 0);
}

/* -- the end ------------------------------------------------------------------------------------------------------ */
static struct rpc_fetch *crowd;
static _Atomic unsigned crowd_done, crowd_wrong, late_done;
static struct rpc_fetch late[16];

static void on_late(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    (void)fetch;
    if (error != CO_CLOSED || fetched) atomic_fetch_add(&crowd_wrong, 1);
    atomic_fetch_add(&late_done, 1);
}

static void on_crowd(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    if (error != CO_CLOSED || fetched) atomic_fetch_add(&crowd_wrong, 1);
    unsigned number = atomic_fetch_add(&crowd_done, 1);
    if (number >= ARRAY_COUNT(late)) return;
    /* Whoever asks again when it ends, ends at once. */
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    late[number] = (struct rpc_fetch){.type = fetch->type, .done = on_late};
    rpc_fetch(server.rpc, &late[number], &request.base);
    rpc_fetch_cancel(server.rpc, &late[number]);
}

/* Bytes. */
static size_t resident(void) {
    unsigned long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu %lu", &all, &pages) == 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void stops_with_many(unsigned count) {
    uint64_t index = rpc_applied(server.rpc);
    uint64_t begun = clock_mono_ns();
    crowd = mem_zalloc(count * sizeof *crowd);
    malloc_trim(0);
    size_t before = resident();
    for (unsigned i = 0; i < count; i++) {
        char name[40];
        snprintf(name, sizeof name, "service-%u", i / 10);
        Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
        request.service = name;
        crowd[i] = (struct rpc_fetch){
            .type = &query_service_entries, .index = index, .wait_ms = FETCH_WAIT_MOST_MS, .done = on_crowd};
        rpc_fetch(server.rpc, &crowd[i], &request.base);
    }
    while (watch_count(rpc_watches(server.rpc)) < count) usleep(1000);
    uint64_t parked = clock_mono_ns();
    size_t bytes = resident() - before;
    CHECK(atomic_load(&crowd_done) == 0);
    servers_stop(&server, 1);
    CHECK(crowd_done == count && crowd_wrong == 0 && late_done == ARRAY_COUNT(late));
    printf(
        "%u parked: %.0f resident bytes each, the struct's %zu among them, %.2f us each; stopped with its server in "
        "%.0f ms\n",
        count, (double)bytes / count, sizeof *crowd, (double)(parked - begun) / 1e3 / count,
        (double)(clock_mono_ns() - parked) / 1e6);
    free(crowd);
}

/* -- three servers ------------------------------------------------------------------------------------------------ */
/* Every server's default fetch finds each write that any server has acknowledged. */
__attribute__((unused)) static void three_agree(void) {
    struct server servers[3];
    struct asked asked;
    enum { WRITES = 60 };
    unsigned knew = 0;
    servers_start(servers, 3, 1);
    for (unsigned i = 0; i < WRITES; i++) {
        char key[16];
        snprintf(key, sizeof key, "agreed/%u", i);
        server_put(&servers[i % 3], key, key);
        ask(&asked, &servers[(i + 1) % 3], &query_kv_get, key, (struct how){0});
        CHECK(asked_value_is(&asked, key));
        knew += asked.fetched.known_leader; /* as of a moment after the read */
        asked_end(&asked);
    }
    CHECK(knew > WRITES / 2);
    /* Woken on each, by a write to another one. */
    struct asked waiting[3];
    for (unsigned i = 0; i < 3; i++) {
        uint64_t index = index_now(&servers[i], &query_kv_get, "agreed");
        begin(&waiting[i], &servers[i], &query_kv_get, "agreed", (struct how){.index = index, .wait_ms = 600000});
    }
    server_put(&servers[0], "agreed", "at last");
    for (unsigned i = 0; i < 3; i++) {
        asked_await(&waiting[i]);
        if (server_elects(&servers[i], waiting[i].error)) {
            asked_end(&waiting[i]);
            ask(&waiting[i], &servers[i], &query_kv_get, "agreed", (struct how){0});
        }
        CHECK(waiting[i].error == CO_OK && asked_value_is(&waiting[i], "at last"));
        asked_end(&waiting[i]);
    }
    /* Alone, it cannot confirm anything, but knows what it knew. */
    servers_stop(servers, 2);
    begin(&asked, &servers[2], &query_kv_get, "agreed", (struct how){0});
    asked_await(&asked);
    CHECK(asked.error == CO_NOLEADER || asked.error == CO_TIMEOUT);
    asked_end(&asked);
    ask(&asked, &servers[2], &query_kv_get, "agreed", (struct how){.stale = true});
    CHECK(asked_value_is(&asked, "at last"));
    asked_end(&asked);
    begin(&asked, &servers[2], &query_kv_get, "agreed", (struct how){0}); /* waits for a confirmation when it stops */
    servers_stop(servers + 2, 1);
    asked_await(&asked);
    CHECK(asked.error == CO_CLOSED || asked.error == CO_NOLEADER || asked.error == CO_TIMEOUT);
    asked_end(&asked);
}

/* With a number: only so many that wait, for their memory. */
int main(int argc, char **argv) {
    servers_start(&server, 1, 1);
    if (argc > 1) {
        (void)index_now(&server, &query_kv_get, "any");
        stops_with_many((unsigned)atoi(argv[1]));
        return 0;
    }
    at_once();
    woken_by_its_own();
    woken_by_either_key();
    same_bytes_are_no_change();
    behind_the_client();
    time_is_up();
    none_is_lost();
    large_reads();
    cancelled_at_any_moment();
    stops_with_many(20000);
    three_agree();
    return 0;
}
