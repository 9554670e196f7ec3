/* The commands that the leader proposes: the end of a hold, and a judgement of the guard. Both decide here, as
 * functions of the state. */
#include <stdlib.h>
#include <string.h>

#include "kv/rollout/rollout_internal.h"
#include "registry/catalog.h"

static char no_comment[] = "";

/* -- the judgement ------------------------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_among(const Pb__RolloutCritical *list, const char *instance) {
    return list->n_instances && bsearch(&instance, list->instances, list->n_instances, sizeof(char *), by_name);
}

/* Calls `each` for the critical instances of the guard's service, which come ordered by node; until it fails. */
static int critical_each(struct store_txn *txn, const Pb__RolloutRecord *record, struct arena *arena,
                         int (*each)(void *data, const char *node, char *instance), void *data) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    struct query_result result;
    request.service = record->stage->guard->service;
    if (!request.service[0]) return CO_OK;
    int rv = query_service_entries.run(txn, &request.base, arena, &result);
    const Pb__ServiceEntriesResult *all = rv == CO_OK ? (const Pb__ServiceEntriesResult *)result.message : NULL;
    for (size_t i = 0; all && i < all->n_entries && rv == CO_OK; i++) {
        const Pb__ServiceEntry *entry = all->entries[i];
        if (catalog_entry_status(entry) != PB__STATUS__CRITICAL) continue;
        rv = each(data, entry->node->name, arena_printf(arena, "%s/%s", entry->node->name, entry->service->id));
    }
    return rv;
}

/* The instances that were critical when the stage began, and have been ever since. */
static int critical_before(struct store_txn *txn, const Pb__RolloutRecord *record, struct arena *arena,
                           Pb__RolloutCritical **list) {
    char room[STORE_KEY_MAX];
    int rv = rollout_row(txn, rollout_key(ROW_CRITICAL, slice_text(record->name), room),
                         &pb__rollout_critical__descriptor, arena, list);
    if (rv != CO_NOTFOUND) return rv;
    *list = arena_alloc(arena, sizeof **list);
    pb__rollout_critical__init(*list);
    return CO_OK;
}

struct noting {
    Pb__RolloutCritical list;
    const Pb__RolloutCritical *of; /* only those of this list; NULL: all */
    struct arena *arena;
    size_t room;
};

static int note(void *data, const char *node, char *instance) {
    struct noting *noting = data;
    (void)node;
    if (noting->of && !is_among(noting->of, instance)) return CO_OK;
    if (noting->list.n_instances == noting->room) {
        noting->room = noting->room ? 2 * noting->room : 16;
        char **wider = arena_alloc(noting->arena, noting->room * sizeof *wider);
        if (noting->list.n_instances) memcpy(wider, noting->list.instances, noting->list.n_instances * sizeof *wider);
        noting->list.instances = wider;
    }
    noting->list.instances[noting->list.n_instances++] = instance;
    return CO_OK;
}

static int critical_put(struct machine_tx *tx, const Pb__RolloutRecord *record, const Pb__RolloutCritical *of) {
    struct noting noting = {.list = PB__ROLLOUT_CRITICAL__INIT, .of = of, .arena = tx->arena};
    char room[STORE_KEY_MAX];
    struct slice key = rollout_key(ROW_CRITICAL, slice_text(record->name), room);
    int rv = critical_each(tx->store, record, tx->arena, note, &noting);
    if (rv != CO_OK || (of && noting.list.n_instances == of->n_instances)) return rv;
    if (noting.list.n_instances) {
        qsort(noting.list.instances, noting.list.n_instances, sizeof(char *), by_name);
        rollout_row_put(tx, key, &noting.list.base);
    } else {
        (void)store_del(tx->store, ROLLOUT_TABLE, key);
    }
    return CO_OK;
}

int rollout_critical_begin(struct machine_tx *tx, const Pb__RolloutRecord *record) {
    return record->stage->guard ? critical_put(tx, record, NULL) : CO_OK;
}

/* Drops instances from that list that are healthy again, so that they count when they turn critical once more. */
static int critical_look(struct machine_tx *tx, const Pb__RolloutRecord *record) {
    Pb__RolloutCritical *before;
    int rv = critical_before(tx->store, record, tx->arena, &before);
    return rv == CO_OK && before->n_instances ? critical_put(tx, record, before) : rv;
}

struct counting {
    struct store_txn *txn;
    const Pb__RolloutRecord *record;
    const Pb__RolloutCritical *before;
    const char *node; /* the node that was counted last */
    uint64_t running;
};

static int count_one(void *data, const char *node, char *instance) {
    struct counting *counting = data;
    uint64_t running;
    bool any;
    if (counting->node && strcmp(counting->node, node) == 0) return CO_OK;
    if (is_among(counting->before, instance)) return CO_OK;
    counting->node = node;
    int rv = rollout_on_node(counting->txn, slice_text(counting->record->name), slice_text(node),
                             counting->record->stage->began, &running, &any);
    counting->running += running;
    return rv;
}

/* Counts callers on nodes where an instance has turned critical since the stage began. */
static int count_critical(struct store_txn *txn, const Pb__RolloutRecord *record, struct arena *arena,
                          Pb__RolloutJudgement *what) {
    Pb__RolloutCritical *before;
    struct counting counting = {.txn = txn, .record = record};
    int rv = critical_before(txn, record, arena, &before);
    counting.before = before;
    if (rv == CO_OK) rv = critical_each(txn, record, arena, count_one, &counting);
    what->critical = counting.running;
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
    if (count.ok) rv = count_critical(txn, record, &arena, what);
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
    char *critical = guard->service[0]
                         ? arena_printf(arena, ", %llu run on a node where an instance of \"%s\" turned critical",
                                        (unsigned long long)what->critical, guard->service)
                         : no_comment;
    return arena_printf(arena, "of %llu callers that acknowledged it %llu refused it%s: more than %g %%",
                        (unsigned long long)what->samples, (unsigned long long)what->refused, critical,
                        guard->max_failing * 100);
}

/* -- the effects -------------------------------------------------------------------------------------------------- */

static void stage_pauses(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who) {
    Pb__RolloutStage *stage = rollout_stage_change(tx, record);
    stage->paused = true;
    stage->reason = (char *)(uintptr_t)who->comment;
    stage->paused_unix_ms = who->unix_ms;
    rollout_arm(tx, record, who->unix_ms);
    rollout_arm_guard(tx, record);
    rollout_note(tx, record, who, PB__ROLLOUT_DID__ROLLOUT_DID_PAUSE, record->current, stage->version, stage->buckets);
}

static void guard_pauses(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who) {
    rollout_stage_change(tx, record)->guard_spent = true;
    stage_pauses(tx, record, who);
}

/* *acted: the guard has acted, and the caller puts the record. */
static int guard_acts(struct machine_tx *tx, Pb__RolloutRecord *record, int64_t unix_ms, bool hold_over, bool *acted) {
    CHECK(record->stage);
    const Pb__RolloutStage *stage = record->stage;
    Pb__RolloutJudgement what;
    struct rollout_who who = {"guard", "", unix_ms};
    *acted = false;
    if (!stage->guard || stage->guard_spent) return CO_OK;
    int rv = critical_look(tx, record);
    if (rv == CO_OK) rv = rollout_judge(tx->store, record, &what);
    if (rv != CO_OK) return rv;
    *acted = true;
    if (too_many_fail(tx, stage->guard, &what)) {
        who.comment = failing_text(tx->arena, stage->guard, &what);
        struct machine_result refused = {0};
        bool back = stage->guard->on_fail == PB__ROLLOUT_ON_FAIL__ROLLOUT_ON_FAIL_ROLLBACK;
        if (back) rv = rollout_cancel(tx, record, &who, &refused);
        if (refused.error) who.comment = arena_printf(tx->arena, "%s; %s", who.comment, refused.text);
        if (!back || refused.error) guard_pauses(tx, record, &who);
    } else if (hold_over && what.samples < stage->guard->min_samples) {
        who.comment = arena_printf(tx->arena, "inconclusive: %llu of at least %u callers have acknowledged it",
                                   (unsigned long long)what.samples, stage->guard->min_samples);
        guard_pauses(tx, record, &who);
    } else {
        *acted = false;
    }
    return rv;
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
    bool last = record->stage->position + 1 >= record->stage->n_steps;
    int rv = last ? rollout_promote(tx, record, &who, result)
                  : rollout_document_wanted(tx, record, record->stage->version, result);
    if (rv == CO_OK && result->error) {
        /* The document is gone, or the pointer cannot be written: the stage pauses, so that no more callers get the
         * version until an operator has looked. */
        who.comment = result->text;
        result->error = CO_OK, result->text = NULL;
        stage_pauses(tx, record, &who);
        return CO_OK;
    }
    if (rv != CO_OK || last) return rv;
    Pb__RolloutStage *stage = rollout_stage_change(tx, record);
    CHECK(stage->position + 1 < stage->n_steps);
    stage->buckets = rollout_buckets(stage->steps[++stage->position]->percent);
    stage->since_unix_ms = unix_ms;
    rollout_arm(tx, record, unix_ms);
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
    rollout_arm_guard(tx, record); /* a judgement that finds nothing writes nothing */
    return CO_OK;
}
