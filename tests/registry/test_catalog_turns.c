/* The turns of services that modules hear of: random commands, compared with the catalog before and after each. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/message.h"
#include "registry/catalog_turns.h"
#include "tests/lib/random_catalog.h"

enum { SERVICES = 16 };
struct turned {
    char service[32];
    bool lost, gained;
};
struct turneds {
    struct turned items[SERVICES];
    size_t count;
};

static struct fixture f;
static struct turneds told;
static bool wanted;

static struct turned *turned_of(struct turneds *turneds, const char *service, size_t size) {
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)size, service);
    for (char *at = name; *at; at++) *at = (char)tolower((unsigned char)*at);
    for (size_t i = 0; i < turneds->count; i++)
        if (strcmp(turneds->items[i].service, name) == 0) return &turneds->items[i];
    cr_assert(turneds->count < SERVICES);
    struct turned *turned = &turneds->items[turneds->count++];
    *turned = (struct turned){.lost = false};
    memcpy(turned->service, name, sizeof name);
    return turned;
}

static void on_turn(struct machine_tx *tx, const struct module_turn *turn) {
    (void)tx;
    size_t before = told.count;
    struct turned *turned = turned_of(&told, turn->service.data, turn->service.size);
    cr_assert_eq(told.count, before + 1, "%s is told twice", turned->service);
    turned->lost = turn->lost, turned->gained = turn->gained;
}
static bool wants_turns(const struct machine_tx *tx) {
    (void)tx;
    return wanted;
}
static const struct module listener = {.name = "listener", .on_turn = on_turn, .wants_turns = wants_turns};

static void setup(void) {
    wanted = true;
    told.count = 0;
    fixture_open_with(&f, &listener);
    fixture_found(&f);
}
static void teardown(void) { fixture_close(&f); }

/* -- what the catalog shows --------------------------------------------------------------------------------------- */
static bool is_healthy(const struct picture_row *row, struct arena *arena) {
    const Pb__ServiceEntry *entry =
        row ? message_unpack(arena, &pb__service_entry__descriptor, buffer_slice(&row->entry)) : NULL;
    return entry && catalog_entry_status(entry) <= PB__STATUS__WARNING;
}

static const struct picture_row *row_of(const struct catalog_picture *picture, const char *key) {
    for (size_t i = 0; i < picture->count; i++)
        if (strcmp(picture->rows[i].key, key) == 0) return &picture->rows[i];
    return NULL;
}

/* Those of `one` that are healthy, and are not in `other`. */
static void compare(const struct catalog_picture *one, const struct catalog_picture *other, bool lost,
                    struct turneds *turneds) {
    struct arena arena = {0};
    for (size_t i = 0; i < one->count; i++) {
        const struct picture_row *row = &one->rows[i];
        if (!is_healthy(row, &arena) || is_healthy(row_of(other, row->key), &arena)) continue;
        struct turned *turned = turned_of(turneds, row->key, strcspn(row->key, "/"));
        turned->lost |= lost, turned->gained |= !lost;
    }
    arena_free(&arena);
}

static void expect_equal(struct turneds *expected, unsigned step) {
    cr_assert_eq(told.count, expected->count, "step %u: %zu services are told, %zu turned", step, told.count,
                 expected->count);
    for (size_t i = 0; i < told.count; i++) {
        const struct turned *turned = &told.items[i], *of = turned_of(expected, turned->service, 32);
        cr_assert(turned->lost == of->lost && turned->gained == of->gained, "step %u: %s: lost %d, gained %d", step,
                  turned->service, turned->lost, turned->gained);
    }
}

static void commands_at_random(uint64_t seed, bool any_case, unsigned steps) {
    struct rng rng;
    struct catalog_picture before = {0}, after;
    unsigned turns = 0;
    rng_seed(&rng, seed);
    for (unsigned step = 0; step < steps; step++) {
        struct turneds expected = {.count = 0};
        told.count = 0;
        random_catalog_change(&f, &rng, any_case);
        after = (struct catalog_picture){0};
        picture_of(&f, &after);
        compare(&before, &after, true, &expected), compare(&after, &before, false, &expected);
        expect_equal(&expected, step);
        turns += told.count > 0;
        picture_free(&before);
        before = after;
    }
    picture_free(&before);
    cr_expect(turns > steps / 20, "%u of %u turned something", turns, steps);
}

Test(catalog_turns, are_what_the_catalog_shows_before_and_after, .init = setup, .fini = teardown) {
    commands_at_random(1, false, 1500);
}
Test(catalog_turns, in_any_case, .init = setup, .fini = teardown) { commands_at_random(2, true, 1500); }

Test(catalog_turns, are_not_looked_for_while_nobody_wants_them, .init = setup, .fini = teardown) {
    struct rng rng;
    wanted = false;
    rng_seed(&rng, 3);
    for (unsigned step = 0; step < 100; step++) random_catalog_change(&f, &rng, false);
    cr_expect_eq(told.count, 0);
}
