/* Follows the catalog of one region: decides when to ask it what changed, and what to propose so that our copy
 * (multi-dc/copy.h) equals it. On the leader of our region; elsewhere it rests. It has no clock and does no I/O: its
 * owner calls follower_next, does what that wants, and reports the outcome. Used by one thread.
 *
 *   rests -> reads our copy -> asks the region, and waits there for a change -> proposes -> asks ...
 *                ^------------- refused, unknown outcome, changed leader ---------'
 *
 * One thing is under way at a time. The follower proposes a change as soon as the region tells it, but asks again only
 * FOLLOWER_PACE_MS later, so that many changes become few proposals. An answer with an older index (from a server of
 * the region that is behind) is ignored. An answer without news changes nothing in our state: the copy's position is
 * then older than the position that it is known to equal (`reached`), until the next proposal moves it. If there is
 * none for FOLLOWER_MARK_MS, the follower proposes the position alone, so that the region's history still reaches back
 * to it after a change of leader. It does so after FOLLOWER_MARK_SOON_MS if the region's catalog changed, but nothing
 * in it that copies have, because servers that do not lead know only by the position whether their copy is still the
 * same (multi-dc/following.h). After an error it tries again FOLLOWER_AGAIN_LEAST_MS later, doubled each time up to
 * FOLLOWER_AGAIN_MOST_MS. */
#ifndef COORD_MULTI_DC_FOLLOWER_H
#define COORD_MULTI_DC_FOLLOWER_H

#include "multi-dc/copy.h"

#define FOLLOWER_PACE_MS        100
#define FOLLOWER_WAIT_MS        10000 /* how long a question waits at the region */
#define FOLLOWER_MARK_MS        60000
#define FOLLOWER_MARK_SOON_MS   5000
#define FOLLOWER_AGAIN_LEAST_MS 250
#define FOLLOWER_AGAIN_MOST_MS  5000

struct follower;
struct follower *follower_new(const char *region);
void follower_free(struct follower *follower);
void follower_rows_most(struct follower *follower, size_t rows); /* rows in one command; at first COPY_ROWS_MOST */

/* Tells whether this server leads our region, and whether there is a
 * link. After a change the follower ignores the answer to the question that was under way. */
void follower_leads(struct follower *follower, bool leads, uint64_t now_ms);
void follower_linked(struct follower *follower, bool linked, uint64_t now_ms);

enum follower_wish { FOLLOWER_RESTS, FOLLOWER_READS, FOLLOWER_ASKS, FOLLOWER_PROPOSES };
struct follower_effect {
    enum follower_wish wish;
    uint64_t ticket;                 /* names it to the calls below */
    uint64_t until_ms;               /* RESTS: call again at this time, or when something has happened. UINT64_MAX: only
                                    * then */
    Pb__CopyRequest read;            /* READS: query_copy of our own region, not stale */
    Pb__CatalogChangesRequest ask;   /* ASKS: query_catalog_changes of the region, stale, */
    uint64_t index, wait_ms;         /* as blocking queries */
    bool large;                      /* the answer may have the whole catalog, so not many at a time */
    uint8_t command;                 /* PROPOSES */
    const ProtobufCMessage *message; /* valid until the follower is called again */
};
void follower_next(struct follower *follower, uint64_t now_ms, struct follower_effect *effect);

/* Reports the outcome. A ticket of something that is no longer under way is ignored. */
void follower_read(struct follower *follower, uint64_t ticket, int error, const Pb__CopyResult *result,
                   uint64_t now_ms);
/* `records`: CatalogChangesResult, packed, not kept. index: of the result. as_of_ms: our time at which the region was
 * surely not beyond the answer's index (at the latest the time of the question, minus the possible lag of the region's
 * server); 0: not known. */
void follower_answered(struct follower *follower, uint64_t ticket, int error, struct slice records, uint64_t index,
                       uint64_t as_of_ms, uint64_t now_ms);
/* `refused`: the error of the command's result, when `error` is CO_OK. index: of the result. */
void follower_proposed(struct follower *follower, uint64_t ticket, int error, int refused, bool yes, uint64_t index,
                       uint64_t now_ms);
/* At any time, beside the thing under way: the position of the region's catalog (query_catalog_position), asked for at
 * as_of_ms. */
void follower_heard(struct follower *follower, const Pb__CatalogAt *position, uint64_t as_of_ms);

/* Is our copy still what it was when this follower last read it? It is not after our own region was restored from a
 * backup, and without news from the region nothing else would tell. follower_moment returns the moment for a look
 * into our own store; 0: not now, because the thing under way finds out by itself. follower_compared returns whether
 * the copy differs; then the follower ignores the answer under way, and reads the copy again. */
uint64_t follower_moment(const struct follower *follower);
bool follower_compared(struct follower *follower, uint64_t moment, const Pb__CopyResult *ours, uint64_t now_ms);

struct follower_state {
    bool follows;          /* the follower leads, is linked, and has read our copy */
    bool current;          /* no change is known that the copy does not have */
    Pb__CatalogAt reached; /* the position that our copy is known to equal */
    uint64_t confirmed_ms; /* our time since which the region may have changed without our knowledge; 0: always */
    uint64_t taken;        /* proposals that changed the copy */
    int error;             /* of the last attempt */
    const char *doing;     /* "asking", for people */
};
void follower_state(const struct follower *follower, struct follower_state *state);

#endif
