/* One check: when it is to run and what its results mean. Pure: time (monotonic nanoseconds), chance and results are
 * arguments; nothing is run, locked or sent here.
 *
 * check_init --> [check_step: wait | run | expire | settle | deregister] --> check_result / check_set --> check_step
 * ...
 *
 * Active checks (all kinds but TTL and alias) run every interval, counted from the start of the last run; two runs of
 * one check never overlap. A result changes the status only after as many equal ones in a row as the definition asks
 * for. Clients report the status of a TTL check (check_set); it becomes critical when no report came for a TTL, and a
 * restart of the agent does not extend that time (check_resume). An alias check looks at its target whenever that may
 * have changed (check_hurry), and once a minute. The thresholds do not apply to these two kinds. Damping (flap.h)
 * applies to all. */
#ifndef COORD_HEALTH_CHECK_H
#define COORD_HEALTH_CHECK_H

#include "health/flap.h"
#include "health/local.h"

#define CHECK_NEVER UINT64_MAX

struct check {
    Pb__Status status; /* as the catalog shows it; flap.said: as the check reported it */
    struct flap flap;
    uint64_t successes, failures;      /* in a row */
    uint64_t due_ns;                   /* next run, or the TTL's end */
    uint64_t started_ns;               /* of the run that is under way */
    uint64_t changed_ns;               /* when `status` changed last, as far as this agent knows */
    uint64_t ended_ns;                 /* of the last run */
    int64_t reported_ns;               /* TTL: when its status was reported; may lie before the clock began */
    bool running, has_result, hurried; /* has_result of a TTL: a client reported its status */
    bool held;                         /* damping held `status` when the check was last looked at */
    uint64_t critical_since_ns;        /* as the check reported it, damped or not; CHECK_NEVER: it is not */
    uint64_t spared_ns;                /* it deregisters no service before; CHECK_NEVER: not before its first result */
};

/* `check` is zeroed, or has ended (check_end). `delay_ns`: until the first run, where the kind has runs. The status is
 * the definition's initial one. */
void check_init(struct check *check, const struct check_definition *definition, uint64_t now_ns, uint64_t delay_ns);
/* From now on damping holds the status after more than `flap_limit` changes within the window. Without this call, or
 * with a limit of 0, there is no damping. */
void check_damp(struct check *check, uint32_t flap_limit, uint64_t window_ns);
void check_end(struct check *check);
/* Makes the delay of a check's first run from a random number, so that the runs of many checks spread. It is below the
 * interval and below 5 s, because the catalog shows the status from before the agent's restart until then. `fresh` (the
 * check was just registered, and a client may wait for its result): below one second. */
uint64_t check_first_delay_ns(const struct check_definition *definition, bool fresh, uint64_t random);

/* Tells the caller what to do now. CHECK_DO_RUN: it begins a run, and reports the end with check_result or
 * check_abandon. CHECK_DO_EXPIRE: the TTL has passed and the check has just become critical. CHECK_DO_SETTLE: damping
 * has let go of the check, or holds it at a better status; the caller publishes that. CHECK_DO_DEREGISTER: the check
 * has been critical for longer than its definition allows; the caller removes the service. If the check stays after
 * all, this comes again only after another such period. *next_ns: the caller asks again then at the latest
 * (CHECK_NEVER: after an event). */
enum check_action { CHECK_DO_NOTHING, CHECK_DO_RUN, CHECK_DO_EXPIRE, CHECK_DO_SETTLE, CHECK_DO_DEREGISTER };
enum check_action check_step(struct check *check, const struct check_definition *definition, uint64_t now_ns,
                             uint64_t *next_ns);

/* End of a run. True: status and output count now; false: a threshold holds the old ones. */
bool check_result(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t now_ns);
void check_abandon(struct check *check);
/* The caller does not make the run that check_step has just ordered; the check is due again at `due_ns`. */
void check_postpone(struct check *check, uint64_t due_ns);
/* The check runs at once. If it runs already, it runs again as soon as that run has ended. */
void check_hurry(struct check *check, uint64_t now_ns);
/* A client reports the status of a TTL check: a new TTL begins. */
void check_set(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t now_ns);
/* Takes over the status that the check had before the agent was restarted or its definition changed, and that was
 * reported `age_ns` ago. The rest of its TTL runs on; a TTL that has passed already expires at the next step. */
#define CHECK_AGE_UNKNOWN UINT64_MAX
void check_resume(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t age_ns,
                  uint64_t now_ns);
/* The check has been critical for `age_ns`, since before the restart. It does not deregister its service before its
 * client had one TTL to report something better, or, for other kinds, before its first result. */
void check_critical_since(struct check *check, const struct check_definition *definition, uint64_t age_ns,
                          uint64_t now_ns);
/* Damping holds the status, because the check changed too often. */
static inline bool check_held(const struct check *check) { return check->held; }

#endif
