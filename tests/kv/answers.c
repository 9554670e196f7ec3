#include "answers.h"

#include <criterion/criterion.h>
#include <stdio.h>

struct keep {
    struct fixture *world;
    struct outcome outcome;
    const ProtobufCMessage *message;
};

static void keep(void *data, void *origin, const struct machine_result *result) {
    struct keep *keep = data;
    (void)origin;
    keep->outcome = (struct outcome){.error = result->error, .yes = result->yes, .index = result->index};
    if (result->text) snprintf(keep->outcome.text, sizeof keep->outcome.text, "%s", result->text);
    if (!result->message) return;
    struct slice bytes = slice_copy(&keep->world->arena, result->record);
    keep->message = machine_decode(result->message->descriptor, bytes, &keep->world->arena);
}

struct outcome answer_of(struct fixture *world, uint8_t type, const ProtobufCMessage *command,
                         const ProtobufCMessage **message) {
    struct keep kept = {.world = world};
    struct buffer bytes = {0};
    fixture_forget(world);
    machine_command(&bytes, type, command);
    struct machine_input input = {.index = machine_applied(world->machine) + 1,
                                  .term = world->term,
                                  .command = buffer_slice(&bytes),
                                  .is_command = true,
                                  .unix_ms = world->unix_ms};
    cr_assert_eq(machine_apply(world->machine, &input, 1, keep, &kept, NULL), CO_OK);
    buffer_free(&bytes);
    *message = kept.message;
    return kept.outcome;
}

static void fire(struct watch_waiter *waiter) {
    CONTAINER_OF(waiter, struct watcher, waiter)->woken++;
    watch_arm(waiter);
}

void watcher_begin_at(struct watcher *watcher, struct fixture *world, struct watch_key watched) {
    *watcher = (struct watcher){0};
    watch_add(machine_watches(world->machine), &watcher->waiter, watched, fire);
}

void watcher_begin(struct watcher *watcher, struct fixture *world, const struct query_type *type,
                   const ProtobufCMessage *request) {
    watcher_begin_at(watcher, world, type->watched(request));
}

void watcher_end(struct watcher *watcher, struct fixture *world) {
    watch_remove(machine_watches(world->machine), &watcher->waiter);
}

uint64_t records_in(struct fixture *world, uint8_t table) {
    store_read_done(world->reader);
    uint64_t count = store_count(store_read(world->reader), table);
    store_read_done(world->reader);
    return count;
}
