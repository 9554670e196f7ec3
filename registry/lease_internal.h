/* Shared by the files of leases only. */
#ifndef COORD_REGISTRY_LEASE_INTERNAL_H
#define COORD_REGISTRY_LEASE_INTERNAL_H

#include "registry/lease.h"
#include "registry/store.h"

/* The record, unpacked into the arena. CO_NOTFOUND, CO_CORRUPT. */
int lease_record(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Lease **lease);
/* Key of a node's rows, in `room` of STORE_KEY_MAX bytes. */
struct slice lease_node_key(struct slice node, char *room);

/* -- bindings (lease_bindings.c) */
/* Beginning of the rows of one lease and kind; `room`: LEASE_BINDING_HEAD bytes. */
#define LEASE_BINDING_HEAD 37
struct slice lease_binding_head(struct slice lease, enum lease_kind kind, char *room);
/* The name in a row. */
struct slice lease_binding_name(struct slice key, struct slice value);

#endif
