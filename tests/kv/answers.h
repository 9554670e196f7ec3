/* Commands whose answer is looked at, and who is woken by them; for the tests of modules that sessions wait in. */
#ifndef COORD_TESTS_KV_ANSWERS_H
#define COORD_TESTS_KV_ANSWERS_H

#include "commands.h"

/* *message: the result's record, in the world's arena (until the next query); NULL: it has none. */
struct outcome answer_of(struct fixture *world, uint8_t type, const ProtobufCMessage *command,
                         const ProtobufCMessage **message);

/* Somebody who waits for what a query depends on, and how often it was woken. */
struct watcher {
    struct watch_waiter waiter;
    unsigned woken;
};
void watcher_begin(struct watcher *watcher, struct fixture *world, const struct query_type *type,
                   const ProtobufCMessage *request);
void watcher_begin_at(struct watcher *watcher, struct fixture *world, struct watch_key watched);
void watcher_end(struct watcher *watcher, struct fixture *world);

uint64_t records_in(struct fixture *world, uint8_t table);

#endif
