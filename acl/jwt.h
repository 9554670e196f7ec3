/* JSON Web Tokens (RFC 7519), signed (RFC 7515, compact form): what a login by the auth method `jwt` shows. Pure; time is
 * an argument. Nothing of a token is believed, used as a name or fetched before its signature is right; then its times,
 * issuer and audience are checked as Consul 1.8 does (internal/go-sso/oidcauth).
 *
 * Refused: alg none, HS256 and all that jwt_keys.h does not know; `crit`; names that stand twice; padding, blanks and
 * other bytes that make a second text of one token; keys, certificates and addresses in the header count as if they were
 * not there. */
#ifndef COORD_ACL_JWT_H
#define COORD_ACL_JWT_H

#include <json-c/json_object.h>

#include "acl/jwt_keys.h"
#include "base/memory.h"

#define JWT_TOKEN_MOST ((size_t)32 << 10)

/* The payload of a token whose signature is right, appended to `payload`. `algs`: those that are allowed, as bits
 * (1 << JWT_RS256); 0: all. Faults: CO_INVALID, CO_TOOLARGE: it is no token; CO_DENIED: no key's signature. */
int jwt_open(const struct jwt_keys *keys, unsigned algs, struct slice token, struct buffer *payload,
             struct fault *fault);

struct jwt_rules {
    unsigned algs;       /* as above */
    struct slice issuer; /* empty: any */
    const struct slice *audiences;
    size_t audience_count; /* 0: none is bound, and then a token must have no audience */
    int64_t now_s;         /* Unix time */
    /* 0: 150, 150, 60 s; below 0: none */
    int64_t expiration_leeway_s, not_before_leeway_s, clock_skew_leeway_s;
};

/* The claims of a token that is right and that these rules accept; release them with json_object_put().
 *
 * A token needs one of exp, nbf, iat at least. Without exp it ends the expiration leeway after the later of nbf and iat.
 * Without nbf it begins with iat; without both it begins the not-before leeway ahead of its end. Clocks may differ by the
 * clock skew: at most so long after exp, and so long before nbf and iat, a token is accepted.
 *
 * Faults: as jwt_open, and CO_DENIED with the rule that it breaks. The text has nothing of the token. */
int jwt_verify(const struct jwt_keys *keys, const struct jwt_rules *rules, struct slice token,
               struct json_object **claims, struct fault *fault);

/* -- claims become variables -------------------------------------------------------------------------------------- */

/* A claim by its name, or by a JSON pointer (RFC 6901) when that begins with "/", and the variable that it becomes. */
struct jwt_mapping {
    const char *claim, *name;
};
struct jwt_value {
    const char *name;  /* the mapping's */
    struct slice text; /* in the arena */
};
struct jwt_list {
    const char *name;
    struct slice *items; /* without empty texts */
    size_t count;
};
struct jwt_variables {
    struct jwt_value *values;
    struct jwt_list *lists;
    size_t value_count, list_count; /* claims that are not there, or null, are left out */
};

/* Text stays as it is, true and false are these words, numbers are whole (a fraction is cut off). In a list mapping a
 * claim that is no list counts as a list of one. CO_INVALID: a claim is an object, a list in the first kind of mappings, or
 * a number beyond 64 bits; the line names the mapping. */
int jwt_map(struct json_object *claims, const struct jwt_mapping *values, size_t value_count,
            const struct jwt_mapping *lists, size_t list_count, struct arena *arena, struct jwt_variables *variables,
            struct fault *fault);

#endif
