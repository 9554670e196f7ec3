/* Shared by history*.c. */
#ifndef COORD_REGISTRY_HISTORY_INTERNAL_H
#define COORD_REGISTRY_HISTORY_INTERNAL_H

#include "registry/history.h"
#include "registry/tables.h"

#define HISTORY_KEY_BYTES  9
#define HISTORY_HEAD_BYTES 41 /* of a row's value, before its notes */

struct slice history_key(char room[HISTORY_KEY_BYTES], uint8_t topic, uint64_t index);
/* The topic's counts up to a row, as in its record; `before`: the total without the row. */
struct history_count {
    uint64_t number, before, total;
};
/* `count` may be NULL. False: it does not decode. */
bool history_row_read(const struct store_cursor *cursor, struct history_row *row, struct history_count *count);
/* NULL: there is none (the cluster is not founded), or the transaction has failed. */
Pb__HistoryState *history_state(struct store_txn *txn, struct arena *arena);
/* The topic's last break; index 0: there was none. */
static inline struct history_place history_break(const Pb__HistoryState *state, unsigned topic) {
    if (topic - 1 >= state->n_breaks) return (struct history_place){0};
    return (struct history_place){state->breaks[topic - 1], state->breaks_unix_ms[topic - 1]};
}
void history_state_put(struct store_txn *txn, const Pb__HistoryState *state, struct arena *arena);

#endif
