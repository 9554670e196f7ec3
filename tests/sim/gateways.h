/* Gateways: agents that spend one budget of a simulated cluster. Each is the program's own code of an agent
 * (kv/quota/spender.h, or kv/quota_owner/owner.h where keys have owners), with a clock of its own, on a node of its own. Its
 * asks go to one of the servers, as operations like any other, and questions to another gateway go over their servers;
 * all of it over a network that cuts, loses and delays. Gateways crash, begin anew and stand still. The rules are
 * checked as it runs:
 *
 *     what was admitted and has not come back since is at most the capacity and the drift, and what agents admit by
 *     themselves is at most what the bound says, of each node and in each period, so that in each window the sum is at most
 *     the budget and the bound
 *     no gateway refuses for longer than a TTL and a second while the servers have enough
 *     where clients obey (plan.clients), and nothing is wrong, what gateways_clients.c says of them
 *     one gateway at most counts a key, and no key is without one for longer than a TTL and a second
 *
 * The clocks of gateways and servers differ by 1 % at most, which is the difference that the contract tolerates. */
#ifndef COORD_TESTS_SIM_GATEWAYS_H
#define COORD_TESTS_SIM_GATEWAYS_H

#include "kv/quota/spender.h"
#include "kv/quota_owner/owner.h"
#include "tests/sim/module.h"

enum { GATEWAYS_MOST = 8, GATEWAY_KEYS = 8, GATEWAY_WAITERS = 64, GATEWAY_WINDOWS = 8, GATEWAY_CLIENTS = 4 };
#define GATEWAY_UNIX_S  INT64_C(1699999980) /* wall clocks at the start; a minute begins */
#define GATEWAY_WAIT_MS 2000                /* a take waits for so long */

struct gateways_plan {
    const Pb__QuotaDefinition *definition; /* without a name and a service */
    unsigned gateways, keys, members;      /* keys: in owner mode; members: the first so many have an instance */
    uint32_t rate, take_most;              /* takes a second of each gateway, of 1 to this */
    uint32_t lost_permille;                /* of messages: they, or their answers */
    /* In place of these takes: clients of each gateway. One takes 1 again and again; when it is refused it sleeps for exactly
     * the Retry-After that it would read, in whole seconds. Wall clocks of all are `skew_ms` apart at most then. */
    unsigned clients;
    unsigned
        leavers; /* of the first so many gateways a client that was served goes away when it is refused, for ever */
    bool modest; /* one that was served takes again after a refill period, and there is enough for all of them */
    uint64_t skew_ms;
};
struct gateway_client {
    unsigned key;
    bool waits;       /* its take is with the gateway */
    uint64_t at_us;   /* else it takes then */
    uint64_t want_us; /* since when it was not served */
    uint64_t took_us; /* when its take came, the last one that was refused; 0: none was */
    unsigned refusals;
    bool served;
};

struct gateway_call;
struct gateway_waiter {
    struct owner_take take; /* in the other modes its name, key and n are used alone */
    struct gateway_client *client;
    unsigned key;
    uint64_t since_us, asked; /* asked: number of the call that it waits for */
};
struct gateway {
    struct gateways *all;
    struct spender *spender; /* one of these while it is up */
    struct owner *owner;
    unsigned number, life;
    char node[16];
    bool up, passing, leaving, following;
    bool sick;                    /* its node is to be registered so, once */
    uint32_t server;              /* slot of the server that it is connected to */
    uint64_t rate_ppm, offset_ns; /* its clock */
    int64_t skew_ms;
    uint64_t paused_us, cut_us; /* until then */
    uint64_t wake_us, take_us;  /* when it wakes; when the next take comes */
    uint64_t trouble_us;        /* last seen */
    uint64_t on_its_way;        /* the servers have spent it for its takes, and it has not heard of that */
    uint64_t refused_us;        /* since when all was refused; NEVER: it was not */
    struct gateway_waiter waiters[GATEWAY_WAITERS];
    size_t waiting;
    struct gateway_client clients[GATEWAY_CLIENTS];
    uint64_t hungry_us, hungry_refills; /* since when none of them was served, and some were refused; NEVER: not so */
};
struct gateway_key {
    char text[16];
    uint64_t level_us, nobody_us; /* nobody: since when no owner decided a take; NEVER: one did */
    double level;
    struct {
        int64_t window_s;
        uint64_t sum;
    } windows[GATEWAY_WINDOWS];
};
struct gateway_fallback {
    uint64_t at_us, n;
    unsigned gateway;
};
struct gateways {
    struct sim *sim;
    struct gateways_plan plan;
    Pb__QuotaDefinition definition;
    uint64_t capacity;
    bool owned, stopped;
    struct gateway gateways[GATEWAYS_MOST];
    struct gateway_call **calls;
    size_t call_count, call_capacity;
    /* The figures that are checked. */
    int64_t level,
        window;          /* admitted and not refilled since; since the last refill, fallbacks too. Less than 0: of what
                            * came back the servers had spent so much for takes that are admitted later */
    uint64_t poor_us;    /* since when there is enough for each take; NEVER: there is not */
    uint64_t trouble_us; /* of the servers, or in owner mode of anybody, last seen */
    uint64_t audited;    /* the next row of the trail */
    struct gateway_key keys[GATEWAY_KEYS];
    struct gateway_fallback *fallbacks;
    size_t fallback_count;
    uint64_t *over; /* leases whose time has ended */
    size_t over_count;
    unsigned left;                                         /* clients that have gone away */
    uint64_t left_us;                                      /* when, the last one */
    uint64_t refills, came_us;                             /* of all: how many; when there was more than before, last */
    int64_t available;                                     /* as it was seen last */
    uint64_t most_refusals, most_refills, longest_wait_us; /* of a client in a row; of a gateway; of a client */
    uint64_t admitted, refused, fell_back, renewed, undecided, asks, longest_us;
};

/* The nodes are registered and the budget defined, on a cluster of the newest version. NULL: that failed, and is noted. */
struct gateways *gateways_begin(struct sim *sim, const struct gateways_plan *plan);
void gateways_stop(struct sim *sim); /* all of them are gone at once */
void gateways_free(struct sim *sim); /* none: nothing */
bool gateways_over(struct sim *sim); /* the servers hold no lease of theirs any more */

void gateway_crash(struct gateway *gateway, bool noticed); /* noticed: its session ends */
void gateway_start(struct gateway *gateway);               /* one that is down */
void gateway_pause(struct gateway *gateway, uint64_t us);
void gateway_cut(struct gateway *gateway, uint64_t us);           /* off from servers and gateways */
void gateway_passes(struct gateway *gateway, bool passing);       /* its instance */
void gateway_leave(struct gateway *gateway);                      /* it ends in order */
void gateways_raise(struct gateways *all, uint64_t budget);       /* the budget is so much from now on */
int64_t gateways_unix_ms(const struct sim *sim, uint32_t server); /* a server's wall clock, where plan.clients */

/* -- hooks of the simulator -------------------------------------------------------------------------------------- */

#define SIM_GATEWAY (UINT32_MAX - 1) /* a client: one of these */
void gateways_event(struct sim *sim, uint32_t gateway, uint64_t number);
void gateways_result(struct op *op, const struct machine_result *result); /* before op_done */
void gateways_heard(struct sim *sim, const struct op *op);                /* op_done */
struct sim_expected gateways_applied(struct sim *sim, const struct sim_applied *applied);

#endif
