#include "rpc/quota/spending.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/metrics.h"
#include "base/random.h"
#include "base/wakeup_batch.h"
#include "rpc/quota/spending_internal.h"

#define PACE_NS UINT64_C(10000000) /* while takes come the loop looks at this interval, and they do not wake it */

#define TAKES_HELP "Requests of this agent's clients to spend of quotas, by outcome"
METRIC allowed = {
    .name = "coord_quota_takes_total", .help = TAKES_HELP, .labels = "result=\"allowed\"", .type = METRIC_COUNTER};
METRIC refused = {
    .name = "coord_quota_takes_total", .help = TAKES_HELP, .labels = "result=\"refused\"", .type = METRIC_COUNTER};
METRIC waited = {.name = "coord_quota_takes_waited_total",
                 .help = "Those of them that waited for an answer of the servers",
                 .type = METRIC_COUNTER};
METRIC asked = {.name = "coord_quota_asks_total",
                .help = "Commands of this agent that asked the servers for leases, or gave them back",
                .type = METRIC_COUNTER};
METRIC sent_on = {.name = "coord_quota_takes_sent_total",
                  .help = "Takes that were sent to the agent that owns their key",
                  .type = METRIC_COUNTER};
METRIC stale = {.name = "coord_quota_takes_stale_total",
                .help = "Those of them that were refused because one of both knew an older ring; they are asked again",
                .type = METRIC_COUNTER};

void spending_release(struct spending *spending) {
    if (atomic_fetch_sub_explicit(&spending->references, 1, memory_order_acq_rel) != 1) return;
    spender_free(spending->spender);
    owning_free(spending->owning);
    free(spending->services);
    arena_free(&spending->owned_arena);
    uv_mutex_destroy(&spending->lock);
    free(spending);
}

struct owning_now spending_now(uint64_t now_ns) {
    return (struct owning_now){.ns = now_ns, .unix_s = clock_wall_ns() / 1000000000};
}

struct errand *spending_outgoing(struct spending *spending) {
    struct errand *outgoing = spending->outgoing;
    spending->outgoing = NULL, spending->outgoing_last = &spending->outgoing;
    return outgoing;
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

void spending_decided(struct spending *spending, const struct spending_take *take) {
    bool spends = false;
    for (size_t i = 0; i < take->count; i++) spends |= take->takes[i].n > 0;
    if (!spends) return;
    if (take->error == CO_OK) spending->allowed++;
    else if (take->error == CO_BUSY || take->error == CO_NOLEADER) spending->refused++;
}

void spending_park(struct spending *spending, struct spending_take *take, uint64_t now_ns) {
    take->deadline_ns = now_ns + SPENDING_WAIT_MS * SPENDING_MS;
    list_append(&spending->parked, &take->link);
}

/* With the lock held. False: it waits. */
static bool try_owned(struct spending *spending, struct owned_request *request, uint64_t now_ns) {
    return owned_try(spending, request, spending_now(now_ns));
}

/* With the lock held; for a request without takes in owner mode, as far as is known. False: it has to wait, and is
 * parked, if it was not before (`waits`). */
static bool try(struct spending *spending, struct spending_take *take, bool waits, bool last, uint64_t now_ns) {
    take->answer = (struct spender_answer){0};
    take->error = spending->leaving
                      ? CO_CLOSED
                      : spender_take(spending->spender, take->takes, take->count, waits, last, now_ns, &take->answer);
    if (take->error == CO_AGAIN) {
        if (!waits) spending_park(spending, take, now_ns);
        return false;
    }
    if (waits) list_remove(&take->link);
    if (take->error == CO_UNSUPPORTED && take->answer.text == spender_owned)
        return try_owned(spending, owned_request_at(take, take->answer.failed, now_ns), now_ns);
    int64_t unix_s = clock_wall_ns() / 1000000000;
    for (size_t i = 0; take->rates && i < take->count; i++)
        if (!spender_rate(spending->spender, take->takes[i].name, take->takes[i].key, now_ns, unix_s, &take->rates[i]))
            take->rates[i].quota = 0;
    spending_decided(spending, take);
    return true;
}

static void wake(void *data) { uv_async_send(&((struct spending *)data)->wake); }

bool spending_take(struct spending *spending, struct spending_take *take) {
    uint64_t now_ns = clock_boot_ns();
    spending_lock(spending);
    struct owned_request *request = spending->leaving ? NULL : owned_request_of(spending, take, now_ns);
    bool done = request ? try_owned(spending, request, now_ns) : try(spending, take, false, spending->hurry, now_ns);
    bool wakes = !done || !spending->watched || owning_deadline_ns(spending->owning) < spending->due_ns;
    struct errand *outgoing = spending_outgoing(spending);
    CHECK(done || !spending->hurry);
    spending->taken = spending->watched = true;
    if (!done) spending->waited++;
    spending_unlock(spending);
    errands_send(outgoing);
    if (wakes) wakeup_batch_send(wake, spending);
    return done;
}

/* With the lock held: moves requests that have an answer now to `answered`. Returns when the next one is due. */
static uint64_t try_parked(struct spending *spending, uint64_t now_ns, struct list *answered) {
    uint64_t due_ns = UINT64_MAX;
    bool woken = spender_woken(spending->spender), all = woken || spending->hurry || spending->leaving;
    LIST_FOREACH_SAFE(link, next, &spending->parked) {
        struct spending_take *take = LIST_ENTRY(link, struct spending_take, link);
        bool last = spending->hurry || now_ns >= take->deadline_ns;
        if (!all && !last) return take->deadline_ns; /* as are all behind it */
        uint64_t deadline_ns = take->deadline_ns;
        bool over = take->owned ? owned_try_parked(spending, take, last, spending_now(now_ns))
                                : try(spending, take, true, last, now_ns);
        if (over) list_append(answered, link);
        else if (deadline_ns < due_ns) due_ns = deadline_ns;
    }
    return due_ns;
}

/* -- the loop's side ---------------------------------------------------------------------------------------------- */

static void notice_feed(struct spending *spending, struct errand *errand, uint64_t now_ns) {
    struct arena arena = {0};
    const Pb__QuotaNotice *notice = NULL;
    int error = errand->error;
    if (!error && errand->found)
        notice = message_unpack(&arena, &pb__quota_notice__descriptor, buffer_slice(&errand->record));
    if (!error && errand->found && !notice) error = CO_CORRUPT;
    spender_followed(spending->spender, errand->name, error, notice, errand->index, now_ns);
    arena_free(&arena);
}

static void grants_feed(struct spending *spending, struct errand *errand, uint64_t now_ns) {
    struct arena arena = {0};
    const Pb__QuotaGrants *grants = NULL;
    int error = errand->error;
    spending->spender_asks = false;
    if (!error) grants = machine_decode(&pb__quota_grants__descriptor, buffer_slice(&errand->record), &arena);
    if (!error && !grants) error = CO_UNKNOWN_OUTCOME;
    spender_asked(spending->spender, error, grants, now_ns);
    arena_free(&arena);
}

/* With the lock held: takes an answer in. */
static void feed(struct spending *spending, struct errand *errand, struct owning_now now, struct list *answered) {
    list_remove(&errand->link);
    switch (errand->kind) {
        case ERRAND_ASK: grants_feed(spending, errand, now.ns); break;
        case ERRAND_FOLLOW: notice_feed(spending, errand, now.ns); break;
        case ERRAND_TAKE: {
            struct spending_take *take = errand->request ? owned_request_take(errand->request) : NULL;
            if (take && owned_served(spending, errand, now)) list_append(answered, &take->link);
            break;
        }
        default: owners_feed(spending, errand, now);
    }
}

static struct errand *feed_all(struct spending *spending, struct owning_now now, struct list *answered) {
    struct errand *over = spending->arrived;
    spending->arrived = NULL, spending->arrived_last = &spending->arrived;
    for (struct errand *errand = over; errand; errand = errand->next) feed(spending, errand, now, answered);
    return over;
}

static void free_all(struct errand *over) {
    for (struct errand *next; over; over = next) {
        next = over->next;
        errand_free(over);
    }
}

static void add(struct metric *metric, uint64_t *count) {
    metric_add(metric, *count);
    *count = 0;
}

static void counted(struct spending *spending) {
    add(&allowed, &spending->allowed), add(&refused, &spending->refused), add(&waited, &spending->waited);
    add(&asked, &spending->asked), add(&sent_on, &spending->sent_on), add(&stale, &spending->stale);
}

static void answer(struct list *answered) {
    wakeup_batch_begin();
    LIST_FOREACH_SAFE(link, next, answered) {
        struct spending_take *take = LIST_ENTRY(link, struct spending_take, link);
        list_remove(link);
        take->done(take);
    }
    wakeup_batch_end();
}

static void arm(struct spending *spending, uint64_t due_ns, uint64_t now_ns);
static void finish_leave(struct spending *spending);

/* With the lock held: sends the spender's questions. */
static void spender_turn(struct spending *spending, uint64_t now_ns) {
    const Pb__QuotaAskCommand *command;
    const char *name;
    if (!spending->spender_asks && spender_ask(spending->spender, now_ns, &command)) {
        spending->spender_asks = true;
        spending->asked++;
        errand_add(spending, ERRAND_ASK)->command = command;
    }
    for (uint64_t index; !spending->leaving && spender_follow(spending->spender, &name, &index);) {
        struct errand *errand = errand_add(spending, ERRAND_FOLLOW);
        errand->name = mem_strdup(name), errand->index = index;
    }
}

/* With the lock held: has everything been given back? */
static bool is_empty(struct spending *spending, struct owning_now now) {
    bool holds = spender_leave(spending->spender), owns = owners_leave(spending, now);
    return !holds && !owns && !spending->spender_asks;
}

/* Takes answers in, answers takes, and sends requests. */
static void look(struct spending *spending) {
    struct list answered;
    list_init(&answered);
    struct owning_now now = spending_now(clock_boot_ns());

    spending_lock(spending);
    spender_wall(spending->spender, now.ns, clock_wall_ns() / 1000000);
    struct errand *over = feed_all(spending, now, &answered);
    spender_tick(spending->spender, now.ns);
    bool empty = spending->leaving && is_empty(spending, now);
    uint64_t due_ns = owners_turn(spending, now, &answered);
    uint64_t parked_ns = try_parked(spending, now.ns, &answered);
    uint64_t deadline_ns = spender_deadline_ns(spending->spender);
    spender_turn(spending, now.ns);
    uint64_t owning_ns = owning_deadline_ns(spending->owning); /* takes of the spender may have become its */
    due_ns = owning_ns < due_ns ? owning_ns : due_ns;
    due_ns = parked_ns < due_ns ? parked_ns : due_ns;
    due_ns = deadline_ns < due_ns ? deadline_ns : due_ns;
    spending->watched = spending->taken;
    spending->taken = false;
    if (spending->watched && now.ns + PACE_NS < due_ns) due_ns = now.ns + PACE_NS;
    spending->due_ns = due_ns;
    counted(spending);
    struct errand *outgoing = spending_outgoing(spending);
    spending_unlock(spending);

    errands_send(outgoing);
    free_all(over);
    answer(&answered);
    owners_look(spending);
    if (spending->leaving && (empty || now.ns >= spending->leave_by_ns)) finish_leave(spending);
    else arm(spending, due_ns, now.ns);
}

static void on_wake(uv_async_t *async) { look(async->data); }
static void on_timer(uv_timer_t *timer) { look(timer->data); }

static void arm(struct spending *spending, uint64_t due_ns, uint64_t now_ns) {
    if (spending->closing) return;
    if (spending->leaving && spending->leave_by_ns < due_ns) due_ns = spending->leave_by_ns;
    if (due_ns == UINT64_MAX) {
        uv_timer_stop(&spending->timer);
        return;
    }
    uint64_t wait_ms = due_ns > now_ns ? (due_ns - now_ns + 999999) / 1000000 : 1;
    uv_update_time(spending->timer.loop);
    uv_timer_start(&spending->timer, on_timer, wait_ms, 0);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct spending *spending_start(uv_loop_t *loop, struct rpc *rpc, const struct spending_config *config) {
    struct spending *spending = mem_zalloc(sizeof *spending);
    struct spender_config of_spender = {.node = config->node, .priority = config->priority};
    struct owning_config of_owning = {.node = config->node, .seed = random_u64()};
    struct metric *const metrics[] = {&allowed, &refused, &waited, &asked, &sent_on, &stale};
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++) metric_register(metrics[i]);
    of_spender.seed = random_u64();
    spending->rpc = rpc;
    spending->passes = config->passes, spending->passes_data = config->passes_data;
    spending->references = 1;
    spending->spender = spender_new(&of_spender);
    spending->owning = owning_new(&of_owning);
    spending->arrived_last = &spending->arrived, spending->outgoing_last = &spending->outgoing;
    list_init(&spending->parked), list_init(&spending->waiting), list_init(&spending->asking);
    list_init(&spending->fetching);
    CHECK(uv_mutex_init(&spending->lock) == 0);
    CHECK(uv_async_init(loop, &spending->wake, on_wake) == 0);
    CHECK(uv_timer_init(loop, &spending->timer) == 0);
    spending->wake.data = spending->timer.data = spending;
    owners_start(spending);
    return spending;
}

void spending_hurry(struct spending *spending) {
    if (!spending) return;
    spending_lock(spending);
    spending->hurry = true;
    spending_unlock(spending);
    uv_async_send(&spending->wake);
}

static void closed(uv_handle_t *handle) {
    struct spending *spending = handle->data;
    void (*stopped)(void *) = spending->stopped;
    void *data = spending->stopped_data;
    if (--spending->closing) return;
    spending_release(spending);
    stopped(data);
}

static void close_now(struct spending *spending) {
    owners_end(spending);
    errands_cancel(spending, true);
    spending_lock(spending);
    spending->closed = true;
    struct errand *over = spending->arrived;
    spending->arrived = NULL, spending->arrived_last = &spending->arrived;
    counted(spending);
    spending_unlock(spending);
    free_all(over);
    CHECK(list_empty(&spending->parked) && list_empty(&spending->waiting) && list_empty(&spending->asking));
    spending->closing = 2;
    uv_close((uv_handle_t *)&spending->timer, closed);
    uv_close((uv_handle_t *)&spending->wake, closed);
}

static void finish_leave(struct spending *spending) {
    void (*left)(void *) = spending->left;
    if (spending->closing) return;
    uv_timer_stop(&spending->timer);
    spending->left = NULL;
    if (left) left(spending->left_data);
    if (spending->stopped && !spending->closing) close_now(spending);
}

static void leave(struct spending *spending) {
    uint64_t now_ns = clock_boot_ns(), most_ms = SPENDING_LEAVE_MS;
    spending_lock(spending);
    bool began = !spending->leaving;
    spending->leaving = true;
    bool owns = owners_leave(spending, spending_now(now_ns));
    spending_unlock(spending);
    if (!began) return;
    if (owns && rpc_known_leader(spending->rpc)) most_ms += OWNING_LEAVE_MS;
    spending->leave_by_ns = now_ns + most_ms * SPENDING_MS;
    errands_cancel(spending, false);
}

void spending_leave(struct spending *spending, void (*left)(void *data), void *data) {
    if (!spending) {
        left(data);
        return;
    }
    spending->left = left, spending->left_data = data;
    leave(spending);
    look(spending);
}

void spending_stop(struct spending *spending, void (*stopped)(void *data), void *data) {
    if (!spending) {
        stopped(data);
        return;
    }
    spending->stopped = stopped, spending->stopped_data = data;
    leave(spending);
    look(spending);
}
