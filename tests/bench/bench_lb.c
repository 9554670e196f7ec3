/* Load balancing, module by module, in CPU time of one call: owners of a key among 1,000 members, subsets, picks of each
 * policy, and reports into a table of 20,000 instances. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "cpu.h"
#include "lb/load.h"
#include "lb/pick.h"
#include "lb/subset.h"

enum { MEMBERS = 1000, INSTANCES = 20000, CALLS = 200000 };
static char names[INSTANCES][24];
static size_t sink;

static void told(const char *what, uint64_t since, size_t calls) {
    printf("%-44s %9.3f us\n", what, (double)(cpu_ns() - since) / 1e3 / (double)calls);
}

static struct slice key_of(size_t number, char room[24]) {
    return slice_make(room, (size_t)snprintf(room, 24, "key-%zu", number));
}

static void rendezvous(const char *what, double (*weight)(size_t), size_t most, bool subset) {
    struct rendezvous_member *members = mem_alloc(MEMBERS * sizeof *members);
    size_t owners[MEMBERS], calls = CALLS / 10;
    for (size_t i = 0; i < MEMBERS; i++) members[i] = (struct rendezvous_member){slice_text(names[i]), weight(i)};
    struct rendezvous *set = rendezvous_new(members, MEMBERS);
    uint64_t since = cpu_ns();
    for (size_t i = 0; i < calls; i++) {
        char room[24];
        struct slice key = key_of(i, room);
        if (subset) subset_choose(set, key, most, owners);
        else rendezvous_owners(set, &(struct rendezvous_ask){.key = key, .most = most}, owners);
        sink += owners[0];
    }
    told(what, since, calls);
    rendezvous_free(set);
    free(members);
}

static double same(size_t i) { return (void)i, 1; }
static double few(size_t i) { return 1 + (double)(i % 4); }
static double all(size_t i) { return 1 + (double)i / MEMBERS; }

static void picks(void) {
    struct pick_candidate *candidates = mem_zalloc(MEMBERS * sizeof *candidates);
    struct pick_set *set = pick_set_new();
    struct rng rng;
    rng_seed(&rng, 1);
    for (size_t i = 0; i < MEMBERS; i++)
        candidates[i] = (struct pick_candidate){.name = slice_text(names[i]),
                                                .weight = few(i),
                                                .share = 1,
                                                .distance_s = rng_unit(&rng),
                                                .hint = {rng_unit(&rng), 10 * rng_unit(&rng), 5, 0}};
    uint64_t since = cpu_ns();
    for (size_t i = 0; i < 200; i++) pick_set_fill(set, candidates, MEMBERS, false);
    told("pick: filling a set of 1,000", since, 200);
    for (enum pick_policy policy = 0; policy < PICK_POLICIES; policy++) {
        char what[64], room[24];
        size_t calls = policy == PICK_RING ? CALLS / 10 : CALLS;
        since = cpu_ns();
        for (size_t i = 0; i < calls; i++) {
            struct pick_result result;
            struct pick_ask ask = {.policy = policy, .key = key_of(i & 1023, room), .rng = &rng, .now_ns = i};
            CHECK(pick(set, &ask, &result) == CO_OK);
            sink += result.picked;
        }
        snprintf(what, sizeof what, "pick: %s of 1,000", pick_policy_name(policy));
        told(what, since, calls);
    }
    pick_set_free(set);
    free(candidates);
}

static void count(void *data, const struct load_entry *entry) { *(size_t *)data += entry->instance.node.size; }

static void loads(void) {
    struct load_table *table = load_table_new(0);
    struct load_hint hint = {0.5, 3, 10, 0};
    uint64_t now = 0, since = cpu_ns();
    for (size_t i = 0; i < 10 * INSTANCES; i++) {
        struct load_instance instance = {.node = slice_text(names[i % INSTANCES]), .service_id = SLICE_LITERAL("api")};
        CHECK(load_report(table, instance, &hint, now += 50000) == CO_OK);
    }
    told("load: a report, 20,000 instances", since, 10 * INSTANCES);
    since = cpu_ns();
    for (size_t i = 0; i < INSTANCES; i++) {
        struct load_entry entry;
        struct load_instance instance = {.node = slice_text(names[i]), .service_id = SLICE_LITERAL("api")};
        sink += load_get(table, instance, now, &entry);
    }
    told("load: a look-up", since, INSTANCES);
    since = cpu_ns();
    load_changes(table, 0, LOAD_DIRECT, SIZE_MAX, now, count, &sink);
    told("load: 20,000 changes, each", since, INSTANCES);
    load_table_free(table);
}

int main(void) {
    for (size_t i = 0; i < INSTANCES; i++) snprintf(names[i], sizeof names[i], "node-%zu", i);
    rendezvous("rendezvous: 1 of 1,000, equal weights", same, 1, false);
    rendezvous("rendezvous: 3 of 1,000, equal weights", same, 3, false);
    rendezvous("rendezvous: 1 of 1,000, 4 weights", few, 1, false);
    rendezvous("rendezvous: 1 of 1,000, 1,000 weights", all, 1, false);
    rendezvous("subset: 20 of 1,000", same, 20, true);
    picks();
    loads();
    return sink == 0;
}
