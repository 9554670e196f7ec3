/* Requests and questions of tests to a fake agent and its catalog. Definitions are JSON texts; wrong ones end the
 * test. */
#ifndef COORD_TESTS_HEALTH_AGENT_TALK_H
#define COORD_TESTS_HEALTH_AGENT_TALK_H

#include "fake_agent.h"
#include "tests/lib/until.h"

int register_service_as(struct agent *agent, const char *text, bool replace, bool persist);
void register_service(struct agent *agent, const char *text);
int register_check(struct agent *agent, const char *text);
bool update(struct agent *agent, const char *id, Pb__Status status, const char *output); /* of a TTL check */
/* local_on_synced, waited for. */
int wait_synced(struct agent *agent, uint64_t wait_ms);

/* In the catalog. */
bool has_service(struct agent *agent, const char *id);
int catalog_status(struct agent *agent, const char *id); /* -1: no such check */
bool catalog_output_is(struct agent *agent, const char *id, const char *output);
/* Here. NULL, -1: no such check. */
Pb__Check *local_one(struct agent *agent, struct arena *arena, const char *id);
int local_status(struct agent *agent, const char *id);

/* In the data folder: definitions of services ('s') or checks ('c') that a restart would find; the file of them. */
unsigned saved(const struct agent *agent, char kind);
void append_to_definitions(const struct agent *agent, const char *text);

#endif
