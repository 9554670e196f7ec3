#include "base/clock.h"

#include <time.h>

static int64_t clock_read(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t clock_mono_ns(void) { return (uint64_t)clock_read(CLOCK_MONOTONIC); }

uint64_t clock_mono_ms(void) { return clock_mono_ns() / 1000000; }

uint64_t clock_boot_ns(void) { return (uint64_t)clock_read(CLOCK_BOOTTIME); }

int64_t clock_wall_ns(void) { return clock_read(CLOCK_REALTIME); }
