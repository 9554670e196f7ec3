/* How many requests one address, and one token, may have waiting at a time: blocking queries and streams (limits.client_parked,
 * limits.token_parked).
 *
 * A request that begins to wait takes a place, and gives it back once, however its wait ends. Only addresses and tokens with
 * places taken are known, so the table is as large as what waits. Any thread. */
#ifndef COORD_HTTP_PARKED_LIMITS_H
#define COORD_HTTP_PARKED_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum parked_limit { PARKED_ADDRESS, PARKED_TOKEN, PARKED_LIMITS };
extern const char *const parked_limit_names[PARKED_LIMITS];  /* "limits.client_parked": the key of the configuration */
extern const char *const parked_limit_owners[PARKED_LIMITS]; /* "one address" */

struct parked_config {
    uint64_t most[PARKED_LIMITS]; /* 0: no limit */
    bool permissive;              /* what is above a limit is told, and gets a place */
};

struct parked_limits;
struct parked_limits *parked_limits_new(const struct parked_config *config); /* copied; NULL: nothing is limited */
void parked_limits_free(struct parked_limits *limits);                       /* accepts NULL; no place is taken */

struct parked_place { /* of one request; zeroed: it has none */
    uint64_t clients[PARKED_LIMITS];
    bool taken;
};
/* `limits` NULL: nothing is limited. `clients`: hashes of the address and of the token; 0: it counts for none. True: it may wait, and `place`, which had none, has one now. *over:
 * the limit that it is above; PARKED_LIMITS: none. */
bool parked_limits_take(struct parked_limits *limits, const uint64_t clients[PARKED_LIMITS], struct parked_place *place,
                        enum parked_limit *over);
void parked_limits_give(struct parked_limits *limits, struct parked_place *place); /* nothing if it has none */

size_t parked_limits_known(struct parked_limits *limits); /* addresses and tokens in the table */

#endif
