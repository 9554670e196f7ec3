/* Client agents at this server: their connections, and what they ask over them. Commands and renewals are taken as
 * this server's own would be (rpc/forward/forwarding.h, onward), reads by rpc_fetch. Each agent is told who the servers are,
 * when it comes and whenever that changes.
 *
 * Large answers are held and go out in small pieces, as the agent takes them; whatever else it is told goes between
 * two pieces.
 *
 * An agent that has not been heard of for AGENTS_QUIET_MS is gone (it says something every second); one that does
 * not take its answers for so long is let go. Nothing here says that an agent is alive to the cluster: that is its
 * lease. Loop thread only. */
#ifndef COORD_RPC_AGENTS_H
#define COORD_RPC_AGENTS_H

#include "rpc/api/rpc.h"
#include "rpc/wire/link.h"
#include "rpc/wire/peer.pb-c.h"

#define AGENTS_QUIET_MS 20000
/* of a read: bytes; the largest of ours are a URL's parameters. A follower may send it on */
#define AGENTS_REQUEST_MAX (1u << 20)
#define AGENTS_FETCHES_MAX 50000        /* under way for one agent */
#define AGENTS_BACKLOG_MAX (128u << 20) /* bytes that one agent does not take, held answers aside */
#define AGENTS_FOLLOWS_MAX 4096         /* services whose hints one agent follows */
/* of large answers for one agent at a time, unless it is a single one; CO_BUSY beyond */
#define AGENTS_HELD_MAX (256u << 20)

struct agents;
struct agents *agents_new(struct rpc *rpc);
/* The connection is this module's from now on; the agent's hello was accepted and answered. */
void agents_adopt(struct agents *agents, struct link *link, const Pb__PeerHello *hello);
/* A few times a second, with the servers as they are now; what is new is told. */
void agents_servers(struct agents *agents, const Pb__PeerServers *servers);
/* A few times a second: agents are told the hints that they follow. */
void agents_hints_tick(struct agents *agents, uint64_t now_ns);
size_t agents_count(const struct agents *agents);
/* After the node and the fetches have answered everything. `closed` is called from the loop. */
void agents_stop(struct agents *agents, void (*closed)(void *data), void *data);

/* -- inside rpc: agents_servers.c --------------------------------------------------------------------------------- */
/* PEER_FETCH, PEER_FETCH_END of another server, whose disk is full (rpc/reads/leader_read.h). False: it does not decode. */
bool agents_server_frame(struct agents *agents, uint64_t id, uint8_t type, struct slice payload);
void agents_server_down(struct agents *agents, uint64_t id);

/* A message for an agent, sent at once; nothing when its connection has ended. */
void agents_tell(struct agents *agents, uint64_t agent, uint8_t type, const ProtobufCMessage *message);

#endif
