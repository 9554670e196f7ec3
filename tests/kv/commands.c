#include "commands.h"

#include <stdio.h>

static ProtobufCBinaryData binary(const char *text) {
    return (ProtobufCBinaryData){.len = text ? strlen(text) : 0, .data = (uint8_t *)(uintptr_t)text};
}

/* `number` is the index of cas, else the flags. */
static struct outcome kv_submit(struct fixture *world, uint8_t type, Pb__KvCommand *command, const char *key,
                                const char *value, uint64_t number, const char *session) {
    command->key = binary(key);
    command->value = binary(value);
    command->want_token = session != NULL;
    if (command->verb == PB__KV_VERB__KV_CAS || command->verb == PB__KV_VERB__KV_DELETE_CAS) command->index = number;
    else command->flags = number;
    if (session) command->session = (char *)(uintptr_t)session;
    return fixture_apply(world, type, &command->base);
}

struct outcome kv_do(struct fixture *world, Pb__KvVerb verb, const char *key, const char *value, uint64_t number,
                     const char *session) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = verb;
    return kv_submit(world, KV_APPLY, &command, key, value, number, session);
}

struct outcome kv_fenced(struct fixture *world, const char *lock, uint64_t token, Pb__KvVerb verb, const char *key,
                         const char *value, uint64_t number, const char *session) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = verb;
    command.fence = (char *)(uintptr_t)lock, command.token = token;
    return kv_submit(world, KV_APPLY_FENCED, &command, key, value, number, session);
}

struct outcome lock_take(struct fixture *world, const char *name, const char *session, Pb__QueueMode mode) {
    Pb__QueueAcquireCommand command = PB__QUEUE_ACQUIRE_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    use.id = (char *)(uintptr_t)session;
    command.name = (char *)(uintptr_t)name, command.session = &use, command.mode = mode, command.enqueue = true;
    return fixture_apply(world, LOCK_ACQUIRE, &command.base);
}

struct outcome lock_give(struct fixture *world, const char *name, const char *session) {
    Pb__QueueReleaseCommand command = PB__QUEUE_RELEASE_COMMAND__INIT;
    command.name = (char *)(uintptr_t)name, command.session = (char *)(uintptr_t)session;
    return fixture_apply(world, LOCK_RELEASE, &command.base);
}

void session_id(unsigned number, char id[UUID_TEXT_SIZE + 1]) {
    snprintf(id, UUID_TEXT_SIZE + 1, "%08x-0000-4000-8000-000000000000", number);
}

struct outcome session_make(struct fixture *world, const char *id, const struct session_plan *plan) {
    Pb__SessionCreateCommand command = PB__SESSION_CREATE_COMMAND__INIT;
    Pb__Session session = PB__SESSION__INIT;
    char *node_check = (char *)(uintptr_t)plan->node_check, *service_check = (char *)(uintptr_t)plan->service_check;
    char *old_check = (char *)(uintptr_t)plan->old_check;
    session.id = (char *)(uintptr_t)id;
    session.node = (char *)(uintptr_t)plan->node;
    session.node_checks = &node_check, session.n_node_checks = node_check != NULL;
    session.service_checks = &service_check, session.n_service_checks = service_check != NULL;
    session.checks = &old_check, session.n_checks = old_check != NULL;
    session.lock_delay_ns = plan->lock_delay_ns;
    session.ttl_ns = plan->ttl_ns;
    session.delete_behavior = plan->delete_keys;
    command.session = &session;
    return fixture_apply(world, SESSION_CREATE, &command.base);
}

struct outcome session_drop(struct fixture *world, const char *id) {
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = (char *)(uintptr_t)id;
    return fixture_apply(world, SESSION_DESTROY, &command.base);
}

static struct outcome catalog_register(struct fixture *world, const char *node, Pb__Check *check) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    char address[] = "127.0.0.1", datacenter[] = "dc1";
    record.name = (char *)(uintptr_t)node;
    record.address = address;
    record.datacenter = datacenter;
    command.node = &record;
    command.checks = &check;
    command.n_checks = check != NULL;
    return fixture_apply(world, CATALOG_REGISTER, &command.base);
}

struct outcome node_register(struct fixture *world, const char *node) {
    return catalog_register(world, node, NULL);
}

struct outcome check_register(struct fixture *world, const char *node, const char *check, Pb__Status status) {
    Pb__Check record = PB__CHECK__INIT;
    record.node = (char *)(uintptr_t)node;
    record.check_id = record.name = (char *)(uintptr_t)check;
    record.status = status;
    return catalog_register(world, node, &record);
}

struct outcome check_deregister(struct fixture *world, const char *node, const char *check) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    command.check_id = (char *)(uintptr_t)check;
    return fixture_apply(world, CATALOG_DEREGISTER, &command.base);
}

struct outcome node_remove(struct fixture *world, const char *node) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    return fixture_apply(world, CATALOG_DEREGISTER, &command.base);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static struct query_result kv_query(struct fixture *world, const struct query_type *type, const char *key,
                                    const char *separator) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = binary(key);
    request.separator = binary(separator);
    return fixture_ask(world, type, &request.base);
}

struct query_result kv_get(struct fixture *world, const char *key) {
    return kv_query(world, &query_kv_get, key, NULL);
}
struct query_result kv_list(struct fixture *world, const char *prefix) {
    return kv_query(world, &query_kv_list, prefix, NULL);
}
struct query_result kv_keys(struct fixture *world, const char *prefix, const char *separator) {
    return kv_query(world, &query_kv_keys, prefix, separator);
}

struct query_result session_get_by(struct fixture *world, const char *id) {
    Pb__SessionRequest request = PB__SESSION_REQUEST__INIT;
    request.id = (char *)(uintptr_t)id;
    return fixture_ask(world, &query_session, &request.base);
}

struct query_result session_list(struct fixture *world, const char *node) {
    Pb__SessionListRequest request = PB__SESSION_LIST_REQUEST__INIT;
    if (node) request.node = (char *)(uintptr_t)node;
    return fixture_ask(world, &query_sessions, &request.base);
}

bool bytes_are(ProtobufCBinaryData data, const char *text) { return slice_is(slice_make(data.data, data.len), text); }
