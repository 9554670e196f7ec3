/* Weighted rendezvous hashing: shares, minimal movement, bounded load. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/rendezvous.h"

enum { MEMBERS = 60, KEYS = 20000 };

struct world {
    char names[MEMBERS][16];
    struct rendezvous_member members[MEMBERS];
};

static void fill(struct world *world, bool weighted) {
    for (size_t i = 0; i < MEMBERS; i++) {
        snprintf(world->names[i], sizeof world->names[i], "web-%zu", i);
        world->members[i] = (struct rendezvous_member){slice_text(world->names[i]), weighted ? 1 + (double)(i % 4) : 1};
    }
}

static struct slice key_of(size_t number, char room[32]) {
    return slice_make(room, (size_t)snprintf(room, 32, "user/%zu", number));
}

static size_t owners_of(const struct rendezvous *set, size_t key, size_t most, const double *kept, size_t *owners) {
    char room[32];
    return rendezvous_owners(set, &(struct rendezvous_ask){.key = key_of(key, room), .most = most, .kept = kept},
                             owners);
}

/* Each owns its part of the keys, within five standard deviations. */
static void expect_shares(const struct world *world, const char *what) {
    struct rendezvous *set = rendezvous_new(world->members, MEMBERS);
    size_t counts[MEMBERS] = {0}, owner;
    double total = 0;
    for (size_t key = 0; key < KEYS; key++) {
        cr_assert_eq(owners_of(set, key, 1, NULL, &owner), 1);
        counts[owner]++;
    }
    for (size_t i = 0; i < MEMBERS; i++) total += world->members[i].weight;
    for (size_t i = 0; i < MEMBERS; i++) {
        double wanted = KEYS * world->members[i].weight / total;
        cr_expect(fabs((double)counts[i] - wanted) <= 5 * sqrt(wanted), "%s: member %zu has %zu instead of %.0f", what,
                  i, counts[i], wanted);
    }
    rendezvous_free(set);
}

Test(rendezvous, each_owns_its_share) {
    struct world world;
    fill(&world, false);
    expect_shares(&world, "equal");
    fill(&world, true);
    expect_shares(&world, "weighted");
    for (size_t i = 0; i < MEMBERS; i++) world.members[i].weight = 0.5 + (double)i / 10; /* all different */
    expect_shares(&world, "different");
}

Test(rendezvous, names_decide_not_their_order) {
    struct world world, other;
    fill(&world, true);
    other = world;
    for (size_t i = 0; i < MEMBERS; i++) other.members[i] = world.members[MEMBERS - 1 - i];
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS), *turned = rendezvous_new(other.members, MEMBERS);
    for (size_t key = 0; key < 1000; key++) {
        size_t a[3], b[3];
        cr_assert_eq(owners_of(set, key, 3, NULL, a), 3);
        cr_assert_eq(owners_of(turned, key, 3, NULL, b), 3);
        for (int i = 0; i < 3; i++) cr_expect_eq(a[i], MEMBERS - 1 - b[i]);
    }
    rendezvous_free(set), rendezvous_free(turned);
}

/* The names of keys have always had these owners: programs of different versions agree. */
Test(rendezvous, stays_as_it_is) {
    struct world world;
    fill(&world, true);
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS);
    size_t owners[3], expected[3] = {47, 6, 41};
    cr_assert_eq(owners_of(set, 4711, 3, NULL, owners), 3);
    for (int i = 0; i < 3; i++) cr_expect_eq(owners[i], expected[i], "owner %d is %zu", i, owners[i]);
    rendezvous_free(set);
}

/* Of the best k: without a member, its place is taken by the next, and everything else stays, in the same order. */
Test(rendezvous, a_leaving_member_moves_only_its_keys) {
    struct world world;
    fill(&world, true);
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS);
    for (size_t gone = 0; gone < MEMBERS; gone += 7) {
        struct world rest = world;
        rest.members[gone].weight = 0; /* owns nothing: the same as not being there, with the same indexes */
        struct rendezvous *without = rendezvous_new(rest.members, MEMBERS);
        for (size_t key = 0; key < 2000; key++) {
            size_t before[5], after[4], at = 0;
            cr_assert_eq(owners_of(set, key, 5, NULL, before), 5);
            cr_assert_eq(owners_of(without, key, 4, NULL, after), 4);
            for (size_t i = 0; i < 5 && at < 4; i++) {
                if (before[i] == gone) continue;
                cr_assert_eq(after[at++], before[i], "key %zu without %zu", key, gone);
            }
        }
        rendezvous_free(without);
    }
    rendezvous_free(set);
}

Test(rendezvous, a_heavier_member_only_gains) {
    struct world world, heavier;
    fill(&world, true);
    heavier = world;
    heavier.members[11].weight += 2;
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS), *after = rendezvous_new(heavier.members, MEMBERS);
    size_t moved = 0;
    for (size_t key = 0; key < KEYS; key++) {
        size_t a, b;
        cr_assert_eq(owners_of(set, key, 1, NULL, &a), 1);
        cr_assert_eq(owners_of(after, key, 1, NULL, &b), 1);
        cr_assert(a == b || b == 11);
        moved += a != b;
    }
    cr_expect_gt(moved, 0);
    rendezvous_free(set), rendezvous_free(after);
}

/* Against the plain way: all costs, sorted. Different weights, some of them nothing; and every k. */
Test(rendezvous, all_k_agree) {
    struct world world;
    fill(&world, true);
    world.members[5].weight = 0, world.members[6].weight = -1, world.members[7].weight = NAN;
    world.members[8].weight = INFINITY, world.members[9].weight = 1e-9, world.members[10].weight = 1e9;
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS);
    for (size_t key = 0; key < 50; key++) {
        size_t all[MEMBERS], some[MEMBERS];
        cr_assert_eq(owners_of(set, key, SIZE_MAX, NULL, all), MEMBERS - 4);
        cr_expect_eq(all[0], 10);
        cr_expect_eq(all[MEMBERS - 5], 9);
        for (size_t most = 0; most < MEMBERS - 4; most++) {
            cr_assert_eq(owners_of(set, key, most, NULL, some), most);
            cr_expect_eq(memcmp(some, all, most * sizeof *all), 0, "key %zu, %zu owners", key, most);
        }
    }
    rendezvous_free(set);
    set = rendezvous_new(world.members + 5, 4);
    cr_expect_eq(rendezvous_owner(set, slice_text("k")), SIZE_MAX, "nobody has any weight");
    rendezvous_free(set);
    set = rendezvous_new(NULL, 0);
    cr_expect_eq(rendezvous_owner(set, slice_text("")), SIZE_MAX);
    rendezvous_free(set);
}

Test(rendezvous, what_keeps_nothing_is_passed_over) {
    struct world world;
    fill(&world, false);
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS);
    double kept[MEMBERS];
    for (size_t i = 0; i < MEMBERS; i++) kept[i] = i % 3 != 0;
    for (size_t key = 0; key < 1000; key++) {
        size_t all[MEMBERS], bounded[MEMBERS], at = 0;
        cr_assert_eq(owners_of(set, key, MEMBERS, NULL, all), MEMBERS);
        cr_assert_eq(owners_of(set, key, MEMBERS, kept, bounded), MEMBERS);
        for (size_t i = 0; i < MEMBERS; i++)
            if (kept[all[i]] > 0) cr_assert_eq(bounded[at++], all[i], "in the same order");
        for (size_t i = 0; i < MEMBERS; i++)
            if (kept[all[i]] == 0) cr_assert_eq(bounded[at++], all[i], "and then those that keep none");
    }
    rendezvous_free(set);
}

/* A member keeps the part that it is to keep, of every key by chance; as the part shrinks only keys of its own leave, each to
 * the next owner, and as it grows the same ones come back. */
Test(rendezvous, a_part_of_the_keys_is_kept) {
    struct world world;
    fill(&world, false);
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS);
    double kept[MEMBERS];
    size_t all[2], first, shrinking[KEYS], own = 0;
    for (size_t i = 0; i < MEMBERS; i++) kept[i] = 1;
    owners_of(set, 0, 1, NULL, &first);
    for (size_t key = 0; key < KEYS; key++) owners_of(set, key, 1, NULL, &shrinking[key]);
    for (size_t key = 0; key < KEYS; key++) own += shrinking[key] == first;
    for (double part = 1; part > 0; part -= 0.125) {
        size_t has = 0;
        kept[first] = part;
        for (size_t key = 0; key < KEYS; key++) {
            size_t owner;
            owners_of(set, key, 1, kept, &owner);
            owners_of(set, key, 2, NULL, all);
            cr_assert(owner == shrinking[key] || shrinking[key] == first, "only its own leave");
            cr_assert(owner == all[0] || (all[0] == first && owner == all[1]), "to the next one");
            shrinking[key] = owner;
            has += owner == first;
        }
        double expected = part * (double)own;
        cr_expect(fabs((double)has - expected) < 4 * sqrt((double)own), "%zu of %zu at %g", has, own, part);
    }
    rendezvous_free(set);
}

static uint64_t from_the_end(const void *data, uint64_t member) {
    cr_assert_eq(*(const int *)data, 7);
    return ~member;
}

Test(rendezvous, another_hash) {
    struct world world;
    fill(&world, false);
    struct rendezvous *set = rendezvous_new(world.members, MEMBERS);
    size_t owners[MEMBERS];
    int seven = 7;
    struct rendezvous_ask ask = {.most = MEMBERS, .hash = from_the_end, .data = &seven};
    cr_assert_eq(rendezvous_owners(set, &ask, owners), MEMBERS);
    for (size_t i = 1; i < MEMBERS; i++) {
        struct slice a = world.members[owners[i - 1]].name, b = world.members[owners[i]].name;
        cr_expect_geq(hash64(a.data, a.size), hash64(b.data, b.size));
    }
    rendezvous_free(set);
}
