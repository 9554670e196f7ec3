#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/check.h"

static void expect_text(struct buffer *buffer, const char *text) {
    cr_expect(slice_is(buffer_slice(buffer), text), "\"%.*s\" is not \"%s\"", (int)buffer->size, buffer->data, text);
}

Test(slice, compare) {
    static const struct {
        const char *a, *b;
        int order;
    } rows[] = {
        {"", "", 0}, {"", "a", -1}, {"a", "", 1}, {"a", "b", -1}, {"ab", "a", 1}, {"a", "ab", -1}, {"\x7f", "\x80", -1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        int order = slice_compare(slice_text(rows[i].a), slice_text(rows[i].b));
        cr_expect_eq((order > 0) - (order < 0), rows[i].order, "row %zu", i);
    }
}

Test(slice, equality) {
    cr_expect(slice_equal((struct slice){NULL, 0}, SLICE_LITERAL("")));
    cr_expect(slice_equal(slice_make("a\0b", 3), SLICE_LITERAL("a\0b")));
    cr_expect_not(slice_equal(slice_make("a\0b", 3), SLICE_LITERAL("a\0c")));
    cr_expect(slice_equal_nocase(SLICE_LITERAL("Host-1"), SLICE_LITERAL("hOST-1")));
    cr_expect_not(slice_equal_nocase(SLICE_LITERAL("a["), SLICE_LITERAL("a{")));
    cr_expect_not(slice_equal_nocase(SLICE_LITERAL("ab"), SLICE_LITERAL("abc")));
    cr_expect(slice_starts(SLICE_LITERAL("abc"), SLICE_LITERAL("ab")));
    cr_expect(slice_starts(SLICE_LITERAL("abc"), SLICE_LITERAL("")));
    cr_expect_not(slice_starts(SLICE_LITERAL("ab"), SLICE_LITERAL("abc")));
    cr_expect_eq(slice_text(NULL).size, 0);
}

/* Every byte at every place of texts of every small size. */
Test(slice, case_is_that_of_ascii_letters) {
    for (size_t size = 0; size <= 40; size++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            for (size_t at = 0; at < size; at++) {
                char text[48], lower[48];
                memset(text, 0x7f, sizeof text);
                text[at] = (char)byte;
                memcpy(lower, text, sizeof text);
                bool upper = byte >= 'A' && byte <= 'Z';
                bytes_lower(lower, size);
                text[size] = 'A', lower[size] = 'a'; /* beyond the end */
                cr_assert_eq(lower[at], (char)(upper ? byte + 32 : byte), "size %zu at %zu byte %u", size, at, byte);
                cr_assert_eq(slice_has_upper(slice_make(text, size)), upper, "size %zu at %zu byte %u", size, at, byte);
                cr_assert(slice_equal_nocase(slice_make(text, size), slice_make(lower, size)));
                cr_assert_eq(slice_compare_nocase(slice_make(text, size), slice_make(lower, size)), 0);
                for (size_t i = 0; i < size; i++) cr_assert(i == at || lower[i] == 0x7f);
            }
        }
    }
    cr_expect(slice_compare_nocase(SLICE_LITERAL("aB"), SLICE_LITERAL("Ac")) < 0);
    cr_expect(slice_compare_nocase(SLICE_LITERAL("_"), SLICE_LITERAL("A")) < 0, "as small letters");
    cr_expect(slice_compare_nocase(SLICE_LITERAL("A"), SLICE_LITERAL("ab")) < 0);
    cr_expect(slice_compare_nocase(SLICE_LITERAL("\xc3\x96"), SLICE_LITERAL("\xc3\xb6")) < 0);
}

Test(buffer, grows) {
    struct buffer buffer = {0};
    buffer_append(&buffer, NULL, 0);
    buffer_append_text(&buffer, "abc");
    buffer_append_byte(&buffer, '-');
    buffer_printf(&buffer, "%d/%s", 42, "x");
    expect_text(&buffer, "abc-42/x");
    for (int i = 0; i < 10000; i++) buffer_append_byte(&buffer, (char)i);
    cr_expect_eq(buffer.size, 10008);
    for (int i = 0; i < 10000; i++) cr_assert_eq(buffer.data[8 + i], (char)i);
    size_t capacity = buffer.capacity;
    buffer_reset(&buffer);
    cr_expect_eq(buffer.size, 0);
    cr_expect_eq(buffer.capacity, capacity);
    buffer_free(&buffer);
    cr_expect_null(buffer.data);
}

Test(buffer, printf_of_any_length) {
    struct buffer buffer = {0};
    for (int width = 0; width < 300; width++) {
        size_t before = buffer.size;
        buffer_printf(&buffer, "%*s", width, "");
        cr_assert_eq(buffer.size - before, (size_t)width);
    }
    buffer_free(&buffer);
}

Test(buffer, decimal) {
    static const struct {
        uint64_t value;
        const char *text;
    } rows[] = {
        {0, "0"},
        {9, "9"},
        {10, "10"},
        {99, "99"},
        {100, "100"},
        {101, "101"},
        {12345, "12345"},
        {UINT32_MAX, "4294967295"},
        {UINT64_MAX, "18446744073709551615"},
        {10000000000000000000u, "10000000000000000000"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer buffer = {0};
        buffer_append_u64(&buffer, rows[i].value);
        expect_text(&buffer, rows[i].text);
        buffer_free(&buffer);
    }
}

Test(buffer, take) {
    struct buffer buffer = {0};
    size_t size = 77;
    char *data = buffer_take(&buffer, &size);
    cr_expect_not_null(data);
    cr_expect_eq(size, 0);
    free(data);
    buffer_append_text(&buffer, "abc");
    data = buffer_take(&buffer, &size);
    cr_expect(slice_is(slice_make(data, size), "abc"));
    cr_expect_null(buffer.data);
    free(data);
}

Test(buffer, fixed_width) {
    unsigned char bytes[8];
    put_be64(bytes, 0x0102030405060708);
    cr_expect_arr_eq(bytes, "\1\2\3\4\5\6\7\10", 8);
    cr_expect_eq(get_be64(bytes), 0x0102030405060708);
    cr_expect_eq(get_le64(bytes), 0x0807060504030201);
    put_le64(bytes, 0x0102030405060708);
    cr_expect_arr_eq(bytes, "\10\7\6\5\4\3\2\1", 8);
    put_be32(bytes, 0x01020304);
    cr_expect_eq(get_be32(bytes), 0x01020304);
    cr_expect_eq(get_le32(bytes), 0x04030201);
    put_le32(bytes, 0x01020304);
    cr_expect_eq(bytes[0], 4);
    put_be16(bytes, 0x0102);
    cr_expect_eq(bytes[0], 1);
    cr_expect_eq(get_be16(bytes), 0x0102);
}
