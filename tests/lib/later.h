/* A cluster version that the product does not have yet, made up for tests of what happens when one comes: a machine is of
 * that version when its config says so (machine_config.version_newest), and a program when it is built with
 * tests/cluster/later_program.c. */
#ifndef COORD_TESTS_LIB_LATER_H
#define COORD_TESTS_LIB_LATER_H

#include "registry/version.h"

#define LATER_VERSION (MACHINE_VERSION_NEWEST + 1)

/* The command that comes with it. It changes nothing and answers yes. Its message is that of CLUSTER_VERSION; what it says
 * does not matter. */
#define LATER 255 /* no module's range has it (registry/module.h) */
extern const struct module later_module;

#endif
