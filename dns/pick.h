/* Which instance of a service comes first in an answer: the pick of policy p2c (lb/balance.h), where the service says its
 * load. Kept with the prebuilt answer. Where nobody says anything it is a name and two numbers that are compared.
 *
 * One thread. */
#ifndef COORD_DNS_PICK_H
#define COORD_DNS_PICK_H

#include "base/random.h"
#include "registry/catalog.h"
#include "rpc/api/rpc.h"

#define DNS_PICK_NONE UINT32_MAX

struct dns_pick;
/* Of these entries, of one service, at least one. A client agent follows the service's hints from now on. */
struct dns_pick *dns_pick_new(struct rpc *rpc, Pb__ServiceEntry **entries, size_t count, uint64_t now_ns);
void dns_pick_free(struct dns_pick *pick); /* NULL allowed */
size_t dns_pick_bytes(const struct dns_pick *pick);
/* The record among the shuffled ones that an entry stands behind. */
void dns_pick_record(struct dns_pick *pick, size_t entry, uint32_t record);

/* False: the service says its load since, so that the answer is to be made anew. Cheap. */
bool dns_pick_current(struct dns_pick *pick, uint64_t now_ns);
/* The record that comes first; DNS_PICK_NONE: any. */
uint32_t dns_pick_first(struct dns_pick *pick, struct rng *rng, uint64_t now_ns);

#endif
