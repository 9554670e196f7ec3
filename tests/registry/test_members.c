/* Nodes with agents, as /v1/agent/members has them. */
#include <criterion/criterion.h>
#include <string.h>

#include "catalog_specs.h"

static struct fixture f;
static void open_fixture(void) { fixture_open(&f); }
static void close_fixture(void) {
    fixture_sum(&f);
    fixture_close(&f);
}
TestSuite(members, .init = open_fixture, .fini = close_fixture);

static uint64_t says(const char *node, const char *spec, const char *version) {
    struct arena arena = {0};
    Pb__RegisterCommand *command = fixture_register_command(&arena, spec);
    command->node->version = (char *)(uintptr_t)version;
    struct outcome result = fixture_apply(&f, CATALOG_REGISTER, &command->base);
    cr_assert_eq(result.error, CO_OK, "%s: %s", node, result.text);
    arena_free(&arena);
    return result.index;
}

static const Pb__Member *member(const char *name) {
    const Pb__MembersResult *all = (const Pb__MembersResult *)fixture_table(&f, &query_members).message;
    for (size_t i = 0; i < all->n_members; i++)
        if (strcmp(all->members[i]->name, name) == 0) return all->members[i];
    return NULL;
}

#define AGENT "node=a addr=10.0.0.1 check=serfHealth:passing:"

Test(members, an_agent_says_its_version) {
    says("a", AGENT, "1.2.3-rc1+abc");
    fixture_register(&f, "node=b addr=10.0.0.2 check=serfHealth:passing:");
    fixture_register(&f, "node=c addr=10.0.0.3");
    cr_assert_str_eq(member("a")->version, "1.2.3-rc1+abc");
    cr_assert_str_eq(member("b")->version, "", "it says none");
    cr_assert_null(member("c"), "without an agent");
    fixture_forget(&f);
}

Test(members, what_is_no_version_is_left_out) {
    char longest[62];
    memset(longest, '1', sizeof longest);
    longest[61] = 0;
    const char *const not [] = {longest, "1.0\n", "1 0", "1.0\x1b[2J", "1.0\xff", "\x7f"};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
        says("a", AGENT, not [i]);
        cr_assert_str_eq(member("a")->version, "", "%zu", i);
    }
    longest[60] = 0;
    says("a", AGENT, longest);
    cr_assert_str_eq(member("a")->version, longest);
    fixture_forget(&f);
}

Test(members, another_version_is_a_change_the_same_is_none) {
    says("a", AGENT, "1");
    uint64_t before = fixture_table(&f, &query_members).index;
    says("a", AGENT, "1");
    cr_assert_eq(fixture_table(&f, &query_members).index, before);
    says("a", AGENT, "2");
    cr_assert_gt(fixture_table(&f, &query_members).index, before);
    cr_assert_str_eq(member("a")->version, "2");
    fixture_forget(&f);
}
