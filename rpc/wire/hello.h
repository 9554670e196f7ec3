/* What a server makes of another's hello: which versions they speak with each other, or why they have nothing to
 * say. Pure. */
#ifndef COORD_RPC_HELLO_H
#define COORD_RPC_HELLO_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/wire/peer.pb-c.h"

#define HELLO_PROTOCOL      "coord-peer"
#define HELLO_VERSION_LEAST 1
#define HELLO_VERSION_AGENT 3 /* client agents speak this and up: older servers would take them for servers */
/* 2: hellos carry cluster ids and versions and come again; PEER_REFUSED 3: client agents; PEER_ECHO and its answer
 * 4: backups through client agents 5: a server whose disk is full asks the leader for reads
 * 6: PEER_ASK 7: hints of load, and counts of keys */
#define HELLO_VERSION_BACKUP 4
#define HELLO_VERSION_ASK    6
#define HELLO_VERSION_HINTS  7
#define HELLO_VERSION_MOST   7
#define HELLO_WHY            224
#define HELLO_ADDRESS_MAX    127
#define HELLO_NODE_MAX       255

struct hello_self {
    const char *cluster;                  /* datacenter */
    uint64_t cluster_id;                  /* 0: none */
    unsigned version;                     /* of the cluster, as applied here; 0: belongs to none yet */
    unsigned version_least, version_most; /* cluster versions that this program supports */
};
struct hello_terms {
    unsigned protocol;                    /* the highest that both speak; 0: none */
    bool hears_refusal;                   /* PEER_REFUSED stays what it is in every version after 1 */
    unsigned version_least, version_most; /* cluster versions that the other one supports */
    unsigned version;                     /* of the cluster, as applied there; 0: belongs to none yet */
};

/* The highest version that both speak; 0: none. Of a hello of this protocol. */
unsigned hello_protocol(const Pb__PeerHello *hello);

/* What a client agent says; `address` and `node` are the caller's to set. */
void hello_of_agent(Pb__PeerHello *hello, const char *cluster, uint64_t cluster_id, uint64_t id);

enum hello_verdict {
    HELLO_OK,
    HELLO_NOT_OURS,
    HELLO_NO_PROTOCOL,
    HELLO_OTHER_NAME,
    HELLO_OTHER_CLUSTER,
    HELLO_TOO_OLD,
    HELLO_TOO_NEW,
    HELLO_WE_DO_NOT_FIT,
    HELLO_NO_ID,
    HELLO_TOO_LONG,
};
/* `terms` are filled in in any case (a refusal is told only to those who understand it); `why` says the reason in a
 * line, about the other server ("it ..."). */
enum hello_verdict hello_judge(const struct hello_self *self, const Pb__PeerHello *hello, struct hello_terms *terms,
                               char why[HELLO_WHY]);

#endif
