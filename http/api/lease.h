/* What other endpoints share with /v1/lease. */
#ifndef COORD_HTTP_API_LEASE_H
#define COORD_HTTP_API_LEASE_H

#include "http/http.h"

/* A lease that something is to be bound to, as the client gave it in `what`: *id in lower case, in the arena. False:
 * it is no id, or the cluster has no leases yet; it has replied. */
bool lease_id(struct http_request *request, const char *what, struct slice text, char **id);
/* Answers that http_renew did not find the lease, or what else it said. */
void lease_refuse(struct http_request *request, int error, const char *id);

#endif
