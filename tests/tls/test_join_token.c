/* The text of a join token: whatever happens to it while it is copied is noticed. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>

#include "base/check.h"
#include "tls/join_token.h"

#define SIZE 90

static struct join_token token;
static char text[JOIN_TOKEN_TEXT_MAX];

static void make(enum tls_role role) {
    uint8_t pin[TLS_PIN_SIZE];
    for (size_t i = 0; i < sizeof pin; i++) pin[i] = (uint8_t)(i * 37 + 5);
    CHECK(join_token_make(role, pin, &token, NULL) == CO_OK);
    join_token_write(&token, text);
}

static void setup(void) { make(TLS_ROLE_SERVER); }

TestSuite(join_token, .init = setup);

static bool same(const struct join_token *a, const struct join_token *b) {
    return a->role == b->role && memcmp(a->pin, b->pin, sizeof a->pin) == 0 &&
           memcmp(a->id, b->id, sizeof a->id) == 0 && memcmp(a->secret, b->secret, sizeof a->secret) == 0;
}

/* "": it was taken, and is the same. */
static const char *refusal(struct slice given) {
    static struct fault fault;
    struct join_token again;
    fault = (struct fault){0};
    int rv = join_token_read(given, &again, &fault);
    cr_assert_eq(rv, fault.code);
    if (rv == CO_OK) return same(&again, &token) ? "" : "another one";
    static const struct join_token none;
    cr_assert_eq(rv, CO_INVALID);
    cr_assert_eq(memcmp(&again, &none, sizeof none), 0, "nothing of it is left");
    return fault.text;
}

Test(join_token, reads_as_it_was_written) {
    for (int i = 0; i < 200; i++) {
        make(i % 2 ? TLS_ROLE_SERVER : TLS_ROLE_AGENT);
        cr_assert_eq(strlen(text), SIZE);
        cr_assert_eq(strncmp(text, i % 2 ? "coord1s." : "coord1a.", 8), 0);
        cr_assert_str_eq(refusal(slice_text(text)), "");
        for (const char *at = text; *at; at++) cr_assert(isalnum((unsigned char)*at) || strchr("-_.", *at));
    }
}

/* RFC 4648: with an alphabet of its own, and without padding. */
Test(join_token, has_the_form_that_it_promises) {
    token = (struct join_token){.role = TLS_ROLE_AGENT};
    memset(token.pin, 0xff, sizeof token.pin);
    memcpy(token.id, "\xfb\xff\xbf\x00\x10\x83", 6);
    join_token_write(&token, text);
    cr_expect_eq(
        strncmp(text, "coord1a.__________________________________________8.-_-_ABCD.AAAAAAAAAAAAAAAAAAAAAA.", 84), 0,
        "%s", text);
    char id[JOIN_TOKEN_ID_TEXT + 1];
    join_token_id_write(token.id, id);
    cr_expect_str_eq(id, "-_-_ABCD");
    uint8_t read[JOIN_TOKEN_ID_SIZE];
    cr_expect(join_token_id_read(slice_text(id), read) && memcmp(read, token.id, sizeof read) == 0);
    cr_expect_not(join_token_id_read(SLICE_LITERAL("-_-_ABC"), read));
    cr_expect_not(join_token_id_read(SLICE_LITERAL("-_-_ABCDE"), read));
    cr_expect_not(join_token_id_read(SLICE_LITERAL("-_-_AB+D"), read));
    cr_expect_not(join_token_id_read(slice_make("-_-_AB\0D", 8), read));
}

Test(join_token, space_around_it_is_ignored) {
    char wide[200];
    snprintf(wide, sizeof wide, " \t\r\n%s\r\n \v\n", text);
    cr_expect_str_eq(refusal(slice_text(wide)), "");
}

Test(join_token, every_cut_is_told) {
    for (size_t size = 1; size < SIZE; size++) {
        char wanted[80];
        snprintf(wanted, sizeof wanted, "the join token is cut short: it has %zu of its 90 characters", size);
        cr_assert_str_eq(refusal(slice_make(text, size)), wanted);
        cr_assert_neq(refusal(slice_make(text + size, SIZE - size))[0], '\0', "cut at the front");
    }
    cr_expect_str_eq(refusal(SLICE_LITERAL("")), "the join token is empty");
    cr_expect_str_eq(refusal(SLICE_LITERAL(" \n")), "the join token is empty");
}

Test(join_token, every_changed_character_is_told) {
    for (int role = 0; role < 2; role++) {
        make(role ? TLS_ROLE_SERVER : TLS_ROLE_AGENT);
        for (size_t at = 0; at < SIZE; at++)
            for (int to = 0; to < 256; to++) {
                char changed[SIZE];
                memcpy(changed, text, SIZE);
                if (changed[at] == (char)to) continue;
                changed[at] = (char)to;
                const char *said = refusal(slice_make(changed, SIZE));
                bool at_an_end = (at == 0 || at == SIZE - 1) && isspace(to);
                cr_assert_not_null(strstr(said, at_an_end && at ? "cut short"
                                                : at_an_end     ? "no join token"
                                                                : "was changed"),
                                   "%zu to %d: %s", at, to, said);
            }
    }
}

Test(join_token, every_swap_of_neighbours_is_told) {
    for (size_t at = 0; at + 1 < SIZE; at++) {
        if (text[at] == text[at + 1]) continue;
        char swapped[SIZE];
        memcpy(swapped, text, SIZE);
        swapped[at] = text[at + 1];
        swapped[at + 1] = text[at];
        cr_assert_not_null(strstr(refusal(slice_make(swapped, SIZE)), "was changed"), "%zu", at);
    }
}

Test(join_token, other_things_are_told) {
    char longer[SIZE + 8];
    snprintf(longer, sizeof longer, "%s,x", text);
    cr_expect_str_eq(refusal(slice_text(longer)),
                     "the join token is followed by something: it has 90 characters, these are 92");
    cr_expect_str_eq(refusal(SLICE_LITERAL("K10abc::server:secret")),
                     "it is no join token: it begins with coord1s. or coord1a., and has 90 characters");
    static char large[1 << 20];
    memset(large, 'c', sizeof large);
    cr_expect_not_null(strstr(refusal(slice_make(large, sizeof large)), "no join token"));
}

/* No fault quotes the secret, not even a part of it. */
Test(join_token, no_fault_quotes_the_secret) {
    const char *secret = text + 8 + 43 + 1 + 8 + 1;
    char part[7] = "";
    for (size_t size = 1; size <= SIZE; size++) {
        char changed[SIZE];
        memcpy(changed, text, SIZE);
        changed[20] ^= 1;
        const char *said = refusal(slice_make(changed, size));
        for (size_t at = 0; at + 6 <= 22; at++) {
            memcpy(part, secret + at, 6);
            cr_assert_null(strstr(said, part));
        }
    }
}

Test(join_token, the_hash_depends_on_all_that_counts) {
    uint8_t first[JOIN_TOKEN_HASH_SIZE], again[JOIN_TOKEN_HASH_SIZE];
    struct slice key = SLICE_LITERAL("0123456789abcdef0123456789abcdef");
    join_token_hash(&token, key, first);
    join_token_hash(&token, key, again);
    cr_expect(join_token_hash_equal(first, again));
    join_token_hash(&token, SLICE_LITERAL("0123456789abcdef0123456789abcdeg"), again);
    cr_expect_not(join_token_hash_equal(first, again), "the key");
    struct join_token other = token;
    other.secret[15] ^= 1;
    join_token_hash(&other, key, again);
    cr_expect_not(join_token_hash_equal(first, again), "the secret");
    other = token;
    other.id[0] ^= 1;
    join_token_hash(&other, key, again);
    cr_expect_not(join_token_hash_equal(first, again), "the id");
    other = token;
    other.role = TLS_ROLE_AGENT;
    join_token_hash(&other, key, again);
    cr_expect_not(join_token_hash_equal(first, again), "the role");
    other = token;
    other.pin[0] ^= 1;
    join_token_hash(&other, key, again);
    cr_expect(join_token_hash_equal(first, again), "not the pin: a CA may be replaced");
}

/* HMAC-SHA-256 over 's', id and secret, computed elsewhere (Python's hmac): the state of a cluster holds it. */
Test(join_token, the_hash_is_what_it_was) {
    struct join_token fixed = {.role = TLS_ROLE_SERVER};
    for (size_t i = 0; i < sizeof fixed.id; i++) fixed.id[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof fixed.secret; i++) fixed.secret[i] = (uint8_t)(0x40 + i);
    uint8_t hash[JOIN_TOKEN_HASH_SIZE];
    char hex[2 * JOIN_TOKEN_HASH_SIZE + 1];
    join_token_hash(&fixed, SLICE_LITERAL("0123456789abcdef0123456789abcdef"), hash);
    for (size_t i = 0; i < sizeof hash; i++) snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    cr_expect_str_eq(hex, "70e06d47eab5c1ae33f3a4aad08b5ff482b70c2a7f0e4c2e0138963929a78f61");
}

Test(join_token, two_are_never_the_same) {
    struct join_token first = token;
    make(TLS_ROLE_SERVER);
    cr_expect_neq(memcmp(first.secret, token.secret, sizeof token.secret), 0);
    cr_expect_neq(memcmp(first.id, token.id, sizeof token.id), 0);
}

Test(join_token, no_id_looks_like_a_flag) {
    char id[JOIN_TOKEN_ID_TEXT + 1];
    for (int i = 0; i < 3000; i++) {
        make(TLS_ROLE_AGENT);
        join_token_id_write(token.id, id);
        cr_assert_neq(id[0], '-', "`coord join-token revoke %s`", id);
    }
}
