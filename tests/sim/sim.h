/* A whole cluster in one process, decided by one seed.
 *
 * Real are the Raft core, the message codec, the log and the snapshot files. Simulated are time (a heap of events in
 * virtual microseconds), the network (bytes that are delayed, lost, doubled, overtaken, cut), the disks
 * (tests/lib/fake_disk), the clients. One thread; nothing but the seed decides, so that a run repeats byte for byte.
 *
 *   world.c      events, network, trace        server.c    one server: core, turns, effects
 *   storage.c    its log writer and snapshots   replica.c   its state machine, the real one
 *   client.c     who writes and reads           module.h    what a simulated module is: module_<name>.c
 *   modules.c    the modules' models            expiring.c  what ends by itself
 *   gateways.h   agents that spend quotas       checkers.c   what has to hold, always
 *   dialling.h   agents that dial servers
 *   agents.h     agents and their catalog       story.h      verbs for told scenarios: scenarios*.c
 *   regions.h    regions that answer for others chronicle.c  what the checkers remember
 *   chaos.c      faults at random, then healing */
#ifndef COORD_TESTS_SIM_SIM_H
#define COORD_TESTS_SIM_SIM_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/random.h"
#include "consensus/disk.h"
#include "consensus/disk_health.h"
#include "consensus/raft.h"
#include "consensus/requests.h"
#include "consensus/snapshot.h"
#include "consensus/wal.h"
#include "tests/lib/fake_disk.h"

#define SIM_SERVERS_MAX 12
#define SIM_MODULES_MAX 32
#define MS              1000u /* microseconds */
#define NEVER           UINT64_MAX

/* -- checkers' names -- */
#define SIM_CHECKERS(X)                                                                                            \
    X(RULE_LEADER, "one-leader", "at most one leader in a term")                                                   \
    X(RULE_LOG, "log-matching", "entries of the same index and term are the same, and so is all before")           \
    X(RULE_COMPLETE, "leader-completeness", "a new leader has every entry committed in earlier terms")             \
    X(RULE_MACHINE, "same-commands", "every server applies the same commands in the same order")                   \
    X(RULE_STATE, "same-state", "at the same index all stores have the same sum, and commands the same result")    \
    X(RULE_MODEL, "as-committed", "results and answers are what the committed commands make them")                 \
    X(RULE_FENCE, "fencing", "the tokens of a lock grow from holder to holder")                                    \
    X(RULE_QUEUE, "queues", "holders exclude each other, who waits does so in turn, and not for what is free")     \
    X(RULE_LEASE, "leases", "no lease ends early, or outlives its holder for long")                                \
    X(RULE_QUOTA, "quotas", "agents admit no more than the bound says, and refuse nothing for long that is there") \
    X(RULE_AGENTS, "agents", "the catalog soon says what each agent knows, and of who is gone that it is")         \
    X(RULE_HOME, "home", "a region never leaves healthy instances of its own, and comes home to them in time")     \
    X(RULE_LINKS, "links", "an agent finds a server that works in time, and none of another cluster")              \
    X(RULE_WATCH, "watches", "a blocking query is woken by each change of its key, and by nothing else")           \
    X(RULE_ACKED, "acked-kept", "an acknowledged command is applied once, on every server")                        \
    X(RULE_READ, "linearizable", "a read sees all that was acknowledged before it began")                          \
    X(RULE_FORWARD, "never-back", "term, commit and applied index do not go back, votes stand")                    \
    X(RULE_PROMISE, "promise", "what is answered is on disk first")                                                \
    X(RULE_QUORUM, "quorum-durable", "what commits is on the disks of a majority")                                 \
    X(RULE_MEMBERS, "one-change", "membership changes one at a time, one server a time")                           \
    X(RULE_RECOVERY, "recovery", "what was on disk is found again, and nothing else")                              \
    X(RULE_CAP, "capped", "messages stay within their caps")                                                       \
    X(RULE_CONVERGE, "convergence", "once healed, one leader and the same state everywhere, soon")                 \
    X(RULE_ASSERT, "assertion", "the code under test does not contradict itself")                                  \
    X(RULE_STORY, "story", "what a scenario claims")
#define SIM_ENUM(name, text, claim) name,
enum rule { SIM_CHECKERS(SIM_ENUM) RULE_COUNT };
#undef SIM_ENUM
const char *rule_name(enum rule rule);
const char *rule_claim(enum rule rule);

/* -- the world -- */

enum event_kind {
    EVENT_DELIVER,   /* bytes reach a server */
    EVENT_TICK,      /* a server's timer */
    EVENT_TURN,      /* a server's loop takes the effects of what it was told */
    EVENT_LOG_WRITE, /* its log writer touches the disk */
    EVENT_LOG_DONE,  /* ... and reports */
    EVENT_APPLY,     /* its applier */
    EVENT_JOB,       /* its reader: entries and chunks from and to the disk */
    EVENT_COPY,      /* its snapshot copier */
    EVENT_RESTART,   /* it starts again */
    EVENT_LOST,      /* it is told that a connection broke */
    EVENT_REQUEST,   /* a client's request reaches it */
    EVENT_WATCH,     /* a blocking query goes a step further */
    EVENT_READ,      /* a confirmed read looks at its copy */
    EVENT_FRAMES,    /* frames of another server may have arrived; number: its slot */
    EVENT_BEAT,      /* it looks at its connections */
    EVENT_POKE,      /* its loop is woken: answers for others, news of sessions, outcomes */
    EVENT_CLIENT,    /* a client wakes up */
    EVENT_GATEWAY,   /* a gateway wakes up, or a call of it goes a step further */
    EVENT_AGENT,     /* an agent wakes up, or a call of it goes a step further */
    EVENT_CHAOS,     /* something happens to the cluster */
};

struct event {
    uint64_t at_us, order; /* order: ties are broken by age */
    enum event_kind kind;
    uint32_t server;      /* slot */
    uint64_t incarnation; /* of the server; another one since: the event is void. 0: any */
    uint64_t number;      /* meaning depends on the kind */
    void *payload;        /* freed with the event */
};

struct network { /* the network */
    uint64_t delay_us, delay_span_us;
    uint32_t tail_permille; /* of messages take tail_us more, up to twice */
    uint64_t tail_us;
    uint32_t loss_permille, twice_permille;
    bool ordered; /* per link, as one TCP connection */
    bool late;    /* what was under way when a link was cut arrives all the same */
};

struct sim_options {
    uint64_t seed;
    uint32_t servers;                                                /* 0: the seed decides */
    uint64_t ticks;                                                  /* virtual ms of faults; 0: default */
    unsigned mutations;                                              /* of the core, */
    unsigned forwarding_mutations, lease_mutations, watch_mutations; /* and of what is around it */
    unsigned module_mutations;                                       /* enum module_mutation */
    unsigned spender_mutations, owner_mutations;                     /* of gateways */
    unsigned connections_mutations;                                  /* of agents that dial servers */
    unsigned liveness_mutations, anti_entropy_mutations;             /* of agents */
    unsigned rules_off;                                              /* bits of enum rule */
    unsigned modules_off;                                            /* bits: modules without clients */
    bool digests;                                                    /* of what is generated */
    bool verbose;
};

struct server;
struct client;
struct op;
struct chronicle;
struct forwarding;
struct lessor;
struct lessor_decision;
struct lease_settings;

/* A connection as one of its two servers sees it, and what is on its way to that server. */
struct frame;
struct peer_link {
    bool up;
    uint64_t epoch;                     /* equal on both sides: the same connection */
    uint64_t peer_incarnation;          /* of the other side, when it was made */
    uint64_t cut_since_us, patience_us; /* silent for so long: given up */
    uint64_t due_us;                    /* of the last frame */
    struct frame *first, **last;
};

struct sim {
    struct sim_options options;
    struct rng rng; /* of network, disks, servers */
    uint64_t now_us;
    struct event *heap;
    size_t heap_count, heap_capacity;
    uint64_t order;
    uint64_t events; /* carried out */
    uint64_t trace;  /* hash of everything that happened */

    struct network network;
    bool cut[SIM_SERVERS_MAX][SIM_SERVERS_MAX];                   /* [from][to] */
    uint32_t mute[SIM_SERVERS_MAX][SIM_SERVERS_MAX];              /* bits 1 << type: such messages vanish */
    uint64_t link_us[SIM_SERVERS_MAX][SIM_SERVERS_MAX];           /* ordered: the latest arrival */
    uint64_t sent[RAFT_MSG_TIMEOUT_NOW + 1];                      /* messages by type */
    uint64_t sent_with_entries[SIM_SERVERS_MAX][SIM_SERVERS_MAX]; /* appends that bring entries */

    struct raft_config raft; /* all servers' but id and seed */
    struct wal_config wal;
    struct peer_link links[SIM_SERVERS_MAX][SIM_SERVERS_MAX]; /* [whose view][with whom] */
    uint64_t link_epoch;
    uint64_t frames_sent;
    uint64_t snapshot_filler; /* bytes that the state machine adds to its snapshots, at most */
    uint64_t keep_entries;    /* of the log behind a snapshot */
    uint32_t server_count;
    struct server *servers[SIM_SERVERS_MAX];

    struct client *clients;
    uint32_t client_count;
    struct op *ops; /* ops[id - 1] */
    size_t op_count, op_capacity;
    void *models[SIM_MODULES_MAX]; /* of the simulated modules */
    uint64_t digests[SIM_MODULES_MAX], chaos_digest;
    struct chronicle *chronicle;
    struct chaos *chaos;
    struct gateways *gateways;                   /* NULL: there are none */
    struct agents *agents;                       /* likewise */
    const struct lease_settings *lease_settings; /* of servers that start; NULL: none */

    bool failed; /* the first violation ends the run */
    enum rule failed_rule;
    char failure[512];
};

void sim_init(struct sim *sim, const struct sim_options *options);
void sim_close(struct sim *sim);

uint64_t sim_random(struct sim *sim, uint64_t least, uint64_t most); /* inclusive */
bool sim_chance(struct sim *sim, uint32_t permille);
/* Takes `payload` (may be NULL) over. */
void sim_schedule(struct sim *sim, uint64_t after_us, enum event_kind kind, uint32_t server, uint64_t number,
                  void *payload);
bool sim_step(struct sim *sim);             /* one event; false: nothing left, or failed */
void sim_run(struct sim *sim, uint64_t us); /* until that much later, or failed */

/* The first call counts. Rules that are switched off are not noted. */
void sim_violation(struct sim *sim, enum rule rule, const char *format, ...) __attribute__((format(printf, 3, 4)));
void sim_say(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define TRACE(sim, ...)                                          \
    do {                                                         \
        if ((sim)->options.verbose) sim_say((sim), __VA_ARGS__); \
    } while (0)
void sim_mix(struct sim *sim, uint64_t value); /* into the trace */
void sim_mix_bytes(struct sim *sim, const void *data, size_t size);

void network_send(struct sim *sim, const struct raft_message *message);
bool network_arrives(struct sim *sim, uint32_t to, uint64_t number);     /* number: of the event */
void network_cut(struct sim *sim, uint32_t from, uint32_t to, bool cut); /* one way */
void network_heal(struct sim *sim);                                      /* all links whole */

/* -- the state machine: the real one, over a store in memory's file system -- */

struct machine; /* registry/machine.h */
struct module_entry;
/* The program's modules as that server is configured (module_history.c). */
const struct module_entry *history_modules(struct sim *sim, uint32_t slot);
struct machine_result;
struct expiry_updates;
struct store_reader;
struct replica {
    struct machine *machine;
    struct expiry_updates *updates; /* for the lessor */
    struct store_reader *reader;
    uint64_t applied, applied_term;
    uint64_t sum; /* of the store's records */
    uint64_t members_index;
    struct raft_members members;
};
/* `slot` names its folder. The state that is found there is used only if `trusted`; the members as of then are the
 * caller's to set. `modules` live as long. */
void replica_open(struct replica *replica, uint32_t slot, bool trusted, const struct module_entry *modules,
                  unsigned mutations, void (*wake)(void *data), void *data);
void replica_close(struct replica *replica);
/* In order; `done` as machine_apply calls it, origins[i] for entries[i]. */
void replica_apply(struct replica *replica, const struct raft_entry *entries, void *const *origins, size_t count,
                   void (*done)(void *data, void *origin, const struct machine_result *result), void *data);
/* Filler depends on the state, so that a chunk out of place is noticed. */
void replica_save(struct replica *replica, uint64_t filler, struct buffer *out);
bool replica_load(struct replica *replica, const struct raft_snapshot_meta *meta, struct slice bytes);
void replica_clean(void); /* removes the folders */

/* -- servers -- */

struct log_terms {            /* a log as the checkers know it: index and term decide the rest (chronicle.c) */
    uint64_t base, base_term; /* everything up to here is in a snapshot */
    uint64_t *terms;          /* of base + 1 ... */
    size_t count, capacity;
};
uint64_t log_terms_last(const struct log_terms *log);
uint64_t log_terms_at(const struct log_terms *log, uint64_t index); /* 0: not there. base has its term */
void log_terms_append(struct log_terms *log, uint64_t term);
void log_terms_cut(struct log_terms *log, uint64_t from);
void log_terms_reset(struct log_terms *log, uint64_t base, uint64_t base_term);
/* A snapshot covers all up to `base`: what follows it stays if it fits, else goes. */
void log_terms_rebase(struct log_terms *log, uint64_t base, uint64_t base_term);
void log_terms_copy(struct log_terms *to, const struct log_terms *from);
bool log_terms_equal(const struct log_terms *a, const struct log_terms *b);

struct persist {            /* a persist operation on its way to the disk */
    struct raft_persist op; /* entries: own array and references */
    struct persist *next;
};

struct disk_mood {
    uint64_t delay_us, delay_span_us; /* of a group */
    bool held;                        /* nothing is begun */
};

struct copy { /* a local snapshot being written */
    struct snapshot_writer *writer;
    struct raft_snapshot_meta meta;
    struct buffer bytes;
    size_t written;
};

struct server {
    struct sim *sim;
    uint32_t slot;
    uint64_t id;          /* slot + 1 */
    uint64_t incarnation; /* counts starts and stops */
    uint64_t process;     /* counts crashes: opening the log again is none */
    bool up;
    bool retired; /* shut down for good */
    /* With an empty disk it founds a cluster of these; none: it waits to be added. */
    struct raft_members founders;
    uint64_t rate; /* its clock: microseconds of its own per 1000 */
    uint64_t clock_base_us;
    uint64_t paused_until_us;
    struct raft *raft;

    /* the loop */
    bool turn_planned;
    uint64_t turn_span_us; /* a turn ends up to so much after its first event */
    uint64_t tick_at_us, tick_number;

    /* the disk and those who use it */
    struct fake_disk *disk;
    struct disk_mood mood;
    struct wal *wal;
    struct persist *queue, **queue_end;
    struct persist *group; /* handed to the disk, not yet reported */
    bool group_begun;      /* the disk has been touched for it */
    int group_error;
    uint64_t group_done_us;
    uint64_t jobs_free_us;
    struct snapshot_writer *receiver; /* the snapshot that comes in chunks */
    uint64_t receiver_index;
    struct snapshot_reader *reader;
    struct raft_snapshot_meta reader_meta;
    struct copy *copy;

    /* the applier */
    struct replica machine;
    bool machine_kept; /* survived the stop */
    struct raft_entry *applies;
    struct node_proposal **origins; /* of applies; NULL: proposed elsewhere */
    size_t apply_count, apply_capacity;
    bool apply_planned;
    uint64_t apply_delay_us;

    /* what waits here, for whom, and who knows what to do: the program's own code (callbacks.c) */
    struct requests requests;
    struct disk_health disk_health;
    bool full_told, spent_told; /* what the core was told of it */
    uint64_t taken_bytes;       /* of entries received in this turn, not on their way to the log yet */
    struct forwarding *forwarding;
    struct lessor *leases;
    uint64_t applied_seen, write_begun_ms, bad_ms;
    bool poke_planned, installed, dying;
    struct decided *decided;
    struct watch *watches;

    /* what the checkers know about it */
    struct log_terms memory, durable;
    uint64_t durable_term, durable_vote;
    uint64_t snapshot_index; /* the newest whole one on disk */
    uint64_t seen_term, seen_vote, seen_commit, seen_applied;
    uint64_t seen_leader_term; /* the last term it was leader of */
    uint64_t members_index;    /* of the newest configuration in `memory` */
    uint64_t snapshots_taken, snapshots_installed, restarts;
    uint64_t acked_term; /* the last term in which somebody acknowledged its entries */
};

struct server *server_new(struct sim *sim); /* an empty disk, down */
void server_free(struct server *server);
/* Writes the first entry of a new cluster. */
void server_found(struct server *server, const struct raft_members *members);
void server_start(struct server *server); /* founds the cluster of `founders` if its disk is empty */
enum crash { CRASH_KILL, CRASH_POWER };
void server_crash(struct server *server, enum crash crash);
void server_restart_after(struct server *server, uint64_t us);
int server_step(struct server *server, struct raft_event *event); /* the event's error; plans a turn */
void server_flush(struct server *server);                         /* the turn ends now */
void server_drop_applies(struct server *server);                  /* a snapshot has jumped over them */
void server_event(struct server *server, struct event *event);    /* one of the kinds that concern a server */
bool server_leads(const struct server *server);
uint64_t server_now_ms(const struct server *server);
/* Its wall clock, up to some seconds before or behind those of others: leaders differ. */
uint64_t server_wall_ms(const struct server *server);
void server_expiry_wake(void *server);      /* something began or ended in its state machine */
struct server *sim_leader(struct sim *sim); /* of the highest term; NULL: none */
void server_turn(struct server *server);    /* one is due */

/* callbacks.c: requests, forwarding and leases of a server */
void edge_open(struct server *server);
void edge_close(struct server *server); /* everything that waits here ends */
void edge_write(struct server *server, uint64_t op);
void edge_read(struct server *server, uint64_t op);
void edge_renew(struct server *server, uint64_t op);
void edge_judge_disk(struct server *server);
bool edge_takes_in(struct server *server, const struct raft_message *message); /* there is room for its entries */
void edge_after_turn(struct server *server);
void edge_applied(struct server *server, struct node_proposal *proposal, const struct machine_result *result);
void edge_abandon(struct server *server, struct node_proposal *proposal); /* it will not be heard of here */
void edge_poke(struct server *server);                                    /* soon */
void edge_poked(struct server *server);
void edge_tick(struct server *server);
uint64_t edge_deadline_ms(const struct server *server);

/* watches.c */
void watch_read(struct server *server, uint64_t op); /* it may look now */
void watch_again(struct server *server, uint64_t op);
void watch_failed(struct server *server, uint64_t op);
void watch_event(struct server *server, uint64_t number);
void watches_close(struct server *server);

/* links.c: connections, as TCP gives them: in order, all or nothing, until they end */
bool links_up(const struct server *server, uint64_t peer);
void links_send(struct server *server, uint64_t peer, uint8_t type, const char *bytes, size_t size);
void links_arrive(struct server *server, uint32_t from);
void links_beat(struct server *server);
void links_gone(struct server *server); /* it is down: its own views end at once */
void links_free(struct sim *sim);

/* storage.c */
struct wal_config storage_config(const struct server *server, uint64_t start_term);
/* Opens what the disk holds. `start` points into `recovered`, which the caller frees, whatever the result. */
int storage_open(struct server *server, struct raft_start *start, struct wal_recovered *recovered);
void storage_close(struct server *server); /* all but the group that was being written */
void storage_drop_group(struct server *server);
void storage_persist(struct server *server, const struct raft_persist *op);
uint64_t storage_waiting(const struct server *server); /* bytes of entries on their way to the log */
void storage_kick(struct server *server);              /* the log writer looks at its queue */
void storage_write(struct server *server);
void storage_written(struct server *server);
void storage_load(struct server *server, const struct raft_load *load);
void storage_chunk_read(struct server *server, const struct raft_chunk_read *read);
void storage_chunk_write(struct server *server, const struct raft_chunk_write *write);
void storage_job(struct server *server, void *payload);
void storage_copy_begin(struct server *server); /* a snapshot of the state as it is applied now */
void storage_copy_go_on(struct server *server);
/* After any use of the disk: true when it died under us; the server has crashed then. */
bool storage_died(struct server *server);

/* -- clients -- */

enum op_state { OP_WAITING, OP_DONE, OP_REFUSED, OP_UNKNOWN };
/* Their actions: tests/sim/module.h. An operation is numbered from 1. */
struct op *op_get(struct sim *sim, uint64_t id);
uint64_t op_new(struct sim *sim, uint32_t client, uint32_t server, const struct op *like); /* not sent yet */
void op_send(struct sim *sim, uint64_t id);           /* leaves now and reaches the server soon */
void op_request(struct server *server, uint64_t id);  /* it has arrived */
void op_read_now(struct server *server, uint64_t id); /* at what is applied */
void op_done(struct sim *sim, uint64_t id, enum op_state state, uint64_t index);
void clients_start(struct sim *sim);
void clients_stop(struct sim *sim);
void clients_free(struct sim *sim);
void client_wake(struct sim *sim, uint32_t client, uint64_t op);
bool clients_idle(const struct sim *sim);

/* -- checkers -- */

void check_persist(struct server *server, const struct raft_persist *op); /* the core wants it written */
void check_durable(struct server *server, const struct raft_persist *op); /* the disk has it */
void check_message(struct server *server, const struct raft_message *message);
void check_observe(struct server *server);                                   /* after each turn */
void check_committed(struct server *server, const struct raft_entry *entry); /* handed out for applying */
/* The state machine has done it, with this result. */
void check_applied(struct server *server, const struct raft_entry *entry, const struct machine_result *result);
void check_state(struct server *server); /* it stands at the end of a batch */
void check_installed(struct server *server, const struct raft_snapshot_meta *meta);
void check_recovered(struct server *server, const struct raft_start *start); /* before the core sees it */
void check_started(struct server *server);                                   /* the core knows it now */
void check_acked(struct sim *sim, const struct op *op);
void check_read(struct sim *sim, const struct op *op);
void check_at_end(struct sim *sim); /* after convergence */

/* -- chronicle: what has happened so far, for the checkers -- */

struct seen { /* one entry that some log has held */
    uint64_t term, prev_term, sum, op;
    uint8_t type;
    struct raft_members *members; /* type MEMBERS */
    struct seen *next;            /* another term at the same index */
    uint64_t unix_ms;             /* as its leader proposed it */
};
struct truth { /* one committed entry */
    uint64_t term, commit_term;
    struct seen *seen;
    uint64_t state_sum; /* of the store after it; 0: nobody has stopped there */
    bool applied;       /* by somebody; what came of it: */
    bool yes;
    int error;
    uint64_t record;  /* hash of the result's record */
    uint64_t unix_ms; /* the state machine's: the highest of all entries up to it */
};
struct chronicle {
    struct seen **seen; /* by index */
    size_t seen_capacity;
    struct truth *committed; /* committed[index - 1] */
    size_t committed_count, committed_capacity;
    uint64_t *leaders;                /* by term: id */
    uint64_t *votes[SIM_SERVERS_MAX]; /* by term: for whom */
    size_t term_capacity;
    uint64_t floor; /* highest index that a finished operation has seen */
    uint64_t leaders_elected;
};
/* modules.c: the models follow. */
void model_applied(struct server *server, const struct raft_entry *entry, const struct machine_result *result);
uint64_t command_sum(const struct raft_entry *entry); /* of type and bytes */

struct chronicle *chronicle_new(void);
void chronicle_free(struct chronicle *chronicle);
struct seen *chronicle_seen(struct chronicle *chronicle, uint64_t index, uint64_t term);
/* Notes the entry; NULL when one of this index and term is known that differs. */
struct seen *chronicle_note(struct chronicle *chronicle, const struct raft_entry *entry, uint64_t prev_term);
void chronicle_terms(struct chronicle *chronicle, uint64_t term); /* makes room up to it */
/* The configuration that counts in `log`: its newest one up to `index`. NULL: none. */
const struct raft_members *chronicle_members(struct chronicle *chronicle, const struct log_terms *log, uint64_t index,
                                             uint64_t *at);

/* -- chaos and convergence -- */

void chaos_begin(struct sim *sim); /* sets the cluster up and plans the faults */
void chaos_event(struct sim *sim, uint64_t number);
void chaos_leader(struct sim *sim, const struct server *leader); /* somebody has become one */
void chaos_acknowledged(struct sim *sim, struct server *leader); /* an append of its was */
void chaos_close(struct sim *sim);
void chaos_run(struct sim *sim); /* the whole life of a seed */
const char *chaos_name(const struct sim *sim);
void cluster_found(struct sim *sim, uint32_t voters,
                   /* that many servers, started; on_disk: the first entry is there already, else they begin with it */
                   bool on_disk);
void cluster_heal(struct sim *sim); /* no more faults, all servers up */
bool cluster_converged(struct sim *sim);
void cluster_print(struct sim *sim, FILE *out); /* a line a server */
/* Heals, waits until all agree, writes and reads once more. A violation when it takes too long. */
void cluster_settle(struct sim *sim);

/* -- scenarios -- */

struct scenario {
    const char *name, *claim;
    void (*run)(struct sim *sim);
};
extern const struct scenario scenarios[];
extern const size_t scenario_count;

#endif
