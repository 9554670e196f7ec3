/* Does the servers' catalog say what the agents know? Asked over HTTP, node by node: the same services, the same
 * checks, each with its status and output. */
#ifndef COORD_TESTS_AGENTS_TRUTH_H
#define COORD_TESTS_AGENTS_TRUTH_H

#include "fleet.h"

/* Agents that differ; the first few differences are printed with `tell`. The fleet runs on, but makes no changes. */
unsigned truth_compare(struct fleet *fleet, const char *http, bool tell);

#endif
