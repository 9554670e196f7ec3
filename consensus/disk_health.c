#include "consensus/disk_health.h"

#include "base/check.h"

_Static_assert(ROOM_LOOK_MS < DISK_WELL_MS && DISK_SLOW_MS < DISK_WELL_MS, "it is seen again before it is called well");

bool disk_health_may_ask(struct disk_health *health, uint64_t now_ms, uint64_t *bytes) {
    if (!health->full) return true;
    if (now_ms - health->room_asked_ms < ROOM_LOOK_MS) return false;
    if (*bytes < health->room_wanted) *bytes = health->room_wanted;
    return true;
}

bool disk_health_room(struct disk_health *health, uint64_t now_ms, uint64_t bytes, bool room) {
    CHECK(health->room_again > 0);
    health->room_asked_ms = now_ms;
    if (health->full != room) return false;
    health->full = !room;
    /* one unusually large append must not keep the disk full for long */
    uint64_t wanted = 2 * bytes, most = 4 * health->room_again;
    health->room_wanted = wanted < health->room_again ? health->room_again : wanted > most ? most : wanted;
    return true;
}

bool disk_health_judge(struct disk_health *health, uint64_t now_ms, uint64_t begun_ms, uint64_t bad_ms) {
    bool waits = begun_ms && now_ms > begun_ms && now_ms - begun_ms >= DISK_SLOW_MS;
    if (waits || health->full) health->degraded_until_ms = now_ms + DISK_WELL_MS;
    else if (bad_ms && bad_ms + DISK_WELL_MS > health->degraded_until_ms)
        health->degraded_until_ms = bad_ms + DISK_WELL_MS;
    bool degraded = now_ms < health->degraded_until_ms;
    if (degraded == health->degraded) return false;
    health->degraded = degraded;
    return true;
}
