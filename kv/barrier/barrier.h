/* Barriers: sessions that wait for each other. A module of the state machine.
 *
 * A barrier has rounds. A round gathers sessions until as many as its `parties` have entered; then it is released: all
 * of them go on, and the next session to enter begins the next round. A round of a double barrier is over only when all
 * who entered it have left again (or their sessions have ended): then those who wait in `leave` go on. A session at a
 * barrier:
 *
 *                  enter             the last party enters                  enter: the next round
 *     outside ------------> waiting -----------------------> released -----------------------------> waiting
 *        ^                     |                                |                       (single barriers)
 *        |   leave, its end    |           leave, its end       |
 *        '---------------------+--------------------------------'
 *
 *                  enter             the last party enters, and nobody         leave         the last one leaves
 *     outside ------------> waiting ---------------------------------> inside -------> left --------------------> over
 *        ^                     |      of the round before is inside       |             |        enter: the       |
 *        |   leave, its end    |                  its end                 |             |        next round       |
 *        '---------------------+------------------------------------------'             '-----------> waiting <---'
 *
 * - A round is named by the log index of its first enter: so it grows, and no other round of any barrier has the same.
 * - Parties and kind (single or double) are those of the round's first session. A session that enters with other ones
 *   is refused, and the answer names both.
 * - A session enters a round once; when it enters again, it is told how the round stands.
 * - A session that enters when all parties have entered begins the next round. That round gathers while a double round
 *   is at work, and is released when the double round is over. When it has all its parties before that, one more
 *   session is refused, because nobody would know which round it means.
 * - A session that ends is taken out as if it had left. Before the release the others wait for another session in its
 *   place; after the release nobody waits for it. A client that stops waiting for its answer stays entered.
 * - A client that has lost the answer to `enter` and asks again may find its round released. Then its request looks
 *   like one that enters the next round. So a client may send `after`, the newest round from which it knows that it was
 *   released (0: none). If the session was released from a later round, that release is the answer; otherwise the
 *   session enters the next round. Without `after`, a session that was released enters the next round.
 * - For this promise, and for `leave`, a session stays bound to its last round of each barrier until it enters another,
 *   ends, or leaves (single barriers only). A session is bound to BARRIER_SESSION_MOST barriers at most, and the one
 *   that released it first is forgotten. A barrier's record is removed with the last session that is bound to it. */
#ifndef COORD_KV_BARRIER_H
#define COORD_KV_BARRIER_H

#include "base/text.h"
#include "kv/barrier/barrier.pb-c.h"
#include "registry/machine.h"

enum barrier_command { BARRIER_ENTER = 46, BARRIER_LEAVE = 47 };
enum barrier_space {
    SPACE_BARRIER = 42,       /* name: any change */
    SPACE_BARRIER_PLACE = 43, /* name, NUL, session: where that session stands */
};
#define BARRIER_NAME_MOST    256
#define BARRIER_PARTIES_MOST 10000
#define BARRIER_SESSION_MOST 256 /* barriers that one session is bound to */

/* Of a BarrierWaitRequest, and the name of its watch key. `room`: BARRIER_WHO_MOST bytes. */
#define BARRIER_WHO_MOST (BARRIER_NAME_MOST + 1 + UUID_TEXT_SIZE)
struct slice barrier_who(struct slice name, struct slice session, char *room);

extern const struct module barrier_module;
extern const struct query_type query_barrier;      /* BarrierRequest -> BarrierState; found=false */
extern const struct query_type query_barrier_wait; /* BarrierWaitRequest -> BarrierAnswer */
extern const struct query_type
    query_barrier_place;                       /* BarrierPlaceRequest -> BarrierSeat; found=false: the session has no
                                                * place there */
extern const struct query_type query_barriers; /* BarrierListRequest -> BarriersResult */

#endif
