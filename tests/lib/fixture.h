/* A state machine with the program's modules, on a real store in a folder of its own; for the tests of all folders.
 * Tests of a folder add their own frequent steps (a session, a node with a service) in a file of theirs. Whatever goes
 * wrong here ends the test. */
#ifndef COORD_TESTS_LIB_FIXTURE_H
#define COORD_TESTS_LIB_FIXTURE_H

#include "registry/expiry.h"
#include "registry/machine.h"
#include "tests/lib/scratch.h"

struct fixture {
    unsigned mutations, newest; /* of the machine: set it, and reopen; newest: version_newest */
    char folder[64];
    struct machine *machine;
    struct expiry_updates *updates;
    unsigned wakes;        /* of the updates */
    void (*on_wake)(void); /* may be NULL */
    struct store_reader *reader;
    struct arena arena;              /* of query results */
    uint64_t term;                   /* of the next commands; 1 at the start */
    uint64_t unix_ms;                /* likewise: the leader's clock; 0 at the start */
    struct module_entry modules[32]; /* the program's, and one of the test's own */
};
/* Zeroes it first. `more`: a module of the test's own, after the program's; NULL: none. */
void fixture_open(struct fixture *f);
void fixture_open_with(struct fixture *f, const struct module *more);
void fixture_reopen(struct fixture *f); /* closes cleanly, opens again; what was applied is there */
void fixture_close(struct fixture *f);  /* removes the folder too */

/* -- commands ----------------------------------------------------------------------------------------------------- */

struct outcome {
    int error;
    bool yes;
    uint64_t index;
    char text[1024]; /* "": none */
    /* Of the result's record, where that has one: of a session, a lease, an event; a lock's token, or the highest that a
     * fence has accepted. A reason that stands there is the text. */
    char id[40];
    uint64_t token;
};
struct command {
    uint8_t type;
    const ProtobufCMessage *message;
};
/* In one batch. */
void fixture_apply_all(struct fixture *f, const struct command *commands, size_t count, struct outcome *outcomes);
struct outcome fixture_apply(struct fixture *f, uint8_t type, const ProtobufCMessage *message);
struct outcome fixture_apply_bytes(struct fixture *f, struct slice command);
int fixture_try(struct fixture *f, uint8_t type, const ProtobufCMessage *message); /* machine_apply's error */
/* The deadlines that began and ended since the last call, oldest first: "lease began 00000064 10; ": the kind, the
 * first 8 bytes of the name, the period in `unit_ns`. Ends with a NUL. */
void fixture_updates(struct fixture *f, int64_t unit_ns, struct buffer *out);
/* Its state as a copy, appended; and a restore of one, by commands. */
void fixture_save(struct fixture *f, struct buffer *copy);
struct outcome fixture_restore(struct fixture *f, struct slice copy);
/* The first command of a cluster: its version, its id 7. The history begins with it. */
void fixture_found(struct fixture *f);

/* -- queries ------------------------------------------------------------------------------------------------------ */

/* The result is valid until fixture_forget; what of it points into the store, until the next query. */
struct query_result fixture_query(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request);
void fixture_forget(struct fixture *f);
/* The same, valid until the next one. */
struct query_result fixture_ask(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request);
/* Packed and appended, with the query's name; returns the index. */
uint64_t fixture_bytes(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request,
                       struct buffer *out);
/* The state sum, checked against a scrub. */
uint64_t fixture_sum(struct fixture *f);

#endif
