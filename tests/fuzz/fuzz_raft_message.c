/* Any bytes as a message of a peer, or as a configuration: refused, or something that can be sent on and is the same
 * then. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "consensus/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct raft_message *message) {
    struct buffer first = {0}, second = {0};
    struct raft_message again;
    raft_message_encode(message, &first);
    CHECK(raft_message_decode(buffer_slice(&first), &again) == CO_OK);
    raft_message_encode(&again, &second);
    CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    raft_message_drop(&again);
    buffer_free(&first);
    buffer_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* A copy of just this size, so that a read past the end is seen. */
    char *exact = malloc(size ? size : 1);
    if (size) memcpy(exact, data, size);
    struct raft_message message;
    if (raft_message_decode(slice_make(exact, size), &message) == CO_OK) check_again(&message);
    raft_message_drop(&message);
    struct raft_members members;
    int rv = raft_members_decode(slice_make(exact, size), &members);
    CHECK(rv == CO_OK || rv == CO_CORRUPT);
    CHECK(members.count <= RAFT_MEMBERS_MAX && raft_members_voters(&members) <= members.count);
    free(exact);
    return 0;
}
