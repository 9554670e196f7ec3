/* Trusted CAs, parsed once, because a handshake that parses them anew costs a fifth more. */
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "tls/certificate_inner.h"

static gnutls_x509_trust_list_t list_new(void) {
    gnutls_x509_trust_list_t list;
    CHECK(gnutls_x509_trust_list_init(&list, 0) == 0);
    return list;
}

struct tls_trust *tls_trust_make(struct slice pem) {
    struct tls_trust *trust = mem_zalloc(sizeof *trust);
    (void)tls_load_all(pem, &trust->cas, &trust->count); /* none: nobody is trusted */
    trust->all = list_new();
    trust->lives = mem_zalloc((trust->count + 1) * sizeof *trust->lives);
    trust->der = mem_zalloc((trust->count + 1) * sizeof *trust->der);
    trust->life = (struct tls_life){INT64_MIN, INT64_MAX};
    for (unsigned i = 0; i < trust->count; i++) {
        struct tls_life life = trust->lives[i] = tls_life_of(trust->cas[i]);
        if (life.from_s > trust->life.from_s) trust->life.from_s = life.from_s;
        if (life.to_s < trust->life.to_s) trust->life.to_s = life.to_s;
        CHECK(gnutls_x509_crt_export2(trust->cas[i], GNUTLS_X509_FMT_DER, &trust->der[i]) == 0);
        gnutls_x509_trust_list_add_cas(trust->all, &trust->cas[i], 1, 0);
    }
    return trust;
}

void tls_trust_free(struct tls_trust *trust) {
    if (!trust) return;
    gnutls_x509_trust_list_deinit(trust->all, 0);
    for (unsigned i = 0; i < trust->count; i++) gnutls_free(trust->der[i].data);
    tls_free_all(trust->cas, trust->count);
    free(trust->der);
    free(trust->lives);
    free(trust);
}

gnutls_x509_trust_list_t tls_trust_at(const struct tls_trust *trust, int64_t now_s) {
    if (tls_life_has(trust->life, now_s) == 0) return trust->all;
    gnutls_x509_trust_list_t list = list_new();
    for (unsigned i = 0; i < trust->count; i++)
        if (tls_life_has(trust->lives[i], now_s) == 0) gnutls_x509_trust_list_add_cas(list, &trust->cas[i], 1, 0);
    return list;
}

void tls_trust_leave(const struct tls_trust *trust, gnutls_x509_trust_list_t list) {
    if (list != trust->all) gnutls_x509_trust_list_deinit(list, 0);
}

gnutls_x509_crt_t tls_trust_find(const struct tls_trust *trust, struct slice der) {
    for (unsigned i = 0; i < trust->count; i++)
        if (slice_equal(slice_make(trust->der[i].data, trust->der[i].size), der)) return trust->cas[i];
    return NULL;
}
