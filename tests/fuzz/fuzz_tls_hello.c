/* Any bytes as the first flight of a connection to a server: its session waits for more or fails with a reason, never opens,
 * hands over nothing, and answers with few bytes.
 * Input: a byte (bit 0: the server has shared keys and tickets, bit 1: it has protocols, bits 2-7: the size of the pieces,
 * 0: at once), then the bytes. */
#include <stdlib.h>

#include "base/check.h"
#include "tests/lib/identity.h"
#include "tls/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ANSWER_MOST (64 * 1024)

static struct tls_context *contexts[2];

static void make_contexts(void) {
    static const char ticket_key[TLS_TICKET_KEY_SIZE + 1] =
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    struct test_ca authority = {0};
    struct identity server = {0};
    test_ca_make(&authority);
    identity_make(&authority, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &server);
    contexts[0] = context_of(&server, &authority, (struct tls_context_config){.least_version = "tls10"});
    contexts[1] = context_of(&server, &authority,
                             (struct tls_context_config){.only_tls13 = true,
                                                         .psk = {SLICE_LITERAL("0123456789abcdef")},
                                                         .psk_count = 1,
                                                         .ticket_key = slice_make(ticket_key, TLS_TICKET_KEY_SIZE)});
    identity_free(&server);
    test_ca_free(&authority);
}

static void chosen(void *data, const char *protocol, struct tls_session_config *config) {
    ++*(unsigned *)data;
    if (protocol && protocol[0] == 'j') config->peer = TLS_PEER_UNASKED;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const protocols[] = {"coord/1", "join/1", NULL};
    if (!contexts[0]) make_contexts();
    if (size < 1) return 0;
    unsigned calls = 0;
    struct tls_session_config config = {.server = true, .peer = TLS_PEER_REQUIRED, .chosen = chosen, .data = &calls};
    if (data[0] & 2) config.protocols = protocols;
    struct tls_session *session = tls_session_new(contexts[data[0] & 1], &config);
    size_t piece = data[0] >> 2 ? data[0] >> 2 : size, left = size - 1;
    struct buffer plain = {0};
    const char *at = (const char *)data + 1;
    enum tls_state state = TLS_HANDSHAKE;
    while (left > 0) {
        size_t part = left < piece ? left : piece;
        char *exact = malloc(part);
        memcpy(exact, at, part);
        CHECK(part >= 5 || !tls_looks_like(slice_make(exact, part)) || !tls_record_whole(slice_make(exact, part)));
        enum tls_state before = state;
        state = tls_session_feed(session, slice_make(exact, part), &plain);
        CHECK(before != TLS_FAILED || state == TLS_FAILED);
        free(exact);
        at += part, left -= part;
    }
    CHECK(state == TLS_HANDSHAKE || state == TLS_FAILED);
    CHECK((state == TLS_FAILED) == (tls_session_why(session)[0] != '\0'));
    CHECK(plain.size == 0 && calls <= 2 && tls_session_out(session)->size < ANSWER_MOST);
    CHECK(!tls_session_peer(session) && !tls_session_by_psk(session));
    buffer_free(&plain);
    tls_session_free(session);
    return 0;
}
