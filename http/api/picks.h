/* Instances ready to be picked from (lb/balance.h), kept by each worker for as long as the catalog's generation of their
 * service stands, together with their JSON. On servers they come from the store; on client agents from a copy that the
 * agent keeps current from the first request on (rpc_query_now), as for DNS.
 *
 * What a function gives is valid until the request is answered. Worker's thread. */
#ifndef COORD_HTTP_API_PICKS_H
#define COORD_HTTP_API_PICKS_H

#include "http/http.h"
#include "lb/balance.h"

struct picks_load { /* a number as JSON, written once: that takes longer than a pick */
    double load;
    uint8_t size; /* 0: not written yet */
    char text[31];
};
struct picks_kept {
    struct balance *balance;
    const struct slice *entries; /* each as /v1/health/service shows it */
    const struct slice *heads;   /* {"ID":...,"Node":..., of each, without its end */
    struct picks_load *loads;    /* as they were written last */
    uint64_t index;              /* of the catalog: the last change of the service */
};
/* CO_OK, or why there is none. CO_AGAIN: it is on its way to this client agent, ask again in some ms. */
int picks_find(struct http_request *request, struct slice service, uint64_t now_ns, const struct picks_kept **kept);

/* Appends the load of an instance, or null. */
void picks_write_load(struct json_out *json, const struct picks_kept *kept, size_t instance, double load);

/* Replies 200 with what was written to http_out. The same bytes are often the answer again, so that the response is kept
 * with its headers: making one takes as long as all the rest. */
void picks_reply(struct http_request *request);

/* For policy nearest: measures from this agent to the instances, if it is time. */
void picks_measure(struct http_request *request, struct balance *balance, struct slice service, uint64_t now_ns);
struct rng *picks_rng(struct http_request *request);

/* What a request asks for by ?policy= or ?lb= (`parameter`; NULL: by neither), key and tag. False: it has replied. */
bool picks_ask(struct http_request *request, const char *parameter, struct balance_ask *ask);

/* -- made and freed for each worker by http/api/topics.c ------------------------------------------------------------- */
struct picks;
struct picks *picks_new(struct rpc *rpc, size_t bytes);
void picks_free(struct picks *picks); /* NULL allowed */

#endif
