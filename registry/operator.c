/* Autopilot's settings, removed servers, and the pieces of a backup that is being restored. */
#include "registry/operator.h"

#include <errno.h>
#include <unistd.h>

#include "base/check.h"
#include "base/message.h"
#include "registry/access_operator.h"
#include "registry/tables.h"

#define REMOVED_MAX 64

static const struct slice autopilot_key = SLICE_LITERAL("autopilot");
static const struct slice removed_key = SLICE_LITERAL("removed-servers");
static const struct slice staged_key = SLICE_LITERAL("staged");

/* -- records ------------------------------------------------------------------------------------------------------ */
static ProtobufCMessage *setting(struct store_txn *txn, struct slice key, const ProtobufCMessageDescriptor *type,
                                 struct arena *arena) {
    struct slice bytes;
    if (store_get(txn, TABLE_SETTINGS, key, &bytes) != CO_OK) return NULL;
    ProtobufCMessage *message = message_unpack(arena, type, bytes);
    if (!message) store_fail(txn, CO_CORRUPT);
    return message;
}

static void setting_put(struct store_txn *txn, struct slice key, const ProtobufCMessage *message, struct arena *arena) {
    store_put(txn, TABLE_SETTINGS, key, message_pack(arena, message));
}

/* -- autopilot ---------------------------------------------------------------------------------------------------- */
void operator_autopilot_default(Pb__AutopilotConfig *config) {
    pb__autopilot_config__init(config);
    config->cleanup_dead_servers = true;
    config->last_contact_threshold_ns = 200 * 1000000ll;
    config->max_trailing_logs = 250;
    config->server_stabilization_ns = 10 * 1000000000ll;
}

static struct watch_key autopilot_thing(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_OPERATOR, autopilot_key};
}

static int autopilot_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                         struct query_result *result) {
    (void)request;
    Pb__AutopilotConfig *config =
        (Pb__AutopilotConfig *)setting(txn, autopilot_key, &pb__autopilot_config__descriptor, arena);
    if (store_txn_error(txn) != CO_OK) return store_txn_error(txn);
    if (!config) {
        config = arena_alloc(arena, sizeof *config);
        operator_autopilot_default(config);
    }
    *result = (struct query_result){.index = config->modify_index, .found = true, .message = &config->base};
    return CO_OK;
}

const struct query_type query_autopilot = {.number = 12,
                                           .name = "autopilot",
                                           .request = &pb__autopilot_request__descriptor,
                                           .result = &pb__autopilot_config__descriptor,
                                           .watched = autopilot_thing,
                                           .run = autopilot_run,
                                           .show = access_operator_show};

static int autopilot_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AutopilotSetCommand *command = request;
    if (!command->config) return machine_refuse(result, CO_INVALID, "no configuration");
    Pb__AutopilotConfig *old =
        (Pb__AutopilotConfig *)setting(tx->store, autopilot_key, &pb__autopilot_config__descriptor, tx->arena);
    if (command->has_cas && command->cas != (old ? old->modify_index : 0)) return CO_OK; /* result->yes stays false */
    command->config->create_index = old ? old->create_index : tx->index;
    command->config->modify_index = tx->index;
    setting_put(tx->store, autopilot_key, &command->config->base, tx->arena);
    machine_touch(tx, SPACE_OPERATOR, autopilot_key);
    result->yes = true;
    return CO_OK;
}

/* -- removed servers ---------------------------------------------------------------------------------------------- */
static void removed_put(struct machine_tx *tx, const Pb__RemovedServers *old, uint64_t id, bool forget) {
    Pb__RemovedServers servers = PB__REMOVED_SERVERS__INIT;
    uint64_t ids[REMOVED_MAX + 1];
    for (size_t i = 0; old && i < old->n_ids && servers.n_ids < REMOVED_MAX; i++)
        if (old->ids[i] != id) ids[servers.n_ids++] = old->ids[i];
    CHECK(servers.n_ids <= REMOVED_MAX && id != 0);
    if (!forget) ids[servers.n_ids++] = id;
    servers.ids = ids;
    if (servers.n_ids > REMOVED_MAX) servers.ids++, servers.n_ids--;
    setting_put(tx->store, removed_key, &servers.base, tx->arena);
}

static int removed_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__ServerRemovedCommand *command = request;
    if (command->id == 0) return machine_refuse(result, CO_INVALID, "no server");
    const void *old = setting(tx->store, removed_key, &pb__removed_servers__descriptor, tx->arena);
    removed_put(tx, old, command->id, command->forget);
    result->yes = true;
    return CO_OK;
}

bool operator_server_removed(struct store_txn *txn, uint64_t id) {
    struct arena arena = {0};
    const Pb__RemovedServers *servers =
        (const void *)setting(txn, removed_key, &pb__removed_servers__descriptor, &arena);
    bool found = false;
    for (size_t i = 0; servers && i < servers->n_ids; i++) found = found || servers->ids[i] == id;
    arena_free(&arena);
    return found || store_txn_error(txn) != CO_OK;
}

void operator_removed_copy(struct store_txn *txn, struct buffer *out) {
    struct slice record;
    if (store_get(txn, TABLE_SETTINGS, removed_key, &record) == CO_OK) buffer_append(out, record.data, record.size);
}

void operator_removed_place(struct store_txn *txn, struct slice record) {
    if (record.size) store_put(txn, TABLE_SETTINGS, removed_key, record);
    else (void)store_del(txn, TABLE_SETTINGS, removed_key);
}

/* -- a backup in pieces ------------------------------------------------------------------------------------------- */
static Pb__Staged *staged(struct store_txn *txn, struct arena *arena) {
    return (Pb__Staged *)setting(txn, staged_key, &pb__staged__descriptor, arena);
}

static bool is_id(const ProtobufCBinaryData *id, const Pb__Staged *of) {
    return of && id->len == of->id.len && memcmp(id->data, of->id.data, id->len) == 0;
}

void operator_staged_clear(struct store_txn *txn) {
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, TABLE_STAGED, slice_make("", 0));
    while (cursor.valid) store_cursor_del(&cursor);
    store_cursor_close(&cursor);
    (void)store_del(txn, TABLE_SETTINGS, staged_key);
}

static int chunk_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RestoreChunkCommand *command = request;
    if (command->id.len != OPERATOR_RESTORE_ID || command->data.len == 0 || command->data.len > OPERATOR_CHUNK_MAX)
        return machine_refuse(result, CO_INVALID, "not a piece of a backup");
    Pb__Staged record = PB__STAGED__INIT;
    if (command->offset == 0) operator_staged_clear(tx->store);
    else {
        Pb__Staged *now = staged(tx->store, tx->arena);
        if (!is_id(&command->id, now) || now->size != command->offset)
            return machine_refuse(result, CO_CONFLICT, "another restore began meanwhile");
    }
    record.id = command->id;
    record.size = command->offset + command->data.len;
    char key[8];
    put_be64(key, command->offset);
    store_put(tx->store, TABLE_STAGED, slice_make(key, sizeof key), message_slice(command->data));
    setting_put(tx->store, staged_key, &record.base, tx->arena);
    result->yes = true;
    return CO_OK;
}

const char *operator_restore_refused(struct store_txn *txn, const Pb__RestoreEndCommand *command) {
    struct arena arena = {0};
    const Pb__Staged *now = staged(txn, &arena);
    const char *why = NULL;
    if (!is_id(&command->id, now)) why = "another restore began meanwhile";
    else if (now->size != command->size) why = "pieces of the backup are missing";
    arena_free(&arena);
    return why;
}

bool operator_staged(struct store_txn *txn, uint8_t id[OPERATOR_RESTORE_ID], uint64_t *size) {
    struct arena arena = {0};
    const Pb__Staged *now = staged(txn, &arena);
    bool there = now && now->id.len == OPERATOR_RESTORE_ID;
    if (there) memcpy(id, now->id.data, OPERATOR_RESTORE_ID), *size = now->size;
    arena_free(&arena);
    return there;
}

int operator_staged_write(struct store_txn *txn, int fd) {
    struct store_cursor cursor;
    int error = CO_OK;
    store_cursor_open(&cursor, txn, TABLE_STAGED, slice_make("", 0));
    for (; cursor.valid && !error; store_cursor_next(&cursor)) {
        for (size_t at = 0; at < cursor.value.size && !error;) {
            ssize_t n = write(fd, cursor.value.data + at, cursor.value.size - at);
            if (n >= 0) at += (size_t)n;
            else if (errno != EINTR) error = co_from_errno(errno);
        }
    }
    store_cursor_close(&cursor);
    return error;
}

/* Called only when the command gives up, or was refused: the machine itself restores. */
static int end_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RestoreEndCommand *command = request;
    struct arena *arena = tx->arena;
    if (is_id(&command->id, staged(tx->store, arena))) operator_staged_clear(tx->store);
    result->yes = true;
    return CO_OK;
}

/* -- the module --------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = OPERATOR_AUTOPILOT,
     .name = "autopilot",
     .request = &pb__autopilot_set_command__descriptor,
     .may = access_operator_may,
     .apply = autopilot_apply},
    {.number = OPERATOR_SERVER_REMOVED,
     .servers_only = true,
     .name = "server-removed",
     .request = &pb__server_removed_command__descriptor,
     .apply = removed_apply},
    {.number = OPERATOR_RESTORE_CHUNK,
     .servers_only = true,
     .name = "restore-chunk",
     .request = &pb__restore_chunk_command__descriptor,
     .apply = chunk_apply},
    {.number = OPERATOR_RESTORE_END,
     .servers_only = true,
     .name = "restore-end",
     .request = &pb__restore_end_command__descriptor,
     .apply = end_apply},
    {0},
};
static const struct store_table tables[] = {{TABLE_SETTINGS, "settings"}, {TABLE_STAGED, "staged"}, {0}};
static const struct module_space spaces[] = {{SPACE_OPERATOR, "operator"}, {0}};
static const struct query_type *const queries[] = {&query_autopilot, NULL};

const struct module operator_module = {
    .name = "operator", .commands = commands, .tables = tables, .spaces = spaces, .queries = queries};
