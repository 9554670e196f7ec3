/* The decisions of a follower. */
#include "multi-dc/follower.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "multi-dc/follower_answer.h"

/* In their order; TIDY may come right after READ. */
enum phase {
    PHASE_READ, /* reads our copy's record */
    PHASE_ASK,  /* asks the region */
    PHASE_KEYS, /* reads the keys of our copy */
    PHASE_TAKE, /* proposes the answer, in one command or in parts */
    PHASE_COMMIT,
    PHASE_TIDY,
};
static const char *const phase_texts[] = {"reading", "asking", "comparing", "taking", "taking", "tidying"};

struct follower {
    char region[COPY_REGION_MAX + 1];
    size_t rows_most;
    bool leads, linked;
    enum phase phase;
    uint64_t ticket;
    bool under_way;
    uint64_t not_before_ms, again_ms, marked_ms;
    int error;
    /* Our copy equals the region's catalog at `copied`, and the region's catalog at `reached` is the same. */
    bool has; /* there is a copy */
    Pb__CatalogAt copied, reached;
    uint64_t changed; /* index of the region's last change, by its last answer */
    uint64_t instances, stage;
    /* The answer that is being proposed. */
    struct answer answer;
    uint64_t answer_as_of_ms;
    struct arena message; /* memory of the present proposal */
    uint64_t confirmed_ms, taken;
    bool current;
};

struct follower *follower_new(const char *region) {
    struct follower *follower = mem_zalloc(sizeof *follower);
    CHECK(copy_region_good(region));
    memcpy(follower->region, region, strlen(region) + 1);
    pb__catalog_at__init(&follower->copied);
    follower->reached = follower->copied;
    follower->linked = true;
    follower->rows_most = COPY_ROWS_MOST;
    return follower;
}

void follower_free(struct follower *follower) {
    if (!follower) return;
    answer_drop(&follower->answer);
    arena_free(&follower->message);
    free(follower);
}

void follower_rows_most(struct follower *follower, size_t rows) {
    CHECK(rows > 0 && rows <= COPY_ROWS_MOST);
    follower->rows_most = rows;
}

/* -- state -------------------------------------------------------------------------------------------------------- */

static void enter(struct follower *follower, enum phase phase) {
    CHECK(follower->answer.changes || phase == PHASE_READ || phase == PHASE_ASK || phase == PHASE_TIDY);
    follower->phase = phase;
    follower->under_way = false;
    if (phase == PHASE_READ || phase == PHASE_ASK) answer_drop(&follower->answer);
}

static void went_well(struct follower *follower) { follower->error = CO_OK, follower->again_ms = 0; }

static void failed(struct follower *follower, enum phase phase, int error, uint64_t now_ms) {
    enter(follower, phase);
    follower->error = error;
    uint64_t again_ms = follower->again_ms ? 2 * follower->again_ms : FOLLOWER_AGAIN_LEAST_MS;
    follower->again_ms = again_ms < FOLLOWER_AGAIN_MOST_MS ? again_ms : FOLLOWER_AGAIN_MOST_MS;
    CHECK(error && follower->again_ms >= FOLLOWER_AGAIN_LEAST_MS);
    follower->not_before_ms = now_ms + follower->again_ms;
}

void follower_leads(struct follower *follower, bool leads, uint64_t now_ms) {
    if (follower->leads == leads) return;
    follower->leads = leads;
    enter(follower, PHASE_READ);
    follower->current = false;
    follower->not_before_ms = now_ms, follower->again_ms = 0;
}

void follower_linked(struct follower *follower, bool linked, uint64_t now_ms) {
    if (follower->linked == linked) return;
    follower->linked = linked;
    if (follower->phase != PHASE_ASK) return; /* the other phases only need our own region */
    follower->under_way = false;
    follower->not_before_ms = now_ms, follower->again_ms = 0;
}

static bool is_present(const struct follower *follower, uint64_t ticket) {
    return follower->under_way && ticket == follower->ticket;
}

static void confirm(struct follower *follower, uint64_t as_of_ms) {
    if (as_of_ms > follower->confirmed_ms) follower->confirmed_ms = as_of_ms;
}

/* -- the next step ------------------------------------------------------------------------------------------------ */

static Pb__CatalogAt *at_in(struct follower *follower, const Pb__CatalogAt *at) {
    return (Pb__CatalogAt *)message_copy(&follower->message, &at->base);
}

static Pb__CatalogAt *from_in(struct follower *follower) {
    return follower->has ? at_in(follower, &follower->copied) : NULL;
}

#define MESSAGE(follower, type)                                               \
    ({                                                                        \
        type *message_ = arena_alloc(&(follower)->message, sizeof *message_); \
        message_;                                                             \
    })

static void propose_update(struct follower *follower, struct follower_effect *effect) {
    Pb__CopyUpdateCommand *command = MESSAGE(follower, Pb__CopyUpdateCommand);
    const struct answer *answer = &follower->answer;
    CHECK(answer->changes && answer->changes->to && answer_is_small(answer, follower->rows_most));
    pb__copy_update_command__init(command);
    command->region = follower->region;
    command->from = from_in(follower), command->to = answer->changes->to;
    command->entries = answer->changes->entries, command->n_entries = answer->changes->n_entries;
    command->removed = answer->removed, command->n_removed = answer->n_removed;
    effect->command = COPY_UPDATE, effect->message = &command->base;
}

static void propose_part(struct follower *follower, struct follower_effect *effect) {
    Pb__CopyStageCommand *command = MESSAGE(follower, Pb__CopyStageCommand);
    CHECK(follower->answer.changes && !answer_told(&follower->answer));
    pb__copy_stage_command__init(command);
    command->region = follower->region;
    command->from = from_in(follower), command->to = follower->answer.changes->to;
    command->stage = follower->answer.parts ? follower->stage : 0;
    answer_part(&follower->answer, follower->rows_most, command);
    effect->command = COPY_STAGE, effect->message = &command->base;
}

static void propose_commit(struct follower *follower, struct follower_effect *effect) {
    Pb__CopyCommitCommand *command = MESSAGE(follower, Pb__CopyCommitCommand);
    pb__copy_commit_command__init(command);
    command->region = follower->region, command->stage = follower->stage, command->parts = follower->answer.parts;
    command->from = from_in(follower), command->to = follower->answer.changes->to;
    effect->command = COPY_COMMIT, effect->message = &command->base;
}

static void propose_tidy(struct follower *follower, struct follower_effect *effect) {
    Pb__CopyTidyCommand *command = MESSAGE(follower, Pb__CopyTidyCommand);
    pb__copy_tidy_command__init(command);
    command->region = follower->region, command->stage = follower->stage;
    effect->command = COPY_TIDY, effect->message = &command->base;
}

/* The region's catalog has changed since, but nothing in it that copies have. */
static bool is_unmarked(const struct follower *follower) {
    return follower->has && follower->changed > follower->copied.index;
}

static void ask(struct follower *follower, struct follower_effect *effect) {
    effect->wish = FOLLOWER_ASKS;
    pb__catalog_changes_request__init(&effect->ask);
    if (follower->has) effect->ask.from = &follower->reached;
    effect->index = follower->has ? follower->reached.index : 0;
    effect->wait_ms = is_unmarked(follower) ? FOLLOWER_MARK_SOON_MS : FOLLOWER_WAIT_MS;
    effect->large = !follower->has;
}

static void begin(struct follower *follower, struct follower_effect *effect) {
    bool keys = follower->phase == PHASE_KEYS;
    CHECK(follower->leads && !follower->under_way);
    arena_reset(&follower->message);
    effect->wish = FOLLOWER_PROPOSES;
    switch (follower->phase) {
        case PHASE_READ:
        case PHASE_KEYS:
            effect->wish = FOLLOWER_READS;
            pb__copy_request__init(&effect->read);
            effect->read.region = follower->region, effect->read.keys = keys;
            break;
        case PHASE_ASK: ask(follower, effect); break;
        case PHASE_TAKE:
            if (!follower->answer.parts && answer_is_small(&follower->answer, follower->rows_most))
                propose_update(follower, effect);
            else propose_part(follower, effect);
            break;
        case PHASE_COMMIT: propose_commit(follower, effect); break;
        case PHASE_TIDY: propose_tidy(follower, effect); break;
    }
    effect->ticket = ++follower->ticket;
    follower->under_way = true;
}

void follower_next(struct follower *follower, uint64_t now_ms, struct follower_effect *effect) {
    *effect = (struct follower_effect){.wish = FOLLOWER_RESTS, .until_ms = UINT64_MAX};
    bool stands = !follower->leads || follower->under_way || (follower->phase == PHASE_ASK && !follower->linked);
    if (!stands && now_ms < follower->not_before_ms) effect->until_ms = follower->not_before_ms;
    else if (!stands) begin(follower, effect);
}

/* -- our copy ----------------------------------------------------------------------------------------------------- */

static void learn(struct follower *follower, const Pb__CopyRegion *record, uint64_t now_ms) {
    follower->has = record && record->at;
    follower->instances = record ? record->counts->instances : 0;
    follower->stage = record ? record->stage : 0;
    if (follower->has) {
        follower->copied = (Pb__CatalogAt)PB__CATALOG_AT__INIT;
        follower->copied.cluster_id = record->at->cluster_id, follower->copied.restored = record->at->restored;
        follower->copied.index = record->at->index;
    }
    follower->reached = follower->copied;
    follower->marked_ms = now_ms;
}

/* The answer fits only the copy as it was when the region was asked. */
static bool as_it_was(const struct follower *follower, const Pb__CopyRegion *record) {
    if (!record) return !follower->has;
    return record->state == PB__COPY_STATE__COPY_SETTLED &&
           copy_same_at(record->at, follower->has ? &follower->copied : NULL);
}

static bool wants_mark(const struct follower *follower, uint64_t now_ms) {
    uint64_t least_ms = is_unmarked(follower) ? FOLLOWER_MARK_SOON_MS : FOLLOWER_MARK_MS;
    return follower->reached.index > follower->copied.index && now_ms - follower->marked_ms >= least_ms;
}

/* Only the index has moved. */
static void no_news(struct follower *follower, uint64_t now_ms) {
    const Pb__CatalogAt *to = follower->answer.changes->to;
    CHECK(to->index >= follower->reached.index); /* goes_back() was asked before */
    follower->reached.index = to->index;
    confirm(follower, follower->answer_as_of_ms);
    follower->current = true;
    went_well(follower);
    answer_no_rows(&follower->answer);
    bool mark = wants_mark(follower, now_ms);
    enter(follower, mark ? PHASE_TAKE : PHASE_ASK);
    if (!mark) follower->not_before_ms = now_ms + FOLLOWER_PACE_MS;
}

static void compared(struct follower *follower, const Pb__CopyResult *result, uint64_t now_ms) {
    if (!as_it_was(follower, result->region)) {
        failed(follower, PHASE_READ, CO_CONFLICT, now_ms);
        return;
    }
    CHECK(follower->answer.changes && follower->answer.changes->complete);
    struct answer *answer = &follower->answer;
    answer_compare(answer, follower->region, result->keys, result->n_keys);
    if (answer_empty(answer) && copy_same_life(answer->changes->to, &follower->reached)) no_news(follower, now_ms);
    else enter(follower, PHASE_TAKE);
}

void follower_read(struct follower *follower, uint64_t ticket, int error, const Pb__CopyResult *result,
                   uint64_t now_ms) {
    if (!is_present(follower, ticket)) return;
    const Pb__CopyRegion *record = error ? NULL : result->region;
    if (error) {
        failed(follower, PHASE_READ, error, now_ms);
    } else if (follower->phase == PHASE_KEYS) {
        compared(follower, result, now_ms);
    } else if (record && record->state == PB__COPY_STATE__COPY_FORGETTING) {
        failed(follower, PHASE_READ, CO_CONFLICT, now_ms); /* until the copy is gone */
    } else {
        learn(follower, record, now_ms);
        enter(follower, record && record->state != PB__COPY_STATE__COPY_SETTLED ? PHASE_TIDY : PHASE_ASK);
    }
}

/* -- the region --------------------------------------------------------------------------------------------------- */

static bool goes_back(const struct follower *follower, const Pb__CatalogAt *to) {
    if (!follower->has) return false;
    if (follower->reached.cluster_id && !to->cluster_id) return true; /* it does not know its cluster yet */
    return to->cluster_id == follower->reached.cluster_id && to->index < follower->reached.index;
}

/* index: of the last change. A complete answer has the whole catalog, and does not tell whether it has changed. */
static bool has_news(const struct follower *follower, const Pb__CatalogAt *to, uint64_t index) {
    if (!follower->has || !copy_same_life(to, &follower->reached)) return true;
    return index > follower->reached.index && (follower->answer.changes->complete || !answer_empty(&follower->answer));
}

void follower_answered(struct follower *follower, uint64_t ticket, int error, struct slice records, uint64_t index,
                       uint64_t as_of_ms, uint64_t now_ms) {
    if (!is_present(follower, ticket)) return;
    CHECK(follower->phase == PHASE_ASK);
    struct answer *answer = &follower->answer;
    if (!error) error = answer_take(answer, follower->region, records);
    const Pb__CatalogAt *to = error ? NULL : answer->changes->to;
    follower->answer_as_of_ms = as_of_ms;
    if (!error) follower->changed = index;
    if (error) {
        failed(follower, PHASE_ASK, error, now_ms);
    } else if (goes_back(follower, to)) {
        enter(follower, PHASE_ASK);
        follower->not_before_ms = now_ms + FOLLOWER_AGAIN_LEAST_MS;
    } else if (!has_news(follower, to, index)) {
        no_news(follower, now_ms);
    } else {
        follower->current = false;
        enter(follower, answer->changes->complete && follower->instances ? PHASE_KEYS : PHASE_TAKE);
    }
}

void follower_heard(struct follower *follower, const Pb__CatalogAt *position, uint64_t as_of_ms) {
    if (!follower->leads || !follower->has || follower->phase == PHASE_READ) return;
    bool same = copy_same_life(position, &follower->reached);
    if (same && position->index <= follower->reached.index) confirm(follower, as_of_ms);
    else follower->current = false;
}

uint64_t follower_moment(const struct follower *follower) {
    return follower->phase == PHASE_ASK && follower->under_way ? follower->ticket : 0;
}

bool follower_compared(struct follower *follower, uint64_t moment, const Pb__CopyResult *ours, uint64_t now_ms) {
    if (!moment || moment != follower_moment(follower) || as_it_was(follower, ours->region)) return false;
    enter(follower, PHASE_READ);
    follower->current = false;
    follower->confirmed_ms = 0;
    follower->not_before_ms = now_ms;
    return true;
}

/* -- proposals ---------------------------------------------------------------------------------------------------- */

static void taken(struct follower *follower, enum phase phase, uint64_t now_ms) {
    const Pb__CatalogAt *to = follower->answer.changes->to;
    CHECK(follower->phase == PHASE_TAKE || follower->phase == PHASE_COMMIT);
    follower->copied.cluster_id = to->cluster_id, follower->copied.restored = to->restored;
    follower->copied.index = to->index;
    follower->reached = follower->copied;
    follower->has = follower->current = true;
    follower->instances = 1; /* the copy may have some, for the comparison with the region's */
    follower->marked_ms = now_ms;
    follower->taken++;
    confirm(follower, follower->answer_as_of_ms);
    enter(follower, phase);
    follower->not_before_ms = phase == PHASE_ASK ? now_ms + FOLLOWER_PACE_MS : now_ms;
}

void follower_proposed(struct follower *follower, uint64_t ticket, int error, int refused, bool yes, uint64_t index,
                       uint64_t now_ms) {
    if (!is_present(follower, ticket)) return;
    struct answer *answer = &follower->answer;
    if (error || refused) {
        failed(follower, PHASE_READ, error ? error : refused, now_ms);
        return;
    }
    went_well(follower);
    follower->under_way = false;
    switch (follower->phase) {
        case PHASE_TAKE:
            if (answer->parts == 0) {
                taken(follower, PHASE_ASK, now_ms);
                break;
            }
            CHECK(answer->entries_done + answer->removed_done > 0);
            if (answer->parts == 1) follower->stage = index;
            if (answer_told(answer)) enter(follower, PHASE_COMMIT);
            break;
        case PHASE_COMMIT: taken(follower, PHASE_TIDY, now_ms); break;
        case PHASE_TIDY:
            if (yes) enter(follower, PHASE_ASK);
            break;
        case PHASE_READ:
        case PHASE_ASK:
        case PHASE_KEYS: CHECK(!"a proposal is under way"); break;
    }
}

void follower_state(const struct follower *follower, struct follower_state *state) {
    *state = (struct follower_state){.follows = follower->leads && follower->linked && follower->phase != PHASE_READ,
                                     .current = follower->current,
                                     .reached = follower->reached,
                                     .confirmed_ms = follower->confirmed_ms,
                                     .taken = follower->taken,
                                     .error = follower->error,
                                     .doing = follower->leads ? phase_texts[follower->phase] : "resting"};
}
