/* A caller "web-17" has the number 17 among the callers "web-"; a name without a number at its end has its hash for a
 * number. For each instance a caller draws a number. The first four bits are the caller's place (17 modulo 16) within
 * its row of 16, after a permutation that belongs to the row and the instance. The next four are the row's place among
 * the 16 rows of its 256, after a permutation that belongs to the first four bits and the instance. So rows differ from
 * each other in everything but these strata. */
#include "lb/subset.h"

#include "base/hash.h"

enum { DIGITS_MAX = 18 };

struct caller {
    uint64_t family; /* the name before the number */
    uint64_t number;
};

static struct caller caller_read(struct slice id) {
    size_t digits = 0;
    uint64_t number = 0, place = 1;
    for (; digits < id.size && digits < DIGITS_MAX; digits++, place *= 10) {
        char digit = id.data[id.size - 1 - digits];
        if (digit < '0' || digit > '9') break;
        number += place * (uint64_t)(digit - '0');
    }
    uint64_t family = hash64(id.data, id.size - digits);
    return (struct caller){family, digits > 0 ? number : family};
}

/* One of many permutations of 0 to 15: every step can be undone. */
static unsigned permuted(unsigned x, uint64_t which) {
    x = (x + which) & 15;
    x = x * (which >> 4 | 1) & 15;
    x ^= x >> 2;
    x = (x * (which >> 8 | 1) + (which >> 12)) & 15;
    x ^= x >> 1;
    return (x * (which >> 16 | 1) + (which >> 20)) & 15;
}

static uint64_t draw(const void *data, uint64_t member) {
    const struct caller *caller = data;
    uint64_t instance = rendezvous_mix(member, caller->family), row = caller->number >> 4, rows = row >> 4;
    uint64_t of_row = rendezvous_mix(instance, row + 1);
    uint64_t high = permuted(caller->number & 15, of_row);
    uint64_t of_rows = rendezvous_mix(instance, ~(rows << 4 | high));
    uint64_t low = permuted(row & 15, of_rows);
    uint64_t rest = rendezvous_mix(of_row, of_rows + caller->number);
    return high << 60 | low << 56 | rest >> 8;
}

size_t subset_choose(const struct rendezvous *set, struct slice id, size_t most, size_t *chosen) {
    struct caller caller = caller_read(id);
    return rendezvous_owners(set, &(struct rendezvous_ask){.most = most, .hash = draw, .data = &caller}, chosen);
}
