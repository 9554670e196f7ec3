/* The cluster version: which commands the cluster may use, agreed by all of its servers; and the cluster's id. One
 * replicated record, which the first command of a cluster makes.
 *
 * Programs can be members of clusters of versions MACHINE_VERSION_OLDEST to MACHINE_VERSION_NEWEST
 * (registry/machine.h). The version rises only when every member can follow, by a command that no older program is
 * ever shown (rpc/server/version.h), and never falls. A program that meets a version above its own stops: at start, at a
 * snapshot, at the command.
 *
 * An addition names the version since which it counts, and needs nothing else:
 *   - a new command names its version in its row (`since`, registry/module.h). No leader appends it before
 *   - a new field of an older command, and any other change of an older command, asks machine_tx_version
 * The first addition of a release raises MACHINE_VERSION_NEWEST. Nothing has been released yet, so everything is of
 * version 1 and may change without a new one. Tests make up a version 2 (tests/lib/later.h). */
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
/* Puts the record as it is, for the restore of a backup. Without an id: removes it. */
void version_put(struct store_txn *txn, const struct version_now *now, uint64_t index);
/* Is this record of TABLE_CLUSTER the version? For checking copies. */
bool version_decode(struct slice key, struct slice value, struct version_now *now);
/* Can a program that knows versions up to `newest` be a member? CO_UNSUPPORTED, with a line that says why not. */
int version_check(const struct version_now *now, unsigned newest, struct fault *fault);

#endif
