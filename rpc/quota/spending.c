#include "rpc/quota/spending.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/metrics.h"
#include "base/random.h"
#include "base/wakeup_batch.h"

#define PACE_NS        UINT64_C(10000000) /* the loop looks so often while takes come; they do not wake it meanwhile */
#define FOLLOW_WAIT_MS 300000

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

/* Something that was asked of the servers. Its `done` may come on any thread, and later than the end of all else. */
struct errand {
    struct spending *spending; /* a reference */
    struct errand *next;       /* in spending->arrived */
    struct list link;          /* in spending->errands; loop thread */
    bool follows;              /* a notice is fetched; else asks are submitted */
    int error;
    bool found;
    uint64_t index;
    struct buffer record;
    char *name; /* whose notice */
    union {
        struct rpc_write write;
        struct rpc_fetch fetch;
    };
};

struct spending {
    struct rpc *rpc;
    _Atomic unsigned references; /* the loop's own, and one for each errand */
    uv_async_t wake;
    uv_timer_t timer;

    uv_mutex_t lock; /* for what follows */
    struct spender *spender;
    struct list parked; /* spending_take, the oldest first */
    struct errand *arrived, **arrived_last;
    uint64_t allowed, refused, waited; /* since they were added to the metrics */
    bool taken;                        /* since the loop looked last */
    bool watched;                      /* it looks again within PACE_NS, or has been woken */
    bool hurry, leaving, closed;

    /* Loop thread. */
    struct list errands;
    bool asking;
    uint64_t leave_by_ns;
    void (*left)(void *data);
    void *left_data;
    void (*stopped)(void *data);
    void *stopped_data;
    unsigned closing;
};

static void release(struct spending *spending) {
    if (atomic_fetch_sub_explicit(&spending->references, 1, memory_order_acq_rel) != 1) return;
    spender_free(spending->spender);
    uv_mutex_destroy(&spending->lock);
    free(spending);
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static void count(struct spending *spending, const struct spending_take *take) {
    bool spends = false;
    for (size_t i = 0; i < take->count; i++) spends |= take->takes[i].n > 0;
    if (!spends) return;
    if (take->error == CO_OK) spending->allowed++;
    else if (take->error == CO_BUSY || take->error == CO_NOLEADER) spending->refused++;
}

/* With the lock held. False: it has to wait. */
static bool try(struct spending *spending, struct spending_take *take, bool waits, bool last, uint64_t now_ns) {
    take->answer = (struct spender_answer){0};
    take->error = spending->leaving
                      ? CO_CLOSED
                      : spender_take(spending->spender, take->takes, take->count, waits, last, now_ns, &take->answer);
    if (take->error == CO_AGAIN) return false;
    int64_t unix_s = clock_wall_ns() / 1000000000;
    for (size_t i = 0; take->rates && i < take->count; i++)
        if (!spender_rate(spending->spender, take->takes[i].name, take->takes[i].key, now_ns, unix_s, &take->rates[i]))
            take->rates[i].quota = 0;
    count(spending, take);
    return true;
}

static void wake(void *data) { uv_async_send(&((struct spending *)data)->wake); }

bool spending_take(struct spending *spending, struct spending_take *take) {
    uint64_t now_ns = clock_boot_ns();
    uv_mutex_lock(&spending->lock);
    bool done = try(spending, take, false, spending->hurry, now_ns), wakes = !done || !spending->watched;
    CHECK(done || !spending->hurry);
    spending->taken = spending->watched = true;
    if (!done) {
        take->deadline_ns = now_ns + SPENDING_WAIT_MS * UINT64_C(1000000);
        list_append(&spending->parked, &take->link);
        spending->waited++;
    }
    uv_mutex_unlock(&spending->lock);
    if (wakes) wakeup_batch_send(wake, spending);
    return done;
}

/* With the lock held: those that have an answer now go to `answered`. Returns when the next one is due. */
static uint64_t try_parked(struct spending *spending, uint64_t now_ns, struct list *answered) {
    uint64_t due_ns = UINT64_MAX;
    bool woken = spender_woken(spending->spender), all = woken || spending->hurry || spending->leaving;
    LIST_FOREACH_SAFE(link, next, &spending->parked) {
        struct spending_take *take = LIST_ENTRY(link, struct spending_take, link);
        bool last = spending->hurry || now_ns >= take->deadline_ns;
        if (!all && !last) return take->deadline_ns; /* as are all behind it */
        if (!try(spending, take, true, last, now_ns)) {
            CHECK(!last);
            if (take->deadline_ns < due_ns) due_ns = take->deadline_ns;
            continue;
        }
        list_remove(link);
        list_append(answered, link);
    }
    return due_ns;
}

/* -- errands ------------------------------------------------------------------------------------------------------ */

static struct errand *errand_new(struct spending *spending) {
    struct errand *errand = mem_zalloc(sizeof *errand);
    errand->spending = spending;
    atomic_fetch_add_explicit(&spending->references, 1, memory_order_relaxed);
    list_append(&spending->errands, &errand->link);
    return errand;
}

static void errand_free(struct errand *errand) {
    struct spending *spending = errand->spending;
    buffer_free(&errand->record);
    free(errand->name);
    free(errand);
    release(spending);
}

/* Any thread. */
static void arrive(struct errand *errand) {
    struct spending *spending = errand->spending;
    uv_mutex_lock(&spending->lock);
    bool closed = spending->closed;
    if (!closed) {
        *spending->arrived_last = errand;
        spending->arrived_last = &errand->next;
        uv_async_send(&spending->wake);
    }
    uv_mutex_unlock(&spending->lock);
    if (closed) errand_free(errand);
}

static void submitted(struct rpc_write *write, int error, const struct machine_result *result) {
    struct errand *errand = CONTAINER_OF(write, struct errand, write);
    errand->error = error ? error : result->error;
    if (!errand->error && result->record.size) buffer_append(&errand->record, result->record.data, result->record.size);
    arrive(errand);
}

static void fetched(struct rpc_fetch *fetch, int error, const struct rpc_fetched *got) {
    struct errand *errand = CONTAINER_OF(fetch, struct errand, fetch);
    errand->error = error;
    if (!error) {
        errand->found = got->found && !got->none;
        errand->index = got->index;
        if (errand->found && got->records.size) buffer_append(&errand->record, got->records.data, got->records.size);
    }
    arrive(errand);
}

/* Loop thread, with the lock held: what came back. */
static void feed(struct spending *spending, struct errand *errand, uint64_t now_ns) {
    struct arena arena = {0};
    struct slice record = buffer_slice(&errand->record);
    int error = errand->error;
    list_remove(&errand->link);
    if (errand->follows) {
        const Pb__QuotaNotice *notice = NULL;
        if (!error && errand->found) notice = message_unpack(&arena, &pb__quota_notice__descriptor, record);
        if (!error && errand->found && !notice) error = CO_CORRUPT;
        spender_followed(spending->spender, errand->name, error, notice, errand->index, now_ns);
    } else {
        const Pb__QuotaGrants *grants = NULL;
        spending->asking = false;
        if (!error) grants = machine_decode(&pb__quota_grants__descriptor, record, &arena);
        if (!error && !grants) error = CO_UNKNOWN_OUTCOME;
        spender_asked(spending->spender, error, grants, now_ns);
    }
    arena_free(&arena);
}

static void ask(struct spending *spending, const Pb__QuotaAskCommand *command) {
    struct errand *errand = errand_new(spending);
    errand->write.done = submitted;
    metric_add(&asked, 1);
    rpc_submit(spending->rpc, &errand->write, QUOTA_ASK, &command->base);
}

static void follow(struct spending *spending, struct errand *errand) {
    Pb__QuotaNoticeRequest request = PB__QUOTA_NOTICE_REQUEST__INIT;
    request.name = errand->name;
    errand->fetch = (struct rpc_fetch){.type = &query_quota_notice,
                                       .no_cache = true,
                                       .background = errand->index > 0,
                                       .index = errand->index,
                                       .wait_ms = FOLLOW_WAIT_MS,
                                       .done = fetched};
    rpc_fetch(spending->rpc, &errand->fetch, &request.base);
}

/* -- the loop's side ---------------------------------------------------------------------------------------------- */

static void counted(struct spending *spending) {
    metric_add(&allowed, spending->allowed);
    metric_add(&refused, spending->refused);
    metric_add(&waited, spending->waited);
    spending->allowed = spending->refused = spending->waited = 0;
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

/* Takes in what came, answers takes, sends what is to be sent. */
static void look(struct spending *spending) {
    const Pb__QuotaAskCommand *command = NULL;
    struct errand *follows = NULL, *over;
    struct list answered;
    list_init(&answered);
    uint64_t now_ns = clock_boot_ns();

    uv_mutex_lock(&spending->lock);
    over = spending->arrived;
    spending->arrived = NULL, spending->arrived_last = &spending->arrived;
    for (struct errand *errand = over; errand; errand = errand->next) feed(spending, errand, now_ns);
    spender_tick(spending->spender, now_ns);
    bool empty = spending->leaving && !spending->asking && !spender_leave(spending->spender);
    uint64_t due_ns = try_parked(spending, now_ns, &answered), deadline_ns = spender_deadline_ns(spending->spender);
    if (!spending->asking) spending->asking = spender_ask(spending->spender, now_ns, &command);
    const char *name;
    for (uint64_t index; !spending->leaving && spender_follow(spending->spender, &name, &index);) {
        struct errand *errand = errand_new(spending);
        errand->follows = true, errand->name = mem_strdup(name), errand->index = index;
        errand->next = follows, follows = errand;
    }
    spending->watched = spending->taken;
    spending->taken = false;
    if (spending->watched && now_ns + PACE_NS < due_ns) due_ns = now_ns + PACE_NS;
    counted(spending);
    uv_mutex_unlock(&spending->lock);

    if (command) ask(spending, command);
    for (struct errand *next; follows; follows = next) {
        next = follows->next, follows->next = NULL;
        follow(spending, follows);
    }
    for (struct errand *next; over; over = next) {
        next = over->next;
        errand_free(over);
    }
    answer(&answered);
    if (spending->leaving && (empty || now_ns >= spending->leave_by_ns)) finish_leave(spending);
    else arm(spending, deadline_ns < due_ns ? deadline_ns : due_ns, now_ns);
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
    struct metric *const metrics[] = {&allowed, &refused, &waited, &asked};
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++) metric_register(metrics[i]);
    of_spender.seed = random_u64();
    spending->rpc = rpc;
    spending->references = 1;
    spending->spender = spender_new(&of_spender);
    spending->arrived_last = &spending->arrived;
    list_init(&spending->parked), list_init(&spending->errands);
    CHECK(uv_mutex_init(&spending->lock) == 0);
    CHECK(uv_async_init(loop, &spending->wake, on_wake) == 0);
    CHECK(uv_timer_init(loop, &spending->timer) == 0);
    spending->wake.data = spending->timer.data = spending;
    return spending;
}

void spending_hurry(struct spending *spending) {
    if (!spending) return;
    uv_mutex_lock(&spending->lock);
    spending->hurry = true;
    uv_mutex_unlock(&spending->lock);
    uv_async_send(&spending->wake);
}

/* Nobody waits for notices any more: their errands come back soon. */
static void follow_no_more(struct spending *spending) {
    LIST_FOREACH(link, &spending->errands) {
        struct errand *errand = LIST_ENTRY(link, struct errand, link);
        if (errand->follows) rpc_fetch_cancel(spending->rpc, &errand->fetch);
    }
}

static void closed(uv_handle_t *handle) {
    struct spending *spending = handle->data;
    void (*stopped)(void *) = spending->stopped;
    void *data = spending->stopped_data;
    if (--spending->closing) return;
    release(spending);
    stopped(data);
}

static void close_now(struct spending *spending) {
    uv_mutex_lock(&spending->lock);
    spending->closed = true;
    struct errand *over = spending->arrived;
    spending->arrived = NULL, spending->arrived_last = &spending->arrived;
    counted(spending);
    uv_mutex_unlock(&spending->lock);
    for (struct errand *next; over; over = next) {
        next = over->next;
        errand_free(over);
    }
    CHECK(list_empty(&spending->parked));
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
    uv_mutex_lock(&spending->lock);
    bool began = !spending->leaving;
    spending->leaving = true;
    uv_mutex_unlock(&spending->lock);
    if (!began) return;
    spending->leave_by_ns = clock_boot_ns() + SPENDING_LEAVE_MS * UINT64_C(1000000);
    follow_no_more(spending);
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
