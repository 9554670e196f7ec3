/* Chooses the region that answers for a service, and explains the choice (multi-dc/failover.h). */
#include <string.h>

#include "base/check.h"
#include "multi-dc/failover.h"
#include "registry/catalog_access.h"

static const struct slice everything = SLICE_LITERAL("");

/* -- watch keys --------------------------------------------------------------------------------------------------- */
static struct slice service_of(const ProtobufCMessage *message) {
    return slice_text(((const Pb__AnswerRequest *)message)->service);
}
static struct watch_key watched(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_SERVICE, service_of(message)};
}
static struct watch_key own(const ProtobufCMessage *message, size_t i) {
    const Pb__AnswerRequest *request = (const Pb__AnswerRequest *)message;
    const struct watch_key keys[] = {{SPACE_COPY_SERVICE, service_of(message)},
                                     {SPACE_COPY_FLIP, everything},
                                     {SPACE_FAILOVER, service_of(message)},
                                     {SPACE_REGIONS, everything}};
    if (i < ARRAY_COUNT(keys)) return keys[i];
    i -= ARRAY_COUNT(keys);
    if (i / 2 >= request->n_others) return (struct watch_key){0};
    return (struct watch_key){i % 2 ? SPACE_SERVICE : SPACE_COPY_SERVICE, slice_text(request->others[i / 2])};
}

/* -- this region and others --------------------------------------------------------------------------------------- */
struct answering {
    struct store_txn *txn;
    const Pb__AnswerRequest *request;
    struct arena *arena;
    const Pb__Failover *record; /* NULL: the service has none */
    uint64_t index;             /* the highest index of everything that was read */
    Pb__AnswerResult *answer;
    bool rests_too; /* asks regions at rest too */
    bool found;     /* another region, or another service, has healthy instances */
};

static void looked_at(struct answering *of, uint64_t index) {
    if (index > of->index) of->index = index;
}

static bool any_healthy(const Pb__GlobalServiceRegion *region) {
    for (size_t i = 0; i < region->n_entries; i++)
        if (catalog_entry_status(region->entries[i]) <= PB__STATUS__WARNING) return true;
    return false;
}

struct wish {
    char *service, **tags, *region; /* region NULL: the nearest other one */
    size_t n_tags;
};

/* Names the regions at rest, which are passed over. The record's rests are of the service that was asked for, so other
 * services have none. */
static size_t passed_over(const struct answering *of, const struct wish *wish, char ***names) {
    size_t count = of->record && !of->rests_too ? of->record->n_rests : 0;
    if (!slice_equal_nocase(slice_text(wish->service), slice_text(of->request->service))) count = 0;
    *names = arena_alloc(of->arena, (count + 1) * sizeof **names);
    for (size_t i = 0; i < count; i++) (*names)[i] = of->record->rests[i]->region;
    return count;
}

static int ask_here(struct answering *of, const struct wish *wish, Pb__GlobalServiceRegion **found) {
    Pb__ServiceRequest ask = PB__SERVICE_REQUEST__INIT;
    struct query_result result = {0};
    ask.service = wish->service, ask.tags = wish->tags, ask.n_tags = wish->n_tags;
    ask.passing_only = of->request->passing_only, ask.held = true;
    int error = query_service_entries.run(of->txn, &ask.base, of->arena, &result);
    if (error) return error;
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)result.message;
    *found = arena_alloc(of->arena, sizeof **found);
    pb__global_service_region__init(*found);
    (*found)->region = of->request->own;
    if (entries) (*found)->entries = entries->entries, (*found)->n_entries = entries->n_entries;
    looked_at(of, result.index);
    return CO_OK;
}

/* *found changes only when a region has healthy instances. */
static int ask(struct answering *of, const struct wish *wish, Pb__GlobalServiceRegion **found) {
    Pb__GlobalRequest request = PB__GLOBAL_REQUEST__INIT;
    struct query_result result = {0};
    Pb__GlobalServiceRegion *here = NULL;
    char *region = wish->region;
    int error;
    if (region && strcmp(region, of->request->own) == 0) {
        error = ask_here(of, wish, &here);
        if (!error && any_healthy(here)) *found = here;
        return error;
    }
    request.service = wish->service, request.tags = wish->tags, request.n_tags = wish->n_tags;
    request.passing_only = of->request->passing_only, request.nearest = true;
    request.regions = &region, request.n_regions = region ? 1 : 0;
    request.n_without = passed_over(of, wish, &request.without);
    error = query_global.run(of->txn, &request.base, of->arena, &result);
    if (error) return error;
    const Pb__GlobalServiceResult *records = (const Pb__GlobalServiceResult *)result.message;
    looked_at(of, result.index);
    if (records->n_regions) *found = records->regions[0];
    return CO_OK;
}

/* Finds the first target that has healthy instances. The request's tags are not asked of a target that names another
 * service, which has tags of its own. */
static int elsewhere(struct answering *of) {
    const Pb__AnswerRequest *request = of->request;
    const Pb__Failover *order = of->record;
    struct wish wish = {.service = request->service, .tags = request->tags, .n_tags = request->n_tags};
    Pb__GlobalServiceRegion *found = NULL;
    int error = CO_OK;
    if (!order || !order->n_targets) error = ask(of, &wish, &found);
    for (size_t i = 0; order && i < order->n_targets; i++)
        of->answer->other_services |= order->targets[i]->service[0] != 0;
    for (size_t i = 0; order && i < order->n_targets && !error && !found; i++) {
        const Pb__FailoverTarget *target = order->targets[i];
        bool other = target->service[0];
        wish = (struct wish){.service = other ? target->service : request->service};
        if (other || target->n_tags) wish.tags = target->tags, wish.n_tags = target->n_tags;
        else wish.tags = request->tags, wish.n_tags = request->n_tags;
        if (!target->n_regions) error = ask(of, &wish, &found);
        for (size_t k = 0; k < target->n_regions && !error && !found; k++) {
            wish.region = target->regions[k];
            error = ask(of, &wish, &found);
        }
        of->answer->target = found ? (uint32_t)i + 1 : 0;
    }
    of->found = found;
    CHECK(!found || any_healthy(found));
    if (found) of->answer->from = found, of->answer->service = wish.service;
    return error;
}

static int find(struct answering *of) {
    const Pb__AnswerRequest *request = of->request;
    struct wish wish = {.service = request->service, .tags = request->tags, .n_tags = request->n_tags};
    Pb__AnswerResult *answer = of->answer = arena_alloc(of->arena, sizeof *answer);
    pb__answer_result__init(answer);
    answer->service = request->service;
    looked_at(of, machine_change_index(of->txn, SPACE_FAILOVER, slice_text(request->service)));
    int error = failover_record(of->txn, slice_text(request->service), of->arena, (Pb__Failover **)&of->record);
    if (error && error != CO_NOTFOUND) return error;
    error = ask_here(of, &wish, &answer->from);
    if (error) return error;
    CHECK(answer->from && answer->service);
    answer->none_here = !any_healthy(answer->from);
    if (!answer->none_here && !(of->record && of->record->back_index)) return CO_OK; /* the service is at home */
    error = elsewhere(of);
    of->rests_too = !error && answer->none_here && !of->found && of->record && of->record->n_rests;
    if (of->rests_too) error = elsewhere(of); /* because a region at rest is better than none */
    answer->away = !answer->none_here && strcmp(answer->from->region, request->own) != 0;
    return error;
}

static int answer_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                      struct query_result *result) {
    struct answering of = {.txn = txn, .arena = arena, .request = (const Pb__AnswerRequest *)message};
    int error = find(&of);
    *result = (struct query_result){.index = of.index, .found = true, .message = error ? NULL : &of.answer->base};
    return error;
}

/* An answer of nobody. */
static Pb__GlobalServiceRegion *no_answer(struct access_check *check, const Pb__AnswerRequest *request) {
    Pb__GlobalServiceRegion *region = arena_alloc(check->arena, sizeof *region);
    pb__global_service_region__init(region);
    region->region = request->own;
    return region;
}

/* Which region or service answers is a matter of the service, so nodes that are hidden count in it; the name of another
 * service that is hidden is not told. */
static int answer_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                       struct query_result *result) {
    const Pb__AnswerRequest *request = (const Pb__AnswerRequest *)message;
    Pb__AnswerResult *answer = (Pb__AnswerResult *)(uintptr_t)result->message;
    (void)txn;
    if (!catalog_shows_service(check, request->service, result)) {
        pb__answer_result__init(answer);
        answer->none_here = true;
    } else if (access_shows(check, ACCESS_SERVICE, slice_text(answer->service))) {
        catalog_show_entries(check, answer->from->entries, &answer->from->n_entries);
        return CO_OK;
    }
    answer->from = no_answer(check, request), answer->service = request->service;
    answer->target = 0, answer->away = false;
    return CO_OK;
}

const struct query_type query_answer = {.number = 218,
                                        .name = "answer",
                                        .discovery = true,
                                        .request = &pb__answer_request__descriptor,
                                        .result = &pb__answer_result__descriptor,
                                        .watched = watched,
                                        .run = answer_run,
                                        .show = answer_show,
                                        .own = own};

/* -- explanation -------------------------------------------------------------------------------------------------- */
static Pb__ExplainCounts *count(struct arena *arena, const Pb__GlobalServiceRegion *region) {
    Pb__ExplainCounts *counts = arena_alloc(arena, sizeof *counts);
    pb__explain_counts__init(counts);
    counts->region = region->region;
    for (size_t i = 0; i < region->n_entries; i++) {
        Pb__Status status = catalog_entry_status(region->entries[i]);
        counts->passing += status == PB__STATUS__PASSING, counts->warning += status == PB__STATUS__WARNING;
        counts->critical += status > PB__STATUS__WARNING, counts->held += region->entries[i]->held;
    }
    return counts;
}

/* Names a region that would answer if it were not at rest. */
static int name_passed_over(const struct answering *of, Pb__ExplainResult *why) {
    struct answering again = *of;
    Pb__AnswerResult answer = *of->answer;
    if (!of->record || !of->record->n_rests) return CO_OK;
    again.answer = &answer, again.rests_too = true;
    int error = elsewhere(&again);
    if (!error && again.found && strcmp(answer.from->region, of->answer->from->region) != 0)
        why->passed_over = answer.from->region;
    return error;
}

/* What `show` counts anew. */
struct explained {
    Pb__ExplainResult why;
    const Pb__AnswerResult *answer;
    const Pb__GlobalServiceResult *regions;
};

static int explain_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                       struct query_result *result) {
    const Pb__AnswerRequest *request = (const Pb__AnswerRequest *)message;
    struct answering of = {.txn = txn, .request = request, .arena = arena};
    struct query_result all = {0};
    Pb__GlobalRequest ask_all = PB__GLOBAL_REQUEST__INIT;
    struct explained *explained = arena_zalloc(arena, sizeof *explained);
    Pb__ExplainResult *why = &explained->why;
    pb__explain_result__init(why);
    ask_all.service = request->service, ask_all.tags = request->tags, ask_all.n_tags = request->n_tags;
    ask_all.own = request->own;
    int error = find(&of);
    if (!error) error = name_passed_over(&of, why);
    if (!error) error = query_global.run(txn, &ask_all.base, arena, &all);
    if (error) return error;
    const Pb__GlobalServiceResult *found = explained->regions = (const Pb__GlobalServiceResult *)all.message;
    const Pb__AnswerResult *answer = explained->answer = of.answer;
    why->service = request->service, why->record = (Pb__Failover *)(uintptr_t)of.record;
    why->answer_service = answer->service;
    why->answer = count(arena, answer->from);
    why->away = answer->away, why->none_here = answer->none_here, why->target = answer->target;
    why->regions = arena_alloc(arena, (found->n_regions + 1) * sizeof *why->regions);
    for (size_t i = 0; i < found->n_regions; i++) why->regions[why->n_regions++] = count(arena, found->regions[i]);
    *result = (struct query_result){.index = of.index, .found = true, .message = &why->base};
    return CO_OK;
}

/* The counts are of the instances that the token may read. */
static int explain_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                        struct query_result *result) {
    const Pb__AnswerRequest *request = (const Pb__AnswerRequest *)message;
    int error = access_require(check, ACCESS_SERVICE, slice_text(request->service), ACCESS_READ);
    if (error) return error;
    struct explained *explained = CONTAINER_OF(result->message, struct explained, why.base);
    Pb__ExplainResult *why = &explained->why;
    struct query_result answer = {.message = &explained->answer->base};
    error = answer_show(check, txn, message, &answer);
    why->answer_service = explained->answer->service, why->target = explained->answer->target;
    why->away = explained->answer->away;
    why->answer = count(check->arena, explained->answer->from);
    for (size_t i = 0; i < why->n_regions; i++) {
        Pb__GlobalServiceRegion *region = explained->regions->regions[i];
        catalog_show_entries(check, region->entries, &region->n_entries);
        why->regions[i] = count(check->arena, region);
    }
    if (why->record) failover_show(check, why->record);
    return error;
}

const struct query_type query_explain = {.number = 221,
                                         .name = "explain",
                                         .request = &pb__answer_request__descriptor,
                                         .result = &pb__explain_result__descriptor,
                                         .watched = watched,
                                         .run = explain_run,
                                         .show = explain_show};
