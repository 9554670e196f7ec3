/* One attempt of a check, from its start to its end, on a loop of its own. */
#ifndef COORD_TESTS_HEALTH_ATTEMPT_H
#define COORD_TESTS_HEALTH_ATTEMPT_H

#include "health/check_runner.h"
#include "health/definition.h"

struct outcome {
    unsigned calls; /* of `done`: 1, or 0 when given up */
    Pb__Status status;
    char output[600];
    size_t output_size;
    uint64_t took_ms;
};
/* A blank definition with this target and a timeout. */
struct check_definition *attempt_definition(enum check_kind kind, const char *target, uint64_t timeout_ms);
/* Runs it and waits for its end; frees the definition right after the start. */
struct outcome attempt(struct check_definition *definition);
/* The same, given up after some milliseconds (0: at once), if it has not ended by then. */
struct outcome attempt_given_up(struct check_definition *definition, uint64_t after_ms);

#endif
