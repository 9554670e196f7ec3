#include "base/check.h"
#include "base/error.h"
#include "kv/quota/spender_internal.h"

#define ASK_NS    (SPENDER_ASK_MS * SPENDER_MS)
#define BURST     8 /* asks for which takes wait may follow each other without a distance */
#define CREDIT_MS (2 * SPENDER_LOSS_MS)

/* -- takes that wait ---------------------------------------------------------------------------------------------- */

uint64_t spender_waiting(const struct spender *spender, const struct spender_budget *budget, enum spender_way way) {
    return budget->waiting_turn == spender->turn ? budget->waiting[way] : 0;
}

void spender_wait(struct spender *spender, struct spender_budget *budget, enum spender_way way, uint64_t n,
                  uint64_t now_ns) {
    if (budget->waiting_turn != spender->turn) {
        budget->waiting_turn = spender->turn;
        budget->waiting[SPENDER_WANT] = budget->waiting[SPENDER_TAKE] = 0;
    }
    /* When there is not enough for all takes, only the first one is asked for, because a take is all or nothing. */
    bool fits = now_ns < budget->refused_ns && budget->waiting[way] + n <= budget->fits;
    if (way == SPENDER_WANT || fits || !budget->in_vain || !budget->waiting[way])
        budget->waiting[way] = spender_min(budget->waiting[way] + n, QUOTA_AMOUNT_MOST);
    if (budget->asked) return; /* the answer tries the takes again */
    spender->urgent = true;
    spender_due(spender, budget, now_ns);
}

/* -- times -------------------------------------------------------------------------------------------------------- */

bool spender_is_lost(const struct spender *spender) { return spender->lost || spender->late; }

/* No ask is sent before this. */
static uint64_t gate_ns(const struct spender *spender) {
    uint64_t spaced_ns = spender->urgent ? spender_less(spender->spaced_ns, BURST * ASK_NS)
                                         : spender->sent_ns + (spender->sent_ns ? ASK_NS : 0);
    return spender_max(spender->retry_ns, spaced_ns);
}

uint64_t spender_ask_deadline(const struct spender *spender) {
    if (spender->out) return spender->late ? SPENDER_NEVER : spender->sent_ns + SPENDER_LOSS_MS * SPENDER_MS;
    if (spender->command) return spender->retry_ns;
    return spender->due_ns == SPENDER_NEVER ? SPENDER_NEVER : spender_max(spender->due_ns, gate_ns(spender));
}

bool spender_ask_late(struct spender *spender, uint64_t now_ns) {
    if (!spender->out || spender->late || now_ns < spender->sent_ns + SPENDER_LOSS_MS * SPENDER_MS) return false;
    return spender->late = true;
}

/* -- an ask ------------------------------------------------------------------------------------------------------- */

/* The largest take that the agent can cover by itself, before any grant. In bounded mode that is its slack, at most the
 * drift; the servers spend for larger takes, and for all when there is no drift. */
void spender_reach_anew(struct spender_budget *budget) {
    uint64_t most = budget->most;
    if (spender_bounded(budget)) most = spender_min(most, quota_part(budget->capacity, budget->definition.drift));
    budget->reach = budget->keyless_reach = most;
    if (budget->definition.unknown_slack_given)
        budget->keyless_reach = quota_part(most, budget->definition.unknown_slack);
}

void spender_forget_lease(struct spender_budget *budget) {
    budget->lease = budget->balance = budget->left = budget->keyless_left = budget->spent = budget->low = 0;
    budget->end_ns = 0;
    budget->due_ns = SPENDER_NEVER;
    budget->owes = budget->starving = false;
    spender_reach_anew(budget);
}

/* Should the lease be closed? Nothing waits, and there was no take for a TTL, or for SPENDER_REST_MS while somebody
 * starves. */
static bool closes(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns) {
    if (!budget->lease) return false;
    if (spender->leaving || budget->owes || spender_rests(spender, budget, now_ns)) return true;
    return now_ns - budget->used_ns >= spender_ttl_ns(budget) && !spender_waiting(spender, budget, SPENDER_WANT) &&
           !spender_waiting(spender, budget, SPENDER_TAKE);
}

/* The part of its balance that it keeps. */
static uint64_t keeps(const struct spender_budget *budget, const Pb__QuotaAsk *ask, uint64_t now_ns) {
    uint64_t has = spender_has(budget);
    if (ask->close || (budget->yields && ask->take)) return 0;
    if (budget->starving) return spender_min(has, spender_min(ask->want, budget->level));
    bool early = now_ns - budget->counted_ns < spender_ttl_ns(budget) / 3; /* the rate is not reliable yet */
    return has / 2 > ask->want && !early ? ask->want : has;
}

/* False: the budget has nothing to ask. */
static bool fill(struct spender *spender, struct spender_budget *budget, Pb__QuotaAsk *ask, uint64_t now_ns) {
    pb__quota_ask__init(ask);
    budget->due_ns = SPENDER_NEVER;
    if (budget->known != SPENDER_KNOWN || budget->unsupported) return false;
    ask->close = closes(spender, budget, now_ns);
    if (!ask->close) {
        ask->want = spender_need(spender, budget, now_ns);
        ask->take = spender_min(spender_waiting(spender, budget, SPENDER_TAKE), budget->capacity);
        if (budget->yields && ask->take > spender_max(budget->level, 1)) ask->want = 0;
        if (!budget->lease && !ask->want && !ask->take) return false;
    }
    ask->name = budget->name;
    ask->lease = budget->lease;
    ask->seq = ++spender->seq;
    ask->spent = budget->owes ? budget->balance : budget->spent;
    ask->held = keeps(budget, ask, now_ns);
    ask->priority = spender->priority;
    return true;
}

/* The ask is in the command: from now on the balance is the part that it keeps. */
static void hand_over(struct spender_budget *budget, const Pb__QuotaAsk *ask, uint64_t now_ns) {
    spender_count(budget, now_ns);
    CHECK(!budget->asked && ask->held <= spender_has(budget));
    budget->asked = true;
    budget->asked_void = false;
    budget->asked_left = budget->left;
    budget->asked_keyless_left = budget->keyless_left;
    budget->asked_spent = budget->spent;
    budget->left = spender_min(budget->left, ask->held);
    budget->spent = 0;
}

/* The command was certainly not applied: restores the balance from before it, less the tokens that were spent since. */
static void take_back(struct spender_budget *budget) {
    CHECK(budget->asked);
    budget->asked = false;
    if (budget->asked_void) return;
    budget->left = spender_less(budget->asked_left, budget->spent);
    budget->spent += budget->asked_spent;
}

/* Should the budget join a command of others that are due? */
static bool goes_along(const struct spender_budget *budget, uint64_t now_ns) {
    return budget->lease && now_ns - budget->since_ns >= spender_ttl_ns(budget) / 3;
}

static bool is_due(const struct spender_budget *budget, uint64_t now_ns) { return budget->due_ns <= now_ns; }

/* Puts asks into the command: of budgets that are due, or (`along`) of those that join them. */
static void gather(struct spender *spender, Pb__QuotaAskCommand *command, bool along, uint64_t now_ns) {
    for (size_t i = 0; i < spender->count && command->n_asks < QUOTA_ASKS_MOST; i++) {
        struct spender_budget *budget = spender->budgets[(spender->next + i) % spender->count];
        bool wanted = along ? goes_along(budget, now_ns) : is_due(budget, now_ns);
        if (!wanted || budget->asked) continue;
        Pb__QuotaAsk *ask = arena_alloc(&spender->arena, sizeof *ask);
        if (!fill(spender, budget, ask, now_ns)) continue;
        hand_over(budget, ask, now_ns);
        CHECK(command->n_asks < QUOTA_ASKS_MOST);
        spender->asked[command->n_asks] = budget;
        command->asks[command->n_asks++] = ask;
    }
}

/* -- the command -------------------------------------------------------------------------------------------------- */

static void due_anew(struct spender *spender) {
    spender->due_ns = SPENDER_NEVER;
    for (size_t i = 0; i < spender->count; i++)
        spender->due_ns = spender_min(spender->due_ns, spender->budgets[i]->due_ns);
}

static void command_end(struct spender *spender) {
    spender->command = NULL;
    spender->asked = NULL;
    spender->uncertain = false;
    arena_reset(&spender->arena);
}

/* False: no budget has anything to ask. */
static bool command_begin(struct spender *spender, uint64_t now_ns) {
    CHECK(!spender->command && !spender->asked);
    Pb__QuotaAskCommand *command = arena_alloc(&spender->arena, sizeof *command);
    pb__quota_ask_command__init(command);
    size_t most = spender_min(spender->count, QUOTA_ASKS_MOST);
    command->asks = arena_alloc(&spender->arena, (most + 1) * sizeof(Pb__QuotaAsk *));
    spender->asked = arena_alloc(&spender->arena, (most + 1) * sizeof(struct spender_budget *));
    gather(spender, command, false, now_ns);
    if (command->n_asks) gather(spender, command, true, now_ns);
    spender->next = spender->count ? (spender->next + 1) % spender->count : 0;
    spender->urgent = false;
    due_anew(spender);
    if (command->n_asks == 0) {
        command_end(spender);
        return false;
    }
    if (spender->due_ns <= now_ns) spender->urgent = true; /* there are more asks than fit into one command */
    command->session = quota_session_use(&spender->session, spender->node, &spender->rng, &spender->arena);
    command->node = spender->node;
    spender->command = command;
    spender->first_ns = now_ns;
    return true;
}

bool spender_ask(struct spender *spender, uint64_t now_ns, const Pb__QuotaAskCommand **command) {
    if (spender->out || now_ns < spender_ask_deadline(spender)) return false;
    if (!spender->command && !command_begin(spender, now_ns)) return false;
    CHECK(spender->command && spender->command->n_asks > 0);
    spender->out = true;
    spender->late = false;
    spender->sent_ns = now_ns;
    spender->spaced_ns = spender_max(spender->spaced_ns, now_ns) + ASK_NS;
    *command = spender->command;
    return true;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

/* The servers refused the ask. */
static void refused_grant(struct spender *spender, struct spender_budget *budget, int error, uint64_t now_ns) {
    if (error == CO_NOTFOUND) {
        bool had = budget->lease != 0;
        spender_forget_lease(budget);
        if (!had) spender_refused(spender, budget, NULL, now_ns); /* the budget is gone, as its notice will tell */
        return;
    }
    /* The ask changed nothing, because its claims were wrong, which should not happen. The next ask reports the whole
     * balance as spent. */
    uint64_t lease = budget->lease, balance = budget->balance;
    spender_forget_lease(budget);
    budget->lease = lease;
    budget->balance = balance;
    budget->owes = lease != 0;
    budget->in_vain++;
    spender_refused(spender, budget, NULL, now_ns);
    if (budget->owes) spender_due(spender, budget, budget->refused_ns);
}

/* The time of the next renewal, early enough for a change of leader before the lease ends. */
static uint64_t renewal_ns(struct spender *spender, const struct spender_budget *budget, uint64_t end_ns) {
    uint64_t ahead_ns = SPENDER_AHEAD_MS * SPENDER_MS;
    ahead_ns += rng_below(&spender->rng, ahead_ns / 8);
    return spender_max(budget->since_ns + spender_ttl_ns(budget) / 2, spender_less(end_ns, ahead_ns));
}

/* The time of an ask shortly before the window ends, so that the tokens that were spent in it count there; spread, so
 * that agents do not all ask at the same time. */
static uint64_t window_ns(struct spender *spender, const struct spender_budget *budget, uint64_t now_ns) {
    const Pb__QuotaDefinition *definition = &budget->definition;
    if (!definition->window || !spender->wall_known) return SPENDER_NEVER;
    uint64_t ahead_ms = SPENDER_WINDOW_MS / 2 + rng_below(&spender->rng, SPENDER_WINDOW_MS / 2 + 1);
    int64_t now_ms = (int64_t)(now_ns / SPENDER_MS);
    int64_t unix_s = (spender->wall_ms + now_ms + SPENDER_WINDOW_MS) / 1000; /* after a report for this window, that of
                                                                              * the next one */
    int64_t left_ms = quota_window_end(definition, unix_s) * 1000 - spender->wall_ms - now_ms - (int64_t)ahead_ms;
    return left_ms > 0 ? now_ns + (uint64_t)left_ms * SPENDER_MS : SPENDER_NEVER;
}

/* Sets the amounts that the agent may spend of its balance now. `spent` is spent, and not reported yet. */
static void refill(struct spender_budget *budget) {
    uint64_t keyless_spent = spender_less(budget->asked_keyless_left, budget->keyless_left);
    if (!spender_bounded(budget)) {
        budget->left = spender_less(budget->balance, budget->spent);
        budget->keyless_left = SPENDER_NEVER;
        budget->reach = budget->keyless_reach =
            budget->starving ? spender_min(budget->most, budget->level) : budget->most;
        return;
    }
    uint64_t above_mark = spender_less(budget->available, budget->low_mark);
    uint64_t keyless = budget->balance;
    if (budget->definition.unknown_slack_given) keyless = quota_part(keyless, budget->definition.unknown_slack);
    budget->reach = spender_min(budget->balance, above_mark);
    budget->keyless_reach = spender_min(keyless, above_mark);
    budget->left = spender_less(budget->reach, budget->spent);
    budget->keyless_left = spender_less(budget->keyless_reach, keyless_spent);
}

void spender_is_low(struct spender_budget *budget) {
    budget->available = spender_min(budget->available, budget->low_mark);
    budget->left = budget->keyless_left = budget->reach = budget->keyless_reach = 0;
}

/* The servers spent n tokens for takes that wait. */
static void taken(struct spender *spender, struct spender_budget *budget, uint64_t n, uint64_t now_ns) {
    if (now_ns >= budget->credit_end_ns) budget->credit = 0;
    budget->credit += n;
    budget->credit_end_ns = spender->first_ns + CREDIT_MS * SPENDER_MS;
    budget->yields = false;
    budget->ever = true;
}

/* Notes whether the grant was less than the ask wanted; then larger takes have to wait. */
static void fell_short(struct spender *spender, struct spender_budget *budget, const Pb__QuotaAsk *ask,
                       const Pb__QuotaGrant *grant, uint64_t now_ns) {
    bool denied = ask->take && !grant->taken;
    bool limited = !ask->close && !spender_bounded(budget) && grant->balance < ask->want;
    if (grant->granted || grant->taken) budget->in_vain = budget->missed = 0;
    if (denied) budget->yields = !spender_bounded(budget);
    if (!denied && !limited) return;
    if (!grant->granted) budget->in_vain++;
    spender_refused(spender, budget, grant, now_ns);
}

static void granted(struct spender *spender, struct spender_budget *budget, const Pb__QuotaAsk *ask,
                    const Pb__QuotaGrant *grant, uint64_t now_ns) {
    uint64_t ttl_ns = (grant->ttl_ms ? grant->ttl_ms : budget->definition.lease_ttl_ms) * SPENDER_MS;
    uint64_t safe_ns =
        spender_less(ttl_ns - spender_scale(ttl_ns, QUOTA_CLOCK_PPM, 1000000), SPENDER_MARGIN_MS * SPENDER_MS);
    budget->available = grant->available > 0 ? (uint64_t)grant->available : 0;
    budget->refused_ns = 0;
    spender_heard(budget, grant, now_ns);
    budget->starving = grant->starving;
    budget->level = grant->level;
    budget->since_ns = spender->sent_ns;
    if (grant->granted) budget->got_ns = now_ns;
    if (ask->close) {
        spender_forget_lease(budget);
    } else {
        budget->lease = grant->lease;
        budget->balance = grant->balance;
        budget->end_ns = spender->sent_ns + safe_ns; /* counts from the last sending, because a repeated ask renews
                                                      * too */
        refill(budget);
        budget->low = spender_low(spender, budget);
        if (budget->lease) {
            spender_due(spender, budget, renewal_ns(spender, budget, budget->end_ns));
            spender_due(spender, budget, window_ns(spender, budget, now_ns));
        }
    }
    if (grant->balance) budget->last = grant->balance;
    budget->ever |= grant->balance > 0;
    if (budget->loss) budget->loss->begin_ns = 0;
    if (ask->take && grant->taken) taken(spender, budget, ask->take, now_ns), spender_served(spender, budget, now_ns);
    fell_short(spender, budget, ask, grant, now_ns);
    if (spender_surplus(spender, budget, now_ns)) spender_due(spender, budget, now_ns);
    spender_tick_at(spender, spender_rest_ns(spender, budget));
    if (spender->mutations & SPENDER_MUTATE_OVERSTAYS) budget->end_ns = SPENDER_NEVER;
}

/* NULL: the answer does not have the grant of this ask, which should not happen. */
static const Pb__QuotaGrant *grant_of(const Pb__QuotaGrants *grants, size_t i, const char *name) {
    bool there = grants && i < grants->n_grants && strcmp(grants->grants[i]->name, name) == 0;
    return there ? grants->grants[i] : NULL;
}

static void answered(struct spender *spender, const Pb__QuotaGrants *grants, uint64_t now_ns) {
    uint64_t took_ns = spender_min(spender_less(now_ns, spender->sent_ns), SPENDER_LOSS_MS * SPENDER_MS);
    spender->answer_ns += (took_ns / 4) - spender->answer_ns / 4;
    quota_session_answered(&spender->session, grants);
    spender->lost = false;
    spender->failures = 0;
    spender->retry_ns = 0;
    const Pb__QuotaAskCommand *command = spender->command;
    for (size_t i = 0; i < command->n_asks; i++) {
        struct spender_budget *budget = spender->asked[i];
        const Pb__QuotaGrant *grant = grant_of(grants, i, budget->name);
        budget->asked = false;
        if (budget->asked_void) continue;
        if (!grant || grant->error) refused_grant(spender, budget, grant ? (int)grant->error : CO_CORRUPT, now_ns);
        else granted(spender, budget, command->asks[i], grant, now_ns);
    }
    command_end(spender);
}

/* The session is gone, and all leases with it: forgets them. */
static void begin_anew(struct spender *spender) {
    spender->session = (struct quota_session){0};
    for (size_t i = 0; i < spender->count; i++) {
        spender->budgets[i]->asked = false;
        spender_forget_lease(spender->budgets[i]);
    }
    command_end(spender);
}

static void failed(struct spender *spender, int error, uint64_t now_ns) {
    spender->lost = true;
    spender->retry_ns = now_ns + quota_retry_ms(spender->failures++, &spender->rng) * SPENDER_MS;
    if (!quota_ask_certain(error)) spender->uncertain = true;
    if (spender->uncertain) return; /* the same command is sent again */
    for (size_t i = 0; i < spender->command->n_asks; i++) {
        struct spender_budget *budget = spender->asked[i];
        take_back(budget);
        if (budget->known == SPENDER_KNOWN) spender_due(spender, budget, spender->retry_ns);
    }
    command_end(spender);
}

void spender_asked(struct spender *spender, int error, const Pb__QuotaGrants *grants, uint64_t now_ns) {
    CHECK(spender->out && spender->command);
    spender->out = spender->late = false;
    if (error == CO_OK) {
        answered(spender, grants, now_ns);
    } else if (error == CO_NOTFOUND) {
        begin_anew(spender);
        spender->lost = false;
    } else {
        failed(spender, error, now_ns);
    }
    spender_wake(spender);
}
