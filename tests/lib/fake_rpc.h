/* A stand-in for rpc/ (rpc.h, coordinates.h, operator.h): one state machine in this process, without Raft. Switches
 * make it do all that a cluster can do to its users. Only programs that need no real rpc link it
 * (tests/CMakeLists.txt).
 *
 * Threads: rpc_* may be called as rpc.h says. One thread of the fake's own does what is asked, in the order in which
 * it came, and calls `done`. Switches may be thrown from any thread; they count for what that thread takes in hand
 * afterwards. */
#ifndef COORD_TESTS_LIB_FAKE_RPC_H
#define COORD_TESTS_LIB_FAKE_RPC_H

#include "rpc/api/rpc.h"

struct fake_rpc_options {
    /* Without a thread: everything is done before its call returns, apart from rounds (fake_rpc_round). */
    bool at_once;
    struct machine *machine;   /* the caller's; NULL: one in a folder of its own, removed at the end */
    const struct module *more; /* of that, after the program's; NULL: none */
    /* Applies in the machine's place; NULL: the machine does. As machine_apply of one command; only with at_once. */
    int (*apply)(struct slice command, void (*done)(void *data, const struct machine_result *result), void *data);
};
struct rpc *fake_rpc_start(const struct fake_rpc_options *options); /* NULL: all as zero */
/* Before anything is written: the log begins with the members, as that of every cluster. Without it the first record has index
 * 1, which is also what clients are told of a thing that never was: whoever waits with it would not be woken by that record. */
void fake_rpc_found(struct rpc *rpc);
void fake_rpc_stop(struct rpc *rpc); /* what waits ends with CO_CLOSED */

/* -- writes and renewals ------------------------------------------------------------------------------------------ */

/* Applies a command as somebody else's; it is applied when this returns, and has to be accepted. */
void fake_rpc_apply(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message);
void fake_rpc_hold(struct rpc *rpc, bool hold); /* writes and renewals wait */
unsigned fake_rpc_held(struct rpc *rpc);        /* how many writes and renewals wait */
void fake_rpc_stand_still(struct rpc *rpc);     /* rpc_submit returns when what it writes is applied */
void fake_rpc_fail(struct rpc *rpc, int error); /* writes end so, not done; CO_OK: they succeed again */
/* The next `count` writes end with CO_UNKNOWN_OUTCOME, done or not. */
void fake_rpc_lose(struct rpc *rpc, unsigned count, bool done);
/* The next `count` writes end with CO_UNKNOWN_OUTCOME, and are on their way until fake_rpc_late, which applies them. */
void fake_rpc_delay(struct rpc *rpc, unsigned count);
void fake_rpc_late(struct rpc *rpc);
/* Writes with this text in them end with CO_UNKNOWN_OUTCOME, not done. NULL: no more. Returns how many there were. */
unsigned fake_rpc_poison(struct rpc *rpc, const char *text);
uint64_t fake_rpc_writes(struct rpc *rpc);   /* applied so far */
uint64_t fake_rpc_renewals(struct rpc *rpc); /* that succeeded. Nothing ends by itself: what stands is renewed */

/* -- the cluster -------------------------------------------------------------------------------------------------- */

void fake_rpc_leader(struct rpc *rpc, bool there);     /* false: writes, renewals and rounds end with CO_NOLEADER */
void fake_rpc_alone(struct rpc *rpc, bool alone);      /* false: reads wait for a round of confirmation */
void fake_rpc_hold_rounds(struct rpc *rpc, bool hold); /* true: it is not alone either */
void fake_rpc_fail_rounds(struct rpc *rpc, unsigned count, int error); /* the next `count` rounds end so */
unsigned fake_rpc_rounds(struct rpc *rpc);                             /* so far */
bool fake_rpc_round(struct rpc *rpc); /* at_once: ends the round that reads wait for; false: there is none */
void fake_rpc_floor(struct rpc *rpc, uint64_t floor);

/* -- reads -------------------------------------------------------------------------------------------------------- */

/* Fetches that are read from now on end with CO_FENCED; those that wait, when their thing changes. */
void fake_rpc_fence(struct rpc *rpc, bool fence);
uint64_t fake_rpc_fenced(struct rpc *rpc);        /* so often that was so */
void fake_rpc_slow(struct rpc *rpc, unsigned us); /* each fetch is read so much after the one before */
uint64_t fake_rpc_statuses(struct rpc *rpc);      /* so often rpc_status was called, */
uint64_t fake_rpc_peers(struct rpc *rpc);         /* and rpc_peers */
uint64_t fake_rpc_fetched(struct rpc *rpc);       /* so often something was asked for */
uint64_t fake_rpc_uncached(struct rpc *rpc);      /* so often of them without an answer of before (no_cache) */
uint64_t fake_rpc_cancelled(struct rpc *rpc);
uint64_t fake_rpc_reads(struct rpc *rpc); /* of the copy, by all readers */

#endif
