#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "base/hash.h"
#include "health/check_state.h"

#define SECOND INT64_C(1000000000)
#define BOOT   "0a1b2c3d-0000-1111-2222-333344445555"
#define OTHER  "ffffffff-0000-1111-2222-333344445555"

static char nothing[] = "", a_service[] = "web";

static struct check_definition ttl(int64_t seconds) {
    return (struct check_definition){.check_id = nothing,
                                     .name = nothing,
                                     .notes = nothing,
                                     .service_id = a_service,
                                     .kind = CHECK_TTL,
                                     .ttl_ns = seconds * SECOND,
                                     .initial_status = PB__STATUS__CRITICAL};
}

/* An hour after the machine's start at noon, and so many seconds more. */
static struct check_moment at(int64_t seconds) {
    return (struct check_moment){(uint64_t)((seconds + 3600) * SECOND), (uint64_t)((seconds + 3600) * SECOND),
                                 (seconds + 1000000) * SECOND};
}

static struct buffer file;

static struct check_states *begin(const char *boot, struct check_moment now) {
    return check_states_new(buffer_slice(&file), boot, now);
}

/* Writes what there is, as the writer does. */
static void save(struct check_states *states, bool whole) {
    struct buffer bytes = {0};
    uint64_t place;
    if (whole) buffer_reset(&file);
    if (check_states_gather(states, whole, &bytes, &place)) {
        while (file.size < place + bytes.size) buffer_append_byte(&file, '\0');
        memcpy(file.data + place, bytes.data, bytes.size);
    }
    bool urgent;
    cr_assert(!check_states_dirty(states, &urgent) && !urgent);
    buffer_free(&bytes);
}

/* Reports `id` as passing at `when`. */
static size_t told(struct check_states *states, const char *id, const struct check_definition *definition,
                   struct check_moment when) {
    struct check check;
    size_t slot = CHECK_STATE_NONE;
    check_init(&check, definition, when.mono_ns, 0);
    check_set(&check, definition, PB__STATUS__PASSING, when.mono_ns);
    check_states_note(states, &slot, id, &check, definition, true, when);
    check_end(&check);
    return slot;
}

/* Seconds until the check that is taken up at `now` expires; -1: it is critical already; -2: nothing is known of it. */
static int64_t left(const char *boot, const char *id, const struct check_definition *definition,
                    struct check_moment now) {
    struct check_states *states = begin(boot, now);
    struct check check;
    uint64_t next;
    int64_t seconds = -2;
    size_t slot = check_states_claim(states, id);
    if (slot != CHECK_STATE_NONE) {
        check_init(&check, definition, now.mono_ns, 0);
        check_states_resume(states, slot, &check, definition, now);
        bool expires = check_step(&check, definition, now.mono_ns, &next) == CHECK_DO_EXPIRE;
        seconds = check.status == PB__STATUS__CRITICAL ? expires ? 0 : -1 : (int64_t)(next - now.mono_ns) / SECOND;
        cr_assert_eq(check_states_claim(states, id), CHECK_STATE_NONE, "once");
        check_end(&check);
    }
    check_states_free(states);
    return seconds;
}

Test(check_state, a_ttl_goes_on) {
    struct check_definition d = ttl(100);
    struct check_states *states = begin(BOOT, at(0));
    told(states, "a", &d, at(0));
    told(states, "b", &d, at(50));
    save(states, true);
    check_states_free(states);
    cr_expect_eq(left(BOOT, "a", &d, at(30)), 70);
    cr_expect_eq(left(BOOT, "b", &d, at(60)), 90);
    cr_expect_eq(left(BOOT, "a", &d, at(99)), 1);
    cr_expect_eq(left(BOOT, "a", &d, at(100)), 0);
    cr_expect_eq(left(BOOT, "a", &d, at(1000000)), 0);
    cr_expect_eq(left(BOOT, "a", &d, at(-1)), 0, "no clock of one start goes back");
    cr_expect_eq(left(BOOT, "c", &d, at(1)), -2);
    struct check_moment later = at(30);
    later.wall_ns += 100000 * SECOND;
    cr_expect_eq(left(BOOT, "a", &d, later), 70, "a wall clock that jumped says nothing");
    struct check_definition longer = ttl(200);
    cr_expect_eq(left(BOOT, "a", &longer, at(30)), 170);
    buffer_free(&file);
}

Test(check_state, another_start_of_the_machine_goes_by_the_wall_clock) {
    struct check_definition d = ttl(100);
    struct check_states *states = begin(BOOT, at(0));
    told(states, "a", &d, at(0));
    save(states, true);
    check_states_free(states);
    static const struct {
        int64_t up, wall, left;
    } rows[] = {
        {5, 30, 70},                            /* down for 25 s */
        {5, 99, 1},   {5, 100, 0}, {5, -30, 0}, /* the wall clock went back */
        {60, 30, 40},                           /* it was up for longer than that: the clock was set back since */
        {100, 1, 0},  {1, 0, 99},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct check_moment now = {(uint64_t)(rows[i].up * SECOND), (uint64_t)(rows[i].up * SECOND),
                                   at(rows[i].wall).wall_ns};
        cr_expect_eq(left(OTHER, "a", &d, now), rows[i].left, "row %zu: %lld", i, (long long)left(OTHER, "a", &d, now));
        cr_expect_eq(left("", "a", &d, now), rows[i].left, "no id is no start that is known");
    }
    /* Once read and written, it is of this start. */
    struct check_moment now = {(uint64_t)(5 * SECOND), (uint64_t)(5 * SECOND), at(30).wall_ns};
    states = begin(OTHER, now);
    cr_assert_neq(check_states_claim(states, "a"), CHECK_STATE_NONE);
    save(states, true);
    check_states_free(states);
    now.mono_ns += 10 * SECOND, now.boot_ns += 10 * SECOND, now.wall_ns -= 5000 * SECOND;
    cr_expect_eq(left(OTHER, "a", &d, now), 60);
    buffer_free(&file);
}

/* A flipped bit, a cut end, another file: what does not add up is not known. */
Test(check_state, damage) {
    struct check_definition d = ttl(100);
    struct check_states *states = begin(BOOT, at(0));
    told(states, "a", &d, at(0));
    told(states, "b", &d, at(0));
    save(states, true);
    check_states_free(states);
    for (size_t i = CHECK_STATE_SIZE; i < 2 * CHECK_STATE_SIZE; i++) {
        file.data[i] ^= 4;
        cr_expect_eq(left(BOOT, "a", &d, at(1)), -2, "byte %zu", i);
        cr_expect_eq(left(BOOT, "b", &d, at(1)), 99);
        file.data[i] ^= 4;
    }
    for (size_t i = 0; i < 21; i++) {
        file.data[i] ^= 4;
        cr_expect_eq(left(BOOT, "a", &d, at(1)), -2);
        file.data[i] ^= 4;
    }
    cr_expect_eq(left(BOOT, "a", &d, at(1)), 99);
    size_t size = file.size;
    for (file.size = 0; file.size < size; file.size++) {
        cr_expect_eq(left(BOOT, "a", &d, at(1)), file.size < 2 * CHECK_STATE_SIZE ? -2 : 99);
        cr_expect_eq(left(BOOT, "b", &d, at(1)), -2);
    }
    buffer_free(&file);
}

/* In place, the changed slots alone; a check that goes makes room for another; who is not claimed goes. */
Test(check_state, slots) {
    struct check_definition d = ttl(100);
    struct check_states *states = begin(BOOT, at(0));
    size_t slots[3];
    char id[16];
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "c%d", i);
        slots[i] = told(states, id, &d, at(0));
    }
    save(states, true);
    cr_assert_eq(file.size, 4 * CHECK_STATE_SIZE);
    struct check check;
    struct buffer bytes = {0};
    uint64_t place;
    bool urgent;
    check_init(&check, &d, at(0).mono_ns, 0);
    check_set(&check, &d, PB__STATUS__PASSING, at(5).mono_ns);
    check_states_note(states, &slots[1], "c1", &check, &d, true, at(5));
    cr_expect(check_states_dirty(states, &urgent) && !urgent, "the time alone may wait");
    check_states_note(states, &slots[1], "c1", &check, &d, false, at(6));
    cr_expect(check_states_gather(states, false, &bytes, &place));
    cr_expect(bytes.size == CHECK_STATE_SIZE && place == (slots[1] + 1) * CHECK_STATE_SIZE);
    check_states_note(states, &slots[1], "c1", &check, &d, false, at(7));
    cr_expect_not(check_states_dirty(states, &urgent), "nothing has changed");
    check_set(&check, &d, PB__STATUS__CRITICAL, at(8).mono_ns);
    check_states_note(states, &slots[1], "c1", &check, &d, true, at(8));
    cr_expect(check_states_dirty(states, &urgent) && urgent, "a status may not");
    size_t gone = slots[0];
    check_states_drop(states, &slots[0]);
    cr_expect_eq(slots[0], CHECK_STATE_NONE);
    save(states, false);
    cr_expect_eq(left(BOOT, "c0", &d, at(9)), -2);
    cr_expect_eq(left(BOOT, "c1", &d, at(9)), -1);
    cr_expect_eq(told(states, "new", &d, at(10)), gone);
    save(states, false);
    check_states_free(states);
    states = begin(BOOT, at(11));
    cr_assert_neq(check_states_claim(states, "new"), CHECK_STATE_NONE);
    size_t dropped = check_states_claim(states, "c1");
    check_states_drop(states, &dropped);
    check_states_settle(states);
    cr_expect_eq(check_states_claim(states, "c2"), CHECK_STATE_NONE, "too late");
    save(states, true);
    check_states_free(states);
    cr_expect_eq(left(BOOT, "new", &d, at(20)), 90);
    cr_expect(left(BOOT, "c1", &d, at(20)) == -2 && left(BOOT, "c2", &d, at(20)) == -2);
    check_end(&check);
    buffer_free(&bytes);
    buffer_free(&file);
}

/* Killed between the two writes of a check that came again: the newer counts. */
Test(check_state, two_of_one_check) {
    struct check_definition d = ttl(100);
    for (int newer = 0; newer < 2; newer++) {
        struct check_states *states = begin(BOOT, at(0));
        told(states, "a", &d, at(newer ? 0 : 40));
        told(states, "a", &d, at(newer ? 40 : 0));
        save(states, true);
        check_states_free(states);
        cr_expect_eq(left(BOOT, "a", &d, at(50)), 90);
        buffer_free(&file);
    }
}

/* Counts of a threshold go on; what one result tells again needs no slot. */
Test(check_state, thresholds) {
    struct check_definition d = ttl(0);
    d.kind = CHECK_HTTP;
    d.interval_ns = 10 * SECOND;
    struct check check;
    size_t slot = CHECK_STATE_NONE;
    struct check_states *states = begin(BOOT, at(0));
    check_init(&check, &d, at(0).mono_ns, 0);
    check_states_note(states, &slot, "a", &check, &d, false, at(0));
    cr_assert_eq(slot, CHECK_STATE_NONE);
    d.failures_before_critical = d.failures_before_warning = 3;
    d.initial_status = PB__STATUS__PASSING;
    check_init(&check, &d, at(0).mono_ns, 0);
    uint64_t next;
    for (int life = 0; life < 3; life++) {
        struct check_moment now = at(life);
        if (life) {
            states = begin(BOOT, now);
            slot = check_states_claim(states, "a");
            cr_assert_neq(slot, CHECK_STATE_NONE);
            check_init(&check, &d, now.mono_ns, 0);
            check_states_resume(states, slot, &check, &d, now);
        }
        cr_assert_eq(check_step(&check, &d, now.mono_ns, &next), CHECK_DO_RUN);
        cr_expect_eq(check_result(&check, &d, PB__STATUS__CRITICAL, now.mono_ns), life == 2, "life %d", life);
        check_states_note(states, &slot, "a", &check, &d, false, now);
        save(states, true);
        check_states_free(states);
    }
    cr_expect_eq(check.status, PB__STATUS__CRITICAL);
    buffer_free(&file);
}

/* A check that was critical before stays critical, but is not removed until somebody had a chance to report. */
Test(check_state, time_to_removal) {
    struct check_definition d = ttl(10);
    d.deregister_after_ns = 60 * SECOND;
    struct check check;
    size_t slot = CHECK_STATE_NONE;
    uint64_t next;
    struct check_states *states = begin(BOOT, at(0));
    check_init(&check, &d, at(0).mono_ns, 0);
    check_states_note(states, &slot, "a", &check, &d, true, at(0));
    save(states, true);
    check_states_free(states);
    static const struct {
        const char *boot;
        int64_t now, gone;
    } rows[] = {{BOOT, 20, 60}, {BOOT, 55, 65}, {BOOT, 500, 510}, {OTHER, 20, 80}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct check_moment now = at(rows[i].now);
        states = begin(rows[i].boot, now);
        slot = check_states_claim(states, "a");
        check_init(&check, &d, now.mono_ns, 0);
        check_states_resume(states, slot, &check, &d, now);
        cr_expect_eq(check_step(&check, &d, now.mono_ns, &next), CHECK_DO_NOTHING);
        cr_expect_eq(next, at(rows[i].gone).mono_ns, "row %zu: %lld", i, (long long)(next / SECOND) - 3600);
        check_states_free(states);
    }
    buffer_free(&file);
}
