/* Touches, events and updates of a command that is being applied, and savepoints within an entry. */
#include "registry/machine_point.h"

#include "base/check.h"
#include "registry/history.h"

void expiry_began_in(struct machine_tx *tx, const struct expiry_kind *kind, struct slice name, uint64_t index,
                     int64_t period_ns) {
    expiry_updates_put(machine_updates(tx->machine), kind, false, name, index, period_ns);
}

void expiry_ended_in(struct machine_tx *tx, const struct expiry_kind *kind, struct slice name, uint64_t index) {
    expiry_updates_put(machine_updates(tx->machine), kind, true, name, index, 0);
}

struct machine_point machine_point_set(struct machine_tx *tx) {
    CHECK(tx->store);
    store_savepoint(tx->store);
    struct machine_point point = {.touched = watch_touched_mark(&tx->touched),
                                  .updates = expiry_updates_mark(machine_updates(tx->machine)),
                                  .now_unix_ms = tx->now_unix_ms};
    history_touches_mark(tx->history, point.followed);
    return point;
}

void machine_point_keep(struct machine_tx *tx) { store_release(tx->store); }

void machine_point_back(struct machine_tx *tx, const struct machine_point *point) {
    store_rollback(tx->store);
    watch_touched_back(&tx->touched, point->touched);
    expiry_updates_back(machine_updates(tx->machine), point->updates);
    history_touches_back(tx->history, point->followed);
    tx->now_unix_ms = point->now_unix_ms;
}
