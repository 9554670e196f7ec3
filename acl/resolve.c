#include "acl/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "acl/acl_internal.h"
#include "acl/rules.h"
#include "base/check.h"
#include "base/clock.h"

static const struct slice any = SLICE_LITERAL("");

/* -- policies ----------------------------------------------------------------------------------------------------- */
/* One resolution: the access grows, in an order that does not matter. */
struct resolving {
    struct store_txn *txn;
    const struct resolve_settings *settings;
    struct access *access;
    struct arena arena;
    Pb__AclLink **done; /* policies that are in it */
    size_t done_count;
    struct fault *fault;
};

static bool is_in(const struct resolving *r, const char *id) {
    for (size_t i = 0; i < r->done_count; i++)
        if (strcmp(r->done[i]->id, id) == 0) return true;
    return false;
}

/* Does a thing with these datacenters count here? None: everywhere. */
static bool counts_here(const struct resolving *r, char *const *datacenters, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (slice_equal_nocase(slice_text(datacenters[i]), slice_text(r->settings->datacenter))) return true;
    return count == 0;
}

static int add_policy(struct resolving *r, Pb__AclLink *link) {
    Pb__AclPolicy *policy;
    struct rules rules = {0};
    struct fault why = {0};
    if (is_in(r, link->id)) return CO_OK;
    ACL_APPEND(&r->arena, r->done, r->done_count, link);
    int rv = acl_policy_read(r->txn, slice_text(link->id), &r->arena, &policy);
    if (rv == CO_NOTFOUND) return CO_OK; /* it was deleted */
    if (rv != CO_OK || !counts_here(r, policy->datacenters, policy->n_datacenters)) return rv;
    if (strcmp(policy->id, ACL_MANAGEMENT_ID) == 0) {
        rules_add_management(r->access);
        return CO_OK;
    }
    rv = rules_parse(slice_text(policy->rules), &r->arena, &rules, &why);
    if (rv != CO_OK)
        return fault_set(r->fault, CO_INVALID, "the rules of policy \"%s\" do not compile: %s", policy->name, why.text);
    rules_add(&rules, r->access);
    return CO_OK;
}

static int add_grants(struct resolving *r, const struct acl_grants *grants) {
    int rv = CO_OK;
    for (size_t i = 0; i < *grants->n_policies && rv == CO_OK; i++) rv = add_policy(r, (*grants->policies)[i]);
    for (size_t i = 0; i < *grants->n_services; i++) {
        const Pb__AclServiceIdentity *identity = (*grants->services)[i];
        if (counts_here(r, identity->datacenters, identity->n_datacenters))
            rules_add_service_identity(r->access, slice_text(identity->service));
    }
    for (size_t i = 0; i < *grants->n_nodes; i++) {
        Pb__AclNodeIdentity *identity = (*grants->nodes)[i];
        if (counts_here(r, &identity->datacenter, 1)) rules_add_node_identity(r->access, slice_text(identity->node));
    }
    return rv;
}

static int add_role(struct resolving *r, const Pb__AclLink *link) {
    Pb__AclRole *role;
    int rv = acl_role_read(r->txn, slice_text(link->id), &r->arena, &role);
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv != CO_OK) return rv;
    const struct acl_grants grants = acl_role_grants(role);
    return add_grants(r, &grants);
}

/* -- tokens ------------------------------------------------------------------------------------------------------- */
static int add_token(struct resolving *r, Pb__AclToken *token) {
    const struct acl_grants grants = acl_token_grants(token);
    int rv = add_grants(r, &grants);
    for (size_t i = 0; i < token->n_roles && rv == CO_OK; i++) rv = add_role(r, token->roles[i]);
    return rv;
}

static bool is_over(const Pb__AclToken *token, uint64_t now_ms) {
    return token->expiration_ms && now_ms >= token->expiration_ms;
}

/* `rv`: of the token's read. */
static int finish(struct resolving *r, int rv, Pb__AclToken *token, uint64_t now_ms, struct resolved *out) {
    if (rv == CO_OK && is_over(token, now_ms)) rv = CO_NOTFOUND;
    if (rv == CO_OK) rv = add_token(r, token);
    if (rv == CO_OK) rv = store_txn_error(r->txn);
    if (rv == CO_OK) access_name(r->access, token->accessor, token->description);
    access_seal(r->access);
    *out = (struct resolved){0};
    if (rv == CO_OK) *out = (struct resolved){r->access, token->expiration_ms};
    else access_release(r->access);
    arena_free(&r->arena);
    return rv;
}

int resolve_secret(struct store_txn *txn, const struct acl_key *key, struct slice secret,
                   const struct resolve_settings *settings, uint64_t now_ms, struct resolved *out,
                   struct fault *fault) {
    struct resolving r = {.txn = txn, .settings = settings, .access = access_new(settings->otherwise), .fault = fault};
    Pb__AclToken *token;
    int rv = acl_secret_find(txn, key, secret, &r.arena, &token);
    return finish(&r, rv, token, now_ms, out);
}

int resolve_accessor(struct store_txn *txn, struct slice accessor, const struct resolve_settings *settings,
                     uint64_t now_ms, struct resolved *out, struct fault *fault) {
    struct resolving r = {.txn = txn, .settings = settings, .access = access_new(settings->otherwise), .fault = fault};
    Pb__AclToken *token;
    int rv = acl_token_read(txn, accessor, &r.arena, &token);
    return finish(&r, rv, token, now_ms, out);
}

int resolve_anonymous(struct store_txn *txn, const struct resolve_settings *settings, struct resolved *out,
                      struct fault *fault) {
    int rv = resolve_accessor(txn, slice_text(ACL_ANONYMOUS_ID), settings, 0, out, fault);
    if (rv != CO_NOTFOUND) return rv;
    *out = (struct resolved){.access = access_new(settings->otherwise)};
    access_name(out->access, ACL_ANONYMOUS_ID, "Anonymous Token");
    access_seal(out->access);
    return CO_OK;
}

/* -- without a token ---------------------------------------------------------------------------------------------- */
struct access *resolve_agent_master(const char *node, enum access_level otherwise) {
    struct access *access = access_new(otherwise);
    access_add(access, ACCESS_AGENT, false, slice_text(node), ACCESS_WRITE);
    access_add(access, ACCESS_NODE, true, any, ACCESS_READ);
    access_name(access, "agent-master", "Agent Master Token");
    access_seal(access);
    return access;
}

struct access *resolve_node(const char *node, enum access_level otherwise) {
    struct access *access = access_new(otherwise);
    struct slice name = slice_text(node);
    struct arena arena = {0};
    access_add(access, ACCESS_NODE, false, name, ACCESS_WRITE);
    access_add(access, ACCESS_AGENT, false, name, ACCESS_WRITE);
    access_add(access, ACCESS_SESSION, false, name, ACCESS_WRITE);
    access_add(access, ACCESS_QUOTA, true, any, ACCESS_WRITE);
    access_add(access, ACCESS_SERVICE, true, any, ACCESS_READ);
    access_add(access, ACCESS_NODE, true, any, ACCESS_READ);
    access_name(access, arena_printf(&arena, "node:%s", node), "Certificate of a node");
    access_seal(access);
    arena_free(&arena);
    return access;
}

/* -- for another process ------------------------------------------------------------------------------------------ */
struct packing {
    struct arena *arena;
    Pb__AclResolved *packed;
};

static void pack_rule(void *data, enum access_resource resource, bool prefix, struct slice name,
                      enum access_level level) {
    struct packing *packing = data;
    Pb__AclResolved *packed = packing->packed;
    if (resource == ACCESS_RESOURCES) return; /* the default is the asker's own */
    Pb__AclRule *rule = arena_alloc(packing->arena, sizeof *rule);
    pb__acl_rule__init(rule);
    rule->resource = (char *)(uintptr_t)access_resource_name(resource);
    rule->level = (char *)(uintptr_t)access_level_name(level);
    rule->prefix = prefix, rule->name = message_bytes(name);
    ACL_APPEND(packing->arena, packed->rules, packed->n_rules, rule);
}

Pb__AclResolved *resolve_pack(const struct resolved *resolved, uint64_t index, struct arena *arena) {
    struct packing packing = {arena, arena_alloc(arena, sizeof *packing.packed)};
    pb__acl_resolved__init(packing.packed);
    access_each(resolved->access, &packing, pack_rule);
    packing.packed->accessor = (char *)(uintptr_t)access_accessor(resolved->access);
    packing.packed->description = (char *)(uintptr_t)access_description(resolved->access);
    packing.packed->expiration_ms = resolved->expires_ms, packing.packed->index = index;
    return packing.packed;
}

/* CO_UNSUPPORTED: a resource of a newer program. */
static int unpack_rule(const Pb__AclRule *rule, struct access *access) {
    enum access_resource resource;
    enum access_level level;
    struct slice name = message_slice(rule->name);
    if (!access_level_parse(slice_text(rule->level), &level)) return CO_CORRUPT;
    if (!access_resource_parse(slice_text(rule->resource), &resource)) return CO_UNSUPPORTED;
    if (!access_resource_named(resource) && (rule->prefix || name.size)) return CO_CORRUPT;
    access_add(access, resource, rule->prefix, name, level);
    return CO_OK;
}

int resolve_unpack(const Pb__AclResolved *packed, enum access_level otherwise, struct resolved *out) {
    struct access *access = access_new(otherwise);
    int rv = CO_OK;
    for (size_t i = 0; i < packed->n_rules && rv != CO_CORRUPT; i++) rv = unpack_rule(packed->rules[i], access);
    access_name(access, packed->accessor, packed->description);
    access_seal(access);
    *out = (struct resolved){0};
    if (rv != CO_CORRUPT) *out = (struct resolved){access, packed->expiration_ms};
    else access_release(access);
    return rv == CO_CORRUPT ? CO_CORRUPT : CO_OK;
}

/* -- the query ---------------------------------------------------------------------------------------------------- */
static struct watch_key watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_ACL_ALL, any};
}

static int answer(struct store_txn *txn, const struct resolved *resolved, uint64_t index, struct arena *arena,
                  struct query_result *result) {
    (void)txn;
    Pb__AclResolved *packed = resolve_pack(resolved, index, arena);
    result->found = true;
    result->message = message_copy(arena, &packed->base); /* the access goes now */
    access_release(resolved->access);
    return CO_OK;
}

static int run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
               struct query_result *result) {
    const Pb__AclResolveRequest *request = (const Pb__AclResolveRequest *)message;
    struct slice secret = message_slice(request->secret), accessor = slice_text(request->accessor);
    const struct resolve_settings settings = {.datacenter = request->datacenter, .otherwise = ACCESS_DENY};
    struct resolved resolved;
    struct acl_key *key = acl_key_used();
    uint64_t now_ms = (uint64_t)(clock_wall_ns() / 1000000);
    *result = (struct query_result){.index = machine_change_index(txn, SPACE_ACL_ALL, any)};
    int rv = accessor.size ? resolve_accessor(txn, accessor, &settings, now_ms, &resolved, NULL)
             : secret.size ? resolve_secret(txn, key, secret, &settings, now_ms, &resolved, NULL)
                           : resolve_anonymous(txn, &settings, &resolved, NULL);
    acl_key_release(key);
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv == CO_AGAIN) return CO_NOTREADY; /* CO_AGAIN of a query means something else */
    return rv == CO_OK ? answer(txn, &resolved, result->index, arena, result) : rv;
}

/* Whoever shows a secret may know what it is for. */
static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                struct query_result *result) {
    const Pb__AclResolveRequest *request = (const Pb__AclResolveRequest *)message;
    (void)txn, (void)result;
    return request->accessor[0] ? access_require(check, ACCESS_ACL, any, ACCESS_READ) : CO_OK;
}

const struct query_type query_acl_resolve = {.number = 236,
                                             .name = "acl-resolve",
                                             .request = &pb__acl_resolve_request__descriptor,
                                             .result = &pb__acl_resolved__descriptor,
                                             .watched = watched,
                                             .run = run,
                                             .show = show};
