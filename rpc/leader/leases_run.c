#include "rpc/leader/leases_run.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "rpc/leader/forwarding_run.h"
#include "rpc/leader/leases.h"

struct lessor_run {
    /* Loop thread. */
    struct lessor *lessor; /* NULL: not started */
    uv_async_t wake;
    uv_timer_t timer;
    uint64_t gauges_due_ms; /* when to read the modules' gauges; 0: they are right */
    /* some are queued for the leader; they go out together, at most LESSOR_GATHER_MS after the last ones */
    bool renewals_held;
    uint64_t renewals_sent_ms;

    /* Any thread. */
    struct expiry_updates *updates;
    struct mailbox renewals, due_ends;
    _Atomic bool replaced; /* the leases are to be read again */
};

/* -- proposals ---------------------------------------------------------------------------------------------------- */
struct due_write {
    struct rpc_write write;
    struct rpc *rpc;
    struct mail mail;
    struct lessor_decision *decision;
    int error;
};

/* Any thread: the loop handles the outcome. */
static void due_done(struct rpc_write *write, int error, const struct machine_result *result) {
    struct due_write *item = CONTAINER_OF(write, struct due_write, write);
    /* A command that was refused when it was applied ended too late: somebody else ended the thing first, and the
     * updates tell that. One that was refused before needs a cluster version that has not come (rpc/server/version.h),
     * and is not in the log. */
    bool early = error == CO_OK && result && result->error == CO_UNSUPPORTED;
    item->error = early ? CO_UNSUPPORTED : error;
    struct rpc *rpc = item->rpc;
    if (mailbox_put(&rpc->leases->due_ends, &item->mail)) uv_async_send(&rpc->leases->wake);
}

static void propose(void *data, struct lessor_decision *decision, uint8_t command, const ProtobufCMessage *message) {
    struct rpc *rpc = data;
    struct due_write *item = mem_zalloc(sizeof *item);
    item->write.done = due_done;
    item->rpc = rpc, item->decision = decision;
    rpc_submit(rpc, &item->write, command, message);
}

static void take_due_ends(struct rpc *rpc, uint64_t now_ms) {
    for (struct mail *mail = mailbox_take(&rpc->leases->due_ends), *next; mail; mail = next) {
        next = mail->next;
        struct due_write *item = CONTAINER_OF(mail, struct due_write, mail);
        lessor_decided(rpc->leases->lessor, item->decision, item->error, now_ms);
        free(item);
    }
}

static void timer_cb(uv_timer_t *timer);

static void rearm(struct rpc *rpc) {
    struct lessor_run *run = rpc->leases;
    uint64_t at = lessor_deadline_ms(run->lessor), now_ms = clock_mono_ms();
    if (run->renewals_held && run->renewals_sent_ms + LESSOR_GATHER_MS < at)
        at = run->renewals_sent_ms + LESSOR_GATHER_MS;
    if (run->gauges_due_ms && run->gauges_due_ms < at) at = run->gauges_due_ms;
    if (at == UINT64_MAX) {
        uv_timer_stop(&run->timer);
        return;
    }
    uv_update_time(rpc->loop);
    /* Never 0: from within the timer's own callback that would come before the sockets are read again, and a late tick
     * waits for just that. */
    uv_timer_start(&run->timer, timer_cb, at > now_ms ? at - now_ms : 1, 0);
}

/* -- renewals ----------------------------------------------------------------------------------------------------- */
struct renew_impl {
    struct mail mail;
    struct rpc *rpc;
    struct rpc_read_index gate;
};
_Static_assert(sizeof(struct renew_impl) <= sizeof(((struct rpc_renew *)0)->impl), "rpc_renew.impl is too small");
static struct renew_impl *impl_of(struct rpc_renew *renew) { return (struct renew_impl *)(void *)renew->impl; }

static void renew_gate_done(struct rpc_read_index *gate, int error) {
    struct renew_impl *impl = CONTAINER_OF(gate, struct renew_impl, gate);
    struct rpc_renew *renew = CONTAINER_OF((char *)impl, struct rpc_renew, impl);
    lessor_confirmed(impl->rpc->leases->lessor, renew, error, clock_mono_ms());
}

static int confirm(void *data, struct rpc_renew *renew) {
    struct renew_impl *impl = impl_of(renew);
    impl->gate.done = renew_gate_done;
    return rpc_read_index(data, RPC_DEFAULT, &impl->gate);
}

/* Takes the renewal to the server that leads, whose table counts. */
static bool elsewhere(void *data, struct rpc_renew *renew) {
    struct rpc *rpc = data;
    const struct node_view *view = node_view(rpc->node);
    uint64_t leader = atomic_load(&view->leader);
    bool sent = rpc->forwarding && leader && leader != atomic_load(&view->id) &&
                forwarding_run_renew(rpc->forwarding, leader, renew);
    rpc->leases->renewals_held |= sent;
    return sent;
}

static void send_held(struct rpc *rpc) {
    struct lessor_run *run = rpc->leases;
    uint64_t now_ms = clock_mono_ms();
    if (!run->renewals_held || now_ms < run->renewals_sent_ms + LESSOR_GATHER_MS) return;
    run->renewals_held = false;
    run->renewals_sent_ms = now_ms;
    forwarding_run_flush(rpc->forwarding);
}

void lessor_run_renew_here(struct rpc *rpc, struct rpc_renew *renew) {
    impl_of(renew)->rpc = rpc;
    lessor_renew(rpc->leases->lessor, renew, true, clock_mono_ms());
    rearm(rpc);
}

void lessor_run_renew(struct rpc *rpc, struct rpc_renew *renew) {
    struct renew_impl *impl = impl_of(renew);
    impl->rpc = rpc;
    if (mailbox_put(&rpc->leases->renewals, &impl->mail)) uv_async_send(&rpc->leases->wake);
}

static void renew_or_send(struct rpc *rpc, struct rpc_renew *renew) {
    if (rpc->stopping) renew->done(renew, CO_CLOSED);
    else lessor_renew(rpc->leases->lessor, renew, false, clock_mono_ms());
}

void lessor_run_renew_now(struct rpc *rpc, struct rpc_renew *renew) {
    impl_of(renew)->rpc = rpc;
    renew_or_send(rpc, renew);
    if (rpc->stopping) return;
    send_held(rpc);
    rearm(rpc);
}

static void take_renewals(struct rpc *rpc) {
    for (struct mail *mail = mailbox_take(&rpc->leases->renewals), *next; mail; mail = next) {
        next = mail->next;
        struct renew_impl *impl = CONTAINER_OF(mail, struct renew_impl, mail);
        renew_or_send(rpc, CONTAINER_OF((char *)impl, struct rpc_renew, impl));
    }
    if (!rpc->stopping) send_held(rpc);
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */
static struct expiry_update *take_updates(void *data) {
    struct rpc *rpc = data;
    return expiry_updates_take(rpc->leases->updates);
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

/* -- the modules' gauges ------------------------------------------------------------------------------------------ */
#define GAUGES_MS 200

static void read_gauges(struct rpc *rpc) {
    const struct modules *modules = machine_modules(rpc->machine);
    struct store_txn *txn = store_read(rpc->loop_reader);
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module_gauge *gauge = modules_at(modules, i)->gauges;
        for (; gauge && gauge->metric; gauge++) metric_set(gauge->metric, gauge->value(txn));
    }
    store_read_done(rpc->loop_reader);
}

/* Sets the time to read the gauges, so that several updates cause only one reading. */
static void gauges_changed(void *data) { ((struct rpc *)data)->leases->gauges_due_ms = clock_mono_ms() + GAUGES_MS; }

static void register_metrics(const struct modules *modules) {
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        for (const struct module_gauge *gauge = module->gauges; gauge && gauge->metric; gauge++)
            metric_register(gauge->metric);
        for (size_t j = 0; module->metrics && module->metrics[j]; j++) metric_register(module->metrics[j]);
    }
}

static void updates_wake(void *data) {
    struct rpc *rpc = data;
    uv_async_send(&rpc->leases->wake);
}

void lessor_run_replaced(struct rpc *rpc) {
    atomic_store(&rpc->leases->replaced, true);
    updates_wake(rpc);
}

static void timer_cb(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    if (rpc->stopping) return; /* nobody takes proposals any more */
    struct lessor_run *run = rpc->leases;
    uint64_t now_ms = clock_mono_ms();
    take_renewals(rpc);
    lessor_tick(run->lessor, now_ms);
    if (run->gauges_due_ms && now_ms >= run->gauges_due_ms) {
        run->gauges_due_ms = 0;
        read_gauges(rpc);
    }
    rearm(rpc);
}

static void wake_cb(uv_async_t *async) {
    struct rpc *rpc = async->data;
    struct lessor_run *run = rpc->leases;
    uint64_t now_ms = clock_mono_ms();
    lessor_updates(run->lessor, now_ms);
    if (atomic_exchange(&run->replaced, false)) {
        lessor_replaced(run->lessor, now_ms);
        read_gauges(rpc);
    }
    take_due_ends(rpc, now_ms);
    take_renewals(rpc);
    rearm(rpc);
}

void lessor_run_role(struct rpc *rpc, uint64_t term, bool ready) {
    lessor_role(rpc->leases->lessor, term, ready, clock_mono_ms());
    rearm(rpc);
}

struct expiry_updates *lessor_run_new(struct rpc *rpc) {
    rpc->leases = mem_zalloc(sizeof *rpc->leases);
    return rpc->leases->updates = expiry_updates_new(updates_wake, rpc);
}

void lessor_run_start(struct rpc *rpc) {
    struct lessor_run *run = rpc->leases;
    const struct modules *modules = machine_modules(rpc->machine);
    struct lessor_callbacks callbacks = {.data = rpc,
                                         .modules = modules,
                                         .updates = take_updates,
                                         .read = read_begin,
                                         .read_done = read_done,
                                         .propose = propose,
                                         .elsewhere = elsewhere,
                                         .confirm = confirm,
                                         .unix_ms = unix_ms,
                                         .updated = gauges_changed};
    run->lessor = lessor_new(&callbacks);
    CHECK(uv_async_init(rpc->loop, &run->wake, wake_cb) == 0);
    CHECK(uv_timer_init(rpc->loop, &run->timer) == 0);
    run->wake.data = run->timer.data = rpc;
    register_metrics(modules);
    read_gauges(rpc);
}

void lessor_run_stop(struct rpc *rpc) { lessor_stop(rpc->leases->lessor); }

void lessor_run_close(struct rpc *rpc, uv_close_cb closed) {
    uv_close((uv_handle_t *)&rpc->leases->wake, closed);
    uv_close((uv_handle_t *)&rpc->leases->timer, closed);
}

void lessor_run_free(struct rpc *rpc) {
    struct lessor_run *run = rpc->leases;
    if (run->lessor) {
        take_due_ends(rpc, clock_mono_ms());
        take_renewals(rpc);
        lessor_free(run->lessor);
    }
    expiry_updates_free(run->updates);
    free(run);
    rpc->leases = NULL;
}
