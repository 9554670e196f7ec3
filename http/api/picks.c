#include "http/api/picks.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "http/api/views.h"
#include "lb/coordinate.h"

#define CHAINS 256

struct kept {
    struct picks_kept shown;
    struct kept *chain;
    struct list used; /* the one used least recently first */
    uint64_t hash, generation;
    uint64_t view; /* of those who may see it (http_sees) */
    struct slice service;
    char *text; /* the text of entries and heads */
    struct slice *entries, *heads;
    size_t cost;
};

struct picks {
    struct rpc *rpc;
    struct rpc_reader *reader; /* its own reader, because views use it within another read */
    struct arena arena;
    struct kept *chains[CHAINS];
    struct list used;
    size_t bytes, bytes_most;
};

static struct picks *picks_of(struct http_request *request) { return http_api_kept(request); }

/* -- kept --------------------------------------------------------------------------------------------------------- */
static void kept_drop(struct picks *picks, struct kept *kept) {
    struct kept **at = &picks->chains[kept->hash % CHAINS];
    while (*at != kept) at = &(*at)->chain;
    *at = kept->chain;
    list_remove(&kept->used);
    picks->bytes -= kept->cost;
    balance_free(kept->shown.balance);
    free(kept->text);
    free(kept->entries);
    free(kept->shown.loads);
    free((char *)(uintptr_t)kept->service.data);
    free(kept);
}

static struct kept *kept_find(struct picks *picks, struct slice service, uint64_t hash, uint64_t view) {
    struct kept *kept = picks->chains[hash % CHAINS];
    while (kept && !(kept->hash == hash && kept->view == view && slice_equal(kept->service, service)))
        kept = kept->chain;
    return kept;
}

/* The JSON of all entries, one after the other. */
static void texts_write(struct kept *kept, const Pb__ServiceEntriesResult *found) {
    size_t count = found ? found->n_entries : 0;
    size_t *ends = mem_alloc((2 * count + 1) * sizeof *ends);
    struct buffer text = {0};
    struct json_out json;
    for (size_t i = 0; i < count; i++) {
        json_out_init(&json, &text, false);
        view_service_entry(&json, found->entries[i]);
        ends[2 * i] = text.size;
        json_out_init(&json, &text, false);
        json_object(&json);
        json_key(&json, "ID");
        json_string(&json, found->entries[i]->service->id);
        json_key(&json, "Node");
        json_string(&json, found->entries[i]->node->name);
        ends[2 * i + 1] = text.size;
    }
    kept->shown.loads = mem_zalloc((count + 1) * sizeof *kept->shown.loads);
    kept->cost += text.capacity + count * (2 * sizeof(struct slice) + sizeof *kept->shown.loads);
    kept->text = buffer_take(&text, NULL);
    kept->entries = mem_alloc((2 * count + 1) * sizeof *kept->entries);
    kept->heads = kept->entries + count;
    for (size_t i = 0, at = 0; i < count; i++) {
        kept->entries[i] = slice_make(kept->text + at, ends[2 * i] - at);
        kept->heads[i] = slice_make(kept->text + ends[2 * i], ends[2 * i + 1] - ends[2 * i]);
        at = ends[2 * i + 1];
    }
    free(ends);
    kept->shown.entries = kept->entries, kept->shown.heads = kept->heads;
}

static void make_room(struct picks *picks, const struct kept *but) {
    while (picks->bytes > picks->bytes_most) {
        struct kept *oldest = LIST_ENTRY(picks->used.next, struct kept, used);
        if (oldest == but) return;
        kept_drop(picks, oldest);
    }
}

static struct kept *kept_new(struct picks *picks, struct slice service, uint64_t hash, uint64_t view,
                             const struct query_result *result, uint64_t now_ns) {
    const Pb__ServiceEntriesResult *found = (const Pb__ServiceEntriesResult *)result->message;
    struct kept *kept = mem_zalloc(sizeof *kept), *before = kept_find(picks, service, hash, view);
    kept->view = view;
    kept->hash = hash;
    kept->service = slice_make(mem_strndup(service.data, service.size), service.size);
    kept->shown.index = result->index;
    kept->shown.balance = balance_new(rpc_hints(picks->rpc), found, now_ns);
    texts_write(kept, found);
    kept->cost += sizeof *kept + balance_bytes(kept->shown.balance) + service.size;
    if (before) {
        balance_follows(kept->shown.balance, before->shown.balance, now_ns);
        kept_drop(picks, before);
    }
    kept->chain = picks->chains[hash % CHAINS];
    picks->chains[hash % CHAINS] = kept;
    list_append(&picks->used, &kept->used);
    picks->bytes += kept->cost;
    make_room(picks, kept);
    return kept;
}

static int query(struct http_request *asked, const struct query_type *type, const ProtobufCMessage *request,
                 struct query_result *result) {
    struct picks *picks = picks_of(asked);
    arena_reset(&picks->arena);
    *result = (struct query_result){0};
    int error = rpc_query_now(picks->reader, type, request, http_requester(asked), &picks->arena, result);
    if (error == CO_CORRUPT) rpc_met_damage(picks->rpc);
    return error;
}

int picks_find(struct http_request *request, struct slice service, uint64_t now_ns, const struct picks_kept **out) {
    struct picks *picks = picks_of(request);
    struct watch_key watched = {SPACE_SERVICE, service};
    uint64_t hash = hash64(service.data, service.size), generation = rpc_generation(picks->rpc, watched), view;
    int unseen = http_sees(request, &view);
    if (unseen) return unseen;
    struct kept *kept = kept_find(picks, service, hash, view);
    if (!kept || kept->generation != generation) {
        Pb__ServiceRequest ask = PB__SERVICE_REQUEST__INIT;
        struct query_result result;
        ask.service = arena_strndup(http_arena(request), service.data, service.size);
        ask.held = true;
        int error = query(request, &query_service_entries, &ask.base, &result);
        if (error == CO_OK) kept = kept_new(picks, service, hash, view, &result, now_ns);
        rpc_read_end(picks->reader);
        if (error != CO_OK) return error;
        kept->generation = generation;
    }
    list_remove(&kept->used);
    list_append(&picks->used, &kept->used);
    if (balance_count(kept->shown.balance)) rpc_hints_follow(picks->rpc, service);
    *out = &kept->shown;
    return CO_OK;
}

void picks_write_load(struct json_out *json, const struct picks_kept *kept, size_t instance, double load) {
    struct picks_load *written = &kept->loads[instance];
    if (isnan(load)) {
        json_null(json);
    } else if (written->size && written->load == load) {
        json_raw(json, slice_make(written->text, written->size));
    } else {
        size_t at = json->out->size;
        json_double(json, load);
        size_t size = json->out->size - at;
        if (size > sizeof written->text) return;
        memcpy(written->text, json->out->data + at, size);
        written->load = load, written->size = (uint8_t)size;
    }
}

/* -- distances ---------------------------------------------------------------------------------------------------- */
struct measuring {
    const char *own;
    struct vivaldi_coordinate here;
    const Pb__CoordinatesResult *there; /* by node */
};

static int by_node(const void *key, const void *item) {
    return slice_compare(*(const struct slice *)key, slice_text((*(Pb__Coordinate *const *)item)->node));
}

static double distance(void *data, struct slice node) {
    const struct measuring *measuring = data;
    const Pb__CoordinatesResult *there = measuring->there;
    if (slice_is(node, measuring->own)) return 0;
    if (measuring->here.error >= VIVALDI_ERROR_MAX) return INFINITY; /* this agent has not measured anything yet */
    Pb__Coordinate *const *found =
        there ? bsearch(&node, there->coordinates, there->n_coordinates, sizeof(void *), by_node) : NULL;
    if (!found || coordinate_check(*found) != CO_OK) return INFINITY;
    struct vivaldi_coordinate coordinate = coordinate_read(*found);
    if (coordinate.error >= VIVALDI_ERROR_MAX) return INFINITY;
    return vivaldi_distance(&measuring->here, &coordinate);
}

static int node_order(const void *a, const void *b) {
    return slice_compare(slice_text((*(Pb__Coordinate *const *)a)->node),
                         slice_text((*(Pb__Coordinate *const *)b)->node));
}

void picks_measure(struct http_request *request, struct balance *balance, struct slice service, uint64_t now_ns) {
    struct picks *picks = picks_of(request);
    if (!balance_wants_distances(balance, now_ns)) return;
    Pb__ServiceRequest ask = PB__SERVICE_REQUEST__INIT;
    struct query_result result;
    ask.service = arena_strndup(http_arena(request), service.data, service.size);
    struct measuring measuring = {.own = http_env(request)->node_name, .here = rpc_coordinate_here(picks->rpc)};
    int error = query(request, &query_service_coordinates, &ask.base, &result);
    if (error == CO_OK) measuring.there = (const Pb__CoordinatesResult *)result.message;
    if (measuring.there)
        qsort(measuring.there->coordinates, measuring.there->n_coordinates, sizeof(void *), node_order);
    balance_distances(balance, distance, &measuring, now_ns);
    rpc_read_end(picks->reader);
}

/* -- parameters --------------------------------------------------------------------------------------------------- */
bool picks_ask(struct http_request *request, const char *parameter, struct balance_ask *ask) {
    struct slice policy = parameter ? http_parameter(request, parameter) : slice_make("", 0), *tags;
    struct fault fault = {0};
    *ask = (struct balance_ask){.policy = PICK_P2C, .key = http_parameter(request, "key"), .rng = http_rng(request)};
    if (policy.size && pick_policy_parse(policy, &ask->policy, &fault) != CO_OK) {
        http_reply_text(request, 400, "%s", fault.text);
        return false;
    }
    if (ask->policy == PICK_RING && !http_has(request, "key")) {
        http_reply_text(request, 400, "key: policy ring needs one");
        return false;
    }
    ask->tag_count = http_parameters(request, "tag", &tags);
    ask->tags = tags;
    return true;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct picks *picks_new(struct rpc *rpc, size_t bytes) {
    struct picks *picks = mem_zalloc(sizeof *picks);
    picks->rpc = rpc, picks->bytes_most = bytes;
    picks->reader = rpc_reader_new(rpc);
    list_init(&picks->used);
    return picks;
}

void picks_free(struct picks *picks) {
    if (!picks) return;
    LIST_FOREACH_SAFE(at, next, &picks->used) kept_drop(picks, LIST_ENTRY(at, struct kept, used));
    rpc_reader_free(picks->reader);
    arena_free(&picks->arena);
    free(picks);
}
