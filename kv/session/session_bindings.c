/* What hangs on which session: rows of the tables that modules name in their `session_bindings`. A row is the
 * session's id and the thing's key; what is called by another name than its key has that as the value. */
#include "base/check.h"
#include "kv/session/session_internal.h"

static struct slice row(struct slice session, struct slice key, char room[STORE_KEY_MAX]) {
    CHECK(session.size == UUID_TEXT_SIZE && session.size + key.size <= STORE_KEY_MAX);
    memcpy(room, session.data, session.size);
    memcpy(room + session.size, key.data, key.size);
    return slice_make(room, session.size + key.size);
}

void session_bind(struct machine_tx *tx, const struct module_binding *binding, struct slice session, struct slice key,
                  struct slice name) {
    char room[STORE_KEY_MAX];
    CHECK(key.size > 0 && binding->ended);
    store_put(tx->store, binding->number, row(session, key, room), name);
}

void session_unbind(struct machine_tx *tx, const struct module_binding *binding, struct slice session,
                    struct slice key) {
    char room[STORE_KEY_MAX];
    (void)store_del(tx->store, binding->number, row(session, key, room));
}

/* The first thing that is bound to it, in the arena. */
static bool first(struct machine_tx *tx, const struct module_binding *binding, struct slice session,
                  struct slice *name) {
    struct store_cursor cursor;
    store_cursor_open(&cursor, tx->store, binding->number, session);
    bool found = cursor.valid && slice_starts(cursor.key, session);
    if (found) {
        struct slice key = slice_make(cursor.key.data + session.size, cursor.key.size - session.size);
        if (cursor.value.size) key = cursor.value;
        *name = slice_make(arena_strndup(tx->arena, key.data, key.size), key.size);
    }
    store_cursor_close(&cursor);
    return found;
}

static int end_bindings(struct machine_tx *tx, const struct module_binding *binding, const Pb__Session *session) {
    struct slice id = slice_text(session->id), name, before = slice_make(NULL, 0);
    while (first(tx, binding, id, &name)) {
        struct binding_end end = {.owner = id, .name = name, .session = &session->base};
        if (before.data && slice_equal(before, name)) return CO_CORRUPT; /* it is still there after its end */
        int rv = binding->ended(tx, &end);
        if (rv != CO_OK) return rv;
        before = name;
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
