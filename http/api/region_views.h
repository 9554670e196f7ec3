/* The regions as this process sees them, for endpoints that show them. */
#ifndef COORD_HTTP_API_REGION_VIEWS_H
#define COORD_HTTP_API_REGION_VIEWS_H

#include "http/http.h"
#include "multi-dc/region.h"

/* Asks by rpc_ask_regions, then calls `view` on the worker, which must reply. With an error `seen` is NULL; else it is
 * in the request's arena. The order of the regions: this one, then those whose distance is known, the nearest first,
 * then the rest by name. */
typedef void (*http_regions_view)(struct http_request *request, int error, const Pb__PeerRegionsAnswer *seen);
void http_ask_regions(struct http_request *request, http_regions_view view);

/* The same together with the result of a query and the records of the regions. All of it lives as long as the
 * request. */
struct regions_shown {
    const ProtobufCMessage *own; /* the records of a query; NULL: there are none */
    uint64_t index;              /* of that query's result */
    const Pb__RegionsResult *records;
    const Pb__PeerRegionsAnswer *seen; /* as of http_ask_regions */
    const void *context;               /* the request's context when http_show_regions was called */
};
typedef void (*http_regions_shown)(struct http_request *request, const struct regions_shown *shown);
/* Runs the query (NULL: none) on a server's own state, then calls `view` on the worker, which must reply. Errors are
 * replied here. */
void http_show_regions(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                       http_regions_shown view);

const Pb__Region *region_record(const Pb__RegionsResult *records, const char *name);    /* NULL: it is not among them */
const Pb__PeerRegion *region_seen(const Pb__PeerRegionsAnswer *seen, const char *name); /* NULL: it is not among them */

/* Writes the members Region; AsOf, the greatest age of the data about it (milliseconds; null: the answering server has
 * none since its start); Reachable. */
void region_write_origin(struct json_out *json, const char *name, const Pb__PeerRegionsAnswer *seen);
/* Writes RoundTrip, if it is known. NULL allowed. */
void region_write_round_trip(struct json_out *json, const Pb__PeerRegion *seen);

#endif
