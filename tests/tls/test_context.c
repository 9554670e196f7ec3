/* Contexts: what fits together, and which cipher suites come of Consul's names. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "ends.h"

static int make(struct tls_context_config config, struct fault *fault) {
    struct tls_context *context = NULL;
    *fault = (struct fault){0};
    int rv = tls_context_make(&config, &context, fault);
    cr_assert_eq(rv == CO_OK, context != NULL);
    tls_context_unref(context);
    return rv;
}

Test(context, a_pair_has_to_fit) {
    struct test_ca authority = {0};
    struct identity one = {0}, two = {0};
    struct fault fault;
    test_ca_make(&authority);
    identity_make(&authority, TLS_ROLE_SERVER, "s1", 0, DAY_S, &one);
    identity_make(&authority, TLS_ROLE_SERVER, "s2", 0, DAY_S, &two);
    struct slice chain = buffer_slice(&one.chain), key = buffer_slice(&one.key), other = buffer_slice(&two.key);
    cr_assert_eq(make((struct tls_context_config){.chain = chain, .key = key}, &fault), CO_OK);
    cr_assert_eq(make((struct tls_context_config){.chain = chain, .key = other}, &fault), CO_INVALID);
    cr_assert_str_eq(fault.text, "the private key belongs to another certificate");
    cr_assert_eq(make((struct tls_context_config){.chain = chain}, &fault), CO_INVALID);
    cr_assert_str_eq(fault.text, "there is a certificate, and no key");
    cr_assert_eq(make((struct tls_context_config){.key = key}, &fault), CO_INVALID);
    cr_assert_str_eq(fault.text, "there is a key, and no certificate");
    cr_assert_eq(make((struct tls_context_config){.chain = key, .key = key}, &fault), CO_INVALID);
    cr_assert_eq(make((struct tls_context_config){.trusted = SLICE_LITERAL("none")}, &fault), CO_INVALID);
    cr_assert(strstr(fault.text, "the trusted CAs: "), "%s", fault.text);
    identity_free(&one);
    identity_free(&two);
    test_ca_free(&authority);
}

Test(context, secrets_have_their_sizes) {
    struct fault fault;
    static const char bytes[65] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    for (size_t size = 0; size <= 64; size++) {
        struct tls_context_config psk = {.psk = {slice_make(bytes, size)}, .psk_count = 1},
                                  ticket = {.ticket_key = slice_make(bytes, size)};
        cr_assert_eq(make(psk, &fault) == CO_OK, size == 16 || size == 24 || size == 32, "%zu", size);
        cr_assert_eq(make(ticket, &fault) == CO_OK, size == 0 || size == 64, "%zu", size);
    }
}

Test(context, versions_have_two_names) {
    struct fault fault;
    static const char *const good[] = {"tls10", "tls11", "tls12", "tls13", "TLSv1_0", "TLSv1_3", "", "TLS_AUTO"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert_eq(make((struct tls_context_config){.least_version = good[i]}, &fault), CO_OK, "%s", good[i]);
    cr_assert_eq(make((struct tls_context_config){.least_version = "tls14"}, &fault), CO_INVALID);
    cr_assert_str_eq(fault.text, "\"tls14\" is no version of TLS: tls10, tls11, tls12 or tls13");
}

/* The suites that a context's clients and servers would use, in its order. */
static void suites(const char *list, const char *least, struct buffer *names) {
    struct tls_context *context;
    struct fault fault = {0};
    struct tls_context_config config = {.cipher_suites = list, .least_version = least};
    cr_assert_eq(tls_context_make(&config, &context, &fault), CO_OK, "%s", fault.text);
    for (unsigned i = 0, index;; i++) {
        int rv = gnutls_priority_get_cipher_suite_index(tls_context_priorities(context), i, &index);
        if (rv == GNUTLS_E_UNKNOWN_CIPHER_SUITE) continue;
        if (rv != 0) break;
        const char *name = gnutls_cipher_suite_info(index, NULL, NULL, NULL, NULL, NULL);
        buffer_printf(names, "%s\n", name);
    }
    buffer_append_byte(names, '\0');
    tls_context_unref(context);
}

Test(context, AES_GCM_comes_first_and_all_have_forward_secrecy) {
    struct buffer names = {0};
    suites(NULL, NULL, &names);
    cr_assert_eq(strncmp(names.data, "TLS_AES_128_GCM_SHA256\n", 23), 0, "%s", names.data);
    static const char *const refused[] = {"CBC", "TLS_RSA", "TLS_DHE", "CCM", "3DES"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        cr_assert_null(strstr(names.data, refused[i]), "%s", names.data);
    cr_assert(strstr(names.data, "TLS_ECDHE_ECDSA_CHACHA20_POLY1305"));
    const char *last = strstr(names.data, "TLS_CHACHA20_POLY1305");
    cr_assert(last && last > strstr(names.data, "TLS_AES_256_GCM_SHA384"));
    buffer_free(&names);
}

Test(context, suites_are_those_that_were_named) {
    struct buffer names = {0};
    suites("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", NULL, &names);
    cr_assert_str_eq(names.data, "TLS_AES_256_GCM_SHA384\nTLS_ECDHE_ECDSA_AES_256_GCM_SHA384\n");
    buffer_reset(&names);
    suites("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "tls12", &names);
    cr_assert_str_eq(names.data,
                     "TLS_CHACHA20_POLY1305_SHA256\nTLS_AES_128_GCM_SHA256\n"
                     "TLS_ECDHE_RSA_CHACHA20_POLY1305\nTLS_ECDHE_RSA_AES_128_GCM_SHA256\n");
    buffer_reset(&names);
    suites("TLS_RSA_WITH_AES_128_CBC_SHA", "tls10", &names);
    cr_assert_str_eq(names.data, "TLS_RSA_AES_128_CBC_SHA1\n");
    buffer_reset(&names);
    suites("TLS_AES_256_GCM_SHA384", "tls13", &names);
    cr_assert_str_eq(names.data, "TLS_AES_256_GCM_SHA384\n");
    buffer_free(&names);
}

Test(context, suites_that_cannot_be_are_named) {
    struct fault fault;
    static const struct {
        const char *list, *least, *part;
        bool psk;
    } lists[] = {
        {"TLS_RSA_WITH_RC4_128_SHA", NULL, "\"TLS_RSA_WITH_RC4_128_SHA\" is no cipher suite that is supported", false},
        {"TLS_DHE_WITH_AES_128_GCM_SHA256", NULL, "is no cipher suite", false},
        {"AES_128_GCM_SHA256", NULL, "is no cipher suite", false},
        {"TLS_AES_128_CBC_SHA", NULL, "is no cipher suite", false},
        {"TLS_RSA_WITH_AES_128_CBC_SHA", "tls13", "none of the cipher suites is one of TLS 1.3", false},
        {"TLS_AES_256_GCM_SHA384", "tls13", "shared keys need", true},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct tls_context_config config = {.cipher_suites = lists[i].list, .least_version = lists[i].least};
        if (lists[i].psk) config.psk[0] = SLICE_LITERAL("0123456789abcdef"), config.psk_count = 1;
        cr_assert_eq(make(config, &fault), CO_INVALID, "%s", lists[i].list);
        cr_assert(strstr(fault.text, lists[i].part), "%s", fault.text);
    }
}

Test(context, a_slot_gives_what_was_set_last) {
    struct fault fault = {0};
    struct tls_context *first, *second;
    struct tls_slot *slot = tls_slot_new();
    cr_assert_null(tls_slot_get(slot));
    cr_assert_eq(tls_context_make(&(struct tls_context_config){0}, &first, &fault), CO_OK);
    cr_assert_eq(tls_context_make(&(struct tls_context_config){0}, &second, &fault), CO_OK);
    tls_slot_set(slot, first);
    struct tls_context *held = tls_slot_get(slot);
    cr_assert_eq(held, first);
    tls_slot_set(slot, second); /* `first` lives on: somebody has it */
    cr_assert_eq(tls_context_trusted(held).size, 0);
    tls_context_unref(held);
    held = tls_slot_get(slot);
    cr_assert_eq(held, second);
    tls_context_unref(held);
    tls_slot_set(slot, NULL);
    cr_assert_null(tls_slot_get(slot));
    tls_slot_free(slot);
}
