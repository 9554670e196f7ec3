#include "health/liveness_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "health/anti_entropy_run.h"
#include "health/liveness.h"
#include "registry/lease.h"

_Static_assert(LIVENESS_ID_SIZE > UUID_TEXT_SIZE, "an id fits");

/* A question under way. It outlives its owner when the owner is closed first, and is freed when its answer comes. */
struct question {
    struct rpc_write write;
    struct rpc_renew renew;
    uv_mutex_t lock;
    struct liveness_run *owner; /* NULL: the owner is closed */
    bool ended;
    int error, refused;
    char id[UUID_TEXT_SIZE + 1], text[400];
};

struct liveness_run {
    struct liveness liveness;
    struct local *local;
    uv_timer_t timer;
    uv_async_t wake;
    struct question *out;
    uint64_t process;
    void (*left)(void *data, int error);
    void *left_data;
    unsigned closing;
};

/* -- questions ---------------------------------------------------------------------------------------------------- */

static void question_free(struct question *question) {
    uv_mutex_destroy(&question->lock);
    free(question);
}

/* Any thread. */
static void question_end(struct question *question) {
    uv_mutex_lock(&question->lock);
    struct liveness_run *owner = question->owner;
    question->ended = true;
    if (owner) uv_async_send(&owner->wake); /* the owner cannot be closed while we hold the lock */
    uv_mutex_unlock(&question->lock);
    if (!owner) question_free(question);
}

static void on_written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct question *question = CONTAINER_OF(write, struct question, write);
    question->error = error;
    if (error == CO_OK) {
        question->refused = result->error;
        snprintf(question->text, sizeof question->text, "%s", result->text ? result->text : "");
    }
    question_end(question);
}

static void on_renewed(struct rpc_renew *renew, int error) {
    struct question *question = CONTAINER_OF(renew, struct question, renew);
    question->error = error;
    question_end(question);
}

static struct question *question_new(struct liveness_run *run) {
    struct question *question = mem_zalloc(sizeof *question);
    question->owner = run;
    question->write.done = on_written;
    question->renew.done = on_renewed;
    CHECK(uv_mutex_init(&question->lock) == 0);
    run->out = question;
    return question;
}

static void ask_grant(struct liveness_run *run) {
    const struct local_config *config = &run->local->config;
    struct question *question = question_new(run);
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease lease = PB__LEASE__INIT;
    random_uuid(question->id);
    lease.id = question->id, lease.name = (char *)"node", lease.ttl_ns = config->lease_ttl_ns;
    lease.node = (char *)config->node, lease.node_id = (char *)config->node_id;
    lease.address = (char *)config->address, lease.process = run->process;
    lease.reconnect_timeout_ns = config->reconnect_timeout_ns;
    command.lease = &lease;
    rpc_submit(run->local->rpc, &question->write, LEASE_GRANT, &command.base);
}

static void ask_renew(struct liveness_run *run, const char *lease) {
    struct question *question = question_new(run);
    question->renew.kind = lease_expiry.number;
    snprintf(question->renew.id, sizeof question->renew.id, "%s", lease);
    rpc_renew(run->local->rpc, &question->renew);
}

static void ask_end(struct liveness_run *run, const char *lease) {
    struct question *question = question_new(run);
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = (char *)lease, command.leave = true;
    rpc_submit(run->local->rpc, &question->write, LEASE_END, &command.base);
}

static void collect(struct liveness_run *run) {
    struct question *question = run->out;
    if (!question) return;
    uv_mutex_lock(&question->lock);
    bool over = question->ended;
    uv_mutex_unlock(&question->lock);
    if (!over) return;
    run->out = NULL;
    struct liveness_answer answer = {.error = question->error,
                                     .refused = question->refused,
                                     .text = question->text,
                                     .id = question->id,
                                     .restored = question->renew.restored};
    liveness_answered(&run->liveness, &answer, clock_mono_ms());
    question_free(question);
}

/* -- what is to be done ------------------------------------------------------------------------------------------- */

static void act(struct liveness_run *run);
static void on_timer(uv_timer_t *timer) { act(timer->data); }

static void told_left(struct liveness_run *run, int error) {
    void (*done)(void *, int) = run->left;
    run->left = NULL;
    if (done) done(run->left_data, error);
}

static void arm(struct liveness_run *run, uint64_t at_ms) {
    uint64_t now_ms = clock_mono_ms();
    if (at_ms == LIVENESS_NEVER) return;
    uv_update_time(run->local->loop);
    uv_timer_start(&run->timer, on_timer, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

/* False: there was nothing more to do. */
static bool act_once(struct liveness_run *run) {
    struct local *local = run->local;
    struct liveness_order order = liveness_next(&run->liveness, rpc_known_leader(local->rpc), clock_mono_ms());
    switch (order.act) {
        case LIVENESS_GRANT: ask_grant(run); break;
        case LIVENESS_RENEW: ask_renew(run, order.lease); break;
        case LIVENESS_END: ask_end(run, order.lease); break;
        case LIVENESS_CHANGED: anti_entropy_run_compare_soon(local->anti_entropy_run); break;
        case LIVENESS_COMPARE: anti_entropy_run_compare_within(local->anti_entropy_run, order.within_ms); break;
        case LIVENESS_LEFT: told_left(run, order.error); break;
        case LIVENESS_REST: arm(run, order.until_ms); return false;
    }
    return true;
}

/* An order may stop the agent when it is carried out, and close `run`: the loop looks at `closing` each time. */
static void act(struct liveness_run *run) {
    if (run->closing) return;
    collect(run);
    while (!run->closing && act_once(run)) continue;
}

static void on_wake(uv_async_t *wake) { act(wake->data); }

void liveness_run_kick(struct liveness_run *run) { uv_async_send(&run->wake); }

void liveness_run_leave(struct liveness_run *run, void (*done)(void *data, int error), void *data) {
    run->left = done, run->left_data = data;
    liveness_leave(&run->liveness, clock_mono_ms());
    act(run);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct liveness_run *liveness_run_new(struct local *local) {
    struct liveness_run *run = mem_zalloc(sizeof *run);
    struct liveness_rules rules = {
        .node = local->config.node, .ttl_ns = local->config.lease_ttl_ns, .seed = random_u64()};
    run->local = local;
    run->process = random_u64() | 1;
    liveness_begin(&run->liveness, &rules, clock_mono_ms());
    local->liveness = &run->liveness;
    CHECK(uv_timer_init(local->loop, &run->timer) == 0 && uv_async_init(local->loop, &run->wake, on_wake) == 0);
    run->timer.data = run->wake.data = run;
    uv_async_send(&run->wake);
    return run;
}

static void on_closed(uv_handle_t *handle) {
    struct liveness_run *run = handle->data;
    struct local *local = run->local;
    if (--run->closing > 0) return;
    local->liveness = NULL;
    free(run);
    local_part_closed(local);
}

void liveness_run_close(struct liveness_run *run) {
    if (run->out) {
        struct question *question = run->out;
        uv_mutex_lock(&question->lock);
        question->owner = NULL;
        bool over = question->ended;
        uv_mutex_unlock(&question->lock);
        if (over) question_free(question);
    }
    run->closing = 2;
    uv_close((uv_handle_t *)&run->timer, on_closed);
    uv_close((uv_handle_t *)&run->wake, on_closed);
}
