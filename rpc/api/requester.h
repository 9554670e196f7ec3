/* The owner of a read or a write: the token that a client sent, or the node whose certificate a connection showed. Reads,
 * writes and renewals carry one (rpc/api/rpc.h), and the server that carries them out finds its rules (rpc_access).
 *
 * NULL stands for coord's own work, which may do everything, and for every client while there is no access control.
 *
 * Any thread. It does not change, and lives until its last reference is released. */
#ifndef COORD_RPC_REQUESTER_H
#define COORD_RPC_REQUESTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* Where the token came from, for the texts of refusals and the audit log. */
enum requester_slot {
    REQUESTER_REQUEST,
    REQUESTER_DEFAULT,
    REQUESTER_ANONYMOUS,
    REQUESTER_NODE,   /* no token: the text is a node's name */
    REQUESTER_REGION, /* no token: the text is the name of a region whose servers follow this one */
};

struct requester {
    _Atomic unsigned references;
    enum requester_slot slot;
    uint64_t hash; /* of the slot's kind and the text, keyed anew by each process: for tables */
    size_t size;
    char text[]; /* the token's secret, or a name; NUL-terminated; wiped when it is freed */
};
#define REQUESTER_TOKEN_MOST       256         /* bytes of a secret; longer ones are nobody's */
#define REQUESTER_ANONYMOUS_SECRET "anonymous" /* as in Consul */

struct requester *requester_new(enum requester_slot slot, struct slice text);
struct requester *requester_keep(const struct requester *requester); /* accepts NULL */
void requester_release(const struct requester *requester);           /* accepts NULL */
uint64_t requester_hash(enum requester_slot slot, struct slice text);
bool requester_is(const struct requester *requester, enum requester_slot slot, struct slice text);
static inline bool requester_equal(const struct requester *a, const struct requester *b) {
    return a == b || (a && b && a->hash == b->hash && requester_is(a, b->slot, slice_make(b->text, b->size)));
}
/* The token for the wire; "" for NULL: the sender's own work. Names of nodes and regions count only where their certificates
 * are seen, so their requests go on as anonymous ones. */
const char *requester_token(const struct requester *requester);

#endif
