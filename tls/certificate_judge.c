/* Judging the chain that somebody showed.
 *
 * GnuTLS checks signatures, CAs and uses. It would check times against its own clock, one of the whole process, so that
 * is switched off: certificates of CAs whose time it is not are left out beforehand, and the node's own is compared here.
 * When only the left-out ones would lead to a trusted CA, the verdict says so. */
#include <stdio.h>

#include "base/check.h"
#include "base/text.h"
#include "tls/certificate_inner.h"

struct trial {
    const struct tls_rules *rules;
    const struct tls_trust *trust;
    gnutls_x509_crt_t chain[TLS_CHAIN_MOST];
    bool borrowed[TLS_CHAIN_MOST]; /* it is one of the trust's */
    unsigned chain_count;
};

static int when(gnutls_x509_crt_t certificate, int64_t now_s) { return tls_life_has(tls_life_of(certificate), now_s); }

/* -- words -------------------------------------------------------------------------------------------------------- */
static void say(char why[160], const char *text) {
    struct slice cut = utf8_cut(slice_text(text), 159);
    memcpy(why, cut.data, cut.size);
    why[cut.size] = '\0';
    for (char *at = why; *at; at++) /* the other side may have written a part of it */
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
}

static void name_of(gnutls_x509_crt_t certificate, bool of_issuer, char name[80]) {
    char whole[1024] = "";
    size_t size = sizeof whole;
    int rv = of_issuer ? gnutls_x509_crt_get_issuer_dn(certificate, whole, &size)
                       : gnutls_x509_crt_get_dn(certificate, whole, &size);
    struct slice cut = utf8_cut(slice_text(rv == 0 ? whole : ""), 60);
    snprintf(name, 80, "%.*s", cut.size ? (int)cut.size : 7, cut.size ? cut.data : "no name");
}

static enum tls_verdict say_time(const char *what, gnutls_x509_crt_t certificate, int time, char why[160]) {
    char text[256], at[TLS_TIME_ROOM];
    tls_time_write(
        time > 0 ? gnutls_x509_crt_get_expiration_time(certificate) : gnutls_x509_crt_get_activation_time(certificate),
        at);
    snprintf(text, sizeof text, time > 0 ? "%s expired on %s" : "%s is valid only from %s on: is a clock wrong?", what,
             at);
    say(why, text);
    return time > 0 ? TLS_EXPIRED : TLS_NOT_YET;
}

static const struct {
    unsigned status;
    const char *text;
} reasons[] = {
    {GNUTLS_CERT_INSECURE_ALGORITHM, "is signed by a method that is not secure"},
    {GNUTLS_CERT_SIGNATURE_FAILURE, "has a wrong signature"},
    {GNUTLS_CERT_SIGNER_NOT_CA, "was signed by somebody who is no CA"},
    {GNUTLS_CERT_SIGNER_CONSTRAINTS_FAILURE, "has names that its CA may not sign"},
};

static enum tls_verdict say_distrust(gnutls_x509_crt_t own, unsigned status, char why[160]) {
    char text[256], issuer[80];
    name_of(own, true, issuer);
    const char *reason = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(reasons) && !reason; i++)
        if (status & reasons[i].status) reason = reasons[i].text;
    if (gnutls_x509_crt_check_issuer(own, own) && !reason) reason = "is signed by itself, and is not trusted here";
    if (reason) snprintf(text, sizeof text, "its certificate %s (issuer: %s)", reason, issuer);
    else snprintf(text, sizeof text, "its certificate comes from a CA that is not trusted here (%s)", issuer);
    say(why, text);
    return TLS_UNKNOWN_CA;
}

/* -- trying ------------------------------------------------------------------------------------------------------- */
static unsigned verify(gnutls_x509_trust_list_t list, gnutls_x509_crt_t *chain, unsigned count, bool as_server) {
    gnutls_typed_vdata_st use = {
        .type = GNUTLS_DT_KEY_PURPOSE_OID,
        .data = (unsigned char *)(uintptr_t)(as_server ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT),
    };
    unsigned flags = GNUTLS_VERIFY_DISABLE_TIME_CHECKS | GNUTLS_VERIFY_DISABLE_TRUSTED_TIME_CHECKS |
                     GNUTLS_VERIFY_DISABLE_CRL_CHECKS | GNUTLS_PROFILE_TO_VFLAGS(GNUTLS_PROFILE_MEDIUM);
    unsigned status = 0;
    int rv = gnutls_x509_trust_list_verify_crt2(list, chain, count, &use, 1, flags, &status, NULL);
    return rv < 0 ? GNUTLS_CERT_INVALID | GNUTLS_CERT_SIGNER_NOT_FOUND : status;
}

/* A CA that signed itself and is not trusted leads nowhere. GnuTLS would take it for one more step between the node's
 * certificate and the same CA as an older one has signed it, which may have no further step below. */
static bool leads_nowhere(const struct trial *trial, unsigned at) {
    gnutls_x509_crt_t one = trial->chain[at];
    return !trial->borrowed[at] && gnutls_x509_crt_check_issuer(one, one);
}

static bool counts(const struct trial *trial, unsigned at, bool any_time) {
    return at == 0 || ((any_time || when(trial->chain[at], trial->rules->now_s) == 0) && !leads_nowhere(trial, at));
}

/* Tries the node's certificate alone, then with one more of those that it showed, and so on: a certificate that nobody
 * here needs (a CA signed by an older one, which is gone) must not do harm. Then the same from each of the later ones on that
 * issued it, because its CA may be there twice, and the first time lead to a root that is not known here. Returns GnuTLS's
 * status, 0: trusted. Of several failures one that found the CA says most. */
static unsigned attempt(const struct trial *trial, bool any_time) {
    gnutls_x509_trust_list_t list = any_time ? trial->trust->all : tls_trust_at(trial->trust, trial->rules->now_s);
    gnutls_x509_crt_t chain[TLS_CHAIN_MOST];
    unsigned status = GNUTLS_CERT_INVALID | GNUTLS_CERT_SIGNER_NOT_FOUND;
    for (unsigned first = 1; (first == 1 || first < trial->chain_count) && status != 0; first++) {
        if (first > 1 && !gnutls_x509_crt_check_issuer(trial->chain[0], trial->chain[first])) continue;
        unsigned count = 0;
        for (unsigned at = 0; at < trial->chain_count && status != 0; at++) {
            if ((at > 0 && at < first) || !counts(trial, at, any_time)) continue;
            chain[count++] = trial->chain[at];
            if (at == 0 && first > 1) continue; /* alone it was tried */
            unsigned found = verify(list, chain, count, trial->rules->as_server);
            if (found == 0 || !(found & GNUTLS_CERT_SIGNER_NOT_FOUND)) status = found;
        }
    }
    tls_trust_leave(trial->trust, list);
    return status;
}

/* One of the CAs whose time it is not: the node's own issuer, if that is one. */
static gnutls_x509_crt_t untimely_ca(const struct trial *trial) {
    gnutls_x509_crt_t own = trial->chain[0], some = NULL;
    for (unsigned i = 1; i < trial->chain_count + trial->trust->count; i++) {
        gnutls_x509_crt_t ca = i < trial->chain_count ? trial->chain[i] : trial->trust->cas[i - trial->chain_count];
        if (when(ca, trial->rules->now_s) == 0) continue;
        if (gnutls_x509_crt_check_issuer(own, ca)) return ca;
        some = ca;
    }
    return some;
}

static bool only_use_is_wrong(unsigned status) {
    return (status & GNUTLS_CERT_PURPOSE_MISMATCH) && !(status & ~(GNUTLS_CERT_INVALID | GNUTLS_CERT_PURPOSE_MISMATCH));
}

static enum tls_verdict judge(const struct trial *trial, char why[160]) {
    const struct tls_rules *rules = trial->rules;
    gnutls_x509_crt_t own = trial->chain[0];
    unsigned status = attempt(trial, false);
    if (status != 0 && !only_use_is_wrong(status)) {
        gnutls_x509_crt_t ca = untimely_ca(trial);
        unsigned without_clock = ca ? attempt(trial, true) : status;
        if (without_clock == 0 || only_use_is_wrong(without_clock))
            return say_time("the CA of its certificate", ca, when(ca, rules->now_s), why);
        return say_distrust(own, status, why);
    }
    if (status != 0) {
        say(why, rules->as_server ? "its certificate is not made for servers (extended key usage)"
                                  : "its certificate is not made for clients (extended key usage)");
        return TLS_WRONG_USE;
    }
    int time = when(own, rules->now_s);
    if (time == 0 || (time > 0 && rules->now_s - rules->grace_s <= gnutls_x509_crt_get_expiration_time(own)))
        return TLS_TRUSTED;
    return say_time("its certificate", own, time, why);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
static bool load_chain(struct trial *trial, const struct slice *chain, size_t count, char why[160]) {
    char text[256];
    if (count == 0) say(why, "it showed no certificate");
    if (count > TLS_CHAIN_MOST) {
        snprintf(text, sizeof text, "it showed %zu certificates, %d are the most", count, TLS_CHAIN_MOST);
        say(why, text);
    }
    if (count == 0 || count > TLS_CHAIN_MOST) return false;
    for (size_t i = 0; i < count; i++) {
        gnutls_datum_t der = tls_datum(chain[i]);
        gnutls_x509_crt_t known = tls_trust_find(trial->trust, chain[i]);
        trial->borrowed[i] = known;
        if (known) trial->chain[i] = known;
        else CHECK(gnutls_x509_crt_init(&trial->chain[i]) == 0);
        trial->chain_count++;
        if (known) continue;
        int rv = gnutls_x509_crt_import(trial->chain[i], &der, GNUTLS_X509_FMT_DER);
        if (rv == 0) continue;
        snprintf(text, sizeof text, "certificate %zu of %zu cannot be read: %s", i + 1, count, gnutls_strerror(rv));
        say(why, text);
        trial->chain_count--;
        gnutls_x509_crt_deinit(trial->chain[i]);
        return false;
    }
    return true;
}

enum tls_verdict tls_judge(const struct tls_rules *rules, const struct slice *chain, size_t count,
                           struct tls_certificate *certificate, char why[160]) {
    struct tls_trust *parsed = rules->trust ? NULL : tls_trust_make(rules->trusted);
    struct trial trial = {.rules = rules, .trust = parsed ? parsed : rules->trust};
    enum tls_verdict verdict = TLS_UNREADABLE;
    *certificate = (struct tls_certificate){0};
    why[0] = '\0';
    bool readable = load_chain(&trial, chain, count, why);
    if (trial.chain_count) tls_describe(trial.chain[0], certificate);
    if (readable) verdict = judge(&trial, why);
    for (unsigned i = 0; i < trial.chain_count; i++)
        if (!trial.borrowed[i]) gnutls_x509_crt_deinit(trial.chain[i]);
    tls_trust_free(parsed);
    return verdict;
}
