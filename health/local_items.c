#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/message.h"
#include "base/text.h"
#include "health/local_internal.h"

/* -- tables ------------------------------------------------------------------------------------------------------- */

/* The index of `id`, or the index where it belongs. */
static size_t place(const struct item_table *table, struct slice id) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (slice_compare_nocase(slice_text(table->items[middle]->id), id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct item *item_find(const struct item_table *table, struct slice id) {
    size_t at = place(table, id);
    if (at == table->count || !slice_equal_nocase(id, slice_text(table->items[at]->id))) return NULL;
    return table->items[at];
}

static void table_insert(struct item_table *table, struct item *item) {
    size_t at = place(table, slice_text(item->id));
    if (table->count == table->capacity) {
        table->capacity = table->capacity ? table->capacity * 2 : 16;
        table->items = mem_realloc(table->items, table->capacity * sizeof *table->items);
    }
    memmove(table->items + at + 1, table->items + at, (table->count - at) * sizeof *table->items);
    table->items[at] = item;
    table->count++;
}

static void table_remove(struct item_table *table, struct item *item) {
    size_t at = place(table, slice_text(item->id));
    CHECK(at < table->count && table->items[at] == item);
    table->count--;
    memmove(table->items + at, table->items + at + 1, (table->count - at) * sizeof *table->items);
}

struct local_service *live_service(struct local *local, struct slice id) {
    struct item *item = item_find(&local->services, id);
    return item && !item->removed ? as_service(item) : NULL;
}

struct local_check *live_check(struct local *local, struct slice id) {
    struct item *item = item_find(&local->checks, id);
    return item && !item->removed ? as_check(item) : NULL;
}

/* -- birth and death ---------------------------------------------------------------------------------------------- */

static void item_init(struct item *item, const char *id, bool is_check) {
    item->id = mem_strdup(id);
    item->is_check = is_check;
    list_init(&item->dirty);
    list_init(&item->save);
}

/* The item's id is spelled this way from now on; the data folder may still have a file under the old spelling. */
static struct item *respell(struct item *item, const char *id) {
    if (strcmp(item->id, id) == 0) return item;
    if (item->has_file && !item->file_id) item->file_id = item->id;
    else free(item->id);
    item->id = mem_strdup(id);
    return item;
}

struct local_service *service_take(struct local *local, const char *id) {
    struct item *known = item_find(&local->services, slice_text(id));
    if (known) return as_service(respell(known, id));
    struct local_service *service = mem_zalloc(sizeof *service);
    item_init(&service->item, id, false);
    list_init(&service->checks);
    table_insert(&local->services, &service->item);
    return service;
}

struct local_check *check_take(struct local *local, const char *id) {
    struct item *known = item_find(&local->checks, slice_text(id));
    if (known) return as_check(respell(known, id));
    struct local_check *check = mem_zalloc(sizeof *check);
    item_init(&check->item, id, true);
    list_init(&check->of_service);
    list_init(&check->of_aliases);
    list_init(&check->restart);
    check->state = CHECK_STATE_NONE;
    table_insert(&local->checks, &check->item);
    return check;
}

static void service_free(struct local_service *service) {
    if (service->record) pb__service__free_unpacked(service->record, NULL);
    free(service->item.id), free(service->item.file_id);
    requester_release(service->item.requester);
    free(service);
}

static void check_free(struct local_check *check) {
    check_shared_drop(check->shared);
    check_end(&check->core);
    buffer_free(&check->output);
    free(check->item.id), free(check->item.file_id);
    requester_release(check->item.requester);
    free(check);
}

void item_release(struct local *local, struct item *item) {
    if (!item->removed || item->flying || !list_empty(&item->dirty) || !list_empty(&item->save)) return;
    if (!item->is_check) {
        CHECK(list_empty(&as_service(item)->checks));
        table_remove(&local->services, item);
        service_free(as_service(item));
        return;
    }
    struct local_check *check = as_check(item);
    if (check->watcher || !list_empty(&check->restart)) return; /* the loop looks at it, and calls this again */
    table_remove(&local->checks, item);
    check_free(check);
}

void items_free(struct local *local) {
    for (size_t i = 0; i < local->services.count; i++) service_free(as_service(local->services.items[i]));
    for (size_t i = 0; i < local->checks.count; i++) check_free(as_check(local->checks.items[i]));
    free(local->services.items);
    free(local->checks.items);
}

/* -- changes ------------------------------------------------------------------------------------------------------ */

void item_touch(struct local *local, struct item *item) {
    item->sequence = ++local->sequence;
    local->generation++;
    list_remove(&item->dirty);
    list_append(&local->dirty, &item->dirty);
    local_wake(local);
}

const char *item_token_text(const struct item *item) { return item->requester ? item->requester->text : ""; }

void item_token(struct local *local, struct item *item, const char *token) {
    if (strcmp(item_token_text(item), token) == 0) return;
    requester_release(item->requester);
    item->requester = *token ? requester_new(REQUESTER_REQUEST, slice_text(token)) : NULL;
    item_touch(local, item);
}

static uint64_t record_hash(struct local *local, struct item *item) {
    struct arena arena = {0};
    uint64_t hash;
    if (item->is_check) {
        Pb__Check *record = check_record(local, as_check(item), &arena);
        record->output = (ProtobufCBinaryData){0};
        uint8_t *bytes = arena_alloc(&arena, pb__check__get_packed_size(record));
        hash = hash64(bytes, pb__check__pack(record, bytes));
    } else {
        const Pb__Service *record = as_service(item)->record;
        uint8_t *bytes = arena_alloc(&arena, pb__service__get_packed_size(record));
        hash = hash64(bytes, pb__service__pack(record, bytes));
    }
    arena_free(&arena);
    return hash ? hash : 1; /* 0: never computed */
}

void item_changed(struct local *local, struct item *item) {
    uint64_t hash = record_hash(local, item);
    if (hash == item->hash) return;
    item->hash = hash;
    item_touch(local, item);
}

bool check_has_own_file(struct local *local, const struct local_check *check) {
    const char *service_id = check->shared->definition->service_id;
    if (check->item.removed || !check->item.persist) return false;
    if (check->is_maintenance || *service_id == '\0') return true;
    struct local_service *service = live_service(local, slice_text(service_id));
    return !service || !service->item.persist;
}

void item_save(struct local *local, struct item *item) {
    if (!local->files) return;
    if (item->is_check && !check_has_own_file(local, as_check(item))) {
        const char *id = as_check(item)->shared->definition->service_id;
        struct local_service *service = *id ? live_service(local, slice_text(id)) : NULL;
        if (service && !as_check(item)->is_maintenance) item_save(local, &service->item);
        if (!item->has_file) return;
    }
    if (!item->is_check && !item->has_file && (item->removed || !item->persist)) return;
    local->sequence++;
    list_remove(&item->save);
    list_append(&local->saves, &item->save);
    local_wake(local);
}

/* -- records ------------------------------------------------------------------------------------------------------ */

/* The check's output; when damping holds its state, a text before the output says so. */
static struct slice check_output(struct local *local, const struct local_check *check, struct arena *arena) {
    if (!check_held(&check->core)) return buffer_slice(&check->output);
    struct buffer text = {0};
    buffer_printf(&text, "Held as %s: more than %u changes of state within ", catalog_status_text(check->core.status),
                  check->core.flap.limit);
    duration_format(&text, local->config.flap_window_ns);
    buffer_printf(&text, " (check_flap_limit). It is %s now. Output: ", catalog_status_text(check->core.flap.said));
    buffer_append(&text, check->output.data, check->output.size);
    struct slice copy = slice_make(arena_strndup(arena, text.data, text.size), text.size);
    buffer_free(&text);
    return copy;
}

/* Takes off the text that check_output puts before the output of a held check. */
struct slice check_output_bare(struct slice shown, Pb__Status *status) {
    static const char held[] = "Held as ", now[] = " (check_flap_limit). It is ", output[] = " now. Output: ";
    if (!slice_starts(shown, slice_text(held))) return shown;
    const char *end = shown.data + shown.size, *at = memmem(shown.data, shown.size, now, sizeof now - 1);
    if (!at) return shown;
    at += sizeof now - 1;
    for (int one = PB__STATUS__PASSING; one <= PB__STATUS__CRITICAL; one++) {
        struct slice rest = slice_make(at, (size_t)(end - at)), name = slice_text(catalog_status_text((Pb__Status)one));
        if (!slice_starts(rest, name)) continue;
        rest = slice_make(rest.data + name.size, rest.size - name.size);
        if (!slice_starts(rest, slice_text(output))) continue;
        *status = (Pb__Status)one;
        return slice_make(rest.data + sizeof output - 1, rest.size - (sizeof output - 1));
    }
    return shown;
}

Pb__Check *check_record(struct local *local, const struct local_check *check, struct arena *arena) {
    const struct check_definition *definition = check->shared->definition;
    struct local_service *service =
        *definition->service_id ? live_service(local, slice_text(definition->service_id)) : NULL;
    Pb__Check *record = arena_alloc(arena, sizeof *record);
    pb__check__init(record);
    record->node = (char *)local->config.node;
    record->check_id = check->item.id;
    record->name = definition->name;
    record->notes = definition->notes;
    record->status = check->core.status;
    struct slice output = check_output(local, check, arena);
    record->output = (ProtobufCBinaryData){.data = (uint8_t *)output.data, .len = output.size};
    record->service_id = service ? service->item.id : definition->service_id;
    record->type = (char *)(check->is_maintenance ? "maintenance" : check_kind_text(definition->kind));
    if (service) {
        record->service_name = service->record->name;
        record->service_tags = service->record->tags;
        record->n_service_tags = service->record->n_tags;
    }
    return record;
}

static Pb__Check *check_copy(const Pb__Check *check, struct arena *arena) {
    return (Pb__Check *)message_copy(arena, &check->base);
}

Pb__Check *check_record_copy(struct local *local, const struct local_check *check, struct arena *arena) {
    return check_copy(check_record(local, check, arena), arena);
}

Pb__Service *service_record_copy(const Pb__Service *service, struct arena *arena) {
    return (Pb__Service *)message_copy(arena, &service->base);
}
