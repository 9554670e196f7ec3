#include <stdlib.h>

#include "agent/definitions.h"
#include "base/check.h"
#include "health/local.h"

/* Ids that a configuration defines, and which of its blocks says what another said too. */
struct ids {
    char **items;
    size_t count, room;
};
struct defined {
    struct ids services, checks;
};

static void ids_add(struct ids *ids, const char *id) {
    if (ids->count == ids->room) {
        ids->room = ids->room ? ids->room * 2 : 16;
        ids->items = mem_realloc(ids->items, ids->room * sizeof *ids->items);
    }
    ids->items[ids->count++] = mem_strdup(id);
}

static bool ids_has(const struct ids *ids, const char *id) {
    for (size_t i = 0; i < ids->count; i++)
        if (slice_equal_nocase(slice_text(ids->items[i]), slice_text(id))) return true;
    return false;
}

static void ids_free(struct ids *ids) {
    for (size_t i = 0; i < ids->count; i++) free(ids->items[i]);
    free(ids->items);
}

/* Both configurations were judged already: what does not parse is our own mistake. */
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
        struct service_definition *service = service_of(&config->services.items[i]);
        ids_add(&defined->services, service->service->id);
        for (size_t k = 0; k < service->check_count; k++) ids_add(&defined->checks, service->checks[k]->check_id);
        service_definition_free(service);
    }
    for (size_t i = 0; i < config->checks.count; i++) {
        struct check_definition *check = check_of(&config->checks.items[i]);
        ids_add(&defined->checks, check->check_id);
        check_definition_free(check);
    }
}

static bool stands_in(const struct config_blocks *blocks, const struct config_block *block) {
    for (size_t i = 0; i < blocks->count; i++)
        if (json_object_equal(blocks->items[i].json, block->json)) return true;
    return false;
}

/* Services of checks are there, once all is done. */
static int judge(struct local *local, const struct config *config, const struct defined *was, const struct defined *now,
                 struct fault *fault) {
    int rv = CO_OK;
    for (size_t i = 0; i < config->checks.count && rv == CO_OK; i++) {
        const struct config_block *block = &config->checks.items[i];
        struct check_definition *check = check_of(block);
        const char *service = check->service_id;
        bool goes = ids_has(&was->services, service) && local_from_file(local, slice_text(service), false);
        if (service[0] && !ids_has(&now->services, service) &&
            (goes || !local_service_hash(local, slice_text(service))))
            rv = fault_set(fault, CO_INVALID, "%s: %s: no service has the id \"%.100s\"", block->file, block->key,
                           service);
        check_definition_free(check);
    }
    return rv;
}

static int put(struct local *local, const struct config *was, const struct config *now, struct fault *fault) {
    int rv = CO_OK;
    for (size_t i = 0; i < now->services.count && rv == CO_OK; i++) {
        const struct config_block *block = &now->services.items[i];
        struct fault inner = {0};
        struct service_definition *definition = service_of(block);
        bool same =
            stands_in(&was->services, block) && local_from_file(local, slice_text(definition->service->id), false);
        if (same) service_definition_free(definition);
        else if ((rv = local_service_register(local, definition, true, false, &inner)) != CO_OK)
            fault_set(fault, rv, "%s: %s: %s", block->file, block->key, inner.text);
    }
    for (size_t i = 0; i < now->checks.count && rv == CO_OK; i++) {
        const struct config_block *block = &now->checks.items[i];
        struct fault inner = {0};
        struct check_definition *definition = check_of(block);
        bool same = stands_in(&was->checks, block) && local_from_file(local, slice_text(definition->check_id), true);
        if (same) check_definition_free(definition);
        else if ((rv = local_check_register(local, definition, false, &inner)) != CO_OK)
            fault_set(fault, rv, "%s: %s: %s", block->file, block->key, inner.text);
    }
    return rv;
}

/* What was registered over HTTP under the same id meanwhile stays. */
static void remove_gone(struct local *local, const struct defined *was, const struct defined *now) {
    for (size_t i = 0; i < was->checks.count; i++) {
        const char *id = was->checks.items[i];
        if (!ids_has(&now->checks, id) && local_from_file(local, slice_text(id), true))
            (void)local_check_deregister(local, slice_text(id));
    }
    for (size_t i = 0; i < was->services.count; i++) {
        const char *id = was->services.items[i];
        if (!ids_has(&now->services, id) && local_from_file(local, slice_text(id), false))
            (void)local_service_deregister(local, slice_text(id));
    }
}

int definitions_replace(struct local *local, const struct config *was, const struct config *now, struct fault *fault) {
    struct defined before = {0}, after = {0};
    defined_by(was, &before);
    defined_by(now, &after);
    int rv = judge(local, now, &before, &after, fault);
    if (rv == CO_OK) rv = put(local, was, now, fault);
    if (rv == CO_OK) remove_gone(local, &before, &after);
    struct ids *all[] = {&before.services, &before.checks, &after.services, &after.checks};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) ids_free(all[i]);
    return rv;
}
