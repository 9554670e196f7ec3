/* Randomness: a small seeded generator for everything that decides (so that a run replays), and the kernel's for ids
 * and secrets. */
#ifndef COORD_BASE_RANDOM_H
#define COORD_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* xoshiro256** (Blackman, Vigna 2018), seeded by splitmix64. */
struct rng {
    uint64_t state[4];
};
void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t limit);                  /* unbiased; limit > 0 */
uint64_t rng_between(struct rng *rng, uint64_t least, uint64_t most); /* inclusive */
double rng_unit(struct rng *rng);                                     /* from 0 to below 1 */

void random_bytes(void *to, size_t size); /* getrandom(2) */
uint64_t random_u64(void);
void random_uuid(char text[37]); /* RFC 4122, version 4; NUL-terminated */

#endif
