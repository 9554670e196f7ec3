/* A follower's edge: what it wants is asked and proposed; what came of it arrives on other threads, and is looked at on the
 * loop. */
#include "multi-dc/following.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/metrics.h"
#include "multi-dc/copy_age.h"

#define LEADER_LOOK_MS 200 /* so often it is asked whether this server leads */

METRIC updates_metric = {
    .name = "coord_region_copy_updates_total",
    .help = "changes of other regions' catalogs that this server proposed as leader and that were taken",
    .type = METRIC_COUNTER};

/* Answers that may have all of a region take much memory: one at a time in a process. */
static atomic_flag large_taken = ATOMIC_FLAG_INIT;

/* Something under way. It outlives its following when that goes first. */
struct call {
    union {
        struct rpc_fetch fetch;
        struct rpc_write write;
    };
    uv_mutex_t lock;
    struct following *following; /* NULL: nobody wants to know any more */
    bool ended;
    enum follower_wish wish;
    uint64_t ticket, sent_ms, sent_ns;
    int error, refused;
    bool yes, known_leader;
    uint64_t index, behind_ms;
    struct buffer records;
};

struct following {
    struct rpc *own, *region;
    char *name;
    struct follower *follower;
    uv_async_t wake;
    uv_timer_t timer;
    unsigned handles;
    struct call *call, *heartbeat;
    struct follower_effect waiting; /* for its turn with a large answer; wish RESTS: none */
    bool large, leads, linked, stopped;
    uint64_t taken;
    struct copy_age age;
    uint64_t moment; /* of the look into our own store that is under way, where this server leads */
    int told_error;  /* in the log */
};

/* -- calls -------------------------------------------------------------------------------------------------------- */

static struct call *call_new(struct following *following, enum follower_wish wish, uint64_t ticket) {
    struct call *call = mem_zalloc(sizeof *call);
    CHECK(uv_mutex_init(&call->lock) == 0);
    call->following = following;
    call->wish = wish, call->ticket = ticket, call->sent_ns = clock_mono_ns(), call->sent_ms = call->sent_ns / 1000000;
    return call;
}

static void call_free(struct call *call) {
    buffer_free(&call->records);
    uv_mutex_destroy(&call->lock);
    free(call);
}

/* Another thread, holding the lock, which is released. */
static void call_ended(struct call *call) {
    struct following *following = call->following;
    call->ended = true;
    if (following) uv_async_send(&following->wake); /* it cannot go while we hold the lock */
    uv_mutex_unlock(&call->lock);
    if (!following) call_free(call);
}

static void on_fetched(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct call *call = CONTAINER_OF(fetch, struct call, fetch);
    uv_mutex_lock(&call->lock);
    call->error = error;
    if (error == CO_OK && call->following) {
        call->index = fetched->index;
        call->known_leader = fetched->known_leader, call->behind_ms = fetched->last_contact_ms;
        buffer_append(&call->records, fetched->records.data, fetched->records.size);
    }
    call_ended(call);
}

static void on_written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct call *call = CONTAINER_OF(write, struct call, write);
    uv_mutex_lock(&call->lock);
    call->error = error;
    if (error == CO_OK) call->refused = result->error, call->yes = result->yes, call->index = result->index;
    call_ended(call);
}

static bool has_ended(struct call *call) {
    uv_mutex_lock(&call->lock);
    bool ended = call->ended;
    uv_mutex_unlock(&call->lock);
    return ended;
}

/* Nobody looks at its end. */
static void let_go(struct following *following, struct call **place) {
    struct call *call = *place;
    if (!call) return;
    *place = NULL;
    uv_mutex_lock(&call->lock);
    call->following = NULL;
    bool ended = call->ended;
    if (!ended && call->wish != FOLLOWER_PROPOSES)
        rpc_fetch_cancel(call->wish == FOLLOWER_READS ? following->own : following->region, &call->fetch);
    uv_mutex_unlock(&call->lock);
    if (ended) call_free(call);
}

/* -- doing what the follower wants -------------------------------------------------------------------------------- */

static void large_end(struct following *following) {
    if (following->large) atomic_flag_clear(&large_taken);
    following->large = false;
}

static void fetch(struct following *following, struct call *call, const struct query_type *type,
                  enum rpc_freshness freshness, uint64_t index, uint64_t wait_ms, const ProtobufCMessage *request) {
    call->fetch = (struct rpc_fetch){
        .type = type, .freshness = freshness, .no_cache = true, .index = index, .wait_ms = wait_ms, .done = on_fetched};
    rpc_fetch(call->wish == FOLLOWER_READS ? following->own : following->region, &call->fetch, request);
}

static void act(struct following *following, const struct follower_effect *effect) {
    struct call *call = following->call = call_new(following, effect->wish, effect->ticket);
    switch (effect->wish) {
        case FOLLOWER_READS: fetch(following, call, &query_copy, RPC_DEFAULT, 0, 0, &effect->read.base); break;
        case FOLLOWER_ASKS:
            fetch(following, call, &query_catalog_changes, RPC_STALE, effect->index, effect->wait_ms,
                  &effect->ask.base);
            break;
        case FOLLOWER_PROPOSES:
            call->write.done = on_written;
            rpc_submit(following->own, &call->write, effect->command, effect->message);
            break;
        case FOLLOWER_RESTS: CHECK(!"something to do"); break;
    }
}

/* The next thing, unless it has to wait for its turn. Until when there is nothing to do. */
static uint64_t go_on(struct following *following, uint64_t now_ms) {
    struct follower_effect effect = following->waiting;
    if (effect.wish == FOLLOWER_RESTS) follower_next(following->follower, now_ms, &effect);
    if (effect.wish == FOLLOWER_RESTS) return effect.until_ms;
    if (effect.wish == FOLLOWER_ASKS) large_end(following);
    following->waiting = effect;
    if (effect.wish == FOLLOWER_ASKS && effect.large) {
        if (atomic_flag_test_and_set(&large_taken)) return UINT64_MAX; /* looked at again soon */
        following->large = true;
    }
    following->waiting.wish = FOLLOWER_RESTS;
    act(following, &effect);
    return UINT64_MAX;
}

static uint64_t as_of(const struct call *call) {
    return call->known_leader && call->behind_ms < call->sent_ms ? call->sent_ms - call->behind_ms : 0;
}

static void collect(struct following *following, uint64_t now_ms) {
    struct call *call = following->call;
    if (!call || !has_ended(call)) return;
    following->call = NULL;
    struct arena arena = {0};
    struct follower *follower = following->follower;
    if (call->wish == FOLLOWER_READS) {
        const Pb__CopyResult *result = NULL;
        if (!call->error) result = message_unpack(&arena, &pb__copy_result__descriptor, buffer_slice(&call->records));
        int error = call->error ? call->error : result ? CO_OK : CO_CORRUPT;
        follower_read(follower, call->ticket, error, result, now_ms);
    } else if (call->wish == FOLLOWER_ASKS) {
        follower_answered(follower, call->ticket, call->error, buffer_slice(&call->records), call->index, as_of(call),
                          now_ms);
    } else {
        follower_proposed(follower, call->ticket, call->error, call->refused, call->yes, call->index, now_ms);
    }
    arena_free(&arena);
    call_free(call);
}

/* -- the heartbeat ------------------------------------------------------------------------------------------------ */

static struct call *heartbeat_new(struct following *following, enum follower_wish wish) {
    return following->heartbeat = call_new(following, wish, 0);
}

static void look_at_copy(struct following *following) {
    Pb__CopyRequest request = PB__COPY_REQUEST__INIT;
    request.region = following->name;
    fetch(following, heartbeat_new(following, FOLLOWER_READS), &query_copy, RPC_STALE, 0, 0, &request.base);
}

/* Where the region is. The leader's follower knows what our copy equals, if nobody else changed it; another server looks
 * it up. Both look into their own store. */
static void heard_region(struct following *following, const struct call *call, const Pb__CatalogAt *at) {
    uint64_t now_ns = clock_mono_ns();
    copy_age_answered(&following->age, at, now_ns - call->sent_ns, now_ns / 1000000);
    following->moment = 0;
    if (following->leads) {
        follower_heard(following->follower, at, as_of(call));
        following->moment = follower_moment(following->follower);
        if (following->moment) look_at_copy(following);
        return;
    }
    copy_age_heard(&following->age, at, as_of(call));
    look_at_copy(following);
}

static void interrupt(struct following *following);

/* As it is in our own store. */
static void heard_copy(struct following *following, const Pb__CopyResult *result) {
    const Pb__CatalogAt *at = result->region ? result->region->at : NULL;
    if (following->leads) {
        if (!follower_compared(following->follower, following->moment, result, clock_mono_ms())) return;
        log_info("regions", "the copy of a region is another one than before, it is read again region=%s",
                 following->name);
        interrupt(following);
    }
    copy_age_seen(&following->age, at, following->leads);
}

static void heard(struct following *following) {
    struct call *call = following->heartbeat;
    const ProtobufCMessageDescriptor *type =
        call->wish == FOLLOWER_ASKS ? &pb__catalog_at__descriptor : &pb__copy_result__descriptor;
    struct arena arena = {0};
    void *message = call->error ? NULL : message_unpack(&arena, type, buffer_slice(&call->records));
    following->heartbeat = NULL;
    if (message && call->wish == FOLLOWER_ASKS) heard_region(following, call, message);
    else if (message) heard_copy(following, message);
    arena_free(&arena);
    call_free(call);
}

static void hear(struct following *following, uint64_t now_ms) {
    if (following->heartbeat && has_ended(following->heartbeat)) heard(following);
    if (following->heartbeat || !following->linked) return;
    if (!copy_age_asks(&following->age, now_ms)) return;
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    fetch(following, heartbeat_new(following, FOLLOWER_ASKS), &query_catalog_position, RPC_STALE, 0, 0, &request.base);
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */

/* What waits for an answer that nobody is to hear any more. */
static void interrupt(struct following *following) {
    let_go(following, &following->call);
    following->waiting.wish = FOLLOWER_RESTS;
    large_end(following);
}

static void look_whether_we_lead(struct following *following, uint64_t now_ms) {
    struct rpc_status status;
    rpc_status(following->own, &status);
    bool leads = status.is_leader;
    if (leads == following->leads) return;
    following->leads = leads;
    if (!leads) {
        interrupt(following);
        let_go(following, &following->heartbeat);
    }
    follower_leads(following->follower, leads, now_ms);
}

/* An error is told once, and when it is over. */
static void tell(struct following *following) {
    struct follower_state state;
    follower_state(following->follower, &state);
    if (state.taken > following->taken) metric_add(&updates_metric, state.taken - following->taken);
    following->taken = state.taken;
    if (state.error == following->told_error) return;
    if (state.error)
        log_warn("regions", "the copy of a region does not get on region=%s while=%s: %s", following->name, state.doing,
                 co_strerror(state.error));
    else log_info("regions", "the copy of a region gets on again region=%s", following->name);
    following->told_error = state.error;
}

static void look(struct following *following) {
    if (following->stopped) return;
    uint64_t now_ms = clock_mono_ms();
    look_whether_we_lead(following, now_ms);
    collect(following, now_ms);
    hear(following, now_ms);
    uint64_t until_ms = following->call ? UINT64_MAX : go_on(following, now_ms);
    tell(following);
    uint64_t rest_ms = until_ms > now_ms && until_ms - now_ms < LEADER_LOOK_MS ? until_ms - now_ms : LEADER_LOOK_MS;
    CHECK(uv_timer_start(&following->timer, following->timer.timer_cb, rest_ms, 0) == 0);
}

static void on_wake(uv_async_t *wake) { look(wake->data); }
static void on_timer(uv_timer_t *timer) { look(timer->data); }

void following_init(void) { metric_register(&updates_metric); }

struct following *following_start(uv_loop_t *loop, struct rpc *own, struct rpc *region, const char *name) {
    struct following *following = mem_zalloc(sizeof *following);
    following->own = own, following->region = region;
    following->name = mem_strdup(name);
    following->follower = follower_new(name);
    following->linked = true;
    copy_age_begin(&following->age);
    CHECK(uv_async_init(loop, &following->wake, on_wake) == 0);
    CHECK(uv_timer_init(loop, &following->timer) == 0);
    following->wake.data = following->timer.data = following;
    following->handles = 2;
    CHECK(uv_timer_start(&following->timer, on_timer, 0, 0) == 0);
    return following;
}

static void on_closed(uv_handle_t *handle) {
    struct following *following = handle->data;
    if (--following->handles) return;
    follower_free(following->follower);
    free(following->name);
    free(following);
}

void following_stop(struct following *following) {
    following->stopped = true;
    interrupt(following);
    let_go(following, &following->heartbeat);
    uv_close((uv_handle_t *)&following->wake, on_closed);
    uv_close((uv_handle_t *)&following->timer, on_closed);
}

void following_linked(struct following *following, bool linked) {
    if (following->linked == linked) return;
    following->linked = linked;
    bool asks = following->call ? following->call->wish == FOLLOWER_ASKS : following->waiting.wish == FOLLOWER_ASKS;
    if (!linked && asks) interrupt(following);
    if (!linked) let_go(following, &following->heartbeat);
    follower_linked(following->follower, linked, clock_mono_ms());
    look(following);
}

void following_state(const struct following *following, struct following_state *state) {
    *state = (struct following_state){.leads = following->leads, .age_ms = UINT64_MAX};
    follower_state(following->follower, &state->follower);
    const struct copy_age *age = &following->age;
    state->heard_ms = age->answered_ms, state->round_us = copy_age_round_us(age);
    state->newest = age->newest;
    state->position = following->leads ? state->follower.reached.index : age->position;
    state->age_ms = copy_age_ms(age, state->follower.confirmed_ms, clock_mono_ms());
    if (state->follower.error)
        snprintf(state->error, sizeof state->error, "%s: %s", state->follower.doing,
                 co_strerror(state->follower.error));
}
