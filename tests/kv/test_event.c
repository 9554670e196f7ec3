/* Events in the replicated state: what is kept, in which order, and what is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "kv/event/event.h"
#include "tests/lib/fixture.h"

static struct fixture world;
static void setup(void) { fixture_open(&world); }
static void teardown(void) { fixture_close(&world); }

static struct outcome fire(Pb__Event event) {
    Pb__EventFireCommand command = PB__EVENT_FIRE_COMMAND__INIT;
    command.event = &event;
    return fixture_apply(&world, EVENT_FIRE, &command.base);
}

static Pb__Event named(const char *name) {
    Pb__Event event = PB__EVENT__INIT;
    event.name = (char *)(uintptr_t)name;
    event.id = (char *)"11111111-2222-3333-4444-555555555555";
    return event;
}

static const Pb__EventsResult *all(struct query_result *result) {
    Pb__EventsRequest request = PB__EVENTS_REQUEST__INIT;
    *result = fixture_ask(&world, &query_events, &request.base);
    return (const Pb__EventsResult *)result->message;
}

Test(event, the_newest_are_kept_in_order, .init = setup, .fini = teardown) {
    struct query_result result;
    cr_expect_eq(all(&result)->n_events, 0);
    cr_expect(result.found && result.index == 0);
    struct outcome last = {0};
    for (unsigned i = 0; i < EVENTS_MAX + 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "e%u", i);
        Pb__Event event = named(name);
        event.payload = (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
        last = fire(event);
        cr_assert_eq(last.error, CO_OK);
    }
    const Pb__EventsResult *events = all(&result);
    cr_assert_eq(events->n_events, EVENTS_MAX);
    cr_expect_eq(result.index, last.index);
    cr_expect_str_eq(events->events[0]->name, "e3");
    cr_expect_str_eq(events->events[EVENTS_MAX - 1]->name, "e258");
    cr_expect_eq(events->events[EVENTS_MAX - 1]->index, last.index);
    cr_expect_eq(memcmp(events->events[0]->payload.data, "e3", 2), 0);
    for (size_t i = 1; i < events->n_events; i++) cr_expect_lt(events->events[i - 1]->index, events->events[i]->index);
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
