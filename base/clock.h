/* Time. Only edges (loop, threads) call these; deciding code takes time as an argument. */
#ifndef COORD_BASE_CLOCK_H
#define COORD_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC */
uint64_t clock_mono_ms(void);
uint64_t clock_boot_ns(void); /* CLOCK_BOOTTIME: since the machine was started, its sleep included */
int64_t clock_wall_ns(void);  /* CLOCK_REALTIME, since 1970 */

#endif
