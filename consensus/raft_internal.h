/* Inside the Raft core: its parts, one topic a file. Only consensus/raft*.c include this.
 *
 *   raft.c              life, events in, effects out, views
 *   raft_log.c          the window of the log in memory, what was handed to the disk, what is durable
 *   raft_election.c     roles, votes, timeouts, transfer
 *   raft_replication.c  appends both ways, commit, progress of peers
 *   raft_snapshot.c     snapshots in chunks, both ways
 *   raft_members.c      configurations and their changes
 *   raft_read.c         rounds and read indexes */
#ifndef COORD_CONSENSUS_RAFT_INTERNAL_H
#define COORD_CONSENSUS_RAFT_INTERNAL_H

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "consensus/raft.h"

/* Entries (first .. first+count-1). Everything below `first` is applied, durable, and only on the disk. */
struct window {
    struct raft_entry *entries;
    size_t head, count, capacity;
    uint64_t first;
    uint64_t base_term; /* of entry first-1 */
    uint64_t bytes;
};

enum progress_state { PROGRESS_PROBE, PROGRESS_REPLICATE, PROGRESS_SNAPSHOT };

/* The leader's view of a peer. */
struct progress {
    uint64_t id;
    enum progress_state state;
    uint64_t next, match;
    uint64_t contact_ms; /* when it last answered in this term, or when the term began */
    bool answered;       /* it has answered in this term, so the fields below are valid */
    uint64_t round_acked;
    bool probe_sent; /* PROBE: one message on its way */
    bool heartbeat_due;
    bool degraded, full; /* the state of its disk, as the peer reports it */
    uint64_t passed_ms;  /* when leadership was last handed to it and it did not take it in time; 0: never */
    bool load_pending;   /* entries are being read from the log for it */
    uint64_t load_from;
    uint64_t prev_index, prev_term; /* term of an entry that was read from the log for it */
    uint32_t inflight;              /* REPLICATE: append messages with entries on their way */
    uint64_t *inflight_ends;        /* their last indexes, oldest first; room for append_inflight_max */
    /* SNAPSHOT */
    uint64_t snapshot_index, snapshot_offset, snapshot_sent_ms;
    bool chunk_pending; /* a chunk is being read, or on its way */
    bool chunk_waits;   /* the next one is not due before chunk_due_us */
    uint64_t chunk_due_us;
};

struct persist_op {
    uint64_t seq, last_index;
    bool snapshot;
};
struct held_message {
    uint64_t seq;
    struct raft_message message;
};
struct pending_read {
    uint64_t context, round;
};
struct members_at {
    uint64_t index;
    struct raft_members members;
};

/* A growing array of values. */
#define VECTOR(type)            \
    struct {                    \
        type *items;            \
        size_t count, capacity; \
    }
void *vector_room(void *items, size_t *capacity, size_t count, size_t item_size);
#define vector_push(vector)                                                                                         \
    ((vector)->items = vector_room((vector)->items, &(vector)->capacity, (vector)->count, sizeof *(vector)->items), \
     &(vector)->items[(vector)->count++])

struct raft {
    struct raft_config config;
    struct rng rng;
    uint64_t now_ms;

    /* persistent state, and how much of it is on disk */
    uint64_t term, vote;
    struct window log;
    uint64_t handed; /* entries up to here were handed to the disk */
    uint64_t stable; /* durable up to here */
    bool hard_state_pending;
    uint64_t hard_state_seq;   /* the last operation that carried it */
    uint64_t truncate_pending; /* 0: none */
    bool install_pending;
    uint64_t seq, seq_done;        /* persist operations issued, completed */
    VECTOR(struct persist_op) ops; /* outstanding, oldest first */
    VECTOR(struct held_message) held;
    bool failed;
    struct raft_contradiction contradiction; /* index 0: none was heard */

    uint64_t commit, applying, applied; /* applying: handed out in effects.committed */
    uint64_t applying_bytes;            /* of the entries behind `applied`, up to `applying` */

    /* role */
    enum raft_role role;
    uint64_t leader;
    uint64_t leader_contact_ms, started_ms;
    bool leader_heard; /* leader_contact_ms counts */
    uint64_t election_deadline_ms, quiet_until_ms;
    bool disk_degraded, disk_full, disk_spent;
    uint64_t handover_ms; /* when leadership was last handed over for a degraded disk, or to this server */
    bool votes_granted[RAFT_MEMBERS_MAX], votes_answered[RAFT_MEMBERS_MAX];
    uint64_t self_vote_seq; /* own vote counts once this is durable; 0: it counts */
    bool transfer_campaign; /* the leader asked for it */

    /* leader */
    uint64_t term_start; /* index of the empty entry of this term */
    uint64_t heartbeat_due_ms, quorum_check_ms;
    struct progress *peers; /* one per other member */
    size_t peer_count;
    uint64_t transfer_target, transfer_deadline_ms;
    bool transfer_sent, transfer_degraded; /* degraded: for the sake of the disk */

    /* reads */
    uint64_t round, round_confirmed;
    VECTOR(struct pending_read) reads_waiting;

    /* configurations since the last snapshot, oldest first; the last one counts */
    VECTOR(struct members_at) members;

    /* snapshots */
    struct raft_snapshot_meta snapshot; /* the newest of our own */
    struct {
        bool active, writing, complete; /* complete: all stored, install handed to the disk */
        struct raft_snapshot_meta meta;
        uint64_t from, stored, end;        /* end: of the last chunk, else UINT64_MAX */
        struct raft_recoveries recoveries; /* as its sender told them */
        bool recoveries_told;
    } receiving;

    /* effects being gathered */
    struct arena arena; /* arrays; reset by raft_effects_done */
    bool effects_out;
    struct raft_effects effects;
    VECTOR(struct raft_message) out;
    VECTOR(struct raft_read_done) reads_done;
    VECTOR(struct raft_load) loads;
    VECTOR(struct raft_chunk_read) chunk_reads;
    VECTOR(struct raft_chunk_write) chunk_writes;
    VECTOR(struct raft_data *) loaned; /* references to drop with the effects */
};

static inline bool mutated(const struct raft *raft, enum raft_mutation rule) { return raft->config.mutations & rule; }

/* raft_log.c */
uint64_t log_last_index(const struct raft *raft);
uint64_t log_last_term(const struct raft *raft);
/* Is the entry that is committed here at `index` of another term (false: none is committed there)? Then it sets
 * raft->contradiction. */
bool log_contradicts(struct raft *raft, uint64_t index, uint64_t term);
/* Entries of our log are to give way to a leader's. True: because of an operator's recovery (recover.h), one of the two
 * logs went on without something that may be committed here; it sets raft->contradiction. `theirs`: the recoveries that
 * the leader knows. */
bool log_forsaken(struct raft *raft, const struct raft_recoveries *theirs);
/* True when the term of `index` is known without the disk. */
bool log_term_at(const struct raft *raft, uint64_t index, uint64_t *term);
struct raft_entry *log_at(const struct raft *raft, uint64_t index); /* NULL: not in the window */
uint64_t log_bytes_of(const struct raft_entry *entry);              /* the memory that it takes in the window */
void log_append(struct raft *raft, const struct raft_entry *entry); /* takes the reference */
void log_truncate(struct raft *raft, uint64_t from);                /* removes from.. */
void log_reset(struct raft *raft, uint64_t index, uint64_t term);   /* empty, continues after index */
void log_trim(struct raft *raft);
void log_free(struct raft *raft);
void log_hand_over(struct raft *raft); /* builds effects.persists */
void log_persisted(struct raft *raft, uint64_t seq);
bool log_hard_state_durable(const struct raft *raft);
uint64_t log_durable_seq(const struct raft *raft); /* everything up to now is durable when this operation is done */

/* raft.c */
/* goes out with the next effects */
struct raft_message *send_new(struct raft *raft, enum raft_message_type type, uint64_t to);
void send_durable(struct raft *raft, const struct raft_message *message); /* when all up to now is durable */
void held_drop(struct raft *raft);

/* raft_election.c */
void become_follower(struct raft *raft, uint64_t term, uint64_t leader);
void become_failed(struct raft *raft);
void campaign_end(struct raft *raft); /* if there is one: it becomes a follower in the same term */
void become_leader(struct raft *raft);
void election_reset(struct raft *raft);
void campaign(struct raft *raft, bool transfer);
void election_tick(struct raft *raft);
void election_persisted(struct raft *raft);
void receive_vote(struct raft *raft, const struct raft_message *m);
void receive_vote_reply(struct raft *raft, const struct raft_message *m);
void receive_timeout_now(struct raft *raft, const struct raft_message *m);
int transfer_start(struct raft *raft, uint64_t target);
void transfer_advance(struct raft *raft);
void disk_changed(struct raft *raft, const struct raft_event *event);
void disk_handover(struct raft *raft);
/* The healthy voter that has most of the log; 0: none. A voter that did not take leadership when it was offered lately
 * comes after all others, and only with `again`. */
uint64_t best_target(const struct raft *raft, bool again);
void transfer_expire(struct raft *raft);

/* raft_replication.c */
struct progress *progress_find(struct raft *raft, uint64_t id);
void progress_sync(struct raft *raft); /* peers = other members of the current configuration */
void progress_probe(struct progress *peer, uint64_t next);
void replicate(struct raft *raft); /* sends what each peer may be sent now */
void announce(struct raft *raft);  /* sends every peer a message with the next effects */
void leader_tick(struct raft *raft);
/* Follows the sender of a current leader's message. False: an old leader, which has been told. */
bool follow(struct raft *raft, const struct raft_message *m);
void receive_append(struct raft *raft, const struct raft_message *m);
void receive_append_reply(struct raft *raft, const struct raft_message *m);
void entries_loaded(struct raft *raft, struct raft_event *event);
void commit_advance(struct raft *raft);
void commit_to(struct raft *raft, uint64_t index);

/* raft_snapshot.c */
void snapshot_start_sending(struct raft *raft, struct progress *peer);
void snapshot_send_tick(struct raft *raft, struct progress *peer); /* at heartbeats: sends a lost chunk again */
void snapshot_send_due(struct raft *raft);
uint64_t snapshot_send_due_ms(const struct raft *raft); /* UINT64_MAX: nothing waits */
void chunk_read_done(struct raft *raft, const struct raft_event *event);
void receive_snapshot(struct raft *raft, const struct raft_message *m);
void receive_snapshot_reply(struct raft *raft, const struct raft_message *m);
void chunk_written(struct raft *raft, const struct raft_event *event);
void snapshot_taken(struct raft *raft, const struct raft_snapshot_meta *meta);
void snapshot_installed(struct raft *raft);

/* raft_members.c */
const struct raft_members *members_now(const struct raft *raft);
bool members_is_voter(const struct raft *raft, uint64_t id);
bool members_may_lead(const struct raft *raft); /* may campaign */
unsigned members_quorum(const struct raft *raft);
void members_note(struct raft *raft, const struct raft_entry *entry); /* a MEMBERS entry came into the log */
void members_cut(struct raft *raft, uint64_t from);                   /* the log was truncated */
void members_reset(struct raft *raft, const struct raft_snapshot_meta *meta);
void members_compact(struct raft *raft, uint64_t index);
int members_change(struct raft *raft, struct raft_event *event);

/* raft_read.c */
int read_request(struct raft *raft, uint64_t context);
void read_round_acked(struct raft *raft);
void read_fail_all(struct raft *raft);

#endif
