/* Services of all regions in one answer: this region's own catalog, and the copies of the others (multi-dc/copy.h), in
 * one transaction. */
#ifndef COORD_MULTI_DC_GLOBAL_H
#define COORD_MULTI_DC_GLOBAL_H

#include "multi-dc/copy.h"
#include "multi-dc/global.pb-c.h"
#include "multi-dc/region.h"

extern const struct module global_module;

/* GlobalRequest -> GlobalServiceResult. Regions that are not known are not in it. Without `nearest`: this region first,
 * then the others by name. With it one region at most: the first that has instances which DNS would give out (passing or
 * warning), of those that can be reached before those that cannot, the nearest first (Region.rtt_us), then by name. */
extern const struct query_type query_global;

#endif
