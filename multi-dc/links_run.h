/* A server's links to other regions: one connection to a server of each (rpc/client/client.h), for everything that this
 * region asks of it. A link also measures the distance, and by links regions come to know each other:
 *
 * - An address that an operator names (retry_join_wan, `coord join -wan`) is asked which region is there. It becomes a
 *   record of this region's state (multi-dc/region.h), from which every server makes its link.
 * - The server at the other end learns of this region from the link's hello, and makes a record of it likewise. So it
 *   is enough to join one side.
 * - The leader asks each region which others it knows, and makes records of them. So it is enough to join any region.
 * - The leader updates the servers of a record from the region's catalog.
 * - The leader brings services home that other regions answer for (multi-dc/failover.h).
 *
 * A region is one cluster. Another that claims its name is refused, logged, and shown (rpc_ask_regions), unless all
 * servers known of the region say that they belong to the new one. An unused link costs one question each
 * COPY_AGE_HEARTBEAT_MS (multi-dc/copy_age.h).
 * Failures of links never affect the own cluster: no election, no wait.
 *
 * multi-dc/links.h decides when a region is asked. Loop thread only; other threads ask a region through rpc/api/rpc.h. */
#ifndef COORD_MULTI_DC_LINKS_RUN_H
#define COORD_MULTI_DC_LINKS_RUN_H

#include <uv.h>

#include "multi-dc/region.h"
#include "rpc/api/rpc.h"

struct links_config {
    struct rpc *own; /* a server's */
    const char *region, *node_name, *node_id;
    const char *address;         /* the address at which other regions reach this server: "IP:port" */
    const char *bind;            /* IP to dial from; a wildcard: any */
    uint16_t port;               /* port of servers whose address has none */
    const char *const *join;     /* NULL-terminated, or NULL */
    uint64_t join_interval_ms;   /* 0: 30 s */
    uint64_t hold_ms;            /* as rpc_client_config's */
    uint64_t failover_return_ms; /* multi-dc/failover.h */
    const struct module_entry *modules;
    struct security *security; /* outlives it; NULL: all is plain */
};
struct links;
void links_init(void); /* registers the metrics, also on a server without links */
/* To be called before other threads use the rpc. */
struct links *links_start(uv_loop_t *loop, const struct links_config *config);
/* To be called when no other thread uses the rpc any more, and before it stops. `closed` is called from the loop; for
 * NULL at once. */
void links_stop(struct links *links, void (*closed)(void *data), void *data);

/* Joins a server of another region, as an operator wishes. Calls `done` once, on the loop. */
struct links_join {
    char address[128];                                /* in: "host:port" */
    bool wanted;                                      /* in: an operator names it now, which also brings back a removed
                                                       * region */
    void (*done)(struct links_join *join, int error); /* `fault` has the reason */
    struct fault fault;
    struct links *links; /* its own copy */
    struct rpc_join ask;
};
void links_join(struct links *links, struct links_join *join);

#endif
