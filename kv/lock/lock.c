/* Locks as a module: commands, queries, lock-delays. */
#include "kv/lock/lock.h"

#include "base/check.h"

enum { LOCK_TABLE = 22, LOCK_TABLE_ASIDE = 23, LOCK_TABLE_SESSIONS = 24 };
_Static_assert(LOCK_TABLE >= 16 && LOCK_TABLE_SESSIONS < 40, "tables of kv (registry/module.h)");
_Static_assert(LOCK_ACQUIRE >= 32 && LOCK_DELAY_OVER < 64, "commands of kv");
_Static_assert(SPACE_LOCK >= 32 && SPACE_LOCK_ENTRY < 64, "spaces of kv");
_Static_assert(LOCK_SINCE > MACHINE_VERSION_OLDEST && LOCK_SINCE <= MACHINE_VERSION_NEWEST, "a version that there is");

/* -- commands ----------------------------------------------------------------------------------------------------- */

static int acquire_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__LockAcquireCommand *command = request;
    Pb__LockAnswer *answer = arena_alloc(tx->arena, sizeof *answer);
    pb__lock_answer__init(answer);
    const struct queue_wish wish = {.name = command->name,
                                    .use = command->session,
                                    .token = command->token,
                                    .mode = command->mode,
                                    .limit = command->limit,
                                    .note = command->note,
                                    .enqueue = command->enqueue,
                                    .now_unix_ms = command->now_unix_ms,
                                    .limits = command->limits};
    int rv = queue_acquire(tx, &lock_family, &wish, result, answer);
    if (rv != CO_OK || result->error) return rv;
    result->yes = answer->held;
    result->message = &answer->base;
    return CO_OK;
}

static int release_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__LockReleaseCommand *command = request;
    return queue_release(tx, &lock_family, command->name, slice_text(command->session), command->token,
                         command->now_unix_ms, result);
}

static int delay_over_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__LockDelayOverCommand *command = request;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    result->yes = true;
    return queue_delay_over(tx, &lock_family, command->name, command->index, command->now_unix_ms);
}

static int session_ended(struct machine_tx *tx, const struct binding_end *end) {
    return queue_session_ended(tx, &lock_family, end);
}

/* -- lock-delays -------------------------------------------------------------------------------------------------- */

static int delays_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return queue_delays_read(txn, &lock_family, leader, expiry);
}

static void delay_propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                              void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message),
                              void *data) {
    Pb__LockDelayOverCommand command = PB__LOCK_DELAY_OVER_COMMAND__INIT;
    command.name = (char *)(uintptr_t)due->name.data; /* as far as its NUL */
    command.index = due->index, command.term = leader->term;
    command.now_unix_ms = leader->unix_ms;
    propose(data, LOCK_DELAY_OVER, &command.base);
}

static const struct expiry_kind delay_expiry = {
    .number = 5, .name = "delay of a lock", .quiet = true, .read = delays_read, .end = delay_propose_end};

/* -- queries ------------------------------------------------------------------------------------------------------ */

static struct slice lock_name(const ProtobufCMessage *request) {
    return slice_text(((const Pb__LockRequest *)request)->name);
}

static struct watch_key lock_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_LOCK, lock_name(request)};
}

static int lock_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    return queue_view_run(txn, &lock_family, lock_name(request), arena, result);
}

const struct query_type query_lock = {.number = 38,
                                      .name = "lock",
                                      .request = &pb__lock_request__descriptor,
                                      .result = &pb__lock_view__descriptor,
                                      .watched = lock_watched,
                                      .run = lock_run};

static struct watch_key entry_watched(const ProtobufCMessage *request) {
    const Pb__LockEntryRequest *entry = (const Pb__LockEntryRequest *)request;
    return (struct watch_key){SPACE_LOCK_ENTRY, slice_make(entry->session_name.data, entry->session_name.len)};
}

static int entry_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    return queue_entry_run(txn, &lock_family, entry_watched(request).name, arena, result);
}

const struct query_type query_lock_entry = {.number = 39,
                                            .name = "lock-entry",
                                            .request = &pb__lock_entry_request__descriptor,
                                            .result = &pb__lock_answer__descriptor,
                                            .watched = entry_watched,
                                            .run = entry_run};

static struct watch_key holder_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_LOCK, slice_text(((const Pb__LockHolderRequest *)request)->name)};
}

static int holder_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    return queue_holder_run(txn, &lock_family, (const Pb__LockHolderRequest *)request, arena, result);
}

const struct query_type query_lock_holder = {.number = 41,
                                             .name = "lock-holder",
                                             .request = &pb__lock_holder_request__descriptor,
                                             .result = &pb__lock_answer__descriptor,
                                             .watched = holder_watched,
                                             .run = holder_run};

static struct watch_key locks_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_LOCK | WATCH_PREFIX_BIT,
                              slice_text(((const Pb__LockListRequest *)request)->prefix)};
}

static int locks_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    return queue_list_run(txn, &lock_family, locks_watched(request).name, arena, result);
}

const struct query_type query_locks = {.number = 40,
                                       .name = "locks",
                                       .request = &pb__lock_list_request__descriptor,
                                       .result = &pb__lock_list_result__descriptor,
                                       .watched = locks_watched,
                                       .run = locks_run};

int lock_holds(struct store_txn *txn, struct slice name, uint64_t token, struct arena *arena) {
    Pb__QueueEntry *entry;
    bool several;
    int rv = queue_holder(txn, &lock_family, name, token, arena, &entry, &several);
    return rv == CO_OK && several ? CO_NOTFOUND : rv; /* one of them may have lost it */
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = LOCK_ACQUIRE,
     .since = LOCK_SINCE,
     .name = "lock-acquire",
     .request = &pb__lock_acquire_command__descriptor,
     .result = &pb__lock_answer__descriptor,
     .apply = acquire_apply},
    {.number = LOCK_RELEASE,
     .since = LOCK_SINCE,
     .name = "lock-release",
     .request = &pb__lock_release_command__descriptor,
     .apply = release_apply},
    {.number = LOCK_DELAY_OVER,
     .since = LOCK_SINCE,
     .servers_only = true,
     .name = "lock-delay-over",
     .request = &pb__lock_delay_over_command__descriptor,
     .apply = delay_over_apply},
    {0},
};
static const struct store_table tables[] = {
    {LOCK_TABLE, "locks"}, {LOCK_TABLE_ASIDE, "locks-aside"}, {LOCK_TABLE_SESSIONS, "locks-sessions"}, {0}};
static const uint8_t topic_tables[] = {LOCK_TABLE, LOCK_TABLE_ASIDE, 0}, topic_spaces[] = {SPACE_LOCK, 0};
static const struct module_space spaces[] = {{SPACE_LOCK, "lock"}, {SPACE_LOCK_ENTRY, "lock-entry"}, {0}};
static const struct query_type *const queries[] = {&query_lock, &query_lock_entry, &query_lock_holder, &query_locks,
                                                   NULL};
static const struct expiry_kind *const expiries[] = {&delay_expiry, NULL};
static const struct module_binding session_bindings[] = {{.number = LOCK_TABLE_SESSIONS, .ended = session_ended}, {0}};

const struct queue_family lock_family = {.noun = "lock",
                                         .table = LOCK_TABLE,
                                         .aside = LOCK_TABLE_ASIDE,
                                         .space = SPACE_LOCK,
                                         .entry_space = SPACE_LOCK_ENTRY,
                                         .binding = session_bindings,
                                         .delay = &delay_expiry};

const struct module lock_module = {.name = "lock",
                                   .commands = commands,
                                   .tables = tables,
                                   .spaces = spaces,
                                   .queries = queries,
                                   .expiries = expiries,
                                   .session_bindings = session_bindings,
                                   .topic = HISTORY_LOCKS,
                                   .topic_tables = topic_tables,
                                   .topic_spaces = topic_spaces};
