/* Finds the endpoint that was probably meant by a mistyped path, or a wrong method. Only for errors, because it walks
 * the whole table. */
#ifndef COORD_HTTP_ROUTE_NEAR_H
#define COORD_HTTP_ROUTE_NEAR_H

#include "base/buffer.h"
#include "http/route.h"

/* Appends `PUT /v1/lock/:name/acquire`: the endpoint that `path` most likely means, preferably one with `method`.
 * `only_method`: only such ones. False: none is similar. */
bool route_nearest(struct slice path, unsigned method, bool only_method, struct buffer *out);

/* Appends the endpoint with this path, another method, and this parameter. False: there is none. */
bool route_with_parameter(struct slice path, unsigned method, struct slice parameter, struct buffer *out);

/* Appends a row's path as people read it: `/v1/lock/:name/acquire`. */
void route_show(const struct http_route *route, unsigned method, struct buffer *out);

#endif
