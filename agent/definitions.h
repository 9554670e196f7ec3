/* The definitions of services, checks and watches in configuration files: judged before anything is opened or
 * founded, and replaced by others later. */
#ifndef COORD_AGENT_DEFINITIONS_H
#define COORD_AGENT_DEFINITIONS_H

#include "agent/config.h"
#include "health/local.h"

/* Each by itself, ids that stand twice, and checks of services that are nowhere (where the data folder holds none
 * that were saved). CO_INVALID: `errors` of the config has all of it, with places; the fault has the first. The config
 * forgets its texts (config_forget_texts). */
int definitions_check(struct config *config, struct fault *fault);
/* What enable_script_checks and enable_local_script_checks say. */
struct check_permission config_check_permission(const struct config *config);

struct local;
/* Loop thread. What `now` defines is registered, what `was` defined and `now` does not goes, unless it was
 * registered over HTTP meanwhile; what both say alike is not touched. Both were judged. With a fault (a check of a
 * service that is nowhere) nothing has changed. */
int definitions_replace(struct local *local, const struct config *was, const struct config *now, struct fault *fault);

#endif
