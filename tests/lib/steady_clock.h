/* A clock for tests whose parts all run on one loop: what the machine stood still does not pass on it.
 *
 * A busy machine may not run a test for seconds. All timers of the loop are due then before anything that arrived is
 * read, and nothing that the test says of times is true. After steady_clock_begin each reading of CLOCK_MONOTONIC, by the
 * program and by libuv, lies STEADY_MS at most after the one before: a timer of the test has to end each of the loop's
 * waits sooner. Of what happens between two readings no more than that counts either.
 *
 * Included by one source file of the test's program: its clock_gettime stands in for the C library's. */
#ifndef COORD_TESTS_LIB_STEADY_CLOCK_H
#define COORD_TESTS_LIB_STEADY_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STEADY_MS 20

static struct {
    pthread_mutex_t lock;
    int64_t real_ns, now_ns; /* as they were read last; 0: not begun */
} steady_clock = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t steady_clock_real_ns(void) {
    struct timespec real;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &real);
    return (int64_t)real.tv_sec * 1000000000 + real.tv_nsec;
}

static inline void steady_clock_begin(void) {
    pthread_mutex_lock(&steady_clock.lock);
    if (!steady_clock.now_ns) steady_clock.real_ns = steady_clock.now_ns = steady_clock_real_ns();
    pthread_mutex_unlock(&steady_clock.lock);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE) return (int)syscall(SYS_clock_gettime, id, now);
    pthread_mutex_lock(&steady_clock.lock);
    int64_t real_ns = steady_clock_real_ns(), passed_ns = real_ns - steady_clock.real_ns, now_ns = real_ns;
    if (steady_clock.now_ns) {
        now_ns = steady_clock.now_ns + (passed_ns < STEADY_MS * 1000000 ? passed_ns : STEADY_MS * 1000000);
        steady_clock.now_ns = now_ns, steady_clock.real_ns = real_ns;
    }
    pthread_mutex_unlock(&steady_clock.lock);
    *now = (struct timespec){.tv_sec = now_ns / 1000000000, .tv_nsec = now_ns % 1000000000};
    return 0;
}

#endif
