/* The world of the tests of what tokens may see and do: one registry, and frequent steps. */
#ifndef COORD_TESTS_REGISTRY_ACCESS_WORLD_H
#define COORD_TESTS_REGISTRY_ACCESS_WORLD_H

#include "catalog_specs.h"
#include "registry/lease.h"
#include "tests/lib/with_access.h"

#define TEXT(text) ((char *)(uintptr_t)(text))
#define ID(n)      "00000000-0000-4000-8000-00000000000" #n

extern struct fixture f;
extern struct arena arena;
void access_world_open(void);
void access_world_close(void);

void register_spec(const char *spec); /* fixture_register, which has to succeed */
struct outcome grant(const char *id, const char *node, const char *node_id);
void lease_ends(const char *id, bool expired, bool leave);

/* The answer for a token with these rules: its rows (rows_text); "-": it is not found; in brackets what is missing. */
const char *seen(const char *rules, const struct query_type *type, const ProtobufCMessage *request);
/* "yes", or what is missing; until the next call. */
const char *may(const char *rules, uint8_t type, const ProtobufCMessage *command);

#endif
