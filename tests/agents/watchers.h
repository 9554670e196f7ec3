/* Blocking queries, one for each of the first agents (GET /v1/health/node/NODE?index=): how long a change of a check
 * takes from the agent that made it to whoever waits for it at a server. One thread each. */
#ifndef COORD_TESTS_AGENTS_WATCHERS_H
#define COORD_TESTS_AGENTS_WATCHERS_H

#include "fleet.h"

struct watchers;
struct watchers *watchers_start(struct fleet *fleet, const char *http);
struct watchers_result {
    unsigned watched, not_seen; /* changes: seen, and not seen until now */
    double median_ms, p99_ms, longest_ms;
};
/* Changes that were not seen until now. */
unsigned watchers_unseen(struct watchers *watchers);
void watchers_stop(struct watchers *watchers, struct watchers_result *result);

#endif
