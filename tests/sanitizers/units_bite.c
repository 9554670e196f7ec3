/* One Test() for each way in which a test can end, for check_units_bite.sh. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

static int begun, ended;
static void begin(void) { begun++, ended = 0; }
static void end(void) { cr_assert_eq(ended, 1, "the test comes before its end"); }
TestSuite(bite, .init = begin, .fini = end);

Test(bite, passes) {
    cr_assert_gt(begun, 0);
    ended++;
}
Test(bite, passes_too) { ended++; }
Test(bite, is_skipped) { cr_skip_test("as it says"); }
Test(bite, fails_and_goes_on) {
    cr_expect(false, "expected");
    ended++;
}
Test(bite, fails_and_ends) {
    cr_assert(false, "asserted");
    abort();
}
Test(bite, fails_at_its_end) {}
Test(bite, crashes) {
    ended++;
    abort();
}
Test(bite, takes_too_long, .timeout = 0.1) {
    ended++;
    for (;;) pause();
}
#ifdef COORD_ASAN
Test(bite, writes_beyond) {
    char *volatile place = malloc(10);
    ended++, place[10] = 1;
    free(place);
}
Test(bite, leaks) {
    ended++;
    char *volatile lost = malloc(100);
    lost = NULL;
}
#endif
