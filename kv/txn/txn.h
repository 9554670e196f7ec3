/* Transactions: several operations on keys, the catalog, sessions and fences in one entry, all or nothing, as Consul's
 * /v1/txn has them; and with comparisons that choose between two lists of them. A module of the state machine without
 * tables of its own: an operation that changes something carries the command of the module whose thing it changes
 * (KV_APPLY, CATALOG_REGISTER, ...), and is applied by that module.
 *
 * (1) Operations are applied in their order; each sees what those before it did. All of them have the index of the
 *     entry.
 * (2) When one fails, the others are tried all the same, so that the answer names every failure; then everything is
 *     taken back (machine_point): nothing was changed, nobody is woken.
 * (3) A fence, of the transaction (TXN_FENCE) or of an operation on a key, is judged within it like any operation.
 * (4) A transaction that only reads takes no entry: query_txn, one read of one state.
 * (5) What a transaction that writes hands out is at most TXN_RESULTS_MAX bytes, since it goes through the log's
 *     threads as one piece. More is a failure of the operation. Of one that only reads it is TXN_READ_MAX. */
#ifndef COORD_KV_TXN_H
#define COORD_KV_TXN_H

#include "kv/txn/txn.pb-c.h"
#include "registry/machine.h"

enum txn_command { TXN_APPLY = 128 };
#define TXN_OPS_MAX     1024
#define TXN_RESULTS_MAX (4 << 20)
#define TXN_READ_MAX    (64 << 20)            /* of one that only reads */
#define TXN_WALK_MAX    (4 * TXN_RESULTS_MAX) /* of records, for one get-tree within the log; each counts 256 more */

extern const struct module txn_module;
extern const struct query_type query_txn; /* TxnCommand -> TxnAnswer; never waits */

/* Does it change anything? Else it can be asked as query_txn. */
bool txn_writes(const Pb__TxnCommand *command);

#endif
