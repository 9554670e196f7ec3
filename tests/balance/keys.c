#include "keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/rendezvous.h"
#include "lb/hints.h"
#include "lb/keep.h"
#include "lb/pick.h"

#define STEP_MS 100
#define MS      UINT64_C(1000000)
#define BUSY    0.4

enum { SERVERS = 2, ASKED = 3, FRAMES = 4096 }; /* two servers, and an agent of the first one */

const char *const keys_way_names[KEYS_WAYS] = {"a share is given up", "weights follow", "all is given up", "no bound"};

struct asked { /* a process that names owners */
    struct hints *hints;
    struct pick_set *set;
    struct rendezvous *ring;
    double kept[KEYS_INSTANCES_MOST], loads[KEYS_INSTANCES_MOST];
    uint32_t owners[KEYS_COUNT];
    uint64_t told[ASKED]; /* what the others have been told of */
    bool moved, filled;
};

struct frame { /* on its way */
    struct buffer bytes;
    uint64_t at_ns;
    size_t to;
};

struct instance {
    char id[24];
    double slowness, measured, own; /* own: its part of the look-ups */
    uint64_t next_ns;
    bool there;
};

struct world {
    const struct keys_run *run;
    struct rng rng;
    struct asked asked[ASKED];
    struct instance instances[KEYS_INSTANCES_MOST];
    struct frame frames[FRAMES];
    size_t first, last;
    uint64_t now_ns;
    char keys[KEYS_COUNT][16];
    uint32_t natural[KEYS_COUNT];
};

static struct load_instance name_of(void *data, size_t i) {
    struct world *world = data;
    return (struct load_instance){SLICE_LITERAL("n"), slice_text(world->instances[i].id), SLICE_LITERAL("cache")};
}

/* -- owners ------------------------------------------------------------------------------------------------------- */
struct looking {
    struct world *world;
    struct asked *asked;
};

static struct load_instance looked_at(void *data, size_t i) { return name_of(((struct looking *)data)->world, i); }

static void see(void *data, size_t i, bool known, const struct load_entry *entry) {
    struct asked *asked = ((struct looking *)data)->asked;
    double kept = known ? entry->kept : 1, load = known ? entry->hint.load : NAN;
    asked->moved |= kept != asked->kept[i] || load != asked->loads[i];
    asked->kept[i] = kept, asked->loads[i] = load;
}

static void fill(struct world *world, struct asked *asked) {
    struct pick_candidate candidates[KEYS_INSTANCES_MOST] = {0};
    struct rendezvous_member members[KEYS_INSTANCES_MOST];
    for (size_t i = 0; i < world->run->instances; i++) {
        bool there = world->instances[i].there;
        double weight = !there ? 0 : world->run->way == KEYS_WEIGHTS ? asked->kept[i] : 1;
        candidates[i] = (struct pick_candidate){.name = slice_text(world->instances[i].id),
                                                .status = there ? PICK_PASSING : PICK_CRITICAL,
                                                .weight = 1,
                                                .share = 1,
                                                .hint = load_unknown(),
                                                .kept = asked->kept[i]};
        members[i] = (struct rendezvous_member){slice_text(world->instances[i].id), weight};
    }
    pick_set_fill(asked->set, candidates, world->run->instances, true);
    rendezvous_free(asked->ring);
    asked->ring = rendezvous_new(members, world->run->instances);
}

/* Those beyond the bound by their last reports keep nothing. */
static void all_or_nothing(const struct world *world, const struct asked *asked, double *kept) {
    double sum = 0, known = 0;
    for (size_t i = 0; i < world->run->instances; i++)
        if (world->instances[i].there && !isnan(asked->loads[i])) sum += asked->loads[i], known++;
    for (size_t i = 0; i < world->run->instances; i++)
        kept[i] = known > 0 && asked->loads[i] > KEEP_BOUND * sum / known * (1 + 1e-9) ? 0 : 1;
}

static void look(struct world *world, struct asked *asked) {
    struct looking looking = {world, asked};
    double kept[KEYS_INSTANCES_MOST];
    hints_look(asked->hints, world->run->instances, world->now_ns, looked_at, see, &looking);
    if (!asked->moved && asked->filled) return;
    asked->moved = false, asked->filled = true;
    fill(world, asked);
    all_or_nothing(world, asked, kept);
    for (size_t k = 0; k < KEYS_COUNT; k++) {
        struct rendezvous_ask ask = {.key = slice_text(world->keys[k]), .most = 1};
        if (world->run->way == KEYS_ALL) ask.kept = kept;
        size_t owner;
        if (world->run->way == KEYS_SHARES) CHECK(pick_owners(asked->set, ask.key, 1, &owner) == 1);
        else CHECK(rendezvous_owners(asked->ring, &ask, &owner) == 1);
        asked->owners[k] = (uint32_t)owner;
    }
}

static void count(struct world *world) {
    for (size_t i = 0; i < world->run->instances; i++) world->instances[i].own = 0;
    for (size_t a = 0; a < ASKED; a++)
        for (size_t k = 0; k < KEYS_COUNT; k++)
            world->instances[world->asked[a].owners[k]].own += 1.0 / (ASKED * KEYS_COUNT);
}

static double load_of(const struct world *world, size_t i) {
    const struct instance *instance = &world->instances[i];
    return BUSY * (double)world->run->instances * instance->own * instance->slowness;
}

/* -- hints -------------------------------------------------------------------------------------------------------- */
static void report(struct world *world) {
    for (size_t i = 0; i < world->run->instances; i++) {
        struct instance *instance = &world->instances[i];
        double load = load_of(world, i), part = STEP_MS / 1e3 / fmax(world->run->mean_s, STEP_MS / 1e3);
        instance->measured = isnan(instance->measured) ? load : instance->measured + (load - instance->measured) * part;
        if (!instance->there || world->now_ns < instance->next_ns) continue;
        struct load_hint hint = load_unknown();
        hint.load = instance->measured * (1 + world->run->noise * (2 * rng_unit(&world->rng) - 1));
        instance->next_ns = world->now_ns + (uint64_t)(world->run->report_s * 1e9);
        CHECK(hints_report(world->asked[i % SERVERS].hints, name_of(world, i), &hint, 0, world->now_ns) == CO_OK);
    }
}

static void send(struct world *world, size_t from, size_t to) {
    struct frame *frame = &world->frames[world->last % FRAMES];
    struct asked *asked = &world->asked[from];
    enum load_which which = to < SERVERS ? LOAD_DIRECT : LOAD_ALL;
    buffer_reset(&frame->bytes);
    asked->told[to] = hints_changes(asked->hints, asked->told[to], which, 1000, world->now_ns, &frame->bytes);
    if (!frame->bytes.size) return;
    frame->at_ns = world->now_ns + (uint64_t)(world->run->delay_s * 1e9), frame->to = to;
    CHECK(++world->last - world->first < FRAMES);
}

static void deliver(struct world *world) {
    for (; world->first < world->last; world->first++) {
        struct frame *frame = &world->frames[world->first % FRAMES];
        if (frame->at_ns > world->now_ns) return;
        (void)hints_take(world->asked[frame->to].hints, buffer_slice(&frame->bytes), false, slice_text(""),
                         world->now_ns);
    }
}

static void step(struct world *world) {
    deliver(world);
    for (size_t a = 0; a < ASKED; a++) look(world, &world->asked[a]);
    count(world);
    report(world);
    send(world, 0, 1), send(world, 1, 0), send(world, 0, 2);
    world->now_ns += STEP_MS * MS;
}

/* -- a run -------------------------------------------------------------------------------------------------------- */
static void begin(struct world *world, const struct keys_run *run) {
    world->run = run, world->now_ns = 1000 * 1000 * MS;
    rng_seed(&world->rng, run->seed);
    for (size_t k = 0; k < KEYS_COUNT; k++) snprintf(world->keys[k], sizeof world->keys[k], "user-%zu", k);
    for (size_t i = 0; i < run->instances; i++) {
        struct instance *instance = &world->instances[i];
        snprintf(instance->id, sizeof instance->id, "i%zu", i);
        instance->there = true, instance->measured = NAN;
        instance->slowness = i < run->slow ? run->slowness : 1;
        instance->next_ns = world->now_ns + (uint64_t)(rng_unit(&world->rng) * run->report_s * 1e9);
    }
    for (size_t a = 0; a < ASKED; a++) {
        world->asked[a].hints = hints_new(0);
        if (a < SERVERS) hints_decides(world->asked[a].hints);
        world->asked[a].set = pick_set_new();
        for (size_t i = 0; i < run->instances; i++) world->asked[a].kept[i] = 1, world->asked[a].loads[i] = NAN;
        look(world, &world->asked[a]);
    }
    memcpy(world->natural, world->asked[0].owners, sizeof world->natural);
}

static void end(struct world *world) {
    for (size_t a = 0; a < ASKED; a++) {
        hints_free(world->asked[a].hints);
        pick_set_free(world->asked[a].set);
        rendezvous_free(world->asked[a].ring);
    }
    for (size_t i = 0; i < FRAMES; i++) buffer_free(&world->frames[i].bytes);
    free(world);
}

static void change(struct world *world, unsigned second) {
    const struct keys_run *run = world->run;
    for (size_t i = 0; i < run->slow && second == run->recovers && second; i++) world->instances[i].slowness = 1;
    bool dies = second && second == run->dies, comes = second && second == run->comes;
    if (!dies && !comes) return;
    world->instances[run->instances - 1].there = comes;
    for (size_t a = 0; a < ASKED; a++) world->asked[a].moved = true;
}

static double greatest_load(const struct world *world) {
    double sum = 0, most = 0, there = 0;
    for (size_t i = 0; i < world->run->instances; i++) {
        if (!world->instances[i].there) continue;
        double load = load_of(world, i);
        sum += load, there++;
        most = fmax(most, load);
    }
    return most / (sum / there);
}

static double different(const uint32_t *a, const uint32_t *b) {
    size_t found = 0;
    for (size_t k = 0; k < KEYS_COUNT; k++) found += a[k] != b[k];
    return (double)found / KEYS_COUNT;
}

void keys_run(const struct keys_run *run, struct keys_outcome *outcome) {
    struct world *world = mem_zalloc(sizeof *world);
    CHECK(run->instances <= KEYS_INSTANCES_MOST && run->seconds <= KEYS_SECONDS_MOST);
    *outcome = (struct keys_outcome){0};
    begin(world, run);
    double measured = 0;
    for (unsigned second = 0; second < run->seconds; second++) {
        uint32_t before[KEYS_COUNT];
        memcpy(before, world->asked[2].owners, sizeof before);
        change(world, second);
        for (int i = 0; i < 1000 / STEP_MS; i++) step(world);
        double load = greatest_load(world), moved = different(before, world->asked[2].owners);
        outcome->loads[second] = load;
        if (load > 1.05 * KEEP_BOUND) outcome->within_s = second + 1;
        if (second < run->settled) continue;
        measured++;
        outcome->most_moved = fmax(outcome->most_moved, moved);
        outcome->moved += moved, outcome->most_load += load;
        outcome->apart += (different(world->asked[0].owners, world->asked[1].owners) +
                           different(world->asked[0].owners, world->asked[2].owners)) /
                          2;
    }
    outcome->moved /= measured, outcome->most_load /= measured, outcome->apart /= measured;
    outcome->away = different(world->natural, world->asked[2].owners);
    end(world);
}
