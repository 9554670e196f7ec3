#include "health/anti_entropy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "health/liveness.h"

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
#define DENIED_LEAST_MS  5000
#define DENIED_MOST_MS   60000

static bool mutated(const struct anti_entropy *sync, enum anti_entropy_mutation rule) { return sync->mutations & rule; }

/* -- what flew ---------------------------------------------------------------------------------------------------- */

static int by_sequence(const void *a, const void *b) {
    uint64_t one = (*(struct item *const *)a)->sequence, other = (*(struct item *const *)b)->sequence;
    return one < other ? -1 : one > other;
}

/* Puts the batch back into the dirty list, each item in its place. */
static void put_back(struct anti_entropy *sync) {
    struct local *local = sync->local;
    if (sync->batch_count > 1) qsort(sync->batch, sync->batch_count, sizeof *sync->batch, by_sequence);
    struct list *at = local->dirty.next;
    for (size_t i = 0; i < sync->batch_count; i++) {
        struct item *item = sync->batch[i];
        if (!list_empty(&item->dirty)) continue; /* touched since: it is further back in the list */
        while (at != &local->dirty && LIST_ENTRY(at, struct item, dirty)->sequence < item->sequence) at = at->next;
        list_insert(at, &item->dirty);
    }
}

static void land(struct anti_entropy *sync) {
    for (size_t i = 0; i < sync->batch_count; i++) sync->batch[i]->flying = false;
    sync->local->flying_first = UINT64_MAX;
}

static void delivered(struct anti_entropy *sync) {
    if (sync->node_flying) {
        sync->node_dirty = false;
        sync->node_lost = 0;
        sync->node_due_ms = 0;
        sync->node_denied = false;
    }
    land(sync);
    for (size_t i = 0; i < sync->batch_count; i++) {
        const struct item *item = sync->batch[i];
        log_debug("health", "the catalog has taken a change: %s id=%s", item->is_check ? "check" : "service", item->id);
        anti_entropy_item_arrived(sync->batch[i]);
        item_release(sync->local, sync->batch[i]);
    }
    sync->backoff_ms = 0;
}

static void later(struct anti_entropy *sync, uint64_t now_ms) {
    sync->backoff_ms = sync->backoff_ms ? sync->backoff_ms * 2 : BACKOFF_LEAST_MS;
    if (sync->backoff_ms > BACKOFF_MOST_MS) sync->backoff_ms = BACKOFF_MOST_MS;
    sync->retry_ms = now_ms + sync->backoff_ms / 2 + rng_below(&sync->rng, sync->backoff_ms);
}

/* Those who wait for the batch need not wait longer: it was tried. */
static void tried(struct anti_entropy *sync, int error) {
    struct local *local = sync->local;
    for (size_t i = 0; i < sync->batch_count; i++) {
        uint64_t sequence = sync->batch[i]->flying_sequence;
        if (sequence > local->failed_sequence) local->failed_sequence = sequence;
    }
    local->failed_error = error;
}

uint64_t anti_entropy_aside_period_ms(unsigned lost) {
    uint64_t period_ms = ASIDE_LEAST_MS;
    if (lost < LOST_ASIDE) return 0;
    for (unsigned i = LOST_ASIDE; i < lost && period_ms < ASIDE_MOST_MS; i++) period_ms *= 4;
    return period_ms < ASIDE_MOST_MS ? period_ms : ASIDE_MOST_MS;
}

uint64_t anti_entropy_denied_period_ms(unsigned denied) {
    uint64_t period_ms = DENIED_LEAST_MS;
    if (denied == 0) return 0;
    for (unsigned i = 1; i < denied && period_ms < DENIED_MOST_MS; i++) period_ms *= 2;
    return period_ms < DENIED_MOST_MS ? period_ms : DENIED_MOST_MS;
}

uint64_t anti_entropy_aside_until_ms(const struct item *item) {
    if (item->denied && item->sequence == item->denied_sequence)
        return item->denied_ms + anti_entropy_denied_period_ms(item->denied);
    if (!item->lost_ms) return 0;
    uint64_t period_ms = anti_entropy_aside_period_ms(item->lost);
    if (item->sequence != item->lost_sequence && period_ms > ASIDE_CHANGED_MS) period_ms = ASIDE_CHANGED_MS;
    return item->lost_ms + period_ms;
}

void anti_entropy_item_arrived(struct item *item) {
    item->alone = false;
    item->lost = 0;
    item->lost_ms = item->lost_sequence = 0;
    item->denied = 0;
    item->denied_ms = item->denied_sequence = 0;
}

/* The connection was lost, perhaps because of a record that was written. The servers were reachable in between, because
 * they answered a comparison after the loss before. */
static void lost(struct anti_entropy *sync, uint64_t now_ms) {
    if (sync->node_flying && ++sync->node_lost >= LOST_ASIDE) { /* nothing goes before it */
        log_warn("health", "the connection is lost whenever this node is written times=%u", sync->node_lost);
        sync->node_due_ms = now_ms + ASIDE_CHANGED_MS;
    }
    for (size_t i = 0; i < sync->batch_count; i++) {
        struct item *item = sync->batch[i];
        item->lost++;
        if (item->lost >= LOST_ALONE) item->alone = !mutated(sync, ANTI_ENTROPY_MUTATE_TOGETHER);
        if (item->lost < LOST_ASIDE || sync->batch_units > 1) continue;
        item->lost_ms = mutated(sync, ANTI_ENTROPY_MUTATE_ASIDE) ? ANTI_ENTROPY_NEVER / 2 : now_ms;
        item->lost_sequence = item->flying_sequence;
        log_warn("health",
                 "the connection is lost whenever this is written, it is set aside: %s id=%s times=%u again_s=%" PRIu64,
                 item->is_check ? "check" : "service", item->id, item->lost,
                 anti_entropy_aside_period_ms(item->lost) / 1000);
    }
}

static void failed(struct anti_entropy *sync, int error, uint64_t now_ms) {
    log_debug("health", "catalog not reached: %s", co_strerror(error));
    land(sync);
    if (!mutated(sync, ANTI_ENTROPY_MUTATE_DROPS)) put_back(sync);
    tried(sync, error);
    if (error == CO_UNKNOWN_OUTCOME) {
        lost(sync, now_ms);
        sync->compare_wanted = true;
    }
    later(sync, now_ms);
}

static bool is_denial(int error) { return error == CO_DENIED || error == CO_NOTOKEN; }

/* The token may not write it. Others do not wait for it. */
static void denied(struct anti_entropy *sync, const char *text, uint64_t now_ms) {
    for (size_t i = 0; i < sync->batch_count; i++) {
        struct item *item = sync->batch[i];
        if (item->denied++ == 0)
            log_warn("health", "the catalog denies a %s to its token, it is tried again id=%s: %s",
                     item->is_check ? "check" : "service", item->id, text);
        item->denied_ms = now_ms;
        item->denied_sequence = item->flying_sequence;
    }
    put_back(sync);
    if (!sync->node_flying) return;
    if (!sync->node_denied) log_warn("health", "the catalog denies this node to its agent: %s", text);
    sync->node_denied = true;
    sync->node_due_ms = now_ms + DENIED_LEAST_MS; /* nothing goes before it */
}

/* The servers refuse the write. It is unknown which record of a batch they refuse, so each travels by itself next. */
static void refused(struct anti_entropy *sync, const struct anti_entropy_answer *answer, uint64_t now_ms) {
    bool by_lease = sync->lease[0];
    land(sync);
    if (answer->refused == CO_NOTFOUND && services_unleased(sync->local, answer->text)) {
        put_back(sync); /* the rest of the batch goes at once, with the removal of these services */
        return;
    }
    if (answer->refused == CO_NOTFOUND && by_lease) {
        /* this node's lease is over: nothing is wrong with what it wrote */
        put_back(sync);
        if (sync->local->liveness) liveness_lost(sync->local->liveness, now_ms);
        return;
    }
    if (answer->refused == CO_CONFLICT && by_lease) { /* somebody has removed this node: all of it goes again */
        put_back(sync);
        sync->compare_wanted = true;
        later(sync, now_ms);
        return;
    }
    const char *text = *answer->text ? answer->text : co_strerror(answer->refused);
    if (is_denial(answer->refused) && sync->batch_units <= 1) {
        denied(sync, text, now_ms);
        return;
    }
    if (!is_denial(answer->refused)) tried(sync, answer->refused);
    if (sync->node_flying || sync->batch_units > 1) {
        for (size_t i = 0; i < sync->batch_count; i++) sync->batch[i]->alone = true;
        put_back(sync);
    } else if (sync->batch_count > 0) {
        const struct item *item = sync->batch[0];
        log_warn("health", "the catalog refuses a %s id=%s: %s", item->is_check ? "check" : "service", item->id, text);
    }
    if (sync->node_flying) {
        log_warn("health", "the catalog refuses this node: %s", text);
        later(sync, now_ms);
    }
    /* Perhaps the node is gone there: a comparison tells, but not at once and again and again. */
    uint64_t soon = now_ms + REFUSED_AGAIN_MS;
    if (sync->batch_units == 1 && soon < sync->compare_ms) sync->compare_ms = soon;
}

void anti_entropy_written(struct anti_entropy *sync, const struct anti_entropy_answer *answer, uint64_t now_ms) {
    struct liveness *liveness = sync->local->liveness;
    bool unknown = answer->error == CO_UNKNOWN_OUTCOME;
    sync->writing = false;
    bool unready = answer->refused == CO_NOTREADY; /* this server cannot tell yet what a token may do */
    if (answer->error != CO_OK || unready) failed(sync, unready ? CO_NOTREADY : answer->error, now_ms);
    else if (answer->refused != CO_OK) refused(sync, answer, now_ms);
    else delivered(sync);
    sync->batch_count = 0;
    sync->node_flying = false;
    /* The write may still arrive, even after a comparison: so the lease that it names is made void before the catalog
     * is compared. */
    if (unknown && sync->lease[0] && liveness) liveness_replace(liveness, sync->lease);
}

/* -- what flies --------------------------------------------------------------------------------------------------- */

/* Output that has waited long enough travels now, a few at a time. */
static void outputs_due(struct local *local, uint64_t now_ms) {
    if (local->output_next_ms > now_ms) return;
    uint64_t next = UINT64_MAX;
    unsigned sent = 0;
    for (size_t i = 0; i < local->checks.count; i++) {
        struct local_check *check = as_check(local->checks.items[i]);
        if (!check->output_due_ms || check->item.removed) continue;
        if (check->output_due_ms <= now_ms && sent < OUTPUTS_AT_ONCE) {
            check->output_due_ms = 0;
            item_touch(local, &check->item);
            sent++;
        } else if (check->output_due_ms < next) {
            next = check->output_due_ms <= now_ms ? now_ms + 1000 : check->output_due_ms;
        }
    }
    local->output_next_ms = next;
}

/* Its command and message; false: there is nothing to write. */
static bool gather(struct anti_entropy *sync, struct anti_entropy_order *order, uint64_t now_ms) {
    struct local *local = sync->local;
    outputs_due(local, now_ms);
    order->message = anti_entropy_gather(sync, &order->command, now_ms);
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < sync->batch_count; i++) {
        if (sync->batch[i]->flying_sequence < first) first = sync->batch[i]->flying_sequence;
    }
    local->flying_first = first;
    if (!order->message) {
        arena_reset(&sync->arena);
        return false;
    }
    order->requester = sync->batch_count ? anti_entropy_requester(sync, sync->batch[0]) : NULL;
    const char *lease = local->liveness ? liveness_lease(local->liveness) : NULL;
    snprintf(sync->lease, sizeof sync->lease, "%s", lease ? lease : "");
    sync->writing = true;
    return true;
}

/* -- comparing ---------------------------------------------------------------------------------------------------- */

static void compare_now(struct anti_entropy *sync, const struct anti_entropy_catalog *catalog, uint64_t now_ms) {
    uint64_t period = sync->local->config.sync_interval_ns > 0
                          ? (uint64_t)sync->local->config.sync_interval_ns / 1000000
                          : COMPARE_MS;
    sync->compare_ms = now_ms + period + rng_below(&sync->rng, period / 4 + 1);
    anti_entropy_compare(sync, catalog, now_ms);
    sync->compare_wanted = false;
    sync->backoff_ms = 0;
}

/* The agent takes hidden records for missing ones, and writes them again and again. */
static void tell_hidden(struct anti_entropy *sync, uint64_t hidden) {
    if (hidden && !sync->read_hides)
        log_warn("health", "the agent's token may not read all records of this node hidden=%" PRIu64, hidden);
    sync->read_hides = hidden > 0;
}

void anti_entropy_read(struct anti_entropy *sync, int error, const struct anti_entropy_catalog *catalog,
                       uint64_t now_ms) {
    const struct liveness *liveness = sync->local->liveness;
    sync->reading = false;
    if (liveness && !liveness_may_write(liveness)) {
        sync->compare_wanted = true; /* another agent may own the records now */
    } else if (error == CO_OK) {
        sync->read_denied = false;
        tell_hidden(sync, catalog->hidden);
        compare_now(sync, catalog, now_ms);
    } else if (is_denial(error)) {
        if (!sync->read_denied)
            log_warn("health", "the agent's token may not read this node's records, so nothing is written: %s",
                     co_strerror(error));
        sync->read_denied = sync->compare_wanted = true;
        sync->retry_ms = now_ms + DENIED_LEAST_MS;
    } else {
        log_debug("health", "catalog not read: %s", co_strerror(error));
        later(sync, now_ms);
    }
}

void anti_entropy_compare_soon(struct anti_entropy *sync) {
    if (!mutated(sync, ANTI_ENTROPY_MUTATE_BLIND)) sync->compare_wanted = true;
    sync->retry_ms = sync->backoff_ms = 0;
}

void anti_entropy_compare_within(struct anti_entropy *sync, uint64_t most_ms, uint64_t now_ms) {
    uint64_t at_ms = now_ms + rng_below(&sync->rng, most_ms);
    if (at_ms < sync->compare_ms) sync->compare_ms = at_ms;
}

/* -- what is to be done ------------------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

static struct anti_entropy_order rest(uint64_t until_ms) {
    return (struct anti_entropy_order){.act = ANTI_ENTROPY_REST, .until_ms = until_ms};
}

struct anti_entropy_order anti_entropy_next(struct anti_entropy *sync, uint64_t now_ms) {
    struct local *local = sync->local;
    struct anti_entropy_order order = {.act = ANTI_ENTROPY_WRITE};
    if (sync->writing || sync->reading) return rest(ANTI_ENTROPY_NEVER); /* its answer is an event */
    if (local->liveness && !liveness_may_write(local->liveness))
        return rest(ANTI_ENTROPY_NEVER); /* anti_entropy_compare_soon comes */
    if (sync->retry_ms > now_ms) return rest(sync->retry_ms);
    if (sync->compare_wanted || sync->compare_ms <= now_ms) {
        sync->compare_wanted = sync->reading = true;
        return (struct anti_entropy_order){.act = ANTI_ENTROPY_READ};
    }
    if (sync->node_dirty && sync->node_due_ms > now_ms) return rest(earlier(sync->node_due_ms, sync->compare_ms));
    if (gather(sync, &order, now_ms)) return order;
    return rest(earlier(earlier(sync->compare_ms, local->output_next_ms), sync->aside_ms));
}

void anti_entropy_begin(struct anti_entropy *sync, struct local *local, uint64_t seed) {
    *sync = (struct anti_entropy){.local = local, .compare_wanted = true, .aside_ms = ANTI_ENTROPY_NEVER};
    rng_seed(&sync->rng, seed);
}

void anti_entropy_end(struct anti_entropy *sync) {
    free(sync->batch);
    arena_free(&sync->arena);
}
