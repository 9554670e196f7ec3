/* For modules of tests: every token may send a command, and sees an answer as it is. */
#ifndef COORD_TESTS_LIB_OPEN_TO_ALL_H
#define COORD_TESTS_LIB_OPEN_TO_ALL_H

#include "registry/module.h"

int open_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int open_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
              struct query_result *result);

#endif
