/* Frequent steps of the tests of the catalog. */
#ifndef COORD_TESTS_REGISTRY_CATALOG_SPECS_H
#define COORD_TESTS_REGISTRY_CATALOG_SPECS_H

#include "registry/catalog.h"
#include "tests/lib/fixture.h"

/* Commands in one line: parts of `spec`, apart by blanks:
 *   node=NAME addr=A id=UUID skip own meta=K:V       (meta may come several times)
 *   service=ID:NAME:PORT tag=T weight=N              (tag too)
 *   check=ID:STATUS:SERVICE_ID output=TEXT           (check too; output belongs to the check before it) */
Pb__RegisterCommand *fixture_register_command(struct arena *arena, const char *spec);
struct outcome fixture_register(struct fixture *f, const char *spec);
/* node=N, and service=ID or check=ID */
struct outcome fixture_deregister(struct fixture *f, const char *node, const char *service_id, const char *check_id);

/* Requests as compound literals of these. */
struct query_result fixture_node(struct fixture *f, const struct query_type *type, const char *node);
struct query_result fixture_service(struct fixture *f, const struct query_type *type, const char *service);
struct query_result fixture_table(struct fixture *f, const struct query_type *type);
struct query_result fixture_state(struct fixture *f, const char *state);

#endif
