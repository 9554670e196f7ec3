/* The states of checks that a restart of the agent must not forget, in the file DATA/local/states:
 *
 *     head   64 bytes: "coord check states 1\n", the id of this start of the machine (base/boot.h), zeroes
 *     slots  64 bytes each, a struct check_state; one without a check is all zeroes
 *
 * The agent writes a slot in place, without a sync, because the page cache outlives a killed agent. After a crash of
 * the machine a slot may be as old as the kernel's last write-back, or its sum may be wrong; both err towards critical.
 * No slot crosses a page, so a killed agent leaves no half-written slot.
 *
 * Times count from the start of the machine, because that clock does not jump. When the file is from an earlier start
 * of the machine, the reader converts the time of a report by the wall clock: the report is as old as the wall clock
 * says, and not younger than this start of the machine; if the wall clock went back, the report counts as very old.
 * Numbers have the machine's own byte order.
 *
 * Any thread, one at a time: the owner's lock guards it. */
#ifndef COORD_HEALTH_CHECK_STATE_H
#define COORD_HEALTH_CHECK_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "health/check.h"

struct check_state {
    uint8_t key[16];                   /* hash128 of the check's id in folded case */
    int64_t reported_ns, told_wall_ns; /* TTL: when its status was reported */
    int64_t critical_ns;               /* since when it is critical; CHECK_STATE_NO_TIME: it is not */
    uint32_t successes, failures;      /* in a row, as far as thresholds ask for them */
    uint8_t status, unused[7];         /* as the check reported it, damped or not */
    uint64_t sum;                      /* hash64 of the fields before it */
};
#define CHECK_STATE_SIZE    64
#define CHECK_STATE_NO_TIME INT64_MIN
#define CHECK_STATE_NONE    SIZE_MAX

/* One moment on three clocks. */
struct check_moment {
    uint64_t mono_ns, boot_ns;
    int64_t wall_ns;
};
struct check_moment check_moment_now(void);

struct check_states;
/* Reads the file's bytes, or none. It skips slots whose sum is wrong. */
struct check_states *check_states_new(struct slice file, const char *boot_id, struct check_moment now);
void check_states_free(struct check_states *states);

/* Returns the slot of a check that was known before the restart, to its first caller only; else CHECK_STATE_NONE. */
size_t check_states_claim(struct check_states *states, const char *check_id);
/* All claims have been made: slots that nobody claimed are vacated. */
void check_states_settle(struct check_states *states);

/* A check that was just begun (check_init) takes over the slot's state. */
void check_states_resume(const struct check_states *states, size_t slot, struct check *check,
                         const struct check_definition *definition, struct check_moment now);
/* The check has changed, or a client reported its status (`told`). If *slot is CHECK_STATE_NONE, and the check has
 * something to remember, it gets a slot. */
void check_states_note(struct check_states *states, size_t *slot, const char *check_id, const struct check *check,
                       const struct check_definition *definition, bool told, struct check_moment now);
void check_states_drop(struct check_states *states, size_t *slot);

/* check_states_gather appends the bytes that changed since its last call, and sets their place in the file (`*at`);
 * with `whole` it appends the file from its beginning. Both return false when there is nothing to write. `urgent`: a
 * slot is new or its status has changed, not only the time of a report. */
bool check_states_dirty(const struct check_states *states, bool *urgent);
bool check_states_gather(struct check_states *states, bool whole, struct buffer *bytes, uint64_t *at);

#endif
