#include "acl/login.h"

#include <ctype.h>
#include <string.h>

#include "acl/selector.h"
#include "base/json_in.h"
#include "base/message.h"
#include "registry/trust.h"

#define ITEMS_MOST 64

/* -- the configuration of a method ------------------------------------------------------------------------------------- */
enum type { TYPE_JWT, TYPE_UNIX, TYPE_CERTIFICATE };
static const char *const type_names[] = {"jwt", "unix", "certificate"};

struct config {
    enum type type;
    struct json_object *json;
    struct jwt_keys *keys;
    struct jwt_rules rules;
    struct slice audiences[ITEMS_MOST];
    struct jwt_mapping values[ITEMS_MOST], lists[ITEMS_MOST];
    struct selector_names names;
    struct slice nodes[ITEMS_MOST]; /* globs */
    size_t node_count;
    struct buffer cas; /* PEM */
};

static void config_free(struct config *config) {
    buffer_free(&config->cas);
    jwt_keys_free(config->keys);
    if (config->json) json_object_put(config->json);
}

/* The texts of a list; texts live as long as the JSON. */
static size_t texts_of(struct json_object *json, const char *name, struct slice *texts, struct fault *fault) {
    struct json_object *list = json_get_array(json, name, fault);
    size_t count = list ? json_object_array_length(list) : 0;
    if (count > ITEMS_MOST) fault_set(fault, CO_INVALID, "Config: %s has more than %d items", name, ITEMS_MOST);
    if (count > ITEMS_MOST) return 0;
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (!json_object_is_type(item, json_type_string)) {
            fault_set(fault, CO_INVALID, "Config: %s[%zu]: a text is wanted", name, i);
            return 0;
        }
        texts[i] = slice_make(json_object_get_string(item), (size_t)json_object_get_string_len(item));
    }
    return count;
}

static bool is_name(const char *text) {
    size_t size = 0;
    while (isalnum((unsigned char)text[size]) || text[size] == '_') size++;
    return size && !text[size];
}

static size_t mappings_of(struct json_object *json, const char *name, struct jwt_mapping *mappings,
                          struct fault *fault) {
    struct json_object *map = json_get_object(json, name, fault);
    size_t count = 0;
    if (!map) return 0;
    json_each(map, claim, value) {
        const char *variable = json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
        if (!is_name(variable))
            fault_set(fault, CO_INVALID, "Config: %s: \"%.60s\" has to become a name of letters, digits and _", name,
                      claim);
        else if (count == ITEMS_MOST)
            fault_set(fault, CO_INVALID, "Config: %s has more than %d items", name, ITEMS_MOST);
        else mappings[count++] = (struct jwt_mapping){claim, variable};
    }
    return count;
}

static void leeway(struct json_object *json, const char *name, int64_t *seconds, struct fault *fault) {
    int64_t ns = 0;
    json_get_duration(json, name, &ns, fault);
    *seconds = ns / 1000000000;
    if (ns && !*seconds) *seconds = ns < 0 ? -1 : 1;
}

static void read_algs(struct config *config, struct fault *fault) {
    struct slice texts[ITEMS_MOST];
    size_t count = texts_of(config->json, "JWTSupportedAlgs", texts, fault);
    for (size_t i = 0; i < count; i++) {
        enum jwt_alg alg;
        if (jwt_alg_parse(texts[i], &alg)) config->rules.algs |= 1u << alg;
        else fault_set(fault, CO_INVALID, "Config: JWTSupportedAlgs: \"%.20s\" is none that is known", texts[i].data);
    }
}

static void read_keys(struct config *config, struct fault *fault) {
    struct slice pems[ITEMS_MOST];
    struct fault inner = {0};
    size_t count = texts_of(config->json, "JWTValidationPubKeys", pems, fault);
    struct json_object *jwks = json_get_object(config->json, "JWKS", fault);
    config->keys = jwt_keys_new();
    for (size_t i = 0; i < count && !inner.code; i++)
        if (jwt_keys_add_pem(config->keys, pems[i], &inner) != CO_OK)
            fault_set(fault, CO_INVALID, "Config: JWTValidationPubKeys[%zu]: %.160s", i, inner.text);
    if (jwks && !inner.code &&
        jwt_keys_add_jwks(config->keys, slice_text(json_object_to_json_string(jwks)), &inner) != CO_OK)
        fault_set(fault, CO_INVALID, "Config: JWKS: %.160s", inner.text);
    if (!jwt_keys_count(config->keys))
        fault_set(fault, CO_INVALID, "Config: JWTValidationPubKeys or JWKS with a key is wanted");
}

static const char *const jwt_keys_known[] = {"JWTValidationPubKeys",
                                             "JWKS",
                                             "JWTSupportedAlgs",
                                             "BoundIssuer",
                                             "BoundAudiences",
                                             "ClaimMappings",
                                             "ListClaimMappings",
                                             "ExpirationLeeway",
                                             "NotBeforeLeeway",
                                             "ClockSkewLeeway",
                                             NULL};

static void read_jwt(struct config *config, struct fault *fault) {
    const char *issuer = "";
    if (json_get(config->json, "JWKSURL") || json_get(config->json, "OIDCDiscoveryURL"))
        fault_set(fault, CO_INVALID, "Config: keys are not fetched: put them into JWKS or JWTValidationPubKeys");
    json_only_known(config->json, jwt_keys_known, fault);
    json_get_string(config->json, "BoundIssuer", &issuer, fault);
    config->rules.issuer = slice_text(issuer);
    config->rules.audience_count = texts_of(config->json, "BoundAudiences", config->audiences, fault);
    config->rules.audiences = config->audiences;
    leeway(config->json, "ExpirationLeeway", &config->rules.expiration_leeway_s, fault);
    leeway(config->json, "NotBeforeLeeway", &config->rules.not_before_leeway_s, fault);
    leeway(config->json, "ClockSkewLeeway", &config->rules.clock_skew_leeway_s, fault);
    config->names.values = config->values, config->names.lists = config->lists;
    config->names.value_count = mappings_of(config->json, "ClaimMappings", config->values, fault);
    config->names.list_count = mappings_of(config->json, "ListClaimMappings", config->lists, fault);
    read_algs(config, fault);
    read_keys(config, fault);
}

static void read_nodes(struct config *config, struct fault *fault) {
    config->node_count = texts_of(config->json, "BoundNodes", config->nodes, fault);
    for (size_t i = 0; i < config->node_count; i++)
        if (!config->nodes[i].size || config->nodes[i].size > TRUST_GLOB_MAX)
            fault_set(fault, CO_INVALID,
                      "Config: BoundNodes[%zu]: a name of a node, with * and ?, of 1 to %d bytes is wanted", i,
                      TRUST_GLOB_MAX);
}

static void read_unix(struct config *config, struct fault *fault) {
    static const char *const known[] = {"BoundNodes", NULL};
    json_only_known(config->json, known, fault);
    config->names = proof_unix_names;
    read_nodes(config, fault);
}

static bool are_cas(struct slice pem) {
    size_t count = tls_certificate_count(pem);
    bool fits = count > 0;
    for (size_t i = 0; i < count && fits; i++) {
        struct buffer one = {0};
        struct tls_certificate certificate;
        fits = tls_certificate_at(pem, i, &one, NULL) == CO_OK &&
               tls_certificate_read(buffer_slice(&one), &certificate, NULL) == CO_OK && certificate.is_ca;
        buffer_free(&one);
    }
    return fits;
}

static void read_certificate(struct config *config, struct fault *fault) {
    static const char *const known[] = {"CACerts", "BoundNodes", NULL};
    struct slice pems[ITEMS_MOST];
    json_only_known(config->json, known, fault);
    config->names = proof_certificate_names;
    read_nodes(config, fault);
    size_t count = texts_of(config->json, "CACerts", pems, fault);
    for (size_t i = 0; i < count; i++) {
        if (!are_cas(pems[i]))
            fault_set(fault, CO_INVALID, "Config: CACerts[%zu]: certificates of CAs in PEM are wanted", i);
        buffer_append(&config->cas, pems[i].data, pems[i].size);
        buffer_append_byte(&config->cas, '\n');
    }
}

static bool type_of(const char *name, enum type *type) {
    for (size_t i = 0; i < ARRAY_COUNT(type_names); i++)
        if (strcmp(name, type_names[i]) == 0) {
            *type = (enum type)i;
            return true;
        }
    return false;
}

static int config_read(const Pb__AclAuthMethod *method, struct config *config, struct fault *fault) {
    static void (*const readers[])(struct config * config, struct fault * fault) = {read_jwt, read_unix,
                                                                                    read_certificate};
    struct fault first = {0};
    *config = (struct config){0};
    if (!type_of(method->type, &config->type))
        return fault_set(fault, CO_INVALID, "Invalid Auth Method: Type should be one of: [jwt unix certificate]");
    config->json = json_parse(method->config.len ? message_slice(method->config) : SLICE_LITERAL("{}"), &first);
    if (config->json) readers[config->type](config, &first);
    if (!first.code) return CO_OK;
    config_free(config);
    return fault_set(fault, CO_INVALID, "Invalid Auth Method: %s", first.text);
}

int acl_login_check(const Pb__AclAuthMethod *method, struct fault *fault) {
    struct config config;
    int error = config_read(method, &config, fault);
    if (!error) config_free(&config);
    return error;
}

/* -- names that are made of variables ------------------------------------------------------------------------------------ */
static struct slice text_of(const struct jwt_variables *variables, const char *name, size_t size) {
    struct slice text = slice_make("", 0);
    for (size_t i = 0; variables && i < variables->value_count; i++)
        if (strlen(variables->values[i].name) == size && memcmp(variables->values[i].name, name, size) == 0)
            text = variables->values[i].text;
    return text;
}

static bool is_mapped(const struct selector_names *names, const char *name, size_t size) {
    for (size_t i = 0; i < names->value_count; i++)
        if (strlen(names->values[i].name) == size && memcmp(names->values[i].name, name, size) == 0) return true;
    return false;
}

/* "web-${value.name}" */
static int interpolate(const char *pattern, const struct selector_names *names, const struct jwt_variables *variables,
                       struct buffer *out, struct fault *fault) {
    static const char open[] = "${value.";
    while (*pattern) {
        const char *begin = strstr(pattern, "${"), *end = begin ? strchr(begin, '}') : NULL;
        size_t plain = begin ? (size_t)(begin - pattern) : strlen(pattern);
        buffer_append(out, pattern, plain);
        if (!begin) return CO_OK;
        const char *name = begin + sizeof open - 1;
        size_t size = end && end > name ? (size_t)(end - name) : 0;
        if (!size || strncmp(begin, open, sizeof open - 1) != 0 || !is_mapped(names, name, size))
            return fault_set(
                fault, CO_INVALID,
                "Invalid Binding Rule: BindName: \"%.60s\": ${value.NAME} of a name that the auth method has is wanted",
                begin);
        struct slice text = text_of(variables, name, size);
        buffer_append(out, text.data, text.size);
        pattern = end + 1;
    }
    return CO_OK;
}

int acl_login_check_rule(const Pb__AclAuthMethod *method, const Pb__AclBindingRule *rule, struct fault *fault) {
    struct config config;
    struct buffer name = {0};
    bool fits;
    int error = config_read(method, &config, fault);
    if (error) return error;
    error = selector_fits(slice_text(rule->selector), &config.names, NULL, &fits, fault);
    if (!error) error = interpolate(rule->bind_name, &config.names, NULL, &name, fault);
    buffer_free(&name);
    config_free(&config);
    return error;
}

/* -- a login ------------------------------------------------------------------------------------------------------------- */
static int verify_jwt(struct config *config, const struct login *login, struct arena *arena,
                      struct jwt_variables *variables, struct fault *fault) {
    struct json_object *claims = NULL;
    if (!login->shown.size) return fault_set(fault, CO_INVALID, "BearerToken is wanted");
    config->rules.now_s = login->now_s;
    int error = jwt_verify(config->keys, &config->rules, login->shown, &claims, fault);
    if (!error)
        error = jwt_map(claims, config->values, config->names.value_count, config->lists, config->names.list_count,
                        arena, variables, fault);
    for (size_t i = 0; !error && i < variables->value_count; i++)
        variables->values[i].name = arena_strndup(arena, variables->values[i].name, strlen(variables->values[i].name));
    for (size_t i = 0; !error && i < variables->list_count; i++)
        variables->lists[i].name = arena_strndup(arena, variables->lists[i].name, strlen(variables->lists[i].name));
    if (claims) json_object_put(claims);
    return error;
}

static int judge_node(const struct config *config, const char *host, struct fault *fault) {
    for (size_t i = 0; i < config->node_count; i++)
        if (trust_glob_fits(config->nodes[i].data, host)) return CO_OK;
    if (!config->node_count) return CO_OK;
    return fault_set(fault, CO_DENIED, "Permission denied: the auth method takes no logins on the node %.200s", host);
}

static int verify_proof(const struct config *config, const struct login *login, struct arena *arena,
                        struct proven *proven, struct fault *fault) {
    if (login->shown.size)
        return fault_set(fault, CO_INVALID, "an auth method of type %s takes no BearerToken", type_names[config->type]);
    struct slice cas = config->cas.size ? buffer_slice(&config->cas) : login->cluster_cas;
    int error = config->type == TYPE_UNIX ? proof_unix(login->proof, arena, proven, fault)
                                          : proof_certificate(login->proof, cas, login->now_s, arena, proven, fault);
    return error ? error : judge_node(config, login->proof->host, fault);
}

int acl_login_verify(const Pb__AclAuthMethod *method, const struct login *login, struct arena *arena,
                     struct proven *proven, struct fault *fault) {
    struct config config;
    int error = config_read(method, &config, fault);
    *proven = (struct proven){0};
    if (error) return error;
    error = config.type == TYPE_JWT ? verify_jwt(&config, login, arena, &proven->variables, fault)
                                    : verify_proof(&config, login, arena, proven, fault);
    config_free(&config);
    return error;
}

bool acl_login_of_cluster(const Pb__AclAuthMethod *method) {
    struct config config;
    if (config_read(method, &config, NULL) != CO_OK) return false;
    bool own = config.type == TYPE_CERTIFICATE && !config.cas.size;
    config_free(&config);
    return own;
}

static int bind_one(const Pb__AclBindingRule *rule, struct slice made, Pb__AclToken *token, struct arena *arena,
                    struct fault *fault) {
    char *name = arena_strndup(arena, made.data ? made.data : "", made.size);
    bool service = strcmp(rule->bind_type, "service") == 0;
    for (char *at = name; service && *at; at++) *at = (char)tolower((unsigned char)*at);
    const char *wrong = service ? acl_identity_fault(name) : acl_name_fault(name, ACL_ROLE_NAME_MAX);
    if (wrong) return fault_set(fault, CO_INVALID, "the binding rule %s makes a bad name: %.100s", rule->id, wrong);
    if (service) {
        Pb__AclServiceIdentity *identity = arena_alloc(arena, sizeof *identity);
        pb__acl_service_identity__init(identity);
        identity->service = name;
        token->service_identities[token->n_service_identities++] = identity;
    } else {
        Pb__AclLink *link = arena_alloc(arena, sizeof *link);
        pb__acl_link__init(link);
        link->name = name;
        token->roles[token->n_roles++] = link;
    }
    return CO_OK;
}

int acl_login_bind(const Pb__AclAuthMethod *method, Pb__AclBindingRule *const *rules, size_t count,
                   const struct jwt_variables *variables, Pb__AclToken *token, struct arena *arena,
                   struct fault *fault) {
    struct config config;
    int error = config_read(method, &config, fault);
    if (error) return error;
    token->roles = arena_alloc(arena, (count + 1) * sizeof *token->roles);
    token->service_identities = arena_alloc(arena, (count + 1) * sizeof *token->service_identities);
    for (size_t i = 0; i < count && !error; i++) {
        struct buffer name = {0};
        bool fits = false;
        error = selector_fits(slice_text(rules[i]->selector), &config.names, variables, &fits, fault);
        if (!error && fits) error = interpolate(rules[i]->bind_name, &config.names, variables, &name, fault);
        if (!error && fits) error = bind_one(rules[i], buffer_slice(&name), token, arena, fault);
        buffer_free(&name);
    }
    config_free(&config);
    if (error || token->n_roles || token->n_service_identities) return error;
    return fault_set(fault, CO_DENIED, "Permission denied: no binding rule fits this login");
}
