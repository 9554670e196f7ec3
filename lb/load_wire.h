/* Load hints as they go between processes: many in one frame, of some 40 bytes each, read without a copy.
 *
 * A hint is: flags (1 byte); age and interval in ms; for how long the instance has been known, in ms, unless that is
 * long; its node, unless it is that of the hint before; its id; its service's name, unless that is the id; the load and
 * what else it says, and the share of its keys that it keeps, unless that is all of them, 8 bytes each (IEEE 754,
 * little-endian). Numbers are varints (base/varint.h), names have their size in
 * front. Ages are rounded up, so that a copy never looks newer than what it is of.
 *
 * Pure; any number of threads. */
#ifndef COORD_LB_LOAD_WIRE_H
#define COORD_LB_LOAD_WIRE_H

#include "lb/load.h"

#define LOAD_KNOWN_LONG_NS (600 * UINT64_C(1000000000)) /* known for longer is as good as for ever */

/* Appends hints to `out`. Zero but for `out`; one for each frame. */
struct load_writer {
    struct buffer *out;
    size_t node_at, node_size; /* in `out`: the node of the hint before */
};
void load_write(struct load_writer *writer, const struct load_entry *entry);

/* The next hint of `rest`. Its names point into the frame. CO_NOTFOUND: there is none any more. CO_CORRUPT: what is left
 * is no hint. What its numbers are worth is for load_merge to say. */
struct load_reader {
    struct slice rest; /* at first the whole frame */
    struct slice node;
};
int load_read(struct load_reader *reader, struct load_entry *entry);

#endif
