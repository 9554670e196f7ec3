/* Many agents that spend of a few budgets of one cluster, with clocks of their own, over a bad network. Steps of 1 ms
 * of true time, which is the leader's. Each agent is the real kv/quota/spender.h, and the servers are the real state
 * machine (quota_servers.h). The rules are checked as it runs (cr_assert). */
#ifndef COORD_TESTS_KV_SPENDER_FLEET_H
#define COORD_TESTS_KV_SPENDER_FLEET_H

#include "base/random.h"
#include "kv/quota/spender.h"
#include "quota_servers.h"

enum { FLEET_AGENTS = 24, FLEET_BUDGETS = 4, FLEET_WAITERS = 512 };
#define FLEET_MS     UINT64_C(1000000)
#define FLEET_S      UINT64_C(1000000000)
#define FLEET_WAIT_S 2 /* a take waits for so long */

struct fleet_plan {
    uint64_t seed;
    unsigned agents;
    const Pb__QuotaDefinition *definitions[FLEET_BUDGETS]; /* NULL: no more */
    /* Takes a second. */
    double (*rate)(void *data, unsigned agent, size_t budget, uint64_t now_ns);
    void *data;
    uint64_t take_most;         /* n is from 1 to this; 0: 1 */
    unsigned keyless_permille;  /* of the takes */
    unsigned together_permille; /* of the takes are of all budgets */
    unsigned lost_permille;     /* of the asks: the ask, or its answer */
    unsigned give_up_permille;  /* of the takes that wait go away without a word */
    unsigned mutations;         /* of the spenders */
    bool lenient;               /* a broken bound is counted, not asserted */
    uint64_t latency_most_ms;   /* each way; 0: 5 */
};

struct fleet_waiter {
    struct spender_take takes[FLEET_BUDGETS];
    size_t budgets[FLEET_BUDGETS], count;
    uint64_t since_ns;
};
struct fleet_follow {
    bool out;
    char name[64];
    uint64_t index, sent_ns;
};
struct fleet_fallback {
    uint64_t at_ns, n;
};
struct fleet_agent {
    struct spender *spender;
    unsigned number, life;
    char node[16];
    uint64_t rate_ppm, offset_ns; /* its clock */
    uint64_t paused_ns, cut_ns;   /* until then */
    uint64_t trouble_ns;          /* last seen */
    double due[FLEET_BUDGETS];    /* takes that are to come */
    struct fleet_waiter waiters[FLEET_WAITERS];
    size_t waiting;
    struct fleet_follow follows[FLEET_BUDGETS];
    uint64_t refused_ns[FLEET_BUDGETS]; /* since when all were refused; 0: none */
    struct fleet_fallback *fallbacks[FLEET_BUDGETS];
    size_t fallback_count[FLEET_BUDGETS];
    /* Counted since fleet_count_anew. */
    uint64_t asks, tries, admitted, refused, last_tries, fallback, renewed;
};
struct fleet_budget {
    const Pb__QuotaDefinition *definition;
    uint64_t capacity;
    uint64_t level, most; /* admitted and not refilled since; the highest */
    uint64_t window;      /* all that was admitted since the last refill, fallback too */
    uint64_t over;        /* how often the bound was broken */
    uint64_t poor_ns;     /* when the servers had too little for a take, last */
    uint64_t seen;        /* index up to which this was looked at */
    Pb__QuotaNotice *notice;
    uint64_t notice_index;
    struct arena arena;
};
struct fleet_message {
    struct fleet_message *next;
    unsigned agent, life;
    uint64_t arrives_ns, answers_ns, gives_up_ns; /* arrives at the servers; UINT64_MAX: never */
    bool applied, deaf;                           /* deaf: nobody hears the answer */
    int error;
    struct buffer command, grants;
};
struct fleet {
    struct fleet_plan plan;
    struct quota_servers servers;
    struct fleet_agent agents[FLEET_AGENTS];
    Pb__QuotaDefinition definitions[FLEET_BUDGETS];
    struct fleet_budget budgets[FLEET_BUDGETS];
    size_t budget_count;
    struct fleet_message *messages;
    struct rng rng;
    uint64_t now_ns, counted_ns, unled_ns; /* without a leader until then */
    uint64_t longest_refusal_ns;           /* while there was enough */
    uint64_t longest_hunger_ns;            /* that an agent got nothing, whether or not others did */
};

struct fleet *fleet_open(const struct fleet_plan *plan);
void fleet_close(struct fleet *fleet);
void fleet_run(struct fleet *fleet, uint64_t until_ns);
void fleet_count_anew(struct fleet *fleet);

void fleet_cut(struct fleet *fleet, unsigned agent, uint64_t for_ns);
void fleet_pause(struct fleet *fleet, unsigned agent, uint64_t for_ns); /* its process, or machine, stands still */
void fleet_crash(struct fleet *fleet, unsigned agent, bool noticed);    /* it begins anew; noticed: its session ends */
void fleet_new_leader(struct fleet *fleet, uint64_t after_ns);
/* Something bad now and then, until then. */
void fleet_chaos(struct fleet *fleet, uint64_t until_ns);

uint64_t fleet_asks(const struct fleet *fleet); /* since fleet_count_anew, of all agents */
uint64_t fleet_admitted(const struct fleet *fleet);

#endif
