/* CPU time of the calling thread. */
#ifndef COORD_TESTS_BENCH_CPU_H
#define COORD_TESTS_BENCH_CPU_H

#include <stdint.h>
#include <time.h>

static inline uint64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
