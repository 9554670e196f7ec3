/* Picks the instance of a service that comes first in an answer, by policy p2c (lb/balance.h), when the service reports
 * its load. The pick is kept with the prebuilt answer. For a service that reports no load it is only a name and two
 * numbers to compare.
 *
 * One thread. */
#ifndef COORD_DNS_PICK_H
#define COORD_DNS_PICK_H

#include "base/random.h"
#include "registry/catalog.h"
#include "rpc/api/rpc.h"

#define DNS_PICK_NONE UINT32_MAX

struct dns_pick;
/* A pick among these entries of one service, at least one. A client agent follows the service's hints from now on. */
struct dns_pick *dns_pick_new(struct rpc *rpc, Pb__ServiceEntry **entries, size_t count, uint64_t now_ns);
void dns_pick_free(struct dns_pick *pick); /* NULL allowed */
size_t dns_pick_bytes(const struct dns_pick *pick);
/* Tells which of the shuffled records is that of an entry. */
void dns_pick_record(struct dns_pick *pick, size_t entry, uint32_t record);

/* False: the service has begun to report its load since, so the answer has to be made anew. A cheap call. */
bool dns_pick_current(struct dns_pick *pick, uint64_t now_ns);
/* The record that has to come first; DNS_PICK_NONE: any may. */
uint32_t dns_pick_first(struct dns_pick *pick, struct rng *rng, uint64_t now_ns);

#endif
