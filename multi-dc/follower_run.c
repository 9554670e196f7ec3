#include "multi-dc/follower_run.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "multi-dc/follower_kind.h"
#include "rpc/api/loop_fetch.h"
#include "rpc/api/loop_submit.h"

#define LOOK_MS 200 /* so often it is asked whether this server leads, and whether something is due */

/* Answers that may have all of a region take much memory: one at a time in a process. */
static atomic_flag large_taken = ATOMIC_FLAG_INIT;

struct question {
    struct follower_run *run;
    struct loop_fetch *fetch; /* NULL: nothing is asked */
    uint64_t ticket, sent_ns;
};
struct follower_run {
    struct rpc *own, *source;
    char *subject;
    struct follower *follower;
    uv_timer_t timer;
    struct question next, look;
    struct follower_effect waiting; /* for its turn with a large answer; wish RESTS: none */
    unsigned proposals;             /* whose outcome is to come */
    bool linked, large, stopped, closed;
    uint64_t taken, set_backs;
    int told_error; /* in the log */
};
struct proposal {
    struct follower_run *run;
    uint64_t ticket;
};

static void look(struct follower_run *run);
static void on_timer(uv_timer_t *timer) { look(timer->data); }

static void free_when_over(struct follower_run *run) {
    if (!run->closed || run->proposals) return;
    follower_free(run->follower);
    free(run->subject);
    free(run);
}

/* -- doing what the follower wants -------------------------------------------------------------------------------- */

static void large_end(struct follower_run *run) {
    if (run->large) atomic_flag_clear(&large_taken);
    run->large = false;
}

static void on_answered(void *data, int error, const struct rpc_fetched *fetched) {
    struct question *question = data;
    struct follower_run *run = question->run;
    uint64_t now_ns = clock_mono_ns(), sent_ms = question->sent_ns / 1000000;
    struct follower_answer answer = {
        .error = error, .records = slice_make("", 0), .round_ns = now_ns - question->sent_ns};
    question->fetch = NULL;
    if (!error) {
        answer.records = fetched->records, answer.index = fetched->index;
        bool known = fetched->known_leader && fetched->last_contact_ms < sent_ms;
        if (known) answer.as_of_ms = sent_ms - fetched->last_contact_ms;
    }
    follower_answered(run->follower, question->ticket, &answer, now_ns / 1000000);
    look(run);
}

static void on_proposed(void *data, const struct loop_submitted *submitted) {
    struct proposal *proposal = data;
    struct follower_run *run = proposal->run;
    run->proposals--;
    if (!run->stopped) {
        follower_proposed(run->follower, proposal->ticket, submitted->error, submitted->refused, submitted->yes,
                          submitted->index, clock_mono_ms());
        look(run);
    }
    free(proposal);
    free_when_over(run);
}

static void fetch(struct question *question, const struct follower_effect *effect) {
    struct follower_run *run = question->run;
    bool asks = effect->wish == FOLLOWER_ASKS;
    struct rpc_fetch how = {.type = effect->query,
                            .freshness = effect->confirmed ? RPC_DEFAULT : RPC_STALE,
                            .no_cache = true,
                            .background = run->follower->kind->background,
                            .index = effect->index,
                            .wait_ms = effect->wait_ms};
    CHECK(!question->fetch && (!asks || run->source));
    question->ticket = effect->ticket, question->sent_ns = clock_mono_ns();
    question->fetch =
        loop_fetch_begin(run->own, asks ? run->source : run->own, &how, effect->message, on_answered, question);
}

static void propose(struct follower_run *run, const struct follower_effect *effect) {
    struct proposal *proposal = mem_zalloc(sizeof *proposal);
    proposal->run = run, proposal->ticket = effect->ticket;
    run->proposals++;
    loop_submit(run->own, effect->command, effect->message, on_proposed, proposal);
}

/* The next thing, unless it has to wait for its turn. Until when there is nothing to do. */
static uint64_t go_on(struct follower_run *run, uint64_t now_ms) {
    struct follower_effect effect = run->waiting;
    if (effect.wish == FOLLOWER_RESTS) follower_next(run->follower, now_ms, &effect);
    if (effect.wish == FOLLOWER_RESTS) return effect.until_ms;
    run->waiting = effect;
    if (effect.wish == FOLLOWER_ASKS && effect.large) {
        if (atomic_flag_test_and_set(&large_taken)) return UINT64_MAX; /* looked at again soon */
        run->large = true;
    }
    run->waiting.wish = FOLLOWER_RESTS;
    if (effect.wish == FOLLOWER_PROPOSES) propose(run, &effect);
    else fetch(&run->next, &effect);
    return UINT64_MAX;
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */

static void cancel(struct question *question) {
    if (question->fetch) loop_fetch_cancel(question->fetch);
    question->fetch = NULL;
}

/* Cancels the questions that the follower does not wait for any more. */
static void cancel_forgotten(struct follower_run *run) {
    if (!follower_awaits(run->follower, run->look.ticket)) cancel(&run->look);
    if (!follower_awaits(run->follower, run->next.ticket)) cancel(&run->next);
    if (!follower_awaits(run->follower, run->waiting.ticket)) run->waiting.wish = FOLLOWER_RESTS;
    if (!run->next.fetch && !run->follower->answer) large_end(run);
}

/* An error is told once, and when it is over. */
static void tell(struct follower_run *run) {
    struct follower_state state;
    const char *name = run->follower->kind->name;
    follower_state(run->follower, &state);
    metric_add(run->follower->kind->taken, state.taken - run->taken);
    run->taken = state.taken;
    if (state.set_backs != run->set_backs)
        log_info("regions", "a copy of another region is not what it was before, and is read again what=%s %s", name,
                 run->subject);
    run->set_backs = state.set_backs;
    if (state.error == run->told_error) return;
    if (state.error)
        log_warn("regions", "copying from another region does not get on what=%s %s while=%s: %s", name, run->subject,
                 state.doing, co_strerror(state.error));
    else if (state.leads)
        log_info("regions", "copying from another region gets on again what=%s %s", name, run->subject);
    run->told_error = state.error;
}

static void look(struct follower_run *run) {
    struct rpc_status status;
    struct follower_effect effect;
    uint64_t now_ms = clock_mono_ms();
    if (run->stopped) return;
    rpc_status(run->own, &status);
    follower_leads(run->follower, status.is_leader, now_ms);
    cancel_forgotten(run);
    follower_look(run->follower, now_ms, &effect);
    if (effect.wish != FOLLOWER_RESTS) fetch(&run->look, &effect);
    uint64_t until_ms = go_on(run, now_ms);
    tell(run);
    uint64_t rest_ms = until_ms > now_ms && until_ms - now_ms < LOOK_MS ? until_ms - now_ms : LOOK_MS;
    CHECK(uv_timer_start(&run->timer, on_timer, rest_ms, 0) == 0);
}

void follower_run_init(void) {
    metric_register(follow_kind_catalog.taken);
    metric_register(follow_kind_keys.taken);
}

struct follower_run *follower_run_start(uv_loop_t *loop, struct rpc *own, struct follower *follower,
                                        const char *subject) {
    struct follower_run *run = mem_zalloc(sizeof *run);
    run->own = own, run->follower = follower, run->subject = mem_strdup(subject);
    run->next.run = run->look.run = run;
    CHECK(uv_timer_init(loop, &run->timer) == 0);
    run->timer.data = run;
    follower_linked(follower, false, clock_mono_ms());
    CHECK(uv_timer_start(&run->timer, on_timer, 0, 0) == 0);
    return run;
}

static void on_closed(uv_handle_t *timer) {
    struct follower_run *run = timer->data;
    run->closed = true;
    free_when_over(run);
}

void follower_run_stop(struct follower_run *run) {
    run->stopped = true;
    cancel(&run->next);
    cancel(&run->look);
    large_end(run);
    uv_close((uv_handle_t *)&run->timer, on_closed);
}

void follower_run_linked(struct follower_run *run, struct rpc *source, bool up) {
    uint64_t now_ms = clock_mono_ms();
    bool other = source != run->source, linked = up && source;
    if (!other && linked == run->linked) return;
    if (other) follower_linked(run->follower, false, now_ms); /* what the former one was asked is forgotten */
    follower_linked(run->follower, linked, now_ms);
    run->source = source, run->linked = linked;
    look(run);
}

struct follower *follower_run_follower(struct follower_run *run) {
    return run->follower;
}

void follower_run_state(const struct follower_run *run, struct follower_state *state) {
    follower_state(run->follower, state);
}

uint64_t follower_run_age_ms(const struct follower_run *run) {
    struct follower_state state;
    uint64_t now_ms = clock_mono_ms();
    follower_state(run->follower, &state);
    if (!state.confirmed_ms) return UINT64_MAX;
    return now_ms > state.confirmed_ms ? now_ms - state.confirmed_ms : 0;
}
