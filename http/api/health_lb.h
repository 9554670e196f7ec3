/* ?lb= and ?subset= on /v1/health/service. */
#ifndef COORD_HTTP_API_HEALTH_LB_H
#define COORD_HTTP_API_HEALTH_LB_H

#include "http/api/picks.h"

#define HEALTH_SUBSET_MOST 100000

/* Reads the service with these parameters. False: the request has neither. When it refuses the request it has replied.
 * `message` as for http_read_near. */
bool health_lb_read(struct http_request *request, const Pb__ServiceRequest *message);

#endif
