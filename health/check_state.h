/* What a restart of the agent must not forget of its checks, in the file DATA/local/states:
 *
 *     head   64 bytes: "coord check states 1\n", the id of this start of the machine (base/boot.h), zeroes
 *     slots  64 bytes each, a struct check_state; one without a check is all zeroes
 *
 * A slot is written in place, without a sync: the page cache outlives a killed agent. What a crash of the machine
 * leaves of it is as old as the last write-back or does not add up; both err towards critical. No slot crosses a page,
 * so a kill tears none.
 *
 * Times are those since the machine was started, which do not jump. Those of an earlier start are converted when the
 * file is read, by the wall clock: the time of a report then lies as far back as the wall clock says, and before this
 * start in any case; where the wall clock went back it lies far back. The numbers are the machine's own.
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
    uint8_t key[16];                   /* hash128 of the check's id, which has no case */
    int64_t reported_ns, told_wall_ns; /* TTL: when its status was reported */
    int64_t critical_ns;               /* since when it is critical; CHECK_STATE_NO_TIME: it is not */
    uint32_t successes, failures;      /* in a row, as far as thresholds ask for them */
    uint8_t status, unused[7];         /* as the check has it, damped or not */
    uint64_t sum;                      /* hash64 of what stands before */
};
#define CHECK_STATE_SIZE    64
#define CHECK_STATE_NO_TIME INT64_MIN
#define CHECK_STATE_NONE    SIZE_MAX

/* A moment on the clocks that count here. */
struct check_moment {
    uint64_t mono_ns, boot_ns;
    int64_t wall_ns;
};
struct check_moment check_moment_now(void);

struct check_states;
/* Of the file's bytes, or of none. Slots that do not add up are left out. */
struct check_states *check_states_new(struct slice file, const char *boot_id, struct check_moment now);
void check_states_free(struct check_states *states);

/* The slot of a check that was known before the restart, once; CHECK_STATE_NONE. */
size_t check_states_claim(struct check_states *states, const char *check_id);
/* Nobody will claim any more: what was not claimed goes. */
void check_states_settle(struct check_states *states);

/* The check that has been begun anew (check_init) takes up the slot's state. */
void check_states_resume(const struct check_states *states, size_t slot, struct check *check,
                         const struct check_definition *definition, struct check_moment now);
/* The check has changed, or was told its status (`told`). *slot may be NONE: one is made where there is something to
 * remember. */
void check_states_note(struct check_states *states, size_t *slot, const char *check_id, const struct check *check,
                       const struct check_definition *definition, bool told, struct check_moment now);
void check_states_drop(struct check_states *states, size_t *slot);

/* What is to be written since the last call, as the bytes at `*at` of the file; or the file from its beginning.
 * False: nothing. `urgent`: a status is among it, not only the time of a report. */
bool check_states_dirty(const struct check_states *states, bool *urgent);
bool check_states_gather(struct check_states *states, bool whole, struct buffer *bytes, uint64_t *at);

#endif
