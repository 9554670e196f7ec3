/* Between the files of /v1/catalog. */
#ifndef COORD_HTTP_API_CATALOG_H
#define COORD_HTTP_API_CATALOG_H

#include "http/http.h"

void catalog_register(struct http_request *request);
void catalog_deregister(struct http_request *request);

#endif
