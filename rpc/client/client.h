/* The client agent's side of rpc: no copy of the state, one connection to one of the servers, over which everything
 * goes.
 *
 * - It joins through any server (config.join), is told of all of them, and keeps to the one that the agent's id ranks
 *   highest (rendezvous hashing over addresses): agents spread evenly, each agent's choice is the same after a restart,
 *   and when a server comes or goes only the agents concerned move. An agent that had to use another server goes back
 *   within about a minute, without losing requests under way.
 * - The agent leaves a connection that ends at once for the next server, and one that stays silent within a second: it
 *   is pinged when an answer is late, and when nothing was heard for 0.4 s while somebody waits for a change (a query
 *   that blocks, a name that DNS was asked for lately), for 5 s when nobody does (the next question or renewal notices
 *   it then). Each byte that arrives is a sign of life, and an answer is not late while its question still waits behind
 *   this agent's own bytes on a slow link. Reads are asked again at the next server; a write that the server may have
 *   taken has an unknown outcome; a write that was not sent waits, up to 7 s.
 * - The agent leaves a server that knows no leader for longer than an election takes (0.5 to 0.8 s) for one that knows
 *   one, and does not go back before the first knows one, too; without such a server it stays. It leaves a server that
 *   is cut off from the majority (rpc/cluster/cluster.h) at once, and waits for the others' election.
 * - Answers to queries of catalog, health and coordinates, sorted by distance or not, are kept (CLIENT_CACHE_BYTES in
 *   all, the least recently used make room): while no server can be reached they are given out again, with their age,
 *   except to reads with RPC_CONSISTENT.
 *
 * The agent does not use servers of another cluster than the first one that it met. Only when all servers of its
 * cluster report for some seconds that they belong to another one now (all were founded anew), it goes with them.
 * Opened by the agent; everybody else uses rpc/api/rpc.h. */
#ifndef COORD_RPC_CLIENT_H
#define COORD_RPC_CLIENT_H

#include <uv.h>

#include "rpc/api/rpc.h"

#define CLIENT_CACHE_BYTES (16u << 20)
#define CLIENT_DNS_QUERIES 10000 /* kept current for DNS (dns_subscriptions.c) */

struct rpc_client_config {
    const char *cluster, *node_name, *address; /* datacenter; this agent's name and IP */
    const char *node_id;                       /* UUID text: ranks the servers */
    const char *bind;                          /* IP to dial from; NULL or a wildcard: any */
    uint16_t port;                             /* of servers whose address names none */
    /* NULL-terminated; without any (or NULL) it tries those known last, and waits for rpc_join */
    const char *const *join;
    /* A link of a server to another region, `cluster`: the server's own region and its cluster's id, and the id of the
     * cluster that is expected there (0: any). No answers are kept for times without servers, and nothing waits longer
     * than hold_ms (0, or more: RPC_LEADER_WAIT_MS) from the loss of the last connection on. NULL: a client agent. */
    const char *region;
    uint64_t region_cluster_id, cluster_id, hold_ms;
    const char *known; /* a file: the last known servers, kept current; NULL: none */
    bool no_coordinates;
    uint64_t coordinate_interval_ms;    /* between reports; 0: see lb/coordinate_agent.h */
    uint64_t slow_start_ns;             /* lb/hints.h */
    size_t dns_queries;                 /* kept current for DNS at most; 0: CLIENT_DNS_QUERIES */
    const struct module_entry *modules; /* registry/modules.h: the types of commands and their results */
    struct security *security;          /* outlives it; NULL: all is plain */
};

/* Loop thread. Starts dialling; nothing has to be reachable yet. */
struct rpc *rpc_client_start(uv_loop_t *loop, const struct rpc_client_config *config);
/* Loop thread. Adds an address to dial. */
void rpc_client_know(struct rpc *rpc, const char *address);
/* Loop thread. Something else shows that the servers can be reached: without a connection, all are tried now, not
 * later. */
void rpc_client_hurry(struct rpc *rpc);
/* Loop thread. While paused there is no connection, and requests end as if no server could be reached. */
void rpc_client_pause(struct rpc *rpc, bool paused);
/* Loop thread. Ends everything under way (with CO_CLOSED; writes that were sent: outcome unknown). `closed` is called
 * from the loop. */
void rpc_client_stop(struct rpc *rpc, void (*closed)(void *data), void *data);

#endif
