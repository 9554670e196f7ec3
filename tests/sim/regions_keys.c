/* Keys that regions copy from each other, judged after each entry (tests/sim/regions.h): when the copy's rule says that
 * they are whole, they are as the other region's were at the rule's position, which does not go back; and what the
 * leader's follower takes for confirmed had not changed there by then. */
#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "multi-dc/keys.h"
#include "tests/sim/regions.h"

#define P PRIu64

/* -- what is there ------------------------------------------------------------------------------------------------ */

/* Names, values and flags below the prefix of that region. */
static uint64_t keys_hash(struct store_txn *txn, unsigned number, size_t *count) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    struct query_result found = {0};
    struct arena arena = {0};
    request.key = message_bytes(region_prefix(number));
    CHECK(query_kv_list.run(txn, &request.base, &arena, &found) == CO_OK);
    const Pb__KvEntriesResult *all = (const Pb__KvEntriesResult *)found.message;
    uint64_t hash = *count = all ? all->n_entries : 0;
    for (size_t i = 0; i < *count; i++) {
        const Pb__KvEntry *entry = all->entries[i];
        hash = hash64_seed(entry->key.data, entry->key.len, hash);
        hash = hash64_seed(entry->value.data, entry->value.len, hash) + entry->flags;
    }
    arena_free(&arena);
    return hash;
}

static bool rule_of(struct store_txn *txn, unsigned other, Pb__KeysRule *rule, Pb__CatalogAt *at) {
    Pb__KeysRulesRequest request = PB__KEYS_RULES_REQUEST__INIT;
    struct query_result found = {0};
    struct arena arena = {0};
    bool there = false;
    CHECK(query_keys_rules.run(txn, &request.base, &arena, &found) == CO_OK);
    const Pb__KeysRulesResult *rules = (const Pb__KeysRulesResult *)found.message;
    for (size_t i = 0; i < rules->n_rules && !there; i++) {
        there = slice_equal(message_slice(rules->rules[i]->prefix), region_prefix(other));
        *rule = *rules->rules[i];
    }
    pb__catalog_at__init(at);
    if (there && rule->at) at->cluster_id = rule->at->cluster_id, at->index = rule->at->index;
    arena_free(&arena);
    return there;
}

void region_rule(struct region *region, unsigned other, Pb__KeysRule *rule) {
    Pb__CatalogAt at;
    CHECK(rule_of(store_read(region->replica.reader), other, rule, &at));
    store_read_done(region->replica.reader);
}

/* -- the model ---------------------------------------------------------------------------------------------------- */

static void note_moment(struct region *region, struct store_txn *txn) {
    struct region_moment moment = {.index = machine_applied(region->replica.machine), .us = region->all->sim->now_us};
    moment.hash = keys_hash(txn, region->number, &moment.count);
    const struct region_moment *last = region->n_moments ? &region->moments[region->n_moments - 1] : NULL;
    if (last && last->hash == moment.hash) return;
    region->moments = mem_realloc(region->moments, (region->n_moments + 1) * sizeof *region->moments);
    region->moments[region->n_moments++] = moment;
}

/* The number of the moment that the index falls into. */
static size_t moment_at(const struct region *region, uint64_t index) {
    size_t number = region->n_moments;
    while (number > 1 && region->moments[number - 1].index > index) number--;
    CHECK(number > 0);
    return number - 1;
}

static void judge_confirmed(struct region *region, unsigned other, size_t moment) {
    const struct region *source = &region->all->regions[other];
    struct follower_state state;
    follower_state(region->links[other].keys.follower, &state);
    if (moment + 1 < source->n_moments && source->moments[moment + 1].us / MS < state.confirmed_ms)
        sim_violation(region->all->sim, RULE_MODEL,
                      "keys of %s in %s pass for the same at %" P " ms, and had changed at %" P " ms",
                      region_names[other], region_names[region->number], state.confirmed_ms,
                      source->moments[moment + 1].us / MS);
}

static void judge(struct region *region, struct store_txn *txn, unsigned other) {
    struct regions *all = region->all;
    const struct region *source = &all->regions[other];
    Pb__KeysRule rule;
    Pb__CatalogAt at;
    size_t count;
    if (!rule_of(txn, other, &rule, &at) || !rule.at) return;
    if (at.index < region->keys_at[other])
        sim_violation(all->sim, RULE_MODEL, "keys of %s in %s go back from %" P " to %" P, region_names[other],
                      region_names[region->number], region->keys_at[other], at.index);
    region->keys_at[other] = at.index;
    size_t moment = moment_at(source, at.index);
    if (region->links[other].keys.follower) judge_confirmed(region, other, moment);
    all->listings += rule.listing != NULL;
    if (rule.listing || at.index < rule.whole) return;
    all->whole++;
    if (keys_hash(txn, other, &count) != source->moments[moment].hash)
        sim_violation(all->sim, RULE_MODEL, "keys of %s in %s are not what they were there at %" P, region_names[other],
                      region_names[region->number], at.index);
    if (count != rule.keys)
        sim_violation(all->sim, RULE_MODEL, "keys of %s in %s: %zu, by their rule %" P, region_names[other],
                      region_names[region->number], count, rule.keys);
}

void region_judge_keys(struct region *region) {
    if (!region->all->keys) return;
    struct store_txn *txn = store_read(region->replica.reader);
    note_moment(region, txn);
    for (unsigned other = 0; other < region->all->count; other++)
        if (other != region->number) judge(region, txn, other);
    store_read_done(region->replica.reader);
}

bool region_keys_are_current(struct region *region, unsigned other) {
    struct region *source = &region->all->regions[other];
    Pb__KeysRule rule;
    Pb__CatalogAt at;
    size_t count;
    struct store_txn *txn = store_read(region->replica.reader);
    bool whole = rule_of(txn, other, &rule, &at) && rule.at && !rule.listing && at.index >= rule.whole;
    uint64_t here = keys_hash(txn, other, &count);
    store_read_done(region->replica.reader);
    uint64_t there = keys_hash(store_read(source->replica.reader), other, &count);
    store_read_done(source->replica.reader);
    return whole && here == there;
}
