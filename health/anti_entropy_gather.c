#include <stdlib.h>

#include "base/check.h"
#include "health/anti_entropy.h"
#include "health/liveness.h"

#define BATCH_ITEMS_MOST 512
#define BATCH_BYTES_MOST ((size_t)256 * 1024)

struct gathering {
    struct anti_entropy *sync;
    Pb__CatalogBatchCommand *command;
    Pb__RegisterCommand *lone_checks; /* checks whose service does not travel with them */
    size_t bytes;
    uint64_t now_ms;
    const struct requester *requester; /* of all that is in it, once there is something */
};

/* -- the node itself ---------------------------------------------------------------------------------------------- */

static Pb__Service *own_service(struct anti_entropy *sync) {
    const struct local_config *config = &sync->local->config;
    Pb__Service *service = arena_alloc(&sync->arena, sizeof *service);
    pb__service__init(service);
    service->node = (char *)config->node;
    service->id = service->name = (char *)ANTI_ENTROPY_OWN_SERVICE;
    service->port = config->server_port;
    service->weight_passing = service->weight_warning = 1;
    const struct {
        const char *key, *value;
    } meta[] = {{"coord_version", config->version}, {"version", config->consul_version}};
    service->meta = arena_alloc(&sync->arena, ARRAY_COUNT(meta) * sizeof *service->meta);
    for (size_t i = 0; i < ARRAY_COUNT(meta); i++) {
        if (!meta[i].value) continue;
        Pb__Pair *pair = service->meta[service->n_meta++] = arena_alloc(&sync->arena, sizeof *pair);
        pb__pair__init(pair);
        pair->key = (char *)meta[i].key;
        pair->value = (char *)meta[i].value;
    }
    return service;
}

/* The node lease that the agent holds; "": none. */
static char *by_lease(struct anti_entropy *sync) {
    const char *lease = sync->local->liveness ? liveness_lease(sync->local->liveness) : NULL;
    return lease ? (char *)lease : (char *)"";
}

bool anti_entropy_labels(const struct anti_entropy *sync) {
    return sync->local->liveness && liveness_lease(sync->local->liveness);
}

Pb__RegisterCommand *anti_entropy_own(struct anti_entropy *sync) {
    struct local *local = sync->local;
    Pb__RegisterCommand *command = arena_alloc(&sync->arena, sizeof *command);
    Pb__Check *check = arena_alloc(&sync->arena, sizeof *check);
    pb__register_command__init(command);
    pb__check__init(check);
    command->node = (Pb__Node *)local->config.node_record;
    command->own = true;
    command->by_lease = by_lease(sync);
    if (local->config.is_server && local->config.server_port &&
        !live_service(local, SLICE_LITERAL(ANTI_ENTROPY_OWN_SERVICE))) {
        command->service = own_service(sync);
    }
    static char output[] = "Agent alive and reachable";
    check->node = (char *)local->config.node;
    check->check_id = (char *)CHECK_OWN_ID;
    check->name = (char *)"Serf Health Status";
    check->status = PB__STATUS__PASSING;
    check->output = (ProtobufCBinaryData){.data = (uint8_t *)output, .len = sizeof output - 1};
    command->checks = arena_alloc(&sync->arena, sizeof *command->checks);
    command->checks[0] = check;
    command->n_checks = 1;
    return command;
}

/* -- what is dirty ------------------------------------------------------------------------------------------------ */

static void fly(struct gathering *g, struct item *item) {
    struct anti_entropy *sync = g->sync;
    if (sync->batch_count == sync->batch_capacity) {
        sync->batch_capacity = sync->batch_capacity ? sync->batch_capacity * 2 : 64;
        sync->batch = mem_realloc(sync->batch, sync->batch_capacity * sizeof *sync->batch);
    }
    sync->batch[sync->batch_count++] = item;
    list_remove(&item->dirty);
    item->flying = true;
    item->flying_sequence = item->sequence;
    if (item->is_check) as_check(item)->output_due_ms = 0;
    g->bytes += 64;
}

static Pb__RegisterCommand *add_register(struct gathering *g, size_t checks_most) {
    struct anti_entropy *sync = g->sync;
    Pb__RegisterCommand *command = arena_alloc(&sync->arena, sizeof *command);
    pb__register_command__init(command);
    command->node = arena_alloc(&sync->arena, sizeof *command->node);
    pb__node__init(command->node);
    command->node->name = (char *)sync->local->config.node;
    command->skip_node_update = true;
    command->checks = arena_alloc(&sync->arena, checks_most * sizeof *command->checks);
    g->command->registers[g->command->n_registers++] = command;
    return command;
}

static Pb__DeregisterCommand *add_deregister(struct gathering *g) {
    struct anti_entropy *sync = g->sync;
    Pb__DeregisterCommand *command = arena_alloc(&sync->arena, sizeof *command);
    pb__deregister_command__init(command);
    command->node = (char *)sync->local->config.node;
    g->command->deregisters[g->command->n_deregisters++] = command;
    return command;
}

static void add_check(struct gathering *g, Pb__RegisterCommand *command, struct local_check *check) {
    Pb__Check *record = check_record(g->sync->local, check, &g->sync->arena);
    record->by_agent = anti_entropy_labels(g->sync);
    command->checks[command->n_checks++] = record;
    g->bytes += 128 + check->output.size;
    fly(g, &check->item);
}

static bool full(const struct gathering *g) {
    return g->sync->batch_count >= BATCH_ITEMS_MOST || g->bytes >= BATCH_BYTES_MOST;
}

/* -- on whose behalf ---------------------------------------------------------------------------------------------- */

const struct requester *anti_entropy_requester(const struct anti_entropy *sync, const struct item *item) {
    if (!sync->controlled || item->removed) return NULL;
    if (item->requester) return item->requester;
    bool of_node = item->is_check && !*as_check((struct item *)(uintptr_t)item)->shared->definition->service_id;
    return of_node ? NULL : sync->services;
}

/* The service that has to travel before the check, or with it. */
static struct local_service *service_first(struct local *local, const struct item *item) {
    if (!item->is_check || item->removed) return NULL;
    const char *service_id = as_check((struct item *)(uintptr_t)item)->shared->definition->service_id;
    struct local_service *service = *service_id ? live_service(local, slice_text(service_id)) : NULL;
    return service && !list_empty(&service->item.dirty) ? service : NULL;
}

/* Of what travels next when the item's turn comes. */
static const struct requester *next_requester(const struct anti_entropy *sync, const struct item *item) {
    const struct local_service *service = service_first(sync->local, item);
    return anti_entropy_requester(sync, service ? &service->item : item);
}

static bool fits(const struct gathering *g, const struct item *item) {
    return requester_equal(anti_entropy_requester(g->sync, item), g->requester);
}

/* Adds the service with its dirty checks in one command: the catalog takes them together or not at all. */
static void add_service(struct gathering *g, struct local_service *service) {
    size_t checks = 1;
    LIST_FOREACH(link, &service->checks) checks++;
    Pb__RegisterCommand *command = add_register(g, checks);
    command->service = arena_alloc(&g->sync->arena, sizeof *command->service);
    *command->service = *service->record;
    command->service->by_agent = anti_entropy_labels(g->sync);
    g->bytes += pb__service__get_packed_size(service->record);
    fly(g, &service->item);
    LIST_FOREACH(link, &service->checks) {
        struct local_check *check = LIST_ENTRY(link, struct local_check, of_service);
        if (!full(g) && !list_empty(&check->item.dirty) && fits(g, &check->item) &&
            anti_entropy_aside_until_ms(&check->item) <= g->now_ms)
            add_check(g, command, check);
    }
}

static void add_item(struct gathering *g, struct item *item) {
    if (item->removed) {
        Pb__DeregisterCommand *command = add_deregister(g);
        *(item->is_check ? &command->check_id : &command->service_id) = item->id;
        fly(g, item);
        return;
    }
    if (!item->is_check) {
        add_service(g, as_service(item));
        return;
    }
    struct local_service *service = service_first(g->sync->local, item);
    if (service) {
        add_service(g, service);
        if (list_empty(&item->dirty) || !fits(g, item)) return;
    }
    if (!g->lone_checks) g->lone_checks = add_register(g, BATCH_ITEMS_MOST + 1);
    add_check(g, g->lone_checks, as_check(item));
}

/* When the item may travel: not while it is set aside, nor while its service has to travel first and is set aside. */
static uint64_t due_ms(struct local *local, const struct item *item) {
    uint64_t due = anti_entropy_aside_until_ms(item);
    const struct local_service *service = service_first(local, item);
    if (!service) return due;
    uint64_t of_service = anti_entropy_aside_until_ms(&service->item);
    return of_service > due ? of_service : due;
}

const ProtobufCMessage *anti_entropy_gather(struct anti_entropy *sync, uint8_t *command, uint64_t now_ms) {
    struct local *local = sync->local;
    sync->batch_count = sync->batch_units = 0;
    sync->aside_ms = UINT64_MAX;
    if (sync->node_dirty) {
        sync->node_flying = true;
        *command = CATALOG_REGISTER;
        return &anti_entropy_own(sync)->base;
    }
    if (list_empty(&local->dirty)) return NULL;
    struct gathering g = {.sync = sync, .now_ms = now_ms};
    g.command = arena_alloc(&sync->arena, sizeof *g.command);
    pb__catalog_batch_command__init(g.command);
    g.command->by_lease = by_lease(sync);
    g.command->registers = arena_alloc(&sync->arena, (BATCH_ITEMS_MOST + 2) * sizeof *g.command->registers);
    g.command->deregisters = arena_alloc(&sync->arena, (BATCH_ITEMS_MOST + 2) * sizeof *g.command->deregisters);
    LIST_FOREACH_SAFE(link, next, &local->dirty) {
        struct item *item = LIST_ENTRY(link, struct item, dirty);
        uint64_t due = due_ms(local, item);
        if (due > g.now_ms) {
            if (due < sync->aside_ms) sync->aside_ms = due;
            continue;
        }
        const struct requester *requester = next_requester(sync, item);
        if (sync->batch_units > 0 && !requester_equal(requester, g.requester)) continue;
        if (item->alone && sync->batch_units > 0) break;
        bool alone = item->alone;
        g.requester = requester;
        add_item(&g, item);
        sync->batch_units++;
        /* The loop's `next` may have been added along with this item: it begins at the front again. */
        if (next != &local->dirty && LIST_ENTRY(next, struct item, dirty)->flying) next = local->dirty.next;
        if (alone || full(&g)) break;
    }
    if (sync->batch_units == 0) return NULL;
    *command = CATALOG_BATCH;
    return &g.command->base;
}
