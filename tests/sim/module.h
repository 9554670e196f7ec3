/* A simulated module: the actions of its clients, the bytes of their commands, and a simple model of the state that the
 * committed commands make. Each module is one file, module_<name>.c, and one line in modules.h.
 *
 * Clients. Each module has clients of its own. A client wakes at times that its module's stream of random numbers
 * decides; each wake is a *turn*. In a turn `generate` says what the client does next, from that turn's own stream and
 * from what `generate` planned before. It never sees an answer. So neither another module nor a slower cluster changes
 * what is generated, or when: `sim --check-modules` shows that. `complete` fills in the parts that depend on answers
 * (the index of a CAS, the session that is held now), when the operation is about to be sent.
 *
 *   one turn:        generate -> (unless too much is under way) complete -> command or request -> the server
 *   the answer:      seen (a read looked) -> check_read -> learn
 *   each entry:      made_by -> apply, once, when the first server applies it
 *   other modules:   on_notice, while an entry is applied
 *   at the end:      over -> check_end
 *
 * Model. `apply` knows only committed commands and their results. Everything is one thread. All times are virtual:
 * microseconds unless a name says _ms. */
#ifndef COORD_TESTS_SIM_MODULE_H
#define COORD_TESTS_SIM_MODULE_H

#include "registry/module.h"
#include "tests/sim/sim.h"

/* -- operations: one request of a client ---------------------------------------------------------------------------- */

enum op_way {
    OP_WRITE, /* a command */
    OP_READ,  /* a query; blocking with wait_us */
    OP_RENEW, /* of `owner` */
};
#define SIM_STORY UINT32_MAX /* a client: the told scenario */
#define OP_OWN    64         /* bytes that are the module's own */
struct op {
    uint64_t id;                     /* from 1 */
    const struct sim_module *module; /* whose command or query it is; not always that of its client */
    unsigned kind;                   /* the module's own */
    enum op_way way;
    enum op_state state;
    uint32_t client, server;
    uint64_t owner; /* the operation that made what this one acts for: a session that locks, a lease; 0: none */
    uint64_t invoked_us, done_us;
    uint64_t floor; /* highest index known to somebody when it began */
    /* Reads. */
    bool stale;
    uint64_t wait_us, known_index; /* blocks until the result is newer than known_index, or so long */
    uint64_t seen_index;           /* of the result */
    bool found;
    bool quiet; /* set by `seen`: it wakes nobody that this is so; who waits learns it when its time is up */
    /* The answer. Writes: their place; reads: up to where the server had applied. */
    uint64_t index;
    bool yes;
    int error;
    /* Of what it made, if that ends by itself (expiring.c). renewed: when the last acknowledged renewal was sent. */
    uint64_t ttl_ms, created_index, ended_index, ended_us, renewed_us;
    bool cut_short; /* not by its TTL: taken over, or ended with something else */
    _Alignas(8) char own[OP_OWN];
};
/* The module's own part of an operation, as its type. */
#define OP_AS(type, op)                                                \
    ({                                                                 \
        _Static_assert(sizeof(type) <= OP_OWN, "too large for an op"); \
        (type *)(void *)(op)->own;                                     \
    })

/* -- turns ---------------------------------------------------------------------------------------------------------- */

struct sim_turn {
    struct rng rng;  /* of this turn alone: how much is drawn changes no other turn */
    void *plan;      /* the client's, plan_size bytes, zeroed at the start. Only `generate` writes it */
    uint32_t client; /* number among the module's clients, from 0 */
    uint64_t now_us;
};
uint64_t turn_random(struct sim_turn *turn, uint64_t least, uint64_t most); /* inclusive */
bool turn_chance(struct sim_turn *turn, uint32_t permille);

/* -- the model ------------------------------------------------------------------------------------------------------ */

struct sim_applied {
    struct server *server; /* that has applied it first, and shows what came of it */
    uint8_t number;        /* of the command */
    const ProtobufCMessage *command;
    uint64_t index;
    struct op *op; /* whose command it is; NULL: one that servers proposed */
    const struct machine_result *result;
};
/* The result that is expected. */
struct sim_expected {
    bool yes, error;
};
static inline struct sim_expected expect_yes(void) { return (struct sim_expected){.yes = true}; }
static inline struct sim_expected expect_no(void) { return (struct sim_expected){0}; }
static inline struct sim_expected expect_error(void) { return (struct sim_expected){.error = true}; }
/* Whatever it was. */
static inline struct sim_expected expect_any(const struct sim_applied *applied) {
    return (struct sim_expected){applied->result->yes, applied->result->error != CO_OK};
}

/* Changes of one module's things within an entry, for the modules whose things depend on them. */
enum sim_notice_type {
    SIM_ENDED,        /* `op`: what it made has ended (expiring.c) */
    SIM_NODE_REMOVED, /* `node`, by the name that it has */
    SIM_FOUNDED,      /* the cluster, by its first version */
};
struct sim_notice {
    enum sim_notice_type type;
    struct op *op;
    uint32_t node;
    uint64_t index;
};
void sim_notify(struct sim *sim, const struct sim_notice *notice); /* in the order of the table */

/* -- the table ------------------------------------------------------------------------------------------------------ */

struct sim_pace { /* drawn for each run from the module's stream */
    uint32_t clients_least, clients_most;
    uint32_t think_least_ms, think_most_ms; /* mean time between two turns of a client */
    unsigned open_most; /* operations that a client has under way: a turn that finds so many passes */
};

/* Functions that are NULL: nothing to do, nothing to check. */
struct sim_module {
    const char *name;            /* the stream depends on it: never changed */
    const struct module *module; /* the program's own: its commands belong to this one */
    struct sim_pace pace;        /* clients_most 0: no clients */
    size_t plan_size, known_size, model_size;

    /* Chooses what the client does next: `op` comes zeroed, and leaves with `module`, `kind`, `way` and their fields
     * set. False: nothing. `op` may be another module's (a session's client locks a key). */
    bool (*generate)(struct sim_turn *turn, struct op *op);
    /* `op` has its id and is about to be sent. Fills in the parts that depend on answers; `known` is the client's,
     * zeroed at the start, written here and by `learn`. False: it makes no sense now and is not sent. */
    bool (*complete)(void *known, struct op *op);
    void (*learn)(void *known, const struct op *op); /* the answer, or that there was none in time */

    /* Of OP_WRITE: the command, in the arena. Whose it is has to be seen from it: made_by. The id is 0 for the digest of
     * --check-modules. */
    const ProtobufCMessage *(*command)(const struct op *op, struct arena *arena, uint8_t *number);
    uint64_t (*made_by)(uint8_t number, const ProtobufCMessage *command); /* the operation's id; 0: nobody's */
    /* Of OP_READ: the request, in the arena; *type says which query. */
    const ProtobufCMessage *(*request)(const struct op *op, struct arena *arena, const struct query_type **type);
    void (*seen)(struct op *op, const struct query_result *result); /* found and seen_index are set; the rest is here */
    /* Checks with the model that the read saw the state as of op->index. */
    void (*check_read)(struct sim *sim, const struct op *op);

    struct sim_expected (*apply)(struct sim *sim, const struct sim_applied *applied);
    void (*on_notice)(struct sim *sim, const struct sim_notice *notice);

    /* For things that its operations make, that clients renew and that end by themselves: their kind, and the name that
     * servers know them by. */
    const struct expiry_kind *expiry;
    void (*name_of)(uint64_t op, char id[40]);
    /* Nobody renews any more: has all that ends by itself ended, apart from what operations made? It may take so much
     * longer than these. */
    bool (*over)(struct sim *sim);
    uint64_t over_ms;
    /* All have agreed: the state of this server is the model's. */
    void (*check_end)(struct sim *sim, struct server *server);
    void (*end)(struct sim *sim); /* frees what the model has allocated */
};
extern const struct sim_module *const sim_modules[];         /* until NULL; at most SIM_MODULES_MAX */
unsigned sim_module_number(const struct sim_module *module); /* its place in the list */

void modules_begin(struct sim *sim);
void modules_end(struct sim *sim);
void *sim_model(struct sim *sim, const struct sim_module *module); /* model_size bytes, zeroed at the start */
/* Runs a query at what the server has applied, with the result valid during `seen`. For checks at the end. */
void sim_query(struct server *server, const struct query_type *type, const ProtobufCMessage *request,
               void (*seen)(void *data, const struct query_result *result), void *data);

/* -- what makes an operation's command and reads one (modules.c) ---------------------------------------------------- */

struct raft_data *op_bytes(const struct op *op);
uint64_t command_op(const struct raft_entry *entry); /* whose it is; 0: nobody's */
void op_look(struct server *server, struct op *op);  /* what a read sees at what the server has applied */
/* The same, held against the model: for judging the end. `op` need not be one of the run's. */
void op_judge(struct server *server, struct op *op);
/* Marks a command with its operation, where no field can carry it (label.c). The latter as made_by. */
void op_label(ProtobufCMessage *message, uint64_t op, struct arena *arena);
uint64_t op_labelled(uint8_t number, const ProtobufCMessage *message);
/* The watch keys of a blocking read: the one that its query watches, and then its further ones (query_type.own). */
#define OP_THINGS_MAX 4
size_t op_things(const struct op *op, struct arena *arena, struct watch_key things[OP_THINGS_MAX]);

/* -- things that end by themselves (expiring.c) ------------------------------------------------------------------------ */

/* Names of them: UUIDs that begin with `kind`, eight characters. */
void expiring_name(const char *kind, uint64_t op, char id[40]);
uint64_t expiring_maker(const char *kind, const char *id); /* the operation; 0: not one of these */
bool expiring_alive(struct sim *sim, uint64_t op);         /* what it made is there */
void expiring_began(struct op *op, uint64_t index);        /* its ttl_ms and renewed_us are set */
/* Tells the modules (SIM_ENDED). `cut_short`: not by its TTL; else it is checked that the TTL was over. */
void expiring_ended(struct sim *sim, struct op *op, uint64_t index, bool cut_short);
void check_renewed(struct sim *sim, const struct op *renewal); /* it is acknowledged */
/* A period as the fastest clock of a server counts it. */
uint64_t period_us(const struct sim *sim, uint64_t ms);
bool expiring_over(struct sim *sim);           /* nothing is left that ends by itself, of any module */
uint64_t expiring_longest_ms(struct sim *sim); /* that this can take */
/* At the end a server has `count` of the module's, all of them alive as the model has it: `known`. */
void expiring_judge(struct sim *sim, const struct sim_module *module, bool (*makes)(const struct op *op), size_t count,
                    bool known);

/* For `generate`: a client that makes such a thing, renews it in time for a while, or not, and makes use of it. */
enum keep_step { KEEP_NOTHING, KEEP_MAKE, KEEP_RENEW, KEEP_USE };
struct keep_plan {
    uint64_t ttl_ms, renewed_us, until_us, gone_us; /* renewed until; forgotten at */
};
/* make_permille: of turns without one; use_permille: of turns with one. */
enum keep_step keep_step(struct sim_turn *turn, struct keep_plan *plan, uint32_t make_permille, uint32_t use_permille);
/* The client's `known`: the one that it has, by what it was told; and its `complete` and `learn`. */
struct keep_known {
    uint64_t op; /* that made it; 0: none */
    bool made, lost;
};
bool keep_complete(void *known, struct op *op);
void keep_learn(void *known, const struct op *op);

#endif
