/* Unpacks messages of peers with a limit on memory: two bytes on the wire can become a hundred and more in memory (an
 * empty item and its place in a list, an unknown field), so sixteen megabytes of them would become gigabytes. */
#ifndef COORD_RPC_FRAME_UNPACK_H
#define COORD_RPC_FRAME_UNPACK_H

#include <protobuf-c/protobuf-c.h>

#include "base/buffer.h"
#include "base/memory.h"

/* beyond the payload's own size. The largest of ours, a read for 10,000 tags, takes 1.5 MiB */
#define FRAME_UNPACK_MORE (4u << 20)

/* NULL: it does not decode, or takes too much memory. `arena` NULL: the caller frees it with frame_drop. Any thread. */
void *frame_unpack(const ProtobufCMessageDescriptor *type, struct slice payload, struct arena *arena);
void frame_drop(void *message); /* or NULL */

/* For tests: with another limit. */
void *frame_unpack_within(const ProtobufCMessageDescriptor *type, struct slice payload, struct arena *arena,
                          size_t most);

#endif
