/* A bound on work that outsiders decide about (their patterns, schemas and documents), counted in steps instead of
 * time, so that every server stops at the same place. */
#ifndef COORD_BASE_STEPS_H
#define COORD_BASE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

/* Takes `count` steps. False, and none are left, when there are not more than `count`. */
static inline bool steps_take(uint64_t *left, uint64_t count) {
    bool enough = *left > count;
    *left = enough ? *left - count : 0;
    return enough;
}

#endif
