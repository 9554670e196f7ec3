/* Looks into the catalog of a fake rpc. */
#ifndef COORD_TESTS_HEALTH_LOOKS_H
#define COORD_TESTS_HEALTH_LOOKS_H

#include "registry/catalog.h"
#include "registry/lease.h"
#include "tests/lib/fake_rpc.h"

/* The result lives in the arena. NULL: no such record. */
const Pb__Service *look_service(struct rpc *rpc, struct arena *arena, const char *node, const char *id);
const Pb__Check *look_check(struct rpc *rpc, struct arena *arena, const char *node, const char *id);
const Pb__Node *look_node(struct rpc *rpc, struct arena *arena, const char *node);
const Pb__Lease *look_lease(struct rpc *rpc, struct arena *arena, const char *id);
const Pb__Lease *look_node_lease(struct rpc *rpc, struct arena *arena, const char *node);
size_t look_count(struct rpc *rpc, const char *node); /* its services and checks */

#endif
