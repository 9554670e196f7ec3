/* Reading certificates: their content, their names, the pair with a key. */
#include <stdio.h>
#include <time.h>

#include <arpa/inet.h>
#include <gnutls/x509-ext.h>

#include "base/check.h"
#include "base/host.h"
#include "base/text.h"
#include "tls/certificate_inner.h"

#define SUBJECT_NAMES_MOST 1000 /* of one certificate; further ones are not looked at */

/* -- loading ------------------------------------------------------------------------------------------------------ */
/* A SEQUENCE of 128 bytes or more. No text begins so, and every certificate does. */
static bool is_der(struct slice text) {
    return text.size >= 2 && text.data[0] == 0x30 && (unsigned char)text.data[1] >= 0x80;
}

int tls_load_certificate(struct slice text, gnutls_x509_crt_t *certificate, struct fault *fault) {
    if (text.size == 0) return fault_set(fault, CO_INVALID, "there is no certificate: it is empty");
    CHECK(gnutls_x509_crt_init(certificate) == 0);
    gnutls_datum_t bytes = tls_datum(text);
    int rv = gnutls_x509_crt_import(*certificate, &bytes, is_der(text) ? GNUTLS_X509_FMT_DER : GNUTLS_X509_FMT_PEM);
    if (rv == 0) return CO_OK;
    gnutls_x509_crt_deinit(*certificate);
    *certificate = NULL;
    return tls_fault_of(fault, "no certificate", rv);
}

bool tls_load_all(struct slice pem, gnutls_x509_crt_t **all, unsigned *count) {
    *all = NULL;
    *count = 0;
    if (pem.size == 0) return false;
    gnutls_datum_t bytes = tls_datum(pem);
    return gnutls_x509_crt_list_import2(all, count, &bytes, GNUTLS_X509_FMT_PEM, 0) >= 0;
}

void tls_free_all(gnutls_x509_crt_t *all, unsigned count) {
    for (unsigned i = 0; i < count; i++) gnutls_x509_crt_deinit(all[i]);
    gnutls_free(all);
}

/* -- describing --------------------------------------------------------------------------------------------------- */
void tls_time_write(int64_t unix_s, char text[TLS_TIME_ROOM]) {
    struct tm utc;
    time_t seconds = unix_s < 0 ? 0 : unix_s > TLS_LAST_SECOND ? TLS_LAST_SECOND : (time_t)unix_s;
    gmtime_r(&seconds, &utc);
    strftime(text, TLS_TIME_ROOM, "%Y-%m-%d %H:%M:%S UTC", &utc);
}

struct tls_life tls_life_of(gnutls_x509_crt_t certificate) {
    return (struct tls_life){gnutls_x509_crt_get_activation_time(certificate),
                             gnutls_x509_crt_get_expiration_time(certificate)};
}

void tls_pin_of_certificate(gnutls_x509_crt_t certificate, uint8_t pin[TLS_PIN_SIZE]) {
    size_t size = TLS_PIN_SIZE;
    int rv = gnutls_x509_crt_get_key_id(certificate, GNUTLS_KEYID_USE_SHA256, pin, &size);
    if (rv != 0) memset(pin, 0, TLS_PIN_SIZE); /* a kind of key that GnuTLS does not know: it fits no pin */
}

static void describe_serial(gnutls_x509_crt_t from, struct tls_certificate *to) {
    uint8_t serial[64];
    size_t size = sizeof serial, skip = 0;
    if (gnutls_x509_crt_get_serial(from, serial, &size) != 0) return;
    while (size - skip > 1 && serial[skip] == 0) skip++; /* DER has a zero byte before a high bit */
    if (size - skip > (sizeof to->serial - 1) / 2) return;
    for (size_t i = skip; i < size; i++) snprintf(to->serial + 2 * (i - skip), 3, "%02x", serial[i]);
}

static void describe_common_name(gnutls_x509_crt_t from, struct tls_certificate *to) {
    char name[sizeof to->common_name];
    size_t size = sizeof name;
    if (gnutls_x509_crt_get_dn_by_oid(from, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &size) != 0) return;
    if (memchr(name, '\0', size)) return;
    memcpy(to->common_name, name, size);
    to->common_name[size] = '\0';
}

static void describe_name(struct slice uri, struct tls_certificate *to) {
    struct tls_certificate said = *to;
    if (tls_uri_read(uri, said.domain, &said.role, said.node)) *to = said;
    else if (to->is_ca && uri.size == 9 + TLS_DOMAIN_SIZE &&
             tls_domain_valid(slice_make(uri.data + 9, TLS_DOMAIN_SIZE)))
        memcpy(to->domain, uri.data + 9, TLS_DOMAIN_SIZE);
}

/* The names, parsed once: gnutls_x509_crt_get_subject_alt_name parses all of them anew for each. */
static gnutls_subject_alt_names_t names_of(gnutls_x509_crt_t from) {
    gnutls_subject_alt_names_t names = NULL;
    gnutls_datum_t raw = {0};
    if (gnutls_x509_crt_get_extension_by_oid2(from, GNUTLS_X509EXT_OID_SAN, 0, &raw, NULL) != 0) return NULL;
    CHECK(gnutls_subject_alt_names_init(&names) == 0);
    if (gnutls_x509_ext_import_subject_alt_names(&raw, names, 0) != 0) {
        gnutls_subject_alt_names_deinit(names);
        names = NULL;
    }
    gnutls_free(raw.data);
    return names;
}

/* Of several URIs of this kind none counts: such a certificate would be two nodes. */
static void describe_uri(gnutls_x509_crt_t from, struct tls_certificate *to) {
    unsigned found = 0, type;
    gnutls_datum_t name;
    gnutls_subject_alt_names_t names = names_of(from);
    for (unsigned i = 0; names && i < SUBJECT_NAMES_MOST && found < 2; i++) {
        if (gnutls_subject_alt_names_get(names, i, &type, &name, NULL) != 0) break;
        struct slice uri = slice_make(name.data, name.size);
        if (type != GNUTLS_SAN_URI || !slice_starts(uri, SLICE_LITERAL("spiffe://"))) continue;
        if (++found == 1) describe_name(uri, to);
    }
    if (names) gnutls_subject_alt_names_deinit(names);
    if (found < 2) return;
    to->role = TLS_ROLE_NONE;
    to->domain[0] = to->node[0] = '\0';
}

void tls_describe(gnutls_x509_crt_t from, struct tls_certificate *certificate) {
    *certificate = (struct tls_certificate){0};
    certificate->life = tls_life_of(from);
    certificate->is_ca = gnutls_x509_crt_get_ca_status(from, NULL) > 0;
    tls_pin_of_certificate(from, certificate->pin);
    describe_serial(from, certificate);
    describe_common_name(from, certificate);
    describe_uri(from, certificate);
}

int tls_certificate_read(struct slice text, struct tls_certificate *certificate, struct fault *fault) {
    gnutls_x509_crt_t loaded;
    *certificate = (struct tls_certificate){0};
    int rv = tls_load_certificate(text, &loaded, fault);
    if (rv != CO_OK) return rv;
    tls_describe(loaded, certificate);
    gnutls_x509_crt_deinit(loaded);
    return CO_OK;
}

/* -- texts of several --------------------------------------------------------------------------------------------- */
size_t tls_certificate_count(struct slice text) {
    gnutls_x509_crt_t *all;
    unsigned count;
    if (!tls_load_all(text, &all, &count)) return 0;
    tls_free_all(all, count);
    return count;
}

static void export_to(gnutls_x509_crt_t certificate, gnutls_x509_crt_fmt_t format, struct buffer *out) {
    gnutls_datum_t made = {0};
    CHECK(gnutls_x509_crt_export2(certificate, format, &made) == 0);
    tls_take(out, &made);
}

int tls_certificate_at(struct slice text, size_t index, struct buffer *pem, struct fault *fault) {
    gnutls_x509_crt_t *all;
    unsigned count;
    if (!tls_load_all(text, &all, &count)) return fault_set(fault, CO_INVALID, "no certificates in PEM");
    if (index < count) export_to(all[index], GNUTLS_X509_FMT_PEM, pem);
    tls_free_all(all, count);
    if (index < count) return CO_OK;
    return fault_set(fault, CO_INVALID, "there are %u certificates, none at %zu", count, index);
}

static int convert(struct slice text, gnutls_x509_crt_fmt_t format, struct buffer *out, struct fault *fault) {
    gnutls_x509_crt_t loaded;
    int rv = tls_load_certificate(text, &loaded, fault);
    if (rv != CO_OK) return rv;
    export_to(loaded, format, out);
    gnutls_x509_crt_deinit(loaded);
    return CO_OK;
}

int tls_certificate_to_der(struct slice pem, struct buffer *der, struct fault *fault) {
    return convert(pem, GNUTLS_X509_FMT_DER, der, fault);
}

int tls_certificate_to_pem(struct slice der, struct buffer *pem, struct fault *fault) {
    return convert(der, GNUTLS_X509_FMT_PEM, pem, fault);
}

/* -- pairs -------------------------------------------------------------------------------------------------------- */
static int compare_pair(gnutls_x509_privkey_t key, gnutls_x509_crt_t certificate, struct fault *fault) {
    uint8_t of_key[TLS_PIN_SIZE], of_certificate[TLS_PIN_SIZE];
    size_t size = sizeof of_key;
    int rv = gnutls_x509_privkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, of_key, &size);
    if (rv != 0) return tls_fault_of(fault, "the private key", rv);
    tls_pin_of_certificate(certificate, of_certificate);
    if (memcmp(of_key, of_certificate, sizeof of_key) != 0)
        return fault_set(fault, CO_INVALID, "the private key belongs to another certificate");
    rv = gnutls_x509_privkey_verify_params(key); /* a damaged key may still name the right public key */
    return rv == 0 ? CO_OK : tls_fault_of(fault, "the private key is damaged", rv);
}

int tls_pair_check(struct slice key, struct slice chain, struct fault *fault) {
    gnutls_x509_privkey_t private_key;
    gnutls_x509_crt_t certificate;
    int rv = tls_load_key(key, &private_key, fault);
    if (rv != CO_OK) return rv;
    rv = tls_load_certificate(chain, &certificate, fault);
    if (rv == CO_OK) {
        rv = compare_pair(private_key, certificate, fault);
        gnutls_x509_crt_deinit(certificate);
    }
    gnutls_x509_privkey_deinit(private_key);
    return rv;
}

/* -- names -------------------------------------------------------------------------------------------------------- */
/* GnuTLS takes the common name where there is no DNS name; nobody else does any more. */
static bool has_dns_name(gnutls_x509_crt_t certificate) {
    for (unsigned i = 0; i < SUBJECT_NAMES_MOST; i++) {
        char name[256];
        size_t size = sizeof name;
        int rv = gnutls_x509_crt_get_subject_alt_name(certificate, i, name, &size, NULL);
        if (rv == GNUTLS_SAN_DNSNAME) return true;
        if (rv == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE) return false;
    }
    return false;
}

static bool names(gnutls_x509_crt_t certificate, const char *host) {
    struct host asked = host_parse(host);
    if (asked.size) return gnutls_x509_crt_check_ip(certificate, asked.address, asked.size, 0) != 0;
    if (asked.name.size == 0 || !has_dns_name(certificate)) return false;
    char name[256];
    size_t size = asked.name.size;
    if (asked.name.data[size - 1] == '.') size--;
    if (size >= sizeof name) return false;
    memcpy(name, asked.name.data, size);
    name[size] = '\0';
    return gnutls_x509_crt_check_hostname2(certificate, name, GNUTLS_VERIFY_DO_NOT_ALLOW_IP_MATCHES) != 0;
}

static bool is_listed(unsigned type, const gnutls_datum_t *name, enum tls_name kind) {
    return type == (kind == TLS_NAME_DNS ? GNUTLS_SAN_DNSNAME : GNUTLS_SAN_URI) && name->size &&
           !memchr(name->data, '\0', name->size);
}

size_t tls_certificate_list(struct slice der, enum tls_name kind, struct arena *arena, struct slice **names) {
    gnutls_x509_crt_t certificate;
    gnutls_datum_t name;
    unsigned type, all = 0;
    size_t count = 0;
    *names = NULL;
    if (tls_load_certificate(der, &certificate, NULL) != CO_OK) return 0;
    gnutls_subject_alt_names_t parsed = names_of(certificate);
    while (parsed && all < SUBJECT_NAMES_MOST && gnutls_subject_alt_names_get(parsed, all, &type, &name, NULL) == 0)
        all++;
    *names = arena_alloc(arena, (all + 1) * sizeof **names);
    for (unsigned i = 0; i < all; i++)
        if (gnutls_subject_alt_names_get(parsed, i, &type, &name, NULL) == 0 && is_listed(type, &name, kind))
            (*names)[count++] = slice_copy(arena, slice_make((const char *)name.data, name.size));
    if (parsed) gnutls_subject_alt_names_deinit(parsed);
    gnutls_x509_crt_deinit(certificate);
    return count;
}

bool tls_certificate_names(struct slice der, const char *host) {
    gnutls_x509_crt_t certificate;
    if (tls_load_certificate(der, &certificate, NULL) != CO_OK) return false;
    bool fits = names(certificate, host);
    gnutls_x509_crt_deinit(certificate);
    return fits;
}
