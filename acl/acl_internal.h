/* Inside the module of access control: its tables, and functions that its files share. */
#ifndef COORD_ACL_INTERNAL_H
#define COORD_ACL_INTERNAL_H

#include "acl/acl.h"
#include "base/message.h"

enum acl_table {
    ACL_TABLE = 56,        /* by the first byte (enum acl_row) */
    ACL_TOKEN_TABLE = 57,  /* accessor -> AclToken */
    ACL_SECRET_TABLE = 58, /* hash of the secret -> accessor */
    ACL_LINK_TABLE = 59,   /* kind (enum acl_link), what is linked to, who links -> nothing */
};
_Static_assert(ACL_TABLE >= 56 && ACL_LINK_TABLE < 62, "tables of acl (registry/module.h)");

enum acl_row {
    ACL_ROW_STATE = 1,   /* -> AclState */
    ACL_ROW_POLICY,      /* id -> AclPolicy */
    ACL_ROW_POLICY_NAME, /* name in lower case -> id */
    ACL_ROW_ROLE,        /* id -> AclRole */
    ACL_ROW_ROLE_NAME,   /* name in lower case -> id */
    ACL_ROW_METHOD,      /* name in lower case -> AclAuthMethod */
    ACL_ROW_RULE,        /* id -> AclBindingRule */
};
enum acl_link {
    ACL_LINK_TOKEN_POLICY = 1, /* policy, token */
    ACL_LINK_TOKEN_ROLE,       /* role, token */
    ACL_LINK_TOKEN_METHOD,     /* method in lower case, token */
    ACL_LINK_ROLE_POLICY,      /* policy, role */
    ACL_LINK_METHOD_RULE,      /* method in lower case, rule */
};

/* -- acl_store.c ---------------------------------------------------------------------------------------------------- */
extern const struct slice acl_everything; /* the name "" */
#define ACL_KEY_ROOM (2 + ACL_ROLE_NAME_MAX)
/* The key of a row; names are folded. `name` has at most ACL_ROLE_NAME_MAX bytes. */
struct slice acl_row_key(enum acl_row row, struct slice name, char room[ACL_KEY_ROOM]);
/* A record, in the arena. CO_NOTFOUND: *message is NULL; CO_CORRUPT. */
int acl_get(struct store_txn *txn, enum acl_row row, struct slice name, const ProtobufCMessageDescriptor *type,
            struct arena *arena, void *message);
void acl_put(struct machine_tx *tx, enum acl_row row, struct slice name, const ProtobufCMessage *message);
void acl_remove(struct machine_tx *tx, enum acl_row row, struct slice name);
size_t acl_count(struct store_txn *txn, enum acl_row row);
/* The id that a name (in any case) stands for, in the arena. CO_NOTFOUND. */
int acl_name_find(struct store_txn *txn, enum acl_row row, struct slice name, struct arena *arena, struct slice *id);
void acl_name_put(struct machine_tx *tx, enum acl_row row, struct slice name, struct slice id);
/* A link, for look-up: put, or removed. `to` of methods: folded here. */
void acl_link_set(struct machine_tx *tx, enum acl_link kind, const char *to, const char *from, bool there);
/* The ids of those that link to it, in the arena. */
struct acl_ids {
    struct slice *items;
    size_t count;
};
struct acl_ids acl_linked(struct store_txn *txn, enum acl_link kind, const char *to, struct arena *arena);
/* The module has changed: this space, and all. */
void acl_changed(struct machine_tx *tx, enum acl_space space);
/* One more item of a list in the arena. */
#define ACL_APPEND(arena, items, count, item)                                              \
    do {                                                                                   \
        size_t n_ = (count);                                                               \
        if ((n_ & (n_ - 1)) == 0) {                                                        \
            typeof(items) more_ = arena_alloc((arena), (n_ ? 2 * n_ : 1) * sizeof *more_); \
            if (n_) memcpy(more_, (items), n_ * sizeof *more_);                            \
            (items) = more_;                                                               \
        }                                                                                  \
        (items)[(count)++] = (item);                                                       \
    } while (0)

/* -- acl_links.c ---------------------------------------------------------------------------------------------------- */
/* The grants that tokens and roles have in common. The fields are those of a record, and changed in place. */
struct acl_grants {
    Pb__AclLink ***policies, ***roles; /* roles: NULL for a role */
    size_t *n_policies, *n_roles;
    Pb__AclServiceIdentity ***services;
    size_t *n_services;
    Pb__AclNodeIdentity ***nodes;
    size_t *n_nodes;
    bool local;
};
struct acl_grants acl_token_grants(Pb__AclToken *token);
struct acl_grants acl_role_grants(Pb__AclRole *role);
/* Makes them those of a record: ids instead of names, each once, and identities of one service as one. CO_OK; CO_CORRUPT.
 * `*fault`: why they are refused; in the tx arena. */
int acl_grants_settle(struct machine_tx *tx, const struct acl_grants *grants, const char *noun, const char **fault);
/* The digest of a record (Hash). `content`: a copy of it without the fields that do not count. */
ProtobufCBinaryData acl_digest(struct arena *arena, const ProtobufCMessage *content);

/* -- acl_token.c ---------------------------------------------------------------------------------------------------- */
int acl_key_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_bootstrap_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_reset_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_token_set_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_login_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_token_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_logout_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_token_end_apply(struct machine_tx *tx, void *request, struct machine_result *result);
/* Stores it; `old`: the record before, or NULL. */
void acl_token_put(struct machine_tx *tx, Pb__AclToken *token, const Pb__AclToken *old);
void acl_token_remove(struct machine_tx *tx, const Pb__AclToken *token);
/* For the table of deadlines, which counts 292 years at most. */
int64_t acl_period_ns(int64_t left_ms);
/* The state's record. Refuses the command when there is none (CO_AGAIN). CO_OK: look at result->error; CO_CORRUPT. */
int acl_begun(struct machine_tx *tx, Pb__AclState **state, struct machine_result *result);

/* -- acl_policy.c, acl_method.c ------------------------------------------------------------------------------------- */
int acl_policy_set_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_policy_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_role_set_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_role_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result);
void acl_policy_builtin(struct machine_tx *tx);
int acl_method_set_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_method_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_rule_set_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int acl_rule_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result);

#endif
