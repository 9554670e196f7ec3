#include <criterion/criterion.h>

#include "consensus/disk_health.h"

#define MIB (1u << 20)

static bool ask(struct disk_health *health, uint64_t now_ms, uint64_t bytes, uint64_t free_bytes) {
    uint64_t wanted = bytes;
    if (!disk_health_may_ask(health, now_ms, &wanted)) return false;
    bool room = wanted <= free_bytes;
    disk_health_room(health, now_ms, bytes, room);
    return room;
}

Test(disk_health, a_disk_that_was_full_is_so_until_there_is_clearly_more_room) {
    struct disk_health health = {.room_again = MIB};
    cr_assert(ask(&health, 1000, 1000, 2000));
    cr_assert(!ask(&health, 1001, 3000, 2000));
    cr_assert(health.full);
    cr_assert(!ask(&health, 1001 + ROOM_LOOK_MS, 1000, 2000), "what still fits is refused too");
    cr_assert(!ask(&health, 1001 + 2 * ROOM_LOOK_MS, 0, MIB - 1), "also for nobody who asks");
    cr_assert(!ask(&health, 1002 + 2 * ROOM_LOOK_MS, 0, UINT64_MAX), "it is asked now and then only");
    cr_assert(ask(&health, 1001 + 3 * ROOM_LOOK_MS, 0, MIB));
    cr_assert(!health.full);
}

Test(disk_health, what_was_refused_ends_it_at_twice_its_size_and_at_four_times_the_usual) {
    struct disk_health health = {.room_again = MIB};
    cr_assert(!ask(&health, 1000, MIB, MIB / 2));
    cr_assert(!ask(&health, 2000, 0, 2 * MIB - 1));
    cr_assert(ask(&health, 3000, 0, 2 * MIB));
    cr_assert(!ask(&health, 4000, 100 * MIB, 5 * MIB));
    cr_assert(ask(&health, 5000, 0, 4 * MIB), "one unusually large append does not count for long");
}

Test(disk_health, a_slow_or_full_disk_is_degraded_for_a_while_after_it_was_seen_so) {
    struct disk_health health = {.room_again = MIB};
    cr_assert(!disk_health_judge(&health, 10000, 10000 - DISK_SLOW_MS + 1, 0) && !health.degraded);
    cr_assert(disk_health_judge(&health, 10000, 10000 - DISK_SLOW_MS, 0) && health.degraded, "it waits for the disk");
    cr_assert(!disk_health_judge(&health, 10000 + DISK_WELL_MS - 1, 0, 0));
    cr_assert(disk_health_judge(&health, 10000 + DISK_WELL_MS, 0, 0) && !health.degraded);
    cr_assert(disk_health_judge(&health, 20000, 0, 19000) && health.degraded, "a slow write has ended");
    cr_assert(disk_health_judge(&health, 19000 + DISK_WELL_MS, 0, 19000) && !health.degraded);
    cr_assert(!ask(&health, 30000, 2000, 1000));
    cr_assert(disk_health_judge(&health, 30000, 0, 0) && health.degraded, "full is degraded");
}
