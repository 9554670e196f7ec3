#include "health/check_runner.h"

#include "base/check.h"

void runners_init(struct runners *runners, uv_loop_t *loop) {
    /* One for the user itself: `open` cannot reach 0 before runners_close. */
    *runners = (struct runners){.loop = loop, .open = 1};
    list_init(&runners->programs);
}

void runners_left(struct runners *runners) {
    CHECK(runners->open > 0);
    if (--runners->open > 0) return;
    program_keeper_end(&runners->keeper);
    runners->closed(runners);
}

void runners_close(struct runners *runners, void (*closed)(struct runners *runners)) {
    runners->closed = closed;
    runner_http_close(runners->http);
    runners->http = NULL;
    runners_left(runners);
}

struct run *run_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max,
                      run_done done, void *data) {
    struct run *run = NULL;
    switch (definition->kind) {
        case CHECK_NONE:
        case CHECK_TTL: return NULL;
        case CHECK_HTTP: run = run_http_start(runners, definition, output_max); break;
        case CHECK_TCP: run = run_tcp_start(runners, definition); break;
        case CHECK_UDP: run = run_udp_start(runners, definition); break;
        case CHECK_GRPC: run = run_grpc_start(runners, definition); break;
        case CHECK_H2PING: run = run_h2ping_start(runners, definition); break;
        case CHECK_SCRIPT: run = run_script_start(runners, definition, output_max); break;
        case CHECK_ALIAS: run = run_alias_start(runners, definition, output_max); break;
        case CHECK_OS_SERVICE: run = run_os_service_start(runners, definition); break;
    }
    run->done = done;
    run->data = data;
    return run;
}

void run_cancel(struct run *run) {
    if (!run) return;
    run->done = NULL;
    run->cancel(run);
}
