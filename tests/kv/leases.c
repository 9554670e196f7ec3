#include "leases.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "registry/catalog.h"
#include "registry/version.h"

void leases_open(struct fixture *world) {
    fixture_open(world);
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = MACHINE_VERSION_NEWEST, command.cluster_id = 1;
    cr_assert(fixture_apply(world, CLUSTER_VERSION, &command.base).yes);
}

void lease_uuid(unsigned number, char id[UUID_TEXT_SIZE + 1]) {
    snprintf(id, UUID_TEXT_SIZE + 1, "%08x-1ea5-4000-8000-000000000000", number);
}

struct outcome lease_grant(struct fixture *world, const char *id, const char *node, unsigned node_id) {
    return lease_grant_to(world, id, node, node_id, "", 0);
}

struct outcome lease_grant_to(struct fixture *world, const char *id, const char *node, unsigned node_id,
                              const char *address, uint64_t process) {
    Pb__Lease lease = PB__LEASE__INIT;
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    char node_text[UUID_TEXT_SIZE + 1];
    lease_uuid(node_id, node_text);
    lease.id = (char *)(uintptr_t)id;
    lease.ttl_ns = 10000000000;
    if (node) {
        lease.node = (char *)(uintptr_t)node;
        lease.node_id = node_text;
        lease.reconnect_timeout_ns = 7000000000;
        lease.address = (char *)(uintptr_t)address, lease.process = process;
    }
    command.lease = &lease;
    return fixture_apply(world, LEASE_GRANT, &command.base);
}

static struct outcome end(struct fixture *world, const char *id, uint64_t term, bool leave) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = (char *)(uintptr_t)id;
    command.term = term, command.leave = leave;
    return fixture_apply(world, LEASE_END, &command.base);
}
struct outcome lease_revoke(struct fixture *world, const char *id) {
    return end(world, id, 0, false);
}
struct outcome lease_leave(struct fixture *world, const char *id) {
    return end(world, id, 0, true);
}
struct outcome lease_expire(struct fixture *world, const char *id, uint64_t term) {
    return end(world, id, term, false);
}

struct outcome node_leave(struct fixture *world, const char *node, bool dead, bool prune) {
    Pb__NodeLeaveCommand command = PB__NODE_LEAVE_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node, command.dead = dead, command.prune = prune;
    return fixture_apply(world, NODE_LEAVE, &command.base);
}

const char *members_now(struct fixture *world) {
    static char text[512];
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    const Pb__MembersResult *all = (const Pb__MembersResult *)fixture_ask(world, &query_members, &request.base).message;
    text[0] = 0;
    for (size_t i = 0; i < all->n_members; i++) {
        const Pb__Member *member = all->members[i];
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s=%s ", member->name,
                 member->left     ? "left"
                 : member->failed ? "failed"
                                  : "alive");
    }
    return text;
}

struct outcome lease_reap(struct fixture *world, const char *node, uint64_t index, uint64_t term) {
    Pb__LeaseReapCommand command = PB__LEASE_REAP_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    command.index = index, command.term = term;
    return fixture_apply(world, LEASE_REAP, &command.base);
}

struct outcome lease_register(struct fixture *world, const struct registration *plan) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, health = PB__CHECK__INIT, *checks[2];
    char address[] = "127.0.0.1", node_id[UUID_TEXT_SIZE + 1], health_id[] = "serfHealth", none[] = "";
    char *lease = plan->lease ? (char *)(uintptr_t)plan->lease : none;
    lease_uuid(plan->node_id, node_id);
    node.name = (char *)(uintptr_t)plan->node;
    node.address = address;
    if (plan->node_id) node.id = node_id;
    command.node = &node;
    command.skip_node_update = plan->skip;
    if (plan->service) {
        service.id = service.name = (char *)(uintptr_t)plan->service;
        service.lease = lease;
        command.service = &service;
    } else {
        node.lease = lease;
    }
    if (plan->by) command.by_lease = (char *)(uintptr_t)plan->by;
    if (plan->check) {
        check.check_id = (char *)(uintptr_t)plan->check;
        check.status = PB__STATUS__CRITICAL;
        if (plan->service) check.service_id = service.id;
        checks[command.n_checks++] = &check;
    }
    if (plan->alive) {
        health.check_id = health_id;
        checks[command.n_checks++] = &health;
    }
    command.checks = checks;
    return fixture_apply(world, CATALOG_REGISTER, &command.base);
}

struct outcome kv_put_leased(struct fixture *world, const char *key, const char *value, const char *lease) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)(uintptr_t)key};
    command.value = (ProtobufCBinaryData){strlen(value), (uint8_t *)(uintptr_t)value};
    if (lease) command.lease = (char *)(uintptr_t)lease;
    return fixture_apply(world, KV_APPLY, &command.base);
}

static struct buffer text;

const char *lease_holds(struct fixture *world, const char *id) {
    Pb__LeaseRequest request = PB__LEASE_REQUEST__INIT;
    request.id = (char *)(uintptr_t)id;
    struct query_result result = fixture_ask(world, &query_lease, &request.base);
    if (!result.found) return "gone";
    const Pb__LeaseEntry *entry = (const Pb__LeaseEntry *)result.message;
    buffer_reset(&text);
    for (size_t i = 0; i < entry->n_keys; i++)
        buffer_printf(&text, "key %.*s; ", entry->keys[i].len < 20 ? (int)entry->keys[i].len : 20, entry->keys[i].data);
    for (size_t i = 0; i < entry->n_services; i++)
        buffer_printf(&text, "service %s/%s; ", entry->services[i]->node, entry->services[i]->id);
    for (size_t i = 0; i < entry->n_nodes; i++) buffer_printf(&text, "node %s; ", entry->nodes[i]);
    buffer_append_byte(&text, '\0');
    return text.data;
}

const char *dead_nodes(struct fixture *world) {
    Pb__DeadNodesRequest request = PB__DEAD_NODES_REQUEST__INIT;
    struct query_result result = fixture_ask(world, &query_dead_nodes, &request.base);
    const Pb__DeadNodesResult *nodes = (const Pb__DeadNodesResult *)result.message;
    buffer_reset(&text);
    for (size_t i = 0; i < nodes->n_nodes; i++) buffer_printf(&text, "%s ", nodes->nodes[i]->node);
    buffer_append_byte(&text, '\0');
    return text.data;
}

const char *node_state(struct fixture *world, const char *node) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)(uintptr_t)node;
    struct query_result result = fixture_ask(world, &query_node_services, &request.base);
    if (!result.found) return "gone";
    result = fixture_ask(world, &query_node_checks, &request.base);
    const Pb__ChecksResult *checks = (const Pb__ChecksResult *)result.message;
    buffer_reset(&text);
    for (size_t i = 0; i < checks->n_checks; i++)
        buffer_printf(&text, "%s=%s ", checks->checks[i]->check_id, catalog_status_text(checks->checks[i]->status));
    buffer_append_byte(&text, '\0');
    return text.data;
}
