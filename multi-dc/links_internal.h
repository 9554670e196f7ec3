/* Inside multi-dc/links_run.h: links_run.c (the records, the links, what rpc asks), links_learn.c (what becomes known). */
#ifndef COORD_MULTI_DC_LINKS_INTERNAL_H
#define COORD_MULTI_DC_LINKS_INTERNAL_H

#include "base/list.h"
#include "multi-dc/follower_run.h"
#include "multi-dc/keys_run.h"
#include "multi-dc/links.h"
#include "multi-dc/links_run.h"
#include "multi-dc/returning.h"
#include "rpc/api/loop_fetch.h"

/* One question under way to a region, or to the own state. */
struct links_question {
    struct links *links;
    struct link_to *to;       /* NULL: the own state */
    struct loop_fetch *fetch; /* NULL: nothing is under way */
};

struct link_to {
    struct list item; /* links->all */
    struct links *links;
    char name[REGION_NAME_MAX + 1];
    struct rpc *rpc;
    uint64_t cluster_id; /* the record's */
    bool wanted;         /* the region has a record, and is not removed */
    struct links_question ask, servers;
    struct follower_run *catalog; /* NULL: the region was removed */
    struct link_schedule schedule;
};

struct links {
    uv_loop_t *loop;
    struct links_config config;
    char *region, *node_name, *node_id, *address, *bind;
    uv_timer_t timer;
    uv_mutex_t lock; /* guards the table that other threads read: */
    struct {
        char name[REGION_NAME_MAX + 1];
        struct rpc *rpc;
    } table[REGIONS_MAX];
    size_t table_count;
    struct list all; /* struct link_to; links are freed only at the end */
    struct arena records_arena;
    const Pb__RegionsResult *records; /* as of the last look; NULL: before the first one */
    struct links_question follow, failovers;
    struct returning *returning;
    uint64_t records_index, follow_ms; /* follow_ms: not looked at again before */
    struct links_look look;            /* at services that are away */
    struct links_claim claims[LINKS_CLAIMS];
    struct links_told told[LINKS_TOLD];
    char forgotten[REGIONS_MAX][REGION_NAME_MAX + 1]; /* regions whose copies are surely gone, while this server
                                                       * leads */
    size_t forgotten_count;
    char forgetting[REGION_NAME_MAX + 1]; /* region whose copy is being forgotten; "": none */
    struct list joins;                    /* struct join_address, of the configuration */
    unsigned under_way;                   /* questions, proposals, joins */
    struct keys_run *keys;                /* NULL: it was stopped */
    unsigned running;                     /* links whose rpc is not stopped */
    bool stopping, closing;
    void (*closed)(void *data);
    void *closed_data;
};

const Pb__Region *links_record(const struct links *links, const char *region); /* NULL: none */
bool links_leads(const struct links *links);
void links_over(struct links *links); /* counts one thing less under way */

/* The outcome of a proposal; `text` has the reason of a refusal. */
typedef void (*links_learned)(void *data, int error, bool yes, const char *text);

/* -- links_learn.c ------------------------------------------------------------------------------------------------ */
void links_learn_start(struct links *links);
void links_learn_tick(struct links *links, uint64_t now_ms);
void links_learn_free(struct links *links);
/* On the leader: services come home. */
void links_bring_home(struct links *links, uint64_t now_ms);
/* Proposes the command if it would change the record. `done` may be NULL. */
void links_learn(struct links *links, const Pb__RegionLearnCommand *command, links_learned done, void *data);
void links_learn_hello(struct links *links, const Pb__PeerHello *hello);
/* On the leader: a region's answers about its neighbours and its servers, and that it is another cluster now. */
void links_learn_neighbours(struct links *links, const Pb__RegionsResult *known);
void links_learn_servers(struct link_to *to, const Pb__MembersResult *members);
void links_learn_identity(struct link_to *to);
/* On the leader: the region's distance, and whether it can be reached. */
void links_learn_seen(struct link_to *to, bool reachable, uint32_t rtt_us);
/* On the leader: removes the copy of a removed region, a step each time, until there is none. links_remember:
 * the region is no longer removed. */
void links_forget_copy(struct links *links, const char *region);
void links_remember(struct links *links, const char *region);

#endif
