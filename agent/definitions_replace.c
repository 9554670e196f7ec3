#include <json-c/linkhash.h>

#include "agent/definitions.h"
#include "agent/ids.h"
#include "base/check.h"
#include "health/local.h"

/* Ids that a configuration defines. */
struct defined {
    struct ids services, checks;
};

/* Both configurations were checked already, so a definition that does not parse is a bug. */
static struct service_definition *service_of(const struct config_block *block) {
    struct fault fault = {0};
    struct service_definition *definition = service_definition_parse(block->json, &fault);
    CHECK(definition);
    return definition;
}

static struct check_definition *check_of(const struct config_block *block) {
    struct fault fault = {0};
    struct check_definition *definition = check_definition_parse(block->json, &fault);
    CHECK(definition);
    return definition;
}

static void defined_by(const struct config *config, struct defined *defined) {
    for (size_t i = 0; i < config->services.count; i++) {
        const struct config_block *block = &config->services.items[i];
        struct service_definition *service = service_of(block);
        ids_put(&defined->services, service->service->id, block);
        for (size_t k = 0; k < service->check_count; k++)
            ids_put(&defined->checks, service->checks[k]->check_id, block);
        service_definition_free(service);
    }
    for (size_t i = 0; i < config->checks.count; i++) {
        struct check_definition *check = check_of(&config->checks.items[i]);
        ids_put(&defined->checks, check->check_id, &config->checks.items[i]);
        check_definition_free(check);
    }
}

/* Did the same block define this id before? */
static bool is_same(const struct ids *was, const char *id, const struct config_block *block) {
    const struct lh_entry *entry = ids_find(was, id);
    const struct config_block *before = entry ? lh_entry_v(entry) : NULL;
    return before && json_object_equal(before->json, block->json);
}

/* Checks that the service of each check will exist after the replacement. */
static int judge(struct local *local, const struct config *config, const struct defined *was, const struct defined *now,
                 struct fault *fault) {
    int rv = CO_OK;
    for (size_t i = 0; i < config->checks.count && rv == CO_OK; i++) {
        const struct config_block *block = &config->checks.items[i];
        struct check_definition *check = check_of(block);
        const char *service = check->service_id;
        bool goes = ids_find(&was->services, service) && local_from_file(local, slice_text(service), false);
        if (service[0] && !ids_find(&now->services, service) &&
            (goes || !local_service_hash(local, slice_text(service))))
            rv = fault_set(fault, CO_INVALID, "%s: %s: no service has the id \"%.100s\"", block->file, block->key,
                           service);
        check_definition_free(check);
    }
    return rv;
}

static int put(struct local *local, const struct defined *was, const struct config *now, struct fault *fault) {
    int rv = CO_OK;
    for (size_t i = 0; i < now->services.count && rv == CO_OK; i++) {
        const struct config_block *block = &now->services.items[i];
        struct fault inner = {0};
        struct service_definition *definition = service_of(block);
        const char *id = definition->service->id;
        bool same = is_same(&was->services, id, block) && local_from_file(local, slice_text(id), false);
        if (same) service_definition_free(definition);
        else if ((rv = local_service_register(local, definition, true, false, &inner)) != CO_OK)
            fault_set(fault, rv, "%s: %s: %s", block->file, block->key, inner.text);
    }
    for (size_t i = 0; i < now->checks.count && rv == CO_OK; i++) {
        const struct config_block *block = &now->checks.items[i];
        struct fault inner = {0};
        struct check_definition *definition = check_of(block);
        const char *id = definition->check_id;
        bool same = is_same(&was->checks, id, block) && local_from_file(local, slice_text(id), true);
        if (same) check_definition_free(definition);
        else if ((rv = local_check_register(local, definition, false, &inner)) != CO_OK)
            fault_set(fault, rv, "%s: %s: %s", block->file, block->key, inner.text);
    }
    return rv;
}

static const struct lh_entry *first(const struct ids *ids) { return ids->table ? ids->table->head : NULL; }

/* Removes the services and checks that only the old configuration defines. Those that were registered over HTTP under
 * the same id meanwhile stay. */
static void remove_gone(struct local *local, const struct defined *was, const struct defined *now) {
    for (const struct lh_entry *at = first(&was->checks); at; at = at->next) {
        const char *id = lh_entry_k(at);
        if (!ids_find(&now->checks, id) && local_from_file(local, slice_text(id), true))
            (void)local_check_deregister(local, slice_text(id));
    }
    for (const struct lh_entry *at = first(&was->services); at; at = at->next) {
        const char *id = lh_entry_k(at);
        if (!ids_find(&now->services, id) && local_from_file(local, slice_text(id), false))
            (void)local_service_deregister(local, slice_text(id));
    }
}

int definitions_replace(struct local *local, const struct config *was, const struct config *now, struct fault *fault) {
    struct defined before = {0}, after = {0};
    defined_by(was, &before);
    defined_by(now, &after);
    int rv = judge(local, now, &before, &after, fault);
    if (rv == CO_OK) rv = put(local, &before, now, fault);
    if (rv == CO_OK) remove_gone(local, &before, &after);
    struct ids *all[] = {&before.services, &before.checks, &after.services, &after.checks};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) ids_free(all[i]);
    return rv;
}
