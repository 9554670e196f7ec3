/* Follows the keys below one prefix at their source: decides when to ask it, and what to propose so that our copy
 * (multi-dc/keys.h) gets on. On the leader of our region; elsewhere it rests. No clock, no I/O: whoever has one asks
 * keys_follower_next what to do, does it, and says what came of it. Used by one thread.
 *
 *   rests -> reads our rule -> asks the source, and waits there for a change -> proposes a step -> asks ...
 *                 ^------------- refused, unknown outcome, changed leader --------------'
 *
 * One thing is under way at a time, so it has one answer in memory at most: a step (KEYS_BYTES_MOST, or one row). After a
 * step of changes the next question comes KEYS_PACE_MS later, so that many changes are few entries; pages, and changes that
 * were divided, follow at once. An answer without news moves nothing but what the copy is known to equal (`reached`), which
 * is noted down with the next step; or by one without rows each KEYS_MARK_MS, so that the source's history still reaches
 * back to it after a change of leader, and when the copy is whole by that.
 * Answers of servers that are behind what is known are passed over. A listing that began in another life of the source
 * begins anew. */
#ifndef COORD_MULTI_DC_KEYS_FOLLOWER_H
#define COORD_MULTI_DC_KEYS_FOLLOWER_H

#include "multi-dc/keys.h"

#define KEYS_PACE_MS        100
#define KEYS_WAIT_MS        1000 /* a question waits so long at the source: so old is what is known of it at most */
#define KEYS_MARK_MS        60000
#define KEYS_AGAIN_LEAST_MS 250
#define KEYS_AGAIN_MOST_MS  5000

struct keys_follower;
struct keys_follower *keys_follower_new(struct slice prefix);
void keys_follower_free(struct keys_follower *follower);
void keys_follower_rows_most(struct keys_follower *follower, uint32_t rows); /* in a step; at first KEYS_ROWS_MOST */

/* Whether this server leads our region, and whether there is a link. What was under way counts as never asked when this
 * server leads no more, or what was asked of the source when the link is lost. */
void keys_follower_leads(struct keys_follower *follower, bool leads, uint64_t now_ms);
void keys_follower_linked(struct keys_follower *follower, bool linked, uint64_t now_ms);

enum keys_wish { KEYS_RESTS, KEYS_READS, KEYS_ASKS, KEYS_PROPOSES };
struct keys_effect {
    enum keys_wish wish;
    uint64_t ticket;   /* names it to the calls below */
    uint64_t until_ms; /* RESTS: ask again then, or when something happened. UINT64_MAX: the latter only */
    /* READS: our rule (query_keys_rules), not stale */
    Pb__KeysChangesRequest ask; /* ASKS: query_keys_changes of the source, stale, */
    uint64_t index, wait_ms;    /* as blocking queries */
    Pb__KeysTakeCommand take;   /* PROPOSES. Both are valid until the follower is called again */
};
void keys_follower_next(struct keys_follower *follower, uint64_t now_ms, struct keys_effect *effect);

/* What came of it. A ticket that is not that of what is under way is ignored. */
/* rule NULL: there is none any more. Not kept. */
void keys_follower_read(struct keys_follower *follower, uint64_t ticket, int error, const Pb__KeysRule *rule,
                        uint64_t now_ms);
/* `records`: KeysChangesResult, packed, not kept. as_of_ms: our time at which the source was surely not further than the
 * answer says; 0: not known. */
void keys_follower_answered(struct keys_follower *follower, uint64_t ticket, int error, struct slice records,
                            uint64_t as_of_ms, uint64_t now_ms);
/* `refused`: its result's error, with `error` CO_OK. index: of its result. */
void keys_follower_proposed(struct keys_follower *follower, uint64_t ticket, int error, int refused, bool yes,
                            uint64_t index, uint64_t now_ms);

struct keys_follower_state {
    bool follows;          /* leads, linked, and has read our rule */
    bool lists;            /* a listing is under way */
    uint64_t confirmed_ms; /* our time: since then the source may have changed without us knowing. 0: never heard */
    uint64_t newest;       /* of the source, as it said last; 0: never heard */
    uint64_t taken;        /* steps */
    int error;             /* of the last attempt; CO_OK: it went well */
};
void keys_follower_state(const struct keys_follower *follower, struct keys_follower_state *state);

#endif
