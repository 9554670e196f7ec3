/* Queries of the copies. Readers see the values of the region's committed stage, else the present ones. */
#include <stdlib.h>

#include "base/message.h"
#include "multi-dc/copy_internal.h"
#include "registry/access_operator.h"
#include "registry/catalog_access.h"
#include "registry/catalog_records.h"

static const struct slice no_name = {"", 0};

/* -- regions ------------------------------------------------------------------------------------------------------ */

/* Reads the records of all copies, by name. */
static int all_regions(struct store_txn *txn, struct arena *arena, struct pointers *regions) {
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, txn, COPY_TABLE_REGIONS, no_name) {
        Pb__CopyRegion *record = message_unpack(arena, &pb__copy_region__descriptor, cursor.value);
        if (record) pointers_add(regions, arena, record);
        else store_fail(txn, CO_CORRUPT);
    }
    store_cursor_close(&cursor);
    return store_txn_error(txn);
}

/* The visible copies that are asked for, in that order. None: all. */
static int seen_regions(struct store_txn *txn, char *const *names, size_t count, struct arena *arena,
                        struct pointers *seen) {
    struct pointers all = {0};
    uint64_t stage;
    int error = count ? CO_OK : all_regions(txn, arena, &all);
    for (size_t i = 0; i < count && !error; i++) {
        Pb__CopyRegion *record;
        if (!copy_region_good(names[i])) continue;
        error = copy_region_get(txn, names[i], arena, &record);
        if (!error) pointers_add(&all, arena, record);
        if (error == CO_NOTFOUND) error = CO_OK;
    }
    for (size_t i = 0; i < all.count; i++)
        if (copy_region_seen(all.items[i], &stage)) pointers_add(seen, arena, all.items[i]);
    return error;
}

static uint64_t flipped(struct store_txn *txn) { return machine_change_index(txn, SPACE_COPY_FLIP, no_name); }

static struct watch_key flips(size_t i) {
    return i == 0 ? (struct watch_key){SPACE_COPY_FLIP, no_name} : (struct watch_key){0};
}

static int done(struct store_txn *txn, struct watch_key watched, const ProtobufCMessage *message,
                struct query_result *result) {
    uint64_t index = machine_change_index(txn, watched.space, watched.name), all = flipped(txn);
    *result = (struct query_result){.index = index > all ? index : all, .found = true, .message = message};
    return store_txn_error(txn);
}

bool copy_service_anywhere(struct store_txn *txn, struct slice service) {
    char room[STORE_KEY_MAX];
    struct store_cursor cursor;
    struct slice value;
    bool found = false;
    STORE_PREFIX(&cursor, txn, COPY_TABLE_REGIONS, no_name) {
        const char *region = cursor.key.data; /* ends with a NUL: copy_key_region */
        found = store_get(txn, COPY_TABLE_SERVICES, copy_key_service(room, region, service), &value) == CO_OK;
        if (found) break;
    }
    store_cursor_close(&cursor);
    return found;
}

/* -- instances of a service --------------------------------------------------------------------------------------- */

static struct watch_key service_thing(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_COPY_SERVICE, slice_text(((const Pb__GlobalServiceRequest *)message)->service)};
}
static struct watch_key service_own(const ProtobufCMessage *message, size_t i) {
    (void)message;
    return flips(i);
}

static bool wanted(const Pb__ServiceEntry *entry, const Pb__GlobalServiceRequest *request) {
    return catalog_tags_fit(entry->service, request->tags, request->n_tags) &&
           (!request->passing_only || catalog_entry_status(entry) == PB__STATUS__PASSING);
}

/* The visible instance of a row; NULL: there is none. */
static Pb__ServiceEntry *entry_seen(struct store_txn *txn, struct slice value, uint64_t stage, struct arena *arena) {
    struct copy_cell cell;
    if (!copy_cell_read(value, &cell)) {
        store_fail(txn, CO_CORRUPT);
        return NULL;
    }
    struct copy_value seen = copy_cell_in(&cell, stage);
    if (!seen.there) return NULL;
    Pb__ServiceEntry *entry = message_unpack(arena, &pb__service_entry__descriptor, seen.bytes);
    if (entry && entry->node && entry->service) return entry;
    store_fail(txn, CO_CORRUPT);
    return NULL;
}

static int healthy_in(struct store_txn *txn, const Pb__CopyRegion *region, const struct copy_wish *wish,
                      struct arena *arena, bool *there) {
    char room[STORE_KEY_MAX];
    struct store_cursor cursor;
    uint64_t stage;
    bool healthy = false;
    if (!copy_region_seen(region, &stage)) return CO_NOTFOUND;
    STORE_PREFIX(&cursor, txn, COPY_TABLE_ROWS, copy_key_service(room, region->region, wish->service)) {
        const Pb__ServiceEntry *entry = entry_seen(txn, cursor.value, stage, arena);
        if (!entry || !catalog_tags_fit(entry->service, wish->tags, wish->n_tags)) continue;
        if (there) *there = true;
        healthy = catalog_entry_status(entry) <= PB__STATUS__WARNING;
        if (healthy) break;
    }
    store_cursor_close(&cursor);
    int error = store_txn_error(txn);
    return error ? error : healthy ? CO_OK : CO_NOTFOUND;
}

int copy_service_healthy(struct store_txn *txn, const char *region, const struct copy_wish *wish, struct arena *arena,
                         bool *there) {
    Pb__CopyRegion *record;
    if (there) *there = false;
    int error = copy_region_get(txn, region, arena, &record);
    return error ? error : healthy_in(txn, record, wish, arena, there);
}

int copy_service_healthy_anywhere(struct store_txn *txn, const struct copy_wish *wish, char *const *without,
                                  size_t n_without, struct arena *arena) {
    struct pointers regions = {0};
    int error = all_regions(txn, arena, &regions);
    for (size_t i = 0; i < regions.count && !error; i++) {
        const Pb__CopyRegion *region = regions.items[i];
        bool left_out = false;
        for (size_t k = 0; k < n_without && !left_out; k++) left_out = strcmp(without[k], region->region) == 0;
        int rv = left_out ? CO_NOTFOUND : healthy_in(txn, region, wish, arena, NULL);
        if (rv != CO_NOTFOUND) return rv;
    }
    return error ? error : CO_NOTFOUND;
}

static void entries_of(struct store_txn *txn, const Pb__CopyRegion *region, const Pb__GlobalServiceRequest *request,
                       struct arena *arena, Pb__GlobalServiceRegion *out) {
    char room[STORE_KEY_MAX];
    struct slice prefix = copy_key_service(room, region->region, slice_text(request->service));
    struct pointers entries = {0};
    struct store_cursor cursor;
    uint64_t stage;
    (void)copy_region_seen(region, &stage);
    STORE_PREFIX(&cursor, txn, COPY_TABLE_ROWS, prefix) {
        Pb__ServiceEntry *entry = entry_seen(txn, cursor.value, stage, arena);
        if (!entry) continue;
        catalog_unstrip(entry);
        if (wanted(entry, request)) pointers_add(&entries, arena, entry);
    }
    store_cursor_close(&cursor);
    out->entries = (Pb__ServiceEntry **)entries.items, out->n_entries = entries.count;
}

static int run_service(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                       struct query_result *result) {
    const Pb__GlobalServiceRequest *request = (const Pb__GlobalServiceRequest *)message;
    Pb__GlobalServiceResult *records = arena_alloc(arena, sizeof *records);
    pb__global_service_result__init(records);
    struct pointers regions = {0};
    int error = seen_regions(txn, request->regions, request->n_regions, arena, &regions);
    if (error) return error;
    records->regions = arena_alloc(arena, (regions.count + 1) * sizeof *records->regions);
    for (size_t i = 0; i < regions.count; i++) {
        const Pb__CopyRegion *region = regions.items[i];
        Pb__GlobalServiceRegion *out = records->regions[records->n_regions++] = arena_alloc(arena, sizeof *out);
        pb__global_service_region__init(out);
        out->region = region->region, out->at = region->at;
        entries_of(txn, region, request, arena, out);
    }
    return done(txn, service_thing(message), &records->base, result);
}

void copy_show_regions(struct access_check *check, const char *service, Pb__GlobalServiceResult *records,
                       struct query_result *result) {
    bool shown = catalog_shows_service(check, service, result);
    for (size_t i = 0; i < records->n_regions; i++) {
        Pb__GlobalServiceRegion *region = records->regions[i];
        if (shown) catalog_show_entries(check, region->entries, &region->n_entries);
        else region->n_entries = 0;
    }
}

static int show_service(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                        struct query_result *result) {
    (void)txn;
    copy_show_regions(check, ((const Pb__GlobalServiceRequest *)message)->service,
                      (Pb__GlobalServiceResult *)(uintptr_t)result->message, result);
    return CO_OK;
}

/* -- names of services -------------------------------------------------------------------------------------------- */

static struct watch_key services_thing(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_COPY_SERVICES, no_name};
}

struct found {
    const Pb__CopyService *service;
    const char *region;
    size_t order; /* the place of the region */
};

static int services_of(struct store_txn *txn, const Pb__CopyRegion *region, size_t order, struct arena *arena,
                       struct pointers *found) {
    char room[STORE_KEY_MAX];
    struct slice prefix = copy_key_region(room, region->region);
    struct store_cursor cursor;
    uint64_t stage;
    (void)copy_region_seen(region, &stage);
    STORE_PREFIX(&cursor, txn, COPY_TABLE_SERVICES, prefix) {
        struct copy_cell cell;
        if (!copy_cell_read(cursor.value, &cell)) store_fail(txn, CO_CORRUPT);
        struct copy_value value = copy_cell_in(&cell, stage);
        if (!value.there) continue;
        struct found *one = arena_alloc(arena, sizeof *one);
        *one = (struct found){message_unpack(arena, &pb__copy_service__descriptor, value.bytes), region->region, order};
        if (one->service) pointers_add(found, arena, one);
        else store_fail(txn, CO_CORRUPT);
    }
    store_cursor_close(&cursor);
    return store_txn_error(txn);
}

static int compare_found(const void *a, const void *b) {
    const struct found *one = *(struct found *const *)a, *other = *(struct found *const *)b;
    int order = slice_compare_nocase(slice_text(one->service->name), slice_text(other->service->name));
    return order ? order : (one->order > other->order) - (one->order < other->order);
}

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Merges the services of one name to one record. */
static Pb__GlobalServiceName *join(struct arena *arena, struct found *const *found, size_t count) {
    Pb__GlobalServiceName *name = arena_alloc(arena, sizeof *name);
    size_t tags = 0;
    pb__global_service_name__init(name);
    name->name = found[0]->service->name;
    name->regions = arena_alloc(arena, count * sizeof *name->regions);
    name->instances = arena_alloc(arena, count * sizeof *name->instances);
    for (size_t i = 0; i < count; i++) {
        name->regions[name->n_regions++] = (char *)(uintptr_t)found[i]->region;
        name->instances[name->n_instances++] = found[i]->service->instances;
        tags += found[i]->service->n_tags;
    }
    name->tags = arena_alloc(arena, (tags + 1) * sizeof *name->tags);
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < found[i]->service->n_tags; j++) name->tags[all++] = found[i]->service->tags[j]->tag;
    if (all) qsort(name->tags, all, sizeof *name->tags, compare_texts);
    for (size_t i = 0; i < all; i++)
        if (i == 0 || strcmp(name->tags[i], name->tags[name->n_tags - 1]) != 0)
            name->tags[name->n_tags++] = name->tags[i];
    return name;
}

static int run_services(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                        struct query_result *result) {
    const Pb__GlobalServicesRequest *request = (const Pb__GlobalServicesRequest *)message;
    Pb__GlobalServicesResult *records = arena_alloc(arena, sizeof *records);
    pb__global_services_result__init(records);
    struct pointers regions = {0}, found = {0};
    int error = seen_regions(txn, request->regions, request->n_regions, arena, &regions);
    for (size_t i = 0; i < regions.count && !error; i++) error = services_of(txn, regions.items[i], i, arena, &found);
    if (error) return error;
    struct found **items = (struct found **)found.items;
    if (found.count) qsort(items, found.count, sizeof *items, compare_found);
    records->services = arena_alloc(arena, (found.count + 1) * sizeof *records->services);
    for (size_t i = 0, next; i < found.count; i = next) {
        next = i + 1;
        while (next < found.count &&
               slice_equal_nocase(slice_text(items[next]->service->name), slice_text(items[i]->service->name)))
            next++;
        records->services[records->n_services++] = join(arena, items + i, next - i);
    }
    return done(txn, services_thing(message), &records->base, result);
}

/* Names by service:read alone, as this region's. How many instances they have is told to those who may read all nodes. */
static int show_services(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                         struct query_result *result) {
    Pb__GlobalServicesResult *records = (Pb__GlobalServicesResult *)(uintptr_t)result->message;
    bool counts = access_allows_below(check->access, ACCESS_NODE, no_name, ACCESS_READ);
    (void)txn, (void)message;
    ACCESS_KEEP_ROWS(records->n_services, records->services,
                     access_shows(check, ACCESS_SERVICE, slice_text(row->name)));
    for (size_t i = 0; i < records->n_services && !counts; i++) records->services[i]->n_instances = 0;
    return CO_OK;
}

/* -- copies ------------------------------------------------------------------------------------------------------- */

static struct watch_key copies_thing(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_COPY, no_name};
}

static int run_copies(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                      struct query_result *result) {
    Pb__CopiesResult *records = arena_alloc(arena, sizeof *records);
    pb__copies_result__init(records);
    struct pointers regions = {0};
    int error = all_regions(txn, arena, &regions);
    records->regions = (Pb__CopyRegion **)regions.items, records->n_regions = regions.count;
    return error ? error : done(txn, copies_thing(message), &records->base, result);
}

static void keys_of(struct store_txn *txn, const Pb__CopyRegion *region, struct arena *arena, Pb__CopyResult *out) {
    char room[STORE_KEY_MAX];
    struct slice prefix = copy_key_region(room, region->region);
    struct arena scratch = {0};
    struct pointers keys = {0};
    struct store_cursor cursor;
    uint64_t stage;
    if (!copy_region_seen(region, &stage)) return;
    STORE_PREFIX(&cursor, txn, COPY_TABLE_ROWS, prefix) {
        struct copy_cell cell;
        if (!copy_cell_read(cursor.value, &cell)) store_fail(txn, CO_CORRUPT);
        struct copy_value value = copy_cell_in(&cell, stage);
        if (!value.there) continue;
        arena_reset(&scratch);
        const Pb__ServiceEntry *entry = message_unpack(&scratch, &pb__service_entry__descriptor, value.bytes);
        if (!entry || !entry->node || !entry->service) {
            store_fail(txn, CO_CORRUPT);
            continue;
        }
        Pb__CatalogKey *key = arena_alloc(arena, sizeof *key);
        pb__catalog_key__init(key);
        key->service = arena_strndup(arena, entry->service->name, strlen(entry->service->name));
        key->node = arena_strndup(arena, entry->node->name, strlen(entry->node->name));
        key->id = arena_strndup(arena, entry->service->id, strlen(entry->service->id));
        pointers_add(&keys, arena, key);
    }
    store_cursor_close(&cursor);
    arena_free(&scratch);
    out->keys = (Pb__CatalogKey **)keys.items, out->n_keys = keys.count;
}

static int run_copy(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                    struct query_result *result) {
    const Pb__CopyRequest *request = (const Pb__CopyRequest *)message;
    Pb__CopyResult *records = arena_alloc(arena, sizeof *records);
    pb__copy_result__init(records);
    if (copy_region_good(request->region)) (void)copy_region_get(txn, request->region, arena, &records->region);
    if (records->region && request->keys) keys_of(txn, records->region, arena, records);
    return done(txn, copies_thing(message), &records->base, result);
}

const struct query_type query_global_service = {.number = 208,
                                                .name = "global-service",
                                                .request = &pb__global_service_request__descriptor,
                                                .result = &pb__global_service_result__descriptor,
                                                .watched = service_thing,
                                                .own = service_own,
                                                .run = run_service,
                                                .show = show_service};
const struct query_type query_global_services = {.number = 209,
                                                 .name = "global-services",
                                                 .request = &pb__global_services_request__descriptor,
                                                 .result = &pb__global_services_result__descriptor,
                                                 .watched = services_thing,
                                                 .run = run_services,
                                                 .show = show_services};
const struct query_type query_copies = {.number = 210,
                                        .name = "copies",
                                        .request = &pb__copies_request__descriptor,
                                        .result = &pb__copies_result__descriptor,
                                        .watched = copies_thing,
                                        .run = run_copies,
                                        .show = access_operator_show};
const struct query_type query_copy = {.number = 211,
                                      .name = "copy",
                                      .request = &pb__copy_request__descriptor,
                                      .result = &pb__copy_result__descriptor,
                                      .watched = copies_thing,
                                      .run = run_copy,
                                      .show = access_operator_show};
