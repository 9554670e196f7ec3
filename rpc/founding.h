/* Founding a cluster once, also when more servers start than are needed: who wants to found it asks every other one
 * that it chose, and each promises itself to one founder at a time. Without that, two founders that do not see each
 * other yet could choose servers so that both get a majority: two clusters, and logs that are the same by index and
 * term and differ in content.
 *
 * A promise lasts PROMISE_MS after it was asked for, and the founder counts on it for TRUST_MS after it asked: so
 * both forget by themselves. Pure: time and messages are arguments. */
#ifndef COORD_RPC_FOUNDING_H
#define COORD_RPC_FOUNDING_H

#include <stdbool.h>
#include <stdint.h>

#include "consensus/raft.h"

#define FOUNDING_PROMISE_MS 4000
#define FOUNDING_TRUST_MS   1000

struct founding {
    uint64_t attempt, asked_ms;  /* ours: the answers of this attempt count */
    struct raft_members members; /* who was asked; count 0: nobody */
    bool yes[RAFT_MEMBERS_MAX], refused;
    uint64_t promised_to, promised_ms; /* 0: to nobody */
};

/* Another server asks for our promise, or gives it back (`release`). `fresh`: we belong to no cluster and have voted
 * for nobody. */
bool founding_asked(struct founding *founding, uint64_t from, bool release, bool fresh, uint64_t now_ms);
/* The answer to an attempt of ours. */
void founding_answered(struct founding *founding, uint64_t from, uint64_t attempt, bool yes);
void founding_lost(struct founding *founding, uint64_t peer);

enum founding_step {
    FOUNDING_WAIT,
    FOUNDING_ASK,     /* send the question with founding->attempt to every other of founding->members */
    FOUNDING_RELEASE, /* tell every other of founding->members, then forget them (founding_released) */
    FOUNDING_DONE,    /* all have promised: found it now */
};
/* `members`: whom we want to found it with now; NULL: we do not want to. */
enum founding_step founding_next(struct founding *founding, const struct raft_members *members, uint64_t now_ms,
                                 uint64_t self);
void founding_released(struct founding *founding);

#endif
