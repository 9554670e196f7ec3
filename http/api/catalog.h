/* Between the files of /v1/catalog. */
#ifndef COORD_HTTP_API_CATALOG_H
#define COORD_HTTP_API_CATALOG_H

#include "http/http.h"
#include "registry/catalog.h"

void catalog_register(struct http_request *request);
void catalog_deregister(struct http_request *request);

/* Tells who registers what of it DNS cannot say (registry/undiscoverable.h): X-Coord-Warning on the answer. Either
 * may be NULL. */
void catalog_warn(struct http_request *request, const Pb__Node *node, const Pb__Service *service);

/* catalog_definition.c: appends a check's Definition as it is stored, JSON text. */
void catalog_definition_write(struct buffer *text, struct json_object *in, struct fault *fault);
/* What a check with this Definition does: "http", "tcp", ...; "" when it says nothing of it. NULL: there is none. */
const char *catalog_definition_type(struct json_object *in, struct fault *fault);

#endif
