/* Sessions: what locks and other things are held by, until it is destroyed, its TTL is over, or its node or one of
 * its checks is lost. A module of its own, with what others need to hang things on sessions. */
#ifndef COORD_KV_SESSION_H
#define COORD_KV_SESSION_H

#include "kv/session/session.pb-c.h"
#include "registry/machine.h"

enum session_command { SESSION_CREATE = 33, SESSION_DESTROY = 34 };
enum session_space {
    SPACE_SESSION = 33,       /* a session id */
    SPACE_SESSION_TABLE = 34, /* name "" */
    SPACE_SESSION_NODE = 35,  /* sessions of a node */
};

extern const struct module session_module;
extern const struct expiry_kind session_expiry; /* 0: id; a period of 0: it does not end by itself */
extern const struct query_type query_session;   /* SessionRequest -> Session; found=false */
extern const struct query_type query_sessions;  /* SessionListRequest -> SessionsResult */

/* -- for modules whose things belong to sessions (applier thread; tx is an entry being applied) ------------------- */

/* CO_OK, CO_NOTFOUND, or the store failed. */
int session_exists(struct store_txn *txn, struct slice id);

/* The session that a command acts for: the one that it names, or one that is made in the same entry (`?ttl=`). The
 * command must not have written anything before. CO_OK: `result` may refuse it (CO_NOTFOUND: no such session;
 * CO_INVALID), else *session is it, in the tx arena. Not CO_OK: the store failed. A session that was made stays
 * when the command is refused afterwards: refuse before, or let its TTL end it. */
int session_ensure(struct machine_tx *tx, const Pb__SessionUse *use, struct machine_result *result,
                   Pb__Session **session);
/* Makes a session whose fields are filled in but for the indexes. As above. */
int session_create(struct machine_tx *tx, Pb__Session *session, struct machine_result *result);

/* Binds the thing of `key` to a session; `binding` stands in the module's `session_bindings`, its number is the store
 * table that the rows are in. `key`: unique within the session, at most STORE_KEY_MAX - UUID_TEXT_SIZE bytes.
 * `name`: what binding_end.name is to say, where that is not the key; else empty. When the session ends,
 * binding->ended is called for each, in the same entry. */
void session_bind(struct machine_tx *tx, const struct module_binding *binding, struct slice session, struct slice key,
                  struct slice name);
void session_unbind(struct machine_tx *tx, const struct module_binding *binding, struct slice session,
                    struct slice key);

#endif
