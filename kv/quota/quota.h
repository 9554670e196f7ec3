/* Quotas: many spenders, one budget. A module of the state machine. The servers keep what is left of each budget; agents
 * hold parts of it and spend those at memory speed (kv/quota/spender.h is an agent's side).
 *
 * A budget has a capacity C (what may be unspent at once: `burst`, or the budget). At each moment
 *
 *     available = C - leased - spent - stranded                (lease mode; 0 where C was lowered below that)
 *     available = C - spent - stranded                         (bounded mode; below 0 by at most the slack)
 *
 * and only these change it ("leased" is "slack" in bounded mode):
 *
 *     grant     leased += g, at most what is available                       an ask (QUOTA_ASK)
 *     settle    leased -= what was held, spent += what was spent of it       an ask, QUOTA_SETTLE
 *     reclaim   leased -= what was held, stranded += it                      its TTL or its session ended
 *     take      spent += n, at most what is available                        an ask with `take`
 *     refill    spent += stranded, stranded = 0, spent -= tokens (not below 0)   continuous
 *               spent = stranded = 0                                             at the beginning of a window
 *
 * So tokens that a dead owner may have spent count as spent, and nothing is granted twice. Sums of what is admitted between
 * two refills of a window, or over a time T of a continuous budget, are at most C (+ the refills in T) + the bound below.
 *
 * Leases belong to a session and end with it, or when their TTL is over without another ask. An owner counts its TTL from
 * the moment at which it *sent* the ask, and stops before its end by the tolerated difference of clock rates
 * (QUOTA_CLOCK_PPM); the leader counts from the applied entry on, and a new leader grants a full period anew. When a session
 * ends before the TTL does, its owner may not know and spend on: what it holds is stranded at once, but no refill brings it
 * back before the TTL is over (QuotaRecord.held). So no token of a lease is granted again while its owner spends. A session
 * that an ask made ends with its last lease.
 *
 * An owner's ask says what it spent since its last one and what it holds on to (`held`; it has lowered its own balance
 * before it sends that). While the answer is on its way it spends on from `held`. A lost answer is asked for again by the
 * same `seq`: the same answer comes, and the lease is renewed, so that an owner may count its TTL from the second ask too.
 * What an ask claims is checked: spent + held is at most the balance, else it is refused and changes nothing. Parts of an
 * ask count in this order: settle, take, grant.
 *
 * How much a grant gives: at most `want`, `max_lease` of the capacity, what is available, and the level of its priority.
 * Levels share what there is (available + leased) fairly when it is not enough for all: higher priorities first, within one
 * each gets what it wants up to a level that is the same for all (max-min fairness; what cannot be shared out evenly goes to
 * those who ask first). They are counted anew by asks that got less than they wanted, after a refill at once, else when
 * there was an ask for each 64 leases since the last count. When somebody starts to starve, those who follow the notice wake
 * (query_quota_notice), and give back what is above their level.
 *
 * Turns. In lease mode with refills that come at least every two seconds, a lease that holds nothing and gets nothing has a
 * turn: of what comes back its share, at least one, is kept for it, and neither granted to others nor taken by them, until it
 * asks again. Those who get nothing meanwhile wait for the next turn. A turn ends when all of it have asked, or after two
 * seconds of refills, so that who is gone keeps nothing for longer. Leases of lower priorities than the highest have none.
 *
 * News. When an ask got less than it asked for (in bounded mode: a `take`), the record says so (denied); when more can be
 * taken after that, by a refill, a settlement, a lease that gives back, a higher capacity, it says by which entry (came). Both
 * change the notice: so all who remember a refusal hear that its reason is over, and those who have not asked yet that others
 * have taken it all.
 *
 * A lease has the token of its first ask, and only asks and QUOTA_SETTLE with that token renew or end it: names of leases
 * and sessions are shown to all who may read. Agents' own leases have none (0), and HTTP requests never come without one.
 *
 * Bounded mode: a lease's balance is slack: what its owner may have spent without having reported it, also on its way. An
 * ask reports `spent`, at most the balance, and is no claim to hold more than the rest of the balance: with held = balance
 * what was reported stops to be slack until it is granted again, as the same ask's `want` wishes. All slack is at most
 * drift x C, and spent + stranded + all slack at most C + drift x C: so what is admitted beyond C is, whatever owners do.
 * While available is at or below the low watermark owners take from the servers only (`take`), and spend nothing on slack;
 * those who follow the notice wake when it comes there.
 *
 * Refills are ends of an expiry kind: proposed by the leader, in its term, and for one arming (`index`) only, so that no
 * change of leader applies one twice. `tokens` come in up to 100 equal parts of a period, one a second at most. The time
 * until the next part is waited for in up to 16 pieces of a second at least, an entry each, so that a new leader goes on
 * where the last entry was: it waits for a piece again, not for all of it. Windows begin by the leader's wall clock, each
 * once, and never an older one than before: where servers' clocks are apart, one may begin early by as much as the clock of
 * a leader is ahead, and the next leader begins none until its own clock has come to the one after it. So however often
 * leaders change, a window is given once. The leader first says in which one a budget that was full is spent from (one more
 * entry). A full budget has no refill pending.
 *
 * The bound (QuotaState.bound), what may be admitted beyond the budget in one window or period at the worst:
 *   leases      0: they are taken out of the budget before they can be spent
 *   drift       bounded mode: drift x C
 *   local_caps  on_loss open: local_cap x registered agents
 *   last        on_loss last: max_lease x C x registered agents x ceil(last_for / lease TTL)
 *   hand_over   owner mode with windows: C, of one key. Continuous: 0, because a new owner that learns nothing from the
 *               old one begins with an empty bucket
 * It is that of the present definition: while a budget is lowered, what was granted before counts beside it.
 *
 * Owner mode: the capacity is that of each key. Leases are memberships: their balance is 0, their nodes form the ring; an
 * ask with `want` or `seq` joins. Its epoch is the index of the last change of the members. A member that comes makes a new
 * epoch; those of the active one acknowledge that they have stopped counting what it gives to others, and when all of them
 * have, or are gone, it is active. Who comes while one is pending waits until it is active, or somebody goes: so an epoch is
 * not overtaken by the next one again and again. Where nobody has come since the active one, a new epoch is active at once:
 * who goes takes nothing from the others. Members are leases: an agent that begins anew is another one, and the newest lease
 * of a node is the node's. A member that ends unsettled while it is one of the active epoch is a loss (QuotaLostOwner). A member whose session ends stays one until its TTL is over, because it may count until then. An
 * agent on a node without a passing instance of `service` is refused; it may still close its lease. A key that is split is
 * counted in parts, by as many owners: part i of n is floor(C (i+1) / n) - floor(C i / n) (quota_split_part), so that they add
 * up to C exactly; the record has them (QuotaSplit.amounts).
 *
 * Defined anew, what is spent stays, and a refill that stays the same comes when it was due. Leases stay unless the mode
 * changes: then all end like those of sessions that ended (members just go). Deleted and made again, it is another budget,
 * and knows nothing of leases of the former one.
 *
 * The audit trail has a row for each grant, settlement, reclaim, take and refill, with the sums afterwards: each row's sums
 * are the sums before it changed by its amount. QUOTA_AUDIT_MOST rows a budget; older ones go, and all with the budget. */
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
    SPACE_QUOTA = 96,        /* a name: anything of it; with WATCH_PREFIX_BIT: prefixes of names */
    SPACE_QUOTA_NOTICE = 97, /* a name: what its notice shows */
    SPACE_QUOTA_OWNED = 98,  /* "": which budgets are in owner mode, and of which services */
};

#define QUOTA_NAME_MOST    256
#define QUOTA_AMOUNT_MOST  UINT64_C(1000000000000000) /* 10^15: of a budget, of tokens, of a take */
#define QUOTA_WHOLE        1000000                    /* parts are in millionths of it */
#define QUOTA_CLOCK_PPM    10000                      /* clock rates may differ by 1 % */
#define QUOTA_ASKS_MOST    256                        /* in one command */
#define QUOTA_LEASES_MOST  100000                     /* of one budget */
#define QUOTA_SESSION_MOST 10000                      /* leases of one session: its end ends all of them in one entry */
#define QUOTA_BUDGETS_MOST 100000
#define QUOTA_MEMBERS_MOST 1000 /* leases of one budget in owner mode */
#define QUOTA_AUDIT_MOST   10000
#define QUOTA_AUDIT_PAGE   1000 /* rows in one answer */
#define QUOTA_PRIORITIES   10
#define QUOTA_SERVICE_MOST 512 /* bytes, of a service's name, and of a node's */
#define QUOTA_KEY_MOST     8192
#define QUOTA_HOT_MOST     16    /* keys that a member says are hot */
#define QUOTA_PARTS_MOST   64    /* of a key that is split */
#define QUOTA_SPLITS_MOST  64    /* keys of a budget */
#define QUOTA_SPLIT_BYTES  16384 /* of these keys together */
#define QUOTA_LOSSES_MOST  16    /* of a budget, that the record lists */
#define QUOTA_TURN_MS      2000  /* who got nothing may come so late for what is kept for it */
#define QUOTA_REFILL_STEPS 100   /* parts in which `tokens` come, at most */
#define QUOTA_REFILL_WAITS 16    /* pieces of the time between two of them, at most, of a second at least */

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
extern const struct expiry_kind quota_refill_expiry; /* 17: the name */
extern const struct expiry_kind quota_lease_expiry;  /* 18: quota_lease_name */
extern const struct query_type query_quota;          /* 131: QuotaRequest -> QuotaState; found=false */
extern const struct query_type query_quotas;         /* 132: QuotaListRequest -> QuotaListResult, without leases */
extern const struct query_type query_quota_notice;   /* 133: QuotaNoticeRequest -> QuotaNotice; found=false */
extern const struct query_type query_quota_audit;    /* 134: QuotaAuditRequest -> QuotaAuditResult; found=false */
extern const struct query_type query_quota_owned;    /* 135: QuotaOwnedRequest -> QuotaOwnedResult */

/* 18: "NAME/ID", as text. */
#define QUOTA_LEASE_NAME_MOST (QUOTA_NAME_MOST + 22)
struct slice quota_lease_name(struct slice name, uint64_t lease, char room[QUOTA_LEASE_NAME_MOST]);

/* -- what follows from a definition (any thread) ------------------------------------------------------------------ */

/* Puts the defaults where there is 0. CO_INVALID, with one line in `fault`: it makes no sense. The functions below take
 * only what was checked. Names are printable ASCII without '"' and '\\', because they stand in header fields. */
int quota_definition_check(Pb__QuotaDefinition *definition, struct fault *fault);
uint64_t quota_capacity(const Pb__QuotaDefinition *definition);
/* part (in millionths) of a whole, rounded down; exact for all amounts that are allowed. */
uint64_t quota_part(uint64_t whole, uint32_t millionths);
/* What one agent may hold at most; at least 1. */
uint64_t quota_lease_most(const Pb__QuotaDefinition *definition);
/* The i-th part, from 0, of a key that is split over so many (at most QUOTA_PARTS_MOST). */
uint64_t quota_split_part(uint64_t capacity, uint32_t parts, uint32_t i);
/* Between two refills of a continuous budget, in how many pieces leaders wait for that (the next one, after so much), and
 * the part that the step of this number (0 ..) gives. */
uint64_t quota_refill_period_ms(const Pb__QuotaDefinition *definition);
uint64_t quota_refill_wait_ms(const Pb__QuotaDefinition *definition, uint64_t waited_ms);
uint64_t quota_refill_part(const Pb__QuotaDefinition *definition, uint32_t step, uint32_t *next);
/* Of the window that this moment is in: when it began, when the next one begins (unix seconds). Continuous: the moment. */
int64_t quota_window_start(const Pb__QuotaDefinition *definition, int64_t unix_s);
int64_t quota_window_end(const Pb__QuotaDefinition *definition, int64_t unix_s);
struct quota_bound {
    uint64_t leases, drift, local_caps, last, hand_over, sum; /* at most INT64_MAX each */
};
struct quota_bound quota_bound_of(const Pb__QuotaDefinition *definition, uint64_t agents);

#endif
