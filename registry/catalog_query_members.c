/* Nodes with agents: those that have the check serfHealth, and those that have left (registry/lease.h). */
#include <string.h>

#include "base/message.h"
#include "registry/access_operator.h"
#include "registry/catalog_access.h"
#include "registry/catalog_leases.h"
#include "registry/catalog_query.h"
#include "registry/lease_internal.h"
#include "registry/operator_queries.h"

#define SERF_HEALTH    "serfHealth"
#define SERVER_SERVICE "consul"
#define VERSION_MOST   60

static struct watch_key nodes_thing(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_TABLE, catalog_table_nodes};
}

static int add_server(struct store_txn *txn, struct arena *arena, Pb__Member *member) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    if (store_get(txn, TABLE_SERVICES, key_service(room, slice_text(member->name), SLICE_LITERAL(SERVER_SERVICE)),
                  &bytes) != CO_OK)
        return CO_OK;
    const Pb__Service *service = record_service(txn, arena, bytes);
    if (!service) return CO_CORRUPT;
    member->server_port = service->port;
    for (size_t i = 0; i < service->n_meta; i++)
        if (strcmp(service->meta[i]->key, "version") == 0) member->server_version = service->meta[i]->value;
    return CO_OK;
}

/* Is the text a version? Agents may report anything, and nothing refuses it, so other texts are left out. */
static bool is_version(const char *text) {
    size_t size = strnlen(text, VERSION_MOST + 1);
    for (size_t i = 0; i < size; i++)
        if (text[i] <= ' ' || text[i] > '~') return false;
    return size > 0 && size <= VERSION_MOST;
}

/* *out NULL: the node has no agent. */
static int member_of(struct store_txn *txn, struct arena *arena, struct slice record, Pb__Member **out) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    *out = NULL;
    const Pb__Node *node = record_node(txn, arena, record);
    if (!node) return CO_CORRUPT;
    struct slice key = key_check(room, slice_text(node->name), slice_make("", 0), SLICE_LITERAL(SERF_HEALTH));
    if (store_get(txn, TABLE_CHECKS, key, &bytes) != CO_OK) return CO_OK;
    Pb__Member *member = arena_alloc(arena, sizeof *member);
    pb__member__init(member);
    member->name = node->name, member->id = node->id, member->address = node->address;
    if (is_version(node->version)) member->version = node->version;
    member->failed = record_number(bytes, CHECK_STATUS_FIELD) == (uint64_t)PB__STATUS__CRITICAL;
    *out = member;
    return add_server(txn, arena, member);
}

int catalog_member(struct store_txn *txn, struct arena *arena, struct slice node, Pb__Member **member) {
    struct slice bytes;
    *member = NULL;
    int rv = catalog_node_bytes(txn, node, &bytes);
    return rv == CO_OK ? member_of(txn, arena, bytes, member) : rv == CO_NOTFOUND ? CO_OK : rv;
}

static int add_node(struct store_txn *txn, struct arena *arena, struct slice record, struct pointers *members) {
    Pb__Member *member;
    int error = member_of(txn, arena, record, &member);
    if (member) pointers_add(members, arena, member);
    return error;
}

/* Adds a node that has left, unless somebody has registered it again meanwhile. */
static int add_left(struct store_txn *txn, struct arena *arena, struct slice record, struct pointers *members) {
    struct slice bytes;
    const Pb__DeadNode *left = message_unpack(arena, &pb__dead_node__descriptor, record);
    if (!left) return CO_CORRUPT;
    if (!left->left || catalog_node_bytes(txn, slice_text(left->node), &bytes) == CO_OK) return CO_OK;
    Pb__Member *member = arena_alloc(arena, sizeof *member);
    pb__member__init(member);
    member->name = left->node, member->id = left->node_id, member->address = left->address, member->left = true;
    member->server_port = left->server_port, member->version = left->version;
    pointers_add(members, arena, member);
    return CO_OK;
}

static int run_members(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                       struct query_result *result) {
    struct pointers members = {0};
    struct store_cursor cursor;
    struct slice all = slice_make("", 0);
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_NODES, all) {
        if (error == CO_OK) error = add_node(txn, arena, cursor.value, &members);
    }
    store_cursor_close(&cursor);
    char room[1];
    struct slice dead = lease_row_head(ROW_DEAD, room);
    STORE_PREFIX(&cursor, txn, TABLE_LEASES, dead) {
        if (error == CO_OK) error = add_left(txn, arena, cursor.value, &members);
    }
    store_cursor_close(&cursor);
    if (error) return error;
    Pb__MembersResult *records = arena_alloc(arena, sizeof *records);
    pb__members_result__init(records);
    records->members = (Pb__Member **)members.items, records->n_members = members.count;
    return query_done(txn, nodes_thing(message), &records->base, true, result);
}

const struct query_type query_members = {.number = 11,
                                         .name = "members",
                                         .discovery = true,
                                         .request = &pb__table_request__descriptor,
                                         .result = &pb__members_result__descriptor,
                                         .watched = nodes_thing,
                                         .run = run_members,
                                         .show = catalog_show_members};
const struct query_type query_all_members = {.number = 22,
                                             .name = "all-members",
                                             .discovery = true,
                                             .request = &pb__table_request__descriptor,
                                             .result = &pb__members_result__descriptor,
                                             .watched = nodes_thing,
                                             .run = run_members,
                                             .show = access_operator_show};
