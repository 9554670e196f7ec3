/* Shared by the files of kv/txn/ only. */
#ifndef COORD_KV_TXN_INTERNAL_H
#define COORD_KV_TXN_INTERNAL_H

#include "base/check.h"
#include "kv/txn/txn.h"

/* A transaction under way. */
struct txn_run {
    struct machine_tx *tx; /* NULL: the transaction only reads */
    struct store_txn *store;
    struct arena *arena;
    Pb__TxnAnswer *answer;
    size_t results_room, errors_room;
    size_t bytes; /* bytes of the results */
    uint32_t op;  /* number of the operation under way */
    bool hidden;  /* it gives no result */
};

/* The operation under way fails. `what`: static, or in the arena. */
void txn_fail(struct txn_run *run, const char *what);
#define txn_failf(run, ...) txn_fail((run), arena_printf((run)->arena, __VA_ARGS__))
void txn_too_much(struct txn_run *run); /* fails the operation: too many bytes of results */
/* Adds an empty result of about so many `bytes`. NULL: the transaction has failed, or this operation gives no result, or
 * fails because its result is too large. */
Pb__TxnResult *txn_result(struct txn_run *run, size_t bytes);
/* "quoted" as Consul's answers have it. */
const char *txn_quoted(struct txn_run *run, struct slice text);

/* CO_OK, or the store failed. */
int txn_op(struct txn_run *run, const Pb__TxnOp *op);
int txn_compare(struct txn_run *run, const Pb__TxnCompare *compare, bool *holds);
/* The present entry of a key; NULL: there is none. Its slices point into the map. */
int txn_entry(struct txn_run *run, ProtobufCBinaryData key, const Pb__KvEntry **entry);
/* Does the token hold this lock, or lead this election? CO_OK, CO_NOTFOUND, or the store failed. */
int txn_holds(struct txn_run *run, Pb__TxnThing thing, const char *name, uint64_t token);

/* A record of the catalog: the node, service or check of the operation or comparison. */
struct txn_record {
    bool exists;
    Pb__Node *node; /* one of them */
    Pb__Service *service;
    Pb__Check *check;
    uint64_t create_index, modify_index;
};
int txn_record(struct txn_run *run, Pb__TxnThing thing, const char *node, const char *id, struct txn_record *record);

/* -- access (txn_access.c) ---------------------------------------------------------------------------------------- */

/* As module_command.may. Judges each operation as if it were alone, and marks those that are denied: one that changes
 * or checks something is refused, one that reads gives no result. A comparison would tell what it compares with, so one
 * that may not be read denies all. */
int txn_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
/* The keys that a get-tree gives; NULL: all. To be released. */
struct access *txn_shown_keys(const Pb__TxnOp *op);

#endif
