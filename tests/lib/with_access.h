/* Queries and commands as a token has them, and a judge of what a token gets to see. */
#ifndef COORD_TESTS_LIB_WITH_ACCESS_H
#define COORD_TESTS_LIB_WITH_ACCESS_H

#include "base/random.h"
#include "tests/lib/fixture.h"

/* Rules in one line, apart by blanks: "node:read=web-1", "service_prefix:write=", "operator:read"; "otherwise:read" is the
 * default level, which is deny. */
struct access *access_of(const char *rules);

/* `show` after `run`, in one transaction. Their error; *check has the rest. The result is valid as fixture_ask's. */
int fixture_ask_as(struct fixture *f, const struct access *access, const struct query_type *type,
                   const ProtobufCMessage *request, struct query_result *result, struct access_check *check);
/* May the token send the command? CO_OK, CO_DENIED. `missing` may be NULL; else it becomes the text of what is missing. */
int fixture_may(struct fixture *f, const struct access *access, uint8_t type, const ProtobufCMessage *message,
                char missing[256]);

/* -- rows of answers of the catalog ------------------------------------------------------------------------------- */

/* The rows of an answer, each with the names whose reading it needs: "web@n1" an instance or a check, "@n1" a node, "web"
 * a service's name, apart by blanks. In the arena. */
const char *rows_text(struct arena *arena, const ProtobufCMessage *message);

/* Names of nodes and services that are distinctive: none is part of another, nor of anything else. */
struct known_names {
    const char *names[2][32]; /* nodes, services */
    size_t count[2];
};
/* A new name, in the arena. */
const char *known_name(struct known_names *known, bool service, struct rng *rng, struct arena *arena);
/* A token with random rules on them, and on what a lease needs. */
struct access *random_access(const struct known_names *known, struct rng *rng);
/* Compares the answer that the token gets with the answer for everyone: it has to have exactly the rows whose names the
 * token may read, and in its bytes there must be no name that it may not read. `open`: judges the answer for everyone in
 * its place, to see whether the judge notices. NULL: all is well; else a line, in the arena. */
const char *answer_fault(struct fixture *f, const struct known_names *known, const struct access *access,
                         const struct query_type *type, const ProtobufCMessage *request, bool open,
                         struct arena *arena);

#endif
