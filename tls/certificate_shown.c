/* The certificates that a node shows in a handshake. They let those judge it who know only an older CA of its cluster. */
#include "tls/certificate_inner.h"

static bool same_key(gnutls_x509_crt_t a, gnutls_x509_crt_t b) {
    uint8_t pins[2][TLS_PIN_SIZE];
    tls_pin_of_certificate(a, pins[0]);
    tls_pin_of_certificate(b, pins[1]);
    return memcmp(pins[0], pins[1], TLS_PIN_SIZE) == 0;
}

static bool signed_itself(gnutls_x509_crt_t one) { return gnutls_x509_crt_check_issuer(one, one); }

static void append(gnutls_x509_crt_t one, struct buffer *pem) {
    gnutls_datum_t made = {0};
    if (gnutls_x509_crt_export2(one, GNUTLS_X509_FMT_PEM, &made) == 0) tls_take(pem, &made);
}

/* The CA of this key as an older one signed it; NULL: there is none. A CA's own certificate comes first, and a company may
 * have signed that. */
static gnutls_x509_crt_t signed_by_older(gnutls_x509_crt_t ca, gnutls_x509_crt_t *cas, unsigned count) {
    bool own = true;
    for (unsigned i = 0; i < count; i++) {
        if (!same_key(ca, cas[i])) continue;
        if (!own && !signed_itself(cas[i])) return cas[i];
        own = false;
    }
    return NULL;
}

static gnutls_x509_crt_t issuer_of(gnutls_x509_crt_t one, gnutls_x509_crt_t *cas, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (gnutls_x509_crt_check_issuer(one, cas[i])) return cas[i];
    return NULL;
}

void tls_chain_shown(struct slice chain, struct slice cas, struct buffer *shown) {
    gnutls_x509_crt_t *own, *all;
    unsigned own_count, count = 0;
    buffer_append(shown, chain.data, chain.size);
    if (!tls_load_all(chain, &own, &own_count)) return;
    bool known = tls_load_all(cas, &all, &count);
    gnutls_x509_crt_t ca = known && own_count > 1 ? own[1] : NULL; /* above it may stand those of a company */
    bool in_chain = ca && !signed_itself(ca) && issuer_of(ca, all, count);
    for (unsigned size = own_count; ca && size < TLS_CHAIN_MOST; size++) {
        gnutls_x509_crt_t older = in_chain ? ca : signed_by_older(ca, all, count);
        if (older && !in_chain) append(older, shown);
        ca = older ? issuer_of(older, all, count) : NULL;
        in_chain = false;
    }
    tls_free_all(own, own_count);
    if (known) tls_free_all(all, count);
}
