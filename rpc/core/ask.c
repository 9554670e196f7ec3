/* Implements rpc/api/ask.h on the loop, with rpc/ask/asks.h over links. At the end of a turn of the loop all its frames
 * go out together, one write for each connection, and other threads are woken once. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/wakeup_batch.h"
#include "rpc/ask/asks.h"
#include "rpc/core/ask.h"
#include "rpc/core/rpc_internal.h"

struct ask {
    struct rpc *rpc;
    struct asks *asks;
    uv_prepare_t prepare; /* both are active during a turn: the first that is called ends it */
    uv_check_t check;
    uv_timer_t timer;
    uint64_t timer_ms;         /* when it is due; 0: it is not set */
    struct list links, unsent; /* struct ask_link */
    uv_async_t wake;
    bool in_turn, closing;
};

struct ask_link {
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
static void turn_over(struct ask *ask) {
    uv_prepare_stop(&ask->prepare);
    uv_check_stop(&ask->check);
    ask->in_turn = false;
    while (!list_empty(&ask->unsent)) {
        struct ask_link *link = LIST_ENTRY(ask->unsent.next, struct ask_link, unsent);
        list_remove(&link->unsent);
        link_flush(link->wire);
    }
    wakeup_batch_end();
}

static void prepare_cb(uv_prepare_t *prepare) { turn_over(CONTAINER_OF(prepare, struct ask, prepare)); }
static void check_cb(uv_check_t *check) { turn_over(CONTAINER_OF(check, struct ask, check)); }

static void timer_cb(uv_timer_t *timer);

static void turn(struct ask *ask) {
    if (ask->in_turn || ask->closing) return;
    ask->in_turn = true;
    uv_prepare_start(&ask->prepare, prepare_cb);
    uv_check_start(&ask->check, check_cb);
    wakeup_batch_begin();
}

/* Call it after anything that may have brought a deadline. */
static void set_timer(struct ask *ask, uint64_t now_ms) {
    uint64_t next_ms = asks_next_ms(ask->asks);
    if (next_ms == UINT64_MAX || ask->closing || (ask->timer_ms && ask->timer_ms <= next_ms)) return;
    ask->timer_ms = next_ms;
    uv_timer_start(&ask->timer, timer_cb, next_ms > now_ms ? next_ms - now_ms : 1, 0);
}

static void timer_cb(uv_timer_t *timer) {
    struct ask *ask = CONTAINER_OF(timer, struct ask, timer);
    uint64_t now_ms = clock_mono_ms();
    ask->timer_ms = 0;
    turn(ask);
    asks_tick(ask->asks, now_ms);
    set_timer(ask, now_ms);
}

/* -- the callbacks of asks.h --------------------------------------------------------------------------------------- */
static void send_message(void *data, void *connection, uint8_t type, const ProtobufCMessage *message) {
    struct ask *ask = data;
    struct ask_link *link = connection;
    turn(ask);
    link_tell(link->wire, type, message);
    if (list_empty(&link->unsent)) list_append(&ask->unsent, &link->unsent);
}

static size_t backlog(void *data, void *connection) {
    (void)data;
    return link_backlog(((struct ask_link *)connection)->wire);
}

static size_t servers_now(void *data, uint64_t ids[ASKS_SERVERS_MAX]) {
    struct ask *ask = data;
    return ask->rpc->role->other_servers(ask->rpc, ids, ASKS_SERVERS_MAX);
}

static void wake(void *data) { uv_async_send(&((struct ask *)data)->wake); }

static void woken(uv_async_t *async) {
    struct ask *ask = CONTAINER_OF(async, struct ask, wake);
    turn(ask);
    asks_woken(ask->asks, clock_mono_ms());
}

static void question(void *data, bool waits) {
    struct ask *ask = data;
    if (waits) rpc_job_begin(ask->rpc);
    else rpc_job_over(ask->rpc);
}

/* -- asks ---------------------------------------------------------------------------------------------------------- */
static void begin(struct loop_task *task) {
    struct own_ask *own = CONTAINER_OF(task, struct own_ask, task);
    struct rpc *rpc = task->rpc;
    uint64_t now_ms = clock_mono_ms();
    turn(rpc->ask);
    asks_begin(rpc->ask->asks, &own->asked, CONTAINER_OF((char *)own, struct rpc_ask, impl), now_ms);
    set_timer(rpc->ask, now_ms);
    if (rpc->role->asked) rpc->role->asked(rpc);
}

void rpc_ask(struct rpc *rpc, struct rpc_ask *ask) {
    rpc_on_loop(rpc, &((struct own_ask *)(void *)ask->impl)->task, begin);
}

void rpc_answer_asks(struct rpc *rpc, uint8_t topic, rpc_asked asked, void *data) {
    asks_answerer(rpc->ask->asks, topic, asked, data);
}

/* -- connections --------------------------------------------------------------------------------------------------- */
struct ask_link *ask_up(struct rpc *rpc, struct link *wire, const struct asks_up *up) {
    struct ask_link *link = mem_zalloc(sizeof *link);
    struct asks_up with = *up;
    with.connection = link;
    link->wire = wire;
    list_init(&link->unsent);
    list_append(&rpc->ask->links, &link->link);
    link->peer = asks_up(rpc->ask->asks, &with, clock_mono_ms());
    return link;
}

void ask_down(struct rpc *rpc, struct ask_link *link) {
    if (!link) return;
    turn(rpc->ask);
    list_remove(&link->link);
    list_remove(&link->unsent);
    asks_down(rpc->ask->asks, link->peer, clock_mono_ms());
    free(link);
}

struct ask_link *ask_of_server(struct rpc *rpc, uint64_t id) {
    struct asks_peer *peer = asks_server(rpc->ask->asks, id);
    return peer ? asks_connection(peer) : NULL;
}

bool ask_with(const struct ask_link *link) { return link && asks_with(link->peer); }

void ask_route(struct rpc *rpc, struct ask_link *link) {
    turn(rpc->ask);
    asks_route(rpc->ask->asks, link ? link->peer : NULL, clock_mono_ms());
}

bool ask_frame(struct rpc *rpc, struct ask_link *from, uint8_t type, struct slice payload) {
    uint64_t now_ms = clock_mono_ms();
    if (!from) return false;
    turn(rpc->ask);
    bool known = asks_frame(rpc->ask->asks, from->peer, type, payload, now_ms);
    set_timer(rpc->ask, now_ms);
    return known;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */
void ask_start(struct rpc *rpc, uv_loop_t *loop, const char *node) {
    struct ask *ask = rpc->ask = mem_zalloc(sizeof *ask);
    ask->rpc = rpc;
    struct asks_callbacks callbacks = {.data = ask,
                                       .send = send_message,
                                       .backlog = backlog,
                                       .servers = rpc->role->other_servers ? servers_now : NULL,
                                       .wake = wake,
                                       .question = question};
    ask->asks = asks_new(&callbacks, node, random_u64() >> 1);
    list_init(&ask->links);
    list_init(&ask->unsent);
    CHECK(uv_prepare_init(loop, &ask->prepare) == 0 && uv_check_init(loop, &ask->check) == 0);
    CHECK(uv_timer_init(loop, &ask->timer) == 0 && uv_async_init(loop, &ask->wake, woken) == 0);
}

void ask_stop(struct rpc *rpc) {
    turn(rpc->ask);
    asks_stop(rpc->ask->asks);
}

void ask_close(struct rpc *rpc, uv_close_cb closed, void *data) {
    struct ask *ask = rpc->ask;
    if (ask->in_turn) turn_over(ask);
    ask->closing = true;
    ask->prepare.data = ask->check.data = ask->timer.data = ask->wake.data = data;
    uv_close((uv_handle_t *)&ask->prepare, closed);
    uv_close((uv_handle_t *)&ask->check, closed);
    uv_close((uv_handle_t *)&ask->timer, closed);
    uv_close((uv_handle_t *)&ask->wake, closed);
}

void ask_free(struct rpc *rpc) {
    if (!rpc->ask) return;
    while (!list_empty(&rpc->ask->links)) ask_down(rpc, LIST_ENTRY(rpc->ask->links.next, struct ask_link, link));
    asks_free(rpc->ask->asks);
    free(rpc->ask);
    rpc->ask = NULL;
}
