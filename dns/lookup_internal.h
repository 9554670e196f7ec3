/* Shared by the files that look names up: lookup.c decides, lookup_service.c and lookup_node.c read. */
#ifndef COORD_DNS_LOOKUP_INTERNAL_H
#define COORD_DNS_LOOKUP_INTERNAL_H

#include "base/host.h"
#include "dns/lookup.h"
#include "registry/catalog.h"
#include "rpc/api/access_control.h"

enum {
    LOOKUP_DEPTH_MAX = 3,         /* the longest chain of names that are each other's address */
    LOOKUP_COST_NS = 3000,        /* about the time to read an instance and to make its records */
    LOOKUP_INSTANCES_MAX = 32768, /* the most in one answer; of a larger service a random part is taken */
};

struct reverse_map;
struct dns_lookup {
    const struct dns_setup *setup;
    struct rpc *rpc;
    struct rpc_reader *reader;
    struct answer_builder *builder;
    struct reverse_map *reverse;
    struct arena arena;          /* of one run */
    struct requester *requester; /* on whose behalf the run is */
    struct rng rng;
    struct dns_cache *cache; /* the present run's, as are the following */
    struct dns_depends *depends;
    uint64_t read_count; /* instances */
    bool failed;         /* the catalog could not be read */
    bool picks;          /* the service that is read next is the one asked for, not the target of an alias */
    struct dns_pick *pick;
};
static inline void lookup_note(struct dns_lookup *lookup, int rv) {
    if (rv != CO_OK && rv != CO_NOTFOUND) lookup->failed = true;
}

/* rpc_query for DNS. A thing that the agent's default token may not read is not there. */
int lookup_query(struct dns_lookup *lookup, const struct query_type *type, const ProtobufCMessage *request,
                 struct query_result *result);
/* Finds the name as it is registered, which may differ in case. In the arena. */
bool lookup_stored(struct dns_lookup *lookup, const struct query_type *type, struct slice name, struct slice *stored);

#define DNS_ALL_REGIONS "global" /* in place of a region: all of them */
/* Does it name another region than this one? */
bool lookup_is_foreign(const struct dns_lookup *lookup, const struct name *name);
/* Is `host` a name in our domains, and of our datacenter? *name: the parsed name. */
bool lookup_ours(const struct dns_lookup *lookup, struct slice host, struct name *name);

/* In this order: no such name; no such name, but names below it exist or may exist; the name exists without a healthy
 * instance; it has healthy instances. */
enum lookup_state { LOOKUP_UNKNOWN, LOOKUP_PARENT, LOOKUP_NONE, LOOKUP_SOME };

/* The addresses of a name, copied out of the catalog. */
struct addresses {
    enum lookup_state state;
    uint32_t ttl;
    struct host *items;       /* in the arena */
    const uint32_t *entry_of; /* the place of each item's instance in lookup->pick; NULL: no pick */
    size_t count;
    struct slice alias;        /* one of the names among them, when all are names */
    const struct slice *texts; /* nodes: metadata; services: the region that answers in place of this one */
    size_t text_count;
};
void addresses_of_service(struct dns_lookup *lookup, const struct name *name, struct addresses *out);
void addresses_of_node(struct dns_lookup *lookup, const struct name *name, struct addresses *out);
/* Of a service, a node, HEX.addr, or the servers. */
void addresses_of(struct dns_lookup *lookup, const struct name *name, struct addresses *out);
/* Adds the addresses of the wanted type to the answer; returns how many. */
size_t addresses_put(struct dns_lookup *lookup, const struct addresses *addresses, uint16_t type,
                     struct answer_place place);

/* Puts SRV records, and the additional records of their targets. */
enum lookup_state service_put_srv(struct dns_lookup *lookup, const struct name *name);
/* NS records, and addresses of the servers: of this one when the catalog knows none. */
void servers_put_ns(struct dns_lookup *lookup, struct answer_place place);
void addresses_of_servers(struct dns_lookup *lookup, struct addresses *out);

/* "key=value" by RFC 1464, or the value alone for keys that begin with rfc1035-. In the arena. */
struct slice meta_text(struct arena *arena, const Pb__Pair *pair);
/* NODE.node.DC.DOMAIN; false when the node's name cannot be part of a host name. `region` NULL: this one. */
bool node_target(const struct dns_lookup *lookup, const char *region, const char *node, struct wire_name *out);
/* NAME.service.DC.DOMAIN; false when the name is no label of a host name */
bool service_target(const struct dns_lookup *lookup, struct slice service, struct wire_name *out);
void address_target(const struct dns_lookup *lookup, const struct host *host, struct wire_name *out);

/* Reverse: the node that has the address, or else a service that is registered with it. An empty name: none. */
struct reverse_found {
    struct slice name; /* NUL-terminated */
    bool service;
};
struct reverse_map *reverse_map_new(void);
void reverse_map_free(struct reverse_map *map);
struct reverse_found reverse_find(struct dns_lookup *lookup, const uint8_t *address, size_t size);
/* Does the name of some node end with a dot and this name? The answer may be a little behind (reverse.c). */
bool reverse_node_below(struct dns_lookup *lookup, struct slice node);

#endif
