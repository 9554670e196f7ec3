#include "attempt.h"

#include <signal.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

struct stage {
    struct outcome outcome;
    struct run *run;
    uv_timer_t give_up;
};

static void on_done(void *data, Pb__Status status, struct slice output) {
    struct stage *stage = data;
    struct outcome *outcome = &stage->outcome;
    stage->run = NULL;
    outcome->calls++;
    outcome->status = status;
    outcome->output_size = output.size;
    snprintf(outcome->output, sizeof outcome->output, "%.*s", (int)output.size, output.data);
}

static void give_up(struct stage *stage) {
    run_cancel(stage->run);
    stage->run = NULL;
}

static void on_give_up(uv_timer_t *timer) { give_up(timer->data); }

static bool all_closed;
static void on_closed(struct runners *runners) {
    (void)runners;
    all_closed = true;
}

struct check_definition *attempt_definition(enum check_kind kind, const char *target, uint64_t timeout_ms) {
    struct check_definition *definition = check_definition_blank("c", "");
    char **field = kind == CHECK_TCP    ? &definition->tcp
                   : kind == CHECK_UDP  ? &definition->udp
                   : kind == CHECK_GRPC ? &definition->grpc
                                        : &definition->h2ping;
    definition->kind = kind;
    free(*field);
    *field = mem_strdup(target);
    definition->timeout_ns = (int64_t)timeout_ms * 1000000;
    return definition;
}

struct outcome attempt_given_up(struct check_definition *definition, uint64_t after_ms) {
    struct stage stage = {0};
    struct runners runners;
    uv_loop_t loop;
    uint64_t begun_ms = clock_mono_ms();
    signal(SIGPIPE, SIG_IGN); /* as the agent has it */
    CHECK(uv_loop_init(&loop) == 0);
    runners_init(&runners, &loop);
    stage.run = run_start(&runners, definition, 4096, on_done, &stage);
    check_definition_free(definition);
    CHECK(stage.outcome.calls == 0); /* never from within the start */
    uv_timer_init(&loop, &stage.give_up);
    stage.give_up.data = &stage;
    if (after_ms == 0) {
        give_up(&stage);
    } else {
        uv_timer_start(&stage.give_up, on_give_up, after_ms, 0);
    }
    while (stage.run) uv_run(&loop, UV_RUN_ONCE);
    stage.outcome.took_ms = clock_mono_ms() - begun_ms;
    uv_close((uv_handle_t *)&stage.give_up, NULL);
    all_closed = false;
    runners_close(&runners, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(all_closed && uv_loop_close(&loop) == 0); /* nothing is left */
    return stage.outcome;
}

struct outcome attempt(struct check_definition *definition) {
    struct outcome outcome = attempt_given_up(definition, 600000);
    CHECK(outcome.calls == 1);
    return outcome;
}
