#include "http/api/region_views.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "base/text.h"

struct asking {
    struct http_call call;
    struct rpc_regions ask;
    http_regions_view view;
    struct buffer seen; /* packed, because it comes on another thread */
};

const Pb__PeerRegion *region_seen(const Pb__PeerRegionsAnswer *seen, const char *name) {
    for (size_t i = 0; seen && i < seen->n_regions; i++)
        if (strcmp(seen->regions[i]->name, name) == 0) return seen->regions[i];
    return NULL;
}

void region_write_origin(struct json_out *json, const char *name, const Pb__PeerRegionsAnswer *seen) {
    const Pb__PeerRegion *region = region_seen(seen, name);
    bool own = region && region->own;
    json_key(json, "Region"), json_string(json, name);
    json_key(json, "AsOf");
    if (!own && (!region || region->never_confirmed)) json_null(json);
    else json_u64(json, own ? 0 : region->as_of_ms);
    json_key(json, "Reachable"), json_bool(json, region && region->reachable);
}

void region_write_round_trip(struct json_out *json, const Pb__PeerRegion *seen) {
    struct buffer text = {0};
    if (!seen || !seen->rtt_us) return;
    duration_format(&text, (int64_t)seen->rtt_us * 1000);
    json_key(json, "RoundTrip"), json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}

static int by_distance(const void *left, const void *right) {
    const Pb__PeerRegion *a = *(Pb__PeerRegion *const *)left, *b = *(Pb__PeerRegion *const *)right;
    if (a->own != b->own) return a->own ? -1 : 1;
    if (!a->rtt_us != !b->rtt_us) return a->rtt_us ? -1 : 1;
    if (a->rtt_us != b->rtt_us) return a->rtt_us < b->rtt_us ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Loop thread. */
static void known(struct rpc_regions *ask, int error, const Pb__PeerRegionsAnswer *seen) {
    struct asking *asking = CONTAINER_OF(ask, struct asking, ask);
    if (error == CO_OK) {
        size_t size = pb__peer_regions_answer__get_packed_size(seen);
        buffer_reserve(&asking->seen, size + 1);
        asking->seen.size = pb__peer_regions_answer__pack(seen, (uint8_t *)asking->seen.data);
    }
    http_called(&asking->call, error);
}

static void view(struct http_request *request, struct http_call *call, int error) {
    struct asking *asking = CONTAINER_OF(call, struct asking, call);
    Pb__PeerRegionsAnswer *seen = NULL;
    if (error == CO_OK) {
        struct slice packed = buffer_slice(&asking->seen);
        const char *copy = arena_strndup(http_arena(request), packed.data, packed.size);
        seen = message_unpack(http_arena(request), &pb__peer_regions_answer__descriptor, slice_make(copy, packed.size));
        if (!seen) error = CO_CORRUPT;
    }
    buffer_free(&asking->seen);
    if (seen) qsort(seen->regions, seen->n_regions, sizeof *seen->regions, by_distance);
    asking->view(request, error, seen);
}

static void drop(struct http_call *call, int error) {
    (void)error;
    buffer_free(&CONTAINER_OF(call, struct asking, call)->seen);
}

void http_ask_regions(struct http_request *request, http_regions_view shown) {
    struct asking *asking = arena_zalloc(http_arena(request), sizeof *asking);
    asking->view = shown;
    asking->call.view = view, asking->call.drop = drop;
    asking->ask.done = known;
    http_call(request, &asking->call);
    rpc_ask_regions(http_env(request)->rpc, &asking->ask);
}

/* -- with records ------------------------------------------------------------------------------------------------- */
struct showing {
    struct regions_shown shown;
    http_regions_shown view;
};

const Pb__Region *region_record(const Pb__RegionsResult *records, const char *name) {
    for (size_t i = 0; i < records->n_regions; i++)
        if (strcmp(records->regions[i]->name, name) == 0) return records->regions[i];
    return NULL;
}

static struct showing *showing_of(struct http_request *request) {
    return (struct showing *)(uintptr_t)http_context(request);
}

static void all_known(struct http_request *request, int error, const Pb__PeerRegionsAnswer *seen) {
    struct showing *showing = showing_of(request);
    showing->shown.seen = seen;
    if (error) http_reply_error(request, error);
    else showing->view(request, &showing->shown);
}

static void records_known(struct http_request *request, int error, const struct query_result *result) {
    if (error) {
        http_reply_error(request, error);
        return;
    }
    showing_of(request)->shown.records = (const Pb__RegionsResult *)result->message;
    http_ask_regions(request, all_known);
}

static void fetch_records(struct http_request *request) {
    Pb__RegionsRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__regions_request__init(message);
    http_read_once(request, &query_regions, &message->base, RPC_STALE, records_known);
}

static void own_known(struct http_request *request, int error, const struct query_result *result) {
    struct regions_shown *shown = &showing_of(request)->shown;
    if (error) {
        http_reply_error(request, error);
        return;
    }
    http_tell_hidden(request);
    shown->own = result->message, shown->index = result->index ? result->index : 1;
    fetch_records(request);
}

void http_show_regions(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                       http_regions_shown shown) {
    struct showing *showing = arena_zalloc(http_arena(request), sizeof *showing);
    showing->view = shown, showing->shown.context = http_context(request);
    http_set_context(request, showing);
    if (type) http_read_once(request, type, message, RPC_STALE, own_known);
    else fetch_records(request);
}
