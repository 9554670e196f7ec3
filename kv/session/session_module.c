/* Sessions as a module. */
#include "base/check.h"
#include "kv/session/session_internal.h"

static int sessions_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    struct store_cursor cursor;
    struct slice all = slice_make("", 0);
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, SESSION_TABLE, all) {
        int64_t ttl_ns = session_record_ttl_ns(cursor.value);
        if (ttl_ns < 0) rv = CO_CORRUPT;
        expiry_began(expiry, &session_expiry, cursor.key, 0, ttl_ns, leader->now_ms);
    }
    store_cursor_close(&cursor);
    return rv;
}

static void session_propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                                void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message),
                                void *data) {
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    char id[UUID_TEXT_SIZE + 1];
    CHECK(due->name.size == UUID_TEXT_SIZE);
    memcpy(id, due->name.data, due->name.size), id[due->name.size] = '\0';
    command.id = id, command.term = leader->term;
    command.now_unix_ms = leader->unix_ms;
    propose(data, SESSION_DESTROY, &command.base);
}

static void session_describe(struct store_txn *txn, struct slice name, struct buffer *out) {
    struct arena arena = {0};
    Pb__Session *session;
    if (session_get(txn, name, &arena, &session) == CO_OK) {
        if (session->node[0]) buffer_printf(out, " node=\"%s\"", session->node);
        if (session->name[0]) buffer_printf(out, " name=\"%s\"", session->name);
    }
    arena_free(&arena);
}

const struct expiry_kind session_expiry = {.number = 0,
                                           .name = "session",
                                           .renewed = true,
                                           .may_be_endless = true,
                                           .read = sessions_read,
                                           .end = session_propose_end,
                                           .may = session_renew_may,
                                           .describe = session_describe};

static const struct module_command commands[] = {
    {.number = SESSION_CREATE,
     .name = "session-create",
     .request = &pb__session_create_command__descriptor,
     .result = &pb__session__descriptor,
     .may = session_create_may,
     .apply = session_create_apply},
    {.number = SESSION_DESTROY,
     .name = "session-destroy",
     .request = &pb__session_destroy_command__descriptor,
     .may = session_destroy_may,
     .apply = session_destroy_apply},
    {.number = SESSION_TTL,
     .name = "session-ttl",
     .request = &pb__session_ttl_command__descriptor,
     .result = &pb__session__descriptor,
     .may = session_ttl_may,
     .apply = session_ttl_apply},
    {0},
};
static const struct store_table tables[] = {{SESSION_TABLE, "sessions"}, {SESSION_TABLE_INDEX, "session-index"}, {0}};
static const struct module_space spaces[] = {
    {SPACE_SESSION, "session"}, {SPACE_SESSION_TABLE, "session-table"}, {SPACE_SESSION_NODE, "session-node"}, {0}};
static const struct query_type *const queries[] = {&query_session, &query_sessions, NULL};
static const struct expiry_kind *const expiries[] = {&session_expiry, NULL};

const struct module session_module = {.name = "session",
                                      .commands = commands,
                                      .tables = tables,
                                      .spaces = spaces,
                                      .queries = queries,
                                      .expiries = expiries,
                                      .on_event = session_on_event};
