/* Queries of operators: by operator:read they show all rows, whatever other rules the token has, else CO_DENIED. */
#ifndef COORD_REGISTRY_OPERATOR_QUERIES_H
#define COORD_REGISTRY_OPERATOR_QUERIES_H

#include "registry/module.h"

extern const struct query_type query_all_members;     /* as query_members (registry/catalog.h) */
extern const struct query_type query_trusted_regions; /* as query_trust (registry/trust.h), for all of it */

#endif
