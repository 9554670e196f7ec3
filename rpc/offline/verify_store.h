/* For rpc/offline/verify.c: reads the store to its end in a child process, because a read error through a map ends the
 * process. */
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
