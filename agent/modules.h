/* The list of this program's modules: the one place that names them all. A new module is one line here. */
#ifndef COORD_AGENT_MODULES_H
#define COORD_AGENT_MODULES_H

#include "registry/modules.h"

/* Without settings: for tools that look at what a server has left, for client agents, and for tests. */
extern const struct module_entry agent_modules[];

struct config;
/* With what the configuration says about them; lives as long as the arena and the configuration. */
const struct module_entry *agent_modules_configured(const struct config *config, struct arena *arena);

#endif
