/* One check: when it is to run and what its results mean. Pure: time (monotonic nanoseconds), chance and results are
 * arguments; nothing is run, locked or sent here.
 *
 * check_init --> [check_step: wait | run | expire | settle | deregister] --> check_result / check_set --> check_step
 * ...
 *
 * Checks that look for themselves run every interval, counted from the start of the last run, never two at once. A
 * result changes the status only after as many equal ones in a row as the definition asks for. TTL checks are told
 * their status (check_set) and become critical when nobody has told them anything for a TTL, restarts of the agent
 * included (check_resume). Alias checks look
 * whenever their target may have changed (check_hurry), and now and then. The thresholds do not apply to these two.
 * Damping (flap.h) applies to all. */
#ifndef COORD_HEALTH_CHECK_H
#define COORD_HEALTH_CHECK_H

#include "health/flap.h"
#include "health/local.h"

#define CHECK_NEVER UINT64_MAX

struct check {
    Pb__Status status; /* as the world is told; flap.said: as the check has it */
    struct flap flap;
    uint64_t successes, failures;      /* in a row */
    uint64_t due_ns;                   /* next run, or the TTL's end */
    uint64_t started_ns;               /* of the run that is out */
    uint64_t changed_ns;               /* since when `status` is what it is, as far as is known here */
    uint64_t ended_ns;                 /* of the last run */
    int64_t reported_ns;               /* TTL: when its status was reported; may lie before the clock began */
    bool running, has_result, hurried; /* has_result of a TTL: its status was reported, as far as is known */
    bool held;                         /* when last looked at */
    uint64_t critical_since_ns;        /* as the check has it, damped or not; CHECK_NEVER: it is not */
    uint64_t spared_ns;                /* it deregisters nothing before; CHECK_NEVER: before its first result */
};

/* `delay_ns`: until the first run (where it runs). Status is the definition's initial one. Of a zeroed struct, or
 * one that has ended. */
void check_init(struct check *check, const struct check_definition *definition, uint64_t now_ns, uint64_t delay_ns);
/* From now on more than `flap_limit` changes within the window hold it. Without this call, and with 0, nothing does. */
void check_damp(struct check *check, uint32_t flap_limit, uint64_t window_ns);
void check_end(struct check *check);
/* Delay of the first run from any random number: below the interval and 5 s, so that checks spread, but what the
 * catalog said before the agent was restarted does not stand for long; `fresh` (just registered, somebody waits for
 * it): below one second. */
uint64_t check_first_delay_ns(const struct check_definition *definition, bool fresh, uint64_t random);

/* What is to be done now. CHECK_DO_RUN: a run begins (the caller reports its end with check_result or
 * check_abandon). CHECK_DO_EXPIRE: the TTL has passed and the check has just become critical. CHECK_DO_SETTLE: it is
 * not held any more, or not as low, and its status is another now. CHECK_DO_DEREGISTER: critical for longer than it
 * may be; said once. *next_ns: when to ask again at the latest (CHECK_NEVER: when something happens). */
enum check_action { CHECK_DO_NOTHING, CHECK_DO_RUN, CHECK_DO_EXPIRE, CHECK_DO_SETTLE, CHECK_DO_DEREGISTER };
enum check_action check_step(struct check *check, const struct check_definition *definition, uint64_t now_ns,
                             uint64_t *next_ns);

/* End of a run. True: status and output count now; false: a threshold holds the old ones. */
bool check_result(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t now_ns);
void check_abandon(struct check *check);
/* The run that has just begun is not made; again at `due_ns`. */
void check_postpone(struct check *check, uint64_t due_ns);
/* It is to run at once. One that runs already is to run again as soon as it has ended. */
void check_hurry(struct check *check, uint64_t now_ns);
/* Somebody reports the status of a TTL check: a new TTL begins. */
void check_set(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t now_ns);
/* A status that it had before the agent was restarted or its definition changed, and that was reported `age_ns` ago:
 * what is left of the TTL goes on, and one that has passed expires at the next step. */
#define CHECK_AGE_UNKNOWN UINT64_MAX
void check_resume(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t age_ns,
                  uint64_t now_ns);
/* It was critical before the restart, for `age_ns`. It is spared until whoever looks after it had a chance to tell
 * otherwise: for a TTL, or until its first result. */
void check_critical_since(struct check *check, const struct check_definition *definition, uint64_t age_ns,
                          uint64_t now_ns);
/* Damping keeps its own word back. */
static inline bool check_held(const struct check *check) { return check->held; }

#endif
