#include "rpc/quota/spender_run.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/metrics.h"
#include "base/random.h"
#include "base/wakeup_batch.h"
#include "rpc/quota/spender_run_internal.h"

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

void spender_run_release(struct spender_run *run) {
    if (atomic_fetch_sub_explicit(&run->references, 1, memory_order_acq_rel) != 1) return;
    spender_free(run->spender);
    owner_free(run->owner);
    free(run->services);
    arena_free(&run->owned_arena);
    uv_mutex_destroy(&run->lock);
    free(run);
}

struct owner_now spender_run_now(uint64_t now_ns) {
    return (struct owner_now){.ns = now_ns, .unix_s = clock_wall_ns() / 1000000000};
}

struct errand *spender_run_outgoing(struct spender_run *run) {
    struct errand *outgoing = run->outgoing;
    run->outgoing = NULL, run->outgoing_last = &run->outgoing;
    return outgoing;
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

void spender_run_decided(struct spender_run *run, const struct spender_run_take *take) {
    bool spends = false;
    for (size_t i = 0; i < take->count; i++) spends |= take->takes[i].n > 0;
    if (!spends) return;
    if (take->error == CO_OK) run->allowed++;
    else if (take->error == CO_BUSY || take->error == CO_NOLEADER) run->refused++;
}

void spender_run_park(struct spender_run *run, struct spender_run_take *take, uint64_t now_ns) {
    take->deadline_ns = now_ns + SPENDER_RUN_WAIT_MS * SPENDER_RUN_MS;
    list_append(&run->parked, &take->link);
}

/* With the lock held. False: it waits. */
static bool try_owned(struct spender_run *run, struct owned_request *request, uint64_t now_ns) {
    return owned_try(run, request, spender_run_now(now_ns));
}

/* With the lock held; for a request without takes in owner mode, as far as is known. False: it has to wait, and is
 * parked, if it was not before (`waits`). */
static bool try(struct spender_run *run, struct spender_run_take *take, bool waits, bool last, uint64_t now_ns) {
    take->answer = (struct spender_answer){0};
    take->error = run->leaving
                      ? CO_CLOSED
                      : spender_take(run->spender, take->takes, take->count, waits, last, now_ns, &take->answer);
    if (take->error == CO_AGAIN) {
        if (!waits) spender_run_park(run, take, now_ns);
        return false;
    }
    if (waits) list_remove(&take->link);
    if (take->error == CO_UNSUPPORTED && take->answer.text == spender_owned)
        return try_owned(run, owned_request_at(take, take->answer.failed, now_ns), now_ns);
    int64_t unix_s = clock_wall_ns() / 1000000000;
    for (size_t i = 0; take->rates && i < take->count; i++)
        if (!spender_rate(run->spender, take->takes[i].name, take->takes[i].key, now_ns, unix_s, &take->rates[i]))
            take->rates[i].quota = 0;
    spender_run_decided(run, take);
    return true;
}

static void wake(void *data) { uv_async_send(&((struct spender_run *)data)->wake); }

bool spender_run_take(struct spender_run *run, struct spender_run_take *take) {
    uint64_t now_ns = clock_boot_ns();
    spender_run_lock(run);
    struct owned_request *request = run->leaving ? NULL : owned_request_of(run, take, now_ns);
    bool done = request ? try_owned(run, request, now_ns) : try(run, take, false, run->hurry, now_ns);
    bool wakes = !done || !run->watched || owner_deadline_ns(run->owner) < run->due_ns;
    struct errand *outgoing = spender_run_outgoing(run);
    CHECK(done || !run->hurry);
    run->taken = run->watched = true;
    if (!done) run->waited++;
    spender_run_unlock(run);
    errands_send(outgoing);
    if (wakes) wakeup_batch_send(wake, run);
    return done;
}

/* With the lock held: moves requests that have an answer now to `answered`. Returns when the next one is due. */
static uint64_t try_parked(struct spender_run *run, uint64_t now_ns, struct list *answered) {
    uint64_t due_ns = UINT64_MAX;
    bool woken = spender_woken(run->spender), all = woken || run->hurry || run->leaving;
    LIST_FOREACH_SAFE(link, next, &run->parked) {
        struct spender_run_take *take = LIST_ENTRY(link, struct spender_run_take, link);
        bool last = run->hurry || now_ns >= take->deadline_ns;
        if (!all && !last) return take->deadline_ns; /* as are all behind it */
        uint64_t deadline_ns = take->deadline_ns;
        bool over = take->owned ? owned_try_parked(run, take, last, spender_run_now(now_ns))
                                : try(run, take, true, last, now_ns);
        if (over) list_append(answered, link);
        else if (deadline_ns < due_ns) due_ns = deadline_ns;
    }
    return due_ns;
}

/* -- the loop's side ---------------------------------------------------------------------------------------------- */

static void notice_feed(struct spender_run *run, struct errand *errand, uint64_t now_ns) {
    struct arena arena = {0};
    const Pb__QuotaNotice *notice = NULL;
    int error = errand->error;
    if (!error && errand->found)
        notice = message_unpack(&arena, &pb__quota_notice__descriptor, buffer_slice(&errand->record));
    if (!error && errand->found && !notice) error = CO_CORRUPT;
    spender_followed(run->spender, errand->name, error, notice, errand->index, now_ns);
    arena_free(&arena);
}

static void grants_feed(struct spender_run *run, struct errand *errand, uint64_t now_ns) {
    struct arena arena = {0};
    const Pb__QuotaGrants *grants = NULL;
    int error = errand->error;
    run->spender_asks = false;
    if (!error) grants = machine_decode(&pb__quota_grants__descriptor, buffer_slice(&errand->record), &arena);
    if (!error && !grants) error = CO_UNKNOWN_OUTCOME;
    spender_asked(run->spender, error, grants, now_ns);
    arena_free(&arena);
}

/* With the lock held: takes an answer in. */
static void feed(struct spender_run *run, struct errand *errand, struct owner_now now, struct list *answered) {
    list_remove(&errand->link);
    switch (errand->kind) {
        case ERRAND_ASK: grants_feed(run, errand, now.ns); break;
        case ERRAND_FOLLOW: notice_feed(run, errand, now.ns); break;
        case ERRAND_TAKE: {
            struct spender_run_take *take = errand->request ? owned_request_take(errand->request) : NULL;
            if (take && owned_served(run, errand, now)) list_append(answered, &take->link);
            break;
        }
        default: owner_run_feed(run, errand, now);
    }
}

static struct errand *feed_all(struct spender_run *run, struct owner_now now, struct list *answered) {
    struct errand *over = run->arrived;
    run->arrived = NULL, run->arrived_last = &run->arrived;
    for (struct errand *errand = over; errand; errand = errand->next) feed(run, errand, now, answered);
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

static void counted(struct spender_run *run) {
    add(&allowed, &run->allowed), add(&refused, &run->refused), add(&waited, &run->waited);
    add(&asked, &run->asked), add(&sent_on, &run->sent_on), add(&stale, &run->stale);
}

static void answer(struct list *answered) {
    wakeup_batch_begin();
    LIST_FOREACH_SAFE(link, next, answered) {
        struct spender_run_take *take = LIST_ENTRY(link, struct spender_run_take, link);
        list_remove(link);
        take->done(take);
    }
    wakeup_batch_end();
}

static void arm(struct spender_run *run, uint64_t due_ns, uint64_t now_ns);
static void finish_leave(struct spender_run *run);

/* With the lock held: sends the spender's questions. */
static void spender_turn(struct spender_run *run, uint64_t now_ns) {
    const Pb__QuotaAskCommand *command;
    const char *name;
    if (!run->spender_asks && spender_ask(run->spender, now_ns, &command)) {
        run->spender_asks = true;
        run->asked++;
        errand_add(run, ERRAND_ASK)->command = command;
    }
    for (uint64_t index; !run->leaving && spender_follow(run->spender, &name, &index);) {
        struct errand *errand = errand_add(run, ERRAND_FOLLOW);
        errand->name = mem_strdup(name), errand->index = index;
    }
}

/* With the lock held: has everything been given back? */
static bool is_empty(struct spender_run *run, struct owner_now now) {
    bool holds = spender_leave(run->spender), owns = owner_run_leave(run, now);
    return !holds && !owns && !run->spender_asks;
}

/* Takes answers in, answers takes, and sends requests. */
static void look(struct spender_run *run) {
    struct list answered;
    list_init(&answered);
    struct owner_now now = spender_run_now(clock_boot_ns());

    spender_run_lock(run);
    spender_wall(run->spender, now.ns, clock_wall_ns() / 1000000);
    struct errand *over = feed_all(run, now, &answered);
    spender_tick(run->spender, now.ns);
    bool empty = run->leaving && is_empty(run, now);
    uint64_t due_ns = owner_run_turn(run, now, &answered);
    uint64_t parked_ns = try_parked(run, now.ns, &answered);
    uint64_t deadline_ns = spender_deadline_ns(run->spender);
    spender_turn(run, now.ns);
    uint64_t owner_ns = owner_deadline_ns(run->owner); /* takes of the spender may have become its */
    due_ns = owner_ns < due_ns ? owner_ns : due_ns;
    due_ns = parked_ns < due_ns ? parked_ns : due_ns;
    due_ns = deadline_ns < due_ns ? deadline_ns : due_ns;
    run->watched = run->taken;
    run->taken = false;
    if (run->watched && now.ns + PACE_NS < due_ns) due_ns = now.ns + PACE_NS;
    run->due_ns = due_ns;
    counted(run);
    struct errand *outgoing = spender_run_outgoing(run);
    spender_run_unlock(run);

    errands_send(outgoing);
    free_all(over);
    answer(&answered);
    owner_run_look(run);
    if (run->leaving && (empty || now.ns >= run->leave_by_ns)) finish_leave(run);
    else arm(run, due_ns, now.ns);
}

static void on_wake(uv_async_t *async) { look(async->data); }
static void on_timer(uv_timer_t *timer) { look(timer->data); }

static void arm(struct spender_run *run, uint64_t due_ns, uint64_t now_ns) {
    if (run->closing) return;
    if (run->leaving && run->leave_by_ns < due_ns) due_ns = run->leave_by_ns;
    if (due_ns == UINT64_MAX) {
        uv_timer_stop(&run->timer);
        return;
    }
    uint64_t wait_ms = due_ns > now_ns ? (due_ns - now_ns + 999999) / 1000000 : 1;
    uv_update_time(run->timer.loop);
    uv_timer_start(&run->timer, on_timer, wait_ms, 0);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct spender_run *spender_run_start(uv_loop_t *loop, struct rpc *rpc, const struct spender_run_config *config) {
    struct spender_run *run = mem_zalloc(sizeof *run);
    struct spender_config of_spender = {.node = config->node, .priority = config->priority};
    struct owner_config of_owner = {.node = config->node, .seed = random_u64()};
    struct metric *const metrics[] = {&allowed, &refused, &waited, &asked, &sent_on, &stale};
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++) metric_register(metrics[i]);
    of_spender.seed = random_u64();
    run->rpc = rpc;
    run->passes = config->passes, run->passes_data = config->passes_data;
    run->references = 1;
    run->spender = spender_new(&of_spender);
    run->owner = owner_new(&of_owner);
    run->arrived_last = &run->arrived, run->outgoing_last = &run->outgoing;
    list_init(&run->parked), list_init(&run->waiting), list_init(&run->asking);
    list_init(&run->fetching);
    CHECK(uv_mutex_init(&run->lock) == 0);
    CHECK(uv_async_init(loop, &run->wake, on_wake) == 0);
    CHECK(uv_timer_init(loop, &run->timer) == 0);
    run->wake.data = run->timer.data = run;
    owner_run_start(run);
    return run;
}

void spender_run_hurry(struct spender_run *run) {
    if (!run) return;
    spender_run_lock(run);
    run->hurry = true;
    spender_run_unlock(run);
    uv_async_send(&run->wake);
}

static void closed(uv_handle_t *handle) {
    struct spender_run *run = handle->data;
    void (*stopped)(void *) = run->stopped;
    void *data = run->stopped_data;
    if (--run->closing) return;
    spender_run_release(run);
    stopped(data);
}

static void close_now(struct spender_run *run) {
    owner_run_end(run);
    errands_cancel(run, true);
    spender_run_lock(run);
    run->closed = true;
    struct errand *over = run->arrived;
    run->arrived = NULL, run->arrived_last = &run->arrived;
    counted(run);
    spender_run_unlock(run);
    free_all(over);
    CHECK(list_empty(&run->parked) && list_empty(&run->waiting) && list_empty(&run->asking));
    run->closing = 2;
    uv_close((uv_handle_t *)&run->timer, closed);
    uv_close((uv_handle_t *)&run->wake, closed);
}

static void finish_leave(struct spender_run *run) {
    void (*left)(void *) = run->left;
    if (run->closing) return;
    uv_timer_stop(&run->timer);
    run->left = NULL;
    if (left) left(run->left_data);
    if (run->stopped && !run->closing) close_now(run);
}

static void leave(struct spender_run *run) {
    uint64_t now_ns = clock_boot_ns(), most_ms = SPENDER_RUN_LEAVE_MS;
    spender_run_lock(run);
    bool began = !run->leaving;
    run->leaving = true;
    bool owns = owner_run_leave(run, spender_run_now(now_ns));
    spender_run_unlock(run);
    if (!began) return;
    if (owns && rpc_known_leader(run->rpc)) most_ms += OWNER_LEAVE_MS;
    run->leave_by_ns = now_ns + most_ms * SPENDER_RUN_MS;
    errands_cancel(run, false);
}

void spender_run_leave(struct spender_run *run, void (*left)(void *data), void *data) {
    if (!run) {
        left(data);
        return;
    }
    run->left = left, run->left_data = data;
    leave(run);
    look(run);
}

void spender_run_stop(struct spender_run *run, void (*stopped)(void *data), void *data) {
    if (!run) {
        stopped(data);
        return;
    }
    run->stopped = stopped, run->stopped_data = data;
    leave(run);
    look(run);
}
