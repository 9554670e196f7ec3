#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/message.h"
#include "health/anti_entropy.h"
#include "health/state_writer.h"

/* -- equal or not ------------------------------------------------------------------------------------------------- */

static uint64_t message_hash(const ProtobufCMessage *message, struct arena *arena) {
    struct slice bytes = message_pack(arena, message);
    uint64_t hash = hash64(bytes.data, bytes.size);
    return hash ? hash : 1;
}

/* The hashes of the catalog's records, computed as item_changed does for local ones. */
static uint64_t service_hash(const Pb__Service *stored, struct arena *arena) {
    Pb__Service service = *stored;
    service.create_index = service.modify_index = 0;
    service.by_agent = false; /* compared separately */
    return message_hash(&service.base, arena);
}

static uint64_t check_hash(const Pb__Check *stored, struct arena *arena) {
    Pb__Check check = *stored;
    check.create_index = check.modify_index = 0;
    check.by_agent = false;
    check.output = (ProtobufCBinaryData){0};
    return message_hash(&check.base, arena);
}

static uint64_t node_hash(const Pb__Node *stored, struct arena *arena) {
    Pb__Node node = *stored;
    node.create_index = node.modify_index = 0;
    return message_hash(&node.base, arena);
}

/* -- finding what the catalog has --------------------------------------------------------------------------------- */

static int id_order(const char *one, const char *other) {
    return slice_compare_nocase(slice_text(one), slice_text(other));
}
static bool same_id(const char *one, const char *other) { return id_order(one, other) == 0; }

static const char *service_id(const void *item) { return ((const Pb__Service *)item)->id; }
static const char *check_id(const void *item) { return ((const Pb__Check *)item)->check_id; }

static int service_order(const void *a, const void *b) {
    return id_order(service_id(*(const void *const *)a), service_id(*(const void *const *)b));
}
static int check_order(const void *a, const void *b) {
    return id_order(check_id(*(const void *const *)a), check_id(*(const void *const *)b));
}

struct catalog_view {
    const Pb__Node *node;
    Pb__Service **services;
    Pb__Check **checks;
    size_t service_count, check_count;
};

static const void *stored(void *const *items, size_t count, const char *(*id_of)(const void *item), const char *id) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (id_order(id_of(items[middle]), id) < 0) low = middle + 1;
        else high = middle;
    }
    return low < count && same_id(id_of(items[low]), id) ? items[low] : NULL;
}

static const Pb__Service *stored_service(const struct catalog_view *view, const char *id) {
    return stored((void *const *)view->services, view->service_count, service_id, id);
}

static const Pb__Check *stored_check(const struct catalog_view *view, const char *id) {
    return stored((void *const *)view->checks, view->check_count, check_id, id);
}

/* Sorted copies of the lists; the records stay where they are. */
static void view_make(struct anti_entropy *sync, const struct anti_entropy_catalog *catalog,
                      struct catalog_view *view) {
    const Pb__NodeServicesResult *of_node = catalog->services;
    const Pb__ChecksResult *all = catalog->checks;
    if (of_node) {
        view->node = of_node->node;
        view->service_count = of_node->n_services;
        view->services = arena_alloc(&sync->arena, (of_node->n_services + 1) * sizeof *view->services);
        if (of_node->n_services) {
            memcpy(view->services, of_node->services, of_node->n_services * sizeof *view->services);
            qsort(view->services, view->service_count, sizeof *view->services, service_order);
        }
    }
    view->check_count = all->n_checks;
    view->checks = arena_alloc(&sync->arena, (all->n_checks + 1) * sizeof *view->checks);
    if (all->n_checks) {
        memcpy(view->checks, all->checks, all->n_checks * sizeof *view->checks);
        qsort(view->checks, view->check_count, sizeof *view->checks, check_order);
    }
}

/* -- ours against theirs ------------------------------------------------------------------------------------------ */

/* The item is in sync, and need not be written. A removed item may be freed by this. */
static void settle(struct local *local, struct item *item) {
    list_remove(&item->dirty);
    anti_entropy_item_arrived(item);
    item_release(local, item);
}

static void differ(struct local *local, struct item *item) {
    if (list_empty(&item->dirty)) item_touch(local, item);
}

/* EnableTagOverride: the tags belong to whoever set them in the catalog. */
static void take_tags(struct local *local, struct local_service *service, const Pb__Service *stored) {
    Pb__Service *record = service->record;
    bool same = record->n_tags == stored->n_tags;
    for (size_t i = 0; same && i < record->n_tags; i++) same = strcmp(record->tags[i], stored->tags[i]) == 0;
    if (same) return;
    for (size_t i = 0; i < record->n_tags; i++) free(record->tags[i]);
    free(record->tags);
    record->tags = mem_zalloc((stored->n_tags + 1) * sizeof *record->tags);
    record->n_tags = stored->n_tags;
    for (size_t i = 0; i < stored->n_tags; i++) record->tags[i] = mem_strdup(stored->tags[i]);
    item_changed(local, &service->item);
    LIST_FOREACH(link, &service->checks) {
        item_changed(local, &LIST_ENTRY(link, struct local_check, of_service)->item);
    }
}

static void compare_service(struct anti_entropy *sync, struct local_service *service, const Pb__Service *stored) {
    struct local *local = sync->local;
    if (service->item.removed) {
        if (stored && strcmp(stored->id, service->item.id) == 0) {
            differ(local, &service->item);
        } else {
            settle(local, &service->item);
        }
        return;
    }
    /* A change that was made here and is not yet delivered wins over the catalog's tags. After a start all items are
     * dirty although none was changed, so that does not count before the first comparison. */
    bool changed = !list_empty(&service->item.dirty) && local->compared;
    if (stored && service->record->enable_tag_override && !changed) { take_tags(local, service, stored); }
    if (stored && (stored->by_agent || !anti_entropy_labels(sync)) &&
        service_hash(stored, &sync->arena) == service->item.hash) {
        settle(local, &service->item);
    } else {
        differ(local, &service->item);
    }
}

static void take_over(struct local *local, struct local_check *check, const Pb__Check *stored, uint64_t now_ms) {
    /* of a configuration file: its initial status counts as a report */
    bool new = !stored && check->state == CHECK_STATE_NONE;
    check_recall(check, stored, now_ms * 1000000);
    state_note(local, check, new);
    if (list_empty(&check->restart)) list_append(&local->restarts, &check->restart);
    local_wake(local);
    item_changed(local, &check->item);
}

static bool same_output(struct anti_entropy *sync, const struct local_check *check, const Pb__Check *stored) {
    const Pb__Check *record = check_record(sync->local, check, &sync->arena);
    return slice_equal(slice_make((char *)record->output.data, record->output.len),
                       slice_make((char *)stored->output.data, stored->output.len));
}

static void compare_check(struct anti_entropy *sync, struct local_check *check, const Pb__Check *stored,
                          uint64_t now_ms) {
    struct local *local = sync->local;
    if (check->item.removed) {
        if (stored && strcmp(stored->check_id, check->item.id) == 0) {
            differ(local, &check->item);
        } else {
            settle(local, &check->item);
        }
        return;
    }
    if (check->restored && !check->is_maintenance) take_over(local, check, stored, now_ms);
    if (!stored || (!stored->by_agent && anti_entropy_labels(sync)) ||
        check_hash(stored, &sync->arena) != check->item.hash) {
        differ(local, &check->item);
    } else if (same_output(sync, check, stored)) {
        settle(local, &check->item);
    } else {
        /* does nothing for a dirty check, whose record takes the output along */
        check_output_later(local, check, now_ms);
    }
}

/* Removes records from the catalog that this agent once wrote and does not know any more. Records that others wrote
 * under our node are theirs; in a cluster without labels the agent cannot tell them apart, and removes all that it does
 * not know. */
static void find_strangers(struct anti_entropy *sync, const struct catalog_view *view) {
    struct local *local = sync->local;
    bool own_service = local->config.is_server && local->config.server_port, labels = anti_entropy_labels(sync);
    for (size_t i = 0; i < view->service_count; i++) {
        const char *id = view->services[i]->id;
        if (labels && !view->services[i]->by_agent) continue;
        if ((own_service && same_id(id, ANTI_ENTROPY_OWN_SERVICE)) || item_find(&local->services, slice_text(id)))
            continue;
        log_info("health", "removing an unknown service from the catalog id=%s", id);
        struct local_service *service = service_take(local, id);
        service->item.removed = true;
        item_touch(local, &service->item);
    }
    for (size_t i = 0; i < view->check_count; i++) {
        const char *id = view->checks[i]->check_id, *service_id = view->checks[i]->service_id;
        struct item *service = *service_id ? item_find(&local->services, slice_text(service_id)) : NULL;
        if (labels && !view->checks[i]->by_agent) continue;
        if (same_id(id, CHECK_OWN_ID) || item_find(&local->checks, slice_text(id))) continue;
        if (service && service->removed) continue; /* the servers remove it along with its service */
        if (own_service && same_id(service_id, ANTI_ENTROPY_OWN_SERVICE)) continue;
        log_info("health", "removing an unknown check from the catalog id=%s", id);
        struct local_check *check = check_take(local, id);
        check->shared = check_shared_new(check_definition_blank(id, service_id));
        check->item.removed = true;
        item_touch(local, &check->item);
    }
}

static void compare_own(struct anti_entropy *sync, const struct catalog_view *view) {
    const Pb__RegisterCommand *own = anti_entropy_own(sync);
    const Pb__Check *check = stored_check(view, CHECK_OWN_ID);
    const Pb__Service *service = stored_service(view, ANTI_ENTROPY_OWN_SERVICE);
    sync->node_dirty =
        !view->node || node_hash(view->node, &sync->arena) != node_hash(own->node, &sync->arena) || !check ||
        check_hash(check, &sync->arena) != check_hash(own->checks[0], &sync->arena) ||
        (own->service && (!service || service_hash(service, &sync->arena) != service_hash(own->service, &sync->arena)));
}

void anti_entropy_compare(struct anti_entropy *sync, const struct anti_entropy_catalog *catalog, uint64_t now_ms) {
    struct local *local = sync->local;
    struct catalog_view view = {0};
    view_make(sync, catalog, &view);
    compare_own(sync, &view);
    /* From the end, because removed items leave the table when they are settled. */
    for (size_t i = local->services.count; i-- > 0;) {
        struct local_service *service = as_service(local->services.items[i]);
        compare_service(sync, service, stored_service(&view, service->item.id));
    }
    for (size_t i = local->checks.count; i-- > 0;) {
        struct local_check *check = as_check(local->checks.items[i]);
        compare_check(sync, check, stored_check(&view, check->item.id), now_ms);
    }
    find_strangers(sync, &view);
    local->compared = true;
    if (local->states) check_states_settle(local->states);
}
