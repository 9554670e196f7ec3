#include "dns/rush.h"

bool rush_note(struct rush *rush, uint64_t now_ns, unsigned queries) {
    uint64_t passed_ns = now_ns - rush->begun_ns;
    rush->queries += queries;
    if (passed_ns < RUSH_WINDOW_MS * (uint64_t)1000000) return false;
    uint64_t rate_hz = rush->queries * 1000000000 / passed_ns;
    bool on = rate_hz >= (rush->on ? RUSH_ENDS_HZ : RUSH_BEGINS_HZ);
    bool changed = on != rush->on;
    *rush = (struct rush){.on = on, .begun_ns = now_ns};
    return changed;
}
