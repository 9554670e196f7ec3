/* How many requests a second one address may make, one token, and all clients of this process together (limits.* of the
 * configuration; reads and writes apart).
 *
 * Each rate is a bucket (base/rate_bucket.h). A bucket that is full need not be known, so a table of a fixed size serves any number of clients: among more clients than it has places, those
 * whose buckets are next to being full are forgotten first, and then begin with a full one.
 *
 * Time is an argument. Any thread. */
#ifndef COORD_HTTP_RATE_LIMITS_H
#define COORD_HTTP_RATE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

enum limit {
    LIMIT_READS,
    LIMIT_WRITES,
    LIMIT_ADDRESS_READS,
    LIMIT_ADDRESS_WRITES,
    LIMIT_TOKEN_READS,
    LIMIT_TOKEN_WRITES,
    LIMITS
};
extern const char *const limit_names[LIMITS];  /* "limits.client_read_rate": the key of the configuration */
extern const char *const limit_owners[LIMITS]; /* "one address" */

struct limits_config {
    uint64_t rates[LIMITS]; /* requests a second; 0: no limit */
};

struct limits;
struct limits *limits_new(const struct limits_config *config); /* copied; NULL: nothing is limited */
void limits_free(struct limits *limits);                       /* accepts NULL */

struct limit_client {
    uint64_t address, token; /* hashes; token 0: none, or one that many share */
};
/* Takes a request from each bucket that it counts for, or from none. 0: it may go on; else so many ns later it may, as far as
 * *over is concerned, the bucket that is empty for longest. */
uint64_t limits_take(struct limits *limits, const struct limit_client *client, bool write, uint64_t now_ns,
                     enum limit *over);

#endif
