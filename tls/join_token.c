#include "tls/join_token.h"

#include <ctype.h>
#include <gnutls/crypto.h>
#include <stdio.h>

#include "base/check.h"

#define CHECK_SIZE     4
#define PIN_TEXT       43
#define SECRET_TEXT    22
#define CHECK_TEXT     6
#define PREFIX_SIZE    8 /* "coord1s." */
#define BEFORE_CHECK   (PREFIX_SIZE + PIN_TEXT + 1 + JOIN_TOKEN_ID_TEXT + 1 + SECRET_TEXT + 1)
#define TEXT_SIZE      (BEFORE_CHECK + CHECK_TEXT)
#define PREFIX_SERVER  "coord1s."
#define PREFIX_AGENT   "coord1a."
#define TELL_TOKENS_BY "it begins with " PREFIX_SERVER " or " PREFIX_AGENT

_Static_assert(TEXT_SIZE < JOIN_TOKEN_TEXT_MAX, "with the NUL");

/* -- base64url ---------------------------------------------------------------------------------------------------- */
static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Returns the end of what it wrote. */
static char *encode(char *to, const uint8_t *bytes, size_t size) {
    unsigned bits = 0, have = 0;
    for (size_t i = 0; i < size; i++) {
        bits = (bits << 8 | bytes[i]) & 0xffff;
        for (have += 8; have >= 6; have -= 6) *to++ = alphabet[bits >> (have - 6) & 63];
    }
    if (have) *to++ = alphabet[bits << (6 - have) & 63];
    return to;
}

/* Exactly `size` bytes from as many characters as they need. False: there is another character. Bits left over at the
 * end are ignored; whoever reads compares with what `encode` writes. */
static bool decode(const char *text, uint8_t *bytes, size_t size) {
    unsigned bits = 0, have = 0;
    for (size_t i = 0; i < size; i++) {
        for (; have < 8; have += 6) {
            const char *found = *text ? strchr(alphabet, *text) : NULL;
            if (!found) return false;
            bits = (bits << 6 | (unsigned)(found - alphabet)) & 0xffff;
            text++;
        }
        have -= 8;
        bytes[i] = (uint8_t)(bits >> have);
    }
    return true;
}

/* -- tokens ------------------------------------------------------------------------------------------------------- */
/* A command line would take an id that begins with "-" for a flag. */
static bool reads_as_a_flag(const uint8_t id[static 1]) { return alphabet[id[0] >> 2] == '-'; }

int join_token_make(enum tls_role role, const uint8_t pin[TLS_PIN_SIZE], struct join_token *token,
                    struct fault *fault) {
    CHECK(role == TLS_ROLE_SERVER || role == TLS_ROLE_AGENT);
    *token = (struct join_token){.role = role};
    memcpy(token->pin, pin, TLS_PIN_SIZE);
    int rv;
    do rv = gnutls_rnd(GNUTLS_RND_RANDOM, token->id, sizeof token->id);
    while (rv == 0 && reads_as_a_flag(token->id));
    if (rv == 0) rv = gnutls_rnd(GNUTLS_RND_KEY, token->secret, sizeof token->secret);
    return rv == 0 ? CO_OK : fault_set(fault, CO_IO, "no random bytes: %s", gnutls_strerror(rv));
}

void join_token_write(const struct join_token *token, char text[JOIN_TOKEN_TEXT_MAX]) {
    CHECK(token->role == TLS_ROLE_SERVER || token->role == TLS_ROLE_AGENT);
    uint8_t sum[32];
    memcpy(text, token->role == TLS_ROLE_SERVER ? PREFIX_SERVER : PREFIX_AGENT, PREFIX_SIZE);
    char *at = encode(text + PREFIX_SIZE, token->pin, sizeof token->pin);
    *at++ = '.';
    at = encode(at, token->id, sizeof token->id);
    *at++ = '.';
    at = encode(at, token->secret, sizeof token->secret);
    *at++ = '.';
    CHECK(at == text + BEFORE_CHECK && gnutls_hash_fast(GNUTLS_DIG_SHA256, text, BEFORE_CHECK, sum) == 0);
    at = encode(at, sum, CHECK_SIZE);
    *at = '\0';
    CHECK(at == text + TEXT_SIZE);
}

static struct slice without_space(struct slice text) {
    while (text.size && isspace((unsigned char)text.data[text.size - 1])) text.size--;
    while (text.size && isspace((unsigned char)text.data[0])) text = slice_make(text.data + 1, text.size - 1);
    return text;
}

/* Does it have a token's beginning, as far as it goes? */
static bool begins_as_one(struct slice text) {
    size_t size = text.size < PREFIX_SIZE ? text.size : PREFIX_SIZE;
    return size && (memcmp(text.data, PREFIX_SERVER, size) == 0 || memcmp(text.data, PREFIX_AGENT, size) == 0);
}

static int check_form(struct slice text, struct fault *fault) {
    bool begins = begins_as_one(text);
    if (text.size == 0) return fault_set(fault, CO_INVALID, "the join token is empty");
    if (begins && text.size < TEXT_SIZE)
        return fault_set(fault, CO_INVALID, "the join token is cut short: it has %zu of its %d characters", text.size,
                         TEXT_SIZE);
    if (begins && text.size > TEXT_SIZE)
        return fault_set(fault, CO_INVALID,
                         "the join token is followed by something: it has %d characters, these are %zu", TEXT_SIZE,
                         text.size);
    if (!begins && text.size != TEXT_SIZE)
        return fault_set(fault, CO_INVALID, "it is no join token: " TELL_TOKENS_BY ", and has %d characters",
                         TEXT_SIZE);
    if (!begins)
        return fault_set(fault, CO_INVALID,
                         "a character of the join token was changed at its beginning: " TELL_TOKENS_BY);
    return CO_OK;
}

static bool read_parts(const char *at, struct join_token *token) {
    token->role = at[PREFIX_SIZE - 2] == 's' ? TLS_ROLE_SERVER : TLS_ROLE_AGENT;
    const char *pin = at + PREFIX_SIZE, *id = pin + PIN_TEXT + 1, *secret = id + JOIN_TOKEN_ID_TEXT + 1;
    return decode(pin, token->pin, sizeof token->pin) && decode(id, token->id, sizeof token->id) &&
           decode(secret, token->secret, sizeof token->secret);
}

int join_token_read(struct slice text, struct join_token *token, struct fault *fault) {
    char line[JOIN_TOKEN_TEXT_MAX], again[JOIN_TOKEN_TEXT_MAX];
    text = without_space(text);
    *token = (struct join_token){0};
    int rv = check_form(text, fault);
    if (rv != CO_OK) return rv;
    memcpy(line, text.data, TEXT_SIZE);
    line[TEXT_SIZE] = '\0';
    bool right = read_parts(line, token);
    if (right) join_token_write(token, again);
    right = right && memcmp(line, again, TEXT_SIZE) == 0; /* dots, unused bits and the check too */
    gnutls_memset(line, 0, sizeof line);
    gnutls_memset(again, 0, sizeof again);
    if (right) return CO_OK;
    gnutls_memset(token, 0, sizeof *token);
    return fault_set(fault, CO_INVALID,
                     "a character of the join token was changed: its check does not fit; copy it again");
}

/* -- ids ---------------------------------------------------------------------------------------------------------- */
void join_token_id_write(const uint8_t id[JOIN_TOKEN_ID_SIZE], char text[JOIN_TOKEN_ID_TEXT + 1]) {
    char *end = encode(text, id, JOIN_TOKEN_ID_SIZE);
    *end = '\0';
}

bool join_token_id_read(struct slice text, uint8_t id[JOIN_TOKEN_ID_SIZE]) {
    char line[JOIN_TOKEN_ID_TEXT + 1] = "";
    if (text.size != JOIN_TOKEN_ID_TEXT) return false;
    memcpy(line, text.data, text.size);
    return decode(line, id, JOIN_TOKEN_ID_SIZE);
}

/* -- hashes ------------------------------------------------------------------------------------------------------- */
void join_token_hash(const struct join_token *token, struct slice key, uint8_t hash[JOIN_TOKEN_HASH_SIZE]) {
    uint8_t text[1 + JOIN_TOKEN_ID_SIZE + JOIN_TOKEN_SECRET_SIZE] = {token->role == TLS_ROLE_SERVER ? 's' : 'a'};
    memcpy(text + 1, token->id, JOIN_TOKEN_ID_SIZE);
    memcpy(text + 1 + JOIN_TOKEN_ID_SIZE, token->secret, JOIN_TOKEN_SECRET_SIZE);
    CHECK(gnutls_hmac_fast(GNUTLS_MAC_SHA256, key.data, key.size, text, sizeof text, hash) == 0);
    gnutls_memset(text, 0, sizeof text);
}

bool join_token_hash_equal(const uint8_t a[JOIN_TOKEN_HASH_SIZE], const uint8_t b[JOIN_TOKEN_HASH_SIZE]) {
    return gnutls_memcmp(a, b, JOIN_TOKEN_HASH_SIZE) == 0;
}
