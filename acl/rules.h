/* The rules of a policy: Consul's language (developer.hashicorp.com/consul/docs/security/acl/acl-rules), in HCL or in JSON.
 *
 *   acl = "read"                                 of acl, keyring, operator: the level alone
 *   key "a/b" { policy = "write" }               this name
 *   key_prefix "a/" { policy = "list" }          all names that begin so
 *   {"key_prefix": {"a/": {"policy": "list"}}}   the same in JSON, where each object may also stand in an array
 *
 * Resources are those of registry/access.h; levels are read, write, deny, and of keys also list. Text is JSON when it
 * begins with "{". Words may be in any case, levels and names are as they are.
 *
 * Refused, where Consul stores them in silence: unknown words, a rule without a name, one name with two levels. Words of
 * Consul for things that coord does not have (mesh, peering, namespace, intentions and sentinel in a block, ...) are taken,
 * without effect, and with a warning. */
#ifndef COORD_ACL_RULES_H
#define COORD_ACL_RULES_H

#include "registry/access.h"

#define RULES_TEXT_MOST     ((size_t)256 << 10)
#define RULES_WARNINGS_MOST 16

struct rule {
    enum access_resource resource;
    bool prefix;
    enum access_level level;
    struct slice name; /* as it is written; "" of a resource without names */
};

/* In the arena, as all that it points to. */
struct rules {
    struct rule *items; /* in the order of the text (of JSON: of its objects); none stands twice */
    size_t count;
    const char *warnings[RULES_WARNINGS_MOST]; /* a line each, for one word without effect and its first place */
    size_t warning_count;
};

/* An empty text has no rules. CO_INVALID, or CO_TOOLARGE, and a line with the place: `unknown word "keyz" (nearest:
 * "key") at line 3, column 1`. */
int rules_parse(struct slice text, struct arena *arena, struct rules *rules, struct fault *fault);

/* -- rules for a token that is being made (access_new; before access_seal) ------------------------------------------ */

void rules_add(const struct rules *rules, struct access *access);
/* Everything: Consul's policy global-management; `rules_management` says the same as a text. */
void rules_add_management(struct access *access);
extern const char rules_management[];
/* The service NAME and its sidecar NAME-sidecar-proxy: write; all services and nodes: read. */
void rules_add_service_identity(struct access *access, struct slice name);
/* The node NAME: write; all services: read. */
void rules_add_node_identity(struct access *access, struct slice name);

/* Rules as they were before Consul 1.4, where every name was a prefix: key "a" becomes key_prefix "a". Nothing else of
 * the text changes, comments too; it need not be valid as rules, only as HCL or JSON. Appends to `out`. */
int rules_translate(struct slice text, struct buffer *out, struct fault *fault);

#endif
