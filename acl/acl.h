/* The replicated state of access control: tokens, policies, roles, auth methods and binding rules, as Consul 1.8 has them.
 * A module of the state machine. It keeps no secret: of a token's secret the state has a keyed hash, for look-up, and the
 * secret sealed for those who may read it. The key lives beside Raft (acl/key.h).
 *
 * The first entry is ACL_KEY: the leader notes the id of the key that all servers are to use. It also makes the builtin
 * policy and the anonymous token. Without it there is no access control state, and no other command counts.
 *
 * (1) Tokens and roles name policies and roles by their ids, so that those can be renamed. Links to deleted ones are left
 *     out when they are read (acl_links_fill). A command names only what is there.
 * (2) Names of policies, of roles and of auth methods are unique without regard to case.
 * (3) A token's hash was made with the state's key, or the command is refused. A token keeps its accessor, secret, auth
 *     method, locality and end for life.
 * (4) A bootstrap is possible once, and once more after each reset. A reset may also give the key up, for when it is lost.
 * (5) The end of a token's life counts for the token that it was proposed for, and in the term in which it was proposed.
 * (6) Whoever is asked judges the time of a token by himself: a token counts no more from its end on, deleted or not.
 *
 * Rules of policies are texts here; only acl/rules.h knows them, so that another program with other rules comes to the same
 * state. Bounds of TTLs, and the content of auth methods and selectors, are checked by those who make commands.
 *
 * A restore of a backup keeps the present state of this module if it was ever bootstrapped
 * (docs/decisions/acl-restore.md). */
#ifndef COORD_ACL_ACL_H
#define COORD_ACL_ACL_H

#include "acl/acl.pb-c.h"
#include "acl/key.h"
#include "registry/machine.h"

enum acl_command {
    ACL_KEY = 224,
    ACL_BOOTSTRAP,
    ACL_RESET,
    ACL_TOKEN_SET,
    ACL_TOKEN_DELETE,
    ACL_TOKEN_END,
    ACL_POLICY_SET,
    ACL_POLICY_DELETE,
    ACL_ROLE_SET,
    ACL_ROLE_DELETE,
    ACL_METHOD_SET,
    ACL_METHOD_DELETE,
    ACL_RULE_SET,
    ACL_RULE_DELETE,
    ACL_LOGIN, /* a token that an auth method makes: whoever proposes it has judged the login */
    ACL_LOGOUT,
};
enum acl_space {
    SPACE_ACL_ALL = 120, /* name "": every change of this module */
    SPACE_ACL_TOKEN,     /* by accessor */
    SPACE_ACL_TOKENS,    /* name "", as of those that follow */
    SPACE_ACL_POLICIES,
    SPACE_ACL_ROLES,
    SPACE_ACL_METHODS,
    SPACE_ACL_RULES,
};
_Static_assert(ACL_KEY >= 224 && ACL_LOGOUT < 240, "commands of acl (registry/module.h)");
_Static_assert(SPACE_ACL_ALL >= 120 && SPACE_ACL_RULES < 128, "spaces of acl");

#define ACL_MANAGEMENT_ID   "00000000-0000-0000-0000-000000000001"
#define ACL_MANAGEMENT_NAME "global-management"
#define ACL_ANONYMOUS_ID    "00000000-0000-0000-0000-000000000002"
#define ACL_ANONYMOUS       "anonymous" /* a secret that stands for none */

#define ACL_TOKENS_MAX      262144
#define ACL_POLICIES_MAX    16384
#define ACL_ROLES_MAX       16384
#define ACL_METHODS_MAX     256
#define ACL_RULES_MAX       4096
#define ACL_NAME_MAX        128 /* of a policy or auth method */
#define ACL_ROLE_NAME_MAX   256
#define ACL_IDENTITY_MAX    256  /* name of a service or node */
#define ACL_TEXT_MAX        4096 /* descriptions, selectors, names to bind */
#define ACL_POLICY_TEXT_MAX 262144
#define ACL_CONFIG_MAX      262144              /* of an auth method */
#define ACL_TIME_MOST_MS    ((uint64_t)1 << 47) /* of ends and TTLs: thousands of years */
#define ACL_LINKS_MAX       256                 /* of each kind, of a token or role */

extern const struct module acl_module;
extern const struct expiry_kind acl_token_expiry;

/* Single things: not found means that there is none. */
extern const struct query_type query_acl_token;      /* AclTokenRequest -> AclTokenResult */
extern const struct query_type query_acl_token_self; /* AclTokenSelfRequest -> AclTokenResult */
extern const struct query_type query_acl_tokens;     /* AclTokensRequest -> AclTokensResult */
extern const struct query_type query_acl_policy;     /* AclPolicyRequest -> AclPolicy */
extern const struct query_type query_acl_policies;   /* AclPoliciesRequest -> AclPoliciesResult */
extern const struct query_type query_acl_role;       /* AclRoleRequest -> AclRole */
extern const struct query_type query_acl_roles;      /* AclRolesRequest -> AclRolesResult */
extern const struct query_type query_acl_method;     /* AclMethodRequest -> AclAuthMethod */
extern const struct query_type query_acl_methods;    /* AclMethodsRequest -> AclMethodsResult */
extern const struct query_type query_acl_rule;       /* AclRuleRequest -> AclBindingRule */
extern const struct query_type query_acl_rules;      /* AclRulesRequest -> AclRulesResult */
extern const struct query_type query_acl_state; /* AclStateRequest -> AclState; not found: there was no ACL_KEY yet */
/* AclChangesRequest -> AclChanges: for those who keep verdicts. It tells nothing but that something has changed. */
extern const struct query_type query_acl_changes;
/* AclResolveRequest -> AclResolved. Not found: no such token, or its time is over by this process's clock. */
extern const struct query_type query_acl_resolve;

/* -- reading -------------------------------------------------------------------------------------------------------- */
/* Records, in the arena. CO_NOTFOUND: *record is NULL; CO_CORRUPT. */
int acl_state_read(struct store_txn *txn, struct arena *arena, Pb__AclState **state);
int acl_token_read(struct store_txn *txn, struct slice accessor, struct arena *arena, Pb__AclToken **token);
int acl_token_find(struct store_txn *txn, const uint8_t hash[ACL_HASH_SIZE], struct arena *arena, Pb__AclToken **token);
int acl_policy_read(struct store_txn *txn, struct slice id, struct arena *arena, Pb__AclPolicy **policy);
int acl_role_read(struct store_txn *txn, struct slice id, struct arena *arena, Pb__AclRole **role);
int acl_method_read(struct store_txn *txn, struct slice name, struct arena *arena, Pb__AclAuthMethod **method);

/* The token that a secret belongs to: none, "anonymous" and the empty secret are the anonymous token. `key` NULL: CO_AGAIN
 * for other secrets. CO_NOTFOUND; CO_CORRUPT. */
int acl_secret_find(struct store_txn *txn, const struct acl_key *key, struct slice secret, struct arena *arena,
                    Pb__AclToken **token);

/* Drops links to what is not there any more, and fills in the names of the others (1). */
int acl_links_fill(struct store_txn *txn, Pb__AclLink **links, size_t *count, bool roles, struct arena *arena);

/* -- making commands ------------------------------------------------------------------------------------------------ */
/* Is it one of the builtin ids, which nobody can take for a token, policy or role? */
bool acl_reserved(struct slice id);
/* Sets hash and sealed secret of a token whose accessor is set; in the arena. */
void acl_token_secret(Pb__AclToken *token, const struct acl_key *key, struct slice secret, struct arena *arena);
/* The first token, with all rights; in the arena. `secret`: of a configuration, or one that was drawn. */
Pb__AclBootstrapCommand *acl_bootstrap(const struct acl_key *key, const char *accessor, const char *description,
                                       struct slice secret, struct arena *arena);
/* The fault of a name, in Consul's words; NULL: it has none. Static. */
const char *acl_name_fault(const char *name, size_t most);
const char *acl_identity_fault(const char *name);

#endif
