#include "health/sync.h"
#include "health/liveness.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define COMPARE_MS       60000
#define BACKOFF_LEAST_MS 20
#define BACKOFF_MOST_MS  1000
#define REFUSED_AGAIN_MS 5000
#define OUTPUTS_AT_ONCE  32
#define LOST_ALONE       2
#define LOST_ASIDE       3
#define ASIDE_LEAST_MS   2000
#define ASIDE_MOST_MS    120000
#define ASIDE_CHANGED_MS 10000

/* A write on its way. It outlives the sync when that goes first. */
struct sync_write {
    struct rpc_write write;
    uv_mutex_t lock;
    struct sync *sync; /* NULL: nobody wants to know any more */
    bool ended;
    char lease[UUID_TEXT_SIZE + 1]; /* that it goes by; empty: none */
    int error, refused;
    char text[200];
};

static void sync_act(struct sync *sync);

/* -- writes
 * ----------------------------------------------------------------------------------------------------------------- */

static void write_free(struct sync_write *out) {
    uv_mutex_destroy(&out->lock);
    free(out);
}

/* Another thread. */
static void on_written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct sync_write *out = CONTAINER_OF(write, struct sync_write, write);
    uv_mutex_lock(&out->lock);
    struct sync *sync = out->sync;
    out->error = error;
    if (error == CO_OK) {
        out->refused = result->error;
        if (result->text) {
            size_t size = strnlen(result->text, sizeof out->text - 1);
            memcpy(out->text, result->text, size);
        }
    }
    out->ended = true;
    if (sync) local_wake(sync->local); /* it cannot go while we hold the lock */
    uv_mutex_unlock(&out->lock);
    if (!sync) write_free(out);
}

static int by_sequence(const void *a, const void *b) {
    uint64_t one = (*(struct item *const *)a)->sequence, other = (*(struct item *const *)b)->sequence;
    return one < other ? -1 : one > other;
}

/* Back into the dirty list, each in its place. */
static void put_back(struct sync *sync) {
    struct local *local = sync->local;
    if (sync->batch_count > 1) qsort(sync->batch, sync->batch_count, sizeof *sync->batch, by_sequence);
    struct list *at = local->dirty.next;
    for (size_t i = 0; i < sync->batch_count; i++) {
        struct item *item = sync->batch[i];
        if (!list_empty(&item->dirty)) continue; /* touched since: it stands further back */
        while (at != &local->dirty && LIST_ENTRY(at, struct item, dirty)->sequence < item->sequence) at = at->next;
        list_insert(at, &item->dirty);
    }
}

static void land(struct sync *sync) {
    for (size_t i = 0; i < sync->batch_count; i++) sync->batch[i]->flying = false;
    sync->local->flying_first = UINT64_MAX;
}

static void delivered(struct sync *sync) {
    if (sync->node_flying) {
        sync->node_dirty = false;
        sync->node_lost = 0;
        sync->node_due_ms = 0;
    }
    land(sync);
    for (size_t i = 0; i < sync->batch_count; i++) {
        const struct item *item = sync->batch[i];
        log_debug("health", "the catalog has taken a change: %s id=%s", item->is_check ? "check" : "service", item->id);
        sync_item_arrived(sync->batch[i]);
        item_release(sync->local, sync->batch[i]);
    }
    sync->backoff_ms = 0;
}

static void later(struct sync *sync) {
    sync->backoff_ms = sync->backoff_ms ? sync->backoff_ms * 2 : BACKOFF_LEAST_MS;
    if (sync->backoff_ms > BACKOFF_MOST_MS) sync->backoff_ms = BACKOFF_MOST_MS;
    sync->retry_ms = clock_mono_ms() + sync->backoff_ms / 2 + rng_below(&sync->rng, sync->backoff_ms);
}

/* The waiters of what was tried need not wait longer. */
static void tried(struct sync *sync, int error) {
    struct local *local = sync->local;
    for (size_t i = 0; i < sync->batch_count; i++) {
        uint64_t sequence = sync->batch[i]->flying_sequence;
        if (sequence > local->failed_sequence) local->failed_sequence = sequence;
    }
    local->failed_error = error;
}

uint64_t sync_aside_period_ms(unsigned lost) {
    uint64_t period_ms = ASIDE_LEAST_MS;
    if (lost < LOST_ASIDE) return 0;
    for (unsigned i = LOST_ASIDE; i < lost && period_ms < ASIDE_MOST_MS; i++) period_ms *= 4;
    return period_ms < ASIDE_MOST_MS ? period_ms : ASIDE_MOST_MS;
}

uint64_t sync_aside_until_ms(const struct item *item) {
    if (!item->lost_ms) return 0;
    uint64_t period_ms = sync_aside_period_ms(item->lost);
    if (item->sequence != item->lost_sequence && period_ms > ASIDE_CHANGED_MS) period_ms = ASIDE_CHANGED_MS;
    return item->lost_ms + period_ms;
}

void sync_item_arrived(struct item *item) {
    item->alone = false;
    item->lost = 0;
    item->lost_ms = item->lost_sequence = 0;
}

/* Did the connection go because of what was in it? Between two losses the servers have answered a comparison. */
static void lost(struct sync *sync) {
    uint64_t now = clock_mono_ms();
    if (sync->node_flying && ++sync->node_lost >= LOST_ASIDE) { /* nothing goes before it */
        log_warn("health", "the connection is lost whenever this node is written times=%u", sync->node_lost);
        sync->node_due_ms = now + ASIDE_CHANGED_MS;
    }
    for (size_t i = 0; i < sync->batch_count; i++) {
        struct item *item = sync->batch[i];
        item->lost++;
        if (item->lost >= LOST_ALONE) item->alone = true;
        if (item->lost < LOST_ASIDE || sync->batch_units > 1) continue;
        item->lost_ms = now;
        item->lost_sequence = item->flying_sequence;
        log_warn("health",
                 "the connection is lost whenever this is written, it is set aside: %s id=%s times=%u again_s=%" PRIu64,
                 item->is_check ? "check" : "service", item->id, item->lost, sync_aside_period_ms(item->lost) / 1000);
    }
}

static void failed(struct sync *sync, int error) {
    log_debug("health", "catalog not reached: %s", co_strerror(error));
    land(sync);
    put_back(sync);
    tried(sync, error);
    if (error == CO_UNKNOWN_OUTCOME) {
        lost(sync);
        sync->compare_wanted = true;
    }
    later(sync);
}

/* The servers do not take it. Of a batch it is not known which part: each goes by itself. */
static void refused(struct sync *sync, const struct sync_write *out) {
    land(sync);
    if (out->refused == CO_NOTFOUND && services_unleased(sync->local, out->text)) {
        put_back(sync); /* the rest of the batch goes at once, and with it that they are gone */
        return;
    }
    if (out->refused == CO_NOTFOUND && *out->lease) {
        /* this node's lease is over: nothing is wrong with what it wrote */
        put_back(sync);
        sync->lease_lost = true;
        return;
    }
    if (out->refused == CO_CONFLICT && *out->lease) { /* somebody has removed this node: all of it goes again */
        put_back(sync);
        sync->compare_wanted = true;
        later(sync);
        return;
    }
    tried(sync, out->refused);
    const char *text = *out->text ? out->text : co_strerror(out->refused);
    if (sync->node_flying || sync->batch_units > 1) {
        for (size_t i = 0; i < sync->batch_count; i++) sync->batch[i]->alone = true;
        put_back(sync);
    } else if (sync->batch_count > 0) {
        const struct item *item = sync->batch[0];
        log_warn("health", "the catalog refuses a %s id=%s: %s", item->is_check ? "check" : "service", item->id, text);
    }
    if (sync->node_flying) {
        log_warn("health", "the catalog refuses this node: %s", text);
        later(sync);
    }
    /* Perhaps the node is gone there: a comparison tells, but not at once and again and again. */
    uint64_t soon = clock_mono_ms() + REFUSED_AGAIN_MS;
    if (sync->batch_units == 1 && soon < sync->compare_ms) sync->compare_ms = soon;
}

static void collect(struct sync *sync) {
    struct sync_write *out = sync->out;
    if (!out) return;
    uv_mutex_lock(&out->lock);
    bool ended = out->ended;
    uv_mutex_unlock(&out->lock);
    if (!ended) return;
    sync->out = NULL;
    local_lock(sync->local);
    if (out->error != CO_OK) {
        failed(sync, out->error);
    } else if (out->refused != CO_OK) {
        refused(sync, out);
    } else {
        delivered(sync);
    }
    sync->batch_count = 0;
    sync->node_flying = false;
    local_unlock(sync->local);
    char lease[sizeof out->lease];
    memcpy(lease, out->lease, sizeof lease);
    bool on_its_way = out->error == CO_UNKNOWN_OUTCOME;
    write_free(out);
    local_waiters_look(sync->local);
    /* It may arrive yet, after the comparison: not before it is void is the catalog looked at. */
    if (on_its_way && *lease) liveness_replace(sync->local->liveness, lease);
    if (sync->lease_lost) liveness_lost(sync->local->liveness);
    sync->lease_lost = false;
}

/* Output that has waited long enough travels now, a few at a time. */
static void outputs_due(struct local *local, uint64_t now) {
    if (local->output_next_ms > now) return;
    uint64_t next = UINT64_MAX;
    unsigned sent = 0;
    for (size_t i = 0; i < local->checks.count; i++) {
        struct local_check *check = as_check(local->checks.items[i]);
        if (!check->output_due_ms || check->item.removed) continue;
        if (check->output_due_ms <= now && sent < OUTPUTS_AT_ONCE) {
            check->output_due_ms = 0;
            item_touch(local, &check->item);
            sent++;
        } else if (check->output_due_ms < next) {
            next = check->output_due_ms <= now ? now + 1000 : check->output_due_ms;
        }
    }
    local->output_next_ms = next;
}

/* True: something is out now. */
static bool submit(struct sync *sync, uint64_t now) {
    struct local *local = sync->local;
    uint8_t command = 0;
    local_lock(local);
    outputs_due(local, now);
    const ProtobufCMessage *message = sync_gather(sync, &command);
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < sync->batch_count; i++) {
        if (sync->batch[i]->flying_sequence < first) first = sync->batch[i]->flying_sequence;
    }
    local->flying_first = first;
    if (!message) {
        local_unlock(local);
        arena_reset(&sync->arena);
        return false;
    }
    struct sync_write *out = mem_zalloc(sizeof *out);
    out->write.done = on_written;
    out->sync = sync;
    const char *lease = local->liveness ? liveness_lease(local->liveness) : NULL;
    if (lease) memcpy(out->lease, lease, UUID_TEXT_SIZE);
    CHECK(uv_mutex_init(&out->lock) == 0);
    sync->out = out;
    /* The message points into records that only change under the lock; rpc encodes it before it returns. */
    rpc_submit(local->rpc, &out->write, command, message);
    local_unlock(local);
    arena_reset(&sync->arena);
    return true;
}

/* -- comparing
 * ----------------------------------------------------------------------------------------------------------------- */

static void compare_now(struct sync *sync, const struct sync_catalog *catalog) {
    uint64_t period = sync->local->config.sync_interval_ns > 0
                          ? (uint64_t)sync->local->config.sync_interval_ns / 1000000
                          : COMPARE_MS;
    sync->compare_ms = clock_mono_ms() + period + rng_below(&sync->rng, period / 4 + 1);
    sync_compare(sync, catalog);
    sync->compare_wanted = false;
    sync->backoff_ms = 0;
    local_waiters_look(sync->local);
}

/* The catalog as it is, not as an old leader remembers it. Without a leader that waits for one. */
static void begin_compare(struct sync *sync) {
    sync->compare_wanted = true;
    sync_read_begin(sync);
}

static void collect_read(struct sync *sync) {
    struct sync_catalog catalog = {0};
    if (!sync->read) return;
    int error = sync_read_take(sync, &catalog);
    if (error == CO_AGAIN) return;
    if (sync->local->liveness && !liveness_may_write(sync->local->liveness)) {
        sync->compare_wanted = true; /* whose the records are cannot be told now */
    } else if (error == CO_OK) {
        compare_now(sync, &catalog);
    } else {
        log_debug("health", "catalog not read: %s", co_strerror(error));
        later(sync);
    }
    arena_reset(&sync->arena);
}

/* -- when
 * ----------------------------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer) { sync_act(timer->data); }

static void arm(struct sync *sync, uint64_t at, uint64_t now) {
    uv_update_time(sync->local->loop);
    uv_timer_start(&sync->timer, on_timer, at > now ? at - now : 0, 0);
}

static void sync_act(struct sync *sync) {
    struct local *local = sync->local;
    if (local->stopping) return;
    collect(sync);
    collect_read(sync);
    if (sync->out || sync->read) return;                                 /* its end comes by here */
    if (local->liveness && !liveness_may_write(local->liveness)) return; /* sync_compare_soon comes */
    uint64_t now = clock_mono_ms();
    if (sync->retry_ms > now) {
        arm(sync, sync->retry_ms, now);
        return;
    }
    if (sync->compare_wanted || sync->compare_ms <= now) {
        begin_compare(sync);
        return;
    }
    if (sync->node_dirty && sync->node_due_ms > now) {
        arm(sync, sync->node_due_ms < sync->compare_ms ? sync->node_due_ms : sync->compare_ms, now);
        return;
    }
    if (submit(sync, now)) return;
    local_lock(local);
    uint64_t next = sync->compare_ms < local->output_next_ms ? sync->compare_ms : local->output_next_ms;
    local_unlock(local);
    if (sync->aside_ms < next) next = sync->aside_ms;
    arm(sync, next, now);
}

void sync_kick(struct sync *sync) { sync_act(sync); }

void sync_compare_soon(struct sync *sync) {
    sync->compare_wanted = true;
    sync->retry_ms = sync->backoff_ms = 0;
    sync_act(sync);
}

void sync_compare_within(struct sync *sync, uint64_t most_ms) {
    uint64_t at = clock_mono_ms() + rng_below(&sync->rng, most_ms);
    if (at < sync->compare_ms) sync->compare_ms = at;
    sync_act(sync);
}

struct sync *sync_new(struct local *local) {
    struct sync *sync = mem_zalloc(sizeof *sync);
    sync->local = local;
    sync->compare_wanted = true;
    sync->aside_ms = UINT64_MAX;
    rng_seed(&sync->rng, random_u64());
    uv_timer_init(local->loop, &sync->timer);
    sync->timer.data = sync;
    local_wake(local);
    return sync;
}

static void on_closed(uv_handle_t *handle) {
    struct sync *sync = handle->data;
    struct local *local = sync->local;
    free(sync->batch);
    arena_free(&sync->arena);
    free(sync);
    local_part_closed(local);
}

void sync_close(struct sync *sync) {
    if (sync->out) {
        struct sync_write *out = sync->out;
        uv_mutex_lock(&out->lock);
        out->sync = NULL;
        bool ended = out->ended;
        uv_mutex_unlock(&out->lock);
        if (ended) write_free(out);
    }
    sync_read_drop(sync);
    uv_close((uv_handle_t *)&sync->timer, on_closed);
}
