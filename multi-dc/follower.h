/* Follows what another region has: decides when to ask it what changed, and what to propose so that our copy equals it.
 * Two things are followed, and each is a table of functions (multi-dc/follower_kind.h): a region's catalog
 * (follow_catalog.c; the copy is multi-dc/copy.h), and the keys below a prefix (follow_keys.c; multi-dc/keys.h).
 *
 * A follower works on the leader of our region; elsewhere it rests. It has no clock and does no I/O: its owner calls
 * follower_next, does what that wants, and reports the outcome (multi-dc/follower_run.h). Used by one thread.
 *
 *   rests -> reads our copy -> asks the source, and waits there for a change -> proposes -> asks ...
 *                ^------------- refused, unknown outcome, changed leader ---------'
 *
 * One thing is under way at a time. The follower proposes a change as soon as the source tells it, but asks again only
 * FOLLOWER_PACE_MS later, so that many changes become few proposals; what is left of a divided answer is asked for at
 * once. An answer with an older index (from a server of the source that is behind) is ignored. An answer without news
 * changes nothing in our state: the copy's position is then older than the position that it is known to equal
 * (`reached`), until the next proposal moves it. If there is none for FOLLOWER_MARK_MS, the follower proposes the
 * position alone, so that the source's history still reaches back to it after a change of leader. A kind may want that
 * earlier. After an error it tries again FOLLOWER_AGAIN_LEAST_MS later, doubled each time up to FOLLOWER_AGAIN_MOST_MS.
 *
 * Beside this every server, also one that does not lead, *looks* once a second where the source is, and so knows how old
 * the copy in its own store may be. */
#ifndef COORD_MULTI_DC_FOLLOWER_H
#define COORD_MULTI_DC_FOLLOWER_H

#include "multi-dc/copy.h"
#include "multi-dc/keys.h"

#define FOLLOWER_PACE_MS        100
#define FOLLOWER_MARK_MS        60000
#define FOLLOWER_AGAIN_LEAST_MS 250
#define FOLLOWER_AGAIN_MOST_MS  5000

/* How long a question waits at the source. */
#define FOLLOW_CATALOG_WAIT_MS 10000
#define FOLLOW_KEYS_WAIT_MS    1000 /* and so the greatest age of an answer */
/* A position is noted as soon as that if the source's catalog changed, but nothing in it that copies have: servers that
 * do not lead know only by the position whether their copy is still the same. */
#define FOLLOW_CATALOG_MARK_MS 5000
#define FOLLOW_KEYS_LOOK_MS    1000 /* between the looks of a server that does not lead */

struct follower;
/* Of the catalog of a region. */
struct follower *follow_catalog(const char *region);
/* Of the keys below the prefix of the rule that was made by the entry create_index. */
struct follower *follow_keys(struct slice prefix, uint64_t create_index);
void follower_free(struct follower *follower);
/* Rows in one command; at first, and with 0, COPY_ROWS_MOST or KEYS_ROWS_MOST. */
void follower_rows_most(struct follower *follower, uint32_t rows);

/* Tells whether this server leads our region (at first it does not), and whether there is a link to the source (at first
 * there is). The follower then ignores the answers that it does not need any more. */
void follower_leads(struct follower *follower, bool leads, uint64_t now_ms);
void follower_linked(struct follower *follower, bool linked, uint64_t now_ms);
/* Our own region was restored from a backup: forgets what is known of the copy. Of a catalog the follower finds that out
 * by itself. */
void follower_set_back(struct follower *follower, uint64_t now_ms);
/* The rule as it is in this server's store. */
void follow_keys_know(struct follower *follower, const Pb__KeysRule *rule);

enum follower_wish { FOLLOWER_RESTS, FOLLOWER_READS, FOLLOWER_ASKS, FOLLOWER_PROPOSES };
struct follower_effect {
    enum follower_wish wish;
    uint64_t ticket;                 /* names it to the calls below */
    uint64_t until_ms;               /* RESTS: call again at this time, or when something has happened. UINT64_MAX: only
                                      * then */
    const struct query_type *query;  /* READS: of our own region; ASKS: of the source, stale */
    bool confirmed;                  /* READS: not stale */
    uint64_t index, wait_ms;         /* ASKS: as blocking queries */
    bool large;                      /* ASKS: the answer may have everything, so not many at a time */
    uint8_t command;                 /* PROPOSES */
    const ProtobufCMessage *message; /* the request, or the command; valid while its outcome is awaited */
};
void follower_next(struct follower *follower, uint64_t now_ms, struct follower_effect *effect);
/* The same for looks, which are beside the thing under way: READS or ASKS; RESTS: call again soon. */
void follower_look(struct follower *follower, uint64_t now_ms, struct follower_effect *effect);
bool follower_awaits(const struct follower *follower, uint64_t ticket);

/* Reports the outcome. A ticket that is not awaited is ignored. */
struct follower_answer {
    int error;
    struct slice records; /* the query's result, packed; not kept */
    uint64_t index;       /* of the result */
    uint64_t as_of_ms;    /* our time at which the source was surely not beyond the answer's index (at the latest the
                           * time of the question, minus the possible lag of the source's server); 0: not known */
    uint64_t round_ns;    /* from question to answer */
};
void follower_answered(struct follower *follower, uint64_t ticket, const struct follower_answer *answer,
                       uint64_t now_ms);
/* `refused`: the error of the command's result, when `error` is CO_OK. yes, index: of the result. */
void follower_proposed(struct follower *follower, uint64_t ticket, int error, int refused, bool yes, uint64_t index,
                       uint64_t now_ms);

struct follower_state {
    bool leads;
    bool current;          /* on the leader: no change is known that the copy does not have */
    Pb__CatalogAt reached; /* on the leader: the position that our copy is known to equal */
    uint64_t confirmed_ms; /* our time since which the source may have changed without our knowledge; 0: always */
    uint64_t newest;       /* the source's index by its last answer; 0: there was none */
    uint64_t position;     /* of the copy, of a catalog; 0: there is none */
    uint64_t heard_ms;     /* when the source was last heard of, of a catalog; 0: never */
    uint32_t round_us;     /* the shortest of the last round trips, of a catalog; what is added to it is load, not
                            * distance. 0: none yet */
    uint64_t taken;        /* proposals that changed the copy */
    uint64_t set_backs;    /* times that the copy was another one than before */
    int error;             /* of the last attempt */
    const char *doing;     /* "asking", for people */
};
void follower_state(const struct follower *follower, struct follower_state *state);

#endif
