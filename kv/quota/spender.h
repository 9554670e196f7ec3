/* An agent's side of quotas: what it holds of each budget, how it spends that, and when it asks the servers for more. It
 * decides and does not act: time comes in, asks come out. rpc/quota/spending.h puts it to work; the simulator runs it too.
 *
 * A budget is known from the first take of it on: its notice is fetched (spender_follow) and followed. Then
 *
 * lease     The agent holds a balance and spends it. It asks so that about one ask a TTL is enough: it wants what its rate
 *           (the newest counts most) needs for a TTL and a half, plus what waits now. An ask goes out SPENDER_AHEAD_MS before
 *           its time is over (after half of the TTL at the earliest), earlier when less is left than the rate needs until an
 *           answer is there, or an eighth, and for a take that the balance does not cover. All budgets that have something to
 *           ask, or were not asked for a third of their TTL, go along. When nothing was taken for a TTL it closes its lease
 *           instead. When somebody starves, it gives back at once what is above its level or what it does not need, and
 *           closes its lease when nobody came for SPENDER_REST_MS, neither since the last grant nor since who was refused was
 *           told to come (so that what was asked for somebody who stays away is nobody's for a few seconds only). Else what
 *           it does not need goes back with an ask that is due anyway, when that is more than half of what it has.
 * bounded   The same with slack for a balance, which is at most its part of the drift; it asks (and so reports) also when
 *           half of it is used. It spends down to the low watermark, as far as it knows; at or below it each take is asked of
 *           the servers (all takes that wait go in one ask).
 * owner     CO_UNSUPPORTED, with the text spender_owned: kv/quota/owning.h is for those.
 *
 * With windows it asks, and so tells what it spent, also shortly before a window ends (SPENDER_WINDOW_MS, by this agent's wall
 * clock). What it spends after that is told in the next window, and counts there: the servers cannot know when it was spent,
 * and what counted in neither window could be admitted twice.
 *
 * How long it may spend: until the sending of the last ask that was answered, plus its TTL less QUOTA_CLOCK_PPM of it and
 * SPENDER_MARGIN_MS. Afterwards it holds nothing, and asks: if the servers have the lease still, it goes on, else what it
 * had is stranded there.
 *
 * Asked of the servers (`take`) is what an agent cannot hold: more than max_lease or its level, more than all of its slack,
 * or what waits beyond that. When the servers have not enough it gives back all that it holds of the budget with the next
 * such ask, so that agents do not block each other with parts that nobody can use. What they spend is for the takes that
 * waited for it, is there for 2 s from the sending on, and counts as spent when nobody comes for it. (So at the edge of a
 * window what was spent in the old one may be admitted in the new one, that much later.)
 *
 * Refused (spender_refusal.c): after an answer that gave less than was wanted nothing more is asked for takes that do not fit
 * into what the servers said is available, until the reason is over: a notice says that something came (QuotaNotice.came), or
 * that the budget is defined anew. Refills are expected: windows by this agent's wall clock, others a period after this agent
 * heard of the present one, or asked. Until 50 ms before that such takes are refused, and told when it is; from then on, and
 * for a second, as many as can be served wait. Nothing heard: it asks 0.2 to 0.4 s later, and then as long again as it is late, at the latest after
 * half of a TTL and a second. What came is asked for in turns of 20 ms, of as many as twice the leases (16 at most, in 0.3 s):
 * who has seen more come in vain asks earlier. In bounded mode, where nobody's share is kept, an agent that was served waits
 * until all turns are over. An agent hears in its turn that others are denied and nothing is left: it does not ask. Where it
 * got nothing the last time one take waits in line, up to a second, so that the agent has somebody to ask for in its turn.
 * In lease mode with refills more often than each second asks in vain double their distance, up to a second.
 *
 * Servers away: asks fail, or are not answered for SPENDER_LOSS_MS. What it holds is spent until its end. For what that does
 * not cover on_loss decides: closed: refused; open: at most local_cap in any refill period (`every_ms`, or the window; of
 * this agent's clock, slowed by QUOTA_CLOCK_PPM), while the notice is known; last: at most what it was granted last, once
 * each lease TTL, for last_for at most, and as often as that within any refill period. An agent that was never granted
 * anything of the budget admits nothing, and neither does one in the first refill period after its first take: it does not
 * know what its node admitted so before it began. Servers are asked again after 200 ms, and up to each second.
 *
 * A take of several budgets is all or nothing: everything is there, or nothing is spent. n = 0 looks whether the budget
 * exists. One of more than the capacity is refused for good (CO_TOOLARGE).
 *
 * Pure; one thread at a time (the caller's lock guards it). Times are of one clock that goes on while the machine sleeps
 * (clock_boot_ns), in ns.
 *
 * What is to be done shows in spender_deadline_ns; it may change with every call. When it is not in the future:
 *
 *     spender_tick, then while spender_woken: all takes that wait again, in the order in which they came,
 *     then spender_follow until there is no more, then spender_ask
 *
 * After spender_asked and spender_followed likewise: the takes that wait come first, because an ask for them is made of
 * those that have said again, since the last waking, that they wait. */
#ifndef COORD_KV_SPENDER_H
#define COORD_KV_SPENDER_H

#include "kv/quota/quota.h"

#define SPENDER_MARGIN_MS    50
#define SPENDER_LOSS_MS      1000  /* an ask that is on its way for so long counts as lost for takes that wait */
#define SPENDER_ASK_MS       40    /* between two asks: takes gather; those for which a take waits may go 8 in a row */
#define SPENDER_AHEAD_MS     2000  /* it renews so long before it would end: a change of leader takes less */
#define SPENDER_REST_MS      1100  /* nobody came for so long: what it holds is for those who starve */
#define SPENDER_WINDOW_MS    300   /* it tells what it spent so long before a window ends */
#define SPENDER_IDLE_MS      60000 /* a budget that nobody takes from for so long is forgotten, and followed no more */
#define SPENDER_BUDGETS_MOST 10000
#define SPENDER_TAKES_MOST   64 /* in one request */
#define SPENDER_KEY_MOST     QUOTA_KEY_MOST

extern const char spender_owned[];

struct spender_config {
    const char *node;  /* this agent's node; copied */
    uint64_t seed;     /* of session ids, of the table, and of what spreads; random */
    uint32_t priority; /* of its asks; below QUOTA_PRIORITIES */
};
struct spender;
struct spender *spender_new(const struct spender_config *config);
void spender_free(struct spender *spender); /* accepts NULL */

/* -- takes -------------------------------------------------------------------------------------------------------- */

struct spender_take {
    struct slice name, key; /* key: empty when there is none */
    uint64_t n;
};
enum spender_source { SPENDER_LOCAL, SPENDER_RENEWED, SPENDER_OWNER, SPENDER_FALLBACK };
struct spender_answer {
    enum spender_source source; /* the weakest of its takes */
    uint64_t lease;             /* that what was spent last was held in; 0: in none */
    size_t failed;              /* the first take that is the reason */
    uint64_t retry_ms;          /* refused: when it is worth another try; 0: nobody knows */
    const char *text;           /* an error's line; static */
};
/* CO_OK: all of it is spent. CO_AGAIN: nothing is spent; the servers are asked: try again when spender_woken says so, or
 * with `last_try` when it has waited long enough (then it is not CO_AGAIN). Else nothing is spent: CO_BUSY: refused, there
 * is not enough; CO_NOTFOUND: there is no such budget; CO_NOLEADER: no server can say, and on_loss does not allow it;
 * CO_TOOLARGE; CO_INVALID (of names, keys, more than SPENDER_TAKES_MOST, a budget twice with one key); CO_UNSUPPORTED: one in owner
 * mode, or of a later version. A take of a budget that is not known yet, when SPENDER_BUDGETS_MOST are: CO_BUSY; but names of
 * which there is no budget make room.
 * `waited`: this is not its first try: what an ask brought is SPENDER_RENEWED. */
int spender_take(struct spender *spender, const struct spender_take *takes, size_t count, bool waited, bool last_try,
                 uint64_t now_ns, struct spender_answer *answer);
/* True, once: something changed since the last call for which takes wait: try all of them again. A take that still waits
 * says so by that; one that is not tried again is forgotten. */
bool spender_woken(struct spender *spender);

/* What RateLimit fields say of a budget (draft-ietf-httpapi-ratelimit-headers). False: it is not known. */
struct spender_rate {
    uint64_t quota,
        window_s;       /* q, w: of the whole budget: a window, or what comes in a refill period (whole seconds) */
    uint64_t remaining; /* r: what this agent may admit now, as far as it knows: what it has, and may be given */
    uint64_t reset_s;   /* t: until more comes, rounded up */
};
bool spender_rate(const struct spender *spender, struct slice name, struct slice key, uint64_t now_ns, int64_t unix_s,
                  struct spender_rate *rate);

/* -- what is to be done, and what came of it ------------------------------------------------------------------------- */

/* The ask to be sent now (QUOTA_ASK), one at a time: true at most once until spender_asked. The message is the spender's,
 * until spender_asked. */
bool spender_ask(struct spender *spender, uint64_t now_ns, const Pb__QuotaAskCommand **command);
/* error: CO_OK and the grants; or of the command: it was refused (CO_NOTFOUND: its session is gone, and all its leases),
 * or was certainly not applied (CO_NOLEADER, CO_BUSY, CO_DISKFULL, ...), or nobody knows (CO_UNKNOWN_OUTCOME, and what is
 * not one of those: it is sent again as it was, until one sending is answered). The grants are the caller's. */
void spender_asked(struct spender *spender, int error, const Pb__QuotaGrants *grants, uint64_t now_ns);

/* A budget whose notice is to be fetched now, as a blocking query after *index (0: at once; else it waits for a minute or
 * so, and then says what is). True once for each, until spender_followed. `name` lives until then. */
bool spender_follow(struct spender *spender, const char **name, uint64_t *index);
/* notice NULL with CO_OK: there is no such budget (any more). With an error it is asked for again a second later. */
void spender_followed(struct spender *spender, const char *name, int error, const Pb__QuotaNotice *notice,
                      uint64_t index, uint64_t now_ns);

/* The agent ends in order: the asks that come now give everything back; false: nothing is left. */
bool spender_leave(struct spender *spender);

/* What the wall clock says now: told before spender_tick, now and then. Without it nothing is told before a window ends. */
void spender_wall(struct spender *spender, uint64_t now_ns, int64_t unix_ms);
void spender_tick(struct spender *spender, uint64_t now_ns); /* at spender_deadline_ns, or earlier */
uint64_t spender_deadline_ns(const struct spender *spender); /* UINT64_MAX: nothing */

/* Rules broken on purpose, for the simulator only. */
enum spender_mutation {
    SPENDER_MUTATE_OVERSTAYS = 1, /* it spends a lease beyond its end */
    SPENDER_MUTATE_HOARDS = 4,    /* what nobody comes for it keeps for a TTL, whoever starves */
    SPENDER_MUTATE_REMEMBERS = 2, /* it refuses for half of a TTL and a second, whatever comes meanwhile */
};
void spender_mutate(struct spender *spender, unsigned mutations);

#endif
