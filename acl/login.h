/* A login: from what somebody shows, by an auth method and its binding rules, to what the new token may do. Only `jwt` is there
 * (acl/jwt.h). Pure; time is an argument.
 *
 * Config, as in Consul: JWTValidationPubKeys (PEM), JWTSupportedAlgs, BoundIssuer, BoundAudiences, ClaimMappings and
 * ListClaimMappings ({"claim": "name"}), ExpirationLeeway, NotBeforeLeeway, ClockSkewLeeway; and JWKS, a document of keys (RFC
 * 7517). Keys are never fetched: JWKSURL and OIDCDiscoveryURL are refused. */
#ifndef COORD_ACL_LOGIN_H
#define COORD_ACL_LOGIN_H

#include "acl/acl.h"
#include "acl/jwt.h"

/* Before a method or a rule is stored. CO_INVALID and a line. */
int acl_login_check(const Pb__AclAuthMethod *method, struct fault *fault);
int acl_login_check_rule(const Pb__AclAuthMethod *method, const Pb__AclBindingRule *rule, struct fault *fault);

/* CO_DENIED, CO_INVALID, CO_TOOLARGE and a line, which has nothing of what was shown. May take a millisecond. */
int acl_login_verify(const Pb__AclAuthMethod *method, struct slice shown, int64_t now_s, struct arena *arena,
                     struct jwt_variables *variables, struct fault *fault);

/* Sets the roles (by name) and service identities that the fitting rules give; a role may be missing in the state. CO_DENIED: no
 * rule fits; CO_INVALID: one of them makes a bad name. */
int acl_login_bind(const Pb__AclAuthMethod *method, Pb__AclBindingRule *const *rules, size_t count,
                   const struct jwt_variables *variables, Pb__AclToken *token, struct arena *arena,
                   struct fault *fault);

#endif
