/* Shared by the files of network coordinates only. */
#ifndef COORD_LB_COORDINATE_INTERNAL_H
#define COORD_LB_COORDINATE_INTERNAL_H

#include "lb/coordinate.h"

/* Keys of COORDINATE_TABLE; `room`: STORE_KEY_MAX bytes. */
struct slice coordinate_key(char *room, struct slice node, struct slice segment);
struct slice coordinate_keys(char *room, struct slice node); /* the beginning of a node's keys */

#endif
