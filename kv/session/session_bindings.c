/* Bindings of things to sessions: rows of the tables that modules name in their `session_bindings`. A row is the
 * session's id and the thing's key; its value is the module's. */
#include "base/check.h"
#include "kv/session/session_internal.h"

static struct slice row(struct slice session, struct slice key, char room[STORE_KEY_MAX]) {
    CHECK(session.size == UUID_TEXT_SIZE && session.size + key.size <= STORE_KEY_MAX);
    memcpy(room, session.data, session.size);
    memcpy(room + session.size, key.data, key.size);
    return slice_make(room, session.size + key.size);
}

void session_bind(struct machine_tx *tx, const struct module_binding *binding, struct slice session, struct slice key,
                  struct slice value) {
    char room[STORE_KEY_MAX];
    CHECK(key.size > 0 && binding->ended);
    store_put(tx->store, binding->number, row(session, key, room), value);
}

void session_unbind(struct machine_tx *tx, const struct module_binding *binding, struct slice session,
                    struct slice key) {
    char room[STORE_KEY_MAX];
    (void)store_del(tx->store, binding->number, row(session, key, room));
}

int session_bound(struct store_txn *txn, const struct module_binding *binding, struct slice session, struct slice key,
                  struct slice *value) {
    char room[STORE_KEY_MAX];
    if (session.size != UUID_TEXT_SIZE) return CO_NOTFOUND;
    return store_get(txn, binding->number, row(session, key, room), value);
}

/* Copies the first thing that is bound to the session into the arena. */
static bool first(struct machine_tx *tx, const struct module_binding *binding, struct slice session,
                  struct binding_end *end) {
    struct store_cursor cursor;
    store_cursor_open(&cursor, tx->store, binding->number, session);
    bool found = cursor.valid && slice_starts(cursor.key, session);
    if (found) {
        end->name = slice_copy(tx->arena, session_bound_key(&cursor));
        end->value = slice_copy(tx->arena, cursor.value);
        CHECK(end->name.size + UUID_TEXT_SIZE == cursor.key.size);
    }
    store_cursor_close(&cursor);
    return found;
}

static int end_bindings(struct machine_tx *tx, const struct module_binding *binding, const Pb__Session *session) {
    struct slice id = slice_text(session->id), before = slice_make(NULL, 0);
    struct binding_end end = {.owner = id, .session = &session->base};
    while (first(tx, binding, id, &end)) {
        if (before.data && slice_equal(before, end.name)) return CO_CORRUPT; /* `ended` has not unbound it */
        CHECK(end.owner.size == UUID_TEXT_SIZE && end.session);
        int rv = binding->ended(tx, &end);
        if (rv != CO_OK) return rv;
        before = end.name;
    }
    return CO_OK;
}

int session_end_bindings(struct machine_tx *tx, const Pb__Session *session) {
    const struct modules *modules = machine_modules(tx->machine);
    int rv = CO_OK;
    for (size_t i = 0; i < modules_count(modules) && rv == CO_OK; i++) {
        const struct module_binding *binding = modules_at(modules, i)->session_bindings;
        for (; binding && binding->number && rv == CO_OK; binding++) rv = end_bindings(tx, binding, session);
    }
    return rv;
}

bool session_is_idle(struct machine_tx *tx, struct slice session) {
    const struct modules *modules = machine_modules(tx->machine);
    struct binding_end ignored;
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module_binding *binding = modules_at(modules, i)->session_bindings;
        for (; binding && binding->number; binding++)
            if (first(tx, binding, session, &ignored)) return false;
    }
    return true;
}
