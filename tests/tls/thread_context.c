/* Slots and contexts by several threads: one changes the context, others shake hands with whatever is there. A plain main:
 * runs under the sanitizers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/check.h"
#include "ends.h"

enum { USERS = 2, SESSIONS = 60, CHANGES_LEAST = 50 };

static struct test_ca authority;
static struct identity one, two;
static struct tls_slot *slot;
static atomic_uint users_left = USERS;
static atomic_uint seen_one, seen_two;
static const char shared_key[] = "0123456789abcdef";

static struct tls_context *fresh(unsigned number) {
    struct tls_context_config config = {.only_tls13 = true, .psk = {slice_text(shared_key)}, .psk_count = 1};
    return context_of(number % 2 ? &one : &two, &authority, config);
}

static void *change(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < CHANGES_LEAST || atomic_load(&users_left) > 0; i++) tls_slot_set(slot, fresh(i));
    return NULL;
}

static void *use(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < SESSIONS; i++) {
        struct ends ends;
        struct tls_context *client = tls_slot_get(slot), *server = tls_slot_get(slot);
        struct tls_session_config rules = {.peer = TLS_PEER_REQUIRED}, dialled = rules;
        dialled.psk = i % 4 == 0;
        ends_open(&ends, client, dialled, server, rules);
        tls_context_unref(client); /* the sessions have their own */
        tls_context_unref(server);
        ends_move(&ends, 0);
        CHECK(ends_are_open(&ends));
        const struct tls_certificate *peer = tls_session_peer(ends.client);
        CHECK(!peer == dialled.psk);
        if (peer) atomic_fetch_add(strcmp(peer->node, "one") == 0 ? &seen_one : &seen_two, 1);
        tls_session_write(ends.client, slice_text("hello"));
        ends_move(&ends, 0);
        CHECK(slice_is(buffer_slice(&ends.server_got), "hello"));
        ends_close(&ends);
    }
    atomic_fetch_sub(&users_left, 1);
    return NULL;
}

int main(void) {
    pthread_t changer, users[USERS];
    test_ca_make(&authority);
    identity_make(&authority, TLS_ROLE_SERVER, "one", -DAY_S, DAY_S, &one);
    identity_make(&authority, TLS_ROLE_SERVER, "two", -DAY_S, DAY_S, &two);
    slot = tls_slot_new();
    tls_slot_set(slot, fresh(0));
    CHECK(pthread_create(&changer, NULL, change, NULL) == 0);
    for (int i = 0; i < USERS; i++) CHECK(pthread_create(&users[i], NULL, use, NULL) == 0);
    for (int i = 0; i < USERS; i++) pthread_join(users[i], NULL);
    pthread_join(changer, NULL);
    printf("sessions with one %u, with two %u\n", atomic_load(&seen_one), atomic_load(&seen_two));
    CHECK(atomic_load(&seen_one) + atomic_load(&seen_two) == USERS * SESSIONS * 3 / 4);
    tls_slot_free(slot);
    identity_free(&one);
    identity_free(&two);
    test_ca_free(&authority);
    return 0;
}
