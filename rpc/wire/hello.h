/* Judges the hello of another process: the versions that both speak, or the reason to refuse it. Pure. */
#ifndef COORD_RPC_HELLO_H
#define COORD_RPC_HELLO_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/wire/peer.pb-c.h"

#define HELLO_PROTOCOL "coord-peer"
/* Versions of the protocol that this program speaks. A frame that comes with a later one is sent only to those that speak it
 * (hello_terms.protocol). */
#define HELLO_VERSION_LEAST 1
#define HELLO_VERSION_MOST  1
#define HELLO_WHY           224
#define HELLO_ADDRESS_MAX   127
#define HELLO_NODE_MAX      255

struct hello_self {
    const char *cluster;                  /* datacenter; NULL: any (joining a region) */
    uint64_t cluster_id;                  /* 0: none */
    unsigned version;                     /* of the cluster, as applied here; 0: belongs to none yet */
    unsigned version_least, version_most; /* cluster versions that this program supports */
};
struct hello_terms {
    unsigned protocol;                    /* the highest that both speak; 0: none */
    bool hears_refusal;                   /* PEER_REFUSED stays what it is in every version */
    unsigned version_least, version_most; /* cluster versions that the other one supports */
    unsigned version;                     /* of the cluster, as applied there; 0: belongs to none yet */
};

/* The highest version that both speak; 0: none. The hello has to be of this protocol. */
unsigned hello_protocol(const Pb__PeerHello *hello);

/* Fills in the hello of a client agent; the caller sets `address` and `node`. */
void hello_of_agent(Pb__PeerHello *hello, const char *cluster, uint64_t cluster_id, uint64_t id);

/* Fills in the hello of a server to a server of another region, where it acts as a client agent. `cluster` NULL: any
 * region. */
struct hello_region {
    const char *region; /* of the server that says hello */
    uint64_t region_cluster_id;
    const char *cluster;
    uint64_t cluster_id; /* 0: any cluster */
};
void hello_of_region(Pb__PeerHello *hello, const struct hello_region *link, uint64_t id);

enum hello_verdict {
    HELLO_OK,
    HELLO_NOT_OURS,
    HELLO_NO_PROTOCOL,
    HELLO_OTHER_NAME,
    HELLO_OTHER_CLUSTER,
    HELLO_SAME_REGION,   /* a link from within this very cluster */
    HELLO_CLAIMS_REGION, /* a link from another cluster that claims this region's name */
    HELLO_TOO_OLD,
    HELLO_TOO_NEW,
    HELLO_WE_DO_NOT_FIT,
    HELLO_NO_ID,
    HELLO_TOO_LONG,
};
/* Always fills in `terms` (a refusal is only told to a process that understands it); `why` gets the reason in a line,
 * about the other server ("it ..."). */
enum hello_verdict hello_judge(const struct hello_self *self, const Pb__PeerHello *hello, struct hello_terms *terms,
                               char why[HELLO_WHY]);

#endif
