/* For modules: judgements of commands and queries that are about the cluster as a whole. */
#ifndef COORD_REGISTRY_ACCESS_OPERATOR_H
#define COORD_REGISTRY_ACCESS_OPERATOR_H

#include "registry/module.h"

/* As module_command.may: operator:write. */
int access_operator_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
/* As query_type.show: operator:read, else CO_DENIED. */
int access_operator_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                         struct query_result *result);
/* Has the token operator:read? For queries that show others less. */
bool access_operator_reads(const struct access_check *check);

#endif
