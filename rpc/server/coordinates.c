#include "rpc/server/coordinates.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "lb/coordinate_agent.h"
#include "registry/tables.h"
#include "rpc/server/server_internal.h"

#define ECHO_MOST_MS  1000 /* between two echoes */
#define ECHO_LEAST_MS 50

METRIC samples_total = {
    .name = "coord_coordinate_samples_total", .type = METRIC_COUNTER, .help = "Round trips to other servers measured"};
METRIC refused_total = {.name = "coord_coordinate_refused_total",
                        .type = METRIC_COUNTER,
                        .help = "Measured round trips that were not usable"};
METRIC updates_total = {
    .name = "coord_coordinate_updates_total", .type = METRIC_COUNTER, .help = "Updates of coordinates sent to the log"};
METRIC dropped_total = {.name = "coord_coordinate_dropped_total",
                        .type = METRIC_COUNTER,
                        .help = "Updates of coordinates dropped: too many, or no leader took them"};

struct sent {
    struct rpc_write write;
    _Atomic bool busy;
    unsigned updates;
};

struct coordinates {
    struct rpc *rpc;
    struct coordinates_config config;
    uint64_t echo_ms;

    /* Loop thread. */
    uv_timer_t timer;
    struct coordinate_agent *agent;
    struct echo echo;
    uint64_t turn; /* the member that was measured last */

    /* Any thread, under the lock. */
    uv_mutex_t lock;
    struct coordinate_batch *batch;
    struct vivaldi_coordinate here;

    /* Loop thread; `busy` is cleared by another one. */
    struct sent sent[COORDINATE_BATCH_COMMANDS_MAX];
};

/* -- updates ------------------------------------------------------------------------------------------------------ */
int coordinates_put(struct rpc *rpc, const Pb__Coordinate *record) {
    struct coordinates *coordinates = rpc->server->coordinates;
    if (coordinates->config.disabled) return CO_NOTFOUND;
    uv_mutex_lock(&coordinates->lock);
    int rv = coordinate_batch_put(coordinates->batch, record, clock_mono_ms());
    uv_mutex_unlock(&coordinates->lock);
    if (rv == CO_BUSY) metric_add(&dropped_total, 1);
    return rv;
}

struct vivaldi_coordinate coordinates_here(struct rpc *rpc) {
    struct coordinates *coordinates = rpc->server->coordinates;
    uv_mutex_lock(&coordinates->lock);
    struct vivaldi_coordinate here = coordinates->here;
    uv_mutex_unlock(&coordinates->lock);
    return here;
}

/* Another thread. */
static void written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct sent *sent = CONTAINER_OF(write, struct sent, write);
    if (error != CO_OK || result->error != CO_OK) {
        metric_add(&dropped_total, sent->updates);
        log_debug("coordinate", "updates are lost, the nodes will report again count=%u reason=\"%s\"", sent->updates,
                  error != CO_OK ? co_strerror(error)
                  : result->text ? result->text
                                 : co_strerror(result->error));
    }
    atomic_store(&sent->busy, false);
}

static bool all_done(struct coordinates *coordinates) {
    for (size_t i = 0; i < ARRAY_COUNT(coordinates->sent); i++)
        if (atomic_load(&coordinates->sent[i].busy)) return false;
    return true;
}

static void propose(struct coordinates *coordinates, const Pb__CoordinateUpdateCommand *command) {
    struct sent *sent = coordinates->sent;
    while (atomic_load(&sent->busy)) sent++;
    CHECK(sent < coordinates->sent + ARRAY_COUNT(coordinates->sent));
    atomic_store(&sent->busy, true);
    sent->updates = (unsigned)command->n_updates;
    sent->write.done = written;
    metric_add(&updates_total, command->n_updates);
    rpc_submit(coordinates->rpc, &sent->write, COORDINATE_UPDATE, &command->base);
}

/* Submits the updates that change something; others need not be in the log. */
static void submit(void *data, const Pb__CoordinateUpdateCommand *command) {
    struct coordinates *coordinates = data;
    Pb__CoordinateUpdateCommand kept = PB__COORDINATE_UPDATE_COMMAND__INIT;
    struct arena arena = {0};
    struct store_txn *txn = store_read(coordinates->rpc->loop_reader);
    kept.updates = arena_alloc(&arena, command->n_updates * sizeof *kept.updates);
    for (size_t i = 0; i < command->n_updates; i++)
        if (coordinate_changes(txn, command->updates[i], &arena)) kept.updates[kept.n_updates++] = command->updates[i];
    store_read_done(coordinates->rpc->loop_reader);
    if (kept.n_updates) propose(coordinates, &kept);
    arena_free(&arena);
}

/* Sends the next updates, but not before those of the last period have an outcome, because without a leader they wait
 * for seconds. */
static void flush(struct coordinates *coordinates, uint64_t now_ms) {
    if (!all_done(coordinates)) return;
    uv_mutex_lock(&coordinates->lock);
    coordinate_batch_tick(coordinates->batch, now_ms, submit, coordinates);
    uv_mutex_unlock(&coordinates->lock);
}

static size_t node_count(struct rpc *rpc) {
    size_t count = store_count(store_read(rpc->loop_reader), TABLE_NODES);
    store_read_done(rpc->loop_reader);
    return count;
}

static void report(struct coordinates *coordinates, uint64_t now_ms) {
    Pb__Coordinate record;
    if (now_ms < coordinate_agent_deadline_ms(coordinates->agent)) return;
    if (coordinate_report(coordinates->agent, node_count(coordinates->rpc), now_ms, &record))
        (void)coordinates_put(coordinates->rpc, &record);
}

/* -- echoes ------------------------------------------------------------------------------------------------------- */
/* The member after the one whose turn it was, in the order of their ids; 0: there is nobody to ask. */
static uint64_t next_member(struct coordinates *coordinates) {
    const struct raft_members *members = node_members(coordinates->rpc->node);
    uint64_t self = atomic_load(&node_view(coordinates->rpc->node)->id), next = 0, least = 0;
    for (uint32_t i = 0; i < members->count; i++) {
        uint64_t id = members->member[i].id;
        if (id == self || !peers_connected(coordinates->rpc->others, id)) continue;
        if (least == 0 || id < least) least = id;
        if (id > coordinates->turn && (next == 0 || id < next)) next = id;
    }
    return next ? next : least;
}

static void ask(struct coordinates *coordinates) {
    if (coordinates->echo.call.peer) return;
    coordinates->turn = next_member(coordinates);
    if (coordinates->turn) echo_begin(coordinates->rpc, &coordinates->echo, coordinates->turn);
}

static void heard(struct echo *echo, const Pb__Coordinate *said, double rtt_s) {
    struct coordinates *coordinates = CONTAINER_OF(echo, struct coordinates, echo);
    int rv = said ? coordinate_check(said) : CO_INVALID;
    if (rv == CO_OK) {
        struct vivaldi_coordinate there = coordinate_read(said);
        rv = coordinate_observe(coordinates->agent, slice_make(&echo->peer, sizeof echo->peer), &there, rtt_s);
    }
    metric_add(rv == CO_OK ? &samples_total : &refused_total, 1);
    uv_mutex_lock(&coordinates->lock);
    coordinates->here = *coordinate_here(coordinates->agent);
    uv_mutex_unlock(&coordinates->lock);
}

bool coordinates_echo(const struct caller *caller, struct slice payload) {
    struct rpc *rpc = caller->rpc;
    if (rpc->server->coordinates->config.disabled || !raft_members_find(node_members(rpc->node), caller->id))
        return true;
    return echo_serve(caller, payload);
}

/* Forgets the samples of the peer, because its next connection may take another path. */
void coordinates_down(struct rpc *rpc, uint64_t peer) {
    struct coordinates *coordinates = rpc->server->coordinates;
    if (!coordinates->config.disabled) coordinate_forget(coordinates->agent, slice_make(&peer, sizeof peer));
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static void tick(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    struct coordinates *coordinates = rpc->server->coordinates;
    if (rpc->stopping) return;
    if (rpc->others) ask(coordinates);
    uint64_t now_ms = clock_mono_ms();
    report(coordinates, now_ms);
    flush(coordinates, now_ms);
}

struct coordinates *coordinates_new(struct rpc *rpc, const struct coordinates_config *config, const char *node) {
    static struct metric *const metrics[] = {&samples_total, &refused_total, &updates_total, &dropped_total};
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++) metric_register(metrics[i]);
    struct coordinates *coordinates = mem_zalloc(sizeof *coordinates);
    coordinates->rpc = rpc, coordinates->config = *config, coordinates->here = vivaldi_origin();
    coordinates->echo.heard = heard;
    uint64_t interval_ms = config->interval_ms ? config->interval_ms : COORDINATE_INTERVAL_MS;
    coordinates->echo_ms = interval_ms / 15 > ECHO_MOST_MS    ? ECHO_MOST_MS
                           : interval_ms / 15 < ECHO_LEAST_MS ? ECHO_LEAST_MS
                                                              : interval_ms / 15;
    CHECK(uv_mutex_init(&coordinates->lock) == 0);
    coordinates->batch = coordinate_batch_new(&config->batch);
    struct coordinate_agent_config agent = {.node = node, .interval_ms = config->interval_ms, .seed = random_u64()};
    coordinates->agent = coordinate_agent_new(&agent, clock_mono_ms());
    return coordinates;
}

void coordinates_free(struct coordinates *coordinates) {
    if (!coordinates) return;
    CHECK(all_done(coordinates));
    coordinate_agent_free(coordinates->agent);
    coordinate_batch_free(coordinates->batch);
    uv_mutex_destroy(&coordinates->lock);
    free(coordinates);
}

void coordinates_start(struct rpc *rpc) {
    struct coordinates *coordinates = rpc->server->coordinates;
    CHECK(uv_timer_init(rpc->loop, &coordinates->timer) == 0);
    coordinates->timer.data = rpc;
    uint64_t echo_ms = coordinates->echo_ms;
    if (!coordinates->config.disabled) uv_timer_start(&coordinates->timer, tick, echo_ms, echo_ms);
}

void coordinates_close(struct rpc *rpc, uv_close_cb closed) {
    uv_close((uv_handle_t *)&rpc->server->coordinates->timer, closed);
}
