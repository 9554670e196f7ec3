/* Load hints as they go between processes: many in one frame, of some 40 bytes each, read without a copy.
 *
 * A hint is: flags (1 byte); age and interval in ms; the time since the instance became known in ms, unless that is
 * long; its node, unless that of the hint before is the same; its id; its service's name, unless it equals the id; the
 * load and the other reported figures, and the share of its keys, unless that is 1, with 8 bytes each (IEEE 754,
 * little-endian). Numbers are varints (base/varint.h), names have their size in front. Ages are rounded up, so that a
 * copy never looks newer than its original.
 *
 * Pure; any number of threads. */
#ifndef COORD_LB_LOAD_WIRE_H
#define COORD_LB_LOAD_WIRE_H

#include "lb/load.h"

#define LOAD_KNOWN_LONG_NS (600 * UINT64_C(1000000000)) /* from then on as good as for ever */

/* Appends hints to `out`. Zero but for `out`; one for each frame. */
struct load_writer {
    struct buffer *out;
    size_t node_at, node_size; /* in `out`: the node of the hint before */
};
void load_write(struct load_writer *writer, const struct load_entry *entry);

/* Reads the next hint of `rest`. Its names point into the frame. CO_NOTFOUND: there are no more. CO_CORRUPT: the rest
 * is no hint. load_merge checks the numbers. */
struct load_reader {
    struct slice rest; /* at first the whole frame */
    struct slice node;
};
int load_read(struct load_reader *reader, struct load_entry *entry);

#endif
