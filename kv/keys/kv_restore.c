/* Restores keys to a past state in one entry: makes a plan, and carries it out. A dry run is an entry too, which takes
 * everything back; so it finds every reason for which the real one would be refused.
 *
 * The rows of the history behind the moment name all changes since then, and the first row that names a key has its
 * record at the moment. So the cost depends on the number of changes since, not on the number of keys below the prefix.
 *
 * The command must not depend on the batch that its entry is applied in: its present is the state after the entry
 * before it, not the state that was committed last. */
#include <stdlib.h>

#include "base/message.h"
#include "kv/keys/kv_internal.h"
#include "registry/history.h"

/* A record of the store before a row. Slices point into the map. */
struct noted {
    struct slice store_key, bytes;
    size_t order;
    bool existed;
};

struct plan {
    struct store_txn *txn;
    struct arena *arena;
    const Pb__KvRestoreCommand *command;
    Pb__KvRestoreAnswer *answer;
    struct noted *noted;
    size_t count, room;
    size_t changes_room, bytes;
};

/* -- changes since ------------------------------------------------------------------------------------------------ */

static bool may_be_meant(const struct plan *plan, struct slice store_key) {
    char room[KV_STORE_KEY_MAX];
    struct slice key = message_slice(plan->command->key);
    if (plan->command->recurse) return slice_starts(store_key, kv_prefix_head(key));
    return slice_equal(store_key, kv_store_key(key, room));
}

static void note_add(struct plan *plan, const struct store_before *before) {
    if (plan->count == plan->room) {
        plan->room = plan->room ? 2 * plan->room : 64;
        plan->noted = mem_realloc(plan->noted, plan->room * sizeof *plan->noted);
    }
    plan->noted[plan->count] = (struct noted){before->key, before->value, plan->count, before->existed};
    plan->count++;
}

static void notes_collect(struct plan *plan) {
    struct history_walk walk;
    for (history_walk_open(&walk, plan->txn, HISTORY_KEYS, plan->answer->at); walk.valid; history_walk_next(&walk)) {
        struct slice rest = walk.row.notes;
        struct store_before before;
        while (store_journal_next(&rest, &before))
            if (before.table == KV_TABLE_KEYS && may_be_meant(plan, before.key)) note_add(plan, &before);
        if (rest.size) store_fail(plan->txn, CO_CORRUPT);
    }
    history_walk_close(&walk);
}

/* By key; notes of one key by age, the oldest first. */
static int noted_compare(const void *a, const void *b) {
    const struct noted *one = a, *other = b;
    int order = slice_compare(one->store_key, other->store_key);
    return order ? order : (one->order > other->order) - (one->order < other->order);
}

/* -- the plan ----------------------------------------------------------------------------------------------------- */

/* False: the plan would change more than one entry may. */
static bool change_add(struct plan *plan, const struct kv_record *was, const struct kv_record *now) {
    Pb__KvRestoreAnswer *answer = plan->answer;
    const struct kv_record *shown = was ? was : now;
    plan->bytes += shown->key.size + (was ? was->value.size : 0) + (now ? now->value.size : 0);
    if (answer->n_changes == KV_RESTORE_KEYS_MAX || plan->bytes > KV_RESTORE_BYTES_MAX) {
        answer->too_large = true;
        return false;
    }
    if (answer->n_changes == plan->changes_room) {
        plan->changes_room = plan->changes_room ? 2 * plan->changes_room : 16;
        Pb__KvRestoreChange **wider = arena_alloc(plan->arena, plan->changes_room * sizeof *wider);
        if (answer->n_changes) memcpy(wider, answer->changes, answer->n_changes * sizeof *wider);
        answer->changes = wider;
    }
    Pb__KvRestoreChange *change = arena_alloc(plan->arena, sizeof *change);
    pb__kv_restore_change__init(change);
    change->key = message_bytes(slice_copy(plan->arena, shown->key)); /* the map does not outlive the first write */
    change->remove = !was;
    if (was) change->value = message_bytes(slice_copy(plan->arena, was->value)), change->flags = was->flags;
    answer->changes[answer->n_changes++] = change;
    *(was ? &answer->set : &answer->removed) += 1;
    return true;
}

/* Adds the key of the note to the plan, with its past and its present record. False: there is too much. */
static bool judge(struct plan *plan, const struct noted *noted) {
    struct kv_record was, now;
    struct slice bytes, wanted = message_slice(plan->command->key);
    int rv = store_get(plan->txn, KV_TABLE_KEYS, noted->store_key, &bytes);
    bool there = rv == CO_OK;
    if (there) rv = kv_record_decode(noted->store_key, bytes, &now);
    else if (rv == CO_NOTFOUND) rv = CO_OK;
    if (rv == CO_OK && noted->existed) rv = kv_record_decode(noted->store_key, noted->bytes, &was);
    if (rv != CO_OK) {
        store_fail(plan->txn, CO_CORRUPT);
        return false;
    }
    if (!there && !noted->existed) return true;
    struct slice key = there ? now.key : was.key;
    if (plan->command->recurse ? !slice_starts(key, wanted) : !slice_equal(key, wanted)) return true;
    if (noted->existed && there && was.flags == now.flags && slice_equal(was.value, now.value)) return true;
    if (!noted->existed && !plan->command->recurse && !plan->command->remove) return true; /* `absent` says so */
    return change_add(plan, noted->existed ? &was : NULL, there ? &now : NULL);
}

/* Did the key exist at the moment? */
static bool was_there(const struct plan *plan) {
    char room[KV_STORE_KEY_MAX];
    struct slice key = message_slice(plan->command->key);
    struct kv_record record;
    bool taken;
    if (plan->count) return plan->noted[0].existed;
    return kv_record_get(plan->txn, kv_store_key(key, room), key, &record, &taken) == CO_OK;
}

/* `present`: the newest entry that counts. CO_OK: the answer has the whole plan, in the order of the keys. */
static int plan_make(struct store_txn *txn, const Pb__KvRestoreCommand *command, struct history_place present,
                     struct arena *arena, Pb__KvRestoreAnswer *answer) {
    pb__kv_restore_answer__init(answer);
    struct history_place floor = history_floor_place(txn, HISTORY_KEYS);
    answer->off = floor.index == UINT64_MAX;
    if (answer->off) return store_txn_error(txn);
    answer->floor = floor.index, answer->floor_unix_ms = floor.unix_ms;
    answer->index = present.index, answer->unix_ms = present.unix_ms;
    struct history_moment moment = kv_moment(command->at);
    int rv = history_moment(txn, HISTORY_KEYS, &moment, present, &answer->at);
    answer->verdict = kv_moment_verdict(rv);
    if (rv != CO_OK) return rv == CO_GONE || rv == CO_INVALID ? CO_OK : rv;
    struct plan plan = {.txn = txn, .arena = arena, .command = command, .answer = answer};
    notes_collect(&plan);
    if (plan.count > 1) qsort(plan.noted, plan.count, sizeof *plan.noted, noted_compare);
    answer->absent = !command->recurse && !was_there(&plan);
    for (size_t i = 0; i < plan.count; i++) {
        if (i > 0 && slice_equal(plan.noted[i].store_key, plan.noted[i - 1].store_key)) continue;
        if (!judge(&plan, &plan.noted[i])) break;
    }
    free(plan.noted);
    if (answer->too_large) answer->n_changes = 0, answer->set = answer->removed = 0;
    CHECK(answer->n_changes <= KV_RESTORE_KEYS_MAX && answer->set + answer->removed == answer->n_changes);
    return store_txn_error(txn);
}

static bool key_fits(const Pb__KvRestoreCommand *command) {
    struct slice key = message_slice(command->key);
    if (key.size == 0) return command->recurse;
    return key.size <= KV_KEY_MAX && !memchr(key.data, 0, key.size);
}

/* -- the command -------------------------------------------------------------------------------------------------- */

/* Carries out all changes, or none. */
static int carry_out(struct machine_tx *tx, const Pb__KvRestoreAnswer *answer, bool dry_run,
                     struct machine_result *result) {
    CHECK(!answer->too_large && !answer->off);
    struct machine_point point = machine_point_set(tx);
    int rv = CO_OK;
    for (size_t i = 0; i < answer->n_changes && rv == CO_OK && !result->error; i++) {
        const Pb__KvRestoreChange *change = answer->changes[i];
        struct slice key = message_slice(change->key);
        rv = change->remove ? kv_restore_remove(tx, key, result)
                            : kv_restore_set(tx, key, message_slice(change->value), change->flags, result);
        if (rv == CO_OK && result->error)
            result->text = arena_printf(tx->arena, "%.*s: %s; nothing was restored",
                                        key.size < 200 ? (int)key.size : 200, key.data, result->text);
    }
    if (rv == CO_OK && !result->error && !dry_run) machine_point_keep(tx);
    else machine_point_back(tx, &point);
    return rv;
}

int kv_restore_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__KvRestoreCommand *command = request;
    if (!key_fits(command)) return machine_refuse(result, CO_INVALID, "restore: no key has such a name");
    Pb__KvRestoreAnswer *answer = arena_alloc(tx->arena, sizeof *answer);
    const struct history_place present = {tx->index - 1, tx->unix_ms};
    int rv = plan_make(tx->store, command, present, tx->arena, answer);
    if (rv == CO_OK && answer->n_changes) rv = carry_out(tx, answer, command->dry_run, result);
    if (rv != CO_OK || result->error) return rv;
    result->yes = answer->n_changes > 0;
    if (!command->dry_run) answer->n_changes = 0; /* the answer has their number, which is enough */
    result->message = &answer->base;
    return CO_OK;
}
