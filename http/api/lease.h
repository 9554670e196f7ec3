/* The parts of /v1/lease that other endpoints use. */
#ifndef COORD_HTTP_API_LEASE_H
#define COORD_HTTP_API_LEASE_H

#include "http/http.h"

/* Parses the id of a lease to which something is to be bound, as the client gave it in `what`: *id in lower case, in
 * the arena. False: it is no valid id; it has replied. */
bool lease_id(struct http_request *request, const char *what, struct slice text, char **id);
/* Replies that http_renew did not find the lease, or its other error. */
void lease_refuse(struct http_request *request, int error, const char *id);

#endif
