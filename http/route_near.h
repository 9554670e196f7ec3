/* For whoever mistypes a path or asks it with the wrong method: what was meant. Only for errors: it walks the whole
 * table. */
#ifndef COORD_HTTP_ROUTE_NEAR_H
#define COORD_HTTP_ROUTE_NEAR_H

#include "base/buffer.h"
#include "http/route.h"

/* Appends `PUT /v1/lock/:name/acquire`: the endpoint that `path` most likely means, one of `method` before others.
 * `only_method`: of no other. False: nothing is like it. */
bool route_nearest(struct slice path, unsigned method, bool only_method, struct buffer *out);

/* Appends the endpoint that `path` is with another method and that has this parameter. False: there is none. */
bool route_with_parameter(struct slice path, unsigned method, struct slice parameter, struct buffer *out);

/* Appends a row's path as people read it: `/v1/lock/:name/acquire`. */
void route_show(const struct http_route *route, unsigned method, struct buffer *out);

#endif
