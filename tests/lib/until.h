/* Polls until the condition holds, at most a minute; else the (Criterion) test fails. */
#ifndef COORD_TESTS_LIB_UNTIL_H
#define COORD_TESTS_LIB_UNTIL_H

#include <criterion/criterion.h>
#include <unistd.h>

#include "base/clock.h"

#define UNTIL_MS 60000
#define UNTIL(condition)                                                        \
    do {                                                                        \
        uint64_t end_ = clock_mono_ms() + UNTIL_MS;                             \
        while (!(condition)) {                                                  \
            cr_assert_lt(clock_mono_ms(), end_, "not in time: %s", #condition); \
            usleep(2000);                                                       \
        }                                                                       \
    } while (0)

#endif
