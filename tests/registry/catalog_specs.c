#include "catalog_specs.h"

#include <stdlib.h>

#include "base/check.h"

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

struct outcome fixture_register(struct fixture *f, const char *spec) {
    struct arena arena = {0};
    struct outcome result = fixture_apply(f, CATALOG_REGISTER, &fixture_register_command(&arena, spec)->base);
    arena_free(&arena);
    return result;
}

struct outcome fixture_deregister(struct fixture *f, const char *node, const char *service_id, const char *check_id) {
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
