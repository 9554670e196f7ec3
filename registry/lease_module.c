/* Leases as a module: the table of commands and queries, and the expiry kinds. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "base/text.h"
#include "registry/access_operator.h"
#include "registry/catalog_records.h"
#include "registry/lease_internal.h"
#include "registry/self_preservation.h"
#include "registry/tables.h"

/* -- expiry kinds ------------------------------------------------------------------------------------------------- */

/* Calls `begin` for each record of the row. CO_CORRUPT: one does not decode. */
static int read_rows(struct store_txn *txn, enum lease_row row, const ProtobufCMessageDescriptor *type,
                     const struct expiry_leader *leader, struct expiry *expiry,
                     void (*begin)(struct store_txn *txn, const void *record, const struct expiry_leader *leader,
                                   struct expiry *expiry)) {
    char room[1];
    struct slice head = lease_row_head(row, room);
    struct store_cursor cursor;
    struct arena arena = {0};
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_LEASES, head) {
        const void *record = message_unpack(&arena, type, cursor.value);
        if (record) begin(txn, record, leader, expiry);
        else rv = CO_CORRUPT;
        arena_reset(&arena);
    }
    store_cursor_close(&cursor);
    arena_free(&arena);
    return rv;
}

static void begin_lease(struct store_txn *txn, const void *record, const struct expiry_leader *leader,
                        struct expiry *expiry) {
    const Pb__Lease *lease = record;
    (void)txn;
    expiry_began(expiry, &lease_expiry, slice_text(lease->id), 0, lease->ttl_ns, leader->now_ms);
}

static int leases_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return read_rows(txn, ROW_LEASE, &pb__lease__descriptor, leader, expiry, begin_lease);
}

static void lease_propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                              void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message),
                              void *data) {
    const struct lease_settings *settings = leader->settings;
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    Pb__PreservationOrder preservation = PB__PRESERVATION_ORDER__INIT;
    char id[UUID_TEXT_SIZE + 1];
    CHECK(due->name.size == UUID_TEXT_SIZE);
    memcpy(id, due->name.data, due->name.size), id[due->name.size] = '\0';
    command.id = id, command.term = leader->term;
    if (settings && settings->preservation.hold_ms) {
        preservation.at_ms = leader->now_ms, preservation.unix_ms = leader->unix_ms;
        preservation.percent = settings->preservation.percent,
        preservation.instances = settings->preservation.instances;
        preservation.nodes = settings->preservation.nodes;
        preservation.window_ms = settings->preservation.window_ms,
        preservation.hold_ms = settings->preservation.hold_ms;
        command.preservation = &preservation;
    }
    propose(data, LEASE_END, &command.base);
}

/* People know a node's lease by the node, another one by the name that its owner gave it. */
static void lease_describe(struct store_txn *txn, struct slice name, struct buffer *out) {
    struct arena arena = {0};
    Pb__Lease *lease;
    if (lease_record(txn, name, &arena, &lease) == CO_OK) {
        if (lease->node[0]) buffer_printf(out, " node=\"%s\"", lease->node);
        else if (lease->name[0]) buffer_printf(out, " name=\"%s\"", lease->name);
    }
    arena_free(&arena);
}

const struct expiry_kind lease_expiry = {.number = 1,
                                         .name = "lease",
                                         .renewed = true,
                                         .read = leases_read,
                                         .end = lease_propose_end,
                                         .may = lease_renew_may,
                                         .describe = lease_describe};

static const struct reconnect_classes *classes_of(const struct expiry_leader *leader) {
    static const struct reconnect_classes none = {0};
    const struct lease_settings *settings = leader->settings;
    return settings ? &settings->reconnect : &none;
}

static void begin_dead_node(struct store_txn *txn, const void *record, const struct expiry_leader *leader,
                            struct expiry *expiry) {
    const Pb__DeadNode *dead = record;
    struct slice node = slice_text(dead->node);
    int64_t period_ns = reconnect_timeout(txn, node, classes_of(leader), dead->reconnect_timeout_ns);
    expiry_began(expiry, &dead_node_expiry, node, dead->create_index, period_ns, leader->now_ms);
}

static int dead_nodes_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return read_rows(txn, ROW_DEAD, &pb__dead_node__descriptor, leader, expiry, begin_dead_node);
}

/* The entry that began it has only the agent's own timeout; settings for the node or its class override it. */
static int64_t dead_node_period_ns(struct store_txn *txn, const struct expiry_update *began,
                                   const struct expiry_leader *leader) {
    return reconnect_timeout(txn, slice_make(began->name, began->size), classes_of(leader), began->period_ns);
}

static void dead_node_propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                                  void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message),
                                  void *data) {
    Pb__LeaseReapCommand command = PB__LEASE_REAP_COMMAND__INIT;
    char *node = mem_strndup(due->name.data, due->name.size);
    command.node = node, command.index = due->index, command.term = leader->term;
    propose(data, LEASE_REAP, &command.base);
    free(node);
}

const struct expiry_kind dead_node_expiry = {.number = 3,
                                             .name = "dead node",
                                             .read = dead_nodes_read,
                                             .end = dead_node_propose_end,
                                             .period_ns = dead_node_period_ns};

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = LEASE_GRANT,
     .name = "lease-grant",
     .request = &pb__lease_grant_command__descriptor,
     .result = &pb__lease__descriptor,
     .may = lease_grant_may,
     .apply = lease_grant_apply},
    {.number = LEASE_END,
     .name = "lease-end",
     .request = &pb__lease_end_command__descriptor,
     .may = lease_end_may,
     .apply = lease_end_apply},
    {.number = LEASE_REAP,
     .servers_only = true,
     .name = "lease-reap",
     .request = &pb__lease_reap_command__descriptor,
     .apply = lease_reap_apply},
    {.number = NODE_LEAVE,
     .name = "node-leave",
     .request = &pb__node_leave_command__descriptor,
     .may = access_operator_may,
     .apply = node_leave_apply},
    {.number = PRESERVATION_RELEASE,
     .servers_only = true,
     .name = "self-preservation-release",
     .request = &pb__preservation_release_command__descriptor,
     .apply = preservation_release_apply},
    {0},
};
static const struct store_table tables[] = {{TABLE_LEASES, "leases"}, {0}};
static const struct module_space spaces[] = {
    {SPACE_LEASE, "lease"}, {SPACE_LEASE_TABLE, "lease-table"}, {SPACE_DEAD_NODES, "dead-nodes"}, {0}};
static const struct query_type *const queries[] = {&query_lease, &query_leases, &query_dead_nodes, NULL};
static const struct expiry_kind *const expiries[] = {&lease_expiry, &dead_node_expiry, &held_service_expiry, NULL};

const struct module lease_module = {.name = "lease",
                                    .commands = commands,
                                    .tables = tables,
                                    .spaces = spaces,
                                    .queries = queries,
                                    .expiries = expiries,
                                    .gauges = preservation_gauges,
                                    .metrics = preservation_metrics,
                                    .on_event = lease_on_event};
