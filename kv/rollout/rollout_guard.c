/* What the leader proposes: the end of a hold, and a look of the guard. Both are judged here, as functions of the state. */
#include <stdlib.h>
#include <string.h>

#include "kv/rollout/rollout_internal.h"
#include "registry/catalog.h"

static char no_comment[] = "";

/* -- the judgement ------------------------------------------------------------------------------------------------ */

/* Of callers on nodes that have a critical instance: instances come ordered by node. */
static int count_critical(struct store_txn *txn, const Pb__RolloutRecord *record, struct arena *arena,
                          Pb__RolloutJudgement *what) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    struct query_result result;
    request.service = record->stage->guard->service;
    int rv = query_service_entries.run(txn, &request.base, arena, &result);
    const Pb__ServiceEntriesResult *all = rv == CO_OK ? (const Pb__ServiceEntriesResult *)result.message : NULL;
    const char *counted = NULL;
    for (size_t i = 0; all && i < all->n_entries && rv == CO_OK; i++) {
        const char *node = all->entries[i]->node->name;
        uint64_t running;
        bool any;
        if (counted && strcmp(counted, node) == 0) continue;
        if (catalog_entry_status(all->entries[i]) != PB__STATUS__CRITICAL) continue;
        counted = node;
        rv = rollout_on_node(txn, slice_text(record->name), slice_text(node), record->stage->began, &running, &any);
        what->critical += running;
    }
    return rv;
}

int rollout_judge(struct store_txn *txn, const Pb__RolloutRecord *record, Pb__RolloutJudgement *what) {
    const Pb__RolloutStage *stage = record->stage;
    Pb__RolloutCount count;
    struct arena arena = {0};
    pb__rollout_judgement__init(what);
    if (!stage || !stage->guard) return CO_OK;
    int rv = rollout_count(txn, slice_text(record->name), stage->began, stage->version, &count);
    if (rv != CO_OK) return rv;
    what->samples = count.ok + count.refused, what->refused = count.refused;
    if (stage->guard->service[0] && count.ok) rv = count_critical(txn, record, &arena, what);
    arena_free(&arena);
    return rv;
}

static bool too_many_fail(const struct machine_tx *tx, const Pb__RolloutGuard *guard,
                          const Pb__RolloutJudgement *what) {
    uint64_t refused = tx->mutations & MUTATE_ROLLOUT_BLIND ? 0 : what->refused;
    return what->samples && what->samples >= guard->min_samples &&
           (double)(refused + what->critical) > guard->max_failing * (double)what->samples;
}

static char *failing_text(struct arena *arena, const Pb__RolloutGuard *guard, const Pb__RolloutJudgement *what) {
    char *critical = guard->service[0] ? arena_printf(arena, ", %llu run on a node with a critical instance of \"%s\"",
                                                      (unsigned long long)what->critical, guard->service)
                                       : no_comment;
    return arena_printf(arena, "of %llu callers that acknowledged it %llu refused it%s: more than %g %%",
                        (unsigned long long)what->samples, (unsigned long long)what->refused, critical,
                        guard->max_failing * 100);
}

/* -- what follows from it ----------------------------------------------------------------------------------------- */

static void stage_pauses(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who) {
    Pb__RolloutStage *stage = rollout_stage_change(tx, record);
    stage->paused = true;
    stage->reason = (char *)(uintptr_t)who->comment;
    rollout_arm(tx, record);
    rollout_arm_guard(tx, record);
    rollout_note(tx, record, who, PB__ROLLOUT_DID__ROLLOUT_DID_PAUSE, record->current, stage->version, stage->buckets);
}

static void guard_pauses(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who) {
    rollout_stage_change(tx, record)->guard_spent = true;
    stage_pauses(tx, record, who);
}

/* *acted: the guard has, and the record is to be put. */
static int guard_acts(struct machine_tx *tx, Pb__RolloutRecord *record, int64_t unix_ms, bool hold_over, bool *acted) {
    const Pb__RolloutStage *stage = record->stage;
    Pb__RolloutJudgement what;
    struct rollout_who who = {"guard", "", unix_ms};
    *acted = false;
    if (!stage->guard || stage->guard_spent) return CO_OK;
    int rv = rollout_judge(tx->store, record, &what);
    if (rv != CO_OK) return rv;
    *acted = true;
    if (too_many_fail(tx, stage->guard, &what)) {
        who.comment = failing_text(tx->arena, stage->guard, &what);
        bool back = stage->guard->on_fail == PB__ROLLOUT_ON_FAIL__ROLLOUT_ON_FAIL_ROLLBACK;
        if (back) rollout_cancel(tx, record, &who);
        else guard_pauses(tx, record, &who);
    } else if (hold_over && what.samples < stage->guard->min_samples) {
        who.comment = arena_printf(tx->arena, "inconclusive: %llu of at least %u callers have acknowledged it",
                                   (unsigned long long)what.samples, stage->guard->min_samples);
        guard_pauses(tx, record, &who);
    } else {
        *acted = false;
    }
    return CO_OK;
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static int finish(struct machine_tx *tx, Pb__RolloutRecord *record, struct machine_result *result) {
    record->modify_index = tx->index;
    rollout_put(tx, record);
    result->yes = true;
    return CO_OK;
}

static int advance(struct machine_tx *tx, Pb__RolloutRecord *record, int64_t unix_ms, struct machine_result *result) {
    struct rollout_who who = {"step", "", unix_ms};
    struct rollout_sides before = rollout_sides(record);
    if (record->stage->position + 1 >= record->stage->n_steps) {
        int rv = rollout_promote(tx, record, &who, result);
        if (rv != CO_OK || !result->error) return rv;
        /* Its document is gone, or the pointer cannot be written: nobody else gets it until somebody has looked. */
        who.comment = result->text;
        result->error = CO_OK, result->text = NULL;
        stage_pauses(tx, record, &who);
        return CO_OK;
    }
    Pb__RolloutStage *stage = rollout_stage_change(tx, record);
    stage->buckets = rollout_buckets(stage->steps[++stage->position]->percent);
    rollout_arm(tx, record);
    rollout_changed(tx, record, before);
    rollout_note(tx, record, &who, PB__ROLLOUT_DID__ROLLOUT_DID_ADVANCE, record->current, stage->version,
                 stage->buckets);
    return CO_OK;
}

int rollout_advance_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RolloutDueCommand *command = request;
    Pb__RolloutRecord *record;
    bool acted;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    int rv = rollout_get(tx->store, slice_text(command->name), tx->arena, &record);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    bool due = record->stage && record->stage->armed && record->stage->armed == command->index;
    if (tx->mutations & MUTATE_ROLLOUT_REPEATS) due = record->stage && record->stage->n_steps;
    if (!due) return CO_OK;
    rv = guard_acts(tx, record, command->now_unix_ms, true, &acted);
    if (rv == CO_OK && !acted) rv = advance(tx, record, command->now_unix_ms, result);
    return rv != CO_OK || result->error ? rv : finish(tx, record, result);
}

int rollout_judge_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RolloutDueCommand *command = request;
    Pb__RolloutRecord *record;
    bool acted;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    int rv = rollout_get(tx->store, slice_text(command->name), tx->arena, &record);
    if (rv != CO_OK || !record->stage) return rv == CO_NOTFOUND ? CO_OK : rv;
    rv = guard_acts(tx, record, command->now_unix_ms, false, &acted);
    if (rv != CO_OK) return rv;
    if (acted) return finish(tx, record, result);
    rollout_arm_guard(tx, record); /* a quiet look writes nothing */
    return CO_OK;
}
