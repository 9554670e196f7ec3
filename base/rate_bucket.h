/* A bucket that holds one second's worth of takes, and at least one. It is one number: the time at which it will be full again
 * (the theoretical arrival time of the generic cell rate algorithm, ITU-T I.371); 0, and any time that has passed: it is full.
 *
 * Time is an argument. The caller keeps the number, and its threads apart. */
#ifndef COORD_BASE_RATE_BUCKET_H
#define COORD_BASE_RATE_BUCKET_H

#include <stdint.h>

/* `rate`: takes a second, above 0. 0: there is a take in it, and *after_ns is what full_ns becomes by it; else so many ns later
 * there is one, at most a second, and *after_ns is full_ns. */
uint64_t rate_bucket_wait(uint64_t full_ns, uint64_t rate, uint64_t now_ns, uint64_t *after_ns);

#endif
