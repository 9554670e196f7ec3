/* Client agents at this server: their connections and requests. Commands and renewals are handled like this server's
 * own (rpc/forward/forwarding.h, onward), reads by rpc_fetch. Each agent is told the list of servers when it comes and
 * whenever that changes.
 *
 * Large answers are held and go out in small pieces, as the agent takes them; other frames go between two pieces.
 *
 * An agent that has not been heard of for AGENTS_QUIET_MS is gone (it sends something every second), and so is one that
 * does not take its answers for that long. To the cluster, an agent is alive while it holds its lease; this module has
 * no part in that. Loop thread only. */
#ifndef COORD_RPC_AGENTS_H
#define COORD_RPC_AGENTS_H

#include "rpc/api/rpc.h"
#include "rpc/wire/link.h"
#include "rpc/wire/peer.pb-c.h"

#define AGENTS_QUIET_MS 20000
/* bytes of a read's request; the largest of ours are a URL's parameters. A follower may send it on */
#define AGENTS_REQUEST_MAX (1u << 20)
#define AGENTS_FETCHES_MAX 50000        /* reads under way for one agent */
#define AGENTS_BACKLOG_MAX (128u << 20) /* bytes that one agent does not take, held answers aside */
#define AGENTS_FOLLOWS_MAX 4096         /* services whose hints one agent follows */
/* bytes of large answers for one agent at a time, unless it is a single one; CO_BUSY beyond */
#define AGENTS_HELD_MAX (256u << 20)

struct agents;
/* `folder`: for temporary files; copied. `held_max`: 0, or instead of AGENTS_HELD_MAX. */
struct agents *agents_new(struct rpc *rpc, const char *folder, size_t held_max);
/* The connection is this module's from now on; the agent's hello was accepted and answered. */
void agents_adopt(struct agents *agents, struct link *link, const Pb__PeerHello *hello);
/* Call it a few times a second with the present servers; agents are told changes. */
void agents_servers(struct agents *agents, const Pb__PeerServers *servers);
/* A few times a second: agents are told the hints that they follow. */
void agents_hints_tick(struct agents *agents, uint64_t now_ns);
/* Ends the connections that servers of this region have made to this server. */
void agents_region_end(struct agents *agents, const char *region);
/* Ends the connections that may not go on: certificates, or what the cluster says of nodes, have changed. */
void agents_judge(struct agents *agents, bool (*may_stay)(void *data, struct link *link, const Pb__PeerHello *hello),
                  void *data);
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
