/* The members of the cluster: the CAs that it trusts, the join tokens, and the certificates of its nodes. Every machine
 * has this module. It keeps no secret: CA keys and the key of the tokens' hashes live beside Raft (tls/folder.h).
 *
 * An open cluster has no record (trust_mode OPEN). `coord init` makes a closed one, `coord secure` closes a running one
 * by way of BOTH.
 *
 * A certificate counts for a node when a trusted CA signed it (tls_judge), and this state does not speak against it:
 *
 * (1) A node that was removed is refused, whatever its certificate says, until it joins anew with a token.
 * (2) Of a node with a record, only the key of its certificate counts. A node keeps its key when it renews, so renewals
 *     need no leader: a server signs, and the record follows when there is one.
 * (3) A node without a record is taken: certificates of a company's own CA are not noted.
 *
 * A restore of a backup keeps the present state of this module: neither join tokens nor removed nodes of then come
 * back. */
#ifndef COORD_REGISTRY_TRUST_H
#define COORD_REGISTRY_TRUST_H

#include "registry/machine.h"
#include "registry/trust.pb-c.h"

enum trust_command {
    TRUST_SET = 12,
    JOIN_TOKEN_CREATE = 13,
    JOIN_TOKEN_END = 14,
    TRUST_JOIN = 15,
    TRUST_RENEWED = 17,
    TRUST_REMOVE = 18,
};
enum { SPACE_TRUST = 10 }; /* name "": all of it */
_Static_assert(TRUST_SET >= 1 && TRUST_REMOVE < 32, "commands of the registry (registry/module.h)");
_Static_assert(SPACE_TRUST >= 1 && SPACE_TRUST < 32, "a space of the registry");

enum trust_mode {
    TRUST_OPEN,   /* port 8300 is plain */
    TRUST_BOTH,   /* an open cluster is being closed: both are taken, nodes get certificates */
    TRUST_CLOSED, /* only encrypted connections of nodes with certificates */
    TRUST_MODES
};

#define TRUST_CAS_MAX          8
#define TRUST_REGIONS_MAX      64
#define TRUST_REGION_NAME_MAX  63
#define TRUST_CERTIFICATES_MAX 262144
#define JOIN_TOKENS_MAX        1024
#define JOIN_TOKEN_TTL_MOST_NS (INT64_C(365) * 24 * 3600 * 1000000000)
#define TRUST_GLOB_MAX         128

extern const struct module trust_module;
extern const struct query_type query_trust;        /* TrustRequest -> Trust; not found: the cluster is open */
extern const struct query_type query_join_tokens;  /* JoinTokensRequest -> JoinTokensResult; hashes are left out */
extern const struct query_type query_certificates; /* CertificatesRequest -> CertificatesResult */
extern const struct expiry_kind join_token_expiry;

/* The record, in the arena; NULL: there is none. Errors are the transaction's. */
Pb__Trust *trust_read(struct store_txn *txn, struct arena *arena);

/* By the rules above. `why`: a line about the node ("it was removed from the cluster"), static; NULL where it counts. */
const char *trust_refuses(struct store_txn *txn, bool server, const char *node, struct slice pin);

/* Did the cluster give the node a certificate that still counts? */
bool trust_knows(struct store_txn *txn, bool server, const char *node);

/* Does the name fit the glob (* and ?)? Names count without regard to case, as in the catalog. */
bool trust_glob_fits(const char *glob, const char *node);

#endif
