/* Watches: a question that is asked of an agent's HTTP API again and again, blocking, and a handler for each new
 * answer. Used by the agent, for the "watches" of its configuration files (of its own API, as Consul's agents do),
 * and by `coord watch`.
 *
 *     asking --new answer--> handling --handler ended, or was killed--> asking
 *        '--no answer: after a pause, 1 s to 60 s--'
 *
 * Handlers of a watch run one at a time: what changes meanwhile is handed over once, as it is then. The same bytes
 * again are not a change. Of events only those that came since the last answer are handed over.
 *
 * A handler is a program (`args`, or `handler` through the shell): the answer is its standard input, CONSUL_INDEX in
 * its environment; it has a process group of its own, which is killed when the program has ended, when it takes
 * longer than WATCH_HANDLER_MS, and when the watch stops. Or a request to a URL with the answer as its body and
 * X-Consul-Index. */
#ifndef COORD_AGENT_WATCH_H
#define COORD_AGENT_WATCH_H

#include <json-c/json_object.h>

#include "agent/client.h"

#define WATCH_HANDLER_MS 600000
#define WATCH_OUTPUT_MAX 4096 /* bytes of a handler's output that are logged */

struct watch {
    enum watch_type {
        WATCH_KEY,
        WATCH_KEYPREFIX,
        WATCH_SERVICES,
        WATCH_NODES,
        WATCH_SERVICE,
        WATCH_CHECKS,
        WATCH_EVENT
    } type;
    char *what;  /* for messages: "key color" */
    char *path;  /* of the question, without index */
    char **argv; /* NULL-terminated; NULL: a request, or none */
    char *token, *datacenter;
    bool stale;
    /* of a request */
    char *url, *method;
    char **headers; /* "Name: value", NULL-terminated */
    int64_t timeout_ns;
    bool tls_skip_verify;
};

/* From a "watches" block, or flags as one. `handler`: one is wanted. NULL and a fault (CO_INVALID, one line, as
 * Consul says it where it does). */
struct watch *watch_parse(struct json_object *json, bool handler, struct fault *fault);
void watch_free(struct watch *watch);

/* One answer, ready to be handed over: JSON in `out` ("null": there is none). `since`: of events, the newest that
 * there was, for us or not. */
void watch_result(const struct watch *watch, const struct client_answer *answer, uint64_t *since, struct buffer *out);

/* -- running ------------------------------------------------------------------------------------------------------ */
struct watch_stop; /* makes blocking calls end */
struct watch_stop *watch_stop_new(void);
void watch_stop_now(struct watch_stop *stop);  /* any thread */
void watch_stop_soon(struct watch_stop *stop); /* any thread; a handler that runs may end by itself */
void watch_stop_free(struct watch_stop *stop);

/* Blocks: asks `client` and hands over until stopped. `inherit`: handlers write to this process's outputs instead of
 * the log. `baseline`: what events there are at the beginning is not handed over. */
void watch_run(const struct watch *watch, const struct client *client, struct watch_stop *stop, bool inherit,
               bool baseline);

/* All watches of an agent, a thread each. `blocks` were judged; they may be freed. `address`: of the own API,
 * "host:port". `before` (NULL: none): those of its watches whose block is there unchanged go on, and are taken out
 * of it; the rest is still the caller's. One thread at a time. */
struct watches;
struct config_blocks;
struct watches *watches_start(const struct config_blocks *blocks, const char *address, const char *token,
                              struct watches *before);
void watches_soon(struct watches *watches);  /* nothing is asked any more; handlers that run may end by themselves */
void watches_hurry(struct watches *watches); /* they end soon */
void watches_stop(struct watches *watches);  /* waits for that, and frees; NULL: nothing */

#endif
