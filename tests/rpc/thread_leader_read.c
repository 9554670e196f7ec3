/* Fetches that a follower with a full disk hands on to the leader: at once, waiting, large ones in pieces, cancelled
 * at any moment, over a lost leader, ended with their server. That the disk is full is played: rpc_read_index says so
 * (linked with --wrap), and the leader stays the same: no disk is taken for slow here. A plain main: runs under the sanitizers. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "asked.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "consensus/disk_health.h"
#include "rpc/reads/leader_read.h"
#include "tests/lib/servers.h"

enum { COUNT = 3 };
static struct server servers[COUNT];
static struct server *leader, *full;
static _Atomic(struct rpc *) full_rpc;
static atomic_bool all_full;

int __real_rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate);
int __wrap_rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate);

static bool leads(struct rpc *rpc) {
    struct rpc_status status;
    rpc_status(rpc, &status);
    return status.is_leader;
}

/* A leader has everything. */
int __wrap_rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate) {
    bool behind = atomic_load(&all_full) || (rpc == atomic_load(&full_rpc) && !leads(rpc));
    return behind && freshness != RPC_STALE ? CO_DISKFULL : __real_rpc_read_index(rpc, freshness, gate);
}

/* A slow disk would have the leader hand over, perhaps to the one whose disk is full. */
bool __wrap_disk_health_judge(struct disk_health *health, uint64_t now_ms, uint64_t begun_ms, uint64_t bad_ms);
bool __wrap_disk_health_judge(struct disk_health *health, uint64_t now_ms, uint64_t begun_ms, uint64_t bad_ms) {
    (void)health, (void)now_ms, (void)begun_ms, (void)bad_ms;
    return false;
}

/* -- one fetch, waited for ---------------------------------------------------------------------------------------- */
static void begin(struct asked *asked, const struct query_type *type, const char *key, struct how how) {
    asked_begin_key(asked, full->rpc, type, key, how);
}

static void ask(struct asked *asked, const struct query_type *type, const char *key, struct how how) {
    begin(asked, type, key, how);
    asked_await(asked);
}

static void eventually_nobody_waits(void) {
    for (uint64_t until = clock_mono_ms() + 20000; watch_count(rpc_watches(leader->rpc)) > 0; usleep(2000))
        CHECK(clock_mono_ms() < until);
}

/* -- stories ------------------------------------------------------------------------------------------------------ */
static void at_once(void) {
    struct asked asked;
    ask(&asked, &query_kv_get, "color", (struct how){0});
    CHECK(asked.error == CO_OK && !asked.fetched.found && asked.fetched.none && asked.fetched.index > 0);
    asked_end(&asked);
    server_put(leader, "color", "blue");
    ask(&asked, &query_kv_get, "color", (struct how){0});
    CHECK(asked.error == CO_OK && asked.fetched.found && asked_value_is(&asked, "blue"));
    CHECK(asked.fetched.known_leader && asked.fetched.last_contact_ms == 0);
    asked_end(&asked);
    ask(&asked, &query_kv_get, "color", (struct how){.here = true});
    CHECK(asked.error == CO_DISKFULL);
    asked_end(&asked);
}

static uint64_t index_now(const char *key) {
    struct asked asked;
    ask(&asked, &query_kv_get, key, (struct how){0});
    CHECK(asked.error == CO_OK);
    asked_end(&asked);
    return asked.fetched.index;
}

static void waits(void) {
    struct asked asked, idle;
    uint64_t index = index_now("color"), before = clock_mono_ms();
    begin(&asked, &query_kv_get, "color", (struct how){.index = index, .wait_ms = 600000});
    ask(&idle, &query_kv_get, "color", (struct how){.index = index, .wait_ms = 200});
    CHECK(idle.error == CO_OK && idle.fetched.index == index && clock_mono_ms() - before >= 200);
    asked_end(&idle);
    CHECK(!asked_over(&asked));
    server_put(leader, "color", "red");
    asked_await(&asked);
    CHECK(asked.error == CO_OK && asked.fetched.index > index && asked_value_is(&asked, "red"));
    asked_end(&asked);
}

/* It was parked here before the disk was full: what comes then is asked of the leader. */
static void waited_here_before(void) {
    struct asked asked;
    uint64_t index = index_now("color");
    atomic_store(&full_rpc, NULL);
    begin(&asked, &query_kv_get, "color", (struct how){.index = index, .wait_ms = 600000});
    while (watch_count(rpc_watches(full->rpc)) == 0) usleep(1000);
    atomic_store(&full_rpc, full->rpc);
    server_put(leader, "color", "green");
    asked_await(&asked);
    CHECK(asked.error == CO_OK && asked.fetched.index > index && asked_value_is(&asked, "green"));
    asked_end(&asked);
    CHECK(watch_count(rpc_watches(full->rpc)) == 0);
}

/* A slow machine: its turn did not come in LEADER_READ_TURN_MS, or the leader said nothing for RPC_LEADER_WAIT_MS. */
static bool was_late(const struct asked *asked) {
    return asked->error == CO_BUSY || asked->error == CO_DISKFULL || asked->error == CO_NOLEADER;
}

enum { LARGE_BYTES = 400000, ASK_MOST = 20, LARGE_MS = 300000 };
static void large_ones(const char *prefix, size_t count, size_t asks) {
    char *bytes = mem_alloc(LARGE_BYTES), key[32];
    for (size_t i = 0; i < count; i++) {
        memset(bytes, ' ' + (int)i, LARGE_BYTES);
        snprintf(key, sizeof key, "%s%02zu", prefix, i);
        server_put_bytes(leader, key, slice_make(bytes, LARGE_BYTES));
    }
    struct asked asked[ASK_MOST];
    for (size_t i = 0; i < asks; i++) begin(&asked[i], &query_kv_list, prefix, (struct how){0});
    uint64_t until = clock_mono_ms() + LARGE_MS;
    for (size_t i = 0; i < asks; i++) {
        asked_await(&asked[i]);
        while (was_late(&asked[i]) && clock_mono_ms() < until) {
            asked_end(&asked[i]);
            ask(&asked[i], &query_kv_list, prefix, (struct how){0});
        }
        if (asked[i].error != CO_OK) printf("%zu: %s\n", i, co_strerror(asked[i].error));
        CHECK(asked[i].error == CO_OK && asked[i].records.size > count * LARGE_BYTES);
        Pb__KvEntriesResult *list =
            pb__kv_entries_result__unpack(NULL, asked[i].records.size, (const uint8_t *)asked[i].records.data);
        CHECK(list && list->n_entries == count);
        for (size_t k = 0; k < count; k++) {
            memset(bytes, ' ' + (int)k, LARGE_BYTES);
            CHECK(slice_equal(slice_make(list->entries[k]->value.data, list->entries[k]->value.len),
                              slice_make(bytes, LARGE_BYTES)));
        }
        pb__kv_entries_result__free_unpacked(list, NULL);
        asked_end(&asked[i]);
    }
    free(bytes);
}

static void too_many(void) {
    struct asked *asked = mem_zalloc((LEADER_READ_MOST + 10) * sizeof *asked);
    uint64_t index = index_now("color");
    unsigned busy = 0;
    for (size_t i = 0; i < LEADER_READ_MOST + 10; i++)
        begin(&asked[i], &query_kv_get, "color", (struct how){.index = index, .wait_ms = 600000});
    struct asked last;
    ask(&last, &query_kv_get, "color", (struct how){0});
    CHECK(last.error == CO_BUSY);
    asked_end(&last);
    server_put(leader, "color", "many");
    for (size_t i = 0; i < LEADER_READ_MOST + 10; i++) {
        asked_await(&asked[i]);
        CHECK(asked[i].error == CO_BUSY || (asked[i].error == CO_OK && asked_value_is(&asked[i], "many")));
        busy += asked[i].error == CO_BUSY;
        asked_end(&asked[i]);
    }
    CHECK(busy == 10);
    free(asked);
}

/* -- cancelled at any moment -------------------------------------------------------------------------------------- */
enum { CANCELLERS = 3, SLOTS = 16 };
static atomic_bool storm_over;
static _Atomic unsigned answered, cancelled;

static void *canceller_main(void *data) {
    struct asked *asked = mem_zalloc(SLOTS * sizeof *asked);
    struct rng rng;
    rng_seed(&rng, 815 + (uintptr_t)data);
    while (!atomic_load(&storm_over)) {
        for (size_t i = 0; i < SLOTS; i++) {
            bool large = rng_below(&rng, 8) == 0;
            uint64_t index = rng_below(&rng, 2) ? rpc_applied(leader->rpc) : 0;
            begin(&asked[i], large ? &query_kv_list : &query_kv_get, large ? "large/" : "color",
                  (struct how){.index = index, .wait_ms = 1 + rng_below(&rng, 20)});
        }
        if (rng_below(&rng, 3)) usleep((unsigned)rng_below(&rng, 5000));
        for (size_t i = 0; i < SLOTS; i++)
            if (rng_below(&rng, 4)) rpc_fetch_cancel(full->rpc, &asked[i].fetch);
        for (size_t i = 0; i < SLOTS; i++) {
            asked_await(&asked[i]);
            CHECK(asked[i].error == CO_OK || asked[i].error == CO_CLOSED || asked[i].error == CO_BUSY);
            atomic_fetch_add(asked[i].error ? &cancelled : &answered, 1);
            rpc_fetch_cancel(full->rpc, &asked[i].fetch); /* it is over: nothing happens */
            asked_end(&asked[i]);
        }
    }
    free(asked);
    return NULL;
}

static void cancelled_at_any_moment(void) {
    pthread_t cancellers[CANCELLERS];
    for (uintptr_t i = 0; i < CANCELLERS; i++)
        CHECK(pthread_create(&cancellers[i], NULL, canceller_main, (void *)i) == 0);
    for (uint64_t begun = clock_mono_ms();
         clock_mono_ms() - begun < 3000 || atomic_load(&answered) < 50 || atomic_load(&cancelled) < 50;)
        server_put(leader, "color", "again");
    atomic_store(&storm_over, true);
    for (size_t i = 0; i < CANCELLERS; i++) pthread_join(cancellers[i], NULL);
    printf("storm: %u answered, %u cancelled\n", answered, cancelled);
    eventually_nobody_waits();
}

/* -- without an answer -------------------------------------------------------------------------------------------- */
static void nobody_can_answer(void) {
    struct asked asked;
    uint64_t before = clock_mono_ms();
    atomic_store(&all_full, true);
    ask(&asked, &query_kv_get, "color", (struct how){0});
    CHECK(asked.error == CO_DISKFULL && clock_mono_ms() - before >= RPC_LEADER_WAIT_MS);
    asked_end(&asked);
    begin(&asked, &query_kv_get, "color", (struct how){0});
    usleep(500000);
    CHECK(!asked_over(&asked));
    atomic_store(&all_full, false);
    asked_await(&asked);
    CHECK(asked.error == CO_OK);
    asked_end(&asked);
}

static struct server *find_leader(const struct server *but) {
    for (uint64_t until = clock_mono_ms() + 60000;; usleep(2000)) {
        CHECK(clock_mono_ms() < until);
        for (struct server *at = servers; at < servers + COUNT; at++)
            if (at != but && leads(at->rpc)) return at;
    }
}

/* A waiting one goes over to the next leader, be it this server. */
static void the_leader_goes(void) {
    struct asked asked;
    uint64_t index = index_now("color");
    begin(&asked, &query_kv_get, "color", (struct how){.index = index, .wait_ms = 600000});
    while (watch_count(rpc_watches(leader->rpc)) == 0) usleep(1000);
    struct server *gone = leader;
    servers_stop(gone, 1);
    leader = find_leader(gone);
    server_put(leader, "color", "of another");
    asked_await(&asked);
    CHECK(asked.error == CO_OK && asked.fetched.index > index && asked_value_is(&asked, "of another"));
    asked_end(&asked);
    printf("the next leader was %s\n", leader == full ? "the one that asked" : "the third one");
}

static void stops_with_many(struct server *other) {
    struct asked crowd[500];
    uint64_t index = index_now("color");
    for (size_t i = 0; i < ARRAY_COUNT(crowd); i++)
        begin(&crowd[i], &query_kv_get, "color", (struct how){.index = i % 3 ? index : 0, .wait_ms = 600000});
    servers_stop(full, 1);
    for (size_t i = 0; i < ARRAY_COUNT(crowd); i++) {
        asked_await(&crowd[i]);
        CHECK(crowd[i].error == CO_CLOSED || (i % 3 == 0 && crowd[i].error == CO_OK));
        asked_end(&crowd[i]);
    }
    servers_stop(other, 1);
}

/* Instead of AGENTS_HELD_MAX, because so much takes minutes under a sanitizer. */
static void holds_little(struct server *server) { server->config.agents_held_max = 16 << 20; }

int main(void) {
    servers_prepare = holds_little;
    servers_start(servers, COUNT, 5);
    leader = find_leader(NULL);
    full = leader == &servers[0] ? &servers[1] : &servers[0];
    atomic_store(&full_rpc, full->rpc);
    at_once();
    waits();
    waited_here_before();
    large_ones("large/", 8, 12);
    /* more than the leader holds for one that asks: where they come quicker than they leave, some are asked for again */
    large_ones("huge/", 16, 10);
    too_many();
    cancelled_at_any_moment();
    nobody_can_answer();
    struct server *first = leader;
    the_leader_goes();
    for (struct server *other = servers; other < servers + COUNT; other++)
        if (other != first && other != full) stops_with_many(other);
    printf("ok\n");
    return 0;
}
