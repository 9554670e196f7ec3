/* Budgets against a model that is written as the contract says it (kv/quota/quota.h). Random owners ask, spend, lose
 * answers, come late and vanish; a leader's clock runs; budgets are defined anew and deleted. Every grant and every sum is
 * compared, the audit trail adds up, and what owners admit in a window is at most the budget and its bound. A failure names
 * its seed: COORD_SEED=N runs that one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "quotas.h"

enum { BUDGETS = 4, OWNERS = 7, LEASES = 64, STEPS = 1500, SEEDS = 8, WINDOW_S = 60 };

static struct fixture world;
static struct rng rng;
static uint64_t seed;
static int64_t now_s; /* everybody's clock */

static bool one_in(unsigned n) { return rng_below(&rng, n) == 0; }
static uint64_t below(uint64_t n) { return rng_below(&rng, n); }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t rest(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

#define EXPECT(condition, ...) cr_assert(condition, "COORD_SEED=%lu: " #condition " " __VA_ARGS__)

/* -- the model of the servers ------------------------------------------------------------------------------------- */

struct lease {
    uint64_t id, want, balance, seq, renewed;
    uint32_t priority;
    unsigned owner;
    bool reclaimed;
    unsigned turn;  /* it got nothing since; 0: it waits for nothing */
    uint64_t kept;  /* for it, of what comes back */
    int64_t ends_s; /* by the leader's clock, at the earliest */
    struct {
        uint64_t granted, balance;
        bool taken;
    } answer;
};
static struct budget {
    bool there, window, bounded;
    char name[4];
    uint64_t capacity, most, drift, tokens, ttl_s;
    uint64_t spent, stranded;
    struct lease leases[LEASES];
    size_t count;
    uint64_t levels[QUOTA_PRIORITIES]; /* as of the last count; UINT64_MAX: none */
    bool uneven[QUOTA_PRIORITIES];     /* one more than what all of them can have */
    bool classes[QUOTA_PRIORITIES];    /* there were leases of it at the last count */
    bool starving, armed, noted;
    unsigned turn, turn_refills; /* those of this one and before come first */
    int64_t window_s;
    uint64_t admitted, allowed; /* in this window: by owners, and at most */
    uint64_t refilled, ever;    /* since it was made: what refills brought back; what was admitted */
    uint64_t highest;           /* capacity and drift, at most */
} budgets[BUDGETS];

static uint64_t drift_of(const struct budget *b) { return b->bounded ? b->drift : 0; }

static uint64_t held_by_leases(const struct budget *b, bool reclaimed) {
    uint64_t sum = 0;
    for (size_t i = 0; i < b->count; i++) sum += b->leases[i].reclaimed == reclaimed ? b->leases[i].balance : 0;
    return sum;
}

static uint64_t takeable(const struct budget *b) {
    return rest(b->capacity, b->spent + b->stranded + (b->bounded ? 0 : held_by_leases(b, false)));
}

static uint64_t shareable(const struct budget *b) {
    if (!b->bounded) return rest(b->capacity, b->spent + b->stranded);
    return least(b->drift, rest(b->capacity + b->drift, b->spent + b->stranded));
}

/* The least level at which the wishes of a class take all that there is. */
static uint64_t level_by_search(const struct budget *b, uint32_t priority, uint64_t *total, bool *uneven) {
    uint64_t wants = 0, low = 0, high = b->most;
    for (size_t i = 0; i < b->count; i++)
        if (!b->leases[i].reclaimed && b->leases[i].priority == priority) wants += least(b->leases[i].want, b->most);
    if (wants <= *total) {
        *total -= wants;
        return b->most;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, sum = 0;
        for (size_t i = 0; i < b->count; i++)
            if (!b->leases[i].reclaimed && b->leases[i].priority == priority)
                sum += least(least(b->leases[i].want, b->most), middle);
        if (sum >= *total) high = middle;
        else low = middle + 1;
    }
    wants = 0;
    for (size_t i = 0; i < b->count; i++)
        if (!b->leases[i].reclaimed && b->leases[i].priority == priority)
            wants += least(least(b->leases[i].want, b->most), low);
    *uneven = wants > *total;
    *total = 0;
    return low;
}

static void count_levels(struct budget *b) {
    uint64_t total = shareable(b);
    for (uint32_t priority = QUOTA_PRIORITIES; priority-- > 0;) {
        bool any = false;
        for (size_t i = 0; i < b->count; i++) any |= !b->leases[i].reclaimed && b->leases[i].priority == priority;
        b->classes[priority] = any;
        b->uneven[priority] = false;
        uint64_t level = level_by_search(b, priority, &total, &b->uneven[priority]);
        b->levels[priority] = any && (level < b->most || b->uneven[priority]) ? level : UINT64_MAX;
    }
}

static uint64_t sure_of(const struct budget *b, uint32_t priority) { return b->levels[priority] - b->uneven[priority]; }

/* After a count: may it have one more than the others? They all get what is surely theirs from what is left. */
static bool is_spare(const struct budget *b, const struct lease *lease) {
    uint64_t lack = 0;
    for (size_t i = 0; i < b->count; i++)
        if (!b->leases[i].reclaimed)
            lack +=
                rest(least(least(b->leases[i].want, b->most), sure_of(b, b->leases[i].priority)), b->leases[i].balance);
    return b->uneven[lease->priority] && rest(shareable(b), held_by_leases(b, false)) > lack;
}

/* -- turns -------------------------------------------------------------------------------------------------------- */

static bool is_first(const struct budget *b, const struct lease *lease) {
    return lease->turn && lease->turn <= b->turn;
}
/* For those of exactly this turn. */
static uint64_t kept_of(const struct budget *b, unsigned turn) {
    uint64_t sum = 0;
    for (size_t i = 0; i < b->count; i++)
        if (!b->leases[i].reclaimed && b->leases[i].turn == turn) sum += b->leases[i].kept;
    return sum;
}
static uint64_t kept(const struct budget *b, const struct lease *mine) {
    return mine && is_first(b, mine) ? 0 : kept_of(b, b->turn);
}
static void turn_next(struct budget *b) { b->turn++, b->turn_refills = 0; }
static void turns(struct budget *b) {
    if (!kept_of(b, b->turn) && kept_of(b, b->turn + 1)) turn_next(b);
}
static bool is_highest(const struct budget *b, uint32_t priority) {
    for (uint32_t p = QUOTA_PRIORITIES - 1; p > priority; p--)
        if (b->classes[p]) return false;
    return true;
}
static void waits(struct budget *b, struct lease *lease, bool nothing, uint64_t want) {
    uint64_t share = least(b->levels[lease->priority], b->most);
    if (!nothing || b->bounded || b->window || !is_highest(b, lease->priority)) lease->turn = 0, lease->kept = 0;
    else {
        if (!lease->turn) lease->turn = b->turn + 1;
        if (lease->turn < b->turn) lease->turn = b->turn;
        lease->kept = least(want, share ? share : 1);
    }
    turns(b);
}

static uint64_t more_of(const struct budget *b, const struct lease *lease, uint64_t wish, bool spare) {
    uint64_t goal = least(wish, spare ? b->levels[lease->priority] : sure_of(b, lease->priority));
    uint64_t room = rest(shareable(b), held_by_leases(b, false));
    return least(rest(goal, lease->balance), rest(room, kept(b, lease)));
}

static void arm(struct budget *b) {
    bool owed = b->spent + b->stranded > 0;
    if (owed && !b->armed) b->noted = false;
    b->armed = owed;
}

static struct lease *lease_of(struct budget *b, unsigned owner) {
    for (size_t i = 0; i < b->count; i++)
        if (!b->leases[i].reclaimed && b->leases[i].owner == owner) return &b->leases[i];
    return NULL;
}

static void lease_goes(struct budget *b, struct lease *lease) {
    *lease = b->leases[--b->count];
    turns(b);
}

static void settle(struct budget *b, struct lease *lease, uint64_t spent, uint64_t keep) {
    b->spent += spent;
    lease->balance = keep;
}

static void session_ended(unsigned owner) {
    for (unsigned i = 0; i < BUDGETS; i++) {
        struct budget *b = &budgets[i];
        struct lease *lease = b->there ? lease_of(b, owner) : NULL;
        if (!lease) continue;
        b->stranded += lease->balance;
        lease->reclaimed = true;
        turns(b);
        if (lease->balance == 0) lease_goes(b, lease);
        arm(b);
    }
}

/* -- owners ------------------------------------------------------------------------------------------------------- */

/* An owner's part of a budget, as far as it knows. */
struct purse {
    uint64_t lease, seq, balance, unreported, in_flight;
    int64_t until_s, sent_s;
    bool asking; /* the answer was lost */
    Pb__QuotaAsk ask;
};
static struct owner {
    char session[UUID_TEXT_SIZE + 1];
    bool there; /* the session */
    struct purse purses[BUDGETS];
} owners[OWNERS];
static unsigned sessions, grants, lost, starved, late; /* so that nothing of it is forgotten */

static void owner_forgets(struct owner *owner, unsigned which) { owner->purses[which] = (struct purse){0}; }

static void session_begins(unsigned who) {
    session_id(sessions++, owners[who].session);
    cr_assert(session_make(&world, owners[who].session, &(struct session_plan){.node = "n1"}).yes);
    owners[who].there = true;
}

/* It spends what it holds, until its time is over; whatever has become of its lease, of which it may not know. */
static void spend(unsigned who, unsigned which) {
    struct purse *purse = &owners[who].purses[which];
    struct budget *b = &budgets[which];
    if (!purse->lease || now_s >= purse->until_s || !purse->balance) return;
    uint64_t n = one_in(4) ? purse->balance : 1 + below(purse->balance);
    purse->balance -= n, purse->unreported += n;
    b->admitted += n, b->ever += n;
}

static void windows_check(const struct budget *b) {
    if (!b->there) return;
    if (b->window) EXPECT(b->admitted <= b->allowed, "budget %s: %lu of %lu", seed, b->name, b->admitted, b->allowed);
    EXPECT(b->ever <= b->highest + b->refilled, "budget %s: %lu of %lu and %lu", seed, b->name, b->ever, b->highest,
           b->refilled);
}

/* -- compared ----------------------------------------------------------------------------------------------------- */

static void compare(unsigned which) {
    const struct budget *b = &budgets[which];
    char expected[200];
    uint64_t live = held_by_leases(b, false), gone = b->spent + b->stranded;
    int64_t available = b->bounded ? (int64_t)b->capacity - (int64_t)gone : (int64_t)rest(b->capacity, gone + live);
    if (!b->there) {
        EXPECT(!quota_look(&world, b->name), "%s", seed, b->name);
        return;
    }
    snprintf(expected, sizeof expected, "spent %lu stranded %lu leased %lu slack %lu: %ld of %lu", b->spent,
             b->stranded, b->bounded ? 0 : live, b->bounded ? live : 0, available, b->capacity);
    const char *sums = quota_sums(&world, b->name);
    EXPECT(strcmp(sums, expected) == 0, "%s, expected %s", seed, sums, expected);
    const Pb__QuotaState *state = quota_look(&world, b->name);
    EXPECT((state->record->refill_index != 0) == b->armed && state->record->starving == b->starving, "%s", seed,
           b->name);
    EXPECT(state->record->held == held_by_leases(b, true), "%lu", seed, state->record->held);
    size_t count = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (b->leases[i].reclaimed) continue;
        const Pb__QuotaLease *lease = quota_lease_of(state, b->leases[i].id);
        EXPECT(lease && lease->balance == b->leases[i].balance && lease->wants == b->leases[i].want, "%lu", seed,
               b->leases[i].id);
        count++;
    }
    EXPECT(state->n_leases == count && state->record->leases == count, "%zu", seed, count);
    if (!b->bounded && b->capacity == b->highest) EXPECT(gone + live <= b->capacity, "%s", seed, b->name);
    if (b->bounded && b->capacity + b->drift == b->highest) EXPECT(gone + live <= b->highest, "%s", seed, b->name);
}

/* -- what happens: budgets ---------------------------------------------------------------------------------------- */

static void define(unsigned which) {
    struct budget *b = &budgets[which];
    Pb__QuotaDefinition d =
        quota_plain(b->name, which == 2 ? PB__QUOTA_MODE__QUOTA_BOUNDED : PB__QUOTA_MODE__QUOTA_LEASE);
    static const uint64_t capacities[] = {20, 100, 1000, QUOTA_AMOUNT_MOST};
    if (b->there && !one_in(3)) return;
    bool fresh = !b->there;
    d.budget = which == 3 && fresh && one_in(3) ? QUOTA_AMOUNT_MOST : capacities[below(3)];
    if (!fresh && b->window) d.budget = least(d.budget, b->capacity); /* or what is allowed in this window grows */
    d.max_lease = one_in(2) ? QUOTA_WHOLE : 300000;
    d.drift = 200000, d.tokens = 7, d.every_ms = 1000, d.lease_ttl_ms = 10000;
    if (which == 1) d.tokens = d.every_ms = 0, d.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    cr_assert(quota_put(&world, &d).yes);
    if (fresh) {
        char name[4];
        memcpy(name, b->name, sizeof name);
        *b = (struct budget){.there = true, .window = which == 1, .bounded = which == 2};
        memcpy(b->name, name, sizeof name);
        for (unsigned i = 0; i < OWNERS; i++) owner_forgets(&owners[i], which); /* the notice wakes them */
    }
    bool same = !fresh && b->capacity == d.budget && b->most == quota_part(d.budget, d.max_lease);
    b->capacity = d.budget, b->drift = quota_part(d.budget, d.drift), b->tokens = 7, b->ttl_s = 10;
    b->most = quota_part(d.budget, d.max_lease);
    if (!same) {
        for (unsigned i = 0; i < QUOTA_PRIORITIES; i++) b->levels[i] = UINT64_MAX, b->uneven[i] = b->classes[i] = false;
        turn_next(b), turn_next(b);
        b->starving = false;
    }
    uint64_t all = b->capacity + drift_of(b);
    if (all > b->highest) b->highest = all;
    if (all > b->allowed) b->allowed = all;
}

static void delete (unsigned which) {
    struct budget *b = &budgets[which];
    struct outcome outcome = quota_delete(&world, b->name);
    EXPECT(outcome.yes == b->there && (b->there || outcome.error == CO_NOTFOUND), "%s", seed, b->name);
    b->there = false, b->count = 0;
    for (unsigned i = 0; i < OWNERS; i++) owner_forgets(&owners[i], which);
}

static void refill(unsigned which) {
    struct budget *b = &budgets[which];
    if (!b->there || !b->armed) return;
    uint64_t index = quota_look(&world, b->name)->record->refill_index;
    if (one_in(4))
        EXPECT(quota_refill_as(&world, b->name, index - 1, world.term, now_s).error == CO_CONFLICT, "", seed);
    if (one_in(4))
        EXPECT(quota_refill_as(&world, b->name, index, world.term - 1, now_s).error == CO_CONFLICT, "", seed);
    EXPECT(quota_refill_as(&world, b->name, index, world.term, now_s).yes, "", seed);
    int64_t window_s = now_s / WINDOW_S * WINDOW_S;
    bool begins = b->window && b->noted && window_s > b->window_s;
    b->noted = true;
    if (b->window && window_s > b->window_s) b->window_s = window_s;
    if (b->window && !begins) return;
    uint64_t held = held_by_leases(b, true), ready = b->spent + b->stranded - held;
    uint64_t amount = b->window ? ready : least(ready, b->tokens);
    b->spent = ready - amount, b->stranded = held;
    if (amount) b->starving = false;
    b->refilled += amount;
    if (!b->window && kept_of(b, b->turn) && ++b->turn_refills >= QUOTA_TURN_MS / 1000) turn_next(b);
    if (begins) { /* what was granted before it was lowered may still be spent */
        uint64_t granted_before = held_by_leases(b, false) + held;
        b->admitted = 0;
        b->allowed = b->capacity > granted_before ? b->capacity : granted_before;
    }
    arm(b);
}

/* -- what happens: asks ------------------------------------------------------------------------------------------- */

/* Compares the answer with the model's grant. */
static void granted(struct budget *b, unsigned who, const Pb__QuotaAsk *ask, const Pb__QuotaGrant *grant) {
    struct lease *lease = lease_of(b, who);
    if (lease && ask->seq == lease->seq) { /* again */
        EXPECT(grant->granted == lease->answer.granted && grant->balance == lease->answer.balance &&
                   grant->taken == lease->answer.taken,
               "again: %lu", seed, grant->granted);
        lease->ends_s = now_s + (int64_t)b->ttl_s, lease->renewed = machine_index(world.machine);
        return;
    }
    uint64_t back = 0, more = 0;
    if (!lease) {
        cr_assert(b->count < LEASES);
        lease = &b->leases[b->count++];
        *lease = (struct lease){.id = grant->lease, .owner = who};
    } else {
        back = lease->balance - ask->spent - ask->held;
        settle(b, lease, ask->spent, ask->held);
    }
    bool taken = ask->take && ask->take <= rest(takeable(b), kept(b, lease));
    if (taken) b->spent += ask->take, b->admitted += ask->take, b->ever += ask->take;
    lease->want = ask->want, lease->priority = ask->priority, lease->seq = ask->seq;
    uint64_t wish = least(ask->want, b->most);
    more = more_of(b, lease, wish, false);
    if (lease->balance + more < wish) {
        count_levels(b);
        more = more_of(b, lease, wish, is_spare(b, lease));
    }
    lease->balance += more;
    bool starves = lease->balance < wish;
    if (starves || back > more) b->starving = starves;
    starved += starves, grants++;
    waits(b, lease, starves && !lease->balance && !taken, wish);
    EXPECT(grant->granted == more && grant->balance == lease->balance && grant->taken == taken &&
               grant->lease == lease->id,
           "granted %lu, expected %lu", seed, grant->granted, more);
    lease->answer.granted = more, lease->answer.balance = lease->balance, lease->answer.taken = taken;
    lease->ends_s = now_s + (int64_t)b->ttl_s, lease->renewed = machine_index(world.machine);
    arm(b);
}

static void ask_anew(struct purse *purse, unsigned which) {
    struct budget *b = &budgets[which];
    if (now_s >= purse->until_s && purse->lease) purse->balance = 0; /* too late to spend it; it gives it back */
    uint64_t held = purse->balance ? below(purse->balance + 1) : 0;
    pb__quota_ask__init(&purse->ask);
    purse->ask.name = b->name, purse->ask.seq = ++purse->seq, purse->ask.lease = one_in(2) ? purse->lease : 0;
    purse->ask.spent = purse->unreported, purse->ask.held = held;
    purse->ask.want = one_in(8) ? QUOTA_AMOUNT_MOST : below(b->capacity + 2);
    purse->ask.priority = one_in(3) ? (uint32_t)below(QUOTA_PRIORITIES) : 4;
    if (one_in(4)) purse->ask.take = 1 + below(b->capacity / 4 + 1);
    purse->balance = held, purse->unreported = 0;
}

static void answered(struct purse *purse, const Pb__QuotaGrant *grant) {
    purse->asking = false;
    purse->lease = grant->lease;
    purse->balance = grant->balance - purse->unreported; /* what it spent meanwhile */
    purse->until_s = purse->sent_s + (int64_t)(grant->ttl_ms / 1000);
}

static void ask(unsigned who, unsigned which) {
    struct owner *owner = &owners[who];
    struct purse *purse = &owner->purses[which];
    struct budget *b = &budgets[which];
    if (!owner->there) return;
    if (!b->there) {
        EXPECT(quota_ask(&world, owner->session, ASK(.name = b->name, .want = 1))->error == CO_NOTFOUND, "", seed);
        return;
    }
    if (!purse->asking) ask_anew(purse, which);
    bool known = !purse->ask.lease || (lease_of(b, who) && lease_of(b, who)->id == purse->ask.lease);
    bool claims = !lease_of(b, who) && (purse->ask.spent || purse->ask.held);
    purse->sent_s = now_s;
    const Pb__QuotaGrant *grant = quota_ask(&world, owner->session, &purse->ask);
    if (!known || claims) { /* its time was over */
        EXPECT(grant->error == (known ? CO_INVALID : CO_NOTFOUND), "%s", seed, grant->text);
        owner_forgets(owner, which);
        late++;
        return;
    }
    EXPECT(grant->error == 0, "%s", seed, grant->text);
    granted(b, who, &purse->ask, grant);
    purse->asking = one_in(5);
    lost += purse->asking;
    if (!purse->asking) answered(purse, grant);
}

static void nonsense(unsigned who, unsigned which) {
    struct owner *owner = &owners[who];
    struct budget *b = &budgets[which];
    struct lease *lease = b->there && owner->there ? lease_of(b, who) : NULL;
    if (!lease) return;
    uint64_t balance = lease->balance;
    Pb__QuotaAsk bad = *ASK(.name = b->name, .lease = lease->id, .spent = balance + 1);
    if (one_in(2)) bad.spent = 0, bad.held = balance + 1;
    else if (one_in(2)) bad.spent = UINT64_MAX - below(3), bad.held = 3;
    EXPECT(quota_ask(&world, owner->session, &bad)->error == CO_INVALID, "", seed);
    bad = *ASK(.name = b->name, .lease = lease->id, .held = balance, .want = QUOTA_AMOUNT_MOST, .all = true);
    uint64_t most = b->most;
    if (most < QUOTA_AMOUNT_MOST) EXPECT(quota_ask(&world, owner->session, &bad)->error == CO_BUSY, "", seed);
    EXPECT(quota_settle(&world, b->name, lease->id, balance + 1).error == CO_INVALID, "", seed);
}

static void closes(unsigned who, unsigned which) {
    struct purse *purse = &owners[who].purses[which];
    struct budget *b = &budgets[which];
    struct lease *lease = b->there && owners[who].there && !purse->asking ? lease_of(b, who) : NULL;
    if (!lease || lease->id != purse->lease) return;
    uint64_t back = lease->balance - purse->unreported;
    if (one_in(2)) {
        EXPECT(quota_settle(&world, b->name, lease->id, purse->unreported).yes, "", seed);
        EXPECT(quota_settle(&world, b->name, lease->id, 0).error == CO_NOTFOUND, "", seed);
    } else {
        EXPECT(quota_ask(&world, owners[who].session,
                         ASK(.name = b->name, .lease = lease->id, .seq = ++purse->seq, .spent = purse->unreported,
                             .close = true))
                       ->error == 0,
               "", seed);
    }
    b->spent += purse->unreported;
    if (back) b->starving = false;
    lease_goes(b, lease);
    owner_forgets(&owners[who], which);
    arm(b);
}

/* -- what happens: time ------------------------------------------------------------------------------------------- */

static void end_leases(unsigned which) {
    struct budget *b = &budgets[which];
    for (size_t i = 0; b->there && i < b->count; i++) {
        struct lease *lease = &b->leases[i];
        if (lease->ends_s > now_s || one_in(2)) continue;
        EXPECT(quota_end_as(&world, b->name, lease->id, lease->renewed - 1, world.term).error == CO_CONFLICT, "", seed);
        EXPECT(quota_end_as(&world, b->name, lease->id, lease->renewed, world.term).yes, "", seed);
        if (!lease->reclaimed) b->stranded += lease->balance;
        lease_goes(b, lease);
        arm(b);
        return;
    }
}

static void leader_changes(void) {
    world.term++;
    for (unsigned i = 0; i < BUDGETS; i++)
        for (size_t j = 0; j < budgets[i].count; j++)
            budgets[i].leases[j].ends_s = now_s + (int64_t)budgets[i].ttl_s; /* a full period anew */
}

static void step(void) {
    unsigned who = (unsigned)below(OWNERS), which = (unsigned)below(BUDGETS);
    if (!owners[who].there && one_in(3)) session_begins(who);
    if (one_in(6)) now_s += 1 + (int64_t)below(5);
    switch (below(16)) {
        case 0: define(which); break;
        case 1:
            if (one_in(6)) delete (which);
            break;
        case 2:
        case 3:
        case 4: refill(which); break;
        case 5: end_leases(which); break;
        case 6: closes(who, which); break;
        case 7: nonsense(who, which); break;
        case 8:
            if (one_in(6)) leader_changes();
            break;
        case 9:
            if (!owners[who].there || !one_in(4)) break;
            cr_assert(session_drop(&world, owners[who].session).yes);
            session_ended(who);
            owners[who].there = false; /* it spends on, as it does not know */
            break;
        default: ask(who, which); break;
    }
    for (unsigned i = 0; i < 3; i++) spend((unsigned)below(OWNERS), (unsigned)below(BUDGETS));
    compare(which);
    for (unsigned i = 0; i < BUDGETS; i++) windows_check(&budgets[i]);
}

static void run(uint64_t number) {
    seed = number;
    rng_seed(&rng, seed);
    quotas_open(&world);
    now_s = 1000000;
    sessions = 0;
    memset(budgets, 0, sizeof budgets), memset(owners, 0, sizeof owners);
    for (unsigned i = 0; i < BUDGETS; i++) snprintf(budgets[i].name, sizeof budgets[i].name, "b%u", i), define(i);
    for (unsigned i = 0; i < STEPS; i++) step();
    for (unsigned i = 0; i < BUDGETS; i++)
        if (budgets[i].there) quota_trail_check(&world, budgets[i].name);
    fixture_close(&world);
}

Test(quota_model, grants_sums_and_windows_are_as_the_contract_says, .timeout = 300) {
    const char *only = getenv("COORD_SEED");
    if (only) {
        run(strtoul(only, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= SEEDS; i++) run(i);
    cr_expect(grants > 1000 && lost > 200 && starved > 200 && late > 20, "%u %u %u %u", grants, lost, starved, late);
}
