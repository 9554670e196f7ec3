/* A model of the events of a stream, in the simplest way: after each entry it asks the present queries of all things,
 * and each difference is a change. */
#ifndef COORD_TESTS_KV_STREAMS_H
#define COORD_TESTS_KV_STREAMS_H

#include "commands.h"
#include "kv/stream/stream.h"

struct stream_change {
    uint64_t index;
    size_t thing;
    bool gone;
    struct slice record, before; /* as the query said it after the entry, and before */
};
struct stream_thing {
    Pb__StreamKind kind;
    const char *name; /* of nodes and services in small letters */
};
extern const struct stream_thing stream_things[];
extern const size_t stream_things_count;

struct stream_model {
    struct fixture *world;
    const struct access *access; /* asks as this token; NULL: as everybody */
    struct stream_change *changes;
    size_t count, room;
    struct {
        uint64_t index;
        bool gone;
        struct slice record;
    } now[32];
    struct arena arena;
};
void stream_model_open(struct stream_model *model, struct fixture *world);
void stream_model_open_as(struct stream_model *model, struct fixture *world, const struct access *access);
void stream_model_close(struct stream_model *model);
/* After each entry. */
void stream_model_look(struct stream_model *model);
/* NULL: it did not change there. */
const struct stream_change *stream_change_at(const struct stream_model *model, uint64_t index, size_t thing);
/* A random command. */
struct rng;
void stream_model_act(struct stream_model *model, struct rng *rng);

/* -- requests ------------------------------------------------------------------------------------------------------ */
struct stream_ask {
    Pb__StreamRequest request;
    Pb__StreamPosition from;
    Pb__StreamSubscription subscriptions[8], *list[8];
};
void stream_ask_init(struct stream_ask *ask);
void stream_ask_add(struct stream_ask *ask, Pb__StreamKind kind, const char *name);
void stream_ask_from(struct stream_ask *ask, uint64_t index, uint32_t topic, uint32_t place);
/* Valid until the world's next query. NULL: found is false. *index: of the query's result; may be NULL. */
const Pb__StreamResult *stream_answer(struct fixture *world, const struct stream_ask *ask, uint64_t *index);
bool stream_follows(const struct stream_ask *ask, size_t thing);
size_t stream_thing_of(Pb__StreamKind kind, struct slice name);

void stream_limits(struct fixture *world, uint64_t changes); /* of the history; 0: none is kept */

#endif
