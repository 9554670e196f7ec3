#include "keys_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "multi-dc/copy.h"
#include "multi-dc/region.h"
#include "source.h"
#include "world_calls.h"

#define PREFIX   "p/"
#define DELAY_MS 80
#define NAMES    40

struct moment { /* of the source, from this index on */
    Pb__CatalogAt at;
    uint64_t hash;
};
struct core {
    struct follower *follower;
    bool leads;
    uint64_t stops_ms; /* it learns then that it leads no more */
};
struct keys_world {
    struct rng rng;
    uint64_t now_ms;
    bool faults;
    struct source source;
    struct fixture own;
    struct moment *moments;
    size_t moment_count;
    struct core cores[KEYS_WORLD_CORES];
    struct world_calls calls;
    Pb__CatalogAt seen;
    bool has_seen, listed;
    struct keys_world_counts counts;
    char violation[256];
};

static uint64_t below(struct keys_world *world, uint64_t limit) { return rng_below(&world->rng, limit); }
static bool chance(struct keys_world *world, uint64_t percent) { return world->faults && below(world, 100) < percent; }
static void violate(struct keys_world *world, const char *what) {
    if (!world->violation[0])
        snprintf(world->violation, sizeof world->violation, "%s (at %llu ms)", what, (unsigned long long)world->now_ms);
}

/* -- helpers for tests -------------------------------------------------------------------------------------------- */
void region_becomes_known(struct fixture *f, const char *name) {
    Pb__RegionServer server = PB__REGION_SERVER__INIT, *servers[] = {&server};
    Pb__RegionLearnCommand command = PB__REGION_LEARN_COMMAND__INIT;
    server.address = (char *)(uintptr_t) "10.0.0.1:8300";
    command.name = (char *)(uintptr_t)name, command.cluster_id = 7, command.wanted = true;
    command.servers = servers, command.n_servers = 1;
    CHECK(fixture_apply(f, REGION_LEARN, &command.base).yes);
}

struct outcome key_put(struct fixture *f, const char *key, const char *value) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.key = message_bytes(slice_text(key)), command.value = message_bytes(slice_text(value));
    return fixture_apply(f, KV_APPLY, &command.base);
}

static uint64_t mix(uint64_t hash, struct slice bytes) {
    for (size_t i = 0; i < bytes.size; i++) hash = (hash ^ (uint8_t)bytes.data[i]) * 1099511628211u;
    return (hash ^ bytes.size) * 1099511628211u;
}

uint64_t keys_hash(struct fixture *f, const char *prefix, size_t *count) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = message_bytes(slice_text(prefix));
    const Pb__KvEntriesResult *all = (const Pb__KvEntriesResult *)fixture_ask(f, &query_kv_list, &request.base).message;
    uint64_t hash = 14695981039346656037u;
    *count = all ? all->n_entries : 0;
    for (size_t i = 0; i < *count; i++) {
        const Pb__KvEntry *entry = all->entries[i];
        hash = mix(mix(hash, message_slice(entry->key)), message_slice(entry->value));
        hash = (hash ^ entry->flags) * 1099511628211u;
    }
    fixture_forget(f);
    return hash;
}

/* -- the source --------------------------------------------------------------------------------------------------- */
static Pb__CatalogAt source_at(struct keys_world *world) {
    Pb__KeysChangesRequest request = PB__KEYS_CHANGES_REQUEST__INIT;
    request.prefix = message_bytes(slice_text(PREFIX)), request.look = true;
    const Pb__KeysChangesResult *result =
        (const Pb__KeysChangesResult *)fixture_ask(&world->source.newest, &query_keys_changes, &request.base).message;
    Pb__CatalogAt at = *result->to;
    fixture_forget(&world->source.newest);
    return at;
}

static void note_moment(void *data) {
    struct keys_world *world = data;
    size_t count;
    world->moments = mem_realloc(world->moments, (world->moment_count + 1) * sizeof *world->moments);
    world->moments[world->moment_count] =
        (struct moment){.at = source_at(world), .hash = keys_hash(&world->source.newest, PREFIX, &count)};
    world->moment_count++;
}

static void change_key(struct keys_world *world) {
    static char room[700];
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    char value[32];
    uint64_t number = below(world, NAMES), what = below(world, 100);
    bool is_long = number % 5 == 0;
    snprintf(value, sizeof value, "%llu", (unsigned long long)below(world, 6));
    if (is_long) snprintf(room, sizeof room, PREFIX "%0600d/%llu", 0, (unsigned long long)number);
    else snprintf(room, sizeof room, what < 8 ? "q/%llu" : PREFIX "%llu", (unsigned long long)number);
    if (what > 96) snprintf(room, sizeof room, PREFIX "%llu", (unsigned long long)below(world, 4));
    command.verb = what > 96 ? PB__KV_VERB__KV_DELETE_TREE : what > 75 ? PB__KV_VERB__KV_DELETE : PB__KV_VERB__KV_SET;
    command.key = message_bytes(slice_text(room)), command.value = message_bytes(slice_text(value));
    command.flags = below(world, 2);
    source_tell(&world->source, KV_APPLY, &command.base);
}

/* A small window, so that the history does not always reach back. */
static uint64_t history_changes(struct keys_world *world) { return below(world, 5) ? 5 + below(world, 60) : 0; }

/* -- what readers see --------------------------------------------------------------------------------------------- */
static bool hash_at(const struct keys_world *world, const Pb__CatalogAt *at, uint64_t *hash) {
    for (size_t i = world->moment_count; i-- > 0;)
        if (copy_same_life(&world->moments[i].at, at) && world->moments[i].at.index <= at->index) {
            *hash = world->moments[i].hash;
            return true;
        }
    return false;
}

static Pb__KeysRule *own_rule(struct keys_world *world) {
    Pb__KeysRulesRequest request = PB__KEYS_RULES_REQUEST__INIT;
    const Pb__KeysRulesResult *rules =
        (const Pb__KeysRulesResult *)fixture_ask(&world->own, &query_keys_rules, &request.base).message;
    CHECK(rules->n_rules == 1);
    return rules->rules[0];
}

static void check_copy(struct keys_world *world) {
    const Pb__KeysRule *rule = own_rule(world);
    bool whole = keys_whole(rule), has = rule->at;
    uint64_t then = 0, keys = rule->keys;
    size_t count;
    Pb__CatalogAt at = PB__CATALOG_AT__INIT;
    if (has) at = *rule->at;
    if (rule->listing && !world->listed) world->counts.listings++;
    world->listed = rule->listing;
    fixture_forget(&world->own);
    if (has && world->has_seen && at.cluster_id == world->seen.cluster_id && at.index < world->seen.index)
        violate(world, "the copy goes back");
    if (has) world->seen = at, world->has_seen = true;
    if (!whole) return;
    world->counts.whole++;
    uint64_t now = keys_hash(&world->own, PREFIX, &count);
    if (!hash_at(world, &at, &then)) violate(world, "the copy is at no moment of the source");
    else if (now != then) violate(world, "the copy is no past state of the source");
    if (keys != count) violate(world, "the copy does not count its keys");
    (void)keys_hash(&world->own, "q/", &count);
    if (count != 1) violate(world, "a key that is not below the prefix was changed");
}

/* -- calls -------------------------------------------------------------------------------------------------------- */
static uint64_t delay(struct keys_world *world) { return world->faults ? below(world, DELAY_MS) : 5; }

/* It comes once more, late; or its outcome stays unknown, whether it arrives or not. */
static void trouble_proposal(struct keys_world *world, struct world_call *call) {
    struct world_call *again = chance(world, 12) ? world_calls_new(&world->calls, world->now_ms + delay(world)) : NULL;
    if (again) {
        again->wish = FOLLOWER_PROPOSES, again->stray = true, again->due_ms = world->now_ms + 20 * delay(world);
        buffer_append(&again->bytes, call->bytes.data, call->bytes.size);
        world->counts.repeated++;
    }
    struct world_call *answer = chance(world, 8) ? world_calls_new(&world->calls, world->now_ms + delay(world)) : NULL;
    if (!answer) return;
    answer->state = CALL_COMES, answer->core = call->core, answer->wish = FOLLOWER_PROPOSES;
    answer->ticket = call->ticket, answer->error = CO_UNKNOWN_OUTCOME, answer->due_ms = world->now_ms + 2 * DELAY_MS;
    call->stray = true, call->due_ms += 10 * delay(world);
    world->counts.lost++;
    if (chance(world, 50)) call->state = CALL_FREE;
}

static void send(struct keys_world *world, unsigned core, const struct follower_effect *effect) {
    struct world_call *call = world_calls_new(&world->calls, world->now_ms + delay(world));
    CHECK(call);
    call->core = core, call->wish = effect->wish, call->ticket = effect->ticket;
    call->behind = chance(world, 30);
    call->index = effect->index, call->until_ms = world->now_ms + effect->wait_ms, call->asked_ms = world->now_ms;
    if (effect->wish == FOLLOWER_ASKS) world_call_put(call, effect->message);
    if (effect->wish != FOLLOWER_PROPOSES) return;
    machine_command(&call->bytes, effect->command, effect->message);
    trouble_proposal(world, call);
}

static void ask_source(struct keys_world *world, struct world_call *call) {
    struct arena arena = {0};
    struct fixture *f = call->behind ? &world->source.behind : &world->source.newest;
    const ProtobufCMessage *request =
        message_unpack(&arena, &pb__keys_changes_request__descriptor, buffer_slice(&call->bytes));
    struct query_result result = fixture_ask(f, &query_keys_changes, request);
    bool waits = call->index && result.index <= call->index && world->now_ms < call->until_ms;
    if (waits) call->due_ms = world->now_ms + 10;
    else world_call_put(call, result.message), call->state = CALL_COMES;
    fixture_forget(f);
    arena_free(&arena);
}

static void arrive(struct keys_world *world, struct world_call *call) {
    call->due_ms = world->now_ms + delay(world);
    if (call->wish == FOLLOWER_READS) {
        Pb__KeysRulesResult rules = PB__KEYS_RULES_RESULT__INIT;
        Pb__KeysRule *rule = own_rule(world);
        rules.rules = &rule, rules.n_rules = 1;
        world_call_put(call, &rules.base), call->state = CALL_COMES;
    } else if (call->wish == FOLLOWER_ASKS) {
        ask_source(world, call);
    } else {
        struct outcome outcome = fixture_apply_bytes(&world->own, buffer_slice(&call->bytes));
        if (outcome.error) world->counts.refused++;
        else world->counts.changes++;
        call->refused = outcome.error, call->yes = outcome.yes, call->result_index = outcome.index;
        call->state = call->stray ? CALL_FREE : CALL_COMES;
        check_copy(world);
    }
}

static void come(struct keys_world *world, struct world_call *call) {
    struct follower *follower = world->cores[call->core].follower;
    call->state = CALL_FREE;
    if (call->wish != FOLLOWER_PROPOSES) {
        struct follower_answer answer = {.records = buffer_slice(&call->bytes), .as_of_ms = call->asked_ms};
        if (call->wish == FOLLOWER_ASKS && chance(world, 5)) answer.error = CO_TIMEOUT;
        follower_answered(follower, call->ticket, &answer, world->now_ms);
    } else {
        follower_proposed(follower, call->ticket, call->error, call->refused, call->yes, call->result_index,
                          world->now_ms);
    }
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static void lead(struct keys_world *world, unsigned number) {
    for (unsigned i = 0; i < KEYS_WORLD_CORES; i++) {
        struct core *core = &world->cores[i];
        if (i == number) core->leads = true, core->stops_ms = UINT64_MAX;
        else if (core->leads && core->stops_ms == UINT64_MAX) core->stops_ms = world->now_ms + 5 * delay(world);
    }
    follower_leads(world->cores[number].follower, true, world->now_ms);
}

static void step_cores(struct keys_world *world) {
    for (unsigned i = 0; i < KEYS_WORLD_CORES; i++) {
        struct core *core = &world->cores[i];
        if (core->leads && world->now_ms >= core->stops_ms) {
            core->leads = false;
            follower_leads(core->follower, false, world->now_ms);
        }
        struct follower_effect effect;
        follower_next(core->follower, world->now_ms, &effect);
        if (effect.wish != FOLLOWER_RESTS) send(world, i, &effect);
    }
}

static void step(struct keys_world *world) {
    world->now_ms += 1 + below(world, 20);
    for (struct world_call *call; (call = world_calls_due(&world->calls, world->now_ms));) {
        if (call->state == CALL_COMES) come(world, call);
        else arrive(world, call);
    }
    step_cores(world);
}

static void trouble(struct keys_world *world) {
    unsigned core = (unsigned)below(world, KEYS_WORLD_CORES);
    if (chance(world, 30)) change_key(world);
    if (chance(world, 1))
        for (uint64_t more = 10 + below(world, 20); more > 0; more--) change_key(world);
    if (chance(world, 30)) source_catch_up(&world->source, 1 + below(world, 8));
    if (chance(world, 4)) lead(world, core);
    if (chance(world, 4)) follower_linked(world->cores[core].follower, below(world, 2), world->now_ms);
    if (chance(world, 2)) source_back_up(&world->source);
    if (world->source.backup >= 0 && below(world, 120) == 0) source_restore(&world->source);
    if (below(world, 400) == 0) source_found_anew(&world->source, history_changes(world));
}

struct keys_world *keys_world_new(uint64_t seed, unsigned mutations) {
    struct keys_world *world = mem_zalloc(sizeof *world);
    Pb__KeysSetCommand command = PB__KEYS_SET_COMMAND__INIT;
    rng_seed(&world->rng, seed);
    world->faults = true;
    world->source = (struct source){.cluster_id = 100 * seed, .told = note_moment, .data = world};
    fixture_open(&world->own);
    world->own.mutations = mutations;
    fixture_reopen(&world->own);
    fixture_found(&world->own);
    region_becomes_known(&world->own, "far");
    (void)key_put(&world->own, "q/ours", "1");
    (void)key_put(&world->own, PREFIX "ours", "1");
    command.prefix = message_bytes(slice_text(PREFIX)), command.region = (char *)(uintptr_t) "far";
    command.replace = true;
    CHECK(fixture_apply(&world->own, KEYS_SET, &command.base).yes);
    source_found(&world->source, history_changes(world));
    for (unsigned i = 0; i < KEYS_WORLD_CORES; i++) {
        world->cores[i].follower = follow_keys(slice_text(PREFIX), own_rule(world)->create_index);
        fixture_forget(&world->own);
        follower_rows_most(world->cores[i].follower, 4 * i);
    }
    lead(world, 0);
    return world;
}

void keys_world_run(struct keys_world *world, size_t steps) {
    for (size_t i = 0; i < steps && !world->violation[0]; i++) {
        trouble(world);
        step(world);
    }
}

void keys_world_heal(struct keys_world *world) {
    world->faults = false;
    for (unsigned i = 0; i < KEYS_WORLD_CORES; i++) follower_linked(world->cores[i].follower, true, world->now_ms);
    lead(world, (unsigned)below(world, KEYS_WORLD_CORES));
    source_catch_up(&world->source, SIZE_MAX);
    uint64_t until_ms = world->now_ms + 60000;
    size_t count;
    bool equal = false;
    while (!equal && world->now_ms < until_ms && !world->violation[0]) {
        step(world);
        const Pb__KeysRule *rule = own_rule(world);
        equal = keys_whole(rule);
        fixture_forget(&world->own);
        equal = equal && keys_hash(&world->own, PREFIX, &count) == world->moments[world->moment_count - 1].hash;
    }
    if (!equal) violate(world, "the copy does not become equal to its source");
}

const char *keys_world_violation(const struct keys_world *world) {
    return world->violation[0] ? world->violation : NULL;
}
struct keys_world_counts keys_world_counts(const struct keys_world *world) {
    struct keys_world_counts counts = world->counts;
    counts.lives = world->source.lives;
    return counts;
}

void keys_world_free(struct keys_world *world) {
    for (unsigned i = 0; i < KEYS_WORLD_CORES; i++) follower_free(world->cores[i].follower);
    world_calls_free(&world->calls);
    source_close(&world->source);
    fixture_close(&world->own);
    free(world->moments);
    free(world);
}
