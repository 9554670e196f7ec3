#include "health/liveness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "health/sync.h"
#include "registry/lease.h"

#define RENEWALS        3 /* in a TTL */
#define RENEWAL_MOST_MS 10000
#define AGAIN_LEAST_MS  100
#define AGAIN_MOST_MS   2000
#define TAKEN_AGAIN_MS  1000
#define TAKEN_MOST_MS   3000
/* whoever loses the lease again and again after such a time is not alone with its name */
#define SHORT_MS           60000
#define LOST_MOST_MS       30000
#define TELL_MS            60000
#define LEAVE_MOST_MS      5000
#define COMPARED_WITHIN_MS 10000 /* all agents of a cluster have the same reason */

enum state { ASKING, WAITING, HELD, LEFT };

/* A question on its way. It outlives the liveness when that goes first. */
struct question {
    struct rpc_write write;
    struct rpc_renew renew;
    uv_mutex_t lock;
    struct liveness *owner; /* NULL: nobody wants to know any more */
    enum { GRANT, RENEW, LEAVE } what;
    bool ended;
    int error, refused;
    char text[400];
};

struct liveness {
    struct local *local;
    void (*changed)(struct local *local);
    uv_timer_t timer;
    uv_async_t wake;
    enum state state;
    char id[UUID_TEXT_SIZE + 1], asked[UUID_TEXT_SIZE + 1];
    struct question *out;
    uint64_t next_ms, again_ms, told_ms, leave_by_ms, restored, taken_ms, granted_ms, process;
    unsigned lost; /* so often in a row soon after it was granted */
    struct rng rng;
    void (*left)(void *data, int error);
    void *left_data;
    bool stands; /* ASKING, though `id` is not known to have ended: it is to be replaced */
    unsigned closing;
};

static void act(struct liveness *liveness);

/* -- questions ---------------------------------------------------------------------------------------------------- */
static void question_free(struct question *question) {
    uv_mutex_destroy(&question->lock);
    free(question);
}

/* Any thread. */
static void question_end(struct question *question) {
    uv_mutex_lock(&question->lock);
    struct liveness *owner = question->owner;
    question->ended = true;
    if (owner) uv_async_send(&owner->wake); /* it cannot go while we hold the lock */
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

static struct question *question_new(struct liveness *liveness) {
    struct question *question = mem_zalloc(sizeof *question);
    question->owner = liveness;
    question->write.done = on_written;
    question->renew.done = on_renewed;
    CHECK(uv_mutex_init(&question->lock) == 0);
    liveness->out = question;
    return question;
}

static void ask_grant(struct liveness *liveness) {
    const struct local_config *config = &liveness->local->config;
    struct question *question = question_new(liveness);
    question->what = GRANT;
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease lease = PB__LEASE__INIT;
    uint8_t bytes[16];
    random_bytes(bytes, sizeof bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40, bytes[8] = (bytes[8] & 0x3f) | 0x80; /* RFC 4122, version 4 */
    uuid_format(bytes, liveness->asked);
    liveness->asked[UUID_TEXT_SIZE] = 0;
    lease.id = liveness->asked, lease.name = (char *)"node", lease.ttl_ns = config->lease_ttl_ns;
    lease.node = (char *)config->node, lease.node_id = (char *)config->node_id;
    lease.address = (char *)config->address, lease.process = liveness->process;
    lease.reconnect_timeout_ns = config->reconnect_timeout_ns;
    command.lease = &lease;
    rpc_submit(liveness->local->rpc, &question->write, LEASE_GRANT, &command.base);
}

static void ask_renew(struct liveness *liveness) {
    struct question *question = question_new(liveness);
    question->what = RENEW;
    question->renew.kind = lease_expiry.number;
    memcpy(question->renew.id, liveness->id, sizeof liveness->id);
    rpc_renew(liveness->local->rpc, &question->renew);
}

static void ask_leave(struct liveness *liveness) {
    struct question *question = question_new(liveness);
    question->what = LEAVE;
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = liveness->id, command.leave = true;
    rpc_submit(liveness->local->rpc, &question->write, LEASE_END, &command.base);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
static void become(struct liveness *liveness, enum state state) {
    enum state before = liveness->state;
    liveness->state = state;
    if (state != before) liveness->changed(liveness->local);
}

static void later(struct liveness *liveness) {
    liveness->again_ms = liveness->again_ms ? liveness->again_ms * 2 : AGAIN_LEAST_MS;
    if (liveness->again_ms > AGAIN_MOST_MS) liveness->again_ms = AGAIN_MOST_MS;
    liveness->next_ms = clock_mono_ms() + liveness->again_ms / 2 + rng_below(&liveness->rng, liveness->again_ms);
}

uint64_t liveness_period_ms(int64_t ttl_ns) {
    uint64_t period_ms = (uint64_t)ttl_ns / 1000000 / RENEWALS;
    return period_ms < RENEWAL_MOST_MS ? period_ms : RENEWAL_MOST_MS;
}

/* A tenth more or less: agents that were started together do not stay together. */
static void renew_later(struct liveness *liveness) {
    uint64_t period_ms = liveness_period_ms(liveness->local->config.lease_ttl_ns);
    liveness->again_ms = 0;
    liveness->next_ms = clock_mono_ms() + period_ms - period_ms / 10 + rng_below(&liveness->rng, period_ms / 10 + 1);
}

static void tell_taken(struct liveness *liveness, const char *text) {
    uint64_t now_ms = clock_mono_ms();
    if (liveness->told_ms && now_ms - liveness->told_ms < TELL_MS) return;
    liveness->told_ms = now_ms;
    log_warn("health", "another agent has this node's name: waiting until its lease has ended node=%s reason=\"%s\"",
             liveness->local->config.node, text);
}

static void granted(struct liveness *liveness, const struct question *question) {
    if (question->error == CO_OK && question->refused == CO_OK) {
        memcpy(liveness->id, liveness->asked, sizeof liveness->id);
        liveness->stands = false;
        if (liveness->told_ms)
            log_info("health", "this node's name is free, its lease is granted node=%s", liveness->local->config.node);
        liveness->told_ms = liveness->taken_ms = 0;
        liveness->granted_ms = clock_mono_ms();
        renew_later(liveness);
        become(liveness, HELD);
    } else if (question->error == CO_OK && question->refused == CO_EXISTS) {
        tell_taken(liveness, question->text);
        /* each time costs an entry */
        liveness->taken_ms = liveness->taken_ms ? liveness->taken_ms * 3 / 2 : TAKEN_AGAIN_MS;
        if (liveness->taken_ms > TAKEN_MOST_MS) liveness->taken_ms = TAKEN_MOST_MS;
        liveness->next_ms = clock_mono_ms() + liveness->taken_ms;
        become(liveness, WAITING);
    } else {
        if (question->error == CO_OK) log_warn("health", "the lease of this node is refused: %s", question->text);
        later(liveness);
    }
}

/* The leader says when it took in a backup last. What that lacks nobody would miss: the lease may well stand in it. */
static void renewed(struct liveness *liveness, uint64_t restored) {
    if (liveness->state == HELD) renew_later(liveness);
    if (restored == 0 || restored == liveness->restored) return;
    liveness->restored = restored;
    log_info("health", "the servers have taken in a backup: the catalog is compared with what is here index=%" PRIu64,
             restored);
    sync_compare_within(liveness->local->sync, COMPARED_WITHIN_MS);
}

uint64_t liveness_lost_wait_ms(unsigned lost) {
    uint64_t wait_ms = TAKEN_AGAIN_MS;
    if (lost <= 2) return 0;
    for (unsigned i = 3; i < lost && wait_ms < LOST_MOST_MS; i++) wait_ms *= 2;
    return wait_ms < LOST_MOST_MS ? wait_ms : LOST_MOST_MS;
}

static void ended(struct liveness *liveness) {
    log_warn("health", "the lease of this node has ended, a new one is asked for node=%s",
             liveness->local->config.node);
    uint64_t now_ms = clock_mono_ms();
    liveness->lost = now_ms - liveness->granted_ms < SHORT_MS ? liveness->lost + 1 : 1;
    liveness->next_ms = now_ms + liveness_lost_wait_ms(liveness->lost);
    liveness->stands = false;
    become(liveness, ASKING);
}

void liveness_replace(struct liveness *liveness, const char *lease) {
    if (liveness->state != HELD || strcmp(lease, liveness->id) != 0) return; /* it is void, or will be */
    log_debug("health", "a write may be on its way yet: this node's lease is granted anew node=%s",
              liveness->local->config.node);
    liveness->next_ms = 0;
    liveness->stands = true;
    become(liveness, ASKING);
    uv_async_send(&liveness->wake);
}

static void left(struct liveness *liveness, int error) {
    void (*done)(void *, int) = liveness->left;
    liveness->left = NULL;
    liveness->state = LEFT;
    if (done) done(liveness->left_data, error);
}

static void collect(struct liveness *liveness) {
    struct question *question = liveness->out;
    if (!question) return;
    uv_mutex_lock(&question->lock);
    bool over = question->ended;
    uv_mutex_unlock(&question->lock);
    if (!over) return;
    liveness->out = NULL;
    if (question->what == GRANT) granted(liveness, question);
    else if (question->what == LEAVE) left(liveness, question->error ? question->error : question->refused);
    else if (question->error == CO_OK) renewed(liveness, question->renew.restored);
    else if (liveness->state == HELD && question->error == CO_NOTFOUND) ended(liveness);
    else if (liveness->state == HELD) later(liveness);
    question_free(question);
}

/* -- when --------------------------------------------------------------------------------------------------------- */
static void on_timer(uv_timer_t *timer) { act(timer->data); }

static void act(struct liveness *liveness) {
    if (liveness->closing) return;
    collect(liveness);
    uint64_t now_ms = clock_mono_ms(), at_ms = liveness->next_ms;
    if (liveness->left) {
        /* nobody has heard of this node, and nobody can be told */
        bool unheard = !liveness->granted_ms && !rpc_known_leader(liveness->local->rpc);
        if (unheard) left(liveness, CO_OK);
        else if (!liveness->out && (liveness->state == HELD || liveness->stands)) ask_leave(liveness);
        else if (!liveness->out) left(liveness, CO_OK);
        else if (now_ms >= liveness->leave_by_ms) left(liveness, CO_TIMEOUT);
        at_ms = liveness->leave_by_ms;
    } else if (!liveness->out && liveness->state != LEFT && now_ms >= liveness->next_ms) {
        if (liveness->state == HELD) ask_renew(liveness);
        else ask_grant(liveness);
    }
    if (liveness->state == LEFT || (liveness->out && !liveness->left)) return; /* its end comes by here */
    uv_update_time(liveness->local->loop);
    uv_timer_start(&liveness->timer, on_timer, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

static void on_wake(uv_async_t *wake) { act(wake->data); }

bool liveness_may_write(const struct liveness *liveness) { return liveness->state == HELD; }

const char *liveness_lease(const struct liveness *liveness) { return liveness->state == HELD ? liveness->id : NULL; }

void liveness_lost(struct liveness *liveness) {
    if (liveness->state != HELD) return;
    if (liveness->out && liveness->out->what == RENEW) return; /* that says what is so */
    ended(liveness);
    uv_async_send(&liveness->wake);
}

void liveness_leave(struct liveness *liveness, void (*done)(void *data, int error), void *data) {
    liveness->left = done, liveness->left_data = data;
    liveness->leave_by_ms = clock_mono_ms() + LEAVE_MOST_MS;
    act(liveness);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct liveness *liveness_new(struct local *local, void (*changed)(struct local *local)) {
    struct liveness *liveness = mem_zalloc(sizeof *liveness);
    liveness->local = local, liveness->changed = changed;
    rng_seed(&liveness->rng, random_u64());
    liveness->process = random_u64() | 1;
    CHECK(uv_timer_init(local->loop, &liveness->timer) == 0 &&
          uv_async_init(local->loop, &liveness->wake, on_wake) == 0);
    liveness->timer.data = liveness->wake.data = liveness;
    uv_async_send(&liveness->wake);
    return liveness;
}

static void on_closed(uv_handle_t *handle) {
    struct liveness *liveness = handle->data;
    struct local *local = liveness->local;
    if (--liveness->closing > 0) return;
    free(liveness);
    local_part_closed(local);
}

void liveness_close(struct liveness *liveness) {
    if (liveness->out) {
        struct question *question = liveness->out;
        uv_mutex_lock(&question->lock);
        question->owner = NULL;
        bool over = question->ended;
        uv_mutex_unlock(&question->lock);
        if (over) question_free(question);
    }
    liveness->closing = 2;
    uv_close((uv_handle_t *)&liveness->timer, on_closed);
    uv_close((uv_handle_t *)&liveness->wake, on_closed);
}
