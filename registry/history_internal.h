/* Shared by history*.c. */
#ifndef COORD_REGISTRY_HISTORY_INTERNAL_H
#define COORD_REGISTRY_HISTORY_INTERNAL_H

#include "registry/history.h"
#include "registry/tables.h"

#define HISTORY_KEY_BYTES  9
#define HISTORY_HEAD_BYTES 25 /* of a row's value, before its notes */

struct slice history_key(char room[HISTORY_KEY_BYTES], uint8_t topic, uint64_t index);
/* Where a row stands in its topic: as in its record; `before`: the total without it. */
struct history_place {
    uint64_t number, before, total;
};
/* `place` may be NULL. False: it does not decode. */
bool history_row_read(const struct store_cursor *cursor, struct history_row *row, struct history_place *place);
/* NULL: there is none (no history in this cluster version), or the transaction has failed. */
Pb__HistoryState *history_state(struct store_txn *txn, struct arena *arena);
/* The index of the topic's last break; 0: there was none. */
static inline uint64_t history_break(const Pb__HistoryState *state, unsigned topic) {
    return topic - 1 < state->n_breaks ? state->breaks[topic - 1] : 0;
}
void history_state_put(struct store_txn *txn, const Pb__HistoryState *state, struct arena *arena);

#endif
