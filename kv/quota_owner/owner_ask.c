/* The membership: leases, and asks to the servers. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "kv/quota_owner/owner_internal.h"

#define JOIN_AGAIN_MS 1000 /* after a refusal */

void owner_ask_due(struct owner *owner, struct owner_budget *budget, uint64_t at_ns) {
    if (at_ns < budget->ask_ns) budget->ask_ns = at_ns;
    if (at_ns < owner->ask_due_ns) owner->ask_due_ns = at_ns;
}

/* -- the end of a lease ------------------------------------------------------------------------------------------- */

void owner_close(struct owner *owner, struct owner_budget *budget, bool unsettled, uint64_t now_ns) {
    if (!budget->lease || budget->leave == LEAVE_CLOSES) return;
    CHECK(budget->lease);
    budget->leave = LEAVE_CLOSES;
    budget->unsettled = unsettled;
    budget->hand.state = HAND_NONE;
    budget->version++;
    owner_ask_due(owner, budget, now_ns);
    owner_wake(owner);
}

void owner_lease_gone(struct owner *owner, struct owner_budget *budget, uint64_t now_ns) {
    if (!budget->lease) return;
    budget->lease = budget->end_ns = budget->acked = 0;
    budget->leave = LEAVE_NONE;
    budget->unsettled = budget->refused = false;
    budget->ask_ns = OWNER_NEVER;
    owner_split_end(budget);
    owner_hot_clear(budget);
    owner_hand_reset(owner, budget);
    owner_out_drop(owner, budget);
    owner_incoming_clear(owner, budget);
    owner_table_clear(owner, &budget->table);
    owner_rings_mine(owner, budget);
    if (budget->serving && !owner->leaving) owner_ask_due(owner, budget, now_ns);
    owner_wake(owner);
}

/* -- an ask ------------------------------------------------------------------------------------------------------- */

static void say_hot(struct owner *owner, struct owner_budget *budget, Pb__QuotaAsk *ask) {
    ask->hot = arena_alloc(&owner->arena, (budget->hot_count + 1) * sizeof(Pb__QuotaHotKey *));
    for (size_t i = 0; i < budget->hot_count; i++) {
        Pb__QuotaHotKey *hot = ask->hot[i] = arena_alloc(&owner->arena, sizeof *hot);
        *hot = budget->hot[i];
        hot->key = message_bytes(slice_copy(&owner->arena, message_slice(budget->hot[i].key)));
    }
    ask->n_hot = budget->hot_count;
}

static void say_split(struct owner *owner, struct owner_budget *budget, Pb__QuotaAsk *ask) {
    struct owner_id id = {buffer_slice(&budget->splitting), 0};
    if (!budget->proposing || budget->proposed || budget->leave || budget->epoch != budget->active) return;
    if (!owner_is_mine(&budget->live, id)) return; /* another member counts the key by now */
    Pb__QuotaSplit *split = arena_alloc(&owner->arena, sizeof *split);
    pb__quota_split__init(split);
    split->key = message_bytes(slice_copy(&owner->arena, buffer_slice(&budget->splitting)));
    split->parts = budget->definition->split;
    ask->split = arena_alloc(&owner->arena, sizeof(Pb__QuotaSplit *));
    ask->split[0] = split;
    ask->n_split = 1;
    ask->acked = budget->epoch; /* the epoch is active, so its members have acknowledged it, or had nothing to hand
                                 * over */
    budget->acked = budget->acked > ask->acked ? budget->acked : ask->acked;
    budget->proposed = true;
}

/* False: the budget has nothing to ask. */
static bool fill(struct owner *owner, struct owner_budget *budget, Pb__QuotaAsk *ask, struct owner_now now) {
    pb__quota_ask__init(ask);
    budget->ask_ns = OWNER_NEVER;
    bool joins = budget->serving && !owner->leaving;
    if (budget->known == OWNER_NONE || (!budget->lease && !joins)) return false;
    ask->name = budget->name;
    ask->lease = budget->lease;
    ask->seq = ++owner->seq;
    if (!budget->lease || budget->known != OWNER_KNOWN) return true;
    ask->close = budget->leave == LEAVE_CLOSES;
    ask->unsettled = ask->close && budget->unsettled;
    if (budget->hand.state == HAND_DONE && !budget->leave && budget->hand.epoch > budget->acked)
        budget->acked = budget->hand.epoch;
    ask->acked = budget->acked;
    ask->reported = budget->admitted;
    ask->losses_over = owner_losses_over(budget, now);
    if (ask->close) return true;
    say_hot(owner, budget, ask);
    say_split(owner, budget, ask);
    return true;
}

static bool command_begin(struct owner *owner, struct owner_now now) {
    Pb__QuotaAskCommand *command = arena_alloc(&owner->arena, sizeof *command);
    pb__quota_ask_command__init(command);
    command->asks = arena_alloc(&owner->arena, QUOTA_ASKS_MOST * sizeof(Pb__QuotaAsk *));
    owner->asked = arena_alloc(&owner->arena, QUOTA_ASKS_MOST * sizeof(struct owner_budget *));
    OWNER_EACH(owner, budget) {
        if (budget->ask_ns > now.ns || budget->asked || command->n_asks == QUOTA_ASKS_MOST) continue;
        Pb__QuotaAsk *ask = arena_alloc(&owner->arena, sizeof *ask);
        if (!fill(owner, budget, ask, now)) continue;
        budget->asked = true;
        CHECK(command->n_asks < QUOTA_ASKS_MOST);
        owner->asked[command->n_asks] = budget;
        command->asks[command->n_asks++] = ask;
    }
    if (command->n_asks == 0) {
        arena_reset(&owner->arena);
        return false;
    }
    command->session = quota_session_use(&owner->session, owner->node, &owner->rng, &owner->arena);
    command->node = owner->node;
    owner->command = command;
    return true;
}

uint64_t owner_ask_deadline(const struct owner *owner) {
    if (owner->out) return OWNER_NEVER;
    if (owner->command || owner->retry_ns > owner->ask_due_ns) return owner->retry_ns;
    return owner->ask_due_ns;
}

bool owner_ask(struct owner *owner, struct owner_now now, const Pb__QuotaAskCommand **command) {
    if (now.ns < owner_ask_deadline(owner)) return false;
    if (!owner->command) {
        bool any = command_begin(owner, now);
        owner->ask_due_ns = OWNER_NEVER;
        OWNER_EACH(owner, budget)
        if (!budget->asked && budget->ask_ns < owner->ask_due_ns) owner->ask_due_ns = budget->ask_ns;
        if (!any) return false;
    }
    CHECK(!owner->out && owner->command && owner->command->n_asks > 0);
    owner->out = true;
    owner->sent_ns = now.ns;
    *command = owner->command;
    return true;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

/* The time of the next renewal, early enough for a change of leader before the lease ends; spread at random. */
static uint64_t renewal_ns(struct owner *owner, uint64_t ttl_ns, uint64_t end_ns) {
    uint64_t ahead_ns = SPENDER_AHEAD_MS * OWNER_MS + rng_below(&owner->rng, SPENDER_AHEAD_MS * OWNER_MS / 8);
    uint64_t half_ns = owner->sent_ns + ttl_ns / 2, late_ns = end_ns > ahead_ns ? end_ns - ahead_ns : 0;
    return half_ns > late_ns ? half_ns : late_ns;
}

static void renewed(struct owner *owner, struct owner_budget *budget, const Pb__QuotaGrant *grant,
                    struct owner_now now) {
    uint64_t ttl_ns = (grant->ttl_ms ? grant->ttl_ms : QUOTA_TTL_MIN_MS) * OWNER_MS;
    uint64_t less_ns = ttl_ns / 1000000 * QUOTA_CLOCK_PPM + SPENDER_MARGIN_MS * OWNER_MS;
    bool fresh = !budget->lease;
    budget->lease = grant->lease;
    budget->end_ns = owner->sent_ns + ttl_ns - less_ns; /* counts from the last sending, because a repeated ask renews
                                                          * too */
    owner_ask_due(owner, budget, renewal_ns(owner, ttl_ns, budget->end_ns));
    if (!fresh) return;
    if (budget->known != OWNER_KNOWN) return; /* the notice will have the members */
    owner_rings_mine(owner, budget);
    owner_incoming_settle(owner, budget, now);
    owner_wake(owner);
}

static void split_answered(struct owner *owner, struct owner_budget *budget, const Pb__QuotaAsk *ask, bool accepted,
                           uint64_t index, struct owner_now now) {
    if (!ask->n_split || !budget->proposing) return;
    budget->accepted = accepted;
    budget->accepted_index = index;
    if (!accepted) owner_split_end(budget);
    else owner_split_settle(owner, budget, now);
    owner_wake(owner);
}

static void refused(struct owner *owner, struct owner_budget *budget, const Pb__QuotaAsk *ask, int error,
                    struct owner_now now) {
    split_answered(owner, budget, ask, false, 0, now);
    if (error == CO_NOTFOUND && budget->lease) {
        owner_lease_gone(owner, budget, now.ns);
    } else if (budget->lease && budget->leave == LEAVE_NONE) {
        /* CO_CONFLICT: the servers know no passing instance on this node. No other refusal of a member's ask should
         * happen. In both cases the member leaves. */
        budget->refused = error == CO_CONFLICT;
        if (!budget->refused) owner_close(owner, budget, true, now.ns);
    }
    owner_ask_due(owner, budget, now.ns + JOIN_AGAIN_MS * OWNER_MS);
}

/* NULL: the answer does not have the grant of this ask, which should not happen. */
static const Pb__QuotaGrant *grant_of(const Pb__QuotaGrants *grants, size_t i, const char *name) {
    bool there = grants && i < grants->n_grants && strcmp(grants->grants[i]->name, name) == 0;
    return there ? grants->grants[i] : NULL;
}

static void command_end(struct owner *owner) {
    for (size_t i = 0; i < owner->command->n_asks; i++) {
        CHECK(owner->asked[i]->asked);
        owner->asked[i]->asked = false;
        owner_ask_due(owner, owner->asked[i], owner->asked[i]->ask_ns); /* it may have become due meanwhile */
    }
    owner->command = NULL;
    owner->asked = NULL;
    owner->uncertain = false;
    arena_reset(&owner->arena);
}

static void answered(struct owner *owner, const Pb__QuotaGrants *grants, struct owner_now now) {
    const Pb__QuotaAskCommand *command = owner->command;
    quota_session_answered(&owner->session, grants);
    owner->failures = 0;
    owner->retry_ns = 0;
    for (size_t i = 0; i < command->n_asks; i++) {
        struct owner_budget *budget = owner->asked[i];
        const Pb__QuotaAsk *ask = command->asks[i];
        const Pb__QuotaGrant *grant = grant_of(grants, i, budget->name);
        if (ask->lease != budget->lease && !(ask->lease == 0 && budget->known != OWNER_NONE)) continue;
        if (!grant || grant->error) refused(owner, budget, ask, grant ? (int)grant->error : CO_CORRUPT, now);
        else if (ask->close) owner_lease_gone(owner, budget, now.ns);
        else {
            renewed(owner, budget, grant, now);
            split_answered(owner, budget, ask, grant->split, grants->index, now);
        }
    }
}

/* The session is gone. The servers end its leases when their time is over; this agent forgets them. */
static void begin_anew(struct owner *owner, uint64_t now_ns) {
    owner->session = (struct quota_session){0};
    for (size_t i = 0; i < owner->command->n_asks; i++) owner_ask_due(owner, owner->asked[i], now_ns);
    OWNER_EACH(owner, budget) owner_lease_gone(owner, budget, now_ns);
}

static void failed(struct owner *owner, int error, uint64_t now_ns) {
    owner->retry_ns = now_ns + quota_retry_ms(owner->failures++, &owner->rng) * OWNER_MS;
    owner_due(owner, owner->retry_ns);
    if (!quota_ask_certain(error)) owner->uncertain = true;
    if (owner->uncertain) return; /* the same command is sent again */
    for (size_t i = 0; i < owner->command->n_asks; i++) {
        owner_ask_due(owner, owner->asked[i], owner->retry_ns);
        owner->asked[i]->proposed = false;
    }
    command_end(owner);
}

void owner_asked(struct owner *owner, int error, const Pb__QuotaGrants *grants, struct owner_now now) {
    CHECK(owner->out && owner->command);
    owner->out = false;
    if (error != CO_OK && error != CO_NOTFOUND) {
        failed(owner, error, now.ns);
        return;
    }
    if (error == CO_OK) answered(owner, grants, now);
    else begin_anew(owner, now.ns);
    command_end(owner);
    owner_due(owner, now.ns);
}
