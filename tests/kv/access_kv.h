/* A state with things of all kinds of this folder, whose names are distinctive; tokens with random rules on these names;
 * and a judge of what a token is shown. */
#ifndef COORD_TESTS_KV_ACCESS_KV_H
#define COORD_TESTS_KV_ACCESS_KV_H

#include "base/random.h"
#include "commands.h"
#include "tests/lib/with_access.h"

enum { KNOWN_MOST = 40, KNOWN_SESSIONS = 8 };
struct known_things {
    struct fixture *world;
    struct rng rng;
    struct arena arena;
    /* By their resource. Nodes are those of ACCESS_NODE: their sessions have the same names. */
    const char *names[ACCESS_RESOURCES][KNOWN_MOST];
    size_t count[ACCESS_RESOURCES];
    char sessions[KNOWN_SESSIONS][UUID_TEXT_SIZE + 1];
    uint64_t middle; /* an index between the things */
};
/* Opens the world, and fills it. */
void known_open(struct known_things *known, struct fixture *world, uint64_t seed);
void known_close(struct known_things *known);
const char *known_any(struct known_things *known, enum access_resource resource); /* one of the names */
struct access *known_access(struct known_things *known);                          /* with random rules */

/* A query, and how its answer is made of rows. */
struct known_query {
    const struct query_type *type;
    /* Its request, in the arena. `name`: of a thing, or a prefix. */
    ProtobufCMessage *(*request)(struct known_things *known, const char *name);
    enum access_resource resource; /* of the rows' names; of a single thing, of its own name */
    const char *rows, *name;  /* members: the rows of the answer, and the name in a row ("record.definition.name"). NULL
                              * rows: it is about one thing; NULL name: the row is its name, a text */
    enum access_resource one; /* with rows: the thing that is asked for is one of this kind. ACCESS_RESOURCES: a list */
};
extern const struct known_query known_queries[];
extern const size_t known_queries_count;

/* Compares the answer that the token gets with the answer for everyone: all rows that it may read, and no others; CO_DENIED
 * for one thing that it may not read; and no name in its bytes that it may not read. `open`: judges the answer for everyone
 * in its place. NULL: all is well; else a line, in the arena. */
const char *known_fault(struct known_things *known, const struct access *access, const struct known_query *query,
                        const char *name, bool open);

#endif
