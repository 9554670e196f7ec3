/* Sessions that are resumed by a ticket, at another server than the one that gave it: what was shown before is judged
 * again. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "ends.h"

static const char *const protocols[] = {"coord/1", NULL};
static const char ticket_secret[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static const char shared_key[] = "0123456789abcdef", later_key[] = "fedcba9876543210";

static const struct tls_session_config server_rules = {.peer = TLS_PEER_REQUIRED, .protocols = protocols};
static const struct tls_session_config client_rules = {
    .peer = TLS_PEER_REQUIRED, .protocols = protocols, .resumable = true};

static struct tls_context_config with_tickets(const char *key) {
    struct tls_context_config config = {.only_tls13 = true, .ticket_key = slice_text(ticket_secret)};
    if (key) config.psk[0] = slice_text(key), config.psk_count = 1;
    return config;
}

/* A whole handshake; the client's ticket. */
static void first_session(struct tls_context *client, struct tls_session_config rules, struct tls_context *server,
                          struct buffer *ticket) {
    struct ends ends;
    ends_open(&ends, client, rules, server, server_rules);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends), "%s %s", tls_session_why(ends.client), tls_session_why(ends.server));
    cr_assert(!tls_session_resumed(ends.server));
    cr_assert_eq(tls_session_ticket(ends.client, ticket), CO_OK);
    ends_close(&ends);
}

Test(resumption, a_client_resumes_at_another_server_and_is_still_known) {
    struct test_ca authority = {0};
    struct identity one = {0}, two = {0}, agent = {0};
    struct buffer ticket = {0};
    struct ends ends;
    test_ca_make(&authority);
    identity_make(&authority, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &one);
    identity_make(&authority, TLS_ROLE_SERVER, "s2", -DAY_S, DAY_S, &two);
    identity_make(&authority, TLS_ROLE_AGENT, "web-1", -DAY_S, DAY_S, &agent);
    struct tls_context *first = context_of(&one, &authority, with_tickets(NULL)),
                       *second = context_of(&two, &authority, with_tickets(NULL)),
                       *client = context_of(&agent, &authority, (struct tls_context_config){.only_tls13 = true});
    first_session(client, client_rules, first, &ticket);
    struct tls_session_config again = client_rules;
    again.ticket = buffer_slice(&ticket);
    ends_open(&ends, client, again, second, server_rules);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends), "%s %s", tls_session_why(ends.client), tls_session_why(ends.server));
    cr_assert(tls_session_resumed(ends.server) && tls_session_resumed(ends.client));
    cr_assert(tls_session_peer(ends.server) && strcmp(tls_session_peer(ends.server)->node, "web-1") == 0);
    cr_assert(tls_session_peer(ends.client) && strcmp(tls_session_peer(ends.client)->node, "s1") == 0);
    cr_assert(!tls_session_by_psk(ends.server) && !tls_session_by_psk(ends.client));
    ends_close(&ends);

    /* Servers with other secrets know nothing of the ticket. */
    struct tls_context_config other = with_tickets(NULL);
    char secret[sizeof ticket_secret];
    memcpy(secret, ticket_secret, sizeof secret);
    secret[0] = 'x', other.ticket_key = slice_make(secret, 64);
    struct tls_context *third = context_of(&two, &authority, other);
    ends_open(&ends, client, again, third, server_rules);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends));
    cr_assert(!tls_session_resumed(ends.server));
    cr_assert_str_eq(tls_session_peer(ends.client)->node, "s2");
    ends_close(&ends);

    tls_context_unref(first);
    tls_context_unref(second);
    tls_context_unref(third);
    tls_context_unref(client);
    buffer_free(&ticket);
    identity_free(&one);
    identity_free(&two);
    identity_free(&agent);
    test_ca_free(&authority);
}

/* The CA was dropped in between. */
Test(resumption, a_ticket_keeps_no_verdict) {
    struct test_ca authority = {0}, later = {0};
    struct identity one = {0}, agent = {0};
    struct buffer ticket = {0};
    struct ends ends;
    test_ca_make(&authority);
    test_ca_make(&later);
    identity_make(&authority, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &one);
    identity_make(&authority, TLS_ROLE_AGENT, "web-1", -DAY_S, DAY_S, &agent);
    struct tls_context *first = context_of(&one, &authority, with_tickets(NULL)),
                       *second = context_of(&one, &later, with_tickets(NULL)),
                       *client = context_of(&agent, &authority, (struct tls_context_config){.only_tls13 = true});
    first_session(client, client_rules, first, &ticket);
    struct tls_session_config again = client_rules;
    again.ticket = buffer_slice(&ticket);
    ends_open(&ends, client, again, second, server_rules);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.server), TLS_FAILED);
    cr_assert(strstr(tls_session_why(ends.server), "CA that is not trusted here"), "%s", tls_session_why(ends.server));
    cr_assert_eq(tls_session_state(ends.client), TLS_FAILED);
    ends_close(&ends);
    tls_context_unref(first);
    tls_context_unref(second);
    tls_context_unref(client);
    buffer_free(&ticket);
    identity_free(&one);
    identity_free(&agent);
    test_ca_free(&authority);
    test_ca_free(&later);
}

/* A session without a certificate does not come back as one that has shown one. */
Test(resumption, a_ticket_of_a_guest_is_no_ticket_of_a_member) {
    struct test_ca authority = {0};
    struct identity one = {0};
    struct buffer ticket = {0};
    struct ends ends;
    test_ca_make(&authority);
    identity_make(&authority, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &one);
    struct tls_context *server = context_of(&one, &authority, with_tickets(NULL)),
                       *guest = context_of(NULL, &authority, (struct tls_context_config){.only_tls13 = true});
    struct tls_session_config open_door = server_rules;
    open_door.peer = TLS_PEER_UNASKED;
    ends_open(&ends, guest, client_rules, server, open_door);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends));
    cr_assert_eq(tls_session_ticket(ends.client, &ticket), CO_OK);
    ends_close(&ends);
    struct tls_session_config again = client_rules;
    again.ticket = buffer_slice(&ticket);
    ends_open(&ends, guest, again, server, server_rules);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.server), TLS_FAILED);
    cr_assert_str_eq(tls_session_why(ends.server), "it shows no certificate");
    ends_close(&ends);
    tls_context_unref(server);
    tls_context_unref(guest);
    buffer_free(&ticket);
    identity_free(&one);
    test_ca_free(&authority);
}

Test(resumption, a_ticket_ends_with_its_shared_key) {
    struct buffer ticket = {0};
    struct ends ends;
    struct tls_context_config keys = with_tickets(shared_key);
    struct tls_context *first = context_of(NULL, NULL, keys), *after = context_of(NULL, NULL, with_tickets(later_key));
    struct tls_session_config rules = client_rules;
    rules.psk = true;
    first_session(first, rules, first, &ticket);
    rules.ticket = buffer_slice(&ticket);
    ends_open(&ends, first, rules, first, server_rules);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends), "%s %s", tls_session_why(ends.client), tls_session_why(ends.server));
    cr_assert(tls_session_resumed(ends.server));
    cr_assert(tls_session_by_psk(ends.server) && tls_session_by_psk(ends.client));
    ends_close(&ends);
    ends_open(&ends, first, rules, after, server_rules);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.server), TLS_FAILED);
    cr_assert(strstr(tls_session_why(ends.server), "shared key"), "%s", tls_session_why(ends.server));
    ends_close(&ends);
    tls_context_unref(first);
    tls_context_unref(after);
    buffer_free(&ticket);
}
