/* A state machine with the catalog in a folder of its own, for tests and their readers. */
#ifndef COORD_TESTS_REGISTRY_FIXTURE_H
#define COORD_TESTS_REGISTRY_FIXTURE_H

#include "registry/catalog.h"

struct fixture {
    const char *folder;
    struct machine *machine;
    struct store_reader *reader;
    struct arena arena; /* of query results; fixture_forget resets it */
    char text[512];     /* of the last result */
};
void fixture_open(struct fixture *f);
void fixture_reopen(struct fixture *f); /* closes cleanly, opens again */
void fixture_close(struct fixture *f);  /* removes the folder too */

/* Applies one command. The result's text is f->text. */
struct machine_result fixture_apply(struct fixture *f, uint8_t type, const ProtobufCMessage *message);
/* Runs a query. The result stays valid until fixture_forget. */
struct query_result fixture_query(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request);
/* The same, packed and appended; returns the index. */
uint64_t fixture_bytes(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request,
                       struct buffer *out);
void fixture_forget(struct fixture *f);
/* The state sum, checked against a scrub. */
uint64_t fixture_sum(struct fixture *f);

/* -- commands in one line: parts of `spec`, apart by blanks:
 *   node=NAME addr=A id=UUID skip own meta=K:V       (meta may come several times)
 *   service=ID:NAME:PORT tag=T weight=N              (tag too)
 *   check=ID:STATUS:SERVICE_ID output=TEXT           (check too; output belongs to the check before it) */
Pb__RegisterCommand *fixture_register_command(struct arena *arena, const char *spec);
struct machine_result fixture_register(struct fixture *f, const char *spec);
/* node=N, and service=ID or check=ID */
struct machine_result fixture_deregister(struct fixture *f, const char *node, const char *service_id,
                                         const char *check_id);

/* Requests as compound literals of these. */
struct query_result fixture_node(struct fixture *f, const struct query_type *type, const char *node);
struct query_result fixture_service(struct fixture *f, const struct query_type *type, const char *service);
struct query_result fixture_table(struct fixture *f, const struct query_type *type);
struct query_result fixture_state(struct fixture *f, const char *state);

#endif
