#include "dns/handshake.h"

enum handshake_admission handshake_admit(size_t count, uint64_t age_ms, bool behind, uint64_t *wait_ms) {
    uint64_t limit_ms = behind ? HANDSHAKE_BEHIND_MS : HANDSHAKE_GRACE_MS;
    *wait_ms = 0;
    if (count < HANDSHAKES_MAX) return HANDSHAKE_ADMIT;
    if (age_ms >= limit_ms) return HANDSHAKE_REPLACE;
    *wait_ms = limit_ms - age_ms;
    return HANDSHAKE_WAIT;
}
