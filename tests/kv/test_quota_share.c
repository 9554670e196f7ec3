/* Fair shares: nobody has less than it wants while another one of its priority has more, and nothing is left. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "kv/quota/quota_internal.h"

enum { WISHES = 40 };

static struct quota_level levels[QUOTA_PRIORITIES];

static void share(uint64_t total, uint64_t most, size_t count, const struct quota_wish *wishes) {
    struct quota_wish copy[WISHES];
    if (count) memcpy(copy, wishes, count * sizeof *copy);
    quota_share(total, most, copy, count, levels);
}

#define LEVEL(priority, level, odd) \
    cr_expect(levels[priority].most == (level) && levels[priority].uneven == (odd), "%lu", levels[priority].most)

Test(quota_share, equal_parts_are_raised_by_what_others_do_not_want) {
    const struct quota_wish three[] = {{5, 20, 0}, {5, 100, 0}, {5, 100, 0}};
    share(150, 100, 3, three);
    LEVEL(5, 65, false);
    share(151, 100, 3, three);
    LEVEL(5, 66, true);
    share(220, 100, 3, three);
    LEVEL(5, 100, false);
    share(0, 100, 3, three);
    LEVEL(5, 0, false);
    share(2, 100, 3, three);
    LEVEL(5, 1, true);
    share(2, 100, 0, NULL);
    LEVEL(0, 100, false);
    LEVEL(9, 100, false);
}

Test(quota_share, priorities_are_served_one_after_the_other) {
    const struct quota_wish wishes[] = {{1, 50, 0}, {9, 60, 0}, {1, 50, 0}, {3, 30, 0}};
    share(120, 100, 4, wishes);
    LEVEL(9, 100, false);
    LEVEL(3, 100, false);
    LEVEL(1, 15, false);
    share(70, 100, 4, wishes);
    LEVEL(9, 100, false);
    LEVEL(3, 10, false);
    LEVEL(1, 0, false);
    share(50, 100, 4, wishes);
    LEVEL(9, 50, false);
    LEVEL(3, 0, false);
    LEVEL(1, 0, false);
}

/* Shares that all get: the part that is surely theirs, then one more for those who come first. */
static uint64_t give(uint64_t total, const struct quota_wish *wishes, size_t count, uint64_t got[WISHES]) {
    for (size_t i = 0; i < count; i++) {
        uint64_t sure = quota_level_sure(levels[wishes[i].priority]);
        got[i] = wishes[i].want < sure ? wishes[i].want : sure;
        cr_assert_leq(got[i], total, "there is enough for that");
        total -= got[i];
    }
    for (size_t i = 0; i < count && total; i++)
        if (got[i] < wishes[i].want && got[i] < levels[wishes[i].priority].most) got[i]++, total--;
    return total;
}

/* Max-min: whoever has less than it wants has, but for one, as much as anybody else of its priority, and those of lower
 * ones have nothing. */
static void check_fair(const struct quota_wish *wishes, const uint64_t *got, size_t count, uint64_t left) {
    for (size_t i = 0; i < count; i++) {
        cr_assert_leq(got[i], wishes[i].want);
        if (got[i] == wishes[i].want) continue;
        cr_assert_eq(left, 0, "something is left while somebody wants it");
        for (size_t j = 0; j < count; j++) {
            if (wishes[j].priority == wishes[i].priority) cr_assert_leq(got[j], got[i] + 1);
            if (wishes[j].priority < wishes[i].priority) cr_assert_eq(got[j], 0);
        }
    }
}

Test(quota_share, it_is_max_min_fair_whatever_is_wanted) {
    struct rng rng;
    rng_seed(&rng, 4);
    for (unsigned run = 0; run < 20000; run++) {
        struct quota_wish wishes[WISHES];
        uint64_t got[WISHES], most = rng_below(&rng, 4) ? 1 + rng_below(&rng, 100) : QUOTA_AMOUNT_MOST;
        size_t count = rng_below(&rng, WISHES + 1);
        uint32_t priorities = 1 + (uint32_t)rng_below(&rng, QUOTA_PRIORITIES);
        uint64_t total = rng_below(&rng, most * (count + 1) + 1);
        for (size_t i = 0; i < count; i++)
            wishes[i] = (struct quota_wish){(uint32_t)rng_below(&rng, priorities), rng_below(&rng, most + 1), 0};
        share(total, most, count, wishes);
        check_fair(wishes, got, count, give(total, wishes, count, got));
    }
}
