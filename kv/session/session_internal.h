/* Shared by the files of kv/session/ only. */
#ifndef COORD_KV_SESSION_INTERNAL_H
#define COORD_KV_SESSION_INTERNAL_H

#include "base/check.h"
#include "base/text.h"
#include "kv/session/session.h"

enum session_table {
    SESSION_TABLE = 19,       /* id -> TTL in ns (8 bytes), then pb.Session */
    SESSION_TABLE_INDEX = 20, /* node, check (may be empty), id -> nothing */
};
_Static_assert(SESSION_TABLE >= 16 && SESSION_TABLE_INDEX < 32, "tables of kv (registry/module.h)");
_Static_assert(SESSION_CREATE >= 32 && SESSION_TTL < 64, "commands of kv");
_Static_assert(SPACE_SESSION >= 32 && SPACE_SESSION_NODE < 64, "spaces of kv");

/* As module_command.apply, and module.on_event. */
int session_create_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int session_ttl_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int session_destroy_apply(struct machine_tx *tx, void *request, struct machine_result *result);
void session_on_event(struct machine_tx *tx, const struct machine_event *event);

/* As module_command.may and query_type.show. */
int session_create_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int session_destroy_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int session_ttl_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int session_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                 struct query_result *result);
int sessions_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                  struct query_result *result);

/* session_bindings.c: calls `ended` for everything that is bound to the session. CO_OK, or the store failed. */
int session_end_bindings(struct machine_tx *tx, const Pb__Session *session);
bool session_is_idle(struct machine_tx *tx, struct slice session); /* nothing is bound to the session */

int session_unpack(struct slice bytes, struct arena *arena, Pb__Session **session);
int64_t session_record_ttl_ns(struct slice bytes); /* -1: damaged */
/* Beginning of the index rows of a node (check empty) or of one of its checks; the session's id follows. */
struct slice session_index_prefix(struct slice node, struct slice check, char room[STORE_KEY_MAX]);

/* expiry_kind.may */
int session_renew_may(struct access_check *check, struct store_txn *txn, struct slice id, bool look);

#endif
