#include "tls/ca_import.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "tls/certificate_inner.h"

#define RSA_LEAST 2048
#define RSA_MOST  4096
#define SKEW_S    300
#define SOON_S    (INT64_C(365) * 24 * 3600)

const char *const ca_import_addresses[] = {"192.0.2.1", "2001:db8::1", NULL};

struct reading {
    const struct tls_subject *subject;
    int64_t now_s;
    gnutls_x509_crt_t *all;
    unsigned count;
    char name[96]; /* of the certificate that is looked at, for faults */
    struct fault *fault;
};

static int refuse(struct reading *reading, const char *what) {
    return fault_set(reading->fault, CO_INVALID, "%s %s", reading->name, what);
}

static void look_at(struct reading *reading, unsigned i) {
    struct tls_certificate read;
    tls_describe(reading->all[i], &read);
    if (i == 0) snprintf(reading->name, sizeof reading->name, "the CA");
    else if (read.common_name[0])
        snprintf(reading->name, sizeof reading->name, "certificate %u (%.60s)", i + 1, read.common_name);
    else snprintf(reading->name, sizeof reading->name, "certificate %u", i + 1);
}

/* -- one certificate ---------------------------------------------------------------------------------------------- */
static int check_kind(struct reading *reading, gnutls_x509_crt_t certificate) {
    gnutls_pubkey_t key;
    gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
    unsigned bits = 0;
    int kind = gnutls_x509_crt_get_pk_algorithm(certificate, &bits);
    CHECK(gnutls_pubkey_init(&key) == 0);
    if (kind == GNUTLS_PK_ECDSA && gnutls_pubkey_import_x509(key, certificate, 0) == 0)
        (void)gnutls_pubkey_export_ecc_raw2(key, &curve, NULL, NULL, 0);
    gnutls_pubkey_deinit(key);
    bool taken = curve == GNUTLS_ECC_CURVE_SECP256R1 || curve == GNUTLS_ECC_CURVE_SECP384R1 ||
                 (kind == GNUTLS_PK_RSA && bits >= RSA_LEAST && bits <= RSA_MOST);
    if (taken) return CO_OK;
    return fault_set(reading->fault, CO_INVALID,
                     "%s has a key of the kind %s, %u bits; keys are EC (P-256, P-384), or RSA of %d to %d bits",
                     reading->name, kind > 0 ? gnutls_pk_get_name((gnutls_pk_algorithm_t)kind) : "unknown", bits,
                     RSA_LEAST, RSA_MOST);
}

/* `below`: how many CAs stand below it. */
static int check_ca(struct reading *reading, gnutls_x509_crt_t certificate, int below) {
    unsigned usage = 0, is_ca = 0;
    int path_length = -1;
    if (gnutls_x509_crt_get_basic_constraints(certificate, NULL, &is_ca, &path_length) < 0 || !is_ca)
        return refuse(reading, "is no CA (basic constraints)");
    if (gnutls_x509_crt_get_key_usage(certificate, &usage, NULL) == 0 && !(usage & GNUTLS_KEY_KEY_CERT_SIGN))
        return refuse(reading, "may not sign certificates (key usage without keyCertSign)");
    if (path_length >= 0 && path_length < below)
        return fault_set(reading->fault, CO_INVALID, "%s allows %d CAs below it, and there %s %d (path length)",
                         reading->name, path_length, below == 1 ? "is" : "are", below);
    return CO_OK;
}

static int check_time(struct reading *reading, gnutls_x509_crt_t certificate) {
    struct tls_life life = tls_life_of(certificate);
    char at[TLS_TIME_ROOM];
    int when = tls_life_has(life, reading->now_s);
    if (when == 0) return CO_OK;
    tls_time_write(when > 0 ? life.to_s : life.from_s, at);
    return fault_set(reading->fault, CO_INVALID, when > 0 ? "%s expired on %s" : "%s is valid only from %s on",
                     reading->name, at);
}

static int check_each(struct reading *reading) {
    int rv = CO_OK;
    for (unsigned i = 0; i < reading->count && rv == CO_OK; i++) {
        gnutls_x509_crt_t one = reading->all[i];
        look_at(reading, i);
        rv = check_ca(reading, one, (int)i);
        if (rv == CO_OK) rv = check_kind(reading, one);
        if (rv == CO_OK) rv = check_time(reading, one);
        if (rv == CO_OK && i + 1 < reading->count && !gnutls_x509_crt_check_issuer(one, reading->all[i + 1]))
            rv = refuse(reading, "is not issued by the next one of the file");
    }
    return rv;
}

/* -- a certificate of a node, made for a trial -------------------------------------------------------------------- */
static int make_trial(struct reading *reading, struct slice key, const struct buffer *ca, struct buffer *leaf) {
    struct tls_issuer issuer = {buffer_slice(ca), key};
    struct tls_life life = {reading->now_s - SKEW_S, reading->now_s + SKEW_S};
    struct buffer own = {0}, request = {0}, chain = {0};
    int rv = tls_key_make(&own, reading->fault);
    if (rv == CO_OK) rv = tls_request_make(buffer_slice(&own), &request, reading->fault);
    if (rv == CO_OK) rv = tls_issue(&issuer, buffer_slice(&request), reading->subject, life, &chain, reading->fault);
    if (rv == CO_OK) rv = tls_certificate_at(buffer_slice(&chain), 0, leaf, reading->fault);
    tls_wipe(&own);
    buffer_free(&request);
    buffer_free(&chain);
    return rv;
}

/* The certificates above the CA count for clients that know the root alone. */
static int check_names(struct reading *reading, struct slice leaf) {
    gnutls_x509_crt_t made;
    int rv = CO_OK;
    CHECK(tls_load_certificate(leaf, &made, NULL) == CO_OK);
    for (unsigned i = 0; i < reading->count && rv == CO_OK; i++) {
        const char *forbidden = tls_names_forbidden(reading->all[i], made);
        look_at(reading, i);
        if (forbidden)
            rv = fault_set(reading->fault, CO_INVALID, "%s does not allow %s as nodes have them (name constraints)",
                           reading->name, forbidden);
    }
    gnutls_x509_crt_deinit(made);
    return rv;
}

/* Would others take it who trust the certificate `anchor` of the file? */
static int check_verdict(struct reading *reading, struct slice leaf, unsigned anchor) {
    struct buffer der[CA_IMPORT_MOST + 1] = {0}, trusted = {0};
    struct slice chain[CA_IMPORT_MOST + 1];
    struct tls_certificate read;
    char why[160] = "";
    int rv = CO_OK;
    CHECK(tls_certificate_to_der(leaf, &der[0], NULL) == CO_OK);
    for (unsigned i = 0; i < reading->count; i++) {
        gnutls_datum_t made = {0};
        CHECK(gnutls_x509_crt_export2(reading->all[i], GNUTLS_X509_FMT_DER, &made) == 0);
        tls_take(&der[i + 1], &made);
    }
    CHECK(tls_certificate_to_pem(buffer_slice(&der[anchor + 1]), &trusted, NULL) == CO_OK);
    for (unsigned i = 0; i <= reading->count; i++) chain[i] = buffer_slice(&der[i]);
    for (int as_server = 0; as_server <= 1 && rv == CO_OK; as_server++) {
        struct tls_rules rules = {
            .trusted = buffer_slice(&trusted), .now_s = reading->now_s, .as_server = as_server != 0};
        if (tls_judge(&rules, chain, reading->count + 1, &read, why) != TLS_TRUSTED)
            rv = fault_set(reading->fault, CO_INVALID, "nobody would take what it signs: as a %s's, %s",
                           as_server ? "server" : "client", why);
    }
    for (unsigned i = 0; i <= reading->count; i++) buffer_free(&der[i]);
    buffer_free(&trusted);
    return rv;
}

static int try_it(struct reading *reading, struct slice key, const struct buffer *ca) {
    struct buffer leaf = {0};
    int rv = make_trial(reading, key, ca, &leaf);
    if (rv == CO_OK) rv = check_names(reading, buffer_slice(&leaf));
    if (rv == CO_OK) rv = check_verdict(reading, buffer_slice(&leaf), 0);
    if (rv == CO_OK && reading->count > 1) rv = check_verdict(reading, buffer_slice(&leaf), reading->count - 1);
    buffer_free(&leaf);
    return rv;
}

/* -- all of it ---------------------------------------------------------------------------------------------------- */
static void fill(struct reading *reading, struct slice certificates, struct ca_import *import) {
    import->ends_s = INT64_MAX;
    for (unsigned i = 0; i < reading->count; i++) {
        struct tls_life life = tls_life_of(reading->all[i]);
        if (life.to_s < import->ends_s) import->ends_s = life.to_s;
        bool root = gnutls_x509_crt_check_issuer(reading->all[i], reading->all[i]) != 0;
        if (i > 0 && !root) CHECK(tls_certificate_at(certificates, i, &import->above, NULL) == CO_OK);
    }
}

static int read_all(struct reading *reading, struct slice certificates, struct slice key, struct ca_import *import) {
    struct fault of_pair = {0};
    if (reading->count > CA_IMPORT_MOST)
        return fault_set(reading->fault, CO_INVALID, "the file has %u certificates, %d are the most", reading->count,
                         CA_IMPORT_MOST);
    CHECK(tls_certificate_at(certificates, 0, &import->certificate, NULL) == CO_OK);
    tls_describe(reading->all[0], &import->read);
    if (tls_pair_check(key, buffer_slice(&import->certificate), &of_pair) != CO_OK)
        return fault_set(reading->fault, CO_INVALID, "%s (the first certificate of the file has to be the CA's own)",
                         of_pair.text);
    int rv = check_each(reading);
    if (rv == CO_OK) rv = try_it(reading, key, &import->certificate);
    if (rv == CO_OK) fill(reading, certificates, import);
    return rv;
}

int ca_import_read(struct slice certificates, struct slice key, const struct tls_subject *subject, int64_t now_s,
                   struct ca_import *import, struct fault *fault) {
    struct reading reading = {.subject = subject, .now_s = now_s, .fault = fault};
    *import = (struct ca_import){0};
    if (!tls_load_all(certificates, &reading.all, &reading.count) || reading.count == 0)
        return fault_set(fault, CO_INVALID, "there are no certificates in PEM");
    int rv = read_all(&reading, certificates, key, import);
    tls_free_all(reading.all, reading.count);
    return rv;
}

bool ca_import_ends_soon(const struct ca_import *import, int64_t now_s, char line[CA_IMPORT_LINE]) {
    char at[TLS_TIME_ROOM];
    if (import->ends_s - now_s >= SOON_S) return false;
    tls_time_write(import->ends_s, at);
    snprintf(line, CA_IMPORT_LINE,
             "its chain ends on %.10s, and nothing is signed after that: bring another one before", at);
    return true;
}

void ca_import_free(struct ca_import *import) {
    buffer_free(&import->certificate);
    buffer_free(&import->above);
}
