#include <criterion/criterion.h>

#include "base/wakes.h"

static void count(void *target) { ++*(int *)target; }

Test(wakes, at_once_where_nothing_is_held) {
    int woken = 0;
    wakes_send(count, &woken);
    cr_expect_eq(woken, 1);
    wakes_now();
    cr_expect_eq(woken, 1);
}

Test(wakes, held_until_the_outermost_release) {
    int woken = 0, other = 0;
    wakes_hold();
    wakes_send(count, &woken);
    wakes_hold();
    wakes_send(count, &other);
    wakes_release();
    cr_expect_eq(woken + other, 0);
    wakes_release();
    cr_expect_eq(woken, 1);
    cr_expect_eq(other, 1);
    wakes_send(count, &woken);
    cr_expect_eq(woken, 2);
}

Test(wakes, before_something_long) {
    int woken = 0;
    wakes_hold();
    wakes_send(count, &woken);
    wakes_now();
    cr_expect_eq(woken, 1);
    wakes_send(count, &woken);
    cr_expect_eq(woken, 1, "still held");
    wakes_release();
    cr_expect_eq(woken, 2);
}

Test(wakes, none_is_lost_when_many_are_held) {
    int woken[100] = {0};
    wakes_hold();
    for (int i = 0; i < 100; i++) wakes_send(count, &woken[i]);
    wakes_release();
    for (int i = 0; i < 100; i++) cr_expect_eq(woken[i], 1);
}
