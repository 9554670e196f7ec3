/* For the tests of http/: the server over a fake rpc (tests/lib/fake_rpc.h), and clients that speak bytes. */
#ifndef COORD_TESTS_HTTP_WEB_WORLD_H
#define COORD_TESTS_HTTP_WEB_WORLD_H

#include "http/server.h"
#include "tests/lib/fake_rpc.h"

struct world;

/* The defaults of `config` but port and address; NULL: none. Fails the test when it does not start. */
struct world *world_start(const struct http_config *config);
/* With this agent's side of quotas (rpc/quota/spender_run.h), and a loop for it. Of services "gw" it has a passing instance,
 * as far as it knows. */
struct world *world_start_spending(const struct http_config *config);
void world_hurry_spender(struct world *world); /* as when the process ends: no take waits from now on */
/* With one more module than the program has. */
struct world *world_start_with(const struct http_config *config, const struct module *module);
void world_stop(struct world *world);      /* http_stop, then everything else */
void world_stop_http(struct world *world); /* only that; world_stop still has to come */
uint16_t world_port(const struct world *world);
struct http_server *world_server(const struct world *world);
struct rpc *world_rpc(const struct world *world);

/* -- clients ------------------------------------------------------------------------------------------------------ */
int web_dial(const struct world *world);
void web_send(int fd, const char *bytes, size_t size);
void web_say(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
int web_get(const struct world *world, const char *target); /* asks on a connection of its own; web_hear answers */

struct web_answer {
    int status;        /* 0: the server closed the connection without an answer */
    char *head, *body; /* NUL-terminated */
    size_t size;       /* of the body */
};
/* The next answer, at most 5 s away; `head_only`: to a HEAD. */
struct web_answer web_hear(int fd);
struct web_answer web_hear_head(int fd);
void web_free(struct web_answer *answer);
bool web_closed(int fd);                   /* the server closes it, at most 5 s from now */
bool web_silent(int fd, int milliseconds); /* nothing comes for so long */
/* A header of the answer, or "". Valid until the next call. */
const char *web_header(const struct web_answer *answer, const char *name);
uint64_t web_index(const struct web_answer *answer);

/* One request on a connection of its own: "GET /v1/kv/a", body or NULL. */
struct web_answer web_ask(const struct world *world, const char *method_and_target, const char *body);
/* The same, wanting this status; returns the body (free it). */
char *web_want(const struct world *world, int status, const char *method_and_target, const char *body);

/* Polls until it is true, at most 5 s. */
#define EVENTUALLY(condition)                                                    \
    do {                                                                         \
        uint64_t until_ = clock_mono_ms() + 30000;                               \
        bool done_;                                                              \
        while (!(done_ = (condition)) && clock_mono_ms() < until_) usleep(1000); \
        cr_assert(done_, "not within 30 s: %s", #condition);                     \
    } while (0)

/* A metric's value as the server prints it. */
uint64_t web_metric(const struct world *world, const char *name);

#endif
