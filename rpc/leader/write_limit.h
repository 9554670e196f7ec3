/* How many writes of clients a second the whole cluster takes (limits.cluster_write_rate). Each server has one of these, and
 * asks it only for what it is about to append as the leader, so one bucket (base/rate_bucket.h) serves the clients of all agents.
 *
 * (1) Only a write that a client asked for counts (judged.client). Coord's own work is never counted and never refused:
 *     renewals, leases, what agents report of their services and checks, coordinates, ends of what has expired, certificates,
 *     Raft's own entries.
 * (2) A write is taken from the bucket once, however often it is asked about before it is appended.
 * (3) A new leadership (another term) begins with a full bucket.
 *
 * Pure: the time is an argument. One thread, the loop's. */
#ifndef COORD_RPC_WRITE_LIMIT_H
#define COORD_RPC_WRITE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct judged;

struct write_limit_config {
    uint64_t rate;   /* writes a second; 0: no limit */
    bool permissive; /* what is above it is only counted */
};
struct write_limit { /* zeroed but for the configuration */
    struct write_limit_config config;
    uint64_t term, full_ns;
};

enum write_verdict {
    WRITE_TAKEN,   /* it may be appended */
    WRITE_ABOVE,   /* it is above the rate, and may be appended all the same */
    WRITE_REFUSED, /* it is above the rate; asked again later, it may be taken */
};
/* `judged`: of the write; NULL: coord's own. `term`: of this server's leadership. */
enum write_verdict write_limit_judge(struct write_limit *limit, struct judged *judged, uint64_t term, uint64_t now_ns);

#endif
