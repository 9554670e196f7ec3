/* Implements rpc/api/ask.h on the loop, with rpc/ask/asks.h over links. At the end of a turn of the loop all its frames
 * go out together, one write for each connection, and other threads are woken once. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/wakeup_batch.h"
#include "rpc/ask/asks.h"
#include "rpc/core/asks_run.h"
#include "rpc/core/rpc_internal.h"

struct asks_run {
    struct rpc *rpc;
    struct asks *asks;
    uv_prepare_t prepare; /* both are active during a turn: the first that is called ends it */
    uv_check_t check;
    uv_timer_t timer;
    uint64_t timer_ms;         /* when it is due; 0: it is not set */
    struct list links, unsent; /* struct asks_run_link */
    uv_async_t wake;
    bool in_turn, closing;
};

struct asks_run_link {
    struct asks_peer *peer;
    struct link *wire;
    struct list link, unsent; /* unsent: alone when there is nothing to send */
};

struct own_ask {
    struct loop_task task;
    struct asked asked;
};
_Static_assert(sizeof(struct own_ask) <= sizeof(((struct rpc_ask *)0)->impl), "rpc_ask.impl is too small");

/* -- turns --------------------------------------------------------------------------------------------------------- */
static void turn_over(struct asks_run *run) {
    uv_prepare_stop(&run->prepare);
    uv_check_stop(&run->check);
    run->in_turn = false;
    while (!list_empty(&run->unsent)) {
        struct asks_run_link *link = LIST_ENTRY(run->unsent.next, struct asks_run_link, unsent);
        list_remove(&link->unsent);
        link_flush(link->wire);
    }
    wakeup_batch_end();
}

static void prepare_cb(uv_prepare_t *prepare) { turn_over(CONTAINER_OF(prepare, struct asks_run, prepare)); }
static void check_cb(uv_check_t *check) { turn_over(CONTAINER_OF(check, struct asks_run, check)); }

static void timer_cb(uv_timer_t *timer);

static void turn(struct asks_run *run) {
    if (run->in_turn || run->closing) return;
    run->in_turn = true;
    uv_prepare_start(&run->prepare, prepare_cb);
    uv_check_start(&run->check, check_cb);
    wakeup_batch_begin();
}

/* Call it after anything that may have brought a deadline. */
static void set_timer(struct asks_run *run, uint64_t now_ms) {
    uint64_t next_ms = asks_next_ms(run->asks);
    if (next_ms == UINT64_MAX || run->closing || (run->timer_ms && run->timer_ms <= next_ms)) return;
    run->timer_ms = next_ms;
    uv_timer_start(&run->timer, timer_cb, next_ms > now_ms ? next_ms - now_ms : 1, 0);
}

static void timer_cb(uv_timer_t *timer) {
    struct asks_run *run = CONTAINER_OF(timer, struct asks_run, timer);
    uint64_t now_ms = clock_mono_ms();
    run->timer_ms = 0;
    turn(run);
    asks_tick(run->asks, now_ms);
    set_timer(run, now_ms);
}

/* -- the callbacks of asks.h --------------------------------------------------------------------------------------- */
static void send_message(void *data, void *connection, uint8_t type, const ProtobufCMessage *message) {
    struct asks_run *run = data;
    struct asks_run_link *link = connection;
    turn(run);
    link_tell(link->wire, type, message);
    if (list_empty(&link->unsent)) list_append(&run->unsent, &link->unsent);
}

static size_t backlog(void *data, void *connection) {
    (void)data;
    return link_backlog(((struct asks_run_link *)connection)->wire);
}

static size_t servers_now(void *data, uint64_t ids[ASKS_SERVERS_MAX]) {
    struct asks_run *run = data;
    return run->rpc->role->other_servers(run->rpc, ids, ASKS_SERVERS_MAX);
}

static void wake(void *data) { uv_async_send(&((struct asks_run *)data)->wake); }

static void woken(uv_async_t *async) {
    struct asks_run *run = CONTAINER_OF(async, struct asks_run, wake);
    turn(run);
    asks_woken(run->asks, clock_mono_ms());
}

static void question(void *data, bool waits) {
    struct asks_run *run = data;
    if (waits) rpc_job_begin(run->rpc);
    else rpc_job_over(run->rpc);
}

/* -- asks ---------------------------------------------------------------------------------------------------------- */
static void begin(struct loop_task *task) {
    struct own_ask *own = CONTAINER_OF(task, struct own_ask, task);
    struct rpc *rpc = task->rpc;
    uint64_t now_ms = clock_mono_ms();
    turn(rpc->asks);
    asks_begin(rpc->asks->asks, &own->asked, CONTAINER_OF((char *)own, struct rpc_ask, impl), now_ms);
    set_timer(rpc->asks, now_ms);
    if (rpc->role->asked) rpc->role->asked(rpc);
}

void rpc_ask(struct rpc *rpc, struct rpc_ask *ask) {
    rpc_on_loop(rpc, &((struct own_ask *)(void *)ask->impl)->task, begin);
}

void rpc_answer_asks(struct rpc *rpc, uint8_t topic, rpc_asked asked, void *data) {
    asks_answerer(rpc->asks->asks, topic, asked, data);
}

/* -- connections --------------------------------------------------------------------------------------------------- */
struct asks_run_link *asks_run_up(struct rpc *rpc, struct link *wire, const struct asks_up *up) {
    struct asks_run_link *link = mem_zalloc(sizeof *link);
    struct asks_up with = *up;
    with.connection = link;
    link->wire = wire;
    list_init(&link->unsent);
    list_append(&rpc->asks->links, &link->link);
    link->peer = asks_up(rpc->asks->asks, &with, clock_mono_ms());
    return link;
}

void asks_run_down(struct rpc *rpc, struct asks_run_link *link) {
    if (!link) return;
    turn(rpc->asks);
    list_remove(&link->link);
    list_remove(&link->unsent);
    asks_down(rpc->asks->asks, link->peer, clock_mono_ms());
    free(link);
}

struct asks_run_link *asks_run_of_server(struct rpc *rpc, uint64_t id) {
    struct asks_peer *peer = asks_server(rpc->asks->asks, id);
    return peer ? asks_connection(peer) : NULL;
}

bool asks_run_with(const struct asks_run_link *link) { return link && asks_with(link->peer); }

void asks_run_route(struct rpc *rpc, struct asks_run_link *link) {
    turn(rpc->asks);
    asks_route(rpc->asks->asks, link ? link->peer : NULL, clock_mono_ms());
}

bool asks_run_frame(struct rpc *rpc, struct asks_run_link *from, uint8_t type, struct slice payload) {
    uint64_t now_ms = clock_mono_ms();
    if (!from) return false;
    turn(rpc->asks);
    bool known = asks_frame(rpc->asks->asks, from->peer, type, payload, now_ms);
    set_timer(rpc->asks, now_ms);
    return known;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */
void asks_run_start(struct rpc *rpc, uv_loop_t *loop, const char *node) {
    struct asks_run *run = rpc->asks = mem_zalloc(sizeof *run);
    run->rpc = rpc;
    struct asks_callbacks callbacks = {.data = run,
                                       .send = send_message,
                                       .backlog = backlog,
                                       .servers = rpc->role->other_servers ? servers_now : NULL,
                                       .wake = wake,
                                       .question = question};
    run->asks = asks_new(&callbacks, node, random_u64() >> 1);
    list_init(&run->links);
    list_init(&run->unsent);
    CHECK(uv_prepare_init(loop, &run->prepare) == 0 && uv_check_init(loop, &run->check) == 0);
    CHECK(uv_timer_init(loop, &run->timer) == 0 && uv_async_init(loop, &run->wake, woken) == 0);
}

void asks_run_stop(struct rpc *rpc) {
    turn(rpc->asks);
    asks_stop(rpc->asks->asks);
}

void asks_run_close(struct rpc *rpc, uv_close_cb closed, void *data) {
    struct asks_run *run = rpc->asks;
    if (run->in_turn) turn_over(run);
    run->closing = true;
    run->prepare.data = run->check.data = run->timer.data = run->wake.data = data;
    uv_close((uv_handle_t *)&run->prepare, closed);
    uv_close((uv_handle_t *)&run->check, closed);
    uv_close((uv_handle_t *)&run->timer, closed);
    uv_close((uv_handle_t *)&run->wake, closed);
}

void asks_run_free(struct rpc *rpc) {
    if (!rpc->asks) return;
    while (!list_empty(&rpc->asks->links))
        asks_run_down(rpc, LIST_ENTRY(rpc->asks->links.next, struct asks_run_link, link));
    asks_free(rpc->asks->asks);
    free(rpc->asks);
    rpc->asks = NULL;
}
