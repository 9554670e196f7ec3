/* Founding a cluster once, also when more servers start than are needed: a founder asks every other server that it
 * chose, and each promises itself to one founder at a time. Without that, two founders that do not see each other yet
 * could choose servers so that both get a majority: two clusters, and logs that are the same by index and term and
 * differ in content.
 *
 * Asking is a ballot of all that were chosen, as Raft's votes are, and does not use the calls of rpc/wire/calls.h:
 * nobody waits for a single answer; the founder counts the answers of an attempt, and makes another attempt when some
 * are missing.
 *
 * A promise lasts PROMISE_MS after it was asked for, and the founder relies on it for TRUST_MS after it asked. So both
 * forget it without a message. Pure: time and messages are arguments. */
#ifndef COORD_RPC_BOOTSTRAP_H
#define COORD_RPC_BOOTSTRAP_H

#include <stdbool.h>
#include <stdint.h>

#include "consensus/raft.h"

#define BOOTSTRAP_PROMISE_MS 4000
#define BOOTSTRAP_TRUST_MS   1000

struct bootstrap {
    uint64_t attempt, asked_ms;  /* ours: the answers of this attempt count */
    struct raft_members members; /* the servers that were asked; count 0: none */
    bool yes[RAFT_MEMBERS_MAX], refused;
    uint64_t promised_to, promised_ms; /* 0: to nobody */
};

/* Another server asks for our promise, or gives it back (`release`). `fresh`: we belong to no cluster and have voted
 * for nobody. */
bool bootstrap_asked(struct bootstrap *bootstrap, uint64_t from, bool release, bool fresh, uint64_t now_ms);
/* The answer to an attempt of ours. */
void bootstrap_answered(struct bootstrap *bootstrap, uint64_t from, uint64_t attempt, bool yes);
void bootstrap_lost(struct bootstrap *bootstrap, uint64_t peer);

enum bootstrap_step {
    BOOTSTRAP_WAIT,
    BOOTSTRAP_ASK,     /* send the question with bootstrap->attempt to every other of bootstrap->members */
    BOOTSTRAP_RELEASE, /* tell every other of bootstrap->members, then forget them (bootstrap_released) */
    BOOTSTRAP_DONE,    /* all have promised: found it now */
};
/* `members`: whom we want to found it with now; NULL: we do not want to. */
enum bootstrap_step bootstrap_next(struct bootstrap *bootstrap, const struct raft_members *members, uint64_t now_ms,
                                   uint64_t self);
void bootstrap_released(struct bootstrap *bootstrap);

#endif
