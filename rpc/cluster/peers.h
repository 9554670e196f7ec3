/* The other servers of this cluster, and one connection with each. (Client agents use the same port: their connections
 * are given away, rpc/agents/agents.h.) Every server dials every address that it was told (-retry-join) or learned;
 * where both sides dialled, the connection of the lower id stays. A hello in both directions comes first
 * (rpc/wire/hello.h judges it): another cluster, no protocol version in common, a program that does not support the
 * cluster's version or our own id end the connection, with a clear log line on both sides, once a minute for each. A
 * server that learns its cluster's id says hello again. A side that is not heard of for some seconds is given up: TCP
 * alone would wait for minutes, and longer after a cut is mended. Loop thread only. */
#ifndef COORD_RPC_PEERS_H
#define COORD_RPC_PEERS_H

#include "rpc/wire/hello.h"
#include "rpc/wire/link.h"
#include "rpc/wire/peer.pb-c.h"
#include "rpc/wire/reach.h"
#include "rpc/wire/security.h"

#define PEERS_MAX 32

enum peer_frame {
    PEER_HELLO = 1,
    PEER_RAFT,
    PEER_WRITES,
    PEER_RESULTS,
    PEER_READ,
    PEER_READ_ANSWER,
    PEER_RENEW,
    PEER_RENEW_ANSWER,
    PEER_FOUND,
    PEER_FOUND_ANSWER,
    PEER_PING, /* empty: this side lives; for peers.c alone. Of a client agent: answered likewise. No call: any frame
                * that arrives is as good an answer */
    PEER_CLUSTER,
    PEER_CLUSTER_ANSWER,
    PEER_CHANGE,
    PEER_CHANGE_ANSWER,
    PEER_AUDIT,
    PEER_COPY_ASK,
    PEER_COPY_PIECE,
    /* client agents; the last three between servers too (rpc/reads/leader_read.h) */
    PEER_SERVERS,
    PEER_FETCH,
    PEER_FETCH_END,
    PEER_FETCHED,
    PEER_REFUSED = 32, /* a line with the reason why the connection ends; for peers.c alone */
    PEER_ECHO,
    PEER_ECHO_ANSWER, /* rpc/server/coordinates.h */
    PEER_COORDINATE,  /* a client agent's report */
    PEER_BACKUP,
    PEER_BACKUP_PIECE, /* client agents: rpc/backup/backup_transfer.h */
    PEER_ASK,
    PEER_ASK_ANSWER,
    PEER_ASK_FIND,
    PEER_ASK_FOUND, /* rpc/ask/asks.h; the last two between servers */
    PEER_HINTS,     /* lb/load_wire.h: of an agent, of a server to others, of a server to agents that follow */
    PEER_HINTS_FOLLOW, /* client agents: services, each its name with its size in front, after a byte: 1: it is followed from
                        * now on, 0: no more */
    PEER_KEYS,         /* lb/hot.h: of an agent, of a server to others */
    PEER_HOT,
    PEER_HOT_ANSWER, /* client agents */
    PEER_REGIONS = 48,
    PEER_REGIONS_ANSWER, /* rpc/api/rpc.h */
    PEER_TRUST,
    PEER_TRUST_ANSWER, /* client agents: rpc/api/trust_admin.h */
    PEER_ACL_KEY,
    PEER_ACL_KEY_ANSWER, /* servers: rpc/server/acl_keys.h */
    PEER_ACL,
    PEER_ACL_ANSWER, /* client agents: rpc/api/acl_admin.h */
};

#define PEER_BUILD_MAX 64
struct peer_info {
    uint64_t id;
    char address[128], node[256], build[PEER_BUILD_MAX];
    uint32_t expect;
    bool has_log, connected;
    uint64_t cluster_id; /* 0: none, or not known to it yet */
    struct hello_terms terms;
};

struct peers_config {
    const char *bind; /* IP to listen on and to dial from */
    uint16_t port;
    const char *address; /* the address that others are told */
    const char *cluster, *node, *build;
    uint64_t id;
    uint32_t expect;
    unsigned version_least, version_most; /* cluster versions that this program supports */
    const char *const *join;              /* "host" or "host:port", NULL-terminated; may be NULL */
    struct security *security;            /* outlives it; NULL: all is plain */
};
/* The members of this server's hello that change. */
struct peers_self {
    bool has_log;
    uint64_t cluster_id;      /* 0: none */
    unsigned version;         /* of the cluster; 0: belongs to none yet */
    uint64_t recovered_index; /* of its configuration; 0: none */
};
struct peers_callbacks {
    void *data;
    void (*frame)(void *data, uint64_t from, uint8_t type, struct slice payload);
    void (*up)(void *data, uint64_t id);
    void (*down)(void *data, uint64_t id);
    /* The server is connected by another link from now on; nothing is lost. Never called without `security`. */
    void (*moved)(void *data, uint64_t id);
    struct peers_self (*self)(void *data);
    /* Does this server stop? Then it says and takes no hello any more, and does not call `self`. NULL: never */
    bool (*ending)(void *data);
    /* The reason to refuse a server, or a link from another region, that fits otherwise (the callee owns the line);
     * NULL: it is accepted. NULL callback: all are. */
    const char *(*unwanted)(void *data, const Pb__PeerHello *hello);
    /* A server of another cluster that claims this region's name said hello, and is refused. May be NULL. */
    void (*claimed)(void *data, const Pb__PeerHello *hello);
    /* A client agent said hello, and was answered: the callee owns its connection from now on (link_adopt). NULL:
     * client agents are refused. */
    void (*agent)(void *data, struct link *link, const Pb__PeerHello *hello);
    /* Why the cluster refuses the node of this certificate (registry/trust.h); NULL: it does not. NULL callback: never. */
    const char *(*distrusts)(void *data, const struct tls_certificate *certificate);
    /* Somebody came for a certificate (rpc/wire/enrol.h), and this is the first frame: the callee owns the connection from
     * now on. NULL: nobody may. */
    void (*enrol)(void *data, struct link *link, uint8_t type, struct slice payload);
};

struct peers;
int peers_start(uv_loop_t *loop, const struct peers_config *config, const struct peers_callbacks *callbacks,
                struct peers **out, struct fault *fault);
void peers_stop(struct peers *peers, void (*closed)(void *data), void *data);

/* An address to keep a connection with (of the cluster's configuration). */
void peers_know(struct peers *peers, const char *address);
/* The connection with a server, or NULL. Valid until the loop turns. */
struct link *peers_link(struct peers *peers, uint64_t id);
/* A message for a server, sent at once. False: it is not connected (`peers` NULL: nobody is). */
bool peers_tell(struct peers *peers, uint64_t to, uint8_t type, const ProtobufCMessage *message);
/* The same for bytes; they are queued, for peers_flush. */
bool peers_queue(struct peers *peers, uint64_t to, uint8_t type, struct slice payload);
bool peers_connected(struct peers *peers, uint64_t id); /* NULL: nobody is */
/* May a connection with a certificate, or without one, go on? For links of which peers gave the connection away. `greeted`:
 * it was judged before, and is again. NULL: it may; else a line in `why`. */
const char *peers_judge_link(struct peers *peers, struct link *link, const Pb__PeerHello *hello, bool greeted,
                             char why[SECURITY_WHY]);
/* callbacks.self has changed: says hello again, and ends connections with servers that no longer fit. */
void peers_changed(struct peers *peers);
/* Sends all that was queued since the last call. */
void peers_flush(struct peers *peers);
size_t peers_list(const struct peers *peers, struct peer_info *infos, size_t room);
/* The addresses that are dialled, and the outcome of each. `connected`: a server that gives this address as its own, or
 * was met there, is connected now, whichever side dialled. */
struct peers_address {
    char name[128];
    bool connected;
    struct reach reach;
};
size_t peers_addresses(const struct peers *peers, struct peers_address *addresses, size_t room);

#endif
