/* Fetches that this server cannot answer itself, because its disk is full and it lacks entries up to the index that the
 * leader confirmed. It asks the leader, over the connection between servers (rpc/agents/agents_servers.c), whose answer
 * becomes that of the fetch.
 *
 *     fetch thread: leader_read_begin --> loop: waits for a leader --PEER_FETCH--> with it --PEER_FETCHED, in pieces--.
 *                                                    ^---it goes, or cannot answer-----'                           |
 *     fetch thread: done <-----------------------------------------------------------------------------------------'
 *
 * It tries for RPC_LEADER_WAIT_MS (reads that wait for a change: for the time of their wait, if that is longer), then
 * the fetch ends with CO_DISKFULL, or CO_NOLEADER when no leader is known. While the leader's answers to other fetches
 * are arriving, a fetch waits for its turn, at most LEADER_READ_TURN_MS from its beginning; then it ends with CO_BUSY.
 * A fetch may end earlier: the read under way here has its own memory, and the leader is told.
 *
 * Loop thread, except for the functions in fetch_service_internal.h. */
#ifndef COORD_RPC_LEADER_READ_H
#define COORD_RPC_LEADER_READ_H

#include "rpc/reads/fetch_service.h"

#define LEADER_READ_TURN_MS      60000      /* the wait for its turn, while many large answers are under way */
#define LEADER_READ_MOST         20000      /* under way; CO_BUSY beyond */
#define LEADER_READ_REQUEST_MOST (1u << 20) /* packed; a frame has room for it */
#define LEADER_READ_HELD_MOST    (1u << 30) /* of answers whose last piece has not come; CO_BUSY beyond */

struct leader_read_callbacks {
    void *data;
    uint64_t (*leader)(void *data, bool *here); /* its id; 0: none is known */
    bool (*tell)(void *data, uint64_t server, uint8_t type, const ProtobufCMessage *message); /* as peers_tell */
    void (*wake)(void *data); /* any thread: leader_read_turn, soon */
};
/* Before the first fetch. Without callbacks such fetches end with CO_DISKFULL. */
void leader_read_over(struct fetch_service *fetches, const struct leader_read_callbacks *callbacks);
void leader_read_turn(struct fetch_service *fetches);
void leader_read_tick(struct fetch_service *fetches); /* a few times a second */
/* PEER_FETCHED. False: it does not decode */
bool leader_read_answered(struct fetch_service *fetches, uint64_t from, struct slice payload);
void leader_read_down(struct fetch_service *fetches, uint64_t server);

#endif
