#include "copy_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "source.h"
#include "world_calls.h"

#define REGION   "far"
#define DELAY_MS 80

struct moment { /* of the source, from this index on */
    Pb__CatalogAt at;
    struct catalog_picture picture;
};

struct core {
    struct follower *follower;
    bool leads;
    uint64_t stops_ms; /* it learns then that it leads no more */
};

struct world {
    struct rng rng;
    uint64_t now_ms;
    bool faults;
    struct source source;
    struct fixture own;
    struct moment *moments;
    size_t moment_count;
    struct core cores[WORLD_CORES];
    struct world_calls calls;
    Pb__CatalogAt seen; /* the copy's position */
    bool has_seen;
    struct world_counts counts;
    char violation[256];
};

static uint64_t below(struct world *world, uint64_t limit) { return rng_below(&world->rng, limit); }
static bool chance(struct world *world, uint64_t percent) { return world->faults && below(world, 100) < percent; }

static void violate(struct world *world, const char *what) {
    if (!world->violation[0])
        snprintf(world->violation, sizeof world->violation, "%s (at %llu ms)", what, (unsigned long long)world->now_ms);
}

/* -- the source --------------------------------------------------------------------------------------------------- */

static void note_moment(void *data) {
    struct world *world = data;
    world->moments = mem_realloc(world->moments, (world->moment_count + 1) * sizeof *world->moments);
    struct moment *moment = &world->moments[world->moment_count];
    Pb__CatalogChangesRequest request = PB__CATALOG_CHANGES_REQUEST__INIT;
    moment->picture = (struct catalog_picture){0};
    moment->at =
        *((const Pb__CatalogChangesResult *)fixture_ask(&world->source.newest, &query_catalog_changes, &request.base)
              .message)
             ->to;
    picture_of(&world->source.newest, &moment->picture);
    world->moment_count++;
}

static void change_source(struct world *world) {
    struct arena arena = {0};
    const ProtobufCMessage *message;
    uint8_t type = random_catalog_command(&world->rng, true, &arena, &message);
    source_tell(&world->source, type, message);
    arena_free(&arena);
}

static void change_key(struct world *world) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    char value[24];
    snprintf(value, sizeof value, "%zu", world->source.log_count);
    command.key = message_bytes(slice_text("a")), command.value = message_bytes(slice_text(value));
    source_tell(&world->source, KV_APPLY, &command.base);
}

/* A small window, so that the history does not always reach back. */
static uint64_t history_changes(struct world *world) { return 5 + below(world, 60); }

/* -- what readers see --------------------------------------------------------------------------------------------- */

void picture_of_copy(struct fixture *f, const char *region, struct catalog_picture *picture) {
    Pb__GlobalServicesRequest all = PB__GLOBAL_SERVICES_REQUEST__INIT;
    Pb__GlobalServiceRequest one = PB__GLOBAL_SERVICE_REQUEST__INIT;
    char *regions[] = {(char *)(uintptr_t)region}, names[64][64];
    size_t count = 0;
    all.regions = one.regions = regions, all.n_regions = one.n_regions = 1;
    picture_free(picture);
    const Pb__GlobalServicesResult *services =
        (const Pb__GlobalServicesResult *)fixture_ask(f, &query_global_services, &all.base).message;
    CHECK(services->n_services <= ARRAY_COUNT(names));
    for (; count < services->n_services; count++)
        snprintf(names[count], sizeof names[count], "%s", services->services[count]->name);
    for (size_t i = 0; i < count; i++) {
        one.service = names[i];
        const Pb__GlobalServiceResult *found =
            (const Pb__GlobalServiceResult *)fixture_ask(f, &query_global_service, &one.base).message;
        for (size_t j = 0; found->n_regions && j < found->regions[0]->n_entries; j++) {
            catalog_strip(found->regions[0]->entries[j]);
            picture_add(picture, found->regions[0]->entries[j]);
        }
    }
    fixture_forget(f);
}

static const struct catalog_picture *picture_at(const struct world *world, const Pb__CatalogAt *at) {
    for (size_t i = world->moment_count; i-- > 0;)
        if (copy_same_life(&world->moments[i].at, at) && world->moments[i].at.index <= at->index)
            return &world->moments[i].picture;
    return NULL;
}

static bool record_of(struct world *world, Pb__CatalogAt *at, uint64_t *instances) {
    Pb__CopyRequest request = PB__COPY_REQUEST__INIT;
    request.region = (char *)(uintptr_t)REGION;
    const Pb__CopyResult *result = (const Pb__CopyResult *)fixture_ask(&world->own, &query_copy, &request.base).message;
    if (!result->region || !result->region->at) return false;
    *at = *result->region->at;
    *instances = result->region->counts->instances;
    return true;
}

static void check_tags(struct world *world, const struct catalog_picture *picture) {
    Pb__GlobalServicesRequest all = PB__GLOBAL_SERVICES_REQUEST__INIT;
    const Pb__GlobalServicesResult *services =
        (const Pb__GlobalServicesResult *)fixture_ask(&world->own, &query_global_services, &all.base).message;
    size_t instances = 0;
    for (size_t i = 0; i < services->n_services; i++) instances += services->services[i]->instances[0];
    if (instances != picture->count) violate(world, "services do not count their instances");
    for (size_t i = 0; i < services->n_services; i++) {
        const Pb__GlobalServiceName *service = services->services[i];
        for (size_t j = 0; j < service->n_tags; j++) {
            bool found = false;
            for (size_t k = 0; k < picture->count && !found; k++) {
                struct arena arena = {0};
                const Pb__ServiceEntry *entry =
                    message_unpack(&arena, &pb__service_entry__descriptor, buffer_slice(&picture->rows[k].entry));
                found = slice_equal_nocase(slice_text(entry->service->name), slice_text(service->name)) &&
                        catalog_tags_fit(entry->service, &service->tags[j], 1);
                arena_free(&arena);
            }
            if (!found) violate(world, "a service has a tag that none of its instances has");
        }
    }
    fixture_forget(&world->own);
}

static void check_copy(struct world *world) {
    Pb__CatalogAt at;
    uint64_t instances = 0;
    if (!record_of(world, &at, &instances)) {
        if (world->has_seen) violate(world, "the copy is gone");
        return;
    }
    bool same_cluster = world->has_seen && at.cluster_id == world->seen.cluster_id;
    if (same_cluster && at.index < world->seen.index) violate(world, "the copy goes back");
    if (world->has_seen && !copy_same_life(&at, &world->seen)) world->counts.flips++;
    world->seen = at, world->has_seen = true;
    const struct catalog_picture *then = picture_at(world, &at);
    if (!then) {
        violate(world, "the copy is at no moment of the source");
        return;
    }
    struct catalog_picture now = {0};
    picture_of_copy(&world->own, REGION, &now);
    if (!picture_equal(&now, then)) violate(world, "the copy is no past state of the source");
    if (instances != then->count) violate(world, "the copy does not count its instances");
    check_tags(world, &now);
    picture_free(&now);
}

/* -- calls -------------------------------------------------------------------------------------------------------- */

static uint64_t delay(struct world *world) { return world->faults ? below(world, DELAY_MS) : 5; }

static void count_command(struct world *world, uint8_t type) {
    size_t *counts[] = {&world->counts.updates, &world->counts.stages, &world->counts.commits, &world->counts.tidied};
    if (type - COPY_UPDATE < (int)ARRAY_COUNT(counts)) ++*counts[type - COPY_UPDATE];
}

static void send(struct world *world, unsigned core, const struct follower_effect *effect) {
    struct world_call *call = world_calls_new(&world->calls, world->now_ms + delay(world));
    CHECK(call);
    call->core = core, call->wish = effect->wish, call->ticket = effect->ticket;
    call->behind = chance(world, 30);
    call->index = effect->index, call->until_ms = world->now_ms + effect->wait_ms, call->asked_ms = world->now_ms;
    if (effect->wish != FOLLOWER_PROPOSES) {
        world_call_put(call, effect->message);
        return;
    }
    machine_command(&call->bytes, effect->command, effect->message);
    struct world_call *again = chance(world, 10) ? world_calls_new(&world->calls, world->now_ms + delay(world)) : NULL;
    if (again) {
        again->wish = FOLLOWER_PROPOSES, again->stray = true;
        again->due_ms = world->now_ms + 20 * delay(world);
        buffer_append(&again->bytes, call->bytes.data, call->bytes.size);
        world->counts.repeated++;
    }
    if (!chance(world, 8)) return;
    /* Its outcome stays unknown, whether it arrives or not. */
    struct world_call *answer = world_calls_new(&world->calls, world->now_ms + delay(world));
    if (!answer) return;
    call->stray = true;
    call->due_ms += 10 * delay(world);
    *answer = (struct world_call){.state = CALL_COMES,
                                  .core = core,
                                  .wish = FOLLOWER_PROPOSES,
                                  .ticket = effect->ticket,
                                  .error = CO_UNKNOWN_OUTCOME,
                                  .bytes = answer->bytes,
                                  .due_ms = world->now_ms + 2 * DELAY_MS};
    world->counts.lost++;
    if (chance(world, 50)) call->state = CALL_FREE;
}

static void ask_query(struct world_call *call, struct fixture *f, const struct query_type *type) {
    struct arena arena = {0};
    const ProtobufCMessage *request = message_unpack(&arena, type->request, buffer_slice(&call->bytes));
    struct query_result result = fixture_ask(f, type, request);
    call->result_index = result.index;
    bool waits = call->index && result.index <= call->index;
    if (!waits) world_call_put(call, result.message), call->state = CALL_COMES;
    fixture_forget(f);
    arena_free(&arena);
}

static void arrive(struct world *world, struct world_call *call) {
    call->due_ms = world->now_ms + delay(world);
    if (call->wish == FOLLOWER_READS) {
        ask_query(call, &world->own, &query_copy);
    } else if (call->wish == FOLLOWER_ASKS) {
        bool over = world->now_ms >= call->until_ms;
        if (over) call->index = 0;
        ask_query(call, call->behind ? &world->source.behind : &world->source.newest, &query_catalog_changes);
        if (call->state != CALL_COMES) call->due_ms = world->now_ms + 10;
    } else {
        struct outcome outcome = fixture_apply_bytes(&world->own, buffer_slice(&call->bytes));
        if (outcome.error) world->counts.refused++;
        else count_command(world, (uint8_t)call->bytes.data[0]);
        call->refused = outcome.error, call->yes = outcome.yes, call->result_index = outcome.index;
        call->state = call->stray ? CALL_FREE : CALL_COMES;
        check_copy(world);
    }
}

static void come(struct world *world, struct world_call *call) {
    struct follower *follower = world->cores[call->core].follower;
    call->state = CALL_FREE;
    if (call->wish == FOLLOWER_PROPOSES) {
        follower_proposed(follower, call->ticket, call->error, call->refused, call->yes, call->result_index,
                          world->now_ms);
        return;
    }
    struct follower_answer answer = {
        .records = buffer_slice(&call->bytes), .index = call->result_index, .as_of_ms = call->asked_ms};
    if (call->wish == FOLLOWER_ASKS && chance(world, 5)) answer.error = CO_TIMEOUT;
    follower_answered(follower, call->ticket, &answer, world->now_ms);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

static void lead(struct world *world, unsigned number) {
    for (unsigned i = 0; i < WORLD_CORES; i++) {
        struct core *core = &world->cores[i];
        if (i == number) core->leads = true, core->stops_ms = UINT64_MAX;
        else if (core->leads && core->stops_ms == UINT64_MAX) core->stops_ms = world->now_ms + 5 * delay(world);
    }
    follower_leads(world->cores[number].follower, true, world->now_ms);
}

static void step_cores(struct world *world) {
    for (unsigned i = 0; i < WORLD_CORES; i++) {
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

static void step(struct world *world) {
    world->now_ms += 1 + below(world, 20);
    for (struct world_call *call; (call = world_calls_due(&world->calls, world->now_ms));) {
        if (call->state == CALL_COMES) come(world, call);
        else arrive(world, call);
    }
    step_cores(world);
}

static void trouble(struct world *world) {
    unsigned core = (unsigned)below(world, WORLD_CORES);
    if (chance(world, 30)) change_source(world);
    if (chance(world, 1))
        for (uint64_t more = 10 + below(world, 20); more > 0; more--) change_source(world);
    if (chance(world, 5)) change_key(world);
    if (chance(world, 30)) source_catch_up(&world->source, 1 + below(world, 8));
    if (chance(world, 4)) lead(world, core);
    if (chance(world, 4)) follower_linked(world->cores[core].follower, below(world, 2), world->now_ms);
    if (chance(world, 2)) source_back_up(&world->source);
    if (world->source.backup >= 0 && below(world, 120) == 0) source_restore(&world->source);
    if (below(world, 400) == 0) source_found_anew(&world->source, history_changes(world));
}

struct world *world_new(uint64_t seed, unsigned mutations) {
    struct world *world = mem_zalloc(sizeof *world);
    rng_seed(&world->rng, seed);
    world->faults = true;
    world->source = (struct source){.cluster_id = 100 * seed, .told = note_moment, .data = world};
    fixture_open(&world->own);
    world->own.mutations = mutations;
    fixture_reopen(&world->own);
    fixture_found(&world->own);
    source_found(&world->source, history_changes(world));
    for (unsigned i = 0; i < WORLD_CORES; i++) {
        world->cores[i].follower = follow_catalog(REGION);
        follower_rows_most(world->cores[i].follower, 3 * i);
    }
    lead(world, 0);
    return world;
}

void world_run(struct world *world, size_t steps) {
    for (size_t i = 0; i < steps && !world->violation[0]; i++) {
        trouble(world);
        step(world);
    }
}

void world_heal(struct world *world) {
    world->faults = false;
    for (unsigned i = 0; i < WORLD_CORES; i++) follower_linked(world->cores[i].follower, true, world->now_ms);
    lead(world, (unsigned)below(world, WORLD_CORES));
    source_catch_up(&world->source, SIZE_MAX);
    const Pb__CatalogAt *last = &world->moments[world->moment_count - 1].at;
    const struct catalog_picture *is = &world->moments[world->moment_count - 1].picture;
    uint64_t until_ms = world->now_ms + 60000;
    bool equal = false;
    while (!equal && world->now_ms < until_ms && !world->violation[0]) {
        step(world);
        const struct catalog_picture *has = world->has_seen ? picture_at(world, &world->seen) : NULL;
        equal = has && copy_same_life(&world->seen, last) && picture_equal(has, is);
    }
    if (!equal) violate(world, "the copy does not come to equal its source");
}

const char *world_violation(const struct world *world) { return world->violation[0] ? world->violation : NULL; }
struct world_counts world_counts(const struct world *world) {
    struct world_counts counts = world->counts;
    counts.lives = world->source.lives;
    return counts;
}

void world_free(struct world *world) {
    for (size_t i = 0; i < world->moment_count; i++) picture_free(&world->moments[i].picture);
    world_calls_free(&world->calls);
    for (unsigned i = 0; i < WORLD_CORES; i++) follower_free(world->cores[i].follower);
    source_close(&world->source);
    fixture_close(&world->own);
    free(world->moments);
    free(world);
}
