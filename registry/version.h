/* The cluster version: which commands the cluster may use, agreed by all of its servers; and the cluster's id. One
 * replicated record, which a cluster of version 1 does not have.
 *
 * Programs can be members of clusters of versions MACHINE_VERSION_OLDEST to MACHINE_VERSION_NEWEST
 * (registry/machine.h). The version rises only when every member can follow, by a command that no older program is
 * ever shown (rpc/core/version.h), and never falls. A program that meets a version above its own stops: at start, at a
 * snapshot, at the command.
 *
 *   1   catalog, keys, sessions
 *   2   what operators set, removed servers, restoring backups (registry/operator.h); this record, the
 * cluster's id
 *   3   leases (registry/lease.h), network coordinates (lb/coordinate.h), events (kv/event/event.h)
 *   4   names without regard to case (registry/fold.h): no new command, the old ones find names in any case
 *   5   locks (kv/lock/lock.h), elections, fences, barriers, phasers, hazards, each in its folder of kv/
 *   6   the history (registry/history.h), transactions (kv/txn/txn.h)
 *   7   quotas (kv/quota/quota.h), and a topic of the history for them; copies of other regions (multi-dc/copy.h,
 * multi-dc/keys.h), and a mark of the catalog as a whole
 *
 * To add a command: name the next version here, raise MACHINE_VERSION_NEWEST (once a release), and name it in the
 * module's `since`. */
#ifndef COORD_REGISTRY_VERSION_H
#define COORD_REGISTRY_VERSION_H

#include "registry/machine.h"
#include "registry/version.pb-c.h"

enum version_command { CLUSTER_VERSION = 16 };

_Static_assert(CLUSTER_VERSION >= 1 && CLUSTER_VERSION < 32, "a command of the registry (registry/module.h)");

extern const struct module version_module;

struct version_now {
    unsigned version;
    uint64_t cluster_id;
}; /* without a record: 1, and no id (0) */
/* CO_CORRUPT: there is a record that does not decode. */
int version_read(struct store_txn *txn, struct version_now *now);
/* The version alone, quickly; 1 too where the record does not decode. */
unsigned version_number(struct store_txn *txn);
/* Puts the record as it is, for the restore of a backup. Version 1 without an id: removes it. */
void version_put(struct store_txn *txn, const struct version_now *now, uint64_t index);
/* Is this record of TABLE_CLUSTER the version? For checking copies. */
bool version_decode(struct slice key, struct slice value, struct version_now *now);
/* Can a program that knows versions up to `newest` be a member? CO_UNSUPPORTED, with a line that says why not. */
int version_check(const struct version_now *now, unsigned newest, struct fault *fault);

#endif
