/* The program as a later version would be: it supports a cluster version more, with a command that comes with it
 * (tests/lib/later.h). The linker puts this in the place of machine_open. */
#include "base/check.h"
#include "registry/machine.h"
#include "tests/lib/later.h"

int __real_machine_open(const struct machine_config *config, struct machine **out, struct fault *fault);
int __wrap_machine_open(const struct machine_config *config, struct machine **out, struct fault *fault);

int __wrap_machine_open(const struct machine_config *config, struct machine **out, struct fault *fault) {
    struct module_entry modules[64];
    struct machine_config later = *config;
    size_t count = 0;
    for (; config->modules[count].module; count++) {
        CHECK(count + 2 < ARRAY_COUNT(modules));
        modules[count] = config->modules[count];
    }
    modules[count++] = (struct module_entry){.module = &later_module};
    modules[count] = (struct module_entry){0};
    later.modules = modules, later.version_newest = LATER_VERSION;
    return __real_machine_open(&later, out, fault);
}
