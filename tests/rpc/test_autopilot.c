/* The dead servers that may leave: a table. */
#include <criterion/criterion.h>

#include "rpc/server/autopilot.h"

#define UP(id, ms) \
    { id, true, true, ms }
#define DOWN(id, ms) \
    { id, true, false, ms }
#define LEARNER_UP(id, ms) \
    { id, false, true, ms }
#define LEARNER_DOWN(id, ms) \
    { id, false, false, ms }
#define LONG 60000

Test(autopilot, a_dead_server_goes_when_it_was_replaced) {
    static const struct {
        const char *what;
        struct autopilot_rules rules;
        struct autopilot_server servers[7];
        size_t count;
        uint64_t dead;
    } table[] = {
        {"all are there", {true, 3, 0, 10000}, {UP(1, LONG), UP(2, LONG), UP(3, LONG)}, 3, 0},
        {"one of three is gone, nobody replaces it",
         {true, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), DOWN(3, LONG)},
         3,
         0},
        {"replaced", {true, 3, 0, 10000}, {UP(1, LONG), DOWN(2, LONG), UP(3, LONG), UP(4, LONG)}, 4, 2},
        {"replaced, by one that has just come",
         {true, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), DOWN(3, LONG), UP(4, 9999)},
         4,
         0},
        {"replaced, by one that does not vote yet",
         {true, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), DOWN(3, LONG), LEARNER_UP(4, LONG)},
         4,
         0},
        {"replaced, but it has just gone",
         {true, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), UP(3, LONG), DOWN(4, 9999)},
         4,
         0},
        {"exactly long enough", {true, 3, 0, 10000}, {UP(1, 10000), UP(2, LONG), UP(3, LONG), DOWN(4, 10000)}, 4, 4},
        {"it is switched off", {false, 3, 0, 10000}, {UP(1, LONG), UP(2, LONG), UP(3, LONG), DOWN(4, LONG)}, 4, 0},
        {"fewer would be left than wanted",
         {true, 3, 4, 10000},
         {UP(1, LONG), UP(2, LONG), UP(3, LONG), DOWN(4, LONG)},
         4,
         0},
        {"a learner that is gone",
         {true, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), UP(3, LONG), LEARNER_DOWN(4, LONG)},
         4,
         4},
        {"a learner, while a voter is missing",
         {true, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), DOWN(3, LONG), LEARNER_DOWN(4, LONG)},
         4,
         4},
        {"a learner that has just gone",
         {true, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), UP(3, LONG), LEARNER_DOWN(4, 9999)},
         4,
         0},
        {"a learner that stays",
         {false, 3, 0, 10000},
         {UP(1, LONG), UP(2, LONG), UP(3, LONG), LEARNER_DOWN(4, LONG)},
         4,
         0},
        {"the learner first, then the voter",
         {true, 3, 0, 0},
         {DOWN(1, 5), UP(2, 5), UP(3, 5), UP(4, 5), LEARNER_DOWN(5, 5)},
         5,
         5},
        {"the quorum hangs by a thread",
         {true, 3, 0, 0},
         {UP(1, 5), UP(2, 5), UP(3, 5), DOWN(4, 5), DOWN(5, 5), DOWN(6, 5)},
         6,
         0},
        {"one after the other", {true, 3, 0, 0}, {UP(1, 5), UP(2, 5), UP(3, 5), DOWN(4, 5), DOWN(5, 5)}, 5, 4},
        {"no number was given: three", {true, 0, 0, 0}, {UP(1, 5), UP(2, 5), DOWN(3, 5)}, 3, 0},
        {"no number was given, and there are three", {true, 0, 0, 0}, {UP(1, 5), UP(2, 5), UP(3, 5), DOWN(4, 5)}, 4, 4},
        {"founded by one alone: the third only reboots", {true, 1, 0, 0}, {UP(1, 5), UP(2, 5), DOWN(3, 5)}, 3, 0},
        {"founded by one alone, and replaced", {true, 1, 0, 0}, {UP(1, 5), UP(2, 5), DOWN(3, 5), UP(4, 5)}, 4, 3},
        {"two, one of them gone", {true, 2, 0, 0}, {UP(1, 5), DOWN(2, 5)}, 2, 0},
        {"five are wanted", {true, 5, 0, 0}, {UP(1, 5), UP(2, 5), UP(3, 5), UP(4, 5), DOWN(5, 5)}, 5, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_assert_eq(autopilot_dead(&table[i].rules, table[i].servers, table[i].count), table[i].dead, "%s",
                     table[i].what);
}

Test(autopilot, an_operator_removes_what_the_cluster_can_spare) {
    static const struct {
        const char *what;
        struct autopilot_server servers[7];
        size_t count;
        uint64_t id;
        bool may;
    } table[] = {
        {"one of three that are well", {UP(1, 0), UP(2, 0), UP(3, 0)}, 3, 3, true},
        {"the dead one", {UP(1, 0), UP(2, 0), DOWN(3, 0)}, 3, 3, true},
        {"a live one instead", {UP(1, 0), UP(2, 0), DOWN(3, 0)}, 3, 2, false},
        {"the leader, while one is dead", {UP(1, 0), UP(2, 0), DOWN(3, 0)}, 3, 1, false},
        {"one of two", {UP(1, 0), UP(2, 0)}, 2, 2, true},
        {"one of two dead ones of five", {UP(1, 0), UP(2, 0), UP(3, 0), DOWN(4, 0), DOWN(5, 0)}, 5, 4, true},
        {"a live one of five, two are dead", {UP(1, 0), UP(2, 0), UP(3, 0), DOWN(4, 0), DOWN(5, 0)}, 5, 3, false},
        {"a live one of five, one is dead", {UP(1, 0), UP(2, 0), UP(3, 0), UP(4, 0), DOWN(5, 0)}, 5, 3, true},
        {"learners do not count", {UP(1, 0), UP(2, 0), DOWN(3, 0), LEARNER_UP(4, 0)}, 4, 2, false},
        {"nothing hangs on a learner", {UP(1, 0), UP(2, 0), DOWN(3, 0), LEARNER_UP(4, 0)}, 4, 4, true},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_assert_eq(autopilot_may_go(table[i].servers, table[i].count, table[i].id), table[i].may, "%s",
                     table[i].what);
}
