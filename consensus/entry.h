/* Log entries, configurations and snapshot descriptions: the nouns that the core, the log files and the messages
 * share. */
#ifndef COORD_CONSENSUS_ENTRY_H
#define COORD_CONSENSUS_ENTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* The bytes of an entry: reference-counted, never changed after creation, shared between the threads that replicate,
 * write and apply it. */
struct raft_data {
    _Atomic uint32_t refs;
    uint32_t size;
    char bytes[];
};
struct raft_data *raft_data_new(const void *bytes, size_t size); /* one reference; bytes NULL: left to fill */
struct raft_data *raft_data_ref(struct raft_data *data);         /* accepts and returns NULL */
void raft_data_unref(struct raft_data *data);                    /* accepts NULL */

enum raft_entry_type {
    RAFT_ENTRY_COMMAND = 0, /* for the state machine */
    RAFT_ENTRY_EMPTY = 1,   /* start of a term */
    RAFT_ENTRY_MEMBERS = 2, /* a configuration (raft_members_encode) */
};

/* A value: copying one copies the reference, so code that keeps a copy takes a reference. */
struct raft_entry {
    uint64_t index, term;
    uint8_t type;           /* enum raft_entry_type */
    struct raft_data *data; /* NULL: no bytes */
    /* Of a command: the wall clock of the leader that proposed it, at most RAFT_UNIX_MS_MAX; 0: it is not known. It may go
     * back from one entry to the next, as clocks do: the state machine's does not (registry/machine.h). */
    uint64_t unix_ms;
};
#define RAFT_UNIX_MS_MAX (((uint64_t)1 << 48) - 1)
static inline struct slice raft_entry_bytes(const struct raft_entry *e) {
    return e->data ? slice_make(e->data->bytes, e->data->size) : slice_make(NULL, 0);
}

/* A configuration. A value of fixed size, so that it can be copied freely. */
#define RAFT_MEMBERS_MAX 15
#define RAFT_ADDRESS_MAX 128
struct raft_member {
    uint64_t id;
    bool voter;                     /* else a learner */
    char address[RAFT_ADDRESS_MAX]; /* "10.0.0.1:8300"; opaque to the core */
};
/* A configuration that an operator made offline (recover.h). */
struct raft_recovery {
    uint64_t index, term; /* of its entry */
    uint64_t before_term; /* of the entry before it, the last one that the survivor had */
    uint64_t survivor;    /* its id: two may be recovered at one index */
};
#define RAFT_RECOVERIES_MAX 8
struct raft_recoveries {
    uint32_t count;
    struct raft_recovery item[RAFT_RECOVERIES_MAX]; /* by index; of more than fit, the newest */
};
struct raft_members {
    uint32_t count;
    struct raft_member member[RAFT_MEMBERS_MAX];
    uint64_t recovered_index; /* the entry of the newest configuration that an operator made offline; 0: never */
    /* the last one is at recovered_index; empty when a build wrote it that knew only recovered_index */
    struct raft_recoveries recoveries;
};
/* The recoveries of one log, in their order: a server that knows one of them knows all before it. raft_recovery_ahead:
 * the oldest of `theirs` that is new to us, if its survivor lacked something that our log, which ends here, may have
 * committed (Raft's rule for votes); NULL: our log can give way to theirs. raft_recovery_behind: our newest one, if
 * they do not know it and a leader has been elected after it; otherwise NULL. */
const struct raft_recovery *raft_recovery_ahead(const struct raft_members *ours, uint64_t last_index,
                                                uint64_t last_term, const struct raft_recoveries *theirs);
const struct raft_recovery *raft_recovery_behind(const struct raft_members *ours, uint64_t last_term,
                                                 const struct raft_recoveries *theirs);
void raft_recovery_add(struct raft_members *members, const struct raft_recovery *recovery);
const struct raft_member *raft_members_find(const struct raft_members *members, uint64_t id);
unsigned raft_members_voters(const struct raft_members *members);
void raft_members_encode(const struct raft_members *members, struct buffer *out);
int raft_members_decode(struct slice bytes, struct raft_members *out); /* CO_CORRUPT */

struct raft_snapshot_meta {
    uint64_t index, term; /* of the last entry in it; index 0: no snapshot */
    uint64_t size;        /* bytes of the state machine's part */
    uint64_t members_index;
    struct raft_members members; /* committed configuration at index */
};

#endif
