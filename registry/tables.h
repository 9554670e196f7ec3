/* Numbers of the registry's tables: part of the format of the store, its sums and its copies. Never reused. */
#ifndef COORD_REGISTRY_TABLES_H
#define COORD_REGISTRY_TABLES_H

/* Names of nodes and services and IDs of services and checks are folded in keys (registry/fold.h), but in
 * TABLE_TAGS. */
enum registry_table {
    TABLE_CHANGES = 1,    /* space, name -> last change (machine_changes.c) */
    TABLE_TOMBSTONES = 2, /* index, space, name of each tombstone */
    TABLE_NODES = 3,      /* node -> Node */
    TABLE_SERVICES = 4,   /* node, service id -> Service */
    TABLE_CHECKS = 5,     /* node, service id (empty: the node's own), check id -> Check */
    TABLE_CHECK_IDS = 6,  /* node, check id -> service id */
    TABLE_INSTANCES = 7,  /* service name, node, service id -> nothing */
    TABLE_TAGS = 8,       /* service name -> instances; service name, tag -> instances that have it */
    TABLE_SPELLINGS = 9,  /* kind, name in lower case, name -> name */
    TABLE_NODE_IDS = 10,  /* node id, in lower case -> node */
    /* service name, node, check id -> service id: checks that still carry their service's former name */
    TABLE_STRAYS = 11,
    TABLE_SETTINGS = 12, /* what operators set, by name (operator.c) */
    TABLE_STAGED = 13,   /* offset -> bytes: a backup that is being restored */
    TABLE_CLUSTER = 14,  /* the cluster version (version.c) */
    /* by the first byte (enum lease_row): id -> Lease; lease id, kind, name -> a thing that is bound to it; node in
     * lower case -> id of its lease; node in lower case -> DeadNode */
    TABLE_LEASES = 15,
    TABLE_HISTORY = 49,      /* topic, index -> the changes of an entry; 0 -> HistoryState (history_row.c) */
    TABLE_TRUST = 50,        /* by the first byte (enum trust_row in trust.c) */
    TABLE_PRESERVATION = 48, /* by the first byte (enum preservation_row in self_preservation.c) */
};
_Static_assert(TABLE_CHANGES == 1 && TABLE_LEASES == 15, "tables of the registry (registry/module.h)");
_Static_assert(TABLE_PRESERVATION >= 48 && TABLE_TRUST < 56, "and its others");

#endif
