#include <criterion/criterion.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/random.h"

Test(rng, replays) {
    struct rng a, b, c;
    rng_seed(&a, 42);
    rng_seed(&b, 42);
    rng_seed(&c, 43);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t value = rng_next(&a);
        cr_assert_eq(value, rng_next(&b));
        same += value == rng_next(&c);
    }
    cr_expect_eq(same, 0);
}

/* The first outputs for the state {1, 2, 3, 4}, as the reference implementation gives them. */
Test(rng, reference) {
    struct rng rng = {{1, 2, 3, 4}};
    static const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240};
    for (int i = 0; i < 4; i++) cr_expect_eq(rng_next(&rng), expected[i], "output %d", i);
}

Test(rng, ranges) {
    struct rng rng;
    rng_seed(&rng, 7);
    int seen[10] = {0};
    for (int i = 0; i < 10000; i++) {
        seen[rng_below(&rng, 10)]++;
        uint64_t value = rng_between(&rng, 5, 7);
        cr_assert(value >= 5 && value <= 7);
    }
    for (int i = 0; i < 10; i++) cr_expect(seen[i] > 800 && seen[i] < 1200, "%d was drawn %d times", i, seen[i]);
    cr_expect_eq(rng_below(&rng, 1), 0);
    cr_expect_eq(rng_between(&rng, 9, 9), 9);
    rng_between(&rng, 0, UINT64_MAX);
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        double part = rng_unit(&rng);
        cr_assert(part >= 0 && part < 1);
        sum += part;
    }
    cr_expect(sum > 4850 && sum < 5150, "%g", sum);
    int high = 0; /* a limit of 3/4 of the range: without the correction the lower half would come too often */
    uint64_t limit = UINT64_C(3) << 62;
    for (int i = 0; i < 30000; i++) high += rng_below(&rng, limit) >= limit / 3;
    cr_expect(high > 19500 && high < 20500, "%d of 30000", high);
}

Test(random, bytes) {
    unsigned char a[600], b[600];
    memset(a, 0, sizeof a);
    random_bytes(a, sizeof a);
    random_bytes(b, sizeof b);
    cr_expect_neq(memcmp(a, b, sizeof a), 0);
    cr_expect_neq(random_u64(), random_u64());
}

Test(clock, runs) {
    uint64_t ns = clock_mono_ns(), ms = clock_mono_ms();
    cr_expect(ms >= ns / 1000000);
    cr_expect(clock_mono_ns() >= ns);
    cr_expect(clock_wall_ns() > INT64_C(1700000000) * 1000000000);
}

struct item {
    int number;
    struct list link;
};

static int digits(struct list *head) {
    int number = 0;
    LIST_FOREACH(at, head) number = number * 10 + LIST_ENTRY(at, struct item, link)->number;
    return number;
}

Test(list, operations) {
    struct list head, other;
    struct item items[5];
    list_init(&head);
    list_init(&other);
    cr_expect(list_empty(&head));
    for (int i = 0; i < 5; i++) {
        items[i].number = i + 1;
        list_append(i < 3 ? &head : &other, &items[i].link);
    }
    cr_expect_eq(digits(&head), 123);
    list_splice(&head, &other);
    cr_expect(list_empty(&other));
    list_splice(&head, &other);
    cr_expect_eq(digits(&head), 12345);
    list_remove(&items[1].link);
    list_remove(&items[1].link);
    cr_expect_eq(digits(&head), 1345);
    list_insert(&items[0].link, &items[1].link);
    cr_expect_eq(digits(&head), 21345);
    LIST_FOREACH_SAFE(at, next, &head) {
        if (LIST_ENTRY(at, struct item, link)->number % 2) list_remove(at);
    }
    cr_expect_eq(digits(&head), 24);
}
