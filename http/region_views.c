#include "http/region_views.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"

struct asking {
    struct http_call call;
    struct rpc_regions ask;
    http_regions_view view;
    struct buffer seen; /* packed: it comes on another thread */
};

const Pb__PeerRegion *region_seen(const Pb__PeerRegionsAnswer *seen, const char *name) {
    for (size_t i = 0; seen && i < seen->n_regions; i++)
        if (strcmp(seen->regions[i]->name, name) == 0) return seen->regions[i];
    return NULL;
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
