#include "tests/lib/random_catalog.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"

/* -- changes ------------------------------------------------------------------------------------------------------ */

enum { NODES = 7, IDS = 4, NAMES = 5, CHECKS = 4 };

struct maker {
    struct rng *rng;
    struct arena *arena;
    bool any_case;
};

static int pick(const struct maker *maker, int below) { return (int)rng_below(maker->rng, (uint64_t)below); }

static char *name_of(const struct maker *maker, char kind, int below) {
    char *name = arena_printf(maker->arena, "%c%d", kind, pick(maker, below));
    if (maker->any_case && pick(maker, 3) == 0) name[0] = (char)toupper((unsigned char)name[0]);
    return name;
}

static Pb__Service *random_service(const struct maker *maker) {
    Pb__Service *service = arena_alloc(maker->arena, sizeof *service);
    pb__service__init(service);
    service->id = name_of(maker, 'i', IDS);
    service->name = name_of(maker, 's', NAMES);
    service->port = (uint32_t)pick(maker, 3);
    service->n_tags = (size_t)pick(maker, 3);
    service->tags = arena_alloc(maker->arena, (service->n_tags + 1) * sizeof *service->tags);
    for (size_t i = 0; i < service->n_tags; i++) service->tags[i] = name_of(maker, 't', 4);
    return service;
}

static Pb__Check *random_check(const struct maker *maker, int number) {
    Pb__Check *check = arena_alloc(maker->arena, sizeof *check);
    pb__check__init(check);
    check->check_id = arena_printf(maker->arena, "c%d", number);
    check->name = arena_printf(maker->arena, "check");
    check->status = (Pb__Status)pick(maker, 3);
    if (pick(maker, 3)) check->service_id = name_of(maker, 'i', IDS);
    if (pick(maker, 2)) check->output = message_bytes(slice_text(name_of(maker, 'o', 3)));
    return check;
}

static Pb__RegisterCommand *random_register(const struct maker *maker) {
    struct arena *arena = maker->arena;
    Pb__RegisterCommand *command = arena_alloc(arena, sizeof *command);
    pb__register_command__init(command);
    command->node = arena_alloc(arena, sizeof *command->node);
    pb__node__init(command->node);
    command->node->name = name_of(maker, 'n', NODES);
    command->node->address = arena_printf(arena, "10.0.0.%d", pick(maker, 4) == 0);
    command->skip_node_update = pick(maker, 3) == 0;
    if (pick(maker, 3)) command->service = random_service(maker);
    command->n_checks = (size_t)pick(maker, 3);
    command->checks = arena_alloc(arena, 2 * sizeof *command->checks);
    int first = pick(maker, CHECKS);
    for (size_t i = 0; i < command->n_checks; i++) command->checks[i] = random_check(maker, (first + (int)i) % CHECKS);
    return command;
}

static Pb__DeregisterCommand *random_deregister(const struct maker *maker) {
    Pb__DeregisterCommand *command = arena_alloc(maker->arena, sizeof *command);
    pb__deregister_command__init(command);
    command->node = name_of(maker, 'n', NODES);
    int what = pick(maker, 5);
    if (what < 2) command->service_id = name_of(maker, 'i', IDS);
    else if (what < 4) command->check_id = name_of(maker, 'c', CHECKS);
    return command;
}

uint8_t random_catalog_command(struct rng *rng, bool any_case, struct arena *arena, const ProtobufCMessage **message) {
    struct maker maker = {rng, arena, any_case};
    int kind = pick(&maker, 10);
    if (kind < 7) {
        *message = &random_register(&maker)->base;
        return CATALOG_REGISTER;
    }
    if (kind < 9) {
        *message = &random_deregister(&maker)->base;
        return CATALOG_DEREGISTER;
    }
    Pb__CatalogBatchCommand *batch = arena_alloc(arena, sizeof *batch);
    pb__catalog_batch_command__init(batch);
    batch->n_registers = (size_t)pick(&maker, 4), batch->n_deregisters = (size_t)pick(&maker, 3);
    batch->registers = arena_alloc(arena, 4 * sizeof *batch->registers);
    batch->deregisters = arena_alloc(arena, 3 * sizeof *batch->deregisters);
    for (size_t i = 0; i < batch->n_registers; i++) batch->registers[i] = random_register(&maker);
    for (size_t i = 0; i < batch->n_deregisters; i++) batch->deregisters[i] = random_deregister(&maker);
    *message = &batch->base;
    return CATALOG_BATCH;
}

void random_catalog_change(struct fixture *f, struct rng *rng, bool any_case) {
    struct arena arena = {0};
    const ProtobufCMessage *message;
    uint8_t type = random_catalog_command(rng, any_case, &arena, &message);
    (void)fixture_apply(f, type, message);
    arena_free(&arena);
}

/* -- pictures ----------------------------------------------------------------------------------------------------- */

static void key_of(char key[256], const char *service, const char *node, const char *id) {
    int size = snprintf(key, 256, "%s/%s/%s", service, node, id);
    CHECK(size > 0 && size < 256);
    bytes_lower(key, (size_t)size);
}

static size_t place_of(const struct catalog_picture *picture, const char *key, bool *there) {
    size_t low = 0, high = picture->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(picture->rows[middle].key, key) < 0) low = middle + 1;
        else high = middle;
    }
    *there = low < picture->count && strcmp(picture->rows[low].key, key) == 0;
    return low;
}

void picture_add(struct catalog_picture *picture, const Pb__ServiceEntry *entry) {
    char key[256];
    bool there;
    struct arena arena = {0};
    key_of(key, entry->service->name, entry->node->name, entry->service->id);
    size_t place = place_of(picture, key, &there);
    if (!there) {
        picture->rows = mem_realloc(picture->rows, (picture->count + 1) * sizeof *picture->rows);
        memmove(picture->rows + place + 1, picture->rows + place, (picture->count - place) * sizeof *picture->rows);
        picture->rows[place] = (struct picture_row){.key = mem_strdup(key)};
        picture->count++;
    }
    struct slice packed = message_pack(&arena, &entry->base);
    buffer_reset(&picture->rows[place].entry);
    buffer_append(&picture->rows[place].entry, packed.data, packed.size);
    arena_free(&arena);
}

static void remove_at(struct catalog_picture *picture, size_t place) {
    free(picture->rows[place].key);
    buffer_free(&picture->rows[place].entry);
    picture->count--;
    memmove(picture->rows + place, picture->rows + place + 1, (picture->count - place) * sizeof *picture->rows);
}

void picture_remove(struct catalog_picture *picture, const char *service, const char *node, const char *id) {
    char key[256];
    bool there;
    key_of(key, service, node, id);
    size_t place = place_of(picture, key, &there);
    if (there) remove_at(picture, place);
}

bool picture_has(const struct catalog_picture *picture, const char *service, const char *node, const char *id) {
    char key[256];
    bool there;
    key_of(key, service, node, id);
    (void)place_of(picture, key, &there);
    return there;
}

void picture_of(struct fixture *f, struct catalog_picture *picture) {
    Pb__TableRequest all = PB__TABLE_REQUEST__INIT;
    char names[64][64];
    size_t count = 0;
    picture_free(picture);
    const Pb__ServicesResult *services = (const Pb__ServicesResult *)fixture_ask(f, &query_services, &all.base).message;
    CHECK(services->n_services <= ARRAY_COUNT(names));
    for (; count < services->n_services; count++)
        snprintf(names[count], sizeof names[count], "%s", services->services[count]->name);
    for (size_t i = 0; i < count; i++) {
        Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
        request.service = names[i];
        const Pb__ServiceEntriesResult *entries =
            (const Pb__ServiceEntriesResult *)fixture_ask(f, &query_service_entries, &request.base).message;
        for (size_t j = 0; j < entries->n_entries; j++) {
            catalog_strip(entries->entries[j]);
            picture_add(picture, entries->entries[j]);
        }
    }
    fixture_forget(f);
}

struct catalog_picture picture_copy(const struct catalog_picture *picture) {
    struct catalog_picture copy = {.count = picture->count};
    copy.rows = mem_zalloc((copy.count + 1) * sizeof *copy.rows);
    for (size_t i = 0; i < copy.count; i++) {
        copy.rows[i].key = mem_strdup(picture->rows[i].key);
        buffer_append(&copy.rows[i].entry, picture->rows[i].entry.data, picture->rows[i].entry.size);
    }
    return copy;
}

static bool kept_or_told(const Pb__CatalogChangesResult *changes, const struct catalog_picture *told, const char *key) {
    char other[256];
    bool there;
    (void)place_of(told, key, &there);
    for (size_t i = 0; i < changes->n_kept && !there; i++) {
        key_of(other, changes->kept[i]->service, changes->kept[i]->node, changes->kept[i]->id);
        there = strcmp(other, key) == 0;
    }
    return there;
}

void picture_take(struct catalog_picture *picture, const Pb__CatalogChangesResult *changes) {
    struct catalog_picture told = {0};
    for (size_t i = 0; i < changes->n_removed; i++)
        picture_remove(picture, changes->removed[i]->service, changes->removed[i]->node, changes->removed[i]->id);
    for (size_t i = 0; i < changes->n_entries; i++) {
        struct arena arena = {0};
        Pb__ServiceEntry *entry =
            message_unpack(&arena, &pb__service_entry__descriptor, message_slice(changes->entries[i]));
        CHECK(entry);
        picture_add(picture, entry);
        picture_add(&told, entry);
        arena_free(&arena);
    }
    for (size_t i = picture->count; i-- > 0 && changes->complete;)
        if (!kept_or_told(changes, &told, picture->rows[i].key)) remove_at(picture, i);
    picture_free(&told);
}

bool picture_equal(const struct catalog_picture *a, const struct catalog_picture *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->rows[i].key, b->rows[i].key) != 0 ||
            !slice_equal(buffer_slice(&a->rows[i].entry), buffer_slice(&b->rows[i].entry)))
            return false;
    return true;
}

void picture_free(struct catalog_picture *picture) {
    while (picture->count) remove_at(picture, picture->count - 1);
    free(picture->rows);
    *picture = (struct catalog_picture){0};
}
