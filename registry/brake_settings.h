/* What a leader decides by when it holds services (registry/brake.h). */
#ifndef COORD_REGISTRY_BRAKE_SETTINGS_H
#define COORD_REGISTRY_BRAKE_SETTINGS_H

#include <stdint.h>

struct brake_settings {
    uint32_t percent, instances, nodes;
    uint64_t window_ms, hold_ms; /* hold_ms 0: off */
};

#endif
