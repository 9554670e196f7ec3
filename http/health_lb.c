#include "http/health_lb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/views.h"
#include "lb/subset.h"

/* -- subsets ------------------------------------------------------------------------------------------------------ */
/* Those of the caller, in the order that they are in. How many stay is a function of the request alone. */
static void choose(struct http_request *request, Pb__ServiceEntriesResult *found) {
    uint64_t most = HEALTH_SUBSET_MOST;
    if (!http_has(request, "subset") || !http_parameter_u64(request, "subset", &most) || most >= found->n_entries)
        return;
    struct arena *arena = http_arena(request);
    size_t count = found->n_entries;
    struct rendezvous_member *members = mem_alloc(count * sizeof *members);
    size_t *chosen = mem_alloc((size_t)most * sizeof *chosen);
    bool *stays = mem_zalloc(count * sizeof *stays);
    struct arena names = {0};
    for (size_t i = 0; i < count; i++) {
        const Pb__Service *service = found->entries[i]->service;
        members[i] =
            (struct rendezvous_member){slice_text(arena_printf(&names, "%s/%s", service->node, service->id)), 1};
    }
    struct rendezvous *set = rendezvous_new(members, count);
    most = subset_choose(set, http_parameter(request, "id"), (size_t)most, chosen);
    for (size_t i = 0; i < most; i++) stays[chosen[i]] = true;
    Pb__ServiceEntry **kept = arena_alloc(arena, (size_t)(most + 1) * sizeof *kept);
    size_t kept_count = 0;
    for (size_t i = 0; i < count; i++)
        if (stays[i]) kept[kept_count++] = found->entries[i];
    found->entries = kept, found->n_entries = kept_count;
    rendezvous_free(set);
    arena_free(&names);
    free(members), free(chosen), free(stays);
}

/* A copy of the list, because the result is not this view's. */
static Pb__ServiceEntriesResult entries_of(struct http_request *request, const struct query_result *result) {
    Pb__ServiceEntriesResult found = PB__SERVICE_ENTRIES_RESULT__INIT;
    if (result->message) found = *(const Pb__ServiceEntriesResult *)result->message;
    choose(request, &found);
    return found;
}

static int subset_view(struct http_request *request, const struct query_result *result) {
    Pb__ServiceEntriesResult found = entries_of(request, result);
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < found.n_entries; i++) view_service_entry(json, found.entries[i]);
    json_array_end(json);
    return 200;
}

/* -- with loads, the pick first ------------------------------------------------------------------------------------ */
static void number_or_null(struct json_out *json, double number) {
    if (isnan(number)) json_null(json);
    else json_double(json, number);
}

static void entry_write(struct json_out *json, const Pb__ServiceEntry *entry, struct balance_shown shown) {
    view_service_entry_begin(json, entry);
    json_key(json, "LB");
    json_object(json);
    json_key(json, "Load");
    number_or_null(json, shown.load);
    json_key(json, "Weight");
    json_double(json, shown.weight);
    json_key(json, "Age");
    number_or_null(json, round(shown.age_ms));
    json_object_end(json);
    json_object_end(json);
}

static int lb_view(struct http_request *request, const struct query_result *result) {
    struct balance_ask ask = *(const struct balance_ask *)http_context(request);
    Pb__ServiceEntriesResult found = entries_of(request, result);
    struct slice service = http_path_value(request, "service");
    struct rpc *rpc = http_env(request)->rpc;
    struct json_out *json = http_out(request);
    struct balance_picked picked;
    ask.now_ns = clock_mono_ns();
    struct balance *balance = balance_new(rpc_hints(rpc), &found, ask.now_ns);
    if (ask.policy == PICK_NEAREST) picks_measure(request, balance, service, ask.now_ns);
    if (ask.policy == PICK_RING) hints_key(rpc_hints(rpc), service, ask.key, ask.now_ns);
    size_t first = balance_pick(balance, &ask, &picked) == CO_OK ? picked.picked : SIZE_MAX;
    json_array(json);
    if (first != SIZE_MAX) entry_write(json, found.entries[first], balance_show(balance, &ask, first));
    for (size_t i = 0; i < found.n_entries; i++)
        if (i != first) entry_write(json, found.entries[i], balance_show(balance, &ask, i));
    json_array_end(json);
    balance_free(balance);
    return 200;
}

/* -- the request -------------------------------------------------------------------------------------------------- */
static bool subset_refused(struct http_request *request) {
    uint64_t most = 0;
    if (!http_has(request, "subset")) return false;
    if (!http_parameter_u64(request, "subset", &most)) return true;
    if (most > 0 && http_parameter(request, "id").size) return false;
    http_reply_text(request, 400, "%s",
                    most ? "subset: id is missing, the caller's own" : "subset: must be at least 1");
    return true;
}

bool health_lb_read(struct http_request *request, const Pb__ServiceRequest *message) {
    bool lb = http_has(request, "lb");
    if (!lb && !http_has(request, "subset")) return false;
    struct balance_ask *ask = arena_zalloc(http_arena(request), sizeof *ask);
    if (subset_refused(request) || (lb && !picks_ask(request, "lb", ask))) return true;
    /* The query has chosen by tag and passing already. */
    ask->tags = NULL, ask->tag_count = 0, ask->passing = message->passing_only;
    if (lb) {
        rpc_hints_follow(http_env(request)->rpc, slice_text(message->service));
        http_read_near_fresh(request, &query_service_entries, &message->base, lb_view, ask);
    } else {
        http_read_near(request, &query_service_entries, &message->base, subset_view);
    }
    return true;
}
