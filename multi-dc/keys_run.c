#include "multi-dc/keys_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/message.h"
#include "base/metrics.h"
#include "multi-dc/follower_run.h"
#include "multi-dc/region.h"
#include "rpc/api/loop_fetch.h"

#define RULES_WAIT_MS  60000
#define RULES_PACE_MS  100
#define RULES_AGAIN_MS 1000

METRIC lag_metric = {.name = "coord_region_keys_lag_seconds",
                     .help = "how far copied keys may lag behind their source, of all prefixes the most; 0 without any",
                     .type = METRIC_GAUGE};

/* The copy of one rule. */
struct copied {
    struct list item;
    struct slice prefix; /* its own copy of the name */
    char region[REGION_NAME_MAX + 1];
    uint64_t create_index, begun_ms;
    struct follower_run *run;
    bool up;
};
struct keys_run {
    uv_loop_t *loop;
    struct rpc *own;
    struct rpc *(*link)(void *data, const char *region, bool *up);
    void *link_data;
    struct list all; /* struct copied */
    struct loop_fetch *rules;
    uint64_t rules_index, rules_ms;
    Pb__CatalogAt life; /* our region's cluster, and its last restore */
};

/* -- copies ------------------------------------------------------------------------------------------------------- */

static struct copied *copied_new(struct keys_run *run, const Pb__KeysRule *rule) {
    struct copied *copied = mem_zalloc(sizeof *copied);
    struct slice prefix = message_slice(rule->prefix);
    struct buffer subject = {0};
    copied->create_index = rule->create_index, copied->begun_ms = clock_mono_ms();
    copied->prefix = slice_make(mem_strndup(prefix.data, prefix.size), prefix.size);
    strncpy(copied->region, rule->region, sizeof copied->region - 1);
    buffer_printf(&subject, "prefix=\"%.*s\" region=%s", (int)prefix.size, prefix.data, rule->region);
    buffer_append(&subject, "", 1);
    copied->run =
        follower_run_start(run->loop, run->own, follow_keys(prefix, rule->create_index), buffer_slice(&subject).data);
    buffer_free(&subject);
    list_append(&run->all, &copied->item);
    return copied;
}

static void copied_stop(struct copied *copied) {
    list_remove(&copied->item);
    follower_run_stop(copied->run);
    free((char *)(uintptr_t)copied->prefix.data);
    free(copied);
}

static struct copied *copied_of(const struct keys_run *run, const Pb__KeysRule *rule) {
    LIST_FOREACH(item, &run->all) {
        struct copied *copied = LIST_ENTRY(item, struct copied, item);
        if (copied->create_index == rule->create_index && slice_equal(message_slice(rule->prefix), copied->prefix))
            return copied;
    }
    return NULL;
}

static bool has_rule(const Pb__KeysRulesResult *rules, const struct keys_run *run, const struct copied *copied) {
    bool found = false;
    for (size_t i = 0; i < rules->n_rules; i++) found |= copied_of(run, rules->rules[i]) == copied;
    return found;
}

/* -- the rules ---------------------------------------------------------------------------------------------------- */

static void reconcile(struct keys_run *run, const Pb__KeysRulesResult *rules) {
    bool same = copy_same_life(rules->own, &run->life);
    run->life.cluster_id = rules->own->cluster_id, run->life.restored = rules->own->restored;
    LIST_FOREACH_SAFE(item, next, &run->all) {
        struct copied *copied = LIST_ENTRY(item, struct copied, item);
        if (!has_rule(rules, run, copied)) {
            copied_stop(copied);
        } else if (!same) { /* our region was restored from a backup */
            copied->begun_ms = clock_mono_ms();
            follower_set_back(follower_run_follower(copied->run), copied->begun_ms);
        }
    }
    for (size_t i = 0; i < rules->n_rules && i < KEYS_RULES_MAX; i++) {
        struct copied *copied = copied_of(run, rules->rules[i]);
        if (!copied) copied = copied_new(run, rules->rules[i]);
        follow_keys_know(follower_run_follower(copied->run), rules->rules[i]);
    }
}

static void rules_read(void *data, int error, const struct rpc_fetched *fetched) {
    struct keys_run *run = data;
    struct arena arena = {0};
    run->rules = NULL;
    const Pb__KeysRulesResult *rules =
        error ? NULL : message_unpack(&arena, &pb__keys_rules_result__descriptor, fetched->records);
    if (rules && !rules->own) rules = NULL;
    run->rules_ms = clock_mono_ms() + (rules ? RULES_PACE_MS : RULES_AGAIN_MS);
    if (rules) {
        run->rules_index = fetched->index;
        reconcile(run, rules);
    }
    arena_free(&arena);
}

static void read_rules(struct keys_run *run, uint64_t now_ms) {
    if (run->rules || now_ms < run->rules_ms) return;
    Pb__KeysRulesRequest request = PB__KEYS_RULES_REQUEST__INIT;
    struct rpc_fetch how = {.type = &query_keys_rules,
                            .freshness = RPC_STALE,
                            .background = true,
                            .index = run->rules_index,
                            .wait_ms = RULES_WAIT_MS};
    run->rules = loop_fetch_begin(run->own, run->own, &how, &request.base, rules_read, run);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

static uint64_t lag_ms(const struct copied *copied, uint64_t now_ms) {
    uint64_t age_ms = follower_run_age_ms(copied->run);
    if (age_ms != UINT64_MAX) return age_ms;
    return now_ms > copied->begun_ms ? now_ms - copied->begun_ms : 0;
}

void keys_run_tick(struct keys_run *run, uint64_t now_ms) {
    uint64_t most_ms = 0;
    read_rules(run, now_ms);
    LIST_FOREACH(item, &run->all) {
        struct copied *copied = LIST_ENTRY(item, struct copied, item);
        struct rpc *link = run->link(run->link_data, copied->region, &copied->up);
        if (!link) copied->up = false;
        follower_run_linked(copied->run, link, copied->up);
        if (lag_ms(copied, now_ms) > most_ms) most_ms = lag_ms(copied, now_ms);
    }
    metric_set(&lag_metric, most_ms / 1000);
}

void keys_run_init(void) { metric_register(&lag_metric); }

struct keys_run *keys_run_start(uv_loop_t *loop, struct rpc *own,
                                struct rpc *(*link)(void *data, const char *region, bool *up), void *data) {
    struct keys_run *run = mem_zalloc(sizeof *run);
    run->loop = loop, run->own = own, run->link = link, run->link_data = data;
    list_init(&run->all);
    return run;
}

void keys_run_stop(struct keys_run *run) {
    if (run->rules) loop_fetch_cancel(run->rules);
    LIST_FOREACH_SAFE(item, next, &run->all) copied_stop(LIST_ENTRY(item, struct copied, item));
    free(run);
}

void keys_run_seen(const struct keys_run *run, struct arena *arena, Pb__PeerRegionsAnswer *answer) {
    uint64_t now_ms = clock_mono_ms();
    answer->keys = arena_alloc(arena, KEYS_RULES_MAX * sizeof *answer->keys);
    LIST_FOREACH(item, &run->all) {
        const struct copied *copied = LIST_ENTRY(item, struct copied, item);
        struct follower_state state;
        if (answer->n_keys == KEYS_RULES_MAX) break;
        follower_state(follower_run_follower(copied->run), &state);
        Pb__PeerKeys *keys = answer->keys[answer->n_keys++] = arena_alloc(arena, sizeof *keys);
        pb__peer_keys__init(keys);
        keys->prefix = message_bytes(slice_copy(arena, copied->prefix)), keys->create_index = copied->create_index;
        keys->never_confirmed = !state.confirmed_ms;
        keys->as_of_ms = lag_ms(copied, now_ms), keys->newest = state.newest, keys->reachable = copied->up;
    }
}
