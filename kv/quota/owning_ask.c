/* The membership: leases, and asks to the servers. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "kv/quota/owning_internal.h"

#define JOIN_AGAIN_MS 1000 /* after a refusal */

void owning_ask_due(struct owning *owning, struct owning_budget *budget, uint64_t at_ns) {
    if (at_ns < budget->ask_ns) budget->ask_ns = at_ns;
    if (at_ns < owning->ask_due_ns) owning->ask_due_ns = at_ns;
}

/* -- the end of a lease ------------------------------------------------------------------------------------------- */

void owning_close(struct owning *owning, struct owning_budget *budget, bool unsettled, uint64_t now_ns) {
    if (!budget->lease || budget->leave == LEAVE_CLOSES) return;
    CHECK(budget->lease);
    budget->leave = LEAVE_CLOSES;
    budget->unsettled = unsettled;
    budget->hand.state = HAND_NONE;
    budget->version++;
    owning_ask_due(owning, budget, now_ns);
    owning_wake(owning);
}

void owning_lease_gone(struct owning *owning, struct owning_budget *budget, uint64_t now_ns) {
    if (!budget->lease) return;
    budget->lease = budget->end_ns = budget->acked = 0;
    budget->leave = LEAVE_NONE;
    budget->unsettled = budget->refused = false;
    budget->ask_ns = OWNING_NEVER;
    owning_split_end(budget);
    owning_hot_clear(budget);
    owning_hand_reset(owning, budget);
    owning_out_drop(owning, budget);
    owning_incoming_clear(owning, budget);
    owning_table_clear(owning, &budget->table);
    owning_rings_mine(owning, budget);
    if (budget->serving && !owning->leaving) owning_ask_due(owning, budget, now_ns);
    owning_wake(owning);
}

/* -- an ask ------------------------------------------------------------------------------------------------------- */

static void say_hot(struct owning *owning, struct owning_budget *budget, Pb__QuotaAsk *ask) {
    ask->hot = arena_alloc(&owning->arena, (budget->hot_count + 1) * sizeof(Pb__QuotaHotKey *));
    for (size_t i = 0; i < budget->hot_count; i++) {
        Pb__QuotaHotKey *hot = ask->hot[i] = arena_alloc(&owning->arena, sizeof *hot);
        *hot = budget->hot[i];
        hot->key = message_bytes(slice_copy(&owning->arena, message_slice(budget->hot[i].key)));
    }
    ask->n_hot = budget->hot_count;
}

static void say_split(struct owning *owning, struct owning_budget *budget, Pb__QuotaAsk *ask) {
    struct owning_id id = {buffer_slice(&budget->splitting), 0};
    if (!budget->proposing || budget->proposed || budget->leave || budget->epoch != budget->active) return;
    if (!owning_is_mine(&budget->live, id)) return; /* another member counts the key by now */
    Pb__QuotaSplit *split = arena_alloc(&owning->arena, sizeof *split);
    pb__quota_split__init(split);
    split->key = message_bytes(slice_copy(&owning->arena, buffer_slice(&budget->splitting)));
    split->parts = budget->definition->split;
    ask->split = arena_alloc(&owning->arena, sizeof(Pb__QuotaSplit *));
    ask->split[0] = split;
    ask->n_split = 1;
    ask->acked = budget->epoch; /* the epoch is active, so its members have acknowledged it, or had nothing to hand
                                 * over */
    budget->acked = budget->acked > ask->acked ? budget->acked : ask->acked;
    budget->proposed = true;
}

/* False: the budget has nothing to ask. */
static bool fill(struct owning *owning, struct owning_budget *budget, Pb__QuotaAsk *ask, struct owning_now now) {
    pb__quota_ask__init(ask);
    budget->ask_ns = OWNING_NEVER;
    bool joins = budget->serving && !owning->leaving;
    if (budget->known == OWNING_NONE || (!budget->lease && !joins)) return false;
    ask->name = budget->name;
    ask->lease = budget->lease;
    ask->seq = ++owning->seq;
    if (!budget->lease || budget->known != OWNING_KNOWN) return true;
    ask->close = budget->leave == LEAVE_CLOSES;
    ask->unsettled = ask->close && budget->unsettled;
    if (budget->hand.state == HAND_DONE && !budget->leave && budget->hand.epoch > budget->acked)
        budget->acked = budget->hand.epoch;
    ask->acked = budget->acked;
    ask->reported = budget->admitted;
    ask->losses_over = owning_losses_over(budget, now);
    if (ask->close) return true;
    say_hot(owning, budget, ask);
    say_split(owning, budget, ask);
    return true;
}

static bool command_begin(struct owning *owning, struct owning_now now) {
    Pb__QuotaAskCommand *command = arena_alloc(&owning->arena, sizeof *command);
    pb__quota_ask_command__init(command);
    command->asks = arena_alloc(&owning->arena, QUOTA_ASKS_MOST * sizeof(Pb__QuotaAsk *));
    owning->asked = arena_alloc(&owning->arena, QUOTA_ASKS_MOST * sizeof(struct owning_budget *));
    OWNING_EACH(owning, budget) {
        if (budget->ask_ns > now.ns || budget->asked || command->n_asks == QUOTA_ASKS_MOST) continue;
        Pb__QuotaAsk *ask = arena_alloc(&owning->arena, sizeof *ask);
        if (!fill(owning, budget, ask, now)) continue;
        budget->asked = true;
        CHECK(command->n_asks < QUOTA_ASKS_MOST);
        owning->asked[command->n_asks] = budget;
        command->asks[command->n_asks++] = ask;
    }
    if (command->n_asks == 0) {
        arena_reset(&owning->arena);
        return false;
    }
    command->session = quota_session_use(&owning->session, owning->node, &owning->rng, &owning->arena);
    command->node = owning->node;
    owning->command = command;
    return true;
}

uint64_t owning_ask_deadline(const struct owning *owning) {
    if (owning->out) return OWNING_NEVER;
    if (owning->command || owning->retry_ns > owning->ask_due_ns) return owning->retry_ns;
    return owning->ask_due_ns;
}

bool owning_ask(struct owning *owning, struct owning_now now, const Pb__QuotaAskCommand **command) {
    if (now.ns < owning_ask_deadline(owning)) return false;
    if (!owning->command) {
        bool any = command_begin(owning, now);
        owning->ask_due_ns = OWNING_NEVER;
        OWNING_EACH(owning, budget)
        if (!budget->asked && budget->ask_ns < owning->ask_due_ns) owning->ask_due_ns = budget->ask_ns;
        if (!any) return false;
    }
    CHECK(!owning->out && owning->command && owning->command->n_asks > 0);
    owning->out = true;
    owning->sent_ns = now.ns;
    *command = owning->command;
    return true;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

/* The time of the next renewal, early enough for a change of leader before the lease ends; spread at random. */
static uint64_t renewal_ns(struct owning *owning, uint64_t ttl_ns, uint64_t end_ns) {
    uint64_t ahead_ns = SPENDER_AHEAD_MS * OWNING_MS + rng_below(&owning->rng, SPENDER_AHEAD_MS * OWNING_MS / 8);
    uint64_t half_ns = owning->sent_ns + ttl_ns / 2, late_ns = end_ns > ahead_ns ? end_ns - ahead_ns : 0;
    return half_ns > late_ns ? half_ns : late_ns;
}

static void renewed(struct owning *owning, struct owning_budget *budget, const Pb__QuotaGrant *grant,
                    struct owning_now now) {
    uint64_t ttl_ns = (grant->ttl_ms ? grant->ttl_ms : QUOTA_TTL_MIN_MS) * OWNING_MS;
    uint64_t less_ns = ttl_ns / 1000000 * QUOTA_CLOCK_PPM + SPENDER_MARGIN_MS * OWNING_MS;
    bool fresh = !budget->lease;
    budget->lease = grant->lease;
    budget->end_ns = owning->sent_ns + ttl_ns - less_ns; /* counts from the last sending, because a repeated ask renews
                                                          * too */
    owning_ask_due(owning, budget, renewal_ns(owning, ttl_ns, budget->end_ns));
    if (!fresh) return;
    if (budget->known != OWNING_KNOWN) return; /* the notice will have the members */
    owning_rings_mine(owning, budget);
    owning_incoming_settle(owning, budget, now);
    owning_wake(owning);
}

static void split_answered(struct owning *owning, struct owning_budget *budget, const Pb__QuotaAsk *ask, bool accepted,
                           uint64_t index, struct owning_now now) {
    if (!ask->n_split || !budget->proposing) return;
    budget->accepted = accepted;
    budget->accepted_index = index;
    if (!accepted) owning_split_end(budget);
    else owning_split_settle(owning, budget, now);
    owning_wake(owning);
}

static void refused(struct owning *owning, struct owning_budget *budget, const Pb__QuotaAsk *ask, int error,
                    struct owning_now now) {
    split_answered(owning, budget, ask, false, 0, now);
    if (error == CO_NOTFOUND && budget->lease) {
        owning_lease_gone(owning, budget, now.ns);
    } else if (budget->lease && budget->leave == LEAVE_NONE) {
        /* CO_CONFLICT: the servers know no passing instance on this node. No other refusal of a member's ask should
         * happen. In both cases the member leaves. */
        budget->refused = error == CO_CONFLICT;
        if (!budget->refused) owning_close(owning, budget, true, now.ns);
    }
    owning_ask_due(owning, budget, now.ns + JOIN_AGAIN_MS * OWNING_MS);
}

/* NULL: the answer does not have the grant of this ask, which should not happen. */
static const Pb__QuotaGrant *grant_of(const Pb__QuotaGrants *grants, size_t i, const char *name) {
    bool there = grants && i < grants->n_grants && strcmp(grants->grants[i]->name, name) == 0;
    return there ? grants->grants[i] : NULL;
}

static void command_end(struct owning *owning) {
    for (size_t i = 0; i < owning->command->n_asks; i++) {
        CHECK(owning->asked[i]->asked);
        owning->asked[i]->asked = false;
        owning_ask_due(owning, owning->asked[i], owning->asked[i]->ask_ns); /* it may have become due meanwhile */
    }
    owning->command = NULL;
    owning->asked = NULL;
    owning->uncertain = false;
    arena_reset(&owning->arena);
}

static void answered(struct owning *owning, const Pb__QuotaGrants *grants, struct owning_now now) {
    const Pb__QuotaAskCommand *command = owning->command;
    quota_session_answered(&owning->session, grants);
    owning->failures = 0;
    owning->retry_ns = 0;
    for (size_t i = 0; i < command->n_asks; i++) {
        struct owning_budget *budget = owning->asked[i];
        const Pb__QuotaAsk *ask = command->asks[i];
        const Pb__QuotaGrant *grant = grant_of(grants, i, budget->name);
        if (ask->lease != budget->lease && !(ask->lease == 0 && budget->known != OWNING_NONE)) continue;
        if (!grant || grant->error) refused(owning, budget, ask, grant ? (int)grant->error : CO_CORRUPT, now);
        else if (ask->close) owning_lease_gone(owning, budget, now.ns);
        else {
            renewed(owning, budget, grant, now);
            split_answered(owning, budget, ask, grant->split, grants->index, now);
        }
    }
}

/* The session is gone. The servers end its leases when their time is over; this agent forgets them. */
static void begin_anew(struct owning *owning, uint64_t now_ns) {
    owning->session = (struct quota_session){0};
    for (size_t i = 0; i < owning->command->n_asks; i++) owning_ask_due(owning, owning->asked[i], now_ns);
    OWNING_EACH(owning, budget) owning_lease_gone(owning, budget, now_ns);
}

static void failed(struct owning *owning, int error, uint64_t now_ns) {
    owning->retry_ns = now_ns + quota_retry_ms(owning->failures++, &owning->rng) * OWNING_MS;
    owning_due(owning, owning->retry_ns);
    if (!quota_ask_certain(error)) owning->uncertain = true;
    if (owning->uncertain) return; /* the same command is sent again */
    for (size_t i = 0; i < owning->command->n_asks; i++) {
        owning_ask_due(owning, owning->asked[i], owning->retry_ns);
        owning->asked[i]->proposed = false;
    }
    command_end(owning);
}

void owning_asked(struct owning *owning, int error, const Pb__QuotaGrants *grants, struct owning_now now) {
    CHECK(owning->out && owning->command);
    owning->out = false;
    if (error != CO_OK && error != CO_NOTFOUND) {
        failed(owning, error, now.ns);
        return;
    }
    if (error == CO_OK) answered(owning, grants, now);
    else begin_anew(owning, now.ns);
    command_end(owning);
    owning_due(owning, now.ns);
}
