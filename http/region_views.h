/* How this process sees the regions, for endpoints that show it. */
#ifndef COORD_HTTP_REGION_VIEWS_H
#define COORD_HTTP_REGION_VIEWS_H

#include "http/http.h"

/* Asks for it (rpc_ask_regions), then `view`, on the worker, must reply. With an error `seen` is NULL; else it is in the
 * request's arena, this region among the others, which come in the order of their distance: this one, then those whose
 * distance is known, the nearest first, then the rest by name. */
typedef void (*http_regions_view)(struct http_request *request, int error, const Pb__PeerRegionsAnswer *seen);
void http_ask_regions(struct http_request *request, http_regions_view view);

const Pb__PeerRegion *region_seen(const Pb__PeerRegionsAnswer *seen, const char *name); /* NULL: it is not among them */

#endif
