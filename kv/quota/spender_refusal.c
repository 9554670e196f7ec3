/* Refusals, and their ends: a refusal ends with its reason (kv/quota/spender.h). */
#include "base/error.h"
#include "kv/quota/spender_internal.h"

#define EARLY_MS  50   /* a take waits for tokens that are expected this soon */
#define LINE_MS   950  /* the first take also this long before, if others got all tokens before */
#define WAIT_MS   1000 /* and until this long after the expected time */
#define LATE_MS   200  /* if no news of the expected tokens comes, the agent asks one to two times this later */
#define VAIN_MS   1000 /* if refills come more often, the longest distance of asks in vain */
#define SLOT_MS   20   /* for agents that ask when tokens have come */
#define SLOTS     16
#define SLOTS_MS  300 /* all of them together */
#define SPREAD_MS 400 /* within a slot, at most */

static uint64_t period_ns(const struct spender_budget *budget) {
    return quota_refill_period_ms(&budget->definition) * SPENDER_MS;
}

static bool has_windows(const struct spender_budget *budget) {
    return budget->definition.window != PB__QUOTA_WINDOW__QUOTA_CONTINUOUS;
}

/* The distance of asks without news, because others may give tokens back while no notice comes. */
static uint64_t poll_ns(const struct spender_budget *budget) { return spender_ttl_ns(budget) / 2 + 1000 * SPENDER_MS; }

/* -- the next tokens ---------------------------------------------------------------------------------------------- */

/* The servers' window counts. Until the leader has noted it, the window by this agent's clock may count. */
static uint64_t next_window_ns(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns) {
    if (!spender->wall_known) return now_ns + poll_ns(budget);
    int64_t now_ms = spender->wall_ms + (int64_t)(now_ns / SPENDER_MS);
    int64_t here_s = quota_window_start(&budget->definition, now_ms / 1000), start_s = budget->window_s;
    if (!budget->window_noted && here_s > start_s) start_s = here_s;
    int64_t left_ms = quota_window_end(&budget->definition, start_s) * 1000 - now_ms;
    if (left_ms >= 0) return now_ns + (uint64_t)left_ms * SPENDER_MS;
    return spender_less(now_ns, (uint64_t)-left_ms * SPENDER_MS);
}

/* The latest time of the next refill, if nothing is wrong. The servers' time runs from a refill, or from the first
 * entry that spent something. */
static uint64_t next_refill_ns(const struct spender_budget *budget, uint64_t waited_ms, uint64_t now_ns) {
    uint64_t at_ns = now_ns + spender_less(period_ns(budget), waited_ms * SPENDER_MS);
    return budget->period ? spender_min(at_ns, budget->period_ns + period_ns(budget)) : at_ns;
}

/* -- a refusal ---------------------------------------------------------------------------------------------------- */

static uint64_t slots_of(const struct spender_budget *budget) { return spender_min(2 * budget->leases, SLOTS); }
static uint64_t slot_ns(const struct spender_budget *budget) {
    CHECK(budget->leases > 0);
    return spender_min(SLOT_MS * SPENDER_MS, SLOTS_MS * SPENDER_MS / slots_of(budget));
}
static uint64_t spread_ns(const struct spender_budget *budget) {
    return spender_min(spender_max(slot_ns(budget), budget->leases * SPENDER_MS / 3), SPREAD_MS * SPENDER_MS);
}

/* The turn of this agent to ask for tokens that came. An agent that got nothing from more of the former ones asks
 * earlier, so that agents that just got something do not overtake it; and not all ask at the same time. */
static uint64_t slot_of(const struct spender_budget *budget) {
    return budget->leases > 1 ? spender_less(slots_of(budget) - 1, budget->missed) * slot_ns(budget) : 0;
}
static uint64_t turn_ns(struct spender *spender, const struct spender_budget *budget) {
    return budget->leases > 1 ? slot_of(budget) + rng_below(&spender->rng, spread_ns(budget)) : 0;
}

static void came(struct spender_budget *budget, uint64_t index, uint64_t now_ns) {
    budget->came = index;
    if (budget->in_vain) budget->missed++;
    budget->round_ns = budget->leases > 1 ? now_ns + slots_of(budget) * slot_ns(budget) + spread_ns(budget) : 0;
}

/* Notes a refill period. It began before the news of it, so the next refill comes earlier too. */
static void period_is(struct spender_budget *budget, uint64_t index, uint64_t now_ns) {
    if (index != budget->period) budget->period = index, budget->period_ns = now_ns;
}

/* The least distance of asks in vain. */
static uint64_t vain_ns(const struct spender_budget *budget) {
    if (spender_bounded(budget) || has_windows(budget) || period_ns(budget) >= VAIN_MS * SPENDER_MS ||
        budget->in_vain < 2)
        return 0;
    unsigned doubled = budget->in_vain - 1 < 10 ? budget->in_vain - 1 : 10;
    return spender_min(period_ns(budget) << doubled, VAIN_MS * SPENDER_MS);
}

static void refuse_until(struct spender *spender, struct spender_budget *budget, uint64_t at_ns, uint64_t now_ns) {
    if (at_ns > now_ns) {
        CHECK(at_ns != SPENDER_NEVER); /* each refusal ends */
        budget->refused_ns = at_ns;
        spender_tick_at(spender, at_ns);
        return;
    }
    budget->refused_ns = 0;
    spender_wake(spender);
}

/* The level was counted with fewer tokens. */
static void forget_level(struct spender_budget *budget) {
    if (!spender_bounded(budget)) budget->reach = budget->keyless_reach = budget->most;
}

/* The reason of the refusal is over, because there may be tokens now. `fits` counts no longer, so that takes of all
 * sizes wait for the turn. */
static void reason_over(struct spender *spender, struct spender_budget *budget, uint64_t now_ns) {
    budget->more_ns = now_ns;
    budget->fits = 0;
    forget_level(budget);
    refuse_until(spender, budget, spender_max(now_ns + turn_ns(spender, budget), budget->vain_ns), now_ns);
}

/* Refuses until tokens are expected, and asks a while later if no news of them comes. */
static void remember(struct spender *spender, struct spender_budget *budget, uint64_t more_ns, uint64_t now_ns) {
    uint64_t late_ns = (LATE_MS + rng_below(&spender->rng, LATE_MS)) * SPENDER_MS;
    uint64_t late_since_ns = spender_less(now_ns, more_ns); /* perhaps the clocks differ by this much */
    uint64_t at_ns = spender_min(spender_max(more_ns, now_ns) + late_ns + late_since_ns, now_ns + poll_ns(budget));
    if (has_windows(budget) && !budget->window_noted) at_ns = spender_min(at_ns, now_ns + late_ns);
    budget->more_ns = more_ns;
    budget->vain_ns = now_ns + vain_ns(budget);
    if (spender->mutations & SPENDER_MUTATE_REMEMBERS) budget->more_ns = at_ns = now_ns + poll_ns(budget);
    refuse_until(spender, budget, spender_max(at_ns, budget->vain_ns), now_ns);
}

void spender_refused(struct spender *spender, struct spender_budget *budget, const Pb__QuotaGrant *grant,
                     uint64_t now_ns) {
    budget->fits = grant ? budget->available : 0;
    if (!grant) remember(spender, budget, now_ns + poll_ns(budget), now_ns);
    else if (has_windows(budget)) remember(spender, budget, next_window_ns(spender, budget, now_ns), now_ns);
    else remember(spender, budget, next_refill_ns(budget, grant->waited_ms, now_ns), now_ns);
    /* Tokens have come since, and their notice was faster than this grant. */
    if (grant && grant->came < budget->came && !(spender->mutations & SPENDER_MUTATE_REMEMBERS))
        reason_over(spender, budget, now_ns);
}

/* Levels give all agents the same. Bounded mode has none, so an agent that was served waits until all others had their
 * turn. */
void spender_served(struct spender *spender, struct spender_budget *budget, uint64_t now_ns) {
    if (!spender_bounded(budget) || now_ns >= budget->round_ns) return;
    budget->more_ns = now_ns;
    budget->fits = 0;
    refuse_until(spender, budget, budget->round_ns, now_ns);
}

void spender_heard(struct spender_budget *budget, const Pb__QuotaGrant *grant, uint64_t now_ns) {
    budget->leases = grant->leases, budget->owed = grant->owed, budget->stock = budget->available;
    if (grant->came < budget->came) return;
    budget->window_s = grant->window, budget->window_noted = grant->window_noted;
    period_is(budget, grant->period_index, now_ns);
    if (grant->came > budget->came) came(budget, grant->came, now_ns);
}

void spender_noticed(struct spender *spender, struct spender_budget *budget, const Pb__QuotaNotice *notice, bool anew,
                     uint64_t now_ns) {
    bool more = notice->came > budget->came;
    if (notice->came < budget->came) return; /* from a server that is behind */
    budget->leases = notice->leases, budget->owed = notice->owed, budget->stock = notice->left;
    budget->window_s = notice->window, budget->window_noted = notice->window_noted;
    period_is(budget, notice->period_index, now_ns);
    if (more) came(budget, notice->came, now_ns);
    if (spender->mutations & SPENDER_MUTATE_REMEMBERS) return;
    bool is_refused = budget->refused_ns > now_ns;
    /* An agent without a refusal takes its turn too. */
    if (is_refused ? more || anew : more && budget->ever) reason_over(spender, budget, now_ns);
    bool waits = budget->refused_ns > now_ns && budget->more_ns <= now_ns;
    if (!waits || !notice->denied || notice->left) return;
    /* Others have taken everything, so an ask would be in vain. */
    uint64_t more_ns =
        has_windows(budget) ? next_window_ns(spender, budget, now_ns) : next_refill_ns(budget, 0, now_ns);
    if (more_ns <= now_ns) return;
    remember(spender, budget, more_ns, now_ns);
    spender_wake(spender);
}

/* -- refused takes ------------------------------------------------------------------------------------------------ */

/* A client that sleeps for whole seconds may always come when others have just taken all tokens. So one take waits in
 * line, and this agent asks for it in its turn. */
static bool may_wait_long(const struct spender_budget *budget, uint64_t now_ns) {
    if (!budget->missed || budget->leases <= 1) return false;
    return now_ns + LINE_MS * SPENDER_MS >= budget->more_ns + slot_of(budget) + spread_ns(budget);
}

/* The most tokens that come at once. */
static uint64_t comes(const struct spender_budget *budget) {
    uint32_t next;
    return has_windows(budget) ? budget->capacity : quota_refill_part(&budget->definition, 0, &next);
}

bool spender_in_line(const struct spender *spender, const struct spender_budget *budget) {
    return budget->line_turn == spender->turn && budget->in_line;
}

/* Only as many takes wait as can be served. */
bool spender_waits_for_more(const struct spender *spender, struct spender_budget *budget, uint64_t n, uint64_t now_ns) {
    uint64_t in_line = spender_in_line(spender, budget) ? budget->in_line : 0;
    bool near = now_ns + EARLY_MS * SPENDER_MS >= budget->more_ns;
    bool late = now_ns >= budget->more_ns + WAIT_MS * SPENDER_MS;
    if (late || (in_line && (!near || in_line + n > comes(budget))) || (!near && !may_wait_long(budget, now_ns)))
        return false;
    budget->line_turn = spender->turn;
    budget->in_line = in_line + n;
    return true;
}

/* The time after the next refill until enough has come for n, if nobody else takes of it. */
static uint64_t refills_ms(const struct spender_budget *budget, uint64_t n, uint64_t now_ns) {
    uint64_t left = now_ns < budget->end_ns ? budget->left : 0, there = left + budget->stock;
    if (has_windows(budget)) return 0;
    if (spender_bounded(budget)) there = spender_max(left, spender_less(budget->stock, budget->spent));
    return spender_less(n, there + 1) / comes(budget) * (period_ns(budget) / SPENDER_MS);
}

/* The waiting takes use up the next refill, so a new one is for the refill after it. */
uint64_t spender_retry_after_line_ms(const struct spender_budget *budget, uint64_t n, uint64_t now_ns) {
    bool near = now_ns + EARLY_MS * SPENDER_MS >= budget->more_ns,
         late = now_ns >= budget->more_ns + WAIT_MS * SPENDER_MS;
    if (!near || late || has_windows(budget)) return spender_retry_ms(budget, n, now_ns);
    uint64_t next_ms = spender_less(budget->more_ns + period_ns(budget), now_ns) / SPENDER_MS + 1;
    return next_ms + refills_ms(budget, n, now_ns);
}

uint64_t spender_retry_ms(const struct spender_budget *budget, uint64_t n, uint64_t now_ns) {
    uint64_t next_ms = (spender_less(budget->more_ns, now_ns) + SPENDER_MS - 1) / SPENDER_MS;
    if (!next_ms) next_ms = WAIT_MS; /* the refill is late by an unknown time */
    return next_ms + refills_ms(budget, n, now_ns);
}

/* The client reads whole seconds. */
void spender_told(struct spender_budget *budget, uint64_t retry_ms, uint64_t now_ns) {
    uint64_t at_ns = now_ns + (retry_ms + 999) / 1000 * 1000 * SPENDER_MS;
    budget->told_ns = spender_max(budget->told_ns, at_ns);
}

/* Refills bring back only tokens that the servers know to be spent. True: that is less than the next refill could
 * bring, so this agent should report its spent tokens. */
bool spender_owes_report(const struct spender_budget *budget, uint64_t now_ns) {
    uint32_t next;
    if (spender_bounded(budget) || has_windows(budget) || !budget->spent || budget->asked) return false;
    if (period_ns(budget) < 1000 * SPENDER_MS && now_ns < budget->since_ns + 500 * SPENDER_MS) return false;
    return budget->owed < quota_refill_part(&budget->definition, 0, &next);
}

uint64_t spender_refusal_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns) {
    if (!budget->refused_ns) return SPENDER_NEVER;
    if (now_ns < budget->refused_ns) return budget->refused_ns;
    budget->refused_ns = 0;
    forget_level(budget);
    spender_wake(spender);
    return SPENDER_NEVER;
}
