/* The rules that a thread keeps of the requesters that it met. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "acl/resolve.h"
#include "rpc/api/access_table.h"

static struct access_table *table;
static struct access *rules;
static void setup(void) { table = access_table_new(), rules = resolve_node("web1", ACCESS_DENY); }
static void teardown(void) {
    access_table_free(table);
    access_release(rules);
}
TestSuite(access_table, .init = setup, .fini = teardown);

static struct requester *named(const char *kind, unsigned number) {
    char text[32];
    int size = snprintf(text, sizeof text, "%s %u", kind, number);
    return requester_new(REQUESTER_REQUEST, slice_make(text, (size_t)size));
}

static void put(const char *kind, unsigned number, bool right, int64_t until_unix_ms) {
    struct requester *requester = named(kind, number);
    const struct known_access *known =
        access_table_put(table, &(struct known_access){.requester = requester,
                                                       .access = right ? access_keep(rules) : NULL,
                                                       .generation = number,
                                                       .until_unix_ms = until_unix_ms});
    cr_assert(requester_equal(known->requester, requester) && !known->access == !right);
    requester_release(requester);
}

static const struct known_access *find(const char *kind, unsigned number, int64_t now_unix_ms) {
    struct requester *requester = named(kind, number);
    const struct known_access *known = access_table_find(table, requester, now_unix_ms);
    requester_release(requester);
    return known;
}

Test(access_table, has_the_newest_and_as_long_as_they_count) {
    cr_assert_null(find("one", 1, 0));
    put("one", 1, true, 1000);
    put("two", 2, false, 500);
    cr_assert_eq(find("one", 1, 999)->access, rules);
    cr_assert_eq(find("one", 1, 999)->generation, 1);
    cr_assert_null(find("two", 2, 499)->access);
    cr_assert(!find("one", 1, 1000) && !find("two", 2, 500), "their time is over");
    put("one", 1, false, INT64_MAX);
    cr_assert_null(find("one", 1, 0)->access, "it was deleted");
    put("one", 1, true, INT64_MAX);
    cr_assert_eq(find("one", 1, 0)->access, rules, "and made again");
    struct requester *one = named("one", 1);
    access_table_drop(table, one);
    access_table_drop(table, one);
    requester_release(one);
    cr_assert_null(find("one", 1, 0));
}

Test(access_table, many_wrong_tokens_drop_no_right_one) {
    put("right", 1, true, INT64_MAX);
    for (unsigned i = 0; i < 10000; i++) put("wrong", i, false, INT64_MAX);
    cr_assert_eq(find("right", 1, 0)->access, rules);
    for (unsigned i = 0; i < 10000; i++) {
        put("many", i, true, INT64_MAX);
        cr_assert_eq(find("many", i, 0)->access, rules);
    }
}
