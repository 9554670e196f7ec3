/* Budgets in the world of this folder, as commands and queries in one line. */
#ifndef COORD_TESTS_KV_QUOTAS_H
#define COORD_TESTS_KV_QUOTAS_H

#include "answers.h"
#include "kv/quota/quota.h"

/* A cluster that has quotas, and the nodes n1, n2 and n3. */
void quotas_open(struct fixture *world);

/* A budget of 1000 that gets 100 each second; of a window when that is set. One agent may hold all of it. */
Pb__QuotaDefinition quota_plain(const char *name, Pb__QuotaMode mode);
struct outcome quota_put(struct fixture *world, const Pb__QuotaDefinition *definition);
void quota_define(struct fixture *world, const char *name, Pb__QuotaMode mode); /* the plain one */
struct outcome quota_delete(struct fixture *world, const char *name);

/* One ask. The grant is valid until the next query or command; NULL: the command was refused (*outcome says why; it may be
 * NULL). `make`: the session is made, of node n1. node NULL: the session's. */
struct asks {
    const char *session, *node;
    bool make;
};
const Pb__QuotaGrants *quota_asks(struct fixture *world, const struct asks *by, const Pb__QuotaAsk *const *asks,
                                  size_t count, struct outcome *outcome);
const Pb__QuotaGrant *quota_ask(struct fixture *world, const char *session, const Pb__QuotaAsk *ask);
#define ASK(...) (&(const Pb__QuotaAsk){.base = {.descriptor = &pb__quota_ask__descriptor}, __VA_ARGS__})

/* It is granted so much, and the lease comes back; or refused with this error, and a text that has this part. */
uint64_t quota_granted(struct fixture *world, const char *session, const Pb__QuotaAsk *ask, uint64_t expected);
void quota_refused(struct fixture *world, const char *session, const Pb__QuotaAsk *ask, int error, const char *part);
static inline char *text(const char *constant) { return (char *)(uintptr_t)constant; }

struct outcome quota_settle(struct fixture *world, const char *name, uint64_t lease, uint64_t spent);
/* As the leader ends them, for what is armed now. */
struct outcome quota_refill(struct fixture *world, const char *name, int64_t now_unix_s);
struct outcome quota_refill_as(struct fixture *world, const char *name, uint64_t index, uint64_t term, int64_t now_s);
struct outcome quota_end(struct fixture *world, const char *name, uint64_t lease);
struct outcome quota_end_as(struct fixture *world, const char *name, uint64_t lease, uint64_t index, uint64_t term);

/* NULL: there is none. Valid until the next query. */
const Pb__QuotaState *quota_look(struct fixture *world, const char *name);
const Pb__QuotaLease *quota_lease_of(const Pb__QuotaState *state, uint64_t id); /* NULL: not there */
/* "spent 1 stranded 2 leased 3 slack 4: 990 of 1000". */
const char *quota_sums(struct fixture *world, const char *name);
const Pb__QuotaNotice *quota_notice(struct fixture *world, const char *name, uint64_t *index);
const Pb__QuotaAuditResult *quota_trail(struct fixture *world, const char *name, uint64_t from);
/* All that is kept of the trail: each row follows from the one before it, and the last says what the record does. */
void quota_trail_check(struct fixture *world, const char *name);

#endif
