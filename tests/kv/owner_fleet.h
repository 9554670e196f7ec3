/* Many agents that count one budget's keys together (kv/quota_owner/owner.h), with clocks of their own, over a bad network.
 * Steps of 1 ms of true time, which is the leader's. The servers are the real state machine (quota_servers.h). The
 * rules are checked as it runs:
 *
 *     at each moment one agent at most counts a key, or a part of it
 *     what owners admitted of a key is within the budget: at each moment, or in each window, as its owner's clock names it
 *     what takers were told is admitted was admitted by an owner, or by on_loss
 *     no key is without an owner for longer than a TTL and a second after the last trouble */
#ifndef COORD_TESTS_KV_OWNER_FLEET_H
#define COORD_TESTS_KV_OWNER_FLEET_H

#include "base/random.h"
#include "kv/quota_owner/owner.h"
#include "quota_servers.h"

enum { OWN_AGENTS = 12, OWN_KEYS = 12, OWN_WAITERS = 256, OWN_WINDOWS = 32 };
#define OWN_MS UINT64_C(1000000)
#define OWN_S  UINT64_C(1000000000)

struct own_plan {
    uint64_t seed;
    unsigned agents, keys, members; /* the first so many have an instance of the service */
    const Pb__QuotaDefinition *definition;
    /* Takes a second, of this agent, of this key. */
    double (*rate)(void *data, unsigned agent, unsigned key, uint64_t now_ns);
    void *data;
    uint64_t take_most;       /* n is from 1 to this; 0: 1 */
    unsigned lost_permille;   /* of all messages */
    unsigned back_permille;   /* of what was admitted is given back */
    unsigned mutations;       /* of the agents */
    unsigned broken;          /* rules of the state machine that are broken (registry/module.h) */
    uint64_t latency_most_ms; /* each way; 0: 5 */
    uint64_t skew_most_ms;    /* of wall clocks */
    bool lenient;             /* what must not be is counted, not asserted */
};
struct own_waiter {
    struct owner_take take;
    unsigned key;
    uint64_t asked; /* the number of the message; 0: it waits */
};
struct own_agent {
    struct owner *owner;
    unsigned number, life;
    char node[16];
    bool passing, gone; /* gone: its process has ended */
    bool ending;
    uint64_t rate_ppm, offset_ns;
    int64_t skew_ms;
    uint64_t paused_ns, cut_ns; /* until then */
    double due[OWN_KEYS];
    struct own_waiter waiters[OWN_WAITERS];
    size_t waiting;
    bool following;
    uint64_t follow_index, follow_ns;
    uint64_t fallbacks;
};
struct own_key {
    char text[16];
    double level, most; /* admitted and not refilled since */
    uint64_t level_ns;
    struct {
        int64_t window_s;
        uint64_t sum;
    } windows[OWN_WINDOWS];
    uint64_t counted, admitted, fallback, refused, undecided;
    uint64_t nobody_ns; /* since when no owner decided a take; 0: one did */
};
enum own_kind { OWN_ASK, OWN_PEER_TAKE, OWN_PEER_MESSAGE, OWN_PEER_BACK };
struct own_message {
    struct own_message *next;
    enum own_kind kind;
    unsigned from, from_life, to;
    uint64_t number;                              /* of the waiter, or the agent's message */
    uint64_t arrives_ns, answers_ns, gives_up_ns; /* UINT64_MAX: never */
    bool arrived, heard, answered;
    int error; /* of the command; of a peer: an enum owner_reach when it gives up */
    struct buffer request, reply;
};
struct own_fleet {
    struct own_plan plan;
    struct quota_servers servers;
    struct own_agent agents[OWN_AGENTS];
    struct own_key keys[OWN_KEYS];
    Pb__QuotaDefinition definition;
    uint64_t capacity;
    bool cut[OWN_AGENTS][OWN_AGENTS]; /* between agents */
    struct own_message *messages;
    struct rng rng;
    uint64_t numbers, now_ns, unled_ns, trouble_ns, seen, notice_index;
    uint64_t asks;
    Pb__QuotaNotice *notice;
    struct arena arena;
    uint64_t beside, over; /* how often what must not be was seen */
    uint64_t longest_ns;   /* a key was without an owner, after the last trouble */
};

struct own_fleet *own_open(const struct own_plan *plan);
void own_close(struct own_fleet *fleet);
void own_run(struct own_fleet *fleet, uint64_t until_ns);

void own_define(struct own_fleet *fleet, const Pb__QuotaDefinition *definition);
void own_passes(struct own_fleet *fleet, unsigned agent, bool passing); /* its instance */
void own_crash(struct own_fleet *fleet, unsigned agent, bool noticed);  /* noticed: its session ends */
void own_begin(struct own_fleet *fleet, unsigned agent);                /* one that has ended begins anew */
void own_end(struct own_fleet *fleet, unsigned agent);                  /* in order; it is gone when it has left */
void own_pause(struct own_fleet *fleet, unsigned agent, uint64_t for_ns);
void own_cut_off(struct own_fleet *fleet, unsigned agent, uint64_t for_ns); /* from servers and agents */
void own_cut(struct own_fleet *fleet, unsigned a, unsigned b, bool cut);    /* between two agents */
void own_new_leader(struct own_fleet *fleet, uint64_t after_ns);
/* One of these now and then, until then. orderly: only what hands over. */
void own_chaos(struct own_fleet *fleet, uint64_t until_ns, bool orderly);
/* How many members the active epoch has, when it is the newest; 0: it is not. */
size_t own_members(struct own_fleet *fleet);

/* -- shared by the fleet's files ----------------------------------------------------------------------------------- */

/* COORD_VERBOSE: what happens. */
#define OWN_SAY(fleet, ...) \
    (getenv("COORD_VERBOSE") ? (fprintf(stderr, "%6lu ", (fleet)->now_ns / OWN_MS), fprintf(stderr, __VA_ARGS__)) : 0)
struct owner_now own_now(const struct own_fleet *fleet, const struct own_agent *agent);
/* The tokens that the owner has left for a key, over all parts that it counts. */
uint64_t own_left(struct own_fleet *fleet, struct own_agent *owner, const struct own_key *key);
/* An owner has counted n of a key, or of a part of it; or so much came back to it. */
void own_counted(struct own_fleet *fleet, struct own_agent *owner, struct own_key *key, uint32_t part, uint64_t n);
void own_came_back(struct own_fleet *fleet, struct own_agent *owner, struct own_key *key, uint32_t part, uint64_t n);
void own_decided(struct own_key *key); /* an owner said something; or none could */
void own_undecided(struct own_fleet *fleet, struct own_key *key);
void own_look_beside(struct own_fleet *fleet); /* does somebody count beside another? */

#endif
