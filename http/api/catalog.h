/* Shared by the files of /v1/catalog. */
#ifndef COORD_HTTP_API_CATALOG_H
#define COORD_HTTP_API_CATALOG_H

#include "http/http.h"
#include "registry/catalog.h"

void catalog_register(struct http_request *request);
void catalog_deregister(struct http_request *request);

/* Adds X-Coord-Warning to the answer when DNS cannot express names of the registration (registry/undiscoverable.h).
 * Either may be NULL. */
void catalog_warn(struct http_request *request, const Pb__Node *node, const Pb__Service *service);

/* catalog_definition.c: appends a check's Definition as it is stored, JSON text. */
void catalog_definition_write(struct buffer *text, struct json_object *in, struct fault *fault);
/* The type of a check with this Definition: "http", "tcp", ...; "" when the Definition names none. NULL: there is no
 * Definition. */
const char *catalog_definition_type(struct json_object *in, struct fault *fault);

#endif
