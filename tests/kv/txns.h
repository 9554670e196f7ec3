/* Transactions for the tests of this folder: operations in a line each, and the answer as text. */
#ifndef COORD_TESTS_KV_TXNS_H
#define COORD_TESTS_KV_TXNS_H

#include "answers.h"
#include "kv/txn/txn.h"

/* A transaction being made. Zero-initialise; txn_begin; txn_free. */
struct txn {
    struct arena arena;
    Pb__TxnCommand command;
    bool otherwise; /* operations that follow are those of Else */
};
void txn_begin(struct txn *txn); /* forgets the one before */
void txn_free(struct txn *txn);

/* Each adds an operation, and returns it. NULL: none. `number`: the index of cas, delete-cas and check-index, else the
 * flags. `session`: of lock, unlock and check-session. */
Pb__TxnOp *txn_key(struct txn *txn, Pb__TxnVerb verb, const char *key, const char *value, uint64_t number,
                   const char *session);
#define KEY_SET(txn, key, value) txn_key(txn, PB__TXN_VERB__TXN_SET, key, value, 0, NULL)
#define KEY_GET(txn, key)        txn_key(txn, PB__TXN_VERB__TXN_GET, key, NULL, 0, NULL)
Pb__TxnOp *txn_node(struct txn *txn, Pb__TxnVerb verb, const char *node, const char *address, uint64_t index);
Pb__TxnOp *txn_service(struct txn *txn, Pb__TxnVerb verb, const char *node, const char *id, uint32_t port,
                       uint64_t index);
Pb__TxnOp *txn_check(struct txn *txn, Pb__TxnVerb verb, const char *node, const char *id, Pb__Status status,
                     uint64_t index);
Pb__TxnOp *txn_session_end(struct txn *txn, const char *id);
Pb__TxnOp *txn_fence(struct txn *txn, const char *resource, uint64_t token, const char *lock);

Pb__TxnCompare *txn_compare_key(struct txn *txn, const char *key, Pb__TxnField field, Pb__TxnRelation relation,
                                uint64_t number, const char *text);
/* Of a record (`id` NULL: a node), or with PB__TXN_FIELD__TXN_HELD of a lock or an election by its name `id`. */
Pb__TxnCompare *txn_compare_thing(struct txn *txn, Pb__TxnThing thing, const char *node, const char *id,
                                  Pb__TxnField field, uint64_t number);

/* Applies it as one entry. The answer, until the next call: "ok" and the results ("a=1" with value, "a" without, "node
 * n1 10.0.0.1", "service n1/web:80", "check n1/c:passing"), or "failed" and the errors ("1: key ..."). The choice of a
 * conditional one stands before: "then: ", "else: ". */
const char *txn_do(struct fixture *world, const struct txn *txn);
const char *txn_ask(struct fixture *world, const struct txn *txn); /* the same, as a query */
const char *txn_answer_text(const Pb__TxnAnswer *answer, bool conditional);

#endif
