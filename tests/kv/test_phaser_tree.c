/* Trees of phasers: a child is one party of its parent, and all advance with the root. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "phasers.h"

TestSuite(phaser_tree, .init = phasers_setup, .fini = phasers_teardown);

Test(phaser_tree, a_child_is_one_party_and_advances_with_its_parent) {
    join("root", 0);
    cr_expect_eq(arrive("root", 0).now, 1);
    cr_expect_eq(join_below("root/a", 1, "root").phase, 1, "the parent's phase");
    join_below("root/a", 2, "root"), join_below("root/b", 3, "root"), join("root/b", 4);
    expect_counts("root", 1, 0, 3);
    arrive("root/a", 1);
    expect_counts("root", 1, 0, 3);
    struct answer last = arrive("root/a", 2);
    cr_expect(last.arrived == 2 && last.registered == 2 && !last.advanced, "it waits for the parent");
    expect_counts("root", 1, 1, 3);
    expect_counts("root/a", 1, 2, 2);
    const Pb__PhaserState *seen = state("root");
    cr_assert(seen->n_children == 2);
    cr_expect(seen->children[0]->arrived && seen->children[0]->signals && !seen->children[1]->arrived);
    arrive("root", 0), arrive("root/b", 3);
    struct counter a, b, root;
    watch_name(&a, SPACE_PHASER_PHASE, "root/a"), watch_name(&b, SPACE_PHASER_PHASE, "root/b");
    watch_name(&root, SPACE_PHASER_PHASE, "root");
    cr_expect(arrive("root/b", 4).advanced);
    expect_counts("root", 2, 0, 3), expect_counts("root/a", 2, 0, 2), expect_counts("root/b", 2, 0, 2);
    cr_expect(a.fired == 1 && b.fired == 1 && root.fired == 1, "in one entry");
    unwatch(&a), unwatch(&b), unwatch(&root);
}

Test(phaser_tree, who_joins_a_child_that_has_arrived_is_still_waited_for) {
    join("root", 0), join_below("mid", 1, "root"), join_below("leaf", 2, "mid");
    arrive("mid", 1), arrive("leaf", 2);
    expect_counts("root", 0, 1, 2);
    join("leaf", 3);
    expect_counts("leaf", 0, 1, 2), expect_counts("mid", 0, 1, 2), expect_counts("root", 0, 0, 2);
    arrive("root", 0);
    expect_counts("root", 0, 1, 2);
    cr_expect(arrive("leaf", 3).advanced);
    expect_counts("leaf", 1, 0, 2), expect_counts("mid", 1, 0, 2), expect_counts("root", 1, 0, 2);
}

Test(phaser_tree, a_child_without_parties_is_none_itself_and_one_without_members_is_gone) {
    join("root", 0), join_below("mid", 1, "root"), join_below("leaf", 2, "mid");
    join_as("leaf", 3, WAIT);
    leave("mid", 1);
    expect_counts("mid", 0, 0, 1);
    arrive("root", 0);
    expect_counts("root", 0, 1, 2);
    leave("leaf", 2);
    expect_counts("root", 1, 0, 1);
    expect_counts("leaf", 1, 0, 0);
    cr_expect_not(state("root")->children[0]->signals);
    cr_expect(arrive("root", 0).advanced && phase("leaf") == 2, "who waits there goes on with the root");
    leave("leaf", 3);
    cr_expect(!ask("leaf").found && !ask("mid").found && state("root")->n_children == 0);
    cr_expect_eq(state("root")->phaser->descendants, 0);
    leave("root", 0);
    cr_expect_not(ask("root").found);
    (void)fixture_sum(&world);
}

Test(phaser_tree, nobody_left_in_a_tree_that_signals_ends_the_phase_of_all) {
    join_below("leaf", 0, "root"), join_as("leaf", 1, WAIT), join_as("root", 2, WAIT);
    session_drop(&world, id[0]);
    expect_counts("root", 1, 0, 0), expect_counts("leaf", 1, 0, 0);
}

Test(phaser_tree, parents_have_to_agree_and_circles_are_named) {
    join_below("b", 0, "a"), join_below("c", 0, "b"), join("single", 0);
    cr_expect(join("c", 1).yes && join_below("c", 2, "b").yes, "it need not be said again");
    struct answer other = join_below("c", 3, "a");
    cr_expect(other.error == CO_CONFLICT && strstr(other.text, "has the parent \"b\""), "%s", other.text);
    struct answer none = join_below("single", 3, "a");
    cr_expect(none.error == CO_CONFLICT && strstr(none.text, "\"single\" has none"), "%s", none.text);
    struct answer circle = join_below("a", 3, "c");
    cr_expect(circle.error == CO_CONFLICT && strstr(circle.text, "own ancestor: a < c < b < a"), "%s", circle.text);
    struct answer self = join_below("new", 3, "new");
    cr_expect(self.error == CO_CONFLICT && strstr(self.text, "own ancestor: new < new"), "%s", self.text);
    cr_expect(!ask("new").found && state("c")->phaser->members == 3 && state("a")->phaser->members == 0);
}

Test(phaser_tree, a_tree_of_1000_wakes_its_root_33_times_at_most_and_an_advance_writes_no_member) {
    enum { CHILDREN = 32, EACH = 31 };
    char name[16];
    for (unsigned i = 8; i < CHILDREN * EACH; i++)
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
    for (unsigned i = 0; i < CHILDREN * EACH; i++) {
        snprintf(name, sizeof name, "c%02u", i / EACH);
        cr_assert(join_below(name, i, "root").yes);
    }
    struct counter reader, waiter;
    struct counter *leaves = mem_zalloc(CHILDREN * sizeof *leaves);
    static char names[CHILDREN][16];
    watch_name(&reader, SPACE_PHASER, "root"), watch_name(&waiter, SPACE_PHASER_PHASE, "root");
    for (unsigned i = 0; i < CHILDREN; i++) {
        snprintf(names[i], sizeof names[i], "c%02u", i);
        watch_name(&leaves[i], SPACE_PHASER_PHASE, names[i]);
    }
    uint64_t began = machine_applied(world.machine), last_us = 0;
    for (unsigned i = 0; i < CHILDREN * EACH; i++) {
        uint64_t before_ns = clock_mono_ns();
        struct answer answer = arrive(names[i / EACH], i);
        last_us = (clock_mono_ns() - before_ns) / 1000;
        cr_assert(answer.yes && answer.advanced == (i + 1 == CHILDREN * EACH));
    }
    cr_expect_eq(machine_applied(world.machine) - began, CHILDREN * EACH, "one entry for each arrival, no more");
    cr_expect(reader.fired == CHILDREN && waiter.fired == 1, "the root: read %u times, waited for %u", reader.fired,
              waiter.fired);
    for (unsigned i = 0; i < CHILDREN; i++) cr_expect_eq(leaves[i].fired, 1, "child %u: %u", i, leaves[i].fired);
    printf("the advance of %d phasers with %d members: %llu us\n", CHILDREN + 1, CHILDREN * EACH,
           (unsigned long long)last_us);
    const Pb__PhaserState *seen = state("c07");
    cr_expect(seen->phaser->phase == 1 && seen->n_members == EACH && seen->members[0]->arrived_before == 1 &&
              !seen->members[0]->arrived);
    for (unsigned i = 0; i < CHILDREN; i++) unwatch(&leaves[i]);
    unwatch(&reader), unwatch(&waiter);
    free(leaves);
}

Test(phaser_tree, names_of_256_bytes_have_long_children) {
    char parent[PHASER_NAME_MAX + 1], child[2][PHASER_NAME_MAX + 1];
    memset(parent, 'p', PHASER_NAME_MAX), parent[PHASER_NAME_MAX] = '\0';
    for (unsigned i = 0; i < 2; i++) {
        memset(child[i], 'c', PHASER_NAME_MAX), child[i][PHASER_NAME_MAX] = '\0';
        child[i][PHASER_NAME_MAX - 1] = (char)('0' + i);
        cr_assert(join_below(child[i], i, parent).yes);
    }
    const Pb__PhaserState *seen = state(parent);
    cr_assert_eq(seen->n_children, 2);
    cr_expect_neq(strcmp(seen->children[0]->name, seen->children[1]->name), 0);
    arrive(child[0], 0);
    cr_expect(arrive(child[1], 1).advanced && phase(child[0]) == 1);
    leave(child[0], 0);
    seen = state(parent);
    cr_expect(seen->n_children == 1 && strcmp(seen->children[0]->name, child[1]) == 0);
}

static unsigned number_of(const char *session) { return (unsigned)strtoul(session, NULL, 16); }

/* All who are in it arrive; the last one's entry advances all phasers that there are. */
static void expect_a_tree_advances(const char *root, size_t wanted) {
    Pb__PhaserListRequest request = PB__PHASER_LIST_REQUEST__INIT;
    struct query_result result = fixture_ask(&world, &query_phasers, &request.base);
    size_t count = ((const Pb__PhasersResult *)result.message)->n_phasers;
    cr_assert_eq(count, wanted);
    char(*names)[16] = mem_zalloc(count * sizeof *names);
    for (size_t i = 0; i < count; i++)
        snprintf(names[i], sizeof names[i], "%s", ((const Pb__PhasersResult *)result.message)->phasers[i]->name);
    struct answer last = {0};
    uint64_t last_us = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t member = 0; member < state(names[i])->n_members; member++) {
            unsigned session = number_of(state(names[i])->members[member]->session);
            uint64_t before_ns = clock_mono_ns();
            cr_assert(!last.advanced);
            last = arrive(names[i], session);
            last_us = (clock_mono_ns() - before_ns) / 1000;
        }
    }
    cr_expect(last.advanced && phase(root) == 1);
    for (size_t i = 0; i < count; i++) {
        const Pb__Phaser *phaser = state(names[i])->phaser;
        cr_expect(phaser->phase == 1 && phaser->arrived == 0 && phaser->phase_index == last.index, "%s", names[i]);
    }
    printf("the advance of %zu phasers: %llu us\n", count, (unsigned long long)last_us);
    free(names);
}

Test(phaser_tree, depth_and_phasers_of_a_tree_are_bounded) {
    char name[16], parent[16] = "d1";
    for (unsigned depth = 2; depth <= PHASER_DEPTH_MAX; depth++) {
        snprintf(name, sizeof name, "d%u", depth);
        cr_assert(join_below(name, 0, parent).yes, "%s", name);
        memcpy(parent, name, sizeof parent);
    }
    struct answer deep = join_below("d9", 0, parent);
    cr_expect(deep.error == CO_INVALID && strstr(deep.text, "8 levels"), "%s", deep.text);
    cr_expect_eq(state("d1")->phaser->descendants, PHASER_DEPTH_MAX - 1);
    unsigned session = 8;
    for (unsigned i = PHASER_DEPTH_MAX - 1; i < PHASER_TREE_MAX; i++) {
        if (i % (PHASER_SESSION_MAX / 2) == 0)
            cr_assert(session_make(&world, id[++session], &(struct session_plan){.node = "n1"}).yes);
        snprintf(name, sizeof name, "w%u", i);
        cr_assert(join_below(name, session == 8 ? 1 : session, i % 2 ? "d1" : "d4").yes, "%u", i);
    }
    struct answer wide = join_below("one-more", 2, "d4");
    cr_expect(wide.error == CO_BUSY && strstr(wide.text, "below its root \"d1\""), "%s", wide.text);
    cr_expect(join_below("w9", 2, "d1").yes, "in those that are there others may register");
    cr_expect_eq(state("d1")->phaser->descendants, PHASER_TREE_MAX);
    expect_a_tree_advances("d1", 1 + PHASER_TREE_MAX);
}
