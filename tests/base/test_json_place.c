#include <criterion/criterion.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"

static const char text[] =
    "{\n"
    "  \"ports\": {\"http\": 8500, \"dns\": -1},\n"
    "  \"services\": [{\"name\": \"a\\\"}\", \"tags\": [\"{\", \"]\"]},\n"
    "               {\"na\\u006de\": \"b\", \"port\": 1e3}],\n"
    "  \"größe\": {\"x\": null}, \"last\": true\n"
    "}\n";

static void expect(const struct json_step *step, size_t line, size_t column) {
    size_t is_line, is_column;
    text_place(slice_text(text), json_place(slice_text(text), step), &is_line, &is_column);
    cr_expect_eq(is_line, line, "line %zu, not %zu", is_line, line);
    cr_expect_eq(is_column, column, "column %zu, not %zu", is_column, column);
}

Test(json_place, members_and_items) {
    struct json_step ports = {.name = "ports"}, dns = {.up = &ports, .name = "dns"};
    struct json_step services = {.name = "services"}, first = {.up = &services}, second = {.up = &services, .index = 1};
    struct json_step tags = {.up = &first, .name = "tags"}, tag = {.up = &tags, .index = 1};
    struct json_step name = {.up = &second, .name = "name"}, port = {.up = &second, .name = "port"};
    struct json_step size = {.name =
                                 "gr\xc3\xb6\xc3\x9f"
                                 "e"},
                     x = {.up = &size, .name = "x"}, last = {.name = "last"};
    expect(NULL, 1, 1);
    expect(&ports, 2, 3);
    expect(&dns, 2, 27);
    expect(&first, 3, 16);
    expect(&tag, 3, 47);
    expect(&second, 4, 16);
    expect(&name, 4, 17);
    expect(&port, 4, 35);
    expect(&x, 5, 13); /* two characters of two bytes stand before it */
    expect(&last, 5, 25);
}

Test(json_place, what_is_not_there) {
    struct json_step no = {.name = "none"}, below = {.up = &no, .name = "x"}, services = {.name = "services"},
                     third = {.up = &services, .index = 2};
    cr_expect_eq(json_place(slice_text(text), &below), 0u);
    cr_expect_eq(json_place(SLICE_LITERAL("[]"), &no), 0u);
    cr_expect_lt(json_place(slice_text(text), &third), sizeof text);
}

/* Whatever it is given it ends, and stays within. */
Test(json_place, of_text_that_is_no_json) {
    static const char *const texts[] = {"",    "{",    "{\"a",     "{\"a\"", "{\"a\":", "{\"a\":[",
                                        "[1,", "\"\\", "{\"a\":}", "[[[[",   "]]"};
    struct json_step a = {.name = "a"}, item = {.index = 3}, inner = {.up = &a, .index = 1};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        size_t size = strlen(texts[i]);
        cr_expect_leq(json_place(slice_text(texts[i]), &a), size);
        cr_expect_leq(json_place(slice_text(texts[i]), &item), size);
        cr_expect_leq(json_place(slice_text(texts[i]), &inner), size);
    }
}
