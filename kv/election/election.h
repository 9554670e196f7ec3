/* Elections: many sessions campaign for a name, one of them leads at a time, and the leader advertises a value. A
 * module of the state machine. An election is a queue (kv/lock/lock_queue.h) with one exclusive holder, the leader; its
 * term is the fencing token, its value is the note. When the leader goes, the waiting candidate with the highest
 * priority follows; among equals the first that came. Nobody takes the lead from a leader. */
#ifndef COORD_KV_ELECTION_H
#define COORD_KV_ELECTION_H

#include "kv/lock/lock_queue.h"

enum election_command { /* QueueAcquireCommand etc. */
                        ELECTION_CAMPAIGN = 41,
                        ELECTION_RESIGN = 42,
                        ELECTION_PROCLAIM = 43,
                        ELECTION_DELAY_OVER = 44
};
enum election_space {
    SPACE_ELECTION = 39,        /* a name; with WATCH_PREFIX_BIT: prefixes of names */
    SPACE_ELECTION_ENTRY = 40,  /* a session in an election: queue_entry_name */
    SPACE_ELECTION_LEADER = 48, /* a name: who leads, and the value */
};

extern const struct module election_module;
extern const struct queue_family election_family;
extern const struct query_type query_election;        /* QueueRequest -> QueueView */
extern const struct query_type query_election_leader; /* QueueRequest -> QueueView without the candidates */
extern const struct query_type
    query_election_entry; /* QueueEntryRequest -> QueueAnswer; found=false: the session is no candidate */
extern const struct query_type query_election_holder; /* QueueRequest -> QueueAnswer; found=false: nobody leads */
extern const struct query_type query_elections;       /* QueueListRequest -> QueueListResult */

#endif
