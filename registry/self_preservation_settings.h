/* The settings by which a leader holds services (registry/self_preservation.h). */
#ifndef COORD_REGISTRY_SELF_PRESERVATION_SETTINGS_H
#define COORD_REGISTRY_SELF_PRESERVATION_SETTINGS_H

#include <stdint.h>

struct self_preservation_settings {
    uint32_t percent, instances, nodes;
    uint64_t window_ms, hold_ms; /* hold_ms 0: off */
};

#endif
