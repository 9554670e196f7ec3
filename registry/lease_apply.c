/* Commands on leases. Everything is checked before the first write. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "base/text.h"
#include "registry/catalog_leases.h"
#include "registry/catalog_records.h"
#include "registry/expiry.h"
#include "registry/lease_internal.h"
#include "registry/self_preservation.h"
#include "registry/tables.h"

static const struct slice nothing = SLICE_LITERAL("");

/* -- records ------------------------------------------------------------------------------------------------------ */

int lease_record(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Lease **lease) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    if (id.size != UUID_TEXT_SIZE) return CO_NOTFOUND;
    int rv = store_get(txn, TABLE_LEASES, lease_key(id, room), &bytes);
    if (rv != CO_OK) return rv;
    *lease = message_unpack(arena, &pb__lease__descriptor, bytes);
    return *lease ? CO_OK : CO_CORRUPT;
}

struct slice lease_key(struct slice id, char *room) {
    CHECK(id.size == UUID_TEXT_SIZE);
    room[0] = ROW_LEASE;
    memcpy(room + 1, id.data, UUID_TEXT_SIZE);
    return slice_make(room, 1 + UUID_TEXT_SIZE);
}

/* Names that differ in case only are one to the catalog. */
struct slice lease_node_key(enum lease_row row, struct slice node, char *room) {
    char stack[512], *whole = 1 + node.size <= sizeof stack ? stack : mem_alloc(1 + node.size);
    whole[0] = (char)row;
    if (node.size) memcpy(whole + 1, node.data, node.size);
    bytes_lower(whole + 1, node.size);
    struct slice key = store_key_long(slice_make(whole, 1 + node.size), room);
    CHECK(key.size > 0 && key.size <= STORE_KEY_MAX);
    if (key.data != room) memcpy(room, key.data, key.size), key.data = room;
    if (whole != stack) free(whole);
    return key;
}

bool lease_known(struct machine_tx *tx, struct slice lease, struct machine_result *result) {
    char room[STORE_KEY_MAX];
    struct slice ignored;
    if (lease.size == UUID_TEXT_SIZE && store_get(tx->store, TABLE_LEASES, lease_key(lease, room), &ignored) == CO_OK)
        return true;
    machine_refuse(result, CO_NOTFOUND,
                   arena_printf(tx->arena, "lease \"%.*s\" is not known: it has expired or was revoked; register again",
                                lease.size < 100 ? (int)lease.size : 100, lease.data));
    return false;
}

static void mark(struct machine_tx *tx, struct slice id, bool removed) {
    machine_changed(tx, SPACE_LEASE, id, removed);
    machine_changed(tx, SPACE_LEASE_TABLE, nothing, false);
}

/* -- dead nodes --------------------------------------------------------------------------------------------------- */

static int dead_get(struct machine_tx *tx, struct slice node, Pb__DeadNode **dead) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    int rv = store_get(tx->store, TABLE_LEASES, lease_node_key(ROW_DEAD, node, room), &bytes);
    if (rv != CO_OK) return rv;
    *dead = message_unpack(tx->arena, &pb__dead_node__descriptor, bytes);
    return *dead ? CO_OK : CO_CORRUPT;
}

/* Puts the note of a dead node. The caller has set the other fields of *dead. */
static void dead_put(struct machine_tx *tx, Pb__DeadNode *dead, int64_t reconnect_timeout_ns) {
    CHECK(dead->node[0]);
    dead->reconnect_timeout_ns = reconnect_timeout_ns ? reconnect_timeout_ns : LEASE_RECONNECT_NS;
    dead->create_index = tx->index;
    char room[STORE_KEY_MAX];
    struct slice node = slice_text(dead->node);
    store_put(tx->store, TABLE_LEASES, lease_node_key(ROW_DEAD, node, room), message_pack(tx->arena, &dead->base));
    machine_changed(tx, SPACE_DEAD_NODES, nothing, false);
    expiry_began_in(tx, &dead_node_expiry, node, tx->index, dead->reconnect_timeout_ns);
}

static void dead_forget(struct machine_tx *tx, struct slice node) {
    Pb__DeadNode *dead;
    char room[STORE_KEY_MAX];
    if (dead_get(tx, node, &dead) != CO_OK) return;
    (void)store_del(tx->store, TABLE_LEASES, lease_node_key(ROW_DEAD, node, room));
    machine_changed(tx, SPACE_DEAD_NODES, nothing, false);
    expiry_ended_in(tx, &dead_node_expiry, slice_text(dead->node), dead->create_index);
}

void lease_on_event(struct machine_tx *tx, const struct machine_event *event) {
    if (event->type == MACHINE_NODE_REMOVED) dead_forget(tx, event->node);
    if (event->type == MACHINE_PRESERVATION_RELEASED) expiry_ended_in(tx, &held_service_expiry, event->id, tx->index);
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

enum end { END_OVER, END_LEFT, END_TAKEN_OVER };

/* `preservation`: NULL unless the lease expired. */
static void node_died(struct machine_tx *tx, const Pb__Lease *lease, const Pb__PreservationOrder *preservation) {
    struct slice node = slice_text(lease->node);
    bool lived = catalog_node_alive(tx, node);
    if (!catalog_node_died(tx, node, slice_text(lease->node_id))) return;
    Pb__DeadNode dead = PB__DEAD_NODE__INIT;
    dead.node = lease->node, dead.node_id = lease->node_id;
    dead_put(tx, &dead, lease->reconnect_timeout_ns);
    preservation_node_lost(tx, node, lived ? preservation : NULL, lease->ttl_ns / 1000000);
}

/* Removes the node, and keeps a note of it for a while. Changes nothing when the node has another id. False: there is
 * no such node with an agent. */
static bool node_left(struct machine_tx *tx, struct slice node, struct slice node_id, int64_t reconnect_timeout_ns) {
    Pb__Member *member;
    struct slice bytes;
    int rv = catalog_member(tx->store, tx->arena, node, &member);
    if (rv != CO_OK) store_fail(tx->store, rv);
    catalog_node_goes(tx, node, node_id, false);
    if (!member || catalog_node_bytes(tx->store, node, &bytes) == CO_OK) return false;
    Pb__DeadNode left = PB__DEAD_NODE__INIT;
    left.node = member->name, left.node_id = member->id, left.left = true;
    left.address = member->address, left.server_port = member->server_port;
    left.version = member->version[0] ? member->version : member->server_version;
    dead_put(tx, &left, reconnect_timeout_ns);
    return true;
}

/* Ends the modules' bindings, one after the other. A binding that is still there after its end has a damaged row
 * (CO_CORRUPT); the loop would go on for ever. */
static void end_bindings(struct machine_tx *tx, struct slice lease, const struct module_binding *binding) {
    struct slice name, before = slice_make(NULL, 0);
    while (lease_first(tx, lease, (enum lease_kind)binding->number, &name)) {
        struct binding_end end = {.owner = lease, .name = name};
        int rv = before.data && slice_equal(before, name) ? CO_CORRUPT : binding->ended(tx, &end);
        if (rv != CO_OK) {
            store_fail(tx->store, rv);
            return;
        }
        before = name;
    }
}

static void end_all_bindings(struct machine_tx *tx, struct slice lease) {
    const struct modules *modules = machine_modules(tx->machine);
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module_binding *binding = modules_at(modules, i)->lease_bindings;
        for (; binding && binding->number; binding++) end_bindings(tx, lease, binding);
    }
}

static void lease_end(struct machine_tx *tx, const Pb__Lease *lease, enum end how,
                      const Pb__PreservationOrder *preservation) {
    struct slice id = slice_text(lease->id), node = slice_text(lease->node), node_id = slice_text(lease->node_id),
                 holder;
    char room[STORE_KEY_MAX];
    (void)store_del(tx->store, TABLE_LEASES, lease_key(id, room)); /* first: unbinding looks whether it stands */
    end_all_bindings(tx, id);
    if (node.size && store_get(tx->store, TABLE_LEASES, lease_node_key(ROW_NODE, node, room), &holder) == CO_OK &&
        slice_equal(holder, id))
        (void)store_del(tx->store, TABLE_LEASES, lease_node_key(ROW_NODE, node, room));
    if (node.size && how == END_OVER) node_died(tx, lease, preservation);
    if (node.size && how == END_LEFT) (void)node_left(tx, node, node_id, lease->reconnect_timeout_ns);
    mark(tx, id, true);
    expiry_ended_in(tx, &lease_expiry, id, 0);
}

int lease_end_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__LeaseEndCommand *command = request;
    if (command->term != 0 && command->term != tx->term)
        return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    Pb__Lease *lease;
    int rv = lease_record(tx->store, slice_text(command->id), tx->arena, &lease);
    result->yes = rv == CO_OK || !command->leave;
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv == CO_OK)
        lease_end(tx, lease, command->leave ? END_LEFT : END_OVER, command->term ? command->preservation : NULL);
    return rv;
}

int lease_reap_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__LeaseReapCommand *command = request;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    Pb__DeadNode *dead;
    int rv = dead_get(tx, slice_text(command->node), &dead);
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv != CO_OK) return rv;
    result->yes = dead->create_index == command->index;
    if (!result->yes) return CO_OK; /* the node came back and died again meanwhile */
    dead_forget(tx, slice_text(command->node));
    if (!dead->left) catalog_node_goes(tx, slice_text(dead->node), slice_text(dead->node_id), true);
    return CO_OK;
}

/* -- granting ----------------------------------------------------------------------------------------------------- */

/* Finds the lease that stands under a node's name; *holder NULL: none. */
static int holder_of(struct machine_tx *tx, struct slice node, Pb__Lease **holder) {
    char room[STORE_KEY_MAX];
    struct slice id;
    *holder = NULL;
    if (!node.size) return CO_OK;
    int rv = store_get(tx->store, TABLE_LEASES, lease_node_key(ROW_NODE, node, room), &id);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    rv = lease_record(tx->store, id, tx->arena, holder);
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}

int node_leave_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__NodeLeaveCommand *command = request;
    struct slice node = slice_text(command->node);
    Pb__Lease *holder;
    Pb__Member *member;
    Pb__DeadNode *dead;
    if (!node.size) return machine_refuse(result, CO_INVALID, "no node");
    int rv = holder_of(tx, node, &holder);
    if (rv == CO_OK) rv = catalog_member(tx->store, tx->arena, node, &member);
    if (rv != CO_OK) return rv;
    bool noted = dead_get(tx, node, &dead) == CO_OK;
    if (!command->dead && (holder || (member && !member->failed)))
        return machine_refuse(result, CO_CONFLICT, holder ? "its agent renews its lease" : "its serfHealth passes");
    int64_t reconnect_timeout_ns = holder ? holder->reconnect_timeout_ns : noted ? dead->reconnect_timeout_ns : 0;
    if (holder) lease_end(tx, holder, END_LEFT, NULL);
    bool went = member && (holder || node_left(tx, node, nothing, reconnect_timeout_ns));
    if (command->prune) dead_forget(tx, node);
    result->yes = went || holder || (command->prune && noted);
    return CO_OK;
}

/* Is it the same agent? The same process replaces its own lease; the same address means that the agent was started
 * again. The node id alone does not suffice, because it is copied along with the image of a host. */
static bool same_agent(const Pb__Lease *holder, const Pb__Lease *lease) {
    return holder->process == 0 || lease->process == 0 || holder->process == lease->process ||
           strcmp(holder->address, lease->address) == 0;
}

/* NULL: `lease` may replace the holder's at once; else a line that says why not. */
static const char *in_the_way(struct arena *arena, const Pb__Lease *holder, const Pb__Lease *lease) {
    if (!slice_equal_nocase(slice_text(holder->node_id), slice_text(lease->node_id)))
        return arena_printf(
            arena, "node name \"%s\" is held by the agent with node ID %s (lease %s): wait until that lease ends",
            holder->node, holder->node_id, holder->id);
    if (same_agent(holder, lease)) return NULL;
    return arena_printf(arena,
                        "node name \"%s\" is held by an agent with the same node ID %s at address %s (lease %s): two "
                        "agents need two names and "
                        "node IDs; wait until that lease ends",
                        holder->node, holder->node_id, holder->address, holder->id);
}

/* As lease_renames. */
static int id_in_use(struct machine_tx *tx, const Pb__Lease *lease, struct slice name, const char **why) {
    Pb__Lease *holder;
    *why = NULL;
    if (slice_equal_nocase(name, slice_text(lease->node))) return CO_OK;
    int rv = holder_of(tx, name, &holder);
    if (rv != CO_OK || !holder || !slice_equal_nocase(slice_text(holder->node_id), slice_text(lease->node_id)) ||
        same_agent(holder, lease))
        return rv;
    *why = arena_printf(tx->arena,
                        "node ID %s is that of node \"%s\", whose agent at address %s lives (lease %s): two agents "
                        "need two node IDs; wait until "
                        "that lease ends",
                        lease->node_id, holder->node, holder->address, holder->id);
    return CO_OK;
}

int lease_renames(struct machine_tx *tx, struct slice lease, struct slice name, const char **why) {
    Pb__Lease *record;
    int rv = lease_record(tx->store, lease, tx->arena, &record);
    return rv == CO_OK ? id_in_use(tx, record, name, why) : rv;
}

static const char *wrong(struct arena *arena, const Pb__Lease *lease) {
    if (!uuid_valid(slice_text(lease->id))) return "the lease's id is not a UUID";
    if (lease->ttl_ns < LEASE_TTL_MIN_NS || lease->ttl_ns > LEASE_TTL_MAX_NS)
        return "a lease's TTL must be between 100ms and 24h";
    if (lease->reconnect_timeout_ns < 0) return "the reconnect timeout must not be negative";
    if (lease->node[0] && !uuid_valid(slice_text(lease->node_id)))
        return arena_printf(arena, "Bad node ID: \"%.64s\" is no UUID", lease->node_id);
    if (!lease->node[0] && lease->node_id[0]) return "a node ID without a node";
    return NULL;
}

int lease_grant_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__LeaseGrantCommand *command = request;
    Pb__Lease *lease = command->lease, *holder;
    char room[STORE_KEY_MAX];
    struct slice ignored;
    const char *why = lease ? wrong(tx->arena, lease) : "no lease";
    if (why) return machine_refuse(result, CO_INVALID, why);
    struct slice id = slice_text(lease->id), node = slice_text(lease->node);
    if (store_get(tx->store, TABLE_LEASES, lease_key(id, room), &ignored) == CO_OK)
        return machine_refuse(result, CO_EXISTS, "a lease of this id exists already");
    int rv = holder_of(tx, node, &holder);
    if (rv != CO_OK) return rv;
    if (holder && (why = in_the_way(tx->arena, holder, lease)) != NULL) return machine_refuse(result, CO_EXISTS, why);
    rv = node.size ? id_in_use(tx, lease, catalog_node_of_id(tx, slice_text(lease->node_id)), &why) : CO_OK;
    if (rv != CO_OK) return rv;
    if (why) return machine_refuse(result, CO_EXISTS, why);
    if (holder) lease_end(tx, holder, END_TAKEN_OVER, NULL);
    lease->create_index = tx->index;
    store_put(tx->store, TABLE_LEASES, lease_key(id, room), message_pack(tx->arena, &lease->base));
    if (node.size) {
        store_put(tx->store, TABLE_LEASES, lease_node_key(ROW_NODE, node, room), id);
        dead_forget(tx, node);
        if (catalog_node_lives(tx, node, slice_text(lease->node_id))) preservation_node_back(tx, node);
    }
    mark(tx, id, false);
    expiry_began_in(tx, &lease_expiry, id, 0, lease->ttl_ns);
    result->yes = true;
    result->message = &lease->base;
    return CO_OK;
}
