/* A state machine that stands still: some records of every kind, and whatever is applied is taken back, so that each
 * input meets the same state. */
#ifndef COORD_TESTS_FUZZ_STILL_MACHINE_H
#define COORD_TESTS_FUZZ_STILL_MACHINE_H

#include "registry/machine.h"

#define STILL_SESSION "5e551000-0000-4000-8000-000000000001" /* of node "n1", holds the key "lock" */
#define STILL_TOKEN   16 /* holds the lock "l" for it; the resource "l" has accepted it */
#define STILL_LEASE \
    "1ea51000-0000-4000-8000-000000000001" /* free; the keys "leased" and a long one hang on it, and service "job" of "n2" */

/* Made by the first call. Its folder is removed at once: only the open files are left. */
struct machine *still_machine(void);

/* Applies a command (type, version, message), calls `done` with its result, and takes everything back. CO_OK, or
 * CO_UNSUPPORTED (then `done` is not called). Asserts what holds for any command: it does not make the store fail, a
 * refused one has changed nothing, the sum of the store is that of its records, and these can be read. */
int still_apply(struct slice command, void (*done)(void *data, const struct machine_result *result), void *data);

#endif
