#include "multi-dc/global.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static const struct slice everything = SLICE_LITERAL("");

/* -- watch keys --------------------------------------------------------------------------------------------------- */
static struct slice service_of(const ProtobufCMessage *message) {
    return slice_text(((const Pb__GlobalRequest *)message)->service);
}

static struct watch_key watched(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_COPY_SERVICE, service_of(message)};
}

static struct watch_key own(const ProtobufCMessage *message, size_t i) {
    const Pb__GlobalRequest *request = (const Pb__GlobalRequest *)message;
    const struct watch_key keys[] = {{SPACE_COPY_FLIP, everything},
                                     request->nearest ? (struct watch_key){SPACE_REGIONS, everything}
                                                      : (struct watch_key){SPACE_SERVICE, service_of(message)}};
    return i < ARRAY_COUNT(keys) ? keys[i] : (struct watch_key){0};
}

/* -- regions ------------------------------------------------------------------------------------------------------ */
static bool is_wanted(const Pb__GlobalRequest *request, const char *region) {
    for (size_t i = 0; i < request->n_regions; i++)
        if (strcmp(request->regions[i], region) == 0) return true;
    return request->n_regions == 0;
}

static bool is_left_out(const Pb__GlobalRequest *request, const char *region) {
    for (size_t i = 0; i < request->n_without; i++)
        if (strcmp(request->without[i], region) == 0) return true;
    return false;
}

static int own_region(struct store_txn *txn, const Pb__GlobalRequest *request, struct arena *arena,
                      Pb__GlobalServiceRegion **region, uint64_t *index) {
    Pb__ServiceRequest ask = PB__SERVICE_REQUEST__INIT;
    struct query_result found = {0};
    ask.service = request->service, ask.tags = request->tags, ask.n_tags = request->n_tags;
    ask.passing_only = request->passing_only, ask.held = true;
    int error = query_service_entries.run(txn, &ask.base, arena, &found);
    if (error) return error;
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)found.message;
    *region = arena_alloc(arena, sizeof **region);
    pb__global_service_region__init(*region);
    (*region)->region = request->own;
    if (entries) (*region)->entries = entries->entries, (*region)->n_entries = entries->n_entries;
    *index = found.index;
    return CO_OK;
}

struct ranked {
    const Pb__Region *record; /* NULL: there is a copy, but no record of the region */
    Pb__GlobalServiceRegion *region;
};

static int by_distance(const void *left, const void *right) {
    const struct ranked *a = left, *b = right;
    bool here = a->record && a->record->reachable, there = b->record && b->record->reachable;
    uint32_t far_a = a->record ? a->record->rtt_us : 0, far_b = b->record ? b->record->rtt_us : 0;
    if (here != there) return here ? -1 : 1;
    if (!far_a != !far_b) return far_a ? -1 : 1;
    if (far_a != far_b) return far_a < far_b ? -1 : 1;
    return strcmp(a->region->region, b->region->region);
}

static bool has_healthy(const Pb__GlobalServiceRegion *region) {
    for (size_t i = 0; i < region->n_entries; i++) {
        Pb__Status status = catalog_entry_status(region->entries[i]);
        if (status == PB__STATUS__PASSING || status == PB__STATUS__WARNING) return true;
    }
    return false;
}

/* Keeps only the nearest of the regions that have healthy instances. */
static int keep_nearest(struct store_txn *txn, const Pb__GlobalRequest *request, Pb__GlobalServiceResult *records,
                        struct arena *arena) {
    struct query_result found = {0};
    Pb__RegionsRequest ask = PB__REGIONS_REQUEST__INIT;
    int error = query_regions.run(txn, &ask.base, arena, &found);
    if (error) return error;
    const Pb__RegionsResult *known = (const Pb__RegionsResult *)found.message;
    struct ranked *ranked = arena_zalloc(arena, (records->n_regions + 1) * sizeof *ranked);
    size_t count = 0;
    for (size_t i = 0; i < records->n_regions; i++) {
        if (is_left_out(request, records->regions[i]->region) || !has_healthy(records->regions[i])) continue;
        ranked[count].region = records->regions[i];
        for (size_t k = 0; k < known->n_regions; k++)
            if (strcmp(known->regions[k]->name, records->regions[i]->region) == 0)
                ranked[count].record = known->regions[k];
        count++;
    }
    qsort(ranked, count, sizeof *ranked, by_distance);
    CHECK(count <= records->n_regions);
    records->n_regions = count > 0;
    if (count) records->regions[0] = ranked[0].region;
    return CO_OK;
}

/* -- the query ---------------------------------------------------------------------------------------------------- */
static int run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
               struct query_result *result) {
    const Pb__GlobalRequest *request = (const Pb__GlobalRequest *)message;
    Pb__GlobalServiceRequest ask = PB__GLOBAL_SERVICE_REQUEST__INIT;
    ask.service = request->service, ask.tags = request->tags, ask.n_tags = request->n_tags;
    ask.passing_only = request->passing_only;
    ask.regions = request->regions, ask.n_regions = request->n_regions;
    int error = query_global_service.run(txn, &ask.base, arena, result);
    if (error) return error;
    const Pb__GlobalServiceResult *copies = (const Pb__GlobalServiceResult *)result->message;
    Pb__GlobalServiceResult *records = arena_alloc(arena, sizeof *records);
    pb__global_service_result__init(records);
    records->regions = arena_alloc(arena, (copies->n_regions + 1) * sizeof *records->regions);
    result->message = &records->base;
    if (request->own[0] && !request->nearest && is_wanted(request, request->own)) {
        uint64_t index = 0;
        error = own_region(txn, request, arena, &records->regions[records->n_regions++], &index);
        if (error) return error;
        if (index > result->index) result->index = index;
    }
    for (size_t i = 0; i < copies->n_regions; i++) records->regions[records->n_regions++] = copies->regions[i];
    if (!request->nearest) return CO_OK;
    uint64_t index = machine_change_index(txn, SPACE_REGIONS, everything);
    if (index > result->index) result->index = index;
    return keep_nearest(txn, request, records, arena);
}

/* Which region is the nearest is a matter of the service, so nodes that are hidden count in it. */
static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                struct query_result *result) {
    const Pb__GlobalRequest *request = (const Pb__GlobalRequest *)message;
    Pb__GlobalServiceResult *records = (Pb__GlobalServiceResult *)(uintptr_t)result->message;
    (void)txn;
    copy_show_regions(check, request->service, records, result);
    if (request->nearest && !access_allows(check->access, ACCESS_SERVICE, service_of(message), ACCESS_READ))
        records->n_regions = 0;
    return CO_OK;
}

const struct query_type query_global = {.number = 216,
                                        .name = "global",
                                        .discovery = true,
                                        .request = &pb__global_request__descriptor,
                                        .result = &pb__global_service_result__descriptor,
                                        .watched = watched,
                                        .run = run,
                                        .show = show,
                                        .own = own};

static const struct query_type *const queries[] = {&query_global, NULL};
const struct module global_module = {.name = "global", .queries = queries};
