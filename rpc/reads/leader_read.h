/* Fetches that this server cannot answer itself: its disk is full, and what the leader confirmed is not here. The
 * leader is asked, over the connection between servers (rpc/agents/agents_servers.c), and its answer is the fetch's.
 *
 *     fetch thread: leader_read_begin --> loop: waits for a leader --PEER_FETCH--> with it --PEER_FETCHED, in pieces-->
 *     fetch thread: done
 *                                                    ^---it goes, or cannot answer---'
 *
 * So for RPC_LEADER_WAIT_MS (those that wait for a change: as long as they wait, if that is longer), then
 * CO_DISKFULL, or CO_NOLEADER where none is known; while the leader's answers to others are arriving, one waits for
 * its turn, LEADER_READ_TURN_MS from its beginning at most; it ends with CO_BUSY then. A fetch that ends before takes
 * nothing with it: what is under way here is its own, and the leader is told.
 *
 * Loop thread, but for what fetch_service_internal.h says. */
#ifndef COORD_RPC_LEADER_READ_H
#define COORD_RPC_LEADER_READ_H

#include "rpc/reads/fetch_service.h"

#define LEADER_READ_TURN_MS      60000      /* for its turn, where many large answers are under way */
#define LEADER_READ_MOST         20000      /* under way; CO_BUSY beyond */
#define LEADER_READ_REQUEST_MOST (1u << 20) /* packed; a frame has room for it */
#define LEADER_READ_HELD_MOST    (1u << 30) /* of answers whose last piece has not come; CO_BUSY beyond */

struct leader_read_callbacks {
    void *data;
    uint64_t (*leader)(void *data, bool *here); /* its id; 0: none is known */
    bool (*tell)(void *data, uint64_t server, uint8_t type, const ProtobufCMessage *message); /* as peers_tell */
    void (*wake)(void *data); /* any thread: leader_read_turn, soon */
};
/* Before the first fetch. Without callbacks CO_DISKFULL is the answer. */
void leader_read_over(struct fetch_service *fetches, const struct leader_read_callbacks *callbacks);
void leader_read_turn(struct fetch_service *fetches);
void leader_read_tick(struct fetch_service *fetches); /* a few times a second */
/* PEER_FETCHED. False: it does not decode */
bool leader_read_answered(struct fetch_service *fetches, uint64_t from, struct slice payload);
void leader_read_down(struct fetch_service *fetches, uint64_t server);

#endif
