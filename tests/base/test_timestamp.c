#include <criterion/criterion.h>

#include "base/error.h"
#include "base/timestamp.h"

static uint64_t good(const char *text) {
    uint64_t unix_ms = 1;
    cr_assert_eq(timestamp_parse(slice_text(text), &unix_ms), CO_OK, "%s", text);
    return unix_ms;
}

Test(timestamp, what_is_written_is_read) {
    static const struct {
        uint64_t unix_ms;
        const char *text;
    } table[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {1795757631719, "2026-11-27T05:33:51.719Z"},
        {951827696789, "2000-02-29T12:34:56.789Z"},
        {TIMESTAMP_MOST_MS, "9999-12-31T23:59:59.999Z"},
    };
    char text[TIMESTAMP_ROOM];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        timestamp_format(table[i].unix_ms, text);
        cr_assert_str_eq(text, table[i].text);
        cr_assert_eq(good(text), table[i].unix_ms, "%s", text);
    }
    timestamp_format(UINT64_MAX, text);
    cr_assert_str_eq(text, "9999-12-31T23:59:59.999Z");
}

Test(timestamp, forms_of_the_same_moment) {
    static const char *const same[] = {
        "2026-11-26T10:00:00Z",
        "2026-11-26T10:00:00.0Z",
        "2026-11-26t10:00:00z",
        "2026-11-26T11:00:00+01:00",
        "2026-11-26T10:00:00.0009999999Z",
        "2026-11-25T22:30:00-11:30",
        "2026-11-27T00:00:00+14:00",
        "2026-11-26T09:59:60Z",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) cr_assert_eq(good(same[i]), 1795687200000, "%s", same[i]);
    cr_assert_eq(good("2026-11-26T10:00:00.25Z"), 1795687200250);
}

Test(timestamp, anything_else_is_refused) {
    static const char *const bad[] = {
        "",
        "Z",
        "2026",
        "2026-11-26",
        "2026-11-26T10:00:00",
        "2026-11-26 10:00:00Z",
        "2026-11-26T10:00Z",
        "2026-11-26T10:00:00.Z",
        "2026-11-26T10:00:00Z ",
        " 2026-11-26T10:00:00Z",
        "2026-11-26T10:00:00+0100",
        "2026-13-26T10:00:00Z",
        "2026-00-26T10:00:00Z",
        "2026-11-31T10:00:00Z",
        "2026-11-00T10:00:00Z",
        "2026-02-29T10:00:00Z",
        "1900-02-29T10:00:00Z",
        "2026-11-26T24:00:00Z",
        "2026-11-26T10:60:00Z",
        "2026-11-26T10:00:61Z",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "2026-11-26T10:00:00+24:00",
        "+026-11-26T10:00:00Z",
        "2026-1-26T10:00:00Z",
        "2026-11-26T10:00:00Zx",
    };
    uint64_t unix_ms;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(timestamp_parse(slice_text(bad[i]), &unix_ms), CO_INVALID, "%s", bad[i]);
    cr_assert_eq(timestamp_parse(slice_make("2026-11-26T10:00:00\0Z", 21), &unix_ms), CO_INVALID);
}
