/* Sessions: the owners of locks and other things. A session ends when it is destroyed, when its TTL is over, or when
 * its node or one of its checks is lost. A module of its own, with the functions by which other modules bind things to
 * sessions. */
#ifndef COORD_KV_SESSION_H
#define COORD_KV_SESSION_H

#include "base/text.h"
#include "kv/session/session.pb-c.h"
#include "registry/machine.h"

enum session_command { SESSION_CREATE = 33, SESSION_DESTROY = 34, SESSION_TTL = 40 };
enum session_space {
    SPACE_SESSION = 33,       /* a session id */
    SPACE_SESSION_TABLE = 34, /* name "" */
    SPACE_SESSION_NODE = 35,  /* sessions of a node */
};

#define LOCK_DELAY_MAX_NS INT64_C(60000000000) /* a longer delay is stored as it was written, and counts as this */

extern const struct module session_module;
extern const struct expiry_kind session_expiry; /* kind 0; name: the id; a period of 0: the session does not end by
                                                 * itself */
extern const struct query_type query_session;   /* SessionRequest -> Session; found=false */
extern const struct query_type query_sessions;  /* SessionListRequest -> SessionsResult */

/* -- access: any thread, for module_command.may and query_type.show of modules that use sessions ------------------- */

/* May the session of this id be renewed, changed or ended? CO_OK (also when there is none), CO_DENIED, or the store
 * failed. */
int session_may_write(struct access_check *check, struct store_txn *txn, struct slice id);
/* A command that makes a session needs session:write on its node. One that acts for a session that is there needs
 * nothing: as in Consul the session's ID is enough, because clients make locks with sessions of others. CO_OK or
 * CO_DENIED. */
int session_may_use(struct access_check *check, const Pb__SessionUse *use);
/* For rows of a list: false counts it as hidden. */
bool session_shows(struct access_check *check, const Pb__Session *session);
/* The node of a session in a record of something else: "" unless the token may read sessions of the node. */
void session_node_show(const struct access_check *check, char **node);

/* -- for other modules (applier thread; tx is an entry being applied) --------------------------------------------- */

/* Any thread. Unpacks the session's record into the arena. CO_OK, CO_NOTFOUND, CO_CORRUPT, or the store failed. */
int session_get(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Session **session);
/* CO_OK, CO_NOTFOUND, or the store failed. */
int session_exists(struct store_txn *txn, struct slice id);

/* The session that a command acts for: it names one, or this makes one in the same entry (`?ttl=`). The command must
 * not have written anything before. CO_OK: either `result` refuses (CO_NOTFOUND: no such session; CO_INVALID), or
 * *session is the session, in the tx arena. Not CO_OK: the store failed. A new session stays when the command is
 * refused afterwards: so refuse before, or let its TTL end it. */
int session_ensure(struct machine_tx *tx, const Pb__SessionUse *use, struct machine_result *result,
                   Pb__Session **session);
/* Makes a session from a record that has all fields but the indexes. Returns as above. */
int session_create(struct machine_tx *tx, Pb__Session *session, struct machine_result *result);

/* Binds the thing of `key` to a session; `binding` stands in the module's `session_bindings`, its number is the store
 * table that the rows are in. `key`: unique within the session, at most STORE_KEY_MAX - UUID_TEXT_SIZE bytes. `value`:
 * the module's own bytes for session_bound and for the end. Binding again replaces the value. When the session ends,
 * binding->ended is called for each, in the same entry. */
void session_bind(struct machine_tx *tx, const struct module_binding *binding, struct slice session, struct slice key,
                  struct slice value);
void session_unbind(struct machine_tx *tx, const struct module_binding *binding, struct slice session,
                    struct slice key);
/* The value that was bound: CO_OK; CO_NOTFOUND: the thing is not bound to it; or the store failed. It points into the
 * map. */
int session_bound(struct store_txn *txn, const struct module_binding *binding, struct slice session, struct slice key,
                  struct slice *value);
/* The keys that are bound to a session by this binding, in order, from the beginning. */
#define SESSION_EACH_BOUND(cursor, txn, binding, session) STORE_PREFIX(cursor, txn, (binding)->number, session)
static inline struct slice session_bound_key(const struct store_cursor *cursor) {
    return slice_make(cursor->key.data + UUID_TEXT_SIZE, cursor->key.size - UUID_TEXT_SIZE);
}
/* To be called after a client's command has unbound something. A session that a command made (SessionUse.create) ends
 * with the last thing that is bound to it, because perhaps nobody else knows of it. CO_OK, or the store failed. */
int session_end_idle(struct machine_tx *tx, struct slice session);

#endif
