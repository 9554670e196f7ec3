/* Messages of peers, unpacked for no more memory than they may mean: two bytes on the wire are a hundred and more in
 * memory (an empty item and its place in a list, a field that is not known), so sixteen megabytes of them were
 * gigabytes. */
#ifndef COORD_RPC_FRAME_UNPACK_H
#define COORD_RPC_FRAME_UNPACK_H

#include <protobuf-c/protobuf-c.h>

#include "base/buffer.h"
#include "base/memory.h"

/* beyond the payload's own size. The largest of ours, a read for 10,000 tags, takes 1.5 MiB */
#define FRAME_UNPACK_MORE (4u << 20)

/* NULL: it does not decode, or is made of too much. `arena` NULL: whoever asked frees it with frame_drop. Any
 * thread. */
void *frame_unpack(const ProtobufCMessageDescriptor *type, struct slice payload, struct arena *arena);
void frame_drop(void *message); /* or NULL */

/* For tests: with another limit. */
void *frame_unpack_within(const ProtobufCMessageDescriptor *type, struct slice payload, struct arena *arena,
                          size_t most);

#endif
