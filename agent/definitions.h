/* The definitions of services and checks in configuration files, judged before anything is opened or founded.
 */
#ifndef COORD_AGENT_DEFINITIONS_H
#define COORD_AGENT_DEFINITIONS_H

#include "agent/config.h"
#include "health/local.h"

/* Each by itself, ids that stand twice, and checks of services that are nowhere (where the data folder holds
 * none that were saved). CO_INVALID; the fault names file and key. Changes nothing. */
int definitions_check(const struct config *config, struct fault *fault);
/* What enable_script_checks and enable_local_script_checks say. */
struct check_permission config_check_permission(const struct config *config);

#endif
