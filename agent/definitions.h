/* The definitions of services, checks and watches in configuration files. They are checked before the agent opens
 * anything; a reload replaces them. */
#ifndef COORD_AGENT_DEFINITIONS_H
#define COORD_AGENT_DEFINITIONS_H

#include "agent/config.h"
#include "health/local.h"

/* Checks each definition by itself, and looks for ids that are defined twice, and for checks of services that do not
 * exist (unless the data folder has saved ones). CO_INVALID: `errors` of the config has all mistakes, with places; the
 * fault has the first. The config forgets its texts (config_forget_texts). */
int definitions_check(struct config *config, struct fault *fault);
/* From enable_script_checks and enable_local_script_checks. */
struct check_permission config_check_permission(const struct config *config);

struct local;
/* Loop thread. Registers the services and checks of `now`, and removes those that only `was` defines, unless they were
 * registered over HTTP meanwhile. Equal definitions are not touched. Both configurations were checked. With a fault (a
 * check of a service that does not exist) nothing has changed. */
int definitions_replace(struct local *local, const struct config *was, const struct config *now, struct fault *fault);

#endif
