/* How many fields a frame holds, before it is unpacked: two bytes on the wire are hundreds in memory. Protocol Buffers' encoding. */
#ifndef COORD_RPC_FRAME_FIELDS_H
#define COORD_RPC_FRAME_FIELDS_H

#include <stdbool.h>

#include "base/buffer.h"

#define FRAME_FIELDS_MAX 65536      /* of any frame */

/* At most `most` fields, and each message in field 1 at most `most_within` (0: it is not looked into). False as well: it does not decode. */
bool frame_fields_fit(struct slice payload, size_t most, size_t most_within);

#endif
