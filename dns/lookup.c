#include "dns/lookup.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "dns/lookup_internal.h"

struct dns_lookup *dns_lookup_new(const struct dns_setup *setup, struct rpc *rpc) {
    struct dns_lookup *lookup = mem_zalloc(sizeof(*lookup));
    lookup->setup = setup;
    lookup->rpc = rpc;
    lookup->reader = rpc_reader_new(rpc);
    lookup->builder = answer_builder_new();
    lookup->reverse = reverse_map_new();
    rng_seed(&lookup->rng, random_u64());
    return lookup;
}

void dns_lookup_free(struct dns_lookup *lookup) {
    if (!lookup) return;
    rpc_reader_free(lookup->reader);
    answer_builder_free(lookup->builder);
    reverse_map_free(lookup->reverse);
    arena_free(&lookup->arena);
    free(lookup);
}

int lookup_query(struct dns_lookup *lookup, const struct query_type *type, const ProtobufCMessage *request,
                 struct query_result *result) {
    *result = (struct query_result){0};
    int error = rpc_query(lookup->reader, type, request, lookup->requester, &lookup->arena, result);
    if (error != CO_DENIED && error != CO_NOTOKEN) return error;
    *result = (struct query_result){0};
    return CO_OK;
}

bool lookup_stored(struct dns_lookup *lookup, const struct query_type *type, struct slice name, struct slice *stored) {
    Pb__NameRequest request = PB__NAME_REQUEST__INIT;
    struct query_result result = {0};
    if (memchr(name.data, 0, name.size)) return false; /* no name of ours */
    request.name = arena_strndup(&lookup->arena, name.data, name.size);
    int rv = lookup_query(lookup, type, &request.base, &result);
    lookup_note(lookup, rv);
    const Pb__NameResult *found =
        rv == CO_OK && result.found ? (const Pb__NameResult *)(const void *)result.message : NULL;
    if (found)
        *stored = slice_make(arena_strndup(&lookup->arena, found->name, strlen(found->name)), strlen(found->name));
    rpc_read_end(lookup->reader);
    return found != NULL;
}

/* -- pieces of answers -------------------------------------------------------------------------------------------- */

static struct dns_found nothing(int rcode) { return (struct dns_found){.rcode = rcode}; }

static struct dns_found finish(struct dns_lookup *lookup, const struct name *name, int rcode) {
    struct answer *answer = answer_finish(lookup->builder, rcode);
    answer_set_zone(answer, name->zone_at);
    return (struct dns_found){.rcode = rcode, .answer = answer, .keep = true};
}

static void start(struct dns_lookup *lookup, unsigned domain) {
    answer_start(lookup->builder, &lookup->setup->zone.domains[domain]);
}

static void put_soa(struct dns_lookup *lookup, enum answer_section section, unsigned domain) {
    answer_soa(lookup->builder, section, &lookup->setup->soa[domain]);
}

struct answer *dns_lookup_negative(struct dns_lookup *lookup, unsigned domain, int rcode) {
    start(lookup, domain);
    put_soa(lookup, ANSWER_AUTHORITY, domain);
    return answer_finish(lookup->builder, rcode);
}

/* Finishes the answer: the records that were put so far, or NODATA with an SOA when there are none. */
static struct dns_found finish_or_nodata(struct dns_lookup *lookup, const struct name *name) {
    if (answer_so_far(lookup->builder) == 0) put_soa(lookup, ANSWER_AUTHORITY, name->domain);
    return finish(lookup, name, RCODE_NOERROR);
}

/* The answer for a service that is registered but has no healthy instance. */
static struct dns_found nothing_healthy(struct dns_lookup *lookup, const struct name *name) {
    start(lookup, name->domain);
    put_soa(lookup, ANSWER_AUTHORITY, name->domain);
    return finish(lookup, name, RCODE_NXDOMAIN);
}

bool lookup_is_foreign(const struct dns_lookup *lookup, const struct name *name) {
    return name->datacenter.size && !slice_equal_nocase(name->datacenter, slice_text(lookup->setup->datacenter));
}

bool lookup_ours(const struct dns_lookup *lookup, struct slice host, struct name *name) {
    struct wire_name wire;
    if (!wire_name_from_text(&wire, host)) return false;
    name_parse(&lookup->setup->zone, wire.data, wire.size, name);
    return name->kind != NAME_OUTSIDE && name->kind != NAME_REVERSE && !lookup_is_foreign(lookup, name);
}

size_t addresses_put(struct dns_lookup *lookup, const struct addresses *addresses, uint16_t type,
                     struct answer_place place) {
    size_t put = 0;
    for (size_t i = 0; i < addresses->count; i++) {
        const struct host *host = &addresses->items[i];
        bool wanted = type == TYPE_ANY || type == (host->size == 4 ? TYPE_A : TYPE_AAAA);
        if (!wanted) continue;
        put += answer_address(lookup->builder, place, host->address, host->size);
        if (addresses->entry_of) dns_pick_record(lookup->pick, addresses->entry_of[i], answer_last(lookup->builder));
    }
    return put;
}

/* -- services, nodes: addresses, and names that stand for addresses ----------------------------------------------- */

void addresses_of(struct dns_lookup *lookup, const struct name *name, struct addresses *out) {
    *out = (struct addresses){.state = LOOKUP_UNKNOWN};
    if (name->kind == NAME_ADDRESS) {
        struct host *host = arena_zalloc(&lookup->arena, sizeof(*host));
        memcpy(host->address, name->address, name->address_size);
        host->size = name->address_size;
        *out = (struct addresses){.state = LOOKUP_SOME, .ttl = lookup->setup->node_ttl, .items = host, .count = 1};
    } else if (name->kind == NAME_SERVICE) {
        addresses_of_service(lookup, name, out);
    } else if (name->kind == NAME_NODE) {
        addresses_of_node(lookup, name, out);
    } else if (lookup_is_foreign(lookup, name)) {
        return;
    } else if (name->kind == NAME_SERVERS) {
        addresses_of_servers(lookup, out);
    }
    /* No watch tells when such a name appears, so the answer that is made without it is not kept. */
    if (out->state <= LOOKUP_PARENT) lookup->depends->overflow = true;
}

static bool is_address_type(uint16_t type) { return type == TYPE_A || type == TYPE_AAAA || type == TYPE_ANY; }

/* The end of a chain of CNAMEs. */
enum alias_end {
    ALIAS_ANSWERED, /* at records of this type, or at a name that the client has to ask for elsewhere */
    ALIAS_NO_TYPE,  /* at a name that has none of this type */
    ALIAS_NO_NAME,
};

static enum alias_end alias_end(const struct dns_lookup *lookup, const struct name *name, enum lookup_state state,
                                uint16_t type) {
    bool parent = (name->kind == NAME_PARENT || name->kind == NAME_APEX) && !lookup_is_foreign(lookup, name);
    if (type == TYPE_ANY) return ALIAS_ANSWERED;
    if (!parent && (state == LOOKUP_UNKNOWN || state == LOOKUP_NONE)) return ALIAS_NO_NAME;
    return is_address_type(type) ? ALIAS_NO_TYPE : ALIAS_ANSWERED; /* other types are not looked up there */
}

/* Puts a CNAME, and the records of its target as long as that is a name of ours. Each name is put once. */
static enum alias_end put_alias(struct dns_lookup *lookup, const struct name *asked, struct slice alias, uint16_t type,
                                uint32_t ttl) {
    uint32_t owner = ANSWER_QUESTION, seen[LOOKUP_DEPTH_MAX];
    for (unsigned depth = 0; depth < LOOKUP_DEPTH_MAX; depth++) {
        struct wire_name target;
        struct name name;
        struct addresses next;
        if (!wire_name_from_text(&target, alias)) return ALIAS_ANSWERED;
        name_parse(&lookup->setup->zone, target.data, target.size, &name);
        uint32_t index = seen[depth] = answer_name(lookup->builder, &target);
        bool again = strcmp(name.text, asked->text) == 0;
        for (unsigned i = 0; i < depth; i++) again |= seen[i] == index;
        if (again) return is_address_type(type) ? ALIAS_NO_TYPE : ALIAS_ANSWERED;
        answer_cname(lookup->builder, (struct answer_place){ANSWER_FIXED, owner, ttl}, index);
        if (type == TYPE_CNAME || name.kind == NAME_OUTSIDE || name.kind == NAME_REVERSE) return ALIAS_ANSWERED;
        owner = index;
        addresses_of(lookup, &name, &next);
        if (addresses_put(lookup, &next, type, (struct answer_place){ANSWER_SHUFFLED, owner, next.ttl}) > 0)
            return ALIAS_ANSWERED;
        /* An SOA can deny only names below its owner, and the owner is a part of the name asked. So a target in our
         * other domain cannot be denied. */
        if (next.alias.size == 0)
            return name.domain == asked->domain ? alias_end(lookup, &name, next.state, type) : ALIAS_ANSWERED;
        alias = next.alias;
        ttl = next.ttl;
    }
    return ALIAS_ANSWERED;
}

/* RFC 2308, 2.1 and 2.2: the response code is that of the last name, and an SOA says how long to cache it. */
static struct dns_found alias_answer(struct dns_lookup *lookup, const struct name *name, struct slice alias,
                                     uint16_t type, uint32_t ttl) {
    start(lookup, name->domain);
    enum alias_end end = put_alias(lookup, name, alias, type, ttl);
    if (end == ALIAS_ANSWERED || answer_so_far(lookup->builder) == 0) return finish_or_nodata(lookup, name);
    put_soa(lookup, ANSWER_AUTHORITY, name->domain);
    struct dns_found found = finish(lookup, name, end == ALIAS_NO_NAME ? RCODE_NXDOMAIN : RCODE_NOERROR);
    answer_set_zone(found.answer, name->domain_at);
    return found;
}

/* A name that only has names below it is answered with NODATA, not NXDOMAIN (RFC 8020), so that a resolver that asks
 * label by label goes on. */
static struct dns_found not_there(enum lookup_state state) {
    return nothing(state == LOOKUP_PARENT ? RCODE_NOERROR : RCODE_NXDOMAIN);
}

static void put_texts(struct dns_lookup *lookup, const struct addresses *about, enum answer_section section) {
    struct answer_place place = {section, ANSWER_QUESTION, about->ttl};
    for (size_t i = 0; i < about->text_count; i++) answer_text(lookup->builder, place, about->texts[i]);
}

static struct dns_found service_answer(struct dns_lookup *lookup, const struct name *name, uint16_t type) {
    lookup->picks = type == TYPE_SRV || is_address_type(type);
    if (type == TYPE_SRV) {
        start(lookup, name->domain);
        enum lookup_state state = service_put_srv(lookup, name);
        if (state <= LOOKUP_PARENT) return not_there(state);
        if (state == LOOKUP_NONE) return nothing_healthy(lookup, name);
        return finish_or_nodata(lookup, name);
    }
    struct addresses addresses;
    addresses_of_service(lookup, name, &addresses);
    if (addresses.state <= LOOKUP_PARENT) return not_there(addresses.state);
    if (addresses.state == LOOKUP_NONE) return nothing_healthy(lookup, name);
    if (addresses.alias.size) return alias_answer(lookup, name, addresses.alias, type, addresses.ttl);
    start(lookup, name->domain);
    if (is_address_type(type)) {
        addresses_put(lookup, &addresses, type, (struct answer_place){ANSWER_SHUFFLED, ANSWER_QUESTION, addresses.ttl});
    }
    if (type == TYPE_TXT || type == TYPE_ANY) put_texts(lookup, &addresses, ANSWER_SHUFFLED);
    return finish_or_nodata(lookup, name);
}

static struct dns_found node_answer(struct dns_lookup *lookup, const struct name *name, uint16_t type) {
    struct addresses node;
    addresses_of_node(lookup, name, &node);
    if (node.state <= LOOKUP_PARENT) return not_there(node.state);
    if (node.alias.size) return alias_answer(lookup, name, node.alias, type, node.ttl);
    start(lookup, name->domain);
    if (is_address_type(type)) {
        addresses_put(lookup, &node, type, (struct answer_place){ANSWER_SHUFFLED, ANSWER_QUESTION, node.ttl});
    }
    if (type == TYPE_TXT || type == TYPE_ANY) put_texts(lookup, &node, ANSWER_SHUFFLED);
    else if (answer_so_far(lookup->builder)) put_texts(lookup, &node, ANSWER_ADDITIONAL);
    return finish_or_nodata(lookup, name);
}

/* -- the domain itself, and names that need no catalog ------------------------------------------------------------ */

static struct dns_found apex_answer(struct dns_lookup *lookup, const struct name *name, uint16_t type) {
    start(lookup, name->domain);
    uint32_t owner = answer_name(lookup->builder, &lookup->setup->zone.domains[name->domain]);
    bool soa = type == TYPE_SOA || type == TYPE_ANY, ns = type == TYPE_NS || type == TYPE_ANY;
    if (soa) put_soa(lookup, ANSWER_FIXED, name->domain);
    if (soa || ns) {
        enum answer_section section = ns ? ANSWER_SHUFFLED : ANSWER_AUTHORITY;
        servers_put_ns(lookup, (struct answer_place){section, owner, lookup->setup->node_ttl});
    }
    return finish_or_nodata(lookup, name);
}

static struct dns_found plain_answer(struct dns_lookup *lookup, const struct name *name, uint16_t type) {
    struct addresses addresses;
    addresses_of(lookup, name, &addresses);
    start(lookup, name->domain);
    if (is_address_type(type)) {
        addresses_put(lookup, &addresses, type, (struct answer_place){ANSWER_SHUFFLED, ANSWER_QUESTION, addresses.ttl});
    }
    return finish_or_nodata(lookup, name);
}

/* The answer is computed from the name. It is not kept, because there are more such names than could be kept. */
static struct dns_found address_answer(struct dns_lookup *lookup, const struct name *name, uint16_t type) {
    struct dns_found found = plain_answer(lookup, name, type);
    found.keep = false;
    return found;
}

static struct dns_found reverse_answer(struct dns_lookup *lookup, const struct name *name, uint16_t type) {
    struct reverse_found found = reverse_find(lookup, name->address, name->address_size);
    struct wire_name target;
    if (found.name.size == 0) return nothing(RCODE_REFUSED);
    bool fits = found.service ? service_target(lookup, found.name, &target)
                              : node_target(lookup, NULL, found.name.data, &target);
    if (!fits) return nothing(RCODE_REFUSED);
    uint32_t ttl = found.service ? dns_setup_service_ttl(lookup->setup, found.name) : lookup->setup->node_ttl;
    answer_start(lookup->builder, NULL);
    if (type == TYPE_PTR || type == TYPE_ANY) {
        answer_ptr(lookup->builder, (struct answer_place){ANSWER_FIXED, ANSWER_QUESTION, ttl},
                   answer_name(lookup->builder, &target));
    }
    return finish(lookup, name, RCODE_NOERROR);
}

static struct dns_found own_answer(struct dns_lookup *lookup, const struct name *name, uint16_t type) {
    if (name->kind == NAME_ADDRESS) return address_answer(lookup, name, type);
    bool there = name->kind == NAME_SERVICE || name->kind == NAME_NODE; /* regions' copies have these */
    if (lookup_is_foreign(lookup, name) && !there) return nothing(RCODE_NXDOMAIN);
    switch (name->kind) {
        case NAME_SERVICE: return service_answer(lookup, name, type);
        case NAME_NODE: return node_answer(lookup, name, type);
        case NAME_SERVERS: return plain_answer(lookup, name, type);
        case NAME_PARENT: return nothing(RCODE_NOERROR);
        default: return nothing(RCODE_NXDOMAIN);
    }
}

struct dns_found dns_lookup_run(struct dns_lookup *lookup, const struct name *name, uint16_t type,
                                struct dns_cache *cache, struct dns_depends *depends) {
    arena_reset(&lookup->arena);
    dns_depends_reset(depends);
    lookup->cache = cache;
    lookup->depends = depends;
    lookup->requester = rpc_default_requester(lookup->rpc);
    if (lookup->requester) dns_depends_add(depends, lookup->rpc, rpc_access_changes(lookup->rpc));
    lookup->failed = false;
    lookup->read_count = 0;
    lookup->picks = false;
    lookup->pick = NULL;
    struct dns_found found = name->kind == NAME_OUTSIDE   ? nothing(RCODE_REFUSED)
                             : name->kind == NAME_REVERSE ? reverse_answer(lookup, name, type)
                             : name->kind == NAME_APEX    ? apex_answer(lookup, name, type)
                                                          : own_answer(lookup, name, type);
    requester_release(lookup->requester);
    lookup->requester = NULL;
    found.zone_at = lookup_is_foreign(lookup, name) ? name->domain_at : name->zone_at;
    found.cost_ns = lookup->read_count * LOOKUP_COST_NS;
    found.pick = found.answer ? lookup->pick : NULL;
    if (!found.pick) dns_pick_free(lookup->pick);
    if (!lookup->failed) return found;
    answer_free(found.answer);
    dns_pick_free(found.pick);
    return nothing(RCODE_SERVFAIL);
}
