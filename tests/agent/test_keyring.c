#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/keyring.h"
#include "tests/lib/scratch.h"

static struct keyring_key key_of(char with) {
    char bytes[32];
    struct keyring_key key;
    memset(bytes, with, sizeof bytes);
    cr_assert_eq(keyring_key_of(slice_make(bytes, 32), &key, NULL), CO_OK);
    return key;
}

/* The first bytes of the keys, in order. */
static const char *order(const struct keyring *ring) {
    static char text[KEYRING_KEYS_MAX + 1];
    for (size_t i = 0; i < ring->count; i++) text[i] = (char)ring->keys[i].bytes[0];
    text[ring->count] = '\0';
    return text;
}

Test(keyring, keys_are_read_and_written_in_base64) {
    static const struct {
        const char *text;
        int rv;
    } rows[] = {
        {"MDEyMzQ1Njc4OWFiY2RlZg==", CO_OK},
        {"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", CO_OK},
        {"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", CO_OK},
        {"", CO_INVALID},
        {"MDEy", CO_INVALID},
        {"MDEyMzQ1Njc4OWFiY2RlZg", CO_INVALID},
        {"MDEyMzQ1Njc4OWFiY2RlZg==\n", CO_INVALID},
        {"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIz", CO_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct keyring_key key;
        struct fault fault = {0};
        char text[KEYRING_TEXT];
        cr_expect_eq(keyring_key_parse(slice_text(rows[i].text), &key, &fault), rows[i].rv, "%s", rows[i].text);
        cr_expect_eq(fault.code, rows[i].rv);
        if (rows[i].rv) continue;
        keyring_key_text(&key, text);
        cr_expect_str_eq(text, rows[i].text);
    }
}

Test(keyring, a_rotation) {
    struct keyring ring = {0};
    struct fault fault = {0};
    struct keyring_key a = key_of('a'), b = key_of('b'), c = key_of('c');
    cr_assert_eq(keyring_install(&ring, &a, &fault), CO_OK);
    cr_assert_eq(keyring_install(&ring, &b, &fault), CO_OK);
    cr_assert_eq(keyring_install(&ring, &c, &fault), CO_OK);
    cr_assert_eq(keyring_install(&ring, &b, &fault), CO_OK, "twice is once");
    cr_expect_str_eq(order(&ring), "abc");
    cr_assert_eq(keyring_use(&ring, &c, &fault), CO_OK);
    cr_expect_str_eq(order(&ring), "cab");
    cr_assert_eq(keyring_use(&ring, &c, &fault), CO_OK);
    cr_expect_str_eq(order(&ring), "cab");
    cr_expect_eq(keyring_remove(&ring, &c, &fault), CO_INVALID, "the primary one stays");
    cr_expect(strstr(fault.text, "primary"), "%s", fault.text);
    cr_expect_str_eq(order(&ring), "cab");
    fault = (struct fault){0};
    cr_assert_eq(keyring_remove(&ring, &a, &fault), CO_OK);
    cr_assert_eq(keyring_remove(&ring, &a, &fault), CO_OK, "twice is once");
    cr_expect_str_eq(order(&ring), "cb");
    cr_expect_eq(keyring_use(&ring, &a, &fault), CO_INVALID);
    cr_expect(strstr(fault.text, "install it first"), "%s", fault.text);
    cr_expect_str_eq(order(&ring), "cb");
    static const uint8_t none[KEYRING_KEY_MAX];
    cr_expect_eq(memcmp(ring.keys[2].bytes, none, sizeof none), 0, "a key that was removed is overwritten");
}

Test(keyring, holds_no_more_keys_than_a_context_takes) {
    struct keyring ring = {0};
    struct fault fault = {0};
    for (int i = 0; i < KEYRING_KEYS_MAX; i++) {
        struct keyring_key key = key_of((char)('a' + i));
        cr_assert_eq(keyring_install(&ring, &key, &fault), CO_OK);
    }
    struct keyring_key more = key_of('z'), known = key_of('a');
    cr_expect_eq(keyring_install(&ring, &more, &fault), CO_INVALID);
    cr_expect_eq(keyring_install(&ring, &known, NULL), CO_OK);
    cr_expect_eq(ring.count, KEYRING_KEYS_MAX);
}

Test(keyring, is_kept_in_a_file_that_only_its_owner_reads) {
    char path[300];
    struct keyring ring = {0}, again;
    struct fault fault = {0};
    struct stat info;
    struct keyring_key a = key_of('a'), b = key_of('b');
    snprintf(path, sizeof path, "%s/" KEYRING_FILE, scratch_folder());
    cr_expect_eq(keyring_read(path, &again, &fault), CO_NOTFOUND);
    cr_expect_eq(fault.code, CO_OK);
    cr_assert_eq(keyring_install(&ring, &a, &fault), CO_OK);
    cr_assert_eq(keyring_install(&ring, &b, &fault), CO_OK);
    umask(0);
    for (int times = 0; times < 2; times++) cr_assert_eq(keyring_write(path, &ring, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(stat(path, &info), 0);
    cr_expect_eq(info.st_mode & 07777, 0600);
    cr_assert_eq(keyring_read(path, &again, &fault), CO_OK, "%s", fault.text);
    cr_expect_str_eq(order(&again), "ab");
    chmod(path, 0640);
    cr_expect_eq(keyring_read(path, &again, &fault), CO_INVALID);
    cr_expect(strstr(fault.text, "chmod 600"), "%s", fault.text);
    cr_expect_eq(again.count, 0);
}

Test(keyring, a_file_that_is_none_is_refused) {
    static const char *const texts[] = {"", "{}", "[]", "[1]", "[\"MDEy\"]", "[\"MDEyMzQ1Njc4OWFiY2RlZg==\"", "null"};
    char path[300];
    snprintf(path, sizeof path, "%s/" KEYRING_FILE, scratch_folder());
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct keyring ring;
        struct fault fault = {0};
        FILE *file = fopen(path, "w");
        cr_assert(file && fputs(texts[i], file) >= 0 && fclose(file) == 0);
        chmod(path, 0600);
        cr_expect_eq(keyring_read(path, &ring, &fault), CO_CORRUPT, "%s", texts[i]);
        cr_expect(strstr(fault.text, path), "%s", fault.text);
        cr_expect_eq(ring.count, 0);
    }
}
