/* The requests that wait at a server for Raft: commands on their way into a leader's log, and reads that want a
 * confirmed index. This module decides which of them may be handed on or asked again, and which have an unknown
 * outcome:
 *
 * (1) A command waits until this server leads (it is appended), another does (it is handed over), or its deadline
 *     comes (CO_NOLEADER: it was never handed over).
 * (2) Once it is appended or handed over it never goes back to the waiting ones, unless the callbacks give it back
 *     because it is surely in no log.
 * (3) An appended one is answered when the entry of its index and term is applied; Its outcome is unknown when another
 *     entry stands there; when its leader was deposed and hears nothing of it for DEPOSED_MS (at once, when it is cut
 *     off); or when a majority has no room for it for so long.
 * (4) A command that the callbacks refuse is answered before anybody appends it. A leader that does not know yet what
 *     was committed before it does not judge: a command that it would refuse waits until it knows. A fenced server
 *     appends nothing, and hands its commands over if it can.
 * (5) One question for a read index is under way at a time, and serves the reads that came before it was asked. When
 *     the leader changes it is asked again; the answer to the old question has another number and does not count any
 *     more. A question of another server names the term of that server: when the two servers are a majority, it is
 *     answered at once (raft_vouched).
 *
 * Pure: the core, the time and the applied index are arguments. One thread (node.c's loop, or the simulator). */
#ifndef COORD_CONSENSUS_REQUESTS_H
#define COORD_CONSENSUS_REQUESTS_H

#include "consensus/node.h"

struct requests_callbacks {
    void *data;
    bool (*has_room)(void *data, uint64_t bytes);                             /* for so many bytes of log */
    bool (*forward)(void *data, uint64_t leader, struct node_proposal *list); /* as in node_callbacks; may be NULL */
    bool (*ask_read)(void *data, uint64_t leader, uint64_t context, uint64_t term);           /* likewise */
    const void *(*refuse)(void *data, uint64_t leader, const struct node_proposal *proposal); /* likewise */
};

struct requests {
    struct requests_callbacks callbacks;
    uint64_t id;                                   /* this server */
    struct node_proposal *waiting, **waiting_last; /* for a leader */
    struct node_proposal *pending, **pending_last; /* appended, by index */
    uint64_t pending_term;                         /* of the leadership that appended last */
    struct node_read *reads;                       /* asked for in the next turn */
    struct node_read *reads_round;                 /* with the core or the leader, see read_context */
    uint64_t read_context;
    struct node_read *reads_apply; /* confirmed, waiting for the applied index */
    uint64_t out_of_space_after;   /* the log ends there and its disk has no room for more; UINT64_MAX: it has */
    bool applier_out_of_space;
    enum raft_role role; /* as requests_role saw it last; (enum raft_role)-1: never */
    uint64_t term, leader;
    bool ready;
    uint64_t unix_ms;               /* of this turn: the wall clock that entries get */
    uint64_t deposed_ms;            /* when it last ceased to lead */
    uint64_t room_ms;               /* when a majority last had room for commands, as far as this leader knew */
    bool fenced, refusing, cut_off; /* node_fence, node_refuse, node_cut_off */
    uint64_t fenced_ms;             /* since when */
    uint64_t ready_index;           /* applied up to here, a leader is ready; 0: does not lead */
};

/* `first_context`: questions are numbered from there on; no two lives of a server may share numbers. */
void requests_init(struct requests *r, const struct requests_callbacks *callbacks, uint64_t id, uint64_t first_context);

/* a command comes in, or comes back because it is surely in no log */
void requests_command(struct requests *r, struct node_proposal *proposal);
void requests_read(struct requests *r, struct node_read *read);

/* A turn of the loop: before its effects are taken from the core. unix_ms: the wall clock, at most RAFT_UNIX_MS_MAX. */
void requests_turn(struct requests *r, struct raft *raft, uint64_t now_ms, uint64_t unix_ms);
/* For each committed entry, in order: the proposal that it answers, or NULL. */
struct node_proposal *requests_committed(struct requests *r, uint64_t index, uint64_t term);
void requests_read_answered(struct requests *r, uint64_t context, uint64_t index, int error);
/* The state machine has no room to apply committed entries: reads that need it end with CO_DISKFULL, unless this server
 * leads. */
void requests_out_of_space_applier(struct requests *r, bool starves);
/* Entries that the leader sent were not taken, because the disk is full: reads that need them end with CO_DISKFULL,
 * until the log has grown. */
void requests_out_of_space(struct requests *r, struct raft *raft);
/* After the effects: answers the reads that `applied` covers. */
void requests_serve(struct requests *r, uint64_t applied);
void requests_fence(struct requests *r, bool fenced, uint64_t now_ms);
/* This server leads, is not fenced, and its copy shows everything that any leader before it acknowledged. */
bool requests_ready(struct requests *r, struct raft *raft, uint64_t applied);
/* Reads need no round and no waiting: no other server, not even a learner, can have shown anything that this server's
 * copy does not show. */
bool requests_alone(struct requests *r, struct raft *raft, uint64_t applied);
/* True: role, term, leader or readiness have changed (see the fields). */
bool requests_role(struct requests *r, struct raft *raft, uint64_t applied, uint64_t now_ms);
/* Answers commands as unknown when their fate may stay open for long: a leader that was deposed (cut off from the
 * majority) may not hear what became of its last entries, nor may one whose majority has full disks. Committed entries
 * that reached the applier are not in this list any more. */
void requests_give_up(struct requests *r, struct raft *raft, uint64_t now_ms);

uint64_t requests_deadline_ms(const struct requests *r); /* the next turn is due then; UINT64_MAX: none is */
void requests_fail(struct requests *r, int pending_error, int waiting_error); /* all commands */
void requests_end_reads(struct requests *r, int error);
void requests_end(struct node_proposal *proposal, int error);             /* answers one that is in no list */
void requests_answer(struct node_proposal *proposal, const void *result); /* likewise, with its result */

#endif
