/* Elections: of the sessions that campaign for a name one leads at a time, and says what it advertises. A module of the
 * state machine. An election is a queue (kv/lock/queue.h) with one exclusive holder, the leader; its term is the
 * fencing token, its value the note. Of those that wait the one with the highest priority goes first, among equals the
 * first who came; nobody takes the lead from one who has it. */
#ifndef COORD_KV_ELECTION_H
#define COORD_KV_ELECTION_H

#include "kv/election/election.pb-c.h"
#include "kv/lock/queue.h"

enum election_command {
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
#define ELECTION_SINCE        5 /* cluster version (registry/version.h) */
#define ELECTION_PRIORITY_MAX 1000000

extern const struct module election_module;
extern const struct queue_family election_family;
extern const struct query_type query_election;        /* LockRequest -> LockView */
extern const struct query_type query_election_leader; /* LockRequest -> LockView without those who wait */
extern const struct query_type query_election_entry;  /* LockEntryRequest -> LockAnswer; found=false: it is not there */
extern const struct query_type query_election_holder; /* LockHolderRequest -> LockAnswer; found=false: nobody */
extern const struct query_type query_elections;       /* LockListRequest -> LockListResult */

/* Does this term lead now? For fences. CO_OK, CO_NOTFOUND, or the store failed. */
int election_holds(struct store_txn *txn, struct slice name, uint64_t term, struct arena *arena);

#endif
