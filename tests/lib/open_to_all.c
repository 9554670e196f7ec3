#include "tests/lib/open_to_all.h"

int open_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    (void)check, (void)txn, (void)request;
    return CO_OK;
}

int open_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
              struct query_result *result) {
    (void)check, (void)txn, (void)request, (void)result;
    return CO_OK;
}
