/* Queries on sessions. */
#include "kv/session/session_internal.h"
#include "registry/fold.h"

static struct slice request_id(const ProtobufCMessage *request) {
    return slice_text(((const Pb__SessionRequest *)request)->id);
}

static struct watch_key session_thing(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_SESSION, request_id(request)};
}

static int session_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                       struct query_result *result) {
    Pb__Session *session;
    *result = (struct query_result){0};
    int rv = session_get(txn, request_id(request), arena, &session);
    if (rv == CO_NOTFOUND) {
        if (request_id(request).size == UUID_TEXT_SIZE)
            result->index = machine_change_index(txn, SPACE_SESSION, request_id(request));
        return CO_OK;
    }
    if (rv != CO_OK) return rv;
    result->index = session->modify_index;
    result->found = true;
    result->message = &session->base;
    return CO_OK;
}

const struct query_type query_session = {.number = 35,
                                         .name = "session",
                                         .request = &pb__session_request__descriptor,
                                         .result = &pb__session__descriptor,
                                         .watched = session_thing,
                                         .run = session_run,
                                         .show = session_show};

/* -- lists -------------------------------------------------------------------------------------------------------- */

static struct slice request_node(const ProtobufCMessage *request) {
    return slice_text(((const Pb__SessionListRequest *)request)->node);
}

static struct watch_key sessions_thing(const ProtobufCMessage *request) {
    struct slice node = request_node(request);
    return (struct watch_key){node.size ? SPACE_SESSION_NODE : SPACE_SESSION_TABLE, node};
}

struct session_list {
    struct arena *arena;
    Pb__Session **sessions;
    size_t count, room;
};

static void list_add(struct session_list *list, Pb__Session *session) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 16;
        Pb__Session **wider = arena_alloc(list->arena, list->room * sizeof(Pb__Session *));
        if (list->count != 0) memcpy(wider, list->sessions, list->count * sizeof(Pb__Session *));
        list->sessions = wider;
    }
    list->sessions[list->count++] = session;
}

static int list_all(struct store_txn *txn, struct session_list *list) {
    struct store_cursor cursor;
    struct slice all = slice_make("", 0);
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, SESSION_TABLE, all) {
        Pb__Session *session;
        rv = session_unpack(cursor.value, list->arena, &session);
        if (rv != CO_OK) break;
        list_add(list, session);
    }
    store_cursor_close(&cursor);
    return rv;
}

static int list_node(struct store_txn *txn, struct slice node, struct session_list *list) {
    char room[STORE_KEY_MAX];
    struct slice prefix = session_index_prefix(node, slice_make("", 0), room);
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, SESSION_TABLE_INDEX, prefix) {
        Pb__Session *session;
        struct slice id = slice_make(cursor.key.data + prefix.size, cursor.key.size - prefix.size);
        rv = session_get(txn, id, list->arena, &session);
        if (rv != CO_OK) {
            if (rv == CO_NOTFOUND) rv = CO_CORRUPT;
            break;
        }
        if (slice_equal_nocase(node, slice_text(session->node))) list_add(list, session);
    }
    store_cursor_close(&cursor);
    return rv;
}

static int sessions_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                        struct query_result *result) {
    struct slice node = request_node(request);
    struct session_list list = {.arena = arena};
    *result = (struct query_result){0};
    int rv = node.size ? list_node(txn, node, &list) : list_all(txn, &list);
    if (rv != CO_OK) return rv;
    struct watch_key watched = sessions_thing(request);
    Pb__SessionsResult *sessions = arena_alloc(arena, sizeof *sessions);
    pb__sessions_result__init(sessions);
    sessions->n_sessions = list.count;
    sessions->sessions = list.sessions;
    result->index = machine_change_index(txn, watched.space, watched.name);
    result->found = true;
    result->message = &sessions->base;
    return CO_OK;
}

const struct query_type query_sessions = {.number = 36,
                                          .name = "sessions",
                                          .request = &pb__session_list_request__descriptor,
                                          .result = &pb__sessions_result__descriptor,
                                          .watched = sessions_thing,
                                          .run = sessions_run,
                                          .show = sessions_show};
