#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "kv/quota/spender_internal.h"

#define AGAIN_NS (1000 * SPENDER_MS) /* the wait after an error, and before a missing budget is asked for again */
#define NONE_MS  2000                /* for how long a missing budget is remembered */

/* -- times -------------------------------------------------------------------------------------------------------- */

void spender_follow_begin(struct spender *spender, struct spender_budget *budget, uint64_t now_ns) {
    budget->known = SPENDER_UNKNOWN;
    budget->unreachable = false;
    budget->index = 0;
    budget->born_ns = now_ns;
    budget->follow_ns = SPENDER_NEVER;
    if (!budget->following && list_empty(&budget->ready)) list_append(&spender->ready, &budget->ready);
    spender_tick_at(spender, now_ns + SPENDER_LOSS_MS * SPENDER_MS);
}

/* Nobody takes from the budget, and forgetting it loses nothing. */
static bool is_idle(const struct spender_budget *budget, uint64_t now_ns) {
    uint64_t idle_ms = budget->known == SPENDER_NONE ? NONE_MS : SPENDER_IDLE_MS;
    return !budget->asked && !budget->lease && now_ns - budget->used_ns >= idle_ms * SPENDER_MS &&
           !spender_loss_counts(budget, now_ns);
}

bool spender_follow_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns, uint64_t *next_ns) {
    uint64_t late_ns = budget->born_ns + SPENDER_LOSS_MS * SPENDER_MS;
    if (budget->known == SPENDER_UNKNOWN && !budget->unreachable) {
        if (now_ns < late_ns) *next_ns = late_ns;
        else budget->unreachable = true, spender_wake(spender);
    }
    if (budget->following || !list_empty(&budget->ready)) return false; /* the answer will look at it */
    if (is_idle(budget, now_ns)) return true;
    if (budget->known == SPENDER_NONE) {
        *next_ns = spender_max(budget->used_ns + NONE_MS * SPENDER_MS, now_ns + AGAIN_NS);
        return false;
    }
    if (now_ns >= budget->follow_ns) {
        budget->follow_ns = SPENDER_NEVER;
        list_append(&spender->ready, &budget->ready);
        return false;
    }
    *next_ns = spender_min(*next_ns, budget->follow_ns);
    return false;
}

bool spender_follow(struct spender *spender, const char **name, uint64_t *index) {
    if (list_empty(&spender->ready)) return false;
    struct spender_budget *budget = LIST_ENTRY(spender->ready.next, struct spender_budget, ready);
    list_remove(&budget->ready);
    CHECK(!budget->following);
    budget->following = true;
    *name = budget->name;
    *index = budget->index;
    return true;
}

/* -- notices ------------------------------------------------------------------------------------------------------ */

/* The budget is gone, or another one: forgets everything that the agent held of it. */
static void lose(struct spender_budget *budget) {
    spender_forget_lease(budget);
    budget->asked_void = true;
    budget->refused_ns = budget->vain_ns = budget->credit = 0;
    budget->in_vain = budget->missed = 0;
    budget->ever = false;
}

static bool is_other_kind(const Pb__QuotaDefinition *a, const Pb__QuotaDefinition *b) {
    return a->mode != b->mode || a->window != b->window;
}

const char spender_owned[] = "its keys have owners, which count them";

static void define(struct spender_budget *budget, const Pb__QuotaNotice *notice) {
    bool anew = budget->known != SPENDER_KNOWN || is_other_kind(&budget->definition, notice->definition);
    free(budget->service);
    budget->service = mem_strdup(notice->definition->service);
    budget->definition = *notice->definition;
    budget->definition.name = budget->name;
    budget->definition.service = budget->service;
    budget->defined_index = notice->defined_index;
    budget->unsupported = NULL;
    if (quota_definition_check(&budget->definition, NULL) != CO_OK)
        budget->unsupported = "this agent's version does not know such a budget";
    else if (budget->definition.mode == PB__QUOTA_MODE__QUOTA_OWNER) budget->unsupported = spender_owned;
    budget->capacity = quota_capacity(&budget->definition);
    budget->most = quota_lease_most(&budget->definition);
    budget->low_mark = quota_part(budget->capacity, budget->definition.low_watermark);
    if (anew) lose(budget);
    else if (!budget->lease) spender_reach_anew(budget);
    budget->known = SPENDER_KNOWN;
}

void spender_followed(struct spender *spender, const char *name, int error, const Pb__QuotaNotice *notice,
                      uint64_t index, uint64_t now_ns) {
    struct spender_budget *budget = spender_find(spender, slice_text(name));
    if (!budget || !budget->following) return;
    budget->following = false;
    bool waited = budget->known == SPENDER_UNKNOWN;
    if (error != CO_OK) {
        budget->unreachable = true;
        budget->follow_ns = now_ns + AGAIN_NS;
    } else if (!notice || !notice->definition) {
        waited |= budget->known == SPENDER_KNOWN;
        lose(budget);
        budget->known = SPENDER_NONE;
        budget->follow_ns = now_ns + AGAIN_NS;
    } else {
        budget->unreachable = false;
        budget->index = index;
        bool anew = budget->known != SPENDER_KNOWN || budget->defined_index != notice->defined_index;
        if (anew) define(budget, notice);
        waited |= anew;
        spender_noticed(spender, budget, notice, anew, now_ns);
        budget->starving = notice->starving;
        if (notice->low && spender_bounded(budget)) spender_is_low(budget);
        bool reports = budget->starving && spender_owes_report(budget, now_ns);
        if (reports || spender_surplus(spender, budget, now_ns)) spender_due(spender, budget, now_ns);
        spender_tick_at(spender, spender_rest_ns(spender, budget));
        budget->follow_ns = now_ns;
    }
    if (waited) spender_wake(spender);
    uint64_t next_ns = SPENDER_NEVER;
    if (spender_follow_tick(spender, budget, now_ns, &next_ns)) spender_drop(spender, budget);
    else spender_tick_at(spender, next_ns);
}
