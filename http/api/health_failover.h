/* ?failover of /v1/health/service: reads the instances of the region that answers in place of this one
 * (multi-dc/failover.h), with all parameters of such reads; and the explanation of such an answer. */
#ifndef COORD_HTTP_API_HEALTH_FAILOVER_H
#define COORD_HTTP_API_HEALTH_FAILOVER_H

#include "http/http.h"
#include "multi-dc/failover.h"

/* False: there is no ?failover, and nothing was done. Else it has replied, or will. */
bool health_failover_read(struct http_request *request, const Pb__ServiceRequest *message);

/* The region that is asked: this one, or that of ?dc=. */
char *failover_own(struct http_request *request);

#endif
