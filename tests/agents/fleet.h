/* Many client agents in one process: each has a connection of its own to a server, a node lease, services, TTL
 * checks and the anti-entropy of a real one (rpc/client/client.h, health/local.h). Only what stands around those is
 * missing: no process, no HTTP, no DNS, no data folder.
 *
 * The agents are dealt out to a few loops, one thread each. Functions here: the main thread, unless said. */
#ifndef COORD_TESTS_AGENTS_FLEET_H
#define COORD_TESTS_AGENTS_FLEET_H

#include <stdatomic.h>

#include "health/local.h"
#include "identity_of.h"
#include "rpc/client/client.h"

struct fleet_config {
    const char *const *servers;        /* NULL-terminated addresses of servers' rpc ports */
    const char *datacenter, *prefix;   /* nodes are PREFIX-0, PREFIX-1, ... */
    unsigned agents, services, checks; /* services and checks of each agent */
    unsigned names;                    /* of services, in all */
    unsigned threads, watched;         /* the first `watched` agents' changes are timed */
    unsigned repeat_s;                 /* each check reports what it said before once in so long; 0: never */
    unsigned loads;                    /* reports of load a second of each agent, of its services in turn */
    bool coordinates;                  /* they measure round trips and report them (rpc/client/client.h) */
    bool waiting;                      /* somebody at each waits for a change that does not come */
    int64_t lease_ttl_ns;
    const char *tls; /* the data folder of a server of a closed cluster; NULL: it is open */
};

/* The tool's record of a check: the truth that the servers have to arrive at. */
struct fleet_check {
    char id[48];
    Pb__Status status;
    uint64_t number;     /* of its last change; its output names it */
    uint64_t changed_ns; /* when that was; 0: it was seen in the catalog, or nobody watches */
};

struct fleet_loop;
struct fleet_agent {
    struct fleet_loop *loop;
    unsigned number;
    char node[64], node_id[40];
    struct rpc *rpc;
    struct security *security; /* NULL: of an open cluster */
    struct local *local;
    struct rpc_fetch wait;
    uv_mutex_t lock; /* for `checks`, of watched agents */
    struct fleet_check *checks;
};

struct fleet {
    struct fleet_config config;
    struct fleet_loop *loops;
    struct fleet_agent *agents;
    struct identities *identities; /* NULL: of an open cluster */
    _Atomic unsigned started;
    _Atomic uint64_t changes, overtaken; /* overtaken: changed again before it was seen */
};

struct fleet *fleet_start(const struct fleet_config *config);
/* Agents whose services and checks are all in the catalog. */
unsigned fleet_synced(struct fleet *fleet);
/* Changes of status from now on; 0: no more. */
void fleet_rate(struct fleet *fleet, unsigned changes_per_minute);
/* Agents that have a server which knows a leader. */
unsigned fleet_connected(struct fleet *fleet);
/* Ends all connections, at once; the agents come back by themselves. */
void fleet_cut(struct fleet *fleet);
void fleet_stop(struct fleet *fleet);
const char *fleet_status_name(Pb__Status status);

#endif
