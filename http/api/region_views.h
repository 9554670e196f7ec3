/* How this process sees the regions, for endpoints that show it. */
#ifndef COORD_HTTP_API_REGION_VIEWS_H
#define COORD_HTTP_API_REGION_VIEWS_H

#include "http/http.h"
#include "multi-dc/region.h"

/* Asks for it (rpc_ask_regions), then `view`, on the worker, must reply. With an error `seen` is NULL; else it is in the
 * request's arena, this region among the others, which come in the order of their distance: this one, then those whose
 * distance is known, the nearest first, then the rest by name. */
typedef void (*http_regions_view)(struct http_request *request, int error, const Pb__PeerRegionsAnswer *seen);
void http_ask_regions(struct http_request *request, http_regions_view view);

/* The same with what this region has, and what it knows of the others. All of it lives as long as the request. */
struct regions_shown {
    const ProtobufCMessage *own; /* the records of a query; NULL: there are none */
    uint64_t index;              /* of that query's result */
    const Pb__RegionsResult *records;
    const Pb__PeerRegionsAnswer *seen; /* as http_ask_regions has it */
    const void *context;               /* the request's, as http_show_regions found it */
};
typedef void (*http_regions_shown)(struct http_request *request, const struct regions_shown *shown);
/* Runs the query (NULL: none) on a server's own state, then `view`, on the worker, must reply. Errors are replied here. */
void http_show_regions(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                       http_regions_shown view);

const Pb__Region *region_record(const Pb__RegionsResult *records, const char *name);    /* NULL: it is not among them */
const Pb__PeerRegion *region_seen(const Pb__PeerRegionsAnswer *seen, const char *name); /* NULL: it is not among them */

/* Members Region; AsOf, how old at most what is known of it is (milliseconds; null: not known since the start of the server
 * that answers); Reachable. */
void region_write_origin(struct json_out *json, const char *name, const Pb__PeerRegionsAnswer *seen);
/* RoundTrip, where it is known. NULL allowed. */
void region_write_round_trip(struct json_out *json, const Pb__PeerRegion *seen);

#endif
