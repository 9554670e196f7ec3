/* Queries of nodes and services. */
#include "registry/catalog_query.h"

#include <stdlib.h>

#include "base/check.h"
#include "registry/catalog_access.h"
#include "registry/self_preservation.h"

/* -- shared ------------------------------------------------------------------------------------------------------- */

bool query_meta_fits(const Pb__Node *node, Pb__Pair *const *wanted, size_t wanted_count) {
    for (size_t i = 0; i < wanted_count; i++) {
        bool found = false;
        for (size_t j = 0; j < node->n_meta && !found; j++) {
            found =
                strcmp(node->meta[j]->key, wanted[i]->key) == 0 && strcmp(node->meta[j]->value, wanted[i]->value) == 0;
        }
        if (!found) return false;
    }
    return true;
}

int query_done(struct store_txn *txn, struct watch_key watched, const ProtobufCMessage *message, bool found,
               struct query_result *result) {
    *result = (struct query_result){
        .index = machine_change_index(txn, watched.space, watched.name), .found = found, .message = message};
    return CO_OK;
}

/* -- nodes -------------------------------------------------------------------------------------------------------- */

static struct watch_key nodes_thing(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_TABLE, catalog_table_nodes};
}

/* Collects all nodes that have the meta. */
static int collect_nodes(struct store_txn *txn, struct arena *arena, const Pb__TableRequest *request,
                         struct pointers *nodes) {
    struct store_cursor cursor;
    int error = CO_OK;
    struct slice all = slice_make("", 0);
    STORE_PREFIX(&cursor, txn, TABLE_NODES, all) {
        Pb__Node *node = record_node(txn, arena, cursor.value);
        if (!node) error = CO_CORRUPT;
        else if (query_meta_fits(node, request->node_meta, request->n_node_meta)) pointers_add(nodes, arena, node);
    }
    store_cursor_close(&cursor);
    return error;
}

static int run_nodes(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                     struct query_result *result) {
    struct pointers nodes = {0};
    int error = collect_nodes(txn, arena, (const Pb__TableRequest *)message, &nodes);
    if (error) return error;
    Pb__NodesResult *records = arena_alloc(arena, sizeof *records);
    pb__nodes_result__init(records);
    records->nodes = (Pb__Node **)nodes.items;
    records->n_nodes = nodes.count;
    return query_done(txn, nodes_thing(message), &records->base, true, result);
}

static struct watch_key node_thing(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_NODE, slice_text(((const Pb__NodeRequest *)message)->node)};
}

static int run_node_services(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                             struct query_result *result) {
    struct slice name = slice_text(((const Pb__NodeRequest *)message)->node), bytes;
    char room[STORE_KEY_MAX];
    Pb__NodeServicesResult *records = arena_alloc(arena, sizeof *records);
    pb__node_services_result__init(records);
    bool found = catalog_node_bytes(txn, name, &bytes) == CO_OK;
    if (found && !(records->node = record_node(txn, arena, bytes))) return CO_CORRUPT;
    struct slice prefix = key_node(room, name);
    struct pointers services = {0};
    int error = record_services_below(txn, arena, prefix, &services);
    if (error) return error;
    records->services = (Pb__Service **)services.items;
    records->n_services = services.count;
    return query_done(txn, node_thing(message), &records->base, found, result);
}

/* -- names of services -------------------------------------------------------------------------------------------- */

static struct watch_key services_thing(const ProtobufCMessage *message) {
    bool by_meta = ((const Pb__TableRequest *)message)->n_node_meta > 0;
    return (struct watch_key){SPACE_TABLE, by_meta ? catalog_table_service_nodes : catalog_table_services};
}

struct name_tag {
    const char *name, *tag;
}; /* tag NULL: none */

static int compare_name_tags(const void *a, const void *b) {
    const struct name_tag *one = a, *other = b;
    int order = strcmp(one->name, other->name);
    if (order || one->tag == other->tag) return order;
    if (!one->tag || !other->tag) return one->tag ? 1 : -1;
    return strcmp(one->tag, other->tag);
}

/* Sorted pairs become one record per name. */
static Pb__ServicesResult *group(struct arena *arena, struct name_tag *pairs, size_t count) {
    Pb__ServicesResult *records = arena_alloc(arena, sizeof *records);
    pb__services_result__init(records);
    struct pointers services = {0}, tags = {0};
    Pb__ServiceTags *service = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!service || strcmp(service->name, pairs[i].name) != 0) {
            service = arena_alloc(arena, sizeof *service);
            pb__service_tags__init(service);
            service->name = (char *)(uintptr_t)pairs[i].name;
            pointers_add(&services, arena, service);
            tags = (struct pointers){0};
        }
        const char *tag = pairs[i].tag;
        if (tag && (tags.count == 0 || strcmp(tags.items[tags.count - 1], tag) != 0))
            pointers_add(&tags, arena, (char *)(uintptr_t)tag);
        service->tags = (char **)tags.items;
        service->n_tags = tags.count;
    }
    records->services = (Pb__ServiceTags **)services.items;
    records->n_services = services.count;
    return records;
}

/* Takes the pairs from the counts: a name's record comes right before those of its tags. */
static void all_pairs(struct store_txn *txn, struct arena *arena, struct pointers *pairs) {
    enum { COUNT_BYTES = 8 };
    const char *name = NULL;
    size_t name_key = 0;
    struct store_cursor cursor;
    struct slice all = slice_make("", 0);
    STORE_PREFIX(&cursor, txn, TABLE_TAGS, all) {
        const char *text = arena_strndup(arena, cursor.value.data + COUNT_BYTES, cursor.value.size - COUNT_BYTES);
        const char *first_end = memchr(cursor.key.data, '\0', cursor.key.size);
        name_key = (size_t)(first_end - cursor.key.data) + 1;
        struct name_tag *pair = arena_alloc(arena, sizeof *pair);
        bool is_name = name_key == cursor.key.size;
        if (is_name) name = text;
        *pair = (struct name_tag){name, is_name ? NULL : text};
        if (name) pointers_add(pairs, arena, pair);
    }
    store_cursor_close(&cursor);
}

/* Takes the pairs from the services of the nodes that have the meta. */
static int pairs_of_nodes(struct store_txn *txn, struct arena *arena, const Pb__TableRequest *request,
                          struct pointers *pairs) {
    struct pointers nodes = {0};
    int error = collect_nodes(txn, arena, request, &nodes);
    for (size_t i = 0; i < nodes.count && !error; i++) {
        char room[STORE_KEY_MAX];
        struct slice prefix = key_node(room, slice_text(((const Pb__Node *)nodes.items[i])->name));
        struct store_cursor cursor;
        STORE_PREFIX(&cursor, txn, TABLE_SERVICES, prefix) {
            const Pb__Service *service = record_service(txn, arena, cursor.value);
            if (!service) error = CO_CORRUPT;
            for (size_t j = 0; service && j <= service->n_tags; j++) {
                struct name_tag *pair = arena_alloc(arena, sizeof *pair);
                *pair = (struct name_tag){service->name, j ? service->tags[j - 1] : NULL};
                pointers_add(pairs, arena, pair);
            }
        }
        store_cursor_close(&cursor);
    }
    return error;
}

static int run_services(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                        struct query_result *result) {
    const Pb__TableRequest *request = (const Pb__TableRequest *)message;
    struct pointers found = {0};
    int error = CO_OK;
    if (request->n_node_meta > 0) error = pairs_of_nodes(txn, arena, request, &found);
    else all_pairs(txn, arena, &found);
    if (error) return error;
    struct name_tag *pairs = arena_alloc(arena, (found.count + 1) * sizeof *pairs);
    for (size_t i = 0; i < found.count; i++) pairs[i] = *(const struct name_tag *)found.items[i];
    qsort(pairs, found.count, sizeof *pairs, compare_name_tags);
    return query_done(txn, services_thing(message), &group(arena, pairs, found.count)->base, true, result);
}

/* -- instances of a service --------------------------------------------------------------------------------------- */

struct watch_key query_service_thing(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_SERVICE, slice_text(((const Pb__ServiceRequest *)message)->service)};
}

bool catalog_tags_fit(const Pb__Service *service, char *const *tags, size_t count) {
    for (size_t i = 0; i < count; i++) {
        bool found = false;
        for (size_t j = 0; j < service->n_tags && !found; j++)
            found = slice_equal_nocase(slice_text(service->tags[j]), slice_text(tags[i]));
        if (!found) return false;
    }
    return true;
}

#define SERF_HEALTH "serfHealth"
#define HELD_OUTPUT "Held: agent not live or unreachable, as most of the service's"

/* Copies the checks with serfHealth passing, for an instance that self-preservation holds
 * (registry/self_preservation.h). */
static void make_held_checks(struct arena *arena, struct query_entry_node *entry) {
    for (size_t i = 0; i < entry->checks.count; i++) {
        Pb__Check *check = entry->checks.items[i];
        if (strcmp(check->check_id, SERF_HEALTH) == 0) {
            Pb__Check *copy = arena_alloc(arena, sizeof *copy);
            *copy = *check;
            copy->status = PB__STATUS__PASSING;
            copy->output = (ProtobufCBinaryData){sizeof HELD_OUTPUT - 1, (uint8_t *)(uintptr_t)HELD_OUTPUT};
            check = copy;
        }
        pointers_add(&entry->held_checks, arena, check);
    }
}

/* Is the node still dead? Somebody may have set its serfHealth meanwhile. */
static bool node_is_dead(const struct query_entry_node *entry) {
    for (size_t i = 0; i < entry->checks.count; i++) {
        const Pb__Check *check = entry->checks.items[i];
        if (strcmp(check->check_id, SERF_HEALTH) == 0) return check->status == PB__STATUS__CRITICAL;
    }
    return false;
}

/* `rest`: the instance's key without the service's name, which is its key in TABLE_SERVICES. */
static int load_node(struct store_txn *txn, struct arena *arena, struct slice rest, struct query_entry_node *entry) {
    const char *end = memchr(rest.data, '\0', rest.size);
    if (!end) return CO_CORRUPT;
    size_t size = (size_t)(end - rest.data) + 1;
    if (entry->node && size == entry->key_size && memcmp(entry->key, rest.data, size) == 0) return CO_OK;
    CHECK(size < sizeof entry->key); /* a name of a service stood before it */
    memcpy(entry->key, rest.data, size);
    entry->key_size = size;
    struct slice bytes;
    int error = store_get(txn, TABLE_NODES, slice_make(entry->key, size), &bytes);
    if (error) return CO_CORRUPT;
    entry->node = record_node(txn, arena, bytes);
    if (!entry->node) return CO_CORRUPT;
    char prefix[STORE_KEY_MAX]; /* node, no service */
    memcpy(prefix, rest.data, size);
    prefix[size] = '\0';
    entry->checks = entry->held_checks = (struct pointers){0};
    return record_checks_below(txn, arena, slice_make(prefix, size + 1), &entry->checks);
}

int query_load_entry(struct store_txn *txn, struct arena *arena, struct slice rest, bool held,
                     const Pb__ServiceRequest *request, struct query_entry_node *node, Pb__ServiceEntry **out) {
    struct slice bytes;
    *out = NULL;
    if (store_get(txn, TABLE_SERVICES, rest, &bytes) != CO_OK) return CO_CORRUPT;
    Pb__Service *service = record_service(txn, arena, bytes);
    if (!service) return CO_CORRUPT;
    if (!catalog_tags_fit(service, request->tags, request->n_tags)) return CO_OK;
    int error = load_node(txn, arena, rest, node);
    if (error) return error;
    if (!query_meta_fits(node->node, request->node_meta, request->n_node_meta)) return CO_OK;
    struct pointers checks = {0};
    held = held && node_is_dead(node);
    if (held && node->held_checks.count == 0) make_held_checks(arena, node);
    const struct pointers *shown = held ? &node->held_checks : &node->checks;
    for (size_t i = 0; i < shown->count; i++) pointers_add(&checks, arena, shown->items[i]);
    error = record_checks_below(txn, arena, rest, &checks);
    if (error) return error;
    Pb__ServiceEntry *entry = arena_alloc(arena, sizeof *entry);
    pb__service_entry__init(entry);
    entry->node = node->node;
    entry->service = service;
    entry->checks = (Pb__Check **)checks.items;
    entry->n_checks = checks.count;
    entry->held = held;
    if (!request->passing_only || catalog_entry_status(entry) == PB__STATUS__PASSING) *out = entry;
    return CO_OK;
}

static int run_service_entries(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                               struct query_result *result) {
    const Pb__ServiceRequest *request = (const Pb__ServiceRequest *)message;
    char room[STORE_KEY_MAX];
    struct slice prefix = key_name(room, slice_text(request->service));
    struct pointers entries = {0};
    struct query_entry_node node = {.node = NULL};
    struct store_cursor cursor;
    Pb__HeldService *held = NULL;
    int error = request->held ? preservation_held(txn, slice_text(request->service), arena, &held) : CO_OK;
    if (error) return error;
    STORE_PREFIX(&cursor, txn, TABLE_INSTANCES, prefix) {
        struct slice rest = slice_make(cursor.key.data + prefix.size, cursor.key.size - prefix.size);
        Pb__ServiceEntry *entry;
        error = query_load_entry(txn, arena, rest, held && preservation_holds(txn, held, cursor.key), request, &node,
                                 &entry);
        if (error) break;
        if (entry) pointers_add(&entries, arena, entry);
    }
    store_cursor_close(&cursor);
    if (error) return error;
    Pb__ServiceEntriesResult *records = arena_alloc(arena, sizeof *records);
    pb__service_entries_result__init(records);
    records->entries = (Pb__ServiceEntry **)entries.items;
    records->n_entries = entries.count;
    return query_done(txn, query_service_thing(message), &records->base, true, result);
}

int catalog_instance_passes(struct store_txn *txn, struct slice service, struct slice node, struct arena *arena) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    char names_room[STORE_KEY_MAX], room[STORE_KEY_MAX];
    struct slice names = key_name(names_room, service);
    struct slice instances = key_instance(room, service, node, slice_make("", 0));
    struct query_entry_node loaded = {.node = NULL};
    struct store_cursor cursor;
    Pb__ServiceEntry *entry = NULL;
    int error = CO_OK;
    request.passing_only = true;
    instances.size--; /* the end of the empty id */
    STORE_PREFIX(&cursor, txn, TABLE_INSTANCES, instances) {
        struct slice rest = slice_make(cursor.key.data + names.size, cursor.key.size - names.size);
        error = query_load_entry(txn, arena, rest, false, &request, &loaded, &entry);
        if (error || entry) break;
    }
    store_cursor_close(&cursor);
    return error ? error : entry ? CO_OK : CO_NOTFOUND;
}

/* -- addresses of services ---------------------------------------------------------------------------------------- */

static struct watch_key addresses_thing(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_TABLE, catalog_table_service_addresses};
}

static int run_service_addresses(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                                 struct query_result *result) {
    struct pointers found = {0};
    struct slice all = slice_make("", 0);
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, txn, TABLE_SERVICES, all) {
        struct slice address = record_text(cursor.value, SERVICE_ADDRESS_FIELD);
        if (address.size == 0) continue;
        struct slice name = record_text(cursor.value, SERVICE_NAME_FIELD),
                     node = record_text(cursor.value, SERVICE_NODE_FIELD);
        Pb__ServiceAddress *record = arena_alloc(arena, sizeof *record);
        pb__service_address__init(record);
        record->address = arena_strndup(arena, address.data, address.size);
        record->service = arena_strndup(arena, name.data, name.size);
        record->node = arena_strndup(arena, node.data, node.size);
        pointers_add(&found, arena, record);
    }
    store_cursor_close(&cursor);
    Pb__ServiceAddressesResult *records = arena_alloc(arena, sizeof *records);
    pb__service_addresses_result__init(records);
    records->addresses = (Pb__ServiceAddress **)found.items;
    records->n_addresses = found.count;
    return query_done(txn, addresses_thing(message), &records->base, true, result);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

const struct query_type query_nodes = {.number = 1,
                                       .name = "nodes",
                                       .discovery = true,
                                       .request = &pb__table_request__descriptor,
                                       .result = &pb__nodes_result__descriptor,
                                       .watched = nodes_thing,
                                       .run = run_nodes,
                                       .show = catalog_show_nodes};
const struct query_type query_services = {.number = 2,
                                          .name = "services",
                                          .discovery = true,
                                          .request = &pb__table_request__descriptor,
                                          .result = &pb__services_result__descriptor,
                                          .watched = services_thing,
                                          .run = run_services,
                                          .show = catalog_show_services};
const struct query_type query_node_services = {.number = 3,
                                               .name = "node-services",
                                               .discovery = true,
                                               .request = &pb__node_request__descriptor,
                                               .result = &pb__node_services_result__descriptor,
                                               .watched = node_thing,
                                               .run = run_node_services,
                                               .show = catalog_show_node_services};
const struct query_type query_service_entries = {.number = 4,
                                                 .name = "service-entries",
                                                 .discovery = true,
                                                 .request = &pb__service_request__descriptor,
                                                 .result = &pb__service_entries_result__descriptor,
                                                 .watched = query_service_thing,
                                                 .run = run_service_entries,
                                                 .show = catalog_show_service_entries};
const struct query_type query_service_addresses = {.number = 8,
                                                   .name = "service-addresses",
                                                   .discovery = true,
                                                   .request = &pb__table_request__descriptor,
                                                   .result = &pb__service_addresses_result__descriptor,
                                                   .watched = addresses_thing,
                                                   .run = run_service_addresses,
                                                   .show = catalog_show_service_addresses};
