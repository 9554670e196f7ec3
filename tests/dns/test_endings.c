#include "dns/endings.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static enum endings_found find(const struct buffer *hashes, const char *name) {
    return endings_find((const uint64_t *)(const void *)hashes->data, hashes->size / sizeof(uint64_t),
                        slice_text(name));
}

Test(dns_endings, names_and_what_they_end_with) {
    struct buffer hashes = {0};
    cr_expect(eq(int, find(&hashes, "a"), ENDINGS_NONE), "the empty set");
    static const char *const names[] = {"v1.2", "a.B.c", "plain", "v3.2", "", "plain"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) endings_add(&hashes, slice_text(names[i]));
    char longest[300];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    endings_add(&hashes, slice_text(longest));
    endings_sort(&hashes);
    cr_expect(eq(sz, hashes.size, 7 * sizeof(uint64_t)), "each once");
    const struct {
        const char *name;
        enum endings_found found;
    } rows[] = {{"v1.2", ENDINGS_NAME},  {"V1.2", ENDINGS_NAME},  {"2", ENDINGS_BELOW},      {"1.2", ENDINGS_NONE},
                {"v1", ENDINGS_NONE},    {"A.b.C", ENDINGS_NAME}, {"b.c", ENDINGS_BELOW},    {"C", ENDINGS_BELOW},
                {"b", ENDINGS_NONE},     {"plain", ENDINGS_NAME}, {"x.plain", ENDINGS_NONE}, {"lain", ENDINGS_NONE},
                {longest, ENDINGS_NONE}, {"", ENDINGS_NONE}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_expect(eq(int, find(&hashes, rows[i].name), rows[i].found), "'%s'", rows[i].name);
    buffer_free(&hashes);
}
