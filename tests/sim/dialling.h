/* Agents that dial servers, and servers that dial those of another region: each has the program's own decisions
 * (rpc/client/connections.h), on virtual time, with a clock and a loop of its own. Played are the sockets (packets are
 * delayed, and held back while a path is cut; a host that lost power says nothing, one whose process ended refuses), the
 * resolver, and the servers, as far as connections see them: a hello, whether they know a leader, answers. A host may stand
 * for a server of the simulated cluster, which then says whether it runs, stands still, and knows a leader.
 *
 * A connection works, in truth, where the host runs, can be reached, is of the agent's cluster, and knows a leader. The
 * judge says, as it runs:
 *
 *     an agent without a connection that works has one `bound_ms` later, while some server would give it one
 *     it never uses a server of another cluster than its own
 *     a reader is told that no server can be reached when hold_ms is over, which an agent counts from the reader's
 *     beginning, and a link to a region from the loss of its connection; not before, and at most DIAL_LATE_MS later */
#ifndef COORD_TESTS_SIM_DIALLING_H
#define COORD_TESTS_SIM_DIALLING_H

#include "rpc/client/connections.h"
#include "tests/sim/sim.h"

enum { DIAL_HOSTS = 10, DIAL_AGENTS = 64, DIAL_NAME_MOST = 4, DIAL_READERS = 64 };
#define DIAL_CLUSTER  UINT64_C(0xc1)
#define DIAL_STRANGER UINT64_C(0x5712)
#define DIAL_NAME     "servers.example:8300" /* resolves to d->named */
#define DIAL_LATE_MS  180 /* how late a story may see what happens at once: two ticks, two round trips */

enum dial_state { DIAL_UP, DIAL_DOWN /* refuses connections */, DIAL_GONE /* without power */ };
struct dial_host {
    unsigned number;
    char address[32];
    uint64_t cluster_id;   /* that is said there */
    bool leads, cut_off;   /* it knows a leader; it hears of no majority of its cluster */
    struct server *server; /* that decides state, pauses, leads and cut_off; NULL: the story does */
    enum dial_state state;
    uint64_t paused_us; /* until then its process stands still; its kernel does not */
    uint64_t hello_us;  /* its hello comes so much later */
    /* Its own. */
    uint64_t life, process;
    bool told_leads, told_cut_off;
    unsigned arrivals; /* connections that came */
};

struct dial_reader {
    uint64_t begun_us, begun_ms;
};
struct dial_agent {
    struct dialling *all;
    unsigned number;
    struct connections connections;
    uint64_t rank_seed, clock_ms; /* clock_ms: what its clock is ahead */
    bool cut[DIAL_HOSTS];         /* its path to that host; what is sent waits */
    bool awaits;                  /* somebody waits for a change */
    uint64_t ask_ms;              /* it asks so often; 0: never */
    uint64_t paused_us;           /* until then it stands still */
    uint64_t bound_ms;            /* 0: none */
    uint64_t tick_us, ask_us;
    unsigned changes, dials, anew; /* of its current connection; that it tried; to another cluster */
    uint64_t changed_us;
    uint64_t lost_us, longest_us; /* without a connection that works since; NEVER: it has one. The longest time so */
    /* Its readers, who wait. */
    struct dial_reader readers[DIAL_READERS];
    unsigned reading, served, told;
};

struct dial_message;
struct dial_link;
struct dialling {
    struct sim *sim;
    uint64_t delay_us, delay_span_us, resolve_us; /* of a packet; of a name */
    bool resolves;
    struct dial_host hosts[DIAL_HOSTS];
    unsigned host_count;
    unsigned named[DIAL_NAME_MOST], named_count; /* addresses of DIAL_NAME, in this order */
    struct dial_agent agents[DIAL_AGENTS];
    unsigned agent_count;
    uint64_t look_us; /* at the hosts, and the judge */
    struct dial_message *first;
    struct dial_link **links;
    size_t link_count, link_capacity;
};

struct dialling *dialling_begin(struct sim *sim, unsigned hosts); /* all up, with a leader */
void dialling_end(struct dialling *d);
void dialling_of_cluster(struct dialling *d); /* its hosts are the servers of the simulated cluster */
/* `region`: a server's link, with that hold; 0: an agent. It joins by that host's address; NULL: by DIAL_NAME. */
struct dial_agent *dialling_agent(struct dialling *d, const struct dial_host *join, uint64_t hold_ms);
void dialling_run(struct dialling *d, uint64_t ms);

void dial_host_is(struct dialling *d, struct dial_host *host, enum dial_state state);
void dial_read(struct dial_agent *agent);                       /* waits for a server, as client_reads.c has it */
struct dial_host *dial_current(const struct dial_agent *agent); /* NULL: none */
bool dial_good(const struct dial_agent *agent, const struct dial_host *of); /* would a connection there work? */
bool dial_works(const struct dial_agent *agent);
struct dial_host *dial_home(const struct dial_agent *agent); /* the host that it ranks highest, of all */

/* As WITHIN of story.h. */
#define DIAL_WITHIN(d, ms, condition)                                                \
    ({                                                                               \
        uint64_t end_us_ = (d)->sim->now_us + (uint64_t)(ms)*MS;                     \
        bool holds_now_;                                                             \
        while (!(holds_now_ = (condition)) && dialling_step((d), end_us_)) continue; \
        holds_now_ && !(d)->sim->failed;                                             \
    })
bool dialling_step(struct dialling *d, uint64_t end_us); /* one event; false: the time is over, or it failed */

#endif
