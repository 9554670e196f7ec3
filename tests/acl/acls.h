/* Steps on a state machine with access control, for the tests of this folder. Things have numbers: their ids and names are
 * made of those. */
#ifndef COORD_TESTS_ACL_ACLS_H
#define COORD_TESTS_ACL_ACLS_H

#include "acl/acl.h"
#include "tests/lib/fixture.h"

#define NAMES_MOST 4
struct acls {
    struct fixture f;
    struct acl_key *key;
    struct arena arena; /* of commands; emptied with each */
};
void acls_open(struct acls *a);  /* access control has begun, with a key that is this process's, too */
void acls_begin(struct acls *a); /* ACL_KEY again, on an opened fixture */
void acls_close(struct acls *a);

const char *acls_id(char kind, unsigned number); /* a UUID; static room, four at a time */

struct policy_spec {
    const char *name, *rules, *description, *datacenter; /* NULL: none */
    bool change;                                         /* of one that is there */
};
struct outcome acls_policy(struct acls *a, unsigned number, struct policy_spec spec);
struct outcome acls_policy_delete(struct acls *a, unsigned number);

/* The grants of a token or role. Lists end with NULL. */
struct grants_spec {
    const char *policies[NAMES_MOST], *policy_names[NAMES_MOST], *roles[NAMES_MOST]; /* ids; names */
    const char *services[NAMES_MOST], *service_dc;                                   /* service_dc: of all of them */
    const char *nodes[NAMES_MOST], *node_dc;
};
struct role_spec {
    const char *name;
    struct grants_spec grants;
    bool change;
};
struct outcome acls_role(struct acls *a, unsigned number, struct role_spec spec);
struct outcome acls_role_delete(struct acls *a, unsigned number);

struct token_spec {
    const char *accessor, *secret; /* NULL: made of the number; secret "": none, for a change */
    const char *description, *method;
    struct grants_spec grants;
    bool change, local, login;
    int64_t ttl_ms;
    uint64_t expiration_ms;
    const struct acl_key *key; /* NULL: the right one */
};
struct outcome acls_token(struct acls *a, unsigned number, struct token_spec spec);
struct outcome acls_token_delete(struct acls *a, unsigned number, bool logout);
struct outcome acls_token_end(struct acls *a, unsigned number, uint64_t index, uint64_t term);
const char *acls_secret(unsigned number);

struct outcome acls_bootstrap(struct acls *a, unsigned number);
struct outcome acls_reset(struct acls *a, uint64_t index, bool new_key);

struct outcome acls_method(struct acls *a, const char *name, const char *type, int64_t max_ttl_ms);
struct outcome acls_method_delete(struct acls *a, const char *name);
struct outcome acls_rule(struct acls *a, unsigned number, const char *method, const char *bind_type, bool change);
struct outcome acls_rule_delete(struct acls *a, unsigned number);

/* Results, valid until the next query; NULL: not found. */
const Pb__AclTokenResult *acls_read_token(struct acls *a, unsigned number);
const Pb__AclTokenResult *acls_read_self(struct acls *a, const char *secret);
const Pb__AclTokensResult *acls_read_tokens(struct acls *a, const char *policy, const char *role, const char *method);
const Pb__AclPolicy *acls_read_policy(struct acls *a, const char *id, const char *name);
const Pb__AclRole *acls_read_role(struct acls *a, unsigned number);
const Pb__AclState *acls_read_state(struct acls *a);
struct store_txn *acls_begin_read(struct acls *a); /* for other reads; results of before are invalid */
void acls_end_read(struct acls *a);
uint64_t acls_changes(struct acls *a); /* the last change of all; likewise */
uint64_t acls_index(struct acls *a, enum acl_space space, const char *name);

/* Did a command fail like this? Says it, if not. */
bool acls_refused(struct outcome outcome, int error, const char *text);

/* In tests. */
#define OK(outcome_)                                                                           \
    ({                                                                                         \
        struct outcome ok_ = (outcome_);                                                       \
        cr_assert(ok_.error == CO_OK && ok_.yes, "%d %s: %s", ok_.error, ok_.text, #outcome_); \
        ok_;                                                                                   \
    })
#define REFUSED(outcome_, error_, text_) cr_expect(acls_refused((outcome_), (error_), (text_)), "%s", #outcome_)

#endif
