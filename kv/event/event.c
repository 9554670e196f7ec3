#include "kv/event/event.h"

#include <string.h>

#include "base/check.h"
#include "registry/module_access.h"

enum { EVENT_TABLE = 21 }; /* index, big-endian -> Event */
_Static_assert(EVENT_FIRE >= 32 && EVENT_FIRE < 64, "a command of kv (registry/module.h)");
_Static_assert(EVENT_TABLE >= 16 && EVENT_TABLE < 32, "a table of kv");
_Static_assert(SPACE_EVENTS >= 32 && SPACE_EVENTS < 64, "a space of kv");

static const struct slice everything = SLICE_LITERAL("");

int event_check(const Pb__Event *event) {
    if (!event->name[0] || (event->tag_filter[0] && !event->service_filter[0])) return CO_INVALID;
    bool fits = strlen(event->name) + event->payload.len <= EVENT_SIZE_MAX && strlen(event->id) <= 36 &&
                strlen(event->node_filter) <= EVENT_FILTER_MAX && strlen(event->service_filter) <= EVENT_FILTER_MAX &&
                strlen(event->tag_filter) <= EVENT_FILTER_MAX;
    return fits ? CO_OK : CO_TOOLARGE;
}

/* -- the command -------------------------------------------------------------------------------------------------- */
static void drop_oldest(struct machine_tx *tx) {
    struct store_cursor cursor;
    store_cursor_open(&cursor, tx->store, EVENT_TABLE, everything);
    for (uint64_t count = store_count(tx->store, EVENT_TABLE); count > EVENTS_MAX && cursor.valid; count--)
        store_cursor_del(&cursor);
    store_cursor_close(&cursor);
}

static int apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__EventFireCommand *command = request;
    if (!command->event) return machine_refuse(result, CO_INVALID, "the command does not decode");
    int rv = event_check(command->event);
    if (rv != CO_OK)
        return machine_refuse(result, rv,
                              rv == CO_TOOLARGE ? "the event is too large"
                                                : "the event has no name, or a tag filter without a service filter");
    char key[8];
    CHECK(tx->index > 0);
    command->event->index = tx->index;
    put_be64(key, tx->index);
    size_t size = pb__event__get_packed_size(command->event);
    uint8_t *bytes = arena_alloc(tx->arena, size);
    pb__event__pack(command->event, bytes);
    store_put(tx->store, EVENT_TABLE, slice_make(key, sizeof key), slice_make(bytes, size));
    drop_oldest(tx);
    machine_changed(tx, SPACE_EVENTS, everything, false);
    result->yes = true;
    result->message = &command->event->base;
    return CO_OK;
}

/* As Consul: the event's name counts, not the nodes and services that it is for. */
static int may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__EventFireCommand *command = (const Pb__EventFireCommand *)request;
    (void)txn;
    if (!command->event) return CO_OK; /* it is refused when it is applied */
    return access_require(check, ACCESS_EVENT, slice_text(command->event->name), ACCESS_WRITE);
}

/* -- the query ---------------------------------------------------------------------------------------------------- */
static struct watch_key watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_EVENTS, everything};
}

static int run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    (void)request;
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    Pb__EventsResult *records = arena_alloc(arena, sizeof *records);
    pb__events_result__init(records);
    records->events = arena_alloc(arena, (EVENTS_MAX + 1) * sizeof *records->events);
    struct store_cursor cursor;
    int error = CO_OK;
    store_cursor_open(&cursor, txn, EVENT_TABLE, everything);
    for (; cursor.valid && error == CO_OK && records->n_events < EVENTS_MAX; store_cursor_next(&cursor)) {
        Pb__Event *event = pb__event__unpack(&allocator, cursor.value.size, (const uint8_t *)cursor.value.data);
        if (event) records->events[records->n_events++] = event;
        else error = CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    *result = (struct query_result){
        .index = machine_change_index(txn, SPACE_EVENTS, everything), .found = true, .message = &records->base};
    return error;
}

ACCESS_SHOW_LIST(show, EVENT, Pb__EventsResult, events, name)

const struct query_type query_events = {.number = 37,
                                        .name = "events",
                                        .request = &pb__events_request__descriptor,
                                        .result = &pb__events_result__descriptor,
                                        .watched = watched,
                                        .run = run,
                                        .show = show};

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = EVENT_FIRE,
     .name = "event-fire",
     .request = &pb__event_fire_command__descriptor,
     .result = &pb__event__descriptor,
     .may = may,
     .apply = apply},
    {0},
};
static const struct store_table tables[] = {{EVENT_TABLE, "events"}, {0}};
static const struct module_space spaces[] = {{SPACE_EVENTS, "events"}, {0}};
static const struct query_type *const queries[] = {&query_events, NULL};

const struct module event_module = {
    .name = "event", .commands = commands, .tables = tables, .spaces = spaces, .queries = queries};
