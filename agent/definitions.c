#include "agent/definitions.h"

#include <stdio.h>
#include <unistd.h>

#include "agent/ids.h"
#include "agent/watch.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"
#include "health/local.h"

struct judge {
    struct config *config;
    struct ids services, checks; /* seen so far */
    bool incomplete; /* some services are not known, because they have mistakes or their file could not be read */
    struct fault *fault;
};

/* The name of the member that a fault is about: `unknown key "Tasg" ...`, `interval: ...`. */
static struct slice named(const char *text) {
    static const char unknown[] = "unknown key \"";
    if (strncmp(text, unknown, sizeof unknown - 1) == 0) {
        text += sizeof unknown - 1;
        return slice_make(text, strcspn(text, "\""));
    }
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return slice_make(text, text[size] == ':' ? size : 0);
}

/* The place of the first member of this name in a value; 0: there is none. */
static size_t place_below(struct slice text, struct json_object *value, const struct json_step *up, struct slice name,
                          unsigned depth) {
    size_t found = 0;
    if (depth == 0) return 0;
    if (json_object_is_type(value, json_type_array)) {
        for (size_t i = 0; !found && i < json_object_array_length(value); i++)
            found = place_below(text, json_object_array_get_idx(value, i), &(struct json_step){.up = up, .index = i},
                                name, depth - 1);
    } else if (json_object_is_type(value, json_type_object)) {
        json_each(value, key, member) {
            struct json_step step = {.up = up, .name = key};
            if (found) break;
            found = json_same_key(slice_text(key), name) ? json_place(text, &step)
                                                         : place_below(text, member, &step, name, depth - 1);
        }
    }
    return found;
}

static int wrong(struct judge *judge, const struct config_block *block, const char *text) {
    char place[48] = "";
    if (block->source && block->member && !config_errors_full(judge->config)) {
        struct json_step member = {.name = block->member}, item = {.up = &member, .index = block->index};
        const struct json_step *step = block->item ? &item : &member;
        struct slice file = buffer_slice(&block->source->text), name = named(text);
        size_t line, column, at = name.size ? place_below(file, block->json, step, name, 8) : 0;
        text_place(file, at ? at : json_place(file, step), &line, &column);
        snprintf(place, sizeof place, ":%zu:%zu", line, column);
    }
    return config_wrong(judge->config, judge->fault, CO_INVALID, "%s%s: %s: %s", block->file, place, block->key, text);
}

/* Adds an id; an error when the id is defined already. */
static int put(struct judge *judge, struct ids *ids, const struct config_block *block, const char *what,
               const char *id) {
    const struct lh_entry *entry = ids_find(ids, id);
    if (!entry) {
        ids_put(ids, id, block);
        return CO_OK;
    }
    const struct config_block *first = lh_entry_v(entry);
    struct fault text = {0};
    fault_set(&text, CO_INVALID, "a second %s with the id \"%.60s\", which %.60s (%s) has", what,
              (const char *)lh_entry_k(entry), first->file, first->key);
    return wrong(judge, block, text.text);
}

struct check_permission config_check_permission(const struct config *config) {
    return (struct check_permission){config->enable_script_checks, config->enable_local_script_checks};
}

static int check_seen(struct judge *judge, const struct config_block *block, const struct check_definition *check) {
    struct check_permission permission = config_check_permission(judge->config);
    struct fault inner = {0};
    if (check_definition_permit(check, &permission, true, &inner) != CO_OK) return wrong(judge, block, inner.text);
    return check->check_id[0] ? put(judge, &judge->checks, block, "check", check->check_id) : CO_OK;
}

static int service_seen(struct judge *judge, const struct config_block *block,
                        const struct service_definition *definition) {
    int rv = put(judge, &judge->services, block, "service", definition->service->id);
    for (size_t i = 0; i < definition->check_count && rv == CO_OK; i++)
        rv = check_seen(judge, block, definition->checks[i]);
    return rv;
}

/* Refuses numbers as durations. The API takes them as nanoseconds, for clients that write only numbers; in a file
 * another unit was probably meant. */
static void refuse_numbers(struct json_object *check, struct fault *fault) {
    static const char *const keys[] = {"interval", "timeout", "ttl", "deregister_critical_service_after"};
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        struct json_object *value = json_get(check, keys[i]);
        if (json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double))
            fault_set(fault, CO_INVALID, "%s: a duration with its unit like \"10s\" is wanted, not a number", keys[i]);
    }
}

static void refuse_numbers_of_service(struct json_object *service, struct fault *fault) {
    struct json_object *checks = json_get(service, "checks");
    refuse_numbers(json_get(service, "check"), fault);
    for (size_t i = 0; json_object_is_type(checks, json_type_array) && i < json_object_array_length(checks); i++)
        refuse_numbers(json_object_array_get_idx(checks, i), fault);
}

static int judge_service(struct judge *judge, const struct config_block *block) {
    struct fault inner = {0};
    refuse_numbers_of_service(block->json, &inner);
    struct service_definition *definition = inner.code == CO_OK ? service_definition_parse(block->json, &inner) : NULL;
    if (!definition) {
        judge->incomplete = true;
        return wrong(judge, block, inner.text);
    }
    int rv = service_seen(judge, block, definition);
    service_definition_free(definition);
    return rv;
}

/* May the service have been registered over HTTP? Such services are kept in the data folder, and checks in files may be
 * for them. */
static bool may_be_saved(const struct judge *judge) {
    if (!judge->config->data_dir) return false;
    struct buffer path = {0};
    buffer_printf(&path, "%s/local/definitions", judge->config->data_dir);
    buffer_append_byte(&path, '\0');
    bool there = access(path.data, F_OK) == 0;
    buffer_free(&path);
    return there;
}

static int judge_check(struct judge *judge, const struct config_block *block) {
    struct fault inner = {0};
    refuse_numbers(block->json, &inner);
    if (inner.code != CO_OK) return wrong(judge, block, inner.text);
    struct check_definition *definition = check_definition_parse(block->json, &inner);
    if (!definition) return wrong(judge, block, inner.text);
    int rv = check_seen(judge, block, definition);
    const char *service = definition->service_id;
    bool known = !service[0] || judge->incomplete || ids_find(&judge->services, service);
    if (rv == CO_OK && !known && !may_be_saved(judge)) {
        fault_set(&inner, CO_INVALID, "no service has the id \"%.100s\"", service);
        rv = wrong(judge, block, inner.text);
    }
    check_definition_free(definition);
    return rv;
}

static int judge_watch(struct judge *judge, const struct config_block *block) {
    struct fault inner = {0};
    struct watch *watch = watch_parse(block->json, true, &inner);
    if (!watch) return wrong(judge, block, inner.text);
    watch_free(watch);
    const char *own = judge->config->http_addr;
    if (judge->config->http_port < 0 && !(own && strstr(own, "unix://")))
        return wrong(judge, block, "watches ask this agent's HTTP API, which is off");
    return CO_OK;
}

int definitions_check(struct config *config, struct fault *fault) {
    struct judge judge = {.config = config, .fault = fault, .incomplete = config->unread};
    size_t errors = config->errors.count;
    for (size_t i = 0; i < config->services.count; i++) judge_service(&judge, &config->services.items[i]);
    for (size_t i = 0; i < config->checks.count; i++) judge_check(&judge, &config->checks.items[i]);
    for (size_t i = 0; i < config->watches.count; i++) judge_watch(&judge, &config->watches.items[i]);
    ids_free(&judge.services);
    ids_free(&judge.checks);
    config_forget_texts(config);
    return config->errors.count == errors && !config->more_errors ? CO_OK : CO_INVALID;
}
