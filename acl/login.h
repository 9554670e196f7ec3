/* A login: from what somebody shows or proves, by an auth method and its binding rules, to what the new token may do. The types
 * are `jwt` (acl/jwt.h), where he shows a token of another issuer, and `unix` and `certificate` (acl/login_proof.h), where he
 * shows nothing. Pure; time is an argument.
 *
 * Config of `jwt`, as in Consul: JWTValidationPubKeys (PEM), JWTSupportedAlgs, BoundIssuer, BoundAudiences, ClaimMappings and
 * ListClaimMappings ({"claim": "name"}), ExpirationLeeway, NotBeforeLeeway, ClockSkewLeeway; and JWKS, a document of keys (RFC
 * 7517). Keys are never fetched: JWKSURL and OIDCDiscoveryURL are refused. */
#ifndef COORD_ACL_LOGIN_H
#define COORD_ACL_LOGIN_H

#include "acl/acl.h"
#include "acl/jwt.h"
#include "acl/login_proof.h"

/* Before a method or a rule is stored. CO_INVALID and a line. */
int acl_login_check(const Pb__AclAuthMethod *method, struct fault *fault);
int acl_login_check_rule(const Pb__AclAuthMethod *method, const Pb__AclBindingRule *rule, struct fault *fault);

struct login {
    struct slice shown;        /* the BearerToken; empty: none */
    const Pb__AclProof *proof; /* NULL: nothing was seen */
    struct slice cluster_cas;  /* PEM: where a method has no CACerts; empty: the cluster has none */
    int64_t now_s;             /* Unix time */
};
/* `proven` of `jwt` has variables alone, and `who` NULL. CO_DENIED, CO_INVALID, CO_TOOLARGE and a line, which has nothing of what
 * was shown. May take a millisecond. */
int acl_login_verify(const Pb__AclAuthMethod *method, const struct login *login, struct arena *arena,
                     struct proven *proven, struct fault *fault);
/* Of a login by a certificate: has the method no CAs of its own? */
bool acl_login_of_cluster(const Pb__AclAuthMethod *method);

/* Sets the roles (by name) and service identities that the fitting rules give; a role may be missing in the state. CO_DENIED: no
 * rule fits; CO_INVALID: one of them makes a bad name. */
int acl_login_bind(const Pb__AclAuthMethod *method, Pb__AclBindingRule *const *rules, size_t count,
                   const struct jwt_variables *variables, Pb__AclToken *token, struct arena *arena,
                   struct fault *fault);

#endif
