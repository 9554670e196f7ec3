/* The rights of a request (registry/access.h) from its token's secret. On a server from the state; on a client agent from a
 * server's answer to query_acl_resolve (acl/acl.h). Everything is a function of the state and the time.
 *
 * A token has the rules of its policies, of the policies of its roles, and of the identities of both, as far as they count
 * in the datacenter. The builtin policy gives everything. A policy that does not compile denies the whole token, because it
 * may have forbidden something.
 *
 * Threads: an access that comes from here is sealed, and the caller's to release. A cache is for one thread. */
#ifndef COORD_ACL_RESOLVE_H
#define COORD_ACL_RESOLVE_H

#include "acl/acl.h"

struct resolve_settings {
    const char *datacenter;      /* where the request is judged */
    enum access_level otherwise; /* acl.default_policy */
};
struct resolved {
    struct access *access;
    uint64_t expires_ms; /* Unix time from which on it counts no more; 0: never */
};

/* From a read transaction. Errors: CO_NOTFOUND: no such token, or its time is over at `now_ms` (Unix time); CO_AGAIN: there
 * is no `key` to find it by; CO_INVALID: a policy does not compile (`fault` names it); CO_CORRUPT, CO_IO. */
int resolve_secret(struct store_txn *txn, const struct acl_key *key, struct slice secret,
                   const struct resolve_settings *settings, uint64_t now_ms, struct resolved *out, struct fault *fault);
int resolve_accessor(struct store_txn *txn, struct slice accessor, const struct resolve_settings *settings,
                     uint64_t now_ms, struct resolved *out, struct fault *fault);
/* Of a request without a token. Before access control has begun (ACL_KEY) only the default counts. Never CO_NOTFOUND. */
int resolve_anonymous(struct store_txn *txn, const struct resolve_settings *settings, struct resolved *out,
                      struct fault *fault);

/* acl.tokens.agent_master, at the agent that it is configured for and nowhere else: its agent:write, and node:read. */
struct access *resolve_agent_master(const char *node, enum access_level otherwise);
/* A client agent, by its certificate: its node, agent and sessions:write; quotas:write, because it takes shares of budgets
 * for its programs, and settles them; services and nodes:read. The accessor is "node:NAME". */
struct access *resolve_node(const char *node, enum access_level otherwise);
/* A server, by its certificate. */
static inline const struct access *resolve_server(void) { return access_all; }

/* -- for another process -------------------------------------------------------------------------------------------- */
/* In the arena, but for the access's texts, which live as long as it does. */
Pb__AclResolved *resolve_pack(const struct resolved *resolved, uint64_t index, struct arena *arena);
/* Rules for resources that this program does not know are left out: nothing here asks for them. CO_CORRUPT: it makes no
 * sense. */
int resolve_unpack(const Pb__AclResolved *packed, enum access_level otherwise, struct resolved *out);

#endif
