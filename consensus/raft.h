/* The Raft core: pure. An event goes in with the time it happened, effects come out. No I/O, no clock, no randomness
 * but its own seeded generator, no locks: one thread (or the simulator) drives it.
 *
 * Ongaro, "Consensus: Bridging Theory and Practice" (2014): elections 3.4, log 3.5-3.6, PreVote 9.6, CheckQuorum
 * 6.2, transfer 3.10, single-server membership changes 4.1, catching up new servers 4.2.1, snapshots 5, read index
 * 6.4. The rules that are easy to get wrong, and where they live here:
 *
 * (1) Nothing that promises durability is sent before it is durable: votes, append answers and this leader's own match
 *     index wait for RAFT_PERSISTED. The core holds such messages back itself; all messages in effects may be sent at
 *     once.
 * (2) Only entries of the current term commit by counting (3.6.2, figure 8); a new leader appends an empty
 *     entry so that older ones commit soon.
 * (3) A read index is confirmed by a round of heartbeats that began after the read arrived, and only once the leader
 *     knows how far its log is committed: an entry of this term is, or everything that it had at its election
 *     (raft_read.c).
 * (4) A configuration counts from the moment it is in the log; if that entry is cut off, the one before
 *     counts again. One change at a time, and only after an entry of this term has committed.
 * (5) Persist operations are numbered and complete in order. A failed one poisons the core: it steps down, is silent
 *     except that it tells a healthy server to campaign, and has to be rebuilt from the disk (raft_free, raft_new). A
 *     second leader of its own term poisons the core, too.
 * (6) A committed entry is the same everywhere, unless an operator let a server go on from a log that lacked it
 *     (recover.h). The core acknowledges nothing to a leader whose log contradicts a committed entry, because the
 *     leader would count its entries as stored where they are not. Instead it is poisoned as in (5), and knows the
 *     reason (raft_contradiction). After a start the core does not know all that is committed. So when the leader knows
 *     of a recovery that is new here, the core does not let entries that may be committed give way. */
#ifndef COORD_CONSENSUS_RAFT_H
#define COORD_CONSENSUS_RAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "consensus/entry.h"
#include "consensus/message.h"

enum raft_role { RAFT_FOLLOWER, RAFT_PRECANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };

/* For the simulator only: rules broken on purpose, to show that its checkers notice. Bits. */
enum raft_mutation {
    RAFT_MUTATE_COUNT_OLD_TERMS = 1,      /* commit entries of old terms by counting */
    RAFT_MUTATE_VOTE_BEFORE_DISK = 2,     /* answer a vote before it is on disk */
    RAFT_MUTATE_ACK_BEFORE_MAJORITY = 4,  /* commit entries that only the leader has */
    RAFT_MUTATE_NO_EMPTY_ENTRY = 8,       /* no empty entry at the start of a term */
    RAFT_MUTATE_READ_WITHOUT_ROUND = 16,  /* read index without confirming leadership */
    RAFT_MUTATE_ACK_FAILED_APPEND = 32,   /* a failed append is answered as if it were durable */
    RAFT_MUTATE_READ_COMMIT_UNKNOWN = 64, /* a new leader answers reads before it knows how far its log is committed */
    RAFT_MUTATE_READ_VOUCHER_ALONE = 128, /* a server that asks for a read index counts as a majority */
};

struct raft_config {
    uint64_t id;                  /* this server; never 0 */
    uint64_t seed;                /* of the timeouts */
    uint32_t election_ms;         /* a follower waits election_ms .. 2 x election_ms */
    uint32_t heartbeat_ms;        /* well below election_ms */
    uint32_t append_bytes_max;    /* cap of one append message's entries (at least one entry is sent) */
    uint32_t append_inflight_max; /* append messages on their way to one peer */
    uint64_t cache_bytes_max;     /* applied entries kept in memory for laggards; older ones are read from the log */
    /* committed entries that are not applied yet: with more in memory a follower acknowledges no more than it has
     * applied, so that the leader waits for a slow state machine; 0: no limit */
    uint64_t apply_bytes_max;
    uint32_t snapshot_chunk_bytes;
    uint64_t snapshot_rate;   /* bytes a second of a snapshot to one peer; 0: as fast as it takes them */
    uint64_t promote_lag_max; /* a learner this close to the end of the log may be promoted */
    unsigned mutations;       /* enum raft_mutation; 0 outside of the simulator */
};

/* The state that was found on disk. */
struct raft_start {
    uint64_t term, vote;                /* hard state */
    struct raft_snapshot_meta snapshot; /* index 0: none. Everything up to it is in the snapshot */
    /* Entries after the snapshot, in order (all durable). The core takes one reference of each. */
    struct raft_entry *entries;
    size_t entry_count;
    uint64_t applied; /* the state machine's applied index, >= snapshot.index; a commit index is not stored */
};

struct raft;
struct raft *raft_new(const struct raft_config *config, const struct raft_start *start, uint64_t now_ms);
void raft_free(struct raft *raft); /* accepts NULL */

/* -- events ------------------------------------------------------------------------------------------------------- */
enum raft_event_type {
    RAFT_TICK,    /* time passed; call at raft_deadline_ms() or earlier */
    RAFT_RECEIVE, /* a message from a peer. The core does not take it over */
    RAFT_PROPOSE, /* leader only: entries to append. Sets ev.propose.first_index, or fails with CO_NOTLEADER */
    /* leader only: one membership change. CO_NOTLEADER, CO_BUSY (another is under way, or no entry of this term has
     * committed), CO_INVALID */
    RAFT_CHANGE,
    RAFT_READ,     /* leader: a read (or lease round) wants the read index. Answer: effects.reads. CO_NOTLEADER */
    RAFT_TRANSFER, /* leader: hand over to `target` (0: the most up-to-date voter). CO_NOTLEADER, CO_INVALID, CO_BUSY */
    RAFT_PERSISTED,      /* the persist operation `seq` and all before it are durable */
    RAFT_PERSIST_FAILED, /* it failed: see (5) */
    RAFT_APPLIED,        /* the state machine has applied up to `index`, durably or not */
    RAFT_ENTRIES_LOADED, /* answer to effects.loads */
    RAFT_SNAPSHOT_TAKEN, /* a local snapshot at `meta` is complete and durable; the log up to it may go */
    RAFT_CHUNK_READ,     /* answer to effects.chunk_reads */
    RAFT_CHUNK_WRITTEN,  /* answer to effects.chunk_writes */
    RAFT_UNREACHABLE,    /* `peer`: connection lost; messages to it may be gone */
    RAFT_BOOTSTRAP,      /* an empty server founds the cluster of `members`. CO_EXISTS when it has a log or a term */
    /* this server's disk became degraded (slow, failing, full) or healthy again. While it is degraded the core does not
     * campaign, tells the leader so, and as leader hands over to a healthy server, at most once in 10 s. While it has no
     * room for votes either, the core neither campaigns nor grants pre-votes, because an election that it cannot vote in
     * takes room on the candidate's disk */
    RAFT_DISK,
    RAFT_STEP_DOWN, /* stop leading now, and do not campaign for quiet_ms (degraded disk) */
};

enum raft_change_type {
    RAFT_ADD_LEARNER,
    RAFT_PROMOTE,
    RAFT_REMOVE,
    RAFT_READDRESS /* the same server, reached elsewhere */
};

struct raft_event {
    enum raft_event_type type;
    uint64_t now_ms; /* monotonic; never below the one before */
    /* BOOTSTRAP: the new cluster's first command; NULL: none. One reference goes to the core */
    struct raft_data *first_command;
    uint64_t unix_ms; /* BOOTSTRAP, PROPOSE: the wall clock, for the entries; the core only passes it on */
    union {
        const struct raft_message *receive;
        struct {
            /* type and data set; index and term are filled in. One reference each goes to the core */
            struct raft_entry *entries;
            size_t count;
            uint64_t first_index; /* out */
            uint64_t term;        /* out */
        } propose;
        struct {
            enum raft_change_type type;
            uint64_t id;
            const char *address;
            uint64_t index; /* out */
        } change;
        struct {
            uint64_t context;
        } read; /* any number of the caller's; comes back in effects.reads */
        struct {
            uint64_t target;
        } transfer;
        struct {
            uint64_t seq;
        } persisted; /* also PERSIST_FAILED */
        struct {
            uint64_t index;
        } applied;
        /* one reference each */
        struct {
            uint64_t peer, from;
            struct raft_entry *entries;
            size_t count;
            int error;
        } loaded;
        struct {
            struct raft_snapshot_meta meta;
        } snapshot; /* members are copied */
        struct {
            uint64_t peer, snapshot_index, offset;
            const char *data;
            size_t size;
            bool last;
            int error;
        } chunk_read;
        struct {
            uint64_t from, snapshot_index, offset;
            int error;
        } chunk_written; /* offset: bytes of it now stored */
        struct {
            uint64_t peer;
        } unreachable;
        struct {
            uint64_t quiet_ms;
        } step_down;
        struct {
            bool degraded, full, spent;
        } disk; /* full: no room for commands; degraded as well. spent: nor for votes */
        const struct raft_members *bootstrap;
    } u;
};

/* -- effects ------------------------------------------------------------------------------------------------------ */
/* Persist operations are carried out in the order given, as one unit each: hard state first, then truncation, then
 * entries; or a snapshot. Answer each with RAFT_PERSISTED (the highest of a group is enough). */
struct raft_persist {
    uint64_t seq;
    bool hard_state; /* term and vote below are to be stored */
    uint64_t term, vote;
    uint64_t truncate_from;     /* != 0: entries from this index on are removed first */
    struct raft_entry *entries; /* to append; valid until raft_effects_done; take references to keep */
    size_t entry_count;
    /* the received snapshot (snapshot.index) becomes this server's: the log is emptied to begin after it, and the
     * snapshot installed in the state machine */
    bool install_snapshot;
    struct raft_snapshot_meta snapshot;
};

/* CO_OK: serve once applied >= index. Else CO_NOTLEADER */
struct raft_read_done {
    uint64_t context, index;
    int error;
};
/* entries from..to (inclusive) from the log, for the peer */
struct raft_load {
    uint64_t peer, from, to;
    uint32_t bytes_max;
};
struct raft_chunk_read {
    uint64_t peer, snapshot_index, offset;
    uint32_t size_max;
};
struct raft_chunk_write {
    uint64_t from;
    struct raft_snapshot_meta meta;
    uint64_t offset;
    const char *data;
    size_t size;
    bool first, last;
};

/* Everything is owned by the core and valid until raft_effects_done(). Order of action does not matter, except that
 * persist operations keep theirs and `committed` is applied in order. */
struct raft_effects {
    struct raft_persist *persists;
    size_t persist_count;
    struct raft_message *messages;
    size_t message_count; /* message.to says whom; send now */
    struct raft_entry *committed;
    size_t committed_count; /* to apply: only entries that are durable HERE */
    struct raft_read_done *reads;
    size_t read_count;
    struct raft_load *loads;
    size_t load_count;
    struct raft_chunk_read *chunk_reads;
    size_t chunk_read_count;
    struct raft_chunk_write *chunk_writes;
    size_t chunk_write_count;
    bool role_changed;    /* look at raft_role() and raft_leader() */
    bool members_changed; /* look at raft_members() */
};

/* One event. Returns CO_OK or the event's error (the core is then as before). Effects gather until they are
 * taken: several steps, then one raft_effects(), so that one turn of the loop makes one batch. No step between
 * raft_effects() and raft_effects_done(). */
int raft_step(struct raft *raft, struct raft_event *event);
const struct raft_effects *raft_effects(struct raft *raft);
void raft_effects_done(struct raft *raft);

/* -- views -------------------------------------------------------------------------------------------------------- */
uint64_t raft_deadline_ms(const struct raft *raft); /* the time at which RAFT_TICK is due next */
enum raft_role raft_role(const struct raft *raft);
bool raft_failed(const struct raft *raft); /* poisoned by (5) or (6) */
struct raft_contradiction {
    uint64_t index, term_here, term_there;
};
/* How the leader's log contradicts entries that are, or may be, committed here (6); index 0: it does not. */
struct raft_contradiction raft_contradiction(const struct raft *raft);
uint64_t raft_id(const struct raft *raft);
uint64_t raft_term(const struct raft *raft);
uint64_t raft_vote(const struct raft *raft);
uint64_t raft_leader(const struct raft *raft); /* 0: unknown */
uint64_t raft_commit_index(const struct raft *raft);
uint64_t raft_applied_index(const struct raft *raft);
uint64_t raft_last_index(const struct raft *raft);
uint64_t raft_last_term(const struct raft *raft);
uint64_t raft_stable_index(const struct raft *raft); /* durable here */
uint64_t raft_snapshot_index(const struct raft *raft);
uint64_t raft_snapshot_bytes(const struct raft *raft); /* its size; 0: none */
/* This server leads and has committed an entry of its own term, so it may judge reads and proposals of leases. */
bool raft_leader_ready(const struct raft *raft);
/* May a read of `peer` be answered without a round? Yes, when it was in this leader's term when it asked (`term`), and
 * the two of them are a majority. *index: the read index. */
bool raft_vouched(const struct raft *raft, uint64_t peer, uint64_t term, uint64_t *index);
/* The only member of its cluster, learners counted, and leader_ready. */
bool raft_alone(const struct raft *raft);
const struct raft_members *raft_members(const struct raft *raft); /* the configuration that counts now */
uint64_t raft_members_index(const struct raft *raft);             /* of its entry */
bool raft_members_committed(const struct raft *raft);
/* The configuration as of log index `index` (snapshot index <= index <= last): for the meta of a snapshot. */
const struct raft_members *raft_members_at(const struct raft *raft, uint64_t index, uint64_t *members_index);
bool raft_disk_degraded(const struct raft *raft);
/* leader: RAFT_TRANSFER, or the handover of a degraded disk, is under way */
bool raft_transferring(const struct raft *raft);
/* Leader: false while peers are known to have no room for commands, and the servers that answer and have room, this one
 * included, are no majority: a command that is proposed now would wait for space on other servers. */
bool raft_quorum_has_room(const struct raft *raft);
/* Leader: some peer that answers is being sent the snapshot, or puts it in place: do not replace the snapshot now, or
 * the peer begins anew. (A dead peer must not keep the log from being cut, and no peer for ever: the caller sets a
 * bound.) */
bool raft_sending_snapshot(const struct raft *raft);
/* Leader: some peer that answers lacks entries that are no longer held in memory: a new snapshot would remove them from
 * the log, and the peer would have to be sent the snapshot. */
bool raft_peer_needs_log(const struct raft *raft);
uint64_t raft_match_index(const struct raft *raft, uint64_t peer); /* leader only; 0: unknown */
/* leader only: the peer answered in this term, and within an election timeout */
bool raft_peer_heard(const struct raft *raft, uint64_t peer);
bool raft_peer_full(const struct raft *raft, uint64_t peer); /* leader only: it said that it has no room for commands */
bool raft_caught_up(const struct raft *raft, uint64_t peer); /* leader only: a learner may be promoted */
/* follower: when the leader was last heard; leader: now of last step */
uint64_t raft_contact_ms(const struct raft *raft);

/* Entry `index` when it is held in memory, else NULL. For checkers and tests. */
const struct raft_entry *raft_entry_at(const struct raft *raft, uint64_t index);

#endif
