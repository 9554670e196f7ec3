/* A model of budgets under the committed commands (kv/quota/quota.h): it checks each grant against the tokens that
 * there are, each sum against the grants, and that nothing comes back before its time. It does not repeat the rules for
 * sharing too few tokens (tests/kv/test_quota_model.c has these), but checks that nobody gets less than it wants while
 * there is enough for all. */
#include "tests/sim/quota_model.h"

#include <string.h>

#include "base/check.h"
#include "tests/sim/gateways.h"

#define P PRIu64

struct version {
    uint64_t index, sum, noticed, notice_sum, trail_sum;
    bool there;
};
static struct quota_model *model_of(struct sim *sim) { return sim_model(sim, &sim_quota); }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t rest(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* -- sums ------------------------------------------------------------------------------------------------------------- */

static bool is_bounded(unsigned which) { return which == QUOTA_SLACK; }

static uint64_t balances(const struct quota_budget *b, bool reclaimed) {
    uint64_t sum = 0;
    for (size_t i = 0; i < b->count; i++) sum += b->leases[i].reclaimed == reclaimed ? b->leases[i].balance : 0;
    return sum;
}

static uint64_t drift(const struct quota_budget *b) { return b->capacity / 5; }

static uint64_t takeable(const struct quota_budget *b, unsigned which) {
    return rest(b->capacity, b->spent + b->stranded + (is_bounded(which) ? 0 : balances(b, false)));
}

static uint64_t shareable(const struct quota_budget *b, unsigned which) {
    if (!is_bounded(which)) return rest(b->capacity, b->spent + b->stranded);
    return least(drift(b), rest(b->capacity + drift(b), b->spent + b->stranded));
}

static uint64_t lease_most(const struct quota_budget *b) { return b->capacity / 2; }

/* -- from index to index ------------------------------------------------------------------------------------------------ */

static uint64_t notice_sum(const struct quota_budget *b) {
    uint64_t sum = quota_on(quota_on(b->defined, b->epoch), b->active);
    for (unsigned i = 0; i < QUOTA_SPLITS; i++) sum = quota_on(sum, b->parts[i]);
    return quota_on(quota_on(sum, b->came), b->denied);
}

/* True: its notice says so. Where something was denied it says when there is more again. */
static bool news(struct quota_budget *b, unsigned which, uint64_t index) {
    uint64_t room = b->there && which != QUOTA_OWNED ? takeable(b, which) : 0;
    bool came = b->denied && room > b->room;
    if (came) b->denied = false, b->came = index;
    bool denied = b->denies && !b->denied;
    if (denied) b->denied = true;
    b->denies = false;
    b->room = room;
    return came || denied;
}

static void changed(struct sim *sim, unsigned which, uint64_t index, bool notice) {
    struct quota_budget *b = &model_of(sim)->budgets[which];
    bool owed = b->there && b->spent + b->stranded > 0;
    if (owed != (b->armed != 0)) {
        b->armed = owed ? index : 0, b->armed_us = sim->now_us;
        b->noted = false;
    }
    bool low = is_bounded(which) && b->there && b->spent + b->stranded + b->capacity / 10 >= b->capacity;
    if (news(b, which, index) || notice || (low && !b->low)) b->noticed = index;
    b->low = low;
    const struct quota_sums sums = {b->capacity, b->spent, b->stranded, balances(b, false), balances(b, true),
                                    b->armed,    b->epoch, b->active,   b->starving};
    static const struct version none;
    struct version *next = versions_next(&model_of(sim)->versions[which], sizeof none, index, &none);
    *next = (struct version){index,
                             quota_sum(&sums),
                             b->noticed,
                             notice_sum(b),
                             quota_trail_sum(b->spent, b->stranded, balances(b, false)),
                             b->there};
    if (b->there && b->spent + b->stranded + balances(b, false) > b->highest)
        sim_violation(sim, RULE_MODEL, "budget q%u at %" P ": %" P " spent, %" P " stranded, %" P " held, of %" P,
                      which, index, b->spent, b->stranded, balances(b, false), b->highest);
}

void quota_model_end(struct sim *sim) {
    for (unsigned i = 0; i < QUOTAS; i++) versions_free(&model_of(sim)->versions[i]);
}

/* -- members ------------------------------------------------------------------------------------------------------------ */

static bool may_be_active(const struct quota_budget *b) {
    bool came = false, acknowledged = true;
    for (size_t i = 0; i < b->count; i++) {
        if (b->leases[i].id > b->active) came |= b->leases[i].id <= b->epoch;
        else if (b->leases[i].acked < b->epoch) acknowledged = false;
    }
    return acknowledged || !came;
}

/* Makes the pending epoch active; asks that came meanwhile waited for this. */
static void settle_epoch(struct quota_budget *b, uint64_t index) {
    while (b->active != b->epoch && may_be_active(b)) {
        b->active = b->epoch;
        for (size_t i = 0; i < b->count; i++)
            if (b->leases[i].id > b->active) b->epoch = index;
    }
}

static void members_changed(struct quota_budget *b, uint64_t index) {
    b->epoch = index;
    settle_epoch(b, index);
}

/* -- leases ------------------------------------------------------------------------------------------------------------- */

static struct quota_lease *lease_by_id(struct quota_budget *b, uint64_t id) {
    for (size_t i = 0; i < b->count; i++)
        if (b->leases[i].id == id) return &b->leases[i];
    return NULL;
}

static struct quota_lease *lease_by_session(struct quota_budget *b, uint64_t session) {
    for (size_t i = 0; session && i < b->count; i++)
        if (!b->leases[i].reclaimed && b->leases[i].session == session) return &b->leases[i];
    return NULL;
}

static void goes(struct quota_budget *b, struct quota_lease *lease) { *lease = b->leases[--b->count]; }

static void session_ended(struct sim *sim, unsigned which, uint64_t session, uint64_t index) {
    struct quota_budget *b = &model_of(sim)->budgets[which];
    struct quota_lease *lease = lease_by_session(b, session);
    if (!lease) return;
    lease->session = 0;
    if (which != QUOTA_OWNED) {
        b->stranded += lease->balance;
        lease->reclaimed = true;
        if (lease->balance == 0) goes(b, lease);
    }
    changed(sim, which, index, false);
}

void quota_model_notice(struct sim *sim, const struct sim_notice *notice) {
    for (unsigned i = 0; notice->type == SIM_ENDED && i < QUOTAS; i++)
        session_ended(sim, i, notice->op->id, notice->index);
}

/* The servers have ended it: never while its owner may spend, by any clock. */
static void lease_ended(struct sim *sim, unsigned which, struct quota_lease *lease, uint64_t index) {
    struct quota_budget *b = &model_of(sim)->budgets[which];
    if (lease->asked_us + period_us(sim, QUOTA_TTL) > sim->now_us)
        sim_violation(sim, RULE_LEASE, "lease %" P " of q%u ends at %" P ", %" P " ms after its last ask was sent",
                      lease->id, which, index, (sim->now_us - lease->asked_us) / MS);
    if (!lease->reclaimed) b->stranded += lease->balance;
    goes(b, lease);
    if (which == QUOTA_OWNED) members_changed(b, index);
    changed(sim, which, index, which == QUOTA_OWNED);
}

/* -- asks --------------------------------------------------------------------------------------------------------------- */

struct asked {
    struct sim *sim;
    unsigned which;
    struct quota_budget *b;
    const Pb__QuotaAsk *ask;
    const Pb__QuotaGrant *grant;
    uint64_t session, index;
};

static void differs(const struct asked *a, const char *what, uint64_t is, uint64_t wanted) {
    sim_violation(a->sim, RULE_MODEL, "ask of q%u at %" P ": %s %" P ", expected %" P, a->which, a->index, what, is,
                  wanted);
}

/* It refuses, for this reason; or does not. */
static int refusal(const struct asked *a, const struct quota_lease *lease) {
    const Pb__QuotaAsk *ask = a->ask;
    uint64_t balance = lease ? lease->balance : 0;
    if (!a->b->there) return CO_NOTFOUND;
    if ((ask->lease || ask->close) && !lease) return CO_NOTFOUND;
    if (lease && ask->seq < lease->seq) return CO_CONFLICT;
    if (lease && ask->seq == lease->seq) return CO_OK;
    if (ask->take && a->which == QUOTA_OWNED) return CO_INVALID;
    if (ask->spent > balance || ask->held > balance - (is_bounded(a->which) ? 0 : ask->spent)) return CO_INVALID;
    if (ask->close && (ask->held || ask->want)) return CO_INVALID;
    if (ask->acked > a->b->epoch) return CO_INVALID;
    if (a->which == QUOTA_OWNED && a->grant->error == CO_CONFLICT) return CO_CONFLICT; /* it has no instance, may be */
    return CO_OK;
}

/* Others who got nothing may come first. */
static bool others_want(const struct asked *a) {
    bool want = false;
    for (size_t i = 0; i < a->b->count; i++) {
        const struct quota_lease *lease = &a->b->leases[i];
        want |= !lease->reclaimed && lease->session != a->session && lease->want > lease->balance;
    }
    return want;
}

static void take(const struct asked *a) {
    bool taken = a->ask->take && a->ask->take <= takeable(a->b, a->which);
    if (a->grant->taken != taken && !(taken && others_want(a))) differs(a, "taken", a->grant->taken, taken);
    if (a->grant->taken) a->b->spent += a->ask->take;
    else a->b->denies |= a->ask->take > 0;
}

/* Is there enough for what all want, beside what others hold and do not want? If not, some of the free tokens may be kept
 * for a lease that got nothing before (Q8), and this ask gets the others. */
static bool enough_for_all(const struct asked *a) {
    uint64_t wants = 0;
    for (size_t i = 0; i < a->b->count; i++) {
        const struct quota_lease *lease = &a->b->leases[i];
        uint64_t wish = least(lease->want, lease_most(a->b));
        if (!lease->reclaimed) wants += wish > lease->balance ? wish : lease->balance;
    }
    return wants <= shareable(a->b, a->which);
}

/* At most what there is; and all that it wants when that is enough. True: somebody begins to starve. */
static bool grant(const struct asked *a, struct quota_lease *lease, uint64_t back) {
    struct quota_budget *b = a->b;
    uint64_t granted = a->grant->granted, wish = least(a->ask->want, lease_most(b)), lacks = rest(wish, lease->balance);
    uint64_t room = rest(shareable(b, a->which), balances(b, false));
    lease->want = a->ask->want;
    if (granted > least(lacks, room)) differs(a, "granted", granted, least(lacks, room));
    if (granted < least(lacks, room) && enough_for_all(a)) differs(a, "granted only", granted, least(lacks, room));
    lease->balance += granted;
    bool starves = lease->balance < wish, begins = starves && !b->starving;
    if (starves || back > granted) b->starving = starves;
    b->denies |= starves && !is_bounded(a->which);
    return begins;
}

static void split(const struct asked *a) {
    if (!a->ask->acked || a->ask->acked != a->b->epoch || a->ask->acked != a->b->active) return;
    for (size_t i = 0; i < a->ask->n_split; i++)
        a->b->parts[a->ask->split[i]->key.data[0] - 'a'] =
            a->ask->split[i]->parts > 1 ? (uint8_t)a->ask->split[i]->parts : 0;
}

static void member(const struct asked *a, struct quota_lease *lease, bool fresh) {
    bool acked = a->ask->acked > lease->acked;
    if (acked) lease->acked = a->ask->acked;
    split(a);
    if (!fresh && acked) settle_epoch(a->b, a->index);
    else if (fresh && a->b->active == a->b->epoch) members_changed(a->b, a->index);
}

static void close_lease(const struct asked *a, struct quota_lease *lease) {
    struct quota_budget *b = a->b;
    b->spent += a->ask->spent;
    if (lease->balance > a->ask->spent) b->starving = false;
    goes(b, lease);
    if (a->which == QUOTA_OWNED) members_changed(b, a->index);
    take(a);
    changed(a->sim, a->which, a->index, a->which == QUOTA_OWNED);
}

static void without_lease(const struct asked *a) {
    take(a);
    if (a->grant->taken || (a->b->denies && !a->b->denied)) changed(a->sim, a->which, a->index, false);
    a->b->denies = false;
}

static void renewed(const struct asked *a, struct quota_lease *lease, uint64_t invoked_us) {
    lease->renewed = a->index;
    if (invoked_us > lease->asked_us) lease->asked_us = invoked_us;
    if (a->grant->balance != lease->answer.balance) differs(a, "balance", a->grant->balance, lease->answer.balance);
    if (a->grant->lease != lease->id) differs(a, "lease", a->grant->lease, lease->id);
}

static void with_lease(const struct asked *a, struct quota_lease *lease, uint64_t invoked_us) {
    struct quota_budget *b = a->b;
    bool fresh = !lease, notice = false;
    uint64_t back = 0, before = notice_sum(b);
    if (lease && a->ask->seq == lease->seq) { /* again: nothing but the time */
        if (a->grant->granted != lease->answer.granted) differs(a, "again", a->grant->granted, lease->answer.granted);
        if (a->grant->taken != lease->answer.taken) differs(a, "again, taken", a->grant->taken, lease->answer.taken);
        renewed(a, lease, invoked_us);
        changed(a->sim, a->which, a->index, false);
        return;
    }
    if (fresh) {
        CHECK(b->count < QUOTA_LEASES);
        lease = &b->leases[b->count++];
        *lease = (struct quota_lease){.id = a->index, .session = a->session};
    } else {
        uint64_t left = lease->balance - a->ask->spent, keep = least(a->ask->held, left);
        back = left - keep;
        b->spent += a->ask->spent;
        lease->balance = keep;
    }
    take(a);
    if (a->which == QUOTA_OWNED) member(a, lease, fresh);
    else notice = grant(a, lease, back);
    lease->seq = a->ask->seq;
    lease->answer.granted = a->grant->granted, lease->answer.balance = lease->balance;
    lease->answer.taken = a->grant->taken;
    renewed(a, lease, invoked_us);
    changed(a->sim, a->which, a->index, notice || before != notice_sum(b));
}

static void one_ask(const struct asked *a, const struct op *op) {
    struct quota_own *own = quota_own(op);
    bool leased = a->ask->lease || a->ask->seq || a->ask->close;
    struct quota_lease *lease = a->b->there && leased ? lease_by_session(a->b, a->session) : NULL;
    if (lease && a->ask->lease && a->ask->lease != lease->id) lease = NULL;
    if (a->ask->lease == 0 && a->ask->seq == 0) lease = NULL;
    int wanted = refusal(a, lease);
    if (a->grant->error != (uint32_t)wanted) differs(a, "error", a->grant->error, (uint64_t)wanted);
    own->error = (uint8_t)a->grant->error, own->balance = (uint32_t)a->grant->balance;
    own->epoch = a->grant->epoch;
    if (!a->grant->error) own->lease = a->grant->lease;
    if (wanted || a->grant->error) return;
    if (!leased) without_lease(a);
    else if (a->ask->close && a->ask->seq != lease->seq) close_lease(a, lease);
    else with_lease(a, lease, op->invoked_us);
}

static struct sim_expected asks(struct sim *sim, const struct sim_applied *applied) {
    const Pb__QuotaAskCommand *command = (const Pb__QuotaAskCommand *)applied->command;
    const Pb__QuotaGrants *grants = (const Pb__QuotaGrants *)applied->result->message;
    unsigned which = quota_own(applied->op)->budget;
    struct asked a = {.sim = sim, .which = which, .b = &model_of(sim)->budgets[which], .ask = command->asks[0]};
    if (command->session && !expiring_alive(sim, applied->op->owner)) return expect_error();
    if (!grants || grants->n_grants != 1) return expect_yes();
    a.grant = grants->grants[0], a.index = applied->index;
    a.session = command->session ? applied->op->owner : 0;
    one_ask(&a, applied->op);
    return expect_yes();
}

static struct sim_expected settles(struct sim *sim, const struct sim_applied *applied) {
    const Pb__QuotaSettleCommand *command = (const Pb__QuotaSettleCommand *)applied->command;
    unsigned which = quota_own(applied->op)->budget;
    struct quota_budget *b = &model_of(sim)->budgets[which];
    struct quota_lease *lease = b->there ? lease_by_id(b, command->lease) : NULL;
    if (!lease || lease->reclaimed || command->spent > lease->balance) return expect_error();
    b->spent += command->spent;
    if (lease->balance > command->spent) b->starving = false;
    goes(b, lease);
    if (which == QUOTA_OWNED) members_changed(b, applied->index);
    changed(sim, which, applied->index, which == QUOTA_OWNED);
    return expect_yes();
}

/* -- definitions -------------------------------------------------------------------------------------------------------- */

static struct sim_expected defines(struct sim *sim, const struct sim_applied *applied) {
    const struct quota_own *own = quota_own(applied->op);
    struct quota_budget *b = &model_of(sim)->budgets[own->budget];
    bool tokens = own->budget != QUOTA_WINDOWED;
    if (b->there && b->capacity == own->want && (!tokens || b->tokens == own->take)) return expect_yes();
    if (b->there && tokens && b->tokens != own->take && b->armed) b->armed = applied->index, b->armed_us = sim->now_us;
    if (!b->there) *b = (struct quota_budget){.there = true, .came = applied->index};
    b->capacity = own->want, b->tokens = own->take, b->defined = applied->index;
    b->starving = false;
    uint64_t highest = b->capacity + (is_bounded(own->budget) ? drift(b) : 0);
    if (highest > b->highest) b->highest = highest;
    changed(sim, own->budget, applied->index, true);
    return expect_yes();
}

static struct sim_expected deletes(struct sim *sim, const struct sim_applied *applied) {
    unsigned which = quota_own(applied->op)->budget;
    struct quota_budget *b = &model_of(sim)->budgets[which];
    if (!b->there) return expect_error();
    *b = (struct quota_budget){0};
    changed(sim, which, applied->index, true);
    return expect_yes();
}

/* -- what servers propose ----------------------------------------------------------------------------------------------- */

static unsigned budget_named(const char *name) { return (unsigned)(name[1] - '0'); }

static uint64_t term_of(struct sim *sim, uint64_t index) { return sim->chronicle->committed[index - 1].term; }

/* Does it bring something back, or only say which window it is? Servers' clocks are far apart here; windows never go back. */
static bool window_begins(struct quota_budget *b, int64_t unix_ms) {
    int64_t start = unix_ms / 60000 * 60;
    bool later = start > b->window_s, begins = b->noted && later;
    b->noted = true;
    if (later) b->window_s = start;
    return begins;
}

static struct sim_expected refills(struct sim *sim, const struct sim_applied *applied) {
    const Pb__QuotaRefillCommand *command = (const Pb__QuotaRefillCommand *)applied->command;
    unsigned which = budget_named(command->name);
    struct quota_budget *b = &model_of(sim)->budgets[which];
    bool windowed = which == QUOTA_WINDOWED;
    if (!b->there || command->term != term_of(sim, applied->index) || command->index != b->armed) return expect_error();
    if (!windowed && sim->now_us < b->armed_us + period_us(sim, QUOTA_EVERY))
        sim_violation(sim, RULE_LEASE, "a refill of q%u at %" P ", %" P " ms after it was armed", which, applied->index,
                      (sim->now_us - b->armed_us) / MS);
    if (!windowed || window_begins(b, command->now_unix_ms)) {
        uint64_t held = balances(b, true), ready = b->spent + b->stranded - held;
        uint64_t amount = windowed ? ready : least(ready, b->tokens);
        b->spent = ready - amount, b->stranded = held;
        if (amount) b->starving = false;
    }
    b->armed = applied->index, b->armed_us = sim->now_us;
    if (b->spent + b->stranded == 0) b->noted = false;
    changed(sim, which, applied->index, false);
    return expect_yes();
}

static struct sim_expected lease_ends(struct sim *sim, const struct sim_applied *applied) {
    const Pb__QuotaLeaseEndCommand *command = (const Pb__QuotaLeaseEndCommand *)applied->command;
    unsigned which = budget_named(command->name);
    struct quota_budget *b = &model_of(sim)->budgets[which];
    struct quota_lease *lease = b->there ? lease_by_id(b, command->lease) : NULL;
    if (command->term != term_of(sim, applied->index)) return expect_error();
    if (!lease) return expect_yes();
    if (command->index != lease->renewed) return expect_error();
    lease_ended(sim, which, lease, applied->index);
    return expect_yes();
}

struct sim_expected quota_model_apply(struct sim *sim, const struct sim_applied *applied) {
    if (sim->gateways) return gateways_applied(sim, applied); /* no others are there then */
    switch (applied->number) {
        case QUOTA_REFILL: return refills(sim, applied);
        case QUOTA_LEASE_END: return lease_ends(sim, applied);
        case QUOTA_ASK: return asks(sim, applied);
        case QUOTA_SETTLE: return settles(sim, applied);
        case QUOTA_PUT: return defines(sim, applied);
        default: return deletes(sim, applied);
    }
}

/* -- reads -------------------------------------------------------------------------------------------------------------- */

void quota_model_read(struct sim *sim, const struct op *op) {
    static const struct version none;
    const struct quota_own *own = quota_own(op);
    const struct version *version = versions_at(&model_of(sim)->versions[own->budget], sizeof none, op->index, &none);
    bool follows = op->kind == QUOTA_OP_FOLLOW;
    if (op->kind == QUOTA_OP_TRAIL) {
        bool same = !op->found || own->sum == QUOTA_UNKNOWN || own->sum == version->trail_sum;
        if (op->found != version->there || !same || op->seen_index != version->index)
            sim_violation(sim, RULE_MODEL, "the trail of q%u at s%u, applied %" P ", does not add up", own->budget,
                          op->server + 1, op->index);
        return;
    }
    uint64_t index = follows ? version->noticed : version->index, sum = follows ? version->notice_sum : version->sum;
    if (!version->there) index = version->index, sum = 0;
    if (op->found != version->there || op->seen_index != index || own->sum != sum)
        sim_violation(sim, RULE_MODEL,
                      "read %" P " of q%u at s%u, applied %" P ": kind %u at %" P "%s, expected %" P "%s%s", op->id,
                      own->budget, op->server + 1, op->index, op->kind, op->seen_index, op->found ? "" : " (none)",
                      index, version->there ? "" : " (none)", own->sum == sum ? "" : ", and other sums");
}

bool quota_model_over(struct sim *sim) {
    if (sim->gateways && !gateways_over(sim)) return false;
    for (unsigned i = 0; i < QUOTAS; i++)
        if (model_of(sim)->budgets[i].count) return false;
    return true;
}
