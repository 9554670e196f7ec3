/* Is this server's disk fit for leading? From what the log writer and the question for room tell, as of now. Pure;
 * one thread. A disk that is slow, failing or full is degraded, and is so for DISK_WELL_MS after it was last seen to
 * be.
 *
 * It is full from the first batch that does not fit until there is clearly more room than that: else small batches,
 * which still fit, would say that space is back, and the next large one that it is not. */
#ifndef COORD_CONSENSUS_DISK_HEALTH_H
#define COORD_CONSENSUS_DISK_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define DISK_SLOW_MS 500  /* a write and sync of the log that takes longer makes the disk degraded */
#define DISK_WELL_MS 5000 /* so long without a slow one, or one that failed, and it is well again */
#define ROOM_LOOK_MS 250  /* how often a full disk is asked */

struct disk_health {
    bool full, degraded;
    uint64_t degraded_until_ms; /* taken for degraded until then */
    uint64_t room_again;        /* set by the owner: so much room at least ends "full", four times that always does */
    uint64_t room_wanted;       /* while it is full: what ends that */
    uint64_t room_asked_ms;     /* when it was asked last */
};

/* May the disk be asked for room for `*bytes`? While it is full only now and then, and for what would end that:
 * *bytes rises. False: take it for full. A leader asks as it goes; one that was deposed with a full disk has to find
 * out by itself (asks for 0). */
bool disk_health_may_ask(struct disk_health *health, uint64_t now_ms, uint64_t *bytes);
/* What was found; `bytes` as they were before. True: `full` has changed. */
bool disk_health_room(struct disk_health *health, uint64_t now_ms, uint64_t bytes, bool room);
/* `begun_ms`: the log writer waits for the disk since (0: it does not); `bad_ms`: when a write ended that had taken
 * too long, or failed (0: never). True: `degraded` has changed, and the core is to be told. */
bool disk_health_judge(struct disk_health *health, uint64_t now_ms, uint64_t begun_ms, uint64_t bad_ms);

#endif
