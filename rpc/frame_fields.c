#include "rpc/frame_fields.h"

#include <stdint.h>

static bool take_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool fields_fit(const uint8_t *at, const uint8_t *end, size_t most, size_t most_within) {
    for (size_t count = 0; at < end; count++) {
        uint64_t tag, size = 0;
        if (count == most || !take_varint(&at, end, &tag)) return false;
        switch (tag & 7) {
            case 0: if (!take_varint(&at, end, &size)) return false; size = 0; break;
            case 1: size = 8; break;
            case 2: if (!take_varint(&at, end, &size)) return false; break;
            case 5: size = 4; break;
            default: return false;
        }
        if (size > (uint64_t)(end - at)) return false;
        bool item = most_within && tag == (1 << 3 | 2);
        if (item && !fields_fit(at, at + size, most_within, 0)) return false;
        at += size;
    }
    return true;
}

bool frame_fields_fit(struct slice payload, size_t most, size_t most_within) {
    const uint8_t *at = (const uint8_t *)payload.data;
    return fields_fit(at, at + payload.size, most, most_within);
}
