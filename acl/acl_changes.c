/* The query with which client agents follow the state of access control. */
#include "acl/acl_internal.h"

static struct watch_key watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_ACL_ALL, slice_make("", 0)};
}

static int run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    Pb__AclChanges *changes = arena_alloc(arena, sizeof *changes);
    (void)request;
    pb__acl_changes__init(changes);
    changes->index = machine_change_index(txn, SPACE_ACL_ALL, slice_make("", 0));
    *result = (struct query_result){changes->index, true, &changes->base};
    return store_txn_error(txn);
}

/* Everybody: clients see the same in the time at which they are refused. */
static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result) {
    (void)check, (void)txn, (void)request, (void)result;
    return CO_OK;
}

const struct query_type query_acl_changes = {.number = 237,
                                             .name = "acl-changes",
                                             .request = &pb__acl_changes_request__descriptor,
                                             .result = &pb__acl_changes__descriptor,
                                             .watched = watched,
                                             .run = run,
                                             .show = show};
