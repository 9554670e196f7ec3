/* Quotas as a module: the table, and the things that end by themselves. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/quota/quota_internal.h"
#include "registry/module_access.h"

/* -- ends by time ------------------------------------------------------------------------------------------------- */

/* Calls `begin` for each row of this sort. CO_CORRUPT: a row does not decode. */
static int read_rows(struct store_txn *txn, const char *head, const ProtobufCMessageDescriptor *type,
                     const struct expiry_leader *leader, struct expiry *expiry,
                     void (*begin)(struct slice key, const void *record, const struct expiry_leader *leader,
                                   struct expiry *expiry)) {
    struct slice rows = slice_text(head);
    struct store_cursor cursor;
    struct arena arena = {0};
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, QUOTA_TABLE, rows) {
        const void *record = message_unpack(&arena, type, cursor.value);
        if (record) begin(cursor.key, record, leader, expiry);
        else rv = CO_CORRUPT;
        arena_reset(&arena);
    }
    store_cursor_close(&cursor);
    arena_free(&arena);
    return rv;
}

static void begin_refill(struct slice key, const void *data, const struct expiry_leader *leader,
                         struct expiry *expiry) {
    const Pb__QuotaRecord *record = data;
    struct slice name = slice_make(key.data + 1, key.size - 1);
    if (record->refill_index && record->definition)
        expiry_began(expiry, &quota_refill_expiry, name, record->refill_index, quota_refill_ns(record, leader->unix_ms),
                     leader->now_ms);
}

static int refills_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return read_rows(txn, "q", &pb__quota_record__descriptor, leader, expiry, begin_refill);
}

/* The leader's clock decides when windows begin. */
static int64_t refill_period_ns(struct store_txn *txn, const struct expiry_update *began,
                                const struct expiry_leader *leader) {
    struct arena arena = {0};
    Pb__QuotaRecord *record;
    int rv = quota_record_get(txn, slice_make(began->name, began->size), &arena, &record);
    int64_t period_ns = rv == CO_OK ? quota_refill_ns(record, leader->unix_ms) : began->period_ns;
    arena_free(&arena);
    return period_ns;
}

static void refill_end(const struct expiry_due *due, const struct expiry_leader *leader,
                       void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    Pb__QuotaRefillCommand command = PB__QUOTA_REFILL_COMMAND__INIT;
    command.name = mem_strndup(due->name.data, due->name.size);
    command.index = due->index, command.term = leader->term;
    command.now_unix_ms = leader->unix_ms;
    propose(data, QUOTA_REFILL, &command.base);
    free(command.name);
}

const struct expiry_kind quota_refill_expiry = {.number = 17,
                                                .name = "quota refill",
                                                .no_second_period = true, /* there are no renewals to wait for */
                                                .quiet = true,
                                                .read = refills_read,
                                                .end = refill_end,
                                                .period_ns = refill_period_ns};

static void begin_lease(struct slice key, const void *data, const struct expiry_leader *leader, struct expiry *expiry) {
    const Pb__QuotaLease *lease = data;
    char room[QUOTA_LEASE_NAME_MOST];
    if (key.size < 2 + 8) return;
    struct slice name = slice_make(key.data + 1, key.size - 2 - 8);
    expiry_began(expiry, &quota_lease_expiry, quota_lease_name(name, lease->id, room), lease->renew_index,
                 (int64_t)lease->ttl_ms * 1000000, leader->now_ms);
}

static int leases_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return read_rows(txn, "l", &pb__quota_lease__descriptor, leader, expiry, begin_lease);
}

static void lease_end(const struct expiry_due *due, const struct expiry_leader *leader,
                      void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    Pb__QuotaLeaseEndCommand command = PB__QUOTA_LEASE_END_COMMAND__INIT;
    const char *number = memrchr(due->name.data, '/', due->name.size);
    CHECK(number);
    size_t size = (size_t)(number - due->name.data);
    CHECK(u64_parse(slice_make(number + 1, due->name.size - size - 1), UINT64_MAX, &command.lease) == CO_OK);
    command.name = mem_strndup(due->name.data, size);
    command.index = due->index, command.term = leader->term;
    propose(data, QUOTA_LEASE_END, &command.base);
    free(command.name);
}

const struct expiry_kind quota_lease_expiry = {
    .number = 18, .name = "quota lease", .quiet = true, .read = leases_read, .end = lease_end};

/* -- access: by the rules `quota` for the budget's name; agents take part in a budget as writers -------------------- */

/* The nodes of its service become known to all who may read the budget. */
static int put_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__QuotaDefinition *definition = ((const Pb__QuotaPutCommand *)request)->definition;
    (void)txn;
    if (!definition) return CO_OK; /* it is refused when it is applied */
    int rv = access_require(check, ACCESS_QUOTA, slice_text(definition->name), ACCESS_WRITE);
    if (rv != CO_OK || !definition->service[0]) return rv;
    return access_require(check, ACCESS_SERVICE, slice_text(definition->service), ACCESS_READ);
}

/* Marks each ask that is denied, because an agent sends those of many budgets together. */
static int ask_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__QuotaAskCommand *command = (const Pb__QuotaAskCommand *)request;
    (void)txn;
    for (size_t i = 0; i < command->n_asks; i++) {
        Pb__QuotaAsk *ask = command->asks[i];
        if (access_require(check, ACCESS_QUOTA, slice_text(ask->name), ACCESS_WRITE) != CO_OK)
            ask->denied = access_denied_text(check);
    }
    return session_may_use(check, command->session);
}

ACCESS_MAY(delete_may, QUOTA, WRITE, Pb__QuotaDeleteCommand, name)
ACCESS_MAY(settle_may, QUOTA, WRITE, Pb__QuotaSettleCommand, name)

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = QUOTA_PUT,
     .name = "quota-put",
     .request = &pb__quota_put_command__descriptor,
     .may = put_may,
     .apply = quota_put_apply},
    {.number = QUOTA_DELETE,
     .name = "quota-delete",
     .request = &pb__quota_delete_command__descriptor,
     .may = delete_may,
     .apply = quota_delete_apply},
    {.number = QUOTA_ASK,
     .name = "quota-ask",
     .request = &pb__quota_ask_command__descriptor,
     .result = &pb__quota_grants__descriptor,
     .marks = true,
     .may = ask_may,
     .apply = quota_ask_apply},
    {.number = QUOTA_SETTLE,
     .name = "quota-settle",
     .request = &pb__quota_settle_command__descriptor,
     .may = settle_may,
     .apply = quota_settle_apply},
    {.number = QUOTA_REFILL,
     .servers_only = true,
     .name = "quota-refill",
     .request = &pb__quota_refill_command__descriptor,
     .apply = quota_refill_apply},
    {.number = QUOTA_LEASE_END,
     .servers_only = true,
     .name = "quota-lease-end",
     .request = &pb__quota_lease_end_command__descriptor,
     .apply = quota_lease_end_apply},
    {0},
};
static const struct store_table tables[] = {{QUOTA_TABLE, "quotas"}, {QUOTA_TABLE_SESSIONS, "quota-sessions"}, {0}};
static const struct module_space spaces[] = {
    {SPACE_QUOTA, "quota"}, {SPACE_QUOTA_NOTICE, "quota-notice"}, {SPACE_QUOTA_OWNED, "quota-owned"}, {0}};
static const struct query_type *const queries[] = {&query_quota,       &query_quotas,      &query_quota_notice,
                                                   &query_quota_audit, &query_quota_owned, NULL};
static const struct expiry_kind *const expiries[] = {&quota_refill_expiry, &quota_lease_expiry, NULL};
static const struct module_binding session_bindings[] = {{.number = QUOTA_TABLE_SESSIONS, .ended = quota_session_ended},
                                                         {0}};
static const uint8_t topic_tables[] = {QUOTA_TABLE, 0};
static const uint8_t topic_spaces[] = {SPACE_QUOTA, 0};

const struct module_binding quota_binding = {.number = QUOTA_TABLE_SESSIONS, .ended = quota_session_ended};

const struct module quota_module = {.name = "quota",
                                    .commands = commands,
                                    .tables = tables,
                                    .spaces = spaces,
                                    .queries = queries,
                                    .expiries = expiries,
                                    .session_bindings = session_bindings,
                                    .topic = HISTORY_QUOTAS,
                                    .topic_tables = topic_tables,
                                    .topic_spaces = topic_spaces};
