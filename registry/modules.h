/* The list of modules of a process, indexed by their numbers. Constant once it is made: any thread. */
#ifndef COORD_REGISTRY_MODULES_H
#define COORD_REGISTRY_MODULES_H

#include "registry/module.h"

/* A module and its settings (NULL: none), whose type is in the module's header. The settings are borrowed for as long
 * as the list is used. */
struct module_entry {
    const struct module *module;
    const void *settings;
};

struct modules;
/* `entries` ends with one without a module. The machine's own modules (operate, version, history) are added unless they
 * are in it, which is needed to give one settings. Two modules with one number are our mistake, as is a command of a
 * cluster version above `newest`. */
struct modules *modules_new(const struct module_entry *entries, unsigned newest);
void modules_free(struct modules *modules); /* accepts NULL */

size_t modules_count(const struct modules *modules);
const struct module *modules_at(const struct modules *modules, size_t i);
/* NULL: no such number. */
const struct module_command *modules_command(const struct modules *modules, uint8_t number);
const struct query_type *modules_query(const struct modules *modules, uint16_t number);
const struct expiry_kind *modules_expiry(const struct modules *modules, uint8_t number);
const void *modules_settings(const struct modules *modules, const struct module *module);

/* The settings of the module that has this expiry kind, for `struct expiry_leader` and the like. */
const void *modules_expiry_settings(const struct modules *modules, const struct expiry_kind *kind);

#endif
