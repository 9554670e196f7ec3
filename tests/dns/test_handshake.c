/* The rules by which a handshake makes room for another one. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/check.h"
#include "dns/handshake.h"

Test(dns_handshake, admission) {
    static const struct {
        size_t count;
        uint64_t age_ms;
        bool behind;
        enum handshake_admission admitted;
        uint64_t wait_ms;
    } rows[] = {
        {0, 0, false, HANDSHAKE_ADMIT, 0},
        {HANDSHAKES_MAX - 1, 0, true, HANDSHAKE_ADMIT, 0},
        {HANDSHAKES_MAX - 1, HANDSHAKE_MS, false, HANDSHAKE_ADMIT, 0},
        {HANDSHAKES_MAX, 0, false, HANDSHAKE_WAIT, HANDSHAKE_GRACE_MS},
        {HANDSHAKES_MAX, HANDSHAKE_GRACE_MS - 1, false, HANDSHAKE_WAIT, 1},
        {HANDSHAKES_MAX, HANDSHAKE_GRACE_MS, false, HANDSHAKE_REPLACE, 0},
        {HANDSHAKES_MAX, HANDSHAKE_GRACE_MS, true, HANDSHAKE_WAIT, HANDSHAKE_BEHIND_MS - HANDSHAKE_GRACE_MS},
        {HANDSHAKES_MAX, HANDSHAKE_BEHIND_MS, true, HANDSHAKE_REPLACE, 0},
        {HANDSHAKES_MAX + 1, HANDSHAKE_MS, false, HANDSHAKE_REPLACE, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        uint64_t wait_ms = 12345;
        cr_expect(eq(int, (int)handshake_admit(rows[i].count, rows[i].age_ms, rows[i].behind, &wait_ms),
                     (int)rows[i].admitted),
                  "row %zu", i);
        cr_expect(eq(u64, wait_ms, rows[i].wait_ms), "row %zu", i);
    }
}
