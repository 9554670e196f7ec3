/* Finds the owner of an address in sorted pictures of two tables: the nodes, and the services' own addresses. A picture
 * is made when it is first needed after a change. Making one walks the whole table, so the next one is made no sooner
 * than ten times that duration later: a busy table costs at most a tenth of the thread's time, and the picture is
 * behind by at most this time. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "dns/endings.h"
#include "dns/lookup_internal.h"

enum { REST_FACTOR = 10 };

struct item {
    uint8_t address[16], size;
    uint32_t name_at; /* in `names`, NUL-terminated; in the order of the walk */
};
struct picture {
    bool made;
    uint64_t generation, next_ns;
    struct buffer items, names;
    struct buffer endings; /* of nodes' names that have dots */
};
struct reverse_map {
    struct picture nodes, services;
};

struct reverse_map *reverse_map_new(void) {
    return mem_zalloc(sizeof(struct reverse_map));
}

void reverse_map_free(struct reverse_map *map) {
    if (!map) return;
    buffer_free(&map->nodes.items);
    buffer_free(&map->nodes.names);
    buffer_free(&map->nodes.endings);
    buffer_free(&map->services.items);
    buffer_free(&map->services.names);
    free(map);
}

static int compare_addresses(const struct item *a, const struct item *b) {
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    return memcmp(a->address, b->address, a->size);
}

/* When several have the same address, the first one of the walk comes first. */
static int compare_items(const void *left, const void *right) {
    const struct item *a = left, *b = right;
    int order = compare_addresses(a, b);
    return order ? order : (a->name_at > b->name_at) - (a->name_at < b->name_at);
}

static void item_add(struct picture *picture, const char *address, const char *name) {
    struct host host = host_parse(address);
    if (host.size == 0) return;
    struct item item = {.size = host.size, .name_at = (uint32_t)picture->names.size};
    memcpy(item.address, host.address, host.size);
    buffer_append(&picture->items, &item, sizeof(item));
    buffer_append(&picture->names, name, strlen(name) + 1);
}

static void add_nodes(struct picture *picture, const ProtobufCMessage *message) {
    const Pb__NodesResult *found = (const Pb__NodesResult *)(const void *)message;
    for (size_t i = 0; i < found->n_nodes; i++) {
        const Pb__Node *node = found->nodes[i];
        item_add(picture, node->address, node->name);
        if (strchr(node->name, '.')) endings_add(&picture->endings, slice_text(node->name));
    }
}

static void add_services(struct picture *picture, const ProtobufCMessage *message) {
    const Pb__ServiceAddressesResult *found = (const Pb__ServiceAddressesResult *)(const void *)message;
    for (size_t i = 0; i < found->n_addresses; i++)
        item_add(picture, found->addresses[i]->address, found->addresses[i]->service);
}

/* The source of a picture: the query, and the watch key that tells of its changes. */
struct source {
    const struct query_type *query;
    void (*add)(struct picture *picture, const ProtobufCMessage *message);
    struct watch_key watched;
};

static void fill(struct dns_lookup *lookup, struct picture *picture, const struct source *source) {
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    struct query_result result = {0};
    buffer_reset(&picture->items);
    buffer_reset(&picture->names);
    buffer_reset(&picture->endings);
    int rv = lookup_query(lookup, source->query, &request.base, &result);
    lookup_note(lookup, rv);
    if (rv == CO_OK && result.message) source->add(picture, result.message);
    rpc_read_end(lookup->reader);
    size_t count = picture->items.size / sizeof(struct item);
    if (count) qsort(picture->items.data, count, sizeof(struct item), compare_items);
    endings_sort(&picture->endings);
}

static void refresh(struct dns_lookup *lookup, struct picture *picture, const struct source *source,
                    uint64_t generation) {
    uint64_t before_ns = clock_mono_ns();
    if (picture->made && (picture->generation == generation || before_ns < picture->next_ns)) return;
    fill(lookup, picture, source);
    uint64_t after_ns = clock_mono_ns();
    picture->made = !lookup->failed;
    picture->generation = generation;
    picture->next_ns = after_ns + (after_ns - before_ns) * REST_FACTOR;
}

/* The first item with this address; NULL: none. */
static const struct item *find(const struct picture *picture, const struct item *wanted) {
    const struct item *items = (const struct item *)(const void *)picture->items.data;
    size_t low = 0, high = picture->items.size / sizeof(struct item), count = high;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_addresses(&items[middle], wanted) < 0) low = middle + 1;
        else high = middle;
    }
    return low < count && compare_addresses(&items[low], wanted) == 0 ? &items[low] : NULL;
}

/* Refreshes the picture if it may. True: it is as new as the catalog. */
static bool bring_up(struct dns_lookup *lookup, struct picture *picture, const struct source *source) {
    uint64_t generation = rpc_generation(lookup->rpc, source->watched) + rpc_access_generation(lookup->rpc);
    refresh(lookup, picture, source, generation);
    return picture->generation == generation;
}

static struct slice find_name(struct dns_lookup *lookup, struct picture *picture, const struct source *source,
                              const struct item *wanted) {
    dns_depends_add(lookup->depends, lookup->rpc, source->watched);
    if (!bring_up(lookup, picture, source)) lookup->depends->overflow = true; /* behind: the answer is not kept */
    const struct item *item = find(picture, wanted);
    return item ? slice_text(picture->names.data + item->name_at) : SLICE_LITERAL("");
}

static const struct source nodes_source = {&query_nodes, add_nodes, {SPACE_TABLE, SLICE_LITERAL("nodes")}},
                           services_source = {&query_service_addresses,
                                              add_services,
                                              {SPACE_TABLE, SLICE_LITERAL("service-addresses")}};

struct reverse_found reverse_find(struct dns_lookup *lookup, const uint8_t *address, size_t size) {
    struct item wanted = {.size = (uint8_t)size};
    memcpy(wanted.address, address, size);
    struct slice name = find_name(lookup, &lookup->reverse->nodes, &nodes_source, &wanted);
    if (name.size) return (struct reverse_found){name, false};
    return (struct reverse_found){find_name(lookup, &lookup->reverse->services, &services_source, &wanted), true};
}

bool reverse_node_below(struct dns_lookup *lookup, struct slice node) {
    struct picture *nodes = &lookup->reverse->nodes;
    (void)bring_up(lookup, nodes, &nodes_source);
    return endings_find((const uint64_t *)(const void *)nodes->endings.data, nodes->endings.size / sizeof(uint64_t),
                        node) == ENDINGS_BELOW;
}
