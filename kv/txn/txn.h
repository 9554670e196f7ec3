/* Transactions: several operations on keys, the catalog, sessions and fences in one entry, all or nothing, as in
 * Consul's /v1/txn; comparisons may choose between two lists of operations. A module of the state machine without
 * tables of its own: an operation that changes something carries the command of the module whose thing it changes
 * (KV_APPLY, CATALOG_REGISTER, ...), and is applied by that module.
 *
 * (1) Operations are applied in their order; each sees what those before it did. All of them have the index of the
 *     entry.
 * (2) When one fails the others are tried all the same, so that the answer names every failure. Then everything is
 *     taken back (machine_point): nothing has changed, and nobody is woken.
 * (3) A fence, of the transaction (TXN_FENCE) or of an operation on a key, is judged within it like any operation.
 * (4) A transaction that only reads takes no entry: query_txn, one read of one state.
 * (5) The results of a transaction that writes have at most TXN_RESULTS_MAX bytes, because they pass the log's threads
 *     as one piece. An operation with more fails. A transaction that only reads may have TXN_READ_MAX. */
#ifndef COORD_KV_TXN_H
#define COORD_KV_TXN_H

#include "kv/txn/txn.pb-c.h"
#include "registry/machine.h"

enum txn_command { TXN_APPLY = 128 };
#define TXN_OPS_MAX     1024
#define TXN_RESULTS_MAX (4 << 20)
#define TXN_READ_MAX    (64 << 20)            /* results of one that only reads */
#define TXN_WALK_MAX    (4 * TXN_RESULTS_MAX) /* bytes that a get-tree reads in a write; a record adds 256 */

extern const struct module txn_module;
extern const struct query_type query_txn; /* TxnCommand -> TxnAnswer; never waits */

/* Does it change anything? If not it can be asked as query_txn. */
bool txn_writes(const Pb__TxnCommand *command);

#endif
