/* Quotas: many spenders, one budget. A module of the state machine. The servers keep the sums of each budget. Agents
 * hold parts of it and spend them at memory speed: kv/quota/spender.h (lease and bounded mode), kv/quota_owner/owner.h
 * (owner mode). The protocol with its reasons: docs/internals/quotas.md. Its rules, for a budget of capacity C
 * (`burst`, or the budget):
 *
 * (Q1)  available = C - leased - spent - stranded     lease mode; 0 where C was lowered below that
 *       available = C - spent - stranded              bounded mode; below 0 by at most the slack
 * (Q2)  Only these change the sums (in bounded mode `slack` takes the place of `leased`):
 *       grant     leased += g, at most the available tokens                        an ask (QUOTA_ASK)
 *       settle    leased -= the lease's balance, spent += the spent part of it     an ask, QUOTA_SETTLE
 *       reclaim   leased -= the lease's balance, stranded += it                    its TTL or its session ended
 *       take      spent += n, at most the available tokens                         an ask with `take`
 *       refill    spent += stranded, stranded = 0, spent -= tokens (not below 0)   continuous
 *                 spent = stranded = 0                                             at the beginning of a window
 * (Q3)  Claims of an ask are checked: spent + held (bounded: each) is at most the balance, else nothing changes.
 * (Q4)  A lease ends with its TTL, counted from the entry that renewed it, or with its session. If the session ends
 *       first, its tokens are stranded, but no refill brings them back before the TTL is over (QuotaRecord.held). (Q5)
 * Parts of an ask count in the order settle, take, grant. The same `seq` again brings the same answer, and renews. (Q6)
 * Only asks and QUOTA_SETTLE with the token of a lease's first ask renew or end it. Agents' own leases have none
 *       (0), and HTTP requests cannot send 0.
 * (Q7)  A grant is at most `want`, the largest lease, the available tokens, and the level of its priority. Levels share
 *       available + leased: higher priorities first, max-min fairness within one.
 * (Q8)  In lease mode with refills at least every QUOTA_TURN_MS, a lease that holds and gets nothing has a turn: its
 *       share of returning tokens, at least one, is kept for it until it asks, or until the turn is over.
 * (Q9)  The record notes that an ask got too little (denied), and the entry that brought tokens after that (came). Both
 *       change the notice, and so does an ask that begins to starve.
 * (Q10) Bounded mode: all slack is at most drift x C, and spent + stranded + slack at most C + drift x C.
 * (Q11) A refill is for one arming (`refill_index`) and one term, so it is applied once. Windows begin by the leader's
 *       wall clock, each once, and never an older one than before. A full budget has no refill pending.
 * (Q12) The bound (QuotaState.bound) is the most that may be admitted beyond the budget in a window or period:
 *       leases      0
 *       drift       bounded mode: drift x C
 *       local_caps  on_loss open: local_cap x registered agents
 *       last        on_loss last: max_lease x C x registered agents x ceil(last_for / lease TTL)
 *       hand_over   owner mode with windows: C, of one key (Q13) Owner mode: leases are memberships, with a balance of
 * 0, of nodes with a passing instance of `service`. A member
 *       that comes makes a new epoch, which is active when all members of the active one have acknowledged it or are
 *       gone; members that come meanwhile wait. If members only go, the new epoch is active at once. A member that ends
 *       unsettled while it is in the active epoch is a loss. One whose session ends stays a member until its TTL is
 *       over.
 * (Q14) Part i of n of a split key has floor(C (i+1) / n) - floor(C i / n) (quota_split_part), together exactly C.
 * (Q15) Defined anew: spent tokens stay spent, an equal refill comes when it was due, and leases stay unless the mode
 *       changes. Deleted and made again it is another budget.
 * (Q16) The audit trail has a row for each grant, settlement, reclaim, take and refill, with the sums afterwards. A
 *       budget keeps its newest QUOTA_AUDIT_MOST rows. */
#ifndef COORD_KV_QUOTA_H
#define COORD_KV_QUOTA_H

#include "kv/quota/quota.pb-c.h"
#include "registry/machine.h"

enum quota_command {
    QUOTA_PUT = 129,
    QUOTA_DELETE = 130,
    QUOTA_ASK = 131,
    QUOTA_SETTLE = 132,
    QUOTA_REFILL = 133,
    QUOTA_LEASE_END = 134,
};
enum quota_space {
    SPACE_QUOTA = 96,        /* a name: any change of it; with WATCH_PREFIX_BIT: prefixes of names */
    SPACE_QUOTA_NOTICE = 97, /* a name: its notice */
    SPACE_QUOTA_OWNED = 98,  /* "": the list of budgets in owner mode, with their services */
};

#define QUOTA_NAME_MOST    256
#define QUOTA_AMOUNT_MOST  UINT64_C(1000000000000000) /* 10^15: the most of a budget, of tokens, of a take */
#define QUOTA_WHOLE        1000000                    /* parts of a whole are in millionths */
#define QUOTA_CLOCK_PPM    10000                      /* clock rates may differ by 1 % */
#define QUOTA_ASKS_MOST    256                        /* asks in one command */
#define QUOTA_LEASES_MOST  100000                     /* of one budget */
#define QUOTA_SESSION_MOST 10000                      /* leases of one session: one entry ends all of them */
#define QUOTA_BUDGETS_MOST 100000
#define QUOTA_MEMBERS_MOST 1000 /* leases of one budget in owner mode */
#define QUOTA_AUDIT_MOST   10000
#define QUOTA_AUDIT_PAGE   1000 /* rows in one answer */
#define QUOTA_PRIORITIES   10
#define QUOTA_SERVICE_MOST 512 /* bytes, of a service's name, and of a node's */
#define QUOTA_KEY_MOST     8192
#define QUOTA_HOT_MOST     16    /* hot keys that a member reports */
#define QUOTA_PARTS_MOST   64    /* of a key that is split */
#define QUOTA_SPLITS_MOST  64    /* split keys of a budget */
#define QUOTA_SPLIT_BYTES  16384 /* bytes of these keys together */
#define QUOTA_LOSSES_MOST  16    /* losses of a budget that the record lists */
#define QUOTA_TURN_MS      2000  /* the length of a turn (Q8) */
#define QUOTA_REFILL_STEPS 100   /* the most parts in which `tokens` come */
#define QUOTA_REFILL_WAITS 16    /* the most pieces of the time between two parts, of a second at least */

#define QUOTA_TTL_MIN_MS       1000
#define QUOTA_TTL_MAX_MS       600000
#define QUOTA_TTL_MS           10000 /* the defaults of a definition */
#define QUOTA_MAX_LEASE        50000
#define QUOTA_DRIFT            10000
#define QUOTA_LOW_WATERMARK    100000
#define QUOTA_LAST_FOR_MS      60000
#define QUOTA_LAST_FOR_MOST_MS UINT64_C(86400000)
#define QUOTA_EVERY_MIN_MS     100
#define QUOTA_EVERY_MAX_MS     UINT64_C(2678400000) /* 31 days */

extern const struct module quota_module;
extern const struct expiry_kind quota_refill_expiry; /* kind 17; name: the budget's */
extern const struct expiry_kind quota_lease_expiry;  /* kind 18; name: quota_lease_name */
extern const struct query_type query_quota;          /* 131: QuotaRequest -> QuotaState; found=false */
extern const struct query_type query_quotas;         /* 132: QuotaListRequest -> QuotaListResult, without leases */
extern const struct query_type query_quota_notice;   /* 133: QuotaNoticeRequest -> QuotaNotice; found=false */
extern const struct query_type query_quota_audit;    /* 134: QuotaAuditRequest -> QuotaAuditResult; found=false */
extern const struct query_type query_quota_owned;    /* 135: QuotaOwnedRequest -> QuotaOwnedResult */

/* The name of a lease in quota_lease_expiry: "NAME/ID". */
#define QUOTA_LEASE_NAME_MOST (QUOTA_NAME_MOST + 22)
struct slice quota_lease_name(struct slice name, uint64_t lease, char room[QUOTA_LEASE_NAME_MOST]);

/* -- what follows from a definition (any thread) ------------------------------------------------------------------ */

/* Replaces 0 by the defaults. CO_INVALID, with one line in `fault`: the definition is invalid. The functions below take
 * only checked definitions. Names are printable ASCII without '"' and '\\', because they stand in header fields. */
int quota_definition_check(Pb__QuotaDefinition *definition, struct fault *fault);
uint64_t quota_capacity(const Pb__QuotaDefinition *definition);
/* part (in millionths) of a whole, rounded down; exact for all amounts that are allowed. */
uint64_t quota_part(uint64_t whole, uint32_t millionths);
/* The most that one agent may hold; at least 1. */
uint64_t quota_lease_most(const Pb__QuotaDefinition *definition);
/* The i-th part, from 0, of a key that is split over so many (at most QUOTA_PARTS_MOST). */
uint64_t quota_split_part(uint64_t capacity, uint32_t parts, uint32_t i);
/* Of a continuous budget: the time between two refills; the next piece of it for which a leader waits, when `waited_ms`
 * are over; and the tokens that the step of this number (0 ..) brings. */
uint64_t quota_refill_period_ms(const Pb__QuotaDefinition *definition);
uint64_t quota_refill_wait_ms(const Pb__QuotaDefinition *definition, uint64_t waited_ms);
uint64_t quota_refill_part(const Pb__QuotaDefinition *definition, uint32_t step, uint32_t *next);
/* The beginning of the window of this moment, and of the next one (unix seconds). Continuous: the moment itself. */
int64_t quota_window_start(const Pb__QuotaDefinition *definition, int64_t unix_s);
int64_t quota_window_end(const Pb__QuotaDefinition *definition, int64_t unix_s);
struct quota_bound {
    uint64_t leases, drift, local_caps, last, hand_over, sum; /* at most INT64_MAX each */
};
struct quota_bound quota_bound_of(const Pb__QuotaDefinition *definition, uint64_t agents);

#endif
