#include <criterion/criterion.h>

#include "base/check.h"
#include "base/suggest.h"

static const char *const commands[] = {"agent",  "event",   "join",   "kv",       "lock", "locks",
                                       "region", "regions", "reload", "snapshot", "watch"};

static const char *meant(const char *word) {
    static char text[128];
    struct buffer out = {0};
    struct suggest suggest = suggest_for(slice_text(word));
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++) suggest_try(&suggest, slice_text(commands[i]));
    suggest_print(&out, &suggest);
    cr_assert_lt(out.size, sizeof text);
    if (out.size) memcpy(text, out.data, out.size);
    text[out.size] = '\0';
    buffer_free(&out);
    return text;
}

Test(suggest, beginnings_before_typing_errors_and_nothing_far_away) {
    static const struct {
        const char *word, *meant;
    } rows[] = {
        {"snap", "\"snapshot\""},
        {"Snapshot", "\"snapshot\""},
        {"re", "\"region\", \"reload\" or \"regions\""},
        {"reg", "\"region\" or \"regions\""},
        {"regoin", "\"region\""},
        {"lok", "\"lock\""},
        {"agnet", "\"agent\""},
        {"lb", ""}, /* not kv: two of two letters are wrong */
        {"k", ""},
        {"", ""},
        {"frobnicate", ""},
        {"snapshots", "\"snapshot\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        cr_expect_str_eq(meant(rows[i].word), rows[i].meant, "%s", rows[i].word);
}

Test(suggest, hyphens_are_underscores) {
    struct suggest suggest = suggest_for(SLICE_LITERAL("DATA_DIR"));
    suggest_try(&suggest, SLICE_LITERAL("datacenter"));
    suggest_try(&suggest, SLICE_LITERAL("data-dir"));
    cr_assert_eq(suggest.count, 1u);
    cr_expect_eq(suggest.ranks[0], 0u);
    cr_expect(slice_is(suggest.found[0], "data-dir"));
}
