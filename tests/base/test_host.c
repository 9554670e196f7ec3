/* Tables: what an address in a registration is. */
#include "base/host.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

Test(base_host, addresses) {
    static const struct {
        const char *text;
        int size;
        const char *bytes;
    } rows[] = {{"10.0.0.1", 4, "\x0a\0\0\x01"},
                {"::ffff:10.0.0.1", 4, "\x0a\0\0\x01"},
                {"2001:db8::1", 16, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01"},
                {"2001:DB8::1", 16, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct host host = host_parse(rows[i].text);
        cr_expect(eq(int, host.size, rows[i].size), "%s", rows[i].text);
        cr_expect(memcmp(host.address, rows[i].bytes, (size_t)rows[i].size) == 0, "%s", rows[i].text);
        cr_expect(eq(sz, host.name.size, 0), "%s", rows[i].text);
    }
}

Test(base_host, names) {
    static const char *const good[] = {"h",
                                       "web-1.example.com",
                                       "example.com.",
                                       "web_1",
                                       "_sip._udp.example.com",
                                       "3com.com",
                                       "a.1b",
                                       "0xg",
                                       "10.0.0.1a",
                                       "xn--hst-sna.example",
                                       "a23456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct host host = host_parse(good[i]);
        cr_expect(eq(int, host.size, 0), "'%s'", good[i]);
        cr_expect(slice_is(host.name, good[i]), "'%s'", good[i]);
    }
}

Test(base_host, neither) {
    static const char *const bad[] = {"",
                                      " ",
                                      ".",
                                      "..",
                                      "a..b",
                                      ".a",
                                      "a b",
                                      "10.0.0.1 ",
                                      " 10.0.0.1",
                                      "\t10.0.0.1",
                                      "10.0.0.1:80",
                                      "[2001:db8::1]",
                                      "2001:db8::1%eth0",
                                      "http://h/",
                                      "h/",
                                      "h:80",
                                      "10.0.0.256",
                                      "010.0.0.1",
                                      "10.0.0",
                                      "10",
                                      "10.0.0.1.",
                                      "a.1",
                                      "0x7f000001",
                                      "a.0x1",
                                      "0X",
                                      "10.0.0.1\n",
                                      "h\n",
                                      "\nh",
                                      "h\x7f",
                                      "h\xc3\xb6st",
                                      "-a",
                                      "a-",
                                      "a.-b",
                                      "*.example",
                                      "a,b",
                                      "a234567890123456789012345678901234567890123456789012345678901234"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct host host = host_parse(bad[i]);
        cr_expect(eq(int, host.size, 0), "'%s'", bad[i]);
        cr_expect(eq(sz, host.name.size, 0), "'%s'", bad[i]);
    }
}

Test(base_host, lengths) {
    char text[256];
    for (size_t i = 0; i < sizeof(text); i++) text[i] = i % 2 ? '.' : 'a';
    cr_expect(host_name_valid(slice_make(text, 253)));
    cr_expect(host_name_valid(slice_make(text, 254)), "with its dot");
    cr_expect(not(host_name_valid(slice_make(text, 255))));
    cr_expect(not(host_labels_valid(slice_make(text, 254))), "with its dot");
}

Test(base_host, parts_of_names) {
    cr_expect(host_labels_valid(slice_text("42"))); /* it is not the last one */
    cr_expect(not(host_name_valid(slice_text("42"))));
    cr_expect(not(host_labels_valid(slice_text("a b"))));
    cr_expect(not(host_labels_valid(slice_text("a."))));
    cr_expect(not(host_labels_valid(slice_make("a\0b", 3))));
}
