/* Services in parts: with ?delta an event says what of the list has changed. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "base/message.h"
#include "base/random.h"
#include "streams.h"

enum { SEEDS = 12, STEPS = 220 };

static struct fixture world;
static struct rng rng;
static uint64_t seed;

struct instances {
    struct entry {
        char key[64];
        struct slice record;
    } entries[64];
    size_t count;
};

static void entry_key(char key[64], const char *node, const char *id) { snprintf(key, 64, "%s/%s", node, id); }

static void list_remove_key(struct instances *list, const char *key, bool must) {
    size_t at = 0;
    while (at < list->count && strcmp(list->entries[at].key, key) != 0) at++;
    cr_assert(!must || at < list->count, "seed %lu: %s is removed, which was not there", seed, key);
    if (at < list->count) list->entries[at] = list->entries[--list->count];
}

static void list_add(struct instances *list, Pb__ServiceEntry *entry, struct arena *arena) {
    struct entry *next = &list->entries[list->count];
    entry_key(next->key, entry->node->name, entry->service->id);
    next->record = message_pack(arena, &entry->base);
    list->count++;
    cr_assert_lt(list->count, ARRAY_COUNT(list->entries));
}

static void list_of(struct instances *list, struct slice record, struct arena *arena) {
    const Pb__ServiceEntriesResult *result = message_unpack(arena, query_service_entries.result, record);
    list->count = 0;
    for (size_t i = 0; i < result->n_entries; i++) list_add(list, result->entries[i], arena);
}

static bool lists_equal(const struct instances *a, const struct instances *b) {
    for (size_t i = 0; i < a->count; i++) {
        size_t j = 0;
        while (j < b->count && strcmp(a->entries[i].key, b->entries[j].key) != 0) j++;
        if (j == b->count || !slice_equal(a->entries[i].record, b->entries[j].record)) return false;
    }
    return a->count == b->count;
}

static void apply_delta(struct instances *list, const Pb__StreamEvent *event, struct arena *arena) {
    const Pb__ServiceEntriesResult *changed =
        message_unpack(arena, query_service_entries.result, slice_make(event->record.data, event->record.len));
    char key[64];
    for (size_t i = 0; i < event->n_removed; i++) {
        entry_key(key, event->removed[i]->node, event->removed[i]->id);
        list_remove_key(list, key, true);
    }
    for (size_t i = 0; i < changed->n_entries; i++) {
        entry_key(key, changed->entries[i]->node->name, changed->entries[i]->service->id);
        list_remove_key(list, key, false);
        list_add(list, changed->entries[i], arena);
        for (size_t j = 0; j + 1 < list->count; j++)
            cr_assert_str_neq(list->entries[j].key, list->entries[list->count - 1].key);
    }
}

/* Part by part the list becomes what it is, and no part says what had not changed. */
Test(stream_delta, parts_of_a_service_make_the_whole, .timeout = 300) {
    size_t parts = 0;
    for (seed = 1; seed <= SEEDS; seed++) {
        struct stream_model model;
        rng_seed(&rng, seed);
        fixture_open(&world);
        fixture_found(&world);
        struct stream_ask ask;
        stream_ask_init(&ask);
        stream_ask_add(&ask, PB__STREAM_KIND__STREAM_SERVICE, "API");
        stream_ask_from(&ask, machine_index(world.machine), 0, 0);
        ask.request.delta = true;
        stream_model_open(&model, &world);
        for (size_t step = 0; step < STEPS; step++) stream_model_act(&model, &rng);
        struct instances list = {.count = 0}, whole = {.count = 0}, before;
        struct arena arena = {0};
        for (bool more = true; more;) {
            ask.request.bytes_most = 1 + (uint32_t)rng_below(&rng, 3000);
            const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
            for (size_t i = 0; i < result->n_events; i++) {
                const Pb__StreamEvent *event = result->events[i];
                const struct stream_change *change =
                    stream_change_at(&model, event->position->index, stream_thing_of(event->kind, slice_text("api")));
                cr_assert(change);
                before = list;
                apply_delta(&list, event, &arena);
                list_of(&whole, change->record, &arena);
                cr_assert(lists_equal(&list, &whole), "seed %lu: at %lu", seed, change->index);
                cr_assert_eq(event->gone, whole.count == 0);
                list_of(&before, change->before, &arena);
                if (lists_equal(&before, &whole)) cr_assert(event->record.len == 0 && event->n_removed == 0);
                parts++;
            }
            more = result->n_events > 0;
            stream_ask_from(&ask, result->position->index, result->position->topic, result->position->place);
        }
        arena_free(&arena);
        stream_model_close(&model);
        fixture_close(&world);
    }
    cr_assert_gt(parts, 100);
}
