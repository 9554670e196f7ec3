#include "multi-dc/keys_following.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/message.h"
#include "base/metrics.h"
#include "multi-dc/copy.h"
#include "multi-dc/region.h"
#include "rpc/api/loop_fetch.h"
#include "rpc/api/loop_submit.h"

#define TICK_MS        200
#define RULES_WAIT_MS  60000
#define RULES_AGAIN_MS 1000

METRIC lag_metric = {.name = "coord_region_keys_lag_seconds",
                     .help = "how far copied keys may lag behind their source, of all prefixes the most; 0 without any",
                     .type = METRIC_GAUGE};
METRIC steps_metric = {
    .name = "coord_region_keys_steps_total",
    .help = "pages and changes of copied keys that this server proposed as leader and that were taken",
    .type = METRIC_COUNTER};

/* The copy of one rule. */
struct run {
    struct list item;
    struct keys_following *following;
    struct slice prefix; /* its own copy of the name */
    char region[REGION_NAME_MAX + 1];
    uint64_t create_index;
    struct keys_follower *follower;
    struct loop_fetch *fetch;          /* the follower's question, or a look at the source */
    bool proposing, looking, gone, up; /* gone: the rule was removed */
    uint64_t ticket, sent_ms, look_ms; /* start of the call under way; time of the next look */
    Pb__CatalogAt at;                  /* the rule's position when it was read last; index 0: none */
    bool whole;
    uint64_t begun_ms, confirmed_ms, newest, taken;
    int told_error;
};

struct keys_following {
    struct rpc *own;
    struct rpc *(*link)(void *data, const char *region, bool *up);
    void *link_data;
    uv_timer_t timer;
    struct list runs;
    struct loop_fetch *rules;
    uint64_t rules_index, rules_ms;
    Pb__CatalogAt life; /* our region's cluster, and its last restore */
    unsigned proposing;
    bool leads, stopping, closing;
    void (*closed)(void *data);
    void *closed_data;
};

static void finish_stop(struct keys_following *following);
static void look(struct run *run);
static void tick(uv_timer_t *timer);

/* -- runs --------------------------------------------------------------------------------------------------------- */
static void run_free(struct run *run) {
    keys_follower_free(run->follower);
    free((char *)(uintptr_t)run->prefix.data);
    free(run);
}

static void run_interrupt(struct run *run) {
    if (run->fetch) loop_fetch_cancel(run->fetch);
    run->fetch = NULL, run->looking = false;
}

static void run_drop(struct run *run) {
    CHECK(!run->gone);
    list_remove(&run->item);
    run_interrupt(run);
    run->gone = true;
    if (!run->proposing) run_free(run); /* else it is freed with the outcome */
}

static struct run *run_new(struct keys_following *following, const Pb__KeysRule *rule) {
    struct run *run = mem_zalloc(sizeof *run);
    struct slice prefix = message_slice(rule->prefix);
    run->following = following, run->create_index = rule->create_index;
    run->prefix = slice_make(mem_strndup(prefix.data, prefix.size), prefix.size);
    strncpy(run->region, rule->region, sizeof run->region - 1);
    run->follower = keys_follower_new(prefix);
    run->begun_ms = clock_mono_ms();
    keys_follower_leads(run->follower, following->leads, run->begun_ms);
    list_append(&following->runs, &run->item);
    return run;
}

static const Pb__KeysRule *rule_of(const Pb__KeysRulesResult *rules, const struct run *run) {
    for (size_t i = 0; i < rules->n_rules; i++) {
        const Pb__KeysRule *rule = rules->rules[i];
        if (rule->create_index == run->create_index && slice_equal(message_slice(rule->prefix), run->prefix))
            return rule;
    }
    return NULL;
}

/* Our region was restored from a backup: forgets everything that is known of this copy, and the answer under way. */
static void set_back(struct run *run) {
    run_interrupt(run);
    run->confirmed_ms = 0, run->begun_ms = clock_mono_ms();
    keys_follower_leads(run->follower, false, run->begun_ms);
    keys_follower_leads(run->follower, run->following->leads, run->begun_ms);
}

static void run_knows(struct run *run, const Pb__KeysRule *rule) {
    run->at = (Pb__CatalogAt)PB__CATALOG_AT__INIT;
    if (rule->at)
        run->at.cluster_id = rule->at->cluster_id, run->at.restored = rule->at->restored,
        run->at.index = rule->at->index;
    run->whole = keys_whole(rule);
}

/* -- the rules ---------------------------------------------------------------------------------------------------- */
static void reconcile(struct keys_following *following, const Pb__KeysRulesResult *rules) {
    bool known[KEYS_RULES_MAX] = {false}, same = copy_same_life(rules->own, &following->life);
    following->life.cluster_id = rules->own->cluster_id, following->life.restored = rules->own->restored;
    LIST_FOREACH_SAFE(item, next, &following->runs) {
        struct run *run = LIST_ENTRY(item, struct run, item);
        const Pb__KeysRule *rule = rule_of(rules, run);
        if (!rule) {
            run_drop(run);
            continue;
        }
        if (!same) set_back(run);
        run_knows(run, rule);
        for (size_t i = 0; i < rules->n_rules && i < KEYS_RULES_MAX; i++) known[i] |= rules->rules[i] == rule;
    }
    for (size_t i = 0; i < rules->n_rules && i < KEYS_RULES_MAX; i++)
        if (!known[i]) run_knows(run_new(following, rules->rules[i]), rules->rules[i]);
}

static void rules_read(void *data, int error, const struct rpc_fetched *fetched) {
    struct keys_following *following = data;
    struct arena arena = {0};
    following->rules = NULL;
    const Pb__KeysRulesResult *rules =
        error ? NULL : message_unpack(&arena, &pb__keys_rules_result__descriptor, fetched->records);
    if (rules && !rules->own) rules = NULL;
    following->rules_ms = clock_mono_ms() + (rules ? TICK_MS / 2 : RULES_AGAIN_MS);
    if (rules) {
        following->rules_index = fetched->index;
        reconcile(following, rules);
        LIST_FOREACH(item, &following->runs) look(LIST_ENTRY(item, struct run, item));
    }
    arena_free(&arena);
}

static void read_rules(struct keys_following *following, uint64_t now_ms) {
    if (following->rules || now_ms < following->rules_ms) return;
    Pb__KeysRulesRequest request = PB__KEYS_RULES_REQUEST__INIT;
    struct rpc_fetch how = {.type = &query_keys_rules,
                            .freshness = RPC_STALE,
                            .background = true,
                            .index = following->rules_index,
                            .wait_ms = RULES_WAIT_MS};
    following->rules = loop_fetch_begin(following->own, following->own, &how, &request.base, rules_read, following);
}

/* -- what a follower wants ---------------------------------------------------------------------------------------- */
static void rule_read(void *data, int error, const struct rpc_fetched *fetched) {
    struct run *run = data;
    struct arena arena = {0};
    run->fetch = NULL;
    const Pb__KeysRulesResult *rules =
        error ? NULL : message_unpack(&arena, &pb__keys_rules_result__descriptor, fetched->records);
    if (!error && !rules) error = CO_CORRUPT;
    const Pb__KeysRule *rule = rules ? rule_of(rules, run) : NULL;
    keys_follower_read(run->follower, run->ticket, error, rule, clock_mono_ms());
    arena_free(&arena);
    look(run);
}

/* The time up to which the answer has all changes. */
static uint64_t as_of(const struct run *run, const struct rpc_fetched *fetched) {
    uint64_t behind_ms = fetched->last_contact_ms;
    return fetched->known_leader && behind_ms < run->sent_ms ? run->sent_ms - behind_ms : 0;
}

static void source_answered(void *data, int error, const struct rpc_fetched *fetched) {
    struct run *run = data;
    run->fetch = NULL;
    keys_follower_answered(run->follower, run->ticket, error, error ? slice_make("", 0) : fetched->records,
                           error ? 0 : as_of(run, fetched), clock_mono_ms());
    look(run);
}

static void step_proposed(void *data, const struct loop_submitted *submitted) {
    struct run *run = data;
    struct keys_following *following = run->following;
    CHECK(run->proposing && following->proposing > 0);
    run->proposing = false, following->proposing--;
    if (run->gone) {
        run_free(run);
        finish_stop(following);
        return;
    }
    keys_follower_proposed(run->follower, run->ticket, submitted->error, submitted->refused, submitted->yes,
                           submitted->index, clock_mono_ms());
    look(run);
}

static void fetch(struct run *run, struct rpc *rpc, struct rpc_fetch how, const ProtobufCMessage *request,
                  loop_fetched done) {
    how.no_cache = how.background = true;
    run->sent_ms = clock_mono_ms();
    run->fetch = loop_fetch_begin(run->following->own, rpc, &how, request, done, run);
}

static void act(struct run *run, const struct keys_effect *effect, struct rpc *link) {
    struct keys_following *following = run->following;
    Pb__KeysRulesRequest request = PB__KEYS_RULES_REQUEST__INIT;
    run->ticket = effect->ticket;
    switch (effect->wish) {
        case KEYS_READS:
            fetch(run, following->own, (struct rpc_fetch){.type = &query_keys_rules}, &request.base, rule_read);
            break;
        case KEYS_ASKS:
            fetch(run, link,
                  (struct rpc_fetch){.type = &query_keys_changes,
                                     .freshness = RPC_STALE,
                                     .index = effect->index,
                                     .wait_ms = effect->wait_ms},
                  &effect->ask.base, source_answered);
            break;
        case KEYS_PROPOSES:
            run->proposing = true, following->proposing++;
            loop_submit(following->own, KEYS_TAKE, &effect->take.base, step_proposed, run);
            break;
        case KEYS_RESTS: break;
    }
}

/* -- where this server does not lead ------------------------------------------------------------------------------ */
static void source_looked(void *data, int error, const struct rpc_fetched *fetched) {
    struct run *run = data;
    struct arena arena = {0};
    run->fetch = NULL, run->looking = false;
    const Pb__KeysChangesResult *answer =
        error ? NULL : message_unpack(&arena, &pb__keys_changes_result__descriptor, fetched->records);
    if (answer && answer->to) {
        bool same = copy_same_life(answer->to, &run->at) && answer->to->index >= run->at.index;
        uint64_t at_ms = as_of(run, fetched);
        run->newest = answer->to->index;
        if (same && run->whole && !answer->more && at_ms > run->confirmed_ms) run->confirmed_ms = at_ms;
    }
    arena_free(&arena);
}

static void look_at_source(struct run *run, struct rpc *link, uint64_t now_ms) {
    if (run->fetch || !run->at.index || now_ms < run->look_ms) return;
    Pb__KeysChangesRequest request = PB__KEYS_CHANGES_REQUEST__INIT;
    run->look_ms = now_ms + KEYS_LOOK_MS, run->looking = true;
    request.prefix = message_bytes(run->prefix), request.from = &run->at, request.look = true;
    fetch(run, link, (struct rpc_fetch){.type = &query_keys_changes, .freshness = RPC_STALE}, &request.base,
          source_looked);
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */
/* An error is told once, and when it is over. */
static void tell(struct run *run) {
    struct keys_follower_state state;
    keys_follower_state(run->follower, &state);
    metric_add(&steps_metric, state.taken - run->taken);
    run->taken = state.taken;
    if (state.confirmed_ms > run->confirmed_ms && state.confirmed_ms >= run->begun_ms)
        run->confirmed_ms = state.confirmed_ms;
    if (run->following->leads && state.newest) run->newest = state.newest;
    if (state.error == run->told_error) return;
    if (state.error)
        log_warn("regions", "copied keys do not get on prefix=\"%.*s\" region=%s: %s", (int)run->prefix.size,
                 run->prefix.data, run->region, co_strerror(state.error));
    else
        log_info("regions", "copied keys get on again prefix=\"%.*s\" region=%s", (int)run->prefix.size,
                 run->prefix.data, run->region);
    run->told_error = state.error;
}

static void wake_at(struct keys_following *following, uint64_t until_ms, uint64_t now_ms) {
    uint64_t rest_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    if (until_ms != UINT64_MAX && rest_ms < uv_timer_get_due_in(&following->timer))
        CHECK(uv_timer_start(&following->timer, tick, rest_ms, TICK_MS) == 0);
}

static void look(struct run *run) {
    struct keys_following *following = run->following;
    uint64_t now_ms = clock_mono_ms();
    struct rpc *link = following->link(following->link_data, run->region, &run->up);
    if (!link) run->up = false;
    keys_follower_linked(run->follower, run->up, now_ms);
    if (!run->up && run->looking) run_interrupt(run);
    tell(run);
    if (!following->leads && run->up) look_at_source(run, link, now_ms);
    if (run->fetch || run->proposing || !following->leads) return;
    struct keys_effect effect;
    keys_follower_next(run->follower, now_ms, &effect);
    act(run, &effect, link);
    wake_at(following, effect.until_ms, now_ms);
}

static void look_whether_we_lead(struct keys_following *following, uint64_t now_ms) {
    struct rpc_status status;
    rpc_status(following->own, &status);
    bool leads = status.is_leader;
    if (leads == following->leads) return;
    following->leads = leads;
    LIST_FOREACH(item, &following->runs) {
        struct run *run = LIST_ENTRY(item, struct run, item);
        run_interrupt(run);
        keys_follower_leads(run->follower, leads, now_ms);
    }
}

static uint64_t lag_ms(const struct run *run, uint64_t now_ms) {
    uint64_t since_ms = run->confirmed_ms ? run->confirmed_ms : run->begun_ms;
    return now_ms > since_ms ? now_ms - since_ms : 0;
}

static void tick(uv_timer_t *timer) {
    struct keys_following *following = timer->data;
    uint64_t now_ms = clock_mono_ms(), most_ms = 0;
    look_whether_we_lead(following, now_ms);
    read_rules(following, now_ms);
    LIST_FOREACH(item, &following->runs) {
        struct run *run = LIST_ENTRY(item, struct run, item);
        look(run);
        if (lag_ms(run, now_ms) > most_ms) most_ms = lag_ms(run, now_ms);
    }
    metric_set(&lag_metric, most_ms / 1000);
}

void keys_following_init(void) {
    metric_register(&lag_metric);
    metric_register(&steps_metric);
}

struct keys_following *keys_following_start(uv_loop_t *loop, struct rpc *own,
                                            struct rpc *(*link)(void *data, const char *region, bool *up), void *data) {
    struct keys_following *following = mem_zalloc(sizeof *following);
    following->own = own, following->link = link, following->link_data = data;
    list_init(&following->runs);
    CHECK(uv_timer_init(loop, &following->timer) == 0);
    following->timer.data = following;
    CHECK(uv_timer_start(&following->timer, tick, 0, TICK_MS) == 0);
    return following;
}

static void timer_closed(uv_handle_t *handle) {
    struct keys_following *following = handle->data;
    following->closed(following->closed_data);
    free(following);
}

static void finish_stop(struct keys_following *following) {
    if (!following->stopping || following->proposing || following->closing) return;
    following->closing = true;
    uv_close((uv_handle_t *)&following->timer, timer_closed);
}

void keys_following_stop(struct keys_following *following, void (*closed)(void *data), void *data) {
    following->stopping = true, following->closed = closed, following->closed_data = data;
    uv_timer_stop(&following->timer);
    if (following->rules) loop_fetch_cancel(following->rules);
    following->rules = NULL;
    LIST_FOREACH_SAFE(item, next, &following->runs) run_drop(LIST_ENTRY(item, struct run, item));
    finish_stop(following);
}

void keys_following_seen(const struct keys_following *following, struct arena *arena, Pb__PeerRegionsAnswer *answer) {
    uint64_t now_ms = clock_mono_ms();
    answer->keys = arena_alloc(arena, KEYS_RULES_MAX * sizeof *answer->keys);
    LIST_FOREACH(item, &following->runs) {
        const struct run *run = LIST_ENTRY(item, struct run, item);
        if (answer->n_keys == KEYS_RULES_MAX) break;
        Pb__PeerKeys *keys = answer->keys[answer->n_keys++] = arena_alloc(arena, sizeof *keys);
        pb__peer_keys__init(keys);
        keys->prefix = message_bytes(slice_copy(arena, run->prefix)), keys->create_index = run->create_index;
        keys->never_confirmed = !run->confirmed_ms;
        keys->as_of_ms = lag_ms(run, now_ms), keys->newest = run->newest, keys->reachable = run->up;
    }
}
