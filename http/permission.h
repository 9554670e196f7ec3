/* The right that a row of the routing table asks of a request's token (http/route.h). */
#ifndef COORD_HTTP_PERMISSION_H
#define COORD_HTTP_PERMISSION_H

#include "registry/access.h"

struct http_request;

struct permission {
    bool needed; /* else everybody may */
    bool rows;   /* a list, of which the token sees some rows */
    enum access_resource resource;
    enum access_level level;
    /* ":x", "*x", "+x": the value of the path; "?x": the parameter; "this agent"; NULL: the row does not say */
    const char *of;
};
bool permission_parse(const char *text, struct permission *permission); /* of a row; false: it is malformed */
/* Calls `then` if the request is allowed, as far as its row says; maybe later. Else it replies. Rows that are not
 * HTTP_LOCAL are left to the server that is asked, by a client agent, and for another region. */
void permission_check(struct http_request *request, void (*then)(struct http_request *request));
/* Of an answer that goes on, of an HTTP_LOCAL row that names its thing: may the request still have it? A client agent cannot
 * tell without asking, so there it may not once access control has changed since `generation`. */
bool permission_holds(struct http_request *request, uint64_t generation);

#endif
