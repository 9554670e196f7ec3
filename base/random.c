#include "base/random.h"

#include <errno.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/text.h"

static uint64_t rotate(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

/* splitmix64 (Steele, Lea, Flood 2014): spreads a seed, 0 included, over the whole state. */
static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void rng_seed(struct rng *rng, uint64_t seed) {
    for (int i = 0; i < 4; i++) rng->state[i] = splitmix(&seed);
}

uint64_t rng_next(struct rng *rng) {
    uint64_t *s = rng->state;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return result;
}

/* Lemire 2019: the high half of a product; the few low halves that would favour some results are drawn again. */
uint64_t rng_below(struct rng *rng, uint64_t limit) {
    CHECK(limit > 0);
    unsigned __int128 product = (unsigned __int128)rng_next(rng) * limit;
    if ((uint64_t)product < limit) {
        uint64_t unfair = -limit % limit;
        while ((uint64_t)product < unfair) product = (unsigned __int128)rng_next(rng) * limit;
    }
    return (uint64_t)(product >> 64);
}

uint64_t rng_between(struct rng *rng, uint64_t least, uint64_t most) {
    CHECK(least <= most);
    uint64_t span = most - least + 1;
    return span == 0 ? rng_next(rng) : least + rng_below(rng, span);
}

double rng_unit(struct rng *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

void random_bytes(void *to, size_t size) {
    char *at = to;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR) continue;
        CHECK(got > 0);
        at += got;
        size -= (size_t)got;
    }
}

uint64_t random_u64(void) {
    uint64_t value;
    random_bytes(&value, sizeof value);
    return value;
}

void random_uuid(char text[UUID_TEXT_SIZE + 1]) {
    uint8_t bytes[16];
    random_bytes(bytes, sizeof bytes);
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40), bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
    uuid_format(bytes, text);
    text[UUID_TEXT_SIZE] = 0;
}
