#include "registry/access_operator.h"

static const struct slice nothing = SLICE_LITERAL("");

int access_operator_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    (void)txn, (void)request;
    return access_require(check, ACCESS_OPERATOR, nothing, ACCESS_WRITE);
}

int access_operator_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                         struct query_result *result) {
    (void)txn, (void)request, (void)result;
    return access_require(check, ACCESS_OPERATOR, nothing, ACCESS_READ);
}

bool access_operator_reads(const struct access_check *check) {
    return access_allows(check->access, ACCESS_OPERATOR, nothing, ACCESS_READ);
}
