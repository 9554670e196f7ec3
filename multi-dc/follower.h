/* Follows the catalog of one region: decides when to ask it what changed, and what to propose so that our copy
 * (multi-dc/copy.h) equals it. On the leader of our region; elsewhere it rests. No clock, no I/O: whoever has one asks
 * follower_next what to do, does it, and says what came of it. Used by one thread.
 *
 *   rests -> reads our copy -> asks the region, and waits there for a change -> proposes -> asks ...
 *                ^------------- refused, unknown outcome, changed leader ---------'
 *
 * One thing is under way at a time. A change is proposed the moment the region tells it, but the next question comes
 * FOLLOWER_PACE_MS later: many changes are few proposals. An answer that goes back (a server of the region that is behind
 * answered) is ignored. An answer with no news moves nothing: the copy's position is then older than what it is known to
 * equal (`reached`), which the next proposal makes good. Without any, one that has only the position is made each
 * FOLLOWER_MARK_MS, so that the region's history still reaches back to it after a change of leader; and after
 * FOLLOWER_MARK_SOON_MS where the region's catalog changed, though in nothing that copies have: servers that do not lead
 * know by the position alone whether their copy is still the same (multi-dc/following.h).
 * Errors are tried again after FOLLOWER_AGAIN_LEAST_MS, doubled up to FOLLOWER_AGAIN_MOST_MS. */
#ifndef COORD_MULTI_DC_FOLLOWER_H
#define COORD_MULTI_DC_FOLLOWER_H

#include "multi-dc/copy.h"

#define FOLLOWER_PACE_MS        100
#define FOLLOWER_WAIT_MS        10000 /* a question waits so long at the region */
#define FOLLOWER_MARK_MS        60000
#define FOLLOWER_MARK_SOON_MS   5000
#define FOLLOWER_AGAIN_LEAST_MS 250
#define FOLLOWER_AGAIN_MOST_MS  5000

struct follower;
struct follower *follower_new(const char *region);
void follower_free(struct follower *follower);
void follower_rows_most(struct follower *follower, size_t rows); /* in one command; at first COPY_ROWS_MOST */

/* Whether this server leads our region, and whether there is a link. What
 * was under way counts as never asked: its answer is ignored. */
void follower_leads(struct follower *follower, bool leads, uint64_t now_ms);
void follower_linked(struct follower *follower, bool linked, uint64_t now_ms);

enum follower_wish { FOLLOWER_RESTS, FOLLOWER_READS, FOLLOWER_ASKS, FOLLOWER_PROPOSES };
struct follower_effect {
    enum follower_wish wish;
    uint64_t ticket;               /* names it to the calls below */
    uint64_t until_ms;             /* RESTS: ask again then, or when something happened. UINT64_MAX: the latter only */
    Pb__CopyRequest read;          /* READS: query_copy of our own region, not stale */
    Pb__CatalogChangesRequest ask; /* ASKS: query_catalog_changes of the region, stale, */
    uint64_t index, wait_ms;       /* as blocking queries */
    bool large;                    /* maybe all of it comes: not many of these at a time */
    uint8_t command;               /* PROPOSES */
    const ProtobufCMessage *message; /* valid until the follower is called again */
};
void follower_next(struct follower *follower, uint64_t now_ms, struct follower_effect *effect);

/* What came of it. A ticket that is not that of what is under way is ignored. */
void follower_read(struct follower *follower, uint64_t ticket, int error, const Pb__CopyResult *result,
                   uint64_t now_ms);
/* `records`: CatalogChangesResult, packed, not kept. index: of the result. as_of_ms: our time at which the region was surely not further
 * than the answer says (when it was asked for at the latest, minus how far behind its server may be); 0: not known. */
void follower_answered(struct follower *follower, uint64_t ticket, int error, struct slice records, uint64_t index,
                       uint64_t as_of_ms, uint64_t now_ms);
/* `refused`: its result's error, with `error` CO_OK. index: of its result. */
void follower_proposed(struct follower *follower, uint64_t ticket, int error, int refused, bool yes, uint64_t index,
                       uint64_t now_ms);
/* Any time, beside what is under way: where the region's catalog is (query_catalog_position), asked at as_of_ms. */
void follower_heard(struct follower *follower, const Pb__CatalogAt *position, uint64_t as_of_ms);

/* Is our copy still what it was when this follower saw it last? It is not when our own region was set back to a backup,
 * and without news from the region nothing else would tell. The moment is that of the look into our own store; 0: not
 * now, something else is under way that finds out by itself. follower_compared returns whether it is otherwise: then what
 * is under way counts as never asked, and the copy is read again. */
uint64_t follower_moment(const struct follower *follower);
bool follower_compared(struct follower *follower, uint64_t moment, const Pb__CopyResult *ours, uint64_t now_ms);

struct follower_state {
    bool follows;          /* leads, linked, and has read our copy */
    bool current;          /* nothing is known that the copy does not have */
    Pb__CatalogAt reached; /* what our copy is known to equal */
    uint64_t confirmed_ms; /* our time: since then the region may have changed without us knowing. 0: never heard */
    uint64_t taken;        /* proposals that changed the copy */
    int error;             /* of the last attempt; CO_OK: it went well */
    const char *doing;     /* "asking", for people */
};
void follower_state(const struct follower *follower, struct follower_state *state);

#endif
