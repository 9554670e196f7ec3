/* Other regions: finds the link for requests to one of them (rpc/api/rpc.h), and answers how the regions look from
 * here; a client agent asks its server. */
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/api/regions.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define SEEN_MOST_MS 3000

void rpc_set_regions(struct rpc *rpc, const struct rpc_region_hooks *hooks) {
    CHECK(rpc->machine != NULL);
    free(rpc->regions);
    rpc->regions = NULL;
    if (!hooks) return;
    rpc->regions = mem_alloc(sizeof *rpc->regions);
    *rpc->regions = *hooks;
}

struct rpc *region_find(struct rpc *rpc, const char *region) {
    if (!region[0]) return rpc;
    if (rpc->cluster && strcmp(region, rpc->cluster) == 0) return rpc;
    return rpc->regions ? rpc->regions->find(rpc->regions->data, region) : NULL;
}

bool region_is_here(struct rpc *rpc, const char *region) { return region_find(rpc, region) == rpc; }

/* -- the regions as seen from here -------------------------------------------------------------------------------- */
struct regions_call {
    struct loop_task task;
    struct rpc *rpc;
    struct call call;
};
_Static_assert(sizeof(struct regions_call) <= sizeof(((struct rpc_regions *)0)->impl), "rpc_regions.impl is too small");

static struct rpc_regions *regions_of(struct regions_call *call) {
    return CONTAINER_OF((char *)call, struct rpc_regions, impl);
}

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    (void)call;
    Pb__PeerRegions *message = arena_alloc(arena, sizeof *message);
    pb__peer_regions__init(message);
    return &message->base;
}

const struct call_method regions_method = {.name = "regions",
                                           .request_frame = PEER_REGIONS,
                                           .answer_frame = PEER_REGIONS_ANSWER,
                                           .request = &pb__peer_regions__descriptor,
                                           .answer = &pb__peer_regions_answer__descriptor,
                                           .repeatable = true,
                                           .answer_ms = SEEN_MOST_MS,
                                           .build = build};

/* Answers with this region alone, when there are no links. */
static void seen_alone(struct rpc *rpc, struct arena *arena, Pb__PeerRegionsAnswer *answer) {
    Pb__PeerRegion *own = arena_alloc(arena, sizeof *own);
    pb__peer_region__init(own);
    own->name = rpc->cluster, own->cluster_id = machine_cluster(rpc->machine), own->own = own->reachable = true;
    answer->regions = arena_alloc(arena, sizeof *answer->regions);
    answer->regions[answer->n_regions++] = own;
}

static void seen(struct rpc *rpc, struct arena *arena, Pb__PeerRegionsAnswer *answer) {
    if (rpc->regions) rpc->regions->seen(rpc->regions->data, arena, answer);
    else seen_alone(rpc, arena, answer);
}

static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct rpc_regions *regions = regions_of(CONTAINER_OF(call, struct regions_call, call));
    const Pb__PeerRegionsAnswer *answer = (const Pb__PeerRegionsAnswer *)message;
    if (error == CO_OK) error = (int)answer->outcome;
    regions->done(regions, error, error == CO_OK ? answer : NULL);
}

static void begin(struct loop_task *task) {
    struct regions_call *asking = CONTAINER_OF(task, struct regions_call, task);
    struct rpc *rpc = task->rpc;
    if (!rpc->machine) {
        asking->call.done = answered;
        calls_begin(rpc->calls, &asking->call, &regions_method, SEEN_MOST_MS, clock_mono_ms());
        return;
    }
    struct arena arena = {0};
    Pb__PeerRegionsAnswer answer = PB__PEER_REGIONS_ANSWER__INIT;
    seen(rpc, &arena, &answer);
    regions_of(asking)->done(regions_of(asking), CO_OK, &answer);
    arena_free(&arena);
}

void rpc_ask_regions(struct rpc *rpc, struct rpc_regions *regions) {
    struct regions_call *asking = (struct regions_call *)(void *)regions->impl;
    *asking = (struct regions_call){.rpc = rpc};
    rpc_on_loop(rpc, &asking->task, begin);
}

bool regions_serve(const struct caller *caller, struct slice payload) {
    struct arena arena = {0};
    Pb__PeerRegions *asked = frame_unpack(&pb__peer_regions__descriptor, payload, &arena);
    if (asked) {
        Pb__PeerRegionsAnswer answer = PB__PEER_REGIONS_ANSWER__INIT;
        answer.number = asked->number;
        if (caller->rpc->stopping) answer.outcome = CO_CLOSED;
        else seen(caller->rpc, &arena, &answer);
        caller->tell(caller, PEER_REGIONS_ANSWER, &answer.base);
    }
    arena_free(&arena);
    return asked != NULL;
}
