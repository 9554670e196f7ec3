#include "world.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/text.h"

static void on_news(void *data) {
    struct world *world = data;
    world->wakes++;
    if (world->on_wake) world->on_wake();
}

static void machine_begin(struct world *world) {
    struct machine_config config = {
        .store = {.folder = world->folder, .map_bytes = 64 << 20, .reserve_step_bytes = 1 << 20},
        .modules = world->modules,
        .updates = world->box,
    };
    struct fault fault = {0};
    cr_assert_eq(machine_open(&config, &world->machine, &fault), CO_OK, "%s", fault.text);
    world->reader = store_reader_new(machine_store(world->machine));
}

static void machine_end(struct world *world) {
    store_read_done(world->reader);
    store_reader_free(world->reader);
    machine_close(world->machine);
}

void world_open(struct world *world) { world_open_with(world, NULL); }

void world_open_with(struct world *world, const struct module *more) {
    const char *base = getenv("TMPDIR");
    size_t count = 0;
    *world = (struct world){.term = 1};
    for (; agent_modules[count].module; count++) world->modules[count] = agent_modules[count];
    cr_assert_lt(count + 1, ARRAY_COUNT(world->modules));
    world->modules[count].module = more;
    snprintf(world->folder, sizeof world->folder, "%s/coord-test-kv-XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(world->folder));
    world->box = expiry_updates_new(on_news, world);
    machine_begin(world);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

void world_close(struct world *world) {
    machine_end(world);
    expiry_updates_free(world->box);
    arena_free(&world->arena);
    cr_assert_eq(nftw(world->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void world_reopen(struct world *world) {
    uint64_t applied = machine_applied(world->machine);
    machine_end(world);
    machine_begin(world);
    cr_assert_eq(machine_applied(world->machine), applied);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static void done(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    struct outcome *outcome = origin;
    *outcome = (struct outcome){.error = result->error, .yes = result->yes, .index = result->index};
    if (result->text) snprintf(outcome->text, sizeof outcome->text, "%s", result->text);
    if (!result->record_type || strcmp(result->record_type, pb__session__descriptor.name) != 0) return;
    Pb__Session *session = pb__session__unpack(NULL, result->record.size, (const uint8_t *)result->record.data);
    cr_assert_not_null(session);
    snprintf(outcome->session, sizeof outcome->session, "%s", session->id);
    pb__session__free_unpacked(session, NULL);
}

static void apply_bytes(struct world *world, const struct slice *commands, size_t count, struct outcome *outcomes) {
    struct machine_input *inputs = mem_zalloc(count * sizeof *inputs);
    for (size_t i = 0; i < count; i++)
        inputs[i] = (struct machine_input){.index = machine_applied(world->machine) + 1 + i,
                                           .term = world->term,
                                           .command = commands[i],
                                           .is_command = true,
                                           .origin = &outcomes[i]};
    cr_assert_eq(machine_apply(world->machine, inputs, count, done, NULL, NULL), CO_OK);
    free(inputs);
}

void world_apply(struct world *world, const struct command *commands, size_t count, struct outcome *outcomes) {
    struct buffer *buffers = mem_zalloc(count * sizeof *buffers);
    struct slice *slices = mem_zalloc(count * sizeof *slices);
    for (size_t i = 0; i < count; i++) {
        machine_command(&buffers[i], commands[i].type, commands[i].message);
        slices[i] = buffer_slice(&buffers[i]);
    }
    apply_bytes(world, slices, count, outcomes);
    for (size_t i = 0; i < count; i++) buffer_free(&buffers[i]);
    free(buffers);
    free(slices);
}

struct outcome world_do(struct world *world, uint8_t type, const ProtobufCMessage *message) {
    struct outcome outcome;
    struct command command = {type, message};
    world_apply(world, &command, 1, &outcome);
    return outcome;
}

int world_try(struct world *world, uint8_t type, const ProtobufCMessage *message) {
    struct buffer command = {0};
    machine_command(&command, type, message);
    struct machine_input input = {.index = machine_applied(world->machine) + 1,
                                  .term = world->term,
                                  .command = buffer_slice(&command),
                                  .is_command = true};
    int rv = machine_apply(world->machine, &input, 1, NULL, NULL, NULL);
    buffer_free(&command);
    return rv;
}

struct outcome world_raw(struct world *world, struct slice command) {
    struct outcome outcome;
    apply_bytes(world, &command, 1, &outcome);
    return outcome;
}

static ProtobufCBinaryData binary(const char *text) {
    return (ProtobufCBinaryData){.len = text ? strlen(text) : 0, .data = (uint8_t *)(uintptr_t)text};
}

/* `number` is the index of cas, else the flags. */
struct outcome kv_do(struct world *world, Pb__KvVerb verb, const char *key, const char *value, uint64_t number,
                     const char *session) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = verb;
    command.key = binary(key);
    command.value = binary(value);
    if (verb == PB__KV_VERB__KV_CAS || verb == PB__KV_VERB__KV_DELETE_CAS) command.index = number;
    else command.flags = number;
    if (session) command.session = (char *)(uintptr_t)session;
    return world_do(world, KV_APPLY, &command.base);
}

void session_id(unsigned number, char id[UUID_TEXT_SIZE + 1]) {
    snprintf(id, UUID_TEXT_SIZE + 1, "%08x-0000-4000-8000-000000000000", number);
}

struct outcome session_make(struct world *world, const char *id, const struct session_plan *plan) {
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
    return world_do(world, SESSION_CREATE, &command.base);
}

struct outcome session_drop(struct world *world, const char *id) {
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = (char *)(uintptr_t)id;
    return world_do(world, SESSION_DESTROY, &command.base);
}

static struct outcome catalog_register(struct world *world, const char *node, Pb__Check *check) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    char address[] = "127.0.0.1", datacenter[] = "dc1";
    record.name = (char *)(uintptr_t)node;
    record.address = address;
    record.datacenter = datacenter;
    command.node = &record;
    command.checks = &check;
    command.n_checks = check != NULL;
    return world_do(world, CATALOG_REGISTER, &command.base);
}

struct outcome node_register(struct world *world, const char *node) {
    return catalog_register(world, node, NULL);
}

struct outcome check_register(struct world *world, const char *node, const char *check, Pb__Status status) {
    Pb__Check record = PB__CHECK__INIT;
    record.node = (char *)(uintptr_t)node;
    record.check_id = record.name = (char *)(uintptr_t)check;
    record.status = status;
    return catalog_register(world, node, &record);
}

struct outcome check_remove(struct world *world, const char *node, const char *check) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    command.check_id = (char *)(uintptr_t)check;
    return world_do(world, CATALOG_DEREGISTER, &command.base);
}

struct outcome node_remove(struct world *world, const char *node) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    return world_do(world, CATALOG_DEREGISTER, &command.base);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

struct query_result world_query(struct world *world, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result;
    store_read_done(world->reader);
    arena_reset(&world->arena);
    cr_assert_eq(modules_query(machine_modules(world->machine), type->number), type);
    cr_assert_eq(type->run(store_read(world->reader), request, &world->arena, &result), CO_OK);
    return result;
}

static struct query_result kv_query(struct world *world, const struct query_type *type, const char *key,
                                    const char *separator) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = binary(key);
    request.separator = binary(separator);
    return world_query(world, type, &request.base);
}

struct query_result kv_get(struct world *world, const char *key) {
    return kv_query(world, &query_kv_get, key, NULL);
}
struct query_result kv_list(struct world *world, const char *prefix) {
    return kv_query(world, &query_kv_list, prefix, NULL);
}
struct query_result kv_keys(struct world *world, const char *prefix, const char *separator) {
    return kv_query(world, &query_kv_keys, prefix, separator);
}

struct query_result session_get_by(struct world *world, const char *id) {
    Pb__SessionRequest request = PB__SESSION_REQUEST__INIT;
    request.id = (char *)(uintptr_t)id;
    return world_query(world, &query_session, &request.base);
}

struct query_result session_list(struct world *world, const char *node) {
    Pb__SessionListRequest request = PB__SESSION_LIST_REQUEST__INIT;
    if (node) request.node = (char *)(uintptr_t)node;
    return world_query(world, &query_sessions, &request.base);
}

bool bytes_are(ProtobufCBinaryData data, const char *text) { return slice_is(slice_make(data.data, data.len), text); }
