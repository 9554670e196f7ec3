/* Rollouts against a model that a reader can check at a glance: for each caller, which version it has and since when.
 * Random changes; after each of them every caller is asked, and who was woken is compared with whose version changed.
 * A failure names its seed: COORD_SEED=N runs that one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "rollouts.h"

enum { CALLERS = 60, VERSIONS = 3, STEPS = 250, SEEDS = 12 };

static struct fixture world;
static struct rng rng;
static uint64_t seed;

static struct model_caller {
    char id[16];
    struct caller caller;
    uint32_t bucket;
    int version; /* -1: none */
    uint64_t since;
    struct rollout_watch watch;
} callers[CALLERS];
static struct {
    int current, before[ROLLOUT_BEFORE_MOST];
    size_t before_count;
    int staged; /* -1: none */
    double percent;
    const char *node, *tag;
    bool paused, armed, deleted; /* deleted: no version is published */
    size_t step, steps;
} model;

static const char *const versions[VERSIONS] = {"v0", "v1", "v2"}, *const nodes[] = {"n0", "n1", "n2"},
                         *const tags[] = {"canary", "old"};

static unsigned pick(unsigned count) { return (unsigned)rng_below(&rng, count); }

static void callers_begin(void) {
    for (unsigned i = 0; i < CALLERS; i++) {
        struct model_caller *caller = &callers[i];
        *caller = (struct model_caller){.version = -1};
        snprintf(caller->id, sizeof caller->id, "c%u", i);
        caller->caller =
            (struct caller){.id = caller->id, .node = i % 4 ? nodes[i % 3] : NULL, .tag = i % 5 ? tags[i % 2] : NULL};
        caller->bucket = rollout_bucket(SLICE_LITERAL("web"), slice_text(caller->id));
        rollout_watch_begin(&caller->watch, &world, "web", &caller->caller);
    }
}

static int wanted(const struct model_caller *caller) {
    bool in = model.staged >= 0 && caller->bucket < model.percent * 100;
    if (model.node) in = in && caller->caller.node && strcmp(caller->caller.node, model.node) == 0;
    if (model.tag) in = in && caller->caller.tag && strcmp(caller->caller.tag, model.tag) == 0;
    return in ? model.staged : model.current;
}

/* After the change at `index`. `narrow`: it named no callers but by percentage, so that only those who move wake. */
static void compare(uint64_t index, bool narrow) {
    for (unsigned i = 0; i < CALLERS; i++) {
        struct model_caller *caller = &callers[i];
        uint64_t seen;
        int version = wanted(caller);
        bool moved = version != caller->version;
        if (moved) caller->version = version, caller->since = version < 0 ? 0 : index;
        const char *has = rollout_version(&world, "web", &caller->caller, &seen);
        const char *should = version < 0 ? "" : versions[version];
        cr_assert_str_eq(has, should, "seed %d at %d: caller %u", (int)seed, (int)index, i);
        cr_assert_eq(seen, caller->since, "seed %d at %d: caller %u has it since %d, not %d", (int)seed, (int)index, i,
                     (int)caller->since, (int)seen);
        unsigned woken = rollout_woken(&caller->watch);
        cr_assert(!moved || woken, "seed %d at %d: caller %u sleeps", (int)seed, (int)index, i);
        cr_assert(moved || !narrow || !woken, "seed %d at %d: caller %u is woken for nothing", (int)seed, (int)index,
                  i);
    }
}

static bool is_narrow(void) { return !model.node && !model.tag; }

static void stage_ends(void) { model.staged = -1, model.node = model.tag = NULL, model.paused = model.armed = false; }

static void becomes_current(int version) {
    if (model.current >= 0 && model.current != version) {
        if (model.before_count == ROLLOUT_BEFORE_MOST)
            memmove(model.before, model.before + 1, --model.before_count * sizeof model.before[0]);
        model.before[model.before_count++] = model.current;
    }
    model.current = version;
    stage_ends();
}

static struct outcome set_randomly(void) {
    int version = (int)pick(VERSIONS);
    struct stage_plan plan = {.percent = -1};
    if (pick(3) == 0 || model.current < 0) {
        struct outcome outcome = rollout_flip(&world, "web", versions[version]);
        cr_assert(outcome.yes);
        becomes_current(version);
        return outcome;
    }
    plan.percent = pick(10001) / 100.0;
    if (pick(3) == 0) plan.node = nodes[pick(3)];
    if (pick(4) == 0) plan.tag = tags[pick(2)];
    bool steps = pick(3) == 0;
    if (steps) plan.steps = "5:60 30:60 80", plan.percent = -1;
    struct outcome outcome = rollout_set(&world, "web", versions[version], &plan);
    if (version == model.current && (steps || plan.node || plan.tag || plan.percent < 100)) {
        cr_assert_eq(outcome.error, CO_CONFLICT);
        return outcome;
    }
    cr_assert(outcome.yes, "%s", outcome.text);
    if (!steps && !plan.node && !plan.tag && plan.percent == 100) {
        becomes_current(version);
        return outcome;
    }
    stage_ends();
    model.staged = version, model.percent = steps ? 5 : plan.percent, model.node = plan.node, model.tag = plan.tag;
    model.steps = steps ? 3 : 0, model.step = 0, model.armed = steps;
    return outcome;
}

static struct outcome advance(void) {
    struct outcome outcome = rollout_due(&world, ROLLOUT_ADVANCE, "web", 0);
    static const double percents[] = {5, 30, 80};
    cr_assert_eq(outcome.yes, model.staged >= 0 && model.armed, "seed %d", (int)seed);
    if (!outcome.yes) return outcome;
    model.percent = percents[++model.step];
    model.armed = model.step < 2; /* the last has no hold */
    return outcome;
}

static struct outcome change(void) {
    static const uint8_t commands[] = {ROLLOUT_PROMOTE, ROLLOUT_ROLLBACK, ROLLOUT_PAUSE, ROLLOUT_RESUME};
    uint8_t command = commands[pick(4)];
    struct outcome outcome = rollout_do(&world, command, "web");
    bool staged = model.staged >= 0, yes = staged;
    if (command == ROLLOUT_PROMOTE && staged) becomes_current(model.staged);
    if (command == ROLLOUT_PAUSE) yes = staged && !model.paused;
    if (command == ROLLOUT_RESUME) yes = staged && model.paused;
    if (command == ROLLOUT_PAUSE && yes) model.paused = true, model.armed = false;
    if (command == ROLLOUT_RESUME && yes) model.paused = false, model.armed = model.steps && model.step < 2;
    if (command == ROLLOUT_ROLLBACK) {
        yes = staged || model.before_count;
        if (!staged && yes) model.current = model.before[--model.before_count];
        stage_ends();
    }
    cr_assert_eq(outcome.yes, yes, "seed %d: %d %s", (int)seed, command, outcome.text);
    return outcome;
}

static void publish_all(void) {
    for (int i = 0; i < VERSIONS; i++) cr_assert(rollout_publish(&world, "web", versions[i], versions[i]).yes);
    model.deleted = false;
}

/* With its keys, so that nothing is taken over by what comes after it. */
static struct outcome delete (void) {
    struct outcome outcome = rollout_delete(&world, "web", true);
    cr_assert_eq(outcome.yes, model.staged < 0, "seed %d: %s", (int)seed, outcome.text);
    if (outcome.yes) model.current = -1, model.before_count = 0, model.deleted = true;
    return outcome;
}

static void run(void) {
    fixture_open(&world);
    fixture_found(&world);
    publish_all();
    model.current = model.staged = -1, model.before_count = 0;
    stage_ends();
    callers_begin();
    for (unsigned i = 0; i < STEPS; i++) {
        bool narrow = is_narrow();
        unsigned what = pick(10);
        bool again = model.deleted && pick(2);
        if (model.deleted && !again) publish_all();
        struct outcome outcome = again || pick(20) == 0 ? delete ()
                                 : what < 5             ? set_randomly()
                                 : what < 7             ? advance()
                                                        : change();
        compare(outcome.index, narrow && is_narrow());
        if (i % 50 == 49) {
            for (unsigned j = 0; j < CALLERS; j++) rollout_watch_end(&callers[j].watch, &world);
            fixture_reopen(&world);
            for (unsigned j = 0; j < CALLERS; j++)
                rollout_watch_begin(&callers[j].watch, &world, "web", &callers[j].caller);
        }
    }
    for (unsigned i = 0; i < CALLERS; i++) rollout_watch_end(&callers[i].watch, &world);
    fixture_close(&world);
}

Test(rollout_model, random_changes) {
    const char *only = getenv("COORD_SEED");
    for (seed = only ? strtoull(only, NULL, 10) : 1; seed <= SEEDS || only; seed++) {
        rng_seed(&rng, seed);
        run();
        if (only) break;
    }
}
