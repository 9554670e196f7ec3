#include "world.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include "agent/modules.h"

void world_open(struct world *world) {
    const char *base = getenv("TMPDIR");
    *world = (struct world){.machine = NULL};
    snprintf(world->folder, sizeof world->folder, "%s/coord-test-lb-XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(world->folder));
    struct machine_config config = {
        .store = {.folder = world->folder, .map_bytes = 64 << 20, .reserve_step_bytes = 1 << 20},
        .modules = agent_modules};
    struct fault fault = {0};
    cr_assert_eq(machine_open(&config, &world->machine, &fault), CO_OK, "%s", fault.text);
    world->reader = store_reader_new(machine_store(world->machine));
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

void world_close(struct world *world) {
    store_read_done(world->reader);
    store_reader_free(world->reader);
    machine_close(world->machine);
    arena_free(&world->arena);
    cr_assert_eq(nftw(world->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void done(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    *(struct outcome *)origin = (struct outcome){.error = result->error, .yes = result->yes, .index = result->index};
}

struct outcome world_do(struct world *world, uint8_t type, const ProtobufCMessage *message) {
    struct outcome outcome;
    struct buffer command = {0};
    machine_command(&command, type, message);
    struct machine_input input = {.index = machine_applied(world->machine) + 1,
                                  .term = 1,
                                  .command = buffer_slice(&command),
                                  .is_command = true,
                                  .origin = &outcome};
    cr_assert_eq(machine_apply(world->machine, &input, 1, done, NULL, NULL), CO_OK);
    buffer_free(&command);
    return outcome;
}

struct outcome node_add(struct world *world, const char *name) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check of_node = PB__CHECK__INIT, of_service = PB__CHECK__INIT, *checks[] = {&of_node, &of_service};
    node.name = (char *)(uintptr_t)name, node.address = "10.0.0.1";
    service.name = "web";
    of_node.check_id = "n", of_service.check_id = "s", of_service.service_id = "web";
    command.node = &node, command.service = &service, command.checks = checks, command.n_checks = 2;
    return world_do(world, CATALOG_REGISTER, &command.base);
}

struct outcome node_remove(struct world *world, const char *node) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    return world_do(world, CATALOG_DEREGISTER, &command.base);
}

Pb__Coordinate *coordinate_at(struct arena *arena, const char *node, const char *segment, double seconds) {
    struct vivaldi_coordinate *numbers = arena_zalloc(arena, sizeof *numbers);
    Pb__Coordinate *record = arena_alloc(arena, sizeof *record);
    numbers->vec[0] = seconds;
    *record = coordinate_record(node, segment, numbers);
    return record;
}

struct outcome coordinate_put(struct world *world, const char *node, const char *segment, double seconds) {
    struct arena arena = {0};
    Pb__CoordinateUpdateCommand command = PB__COORDINATE_UPDATE_COMMAND__INIT;
    Pb__Coordinate *record = coordinate_at(&arena, node, segment, seconds);
    command.updates = &record, command.n_updates = 1;
    struct outcome outcome = world_do(world, COORDINATE_UPDATE, &command.base);
    arena_free(&arena);
    return outcome;
}

struct query_result world_query(struct world *world, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result = {0};
    store_read_done(world->reader);
    arena_reset(&world->arena);
    cr_assert_eq(type->run(store_read(world->reader), request, &world->arena, &result), CO_OK);
    return result;
}

const char *coordinates_text(const struct query_result *result) {
    static char text[2000];
    const Pb__CoordinatesResult *found = (const Pb__CoordinatesResult *)result->message;
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; i < found->n_coordinates; i++) {
        const Pb__Coordinate *record = found->coordinates[i];
        cr_assert_eq(coordinate_check(record), CO_OK);
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%s:%s=%g", i ? " " : "", record->node,
                                 record->segment, record->vec[0]);
    }
    return text;
}

struct query_result coordinates_all(struct world *world) {
    Pb__CoordinatesRequest request = PB__COORDINATES_REQUEST__INIT;
    return world_query(world, &query_coordinates, &request.base);
}

struct query_result coordinates_of(struct world *world, const char *node) {
    Pb__CoordinatesRequest request = PB__COORDINATES_REQUEST__INIT;
    request.node = (char *)(uintptr_t)node;
    return world_query(world, &query_node_coordinates, &request.base);
}
