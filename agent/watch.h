/* Watches: a watch sends a blocking query to an agent's HTTP API again and again, and runs a handler for each new
 * answer. The agent uses them for the "watches" of its configuration files (it queries its own API, as Consul's agents
 * do), and so does `coord watch`.
 *
 *     asking --new answer--> handling --handler ended, or was killed--> asking
 *        '--no answer: after a pause, 1 s to 60 s--'
 *
 * Handlers of a watch run one at a time; changes during a run lead to one further run, with the latest state. An answer
 * with the same bytes is not a change. Of events, a handler gets only those that came since the last answer.
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
    char **argv; /* NULL-terminated; NULL: the handler is a request, or there is none */
    char *token, *datacenter;
    bool stale;
    /* of a request */
    char *url, *method;
    char **headers; /* "Name: value", NULL-terminated */
    int64_t timeout_ns;
    bool tls_skip_verify;
};

/* Parses a "watches" block, or flags in that form. `handler`: the block must name one. NULL and a fault (CO_INVALID,
 * one line, in Consul's words if Consul has the same error). */
struct watch *watch_parse(struct json_object *json, bool handler, struct fault *fault);
void watch_free(struct watch *watch);

/* Turns an answer into the handler's input: JSON in `out` ("null": there is no value). `since`: the newest event so
 * far, for this node or not. */
void watch_result(const struct watch *watch, const struct client_answer *answer, uint64_t *since, struct buffer *out);

/* -- running ------------------------------------------------------------------------------------------------------ */
struct watch_stop; /* makes blocking calls end */
struct watch_stop *watch_stop_new(void);
void watch_stop_now(struct watch_stop *stop);  /* any thread */
void watch_stop_soon(struct watch_stop *stop); /* any thread; lets a running handler end by itself */
void watch_stop_free(struct watch_stop *stop);

/* Blocks: queries `client` and runs handlers until it is stopped. `inherit`: handlers write to this process's outputs
 * instead of the log. `baseline`: events that exist at the beginning are not handed over. */
void watch_run(const struct watch *watch, const struct client *client, struct watch_stop *stop, bool inherit,
               bool baseline);

/* Starts all watches of an agent, each with a thread. `blocks` were checked; they may be freed afterwards. `address`:
 * of this agent's API, "host:port". `before` (NULL: none): its watches with an unchanged block go on, and are moved to
 * the result; the caller still has to stop the others. One thread at a time. */
struct watches;
struct config_blocks;
struct watches *watches_start(const struct config_blocks *blocks, const char *address, const char *token,
                              struct watches *before);
void watches_soon(struct watches *watches);  /* ends the queries; lets running handlers end by themselves */
void watches_hurry(struct watches *watches); /* ends them soon */
void watches_stop(struct watches *watches);  /* ends them, waits for that, and frees; NULL: nothing */

#endif
