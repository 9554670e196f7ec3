/* How this process protects its connections with other processes of coord, and whom it takes for whom. One object a
 * process, which everybody who dials or listens shares. The agent sets it (agent/certificates.h) whenever certificates,
 * configuration or the cluster's mode change; connections are judged again then (security_generation).
 *
 * In a cluster with certificates of its own (SECURITY_CLUSTER) the certificate says who somebody is: the name in the
 * hello has to be the certificate's, and only a server's certificate makes a server. With certificates of another CA
 * Consul's rules hold. A shared key keeps others out and says nothing about who somebody is.
 *
 * Protocols on the port (ALPN): members speak SECURITY_MEMBER. Others come for a certificate and may do nothing else
 * (rpc/wire/enrol.h). Any thread. */
#ifndef COORD_RPC_SECURITY_H
#define COORD_RPC_SECURITY_H

#include "rpc/wire/link.h"
#include "rpc/wire/peer.pb-c.h"
#include "tls/certificate.h"
#include "tls/context.h"

#define SECURITY_MEMBER "coord/1"
#define SECURITY_JOIN   "coord-join/1"   /* with a join token, no certificate */
#define SECURITY_RENEW  "coord-renew/1"  /* with a certificate, which may have expired */
#define SECURITY_SECURE "coord-secure/1" /* without any, while an open cluster is being closed */

#define SECURITY_GRACE_S     (30 * 24 * 3600) /* so long after its end a certificate may still be renewed */
#define SECURITY_WHY         224
#define SECURITY_REGIONS_MAX 64

enum security_kind {
    SECURITY_OPEN,       /* plain */
    SECURITY_SHARED_KEY, /* Consul's `encrypt` */
    SECURITY_OWN_CA,     /* ca_file, cert_file, key_file */
    SECURITY_CLUSTER,    /* the cluster's own CA */
};

/* Another region whose CA is trusted, by an operator's word. */
struct security_region {
    char name[64], domain[TLS_DOMAIN_SIZE + 1];
};

struct security_rules {
    enum security_kind kind;
    bool takes_plain;    /* plain connections are taken, too */
    bool dials_plain;    /* it dials without TLS: it has no certificate yet, or verify_outgoing is off */
    bool asks_clients;   /* who connects has to show a certificate */
    bool checks_servers; /* verify_server_hostname: a server's certificate has the name server.REGION.DNS_DOMAIN */
    bool secures; /* an open cluster is being closed: nodes without certificate may come for one (SECURITY_SECURE) */
    char domain[TLS_DOMAIN_SIZE + 1];     /* trust domain, of SECURITY_CLUSTER */
    char datacenter[64], dns_domain[256]; /* datacenter: the name of this region */
    size_t region_count;
    struct security_region regions[SECURITY_REGIONS_MAX];
};

struct security;
struct security *security_new(void); /* SECURITY_OPEN */
void security_free(struct security *security);
/* The CAs of a trust domain, as PEM. */
struct security_anchor {
    char domain[TLS_DOMAIN_SIZE + 1];
    struct slice cas;
};
/* Takes over the caller's reference of `context` (NULL: none). `anchors`: of this cluster and of the regions that are
 * trusted, where more than one CA is in the context; copied. */
void security_set(struct security *security, const struct security_rules *rules, struct tls_context *context);
void security_set_anchored(struct security *security, const struct security_rules *rules, struct tls_context *context,
                           const struct security_anchor *anchors, size_t count);
void security_get(struct security *security, struct security_rules *rules);
struct tls_slot *security_slot(struct security *security); /* lives as long as `security` */
/* Grows with each security_set, and when plain connections of before may stay no more (security_keeps_plain). */
uint64_t security_generation(const struct security *security);
/* An open cluster was closed a moment ago: plain connections that stood then may still be used, for SECURITY_KEEPS_MS, so that
 * what is under way on them ends well while they are replaced. */
#define SECURITY_KEEPS_MS 10000
bool security_keeps_plain(const struct security *security);

/* How to dial a member; false: plain. `link` is valid until the next security_set. `security` NULL: open. */
bool security_dial(struct security *security, struct link_security *link);
/* An open cluster is being closed: an encrypted connection is tried first, a plain one where that fails, and plain ones are
 * replaced as soon as the other side can. */
bool security_mixed(struct security *security);
/* How to take connections; false: plain ones only. A plain side that is not taken is told so by a frame of
 * `refusal_type`. */
bool security_accept(struct security *security, uint8_t refusal_type, struct link_security *link);

/* A connection, when a hello comes over it. */
struct security_seen {
    bool dialled, encrypted;
    bool kept;                                 /* it stood before the cluster was closed, and security_keeps_plain */
    const struct tls_certificate *certificate; /* NULL: none was shown */
    struct slice der;                          /* its bytes */
    bool foreign; /* it is signed by a CA that is trusted, but not as that of the cluster that it names */
};
/* `security` NULL: open. Checks that the certificate is signed by the CA of the very cluster that it names. */
struct security_seen security_see(struct security *security, struct link *link);
/* Pure. May the other side be who its hello says? NULL: it may; else a line about it ("its certificate is ..."), in
 * `why`. */
const char *security_judge(const struct security_rules *rules, const struct security_seen *seen,
                           const Pb__PeerHello *hello, char why[SECURITY_WHY]);
/* The same for the other end of a connection that was dialled, before anything is said: it has to be a server.
 * `region`: the region that was dialled; NULL: this one. */
const char *security_judge_dialled(const struct security_rules *rules, const struct security_seen *seen,
                                   const char *region, char why[SECURITY_WHY]);

#endif
