/* How old a copy may be, from what is heard of its region. */
#include <criterion/criterion.h>

#include "multi-dc/copy_age.h"

static struct copy_age age;

static Pb__CatalogAt at(uint64_t index) {
    Pb__CatalogAt place = PB__CATALOG_AT__INIT;
    place.cluster_id = 7, place.index = index;
    return place;
}
static void heard(uint64_t index, uint64_t ms) {
    Pb__CatalogAt place = at(index);
    copy_age_answered(&age, &place, 1000000, ms);
    copy_age_heard(&age, &place, ms);
}
static void seen(uint64_t index) {
    Pb__CatalogAt place = at(index);
    copy_age_seen(&age, &place, false);
}
static void begin(void) { copy_age_begin(&age); }
TestSuite(copy_age, .init = begin);

Test(copy_age, nothing_is_known_before_anything_was_heard) {
    cr_assert_eq(copy_age_ms(&age, 0, 5000), UINT64_MAX);
    seen(10);
    cr_assert_eq(copy_age_ms(&age, 0, 5000), UINT64_MAX);
    cr_assert_eq(copy_age_ms(&age, 4000, 5000), 1000, "but by its follower");
}

Test(copy_age, a_copy_that_is_there_is_as_new_as_what_was_heard) {
    heard(10, 1000);
    cr_assert_eq(copy_age_ms(&age, 0, 1500), UINT64_MAX, "it was not looked at");
    seen(10);
    cr_assert_eq(copy_age_ms(&age, 0, 1500), 500);
    heard(10, 2000); /* nothing changed there */
    cr_assert_eq(copy_age_ms(&age, 0, 2500), 500);
    heard(11, 3000);
    cr_assert_eq(copy_age_ms(&age, 0, 3500), 1500);
    seen(12);
    cr_assert_eq(copy_age_ms(&age, 0, 3500), 500);
}

/* It is never where the region is, and not far behind. */
Test(copy_age, a_copy_of_a_region_that_changes_all_the_time_is_as_old_as_it_is_behind) {
    for (uint64_t second = 1; second < 100; second++) {
        heard(100 * second, 1000 * second);
        seen(100 * second - 150);
        if (second > 3) cr_assert_eq(copy_age_ms(&age, 0, 1000 * second), 2000);
    }
    seen(100 * 99 - 100 * COPY_AGE_HEARD - 1); /* behind all that is kept: set back */
    cr_assert_eq(copy_age_ms(&age, 0, 99000), UINT64_MAX);
}

Test(copy_age, a_copy_that_went_back_or_is_another_one_proves_nothing) {
    Pb__CatalogAt place = at(10), founded = at(10);
    heard(10, 1000), seen(10);
    seen(9);
    cr_assert_eq(copy_age_ms(&age, 0, 1500), UINT64_MAX);
    seen(10);
    cr_assert_eq(copy_age_ms(&age, 0, 1500), 500);
    copy_age_seen(&age, NULL, false);
    cr_assert_eq(copy_age_ms(&age, 0, 1500), UINT64_MAX);
    founded.cluster_id = 8; /* the region was founded anew: of what was heard of the one before nothing counts */
    copy_age_seen(&age, &founded, false);
    cr_assert_eq(copy_age_ms(&age, 0, 1500), UINT64_MAX);
    copy_age_seen(&age, &place, true);
    cr_assert_eq(copy_age_ms(&age, 0, 1500), 500);
}

Test(copy_age, a_region_is_asked_once_a_second) {
    unsigned asked = 0;
    for (uint64_t ms = 1000; ms < 11000; ms += 50) asked += copy_age_asks(&age, ms);
    cr_assert_eq(asked, 10000 / COPY_AGE_HEARTBEAT_MS);
}

Test(copy_age, the_distance_is_the_shortest_of_the_last_rounds) {
    Pb__CatalogAt place = at(1);
    cr_assert_eq(copy_age_round_us(&age), 0);
    copy_age_answered(&age, &place, 5000000, 1);
    copy_age_answered(&age, &place, 2000000, 2);
    cr_assert_eq(copy_age_round_us(&age), 2001);
    for (unsigned i = 0; i < COPY_AGE_ROUNDS; i++) copy_age_answered(&age, &place, 9000000, 3);
    cr_assert_eq(copy_age_round_us(&age), 9001);
}
