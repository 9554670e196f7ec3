/* Commands of the copies. */
#include "base/message.h"
#include "multi-dc/copy_internal.h"
#include "multi-dc/failover.h"

#define SETTLED    PB__COPY_STATE__COPY_SETTLED
#define STAGING    PB__COPY_STATE__COPY_STAGING
#define TIDYING    PB__COPY_STATE__COPY_TIDYING
#define FORGETTING PB__COPY_STATE__COPY_FORGETTING

static const struct slice no_name = {"", 0};

/* The copy that a command changes, read before anything is written. */
struct work {
    struct machine_tx *tx;
    struct machine_result *result;
    Pb__CopyRegion *region; /* from the store, or new */
    bool made;
    Pb__ServiceEntry **entries;
};

static int refuse(const struct work *work, int error, const char *text) {
    return machine_refuse(work->result, error, text);
}

/* Reads the record, or makes a new one. CO_NOTFOUND: the region's name is invalid, and `result` refuses. Else the
 * store's error. */
static int work_begin(struct work *work, const char *name) {
    struct arena *arena = work->tx->arena;
    if (!copy_region_good(name)) {
        (void)refuse(work, CO_INVALID, "no name of a region");
        return CO_NOTFOUND;
    }
    int error = copy_region_get(work->tx->store, name, arena, &work->region);
    if (error != CO_NOTFOUND) return error;
    Pb__CopyRegion *region = work->region = arena_alloc(arena, sizeof *region);
    pb__copy_region__init(region);
    region->region = (char *)(uintptr_t)name;
    region->counts = arena_alloc(arena, 2 * sizeof *region->counts);
    region->staged = region->counts + 1;
    pb__copy_counts__init(region->counts);
    pb__copy_counts__init(region->staged);
    work->made = true;
    return CO_OK;
}

static void put_region(const struct work *work) {
    char room[STORE_KEY_MAX];
    struct machine_tx *tx = work->tx;
    CHECK(work->region->counts && work->region->staged && work->region->modify_index <= tx->index);
    work->region->modify_index = tx->index;
    store_put(tx->store, COPY_TABLE_REGIONS, copy_key_region(room, work->region->region),
              message_pack(tx->arena, &work->region->base));
    machine_changed(tx, SPACE_COPY, no_name, false);
    work->result->yes = true;
}

/* The whole copy may have changed. */
static void flip(const struct work *work) {
    CHECK(work->region->flipped <= work->tx->index);
    work->region->flipped = work->tx->index;
    machine_changed(work->tx, SPACE_COPY_FLIP, no_name, false);
    machine_changed(work->tx, SPACE_COPY_SERVICES, no_name, false);
}

/* -- the content of a change -------------------------------------------------------------------------------------- */

/* The indexes of one cluster rise, and so do those of its restores. */
static bool goes_on(const Pb__CatalogAt *from, const Pb__CatalogAt *to) {
    if (!to || to->index == 0 || to->restored > to->index) return false;
    if (!from) return true;
    if (from->cluster_id && !to->cluster_id) return false; /* from a server that does not know its cluster yet */
    if (from->cluster_id != to->cluster_id) return true;
    return to->index > from->index && (to->restored == from->restored || to->restored > from->index);
}

static bool fits(const struct work *work, const Pb__CatalogAt *from, const Pb__CatalogAt *to) {
    if (work->tx->mutations & MUTATE_COPY_MIXES) return to;
    return copy_same_at(work->region->at, from) && goes_on(from, to);
}

static bool entry_good(const Pb__ServiceEntry *entry) {
    return entry && entry->node && entry->node->name[0] && entry->service && entry->service->name[0] &&
           entry->service->id[0];
}

/* Decodes all entries. CO_OK, or `result` refuses. */
static bool read_rows(struct work *work, const ProtobufCBinaryData *entries, size_t n_entries,
                      Pb__CatalogKey *const *removed, size_t n_removed) {
    size_t bytes = 0;
    if (n_entries > COPY_ROWS_MOST || n_removed > COPY_ROWS_MOST - n_entries)
        return refuse(work, CO_TOOLARGE, "too many rows for one entry"), false;
    work->entries = arena_alloc(work->tx->arena, (n_entries + 1) * sizeof *work->entries);
    for (size_t i = 0; i < n_entries; i++) {
        bytes += entries[i].len;
        work->entries[i] = machine_decode(&pb__service_entry__descriptor, message_slice(entries[i]), work->tx->arena);
        if (!entry_good(work->entries[i])) return refuse(work, CO_INVALID, "no entry of a service"), false;
    }
    for (size_t i = 0; i < n_removed; i++) {
        if (!removed[i]->service[0] || !removed[i]->node[0] || !removed[i]->id[0])
            return refuse(work, CO_INVALID, "no key of an instance"), false;
        bytes += strlen(removed[i]->service) + strlen(removed[i]->node) + strlen(removed[i]->id);
    }
    return bytes <= COPY_BYTES_MOST ? true : (refuse(work, CO_TOOLARGE, "too many bytes for one entry"), false);
}

/* lost: as in copy_change. May be NULL. */
static int change_rows(struct work *work, uint64_t stage, const ProtobufCBinaryData *entries, size_t n_entries,
                       Pb__CatalogKey *const *removed, size_t n_removed, struct pointers *lost) {
    struct copy_change change = {.tx = work->tx,
                                 .region = work->region->region,
                                 .stage = stage,
                                 .counts = stage ? work->region->staged : work->region->counts};
    CHECK(n_entries + n_removed <= COPY_ROWS_MOST && (!stage || stage == work->region->stage));
    for (size_t i = 0; i < n_removed; i++)
        copy_change_row(&change, slice_text(removed[i]->service), slice_text(removed[i]->node),
                        slice_text(removed[i]->id), NULL, no_name);
    for (size_t i = 0; i < n_entries; i++) {
        const Pb__ServiceEntry *entry = work->entries[i];
        copy_change_row(&change, slice_text(entry->service->name), slice_text(entry->node->name),
                        slice_text(entry->service->id), entry, message_slice(entries[i]));
    }
    copy_change_end(&change);
    if (lost) *lost = change.lost;
    return change.error;
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static int update_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__CopyUpdateCommand *command = request;
    struct work work = {.tx = tx, .result = result};
    int error = work_begin(&work, command->region);
    if (error) return error == CO_NOTFOUND ? CO_OK : error;
    if (work.region->state != SETTLED) return refuse(&work, CO_CONFLICT, "the copy is not tidy");
    if (!fits(&work, command->from, command->to)) return refuse(&work, CO_CONFLICT, "the copy is elsewhere");
    if (!read_rows(&work, command->entries, command->n_entries, command->removed, command->n_removed)) return CO_OK;
    struct pointers lost = {0};
    error = change_rows(&work, 0, command->entries, command->n_entries, command->removed, command->n_removed, &lost);
    work.region->at = command->to;
    if (work.made) flip(&work);
    put_region(&work);
    for (size_t i = 0; i < lost.count && !error; i++)
        failover_lost_there(tx, command->region, slice_text(lost.items[i]));
    return error;
}

static bool stage_begins(const struct work *work, const Pb__CopyStageCommand *command) {
    return command->stage == 0 && command->part == 0 && work->region->state == SETTLED;
}

static bool stage_goes_on(const struct work *work, const Pb__CopyStageCommand *command) {
    const Pb__CopyRegion *region = work->region;
    return command->stage != 0 && region->state == STAGING && command->stage == region->stage &&
           command->part == region->parts && copy_same_at(region->stage_to, command->to);
}

static int stage_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__CopyStageCommand *command = request;
    struct work work = {.tx = tx, .result = result};
    int error = work_begin(&work, command->region);
    if (error) return error == CO_NOTFOUND ? CO_OK : error;
    Pb__CopyRegion *region = work.region;
    bool begins = stage_begins(&work, command);
    if (!begins && !stage_goes_on(&work, command)) return refuse(&work, CO_CONFLICT, "no such stage, or part of it");
    if (!fits(&work, command->from, command->to)) return refuse(&work, CO_CONFLICT, "the copy is elsewhere");
    if (!read_rows(&work, command->entries, command->n_entries, command->removed, command->n_removed)) return CO_OK;
    if (begins) {
        region->state = STAGING, region->stage = tx->index, region->parts = 0, region->stage_to = command->to;
        *region->staged = *region->counts;
    }
    CHECK(region->state == STAGING && region->stage && region->stage <= tx->index);
    region->parts++;
    error = change_rows(&work, region->stage, command->entries, command->n_entries, command->removed,
                        command->n_removed, NULL);
    put_region(&work);
    return error;
}

static int commit_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__CopyCommitCommand *command = request;
    struct work work = {.tx = tx, .result = result};
    int error = work_begin(&work, command->region);
    if (error) return error == CO_NOTFOUND ? CO_OK : error;
    Pb__CopyRegion *region = work.region;
    bool whole = command->parts == region->parts || tx->mutations & MUTATE_COPY_MIXES;
    if (region->state != STAGING || command->stage != region->stage || !whole ||
        !copy_same_at(region->stage_to, command->to))
        return refuse(&work, CO_CONFLICT, "no such stage, or not all of it");
    if (!fits(&work, command->from, command->to)) return refuse(&work, CO_CONFLICT, "the copy is elsewhere");
    CHECK(!region->committed);
    region->state = TIDYING, region->committed = true, region->at = command->to;
    *region->counts = *region->staged;
    region->stage_to = NULL;
    flip(&work);
    put_region(&work);
    failover_copy_turned(tx);
    return CO_OK;
}

static int tidy_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__CopyTidyCommand *command = request;
    struct work work = {.tx = tx, .result = result};
    int error = work_begin(&work, command->region);
    if (error) return error == CO_NOTFOUND ? CO_OK : error;
    Pb__CopyRegion *region = work.region;
    bool given_up = region->state == STAGING, there = region->state == TIDYING || given_up;
    if (!there || command->stage != region->stage) return refuse(&work, CO_CONFLICT, "no such stage");
    if (given_up) region->state = TIDYING, region->stage_to = NULL;
    struct slice tidied = message_slice(region->tidied);
    bool all = copy_tidy(tx, region->region, region->committed ? region->stage : 0, &tidied);
    CHECK(region->state == TIDYING && (all || tidied.size > 0));
    region->tidied = message_bytes(tidied);
    if (all) {
        region->state = SETTLED, region->committed = false, region->parts = 0;
        region->tidied = message_bytes(no_name);
        *region->staged = (Pb__CopyCounts)PB__COPY_COUNTS__INIT;
    }
    put_region(&work);
    result->yes = all;
    return CO_OK;
}

static int forget_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__CopyForgetCommand *command = request;
    struct work work = {.tx = tx, .result = result};
    int error = work_begin(&work, command->region);
    if (error) return error == CO_NOTFOUND ? CO_OK : error;
    result->yes = true;
    if (work.made) return CO_OK; /* there is no copy */
    bool seen = work.region->state != FORGETTING;
    work.region->state = FORGETTING;
    if (seen) flip(&work);
    bool gone = copy_remove(tx, work.region->region);
    put_region(&work);
    if (seen) failover_copy_turned(tx);
    char room[STORE_KEY_MAX];
    if (gone) (void)store_del(tx->store, COPY_TABLE_REGIONS, copy_key_region(room, command->region));
    result->yes = gone;
    return CO_OK;
}

#define COMMAND(number_, name_, type, apply_) \
    { .number = (number_), .servers_only = true, .name = (name_), .request = &(type), .apply = (apply_) }
const struct module_command copy_commands[] = {
    COMMAND(COPY_UPDATE, "copy-update", pb__copy_update_command__descriptor, update_apply),
    COMMAND(COPY_STAGE, "copy-stage", pb__copy_stage_command__descriptor, stage_apply),
    COMMAND(COPY_COMMIT, "copy-commit", pb__copy_commit_command__descriptor, commit_apply),
    COMMAND(COPY_TIDY, "copy-tidy", pb__copy_tidy_command__descriptor, tidy_apply),
    COMMAND(COPY_FORGET, "copy-forget", pb__copy_forget_command__descriptor, forget_apply),
    {0},
};
