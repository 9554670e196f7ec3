#include "base/rate_bucket.h"

#include "base/check.h"

#define SECOND_NS 1000000000ull

uint64_t rate_bucket_wait(uint64_t full_ns, uint64_t rate, uint64_t now_ns, uint64_t *after_ns) {
    CHECK(rate > 0);
    uint64_t each_ns = (SECOND_NS + rate - 1) / rate;
    uint64_t room_ns = each_ns * rate; /* a second, and what rounding adds to it */
    uint64_t next_ns = (full_ns > now_ns ? full_ns : now_ns) + each_ns;
    uint64_t wait_ns = next_ns > now_ns + room_ns ? next_ns - (now_ns + room_ns) : 0;
    *after_ns = wait_ns ? full_ns : next_ns;
    return wait_ns;
}
