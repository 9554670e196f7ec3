/* The text of a join token: one line, made for copying.
 *
 *     coord1s.PIN.ID.SECRET.CHECK      coord1a. ...
 *
 * coord1s. makes a server, coord1a. a client agent (the prefix is what scanners for secrets look for); PIN: SHA-256 of
 * the CA's public key, 32 bytes; ID: 6 bytes, public; SECRET: 16 bytes; each in base64url without padding (RFC 4648);
 * CHECK: the first 4 bytes of SHA-256 of everything before it, in base64url, so that a token that was cut or mistyped
 * is noticed before anything is sent. Pure; any thread. */
#ifndef COORD_TLS_JOIN_TOKEN_H
#define COORD_TLS_JOIN_TOKEN_H

#include "tls/certificate.h"

#define JOIN_TOKEN_ID_SIZE     6
#define JOIN_TOKEN_ID_TEXT     8 /* in base64url */
#define JOIN_TOKEN_SECRET_SIZE 16
#define JOIN_TOKEN_TEXT_MAX    96 /* with the NUL */
#define JOIN_TOKEN_HASH_SIZE   32

struct join_token {
    enum tls_role role;
    uint8_t pin[TLS_PIN_SIZE];
    uint8_t id[JOIN_TOKEN_ID_SIZE];
    uint8_t secret[JOIN_TOKEN_SECRET_SIZE];
};

/* Draws id and secret. */
int join_token_make(enum tls_role role, const uint8_t pin[TLS_PIN_SIZE], struct join_token *token, struct fault *fault);
void join_token_write(const struct join_token *token, char text[JOIN_TOKEN_TEXT_MAX]);
/* White space around it is ignored. The fault says what is wrong: "it is cut short", "a character was changed", "it is
 * no join token" (with the length it should have), and never quotes the secret. */
int join_token_read(struct slice text, struct join_token *token, struct fault *fault);
void join_token_id_write(const uint8_t id[JOIN_TOKEN_ID_SIZE], char text[JOIN_TOKEN_ID_TEXT + 1]);
bool join_token_id_read(struct slice text, uint8_t id[JOIN_TOKEN_ID_SIZE]);
/* The part of the secret that the cluster keeps: HMAC-SHA-256 of role, id and secret with `key`, which lives beside the CA's key
 * and in no log. So the token of an agent cannot be rewritten to that of a server. */
void join_token_hash(const struct join_token *token, struct slice key, uint8_t hash[JOIN_TOKEN_HASH_SIZE]);
bool join_token_hash_equal(const uint8_t a[JOIN_TOKEN_HASH_SIZE],
                           const uint8_t b[JOIN_TOKEN_HASH_SIZE]); /* constant time */

#endif
