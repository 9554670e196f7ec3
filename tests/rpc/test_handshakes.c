/* The order of handshakes: a pure rule. */
#include <criterion/criterion.h>

#include "rpc/wire/handshakes.h"

static void never(struct handshake *handshake) { (void)handshake; }

static void make(struct handshake *all, size_t count) {
    for (size_t i = 0; i < count; i++) handshake_init(&all[i], never);
}

Test(handshakes, a_turn_of_the_loop_has_so_many) {
    struct handshakes handshakes;
    struct handshake all[7];
    handshakes_init(&handshakes, 3);
    make(all, 7);
    for (size_t i = 0; i < 7; i++) cr_assert_eq(handshakes_ask(&handshakes, &all[i]), i < 3);
    cr_assert_eq(handshakes.waiting, 4);
    cr_assert_null(handshakes_next(&handshakes), "this turn's are used up");
    handshakes_turn(&handshakes);
    for (size_t i = 3; i < 6; i++) cr_assert_eq(handshakes_next(&handshakes), &all[i]);
    cr_assert_null(handshakes_next(&handshakes));
    handshakes_turn(&handshakes);
    cr_assert_eq(handshakes_next(&handshakes), &all[6]);
    cr_assert_null(handshakes_next(&handshakes));
    cr_assert_eq(handshakes.waiting, 0);
}

Test(handshakes, those_that_have_begun_come_first) {
    struct handshakes handshakes;
    struct handshake all[4];
    handshakes_init(&handshakes, 1);
    make(all, 4);
    cr_assert(handshakes_ask(&handshakes, &all[0]));
    for (size_t i = 1; i < 4; i++) cr_assert(!handshakes_ask(&handshakes, &all[i]));
    cr_assert(!handshakes_ask(&handshakes, &all[0])); /* its second turn */
    handshakes_turn(&handshakes);
    cr_assert_eq(handshakes_next(&handshakes), &all[0]);
    handshakes_turn(&handshakes);
    cr_assert_eq(handshakes_next(&handshakes), &all[1]);
    cr_assert(handshake_waits(&all[2]) && !handshake_waits(&all[1]));
}

Test(handshakes, nobody_overtakes_those_that_wait) {
    struct handshakes handshakes;
    struct handshake all[4];
    handshakes_init(&handshakes, 2);
    make(all, 4);
    cr_assert(handshakes_ask(&handshakes, &all[0]));
    cr_assert(handshakes_ask(&handshakes, &all[1]));
    cr_assert(!handshakes_ask(&handshakes, &all[2]));
    handshakes_turn(&handshakes);
    cr_assert(!handshakes_ask(&handshakes, &all[3]), "the other asked before");
    cr_assert(handshakes_ask(&handshakes, &all[0]), "it has begun, the others have not");
    cr_assert_eq(handshakes_next(&handshakes), &all[2]);
    cr_assert_null(handshakes_next(&handshakes));
}

Test(handshakes, one_that_leaves_or_asks_twice_does_no_harm) {
    struct handshakes handshakes;
    struct handshake all[3];
    handshakes_init(&handshakes, 1);
    make(all, 3);
    cr_assert(handshakes_ask(&handshakes, &all[0]));
    cr_assert(!handshakes_ask(&handshakes, &all[1]));
    cr_assert(!handshakes_ask(&handshakes, &all[2]));
    handshakes_turn(&handshakes);
    cr_assert(!handshakes_ask(&handshakes, &all[1]), "it keeps its place");
    cr_assert_eq(handshakes.waiting, 2);
    handshakes_leave(&handshakes, &all[1]);
    handshakes_leave(&handshakes, &all[1]);
    handshakes_leave(&handshakes, &all[0]);
    cr_assert_eq(handshakes.waiting, 1);
    cr_assert_eq(handshakes_next(&handshakes), &all[2]);
    cr_assert_null(handshakes_next(&handshakes));
}
