/* What a server that does not lead asks of the one that does: commands, read indexes, renewals; and what it does for
 * others when it leads itself. Everything of one turn goes in one frame.
 *
 * (1) A command that may have reached the leader is never sent again: when its connection ends, or another leads for
 *     some time, its outcome is unknown. One that the leader surely did not append (it no longer leads: CO_NOLEADER)
 *     waits for a leader again.
 * (2) A question for a read index, or a renewal, does no harm twice: it fails, and is asked again by whoever wants it.
 * (3) An answer counts only if it comes from whom it was asked of, with a number that this life of the server gave out.
 *
 * Pure: connections, the node and the lease table are reached through the callbacks (rpc/leader/forwarding_run.c is the program's), the
 * time is an argument. One thread, but for `done` of what is being served, which may come from any. */
#ifndef COORD_RPC_FORWARDING_H
#define COORD_RPC_FORWARDING_H

#include "consensus/node.h"
#include "rpc/api/rpc.h"

struct forwarding_callbacks {
    void *data;
    bool (*reach)(void *data, uint64_t peer); /* does a connection with it stand? */
    /* Queues a frame (enum peer_frame); nothing when the connection does not stand. */
    void (*send)(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message);
    void (*wake)(void *data);                                    /* any thread: forwarding_woken is wanted */
    bool (*knows)(void *data, struct slice command);             /* machine_knows */
    void (*command)(void *data, struct node_proposal *proposal); /* node_propose_again */
    void (*read)(void *data, struct node_read *read);            /* node_read */
    void (*read_answer)(void *data, uint64_t context, uint64_t index, int error); /* node_read_answer */
    void (*renew)(void *data, struct rpc_renew *renew);                           /* lessor_run_renew_here */
    /* Of client agents: which region what is sent is for, "": this one; NULL: all is for this one. */
    const char *(*region_of)(void *data, const struct node_proposal *proposal);
    /* A command that is for a region; a renewal says it itself. NULL: not taken. */
    void (*command_in)(void *data, const char *region, struct node_proposal *proposal);
    /* What is served is for client agents: it may go on to the server that leads, and waits a second for one;
     * CO_NOLEADER then, which lets the agent ask another server. What is for another region waits for that one as long as
     * anybody would; CO_NOLEADER is the agent's answer then. */
    bool onward;
    unsigned mutations; /* enum forwarding_mutation; 0 outside of the simulator */
};
/* For the simulator only: rules broken on purpose, to show that its checkers notice. */
enum forwarding_mutation { FORWARDING_MUTATE_SEND_AGAIN = 1 }; /* a command whose connection ended is sent again */

struct forwarding;
/* Commands and renewals are numbered from `first_number` on; no two lives of a server may share numbers. */
struct forwarding *forwarding_new(const struct forwarding_callbacks *callbacks, uint64_t first_number);
/* after the node: everything pending ends with CO_UNKNOWN_OUTCOME */
void forwarding_stop(struct forwarding *forwarding);
void forwarding_free(struct forwarding *forwarding); /* the node has answered everything that was served */

/* For node_callbacks. Frames are queued, for the caller to flush; so in all that follows. */
bool forwarding_writes(struct forwarding *forwarding, uint64_t leader, struct node_proposal *list);
bool forwarding_read(struct forwarding *forwarding, uint64_t leader, uint64_t context, uint64_t term);
/* A renewal; `renew->done` is called with the leader's answer. False: cannot be reached now. */
bool forwarding_renew(struct forwarding *forwarding, uint64_t leader, struct rpc_renew *renew);

/* False: a frame of another's, or one that does not decode. */
bool forwarding_frame(struct forwarding *forwarding, uint64_t from, uint8_t type, struct slice payload,
                      uint64_t now_ms);
/* something asked of it is not answered yet */
bool forwarding_waits(const struct forwarding *forwarding, uint64_t peer);
void forwarding_down(struct forwarding *forwarding, uint64_t peer); /* the connection ended */
/* A few times a second: who leads (0: nobody). Some time after another leads, what is still with the one before has
 * an unknown outcome: it may stand still or be cut off, and its connection ends much later. `cut_off`: this server
 * is (rpc/cluster/cluster.h), and all that is with anybody has. What client agents ask meanwhile waits for no leader. */
void forwarding_leader(struct forwarding *forwarding, uint64_t leader, bool cut_off, uint64_t now_ms);
void forwarding_woken(struct forwarding *forwarding); /* answers are queued, for the caller to flush */

#endif
