/* Alias checks: the worst state of the checks of another service, or of a node. */
#include <stdlib.h>

#include "base/check.h"
#include "health/check_runner.h"

/* An attempt whose result is known at its start. */
struct known_run {
    struct run run;
    uv_timer_t soon;
    bool over;
    Pb__Status status;
    struct buffer text;
};

void alias_judge(const struct check_definition *definition, const struct alias_target *target, Pb__Status *status,
                 struct buffer *text) {
    const Pb__Check *worst = NULL;
    *status = PB__STATUS__PASSING;
    for (size_t i = 0; i < target->count; i++) {
        const Pb__Check *check = target->checks[i];
        if (check->status <= *status) continue;
        *status = check->status > PB__STATUS__CRITICAL ? PB__STATUS__CRITICAL : check->status;
        worst = check;
    }
    if (!target->found) {
        *status = PB__STATUS__CRITICAL;
        if (*definition->alias_service) {
            buffer_printf(text, "Service %s could not be found on node %s", definition->alias_service, target->node);
        } else {
            buffer_printf(text, "Node %s could not be found", target->node);
        }
    } else if (worst) {
        buffer_printf(text, "Aliased check \"%s\" failing: ", worst->name);
        buffer_append(text, worst->output.data, worst->output.len);
    } else {
        buffer_append_text(text, target->count ? "All checks passing." : "No checks found.");
    }
}

static void on_closed(uv_handle_t *handle) {
    struct known_run *known = handle->data;
    struct runners *runners = known->run.runners;
    buffer_free(&known->text);
    free(known);
    runners_left(runners);
}

static void known_end(struct known_run *known) {
    if (known->over) return;
    known->over = true;
    uv_close((uv_handle_t *)&known->soon, on_closed);
}

static void known_cancel(struct run *run) { known_end((struct known_run *)run); }

static void on_soon(uv_timer_t *timer) {
    struct known_run *known = timer->data;
    if (known->run.done) known->run.done(known->run.data, known->status, buffer_slice(&known->text));
    known_end(known);
}

static struct known_run *known_start(struct runners *runners) {
    struct known_run *known = mem_zalloc(sizeof *known);
    known->run = (struct run){.runners = runners, .cancel = known_cancel};
    known->status = PB__STATUS__CRITICAL;
    runners->open++;
    uv_timer_init(runners->loop, &known->soon);
    known->soon.data = known;
    uv_timer_start(&known->soon, on_soon, 0, 0);
    return known;
}

struct run *run_alias_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max) {
    struct known_run *known = known_start(runners);
    struct alias_target target = {0};
    struct arena arena = {0};
    struct fault fault = {0};
    CHECK(runners->look != NULL);
    if (runners->look(runners->look_data, definition, &arena, &target, &fault) == CO_OK) {
        alias_judge(definition, &target, &known->status, &known->text);
    } else {
        buffer_printf(&known->text, "Failure checking aliased node or service: %s", fault.text);
    }
    if (known->text.size > output_max) known->text.size = output_max;
    arena_free(&arena);
    return &known->run;
}

struct run *run_refused_start(struct runners *runners, const char *text, run_done done, void *data) {
    struct known_run *known = known_start(runners);
    buffer_append_text(&known->text, text);
    known->run.done = done;
    known->run.data = data;
    return &known->run;
}
