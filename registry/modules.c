#include "registry/modules.h"

#include <stdlib.h>

#include "base/check.h"
#include "registry/history.h"
#include "registry/operator.h"
#include "registry/trust.h"
#include "registry/version.h"

static const struct module_entry own[] = {
    {.module = &operator_module}, {.module = &version_module}, {.module = &history_module}, {.module = &trust_module}};

struct modules {
    struct module_entry *entries;
    size_t count;
    const struct module_command *commands[256]; /* by number */
    const struct expiry_kind *expiries[256];
    const struct module *expiry_modules[256];
    const char *spaces[256];
    bool tables[STORE_TABLES_MAX], lease_bindings[256];
    const struct query_type **queries; /* by number, below query_count */
    size_t query_count;
};

static void take_commands(struct modules *modules, const struct module *module, unsigned newest) {
    for (const struct module_command *command = module->commands; command && command->number; command++) {
        CHECK(!modules->commands[command->number]);
        CHECK(command->since <= newest);
        CHECK(command->name && !command->apply != !command->apply_bytes);
        CHECK(command->request || command->apply_bytes);
        CHECK(command->may || command->servers_only);
        modules->commands[command->number] = command;
    }
}

static void take_queries(struct modules *modules, const struct module *module) {
    for (size_t i = 0; module->queries && module->queries[i]; i++) {
        size_t number = module->queries[i]->number;
        if (number >= modules->query_count) {
            size_t count = number + 1;
            modules->queries = mem_realloc(modules->queries, count * sizeof *modules->queries);
            for (size_t j = modules->query_count; j < count; j++) modules->queries[j] = NULL;
            modules->query_count = count;
        }
        CHECK(number && !modules->queries[number]);
        CHECK(module->queries[i]->name && module->queries[i]->request && module->queries[i]->watched);
        CHECK(module->queries[i]->run && module->queries[i]->show &&
              !module->queries[i]->result != !module->queries[i]->result_of);
        modules->queries[number] = module->queries[i];
    }
}

static void take_expiries(struct modules *modules, const struct module *module) {
    for (size_t i = 0; module->expiries && module->expiries[i]; i++) {
        const struct expiry_kind *kind = module->expiries[i];
        CHECK(!modules->expiries[kind->number] && kind->read && kind->end);
        CHECK(kind->name && (kind->renewed || !kind->may_be_endless));
        modules->expiries[kind->number] = kind;
        modules->expiry_modules[kind->number] = module;
    }
}

static void take_numbers(struct modules *modules, const struct module *module) {
    for (const struct store_table *table = module->tables; table && table->number; table++) {
        CHECK(table->number < STORE_TABLES_MAX && !modules->tables[table->number]);
        CHECK(table->name);
        modules->tables[table->number] = true;
    }
    for (const struct module_space *space = module->spaces; space && space->number; space++) {
        CHECK(space->number < WATCH_PREFIX_BIT && !modules->spaces[space->number]);
        CHECK(space->name);
        modules->spaces[space->number] = space->name;
    }
}

static void take_bindings(struct modules *modules, const struct module *module) {
    for (const struct module_binding *binding = module->lease_bindings; binding && binding->number; binding++) {
        CHECK(binding->ended);
        CHECK(!modules->lease_bindings[binding->number]);
        modules->lease_bindings[binding->number] = true;
    }
    for (const struct module_binding *binding = module->session_bindings; binding && binding->number; binding++) {
        CHECK(binding->ended);
        CHECK(binding->number < STORE_TABLES_MAX && modules->tables[binding->number]); /* that its rows are in */
    }
    for (const struct module_gauge *gauge = module->gauges; gauge && gauge->metric; gauge++) CHECK(gauge->value);
}

static void take(struct modules *modules, const struct module_entry *entry, unsigned newest) {
    CHECK(entry->module->name);
    modules->entries = mem_realloc(modules->entries, (modules->count + 1) * sizeof *modules->entries);
    modules->entries[modules->count++] = *entry;
    take_commands(modules, entry->module, newest);
    take_queries(modules, entry->module);
    take_expiries(modules, entry->module);
    take_numbers(modules, entry->module);
    take_bindings(modules, entry->module);
}

static bool taken(const struct modules *modules, const struct module *module) {
    for (size_t i = 0; i < modules->count; i++)
        if (modules->entries[i].module == module) return true;
    return false;
}

struct modules *modules_new(const struct module_entry *entries, unsigned newest) {
    struct modules *modules = mem_zalloc(sizeof *modules);
    for (; entries->module; entries++) take(modules, entries, newest);
    for (size_t i = 0; i < ARRAY_COUNT(own); i++)
        if (!taken(modules, own[i].module)) take(modules, &own[i], newest);
    return modules;
}

void modules_free(struct modules *modules) {
    if (!modules) return;
    free(modules->entries);
    free(modules->queries);
    free(modules);
}

size_t modules_count(const struct modules *modules) { return modules->count; }

const struct module *modules_at(const struct modules *modules, size_t i) {
    CHECK(i < modules->count);
    return modules->entries[i].module;
}

const struct module_command *modules_command(const struct modules *modules, uint8_t number) {
    return modules->commands[number];
}

const struct query_type *modules_query(const struct modules *modules, uint16_t number) {
    return number < modules->query_count ? modules->queries[number] : NULL;
}

const struct expiry_kind *modules_expiry(const struct modules *modules, uint8_t number) {
    return modules->expiries[number];
}

const void *modules_settings(const struct modules *modules, const struct module *module) {
    for (size_t i = 0; i < modules->count; i++)
        if (modules->entries[i].module == module) return modules->entries[i].settings;
    CHECK(!"a module of the list");
    return NULL;
}

const void *modules_expiry_settings(const struct modules *modules, const struct expiry_kind *kind) {
    CHECK(modules->expiries[kind->number] == kind);
    return modules_settings(modules, modules->expiry_modules[kind->number]);
}
