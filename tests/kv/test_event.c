/* Events in the replicated state: what is kept, in which order, and what is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/modules.h"
#include "kv/event.h"

static char folder[64];
static struct machine *machine;
static struct arena arena;
static uint64_t applied;

static void setup(void) {
    struct fault fault = {0};
    strcpy(folder, "/tmp/coord-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    struct machine_config config = {.store = {.folder = folder, .map_bytes = 64 << 20, .reserve_step_bytes = 1 << 20},
                                    .modules = agent_modules};
    cr_assert_eq(machine_open(&config, &machine, &fault), CO_OK, "%s", fault.text);
    applied = 0;
}

static void teardown(void) {
    char command[100];
    arena_free(&arena);
    machine_close(machine);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

struct outcome {
    int error;
    uint64_t index;
};

static void done(void *data, void *origin, const struct machine_result *result) {
    struct outcome *outcome = data;
    (void)origin;
    *outcome = (struct outcome){result->error, 0};
    if (result->error == CO_OK) outcome->index = ((const Pb__Event *)result->message)->index;
}

static struct outcome fire(Pb__Event event) {
    Pb__EventFireCommand command = PB__EVENT_FIRE_COMMAND__INIT;
    command.event = &event;
    size_t size = pb__event_fire_command__get_packed_size(&command);
    char *bytes = arena_alloc(&arena, size + 2);
    bytes[0] = EVENT_FIRE, bytes[1] = 1;
    pb__event_fire_command__pack(&command, (uint8_t *)bytes + 2);
    struct machine_input input = {
        .index = ++applied, .term = 1, .command = slice_make(bytes, size + 2), .is_command = true};
    struct outcome outcome = {-1, 0};
    uint64_t stopped_at = 0;
    cr_assert_eq(machine_apply(machine, &input, 1, done, &outcome, &stopped_at), CO_OK);
    return outcome;
}

static Pb__Event named(const char *name) {
    Pb__Event event = PB__EVENT__INIT;
    event.name = arena_strndup(&arena, name, strlen(name));
    event.id = (char *)"11111111-2222-3333-4444-555555555555";
    return event;
}

static const Pb__EventsResult *all(struct store_reader *reader, struct query_result *result) {
    Pb__EventsRequest request = PB__EVENTS_REQUEST__INIT;
    cr_assert_eq(query_events.run(store_read(reader), &request.base, &arena, result), CO_OK);
    return (const Pb__EventsResult *)result->message;
}

Test(event, the_newest_are_kept_in_order, .init = setup, .fini = teardown) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    struct query_result result;
    cr_expect_eq(all(reader, &result)->n_events, 0);
    cr_expect(result.found && result.index == 0);
    store_read_done(reader);
    struct outcome last = {0};
    for (unsigned i = 0; i < EVENTS_MAX + 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "e%u", i);
        Pb__Event event = named(name);
        event.payload = (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
        last = fire(event);
        cr_assert_eq(last.error, CO_OK);
    }
    const Pb__EventsResult *events = all(reader, &result);
    cr_assert_eq(events->n_events, EVENTS_MAX);
    cr_expect_eq(result.index, last.index);
    cr_expect_str_eq(events->events[0]->name, "e3");
    cr_expect_str_eq(events->events[EVENTS_MAX - 1]->name, "e258");
    cr_expect_eq(events->events[EVENTS_MAX - 1]->index, last.index);
    cr_expect_eq(memcmp(events->events[0]->payload.data, "e3", 2), 0);
    for (size_t i = 1; i < events->n_events; i++) cr_expect_lt(events->events[i - 1]->index, events->events[i]->index);
    store_read_done(reader);
    store_reader_free(reader);
}

Test(event, what_does_not_fit_is_refused, .init = setup, .fini = teardown) {
    static uint8_t bytes[EVENT_SIZE_MAX];
    static char lengthy[EVENT_FILTER_MAX + 2];
    memset(lengthy, 'a', sizeof lengthy - 1);
    Pb__Event event = named("n");
    event.payload = (ProtobufCBinaryData){EVENT_SIZE_MAX - 1, bytes};
    cr_expect_eq(fire(event).error, CO_OK, "just as large as it may be");
    event.payload.len++;
    cr_expect_eq(fire(event).error, CO_TOOLARGE);
    event = named("");
    cr_expect_eq(fire(event).error, CO_INVALID, "no name");
    event = named("n"), event.tag_filter = (char *)"t";
    cr_expect_eq(fire(event).error, CO_INVALID, "a tag of no service");
    event.service_filter = (char *)"s";
    cr_expect_eq(fire(event).error, CO_OK);
    event.node_filter = lengthy;
    cr_expect_eq(fire(event).error, CO_TOOLARGE);
}
