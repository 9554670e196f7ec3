/* A server's links to other regions: one connection with one server of each (rpc/client/client.h), over which goes what
 * this region asks of it; how far away each is; and how regions come to know each other:
 *
 * - An address that an operator names (retry_join_wan, `coord join -wan`) is asked which region is there. It becomes a
 *   record of this region's state (multi-dc/region.h), from which every server makes its link.
 * - A server that is linked with learns of this region from the link's hello, and makes a record of it likewise: to join
 *   one side is enough.
 * - The leader asks each region which others it knows, and takes them in: to join any of them is enough.
 * - The leader keeps the servers of a record as the region's catalog names them.
 * - The leader has services come home that other regions answer for (multi-dc/failover.h).
 *
 * A region is one cluster. Another that claims its name is refused, logged, and shown (rpc_ask_regions), unless all
 * servers known of the region say that they belong to the new one. Links without a use cost a question each
 * COPY_AGE_HEARTBEAT_MS (multi-dc/copy_age.h). What happens to links never touches the own cluster: no election, no wait.
 *
 * When a region is asked what is decided in multi-dc/links.h. Loop thread only; what other threads ask of a region goes through rpc/api/rpc.h. */
#ifndef COORD_MULTI_DC_LINKS_RUN_H
#define COORD_MULTI_DC_LINKS_RUN_H

#include <uv.h>

#include "multi-dc/region.h"
#include "rpc/api/rpc.h"

struct links_config {
    struct rpc *own; /* a server's */
    const char *region, *node_name, *node_id;
    const char *address;         /* where other regions reach this server: "IP:port" */
    const char *bind;            /* IP to dial from; a wildcard: any */
    uint16_t port;               /* of servers whose address names none */
    const char *const *join;     /* NULL-terminated, or NULL */
    uint64_t join_interval_ms;   /* 0: 30 s */
    uint64_t hold_ms;            /* as rpc_client_config's */
    uint64_t failover_return_ms; /* multi-dc/failover.h */
    const struct module_entry *modules;
};
struct links;
void links_init(void); /* registers the metrics, also of a server that will have no links */
/* Before other threads use the rpc. */
struct links *links_start(uv_loop_t *loop, const struct links_config *config);
/* When no other thread uses the rpc any more, and before it stops. `closed` is called from the loop. NULL: at once. */
void links_stop(struct links *links, void (*closed)(void *data), void *data);

/* A server of another region, by an operator's wish: `done` on the loop, once. */
struct links_join {
    char address[128];                                /* in: "host:port" */
    bool wanted;                                      /* in: an operator names it now: also a region that was removed */
    void (*done)(struct links_join *join, int error); /* `fault` says why */
    struct fault fault;
    struct links *links; /* its own */
    struct rpc_join ask;
};
void links_join(struct links *links, struct links_join *join);

#endif
