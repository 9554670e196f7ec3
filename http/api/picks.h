/* Instances ready to be picked from (lb/balance.h), together with their JSON. Each worker keeps them until the
 * catalog's generation of their service changes. On servers they come from the store; on client agents from a copy that
 * the agent keeps current from the first request on (rpc_query_now), as for DNS.
 *
 * Results are valid until the request is answered. For the worker's thread. */
#ifndef COORD_HTTP_API_PICKS_H
#define COORD_HTTP_API_PICKS_H

#include "http/http.h"
#include "lb/balance.h"

struct picks_load { /* a number as JSON, kept because formatting it takes longer than a pick */
    double load;
    uint8_t size; /* 0: not written yet */
    char text[31];
};
struct picks_kept {
    struct balance *balance;
    const struct slice *entries; /* each as /v1/health/service shows it */
    const struct slice *heads;   /* {"ID":...,"Node":..., of each, without its end */
    struct picks_load *loads;    /* as last formatted */
    uint64_t index;              /* of the catalog: the last change of the service */
};
/* CO_OK, or why there are none. CO_AGAIN: they are on their way to this client agent, ask again in some ms. */
int picks_find(struct http_request *request, struct slice service, uint64_t now_ns, const struct picks_kept **kept);

/* Appends the load of an instance, or null. */
void picks_write_load(struct json_out *json, const struct picks_kept *kept, size_t instance, double load);

/* For policy nearest: measures the round trips from this agent to the instances, when a measurement is due. */
void picks_measure(struct http_request *request, struct balance *balance, struct slice service, uint64_t now_ns);

/* Parses ?policy= or ?lb= (`parameter`; NULL: neither), key and tag of a request. False: it has replied. */
bool picks_ask(struct http_request *request, const char *parameter, struct balance_ask *ask);

/* -- made and freed for each worker by http/api/topics.c ------------------------------------------------------------- */
struct picks;
struct picks *picks_new(struct rpc *rpc, size_t bytes);
void picks_free(struct picks *picks); /* NULL allowed */

#endif
