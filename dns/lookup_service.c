#include <stdlib.h>

#include "base/clock.h"
#include "base/message.h"
#include "dns/endings.h"
#include "dns/lookup_internal.h"
#include "multi-dc/failover.h"

#define SERVERS_SERVICE "consul" /* the name that the servers themselves are registered as */

enum { KEY_TAGS = 0xff01, SRV_PRIORITY = 1 }; /* KEY_TAGS: a cache key that is no type of DNS */

struct instances {
    Pb__ServiceEntry **items; /* healthy ones */
    size_t count;
    bool picked_from; /* by lookup->pick */
    const char *from; /* the region that answers in place of this one; NULL: none does. In the arena */
};

/* -- reading the catalog ------------------------------------------------------------------------------------------ */

static bool healthy(const Pb__ServiceEntry *entry) {
    Pb__Status status = catalog_entry_status(entry);
    return status == PB__STATUS__PASSING || status == PB__STATUS__WARNING;
}

/* Reads the healthy instances. The caller ends the reading with rpc_read_end; they are valid until then. When there are
 * more than `most`, a random part. */
static struct instances instances_begin(struct dns_lookup *lookup, struct slice stored, struct slice tag, size_t most) {
    struct instances instances = {0};
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    char *tags[1] = {arena_strndup(&lookup->arena, tag.data, tag.size)};
    request.service = arena_strndup(&lookup->arena, stored.data, stored.size);
    request.tags = tags;
    request.n_tags = tag.size ? 1 : 0;
    request.passing_only = lookup->setup->only_passing;
    request.held = true;
    struct query_result result = {0};
    int rv = lookup_query(lookup, &query_service_entries, &request.base, &result);
    lookup_note(lookup, rv);
    if (rv != CO_OK || !result.message) return instances;

    const Pb__ServiceEntriesResult *found = (const Pb__ServiceEntriesResult *)(const void *)result.message;
    size_t all = found->n_entries, first = all > most ? rng_below(&lookup->rng, all) : 0;
    lookup->read_count += all;
    instances.items = arena_alloc(&lookup->arena, (all + 1) * sizeof(*instances.items));
    for (size_t i = 0; i < all && instances.count < most; i++) {
        Pb__ServiceEntry *entry = found->entries[(first + i) % all];
        if (healthy(entry)) instances.items[instances.count++] = entry;
    }
    return instances;
}

/* -- other regions: read from this region's copies of their catalogs, so that no query waits for a link ----------- */

static const struct slice everything = SLICE_LITERAL("");

static void depend(struct dns_lookup *lookup, uint8_t space, struct slice name) {
    dns_depends_add(lookup->depends, lookup->rpc, (struct watch_key){space, name});
}

/* The healthy instances of these regions. */
static struct instances healthy_of(struct dns_lookup *lookup, Pb__GlobalServiceRegion *const *regions, size_t count) {
    struct instances instances = {0};
    size_t all = 0;
    for (size_t i = 0; i < count; i++) all += regions[i]->n_entries;
    lookup->read_count += all;
    instances.items = arena_alloc(&lookup->arena, (all + 1) * sizeof(*instances.items));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < regions[i]->n_entries && instances.count < LOOKUP_INSTANCES_MAX; k++)
            if (healthy(regions[i]->entries[k])) instances.items[instances.count++] = regions[i]->entries[k];
    return instances;
}

/* The healthy instances of another region or, for "global", of all regions. The caller ends the reading with
 * rpc_read_end. */
static struct instances instances_of_region(struct dns_lookup *lookup, const struct name *name) {
    Pb__GlobalRequest request = PB__GLOBAL_REQUEST__INIT;
    struct slice region = name->datacenter;
    char *tags[1] = {arena_strndup(&lookup->arena, name->tag.data, name->tag.size)};
    char *regions[1] = {arena_strndup(&lookup->arena, region.data, region.size)};
    bool all = slice_equal_nocase(region, SLICE_LITERAL(DNS_ALL_REGIONS));
    request.service = arena_strndup(&lookup->arena, name->service.data, name->service.size);
    request.tags = tags, request.n_tags = name->tag.size ? 1 : 0;
    request.passing_only = lookup->setup->only_passing;
    request.own = all ? lookup->setup->datacenter : (char *)(uintptr_t) "";
    request.regions = regions, request.n_regions = all ? 0 : 1;
    depend(lookup, SPACE_COPY_SERVICE, name->service);
    depend(lookup, SPACE_COPY_FLIP, everything);
    if (all) depend(lookup, SPACE_SERVICE, name->service);
    struct query_result result = {0};
    int rv = lookup_query(lookup, &query_global, &request.base, &result);
    lookup_note(lookup, rv);
    const Pb__GlobalServiceResult *found = rv == CO_OK ? (const Pb__GlobalServiceResult *)result.message : NULL;
    return found ? healthy_of(lookup, found->regions, found->n_regions) : (struct instances){0};
}

/* The record of the service's failover, in the arena. NULL: there is none. */
static const Pb__Failover *failover_of(struct dns_lookup *lookup, const struct name *name) {
    Pb__FailoverRequest request = PB__FAILOVER_REQUEST__INIT;
    struct query_result result = {0};
    request.service = arena_strndup(&lookup->arena, name->service.data, name->service.size);
    depend(lookup, SPACE_FAILOVER, name->service);
    int rv = lookup_query(lookup, &query_failover, &request.base, &result);
    lookup_note(lookup, rv);
    const Pb__FailoverResult *found = rv == CO_OK && result.found ? (const Pb__FailoverResult *)result.message : NULL;
    const Pb__Failover *record =
        found ? (const Pb__Failover *)message_copy(&lookup->arena, &found->state->record->base) : NULL;
    rpc_read_end(lookup->reader);
    return record;
}

/* Depends on the other services that the record's targets name, and adds them to the request. */
static void depend_on_others(struct dns_lookup *lookup, const Pb__Failover *record, Pb__AnswerRequest *request) {
    if (!record) return;
    request->others = arena_alloc(&lookup->arena, (record->n_targets + 1) * sizeof *request->others);
    for (size_t i = 0; i < record->n_targets; i++) {
        char *other = record->targets[i]->service;
        if (!other[0]) continue;
        request->others[request->n_others++] = other;
        depend(lookup, SPACE_SERVICE, slice_text(other));
        depend(lookup, SPACE_COPY_SERVICE, slice_text(other));
    }
}

/* The instances that answer in place of this region (multi-dc/failover.h). When there are some, the caller ends the
 * reading with rpc_read_end; else it has ended already. */
static struct instances instances_elsewhere(struct dns_lookup *lookup, const struct name *name,
                                            const Pb__Failover *record) {
    struct instances instances = {0};
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    char *tags[1] = {arena_strndup(&lookup->arena, name->tag.data, name->tag.size)};
    request.service = arena_strndup(&lookup->arena, name->service.data, name->service.size);
    request.tags = tags, request.n_tags = name->tag.size ? 1 : 0;
    request.passing_only = lookup->setup->only_passing;
    request.own = lookup->setup->datacenter;
    depend_on_others(lookup, record, &request);
    depend(lookup, SPACE_SERVICE, name->service);
    depend(lookup, SPACE_COPY_SERVICE, name->service);
    depend(lookup, SPACE_COPY_FLIP, everything);
    depend(lookup, SPACE_REGIONS, everything);
    struct query_result result = {0};
    int rv = lookup_query(lookup, &query_answer, &request.base, &result);
    lookup_note(lookup, rv);
    const Pb__AnswerResult *found = rv == CO_OK ? (const Pb__AnswerResult *)result.message : NULL;
    if (found && found->other_services && !request.n_others)
        lookup->depends->overflow = true; /* no watch tells of their changes */
    bool other = found && found->from &&
                 (strcmp(found->from->region, request.own) != 0 || strcmp(found->service, request.service) != 0);
    if (other) instances = healthy_of(lookup, &found->from, 1);
    if (instances.count)
        instances.from = arena_strndup(&lookup->arena, found->from->region, strlen(found->from->region));
    else rpc_read_end(lookup->reader);
    return instances;
}

/* -- tags: a name with a tag that no healthy instance has is answered without reading the instances each time ----- */

static struct dns_cache_value tags_read(struct dns_lookup *lookup, struct slice stored) {
    struct instances instances = instances_begin(lookup, stored, SLICE_LITERAL(""), SIZE_MAX);
    struct buffer hashes = {0};
    for (size_t i = 0; i < instances.count; i++) {
        const Pb__Service *service = instances.items[i]->service;
        for (size_t tag = 0; tag < service->n_tags; tag++) endings_add(&hashes, slice_text(service->tags[tag]));
    }
    rpc_read_end(lookup->reader);
    endings_sort(&hashes);
    struct dns_cache_value value = {.tag_count = hashes.size / sizeof(uint64_t)};
    value.tags = (uint64_t *)(void *)buffer_take(&hashes, NULL);
    return value;
}

static enum lookup_state tag_found(const struct dns_cache_value *tags, struct slice tag) {
    enum endings_found found = endings_find(tags->tags, tags->tag_count, tag);
    return found == ENDINGS_NAME ? LOOKUP_SOME : found == ENDINGS_BELOW ? LOOKUP_PARENT : LOOKUP_UNKNOWN;
}

static enum lookup_state tag_state(struct dns_lookup *lookup, struct slice stored, struct slice tag) {
    struct dns_cache_key key = {stored, KEY_TAGS};
    const struct dns_cache_value *known = dns_cache_find(lookup->cache, key);
    if (known) return tag_found(known, tag);

    struct dns_depends depends = {0};
    dns_depends_add(&depends, lookup->rpc, (struct watch_key){SPACE_SERVICE, stored});
    if (lookup->requester) dns_depends_add(&depends, lookup->rpc, rpc_access_changes(lookup->rpc));
    struct dns_cache_value value = tags_read(lookup, stored);
    value.cost_ns = lookup->read_count * LOOKUP_COST_NS;
    enum lookup_state state = tag_found(&value, tag);
    if (lookup->failed) depends.overflow = true;
    dns_cache_store(lookup->cache, key, &depends, value);
    dns_depends_free(&depends);
    return state;
}

/* As service_begin, in this region. `stored`: the service's name as registered. Some healthy instance has the tag. */
static enum lookup_state service_begin_here(struct dns_lookup *lookup, const struct name *name, struct slice stored,
                                            struct instances *instances) {
    dns_depends_add(lookup->depends, lookup->rpc, (struct watch_key){SPACE_SERVICE, stored});
    bool picks = lookup->picks;
    lookup->picks = false;
    *instances = instances_begin(lookup, stored, name->tag, LOOKUP_INSTANCES_MAX);
    if (picks && instances->count > 1)
        lookup->pick = dns_pick_new(lookup->rpc, instances->items, instances->count, clock_mono_ns());
    else picks = false;
    instances->picked_from = picks;
    return instances->count ? LOOKUP_SOME : LOOKUP_NONE;
}

static enum lookup_state service_begin_there(struct dns_lookup *lookup, const struct name *name,
                                             struct instances *instances) {
    *instances = instances_of_region(lookup, name);
    if (instances->count) return LOOKUP_SOME;
    rpc_read_end(lookup->reader);
    return name->maybe_parent ? LOOKUP_PARENT : LOOKUP_UNKNOWN;
}

/* Reads the healthy instances of the service. For states above LOOKUP_PARENT the answer may be kept, and the caller has
 * to call rpc_read_end. A service without healthy instances here is answered from another region, and still for a while
 * after some are healthy again. */
static enum lookup_state service_begin(struct dns_lookup *lookup, const struct name *name,
                                       struct instances *instances) {
    struct slice stored;
    const Pb__Failover *record = NULL;
    if (lookup_is_foreign(lookup, name)) return service_begin_there(lookup, name, instances);
    bool known = lookup_stored(lookup, &query_service_nocase, name->service, &stored);
    enum lookup_state state = name->maybe_parent ? LOOKUP_PARENT : LOOKUP_UNKNOWN;
    if (known) state = name->tag.size ? tag_state(lookup, stored, name->tag) : LOOKUP_SOME;
    bool some = state == LOOKUP_SOME;
    if (name->datacenter.size) return some ? service_begin_here(lookup, name, stored, instances) : state;
    if (some) record = failover_of(lookup, name);
    else depend(lookup, SPACE_FAILOVER, name->service); /* the record says which regions rest */
    if (some && !(record && record->away_index)) {
        if (service_begin_here(lookup, name, stored, instances) == LOOKUP_SOME) return LOOKUP_SOME;
        rpc_read_end(lookup->reader);
    }
    struct instances elsewhere = instances_elsewhere(lookup, name, record);
    if (!elsewhere.count) return some ? service_begin_here(lookup, name, stored, instances) : state;
    depend(lookup, SPACE_TABLE, SLICE_LITERAL("services")); /* client agents hear of no missing service */
    *instances = elsewhere;
    return LOOKUP_SOME;
}

/* -- addresses ---------------------------------------------------------------------------------------------------- */

static const char *instance_address(const Pb__ServiceEntry *entry) {
    return entry->service->address[0] ? entry->service->address : entry->node->address;
}

/* Does the name ask for this instance itself, among others? */
static bool is_own_name(const struct dns_lookup *lookup, const Pb__Service *service, struct slice host) {
    struct name name;
    if (!lookup_ours(lookup, host, &name) || name.kind != NAME_SERVICE) return false;
    bool tagged = name.tag.size == 0;
    for (size_t i = 0; i < service->n_tags; i++) tagged |= slice_equal_nocase(name.tag, slice_text(service->tags[i]));
    return tagged && slice_equal_nocase(name.service, slice_text(service->name));
}

/* The result has neither address nor name when DNS must leave the instance out. */
static struct host instance_host(const struct dns_lookup *lookup, const Pb__ServiceEntry *entry) {
    struct host host = host_parse(instance_address(entry));
    if (host.name.size && is_own_name(lookup, entry->service, host.name)) host.name = SLICE_LITERAL("");
    return host;
}

/* Copies the addresses out of the catalog. When no instance has an IP address, one host name is chosen at random, each
 * with the same chance. */
static void instances_addresses(struct dns_lookup *lookup, const struct instances *instances, struct addresses *out) {
    uint64_t names = 0;
    out->items = arena_alloc(&lookup->arena, (instances->count + 1) * sizeof(*out->items));
    uint32_t *entry_of = arena_alloc(&lookup->arena, (instances->count + 1) * sizeof(*entry_of));
    if (instances->picked_from) out->entry_of = entry_of;
    for (size_t i = 0; i < instances->count; i++) {
        struct host host = instance_host(lookup, instances->items[i]);
        if (host.size) entry_of[out->count] = (uint32_t)i, out->items[out->count++] = host;
        else if (host.name.size && rng_below(&lookup->rng, ++names) == 0) out->alias = host.name;
    }
    if (out->count) out->alias = SLICE_LITERAL("");
    if (out->alias.size) out->alias = slice_copy(&lookup->arena, out->alias);
}

void addresses_of_service(struct dns_lookup *lookup, const struct name *name, struct addresses *out) {
    struct instances instances = {0};
    *out = (struct addresses){.ttl = dns_setup_service_ttl(lookup->setup, name->service)};
    out->state = service_begin(lookup, name, &instances);
    if (out->state <= LOOKUP_PARENT) return;
    instances_addresses(lookup, &instances, out);
    rpc_read_end(lookup->reader);
    if (!instances.from) return;
    struct slice *text = arena_alloc(&lookup->arena, sizeof(*text));
    *text = slice_text(arena_printf(&lookup->arena, "coord-region=%s", instances.from));
    out->texts = text, out->text_count = 1;
}

/* -- SRV ---------------------------------------------------------------------------------------------------------- */

static uint16_t instance_weight(const Pb__ServiceEntry *entry) {
    bool warning = catalog_entry_status(entry) == PB__STATUS__WARNING;
    uint32_t weight = warning ? entry->service->weight_warning : entry->service->weight_passing;
    return (uint16_t)(weight > UINT16_MAX ? UINT16_MAX : weight);
}

/* NODE.node.REGION.DOMAIN. False: the node's name is no host name. */
static bool target_of_node(const struct dns_lookup *lookup, const Pb__Node *node, struct wire_name *out) {
    bool elsewhere = node->datacenter[0] && strcmp(node->datacenter, lookup->setup->datacenter) != 0;
    return node_target(lookup, elsewhere ? node->datacenter : NULL, node->name, out);
}

/* The name of the instance's own address, else of its node. False: neither can be written as a DNS name. */
static bool instance_target(const struct dns_lookup *lookup, const Pb__ServiceEntry *entry, const struct host *host,
                            struct wire_name *target) {
    if (host->size == 0) return host->name.size && wire_name_from_text(target, host->name);
    if (entry->service->address[0] == 0 && target_of_node(lookup, entry->node, target)) return true;
    address_target(lookup, host, target);
    return true;
}

static void put_node_texts(struct dns_lookup *lookup, const Pb__Node *node, uint32_t name, uint32_t ttl) {
    if (node->n_meta == 0 || !answer_texts_begin(lookup->builder, name)) return;
    for (size_t i = 0; i < node->n_meta; i++) {
        answer_extra_text(lookup->builder, name, ttl, meta_text(&lookup->arena, node->meta[i]));
    }
}

/* Targets that are names in our domain. Their addresses are looked up after the instances have been read. */
struct aliases {
    struct wire_name *names;
    uint32_t *indexes;
    size_t count;
};

static void put_instance(struct dns_lookup *lookup, const struct instances *instances, size_t i, uint32_t ttl,
                         struct aliases *aliases) {
    const Pb__ServiceEntry *entry = instances->items[i];
    struct answer_builder *builder = lookup->builder;
    struct host host = instance_host(lookup, entry);
    struct wire_name target, node;
    if (!instance_target(lookup, entry, &host, &target)) return;
    uint32_t index = answer_name(builder, &target);
    uint32_t about = target_of_node(lookup, entry->node, &node) ? answer_name(builder, &node) : index;
    answer_srv(builder, (struct answer_place){ANSWER_SHUFFLED, ANSWER_QUESTION, ttl},
               (struct answer_srv){SRV_PRIORITY, instance_weight(entry), (uint16_t)entry->service->port, index, about});
    if (instances->picked_from) dns_pick_record(lookup->pick, i, answer_last(builder));
    if (answer_extras_begin(builder, index)) {
        if (host.size) {
            answer_extra_address(builder, index, ttl, host.address, host.size);
        } else {
            aliases->names[aliases->count] = target;
            aliases->indexes[aliases->count++] = index;
        }
    }
    put_node_texts(lookup, entry->node, about, ttl);
}

static void put_alias_addresses(struct dns_lookup *lookup, const struct wire_name *target, uint32_t index) {
    struct name name;
    struct addresses addresses;
    name_parse(&lookup->setup->zone, target->data, target->size, &name);
    if (name.kind == NAME_OUTSIDE || name.kind == NAME_REVERSE) return;
    addresses_of(lookup, &name, &addresses);
    for (size_t i = 0; i < addresses.count; i++) {
        const struct host *host = &addresses.items[i];
        answer_extra_address(lookup->builder, index, addresses.ttl, host->address, host->size);
    }
}

enum lookup_state service_put_srv(struct dns_lookup *lookup, const struct name *name) {
    struct instances instances = {0};
    enum lookup_state state = service_begin(lookup, name, &instances);
    if (state <= LOOKUP_PARENT) return state;
    uint32_t ttl = dns_setup_service_ttl(lookup->setup, name->service);
    size_t named = 0;
    for (size_t i = 0; i < instances.count; i++) named += host_parse(instance_address(instances.items[i])).size == 0;
    struct aliases aliases = {.names = arena_alloc(&lookup->arena, (named + 1) * sizeof(struct wire_name)),
                              .indexes = arena_alloc(&lookup->arena, (named + 1) * sizeof(uint32_t))};
    for (size_t i = 0; i < instances.count; i++) put_instance(lookup, &instances, i, ttl, &aliases);
    rpc_read_end(lookup->reader);
    for (size_t i = 0; i < aliases.count; i++) put_alias_addresses(lookup, &aliases.names[i], aliases.indexes[i]);
    return state;
}

/* -- the servers -------------------------------------------------------------------------------------------------- */

/* Names of servers are given in lower case, as Consul does. */
static bool server_target(const struct dns_lookup *lookup, const char *node, struct wire_name *target) {
    bool good = node_target(lookup, NULL, node, target);
    wire_name_lower(target->data, target->data, target->size);
    return good;
}

/* False: the server's name is no host name. */
static bool put_server(struct dns_lookup *lookup, struct answer_place place, const Pb__Node *node) {
    struct wire_name target;
    if (!server_target(lookup, node->name, &target)) return false;
    uint32_t index = answer_name(lookup->builder, &target);
    struct host host = host_parse(node->address);
    answer_ns(lookup->builder, place, index);
    if (host.size && answer_extras_begin(lookup->builder, index)) {
        answer_extra_address(lookup->builder, index, place.ttl, host.address, host.size);
    }
    return true;
}

static struct instances servers_begin(struct dns_lookup *lookup) {
    struct slice service = SLICE_LITERAL(SERVERS_SERVICE);
    dns_depends_add(lookup->depends, lookup->rpc, (struct watch_key){SPACE_SERVICE, service});
    return instances_begin(lookup, service, SLICE_LITERAL(""), LOOKUP_INSTANCES_MAX);
}

/* The addresses of this server's own node, from the catalog. */
static void own_node(struct dns_lookup *lookup, struct addresses *out) {
    struct name name = {.kind = NAME_NODE, .node = slice_text(lookup->setup->node_name)};
    addresses_of(lookup, &name, out);
}

static void put_own_node(struct dns_lookup *lookup, struct answer_place place) {
    struct addresses own;
    struct wire_name target;
    own_node(lookup, &own);
    bool known = own.state == LOOKUP_SOME && server_target(lookup, lookup->setup->node_name, &target);
    uint32_t index = answer_name(lookup->builder, known ? &target : &lookup->setup->soa[0].mname);
    answer_ns(lookup->builder, place, index);
    if (own.count && answer_extras_begin(lookup->builder, index)) {
        answer_extra_address(lookup->builder, index, place.ttl, own.items[0].address, own.items[0].size);
    }
}

void servers_put_ns(struct dns_lookup *lookup, struct answer_place place) {
    struct instances servers = servers_begin(lookup);
    size_t put = 0;
    for (size_t i = 0; i < servers.count; i++) put += put_server(lookup, place, servers.items[i]->node);
    rpc_read_end(lookup->reader);
    if (put == 0) put_own_node(lookup, place);
}

void addresses_of_servers(struct dns_lookup *lookup, struct addresses *out) {
    struct instances servers = servers_begin(lookup);
    *out = (struct addresses){.state = LOOKUP_SOME, .ttl = lookup->setup->node_ttl};
    instances_addresses(lookup, &servers, out);
    rpc_read_end(lookup->reader);
    if (servers.count == 0) own_node(lookup, out);
}
