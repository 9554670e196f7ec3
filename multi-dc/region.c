#include "multi-dc/region.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "registry/access_operator.h"

enum { REGION_TABLE = 47 }; /* name -> Region */
_Static_assert(REGION_LEARN >= 208 && REGION_SEEN < 224, "commands of multi-dc (registry/module.h)");
_Static_assert(SPACE_REGIONS >= 112 && SPACE_REGIONS < 120, "a space of multi-dc");

#define ADDRESS_BYTES 128 /* bytes of an address */
#define NODE_BYTES    256
#define VERSION_BYTES 64

static const struct slice everything = SLICE_LITERAL("");

bool region_name_good(const char *name) {
    size_t size = strlen(name);
    if (size == 0 || size > REGION_NAME_MAX) return false;
    for (const char *at = name; *at; at++) {
        bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        if (!letter && *at != '-' && *at != '_') return false;
    }
    return true;
}

bool region_any(struct store_txn *txn) { return store_count(txn, REGION_TABLE) > 0; }

/* -- servers ------------------------------------------------------------------------------------------------------ */
static const Pb__RegionServer *server_of(Pb__RegionServer *const *servers, size_t count, const char *address) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(servers[i]->address, address) == 0) return servers[i];
    return NULL;
}

static bool says_more(const Pb__RegionServer *server, const Pb__RegionServer *known) {
    return (server->node[0] && strcmp(server->node, known->node) != 0) ||
           (server->version[0] && strcmp(server->version, known->version) != 0);
}

bool region_is_news(const Pb__RegionLearnCommand *command, const Pb__Region *known) {
    if (!known) return true;
    if (known->removed) return command->wanted;
    if (command->cluster_id != known->cluster_id) return true;
    for (size_t i = 0; i < command->n_servers; i++) {
        const Pb__RegionServer *server = server_of(known->servers, known->n_servers, command->servers[i]->address);
        if (!server && (!command->add || known->n_servers < REGION_SERVERS_MAX)) return true;
        if (server && says_more(command->servers[i], server)) return true;
    }
    if (command->add) return false;
    for (size_t i = 0; i < known->n_servers; i++)
        if (!server_of(command->servers, command->n_servers, known->servers[i]->address)) return true;
    return false;
}

bool region_seen_is_news(const Pb__RegionSeenCommand *command, const Pb__Region *known) {
    if (!known || known->removed || known->cluster_id != command->cluster_id) return false;
    if (command->reachable != known->reachable) return true;
    if (!command->rtt_us || !known->rtt_us) return command->rtt_us != 0;
    uint32_t more = command->rtt_us > known->rtt_us ? command->rtt_us : known->rtt_us,
             less = command->rtt_us ^ known->rtt_us ^ more;
    return more - less > 2000 && more - less > less / 2;
}

static int by_address(const void *a, const void *b) {
    return strcmp((*(Pb__RegionServer *const *)a)->address, (*(Pb__RegionServer *const *)b)->address);
}

/* Keeps known servers that the command does not name, as far as there is room. */
static void merge_servers(Pb__RegionLearnCommand *command, const Pb__Region *known, struct arena *arena) {
    Pb__RegionServer **servers = arena_alloc(arena, REGION_SERVERS_MAX * sizeof *servers);
    size_t count = 0;
    for (size_t i = 0; i < command->n_servers; i++) {
        Pb__RegionServer *server = command->servers[i];
        const Pb__RegionServer *before = server_of(known->servers, known->n_servers, server->address);
        if (server_of(servers, count, server->address)) continue;
        if (before && !server->node[0]) server->node = before->node;
        if (before && !server->version[0]) server->version = before->version;
        servers[count++] = server;
    }
    for (size_t i = 0; command->add && i < known->n_servers && count < REGION_SERVERS_MAX; i++)
        if (!server_of(servers, count, known->servers[i]->address)) servers[count++] = known->servers[i];
    CHECK(count <= REGION_SERVERS_MAX);
    qsort(servers, count, sizeof *servers, by_address);
    command->servers = servers, command->n_servers = count;
}

static const char *fault_of(const Pb__RegionLearnCommand *command) {
    if (!region_name_good(command->name)) return "a region's name has 1 to 63 letters, digits, '-' and '_'";
    if (!command->cluster_id) return "the region has no cluster id yet";
    if (!command->n_servers || command->n_servers > REGION_SERVERS_MAX) return "a region has 1 to 16 servers here";
    for (size_t i = 0; i < command->n_servers; i++) {
        const Pb__RegionServer *server = command->servers[i];
        if (!server->address[0] || strlen(server->address) >= ADDRESS_BYTES || strlen(server->node) >= NODE_BYTES ||
            strlen(server->version) >= VERSION_BYTES)
            return "a server of the region has no address, or a name that is too long";
    }
    return NULL;
}

/* -- records ------------------------------------------------------------------------------------------------------ */
/* CO_NOTFOUND */
static int region_get(struct store_txn *txn, const char *name, struct arena *arena, Pb__Region **region) {
    struct slice bytes;
    int rv = store_get(txn, REGION_TABLE, slice_text(name), &bytes);
    if (rv != CO_OK) return rv;
    *region = message_unpack(arena, &pb__region__descriptor, bytes);
    return *region ? CO_OK : CO_CORRUPT;
}

static void region_put(struct machine_tx *tx, Pb__Region *region) {
    CHECK(region_name_good(region->name) && region->cluster_id);
    region->modify_index = tx->index;
    store_put(tx->store, REGION_TABLE, slice_text(region->name), message_pack(tx->arena, &region->base));
    machine_changed(tx, SPACE_REGIONS, everything, false);
}

bool region_known(struct store_txn *txn, struct slice name) {
    struct slice bytes;
    if (!name.size || name.size > REGION_NAME_MAX || !region_any(txn)) return false;
    if (store_get(txn, REGION_TABLE, name, &bytes) != CO_OK) return false;
    struct arena arena = {0};
    const Pb__Region *region = message_unpack(&arena, &pb__region__descriptor, bytes);
    bool known = region && !region->removed;
    arena_free(&arena);
    return known;
}

/* -- commands ----------------------------------------------------------------------------------------------------- */
static const char *refused_because(const Pb__RegionLearnCommand *command, const Pb__Region *known) {
    if (known->removed && !command->wanted) return "the region was removed here; `coord join -wan` takes it back";
    if (known->removed || command->cluster_id == known->cluster_id) return NULL;
    if (command->instead_of == known->cluster_id) return NULL;
    return "another cluster has this region's name; `coord region remove` forgets it";
}

static int learn(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__RegionLearnCommand *command = request;
    const char *fault = fault_of(command);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    Pb__Region *known = NULL;
    int rv = region_get(tx->store, command->name, tx->arena, &known);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    const char *why = known ? refused_because(command, known) : NULL;
    if (why) return machine_refuse(result, CO_CONFLICT, why);
    if (!known && store_count(tx->store, REGION_TABLE) >= REGIONS_MAX)
        return machine_refuse(result, CO_TOOLARGE, "there are 64 regions already, those removed among them");
    result->yes = true;
    if (!region_is_news(command, known)) return CO_OK;
    Pb__Region region = PB__REGION__INIT;
    region.create_index = known ? known->create_index : tx->index;
    bool anew = !known || known->removed || known->cluster_id != command->cluster_id;
    static const Pb__Region nothing = PB__REGION__INIT;
    merge_servers(command, anew ? &nothing : known, tx->arena);
    if (!anew) region.rtt_us = known->rtt_us, region.reachable = known->reachable;
    region.name = command->name, region.cluster_id = command->cluster_id;
    region.servers = command->servers, region.n_servers = command->n_servers;
    region_put(tx, &region);
    return CO_OK;
}

static int remove_region(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RegionRemoveCommand *command = request;
    Pb__Region *known = NULL;
    int rv = region_get(tx->store, command->name, tx->arena, &known);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (!known) return machine_refuse(result, CO_NOTFOUND, "no region of this name is known");
    result->yes = true;
    if (known->removed) return CO_OK;
    known->removed = true, known->n_servers = 0, known->rtt_us = 0, known->reachable = false;
    region_put(tx, known);
    return CO_OK;
}

static int seen(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RegionSeenCommand *command = request;
    Pb__Region *known = NULL;
    int rv = region_get(tx->store, command->name, tx->arena, &known);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (!known || known->removed || known->cluster_id != command->cluster_id)
        return machine_refuse(result, CO_CONFLICT, "this region is not known here, or is another cluster");
    result->yes = true;
    if (known->rtt_us == command->rtt_us && known->reachable == command->reachable) return CO_OK;
    known->rtt_us = command->rtt_us, known->reachable = command->reachable;
    region_put(tx, known);
    return CO_OK;
}

/* -- names of other regions --------------------------------------------------------------------------------------- */
struct slice region_of_name(struct slice name) {
    const char *at = name.size ? memrchr(name.data, '@', name.size) : NULL;
    return at ? slice_make(at + 1, (size_t)(name.data + name.size - at) - 1) : slice_make("", 0);
}

const char *region_elsewhere(struct arena *arena, const char *noun, struct slice name) {
    struct slice region = region_of_name(name);
    return arena_printf(arena, "%s \"%.*s\" belongs to region %.*s: ask there, or with ?dc=%.*s", noun, (int)name.size,
                        name.data, (int)region.size, region.data, (int)region.size, region.data);
}

/* "db@us" is a name of region us, so it is refused elsewhere. When the text behind the last @ is not the name of
 * another region, it is just a part of the name. */
static const char *forbids(struct machine_tx *tx, const struct machine_thing *thing) {
    const struct slice name = thing->name;
    if (thing->space == SPACE_KEY || (thing->space & WATCH_PREFIX_BIT)) return NULL;
    struct slice region = region_of_name(name);
    return region_known(tx->store, region) ? region_elsewhere(tx->arena, thing->noun, name) : NULL;
}

/* -- the query ---------------------------------------------------------------------------------------------------- */
static struct watch_key watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_REGIONS, everything};
}

static int run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    (void)request;
    Pb__RegionsResult *records = arena_alloc(arena, sizeof *records);
    pb__regions_result__init(records);
    records->regions = arena_alloc(arena, REGIONS_MAX * sizeof *records->regions);
    struct store_cursor cursor;
    int error = CO_OK;
    store_cursor_open(&cursor, txn, REGION_TABLE, everything);
    for (; cursor.valid && error == CO_OK && records->n_regions < REGIONS_MAX; store_cursor_next(&cursor)) {
        Pb__Region *region = message_unpack(arena, &pb__region__descriptor, cursor.value);
        if (region) records->regions[records->n_regions++] = region;
        else error = CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    *result = (struct query_result){
        .index = machine_change_index(txn, SPACE_REGIONS, everything), .found = true, .message = &records->base};
    return error;
}

/* The names of regions are for everyone, as those of Consul's datacenters are, because other requests name them. The rest
 * is for operators. */
static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result) {
    const Pb__RegionsResult *records = (const Pb__RegionsResult *)result->message;
    (void)txn, (void)request;
    if (access_operator_reads(check)) return CO_OK;
    for (size_t i = 0; i < records->n_regions; i++) {
        const Pb__Region region = *records->regions[i];
        pb__region__init(records->regions[i]);
        records->regions[i]->name = region.name, records->regions[i]->removed = region.removed;
        check->hidden += region.n_servers;
    }
    return CO_OK;
}

const struct query_type query_regions = {.number = 220,
                                         .name = "regions",
                                         .request = &pb__regions_request__descriptor,
                                         .result = &pb__regions_result__descriptor,
                                         .watched = watched,
                                         .run = run,
                                         .show = show};

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = REGION_LEARN,
     .servers_only = true,
     .name = "region-learn",
     .request = &pb__region_learn_command__descriptor,
     .apply = learn},
    {.number = REGION_REMOVE,
     .name = "region-remove",
     .request = &pb__region_remove_command__descriptor,
     .may = access_operator_may,
     .apply = remove_region},
    {.number = REGION_SEEN,
     .servers_only = true,
     .name = "region-seen",
     .request = &pb__region_seen_command__descriptor,
     .apply = seen},
    {0},
};
static const struct store_table tables[] = {{REGION_TABLE, "regions"}, {0}};
static const struct module_space spaces[] = {{SPACE_REGIONS, "regions"}, {0}};
static const struct query_type *const queries[] = {&query_regions, NULL};

const struct module region_module = {
    .name = "region", .commands = commands, .tables = tables, .spaces = spaces, .queries = queries, .forbids = forbids};
