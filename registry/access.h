/* The rights of a request. Every read and every write of the replicated state carries a `struct access`: the compiled rules of
 * the token (or certificate) that it came with. Modules ask it in one way, access_allows; nothing else decides.
 *
 * A rule gives a level for one name of a resource, or for all names that begin with a prefix:
 *
 * (1) A rule for exactly this name counts before prefixes; of prefixes the longest counts. The default level counts where
 *     no rule does.
 * (2) Of several rules for the same name (or the same prefix), from different policies, counts: deny, else write, else list,
 *     else read.
 * (3) Resources without names (acl, keyring, operator) have one rule, of the name ""; it counts whatever name is asked for.
 *
 * The rules and their order are Consul's (github.com/hashicorp/consul, acl/policy_merger.go and acl/policy_authorizer.go,
 * 1.8), with three resources of coord's own: lock (locks, elections, fences, barriers, phasers, hazards), quota and
 * rollout.
 *
 * Threads: an access does not change once it is sealed, and any thread may ask it, keep it and release it. */
#ifndef COORD_REGISTRY_ACCESS_H
#define COORD_REGISTRY_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

enum access_resource {
    ACCESS_ACL,
    ACCESS_AGENT,
    ACCESS_EVENT,
    ACCESS_KEY,
    ACCESS_KEYRING,
    ACCESS_LOCK,
    ACCESS_NODE,
    ACCESS_OPERATOR,
    ACCESS_QUERY,
    ACCESS_QUOTA,
    ACCESS_ROLLOUT,
    ACCESS_SERVICE,
    ACCESS_SESSION,
    ACCESS_RESOURCES
};
/* In ascending order of what they permit. */
enum access_level { ACCESS_DENY, ACCESS_READ, ACCESS_LIST, ACCESS_WRITE, ACCESS_LEVELS };

const char *access_resource_name(enum access_resource resource); /* "key" */
const char *access_level_name(enum access_level level);          /* "read" */
bool access_resource_parse(struct slice text, enum access_resource *resource);
bool access_level_parse(struct slice text, enum access_level *level);
bool access_resource_named(enum access_resource resource); /* false: rule (3) */
bool access_resource_folds(enum access_resource resource); /* names count without regard to case, as in the catalog */

/* -- making one --------------------------------------------------------------------------------------------------- */

struct access;
/* `otherwise`: the default level, of everything but acl. */
struct access *access_new(enum access_level otherwise);
/* Adds a rule; before access_seal. The name is copied. */
void access_add(struct access *access, enum access_resource resource, bool prefix, struct slice name,
                enum access_level level);
/* Its owner, for texts and the audit log; copied. `accessor`: a token's accessor ID, or "node:NAME". */
void access_name(struct access *access, const char *accessor, const char *description);
void access_seal(struct access *access);

struct access *access_keep(const struct access *access);
void access_release(const struct access *access); /* accepts NULL */

/* Everything is allowed: coord's own work, and all requests while there is no access control. Keeping and releasing it does
 * nothing. */
extern const struct access *const access_all;
static inline bool access_is_all(const struct access *access) { return access == access_all; }

/* -- asking it ---------------------------------------------------------------------------------------------------- */

enum access_level access_level_of(const struct access *access, enum access_resource resource, struct slice name);
static inline bool access_allows(const struct access *access, enum access_resource resource, struct slice name,
                                 enum access_level least) {
    return access_is_all(access) || access_level_of(access, resource, name) >= least;
}
/* At least this level for every name that begins with the prefix. */
bool access_allows_below(const struct access *access, enum access_resource resource, struct slice prefix,
                         enum access_level least);
/* Is there a name for which it has this level? */
bool access_allows_some(const struct access *access, enum access_resource resource, enum access_level least);

const char *access_accessor(const struct access *access);    /* "" for access_all */
const char *access_description(const struct access *access); /* "" */
/* Equal for two accesses that see the same, because their rules are the same: the key of answers that are shared. 0 only for
 * access_all. */
uint64_t access_view(const struct access *access);

/* The rules in order, for people and for packing: calls `each` for every rule; the default first, with `resource`
 * ACCESS_RESOURCES. */
void access_each(const struct access *access, void *data,
                 void (*each)(void *data, enum access_resource resource, bool prefix, struct slice name,
                              enum access_level level));

/* -- one check ---------------------------------------------------------------------------------------------------- */

/* For the functions of modules that judge a command (module_command.may) or reduce the result of a query
 * (query_type.show). They answer CO_OK, or CO_DENIED after a check that failed; `missing` then says which. */
struct access_check {
    const struct access *access;
    struct arena *arena;
    size_t hidden; /* out: rows that were left out of the result */
    struct access_missing {
        enum access_resource resource;
        enum access_level level;
        bool below; /* for all names that begin with `name` */
        struct slice name;
    } missing; /* out; the name lives in the arena */
};
/* CO_OK, or CO_DENIED with `missing` set. */
int access_require(struct access_check *check, enum access_resource resource, struct slice name,
                   enum access_level least);
int access_require_below(struct access_check *check, enum access_resource resource, struct slice prefix,
                         enum access_level least);
/* For rows of a list: false counts it as hidden. */
static inline bool access_shows(struct access_check *check, enum access_resource resource, struct slice name) {
    if (access_allows(check->access, resource, name, ACCESS_READ)) return true;
    check->hidden++;
    return false;
}
/* A question. */
struct access_want {
    enum access_resource resource;
    struct slice name;
    enum access_level least;
};

/* "key:write on \"a/b\"" */
void access_missing_print(const struct access_missing *missing, struct buffer *out);

/* Keeps those of a message's repeated field (pointers to rows) for which SHOWN holds, which names the row `row`. */
#define ACCESS_KEEP_ROWS(count, rows, shown)      \
    do {                                          \
        size_t kept_ = 0;                         \
        for (size_t i_ = 0; i_ < (count); i_++) { \
            typeof(*(rows)) row = (rows)[i_];     \
            if (shown) (rows)[kept_++] = row;     \
        }                                         \
        (count) = kept_;                          \
    } while (0)

#endif
