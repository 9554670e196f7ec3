/* Regions that follow each other and answer for each other. Each is one state machine, the program's own, as the leader of its
 * cluster applies it; the leader's followers of the other regions' catalogs and keys (multi-dc/follower.h) and its look after services that are
 * away (multi-dc/returning.h) are the program's own too, on virtual time. Links between regions are cut, answers are late or lost,
 * commands come twice or late, leaders change, large changes are staged. After each entry the region is asked who answers for a
 * service, and that is judged by a model of its own (regions_judge.c), which knows what is healthy where from the records that
 * readers see:
 *
 *     a region that has healthy instances answers with them; but where it had some before, went, others answered when it had some
 *     again, and at each moment since there was somebody else to answer, it stays with the others until it was healthy for the
 *     time of return on end, and two looks of a leader
 *     one without healthy instances is answered from who has some by its order, else from anybody who has
 *
 * Keys that are copied are judged by what the other region had at each of its entries (regions_keys.c). */
#ifndef COORD_TESTS_SIM_REGIONS_H
#define COORD_TESTS_SIM_REGIONS_H

#include "multi-dc/failover.h"
#include "multi-dc/follower.h"
#include "multi-dc/returning.h"
#include "tests/sim/sim.h"

enum { REGIONS_HERE = 3, REGION_NODES = 2, REGION_LATE = 16, REGION_TARGETS = 2 };
enum { SERVICE_WEB, SERVICE_READER, REGION_SERVICES }; /* whose answer is judged; what orders name besides */
extern const char *const region_names[REGIONS_HERE], *const region_services[REGION_SERVICES];

/* An order of a client: what FAILOVER_SET says. */
struct region_target {
    bool reader, blue; /* the other service; only instances with that tag */
    unsigned n_regions, regions[REGIONS_HERE];
};
struct region_order {
    unsigned count;
    struct region_target targets[REGION_TARGETS];
};

/* The view of a region's readers: bits of regions, its own among them. */
struct region_view {
    unsigned copies;                      /* that are seen */
    unsigned there[REGION_SERVICES];      /* the service, healthy or not */
    unsigned healthy[REGION_SERVICES][2]; /* any; with the tag */
    unsigned rests[REGION_SERVICES];      /* as the service's record says */
    bool noted[REGION_SERVICES];          /* it is away, says the record */
};

struct region_call {
    bool under_way;
    enum follower_wish wish;
    const struct query_type *query;
    uint64_t ticket, index, due_us, asked_us, until_us;
    uint8_t command;
    struct buffer sent;
};
struct region_follower {       /* a leader's */
    struct follower *follower; /* NULL: there is none */
    struct region_call call;
};
struct region_link { /* to another region */
    struct region_follower catalog, keys;
    uint64_t cut_us; /* until then */
    bool removed;    /* by an operator */
};
struct region_late { /* a command that is on its way */
    uint64_t due_us;
    struct buffer bytes;
};
struct region_moment { /* of the keys that a region has below its own prefix, from this entry and this time on */
    uint64_t index, us, hash;
    size_t count;
};
struct regions;
struct region {
    struct regions *all;
    unsigned number;
    struct replica replica;
    uint64_t term;
    bool leads;
    struct region_link links[REGIONS_HERE];
    struct returning *returning;
    uint64_t look_us;
    struct region_late late[REGION_LATE];
    struct region_order order;
    /* The model. */
    struct region_view view; /* after the last entry */
    bool away[REGION_SERVICES],
        waits[REGION_SERVICES];        /* it went; it is healthy again, and stays with others for now */
    uint64_t back_us[REGION_SERVICES]; /* since when it is healthy */
    uint64_t led_us;                   /* since when one leader leads, and nothing of it got lost */
    struct region_moment *moments;
    size_t n_moments;
    uint64_t keys_at[REGIONS_HERE]; /* positions of copied keys */
};
struct regions {
    struct sim *sim;
    unsigned count;
    uint64_t return_ms;
    bool calm; /* nothing is lost, late or cut */
    struct region regions[REGIONS_HERE];
    bool keys; /* some are copied, and judged */
    uint64_t answers, from_others, while_healthy, homes, ends, commits, listings, whole;
};

struct regions *regions_begin(struct sim *sim, unsigned count, uint64_t return_ms);
void regions_end(struct regions *all);
void regions_run(struct regions *all, uint64_t us); /* what is under way goes on */
/* An entry of the region, judged. *index may be NULL. */
int region_apply(struct region *region, uint8_t number, const ProtobufCMessage *message, bool *yes, uint64_t *index);
void region_leader_changes(struct region *region); /* another one leads, some time later */
void region_order(struct region *region, const struct region_order *order);
void region_forgets(struct region *region, unsigned other); /* removed by an operator; */
void region_learns(struct region *region, unsigned other);  /* ... and joined again */

/* Where the region's own keys lie, and copies of them: "us/". */
struct slice region_prefix(unsigned number);
void region_copies_keys(struct region *region, unsigned other);         /* from now on: an operator's; */
void region_copies_keys_no_more(struct region *region, unsigned other); /* ... and they go */

/* regions_keys.c: keys that are copied are those of the other region at one index */
void region_judge_keys(struct region *region);
/* They are the other region's as they are now. */
bool region_keys_are_current(struct region *region, unsigned other);
void region_rule(struct region *region, unsigned other, Pb__KeysRule *rule); /* numbers of it; there is one */

/* regions_judge.c */
void region_look(struct region *region, struct region_view *view);
/* An entry. */
struct region_entry {
    const char *home; /* the service that it brought home after its time; NULL: none */
    bool ordered;     /* it gave another order than the one before */
    struct region_order before;
};
void region_judge(struct region *region, const struct region_entry *entry);
void region_judge_time(struct region *region); /* any time: who is to be at home by now */

#endif
