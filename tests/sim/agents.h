/* Agents that keep their services in the catalog of a simulated cluster. Each is the program's own code of an agent's
 * node lease (health/liveness.h), of its table of services and checks (health/local_internal.h) and of its comparisons
 * with the catalog (health/anti_entropy.h), with a clock of its own. Its requests go to one of the servers, as
 * operations like any other, over a network that cuts, loses and delays. Agents are killed, stand still, leave, and
 * begin again; two may have one name. The rules are checked as it runs (agents_judge.c):
 *
 *     no lease ends before its TTL is over since its last renewal was sent, and the lease of an agent that lives and is
 *     reached does not end at all
 *     the lease of an agent that is gone ends within its TTL and a bound; so its node is critical, and after the reconnect
 *     timeout it is removed
 *     of two agents with one name one holds the lease
 *     what an agent knows is in the catalog, and nothing else of it, but for moments that are shorter than the bound; a node
 *     that nobody holds a lease for is not alive there
 *
 * The clocks of agents and servers differ by 1 % at most. */
#ifndef COORD_TESTS_SIM_AGENTS_H
#define COORD_TESTS_SIM_AGENTS_H

#include "health/anti_entropy.h"
#include "health/liveness.h"
#include "health/local_internal.h"
#include "tests/sim/module.h"

enum { AGENTS_MOST = 16, AGENT_SERVICES = 5 };

struct agents_plan {
    unsigned agents;
    unsigned twins; /* the last so many have the name of the first, of the second, ... */
    bool copied;    /* twins have their node's id too */
    uint64_t ttl_ms, reconnect_ms, sync_ms;
    uint32_t lost_permille; /* of messages: they, or their answers */
    uint64_t late_ms;       /* a message that its sender gave up arrives so much later at most */
    uint64_t within_ms;     /* the bound: so long the catalog may differ when nothing is wrong */
    unsigned services;      /* so many each registers when it begins */
};

struct agent_call;
/* A service with its check, and what the catalog should say of it. */
struct agent_service {
    bool there;
    unsigned version; /* its port */
    Pb__Status status;
    uint64_t changed_us, agreed_us; /* by the agent; last seen */
};
struct agent {
    struct agents *all;
    unsigned number, life;
    char node[16], node_id[40], address[16];
    bool up, leaving, left;
    struct local *local; /* these while it is up */
    struct liveness liveness;
    struct anti_entropy anti_entropy;
    Pb__Node record;
    uint64_t process;
    uint32_t server;              /* slot of the server that it is connected to */
    uint64_t rate_ppm, offset_us; /* its clock */
    uint64_t paused_us, cut_us;   /* until then */
    uint64_t wake_us;
    struct agent_call *reads[2];
    unsigned reads_left;
    int read_error;
    struct agent_service services[AGENT_SERVICES];
    bool agrees;   /* the catalog says of it what it knows, as of the last look */
    bool poisoned; /* each write with its service 0 loses the connection */
    /* The figures that are checked. */
    uint64_t gone_us;    /* since when it is down */
    uint64_t trouble_us; /* last seen; may be in the future */
    uint64_t late_us;    /* when its last message arrives of those that are late */
    uint64_t alive_us;   /* when its node was seen to be alive last */
};
struct agents {
    struct sim *sim;
    struct agents_plan plan;
    bool stopped;
    struct agent agents[AGENTS_MOST];
    struct agent_call **calls;
    size_t call_count, call_capacity;
    uint64_t trouble_us, term;      /* of the servers, last seen */
    uint64_t lease_op[AGENTS_MOST]; /* of a name (the number of its first agent): the operation that was granted last */
    unsigned lease_of[AGENTS_MOST]; /* whose that is */
    uint64_t lease_ended_us[AGENTS_MOST];    /* when it ended; 0: it stands */
    bool node_left[AGENTS_MOST];             /* in order, and nobody has come back */
    unsigned granted, ended, lost, compared; /* leases, writes */
    uint64_t longest_us;                     /* that something differed while nothing was wrong */
};

/* All are started. */
struct agents *agents_begin(struct sim *sim, const struct agents_plan *plan);
void agents_stop(struct sim *sim);           /* all of them are gone at once */
void agents_free(struct sim *sim);           /* none: nothing */
bool agents_agree(const struct agents *all); /* all that are up hold their names, and the catalog says what they know */

void agent_start(struct agent *agent); /* one that is down, with what it had registered */
void agent_kill(struct agent *agent);
void agent_pause(struct agent *agent, uint64_t us);
void agent_cut(struct agent *agent, uint64_t us);                         /* off from the servers */
void agent_leave(struct agent *agent);                                    /* it goes when it has left */
void agent_put(struct agent *agent, unsigned service, Pb__Status status); /* anew, or for the first time */
void agent_drop(struct agent *agent, unsigned service);
void agent_report(struct agent *agent, unsigned service, Pb__Status status); /* of its check */
/* Somebody removes its node, or what the catalog has of one of its services. */
void agents_interfere(struct agent *agent, bool node);
unsigned agent_name(const struct agent *agent); /* number of the first agent of its name */

/* -- hooks of the simulator -------------------------------------------------------------------------------------- */

#define SIM_AGENT (UINT32_MAX - 2) /* a client: one of these */
void agents_event(struct sim *sim, uint32_t agent, uint64_t number);
void agents_result(struct op *op, const struct machine_result *result); /* before op_done */
void agents_heard(struct sim *sim, const struct op *op);                /* op_done */
/* An entry of leases: is it one of theirs? */
bool agents_applied(struct sim *sim, const struct sim_applied *applied);

#endif
