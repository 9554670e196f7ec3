/* pb.KvCommand, read in place: the one message of the hot path is looked at without copying key and value. It
 * accepts what protobuf accepts: fields in any order, the last one wins, unknown ones are passed over. */
#ifndef COORD_KV_KV_COMMAND_H
#define COORD_KV_KV_COMMAND_H

#include "base/buffer.h"

struct kv_command_view {
    uint32_t verb;
    struct slice key, value, session, lease, fence; /* slices of the payload; data is never NULL */
    uint64_t flags, index, token;
    bool want_token;
};

bool kv_command_decode(struct slice payload, struct kv_command_view *command);

#endif
