/* A region's state with copies of others, each service there with one instance: for tests of who answers for what. */
#ifndef COORD_TESTS_MULTI_DC_NEIGHBOURS_H
#define COORD_TESTS_MULTI_DC_NEIGHBOURS_H

#include "multi-dc/failover.h"
#include "tests/lib/fixture.h"

#define TEXT(text) ((char *)(uintptr_t)(text))

#define NEIGHBOURS_MOST 8
struct neighbours {
    struct fixture f;
    struct arena arena;
    struct neighbour {
        char name[16];
        uint64_t index; /* that the copy is at */
    } regions[NEIGHBOURS_MOST];
};
void neighbours_open(struct neighbours *world);
void neighbours_close(struct neighbours *world);

/* The region becomes known, and its copy has the instance NODE of the service; `tag` NULL: without one. Names of nodes are
 * those of regions, or of instances here. */
void neighbour_has(struct neighbours *world, const char *region, const char *service, Pb__Status status,
                   const char *tag);
void neighbour_loses(struct neighbours *world, const char *region, const char *service);
/* The same as neighbour_has, as a large change: staged, committed, tidied. */
void neighbour_turns(struct neighbours *world, const char *region, const char *service, Pb__Status status);
/* It is removed, and its copy is forgotten. It may come back. */
void neighbour_removed(struct neighbours *world, const char *region);
struct outcome neighbour_seen(struct neighbours *world, const char *region, uint64_t cluster_id, uint32_t rtt_us,
                              bool reachable);
#define NEIGHBOUR_CLUSTER 7 /* the cluster id of all of them */

/* An instance here, with one check. */
struct outcome here(struct neighbours *world, const char *node, const char *service, Pb__Status status);
/* Checks of a node: of all instances on it. */
void here_node(struct neighbours *world, const char *node, Pb__Status status);
/* Several instances in one entry, one after the other. */
struct turn_here {
    const char *node, *service;
    Pb__Status status;
};
void here_at_once(struct neighbours *world, size_t count, const struct turn_here *turns);
void here_no_more(struct neighbours *world, const char *node, const char *service);

#endif
