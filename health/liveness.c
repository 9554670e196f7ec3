#include "health/liveness.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

#define RENEWALS        3 /* in a TTL */
#define RENEWAL_MOST_MS 10000
#define AGAIN_LEAST_MS  100
#define AGAIN_MOST_MS   2000
#define TAKEN_AGAIN_MS  1000
#define TAKEN_MOST_MS   3000
/* an agent that loses the lease again and again within this time shares its name with another agent */
#define SHORT_MS           60000
#define LOST_MOST_MS       30000
#define TELL_MS            60000
#define DENIED_AGAIN_MS    5000
#define COMPARED_WITHIN_MS 10000 /* spreads the comparisons of all agents of a cluster */

static bool mutated(const struct liveness *liveness, enum liveness_mutation rule) {
    return liveness->rules.mutations & rule;
}

/* -- states ------------------------------------------------------------------------------------------------------- */

static void become(struct liveness *liveness, enum liveness_state state) {
    if (state != liveness->state) liveness->changed = true;
    liveness->state = state;
}

static void later(struct liveness *liveness, uint64_t now_ms) {
    liveness->again_ms = liveness->again_ms ? liveness->again_ms * 2 : AGAIN_LEAST_MS;
    if (liveness->again_ms > AGAIN_MOST_MS) liveness->again_ms = AGAIN_MOST_MS;
    liveness->next_ms = now_ms + liveness->again_ms / 2 + rng_below(&liveness->rng, liveness->again_ms);
}

uint64_t liveness_period_ms(int64_t ttl_ns) {
    uint64_t period_ms = (uint64_t)ttl_ns / 1000000 / RENEWALS;
    return period_ms < RENEWAL_MOST_MS ? period_ms : RENEWAL_MOST_MS;
}

/* Renews up to a tenth of the period early, at random, so that agents that were started together drift apart. */
static void renew_later(struct liveness *liveness, uint64_t now_ms) {
    uint64_t period_ms = liveness_period_ms(liveness->rules.ttl_ns);
    liveness->again_ms = 0;
    liveness->next_ms = now_ms + period_ms - period_ms / 10 + rng_below(&liveness->rng, period_ms / 10 + 1);
}

uint64_t liveness_lost_wait_ms(unsigned lost) {
    uint64_t wait_ms = TAKEN_AGAIN_MS;
    if (lost <= 2) return 0;
    for (unsigned i = 3; i < lost && wait_ms < LOST_MOST_MS; i++) wait_ms *= 2;
    return wait_ms < LOST_MOST_MS ? wait_ms : LOST_MOST_MS;
}

static void ended(struct liveness *liveness, uint64_t now_ms) {
    log_warn("health", "the lease of this node has ended, a new one is asked for node=%s", liveness->rules.node);
    liveness->lost = now_ms - liveness->granted_ms < SHORT_MS ? liveness->lost + 1 : 1;
    liveness->next_ms = now_ms + liveness_lost_wait_ms(liveness->lost);
    liveness->stands = false;
    become(liveness, LIVENESS_ASKING);
}

static void left(struct liveness *liveness, int error) {
    if (liveness->state == LIVENESS_GONE) return; /* the answer came too late */
    liveness->state = LIVENESS_GONE;
    liveness->has_left = true;
    liveness->left_error = error;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void tell_taken(struct liveness *liveness, const char *text, uint64_t now_ms) {
    if (liveness->told_ms && now_ms - liveness->told_ms < TELL_MS) return;
    liveness->told_ms = now_ms;
    log_warn("health", "another agent has this node's name: waiting until its lease has ended node=%s reason=\"%s\"",
             liveness->rules.node, text);
}

static void granted(struct liveness *liveness, const struct liveness_answer *answer, uint64_t now_ms) {
    snprintf(liveness->id, sizeof liveness->id, "%s", answer->id);
    liveness->stands = false;
    if (liveness->told_ms)
        log_info("health", "this node's name is free, its lease is granted node=%s", liveness->rules.node);
    liveness->told_ms = liveness->taken_ms = 0;
    liveness->granted = true, liveness->denied = false;
    liveness->granted_ms = now_ms;
    renew_later(liveness, now_ms);
    become(liveness, LIVENESS_HELD);
}

/* Asks less and less often, because each request costs an entry of the log. */
static void taken(struct liveness *liveness, const struct liveness_answer *answer, uint64_t now_ms) {
    tell_taken(liveness, answer->text, now_ms);
    liveness->taken_ms = liveness->taken_ms ? liveness->taken_ms * 3 / 2 : TAKEN_AGAIN_MS;
    if (liveness->taken_ms > TAKEN_MOST_MS) liveness->taken_ms = TAKEN_MOST_MS;
    liveness->next_ms = now_ms + liveness->taken_ms;
    become(liveness, LIVENESS_WAITING);
}

/* The agent's token lacks node:write, or is no token. */
static void denied(struct liveness *liveness, const char *text, uint64_t now_ms) {
    if (!liveness->denied)
        log_warn("health",
                 "the lease of this node is denied to its agent, so nothing of it is in the catalog node=%s: %s",
                 liveness->rules.node, text);
    liveness->denied = true;
    liveness->next_ms = now_ms + DENIED_AGAIN_MS / 2 + rng_below(&liveness->rng, DENIED_AGAIN_MS);
}

static void asked(struct liveness *liveness, const struct liveness_answer *answer, uint64_t now_ms) {
    if (answer->error == CO_OK && answer->refused == CO_OK) granted(liveness, answer, now_ms);
    else if (answer->error == CO_OK && (answer->refused == CO_DENIED || answer->refused == CO_NOTOKEN))
        denied(liveness, answer->text, now_ms);
    else if (answer->error == CO_OK && answer->refused == CO_EXISTS) taken(liveness, answer, now_ms);
    else {
        if (answer->error == CO_OK) log_warn("health", "the lease of this node is refused: %s", answer->text);
        later(liveness, now_ms);
    }
}

/* The leader tells when it last took in a backup. Only a comparison finds the records that the backup lacks: the lease
 * may be in the backup, and then its renewals succeed as if nothing had happened. */
static void renewed(struct liveness *liveness, uint64_t restored, uint64_t now_ms) {
    if (liveness->state == LIVENESS_HELD) renew_later(liveness, now_ms);
    if (restored == 0 || restored == liveness->restored) return;
    liveness->restored = restored;
    log_info("health", "the servers have taken in a backup: the catalog is compared with what is here index=%" PRIu64,
             restored);
    liveness->compares = true;
}

static void not_renewed(struct liveness *liveness, int error, uint64_t now_ms) {
    if (liveness->state != LIVENESS_HELD) return;
    if (error == CO_NOTFOUND && !mutated(liveness, LIVENESS_MUTATE_KEEPS_LOST)) ended(liveness, now_ms);
    else if (mutated(liveness, LIVENESS_MUTATE_NEVER_AGAIN)) liveness->next_ms = LIVENESS_NEVER;
    else later(liveness, now_ms);
}

void liveness_answered(struct liveness *liveness, const struct liveness_answer *answer, uint64_t now_ms) {
    enum liveness_act question = liveness->asked;
    liveness->asked = LIVENESS_REST;
    if (liveness->state == LIVENESS_GONE) return;
    if (question == LIVENESS_GRANT) asked(liveness, answer, now_ms);
    else if (question == LIVENESS_END) left(liveness, answer->error ? answer->error : answer->refused);
    else if (answer->error == CO_OK) renewed(liveness, answer->restored, now_ms);
    else not_renewed(liveness, answer->error, now_ms);
}

/* -- other events ------------------------------------------------------------------------------------------------- */

void liveness_lost(struct liveness *liveness, uint64_t now_ms) {
    if (liveness->state != LIVENESS_HELD || mutated(liveness, LIVENESS_MUTATE_KEEPS_LOST)) return;
    if (liveness->asked == LIVENESS_RENEW) return; /* its answer will tell whether the lease is over */
    ended(liveness, now_ms);
}

void liveness_replace(struct liveness *liveness, const char *lease) {
    if (liveness->state != LIVENESS_HELD || strcmp(lease, liveness->id) != 0) return; /* it is void, or will be */
    if (mutated(liveness, LIVENESS_MUTATE_KEEPS_VOID)) return;
    log_debug("health", "a write may be on its way yet: this node's lease is granted anew node=%s",
              liveness->rules.node);
    liveness->next_ms = 0;
    liveness->stands = true;
    become(liveness, LIVENESS_ASKING);
}

void liveness_leave(struct liveness *liveness, uint64_t now_ms) {
    liveness->leaves = true;
    liveness->leave_by_ms = now_ms + LIVENESS_LEAVE_MS;
}

bool liveness_may_write(const struct liveness *liveness) {
    bool waits = liveness->state == LIVENESS_WAITING && mutated(liveness, LIVENESS_MUTATE_TAKEN_WRITES);
    return liveness->state == LIVENESS_HELD || waits;
}

const char *liveness_lease(const struct liveness *liveness) {
    return liveness->state == LIVENESS_HELD ? liveness->id : NULL;
}

/* -- what is to be done ------------------------------------------------------------------------------------------- */

static struct liveness_order rest(uint64_t until_ms) {
    return (struct liveness_order){.act = LIVENESS_REST, .until_ms = until_ms};
}

static struct liveness_order ask(struct liveness *liveness, enum liveness_act question) {
    liveness->asked = question;
    return (struct liveness_order){.act = question, .lease = liveness->id};
}

static struct liveness_order leaving(struct liveness *liveness, bool known_leader, uint64_t now_ms) {
    bool unheard = !liveness->granted && !known_leader; /* no server knows this node, and no leader is known */
    bool has_lease = liveness->state == LIVENESS_HELD || liveness->stands;
    if (unheard) left(liveness, CO_OK);
    else if (liveness->asked != LIVENESS_REST && now_ms >= liveness->leave_by_ms) left(liveness, CO_TIMEOUT);
    else if (liveness->asked != LIVENESS_REST) return rest(liveness->leave_by_ms);
    else if (has_lease && !mutated(liveness, LIVENESS_MUTATE_STAYS)) return ask(liveness, LIVENESS_END);
    else left(liveness, CO_OK);
    return liveness_next(liveness, known_leader, now_ms);
}

struct liveness_order liveness_next(struct liveness *liveness, bool known_leader, uint64_t now_ms) {
    if (liveness->changed) {
        liveness->changed = false;
        return (struct liveness_order){.act = LIVENESS_CHANGED};
    }
    if (liveness->compares) {
        liveness->compares = false;
        return (struct liveness_order){.act = LIVENESS_COMPARE, .within_ms = COMPARED_WITHIN_MS};
    }
    if (liveness->has_left) {
        liveness->has_left = false;
        return (struct liveness_order){.act = LIVENESS_LEFT, .error = liveness->left_error};
    }
    if (liveness->state == LIVENESS_GONE) return rest(LIVENESS_NEVER);
    if (liveness->leaves) return leaving(liveness, known_leader, now_ms);
    if (liveness->asked != LIVENESS_REST) return rest(LIVENESS_NEVER); /* its answer is an event */
    if (now_ms < liveness->next_ms) return rest(liveness->next_ms);
    return ask(liveness, liveness->state == LIVENESS_HELD ? LIVENESS_RENEW : LIVENESS_GRANT);
}

void liveness_begin(struct liveness *liveness, const struct liveness_rules *rules, uint64_t now_ms) {
    *liveness = (struct liveness){.rules = *rules, .next_ms = now_ms};
    rng_seed(&liveness->rng, rules->seed);
}
