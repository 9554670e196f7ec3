#include <criterion/criterion.h>

#include "rpc/frame_fields.h"

static bool fits(const char *bytes, size_t size, size_t most, size_t most_within) {
    return frame_fields_fit(slice_make(bytes, size), most, most_within);
}
#define FITS(text, most, within) fits(text, sizeof(text) - 1, most, within)

Test(frame_fields, counts) {
    cr_expect(FITS("", 0, 0));
    cr_expect(FITS("\x08\x01\x10\x02", 2, 0));
    cr_expect_not(FITS("\x08\x01\x10\x02", 1, 0));
    cr_expect(FITS("\x0a\x00\x0a\x00\x0a\x00", 3, 1), "empty items");
    cr_expect_not(FITS("\x0a\x00\x0a\x00\x0a\x00", 2, 1));
}

Test(frame_fields, of_items_in_field_1_too) {
    cr_expect(FITS("\x0a\x04\x08\x01\x08\x02", 1, 2));
    cr_expect_not(FITS("\x0a\x04\x08\x01\x08\x02", 1, 1));
    cr_expect(FITS("\x0a\x04\x08\x01\x08\x02", 1, 0), "not looked into");
    cr_expect(FITS("\x12\x04\x08\x01\x08\x02", 1, 1), "field 2 is no item");
    cr_expect_not(FITS("\x0a\x02\x08\x80\x08\x01", 9, 9), "the item's varint ends behind it");
}

Test(frame_fields, each_wire_type) {
    cr_expect(FITS("\x09" "12345678" "\x15" "1234" "\x1a\x03" "abc" "\x20\xff\xff\x01", 4, 0));
    cr_expect_not(FITS("\x0b", 9, 0), "a group");
    cr_expect_not(FITS("\x0f", 9, 0), "no wire type");
}

Test(frame_fields, cut_short) {
    cr_expect_not(FITS("\x88", 9, 0));
    cr_expect_not(FITS("\x08", 9, 0));
    cr_expect_not(FITS("\x08\x80", 9, 0));
    cr_expect_not(FITS("\x09" "1234567", 9, 0));
    cr_expect_not(FITS("\x0d" "123", 9, 0));
    cr_expect_not(FITS("\x0a\x02" "a", 9, 0));
    cr_expect_not(FITS("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 9, 0), "longer than anything");
    cr_expect_not(FITS("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 9, 0), "a varint of eleven bytes");
}
