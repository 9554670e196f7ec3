/* Is this server's disk fit for leading? Decides it from the log writer's times and errors, and from the free space.
 * Pure; one thread. A disk that is slow, failing or full is degraded, and stays degraded until DISK_WELL_MS after it
 * was last seen so.
 *
 * It is full from the first batch that does not fit until there is clearly more room than that batch needs. Otherwise
 * it would change with each batch: small ones still fit, the next large one does not. */
#ifndef COORD_CONSENSUS_DISK_HEALTH_H
#define COORD_CONSENSUS_DISK_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define DISK_SLOW_MS 500  /* a write and sync of the log that takes longer makes the disk degraded */
#define DISK_WELL_MS 5000 /* a degraded disk is well again after so long without a slow or failed write */
#define ROOM_LOOK_MS 250  /* how often a full disk is asked */

struct disk_health {
    bool full, degraded;
    uint64_t degraded_until_ms; /* it counts as degraded until then */
    uint64_t room_again;        /* set by the owner: at least so much ends "full"; four times that always does */
    uint64_t room_wanted;       /* while it is full: so much room ends that */
    uint64_t room_asked_ms;     /* when it was asked last */
};

/* May the caller ask the disk for room for `*bytes`? While the disk is full, only every ROOM_LOOK_MS, and for the room
 * that would end that: *bytes is raised to it. False: treat the disk as full. A leader asks with each batch; a server
 * that was deposed with a full disk has to ask by itself (for 0 bytes). */
bool disk_health_may_ask(struct disk_health *health, uint64_t now_ms, uint64_t *bytes);
/* Takes the answer; `bytes` as the caller wanted them, before they were raised. True: `full` has changed. */
bool disk_health_room(struct disk_health *health, uint64_t now_ms, uint64_t bytes, bool room);
/* `begun_ms`: the log writer waits for the disk since (0: it does not); `bad_ms`: when a write ended that had taken
 * too long, or failed (0: never). True: `degraded` has changed, and the core is to be told. */
bool disk_health_judge(struct disk_health *health, uint64_t now_ms, uint64_t begun_ms, uint64_t bad_ms);

#endif
