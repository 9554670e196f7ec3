#include "coordinates.h"

#include <criterion/criterion.h>
#include <stdio.h>

struct outcome node_add(struct fixture *world, const char *name) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check of_node = PB__CHECK__INIT, of_service = PB__CHECK__INIT, *checks[] = {&of_node, &of_service};
    node.name = (char *)(uintptr_t)name, node.address = "10.0.0.1";
    service.name = "web";
    of_node.check_id = "n", of_service.check_id = "s", of_service.service_id = "web";
    command.node = &node, command.service = &service, command.checks = checks, command.n_checks = 2;
    return fixture_apply(world, CATALOG_REGISTER, &command.base);
}

struct outcome node_remove(struct fixture *world, const char *node) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node;
    return fixture_apply(world, CATALOG_DEREGISTER, &command.base);
}

Pb__Coordinate *coordinate_at(struct arena *arena, const char *node, const char *segment, double seconds) {
    struct vivaldi_coordinate *numbers = arena_zalloc(arena, sizeof *numbers);
    Pb__Coordinate *record = arena_alloc(arena, sizeof *record);
    numbers->vec[0] = seconds;
    *record = coordinate_record(node, segment, numbers);
    return record;
}

struct outcome coordinate_put(struct fixture *world, const char *node, const char *segment, double seconds) {
    struct arena arena = {0};
    Pb__CoordinateUpdateCommand command = PB__COORDINATE_UPDATE_COMMAND__INIT;
    Pb__Coordinate *record = coordinate_at(&arena, node, segment, seconds);
    command.updates = &record, command.n_updates = 1;
    struct outcome outcome = fixture_apply(world, COORDINATE_UPDATE, &command.base);
    arena_free(&arena);
    return outcome;
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

struct query_result coordinates_all(struct fixture *world) {
    Pb__CoordinatesRequest request = PB__COORDINATES_REQUEST__INIT;
    return fixture_ask(world, &query_coordinates, &request.base);
}

struct query_result coordinates_of(struct fixture *world, const char *node) {
    Pb__CoordinatesRequest request = PB__COORDINATES_REQUEST__INIT;
    request.node = (char *)(uintptr_t)node;
    return fixture_ask(world, &query_node_coordinates, &request.base);
}
