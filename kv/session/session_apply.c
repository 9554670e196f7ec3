/* Commands on sessions, and the ends of sessions: by destroy, by the leader's table of deadlines, and by events of the
 * catalog. */
#include "kv/session/session_internal.h"
#include "registry/catalog.h"
#include "registry/fold.h"

/* -- records and index -------------------------------------------------------------------------------------------- */

int64_t session_record_ttl_ns(struct slice bytes) { return bytes.size < 8 ? -1 : (int64_t)get_le64(bytes.data); }

int session_unpack(struct slice bytes, struct arena *arena, Pb__Session **session) {
    if (bytes.size < 8) return CO_CORRUPT;
    *session = machine_decode(&pb__session__descriptor, slice_make(bytes.data + 8, bytes.size - 8), arena);
    return *session ? CO_OK : CO_CORRUPT;
}

int session_exists(struct store_txn *txn, struct slice id) {
    struct slice ignored;
    return id.size == UUID_TEXT_SIZE ? store_get(txn, SESSION_TABLE, id, &ignored) : CO_NOTFOUND;
}

int session_get(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Session **session) {
    struct slice bytes;
    if (id.size != UUID_TEXT_SIZE) return CO_NOTFOUND;
    int rv = store_get(txn, SESSION_TABLE, id, &bytes);
    return rv == CO_OK ? session_unpack(bytes, arena, session) : rv;
}

static void record_put(struct machine_tx *tx, const Pb__Session *session) {
    CHECK(session->ttl_ns >= 0); /* because session_record_ttl_ns takes a TTL below 0 for damage */
    size_t size = pb__session__get_packed_size(session);
    char *bytes = arena_alloc(tx->arena, 8 + size);
    put_le64(bytes, (uint64_t)session->ttl_ns);
    pb__session__pack(session, (uint8_t *)bytes + 8);
    store_put(tx->store, SESSION_TABLE, slice_text(session->id), slice_make(bytes, 8 + size));
}

struct slice session_index_prefix(struct slice node, struct slice check, char room[STORE_KEY_MAX]) {
    const struct slice names[] = {node, check};
    return fold_key(room, ARRAY_COUNT(names), names);
}

static struct slice index_row(struct slice node, struct slice check, struct slice id, char room[STORE_KEY_MAX]) {
    _Static_assert(2 * (STORE_PART_MAX + 2) + UUID_TEXT_SIZE <= STORE_KEY_MAX, "two parts, and the id behind them");
    struct slice prefix = session_index_prefix(node, check, room);
    CHECK(id.size == UUID_TEXT_SIZE);
    CHECK(prefix.data == room && prefix.size + UUID_TEXT_SIZE <= STORE_KEY_MAX);
    memcpy(room + prefix.size, id.data, UUID_TEXT_SIZE);
    return slice_make(room, prefix.size + UUID_TEXT_SIZE);
}

/* The checks that a session is bound to, by number; NULL after the last. */
static const char *bound_check(const Pb__Session *session, size_t number) {
    if (number < session->n_node_checks) return session->node_checks[number];
    number -= session->n_node_checks;
    if (number < session->n_service_checks) return session->service_checks[number];
    number -= session->n_service_checks;
    return number < session->n_checks ? session->checks[number] : NULL;
}

static bool is_bound(const Pb__Session *session, struct slice node, struct slice check) {
    if (!slice_equal_nocase(node, slice_text(session->node))) return false;
    if (check.size == 0) return true;
    const char *bound;
    for (size_t i = 0; (bound = bound_check(session, i)) != NULL; i++)
        if (slice_equal_nocase(check, slice_text(bound))) return true;
    return false;
}

/* Writes or removes the rows of a session: one for its node, one for each check. */
static void index_change(struct machine_tx *tx, const Pb__Session *session, bool put) {
    char room[STORE_KEY_MAX];
    struct slice node = slice_text(session->node), id = slice_text(session->id);
    const char *check = "";
    for (size_t i = 0; check != NULL; check = bound_check(session, i++)) {
        struct slice row = index_row(node, slice_text(check), id, room);
        if (put) store_put(tx->store, SESSION_TABLE_INDEX, row, slice_make("", 0));
        else store_del(tx->store, SESSION_TABLE_INDEX, row); /* false for a check that is named twice */
    }
}

/* Finds a session bound to the node (check empty) or the check. CO_NOTFOUND. */
static int bound_session(struct machine_tx *tx, struct slice node, struct slice check, Pb__Session **session) {
    char room[STORE_KEY_MAX];
    struct slice prefix = session_index_prefix(node, check, room);
    struct store_cursor cursor;
    int rv = CO_NOTFOUND;
    for (store_cursor_open(&cursor, tx->store, SESSION_TABLE_INDEX, prefix);
         cursor.valid && slice_starts(cursor.key, prefix); store_cursor_next(&cursor)) {
        struct slice id = slice_make(cursor.key.data + prefix.size, cursor.key.size - prefix.size);
        rv = session_get(tx->store, id, tx->arena, session);
        if (rv == CO_NOTFOUND) rv = CO_CORRUPT;
        if (rv != CO_OK || is_bound(*session, node, check)) break;
        rv = CO_NOTFOUND;
    }
    store_cursor_close(&cursor);
    return rv;
}

/* -- create ------------------------------------------------------------------------------------------------------- */

/* Refuses here, before the first write, everything that can be refused. The words are Consul's. */
static int create_refused(struct machine_tx *tx, const Pb__Session *session, struct machine_result *result) {
    struct slice ignored;
    struct slice node = slice_text(session->node);
    if (!uuid_valid(slice_text(session->id)))
        return machine_refuse(result, CO_INVALID, "the session's id is not a UUID");
    if (session->ttl_ns < 0 || session->lock_delay_ns < 0)
        return machine_refuse(result, CO_INVALID, "negative duration");
    int rv = store_get(tx->store, SESSION_TABLE, slice_text(session->id), &ignored);
    if (rv == CO_OK) return machine_refuse(result, CO_EXISTS, "a session of this id exists already");
    if (rv != CO_NOTFOUND) return rv;
    /* The session of a client in another region, whose node is not registered here: only its TTL ends it. */
    bool afar = session->ttl_ns > 0;
    if (node.size == 0 && afar && !bound_check(session, 0)) return CO_OK;
    if (node.size == 0) return machine_refuse(result, CO_INVALID, "Must provide Node");
    if (!catalog_node_exists(tx->store, node)) return machine_refuse(result, CO_INVALID, "Missing node registration");
    const char *check;
    for (size_t i = 0; (check = bound_check(session, i)) != NULL; i++) {
        Pb__Status status;
        rv = check[0] ? catalog_check_status(tx->store, node, slice_text(check), &status) : CO_NOTFOUND;
        if (rv == CO_NOTFOUND)
            return machine_refuse(result, CO_INVALID,
                                  arena_printf(tx->arena, "Missing check '%s' registration", check));
        if (rv != CO_OK) return rv;
        if (status == PB__STATUS__CRITICAL)
            return machine_refuse(result, CO_INVALID,
                                  arena_printf(tx->arena, "Check '%s' is in critical state", check));
    }
    return CO_OK;
}

int session_create(struct machine_tx *tx, Pb__Session *session, struct machine_result *result) {
    int rv = create_refused(tx, session, result);
    if (rv != CO_OK || result->error != CO_OK) return rv;
    session->create_index = session->modify_index = tx->index;
    CHECK(session->create_index == tx->index && strlen(session->id) == UUID_TEXT_SIZE);
    record_put(tx, session);
    index_change(tx, session, true);
    machine_touch(tx, SPACE_SESSION, slice_text(session->id));
    machine_changed(tx, SPACE_SESSION_TABLE, slice_make("", 0), false);
    machine_changed(tx, SPACE_SESSION_NODE, slice_text(session->node), false);
    expiry_began_in(tx, &session_expiry, slice_text(session->id), 0, session->ttl_ns);
    return CO_OK;
}

int session_ensure(struct machine_tx *tx, const Pb__SessionUse *use, struct machine_result *result,
                   Pb__Session **session) {
    if (!use || (!use->id[0] && !use->create)) return machine_refuse(result, CO_INVALID, "missing session");
    if (use->create) {
        *session = use->create;
        use->create->made = true;
        return session_create(tx, use->create, result);
    }
    int rv = session_get(tx->store, slice_text(use->id), tx->arena, session);
    if (rv != CO_NOTFOUND) return rv;
    return machine_refuse(result, CO_NOTFOUND, arena_printf(tx->arena, "invalid session \"%.64s\"", use->id));
}

int session_create_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__SessionCreateCommand *command = request;
    if (!command->session) return machine_refuse(result, CO_INVALID, "the command does not decode");
    int rv = session_create(tx, command->session, result);
    if (rv != CO_OK || result->error != CO_OK) return rv;
    result->yes = true;
    result->message = &command->session->base;
    return CO_OK;
}

int session_ttl_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__SessionTtlCommand *command = request;
    Pb__Session *session;
    struct slice id = slice_text(command->id);
    if (command->ttl_ns <= 0) return machine_refuse(result, CO_INVALID, "a TTL is wanted");
    int rv = session_get(tx->store, id, tx->arena, &session);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, "no such session");
    if (rv != CO_OK) return rv;
    session->ttl = command->ttl, session->ttl_ns = command->ttl_ns;
    session->modify_index = tx->index;
    record_put(tx, session);
    machine_touch(tx, SPACE_SESSION, id);
    machine_changed(tx, SPACE_SESSION_TABLE, slice_make("", 0), false);
    machine_changed(tx, SPACE_SESSION_NODE, slice_text(session->node), false);
    expiry_ended_in(tx, &session_expiry, id, 0);
    expiry_began_in(tx, &session_expiry, id, 0, session->ttl_ns);
    result->yes = true;
    result->message = &session->base;
    return CO_OK;
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

static int session_end(struct machine_tx *tx, const Pb__Session *session) {
    struct slice id = slice_text(session->id), node = slice_text(session->node);
    CHECK(id.size == UUID_TEXT_SIZE);
    int rv = session_end_bindings(tx, session);
    if (rv != CO_OK) return rv;
    store_del(tx->store, SESSION_TABLE, id);
    index_change(tx, session, false);
    Pb__Session *other;
    rv = bound_session(tx, node, slice_make("", 0), &other);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    machine_changed(tx, SPACE_SESSION, id, true);
    machine_changed(tx, SPACE_SESSION_TABLE, slice_make("", 0), false);
    machine_changed(tx, SPACE_SESSION_NODE, node, rv == CO_NOTFOUND);
    expiry_ended_in(tx, &session_expiry, id, 0);
    return CO_OK;
}

int session_end_idle(struct machine_tx *tx, struct slice id) {
    Pb__Session *session;
    int rv = session_get(tx->store, id, tx->arena, &session);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    return session->made && session_is_idle(tx, id) ? session_end(tx, session) : CO_OK;
}

int session_destroy_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__SessionDestroyCommand *command = request;
    if (command->term != 0 && command->term != tx->term)
        return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    Pb__Session *session;
    int rv = session_get(tx->store, slice_text(command->id), tx->arena, &session);
    result->yes = true; /* also when there is no such session */
    tx->now_unix_ms = command->now_unix_ms;
    if (rv == CO_NOTFOUND) return CO_OK;
    return rv == CO_OK ? session_end(tx, session) : rv;
}

_Static_assert((int)SPACE_SESSION_NODE == (int)FOLD_SPACE_SESSION_NODE, "one list of numbers");

void session_on_event(struct machine_tx *tx, const struct machine_event *event) {
    struct slice check = event->id;
    if (event->type == MACHINE_NODE_REMOVED) check = slice_make("", 0);
    else if (event->type != MACHINE_CHECK_REMOVED && event->type != MACHINE_CHECK_CRITICAL) return;
    else if (check.size == 0) return;
    Pb__Session *session;
    int rv;
    while ((rv = bound_session(tx, event->node, check, &session)) == CO_OK)
        if ((rv = session_end(tx, session)) != CO_OK) break;
    if (rv != CO_NOTFOUND) store_fail(tx->store, rv);
}
