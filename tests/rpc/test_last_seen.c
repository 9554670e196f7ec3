#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "rpc/cluster/last_seen.h"

Test(last_seen, tells_when_a_server_was_heard_and_how_it_calls_itself) {
    struct last_seen_table *table = last_seen_new();
    cr_assert_null(last_seen_find(table, 7));
    last_seen_heard(table, 7, 100);
    const struct last_seen *seen = last_seen_find(table, 7);
    cr_assert_not_null(seen);
    cr_expect(!seen->up && seen->ms == 100 && seen->node[0] == 0);

    struct peer_info info = {.id = 7, .node = "seven", .build = "b1"};
    last_seen_up(table, 7, &info, 200);
    last_seen_heard(table, 7, 300);
    seen = last_seen_find(table, 7);
    cr_expect(seen->up && seen->ms == 300 && seen->since_ms == 200);
    cr_expect_str_eq(seen->node, "seven");
    cr_expect_str_eq(seen->build, "b1");

    last_seen_down(table, 7, 400);
    seen = last_seen_find(table, 7);
    cr_expect(!seen->up && seen->since_ms == 400 && seen->ms == 300);
    cr_expect_str_eq(seen->node, "seven", "a server that went keeps its name");
    last_seen_up(table, 7, NULL, 500);
    cr_expect_str_eq(last_seen_find(table, 7)->node, "seven");
    cr_expect_null(last_seen_find(table, 0), "free places have no server");
    last_seen_free(table);
}

Test(last_seen, the_one_that_is_silent_for_longest_makes_room) {
    struct last_seen_table *table = last_seen_new();
    for (uint64_t id = 1; id <= PEERS_MAX; id++) {
        struct peer_info info = {.id = id, .node = "old", .build = "old"};
        last_seen_heard(table, id, 1000 + id);
        last_seen_up(table, id, &info, 1000 + id);
    }
    last_seen_heard(table, 1, 5000);
    last_seen_heard(table, 100, 6000);
    cr_expect_null(last_seen_find(table, 2), "nobody is silent for longer");
    for (uint64_t id = 3; id <= PEERS_MAX; id++) cr_expect_not_null(last_seen_find(table, id));
    cr_expect_not_null(last_seen_find(table, 1));
    const struct last_seen *seen = last_seen_find(table, 100);
    cr_assert_not_null(seen);
    cr_expect(!seen->up && seen->node[0] == 0 && seen->build[0] == 0 && seen->ms == 6000);
    last_seen_free(table);
}
