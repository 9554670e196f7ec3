/* Keys as a module. */
#include "base/message.h"
#include "kv/keys/kv_internal.h"
#include "registry/lease.h"

/* -- lock-delays -------------------------------------------------------------------------------------------------- */

static int delays_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return lock_delays_read(txn, &key_lock_delays, leader, expiry);
}

static void lock_delay_propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                                   void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message),
                                   void *data) {
    Pb__LockDelayEndCommand command = PB__LOCK_DELAY_END_COMMAND__INIT;
    command.key = message_bytes(due->name);
    command.index = due->index, command.term = leader->term;
    propose(data, LOCK_DELAY_END, &command.base);
}

const struct expiry_kind lock_delay_expiry = {
    .number = 2, .name = "lock-delay", .quiet = true, .read = delays_read, .end = lock_delay_propose_end};

const struct lock_delays key_lock_delays = {.table = KV_TABLE_DELAYS, .kind = &lock_delay_expiry};

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = KV_APPLY,
     .name = "kv",
     .request = &pb__kv_command__descriptor,
     .result = &pb__kv_lock_answer__descriptor,
     .may = kv_command_may,
     .apply_bytes = kv_command_apply},
    {.number = KV_APPLY_FENCED,
     .name = "kv-fenced",
     .request = &pb__kv_command__descriptor,
     .result = &pb__kv_lock_answer__descriptor,
     .may = kv_command_may,
     .apply_bytes = kv_fenced_apply},
    {.number = KV_RESTORE,
     .name = "kv-restore",
     .request = &pb__kv_restore_command__descriptor,
     .result = &pb__kv_restore_answer__descriptor,
     .may = kv_restore_may,
     .apply = kv_restore_apply},
    {.number = LOCK_DELAY_END,
     .servers_only = true,
     .name = "lock-delay-end",
     .request = &pb__lock_delay_end_command__descriptor,
     .apply = lock_delay_end_apply},
    {0},
};
static const struct store_table tables[] = {
    {KV_TABLE_KEYS, "kv"}, {KV_TABLE_LOCKS, "kv-locks"}, {KV_TABLE_DELAYS, "kv-delays"}, {0}};
static const uint8_t topic_tables[] = {KV_TABLE_KEYS, 0}, topic_spaces[] = {SPACE_KEY, 0};
static const struct module_space spaces[] = {{SPACE_KEY, "key"}, {0}};
static const struct query_type *const queries[] = {&query_kv_get, &query_kv_list, &query_kv_keys, &query_kv_past, NULL};
static const struct expiry_kind *const expiries[] = {&lock_delay_expiry, NULL};
static const struct module_binding lease_bindings[] = {{.number = LEASE_BINDS_KEY, .ended = key_lease_ended}, {0}};

const struct module_binding key_lock_binding = {.number = KV_TABLE_LOCKS, .ended = key_lock_ended};
static const struct module_binding session_bindings[] = {{.number = KV_TABLE_LOCKS, .ended = key_lock_ended}, {0}};

const struct module kv_module = {.name = "kv",
                                 .commands = commands,
                                 .tables = tables,
                                 .spaces = spaces,
                                 .queries = queries,
                                 .expiries = expiries,
                                 .lease_bindings = lease_bindings,
                                 .session_bindings = session_bindings,
                                 .topic = HISTORY_KEYS,
                                 .topic_tables = topic_tables,
                                 .topic_spaces = topic_spaces};
