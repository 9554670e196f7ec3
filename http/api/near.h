/* http_read and http_read_fresh (http/http.h) for a query that lb/near.h can sort: as ?near= wants it, if it is there. */
#ifndef COORD_HTTP_API_NEAR_H
#define COORD_HTTP_API_NEAR_H

#include "http/http.h"

void http_read_near(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                    http_view view);
void http_read_near_fresh(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                          http_view view, const void *context);

#endif
