/* The grants of tokens and roles: links to policies and roles, identities of services and nodes. */
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl_internal.h"
#include "base/check.h"
#include "base/text.h"

#define DATACENTERS_MAX  64
#define DATACENTER_BYTES 64

/* -- names -------------------------------------------------------------------------------------------------------- */
static bool is_plain(char c, bool capitals) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           (capitals && c >= 'A' && c <= 'Z');
}

const char *acl_name_fault(const char *name, size_t most) {
    size_t size = strlen(name);
    if (size == 0) return "no Name is set";
    if (size > most) return "the Name is too long";
    for (size_t i = 0; i < size; i++)
        if (!is_plain(name[i], true))
            return "invalid Name. Only alphanumeric characters, dashes and underscores are allowed";
    return NULL;
}

const char *acl_identity_fault(const char *name) {
    size_t size = strlen(name);
    if (size == 0) return "has no name";
    bool fits = size <= ACL_IDENTITY_MAX;
    for (size_t i = 0; i < size && fits; i++) fits = is_plain(name[i], false);
    bool ends = strchr("-_", name[0]) || strchr("-_", name[size - 1]);
    if (fits && !ends) return NULL;
    return "has an invalid name. Only lowercase alphanumeric characters, dashes and underscores are allowed";
}

/* -- what a token and a role have in common ------------------------------------------------------------------------ */
struct acl_grants acl_token_grants(Pb__AclToken *token) {
    return (struct acl_grants){.policies = &token->policies,
                               .n_policies = &token->n_policies,
                               .roles = &token->roles,
                               .n_roles = &token->n_roles,
                               .services = &token->service_identities,
                               .n_services = &token->n_service_identities,
                               .nodes = &token->node_identities,
                               .n_nodes = &token->n_node_identities,
                               .local = token->local};
}

struct acl_grants acl_role_grants(Pb__AclRole *role) {
    return (struct acl_grants){.policies = &role->policies,
                               .n_policies = &role->n_policies,
                               .services = &role->service_identities,
                               .n_services = &role->n_service_identities,
                               .nodes = &role->node_identities,
                               .n_nodes = &role->n_node_identities};
}

/* -- links -------------------------------------------------------------------------------------------------------- */
static int link_compare(const void *a, const void *b) {
    return strcmp((*(Pb__AclLink *const *)a)->id, (*(Pb__AclLink *const *)b)->id);
}

/* CO_NOTFOUND: there is no such policy or role. */
static int link_settle(struct machine_tx *tx, Pb__AclLink *link, bool role) {
    enum acl_row names = role ? ACL_ROW_ROLE_NAME : ACL_ROW_POLICY_NAME;
    struct slice id = slice_text(link->id);
    void *record;
    int rv = id.size ? CO_OK : acl_name_find(tx->store, names, slice_text(link->name), tx->arena, &id);
    if (rv == CO_OK && role) rv = acl_role_read(tx->store, id, tx->arena, (Pb__AclRole **)&record);
    else if (rv == CO_OK) rv = acl_policy_read(tx->store, id, tx->arena, (Pb__AclPolicy **)&record);
    if (rv != CO_OK) return rv;
    link->id = role ? ((Pb__AclRole *)record)->id : ((Pb__AclPolicy *)record)->id;
    link->name = "";
    return CO_OK;
}

static int links_settle(struct machine_tx *tx, Pb__AclLink **links, size_t *count, bool role, const char **fault) {
    const char *noun = role ? "role" : "policy";
    if (*count > ACL_LINKS_MAX) *fault = "it names too many policies or roles";
    for (size_t i = 0; i < *count && !*fault; i++) {
        const char *id = links[i]->id, *name = links[i]->name;
        int rv = link_settle(tx, links[i], role);
        if (rv == CO_NOTFOUND)
            *fault = id[0] ? arena_printf(tx->arena, "No such %s with ID: %.64s", noun, id)
                           : arena_printf(tx->arena, "No such ACL %s with name \"%.256s\"", noun, name);
        else if (rv != CO_OK) return rv;
    }
    if (*fault || *count == 0) return CO_OK;
    qsort(links, *count, sizeof *links, link_compare);
    size_t kept = 1;
    for (size_t i = 1; i < *count; i++)
        if (strcmp(links[i]->id, links[kept - 1]->id) != 0) links[kept++] = links[i];
    *count = kept;
    return CO_OK;
}

int acl_links_fill(struct store_txn *txn, Pb__AclLink **links, size_t *count, bool roles, struct arena *arena) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        Pb__AclPolicy *policy = NULL;
        Pb__AclRole *role = NULL;
        struct slice id = slice_text(links[i]->id);
        int rv = roles ? acl_role_read(txn, id, arena, &role) : acl_policy_read(txn, id, arena, &policy);
        if (rv == CO_NOTFOUND) continue;
        if (rv != CO_OK) return rv;
        links[i]->name = roles ? role->name : policy->name;
        links[kept++] = links[i];
    }
    *count = kept;
    return CO_OK;
}

/* -- identities --------------------------------------------------------------------------------------------------- */
static int text_compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void texts_sort(char **texts, size_t *count) {
    if (*count == 0) return;
    qsort(texts, *count, sizeof *texts, text_compare);
    size_t kept = 1;
    for (size_t i = 1; i < *count; i++)
        if (strcmp(texts[i], texts[kept - 1]) != 0) texts[kept++] = texts[i];
    *count = kept;
}

/* For all datacenters, if one of both is. */
static void service_merge(struct arena *arena, Pb__AclServiceIdentity *into, const Pb__AclServiceIdentity *other) {
    bool all = into->n_datacenters == 0 || other->n_datacenters == 0;
    size_t count = all ? 0 : into->n_datacenters + other->n_datacenters;
    char **texts = arena_alloc(arena, (count + 1) * sizeof *texts);
    for (size_t i = 0; i < count; i++)
        texts[i] = i < into->n_datacenters ? into->datacenters[i] : other->datacenters[i - into->n_datacenters];
    into->datacenters = texts, into->n_datacenters = count;
}

static int service_compare(const void *a, const void *b) {
    return strcmp((*(Pb__AclServiceIdentity *const *)a)->service, (*(Pb__AclServiceIdentity *const *)b)->service);
}

static int node_compare(const void *a_, const void *b_) {
    const Pb__AclNodeIdentity *a = *(Pb__AclNodeIdentity *const *)a_, *b = *(Pb__AclNodeIdentity *const *)b_;
    int order = strcmp(a->node, b->node);
    return order ? order : strcmp(a->datacenter, b->datacenter);
}

static bool datacenters_fit(char *const *names, size_t count) {
    if (count > DATACENTERS_MAX) return false;
    for (size_t i = 0; i < count; i++)
        if (!names[i][0] || strlen(names[i]) > DATACENTER_BYTES) return false;
    return true;
}

static const char *service_fault(struct arena *arena, const Pb__AclServiceIdentity *identity, bool local,
                                 const char *noun) {
    if (!identity->service[0])
        return arena_printf(arena, "Service identity is missing the service name field on this %s", noun);
    const char *fault = acl_identity_fault(identity->service);
    if (fault) return arena_printf(arena, "Service identity \"%.256s\" %s", identity->service, fault);
    if (local && identity->n_datacenters)
        return arena_printf(arena, "Service identity \"%s\" cannot specify a list of datacenters on a local token",
                            identity->service);
    if (!datacenters_fit(identity->datacenters, identity->n_datacenters))
        return arena_printf(arena, "Service identity \"%s\" has too many datacenters, or a bad name of one",
                            identity->service);
    return NULL;
}

static const char *services_settle(struct machine_tx *tx, const struct acl_grants *grants, const char *noun) {
    Pb__AclServiceIdentity **items = *grants->services;
    size_t count = *grants->n_services, kept = 0;
    if (count > ACL_LINKS_MAX) return "it has too many service identities";
    for (size_t i = 0; i < count; i++) {
        const char *fault = service_fault(tx->arena, items[i], grants->local, noun);
        if (fault) return fault;
    }
    if (count) qsort(items, count, sizeof *items, service_compare);
    for (size_t i = 0; i < count; i++) {
        if (kept && strcmp(items[kept - 1]->service, items[i]->service) == 0)
            service_merge(tx->arena, items[kept - 1], items[i]);
        else items[kept++] = items[i];
    }
    for (size_t i = 0; i < kept; i++) texts_sort(items[i]->datacenters, &items[i]->n_datacenters);
    *grants->n_services = kept;
    return NULL;
}

static const char *nodes_settle(struct machine_tx *tx, const struct acl_grants *grants, const char *noun) {
    Pb__AclNodeIdentity **items = *grants->nodes;
    size_t count = *grants->n_nodes, kept = 0;
    if (count > ACL_LINKS_MAX) return "it has too many node identities";
    for (size_t i = 0; i < count; i++) {
        const char *fault = items[i]->node[0] ? acl_identity_fault(items[i]->node) : NULL;
        if (!items[i]->node[0])
            return arena_printf(tx->arena, "Node identity is missing the node name field on this %s", noun);
        if (fault) return arena_printf(tx->arena, "Node identity \"%.256s\" %s", items[i]->node, fault);
        if (!items[i]->datacenter[0])
            return arena_printf(tx->arena, "Node identity is missing the datacenter field on this %s", noun);
        if (!datacenters_fit(&items[i]->datacenter, 1)) return "Node identity has a bad name of a datacenter";
    }
    if (count) qsort(items, count, sizeof *items, node_compare);
    for (size_t i = 0; i < count; i++)
        if (!kept || node_compare(&items[kept - 1], &items[i]) != 0) items[kept++] = items[i];
    *grants->n_nodes = kept;
    return NULL;
}

int acl_grants_settle(struct machine_tx *tx, const struct acl_grants *grants, const char *noun, const char **fault) {
    *fault = NULL;
    int rv = links_settle(tx, *grants->policies, grants->n_policies, false, fault);
    if (rv == CO_OK && !*fault && grants->roles) rv = links_settle(tx, *grants->roles, grants->n_roles, true, fault);
    if (rv == CO_OK && !*fault) *fault = services_settle(tx, grants, noun);
    if (rv == CO_OK && !*fault) *fault = nodes_settle(tx, grants, noun);
    return rv;
}

/* -- the digest --------------------------------------------------------------------------------------------------- */
ProtobufCBinaryData acl_digest(struct arena *arena, const ProtobufCMessage *content) {
    struct slice bytes = message_pack(arena, content);
    ProtobufCBinaryData digest = {32, arena_alloc(arena, 32)};
    CHECK(gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes.data, bytes.size, digest.data) == 0);
    return digest;
}
