#include "health/anti_entropy_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"
#include "health/anti_entropy.h"
#include "health/liveness_run.h"
#include "rpc/api/access_control.h"

enum { OF_SERVICES, OF_CHECKS, PARTS };

/* A write under way. It outlives its owner when the owner is closed first. */
struct out_write {
    struct rpc_write write;
    uv_mutex_t lock;
    struct anti_entropy_run *owner; /* NULL: the owner is closed */
    bool ended;
    int error, refused;
    char text[200];
};

/* Two queries under way, for the catalog's records of this node. They outlive their owner likewise. */
struct out_read {
    uv_mutex_t lock;
    struct anti_entropy_run *owner;
    unsigned left;
    int error;
    struct part {
        struct rpc_fetch fetch;
        struct out_read *read;
        struct buffer records;
        uint64_t hidden;
        bool found;
    } parts[PARTS];
};

struct anti_entropy_run {
    struct anti_entropy anti_entropy;
    struct local *local;
    uv_timer_t timer;
    struct out_write *write;
    struct out_read *read;
};

/* -- writes ------------------------------------------------------------------------------------------------------- */

static void write_free(struct out_write *out) {
    requester_release(out->write.requester);
    uv_mutex_destroy(&out->lock);
    free(out);
}

/* Another thread. */
static void on_written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct out_write *out = CONTAINER_OF(write, struct out_write, write);
    uv_mutex_lock(&out->lock);
    struct anti_entropy_run *owner = out->owner;
    out->error = error;
    if (error == CO_OK) {
        out->refused = result->error;
        snprintf(out->text, sizeof out->text, "%s", result->text ? result->text : "");
    }
    out->ended = true;
    if (owner) local_wake(owner->local); /* it cannot go while we hold the lock */
    uv_mutex_unlock(&out->lock);
    if (!owner) write_free(out);
}

/* Under local's lock: rpc encodes the message before it returns. */
static void begin_write(struct anti_entropy_run *run, const struct anti_entropy_order *order) {
    struct out_write *out = run->write = mem_zalloc(sizeof *out);
    out->write.done = on_written;
    out->owner = run;
    out->write.requester = requester_keep(order->requester);
    out->write.judged = UINT64_MAX; /* nobody has yet */
    CHECK(uv_mutex_init(&out->lock) == 0);
    rpc_submit(run->local->rpc, &out->write, order->command, order->message);
}

static void collect_write(struct anti_entropy_run *run) {
    struct out_write *out = run->write;
    struct local *local = run->local;
    if (!out) return;
    uv_mutex_lock(&out->lock);
    bool ended = out->ended;
    uv_mutex_unlock(&out->lock);
    if (!ended) return;
    run->write = NULL;
    local_lock(local);
    anti_entropy_written(&run->anti_entropy, &(struct anti_entropy_answer){out->error, out->refused, out->text},
                         clock_mono_ms());
    local_unlock(local);
    write_free(out);
    local_waiters_look(local);
    if (local->liveness_run) liveness_run_kick(local->liveness_run);
}

/* -- reads -------------------------------------------------------------------------------------------------------- */

static void read_free(struct out_read *read) {
    for (size_t i = 0; i < PARTS; i++) buffer_free(&read->parts[i].records);
    uv_mutex_destroy(&read->lock);
    free(read);
}

/* Another thread. */
static void on_fetched(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct part *part = CONTAINER_OF(fetch, struct part, fetch);
    struct out_read *read = part->read;
    uv_mutex_lock(&read->lock);
    if (error != CO_OK) {
        read->error = error;
    } else {
        part->found = fetched->found;
        part->hidden = fetched->hidden;
        buffer_append(&part->records, fetched->records.data, fetched->records.size);
    }
    bool last = --read->left == 0;
    struct anti_entropy_run *owner = read->owner;
    if (last && owner) local_wake(owner->local); /* it cannot go while we hold the lock */
    uv_mutex_unlock(&read->lock);
    if (last && !owner) read_free(read);
}

/* Reads the catalog consistently, so that a deposed leader does not answer. Without a leader the query waits for
 * one. */
static void begin_read(struct anti_entropy_run *run) {
    struct out_read *read = run->read = mem_zalloc(sizeof *read);
    const struct query_type *types[PARTS] = {&query_node_services, &query_node_checks};
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)run->local->config.node;
    CHECK(uv_mutex_init(&read->lock) == 0);
    read->owner = run;
    read->left = PARTS;
    for (size_t i = 0; i < PARTS; i++) {
        struct part *part = &read->parts[i];
        part->read = read;
        part->fetch = (struct rpc_fetch){.type = types[i], .freshness = RPC_CONSISTENT, .done = on_fetched};
        rpc_fetch(run->local->rpc, &part->fetch, &request.base);
    }
}

static const ProtobufCMessage *unpack(struct anti_entropy_run *run, const struct part *part) {
    return message_unpack(&run->anti_entropy.arena, part->fetch.type->result, buffer_slice(&part->records));
}

static int take_catalog(struct anti_entropy_run *run, const struct out_read *read,
                        struct anti_entropy_catalog *catalog) {
    if (read->error != CO_OK) return read->error;
    catalog->services = (const Pb__NodeServicesResult *)unpack(run, &read->parts[OF_SERVICES]);
    catalog->checks = (const Pb__ChecksResult *)unpack(run, &read->parts[OF_CHECKS]);
    if (!catalog->services || !catalog->checks) return CO_CORRUPT;
    if (!read->parts[OF_SERVICES].found) catalog->services = NULL;
    catalog->hidden = read->parts[OF_SERVICES].hidden + read->parts[OF_CHECKS].hidden;
    return CO_OK;
}

static void collect_read(struct anti_entropy_run *run) {
    struct out_read *read = run->read;
    struct anti_entropy_catalog catalog = {0};
    if (!read) return;
    uv_mutex_lock(&read->lock);
    bool ended = read->left == 0;
    uv_mutex_unlock(&read->lock);
    if (!ended) return;
    run->read = NULL;
    int error = take_catalog(run, read, &catalog);
    local_lock(run->local);
    anti_entropy_read(&run->anti_entropy, error, &catalog, clock_mono_ms());
    arena_reset(&run->anti_entropy.arena);
    local_unlock(run->local);
    read_free(read);
    local_waiters_look(run->local);
}

/* -- what is to be done ------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer) { anti_entropy_run_kick(timer->data); }

static void arm(struct anti_entropy_run *run, uint64_t at_ms) {
    uint64_t now_ms = clock_mono_ms();
    if (at_ms == ANTI_ENTROPY_NEVER) return;
    uv_update_time(run->local->loop);
    uv_timer_start(&run->timer, on_timer, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

void anti_entropy_run_kick(struct anti_entropy_run *run) {
    struct local *local = run->local;
    if (local->stopping) return;
    collect_write(run);
    collect_read(run);
    struct requester *services = local_requester(local->rpc);
    local_lock(local);
    run->anti_entropy.controlled = rpc_access_controlled(local->rpc), run->anti_entropy.services = services;
    struct anti_entropy_order order = anti_entropy_next(&run->anti_entropy, clock_mono_ms());
    run->anti_entropy.services = NULL;
    if (order.act == ANTI_ENTROPY_WRITE) {
        begin_write(run, &order);
        arena_reset(&run->anti_entropy.arena);
    }
    local_unlock(local);
    requester_release(services);
    if (order.act == ANTI_ENTROPY_READ) begin_read(run);
    else if (order.act == ANTI_ENTROPY_REST) arm(run, order.until_ms);
}

void anti_entropy_run_compare_soon(struct anti_entropy_run *run) {
    anti_entropy_compare_soon(&run->anti_entropy);
    anti_entropy_run_kick(run);
}

void anti_entropy_run_compare_within(struct anti_entropy_run *run, uint64_t most_ms) {
    anti_entropy_compare_within(&run->anti_entropy, most_ms, clock_mono_ms());
    anti_entropy_run_kick(run);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct anti_entropy_run *anti_entropy_run_new(struct local *local) {
    struct anti_entropy_run *run = mem_zalloc(sizeof *run);
    run->local = local;
    anti_entropy_begin(&run->anti_entropy, local, random_u64());
    uv_timer_init(local->loop, &run->timer);
    run->timer.data = run;
    local_wake(local);
    return run;
}

static void on_closed(uv_handle_t *handle) {
    struct anti_entropy_run *run = handle->data;
    struct local *local = run->local;
    anti_entropy_end(&run->anti_entropy);
    free(run);
    local_part_closed(local);
}

static void drop_write(struct anti_entropy_run *run) {
    struct out_write *out = run->write;
    if (!out) return;
    uv_mutex_lock(&out->lock);
    out->owner = NULL;
    bool ended = out->ended;
    uv_mutex_unlock(&out->lock);
    if (ended) write_free(out);
}

static void drop_read(struct anti_entropy_run *run) {
    struct out_read *read = run->read;
    if (!read) return;
    uv_mutex_lock(&read->lock);
    read->owner = NULL;
    bool ended = read->left == 0;
    for (size_t i = 0; i < PARTS && !ended; i++) rpc_fetch_cancel(run->local->rpc, &read->parts[i].fetch);
    uv_mutex_unlock(&read->lock);
    if (ended) read_free(read);
}

void anti_entropy_run_close(struct anti_entropy_run *run) {
    drop_write(run);
    drop_read(run);
    uv_close((uv_handle_t *)&run->timer, on_closed);
}
