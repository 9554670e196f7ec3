/* For rpc/offline/verify.c: the store, read to its end in a process of its own, because a disk that cannot be read ends the
 * one that reads it through a map. */
#ifndef COORD_RPC_VERIFY_STORE_H
#define COORD_RPC_VERIFY_STORE_H

#include "rpc/offline/verify.h"

struct verify_store {
    struct fault fault; /* code CO_OK: whole */
    bool there, trusted, fenced;
    char fence[400]; /* why the self-audit has fenced it */
    uint64_t applied, term, records, sum;
};
void verify_store_look(const struct verify_config *config, struct verify_store *out);

#endif
