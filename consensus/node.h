/* A Raft server at work: the core, the threads that act for it (log writer, applier, snapshot copier) and the loop that
 * feeds it. Knows bytes and indexes; the callbacks know their meaning.
 *
 *   any thread: node_propose, node_read --mailbox--> loop: raft_step, raft_effects
 *   loop --persist--> log writer (wal, one group at a time) --done--> loop
 *   loop --committed--> applier (callbacks.apply) --applied--> loop
 *   pool (libuv's): callbacks.snapshot_copy into a snapshot file, throttled; reads of old entries and chunks for
 *   peers */
#ifndef COORD_CONSENSUS_NODE_H
#define COORD_CONSENSUS_NODE_H

#include <stdatomic.h>
#include <uv.h>

#include "base/error.h"
#include "base/mailbox.h"
#include "consensus/disk.h"
#include "consensus/raft.h"

struct node;

/* One command on its way. Owned by the caller until `done` is called, exactly once. */
struct node_proposal {
    struct mail mail;       /* the node's */
    struct raft_data *data; /* the command; one reference goes to the node */
    uint64_t deadline_ms;   /* monotonic: without a leader until then it fails with CO_NOLEADER (never handed over) */
    uint64_t index, term;   /* filled in once appended */
    bool here_only;         /* came from another server: append it here or fail with CO_NOLEADER, never pass it on */
    struct node_proposal *next; /* the node's */
    const void *tag;            /* the proposer's own; the node does not read it */
    /* Called on the applier thread with the result of apply (error CO_OK), or on the loop thread:
     * CO_NOLEADER (not appended), CO_UNKNOWN_OUTCOME (appended, its fate is unknown), CO_DISKFULL, CO_CLOSED. */
    void (*done)(struct node_proposal *proposal, int error, const void *result);
};

/* Asks for a confirmed read index. */
struct node_read {
    struct mail mail;
    uint64_t deadline_ms;
    struct node_read *next;
    bool here_only;           /* came from another server: ends with CO_NOTLEADER when this one does not lead */
    uint64_t from, from_term; /* that server, and the term that it said to be in; 0: it did not say */
    /* serve when applied >= index; already applied when `done` is called with CO_OK, except for a read that was vouched
     * for (raft_vouched) */
    uint64_t index;
    /* Loop thread. CO_DISKFULL: the leader confirmed an index that this server's full disk has no room for; others
     * can answer. */
    void (*done)(struct node_read *read, int error);
};

/* An entry that is to be applied and, when it was proposed here, its proposal. */
struct node_apply {
    struct raft_entry entry;
    struct node_proposal *proposal; /* NULL: proposed elsewhere or earlier */
};

struct node_callbacks {
    void *data;
    /* Applier thread. Applies all `count` entries in order (types EMPTY and MEMBERS included: they move the applied
     * index), then answers the proposals: node_apply_done(proposal, result). Returns the index it has applied up to;
     * when that is not the last one, nothing more is applied until a restart (a command from a newer version), and
     * the proposals left over are answered as unknown. */
    uint64_t (*apply)(void *data, struct node_apply *items, size_t count);
    /* Pool thread: writes the state as of some applied index to fd (a pipe), says which index and term before the
     * first byte is written. A nonzero return aborts. */
    int (*snapshot_copy)(void *data, int fd, uint64_t *index, uint64_t *term);
    /* Applier thread; before node_start returns, or while the log is opened again, the loop thread: replaces the
     * state by what `fd` (a pipe) brings. */
    int (*snapshot_install)(void *data, int fd, const struct raft_snapshot_meta *meta, struct fault *fault);
    /* For a state machine that is damaged and has to be rebuilt while the log lives on. All are called on the applier
     * thread, and all are NULL where that does not happen. `held` is asked when `apply` returned before its last entry.
     * True: the stop is temporary; the entries that are left and those that come wait, in order, for node_resume (or
     * for a snapshot from the leader, which is a new state too). `rebuild`, from node_resume, puts a state from
     * elsewhere in place (CO_OK: *applied is its index, and `apply` works again); with `own` it empties the state, and
     * this server's snapshot and log are applied to it again. `rebuilt` ends that; not CO_OK: everything is held as
     * before. */
    bool (*held)(void *data);
    int (*rebuild)(void *data, bool own, uint64_t *applied, struct fault *fault);
    void (*rebuilt)(void *data, int error, const struct fault *fault);
    /* Loop thread: does the store's reserved space cover more writes? NULL: always. */
    bool (*has_room)(void *data);
    /* Loop thread: leadership or term changed. `ready`: this server leads, and has applied everything that was
     * committed before and the first entry of its own term, so it may judge leases and reads. */
    void (*role)(void *data, enum raft_role role, uint64_t term, uint64_t leader, bool ready);
    /* Loop thread: a message for a peer. NULL: there are no peers. */
    void (*send)(void *data, const struct raft_message *message);
    /* Loop thread, before a command is appended here (leader: this server) or handed to the leader: returns the result
     * with which it is answered instead, valid until the next call; NULL: it may go on. May be asked again for the same
     * one. NULL callback: all may go on. */
    const void *(*refuse)(void *data, uint64_t leader, const struct node_proposal *proposal);
    /* Loop thread: another server leads. Takes the whole list (linked by `next`; each is answered or given back with
     * node_propose_again) and returns true, or takes nothing: it cannot be reached now. */
    bool (*forward)(void *data, uint64_t leader, struct node_proposal *list);
    /* Loop thread: asks the leader for a confirmed read index, and says that this server is in `term`; the answer
     * comes by node_read_answer. False: cannot be reached. */
    bool (*ask_read)(void *data, uint64_t leader, uint64_t context, uint64_t term);
    /* Loop thread, at the end of a turn: send the messages that were queued for others. */
    void (*flush)(void *data);
};

/* The defaults of node_config, which 0 stands for. */
#define NODE_SNAPSHOT_LOG_BYTES (64 << 20)
#define NODE_SNAPSHOT_RATE      (128 << 20)

struct node_config {
    const char *folder;         /* DATA/raft */
    uint64_t id;                /* 0: the one stored in the folder, or a new one */
    const char *address;        /* this server's "IP:port" for the configuration */
    bool bootstrap;             /* found a new cluster of one voter when the folder is empty */
    struct slice first_command; /* of that cluster; empty: none. Valid during node_start */
    uint32_t raft_multiplier;   /* 1 = LAN default */
    uint64_t applied_term;      /* of the entry `applied` */
    uint64_t applied; /* the state machine's applied index at start (0: empty; comes from the snapshot and the log) */
    /* take a snapshot when the log has grown by this much, and by the size of the last one */
    uint64_t snapshot_log_bytes;
    uint64_t snapshot_rate; /* bytes a second of copying, and of sending to a peer */
};

/* Opens the folder, recovers, starts the threads. On CO_CORRUPT `fault` names file and offset. When config.applied is
 * beyond the end of the log, the log has lost durable entries (a torn or missing end). The only server of a cluster
 * goes on from its state, which has them. One of several gets CO_CONFLICT: empty the state machine and start again,
 * because the others have them. Loop thread. */
int node_start(uv_loop_t *loop, const struct node_config *config, const struct node_callbacks *callbacks,
               struct node **out, struct fault *fault);
/* The id that is kept in a server's folder. CO_NOTFOUND, CO_CORRUPT. The disk may be read-only (disk_posix_look). */
int node_id_read(struct disk *disk, uint64_t *id, struct fault *fault);
/* Loop thread. Stops the threads, and answers all that wait with CO_CLOSED. `closed` is called from the loop when all
 * is freed. */
void node_stop(struct node *node, void (*closed)(void *data), void *data);

void node_propose(struct node *node, struct node_proposal *proposal); /* any thread */
void node_read(struct node *node, struct node_read *read);            /* any thread */
/* any thread: asks for a turn of the loop, its `flush` included; does nothing after node_stop */
void node_wake(struct node *node);
void node_receive(struct node *node, const struct raft_message *message); /* loop thread */
/* Loop thread. */
/* for a proposal that is surely in no log: it waits for a leader again */
void node_propose_again(struct node *node, struct node_proposal *proposal);
void node_read_answer(struct node *node, uint64_t context, uint64_t index, int error);
void node_unreachable(struct node *node, uint64_t peer);
/* `first_command` may be empty. CO_EXISTS */
int node_bootstrap(struct node *node, const struct raft_members *members, struct slice first_command);
int node_change(struct node *node, enum raft_change_type type, uint64_t id, const char *address); /* see RAFT_CHANGE */
int node_transfer(struct node *node, uint64_t target);
uint64_t node_match(struct node *node, uint64_t peer);
bool node_peer_full(struct node *node, uint64_t peer);  /* leader: its disk has no room for commands */
bool node_peer_heard(struct node *node, uint64_t peer); /* leader: it answered within an election timeout */
bool node_transferring(struct node *node);              /* leader: this server waits for another one to take over */
bool node_caught_up(struct node *node, uint64_t peer);  /* leader: the peer is a learner that may be promoted */
/* The state machine must not be used: this server does not lead if another can, is never ready, and refuses commands
 * with CO_FENCED. */
void node_fence(struct node *node, bool fenced);
/* No leader is known, and no majority is heard, so this server will not learn soon what became of the entries that it
 * appended. */
void node_cut_off(struct node *node, bool cut_off);
void node_refuse(struct node *node, bool refused); /* refuses everybody's commands with CO_FENCED */
/* After callbacks.rebuild, the entries that `apply` left are applied. Those that the new state has already are answered
 * as unknown. The new state must not be beyond node_view.handed, because only entries that are durable here may be
 * applied here. */
void node_resume(struct node *node, bool own);
void node_apply_done(struct node_proposal *proposal, const void *result); /* applier thread, from callbacks.apply */
/* Any thread, from callbacks.apply: entries that are to be applied wait for room (true), or no longer do. */
void node_out_of_space(struct node *node, bool starves);

/* Any thread, no lock; a recent picture. */
struct node_view {
    _Atomic uint64_t id, leader, term, commit, applied, last_index, last_contact_ms, snapshot_index;
    _Atomic int role;
    _Atomic bool ready;             /* leader that has committed in its term */
    _Atomic uint64_t leaderless_ms; /* since when (clock_mono_ms) no leader that can serve is known; 0: one is known */
    _Atomic bool alone;             /* sole voter and ready: a default read needs no round */
    _Atomic uint64_t log_bytes;
    _Atomic uint64_t handed; /* the last entry that went to the applier */
    _Atomic bool disk_full;
    _Atomic bool disk_degraded; /* slow, failing or full: this server does not campaign, and hands leadership over */
    _Atomic bool failed;        /* the log's disk failed; being reopened */
};
const struct node_view *node_view(const struct node *node);
/* Loop thread. */
const struct raft_members *node_members(const struct node *node);
uint64_t node_members_index(const struct node *node); /* of its entry */
bool node_members_committed(const struct node *node);
uint64_t node_last_term(const struct node *node); /* of the log's last entry */

#endif
