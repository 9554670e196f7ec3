/* Rows of a copy, and their sums by service: the number of instances, and the number of instances with each tag. Rows
 * and sums change in the same stage, so that readers see both at once. */
#include <stdlib.h>

#include "base/message.h"
#include "multi-dc/copy_internal.h"

static const struct slice no_name = {"", 0};

/* Puts `value` into the cell, in the stage of the change. A stage does not change the present value. */
static void cell_put(struct copy_change *change, uint8_t table, struct slice key, struct copy_cell *cell,
                     struct copy_value value) {
    struct machine_tx *tx = change->tx;
    if (change->stage) cell->stage = change->stage, cell->then = value;
    else cell->now = value;
    bool equal = cell->stage && cell->now.there == cell->then.there &&
                 (!cell->now.there || slice_equal(cell->now.bytes, cell->then.bytes));
    if (equal) cell->stage = 0;
    CHECK(!change->stage || equal || cell->stage == change->stage);
    if (cell->stage || cell->now.there) store_put(tx->store, table, key, copy_cell_pack(tx->arena, cell));
    else (void)store_del(tx->store, table, key);
}

/* The value that the change sees, which is that of its own stage. A missing cell is empty. */
static struct copy_value cell_look(struct copy_change *change, uint8_t table, struct slice key,
                                   struct copy_cell *cell) {
    *cell = (struct copy_cell){0};
    int error = copy_cell_get(change->tx->store, table, key, cell);
    if (error && error != CO_NOTFOUND) change->error = error;
    return copy_cell_in(cell, change->stage);
}

/* -- services ----------------------------------------------------------------------------------------------------- */

static void service_write(struct copy_change *change) {
    Pb__CopyService *service = change->service;
    if (!service || !change->dirty || change->error) return;
    struct copy_cell cell;
    struct copy_value before = cell_look(change, COPY_TABLE_SERVICES, change->key, &cell), after = {0};
    if (service->instances) after = (struct copy_value){true, message_pack(change->tx->arena, &service->base)};
    cell_put(change, COPY_TABLE_SERVICES, change->key, &cell, after);
    change->counts->services += (uint64_t)after.there - (uint64_t)before.there;
    if (before.there != after.there) change->names = true;
    if (!change->stage) machine_changed(change->tx, SPACE_COPY_SERVICE, slice_text(service->name), !after.there);
    CHECK(after.there == (service->instances > 0));
    change->dirty = false;
}

static void service_load(struct copy_change *change, struct slice name) {
    char room[STORE_KEY_MAX];
    struct slice key = copy_key_service(room, change->region, name);
    if (slice_equal(key, change->key)) return;
    service_write(change);
    struct arena *arena = change->tx->arena;
    struct copy_cell cell;
    struct copy_value value = cell_look(change, COPY_TABLE_SERVICES, key, &cell);
    change->key = slice_copy(arena, key);
    change->service = NULL;
    if (value.there) change->service = message_unpack(arena, &pb__copy_service__descriptor, value.bytes);
    if (value.there && !change->service) store_fail(change->tx->store, CO_CORRUPT), change->error = CO_CORRUPT;
    if (!change->service) {
        change->service = arena_alloc(arena, sizeof *change->service);
        pb__copy_service__init(change->service);
        change->service->name = arena_strndup(arena, name.data, name.size);
    }
    change->tags_room = change->service->n_tags;
}

static Pb__CopyTag *tag_at(struct copy_change *change, const char *text) {
    Pb__CopyService *service = change->service;
    size_t low = 0, high = service->n_tags;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(service->tags[middle]->tag, text) < 0) low = middle + 1;
        else high = middle;
    }
    if (low < service->n_tags && strcmp(service->tags[low]->tag, text) == 0) return service->tags[low];
    struct arena *arena = change->tx->arena;
    if (service->n_tags == change->tags_room) {
        change->tags_room = change->tags_room ? 2 * change->tags_room : 8;
        Pb__CopyTag **wider = arena_alloc(arena, change->tags_room * sizeof *wider);
        if (service->n_tags) memcpy(wider, service->tags, service->n_tags * sizeof *wider);
        service->tags = wider;
    }
    CHECK(low <= service->n_tags && service->n_tags < change->tags_room);
    memmove(service->tags + low + 1, service->tags + low, (service->n_tags - low) * sizeof *service->tags);
    service->n_tags++;
    Pb__CopyTag *tag = service->tags[low] = arena_alloc(arena, sizeof *tag);
    pb__copy_tag__init(tag);
    tag->tag = arena_strndup(arena, text, strlen(text));
    return tag;
}

static void drop_tag(Pb__CopyService *service, const Pb__CopyTag *tag) {
    size_t place = 0;
    while (service->tags[place] != tag) place++;
    CHECK(place < service->n_tags);
    service->n_tags--;
    memmove(service->tags + place, service->tags + place + 1, (service->n_tags - place) * sizeof *service->tags);
}

#define TAGS_COUNTED 1024 /* tags of an instance that count for the union; its entry has all of them */

/* The tags, sorted, without duplicates. */
struct tag_set {
    char **tags;
    size_t count;
};

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static struct tag_set tags_of(struct arena *arena, const Pb__ServiceEntry *entry) {
    struct tag_set set = {0};
    size_t count = entry ? entry->service->n_tags : 0;
    if (count > TAGS_COUNTED) count = TAGS_COUNTED;
    if (count == 0) return set;
    set.tags = arena_alloc(arena, count * sizeof *set.tags);
    memcpy(set.tags, entry->service->tags, count * sizeof *set.tags);
    qsort(set.tags, count, sizeof *set.tags, compare_texts);
    for (size_t i = 0; i < count; i++)
        if (set.count == 0 || strcmp(set.tags[set.count - 1], set.tags[i]) != 0) set.tags[set.count++] = set.tags[i];
    return set;
}

static void count_tag(struct copy_change *change, const char *text, int by) {
    Pb__CopyTag *tag = tag_at(change, text);
    if (tag->instances == 0) change->names = true;
    tag->instances += (uint64_t)(int64_t)by;
    if (tag->instances) return;
    drop_tag(change->service, tag);
    change->names = true;
}

/* Counts the tags that only one of the two has. */
static void count_tags(struct copy_change *change, struct tag_set before, struct tag_set after) {
    size_t i = 0, j = 0;
    while (i < before.count || j < after.count) {
        int order = i == before.count ? 1 : j == after.count ? -1 : strcmp(before.tags[i], after.tags[j]);
        if (order < 0) count_tag(change, before.tags[i], -1);
        if (order > 0) count_tag(change, after.tags[j], 1);
        i += order <= 0, j += order >= 0;
    }
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

static bool is_healthy(const Pb__ServiceEntry *entry) {
    return entry && catalog_entry_status(entry) <= PB__STATUS__WARNING;
}

/* Is the new entry healthy, and does it have all tags of the old one? */
static bool is_as_good(const Pb__ServiceEntry *old, const Pb__ServiceEntry *entry) {
    return is_healthy(entry) && catalog_tags_fit(entry->service, old->service->tags, old->service->n_tags);
}

void copy_change_row(struct copy_change *change, struct slice service, struct slice node, struct slice id,
                     const Pb__ServiceEntry *entry, struct slice bytes) {
    char room[STORE_KEY_MAX];
    struct slice key = copy_key_row(room, change->region, service, node, id);
    struct copy_cell cell;
    struct copy_value before = cell_look(change, COPY_TABLE_ROWS, key, &cell), after = {entry, bytes};
    bool same = before.there == after.there && (!after.there || slice_equal(before.bytes, after.bytes));
    if (change->error || same) return;
    const Pb__ServiceEntry *old = NULL;
    if (before.there) {
        old = message_unpack(change->tx->arena, &pb__service_entry__descriptor, before.bytes);
        if (!old || !old->service) {
            store_fail(change->tx->store, CO_CORRUPT);
            change->error = CO_CORRUPT;
            return;
        }
    }
    service_load(change, service);
    if (change->error) return;
    if (entry) change->service->name = entry->service->name;
    struct pointers *lost = &change->lost;
    bool again = lost->count && lost->items[lost->count - 1] == change->service->name;
    if (is_healthy(old) && !is_as_good(old, entry) && !again)
        pointers_add(lost, change->tx->arena, change->service->name);
    count_tags(change, tags_of(change->tx->arena, old), tags_of(change->tx->arena, entry));
    uint64_t by = (uint64_t)after.there - (uint64_t)before.there;
    CHECK(after.there || (change->service->instances > 0 && change->counts->instances > 0));
    change->service->instances += by, change->counts->instances += by;
    change->dirty = true;
    cell_put(change, COPY_TABLE_ROWS, key, &cell, after);
}

void copy_change_end(struct copy_change *change) {
    service_write(change);
    if (change->names && !change->stage) machine_changed(change->tx, SPACE_COPY_SERVICES, no_name, false);
}

/* -- steps -------------------------------------------------------------------------------------------------------- */

#define PASSED_MOST (8 * COPY_ROWS_MOST) /* cells that are looked at, tidy ones included */

struct place {
    struct slice key, value;
};

/* Collects copies of the cells with two values behind `from`; *last: the last cell that was read. True: there are no
 * more behind it. */
static bool untidy(struct machine_tx *tx, uint8_t table, const char *region, struct slice from, struct place *found,
                   size_t *count, struct slice *last) {
    char room[STORE_KEY_MAX];
    struct slice prefix = copy_key_region(room, region);
    struct store_cursor cursor;
    size_t passed = 0;
    store_cursor_open(&cursor, tx->store, table, from.size ? from : prefix);
    if (cursor.valid && slice_equal(cursor.key, from)) store_cursor_next(&cursor);
    for (; cursor.valid && slice_starts(cursor.key, prefix); store_cursor_next(&cursor)) {
        if (passed++ == PASSED_MOST || *count == COPY_ROWS_MOST) break;
        struct copy_cell cell;
        if (!copy_cell_read(cursor.value, &cell)) store_fail(tx->store, CO_CORRUPT);
        *last = cursor.key;
        if (cell.stage)
            found[(*count)++] = (struct place){slice_copy(tx->arena, cursor.key), slice_copy(tx->arena, cursor.value)};
    }
    CHECK(*count <= passed && *count <= COPY_ROWS_MOST);
    if (passed) *last = slice_copy(tx->arena, *last);
    bool more = cursor.valid && slice_starts(cursor.key, prefix);
    store_cursor_close(&cursor);
    return !more;
}

static void tidy_cells(struct machine_tx *tx, uint8_t table, uint64_t committed, const struct place *found,
                       size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct copy_cell cell;
        (void)copy_cell_read(found[i].value, &cell);
        struct copy_cell tidy = {.now = copy_cell_in(&cell, committed)};
        if (tidy.now.there) store_put(tx->store, table, found[i].key, copy_cell_pack(tx->arena, &tidy));
        else (void)store_del(tx->store, table, found[i].key);
    }
}

/* *tidied is the number of the table, and the key. */
bool copy_tidy(struct machine_tx *tx, const char *region, uint64_t committed, struct slice *tidied) {
    struct place *found = arena_alloc(tx->arena, COPY_ROWS_MOST * sizeof *found);
    uint8_t table = tidied->size ? (uint8_t)tidied->data[0] : COPY_TABLE_ROWS;
    struct slice from = tidied->size ? slice_make(tidied->data + 1, tidied->size - 1) : no_name, last = from;
    size_t count = 0;
    bool over = untidy(tx, table, region, from, found, &count, &last);
    tidy_cells(tx, table, committed, found, count);
    if (over && table == COPY_TABLE_SERVICES) return true;
    if (over) table = COPY_TABLE_SERVICES, last = no_name;
    char *place = arena_alloc(tx->arena, last.size + 1);
    place[0] = (char)table;
    if (last.size) memcpy(place + 1, last.data, last.size);
    *tidied = slice_make(place, last.size + 1);
    return false;
}

bool copy_remove(struct machine_tx *tx, const char *region) {
    static const uint8_t tables[] = {COPY_TABLE_ROWS, COPY_TABLE_SERVICES};
    char room[STORE_KEY_MAX];
    struct slice prefix = copy_key_region(room, region);
    size_t left = COPY_ROWS_MOST;
    for (size_t i = 0; i < sizeof tables && left; i++) {
        struct store_cursor cursor;
        store_cursor_open(&cursor, tx->store, tables[i], prefix);
        for (; left && cursor.valid && slice_starts(cursor.key, prefix); left--) store_cursor_del(&cursor);
        store_cursor_close(&cursor);
    }
    return left > 0;
}
