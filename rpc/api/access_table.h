/* The rules of the requesters that one thread met last. Requesters whose token is nobody's have places of their own, so that
 * many wrong tokens drop no right one. Of a right one that was dropped the rules are found again. One thread. */
#ifndef COORD_RPC_ACCESS_TABLE_H
#define COORD_RPC_ACCESS_TABLE_H

#include "registry/access.h"
#include "rpc/api/requester.h"

struct known_access {
    struct requester *requester; /* NULL: the place is free */
    struct access *access;       /* NULL: there is no such token */
    uint64_t generation;         /* of access control (rpc_access_generation), from before the rules were read */
    int64_t until_unix_ms;       /* they count so long; INT64_MAX: no end */
    uint64_t learned_ms;         /* the owner's: monotonic */
};

struct access_table;
struct access_table *access_table_new(void);
void access_table_free(struct access_table *table); /* accepts NULL */
/* NULL: the requester is not in it, or its time is over. Valid until the next put. */
const struct known_access *access_table_find(struct access_table *table, const struct requester *requester,
                                             int64_t now_unix_ms);
/* Takes over known->access, and keeps known->requester itself. Returns the entry. */
const struct known_access *access_table_put(struct access_table *table, const struct known_access *known);
void access_table_drop(struct access_table *table, const struct requester *requester);

#endif
