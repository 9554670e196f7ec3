#include "registry/catalog_turns.h"

#include <stdlib.h>
#include <string.h>

#include "registry/catalog.h"

/* A possible turn of one instance, or of a service as a whole (key empty). */
struct turn {
    struct slice service, key; /* key: key_instance */
    size_t order;              /* within an entry */
    bool healthy;              /* as it was before */
};

static bool is_wanted(struct machine_tx *tx) {
    const struct modules *modules = machine_modules(tx->machine);
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        if (module->wants_turns && module->wants_turns(tx)) return true;
    }
    return false;
}

static bool is_healthy(struct machine_tx *tx, const struct turn *turn) {
    if (turn->key.size) return catalog_instance_healthy(tx->store, turn->service, turn->key, tx->arena) == CO_OK;
    struct catalog_witness witness = {.size = 0};
    return catalog_service_healthy(tx->store, turn->service, 0, tx->arena, &witness) == CO_OK;
}

static void note(struct machine_tx *tx, struct slice service, struct slice key) {
    if (!tx->turns) tx->turns = arena_zalloc(tx->arena, sizeof *tx->turns);
    struct pointers *turns = tx->turns;
    const struct turn *last = turns->count ? turns->items[turns->count - 1] : NULL;
    if (last && key.size && slice_equal(last->key, key)) return;
    struct turn *turn = arena_alloc(tx->arena, sizeof *turn);
    *turn = (struct turn){.service = slice_copy(tx->arena, service), .key = slice_copy(tx->arena, key)};
    turn->order = turns->count;
    turn->healthy = tx->mutations & MUTATE_TURNS_FORGET || is_healthy(tx, turn);
    pointers_add(turns, tx->arena, turn);
}

static void note_instance(struct machine_tx *tx, struct slice service, struct slice node, struct slice id) {
    char room[STORE_KEY_MAX];
    if (service.size) note(tx, service, key_instance(room, service, node, id));
}

void turn_instance(struct machine_tx *tx, struct slice service, struct slice node, struct slice id) {
    if (is_wanted(tx)) note_instance(tx, service, node, id);
}

void turn_service(struct machine_tx *tx, struct slice service) {
    if (is_wanted(tx)) note(tx, service, slice_make("", 0));
}

void turn_node(struct machine_tx *tx, struct slice node) {
    char room[STORE_KEY_MAX];
    struct pointers services = {0};
    if (!is_wanted(tx)) return;
    (void)record_services_below(tx->store, tx->arena, key_node(room, node), &services);
    for (size_t i = 0; i < services.count; i++) {
        const Pb__Service *service = services.items[i];
        note_instance(tx, slice_text(service->name), node, slice_text(service->id));
    }
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

/* Sorts turns of one service side by side, and those of one instance in their order. */
static int compare_turns(const void *a, const void *b) {
    const struct turn *one = *(struct turn *const *)a, *other = *(struct turn *const *)b;
    int order = slice_compare_nocase(one->service, other->service);
    if (!order) order = slice_compare(one->key, other->key);
    return order ? order : (one->order > other->order) - (one->order < other->order);
}

static void tell(struct machine_tx *tx, const struct module_turn *turn) {
    const struct modules *modules = machine_modules(tx->machine);
    if (!turn->lost && !turn->gained) return;
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        if (module->on_turn) module->on_turn(tx, turn);
    }
}

void turns_tell(struct machine_tx *tx) {
    if (!tx->turns) return;
    struct pointers turns = *tx->turns;
    struct module_turn told = {.lost = false};
    tx->turns = NULL;
    if (turns.count > 1) qsort(turns.items, turns.count, sizeof *turns.items, compare_turns);
    for (size_t i = 0; i < turns.count; i++) {
        const struct turn *turn = turns.items[i], *before = i ? turns.items[i - 1] : NULL;
        bool same = before && slice_equal_nocase(before->service, turn->service);
        if (before && !same) tell(tx, &told);
        if (!same) told = (struct module_turn){.service = turn->service};
        if (same && slice_equal(before->key, turn->key)) continue; /* the first one saw the instance as it was */
        bool healthy = is_healthy(tx, turn);
        told.lost |= turn->healthy && !healthy, told.gained |= !turn->healthy && healthy;
    }
    if (turns.count) tell(tx, &told);
}
