#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/host.h"
#include "base/text.h"
#include "health/definition.h"

#define META_COUNT_MOST 64
#define META_KEY_MOST   128
#define META_VALUE_MOST 512
#define WEIGHT_MOST     65535

static const char *const service_keys[] = {
    "ID",    "Name",   "Tags",    "Meta", "Address", "Port",    "SocketPath", "TaggedAddresses", "EnableTagOverride",
    "Check", "Checks", "Weights", "Kind", "Proxy",   "Connect", "Token",      "Namespace",       "Partition",
    "Lease", NULL,
};
static const char *const address_keys[] = {"Address", "Port", NULL};
static const char *const weight_keys[] = {"Passing", "Warning", NULL};

/* -- records ------------------------------------------------------------------------------------------------------ */

void pb_set(char **field, const char *text) {
    if (*field != protobuf_c_empty_string) free(*field);
    *field = *text ? mem_strdup(text) : (char *)protobuf_c_empty_string;
}

Pb__Service *service_copy(const Pb__Service *service) {
    size_t size = pb__service__get_packed_size(service);
    uint8_t *bytes = mem_alloc(size);
    pb__service__pack(service, bytes);
    Pb__Service *copy = pb__service__unpack(NULL, size, bytes);
    CHECK(copy != NULL);
    free(bytes);
    return copy;
}

void service_definition_free(struct service_definition *definition) {
    if (!definition) return;
    if (definition->service) pb__service__free_unpacked(definition->service, NULL);
    token_free(definition->token);
    for (size_t i = 0; i < definition->check_count; i++) check_definition_free(definition->checks[i]);
    free(definition->checks);
    free(definition);
}

void service_definition_token(struct service_definition *definition, struct slice token) {
    token_set(&definition->token, token);
    for (size_t i = 0; i < definition->check_count; i++) check_definition_token(definition->checks[i], token);
}

/* -- parts -------------------------------------------------------------------------------------------------------- */

static void set_text(struct json_object *json, const char *key, char **field, struct fault *fault) {
    const char *text = "";
    json_get_string(json, key, &text, fault);
    pb_set(field, text);
}

/* The text of a string value; NULL and a fault for anything else. */
static const char *plain_text(struct json_object *value, const char *key, struct fault *fault) {
    if (json_object_is_type(value, json_type_string)) {
        const char *text = json_object_get_string(value);
        if (strlen(text) == (size_t)json_object_get_string_len(value)) return text;
    }
    fault_set(fault, CO_INVALID, "%s: strings of text are wanted", key);
    return NULL;
}

static void read_tags(struct json_object *json, Pb__Service *service, struct fault *fault) {
    struct json_object *tags = json_get_array(json, "Tags", fault);
    size_t count = tags ? json_object_array_length(tags) : 0;
    if (count == 0) return;
    service->tags = mem_zalloc(count * sizeof *service->tags);
    for (size_t i = 0; i < count; i++) {
        struct json_object *one = json_object_array_get_idx(tags, i); /* null: an empty one, as in Go */
        const char *tag = one ? plain_text(one, "Tags", fault) : "";
        if (!tag) return;
        service->tags[service->n_tags++] = mem_strdup(tag);
    }
}

static bool is_meta_key(const char *key) {
    for (; *key; key++) {
        bool fine = (*key >= 'a' && *key <= 'z') || (*key >= 'A' && *key <= 'Z') || (*key >= '0' && *key <= '9') ||
                    *key == '_' || *key == '-';
        if (!fine) return false;
    }
    return true;
}

static void check_meta(const char *key, const char *value, struct fault *fault) {
    const char *wrong = *key == '\0'                      ? "Key cannot be blank"
                        : !is_meta_key(key)               ? "Key contains invalid characters"
                        : strlen(key) > META_KEY_MOST     ? "Key is too long (limit: 128 characters)"
                        : strncmp(key, "consul-", 7) == 0 ? "Key prefix 'consul-' is reserved for internal use"
                        : strlen(value) > META_VALUE_MOST ? "Value is too long (limit: 512 characters)"
                                                          : NULL;
    if (wrong) {
        fault_set(fault, CO_INVALID, "Invalid Service Meta: Couldn't load metadata pair ('%.40s', '%.40s'): %s", key,
                  value, wrong);
    }
}

static int compare_pairs(const void *a, const void *b) {
    return strcmp((*(Pb__Pair *const *)a)->key, (*(Pb__Pair *const *)b)->key);
}

static void read_meta(struct json_object *json, Pb__Service *service, struct fault *fault) {
    struct json_object *meta = json_get_object(json, "Meta", fault);
    int count = meta ? json_object_object_length(meta) : 0;
    if (count == 0) return;
    if (count > META_COUNT_MOST) {
        fault_set(fault, CO_INVALID, "Invalid Service Meta: cannot contain more than %d key/value pairs",
                  META_COUNT_MOST);
        return;
    }
    service->meta = mem_zalloc((size_t)count * sizeof *service->meta);
    json_each(meta, key, object) {
        const char *value = plain_text(object, "Meta", fault);
        if (!value) return;
        check_meta(key, value, fault);
        Pb__Pair *pair = mem_alloc(sizeof *pair);
        pb__pair__init(pair);
        pb_set(&pair->key, key);
        pb_set(&pair->value, value);
        service->meta[service->n_meta++] = pair;
    }
    qsort(service->meta, service->n_meta, sizeof *service->meta, compare_pairs);
}

static bool is_any_address(const char *address) {
    return strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0 || strcmp(address, "[::]") == 0;
}

static void add_address(Pb__Service *service, const char *name, const char *address, uint32_t port) {
    for (size_t i = 0; i < service->n_tagged_addresses; i++) {
        if (strcmp(service->tagged_addresses[i]->name, name) == 0) return;
    }
    service->tagged_addresses =
        mem_realloc(service->tagged_addresses, (service->n_tagged_addresses + 1) * sizeof *service->tagged_addresses);
    Pb__TaggedAddress *tagged = mem_alloc(sizeof *tagged);
    pb__tagged_address__init(tagged);
    pb_set(&tagged->name, name);
    pb_set(&tagged->address, address);
    tagged->port = port;
    service->tagged_addresses[service->n_tagged_addresses++] = tagged;
}

static int compare_addresses(const void *a, const void *b) {
    return strcmp((*(Pb__TaggedAddress *const *)a)->name, (*(Pb__TaggedAddress *const *)b)->name);
}

/* Reads the given addresses. A service address that is an IP address is added under names such as lan_ipv4, because
 * clients of this API expect that. */
static void read_addresses(struct json_object *json, Pb__Service *service, struct fault *fault) {
    struct json_object *given = json_get_object(json, "TaggedAddresses", fault);
    if (given) {
        json_each(given, name, value) {
            const char *address = "";
            uint64_t port = 0;
            if (!json_object_is_type(value, json_type_object)) {
                fault_set(fault, CO_INVALID, "TaggedAddresses: an object is wanted for \"%.60s\"", name);
                return;
            }
            json_only_known(value, address_keys, fault);
            json_get_string(value, "Address", &address, fault);
            json_get_u64(value, "Port", UINT16_MAX, &port, fault);
            if (is_any_address(address)) fault_set(fault, CO_INVALID, "Invalid service address");
            add_address(service, name, address, (uint32_t)port);
        }
    }
    uint8_t size = host_parse(service->address).size;
    if (size == 4) {
        add_address(service, "lan_ipv4", service->address, service->port);
        add_address(service, "wan_ipv4", service->address, service->port);
    } else if (size == 16) {
        add_address(service, "lan_ipv6", service->address, service->port);
        add_address(service, "wan_ipv6", service->address, service->port);
    }
    if (service->n_tagged_addresses == 0) return;
    qsort(service->tagged_addresses, service->n_tagged_addresses, sizeof *service->tagged_addresses, compare_addresses);
}

static void read_weights(struct json_object *json, Pb__Service *service, struct fault *fault) {
    struct json_object *weights = json_get_object(json, "Weights", fault);
    service->weight_passing = service->weight_warning = 1;
    if (!weights) return;
    int64_t passing = 0, warning = 0;
    json_only_known(weights, weight_keys, fault);
    json_get_i64(weights, "Passing", &passing, fault);
    json_get_i64(weights, "Warning", &warning, fault);
    if (passing < 1) {
        fault_set(fault, CO_INVALID, "Invalid Weights: Passing must be greater than 0");
    } else if (warning < 0) {
        fault_set(fault, CO_INVALID, "Invalid Weights: Warning must be greater or equal than 0");
    } else if (passing > WEIGHT_MOST || warning > WEIGHT_MOST) {
        fault_set(fault, CO_INVALID, "Invalid Weights: DNS Weight must be between 0 and 65535");
    } else {
        service->weight_passing = (uint32_t)passing;
        service->weight_warning = (uint32_t)warning;
    }
}

/* Refuses an invalid lease in the words of /v1/catalog/register. */
static void read_lease(struct json_object *json, Pb__Service *service, struct fault *fault) {
    set_text(json, "Lease", &service->lease, fault);
    if (*service->lease && !uuid_valid(slice_text(service->lease)))
        fault_set(fault, CO_INVALID, "Lease: \"%.60s\" is no lease ID: a UUID is wanted", service->lease);
    for (char *at = service->lease; *at; at++) *at = (char)tolower((unsigned char)*at);
}

/* Refuses parts of Consul's API that this version does not have, unless they are empty. */
static void refuse_unbuilt(struct json_object *json, struct fault *fault) {
    static const char *const keys[] = {"Proxy", "Connect", "SocketPath", "Partition"};
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        struct json_object *value = json_get(json, keys[i]);
        bool empty = !value ||
                     (json_object_is_type(value, json_type_object) && json_object_object_length(value) == 0) ||
                     (json_object_is_type(value, json_type_string) && json_object_get_string_len(value) == 0);
        if (!empty) fault_set(fault, CO_INVALID, "%s is not supported by this version", keys[i]);
    }
    const char *namespace = "";
    json_get_string(json, "Namespace", &namespace, fault);
    if (*namespace && strcmp(namespace, "default") != 0) {
        fault_set(fault, CO_INVALID, "Namespace: there is only \"default\"");
    }
}

/* -- checks of a service ------------------------------------------------------------------------------------------ */

static void add_check(struct service_definition *definition, struct json_object *json, struct fault *fault) {
    struct check_definition *check = check_definition_read(json, true, fault);
    if (!check) return;
    definition->checks = mem_realloc(definition->checks, (definition->check_count + 1) * sizeof *definition->checks);
    definition->checks[definition->check_count++] = check;
}

static void read_checks(struct json_object *json, struct service_definition *definition, struct fault *fault) {
    struct json_object *one = json_get(json, "Check");
    if (one) add_check(definition, one, fault);
    struct json_object *list = json_get_array(json, "Checks", fault);
    size_t count = list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (item) add_check(definition, item, fault);
    }
}

/* Fills in ids and names that were not given: "service:ID", or "service:ID:2" where there are several. */
static void name_checks(struct service_definition *definition) {
    for (size_t i = 0; i < definition->check_count; i++) {
        struct check_definition *check = definition->checks[i];
        struct buffer text = {0};
        if (*check->check_id == '\0') {
            buffer_printf(&text, "service:%s", definition->service->id);
            if (definition->check_count > 1) buffer_printf(&text, ":%zu", i + 1);
            free(check->check_id);
            check->check_id = mem_strndup(text.data, text.size);
            buffer_reset(&text);
        }
        if (*check->name == '\0') {
            buffer_printf(&text, "Service '%s' check", definition->service->name);
            free(check->name);
            check->name = mem_strndup(text.data, text.size);
        }
        free(check->service_id);
        check->service_id = mem_strdup(definition->service->id);
        buffer_free(&text);
    }
}

/* -- the whole ---------------------------------------------------------------------------------------------------- */

static void read_service(struct json_object *json, Pb__Service *service, struct fault *fault) {
    uint64_t port = 0;
    bool override = false;
    set_text(json, "Name", &service->name, fault);
    set_text(json, "ID", &service->id, fault);
    if (*service->id == '\0') pb_set(&service->id, service->name);
    set_text(json, "Address", &service->address, fault);
    set_text(json, "Kind", &service->kind, fault);
    json_get_u64(json, "Port", UINT16_MAX, &port, fault);
    service->port = (uint32_t)port;
    json_get_bool(json, "EnableTagOverride", &override, fault);
    service->enable_tag_override = override;
    read_tags(json, service, fault);
    if (fault->code == CO_OK && *service->name == '\0') fault_set(fault, CO_INVALID, "Missing service name");
    if (is_any_address(service->address)) fault_set(fault, CO_INVALID, "Invalid service address");
    read_meta(json, service, fault);
    read_weights(json, service, fault);
    read_addresses(json, service, fault);
    read_lease(json, service, fault);
    refuse_unbuilt(json, fault);
}

struct service_definition *service_definition_parse(struct json_object *json, struct fault *fault) {
    struct fault wrong = {0};
    if (!json_object_is_type(json, json_type_object)) {
        fault_set(fault, CO_INVALID, "Service: an object is wanted");
        return NULL;
    }
    struct service_definition *definition = mem_zalloc(sizeof *definition);
    definition->service = mem_alloc(sizeof *definition->service);
    pb__service__init(definition->service);
    json_only_known(json, service_keys, &wrong);
    read_service(json, definition->service, &wrong);
    definition->token = token_read(json, &wrong);
    read_checks(json, definition, &wrong);
    if (wrong.code == CO_OK) {
        name_checks(definition);
        return definition;
    }
    fault_set(fault, wrong.code, "%s", wrong.text);
    service_definition_free(definition);
    return NULL;
}
