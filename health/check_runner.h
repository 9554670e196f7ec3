/* Runs checks, one attempt each time, on the loop and without blocking it. Loop thread only.
 *
 * An attempt ends by calling `done` once, never from within its start, or by being cancelled, after which `done` is not
 * called. Its memory and handles are freed a little later; runners_close waits for that. */
#ifndef COORD_HEALTH_CHECK_RUNNER_H
#define COORD_HEALTH_CHECK_RUNNER_H

#include "health/local.h"
#include "health/program_keeper.h"

/* The load that a checked instance reported in its answer. */
struct load_said {
    struct load_hint hint; /* load NAN: it reported none */
    struct fault fault;    /* why the report is invalid; code CO_OK: it is valid */
};

/* `output` is valid during the call. */
typedef void (*run_done)(void *data, Pb__Status status, struct slice output);

struct runner_http;
struct run; /* one attempt */

/* The target of an alias check: the checks that count for it, by id, without the alias itself. All in the arena of the
 * look-up. */
struct alias_target {
    const char *node; /* its name */
    bool found;       /* the service, or where none is named the node, is there */
    Pb__Check **checks;
    size_t count;
};
/* Loop thread, without blocking. An error: the target is unknown now, and the fault says why. */
typedef int (*alias_look)(void *data, const struct check_definition *definition, struct arena *arena,
                          struct alias_target *target, struct fault *fault);

struct runners {
    uv_loop_t *loop;
    size_t open;              /* attempts, engines and handles that are not freed yet */
    struct runner_http *http; /* libcurl: begun with the first HTTP check */
    struct list programs;     /* check_program.h: all that were started, or wait to be */
    unsigned spawning;
    struct program_keeper keeper; /* begun with the first program */
    bool keeper_begins, keeper_failed;
    alias_look look; /* for alias checks; set by the user between init and the first start */
    void *look_data;
    void (*closed)(struct runners *runners);
};
void runners_init(struct runners *runners, uv_loop_t *loop);
/* All attempts have been cancelled. `closed` is called on the loop when nothing is left. */
void runners_close(struct runners *runners, void (*closed)(struct runners *runners));

/* NULL for kinds that nobody runs (TTL). `output_max`: how many bytes of a body or of a program's output are kept, the
 * last ones. The caller may free the definition right after the call. */
struct run *run_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max,
                      run_done done, void *data);
void run_cancel(struct run *run); /* NULL allowed */

/* -- for the runners themselves ----------------------------------------------------------------------------------- */
/* First member of each runner's attempt. */
struct run {
    struct load_said *said; /* of attempts whose answers may tell the load; or NULL */
    struct runners *runners;
    run_done done;
    void *data;
    void (*cancel)(struct run *run);
};
void runners_left(struct runners *runners); /* one of `open` is gone */
struct run *run_http_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max);
struct run *run_tcp_start(struct runners *runners, const struct check_definition *definition);
struct run *run_udp_start(struct runners *runners, const struct check_definition *definition);
struct run *run_grpc_start(struct runners *runners, const struct check_definition *definition);
struct run *run_h2ping_start(struct runners *runners, const struct check_definition *definition);
struct run *run_script_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max);
struct run *run_os_service_start(struct runners *runners, const struct check_definition *definition);
struct run *run_alias_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max);
/* No attempt at all: critical, with this text. */
struct run *run_refused_start(struct runners *runners, const char *text, run_done done, void *data);
/* Derives status and output of an alias check from the checks of its target. */
void alias_judge(const struct check_definition *definition, const struct alias_target *target, Pb__Status *status,
                 struct buffer *text);
void runner_http_close(struct runner_http *http); /* NULL allowed */

#endif
