/* Making certificates. */
#include <gnutls/crypto.h>
#include <stdio.h>

#include "base/check.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/text.h"
#include "tls/certificate_inner.h"

#define SERIAL_SIZE      16
#define KEY_ID_SIZE      20 /* the beginning of the pin */
#define COMMON_NAME_MOST 64 /* RFC 5280: ub-common-name */

/* A certificate under way. The first step that fails sticks; the later ones do nothing. */
struct draft {
    gnutls_x509_crt_t certificate;
    struct buffer dns, addresses; /* that it has; each with a NUL behind, or in 17 bytes with its size before */
    int error;                    /* of GnuTLS */
    struct fault *fault;
    bool failed; /* the fault is set */
};

static void step(struct draft *draft, int rv) {
    if (!draft->error && rv < 0) draft->error = rv;
}

static void begin(struct draft *draft, struct fault *fault) {
    *draft = (struct draft){.fault = fault};
    CHECK(gnutls_x509_crt_init(&draft->certificate) == 0);
}

static void refuse(struct draft *draft, const char *format, const char *what) {
    if (draft->failed) return;
    char said[200];
    snprintf(said, sizeof said, format, what);
    fault_set(draft->fault, CO_INVALID, "%s", said);
    draft->failed = true;
}

static bool is_well(const struct draft *draft) { return !draft->error && !draft->failed; }

/* -- parts -------------------------------------------------------------------------------------------------------- */
static void set_life(struct draft *draft, struct tls_life life, const struct tls_life *issuer) {
    char end[TLS_TIME_ROOM];
    tls_time_write(life.to_s, end);
    if (life.from_s < 0 || life.to_s > TLS_LAST_SECOND) refuse(draft, "a life until %s is none", end);
    else if (life.to_s < life.from_s) refuse(draft, "a life until %s ends before it begins", end);
    if (issuer && issuer->to_s < life.to_s) life.to_s = issuer->to_s;
    tls_time_write(life.to_s, end);
    if (life.to_s < life.from_s) refuse(draft, "the CA's certificate ends on %s", end);
    step(draft, gnutls_x509_crt_set_activation_time(draft->certificate, (time_t)life.from_s));
    step(draft, gnutls_x509_crt_set_expiration_time(draft->certificate, (time_t)life.to_s));
}

/* Version and serial; the ids of both keys, where its own has none yet. `issuer` NULL: it signs itself. */
static void set_numbers(struct draft *draft, gnutls_x509_crt_t issuer) {
    uint8_t serial[SERIAL_SIZE], pin[TLS_PIN_SIZE], of_issuer[128];
    size_t size = sizeof of_issuer;
    step(draft, gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof serial));
    serial[0] = (serial[0] & 0x3f) | 0x40; /* positive, and without a zero byte at the front */
    step(draft, gnutls_x509_crt_set_version(draft->certificate, 3));
    step(draft, gnutls_x509_crt_set_serial(draft->certificate, serial, sizeof serial));
    if (draft->error) return;
    tls_pin_of_certificate(draft->certificate, pin);
    if (gnutls_x509_crt_get_subject_key_id(draft->certificate, of_issuer, &size, NULL) != 0)
        step(draft, gnutls_x509_crt_set_subject_key_id(draft->certificate, pin, KEY_ID_SIZE));
    size = sizeof of_issuer;
    if (!issuer || gnutls_x509_crt_get_subject_key_id(issuer, of_issuer, &size, NULL) != 0) {
        if (issuer) tls_pin_of_certificate(issuer, pin);
        memcpy(of_issuer, pin, KEY_ID_SIZE);
        size = KEY_ID_SIZE;
    }
    step(draft, gnutls_x509_crt_set_authority_key_id(draft->certificate, of_issuer, size));
}

static void set_common_name(struct draft *draft, const char *name) {
    struct slice cut = utf8_cut(slice_text(name), COMMON_NAME_MOST);
    if (cut.size == 0 || !utf8_valid(cut)) refuse(draft, "\"%.80s\" is no name for a certificate", name);
    else
        step(draft, gnutls_x509_crt_set_dn_by_oid(draft->certificate, GNUTLS_OID_X520_COMMON_NAME, 0, cut.data,
                                                  (unsigned)cut.size));
}

static void add_name(struct draft *draft, gnutls_x509_subject_alt_name_t kind, const void *data, size_t size) {
    step(draft,
         gnutls_x509_crt_set_subject_alt_name(draft->certificate, kind, data, (unsigned)size, GNUTLS_FSAN_APPEND));
}

/* A host name, with "*." before it or not. */
static bool is_dns_name(const char *name) {
    if (name[0] == '*' && name[1] == '.') name += 2;
    struct slice text = slice_text(name);
    return text.size && text.data[text.size - 1] != '.' && host_name_valid(text);
}

static void add_dns(struct draft *draft, const char *name) {
    struct slice text = slice_text(name);
    for (size_t at = 0; at < draft->dns.size; at += strlen(draft->dns.data + at) + 1)
        if (slice_equal_nocase(slice_text(draft->dns.data + at), text)) return;
    buffer_append(&draft->dns, name, text.size + 1);
    add_name(draft, GNUTLS_SAN_DNSNAME, text.data, text.size);
}

static void add_dns_all(struct draft *draft, const char *const *list) {
    for (; list && *list; list++)
        if (is_dns_name(*list)) add_dns(draft, *list);
        else refuse(draft, "\"%.80s\" is no DNS name", *list);
}

static void add_address(struct draft *draft, const char *text) {
    struct host host = host_parse(text);
    char row[17] = {(char)host.size};
    if (host.size == 0) {
        refuse(draft, "\"%.80s\" is no IP address", text);
        return;
    }
    memcpy(row + 1, host.address, host.size);
    for (size_t at = 0; at < draft->addresses.size; at += sizeof row)
        if (memcmp(draft->addresses.data + at, row, sizeof row) == 0) return;
    buffer_append(&draft->addresses, row, sizeof row);
    add_name(draft, GNUTLS_SAN_IPADDRESS, host.address, host.size);
}

static void add_addresses(struct draft *draft, const char *const *list) {
    for (; list && *list; list++) add_address(draft, *list);
}

static void be_ca(struct draft *draft, int path_length) {
    step(draft, gnutls_x509_crt_set_basic_constraints(draft->certificate, 1, path_length));
    step(draft, gnutls_x509_crt_set_key_usage(draft->certificate, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN));
}

static void be_leaf(struct draft *draft, unsigned key_usage, bool server, bool client) {
    step(draft, gnutls_x509_crt_set_basic_constraints(draft->certificate, 0, -1));
    step(draft, gnutls_x509_crt_set_key_usage(draft->certificate, key_usage));
    if (server) step(draft, gnutls_x509_crt_set_key_purpose_oid(draft->certificate, GNUTLS_KP_TLS_WWW_SERVER, 0));
    if (client) step(draft, gnutls_x509_crt_set_key_purpose_oid(draft->certificate, GNUTLS_KP_TLS_WWW_CLIENT, 0));
}

/* -- signing ------------------------------------------------------------------------------------------------------ */
/* The hash that fits the CA's key: SHA-256 for P-256. */
static int sign(gnutls_x509_crt_t certificate, gnutls_x509_crt_t issuer, gnutls_x509_privkey_t key) {
    gnutls_pubkey_t public_key;
    gnutls_digest_algorithm_t hash = GNUTLS_DIG_SHA256;
    CHECK(gnutls_pubkey_init(&public_key) == 0);
    int rv = gnutls_pubkey_import_x509(public_key, issuer, 0);
    if (rv == 0) rv = gnutls_pubkey_get_preferred_hash_algorithm(public_key, &hash, NULL);
    gnutls_pubkey_deinit(public_key);
    return rv < 0 ? rv : gnutls_x509_crt_sign2(certificate, issuer, key, hash, 0);
}

/* GnuTLS does not compare URIs with constraints, so with any of them it is not known who takes the certificate. */
static bool constrains_uris(gnutls_x509_name_constraints_t constraints) {
    gnutls_datum_t name;
    unsigned type;
    for (unsigned i = 0; gnutls_x509_name_constraints_get_permitted(constraints, i, &type, &name) == 0; i++)
        if (type == GNUTLS_SAN_URI) return true;
    for (unsigned i = 0; gnutls_x509_name_constraints_get_excluded(constraints, i, &type, &name) == 0; i++)
        if (type == GNUTLS_SAN_URI) return true;
    return false;
}

const char *tls_names_forbidden(gnutls_x509_crt_t ca, gnutls_x509_crt_t certificate) {
    static const struct {
        gnutls_x509_subject_alt_name_t kind;
        const char *names;
    } kinds[] = {{GNUTLS_SAN_DNSNAME, "DNS names"}, {GNUTLS_SAN_IPADDRESS, "addresses"}};
    gnutls_x509_name_constraints_t constraints;
    unsigned critical;
    const char *forbidden = NULL;
    CHECK(gnutls_x509_name_constraints_init(&constraints) == 0);
    if (gnutls_x509_crt_get_name_constraints(ca, constraints, 0, &critical) == 0) {
        if (constrains_uris(constraints)) forbidden = "URIs";
        for (size_t i = 0; i < ARRAY_COUNT(kinds) && !forbidden; i++)
            if (!gnutls_x509_name_constraints_check_crt(constraints, kinds[i].kind, certificate))
                forbidden = kinds[i].names;
    }
    gnutls_x509_name_constraints_deinit(constraints);
    return forbidden;
}

/* A certificate with a name that its CA may not sign would be refused everywhere, later and with fewer words. GnuTLS
 * checks names of certificates that it has read, not of those that it makes. */
static void check_constraints(struct draft *draft, gnutls_x509_crt_t issuer, const gnutls_datum_t *pem) {
    gnutls_x509_crt_t made;
    CHECK(tls_load_certificate(slice_make(pem->data, pem->size), &made, NULL) == CO_OK);
    const char *forbidden = tls_names_forbidden(issuer, made);
    if (forbidden) refuse(draft, "the CA may not sign one of its %s (name constraints)", forbidden);
    gnutls_x509_crt_deinit(made);
}

/* Signs, appends the PEM, and frees the draft. */
static int finish(struct draft *draft, gnutls_x509_crt_t issuer, gnutls_x509_privkey_t key, struct buffer *out) {
    gnutls_datum_t pem = {0};
    if (is_well(draft)) step(draft, sign(draft->certificate, issuer ? issuer : draft->certificate, key));
    if (is_well(draft)) step(draft, gnutls_x509_crt_export2(draft->certificate, GNUTLS_X509_FMT_PEM, &pem));
    if (is_well(draft) && issuer) check_constraints(draft, issuer, &pem);
    bool well = is_well(draft);
    if (well) tls_take(out, &pem);
    else gnutls_free(pem.data);
    if (!well && !draft->failed) tls_fault_of(draft->fault, "the certificate cannot be made", draft->error);
    gnutls_x509_crt_deinit(draft->certificate);
    buffer_free(&draft->dns);
    buffer_free(&draft->addresses);
    return well ? CO_OK : CO_INVALID;
}

struct issuer {
    gnutls_x509_crt_t certificate;
    gnutls_x509_privkey_t key;
    struct tls_life life;
};

static int check_issuer(gnutls_x509_crt_t certificate, bool for_ca, struct fault *fault) {
    unsigned usage = 0, is_ca = 0;
    int path_length = -1;
    if (gnutls_x509_crt_get_basic_constraints(certificate, NULL, &is_ca, &path_length) < 0 || !is_ca)
        return fault_set(fault, CO_INVALID, "the issuer's certificate is not that of a CA");
    if (gnutls_x509_crt_get_key_usage(certificate, &usage, NULL) == 0 && !(usage & GNUTLS_KEY_KEY_CERT_SIGN))
        return fault_set(fault, CO_INVALID, "the issuer's certificate is not made to sign certificates (key usage)");
    if (for_ca && path_length == 0)
        return fault_set(fault, CO_UNSUPPORTED, "the issuer may sign no other CA (path length 0)");
    return CO_OK;
}

static void issuer_free(struct issuer *issuer) {
    if (issuer->certificate) gnutls_x509_crt_deinit(issuer->certificate);
    if (issuer->key) gnutls_x509_privkey_deinit(issuer->key);
    *issuer = (struct issuer){0};
}

static int issuer_load(const struct tls_issuer *by, bool for_ca, struct issuer *issuer, struct fault *fault) {
    *issuer = (struct issuer){0};
    struct fault of_pair = {0};
    int rv = tls_pair_check(by->key, by->certificate, &of_pair);
    if (rv != CO_OK) return fault_set(fault, rv, "the CA: %s", of_pair.text);
    CHECK(tls_load_certificate(by->certificate, &issuer->certificate, NULL) == CO_OK);
    CHECK(tls_load_key(by->key, &issuer->key, NULL) == CO_OK);
    struct tls_certificate said;
    tls_describe(issuer->certificate, &said);
    issuer->life = said.life;
    rv = check_issuer(issuer->certificate, for_ca, fault);
    if (rv != CO_OK) issuer_free(issuer);
    return rv;
}

static int check_domain(const char *domain, struct fault *fault) {
    if (tls_domain_valid(slice_text(domain))) return CO_OK;
    return fault_set(fault, CO_INVALID, "\"%.40s\" is no trust domain: it has %d hex digits", domain, TLS_DOMAIN_SIZE);
}

/* -- CAs ---------------------------------------------------------------------------------------------------------- */
static void set_ca_name(struct draft *draft) {
    uint8_t pin[TLS_PIN_SIZE];
    char name[COMMON_NAME_MOST];
    tls_pin_of_certificate(draft->certificate, pin);
    snprintf(name, sizeof name, "coord CA %02x%02x%02x%02x", pin[0], pin[1], pin[2], pin[3]);
    set_common_name(draft, name);
}

int tls_ca_make(struct slice key, const char *domain, struct tls_life life, struct buffer *certificate,
                struct fault *fault) {
    gnutls_x509_privkey_t own;
    struct draft draft;
    char uri[16 + TLS_DOMAIN_SIZE];
    int rv = check_domain(domain, fault);
    if (rv == CO_OK) rv = tls_load_key(key, &own, fault);
    if (rv != CO_OK) return rv;
    begin(&draft, fault);
    step(&draft, gnutls_x509_crt_set_key(draft.certificate, own));
    set_life(&draft, life, NULL);
    set_numbers(&draft, NULL);
    set_ca_name(&draft);
    add_name(&draft, GNUTLS_SAN_URI, uri, (size_t)snprintf(uri, sizeof uri, "spiffe://%s", domain));
    be_ca(&draft, -1);
    rv = finish(&draft, NULL, own, certificate);
    gnutls_x509_privkey_deinit(own);
    return rv;
}

/* The id of its key, and its trust domain. */
static void copy_ca(struct draft *draft, gnutls_x509_crt_t ca) {
    uint8_t id[128];
    size_t size = sizeof id;
    char uri[16 + TLS_DOMAIN_SIZE];
    struct tls_certificate said;
    gnutls_pubkey_t key;
    CHECK(gnutls_pubkey_init(&key) == 0);
    step(draft, gnutls_pubkey_import_x509(key, ca, 0));
    if (!draft->error) step(draft, gnutls_x509_crt_set_pubkey(draft->certificate, key));
    gnutls_pubkey_deinit(key);
    /* Without a name to add, it copies the subject, byte for byte. */
    step(draft, gnutls_x509_crt_set_proxy_dn(draft->certificate, ca, 0, NULL, 0));
    if (gnutls_x509_crt_get_subject_key_id(ca, id, &size, NULL) == 0)
        step(draft, gnutls_x509_crt_set_subject_key_id(draft->certificate, id, size));
    tls_describe(ca, &said);
    if (said.domain[0])
        add_name(draft, GNUTLS_SAN_URI, uri, (size_t)snprintf(uri, sizeof uri, "spiffe://%s", said.domain));
}

/* How many CAs may stand below it; -1: any number. */
static int path_length(gnutls_x509_crt_t ca) {
    int length = -1;
    (void)gnutls_x509_crt_get_basic_constraints(ca, NULL, NULL, &length);
    return length;
}

int tls_ca_cross(struct slice ca, struct tls_life life, const struct tls_issuer *by, struct buffer *certificate,
                 struct fault *fault) {
    gnutls_x509_crt_t crossed;
    struct issuer issuer;
    int rv = issuer_load(by, true, &issuer, fault);
    if (rv != CO_OK) return rv;
    rv = tls_load_certificate(ca, &crossed, fault);
    if (rv == CO_OK) {
        struct draft draft;
        struct tls_life own = tls_life_of(crossed);
        if (own.to_s < life.to_s) life.to_s = own.to_s;
        begin(&draft, fault);
        copy_ca(&draft, crossed);
        set_life(&draft, life, &issuer.life);
        set_numbers(&draft, issuer.certificate);
        be_ca(&draft, path_length(crossed));
        rv = finish(&draft, issuer.certificate, issuer.key, certificate);
        gnutls_x509_crt_deinit(crossed);
    }
    issuer_free(&issuer);
    return rv;
}

static void set_constraints(struct draft *draft, const char *const *list) {
    if (!list || !*list) return;
    gnutls_x509_name_constraints_t constraints;
    CHECK(gnutls_x509_name_constraints_init(&constraints) == 0);
    for (; *list; list++) {
        gnutls_datum_t name = tls_datum(slice_text(*list));
        if (!is_dns_name(*list) || **list == '*') refuse(draft, "\"%.80s\" is no DNS name", *list);
        else step(draft, gnutls_x509_name_constraints_add_permitted(constraints, GNUTLS_SAN_DNSNAME, &name));
    }
    step(draft, gnutls_x509_crt_set_name_constraints(draft->certificate, constraints, 1));
    gnutls_x509_name_constraints_deinit(constraints);
}

int tls_ca_make_plain(struct slice key, const struct tls_plain_ca *ca, struct tls_life life, struct buffer *certificate,
                      struct fault *fault) {
    gnutls_x509_privkey_t own;
    int rv = tls_load_key(key, &own, fault);
    if (rv != CO_OK) return rv;
    struct draft draft;
    begin(&draft, fault);
    step(&draft, gnutls_x509_crt_set_key(draft.certificate, own));
    set_life(&draft, life, NULL);
    set_numbers(&draft, NULL);
    if (ca->common_name) set_common_name(&draft, ca->common_name);
    else set_ca_name(&draft);
    if (ca->uri) add_name(&draft, GNUTLS_SAN_URI, ca->uri, strlen(ca->uri));
    be_ca(&draft, -1);
    set_constraints(&draft, ca->constraints);
    rv = finish(&draft, NULL, own, certificate);
    gnutls_x509_privkey_deinit(own);
    return rv;
}

/* -- nodes -------------------------------------------------------------------------------------------------------- */
static int check_subject(const struct tls_subject *subject, struct fault *fault) {
    CHECK(subject->role == TLS_ROLE_SERVER || subject->role == TLS_ROLE_AGENT);
    struct slice node = slice_text(subject->node);
    int rv = check_domain(subject->domain, fault);
    if (rv != CO_OK) return rv;
    if (node.size == 0 || node.size > TLS_NODE_MAX || !utf8_valid(node))
        return fault_set(fault, CO_INVALID, "a node's name has 1 to %d bytes of UTF-8", TLS_NODE_MAX);
    struct slice zone[] = {slice_text(subject->datacenter), slice_text(subject->dns_domain)};
    for (size_t i = 0; i < ARRAY_COUNT(zone); i++)
        if (!host_labels_valid(zone[i]))
            return fault_set(fault, CO_INVALID, "\"%.80s\" cannot be part of a DNS name", zone[i].data);
    return CO_OK;
}

/* FIRST.MIDDLE.DC.DOMAIN, unless the node's name makes it no DNS name. */
static void add_dns_of(struct draft *draft, const struct tls_subject *subject, const char *middle) {
    struct buffer name = {0};
    buffer_printf(&name, "%s.%s.%s.%s", subject->node, middle, subject->datacenter, subject->dns_domain);
    buffer_append_byte(&name, '\0');
    if (is_dns_name(name.data) && name.data[0] != '*') add_dns(draft, name.data);
    buffer_free(&name);
}

/* An agent may be called "server.dc1.coord". Its certificate must not be that of a server for those who look at names
 * alone (Consul's verify_server_hostname). */
static bool is_inside(const char *node, const char *dns_domain) {
    struct slice name = slice_text(node), domain = slice_text(dns_domain);
    if (name.size < domain.size) return false;
    size_t before = name.size - domain.size;
    return slice_equal_nocase(slice_make(node + before, domain.size), domain) &&
           (before == 0 || node[before - 1] == '.');
}

static void add_names_of(struct draft *draft, const struct tls_subject *subject) {
    struct buffer uri = {0}, server = {0};
    tls_uri_write(&uri, subject->domain, subject->role, subject->node);
    add_name(draft, GNUTLS_SAN_URI, uri.data, uri.size);
    add_dns_of(draft, subject, "node");
    if (subject->role == TLS_ROLE_SERVER) {
        buffer_printf(&server, "server.%s.%s", subject->datacenter, subject->dns_domain);
        buffer_append_byte(&server, '\0');
        add_dns(draft, server.data);
        add_dns_of(draft, subject, "server");
    }
    if (is_dns_name(subject->node) && subject->node[0] != '*' && !is_inside(subject->node, subject->dns_domain))
        add_dns(draft, subject->node);
    add_dns(draft, "localhost");
    add_dns_all(draft, subject->names);
    add_address(draft, "127.0.0.1");
    add_address(draft, "::1");
    add_addresses(draft, subject->addresses);
    buffer_free(&uri);
    buffer_free(&server);
}

/* Takes nothing from a request but its key, whatever else stands there. */
static void set_key_of(struct draft *draft, gnutls_x509_crq_t request) {
    gnutls_pubkey_t key;
    CHECK(gnutls_pubkey_init(&key) == 0);
    step(draft, gnutls_pubkey_import_x509_crq(key, request, 0));
    if (!draft->error) step(draft, gnutls_x509_crt_set_pubkey(draft->certificate, key));
    gnutls_pubkey_deinit(key);
}

int tls_issue(const struct tls_issuer *by, struct slice request, const struct tls_subject *subject,
              struct tls_life life, struct buffer *chain, struct fault *fault) {
    gnutls_x509_crq_t asked;
    struct issuer issuer;
    int rv = check_subject(subject, fault);
    if (rv == CO_OK) rv = tls_load_request(request, &asked, fault);
    if (rv != CO_OK) return rv;
    rv = issuer_load(by, false, &issuer, fault);
    if (rv == CO_OK) {
        struct draft draft;
        gnutls_datum_t pem = {0};
        begin(&draft, fault);
        set_key_of(&draft, asked);
        set_life(&draft, life, &issuer.life);
        set_numbers(&draft, issuer.certificate);
        set_common_name(&draft, subject->node);
        add_names_of(&draft, subject);
        be_leaf(&draft, GNUTLS_KEY_DIGITAL_SIGNATURE, true, true);
        rv = finish(&draft, issuer.certificate, issuer.key, chain);
        if (rv == CO_OK) {
            CHECK(gnutls_x509_crt_export2(issuer.certificate, GNUTLS_X509_FMT_PEM, &pem) == 0);
            tls_take(chain, &pem);
        }
        issuer_free(&issuer);
    }
    gnutls_x509_crq_deinit(asked);
    return rv;
}

int tls_issue_plain(const struct tls_issuer *by, struct slice key, const struct tls_plain_subject *subject,
                    struct tls_life life, struct buffer *certificate, struct fault *fault) {
    gnutls_x509_privkey_t own;
    struct issuer issuer;
    int rv = tls_load_key(key, &own, fault);
    if (rv != CO_OK) return rv;
    rv = issuer_load(by, false, &issuer, fault);
    if (rv == CO_OK) {
        struct draft draft;
        begin(&draft, fault);
        step(&draft, gnutls_x509_crt_set_key(draft.certificate, own));
        set_life(&draft, life, &issuer.life);
        set_numbers(&draft, issuer.certificate);
        set_common_name(&draft, subject->common_name);
        add_dns_all(&draft, subject->names);
        add_addresses(&draft, subject->addresses);
        bool rsa = gnutls_x509_privkey_get_pk_algorithm(own) == GNUTLS_PK_RSA; /* TLS 1.2 may send a secret to it */
        be_leaf(&draft, GNUTLS_KEY_DIGITAL_SIGNATURE | (rsa ? GNUTLS_KEY_KEY_ENCIPHERMENT : 0), subject->server,
                subject->client);
        rv = finish(&draft, issuer.certificate, issuer.key, certificate);
        issuer_free(&issuer);
    }
    gnutls_x509_privkey_deinit(own);
    return rv;
}
