#include "rpc/wire/handshakes_run.h"

#include <stdlib.h>

#include "base/memory.h"

/* The check runs once in each turn of the loop, after its input, and only while turns were taken or are waited for. The
 * idle handle keeps the loop from sleeping while somebody waits. */
struct handshakes_run {
    struct handshakes handshakes;
    uv_check_t check;
    uv_idle_t idle;
    unsigned open;
};

static void awake(uv_idle_t *idle) { (void)idle; }

static void checked(uv_check_t *check) {
    struct handshakes_run *run = check->data;
    for (struct handshake *next; (next = handshakes_next(&run->handshakes));) next->go(next);
    handshakes_turn(&run->handshakes);
    if (run->handshakes.waiting > 0) return;
    uv_check_stop(&run->check);
    uv_idle_stop(&run->idle);
}

struct handshakes_run *handshakes_run_new(uv_loop_t *loop, unsigned per_turn) {
    struct handshakes_run *run = mem_zalloc(sizeof *run);
    handshakes_init(&run->handshakes, per_turn);
    CHECK(uv_check_init(loop, &run->check) == 0 && uv_idle_init(loop, &run->idle) == 0);
    run->check.data = run->idle.data = run;
    run->open = 2;
    return run;
}

static void closed(uv_handle_t *handle) {
    struct handshakes_run *run = handle->data;
    if (--run->open == 0) free(run);
}

void handshakes_run_free(struct handshakes_run *run) {
    if (!run) return;
    CHECK(run->handshakes.waiting == 0);
    uv_close((uv_handle_t *)&run->check, closed);
    uv_close((uv_handle_t *)&run->idle, closed);
}

bool handshakes_run_ask(struct handshakes_run *run, struct handshake *handshake) {
    bool now = handshakes_ask(&run->handshakes, handshake);
    uv_check_start(&run->check, checked);
    if (!now) uv_idle_start(&run->idle, awake);
    return now;
}

void handshakes_run_leave(struct handshakes_run *run, struct handshake *handshake) {
    handshakes_leave(&run->handshakes, handshake);
}

size_t handshakes_run_waiting(const struct handshakes_run *run) { return run->handshakes.waiting; }
