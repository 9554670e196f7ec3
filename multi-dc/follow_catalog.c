/* The follower of a region's catalog (multi-dc/copy.h): its table, and the functions in it. An answer with few rows becomes one command,
 * a larger one the parts of a stage, which is then committed and tidied. For a complete answer our copy's keys are read
 * first, so that what the region does not have is removed. */
#include "base/check.h"
#include "base/message.h"
#include "multi-dc/copy_age.h"
#include "multi-dc/follow_catalog_answer.h"
#include "multi-dc/follower_kind.h"

METRIC updates_metric = {
    .name = "coord_region_copy_updates_total",
    .help = "changes of other regions' catalogs that this server proposed as leader and that were taken",
    .type = METRIC_COUNTER};

struct catalog {
    struct follower base;
    char region[COPY_REGION_MAX + 1];
    uint64_t changed; /* index of the region's last change, by its last answer */
    uint64_t instances, stage;
    struct answer answer; /* in the memory of base.answer */
    bool commits;         /* the stage's commit is proposed, or has been */
    struct copy_age age;
    bool looks_at_copy; /* the next look is at our copy; */
    uint64_t moment;    /* on the leader: to be compared with what was known when this was asked. 0: not to be */
};

static struct catalog *catalog_of(struct follower *follower) { return CONTAINER_OF(follower, struct catalog, base); }
static const struct catalog *catalog_of_const(const struct follower *follower) {
    return CONTAINER_OF(follower, const struct catalog, base);
}

struct follower *follow_catalog(const char *region) {
    struct catalog *catalog = mem_zalloc(sizeof *catalog);
    CHECK(copy_region_good(region));
    memcpy(catalog->region, region, strlen(region) + 1);
    copy_age_begin(&catalog->age);
    follower_begin(&catalog->base, &follow_kind_catalog);
    return &catalog->base;
}

static size_t rows_most(const struct follower *follower) {
    CHECK(follower->rows_most <= COPY_ROWS_MOST);
    return follower->rows_most ? follower->rows_most : COPY_ROWS_MOST;
}

/* -- our copy ----------------------------------------------------------------------------------------------------- */

static const ProtobufCMessage *read(struct follower *follower) {
    Pb__CopyRequest *request = FOLLOW_MESSAGE(&follower->message, Pb__CopyRequest, pb__copy_request__init);
    request->region = catalog_of(follower)->region, request->keys = follower->to != NULL;
    return &request->base;
}

/* The answer fits only the copy as it was when the region was asked. */
static bool as_it_was(const struct follower *follower, const Pb__CopyRegion *record) {
    if (!record) return !follower->has;
    return record->state == PB__COPY_STATE__COPY_SETTLED &&
           copy_same_at(record->at, follower->has ? &follower->copied : NULL);
}

static int compared(struct catalog *catalog, const Pb__CopyResult *result, enum follow_step *next) {
    struct follower *follower = &catalog->base;
    struct answer *answer = &catalog->answer;
    if (!as_it_was(follower, result->region)) return CO_CONFLICT;
    answer_compare(answer, catalog->region, result->keys, result->n_keys);
    bool same = answer_empty(answer) && copy_same_life(follower->to, &follower->reached);
    if (same) answer_no_rows(answer);
    *next = same ? FOLLOW_SAME : FOLLOW_PROPOSE;
    return CO_OK;
}

static int was_read(struct follower *follower, const ProtobufCMessage *own, enum follow_step *next) {
    struct catalog *catalog = catalog_of(follower);
    const Pb__CopyResult *result = (const Pb__CopyResult *)own;
    const Pb__CopyRegion *record = result->region;
    if (follower->to) return compared(catalog, result, next);
    if (record && record->state == PB__COPY_STATE__COPY_FORGETTING) return CO_CONFLICT; /* until the copy is gone */
    catalog->instances = record ? record->counts->instances : 0;
    catalog->stage = record ? record->stage : 0;
    follower->has = false, follower->marked_ms = follower->now_ms;
    if (record && record->at) follower_moved(follower, record->at);
    *next = record && record->state != PB__COPY_STATE__COPY_SETTLED ? FOLLOW_PROPOSE : FOLLOW_ASK;
    return CO_OK;
}

/* -- the region --------------------------------------------------------------------------------------------------- */

/* The region's catalog has changed since, but nothing in it that copies have. */
static bool is_unmarked(const struct follower *follower) {
    return follower->has && catalog_of_const(follower)->changed > follower->copied.index;
}

static uint64_t mark_ms(const struct follower *follower) {
    return is_unmarked(follower) ? FOLLOW_CATALOG_MARK_MS : FOLLOWER_MARK_MS;
}

static void ask(struct follower *follower, struct follower_effect *effect) {
    Pb__CatalogChangesRequest *request =
        FOLLOW_MESSAGE(&follower->message, Pb__CatalogChangesRequest, pb__catalog_changes_request__init);
    if (follower->has) request->from = &follower->reached, effect->index = follower->reached.index;
    effect->wait_ms = is_unmarked(follower) ? FOLLOW_CATALOG_MARK_MS : FOLLOW_CATALOG_WAIT_MS;
    effect->large = !follower->has;
    effect->message = &request->base;
}

static int take(struct follower *follower) {
    struct catalog *catalog = catalog_of(follower);
    const Pb__CatalogChangesResult *changes = (const Pb__CatalogChangesResult *)follower->answer;
    catalog->commits = false;
    int error = answer_take(&catalog->answer, &follower->arena, catalog->region, changes);
    if (!error) follower->to = changes->to;
    return error;
}

/* index: of the last change. A complete answer has the whole catalog, and does not tell whether it has changed. */
static bool has_news(const struct catalog *catalog, uint64_t index) {
    const struct follower *follower = &catalog->base;
    if (!follower->has || !copy_same_life(follower->to, &follower->reached)) return true;
    return index > follower->reached.index && (catalog->answer.changes->complete || !answer_empty(&catalog->answer));
}

static int judge(struct follower *follower, uint64_t index, enum follow_step *next) {
    struct catalog *catalog = catalog_of(follower);
    bool news = has_news(catalog, index);
    catalog->changed = index;
    if (!news) answer_no_rows(&catalog->answer);
    bool compares = catalog->answer.changes->complete && catalog->instances;
    *next = !news ? FOLLOW_SAME : compares ? FOLLOW_COMPARE : FOLLOW_PROPOSE;
    return CO_OK;
}

/* -- proposals ---------------------------------------------------------------------------------------------------- */

static Pb__CatalogAt *from(struct follower *follower) { return follower->has ? &follower->copied : NULL; }
static Pb__CatalogAt *to(const struct catalog *catalog) { return catalog->answer.changes->to; }

static const ProtobufCMessage *update(struct catalog *catalog) {
    struct follower *follower = &catalog->base;
    const struct answer *answer = &catalog->answer;
    Pb__CopyUpdateCommand *command =
        FOLLOW_MESSAGE(&follower->message, Pb__CopyUpdateCommand, pb__copy_update_command__init);
    command->region = catalog->region, command->from = from(follower), command->to = to(catalog);
    command->entries = answer->entries, command->n_entries = answer->n_entries;
    command->removed = answer->removed, command->n_removed = answer->n_removed;
    return &command->base;
}

static const ProtobufCMessage *part(struct catalog *catalog) {
    struct follower *follower = &catalog->base;
    Pb__CopyStageCommand *command =
        FOLLOW_MESSAGE(&follower->message, Pb__CopyStageCommand, pb__copy_stage_command__init);
    command->region = catalog->region, command->from = from(follower), command->to = to(catalog);
    command->stage = catalog->answer.parts ? catalog->stage : 0;
    answer_part(&catalog->answer, rows_most(follower), command);
    return &command->base;
}

static const ProtobufCMessage *commit(struct catalog *catalog) {
    struct follower *follower = &catalog->base;
    Pb__CopyCommitCommand *command =
        FOLLOW_MESSAGE(&follower->message, Pb__CopyCommitCommand, pb__copy_commit_command__init);
    command->region = catalog->region, command->from = from(follower), command->to = to(catalog);
    command->stage = catalog->stage, command->parts = catalog->answer.parts;
    return &command->base;
}

static const ProtobufCMessage *tidy(struct catalog *catalog) {
    Pb__CopyTidyCommand *command =
        FOLLOW_MESSAGE(&catalog->base.message, Pb__CopyTidyCommand, pb__copy_tidy_command__init);
    command->region = catalog->region, command->stage = catalog->stage;
    return &command->base;
}

static void propose(struct follower *follower, struct follower_effect *effect) {
    struct catalog *catalog = catalog_of(follower);
    const struct answer *answer = &catalog->answer;
    if (!follower->to) {
        effect->command = COPY_TIDY, effect->message = tidy(catalog);
    } else if (!answer->parts && answer_is_small(answer, rows_most(follower))) {
        effect->command = COPY_UPDATE, effect->message = update(catalog);
    } else if (!answer_told(answer)) {
        effect->command = COPY_STAGE, effect->message = part(catalog);
    } else {
        catalog->commits = true;
        effect->command = COPY_COMMIT, effect->message = commit(catalog);
    }
}

static enum follow_step proposed(struct follower *follower, bool yes, uint64_t index) {
    struct catalog *catalog = catalog_of(follower);
    if (!follower->to) return yes ? FOLLOW_ASK : FOLLOW_PROPOSE; /* tidied: all of it, or some rows */
    if (catalog->answer.parts == 1 && !catalog->commits) catalog->stage = index;
    if (catalog->answer.parts && !catalog->commits) return FOLLOW_PROPOSE;
    follower_moved(follower, follower->to);
    follower_confirm(follower, follower->as_of_ms);
    follower->current = true, follower->taken++;
    catalog->instances = 1; /* the copy may have some, for the comparison with the region's */
    follower_drop_answer(follower);
    return catalog->commits ? FOLLOW_PROPOSE : FOLLOW_ASK_LATER;
}

/* -- looks -------------------------------------------------------------------------------------------------------- */

static bool look(struct follower *follower, struct follower_effect *effect) {
    struct catalog *catalog = catalog_of(follower);
    if (catalog->looks_at_copy) {
        Pb__CopyRequest *request = FOLLOW_MESSAGE(&follower->look_message, Pb__CopyRequest, pb__copy_request__init);
        request->region = catalog->region, catalog->looks_at_copy = false;
        effect->wish = FOLLOWER_READS, effect->query = &query_copy, effect->message = &request->base;
        return true;
    }
    if (!copy_age_asks(&catalog->age, follower->now_ms)) return false;
    effect->wish = FOLLOWER_ASKS, effect->query = &query_catalog_position;
    effect->message = &FOLLOW_MESSAGE(&follower->look_message, Pb__TableRequest, pb__table_request__init)->base;
    return true;
}

/* The leader's follower knows what our copy equals, if nobody else changed it; another server looks it up. Both look
 * into their own store. A proposal finds out by itself whether our copy is another one than before, as it is after our
 * own region was restored from a backup; while the region has no news, nothing else would tell. */
static void looked_at_region(struct catalog *catalog, const Pb__CatalogAt *at, const struct follower_answer *answer) {
    struct follower *follower = &catalog->base;
    copy_age_answered(&catalog->age, at, answer->round_ns, follower->now_ms);
    if (!follower->leads) {
        copy_age_heard(&catalog->age, at, answer->as_of_ms);
        catalog->looks_at_copy = true;
        return;
    }
    bool is_read = follower->phase != FOLLOWER_READS || follower->to;
    bool same = follower->has && copy_same_life(at, &follower->reached) && at->index <= follower->reached.index;
    if (is_read && same) follower_confirm(follower, answer->as_of_ms);
    else if (is_read && follower->has) follower->current = false;
    catalog->moment = follower->phase == FOLLOWER_ASKS ? follower->awaited : 0;
    catalog->looks_at_copy = catalog->moment;
}

static void looked_at_copy(struct catalog *catalog, const Pb__CopyRegion *record) {
    struct follower *follower = &catalog->base;
    if (follower->leads) {
        bool stands = catalog->moment && catalog->moment == follower->awaited;
        if (!stands || as_it_was(follower, record)) return;
        follower_set_back(follower, follower->now_ms);
    }
    copy_age_seen(&catalog->age, record ? record->at : NULL, follower->leads);
}

static void looked(struct follower *follower, const ProtobufCMessage *result, const struct follower_answer *answer) {
    struct catalog *catalog = catalog_of(follower);
    if (result->descriptor == &pb__copy_result__descriptor)
        looked_at_copy(catalog, ((const Pb__CopyResult *)result)->region);
    else looked_at_region(catalog, (const Pb__CatalogAt *)result, answer);
}

static void state(const struct follower *follower, struct follower_state *state) {
    const struct copy_age *age = &catalog_of_const(follower)->age;
    if (age->confirmed_ms > state->confirmed_ms) state->confirmed_ms = age->confirmed_ms;
    state->newest = age->newest, state->heard_ms = age->answered_ms, state->round_us = copy_age_round_us(age);
    state->position = follower->leads ? follower->reached.index : age->position;
}

const struct follow_kind follow_kind_catalog = {.name = "catalog",
                                                .taken = &updates_metric,
                                                .own = &query_copy,
                                                .source = &query_catalog_changes,
                                                .read = read,
                                                .was_read = was_read,
                                                .ask = ask,
                                                .take = take,
                                                .judge = judge,
                                                .propose = propose,
                                                .proposed = proposed,
                                                .mark_ms = mark_ms,
                                                .look = look,
                                                .looked = looked,
                                                .state = state};
