/* Hot keys: what is counted, passed on, and found. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "base/random.h"
#include "lb/hot.h"

#define SECOND UINT64_C(1000000000)
#define API    SLICE_LITERAL("api")

static void look_up(struct hot *hot, const char *key, unsigned times, uint64_t now_ns) {
    for (unsigned i = 0; i < times; i++) hot_count(hot, API, slice_text(key), now_ns);
}

static void many_keys(struct hot *hot, unsigned keys, unsigned times, uint64_t now_ns) {
    char key[32];
    for (unsigned i = 0; i < keys * times; i++) {
        snprintf(key, sizeof key, "key%u", i % keys);
        look_up(hot, key, 1, now_ns);
    }
}

Test(hot, a_key_far_above_the_mean_is_found) {
    struct hot *hot = hot_new();
    struct hot_service found;
    cr_expect_not(hot_look(hot, API, SECOND, &found));
    many_keys(hot, 2000, 5, SECOND);
    look_up(hot, "hottest", 1000, SECOND);
    look_up(hot, "hot", 500, SECOND);
    look_up(hot, "warm", 30, SECOND);
    cr_assert(hot_look(hot, SLICE_LITERAL("API"), 6 * SECOND, &found));
    cr_assert_eq(found.count, 2);
    cr_expect(slice_is(found.hot[0].key, "hottest") && slice_is(found.hot[1].key, "hot"));
    cr_expect_float_eq(found.hot[0].rate, 200, 20, "%g", found.hot[0].rate);
    cr_expect_float_eq(found.rate, 11530 / 5.0, 1, "%g", found.rate);
    cr_expect(found.keys > 1700 && found.keys < 2300, "%g", found.keys);
    hot_free(hot);
}

Test(hot, few_keys_are_never_hot) {
    struct hot *hot = hot_new();
    struct hot_service found;
    look_up(hot, "only", 10000, SECOND);
    many_keys(hot, 8, 1, SECOND);
    cr_assert(hot_look(hot, API, 2 * SECOND, &found));
    cr_expect_eq(found.count, 0);
    cr_expect_float_eq(found.keys, 9, 0.5, "%g", found.keys);
    hot_free(hot);
}

Test(hot, counts_go_from_process_to_process_and_age) {
    struct hot *agents[3], *server = hot_new(), *other = hot_new();
    struct buffer frame = {0};
    struct hot_service found;
    for (int i = 0; i < 3; i++) {
        agents[i] = hot_new();
        many_keys(agents[i], 500, 2, SECOND);
        look_up(agents[i], "hot", 300, SECOND);
        buffer_reset(&frame);
        hot_take(agents[i], &frame);
        cr_assert_eq(hot_merge(server, buffer_slice(&frame), true, SECOND), CO_OK);
        buffer_reset(&frame);
        hot_take(agents[i], &frame);
        cr_expect_eq(frame.size, 0, "once");
    }
    hot_take(server, &frame);
    cr_assert_eq(hot_merge(other, buffer_slice(&frame), false, SECOND), CO_OK);
    struct hot *const all[] = {server, other};
    for (int i = 0; i < 2; i++) {
        cr_assert(hot_look(all[i], API, 2 * SECOND, &found));
        cr_assert_eq(found.count, 1);
        cr_expect(found.hot[0].rate > 800 && found.hot[0].rate < 1000, "%g", found.hot[0].rate);
        cr_expect(found.keys > 420 && found.keys < 580, "%g", found.keys);
        cr_expect(hot_look(all[i], API, 15 * SECOND, &found), "in the window before");
        cr_expect_not(hot_look(all[i], API, 40 * SECOND, &found));
    }
    buffer_reset(&frame);
    hot_take(other, &frame);
    cr_expect_eq(frame.size, 0, "what came from a server goes no further");
    hot_free(server), hot_free(other);
    for (int i = 0; i < 3; i++) hot_free(agents[i]);
    buffer_free(&frame);
}

Test(hot, it_is_bounded_and_takes_any_bytes) {
    struct hot *hot = hot_new();
    char text[2000];
    memset(text, 'k', sizeof text);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, 16, "s%d", i);
        hot_count(hot, slice_text(text), slice_make(text, sizeof text), SECOND);
    }
    hot_count(hot, slice_make(text, sizeof text), API, SECOND);
    struct buffer frame = {0};
    hot_take(hot, &frame);
    struct rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < 3000; i++) {
        size_t size = 1 + rng_below(&rng, frame.size < 4000 ? frame.size : 4000);
        char *part = malloc(size);
        memcpy(part, frame.data, size);
        if (i % 2) part[rng_below(&rng, size)] ^= (char)(1 + rng_below(&rng, 255));
        (void)hot_merge(hot, slice_make(part, size), i % 3, SECOND);
        free(part);
    }
    buffer_free(&frame);
    hot_free(hot);
}
