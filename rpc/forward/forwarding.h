/* Requests of a server that does not lead to the leader: commands, read indexes, renewals; and the serving of such
 * requests by the leader. All requests of one turn go in one frame.
 *
 * (1) A command that may have reached the leader is never sent again: when its connection ends, or another leads for
 *     some time, its outcome is unknown. One that the leader surely did not append (it no longer leads: CO_NOLEADER)
 *     waits for a leader again.
 * (2) A question for a read index, or a renewal, does no harm twice: it fails, and its caller may ask again.
 * (3) An answer counts only if it comes from the server that was asked, with a number of this life of this server.
 *
 * Pure: connections, the node and the lease table are reached through the callbacks (rpc/leader/forwarding_run.c is the
 * program's), the time is an argument. One thread, except that `done` of requests that are being served may come on any
 * thread. */
#ifndef COORD_RPC_FORWARDING_H
#define COORD_RPC_FORWARDING_H

#include "consensus/node.h"
#include "rpc/api/rpc.h"

/* On whose behalf a command is (NULL: the sender's own), and the state of access control when it was judged: what
 * node_proposal.tag points to. */
struct judged {
    const struct requester *requester;
    uint64_t generation;
    bool client;  /* a client wants it (rpc_write.client) */
    bool counted; /* by this server, as its leader (rpc/leader/write_limit.h) */
};

struct forwarding_callbacks {
    void *data;
    bool (*reach)(void *data, uint64_t peer); /* does a connection with it stand? */
    /* Queues a frame (enum peer_frame); nothing when the connection does not stand. */
    void (*send)(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message);
    void (*wake)(void *data);                                    /* any thread: asks for a call of forwarding_woken */
    bool (*knows)(void *data, struct slice command);             /* machine_knows */
    void (*command)(void *data, struct node_proposal *proposal); /* node_propose_again */
    void (*read)(void *data, struct node_read *read);            /* node_read */
    void (*read_answer)(void *data, uint64_t context, uint64_t index, int error); /* node_read_answer */
    void (*renew)(void *data, struct rpc_renew *renew);                           /* lessor_run_renew_here */
    /* On client agents: the region that a command is for, "": this one; NULL: all are for this one. */
    const char *(*region_of)(void *data, const struct node_proposal *proposal);
    /* On client agents and links: whose token goes with a request; `noted`: on whose behalf it is, NULL: their own work.
     * A NULL function: requests of servers carry none. */
    const struct requester *(*requester_of)(void *data, const struct requester *noted);
    /* Of requests from client agents: finds the requester (a reference; NULL: there is no access control), and whether it
     * may. CO_OK, or why not: `why` is a line. The parts of a command that are denied become marked in it
     * (module_command.marks), in `arena`. Both NULL: everything is allowed. */
    int (*may_write)(void *data, uint64_t from, Pb__PeerWrite *write, struct arena *arena, struct judged *judged,
                     char *why, size_t room);
    int (*may_renew)(void *data, uint64_t from, const Pb__PeerRenew *renew, struct requester **requester);
    /* Serves a command that is for a region (a renewal names its region itself). NULL: such commands are refused. */
    void (*command_in)(void *data, const char *region, struct node_proposal *proposal);
    /* Requests come from client agents: they may go on to the leader, and wait a second for one. Then they end with
     * CO_NOLEADER, which lets the agent ask another server. A request for another region waits for that region as long
     * as any request does; CO_NOLEADER is then the agent's final answer. */
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

/* For node_callbacks. Frames are queued for the caller to flush, here and in all functions below. */
bool forwarding_writes(struct forwarding *forwarding, uint64_t leader, struct node_proposal *list);
bool forwarding_read(struct forwarding *forwarding, uint64_t leader, uint64_t context, uint64_t term);
/* A renewal; `renew->done` is called with the leader's answer. False: cannot be reached now. */
bool forwarding_renew(struct forwarding *forwarding, uint64_t leader, struct rpc_renew *renew);

/* False: the frame is not of this module, or does not decode. */
bool forwarding_frame(struct forwarding *forwarding, uint64_t from, uint8_t type, struct slice payload,
                      uint64_t now_ms);
/* is a request to it not answered yet? */
bool forwarding_waits(const struct forwarding *forwarding, uint64_t peer);
void forwarding_down(struct forwarding *forwarding, uint64_t peer); /* the connection ended */
/* A few times a second: the present leader (0: none). Some time after another server leads, requests that are still
 * with the one before have an unknown outcome, because it may stand still or be cut off, and its connection may end
 * much later. `cut_off`: this server is cut off (rpc/cluster/cluster.h), and all requests that were sent have an
 * unknown outcome. Requests of client agents do not wait for a leader meanwhile. */
void forwarding_leader(struct forwarding *forwarding, uint64_t leader, bool cut_off, uint64_t now_ms);
void forwarding_woken(struct forwarding *forwarding); /* answers are queued, for the caller to flush */

#endif
