/* Shared by the files of kv/quota/ only, but spender.h and what belongs to it. */
#ifndef COORD_KV_QUOTA_INTERNAL_H
#define COORD_KV_QUOTA_INTERNAL_H

#include "base/text.h"
#include "kv/quota/quota.h"
#include "kv/session/session.h"

enum quota_table {
    QUOTA_TABLE = 36,          /* by the first byte:
                       * 'q', name -> pb.QuotaRecord; 'l', name, NUL, id -> pb.QuotaLease;
                       * 'a', name, NUL, number -> pb.QuotaAudit; 's', session -> how many leases it has;
                       * 'n' -> how many budgets there are; numbers of 8 bytes, big-endian */
    QUOTA_TABLE_SESSIONS = 37, /* session, name, NUL, id (0: of the numbered one) -> the lease's id */
};
_Static_assert(QUOTA_PUT >= 128 && QUOTA_LEASE_END < 256, "commands of kv (registry/module.h)");
_Static_assert(QUOTA_TABLE >= 33 && QUOTA_TABLE_SESSIONS < 40, "tables of kv");
_Static_assert(SPACE_QUOTA >= 96 && SPACE_QUOTA_OWNED < 128, "spaces of kv");

bool quota_name_fits(const char *name);
/* "there is no budget "x"": CO_NOTFOUND. */
char *quota_unknown(struct arena *arena, const char *name);
char *quota_lease_unknown(struct arena *arena, const char *name, uint64_t lease);
char *quota_lease_denied(struct arena *arena, const char *name, uint64_t lease); /* CO_DENIED */

/* -- a budget that an entry changes (quota_store.c; applier thread) ----------------------------------------------- */

/* Changes stay in the tx arena until quota_commit, so a caller that gives up before that leaves no trace. */
struct quota_change {
    struct machine_tx *tx;
    struct slice name;
    Pb__QuotaRecord *record;
    Pb__QuotaAudit *rows; /* of the audit trail, to be written */
    size_t row_count, row_room;
    bool notice;   /* the change concerns the notice */
    bool low;      /* bounded: the budget was at or below the low watermark before */
    bool rearm;    /* the due refill has to be armed anew */
    bool denied;   /* an ask gets less than it asked for */
    uint64_t room; /* the takeable amount at the last quota_news */
};
/* CO_OK; CO_NOTFOUND: no such budget; or the store failed. `name` lives until the commit. */
int quota_begin(struct machine_tx *tx, const char *name, struct quota_change *change);
/* Notes in the record, and for the notice, that denied tokens can be had again, or that an ask is denied now. The
 * commit calls it too. */
void quota_news(struct quota_change *change);
/* Writes the record and the rows, arms or disarms the refill, and wakes the waiters. */
void quota_commit(struct quota_change *change);
void quota_audit(struct quota_change *change, Pb__QuotaKind kind, const Pb__QuotaLease *lease, uint64_t amount,
                 uint64_t back);

int quota_record_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__QuotaRecord **record);
int quota_record_decode(struct slice bytes, struct arena *arena, Pb__QuotaRecord **record);
void quota_record_put(struct machine_tx *tx, const Pb__QuotaRecord *record);
void quota_record_del(struct machine_tx *tx, struct slice name);
uint64_t quota_count(struct store_txn *txn); /* of budgets */
void quota_count_put(struct machine_tx *tx, uint64_t count);

/* -- leases ------------------------------------------------------------------------------------------------------- */

int quota_lease_get(struct store_txn *txn, struct slice name, uint64_t id, struct arena *arena, Pb__QuotaLease **lease);
/* The numbered one that a session has of a budget. */
int quota_lease_numbered(struct store_txn *txn, struct slice session, struct slice name, struct arena *arena,
                         Pb__QuotaLease **lease);
void quota_lease_put(struct machine_tx *tx, struct slice name, const Pb__QuotaLease *lease);
/* Binds a new lease to its session, and counts it; quota_lease_put writes it afterwards. */
void quota_lease_bind(struct quota_change *change, const Pb__QuotaLease *lease);
/* Its TTL begins anew with this entry. */
void quota_lease_renew(struct quota_change *change, Pb__QuotaLease *lease);
/* Removes a lease whose balance is settled or stranded. */
void quota_lease_remove(struct quota_change *change, Pb__QuotaLease *lease);
/* Ends a lease of which `spent`, at most its balance, was spent. */
int quota_lease_settle(struct quota_change *change, Pb__QuotaLease *lease, uint64_t spent);
/* Ends a lease unsettled, so that its balance is stranded. over: its TTL is over; else its tokens are held back until
 * then, and a member stays a member until then. */
int quota_lease_reclaim(struct quota_change *change, Pb__QuotaLease *lease, bool over);
int quota_session_leases(struct store_txn *txn, struct slice session, uint64_t *count);

/* All leases of a budget, by id. */
struct slice quota_rows(char kind, struct slice name, char room[STORE_KEY_MAX]);
#define QUOTA_EACH_LEASE(cursor, txn, rows) STORE_PREFIX(cursor, txn, QUOTA_TABLE, rows)
int quota_lease_decode(struct slice bytes, struct arena *arena, Pb__QuotaLease **lease);
int quota_audit_decode(struct slice bytes, struct arena *arena, Pb__QuotaAudit **row);
/* 'l' and 'a' rows end with a number. */
struct slice quota_row(char kind, struct slice name, uint64_t number, char room[STORE_KEY_MAX]);

/* -- sums --------------------------------------------------------------------------------------------------------- */

static inline uint64_t quota_minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static inline bool quota_bounded(const Pb__QuotaRecord *record) {
    return record->definition->mode == PB__QUOTA_MODE__QUOTA_BOUNDED;
}
static inline bool quota_owned(const Pb__QuotaRecord *record) {
    return record->definition->mode == PB__QUOTA_MODE__QUOTA_OWNER;
}
int64_t quota_available(const Pb__QuotaRecord *record);
uint64_t quota_takeable(const Pb__QuotaRecord *record);  /* likewise; 0, if that is negative */
uint64_t quota_shareable(const Pb__QuotaRecord *record); /* the amount that all leases may hold together */
uint64_t quota_grantable(const Pb__QuotaRecord *record); /* the part of it that no lease holds */
bool quota_is_low(const Pb__QuotaRecord *record);        /* bounded: at or below the low watermark */
uint64_t *quota_balances(Pb__QuotaRecord *record);       /* the sum of the leases' balances: leased, or slack */

/* -- levels (quota_share.c) --------------------------------------------------------------------------------------- */

struct quota_wish {
    uint32_t priority;
    uint64_t want, balance;
};
struct quota_level {
    uint64_t most; /* the most that one may have */
    bool uneven;   /* some get one less */
};
static inline uint64_t quota_level_sure(struct quota_level level) { return level.most - level.uneven; }
/* Shares `total` over wishes, higher priorities first. levels[p] is the level of a priority: `most`, and even, if the
 * total is enough for its wishes and those above. Else max-min: a wish below the level is met, and the others share the
 * rest evenly. Sorts the wishes. */
void quota_share(uint64_t total, uint64_t most, struct quota_wish *wishes, size_t count,
                 struct quota_level levels[QUOTA_PRIORITIES]);
/* Counts the levels from the wishes of all leases; `mine` is one of them, with its state in memory. *spare: there is
 * more than the others lack of their sure amounts, so this lease may have one more. */
int quota_levels_count(struct quota_change *change, const Pb__QuotaLease *mine, bool *spare);
struct quota_level quota_level_of(const Pb__QuotaRecord *record, uint32_t priority);

/* Turns: the amount of returning tokens that is kept for leases that got nothing before. 0: this lease (NULL: none) is
 * one of them. */
uint64_t quota_kept(const Pb__QuotaRecord *record, const Pb__QuotaLease *lease);
/* The lease got nothing, and keeps its turn; or it got something, or wants nothing. */
void quota_waits(Pb__QuotaRecord *record, Pb__QuotaLease *lease, uint64_t want);
void quota_waits_not(Pb__QuotaRecord *record, Pb__QuotaLease *lease);
void quota_turn_refilled(Pb__QuotaRecord *record); /* to be called after a refill; a turn lasts for refills of
                                                    * QUOTA_TURN_MS */

/* -- owner mode (quota_members.c) --------------------------------------------------------------------------------- */

/* A member is gone: begins a new epoch. `mine` (may be NULL), here and below: a lease with its state in memory. */
int quota_members_changed(struct quota_change *change, const Pb__QuotaLease *mine);
/* A member comes: begins a new epoch, unless one is pending, for whose end it waits. */
int quota_member_came(struct quota_change *change, const Pb__QuotaLease *mine);
/* A member ends unsettled: notes a loss, if it is a member of the active epoch. */
void quota_member_lost(struct quota_change *change, const Pb__QuotaLease *lease);
/* A member has acknowledged an epoch, which may be active now. */
int quota_members_acked(struct quota_change *change, const Pb__QuotaLease *mine);
/* Checks the fields of a member's ask. NULL, or the reason of a refusal; changes nothing. */
const char *quota_member_fault(const struct quota_change *change, const Pb__QuotaAsk *ask);
/* Takes over these fields. True: the splits were accepted. */
bool quota_member_says(struct quota_change *change, Pb__QuotaLease *lease, const Pb__QuotaAsk *ask);
void quota_splits_anew(struct quota_change *change); /* the capacity has changed */
/* The members of the newest epoch and those of the active one, as notices show them. */
int quota_members_show(struct store_txn *txn, const Pb__QuotaRecord *record, struct arena *arena,
                       Pb__QuotaNotice *notice);

/* -- commands (as module_command.apply), and the end of a session ------------------------------------------------- */

int quota_put_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int quota_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int quota_ask_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int quota_settle_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int quota_refill_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int quota_lease_end_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int quota_session_ended(struct machine_tx *tx, const struct binding_end *end);
extern const struct module_binding quota_binding;

/* Time until the next refill. */
int64_t quota_refill_ns(const Pb__QuotaRecord *record, int64_t unix_ms);

#endif
