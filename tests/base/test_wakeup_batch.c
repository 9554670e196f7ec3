#include <criterion/criterion.h>

#include "base/wakeup_batch.h"

static void count(void *target) { ++*(int *)target; }

Test(wakes, at_once_where_nothing_is_held) {
    int woken = 0;
    wakeup_batch_send(count, &woken);
    cr_expect_eq(woken, 1);
    wakeup_batch_flush();
    cr_expect_eq(woken, 1);
}

Test(wakes, held_until_the_outermost_release) {
    int woken = 0, other = 0;
    wakeup_batch_begin();
    wakeup_batch_send(count, &woken);
    wakeup_batch_begin();
    wakeup_batch_send(count, &other);
    wakeup_batch_end();
    cr_expect_eq(woken + other, 0);
    wakeup_batch_end();
    cr_expect_eq(woken, 1);
    cr_expect_eq(other, 1);
    wakeup_batch_send(count, &woken);
    cr_expect_eq(woken, 2);
}

Test(wakes, before_something_long) {
    int woken = 0;
    wakeup_batch_begin();
    wakeup_batch_send(count, &woken);
    wakeup_batch_flush();
    cr_expect_eq(woken, 1);
    wakeup_batch_send(count, &woken);
    cr_expect_eq(woken, 1, "still held");
    wakeup_batch_end();
    cr_expect_eq(woken, 2);
}

Test(wakes, none_is_lost_when_many_are_held) {
    int woken[100] = {0};
    wakeup_batch_begin();
    for (int i = 0; i < 100; i++) wakeup_batch_send(count, &woken[i]);
    wakeup_batch_end();
    for (int i = 0; i < 100; i++) cr_expect_eq(woken[i], 1);
}
