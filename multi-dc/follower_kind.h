/* Inside multi-dc/follower.h: what followers of a catalog and of keys share, and the table of what differs. */
#ifndef COORD_MULTI_DC_FOLLOWER_KIND_H
#define COORD_MULTI_DC_FOLLOWER_KIND_H

#include "base/metrics.h"
#include "multi-dc/follower.h"

/* The next step, which a function of the table decides. */
enum follow_step {
    FOLLOW_ASK,       /* ask the source, at once; the answer is dropped */
    FOLLOW_ASK_LATER, /* the same after FOLLOWER_PACE_MS */
    FOLLOW_COMPARE,   /* read our copy again, with the answer at hand */
    FOLLOW_SAME,      /* the answer has no news: the copy equals the answer's position */
    FOLLOW_PROPOSE,
};

struct follow_kind {
    const char *name; /* for the log */
    struct metric *taken;
    bool background;                       /* as that of rpc_fetch */
    const struct query_type *own, *source; /* which our copy is read by, and which the source is asked */

    /* The request for our copy, in follower->message. */
    const ProtobufCMessage *(*read)(struct follower *follower);
    /* Its result; follower->answer is there after FOLLOW_COMPARE. An error: read again. */
    int (*was_read)(struct follower *follower, const ProtobufCMessage *own, enum follow_step *next);
    /* Fills in message, index, wait_ms and large. */
    void (*ask)(struct follower *follower, struct follower_effect *effect);
    /* follower->answer has come. Sets `to` and `more`. An error: ask again; CO_AGAIN: its server is behind. */
    int (*take)(struct follower *follower);
    /* It is not behind. An error: it does not fit our copy, read that again. */
    int (*judge)(struct follower *follower, uint64_t index, enum follow_step *next);
    /* Fills in command and message. */
    void (*propose)(struct follower *follower, struct follower_effect *effect);
    enum follow_step (*proposed)(struct follower *follower, bool yes, uint64_t index);
    /* For how long `reached` may be ahead of the copy's position. */
    uint64_t (*mark_ms)(const struct follower *follower);

    /* The next look: wish, query and message, in follower->look_message. False: not now. */
    bool (*look)(struct follower *follower, struct follower_effect *effect);
    void (*looked)(struct follower *follower, const ProtobufCMessage *result, const struct follower_answer *answer);
    void (*state)(const struct follower *follower, struct follower_state *state); /* may be NULL */
};
extern const struct follow_kind follow_kind_catalog, follow_kind_keys;

/* The first member of the struct of each kind. */
struct follower {
    const struct follow_kind *kind;
    uint32_t rows_most; /* 0: as many as there may be */
    bool leads, linked;
    enum follower_wish phase;           /* READS, ASKS or PROPOSES */
    uint64_t ticket, awaited, looking;  /* the last one; of the thing under way, of the look under way (0: none) */
    const struct query_type *looked_by; /* of the look under way */
    uint64_t now_ms;                    /* of the present call */
    uint64_t not_before_ms, again_ms, marked_ms;
    int error;
    /* Our copy equals the source at `copied`, and the source is the same at `reached`. */
    bool has; /* there is a copy */
    Pb__CatalogAt copied, reached;
    /* The answer of the source that is being proposed. */
    struct arena arena; /* its memory */
    const ProtobufCMessage *answer;
    const Pb__CatalogAt *to; /* its position; NULL: there is no answer */
    bool more;               /* the source has changes behind it */
    uint64_t as_of_ms;
    struct arena message, look_message; /* memory of the present request or command */
    uint64_t confirmed_ms, newest, taken, set_backs;
    bool current;
};

void follower_begin(struct follower *follower, const struct follow_kind *kind); /* zeroed before */
void follower_drop_answer(struct follower *follower);
void follower_confirm(struct follower *follower, uint64_t as_of_ms);
/* Our copy is at this position now. */
void follower_moved(struct follower *follower, const Pb__CatalogAt *at);

static inline Pb__CatalogAt follow_at(const Pb__CatalogAt *at) {
    Pb__CatalogAt copy = PB__CATALOG_AT__INIT;
    copy.cluster_id = at->cluster_id, copy.restored = at->restored, copy.index = at->index;
    return copy;
}
/* Is the position older than the known one? */
static inline bool follow_is_behind(const Pb__CatalogAt *to, const Pb__CatalogAt *known) {
    return to->cluster_id == known->cluster_id && to->index < known->index;
}
/* A message in memory of the follower's. */
#define FOLLOW_MESSAGE(arena, type, init)                        \
    ({                                                           \
        type *message_ = arena_alloc((arena), sizeof *message_); \
        init(message_);                                          \
        message_;                                                \
    })

#endif
