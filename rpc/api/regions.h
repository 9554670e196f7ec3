/* The functions that a server's links to other regions (multi-dc/links_run.h) provide to its rpc. */
#ifndef COORD_RPC_API_REGIONS_H
#define COORD_RPC_API_REGIONS_H

#include "rpc/api/rpc.h"

struct rpc_region_hooks {
    void *data;
    /* Any thread. The link to a region: a client's rpc (rpc/client/client.h) on the same loop. NULL: no such region is
     * known. It stays until the hooks are taken away. */
    struct rpc *(*find)(void *data, const char *region);
    /* Loop thread. A server of another region says hello: returns a line with the reason to refuse it, or NULL. */
    const char *(*unwanted)(void *data, const Pb__PeerHello *hello);
    /* Loop thread. A server of another cluster was refused, because it claims this region's name. */
    void (*claimed)(void *data, const Pb__PeerHello *hello);
    /* Loop thread. A server of another region said hello, and was answered. */
    void (*came)(void *data, const Pb__PeerHello *hello);
    /* Loop thread. Fills in the answer of rpc_ask_regions, in the arena. */
    void (*seen)(void *data, struct arena *arena, Pb__PeerRegionsAnswer *answer);
};
/* Servers only; loop thread. Call it before other threads use the rpc, and with NULL when they no longer do. The hooks
 * are copied. */
void rpc_set_regions(struct rpc *rpc, const struct rpc_region_hooks *hooks);
/* Servers; loop thread. Ends the connections that servers of this region have made to this one; these servers are
 * judged anew when they come again. */
void rpc_region_end(struct rpc *rpc, const char *region);

#endif
