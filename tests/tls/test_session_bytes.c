/* Encrypted sessions, two of them fed by each other in memory: other versions and other talk, shared keys, bytes in pieces
 * and changed ones, the end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

/* -- other versions, other talk --------------------------------------------------------------------------------------- */
#define UNTIL_DONE 10

Test(session_bytes, an_earlier_version_is_refused_between_processes_of_coord) {
    struct world world;
    struct buffer got = {0};
    world_make(&world);
    static const char *const priorities[] = {"NORMAL:-VERS-ALL:+VERS-TLS1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.1",
                                             "NORMAL:-VERS-ALL:+VERS-TLS1.0"};
    for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++) {
        struct bare bare;
        struct tls_session_config config = {.server = true};
        struct tls_session *server = tls_session_new(world.server_context, &config);
        bare_open(&bare, priorities[i]);
        bare_shake(&bare, server, &got);
        cr_assert_eq(tls_session_state(server), TLS_FAILED);
        cr_assert_str_eq(tls_session_why(server), "it offers no version of TLS that this side takes", "%s: %s",
                         priorities[i], tls_session_why(server));
        cr_assert_eq(bare_shake(&bare, server, &got), GNUTLS_E_FATAL_ALERT_RECEIVED);
        bare_close(&bare);
        tls_session_free(server);
    }
    buffer_free(&got);
    world_free(&world);
}

Test(session_bytes, TLS_1_2_is_taken_where_clients_are_met_and_not_negotiated_anew) {
    struct world world;
    struct buffer got = {0};
    struct bare bare;
    world_make(&world);
    struct tls_context *context = context_of(&world.server, NULL, (struct tls_context_config){0});
    struct tls_session_config config = {.server = true};
    struct tls_session *server = tls_session_new(context, &config);
    bare_open(&bare, "NORMAL:-VERS-ALL:+VERS-TLS1.2");
    int error = GNUTLS_E_AGAIN;
    for (int i = 0; i < UNTIL_DONE && error == GNUTLS_E_AGAIN; i++) error = bare_shake(&bare, server, &got);
    cr_assert_eq(error, 0, "%s", gnutls_strerror(error));
    cr_assert_eq(tls_session_state(server), TLS_OPEN);
    cr_assert_eq(gnutls_cipher_get(bare.tls), GNUTLS_CIPHER_AES_128_GCM);
    bare_shake(&bare, server, &got); /* a second handshake in the same session */
    cr_assert_eq(tls_session_state(server), TLS_FAILED);
    cr_assert_str_eq(tls_session_why(server), "it asks to negotiate anew");
    bare_close(&bare);
    tls_session_free(server);
    tls_context_unref(context);
    buffer_free(&got);
    world_free(&world);
}

Test(session_bytes, other_talk_is_no_handshake) {
    struct world world;
    struct buffer got = {0};
    world_make(&world);
    static const char *const talks[] = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x05\x00\x00\x00\x01hello"};
    for (size_t i = 0; i < 2; i++) {
        struct tls_session_config config = {.server = true};
        struct tls_session *server = tls_session_new(world.server_context, &config);
        tls_session_feed(server, slice_make(talks[i], i == 0 ? strlen(talks[0]) : 10), &got);
        cr_assert_eq(tls_session_state(server), TLS_FAILED);
        cr_assert_str_eq(tls_session_why(server), "it does not speak TLS");
        tls_session_free(server);
    }
    cr_assert_eq(got.size, 0);
    buffer_free(&got);
    world_free(&world);
}

Test(session_bytes, hellos_are_told_from_frames) {
    cr_assert(tls_looks_like(slice_make("", 0)));
    cr_assert(tls_looks_like(slice_make("\x16\x03", 2)));
    cr_assert(tls_looks_like(slice_make("\x16\x03\x01\x02\x00\x01", 6)));
    cr_assert(!tls_looks_like(slice_make("\x16\x03\x00\x00\x01", 5)), "a frame of 790 bytes");
    cr_assert(!tls_looks_like(slice_make("\x05", 1)));
    cr_assert(!tls_looks_like(slice_text("GET ")));
    cr_assert(!tls_record_whole(slice_make("\x16\x03\x01\x00\x02\x01", 6)));
    cr_assert(tls_record_whole(slice_make("\x16\x03\x01\x00\x02\x01\x00", 7)));
    cr_assert(!tls_record_whole(slice_make("\x16\x03\x01\x00", 4)));
    cr_assert(tls_record_whole(slice_make("\x16\x03\x01\xff\xff", 5)), "no record is that long");
    cr_assert(tls_record_whole(slice_text("G")));
    cr_assert(tls_record_whole(slice_make("\x17\x04", 2)));
    cr_assert(!tls_record_whole(slice_make("\x15\x03", 2)));
}

/* -- shared keys ------------------------------------------------------------------------------------------------------ */
static const char key_a[] = "0123456789abcdef", key_b[] = "fedcba9876543210fedcba9876543210",
                  key_c[] = "0123456789abcdeg";

static struct tls_context *with_keys(const struct identity *identity, const struct test_ca *authority,
                                     const char *first, const char *second) {
    struct tls_context_config config = inner;
    config.psk[0] = slice_text(first), config.psk_count = 1;
    if (second) config.psk[1] = slice_text(second), config.psk_count = 2;
    return context_of(identity, authority, config);
}

static const struct tls_session_config by_key = {.psk = true, .protocols = peers_protocol};

Test(session_bytes, a_shared_key_is_enough) {
    struct ends ends;
    struct tls_context *server = with_keys(NULL, NULL, key_a, key_b), *first = with_keys(NULL, NULL, key_a, NULL),
                       *second = with_keys(NULL, NULL, key_b, NULL);
    struct tls_context *clients[] = {first, second};
    for (size_t i = 0; i < 2; i++) {
        ends_open(&ends, clients[i], by_key, server, mutual);
        ends_move(&ends, 0);
        cr_assert(ends_are_open(&ends), "%s | %s", tls_session_why(ends.client), tls_session_why(ends.server));
        cr_assert(tls_session_by_psk(ends.client) && tls_session_by_psk(ends.server));
        cr_assert_null(tls_session_peer(ends.client));
        cr_assert_null(tls_session_peer(ends.server));
        say(&ends, "hello", "welcome");
        ends_close(&ends);
    }
    tls_context_unref(server);
    tls_context_unref(first);
    tls_context_unref(second);
}

Test(session_bytes, another_shared_key_is_refused) {
    struct ends ends;
    struct tls_context *server = with_keys(NULL, NULL, key_a, key_b), *client = with_keys(NULL, NULL, key_c, NULL);
    ends_open(&ends, client, by_key, server, mutual);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "its shared key (encrypt) is none of this side's");
    ends_close(&ends);
    tls_context_unref(server);
    tls_context_unref(client);
}

Test(session_bytes, a_server_takes_keys_and_certificates_and_a_client_one_of_them) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_context *both = with_keys(&world.server, &world.authority, key_a, NULL),
                       *key = with_keys(NULL, NULL, key_a, NULL);
    ends_open(&ends, key, by_key, both, mutual);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends) && tls_session_by_psk(ends.server));
    ends_close(&ends);
    ends_open(&ends, world.agent_context, mutual, both, mutual);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends) && !tls_session_by_psk(ends.server));
    cr_assert_str_eq(tls_session_peer(ends.server)->node, "web-1");
    ends_close(&ends);

    /* A client that wants the key's proof does not take a certificate for it, whoever signed it. */
    struct tls_context *trusting = with_keys(NULL, &world.authority, key_a, NULL);
    struct tls_session_config unasked = mutual;
    unasked.peer = TLS_PEER_UNASKED;
    ends_open(&ends, trusting, by_key, world.server_context, unasked);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.client), TLS_FAILED);
    cr_assert_neq(tls_session_state(ends.server), TLS_OPEN);
    ends_close(&ends);

    /* And a server that has only keys takes no certificate. */
    ends_open(&ends, world.agent_context, mutual, key, mutual);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.server), TLS_FAILED);
    cr_assert_neq(tls_session_state(ends.client), TLS_OPEN);
    ends_close(&ends);
    tls_context_unref(both);
    tls_context_unref(key);
    tls_context_unref(trusting);
    world_free(&world);
}

Test(session_bytes, without_a_key_nothing_begins_by_key) {
    struct world world;
    world_make(&world);
    struct tls_session *session = tls_session_new(world.agent_context, &by_key);
    cr_assert_eq(tls_session_state(session), TLS_FAILED);
    cr_assert_str_eq(tls_session_why(session), "this side has no shared key (encrypt)");
    cr_assert_eq(tls_session_out(session)->size, 0);
    tls_session_free(session);
    world_free(&world);
}

/* -- bytes in pieces ------------------------------------------------------------------------------------------------- */
Test(session_bytes, bytes_may_come_one_by_one) {
    struct world world;
    struct ends ends;
    world_make(&world);
    ends_open(&ends, world.agent_context, mutual, world.server_context, mutual);
    ends_move(&ends, 1);
    cr_assert(ends_are_open(&ends));
    tls_session_write(ends.client, slice_text("a record, cut at every byte"));
    ends_move(&ends, 1);
    cr_assert(slice_is(buffer_slice(&ends.server_got), "a record, cut at every byte"));
    ends_close(&ends);
    world_free(&world);
}

/* Wherever the client's bytes stop, the server waits; when the rest comes, it goes on. */
static void stop_at(const struct world *world, size_t at, size_t *total) {
    struct ends ends;
    size_t moved = 0, size = 1;
    ends_open(&ends, world->agent_context, mutual, world->server_context, mutual);
    for (int round = 0; round < UNTIL_DONE && size > 0; round++) {
        char *bytes = buffer_take(tls_session_out(ends.client), &size);
        size_t before = at > moved && at < moved + size ? at - moved : size;
        enum tls_state state = tls_session_feed(ends.server, slice_make(bytes, before), &ends.server_got);
        if (before < size) {
            cr_assert_eq(state, TLS_HANDSHAKE, "cut at %zu: %s", at, tls_session_why(ends.server));
            tls_session_feed(ends.server, slice_make(bytes + before, size - before), &ends.server_got);
        }
        moved += size;
        free(bytes);
        bytes = buffer_take(tls_session_out(ends.server), &(size_t){0});
        free(bytes);
        break;
    }
    *total = moved;
    ends_close(&ends);
}

Test(session_bytes, a_handshake_may_stop_at_every_byte) {
    struct world world;
    world_make(&world);
    size_t total = 0;
    stop_at(&world, 0, &total);
    for (size_t at = 1; at < total; at++) stop_at(&world, at, &total);
    world_free(&world);
}

Test(session_bytes, a_changed_byte_is_noticed_wherever_it_is) {
    struct world world;
    world_make(&world);
    for (size_t at = 0, size = 1; at < size; at++) {
        struct ends ends;
        open_mutual(&world, &ends);
        tls_session_write(ends.client, slice_text("pay 10"));
        char *bytes = buffer_take(tls_session_out(ends.client), &size);
        bytes[at] ^= 1;
        struct buffer got = {0};
        enum tls_state state = tls_session_feed(ends.server, slice_make(bytes, size), &got);
        if (at < 3) { /* type and version are always the same in TLS 1.3; GnuTLS does not look at them */
            cr_assert(state == TLS_FAILED || slice_is(buffer_slice(&got), "pay 10"));
        } else {
            cr_assert_eq(got.size, 0);
            cr_assert(state == TLS_FAILED || at == 3 || at == 4, "byte %zu", at); /* its size: it waits for more */
        }
        buffer_free(&got);
        free(bytes);
        ends_close(&ends);
    }
    world_free(&world);
}

Test(session_bytes, large_writes_arrive_whole) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    size_t size = 16u << 20;
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    size_t before = ends.to_server;
    tls_session_write(ends.client, slice_make(bytes, size));
    cr_assert_eq(tls_session_out(ends.client)->size, size + size / TLS_RECORD_MAX * TLS_RECORD_OVERHEAD);
    ends_move(&ends, 100000);
    cr_assert_gt(ends.to_server, before + size);
    cr_assert(slice_equal(buffer_slice(&ends.server_got), slice_make(bytes, size)));
    free(bytes);
    ends_close(&ends);
    world_free(&world);
}

/* -- the end ---------------------------------------------------------------------------------------------------------- */
Test(session_bytes, a_goodbye_ends_it_and_what_came_before_is_there) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    tls_session_write(ends.client, slice_text("last words"));
    tls_session_goodbye(ends.client);
    ends_move(&ends, 0);
    cr_assert(slice_is(buffer_slice(&ends.server_got), "last words"));
    cr_assert_eq(tls_session_state(ends.server), TLS_ENDED);
    cr_assert_str_eq(tls_session_why(ends.server), "");
    cr_assert_eq(tls_session_feed(ends.server, slice_text("more"), &ends.server_got), TLS_ENDED);
    cr_assert(slice_is(buffer_slice(&ends.server_got), "last words"));
    ends_close(&ends);
    world_free(&world);
}

/* A side that said goodbye may still read. */
Test(session_bytes, after_a_goodbye_the_other_side_may_still_speak) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    tls_session_write(ends.client, slice_text("a question"));
    tls_session_goodbye(ends.client);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.server), TLS_ENDED);
    tls_session_write(ends.server, slice_text("an answer"));
    tls_session_goodbye(ends.server);
    ends_move(&ends, 0);
    cr_assert(slice_is(buffer_slice(&ends.client_got), "an answer"));
    cr_assert_eq(tls_session_state(ends.client), TLS_ENDED);
    ends_close(&ends);
    world_free(&world);
}

Test(session_bytes, both_sides_export_the_same_secret_and_others_another) {
    struct world world;
    struct ends ends, others;
    uint8_t one[32], two[32], three[32];
    world_make(&world);
    ends_open(&ends, world.agent_context, mutual, world.server_context, mutual);
    cr_assert_eq(tls_session_export(ends.client, "coord", one), CO_INVALID);
    ends_move(&ends, 0);
    open_mutual(&world, &others);
    cr_assert_eq(tls_session_export(ends.client, "coord", one), CO_OK);
    cr_assert_eq(tls_session_export(ends.server, "coord", two), CO_OK);
    cr_assert_eq(tls_session_export(others.server, "coord", three), CO_OK);
    cr_assert_eq(memcmp(one, two, 32), 0);
    cr_assert_neq(memcmp(one, three, 32), 0);
    cr_assert_eq(tls_session_export(ends.server, "another", two), CO_OK);
    cr_assert_neq(memcmp(one, two, 32), 0);
    ends_close(&ends);
    ends_close(&others);
    world_free(&world);
}
