/* A server's links to other regions: when a region is asked what, how often the same is told, and what is remembered of
 * others that claim a region's name. Decides only: what happened and the time are its arguments. The acting part is
 * multi-dc/links_run.c, with links_learn.c. rpc/client/connections.h decides
 * which connection a link has, and when its region counts as away; multi-dc/follower.h, what a copy wants next.
 *
 * (1) The leader asks each region that can be reached whom it knows, every LINKS_KNOWN_MS, and who its servers are, every
 *     LINKS_SERVERS_MS. A question waits for the answer to the one before.
 * (2) The same is proposed once in LINKS_TELL_MS, because it stays news until it is applied; how far a region is, once in
 *     LINKS_SEEN_MS.
 * (3) An address of the configuration is asked again after LINKS_JOIN_FIRST_MS, then after twice the time before, up to its
 *     interval; one that worked is asked at the interval, because its name may lead to another region later.
 * (4) The look at all services that are away takes one part in LINKS_LOOK_REST of the time at most.
 * (5) A claim of another cluster is shown for LINKS_CLAIM_MS after it was seen last.
 *
 * Times are milliseconds of any monotonic clock. One thread. All that is zero is at its beginning. */
#ifndef COORD_MULTI_DC_LINKS_H
#define COORD_MULTI_DC_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "multi-dc/region.h"

#define LINKS_KNOWN_MS      5000
#define LINKS_SERVERS_MS    10000
#define LINKS_TELL_MS       2000
#define LINKS_SEEN_MS       2000
#define LINKS_JOIN_FIRST_MS 1000
#define LINKS_JOIN_MS       30000 /* the interval, unless another one is given */
#define LINKS_CLAIM_MS      90000
#define LINKS_LOOK_REST     20
#define LINKS_CLAIMS        8
#define LINKS_TOLD          16

/* -- questions to a region: (1) -- */
enum link_question { LINK_KNOWN, LINK_SERVERS, LINK_QUESTIONS };
struct link_schedule { /* of one link */
    bool asked[LINK_QUESTIONS];
    uint64_t next_ms[LINK_QUESTIONS];
    uint64_t seen_ms; /* how far it is, is told again from then on */
};
/* Is it to be asked now? Then it counts as asked, until its answer came or none will. */
bool link_asks(struct link_schedule *link, enum link_question question, bool reachable, bool leads, uint64_t now_ms);
void link_answered(struct link_schedule *link, enum link_question question);
/* Its servers are news that (2) holds back: they are asked for again soon. */
void link_held_back(struct link_schedule *link, uint64_t now_ms);
/* May it be told now how far the region is? Then it counts as told when `news`. */
bool link_tells_seen(struct link_schedule *link, bool news, uint64_t now_ms);

/* -- what is proposed: (2) -- */
struct links_told {
    char region[REGION_NAME_MAX + 1];
    uint64_t at_ms;
};
bool links_may_tell(struct links_told told[LINKS_TOLD], const char *region, uint64_t now_ms);

/* -- addresses of the configuration: (3) -- */
struct link_join {
    bool joining, worked;
    uint64_t next_ms, wait_ms;
};
enum link_joined { LINK_JOIN_SAID, LINK_JOIN_WORKS, LINK_JOIN_FAILS }; /* nothing new to say; for the first time */
bool link_join_begins(struct link_join *join, uint64_t now_ms);        /* is it due? Then it is under way */
enum link_joined link_join_ended(struct link_join *join, bool worked, uint64_t interval_ms, uint64_t now_ms);

/* -- the look at services that are away: (4) -- */
struct links_look {
    bool under_way;
    uint64_t begun_ms, next_ms;
};
bool links_look_begins(struct links_look *look, uint64_t interval_ms, uint64_t now_ms);
void links_look_ended(struct links_look *look, uint64_t interval_ms, uint64_t now_ms);

/* -- other clusters that claim the name of a region: (5) -- */
struct links_claim {
    char region[REGION_NAME_MAX + 1], address[128];
    uint64_t cluster_id, at_ms;
};
void links_claimed(struct links_claim claims[LINKS_CLAIMS], const char *region, const char *address,
                   uint64_t cluster_id, uint64_t now_ms);
/* NULL: none lately. */
const struct links_claim *links_claim_of(const struct links_claim claims[LINKS_CLAIMS], const char *region,
                                         uint64_t now_ms);

#endif
