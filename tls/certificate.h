/* Keys and certificates: X.509 (RFC 5280), ECDSA over P-256 with SHA-256 where coord makes them; RSA and other curves
 * are read, because people bring their own. Pure: time is an argument, nothing is read from files. Any thread.
 *
 * A cluster's CA has a name, its trust domain: 32 hex digits, drawn once, as URI spiffe://DOMAIN in the CA's own
 * certificate. A later CA of the same cluster has the same one. A node's certificate says who it is by
 *
 *   URI  spiffe://DOMAIN/server/NODE or spiffe://DOMAIN/agent/NODE (NODE percent-encoded; RFC 3986 unreserved bytes stay)
 *   DNS  NODE.node.DC.coord, NODE where it is a host name outside of the domain, localhost; of servers also
 *        server.DC.coord and NODE.server.DC.coord, Consul's names (verify_server_hostname)
 *   IP   127.0.0.1, ::1, and its own addresses
 *
 * Keys and certificates are PEM text, requests are DER. A buffer that held a key is freed with tls_wipe. */
#ifndef COORD_TLS_CERTIFICATE_H
#define COORD_TLS_CERTIFICATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

enum tls_role { TLS_ROLE_NONE, TLS_ROLE_SERVER, TLS_ROLE_AGENT };
const char *tls_role_name(enum tls_role role); /* "server", "agent", "none" */

#define TLS_DOMAIN_SIZE 32 /* hex digits */
#define TLS_PIN_SIZE    32 /* SHA-256 of the public key (SubjectPublicKeyInfo, DER), as RFC 7469 pins it */
#define TLS_NODE_MAX    255
#define TLS_REQUEST_MAX 4096 /* bytes of a request; a larger one is refused before it is parsed */

struct tls_life {
    int64_t from_s, to_s; /* Unix time, both inclusive */
};

/* The content of a certificate. Of a certificate without coord's URI `role` is TLS_ROLE_NONE, and domain and node are empty. */
struct tls_certificate {
    char domain[TLS_DOMAIN_SIZE + 1];
    enum tls_role role;
    char node[TLS_NODE_MAX + 1];
    char serial[41]; /* hex digits */
    char common_name[TLS_NODE_MAX + 1];
    uint8_t pin[TLS_PIN_SIZE];
    struct tls_life life;
    bool is_ca;
};

/* The node that a certificate is for. */
struct tls_subject {
    const char *domain; /* trust domain */
    enum tls_role role;
    const char *node, *datacenter, *dns_domain; /* dns_domain: "coord" */
    const char *const *addresses;               /* IPs, NULL-terminated; may be NULL */
    const char *const *names;                   /* further DNS names, the same */
};

/* A CA that signs: its certificate and its key. */
struct tls_issuer {
    struct slice certificate, key;
};

void tls_wipe(struct buffer *secret); /* overwrites the bytes and frees them */

/* Faults: CO_INVALID says in a line what is wrong with what was given; CO_IO: no random bytes. Results are appended to the
 * buffer; after a fault it is as before. */
int tls_key_make(struct buffer *key, struct fault *fault);
int tls_domain_make(char domain[TLS_DOMAIN_SIZE + 1], struct fault *fault);
/* A CA that signs itself. A name has the beginning of its key's pin, so two CAs of a cluster have different ones. */
int tls_ca_make(struct slice key, const char *domain, struct tls_life life, struct buffer *certificate,
                struct fault *fault);
/* The CA `ca` (the first certificate of a PEM text, whoever signed it) as signed by `by`: the same name, key and id, so both
 * lead to what it signed. It may sign further CAs as far as `ca` may: who was away during two rotations goes back over both.
 * CO_UNSUPPORTED: `by` may sign no other CA (path length 0). */
int tls_ca_cross(struct slice ca, struct tls_life life, const struct tls_issuer *by, struct buffer *certificate,
                 struct fault *fault);
/* A certificate request (PKCS #10). It has no names: the issuer decides which ones the certificate has. */
int tls_request_make(struct slice key, struct buffer *request, struct fault *fault);
/* Is it a request whose sender has the key? Takes EC keys (P-256, P-384) only. */
int tls_request_check(struct slice request, uint8_t pin[TLS_PIN_SIZE], struct fault *fault);
/* Appends the certificate and the issuer's to `chain`: also a self-signed one, because who joins compares the CA with
 * the pin of its token. The serial is random. A life that goes beyond the issuer's ends with that. A DNS name that the
 * node's name makes too long or wrong is left out; wrong ones among subject.names and addresses are CO_INVALID. */
int tls_issue(const struct tls_issuer *by, struct slice request, const struct tls_subject *subject,
              struct tls_life life, struct buffer *chain, struct fault *fault);
/* Certificates with Consul's names, for `coord tls`: without coord's URI. */
struct tls_plain_ca {
    const char *common_name; /* NULL: one like that of tls_ca_make */
    const char *uri;         /* NULL: none */
    const char *const
        *constraints; /* DNS names that it may sign for, and those below them; NULL-terminated; NULL: all */
};
int tls_ca_make_plain(struct slice key, const struct tls_plain_ca *ca, struct tls_life life, struct buffer *certificate,
                      struct fault *fault);
/* `server`, `client`: the extended uses. */
struct tls_plain_subject {
    const char *common_name;
    const char *const *names, *const *addresses; /* NULL-terminated; may be NULL */
    bool server, client;
};
/* Takes EC and RSA keys. The certificate alone, without the issuer's. */
int tls_issue_plain(const struct tls_issuer *by, struct slice key, const struct tls_plain_subject *subject,
                    struct tls_life life, struct buffer *certificate, struct fault *fault);

/* Reads the first certificate of a PEM text, or a DER one. */
int tls_certificate_read(struct slice text, struct tls_certificate *certificate, struct fault *fault);
/* How many certificates the PEM text has; 0: none, or it is no PEM. */
size_t tls_certificate_count(struct slice text);
/* The certificate at `index` of a PEM text, itself as PEM. */
int tls_certificate_at(struct slice text, size_t index, struct buffer *pem, struct fault *fault);
int tls_certificate_to_pem(struct slice der, struct buffer *pem, struct fault *fault);
int tls_certificate_to_der(struct slice pem, struct buffer *der, struct fault *fault);
/* The certificates that a node shows: its chain, and those by which older CAs signed the newer ones, from the chain's CA
 * back, as far as `cas` (PEM) has them. They are for whoever was away and knows only an older CA. In `cas` the
 * certificate of a CA comes before the one by which an older one signed it. Appends PEM. */
void tls_chain_shown(struct slice chain, struct slice cas, struct buffer *shown);
/* Does the key belong to the first certificate? */
int tls_pair_check(struct slice key, struct slice chain, struct fault *fault);

/* CAs, parsed once for many judgements. Immutable. Of a text that cannot be read, nobody is trusted. */
struct tls_trust;
struct tls_trust *tls_trust_make(struct slice pem);
void tls_trust_free(struct tls_trust *trust); /* NULL: nothing */

/* Judges what somebody showed in a handshake (DER, the node's own first). */
struct tls_rules {
    const struct tls_trust *trust; /* the CAs. A certificate that is itself among them is trusted, too */
    struct slice trusted;          /* where there is no `trust`: the same as PEM, parsed for this judgement */
    int64_t now_s;
    int64_t grace_s; /* an expired certificate is taken for so long; never one of a CA */
    bool as_server;  /* it acts as a TLS server: extended use serverAuth; else clientAuth */
};
enum tls_verdict {
    TLS_TRUSTED,
    TLS_UNKNOWN_CA,
    TLS_EXPIRED,
    TLS_NOT_YET,
    TLS_WRONG_USE,
    TLS_UNREADABLE,
};
#define TLS_CHAIN_MOST 10 /* certificates of a chain; a longer one is TLS_UNREADABLE */
/* `why` gets a line about it ("its certificate expired on 2026-11-02 10:00:00 UTC"), "" when it is trusted.
 * `certificate` is filled in whenever the first one can be read: believe it only when that is trusted. RSA keys below
 * 2048 bits and signatures over SHA-1 are TLS_UNKNOWN_CA. */
enum tls_verdict tls_judge(const struct tls_rules *rules, const struct slice *chain, size_t count,
                           struct tls_certificate *certificate, char why[160]);
/* Its DNS names, or its URIs, in the arena; those with a NUL are left out. Their number; 0 also where it cannot be read. */
enum tls_name { TLS_NAME_DNS, TLS_NAME_URI };
size_t tls_certificate_list(struct slice der, enum tls_name kind, struct arena *arena, struct slice **names);
/* Does one of its names (DNS, with a wildcard on the left; or IP) fit? */
bool tls_certificate_names(struct slice der, const char *host);

#endif
