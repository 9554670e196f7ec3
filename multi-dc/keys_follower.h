/* Follows the keys below one prefix at their source: decides when to ask it, and what to propose so that our copy
 * (multi-dc/keys.h) gets on. On the leader of our region; elsewhere it rests. It has no clock and does no I/O: its
 * owner calls keys_follower_next, does what that wants, and reports the outcome. Used by one thread.
 *
 *   rests -> reads our rule -> asks the source, and waits there for a change -> proposes a step -> asks ...
 *                 ^------------- refused, unknown outcome, changed leader --------------'
 *
 * One thing is under way at a time, so it has at most one answer in memory: a step (KEYS_BYTES_MOST, or one row). After
 * a step of changes the next question comes KEYS_PACE_MS later, so that many changes become few entries; the next page,
 * or the rest of divided changes, is asked for at once. An answer without news only moves the position that the copy is
 * known to equal (`reached`), which the next step notes in the rule. If there is none for KEYS_MARK_MS, a step without
 * rows notes it, so that the source's history still reaches back to it after a change of leader. Such a step is also
 * made when the copy becomes whole by that position. Answers of servers that are behind the known position are ignored.
 * A listing that began in another life of the source begins anew. */
#ifndef COORD_MULTI_DC_KEYS_FOLLOWER_H
#define COORD_MULTI_DC_KEYS_FOLLOWER_H

#include "multi-dc/keys.h"

#define KEYS_PACE_MS        100
#define KEYS_WAIT_MS        1000 /* how long a question waits at the source, and so the greatest age of an answer */
#define KEYS_MARK_MS        60000
#define KEYS_AGAIN_LEAST_MS 250
#define KEYS_AGAIN_MOST_MS  5000

struct keys_follower;
struct keys_follower *keys_follower_new(struct slice prefix);
void keys_follower_free(struct keys_follower *follower);
void keys_follower_rows_most(struct keys_follower *follower, uint32_t rows); /* rows in a step; at first
                                                                              * KEYS_ROWS_MOST */

/* Tells whether this server leads our region, and whether there is a link. When it no longer leads, the follower
 * ignores the answer to the question under way; when the link is lost, the answer of the source. */
void keys_follower_leads(struct keys_follower *follower, bool leads, uint64_t now_ms);
void keys_follower_linked(struct keys_follower *follower, bool linked, uint64_t now_ms);

enum keys_wish { KEYS_RESTS, KEYS_READS, KEYS_ASKS, KEYS_PROPOSES };
struct keys_effect {
    enum keys_wish wish;
    uint64_t ticket;   /* names it to the calls below */
    uint64_t until_ms; /* RESTS: call again at this time, or when something has happened. UINT64_MAX: only then */
    /* READS: our rule (query_keys_rules), not stale */
    Pb__KeysChangesRequest ask; /* ASKS: query_keys_changes of the source, stale, */
    uint64_t index, wait_ms;    /* as blocking queries */
    Pb__KeysTakeCommand take;   /* PROPOSES. Both are valid until the follower is called again */
};
void keys_follower_next(struct keys_follower *follower, uint64_t now_ms, struct keys_effect *effect);

/* Reports the outcome. A ticket of something that is no longer under way is ignored. */
/* rule NULL: it was removed. Not kept. */
void keys_follower_read(struct keys_follower *follower, uint64_t ticket, int error, const Pb__KeysRule *rule,
                        uint64_t now_ms);
/* `records`: KeysChangesResult, packed, not kept. as_of_ms: our time at which the source was surely not beyond the
 * answer's index; 0: not known. */
void keys_follower_answered(struct keys_follower *follower, uint64_t ticket, int error, struct slice records,
                            uint64_t as_of_ms, uint64_t now_ms);
/* `refused`: the error of the step's result, when `error` is CO_OK. index: of the result. */
void keys_follower_proposed(struct keys_follower *follower, uint64_t ticket, int error, int refused, bool yes,
                            uint64_t index, uint64_t now_ms);

struct keys_follower_state {
    bool follows;          /* the follower leads, is linked, and has read our rule */
    bool lists;            /* a listing is under way */
    uint64_t confirmed_ms; /* our time since which the source may have changed without our knowledge; 0: always */
    uint64_t newest;       /* the source's index by its last answer; 0: there was none */
    uint64_t taken;        /* steps that were taken */
    int error;             /* of the last attempt */
};
void keys_follower_state(const struct keys_follower *follower, struct keys_follower_state *state);

#endif
