/* Between the files of /v1/catalog. */
#ifndef COORD_HTTP_API_CATALOG_H
#define COORD_HTTP_API_CATALOG_H

#include "http/http.h"

void catalog_register(struct http_request *request);
void catalog_deregister(struct http_request *request);

/* catalog_definition.c: appends a check's Definition as it is stored, JSON text. */
void catalog_definition_write(struct buffer *text, struct json_object *in, struct fault *fault);

#endif
