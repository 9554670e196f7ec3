/* Rollouts, for the tests of this folder. */
#ifndef COORD_TESTS_KV_ROLLOUTS_H
#define COORD_TESTS_KV_ROLLOUTS_H

#include "answers.h"
#include "kv/rollout/rollout.h"

/* With versions v1 to v3 of "web"; v1 is current. */
void rollout_world(struct fixture *world);

struct outcome rollout_publish(struct fixture *world, const char *name, const char *version, const char *document);

/* NULL or 0: left out. Steps: "1:60 50:60 100": percentage, and seconds of hold. */
struct stage_plan {
    double percent; /* below 0: not given. The field has to be set */
    const char *node, *tag, *region, *steps, *comment;
    const char *service;
    double max_failing;
    uint32_t min_samples;
    bool guard, rollback;
    uint64_t cas;
    bool cas_given;
};
struct outcome rollout_set(struct fixture *world, const char *name, const char *version, const struct stage_plan *plan);
#define rollout_flip(world, name, version) rollout_set(world, name, version, &(struct stage_plan){.percent = -1})
/* ROLLOUT_PROMOTE to ROLLOUT_RESUME. */
struct outcome rollout_do(struct fixture *world, uint8_t command, const char *name);
/* With its keys, or without. */
struct outcome rollout_delete(struct fixture *world, const char *name, bool with_keys);
struct outcome rollout_ack(struct fixture *world, const char *name, const char *id, const char *version, bool ok,
                           const char *node);
/* ROLLOUT_ADVANCE, ROLLOUT_JUDGE. index 0: of the hold that counts now. */
struct outcome rollout_due(struct fixture *world, uint8_t command, const char *name, uint64_t index);

struct caller {
    const char *id, *node, *tag, *region;
};
/* The version that the caller gets, "" for none; *index: its index. Static, until the next call. */
const char *rollout_version(struct fixture *world, const char *name, const struct caller *caller, uint64_t *index);
const Pb__RolloutResolution *rollout_ask(struct fixture *world, const char *name, const struct caller *caller);
const Pb__RolloutState *rollout_look(struct fixture *world, const char *name); /* until the next query */
/* "flip:>v1@100 stage:v1>v2@10 ": the oldest first; until the next call. */
const char *rollout_story(struct fixture *world, const char *name);

const char *rollout_pointer(struct fixture *world); /* config/web/current */
char *rollout_caller_in(double from, double to);    /* the id of a caller of "web" between these percents; free() it */
void rollout_refused(struct outcome outcome, int error, const char *word);

/* Waits for what a caller gets, under all watch keys. */
struct rollout_watch {
    struct watcher watchers[4];
    size_t count;
};
void rollout_watch_begin(struct rollout_watch *watch, struct fixture *world, const char *name,
                         const struct caller *caller);
void rollout_watch_end(struct rollout_watch *watch, struct fixture *world);
unsigned rollout_woken(struct rollout_watch *watch); /* since the last call */

#endif
