/* Services of all regions in one answer: this region's own catalog, and the copies of the others (multi-dc/copy.h), in
 * one transaction. */
#ifndef COORD_MULTI_DC_GLOBAL_H
#define COORD_MULTI_DC_GLOBAL_H

#include "multi-dc/copy.h"
#include "multi-dc/global.pb-c.h"
#include "multi-dc/region.h"

extern const struct module global_module;

/* GlobalRequest -> GlobalServiceResult. Unknown regions are left out. Without `nearest`: this region first, then the
 * others by name. With `nearest` at most one region, the first with instances that DNS would give out (passing or
 * warning). Reachable regions come before others, and then the nearest first (Region.rtt_us), then by name. */
extern const struct query_type query_global;

#endif
