/* The rules that hold for a fleet of owners. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "owner_fleet.h"

static void must_not(struct own_fleet *fleet, uint64_t *count, const char *what, const char *key, double sum) {
    (*count)++;
    if (!fleet->plan.lenient)
        cr_assert_fail("seed %llu, at %llu ms: %s of %s: %.3f", (unsigned long long)fleet->plan.seed,
                       (unsigned long long)(fleet->now_ns / OWN_MS), what, key, sum);
}

uint64_t own_left(struct own_fleet *fleet, struct own_agent *owner, const struct own_key *key) {
    struct owner_view view;
    uint64_t left = 0;
    uint32_t parts = 1;
    for (uint32_t i = 0; i < parts; i++) {
        if (!owner_look(owner->owner, slice_text(fleet->definition.name), slice_text(key->text), i,
                        own_now(fleet, owner), &view))
            break;
        if (view.parts) parts = view.parts;
        left += view.left;
    }
    return left;
}

/* The window that the owner's bucket is of, by some clock. */
static uint64_t *window_at(struct own_fleet *fleet, struct own_agent *owner, struct own_key *key, uint32_t part) {
    struct owner_view view;
    size_t i = 0;
    (void)owner_look(owner->owner, slice_text(fleet->definition.name), slice_text(key->text), part,
                     own_now(fleet, owner), &view);
    while (i + 1 < OWN_WINDOWS && key->windows[i].window_s && key->windows[i].window_s != view.window_s) i++;
    key->windows[i].window_s = view.window_s;
    return &key->windows[i].sum;
}

void own_counted(struct own_fleet *fleet, struct own_agent *owner, struct own_key *key, uint32_t part, uint64_t n) {
    const Pb__QuotaDefinition *definition = &fleet->definition;
    key->counted += n;
    if (definition->window) {
        uint64_t *sum = window_at(fleet, owner, key, part);
        *sum += n;
        OWN_SAY(fleet, "a%u counts %lu of %s: %lu; left %lu\n", owner->number, n, key->text, *sum,
                own_left(fleet, owner, key));
        if (*sum > fleet->capacity + quota_bound_of(definition, 0).hand_over)
            must_not(fleet, &fleet->over, "a window", key->text, (double)*sum);
        return;
    }
    double back =
        (double)(fleet->now_ns - key->level_ns) / 1e6 * (double)definition->tokens / (double)definition->every_ms;
    key->level = (key->level > back ? key->level - back : 0) + (double)n;
    key->level_ns = fleet->now_ns;
    OWN_SAY(fleet, "a%u counts %lu of %s: %.3f; left %lu\n", owner->number, n, key->text, key->level,
            own_left(fleet, owner, key));
    if (key->level > key->most) key->most = key->level;
    if (key->level > (double)fleet->capacity + 1e-6) must_not(fleet, &fleet->over, "the level", key->text, key->level);
}

void own_came_back(struct own_fleet *fleet, struct own_agent *owner, struct own_key *key, uint32_t part, uint64_t n) {
    if (n == 0) return;
    key->counted -= n;
    OWN_SAY(fleet, "a%u got %lu of %s back\n", owner->number, n, key->text);
    key->level = key->level > (double)n ? key->level - (double)n : 0;
    if (fleet->definition.window) *window_at(fleet, owner, key, part) -= n;
}

void own_look_beside(struct own_fleet *fleet) {
    for (unsigned k = 0; k < fleet->plan.keys; k++) {
        struct slice name = slice_text(fleet->definition.name), key = slice_text(fleet->keys[k].text);
        unsigned whole = 0, parts[QUOTA_PARTS_MOST] = {0}, most = 0, any = 0;
        for (unsigned i = 0; i < fleet->plan.agents; i++) {
            const struct own_agent *agent = &fleet->agents[i];
            struct owner_view view;
            if (agent->gone) continue;
            struct owner_now now = own_now(fleet, agent);
            if (!owner_look(agent->owner, name, key, 0, now, &view)) continue;
            if (view.parts == 0) whole += view.counts;
            for (uint32_t p = 0; p < view.parts; p++) {
                (void)owner_look(agent->owner, name, key, p, now, &view);
                if (view.counts && ++parts[p] > most) most = parts[p];
                any |= view.counts;
            }
        }
        if (whole > 1 || most > 1 || (whole && any))
            must_not(fleet, &fleet->beside, "two count", fleet->keys[k].text, whole * 100 + most);
    }
}

void own_decided(struct own_key *key) { key->nobody_ns = 0; }

void own_undecided(struct own_fleet *fleet, struct own_key *key) {
    key->undecided++;
    if (!key->nobody_ns) key->nobody_ns = fleet->now_ns;
    uint64_t since_ns = key->nobody_ns > fleet->trouble_ns ? key->nobody_ns : fleet->trouble_ns;
    uint64_t for_ns = fleet->now_ns > since_ns ? fleet->now_ns - since_ns : 0;
    if (for_ns > fleet->longest_ns) fleet->longest_ns = for_ns;
    if (for_ns > (fleet->definition.lease_ttl_ms + 1000) * OWN_MS)
        must_not(fleet, &fleet->over, "nobody counts, for ms,", key->text, (double)(for_ns / OWN_MS));
}
