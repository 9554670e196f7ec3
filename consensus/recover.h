/* A cluster that lost its majority for good: looking at the data of a stopped server, and letting that server go on
 * without the others. The folder is DATA/raft; the caller makes sure that no server runs on it (disk_posix_open locks
 * it as well). One thread, at rest.
 *
 * Going on is an entry like any other, written by the log's own code: a configuration in a term above all that the
 * others may have seen. Everything in this server's log stays and counts as committed, also what only this server
 * had. */
#ifndef COORD_CONSENSUS_RECOVER_H
#define COORD_CONSENSUS_RECOVER_H

#include "base/error.h"
#include "consensus/disk.h"
#include "consensus/entry.h"

/* How far the new term is above the survivor's, whose id it is: the servers that were lost may have held elections that
 * it never heard of, and an entry is known by its term and index. The id is part of it, so that another survivor with
 * the same end of its log, recovered by itself, hardly leads in the same term. */
#define RECOVER_TERMS(id) (1000 + (id) % 1000)

struct recover_report {
    uint64_t id, term, vote;
    uint64_t first_index, last_index, last_term; /* of the log; the entries up to snapshot_index are in the snapshot */
    uint64_t snapshot_index, snapshot_term;      /* 0: none */
    uint64_t members_index, torn_bytes;
    struct raft_members members; /* the last configuration in it */
};

/* Reads; nothing on the disk changes. CO_NOTFOUND: no server of a cluster kept its log here. Else as wal_open and
 * snapshot_open. */
int recover_look(struct disk *disk, struct recover_report *report, struct fault *fault);

/* The entries to write: a configuration of this server and `voters` (at most RAFT_MEMBERS_MAX - 1), and commands for
 * the state machine. */
struct recover_plan {
    const struct raft_member *voters;
    size_t voter_count;
    struct raft_data **commands; /* stay the caller's */
    size_t command_count;
};
/* Durable when it returns CO_OK; on an error nothing of it is in the log. *report: the state afterwards. CO_INVALID:
 * this server is no member of its last configuration (it was removed), or a voter is wrong. */
int recover_write(struct disk *disk, const struct recover_plan *plan, struct recover_report *report,
                  struct fault *fault);

#endif
