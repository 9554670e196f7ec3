/* The answers that share a message: peers and sizes by letters and numbers, the plan read back as text. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "dns/segments.h"

enum { MANY = 600 };

static struct segments_answer answers[MANY];
static char peers[MANY], controls[MANY];
static uint64_t keys[MANY];
static uint16_t order[MANY];
static struct segments_group groups[MANY];

/* 'a': peer a, as it comes. 'a' with control: "a1" is peer a, asked at address 1. */
static void answer(size_t i, char peer, char control, size_t size) {
    peers[i] = peer;
    controls[i] = control;
    answers[i] = (struct segments_answer){.peer = &peers[i],
                                          .peer_size = 1,
                                          .control = control ? &controls[i] : NULL,
                                          .control_size = control ? 1 : 0,
                                          .size = size};
}

/* Whatever the plan: everything leaves once, groups follow one another, and are what the kernel takes. */
static void check_plan(size_t count, size_t group_count, size_t size_max) {
    static bool seen[MANY];
    memset(seen, 0, sizeof(seen));
    size_t at = 0;
    for (size_t g = 0; g < group_count; g++) {
        cr_assert(eq(sz, groups[g].first, at));
        cr_assert(groups[g].count >= 1 && groups[g].count <= SEGMENTS_MAX);
        const struct segments_answer *head = &answers[order[at]];
        size_t bytes = 0;
        for (size_t i = 0; i < groups[g].count; i++, at++) {
            const struct segments_answer *one = &answers[order[at]];
            cr_assert(not(seen[order[at]]));
            seen[order[at]] = true;
            bytes += one->size;
            cr_assert(eq(chr, peers[order[at]], peers[order[groups[g].first]]));
            cr_assert(eq(chr, controls[order[at]], controls[order[groups[g].first]]));
            cr_assert(one->size == head->size || (one->size < head->size && i + 1 == groups[g].count));
        }
        cr_assert(groups[g].count == 1 || (bytes <= SEGMENTS_BYTES_MAX && head->size <= size_max));
    }
    cr_assert(eq(sz, at, count));
}

static size_t plan(size_t count, size_t size_max) {
    size_t group_count = segments_plan(answers, count, size_max, keys, order, groups);
    check_plan(count, group_count, size_max);
    return group_count;
}

Test(segments, table) {
    static const struct {
        const char *what, *peers;
        size_t sizes[8], size_max, messages;
    } rows[] = {
        {"none", "", {0}, 9000, 0},
        {"one", "a", {100}, 9000, 1},
        {"equal ones", "aaaa", {100, 100, 100, 100}, 9000, 1},
        {"from two peers, in turn", "ababab", {100, 100, 100, 100, 100, 100}, 9000, 2},
        {"all different peers", "abcd", {100, 100, 100, 100}, 9000, 4},
        {"the last is shorter", "aaa", {100, 60, 100}, 9000, 1},
        {"two short ones: one goes along", "aaaa", {60, 100, 60, 100}, 9000, 2},
        {"two sizes in turn", "aaaaaa", {100, 60, 100, 60, 100, 60}, 9000, 2},
        {"all sizes differ: pairs", "aaaa", {100, 90, 80, 70}, 9000, 2},
        {"a shorter one of another peer does not", "aab", {100, 100, 60}, 9000, 2},
        {"too long to be cut", "aaa", {100, 100, 100}, 99, 3},
        {"just not too long", "aaa", {100, 100, 100}, 100, 1},
        {"only the short ones", "aaaa", {100, 50, 50, 100}, 99, 3},
        {"never", "aaaa", {100, 100, 100, 100}, 0, 4},
        {"a sum that fits", "aa", {40000, 25507}, 65507, 1},
        {"a sum that does not", "aa", {40000, 25508}, 65507, 2},
    };
    for (size_t r = 0; r < ARRAY_COUNT(rows); r++) {
        size_t count = strlen(rows[r].peers);
        for (size_t i = 0; i < count; i++) answer(i, rows[r].peers[i], 0, rows[r].sizes[i]);
        cr_expect(eq(sz, plan(count, rows[r].size_max), rows[r].messages), "%s", rows[r].what);
    }
}

/* Answers leave from the address that was asked: different ones do not mix. */
Test(segments, control) {
    for (size_t i = 0; i < 8; i++) answer(i, 'a', i % 2 ? '1' : '2', 100);
    cr_expect(eq(sz, plan(8, 9000), 2));
    answer(0, 'a', 0, 100);
    cr_expect(eq(sz, plan(8, 9000), 3));
}

Test(segments, equal_ones_keep_their_order) {
    for (size_t i = 0; i < 60; i++) answer(i, i % 3 ? 'a' : 'b', 0, 100);
    cr_assert(eq(sz, plan(60, 9000), 2));
    for (size_t g = 0; g < 2; g++) {
        for (size_t i = 1; i < groups[g].count; i++)
            cr_expect(order[groups[g].first + i] > order[groups[g].first + i - 1]);
    }
}

Test(segments, limits_of_a_message) {
    for (size_t i = 0; i < 130; i++) answer(i, 'a', 0, 100);
    cr_expect(eq(sz, plan(130, 9000), 3)); /* 64, 64, 2 */
    for (size_t i = 0; i < 64; i++) answer(i, 'a', 0, 1232);
    cr_expect(eq(sz, plan(64, 9000), 2)); /* 53 are 65,296 bytes */
    cr_expect(eq(uint, groups[0].count, 53));
}

Test(segments, anything) {
    struct rng rng;
    rng_seed(&rng, 5);
    for (unsigned round = 0; round < 2000; round++) {
        size_t count = rng_below(&rng, MANY + 1), kinds = 1 + rng_below(&rng, 5), size_max = rng_below(&rng, 10000);
        if (round % 10) count %= 65;
        for (size_t i = 0; i < count; i++) {
            size_t size = rng_below(&rng, 2) ? 60 + rng_below(&rng, 3) * 8 : 1 + rng_below(&rng, 8192);
            answer(i, (char)('a' + rng_below(&rng, kinds)), (char)rng_below(&rng, 3), size);
        }
        plan(count, size_max);
    }
}

Test(segments, refused) {
    static const struct {
        size_t size_max, size;
        int error;
        size_t after;
    } rows[] = {
        {65507, 1600, EMSGSIZE, 1599}, {65507, 1600, EINVAL, 1599},  {1599, 1400, EMSGSIZE, 1399},
        {65507, 100, EIO, 0},          {65507, 100, ENOPROTOOPT, 0}, {65507, 100, EOPNOTSUPP, 0},
        {65507, 100, ENOBUFS, 65507},  {65507, 100, EPERM, 65507},   {65507, 100, ENETUNREACH, 65507},
        {1472, 1, EINVAL, 0},          {0, 100, EINVAL, 0},
    };
    for (size_t r = 0; r < ARRAY_COUNT(rows); r++)
        cr_expect(eq(sz, segments_refused(rows[r].size_max, rows[r].size, rows[r].error), rows[r].after), "row %zu", r);
}
