/* The edge of rpc/lease_keeper.h in the program: timers, other threads' mail, and what it asks of the node. Loop
 * thread. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "registry/brake.h"
#include "rpc/client_internal.h"
#include "rpc/lease_keeper.h"

/* -- proposals ---------------------------------------------------------------------------------------------------- */
struct due_write {
    struct rpc_write write;
    struct rpc *rpc;
    struct mail mail;
    struct lease_decision *decision;
    int error;
};

/* Any thread: the outcome is looked at on the loop. */
static void due_done(struct rpc_write *write, int error, const struct machine_result *result) {
    struct due_write *item = CONTAINER_OF(write, struct due_write, write);
    (void)result; /* refused: somebody else ended it first, and the news say so */
    item->error = error;
    struct rpc *rpc = item->rpc;
    if (mailbox_put(&rpc->due_ends, &item->mail)) uv_async_send(&rpc->wake);
}

static void propose(void *data, struct lease_decision *decision, uint8_t command, const ProtobufCMessage *message) {
    struct rpc *rpc = data;
    struct due_write *item = mem_zalloc(sizeof *item);
    item->write.done = due_done;
    item->rpc = rpc, item->decision = decision;
    rpc_submit(rpc, &item->write, command, message);
}

static void take_due_ends(struct rpc *rpc, uint64_t now_ms) {
    for (struct mail *mail = mailbox_take(&rpc->due_ends), *next; mail; mail = next) {
        next = mail->next;
        struct due_write *item = CONTAINER_OF(mail, struct due_write, mail);
        lease_keeper_decided(rpc->leases, item->decision, item->error, now_ms);
        free(item);
    }
}

static void rearm(struct rpc *rpc) {
    uint64_t at = lease_keeper_deadline_ms(rpc->leases), now_ms = clock_mono_ms();
    if (rpc->renewals_held && rpc->renewals_sent_ms + LEASE_KEEPER_GATHER_MS < at)
        at = rpc->renewals_sent_ms + LEASE_KEEPER_GATHER_MS;
    if (rpc->count_held_ms && rpc->count_held_ms < at) at = rpc->count_held_ms;
    if (at == UINT64_MAX) {
        uv_timer_stop(&rpc->lease_timer);
        return;
    }
    uv_update_time(rpc->loop);
    /* Never 0: from within its own callback that would be before the sockets are read again, and a tick that was
     * late waits for just that. */
    uv_timer_start(&rpc->lease_timer, leases_timer_cb, at > now_ms ? at - now_ms : 1, 0);
}

/* -- renewals ----------------------------------------------------------------------------------------------------- */
struct renew_impl {
    struct mail mail;
    struct rpc *rpc;
    struct rpc_gate gate;
};
_Static_assert(sizeof(struct renew_impl) <= sizeof(((struct rpc_renew *)0)->impl), "rpc_renew.impl is too small");
static struct renew_impl *impl_of(struct rpc_renew *renew) { return (struct renew_impl *)(void *)renew->impl; }

static void renew_gate_done(struct rpc_gate *gate, int error) {
    struct renew_impl *impl = CONTAINER_OF(gate, struct renew_impl, gate);
    struct rpc_renew *renew = CONTAINER_OF((char *)impl, struct rpc_renew, impl);
    lease_keeper_confirmed(impl->rpc->leases, renew, error, clock_mono_ms());
}

static int confirm(void *data, struct rpc_renew *renew) {
    struct renew_impl *impl = impl_of(renew);
    impl->gate.done = renew_gate_done;
    return rpc_confirm(data, RPC_DEFAULT, &impl->gate);
}

/* Another server leads: its table counts. */
static bool elsewhere(void *data, struct rpc_renew *renew) {
    struct rpc *rpc = data;
    const struct node_view *view = node_view(rpc->node);
    uint64_t leader = atomic_load(&view->leader);
    bool sent =
        rpc->forward && leader && leader != atomic_load(&view->id) && forward_renew(rpc->forward, leader, renew);
    rpc->renewals_held |= sent;
    return sent;
}

static void send_held(struct rpc *rpc) {
    uint64_t now_ms = clock_mono_ms();
    if (!rpc->renewals_held || now_ms < rpc->renewals_sent_ms + LEASE_KEEPER_GATHER_MS) return;
    rpc->renewals_held = false;
    rpc->renewals_sent_ms = now_ms;
    forward_flush(rpc->forward);
}

void leases_renew_here(struct rpc *rpc, struct rpc_renew *renew) {
    impl_of(renew)->rpc = rpc;
    lease_keeper_renew(rpc->leases, renew, true, clock_mono_ms());
    rearm(rpc);
}

void rpc_renew(struct rpc *rpc, struct rpc_renew *renew) {
    if (rpc->client) {
        client_renew(rpc->client, renew);
        return;
    }
    struct renew_impl *impl = impl_of(renew);
    impl->rpc = rpc;
    if (mailbox_put(&rpc->renewals, &impl->mail)) uv_async_send(&rpc->wake);
}

static void renew_or_send(struct rpc *rpc, struct rpc_renew *renew) {
    if (rpc->stopping) renew->done(renew, CO_CLOSED);
    else lease_keeper_renew(rpc->leases, renew, false, clock_mono_ms());
}

void leases_renew_now(struct rpc *rpc, struct rpc_renew *renew) {
    impl_of(renew)->rpc = rpc;
    renew_or_send(rpc, renew);
    if (rpc->stopping) return;
    send_held(rpc);
    rearm(rpc);
}

static void take_renewals(struct rpc *rpc) {
    for (struct mail *mail = mailbox_take(&rpc->renewals), *next; mail; mail = next) {
        next = mail->next;
        struct renew_impl *impl = CONTAINER_OF(mail, struct renew_impl, mail);
        renew_or_send(rpc, CONTAINER_OF((char *)impl, struct rpc_renew, impl));
    }
    if (!rpc->stopping) send_held(rpc);
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */
static struct lease_news *take_news(void *data) {
    struct rpc *rpc = data;
    return lease_box_take(rpc->news);
}

static struct store_txn *read_begin(void *data) {
    struct rpc *rpc = data;
    return store_read(rpc->loop_reader);
}

static void read_done(void *data) {
    struct rpc *rpc = data;
    store_read_done(rpc->loop_reader);
}

static int64_t unix_ms(void *data) {
    (void)data;
    return clock_wall_ns() / 1000000;
}

/* -- what the brake holds ----------------------------------------------------------------------------------------- */
static struct metric held_metric = {.name = "coord_brake_held_services",
                                    .type = METRIC_GAUGE,
                                    .help = "Services whose lost instances are held in answers"};
static struct metric held_total = {.name = "coord_brake_held_total",
                                   .type = METRIC_COUNTER,
                                   .help = "How often a service's lost instances were held in answers"};

#define COUNT_HELD_MS 200

static void count_held(struct rpc *rpc) {
    metric_set(&held_metric, brake_count(store_read(rpc->loop_reader)));
    store_read_done(rpc->loop_reader);
}

static void note_held(void *data, const struct lease_news *news) {
    if (news->ended) log_info("brake", "released service=\"%s\"", news->name);
    else
        log_warn("brake", "held service=\"%s\" for=%.1fs: most of it was lost at once, with the leases of its nodes",
                 news->name, (double)news->period_ns / 1e9);
    if (!news->ended) metric_add(&held_total, 1);
    /* Counted once for those that come together. */
    ((struct rpc *)data)->count_held_ms = clock_mono_ms() + COUNT_HELD_MS;
}

void leases_news_wake(void *data) {
    struct rpc *rpc = data;
    uv_async_send(&rpc->wake);
}

void leases_timer_cb(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    if (rpc->stopping) return; /* nobody is there to take a proposal any more */
    uint64_t now_ms = clock_mono_ms();
    take_renewals(rpc);
    lease_keeper_tick(rpc->leases, now_ms);
    if (rpc->count_held_ms && now_ms >= rpc->count_held_ms) {
        rpc->count_held_ms = 0;
        count_held(rpc);
    }
    rearm(rpc);
}

void leases_wake_cb(uv_async_t *async) {
    struct rpc *rpc = async->data;
    uint64_t now_ms = clock_mono_ms();
    lease_keeper_news(rpc->leases, now_ms);
    if (atomic_exchange(&rpc->restored, false)) {
        lease_keeper_restored(rpc->leases, now_ms);
        count_held(rpc);
    }
    take_due_ends(rpc, now_ms);
    take_renewals(rpc);
    rearm(rpc);
}

void leases_role(struct rpc *rpc, uint64_t term, bool ready) {
    lease_keeper_role(rpc->leases, term, ready, clock_mono_ms());
    rearm(rpc);
}

void leases_start(struct rpc *rpc, const struct rpc_brake *brake, const struct reconnect_classes *reconnect) {
    struct lease_keeper_edge edge = {.data = rpc,
                                     .news = take_news,
                                     .read = read_begin,
                                     .read_done = read_done,
                                     .propose = propose,
                                     .elsewhere = elsewhere,
                                     .confirm = confirm,
                                     .unix_ms = unix_ms,
                                     .held = note_held,
                                     .brake = *brake,
                                     .reconnect = *reconnect};
    rpc->leases = lease_keeper_new(&edge);
    CHECK(uv_async_init(rpc->loop, &rpc->wake, leases_wake_cb) == 0);
    CHECK(uv_timer_init(rpc->loop, &rpc->lease_timer) == 0);
    rpc->wake.data = rpc->lease_timer.data = rpc;
    rpc->loop_reader = store_reader_new(machine_store(rpc->machine));
    metric_register(&held_metric);
    metric_register(&held_total);
    count_held(rpc);
}

void leases_stop(struct rpc *rpc) { lease_keeper_stop(rpc->leases); }

void leases_free(struct rpc *rpc) {
    take_due_ends(rpc, clock_mono_ms());
    take_renewals(rpc);
    lease_keeper_free(rpc->leases);
    store_reader_free(rpc->loop_reader);
}
