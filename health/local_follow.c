#include "health/local_follow.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/api/access_control.h"

#define WAIT_MS        120000
#define AGAIN_LEAST_MS 500
#define AGAIN_MOST_MS  2000
#define DENIED_MS      5000
#define ROUNDS_MOST    8 /* a node that changes all the time is shown then, though the indexes differ */

enum { OF_SERVICES, OF_CHECKS, PARTS };

/* A query under way. It outlives its follower when the follower ends first. */
struct follow_question {
    struct rpc_fetch fetch;
    uv_mutex_t lock;
    struct local *local; /* NULL: the follower has ended */
    bool ended, cancelled;
    int error;
    bool found;
    uint64_t index, age_ms;
    struct buffer records;
};

struct part {
    struct follow_question *out;
    bool known, failed; /* failed: the last query did */
    bool found;
    uint64_t index;
    struct buffer records;
};

struct follower {
    char *node, *token; /* token "": none */
    bool wanted, shown, changed, lost;
    struct part parts[PARTS];
    unsigned rounds; /* how often in a row one part was asked again because the other was newer */
    bool found;      /* as it is shown: */
    struct buffer records[PARTS];
    int error;
    uint64_t failing_ms, again_ms, next_ms; /* failing_ms: since when queries fail; 0: they do not */
};

struct follows {
    struct local *local;
    uint64_t lost_ms;
    uv_timer_t timer;
    struct follower **items; /* sorted by node and token */
    size_t count, capacity;
    struct rng rng;
};

/* -- questions ---------------------------------------------------------------------------------------------------- */

static void question_free(struct follow_question *question) {
    requester_release(question->fetch.requester);
    buffer_free(&question->records);
    uv_mutex_destroy(&question->lock);
    free(question);
}

/* Another thread. */
static void on_fetched(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct follow_question *question = CONTAINER_OF(fetch, struct follow_question, fetch);
    uv_mutex_lock(&question->lock);
    struct local *local = question->local;
    question->error = error;
    question->ended = true;
    if (error == CO_OK && local) {
        question->found = fetched->found;
        question->index = fetched->index;
        question->age_ms = fetched->age_ms;
        buffer_append(&question->records, fetched->records.data, fetched->records.size);
    }
    if (local) local_wake(local); /* it cannot go while we hold the lock */
    uv_mutex_unlock(&question->lock);
    if (!local) question_free(question);
}

/* A reference. */
static struct requester *requester_of(const struct follows *follows, const struct follower *follower) {
    struct rpc *rpc = follows->local->rpc;
    if (!rpc_access_controlled(rpc)) return NULL;
    return *follower->token ? requester_new(REQUESTER_REQUEST, slice_text(follower->token)) : local_requester(rpc);
}

static void ask(struct follows *follows, struct follower *follower, unsigned which, uint64_t index) {
    static const struct query_type *const types[PARTS] = {&query_node_services, &query_node_checks};
    struct follow_question *question = mem_zalloc(sizeof *question);
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = follower->node;
    CHECK(uv_mutex_init(&question->lock) == 0);
    question->local = follows->local;
    question->fetch = (struct rpc_fetch){.type = types[which],
                                         .freshness = RPC_STALE,
                                         .background = true,
                                         .index = index,
                                         .wait_ms = WAIT_MS,
                                         .requester = requester_of(follows, follower),
                                         .done = on_fetched};
    follower->parts[which].out = question;
    rpc_fetch(follows->local->rpc, &question->fetch, &request.base);
}

static bool has_ended(struct follow_question *question) {
    uv_mutex_lock(&question->lock);
    bool ended = question->ended;
    uv_mutex_unlock(&question->lock);
    return ended;
}

/* Cancels the query; its end comes soon, and is collected like an answer. */
static void interrupt(struct follows *follows, struct follow_question *question) {
    question->cancelled = true;
    rpc_fetch_cancel(follows->local->rpc, &question->fetch);
}

/* Cancels the part's query, whose end nobody collects. */
static void let_go(struct follows *follows, struct part *part) {
    struct follow_question *question = part->out;
    if (!question) return;
    part->out = NULL;
    uv_mutex_lock(&question->lock);
    question->local = NULL;
    bool ended = question->ended;
    if (!ended) rpc_fetch_cancel(follows->local->rpc, &question->fetch);
    uv_mutex_unlock(&question->lock);
    if (ended) question_free(question);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void failed(struct follows *follows, struct follower *follower, struct part *part, int error, uint64_t now_ms) {
    part->failed = true;
    follower->error = error;
    if (!follower->failing_ms) {
        follower->failing_ms = now_ms;
        log_debug("health", "aliased node not read node=%s: %s", follower->node, co_strerror(error));
    }
    uint64_t again_ms = follower->again_ms ? follower->again_ms * 2 : AGAIN_LEAST_MS;
    follower->again_ms = again_ms > AGAIN_MOST_MS ? AGAIN_MOST_MS : again_ms;
    follower->next_ms = now_ms + follower->again_ms / 2 + rng_below(&follows->rng, follower->again_ms);
    bool denied = error == CO_DENIED || error == CO_NOTOKEN;
    if (denied) follower->next_ms = now_ms + DENIED_MS;
    bool lost = denied || (follower->shown && now_ms - follower->failing_ms >= follows->lost_ms);
    if (follower->lost || !lost) return;
    follower->shown = true;
    log_warn("health", "aliased node cannot be read any more, its aliases are critical node=%s: %s", follower->node,
             co_strerror(error));
    follower->lost = follower->changed = true;
}

static void collect(struct follows *follows, struct follower *follower, struct part *part, uint64_t now_ms) {
    struct follow_question *question = part->out;
    if (!question || !has_ended(question)) return;
    part->out = NULL;
    if (question->error == CO_OK && question->age_ms == 0) {
        if (question->fetch.index && question->index != question->fetch.index) follower->rounds = 0;
        part->known = true;
        part->failed = false;
        part->found = question->found;
        part->index = question->index;
        struct buffer old = part->records;
        part->records = question->records;
        question->records = old;
    } else if (question->error != CO_CLOSED || !question->cancelled) {
        failed(follows, follower, part, question->error == CO_OK ? CO_NOLEADER : question->error, now_ms);
    }
    question_free(question);
}

static bool same(const struct buffer *one, const struct buffer *other) {
    return slice_equal(buffer_slice(one), buffer_slice(other));
}

/* Shows the answers to the aliases when both parts have the same index, or did not reach that in ROUNDS_MOST rounds. */
static void show(struct follower *follower) {
    struct part *services = &follower->parts[OF_SERVICES], *checks = &follower->parts[OF_CHECKS];
    if (!services->known || !checks->known || services->failed || checks->failed) return;
    if (services->index != checks->index && follower->rounds < ROUNDS_MOST) return;
    if (services->index == checks->index) follower->rounds = 0;
    follower->failing_ms = follower->again_ms = follower->next_ms = 0;
    bool differs = !follower->shown || follower->lost || follower->found != services->found;
    for (unsigned i = 0; i < PARTS; i++) {
        if (same(&follower->records[i], &follower->parts[i].records)) continue;
        differs = true;
        buffer_reset(&follower->records[i]);
        buffer_append(&follower->records[i], follower->parts[i].records.data, follower->parts[i].records.size);
    }
    if (follower->lost) log_info("health", "aliased node is read again node=%s", follower->node);
    follower->lost = false;
    follower->shown = true;
    follower->found = services->found;
    if (differs) follower->changed = true;
}

/* True: the other part has a later index. */
static bool behind(const struct follower *follower, unsigned which) {
    const struct part *part = &follower->parts[which], *other = &follower->parts[1 - which];
    return part->known && other->known && part->index < other->index && follower->rounds < ROUNDS_MOST;
}

static void ask_on(struct follows *follows, struct follower *follower, uint64_t now_ms) {
    for (unsigned i = 0; i < PARTS; i++) {
        struct part *part = &follower->parts[i];
        bool late = behind(follower, i);
        if (part->out) {
            if (late && part->out->fetch.index && !part->out->cancelled) interrupt(follows, part->out);
        } else if (now_ms >= follower->next_ms) {
            if (late) follower->rounds++;
            ask(follows, follower, i, !part->known || part->failed || late ? 0 : part->index);
        }
    }
}

static void on_timer(uv_timer_t *timer) { local_wake(((struct follows *)timer->data)->local); }

void follows_look(struct follows *follows) {
    uint64_t now_ms = clock_mono_ms(), next_ms = UINT64_MAX;
    for (size_t i = 0; i < follows->count; i++) {
        struct follower *follower = follows->items[i];
        follower->changed = false;
        for (unsigned j = 0; j < PARTS; j++) collect(follows, follower, &follower->parts[j], now_ms);
        show(follower);
        ask_on(follows, follower, now_ms);
        if (follower->next_ms > now_ms && follower->next_ms < next_ms) next_ms = follower->next_ms;
    }
    if (next_ms == UINT64_MAX) return;
    uv_update_time(follows->local->loop);
    uv_timer_start(&follows->timer, on_timer, next_ms - now_ms, 0);
}

/* -- who is followed ---------------------------------------------------------------------------------------------- */

/* The index of the follower, or the index where it belongs. */
static size_t place_of(const struct follows *follows, const char *node, const char *token, struct follower **found) {
    size_t low = 0, high = follows->count;
    *found = NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(node, follows->items[middle]->node);
        if (order == 0) order = strcmp(token, follows->items[middle]->token);
        if (order == 0) {
            *found = follows->items[middle];
            return middle;
        }
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return low;
}

static void follower_free(struct follows *follows, struct follower *follower) {
    for (unsigned i = 0; i < PARTS; i++) {
        let_go(follows, &follower->parts[i]);
        buffer_free(&follower->parts[i].records);
        buffer_free(&follower->records[i]);
    }
    token_free(follower->token);
    free(follower->node);
    free(follower);
}

void follows_want_begin(struct follows *follows) {
    for (size_t i = 0; i < follows->count; i++) follows->items[i]->wanted = false;
}

void follows_want(struct follows *follows, const char *node, const char *token) {
    struct follower *follower;
    size_t place = place_of(follows, node, token, &follower);
    if (!follower) {
        if (follows->count == follows->capacity) {
            follows->capacity = follows->capacity ? 2 * follows->capacity : 8;
            follows->items = mem_realloc(follows->items, follows->capacity * sizeof(struct follower *));
        }
        follower = mem_zalloc(sizeof *follower);
        follower->node = mem_strdup(node), follower->token = mem_strdup(token);
        memmove(follows->items + place + 1, follows->items + place,
                (follows->count - place) * sizeof(struct follower *));
        follows->items[place] = follower;
        follows->count++;
    }
    follower->wanted = true;
}

void follows_want_end(struct follows *follows) {
    size_t kept = 0;
    for (size_t i = 0; i < follows->count; i++) {
        if (follows->items[i]->wanted) follows->items[kept++] = follows->items[i];
        else follower_free(follows, follows->items[i]);
    }
    follows->count = kept;
}

bool follow_changed(const struct follows *follows, const char *node, const char *token) {
    struct follower *follower;
    (void)place_of(follows, node, token, &follower);
    return follower && follower->changed;
}

int follow_see(const struct follows *follows, const char *node, const char *token, struct follow_seen *seen) {
    struct follower *follower;
    (void)place_of(follows, node, token, &follower);
    if (!follower || !follower->shown) return CO_AGAIN;
    if (follower->lost) return follower->error;
    *seen = (struct follow_seen){.found = follower->found,
                                 .services = buffer_slice(&follower->records[OF_SERVICES]),
                                 .checks = buffer_slice(&follower->records[OF_CHECKS])};
    return CO_OK;
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct follows *follows_new(struct local *local) {
    struct follows *follows = mem_zalloc(sizeof *follows);
    follows->local = local;
    follows->lost_ms =
        local->config.alias_lost_ns > 0 ? (uint64_t)local->config.alias_lost_ns / 1000000 : FOLLOW_LOST_MS;
    rng_seed(&follows->rng, random_u64());
    CHECK(uv_timer_init(local->loop, &follows->timer) == 0);
    follows->timer.data = follows;
    return follows;
}

static void on_closed(uv_handle_t *handle) {
    struct follows *follows = handle->data;
    struct local *local = follows->local;
    free(follows->items);
    free(follows);
    local_part_closed(local);
}

void follows_close(struct follows *follows) {
    follows_want_begin(follows);
    follows_want_end(follows);
    uv_close((uv_handle_t *)&follows->timer, on_closed);
}
