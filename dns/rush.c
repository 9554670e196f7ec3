#include "dns/rush.h"

bool rush_note(struct rush *rush, uint64_t now_ns, unsigned queries) {
    uint64_t passed_ns = now_ns - rush->begun_ns;
    rush->queries += queries;
    rush->batches++;
    if (passed_ns < RUSH_WINDOW_MS * (uint64_t)1000000) return false;
    uint64_t rate_hz = rush->queries * 1000000000 / passed_ns, batch = rush->queries * 100 / rush->batches;
    bool on = rush->on ? rate_hz >= RUSH_ENDS_HZ && batch >= RUSH_ENDS_BATCH
                       : rate_hz >= RUSH_BEGINS_HZ && batch >= RUSH_BEGINS_BATCH;
    bool changed = on != rush->on;
    *rush = (struct rush){.on = on, .begun_ns = now_ns};
    return changed;
}
