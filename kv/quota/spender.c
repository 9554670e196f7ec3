#include "kv/quota/spender.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "kv/quota/spender_internal.h"

#define EVICT_LOOKS 256

struct spender *spender_new(const struct spender_config *config) {
    CHECK(config->priority < QUOTA_PRIORITIES);
    struct spender *spender = mem_zalloc(sizeof *spender);
    spender->slot_mask = 63;
    spender->slots = mem_zalloc((spender->slot_mask + 1) * sizeof *spender->slots);
    spender->node = mem_strdup(config->node);
    spender->priority = config->priority;
    spender->seed = config->seed;
    spender->turn = 1;
    spender->due_ns = spender->tick_ns = SPENDER_NEVER;
    spender->answer_ns = 50 * SPENDER_MS;
    rng_seed(&spender->rng, config->seed);
    list_init(&spender->ready);
    return spender;
}

static void budget_free(struct spender_budget *budget) {
    list_remove(&budget->ready);
    free(budget->name);
    free(budget->service);
    free(budget->loss);
    free(budget);
}

void spender_free(struct spender *spender) {
    if (!spender) return;
    for (size_t i = 0; i < spender->count; i++) budget_free(spender->budgets[i]);
    arena_free(&spender->arena);
    free(spender->budgets);
    free(spender->slots);
    free(spender->node);
    free(spender);
}

void spender_mutate(struct spender *spender, unsigned mutations) { spender->mutations = mutations; }

/* -- the table of budgets ----------------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct spender *spender, struct slice name) {
    return hash64_seed(name.data, name.size, spender->seed);
}

/* The slot of a budget, or the free slot for it. */
static struct spender_slot *slot_of(const struct spender *spender, struct slice name, uint64_t hash) {
    size_t at = hash & spender->slot_mask;
    for (;; at = (at + 1) & spender->slot_mask) {
        struct spender_slot *slot = &spender->slots[at];
        if (!slot->budget) return slot;
        if (slot->hash == hash && slot->budget->name_size == name.size &&
            memcmp(slot->budget->name, name.data, name.size) == 0)
            return slot;
    }
}

struct spender_budget *spender_find(const struct spender *spender, struct slice name) {
    return slot_of(spender, name, hash_of(spender, name))->budget;
}

static void grow(struct spender *spender) {
    size_t slots = 2 * (spender->slot_mask + 1);
    free(spender->slots);
    spender->slots = mem_zalloc(slots * sizeof *spender->slots);
    spender->slot_mask = slots - 1;
    for (size_t i = 0; i < spender->count; i++) {
        struct spender_budget *budget = spender->budgets[i];
        *slot_of(spender, slice_make(budget->name, budget->name_size), budget->hash) =
            (struct spender_slot){.hash = budget->hash, .budget = budget};
    }
}

/* NULL: the table is full. */
static struct spender_budget *budget_new(struct spender *spender, struct slice name, uint64_t now_ns) {
    if (2 * (spender->count + 1) > spender->slot_mask) grow(spender);
    if (spender->count == spender->room) {
        spender->room = spender->room ? 2 * spender->room : 16;
        spender->budgets = mem_realloc(spender->budgets, spender->room * sizeof *spender->budgets);
    }
    struct spender_budget *budget = mem_zalloc(sizeof *budget);
    pb__quota_definition__init(&budget->definition);
    budget->name = mem_strndup(name.data, name.size);
    budget->name_size = name.size;
    budget->hash = hash_of(spender, name);
    budget->most = budget->reach = budget->keyless_reach = SPENDER_NEVER;
    budget->used_ns = budget->counted_ns = now_ns;
    if (!spender->begun_ns) spender->begun_ns = now_ns;
    budget->begun_ns = spender->begun_ns;
    budget->due_ns = SPENDER_NEVER;
    list_init(&budget->ready);
    CHECK(!spender_find(spender, name) && 2 * (spender->count + 1) <= spender->slot_mask);
    *slot_of(spender, name, budget->hash) = (struct spender_slot){.hash = budget->hash, .budget = budget};
    spender->budgets[spender->count++] = budget;
    spender_follow_begin(spender, budget, now_ns);
    return budget;
}

/* Names of missing budgets make room for others, so that a client with invented names keeps no budget out. */
static bool make_room(struct spender *spender) {
    for (size_t i = 0; i < EVICT_LOOKS; i++) {
        CHECK(spender->count > 0);
        struct spender_budget *budget = spender->budgets[spender->evict++ % spender->count];
        bool busy = budget->asked || budget->following || !list_empty(&budget->ready);
        if (budget->known != SPENDER_NONE || busy || budget->lease || budget->mark == spender->mark) continue;
        spender_drop(spender, budget);
        return true;
    }
    return false;
}

void spender_drop(struct spender *spender, struct spender_budget *budget) {
    CHECK(!budget->asked && !budget->following);
    struct spender_slot *slot = slot_of(spender, slice_make(budget->name, budget->name_size), budget->hash);
    CHECK(slot->budget == budget);
    size_t hole = (size_t)(slot - spender->slots), at = hole;
    for (;;) { /* the following slots move up, as far as their hashes allow */
        at = (at + 1) & spender->slot_mask;
        if (!spender->slots[at].budget) break;
        size_t home = spender->slots[at].hash & spender->slot_mask;
        if (((at - home) & spender->slot_mask) < ((at - hole) & spender->slot_mask)) continue;
        spender->slots[hole] = spender->slots[at];
        hole = at;
    }
    spender->slots[hole] = (struct spender_slot){0};
    size_t i = 0;
    while (spender->budgets[i] != budget) i++;
    CHECK(i < spender->count);
    spender->budgets[i] = spender->budgets[--spender->count];
    budget_free(budget);
}

/* -- when something is to be done --------------------------------------------------------------------------------- */

void spender_wake(struct spender *spender) {
    spender->woken = true;
    spender->turn++;
}

bool spender_woken(struct spender *spender) {
    bool woken = spender->woken;
    if (woken) spender->turn++;
    spender->woken = false;
    return woken;
}

void spender_due(struct spender *spender, struct spender_budget *budget, uint64_t at_ns) {
    budget->due_ns = spender_min(budget->due_ns, at_ns);
    spender->due_ns = spender_min(spender->due_ns, at_ns);
}

void spender_tick_at(struct spender *spender, uint64_t at_ns) {
    spender->tick_ns = spender_min(spender->tick_ns, at_ns);
}

uint64_t spender_deadline_ns(const struct spender *spender) {
    if (!list_empty(&spender->ready)) return 0;
    return spender_min(spender->tick_ns, spender_ask_deadline(spender));
}

void spender_wall(struct spender *spender, uint64_t now_ns, int64_t unix_ms) {
    spender->wall_ms = unix_ms - (int64_t)(now_ns / SPENDER_MS);
    spender->wall_known = true;
}

void spender_tick(struct spender *spender, uint64_t now_ns) {
    if (spender_ask_late(spender, now_ns)) spender_wake(spender);
    if (now_ns < spender->tick_ns) return;
    uint64_t next_ns = SPENDER_NEVER;
    for (size_t i = spender->count; i-- > 0;) { /* from the end, because the last one takes the place of a dropped
                                                 * one */
        uint64_t at_ns = SPENDER_NEVER;
        next_ns = spender_min(next_ns, spender_rest_tick(spender, spender->budgets[i], now_ns));
        next_ns = spender_min(next_ns, spender_refusal_tick(spender, spender->budgets[i], now_ns));
        if (spender_follow_tick(spender, spender->budgets[i], now_ns, &at_ns))
            spender_drop(spender, spender->budgets[i]);
        else next_ns = spender_min(next_ns, at_ns);
    }
    spender->tick_ns = next_ns;
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

enum pot { FROM_NONE, FROM_LEFT, FROM_CREDIT, FROM_FALLBACK, FROM_SERVERS };

static const char spent_text[] = "the budget is spent";
static const char too_large[] = "more than the budget may ever have unspent";

/* The verdict on one take of a request. */
struct verdict {
    struct spender_budget *budget;
    int error;
    enum pot pot;
    enum spender_way way; /* for FROM_SERVERS */
    uint64_t retry_ms;
    const char *text;
};

static struct verdict verdict_of(struct spender_budget *budget, int error, const char *text, uint64_t retry_ms) {
    return (struct verdict){.budget = budget, .error = error, .text = text, .retry_ms = retry_ms};
}

static bool is_covered(const struct spender_budget *budget, const struct spender_take *take, uint64_t now_ns) {
    return take->n <= budget->left && (take->key.size || take->n <= budget->keyless_left) && now_ns < budget->end_ns;
}

/* Is the credit for just this take? Then it is used first, because it is lost when nobody comes for it. */
static bool is_credited(const struct spender_budget *budget, uint64_t n, bool waited, uint64_t now_ns) {
    return waited && n && n == budget->credit && now_ns < budget->credit_end_ns;
}

static void spend_left(struct spender *spender, struct spender_budget *budget, const struct spender_take *take,
                       bool waited, uint64_t now_ns) {
    CHECK(take->n <= budget->left && (take->key.size || take->n <= budget->keyless_left));
    budget->left -= take->n;
    if (!take->key.size) budget->keyless_left -= take->n;
    budget->spent += take->n;
    if (!waited) budget->demand += take->n;
    budget->used_ns = budget->want_ns = now_ns;
    if (budget->left < budget->low && !budget->asked)
        spender_due(spender, budget, spender_max(now_ns, budget->refused_ns));
    if (!budget->left && budget->starving && spender_owes_report(budget, now_ns)) spender_due(spender, budget, now_ns);
}

/* Judges a take that is not covered by on_loss, when no server can be asked. False: ask the servers. */
static bool judge_loss(struct spender *spender, struct spender_budget *budget, const struct spender_take *take,
                       bool last_try, uint64_t now_ns, struct verdict *out) {
    bool lost = spender_is_lost(spender);
    if (!lost && !last_try) return false;
    uint64_t retry_ms = 0;
    int rv = spender_loss_allows(budget, take->n, now_ns, &retry_ms);
    if (rv == CO_OK) {
        *out = (struct verdict){.budget = budget, .pot = FROM_FALLBACK};
        return true;
    }
    /* The servers are asked again now and then, and a take may wait for that. */
    if (!last_try && !spender->late && now_ns >= spender->retry_ns) return false;
    const char *text = rv == CO_BUSY ? "no server answers, and what OnLoss admits is spent"
                                     : "no server answers, and OnLoss does not admit it";
    *out = verdict_of(budget, rv, text, retry_ms);
    return true;
}

/* Judges a take that only the servers can cover: whether to ask them, or whether that is known to be in vain. CO_AGAIN
 * without FROM_SERVERS: tokens are expected at any moment. */
static struct verdict judge_ask(struct spender *spender, struct spender_budget *budget, const struct spender_take *take,
                                uint64_t now_ns) {
    struct verdict out = {.budget = budget, .error = CO_AGAIN, .pot = FROM_SERVERS};
    uint64_t want = spender_waiting(spender, budget, SPENDER_WANT);
    uint64_t asked = spender_waiting(spender, budget, SPENDER_TAKE);
    uint64_t reach = take->key.size ? budget->reach : spender_min(budget->reach, budget->keyless_reach);
    /* The waiting takes need more than the agent may hold, so the servers spend for the rest. */
    uint64_t together = spender_bounded(budget) ? reach : budget->most;
    if (take->n > reach || want + take->n > together) out.way = SPENDER_TAKE;
    if (now_ns >= budget->refused_ns) return out;
    out.way = SPENDER_TAKE;
    if (asked + take->n <= budget->fits || spender_owes_report(budget, now_ns)) return out;
    out.pot = FROM_NONE;
    if (spender_waits_for_more(spender, budget, take->n, now_ns)) return out;
    return verdict_of(budget, CO_BUSY, spent_text, spender_retry_after_line_ms(budget, take->n, now_ns));
}

static struct verdict judge_known(struct spender *spender, struct spender_budget *budget,
                                  const struct spender_take *take, bool waited, bool last_try, uint64_t now_ns) {
    if (budget->unsupported) return verdict_of(budget, CO_UNSUPPORTED, budget->unsupported, 0);
    if (take->n > budget->capacity) return verdict_of(budget, CO_TOOLARGE, too_large, 0);
    if (take->n == 0) return verdict_of(budget, CO_OK, NULL, 0);
    if (is_credited(budget, take->n, waited, now_ns)) return (struct verdict){.budget = budget, .pot = FROM_CREDIT};
    if (is_covered(budget, take, now_ns)) return (struct verdict){.budget = budget, .pot = FROM_LEFT};
    if (waited && take->n <= budget->credit && now_ns < budget->credit_end_ns)
        return (struct verdict){.budget = budget, .pot = FROM_CREDIT};
    if (spender->leaving) return verdict_of(budget, CO_NOLEADER, "this agent is ending", 0);
    struct verdict out;
    if (spender_is_lost(spender) && judge_loss(spender, budget, take, last_try, now_ns, &out)) return out;
    out = judge_ask(spender, budget, take, now_ns);
    if (out.error != CO_AGAIN || !last_try) return out;
    /* The servers answer, but did not have enough. */
    if (budget->in_vain && !spender_is_lost(spender))
        return verdict_of(budget, CO_BUSY, spent_text, spender_retry_ms(budget, take->n, now_ns));
    judge_loss(spender, budget, take, true, now_ns, &out);
    return out;
}

static struct verdict judge(struct spender *spender, struct spender_budget *budget, const struct spender_take *take,
                            bool waited, bool last_try, uint64_t now_ns) {
    switch (budget->known) {
        case SPENDER_KNOWN: return judge_known(spender, budget, take, waited, last_try, now_ns);
        case SPENDER_NONE: return verdict_of(budget, CO_NOTFOUND, "no such budget", 0);
        case SPENDER_UNKNOWN: break;
    }
    if (budget->unreachable || last_try)
        return verdict_of(budget, CO_NOLEADER, "no server answers, and this agent does not know it", 0);
    return verdict_of(budget, CO_AGAIN, NULL, 0);
}

static int fault(struct spender_answer *answer, size_t failed, int error, const char *text) {
    answer->failed = failed;
    answer->text = text;
    return error;
}

static const char *take_fault(const struct spender_take *take, int *error) {
    *error = CO_INVALID;
    const char *text = quota_name_fault(take->name);
    if (text) return text;
    if (take->key.size > SPENDER_KEY_MOST) return "a key has at most 8192 bytes";
    *error = CO_TOOLARGE;
    if (take->n > QUOTA_AMOUNT_MOST) return too_large;
    *error = CO_OK;
    return NULL;
}

static bool is_named_before(const struct spender_take *takes, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (slice_equal(takes[j].name, takes[i].name) && slice_equal(takes[j].key, takes[i].key)) return true;
    return false;
}

/* A request may name a budget again with another key: adds the earlier takes, because there has to be enough for
 * all. */
static struct spender_take with_those_before(const struct verdict *verdicts, const struct spender_take *takes,
                                             size_t i) {
    struct spender_take all = takes[i];
    for (size_t j = 0; all.n && j < i; j++)
        if (verdicts[j].budget == verdicts[i].budget) {
            all.n += takes[j].n;
            if (!takes[j].key.size) all.key = takes[j].key;
        }
    return all;
}

/* Fills in the budgets; makes the ones that are missing. */
static int budgets_of(struct spender *spender, const struct spender_take *takes, size_t count, uint64_t now_ns,
                      struct verdict *verdicts, struct spender_answer *answer) {
    if (count == 0 || count > SPENDER_TAKES_MOST)
        return fault(answer, 0, CO_INVALID, "1 to 64 takes go in one request");
    for (size_t i = 0; i < count; i++) {
        int error;
        const char *text = take_fault(&takes[i], &error);
        if (text) return fault(answer, i, error, text);
    }
    spender->mark++;
    for (size_t i = 0; i < count; i++) {
        struct spender_budget *budget = spender_find(spender, takes[i].name);
        if (!budget && (spender->count < SPENDER_BUDGETS_MOST || make_room(spender)))
            budget = budget_new(spender, takes[i].name, now_ns);
        if (!budget) return fault(answer, i, CO_BUSY, "this agent spends of too many budgets");
        if (budget->mark == spender->mark && is_named_before(takes, i))
            return fault(answer, i, CO_INVALID, "a budget is named twice, with the same key");
        budget->mark = spender->mark;
        budget->used_ns = now_ns;
        if (takes[i].n) budget->want_ns = now_ns;
        if (budget->known == SPENDER_NONE && now_ns >= budget->follow_ns) spender_follow_begin(spender, budget, now_ns);
        verdicts[i].budget = budget;
    }
    return CO_OK;
}

/* The take that decides the answer: a refused one, the gravest first; else one that waits. */
static size_t decisive(const struct verdict *verdicts, size_t count) {
    size_t found = 0;
    unsigned rank = 0;
    for (size_t i = 0; i < count; i++) {
        int error = verdicts[i].error;
        unsigned of = error == CO_OK ? 0 : error == CO_AGAIN ? 1 : error == CO_BUSY || error == CO_NOLEADER ? 2 : 3;
        if (of > rank) found = i, rank = of;
    }
    return found;
}

static void spend(struct spender *spender, const struct verdict *verdict, const struct spender_take *take, bool waited,
                  uint64_t now_ns, struct spender_answer *answer) {
    struct spender_budget *budget = verdict->budget;
    enum spender_source source = SPENDER_LOCAL;
    switch (verdict->pot) {
        case FROM_LEFT:
            spend_left(spender, budget, take, waited, now_ns);
            answer->lease = budget->lease;
            if (waited) source = SPENDER_RENEWED;
            break;
        case FROM_CREDIT:
            CHECK(take->n <= budget->credit);
            budget->credit -= take->n;
            source = SPENDER_RENEWED;
            break;
        case FROM_FALLBACK:
            spender_loss_spend(budget, take->n, now_ns);
            spender_due(spender, budget, now_ns); /* so that the end of the loss is noticed */
            source = SPENDER_FALLBACK;
            break;
        case FROM_NONE: break;
        case FROM_SERVERS: UNREACHABLE();
    }
    if (source > answer->source) answer->source = source;
}

/* The request as a whole cannot be spent: asks for its waiting takes, if none is refused for good. */
static void ask_for(struct spender *spender, const struct verdict *verdict, const struct spender_take *take, bool waits,
                    uint64_t now_ns) {
    struct spender_budget *budget = verdict->budget;
    bool wants = verdict->error == CO_BUSY && budget->refused_ns > now_ns && !spender_bounded(budget);
    if (wants)
        spender_due(spender, budget, budget->refused_ns); /* so that the agent holds something when the next take
                                                           * comes */
    if (waits && verdict->pot == FROM_SERVERS) spender_wait(spender, budget, verdict->way, take->n, now_ns);
}

static int take_slowly(struct spender *spender, const struct spender_take *takes, size_t count, bool waited,
                       bool last_try, uint64_t now_ns, struct spender_answer *answer) {
    struct verdict verdicts[SPENDER_TAKES_MOST];
    struct spender_take all[SPENDER_TAKES_MOST];
    int rv = budgets_of(spender, takes, count, now_ns, verdicts, answer);
    if (rv != CO_OK) return rv;
    for (size_t i = 0; i < count; i++) {
        all[i] = with_those_before(verdicts, takes, i);
        verdicts[i] = judge(spender, verdicts[i].budget, &all[i], waited, last_try, now_ns);
    }
    answer->failed = decisive(verdicts, count);
    CHECK(answer->failed < count);
    const struct verdict *worst = &verdicts[answer->failed];
    answer->text = worst->text;
    for (size_t i = 0; i < count; i++) {
        struct spender_budget *budget = verdicts[i].budget;
        if (!waited && verdicts[i].pot != FROM_LEFT && takes[i].n <= budget->most) budget->demand += takes[i].n;
        if (worst->error == CO_OK) spend(spender, &verdicts[i], &takes[i], waited, now_ns, answer);
        else ask_for(spender, &verdicts[i], &all[i], worst->error == CO_AGAIN, now_ns);
        if (worst->error == CO_BUSY) spender_told(budget, verdicts[i].retry_ms, now_ns);
        answer->retry_ms = spender_max(answer->retry_ms, verdicts[i].retry_ms);
    }
    return worst->error;
}

int spender_take(struct spender *spender, const struct spender_take *takes, size_t count, bool waited, bool last_try,
                 uint64_t now_ns, struct spender_answer *answer) {
    *answer = (struct spender_answer){.source = SPENDER_LOCAL};
    if (count == 1 && takes->n && takes->key.size <= SPENDER_KEY_MOST) {
        struct spender_budget *budget = spender_find(spender, takes->name);
        if (budget && is_covered(budget, takes, now_ns) && !is_credited(budget, takes->n, waited, now_ns)) {
            spend_left(spender, budget, takes, waited, now_ns);
            answer->lease = budget->lease;
            if (waited) answer->source = SPENDER_RENEWED;
            return CO_OK;
        }
    }
    return take_slowly(spender, takes, count, waited, last_try, now_ns, answer);
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

bool spender_leave(struct spender *spender) {
    bool left = spender->command != NULL;
    spender->leaving = true;
    for (size_t i = 0; i < spender->count; i++) {
        struct spender_budget *budget = spender->budgets[i];
        if (!budget->lease) continue;
        left = true;
        if (!budget->asked) spender_due(spender, budget, 0);
    }
    return left;
}
