#include "http/api/health_lb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/api/near.h"
#include "http/api/views.h"
#include "lb/subset.h"

struct asked {
    const Pb__ServiceRequest *message;
    struct balance_ask ask;
};

/* -- subsets ------------------------------------------------------------------------------------------------------ */
/* Keeps the caller's subset of the instances, in their order. The size of the subset depends only on the request. */
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

/* Copies the list, because a view must not change the result. */
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

/* Rounds to thousandths, because finding all digits of ten doubles would take as long as the rest of the answer. */
static void thousandths_or_null(struct json_out *json, double number) {
    if (!(number >= 0 && number < 1e15)) {
        number_or_null(json, number);
        return;
    }
    uint64_t whole = (uint64_t)number, rest = (uint64_t)((number - trunc(number)) * 1000 + 0.5);
    json_u64(json, whole + rest / 1000);
    rest %= 1000;
    if (rest) buffer_append_byte(json->out, '.');
    for (uint64_t unit = 100; rest; rest %= unit, unit /= 10) buffer_append_byte(json->out, (char)('0' + rest / unit));
}

/* `kept`: has the load as JSON; NULL: it is formatted here. */
static void shown_write(struct json_out *json, const struct picks_kept *kept, size_t entry,
                        struct balance_shown shown) {
    json_object(json);
    json_key(json, "Load");
    if (kept) picks_write_load(json, kept, entry, shown.load);
    else number_or_null(json, shown.load);
    json_key(json, "Weight");
    thousandths_or_null(json, shown.weight);
    json_key(json, "Age");
    thousandths_or_null(json, round(shown.age_ms));
    json_object_end(json);
}

static void entry_write(struct json_out *json, const Pb__ServiceEntry *entry, struct balance_shown shown) {
    view_service_entry_begin(json, entry);
    json_key(json, "LB");
    shown_write(json, NULL, 0, shown);
    json_object_end(json);
}

/* Picks an instance for the request. SIZE_MAX: none can be picked. */
static size_t pick_first(struct http_request *request, struct balance *balance, struct balance_ask *ask) {
    struct slice service = http_path_value(request, "service");
    struct balance_picked picked;
    ask->now_ns = clock_mono_ns();
    if (ask->policy == PICK_NEAREST) picks_measure(request, balance, service, ask->now_ns);
    if (ask->policy == PICK_RING) hints_key(rpc_hints(http_env(request)->rpc), service, ask->key, ask->now_ns);
    return balance_pick(balance, ask, &picked) == CO_OK ? picked.picked : SIZE_MAX;
}

static int lb_view(struct http_request *request, const struct query_result *result) {
    struct balance_ask ask = ((const struct asked *)http_context(request))->ask;
    Pb__ServiceEntriesResult found = entries_of(request, result);
    struct json_out *json = http_out(request);
    /* The query has filtered by tag already. */
    ask.tags = NULL, ask.tag_count = 0;
    struct balance *balance = balance_new(rpc_hints(http_env(request)->rpc), &found, clock_mono_ns());
    size_t first = pick_first(request, balance, &ask);
    json_array(json);
    if (first != SIZE_MAX) entry_write(json, found.entries[first], balance_show(balance, &ask, first));
    for (size_t i = 0; i < found.n_entries; i++)
        if (i != first) entry_write(json, found.entries[i], balance_show(balance, &ask, i));
    json_array_end(json);
    balance_free(balance);
    return 200;
}

static void lb_read(struct http_request *request, const struct asked *asked) {
    http_read_near_fresh(request, &query_service_entries, &asked->message->base, lb_view, asked);
}

/* -- the same from kept picks (http/api/picks.h) ---------------------------------------------------------------------- */
/* May the request be answered from kept picks, at a quarter of the cost? Not when it waits, is sorted, or filters by
 * more than tags and passing. */
static bool is_plain(const struct http_request *request, const Pb__ServiceRequest *message) {
    static const char *const others[] = {"subset",    "near",   "index",  "consistent",
                                         "max_stale", "cached", "pretty", "dc"};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        if (http_has(request, others[i])) return false;
    return message->n_node_meta == 0 && rpc_has_copy(http_env((struct http_request *)(uintptr_t)request)->rpc);
}

static void kept_write(struct json_out *json, const struct picks_kept *kept, const struct balance_ask *ask, size_t i) {
    struct slice entry = kept->entries[i];
    json_raw(json, slice_make(entry.data, entry.size - 1)); /* without its end: LB follows */
    buffer_append_text(json->out, ",\"LB\":");
    json->after_key = true;
    shown_write(json, kept, i, balance_show(kept->balance, ask, i));
    buffer_append_byte(json->out, '}');
}

static void lb_confirmed(struct http_request *request, int error) {
    const struct asked *asked = http_context(request);
    struct balance_ask ask = asked->ask;
    const struct picks_kept *kept;
    if (error == CO_OK) error = picks_find(request, slice_text(asked->message->service), clock_mono_ns(), &kept);
    if (error != CO_OK) {
        lb_read(request, asked); /* which replies the error, or reads in the other way */
        return;
    }
    struct json_out *json = http_out(request);
    size_t first = pick_first(request, kept->balance, &ask);
    json_array(json);
    if (first != SIZE_MAX) kept_write(json, kept, &ask, first);
    for (size_t i = 0; i < balance_count(kept->balance); i++)
        if (i != first && balance_is_asked(kept->balance, &ask, i)) kept_write(json, kept, &ask, i);
    json_array_end(json);
    http_reply_confirmed(request, &query_service_entries, &asked->message->base, kept->index);
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
    struct asked *asked = arena_zalloc(http_arena(request), sizeof *asked);
    if (subset_refused(request) || (lb && !picks_ask(request, "lb", &asked->ask))) return true;
    asked->message = message, asked->ask.passing = message->passing_only;
    if (!lb) {
        http_read_near(request, &query_service_entries, &message->base, subset_view);
        return true;
    }
    rpc_hints_follow(http_env(request)->rpc, slice_text(message->service));
    http_set_context(request, asked);
    if (is_plain(request, message)) http_confirm(request, lb_confirmed);
    else lb_read(request, asked);
    return true;
}
