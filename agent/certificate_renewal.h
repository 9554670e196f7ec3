/* When a node of a cluster with certificates of its own gets a new certificate. Decides only: certificates, what the
 * cluster trusts and the time are arguments. The acting part is agent/cluster_identity.h.
 *
 * (1) A certificate is renewed from half of its life on, with jitter, so that nodes that joined at one moment do not renew
 *     at one moment.
 * (2) When another CA signs now than the one that signed this node's certificate, the node renews within `spread_s`, at a
 *     random moment, so that not all nodes do at once.
 * (3) A server that lacks the key of the CA that signs now comes for it at once, because renewals hand it over.
 * (4) An attempt that failed is repeated after a time that doubles from RETRY_LEAST_S to RETRY_MOST_S. So is one that did not
 *     bring what (2) and (3) want.
 * (5) A certificate that expired more than SECURITY_GRACE_S ago cannot be renewed: the node has to join anew. Nor can that of
 *     a node that was removed; it asks once a day all the same, because it may have been told so in error.
 *
 * Times are Unix seconds. A clock that was set back or ahead counts as what it says now. */
#ifndef COORD_AGENT_CERTIFICATE_RENEWAL_H
#define COORD_AGENT_CERTIFICATE_RENEWAL_H

#include "base/random.h"
#include "tls/certificate.h"

#define CERTIFICATE_RENEWAL_RETRY_LEAST_S 1
#define CERTIFICATE_RENEWAL_RETRY_MOST_S  300
#define CERTIFICATE_RENEWAL_REFUSED_S     (24 * 3600)

enum certificate_renewal_state {
    CERTIFICATE_RENEWAL_NONE, /* no certificate: an open cluster */
    CERTIFICATE_RENEWAL_GOOD,
    CERTIFICATE_RENEWAL_DUE,     /* renew it now */
    CERTIFICATE_RENEWAL_EXPIRED, /* too long ago: rule (5) */
    CERTIFICATE_RENEWAL_REFUSED, /* the cluster refuses to renew it: rule (5) */
};

struct certificate_renewal {
    struct rng rng;
    int64_t spread_s;
    bool has_certificate, has_ca, lacks_key, refused;
    struct tls_life life;
    uint8_t signed_by[TLS_PIN_SIZE], signs_now[TLS_PIN_SIZE];
    int64_t renew_s;   /* when the certificate is to be renewed */
    int64_t retry_s;   /* not before, after a failure; 0: none failed */
    unsigned failures; /* in a row */
};

void certificate_renewal_begin(struct certificate_renewal *renewal, uint64_t seed, int64_t spread_s);
/* This node has a certificate, which the CA with this pin signed. */
void certificate_renewal_certificate(struct certificate_renewal *renewal, struct tls_life life,
                                     const uint8_t signed_by[TLS_PIN_SIZE], int64_t now_s);
/* This CA signs now. `lacks_key`: this is a server, and does not have its key. */
void certificate_renewal_ca(struct certificate_renewal *renewal, const uint8_t pin[TLS_PIN_SIZE], bool lacks_key,
                            int64_t now_s);
enum certificate_renewal_state certificate_renewal_state(const struct certificate_renewal *renewal, int64_t now_s);
/* When certificate_renewal_state may have changed; INT64_MAX: never by itself. */
int64_t certificate_renewal_next_s(const struct certificate_renewal *renewal, int64_t now_s);
/* For (2) and (3) only a certificate of the CA that signs now is of use: a server that lacks its key is not to sign. False:
 * half of the life is over, and any is better than none. */
bool certificate_renewal_insists(const struct certificate_renewal *renewal, int64_t now_s);
/* A renewal handed over the key of this CA. A server that is behind hands over that of the CA of before: it must not take
 * the place of the new one, which this server may be the only one to have. `has_one`: it has the key of some CA. */
bool certificate_renewal_takes_key(const struct certificate_renewal *renewal, bool has_one,
                                   const uint8_t pin[TLS_PIN_SIZE]);
/* The outcome of an attempt. Of one that succeeded after certificate_renewal_certificate was called, and
 * certificate_renewal_ca if it brought the key. */
void certificate_renewal_succeeded(struct certificate_renewal *renewal, int64_t now_s);
void certificate_renewal_failed(struct certificate_renewal *renewal, bool for_good, int64_t now_s);

#endif
