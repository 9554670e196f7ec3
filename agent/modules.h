/* The list of this program's modules: the one place that names them all. A new module is one line here. */
#ifndef COORD_AGENT_MODULES_H
#define COORD_AGENT_MODULES_H

#include "registry/modules.h"

/* Without settings: for tools that read the data folder of a stopped server, for client agents, and for tests. */
extern const struct module_entry agent_modules[];

struct config;
/* With the settings of the configuration; valid as long as the arena and the configuration. */
const struct module_entry *agent_modules_configured(const struct config *config, struct arena *arena);

#endif
