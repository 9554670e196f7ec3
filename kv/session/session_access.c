/* Sessions are read and written by the rules for their nodes, as in Consul; those without a node by the rule for "". */
#include "base/message.h"
#include "kv/session/session_internal.h"

static int write_on(struct access_check *check, const Pb__Session *session) {
    return access_require(check, ACCESS_SESSION, slice_text(session->node), ACCESS_WRITE);
}

int session_may_write(struct access_check *check, struct store_txn *txn, struct slice id) {
    Pb__Session *session;
    int rv = session_get(txn, id, check->arena, &session);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    return write_on(check, session);
}

int session_may_use(struct access_check *check, const Pb__SessionUse *use) {
    return use && use->create ? write_on(check, use->create) : CO_OK;
}

bool session_shows(struct access_check *check, const Pb__Session *session) {
    return access_shows(check, ACCESS_SESSION, slice_text(session->node));
}

void session_node_show(const struct access_check *check, char **node) {
    if (!access_allows(check->access, ACCESS_SESSION, slice_text(*node), ACCESS_READ)) *node = (char *)(uintptr_t) "";
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

int session_create_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__SessionCreateCommand *command = (const Pb__SessionCreateCommand *)request;
    (void)txn;
    return command->session ? write_on(check, command->session) : CO_OK; /* it is refused when it is applied */
}

int session_destroy_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    return session_may_write(check, txn, slice_text(((const Pb__SessionDestroyCommand *)request)->id));
}

int session_ttl_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    return session_may_write(check, txn, slice_text(((const Pb__SessionTtlCommand *)request)->id));
}

int session_renew_may(struct access_check *check, struct store_txn *txn, struct slice id, bool look) {
    Pb__Session *session;
    if (id.size == 0) return access_require_below(check, ACCESS_SESSION, id, ACCESS_READ); /* the time of all of them */
    if (!look) return session_may_write(check, txn, id);
    int rv = session_get(txn, id, check->arena, &session);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    return access_require(check, ACCESS_SESSION, slice_text(session->node), ACCESS_READ);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

/* A session that is not there has no node, so who may not read one is told that it is not there. */
int session_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                 struct query_result *result) {
    (void)txn, (void)request;
    if (result->found && !session_shows(check, (const Pb__Session *)result->message))
        *result = (struct query_result){0};
    return CO_OK;
}

int sessions_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                  struct query_result *result) {
    Pb__SessionsResult *list = (Pb__SessionsResult *)result->message;
    (void)txn, (void)request;
    ACCESS_KEEP_ROWS(list->n_sessions, list->sessions, session_shows(check, row));
    return CO_OK;
}
