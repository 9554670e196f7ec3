#include "health/check.h"

#include "base/check.h"

#define SECOND 1000000000ull
/* An alias check runs this often although its target has not changed, in case a change was missed. */
#define ALIAS_PERIOD (60 * (int64_t)SECOND)

static uint64_t later(uint64_t now_ns, int64_t by_ns) {
    uint64_t by = by_ns > 0 ? (uint64_t)by_ns : 0;
    return by > CHECK_NEVER - 1 - now_ns ? CHECK_NEVER - 1 : now_ns + by;
}

static int64_t period_of(const struct check_definition *definition) {
    return definition->kind == CHECK_ALIAS ? ALIAS_PERIOD : definition->interval_ns;
}

static void note_change(struct check *check, Pb__Status before, uint64_t now_ns) {
    if (check->status != before || !check->changed_ns) check->changed_ns = now_ns;
}

static void set_status(struct check *check, Pb__Status status, uint64_t now_ns) {
    Pb__Status before = check->status;
    if (status > PB__STATUS__CRITICAL) status = PB__STATUS__CRITICAL;
    if (status != PB__STATUS__CRITICAL) {
        check->critical_since_ns = CHECK_NEVER;
    } else if (check->critical_since_ns == CHECK_NEVER) {
        check->critical_since_ns = now_ns;
    }
    check->status = flap_say(&check->flap, status, now_ns);
    note_change(check, before, now_ns);
    check->held = flap_holds(&check->flap, now_ns);
}

/* Damping may end, or become milder, because time has passed. True: it has, and the check has to be published. */
static bool settle(struct check *check, uint64_t now_ns) {
    if (!check->held) return false;
    Pb__Status before = check->status;
    check->status = flap_look(&check->flap, now_ns);
    note_change(check, before, now_ns);
    check->held = flap_holds(&check->flap, now_ns);
    return !check->held || check->status != before;
}

void check_init(struct check *check, const struct check_definition *definition, uint64_t now_ns, uint64_t delay_ns) {
    *check = (struct check){.due_ns = CHECK_NEVER, .critical_since_ns = CHECK_NEVER};
    flap_begin(&check->flap, 0, 0, definition->initial_status);
    set_status(check, definition->initial_status, now_ns);
    switch (definition->kind) {
        case CHECK_NONE: break;
        case CHECK_TTL:
            check->reported_ns = (int64_t)now_ns;
            check->due_ns = later(now_ns, definition->ttl_ns);
            break;
        case CHECK_HTTP:
        case CHECK_TCP:
        case CHECK_UDP:
        case CHECK_GRPC:
        case CHECK_H2PING:
        case CHECK_SCRIPT:
        case CHECK_ALIAS:
        case CHECK_OS_SERVICE: check->due_ns = later(now_ns, (int64_t)delay_ns); break;
    }
}

void check_damp(struct check *check, uint32_t flap_limit, uint64_t window_ns) {
    flap_end(&check->flap);
    flap_begin(&check->flap, flap_limit, window_ns, check->status);
    check->held = false;
}

void check_end(struct check *check) { flap_end(&check->flap); }

uint64_t check_first_delay_ns(const struct check_definition *definition, bool fresh, uint64_t random) {
    if (definition->kind == CHECK_ALIAS) return 0;
    uint64_t most = definition->interval_ns > 0 ? (uint64_t)definition->interval_ns : 0;
    uint64_t bound = fresh ? SECOND : 5 * SECOND;
    if (most > bound) most = bound;
    return most ? random % most : 0;
}

/* Only a service's own checks deregister it, because a critical check of the node says nothing about one service. */
static uint64_t deregister_at(const struct check *check, const struct check_definition *definition) {
    bool may = definition->deregister_after_ns > 0 && definition->service_id[0] != '\0';
    if (!may || check->critical_since_ns == CHECK_NEVER) return CHECK_NEVER;
    uint64_t at = later(check->critical_since_ns, definition->deregister_after_ns);
    return at < check->spared_ns ? check->spared_ns : at;
}

enum check_action check_step(struct check *check, const struct check_definition *definition, uint64_t now_ns,
                             uint64_t *next_ns) {
    enum check_action action = CHECK_DO_NOTHING;
    if (check->due_ns <= now_ns && !check->running) {
        if (definition->kind == CHECK_TTL) {
            check->due_ns = CHECK_NEVER;
            set_status(check, PB__STATUS__CRITICAL, now_ns);
            action = CHECK_DO_EXPIRE;
        } else {
            check->running = true;
            check->started_ns = now_ns;
            check->due_ns = CHECK_NEVER;
            action = CHECK_DO_RUN;
        }
    }
    if (action == CHECK_DO_NOTHING && settle(check, now_ns)) action = CHECK_DO_SETTLE;
    uint64_t gone = deregister_at(check, definition);
    if (gone <= now_ns && action == CHECK_DO_NOTHING) {
        action = CHECK_DO_DEREGISTER;
        check->critical_since_ns = now_ns; /* should the service stay after all, another period begins */
        gone = deregister_at(check, definition);
    }
    uint64_t free_ns = flap_due_ns(&check->flap, now_ns);
    *next_ns = gone < check->due_ns ? gone : check->due_ns;
    if (free_ns < *next_ns) *next_ns = free_ns;
    return action;
}

static void run_ended(struct check *check, const struct check_definition *definition, uint64_t now_ns) {
    CHECK(check->running);
    check->running = false;
    check->ended_ns = now_ns;
    uint64_t due = later(check->started_ns, period_of(definition));
    check->due_ns = due < now_ns || check->hurried ? now_ns : due;
    check->hurried = false;
}

bool check_result(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t now_ns) {
    run_ended(check, definition, now_ns);
    check->has_result = true;
    check->spared_ns = 0;
    if (definition->kind == CHECK_ALIAS) {
        set_status(check, status, now_ns);
        return true;
    }
    if (status != PB__STATUS__CRITICAL) {
        check->successes++;
        check->failures = 0;
        if (check->successes < definition->success_before_passing) return false;
        set_status(check, status, now_ns);
        return true;
    }
    check->failures++;
    check->successes = 0;
    if (check->failures >= definition->failures_before_critical) {
        set_status(check, PB__STATUS__CRITICAL, now_ns);
        return true;
    }
    if (check->failures < definition->failures_before_warning) return false;
    if (check->flap.said == PB__STATUS__CRITICAL) return false; /* a failure does not turn critical into warning */
    set_status(check, PB__STATUS__WARNING, now_ns);
    return true;
}

void check_abandon(struct check *check) { check->running = false; }

void check_postpone(struct check *check, uint64_t due_ns) {
    CHECK(check->running);
    check->running = check->hurried = false;
    check->due_ns = due_ns;
}

void check_hurry(struct check *check, uint64_t now_ns) {
    if (check->running) {
        check->hurried = true;
    } else if (check->due_ns > now_ns) {
        check->due_ns = now_ns;
    }
}

void check_set(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t now_ns) {
    check_resume(check, definition, status, 0, now_ns);
    check->spared_ns = 0;
}

void check_resume(struct check *check, const struct check_definition *definition, Pb__Status status, uint64_t age_ns,
                  uint64_t now_ns) {
    set_status(check, status, now_ns);
    if (definition->kind != CHECK_TTL) return;
    uint64_t ttl = definition->ttl_ns > 0 ? (uint64_t)definition->ttl_ns : 0, most = INT64_MAX / 4;
    check->reported_ns = (int64_t)now_ns - (int64_t)(age_ns < most ? age_ns : most);
    check->has_result = age_ns < most;
    if (age_ns < ttl) check->due_ns = later(now_ns, (int64_t)(ttl - age_ns));
    else check->due_ns = status == PB__STATUS__CRITICAL ? CHECK_NEVER : now_ns;
}

void check_critical_since(struct check *check, const struct check_definition *definition, uint64_t age_ns,
                          uint64_t now_ns) {
    check->critical_since_ns = age_ns < now_ns ? now_ns - age_ns : 0;
    check->spared_ns = definition->kind == CHECK_TTL ? later(now_ns, definition->ttl_ns) : CHECK_NEVER;
}
