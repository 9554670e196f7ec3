#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/modules.h"
#include "base/check.h"
#include "scratch.h"

static void machine_at(struct fixture *f) {
    struct machine_config config = {.store = scratch_config(f->folder, NULL, 0), .modules = agent_modules};
    struct fault fault = {0};
    if (machine_open(&config, &f->machine, &fault) != CO_OK) fprintf(stderr, "%s\n", fault.text);
    CHECK(f->machine);
    f->reader = store_reader_new(machine_store(f->machine));
}

void fixture_open(struct fixture *f) {
    *f = (struct fixture){.folder = scratch_folder()};
    machine_at(f);
}

static void machine_off(struct fixture *f) {
    store_read_done(f->reader);
    store_reader_free(f->reader);
    machine_close(f->machine);
    f->machine = NULL;
}

void fixture_reopen(struct fixture *f) {
    machine_off(f);
    machine_at(f);
}

void fixture_close(struct fixture *f) {
    machine_off(f);
    arena_free(&f->arena);
    scratch_remove(f->folder);
}

static void keep(void *data, void *origin, const struct machine_result *result) {
    struct fixture *f = data;
    *(struct machine_result *)origin = *result;
    snprintf(f->text, sizeof f->text, "%s", result->text ? result->text : "");
    ((struct machine_result *)origin)->text = f->text;
}

struct machine_result fixture_apply(struct fixture *f, uint8_t type, const ProtobufCMessage *message) {
    struct buffer command = {0};
    struct machine_result result = {0};
    machine_command(&command, type, message);
    struct machine_input input = {.index = machine_applied(f->machine) + 1,
                                  .term = 1,
                                  .command = buffer_slice(&command),
                                  .is_command = true,
                                  .origin = &result};
    CHECK(machine_apply(f->machine, &input, 1, keep, f, NULL) == CO_OK);
    buffer_free(&command);
    return result;
}

struct query_result fixture_query(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result;
    store_read_done(f->reader);
    CHECK(type->run(store_read(f->reader), request, &f->arena, &result) == CO_OK);
    return result;
}

uint64_t fixture_bytes(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request,
                       struct buffer *out) {
    struct query_result result = fixture_query(f, type, request);
    size_t size = protobuf_c_message_get_packed_size(result.message);
    buffer_printf(out, "%s %d %zu ", type->name, result.found, size);
    buffer_reserve(out, size);
    protobuf_c_message_pack(result.message, (uint8_t *)out->data + out->size);
    out->size += size;
    fixture_forget(f);
    return result.index;
}

void fixture_forget(struct fixture *f) {
    store_read_done(f->reader);
    arena_reset(&f->arena);
}

uint64_t fixture_sum(struct fixture *f) {
    store_read_done(f->reader);
    struct store_txn *txn = store_read(f->reader);
    uint64_t sum = store_sum(txn);
    CHECK(sum == store_scrub(txn));
    store_read_done(f->reader);
    return sum;
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

enum { LIST_MAX = 32 };

static char *part(struct arena *arena, const char **at) {
    size_t size = strcspn(*at, ": ");
    char *text = arena_strndup(arena, *at, size);
    *at += size;
    if (**at == ':') ++*at;
    return text;
}

static void add_meta(struct arena *arena, Pb__Node *node, const char *at) {
    Pb__Pair *pair = arena_alloc(arena, sizeof *pair);
    pb__pair__init(pair);
    pair->key = part(arena, &at);
    pair->value = part(arena, &at);
    if (!node->meta) node->meta = arena_alloc(arena, LIST_MAX * sizeof *node->meta);
    CHECK(node->n_meta < LIST_MAX);
    node->meta[node->n_meta++] = pair;
}

static Pb__Service *new_service(struct arena *arena, const char *at) {
    Pb__Service *service = arena_alloc(arena, sizeof *service);
    pb__service__init(service);
    service->id = part(arena, &at);
    service->name = part(arena, &at);
    service->port = (uint32_t)atoi(part(arena, &at));
    service->tags = arena_alloc(arena, LIST_MAX * sizeof *service->tags);
    return service;
}

static Pb__Check *add_check(struct arena *arena, Pb__RegisterCommand *command, const char *at) {
    Pb__Check *check = arena_alloc(arena, sizeof *check);
    pb__check__init(check);
    check->check_id = check->name = part(arena, &at);
    CHECK(catalog_status_parse(slice_text(part(arena, &at)), &check->status) == CO_OK);
    check->service_id = part(arena, &at);
    if (!command->checks) command->checks = arena_alloc(arena, LIST_MAX * sizeof *command->checks);
    CHECK(command->n_checks < LIST_MAX);
    command->checks[command->n_checks++] = check;
    return check;
}

Pb__RegisterCommand *fixture_register_command(struct arena *arena, const char *spec) {
    Pb__RegisterCommand *command = arena_alloc(arena, sizeof *command);
    pb__register_command__init(command);
    command->node = arena_alloc(arena, sizeof *command->node);
    pb__node__init(command->node);
    command->node->address = arena_strndup(arena, "10.0.0.1", 8);
    Pb__Check *check = NULL;
    for (const char *at = spec; *at;) {
        const char *value = at + strcspn(at, "= ");
        size_t size = (size_t)(value - at);
        struct slice word = slice_make(at, size);
        if (*value == '=') value++;
        const char *rest = value;
        if (slice_is(word, "node")) command->node->name = part(arena, &rest);
        else if (slice_is(word, "addr")) command->node->address = part(arena, &rest);
        else if (slice_is(word, "id")) command->node->id = part(arena, &rest);
        else if (slice_is(word, "skip")) command->skip_node_update = true;
        else if (slice_is(word, "own")) command->own = true;
        else if (slice_is(word, "meta")) add_meta(arena, command->node, value);
        else if (slice_is(word, "service")) command->service = new_service(arena, value);
        else if (slice_is(word, "tag")) command->service->tags[command->service->n_tags++] = part(arena, &rest);
        else if (slice_is(word, "weight"))
            command->service->weight_passing = command->service->weight_warning = (uint32_t)atoi(value);
        else if (slice_is(word, "check")) check = add_check(arena, command, value);
        else if (slice_is(word, "output"))
            check->output = (ProtobufCBinaryData){strcspn(value, " "), (uint8_t *)part(arena, &rest)};
        else CHECK(size == 0);
        at = value + strcspn(value, " ");
        at += strspn(at, " ");
    }
    return command;
}

struct machine_result fixture_register(struct fixture *f, const char *spec) {
    struct arena arena = {0};
    struct machine_result result = fixture_apply(f, CATALOG_REGISTER, &fixture_register_command(&arena, spec)->base);
    arena_free(&arena);
    return result;
}

struct machine_result fixture_deregister(struct fixture *f, const char *node, const char *service_id,
                                         const char *check_id) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    command.service_id = (char *)(uintptr_t)service_id;
    command.check_id = (char *)(uintptr_t)check_id;
    return fixture_apply(f, CATALOG_DEREGISTER, &command.base);
}

struct query_result fixture_node(struct fixture *f, const struct query_type *type, const char *node) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)(uintptr_t)node;
    return fixture_query(f, type, &request.base);
}

struct query_result fixture_service(struct fixture *f, const struct query_type *type, const char *service) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    request.service = (char *)(uintptr_t)service;
    return fixture_query(f, type, &request.base);
}

struct query_result fixture_table(struct fixture *f, const struct query_type *type) {
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    return fixture_query(f, type, &request.base);
}

struct query_result fixture_state(struct fixture *f, const char *state) {
    Pb__StateRequest request = PB__STATE_REQUEST__INIT;
    request.state = (char *)(uintptr_t)state;
    return fixture_query(f, &query_state_checks, &request.base);
}
