/* Stages: how they begin, go on and end. */
#include <math.h>
#include <string.h>

#include "kv/rollout/rollout_internal.h"

/* -- timers ------------------------------------------------------------------------------------------------------- */

static int64_t hold_ns(const Pb__RolloutStage *stage) {
    return stage->position < stage->n_steps ? stage->steps[stage->position]->hold_ns : 0;
}

Pb__RolloutStage *rollout_stage_change(struct machine_tx *tx, Pb__RolloutRecord *record) {
    CHECK(record->stage);
    record->stage = (Pb__RolloutStage *)(void *)message_copy(tx->arena, &record->stage->base);
    return record->stage;
}

void rollout_arm(struct machine_tx *tx, Pb__RolloutRecord *record, int64_t unix_ms) {
    CHECK(record->stage && record->stage->buckets <= ROLLOUT_BUCKETS);
    Pb__RolloutStage *stage = record->stage;
    bool counts = !stage->paused && hold_ns(stage) > 0;
    stage->armed = counts ? tx->index : 0;
    stage->armed_unix_ms = counts ? unix_ms : 0;
    if (counts) expiry_began_in(tx, &rollout_hold_expiry, slice_text(record->name), tx->index, hold_ns(stage));
    else expiry_ended_in(tx, &rollout_hold_expiry, slice_text(record->name), tx->index);
}

void rollout_arm_guard(struct machine_tx *tx, const Pb__RolloutRecord *record) {
    struct slice name = slice_text(record->name);
    if (record->stage->guard && !record->stage->guard_spent)
        expiry_began_in(tx, &rollout_judge_expiry, name, tx->index, ROLLOUT_JUDGE_NS);
    else expiry_ended_in(tx, &rollout_judge_expiry, name, tx->index);
}

void rollout_disarm(struct machine_tx *tx, const Pb__RolloutRecord *record) {
    char room[STORE_KEY_MAX];
    (void)store_del(tx->store, ROLLOUT_TABLE, rollout_key(ROW_CRITICAL, slice_text(record->name), room));
    expiry_ended_in(tx, &rollout_hold_expiry, slice_text(record->name), tx->index);
    expiry_ended_in(tx, &rollout_judge_expiry, slice_text(record->name), tx->index);
}

/* -- the current version ------------------------------------------------------------------------------------------ */

static void remember(struct machine_tx *tx, Pb__RolloutRecord *record, char *version) {
    size_t kept = record->n_before < ROLLOUT_BEFORE_MOST ? record->n_before : ROLLOUT_BEFORE_MOST - 1;
    char **before = arena_alloc(tx->arena, (kept + 1) * sizeof *before);
    for (size_t i = 0; i < kept; i++) before[i] = record->before[record->n_before - kept + i];
    CHECK(kept < ROLLOUT_BEFORE_MOST && version[0]);
    before[kept] = version;
    record->before = before, record->n_before = kept + 1;
}

int rollout_document_wanted(struct machine_tx *tx, const Pb__RolloutRecord *record, const char *version,
                            struct machine_result *result) {
    const Pb__KvEntry *document;
    int rv = rollout_document(tx->store, tx->arena, slice_text(record->name), slice_text(version), &document);
    if (rv != CO_OK || document) return rv;
    return machine_refuse(result, CO_CONFLICT,
                          arena_printf(tx->arena, "the document of \"%s\" was removed: publish it again", version));
}

int rollout_make_current(struct machine_tx *tx, Pb__RolloutRecord *record, const char *version, int64_t unix_ms,
                         struct machine_result *result) {
    struct slice key = rollout_document_key(tx->arena, slice_text(record->name), SLICE_LITERAL("current"));
    int rv = rollout_key_put(tx, key, slice_text(version), result);
    if (rv != CO_OK || result->error) return rv;
    if (record->stage) rollout_disarm(tx, record);
    if (strcmp(record->current, version) != 0) record->current_unix_ms = unix_ms;
    record->current = (char *)(uintptr_t)version;
    record->stage = NULL;
    return CO_OK;
}

int rollout_promote(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who,
                    struct machine_result *result) {
    struct rollout_sides before = rollout_sides(record);
    CHECK(before.stage);
    char *from = record->current, *comment = record->stage->comment;
    int rv = rollout_document_wanted(tx, record, record->stage->version, result);
    if (rv != CO_OK || result->error) return rv;
    rv = rollout_make_current(tx, record, record->stage->version, who->unix_ms, result);
    if (rv != CO_OK || result->error) return rv;
    if (from[0]) remember(tx, record, from);
    record->comment = comment;
    rollout_changed(tx, record, before);
    rollout_note(tx, record, who, PB__ROLLOUT_DID__ROLLOUT_DID_PROMOTE, from, record->current, ROLLOUT_BUCKETS);
    return CO_OK;
}

int rollout_cancel(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who,
                   struct machine_result *result) {
    struct rollout_sides before = rollout_sides(record);
    int rv = rollout_document_wanted(tx, record, record->current, result);
    if (rv != CO_OK || result->error) return rv;
    CHECK(before.stage == record->stage && record->stage);
    rollout_disarm(tx, record);
    record->stage = NULL;
    rollout_changed(tx, record, before);
    rollout_note(tx, record, who, PB__ROLLOUT_DID__ROLLOUT_DID_ROLLBACK, before.stage->version, record->current,
                 ROLLOUT_BUCKETS);
    return CO_OK;
}

/* -- checks ------------------------------------------------------------------------------------------------------- */

/* Is the percentage a whole number of buckets? Another one would silently become a different percentage. */
static bool percent_fits(double percent) {
    double buckets = percent * (ROLLOUT_BUCKETS / 100);
    return percent >= 0 && percent <= 100 && fabs(buckets - round(buckets)) < 1e-6;
}

static bool list_fits(char *const *list, size_t count) {
    bool fits = count <= ROLLOUT_MATCH_MOST;
    for (size_t i = 0; fits && i < count; i++) fits = list[i][0] && strlen(list[i]) <= ROLLOUT_NODE_MOST;
    return fits;
}

/* The reason for which it is no stage; NULL: it is one. */
static const char *match_wrong(const Pb__RolloutMatch *match) {
    bool fits = !match || (list_fits(match->tags, match->n_tags) && list_fits(match->nodes, match->n_nodes) &&
                           list_fits(match->regions, match->n_regions));
    return fits ? NULL : "Match: at most 64 tags, nodes and regions, each of 1 to 200 bytes";
}

static const char *steps_wrong(const Pb__RolloutSetCommand *command) {
    if (command->n_steps > ROLLOUT_STEPS_MOST) return "Steps: at most 32";
    for (size_t i = 0; i < command->n_steps; i++) {
        const Pb__RolloutStep *step = command->steps[i];
        if (!percent_fits(step->percent)) return "Steps: a Percent is from 0 to 100, in steps of 0.01";
        if (i && step->percent <= command->steps[i - 1]->percent)
            return "Steps: each has a higher Percent than the one before";
        if (step->hold_ns && (step->hold_ns < ROLLOUT_HOLD_LEAST_NS || step->hold_ns > ROLLOUT_HOLD_MOST_NS))
            return "Steps: a Hold is a duration from 10ms to 720h, or 0: until it is promoted";
    }
    return NULL;
}

static const char *guard_wrong(const Pb__RolloutGuard *guard) {
    if (!guard) return NULL;
    if (!(guard->max_failing >= 0 && guard->max_failing <= 1)) return "Guard: MaxFailing is a part: from 0 to 1";
    if (guard->min_samples > ROLLOUT_CALLERS_MOST) return "Guard: MinSamples is at most 100000";
    return strlen(guard->service) > ROLLOUT_NODE_MOST ? "Guard: the name of a Service has at most 200 bytes" : NULL;
}

static bool has_match(const Pb__RolloutMatch *match) {
    return match && (match->n_tags || match->n_nodes || match->n_regions);
}

/* Is it a stage, for some callers only, or for all of them under guard? Else the version becomes current at once. */
static bool is_stage(const Pb__RolloutSetCommand *command) {
    return command->n_steps || command->guard || has_match(command->match) ||
           (command->percent_given && command->percent < 100);
}

static const char *wrong(const Pb__RolloutSetCommand *command) {
    const char *what = match_wrong(command->match);
    if (!what && command->match && !is_stage(command)) /* an empty list of nodes does not mean all nodes */
        what = "Match: it names no tags, nodes or regions: leave it out, and everybody gets the version";
    if (!what && command->percent_given && !percent_fits(command->percent))
        what = "Percent: from 0 to 100, in steps of 0.01";
    if (!what) what = steps_wrong(command);
    if (!what) what = guard_wrong(command->guard);
    if (!what && strlen(command->comment) > ROLLOUT_TEXT_MOST) what = "Comment: at most 512 bytes";
    return what;
}

bool rollout_cas_fails(const Pb__RolloutRecord *record, bool given, uint64_t cas, struct machine_tx *tx,
                       struct machine_result *result) {
    uint64_t index = record ? record->modify_index : 0;
    if (!given || cas == index) return false;
    (void)machine_refuse(
        result, CO_PRECONDITION,
        arena_printf(tx->arena, "Cas: the rollout has changed at %llu: read it anew; nothing is changed",
                     (unsigned long long)index));
    return true;
}

/* -- set ---------------------------------------------------------------------------------------------------------- */

static int flip(struct machine_tx *tx, Pb__RolloutRecord *record, const Pb__RolloutSetCommand *command,
                const struct rollout_who *who, struct machine_result *result) {
    struct rollout_sides before = rollout_sides(record);
    char *from = record->current;
    int rv = rollout_make_current(tx, record, command->version, who->unix_ms, result);
    if (rv != CO_OK || result->error) return rv;
    if (from[0] && strcmp(from, command->version) != 0) remember(tx, record, from);
    record->comment = command->comment;
    rollout_changed(tx, record, before);
    rollout_note(tx, record, who, PB__ROLLOUT_DID__ROLLOUT_DID_FLIP, from, record->current, ROLLOUT_BUCKETS);
    return CO_OK;
}

/* With Percent the stage begins there, and skips the steps up to it. It holds for as long as the last skipped step, or
 * else the first step. */
static void steps_fill(struct machine_tx *tx, Pb__RolloutStage *stage, const Pb__RolloutSetCommand *command) {
    size_t first = 0;
    stage->steps = command->steps, stage->n_steps = command->n_steps;
    if (!command->n_steps || !command->percent_given) return;
    while (first < command->n_steps && command->steps[first]->percent <= command->percent) first++;
    Pb__RolloutStep *begin = arena_alloc(tx->arena, sizeof *begin);
    pb__rollout_step__init(begin);
    begin->percent = command->percent, begin->hold_ns = command->steps[first ? first - 1 : 0]->hold_ns;
    stage->n_steps = 1 + command->n_steps - first;
    stage->steps = arena_alloc(tx->arena, stage->n_steps * sizeof *stage->steps);
    stage->steps[0] = begin;
    for (size_t i = first; i < command->n_steps; i++) stage->steps[1 + i - first] = command->steps[i];
}

static void stage_fill(struct machine_tx *tx, Pb__RolloutStage *stage, const Pb__RolloutSetCommand *command) {
    stage->version = command->version, stage->comment = command->comment;
    stage->match = command->match, stage->guard = command->guard;
    steps_fill(tx, stage, command);
    double percent = stage->n_steps ? stage->steps[0]->percent : command->percent_given ? command->percent : 100;
    stage->buckets = rollout_buckets(percent);
}

static bool same_service(const Pb__RolloutGuard *a, const Pb__RolloutGuard *b) {
    return a && b && strcmp(a->service, b->service) == 0;
}

static int stage_begin(struct machine_tx *tx, Pb__RolloutRecord *record, const Pb__RolloutSetCommand *command,
                       const struct rollout_who *who, struct machine_result *result) {
    struct rollout_sides before = rollout_sides(record);
    if (!record->current[0])
        return machine_refuse(result, CO_CONFLICT,
                              "the rollout has no current version for the other callers yet: make one current first");
    if (strcmp(record->current, command->version) == 0)
        return machine_refuse(result, CO_CONFLICT,
                              arena_printf(tx->arena, "\"%s\" is the current version already", command->version));
    if (!rollout_has_room(record, command->match, 1 + command->n_steps))
        return machine_refuse(
            result, CO_CONFLICT,
            "too many different stages since a version became everybody's: promote the one under way, "
            "or give a version to everybody first");
    Pb__RolloutStage *stage = arena_alloc(tx->arena, sizeof *stage);
    pb__rollout_stage__init(stage);
    stage_fill(tx, stage, command);
    bool same = before.stage && strcmp(before.stage->version, command->version) == 0;
    stage->began = same ? before.stage->began : tx->index;
    stage->began_unix_ms = same ? before.stage->began_unix_ms : who->unix_ms, stage->since_unix_ms = who->unix_ms;
    record->stage = stage;
    if (!same || !same_service(before.stage->guard, stage->guard)) {
        int rv = rollout_critical_begin(tx, record);
        if (rv != CO_OK) return rv;
    }
    rollout_arm(tx, record, who->unix_ms);
    rollout_arm_guard(tx, record);
    rollout_changed(tx, record, before);
    rollout_note(tx, record, who, PB__ROLLOUT_DID__ROLLOUT_DID_STAGE, record->current, stage->version, stage->buckets);
    return CO_OK;
}

static int finish(struct machine_tx *tx, Pb__RolloutRecord *record, struct machine_result *result) {
    record->modify_index = tx->index;
    rollout_put(tx, record);
    result->yes = true;
    result->message = &rollout_state(record, tx->arena)->base;
    return CO_OK;
}

int rollout_set_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RolloutSetCommand *command = request;
    struct rollout_who who = {command->by, command->comment, command->now_unix_ms};
    struct slice name = slice_text(command->name);
    const Pb__KvEntry *document;
    Pb__RolloutRecord *record;
    if (!rollout_names_fit(command->name, command->version, result)) return CO_OK;
    const char *why = wrong(command);
    if (why) return machine_refuse(result, CO_INVALID, why);
    int rv = rollout_document(tx->store, tx->arena, name, slice_text(command->version), &document);
    if (rv != CO_OK) return rv;
    if (!document)
        return machine_refuse(result, CO_NOTFOUND,
                              arena_printf(tx->arena, "rollout \"%s\" has no version \"%s\": publish it first",
                                           command->name, command->version));
    rv = rollout_get(tx->store, name, tx->arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (rollout_cas_fails(rv == CO_OK ? record : NULL, command->cas_given, command->cas, tx, result)) return CO_OK;
    if (rv == CO_NOTFOUND && !rollout_open(tx, command->name, &record, result, &rv)) return rv;
    rv = is_stage(command) ? stage_begin(tx, record, command, &who, result) : flip(tx, record, command, &who, result);
    return rv != CO_OK || result->error ? rv : finish(tx, record, result);
}

/* -- promote, rollback, pause, resume ----------------------------------------------------------------------------- */

struct change {
    Pb__RolloutRecord *record;
    struct rollout_who who;
};

/* False: refused, or *rv is the store's error. */
static bool change_open(struct machine_tx *tx, const Pb__RolloutChangeCommand *command, struct change *change,
                        struct machine_result *result, int *rv) {
    *rv = CO_OK;
    change->who = (struct rollout_who){command->by, command->comment, command->now_unix_ms};
    if (!rollout_names_fit(command->name, NULL, result)) return false;
    if (strlen(command->comment) > ROLLOUT_TEXT_MOST) {
        (void)machine_refuse(result, CO_INVALID, "comment: at most 512 bytes");
        return false;
    }
    *rv = rollout_get(tx->store, slice_text(command->name), tx->arena, &change->record);
    if (*rv == CO_NOTFOUND) {
        (void)machine_refuse(result, CO_NOTFOUND, arena_printf(tx->arena, "there is no rollout \"%s\"", command->name));
        *rv = CO_OK;
        return false;
    }
    return *rv == CO_OK && !rollout_cas_fails(change->record, command->cas_given, command->cas, tx, result);
}

static bool no_stage(const Pb__RolloutRecord *record, struct machine_result *result) {
    if (!record->stage) (void)machine_refuse(result, CO_CONFLICT, "no stage is under way");
    return !record->stage;
}

int rollout_promote_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    struct change change;
    int rv;
    if (!change_open(tx, request, &change, result, &rv) || no_stage(change.record, result)) return rv;
    rv = rollout_promote(tx, change.record, &change.who, result);
    return rv != CO_OK || result->error ? rv : finish(tx, change.record, result);
}

int rollout_rollback_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    struct change change;
    int rv;
    if (!change_open(tx, request, &change, result, &rv)) return rv;
    Pb__RolloutRecord *record = change.record;
    if (record->stage) {
        rv = rollout_cancel(tx, record, &change.who, result);
        return rv != CO_OK || result->error ? rv : finish(tx, record, result);
    }
    if (record->n_before == 0) return machine_refuse(result, CO_CONFLICT, "there is no version before this one");
    struct rollout_sides before = rollout_sides(record);
    char *to = record->before[record->n_before - 1];
    rv = rollout_document_wanted(tx, record, to, result);
    if (rv != CO_OK || result->error) return rv;
    rv = rollout_make_current(tx, record, to, change.who.unix_ms, result);
    if (rv != CO_OK || result->error) return rv;
    record->n_before--;
    record->comment = (char *)(uintptr_t)change.who.comment;
    rollout_changed(tx, record, before);
    rollout_note(tx, record, &change.who, PB__ROLLOUT_DID__ROLLOUT_DID_ROLLBACK, before.current, record->current,
                 ROLLOUT_BUCKETS);
    return finish(tx, record, result);
}

static int pause_set(struct machine_tx *tx, void *request, bool pause, struct machine_result *result) {
    struct change change;
    int rv;
    if (!change_open(tx, request, &change, result, &rv) || no_stage(change.record, result)) return rv;
    if (change.record->stage->paused == pause)
        return machine_refuse(result, CO_CONFLICT, pause ? "the stage is paused already" : "the stage is not paused");
    Pb__RolloutStage *stage = rollout_stage_change(tx, change.record);
    stage->paused = pause, stage->reason = (char *)(uintptr_t)(pause ? change.who.comment : "");
    stage->paused_unix_ms = pause ? change.who.unix_ms : 0;
    if (!pause) stage->guard_spent = false;
    rollout_arm(tx, change.record, change.who.unix_ms);
    rollout_arm_guard(tx, change.record);
    rollout_note(tx, change.record, &change.who,
                 pause ? PB__ROLLOUT_DID__ROLLOUT_DID_PAUSE : PB__ROLLOUT_DID__ROLLOUT_DID_RESUME,
                 change.record->current, stage->version, stage->buckets);
    return finish(tx, change.record, result);
}

int rollout_pause_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    return pause_set(tx, request, true, result);
}

int rollout_resume_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    return pause_set(tx, request, false, result);
}
