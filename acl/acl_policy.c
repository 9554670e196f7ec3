/* Commands on policies and roles. */
#include <string.h>

#include "acl/acl_internal.h"
#include "base/check.h"
#include "base/text.h"

/* -- what both have in common -------------------------------------------------------------------------------------- */
struct named {        /* a policy or role that a command sets */
    const char *noun; /* "Policy" */
    enum acl_row names;
    const char *id, *name, *old_name; /* old_name: NULL: it is made */
    size_t name_most;
};

/* Rules (2) and the id's. CO_OK: look at result->error; CO_CORRUPT. */
static int name_refused(struct machine_tx *tx, const struct named *named, bool create, struct machine_result *result) {
    struct slice holder, id = slice_text(named->id);
    const char *fault = acl_name_fault(named->name, named->name_most);
    if (fault) return machine_refuse(result, CO_INVALID, arena_printf(tx->arena, "Invalid %s: %s", named->noun, fault));
    if (!uuid_valid(id) || slice_has_upper(id) || (create && acl_reserved(id)))
        return machine_refuse(
            result, CO_INVALID,
            arena_printf(tx->arena, "Invalid %s: its ID is no UUID in lower case, or reserved", named->noun));
    if (create == (named->old_name != NULL))
        return machine_refuse(result, create ? CO_EXISTS : CO_NOTFOUND,
                              create ? arena_printf(tx->arena, "Invalid %s: its ID is in use", named->noun)
                                     : arena_printf(tx->arena, "cannot find %s %s", named->noun, named->id));
    int rv = acl_name_find(tx->store, named->names, slice_text(named->name), tx->arena, &holder);
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv == CO_OK && !slice_equal(holder, id))
        return machine_refuse(result, CO_EXISTS,
                              arena_printf(tx->arena, "Invalid %s: A %s with Name \"%s\" already exists", named->noun,
                                           named->noun, named->name));
    return rv;
}

static void name_put(struct machine_tx *tx, const struct named *named) {
    if (named->old_name) acl_remove(tx, named->names, slice_text(named->old_name));
    acl_name_put(tx, named->names, slice_text(named->name), slice_text(named->id));
}

static int full(struct machine_result *result, const char *text) { return machine_refuse(result, CO_TOOLARGE, text); }

/* -- policies ----------------------------------------------------------------------------------------------------- */
static void policy_put(struct machine_tx *tx, Pb__AclPolicy *policy, const Pb__AclPolicy *old) {
    Pb__AclPolicy content = *policy;
    content.hash.len = content.create_index = content.modify_index = 0;
    policy->hash = acl_digest(tx->arena, &content.base);
    policy->create_index = old ? old->create_index : tx->index, policy->modify_index = tx->index;
    acl_put(tx, ACL_ROW_POLICY, slice_text(policy->id), &policy->base);
    acl_changed(tx, SPACE_ACL_POLICIES);
}

void acl_policy_builtin(struct machine_tx *tx) {
    Pb__AclPolicy policy = PB__ACL_POLICY__INIT;
    policy.id = ACL_MANAGEMENT_ID, policy.name = ACL_MANAGEMENT_NAME;
    policy.description = "Builtin Policy that grants unlimited access"; /* its rules are filled in when it is read */
    acl_name_put(tx, ACL_ROW_POLICY_NAME, slice_text(policy.name), slice_text(policy.id));
    policy_put(tx, &policy, NULL);
}

static const char *policy_fault(const Pb__AclPolicy *policy) {
    if (!policy) return "no policy";
    if (strlen(policy->description) > ACL_TEXT_MAX) return "Invalid Policy: the Description is too long";
    if (strlen(policy->rules) > ACL_POLICY_TEXT_MAX) return "Invalid Policy: the Rules are too long";
    if (policy->n_datacenters > ACL_LINKS_MAX) return "Invalid Policy: it has too many Datacenters";
    for (size_t i = 0; i < policy->n_datacenters; i++)
        if (!policy->datacenters[i][0] || strlen(policy->datacenters[i]) > ACL_NAME_MAX)
            return "Invalid Policy: a bad name of a datacenter";
    if (strcmp(policy->id, ACL_MANAGEMENT_ID) == 0)
        return "Changing the builtin global-management policy is not permitted";
    return NULL;
}

int acl_policy_set_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclPolicySetCommand *command = request;
    Pb__AclPolicy *policy = command->policy, *old;
    Pb__AclState *state;
    const char *fault = policy_fault(policy);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    int rv = acl_begun(tx, &state, result);
    if (rv != CO_OK || result->error) return rv;
    rv = acl_policy_read(tx->store, slice_text(policy->id), tx->arena, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    struct named named = {"Policy",     ACL_ROW_POLICY_NAME,    policy->id,
                          policy->name, old ? old->name : NULL, ACL_NAME_MAX};
    rv = name_refused(tx, &named, command->create, result);
    if (rv != CO_OK || result->error) return rv;
    if (!old && acl_count(tx->store, ACL_ROW_POLICY) >= ACL_POLICIES_MAX)
        return full(result, "there are too many policies; delete some");
    name_put(tx, &named);
    policy_put(tx, policy, old);
    result->yes = true, result->message = &policy->base;
    return CO_OK;
}

/* Consul answers yes also when there is none. */
int acl_policy_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclPolicyDeleteCommand *command = request;
    Pb__AclPolicy *old;
    if (strcmp(command->id, ACL_MANAGEMENT_ID) == 0)
        return machine_refuse(result, CO_INVALID,
                              "Delete operation not permitted on the builtin global-management policy");
    int rv = acl_policy_read(tx->store, slice_text(command->id), tx->arena, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (old) {
        acl_remove(tx, ACL_ROW_POLICY_NAME, slice_text(old->name));
        acl_remove(tx, ACL_ROW_POLICY, slice_text(old->id));
        acl_changed(tx, SPACE_ACL_POLICIES);
    }
    result->yes = true;
    return CO_OK;
}

/* -- roles -------------------------------------------------------------------------------------------------------- */
static void role_links_set(struct machine_tx *tx, const Pb__AclRole *role, bool there) {
    for (size_t i = 0; i < role->n_policies; i++)
        acl_link_set(tx, ACL_LINK_ROLE_POLICY, role->policies[i]->id, role->id, there);
}

static void role_put(struct machine_tx *tx, Pb__AclRole *role, const Pb__AclRole *old) {
    if (old) role_links_set(tx, old, false);
    role_links_set(tx, role, true);
    Pb__AclRole content = *role;
    content.hash.len = content.create_index = content.modify_index = 0;
    role->hash = acl_digest(tx->arena, &content.base);
    role->create_index = old ? old->create_index : tx->index, role->modify_index = tx->index;
    acl_put(tx, ACL_ROW_ROLE, slice_text(role->id), &role->base);
    acl_changed(tx, SPACE_ACL_ROLES);
}

int acl_role_set_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclRoleSetCommand *command = request;
    Pb__AclRole *role = command->role, *old;
    Pb__AclState *state;
    const char *fault = NULL;
    if (!role || strlen(role->description) > ACL_TEXT_MAX)
        return machine_refuse(result, CO_INVALID, "Invalid Role: there is none, or the Description is too long");
    int rv = acl_begun(tx, &state, result);
    if (rv != CO_OK || result->error) return rv;
    rv = acl_role_read(tx->store, slice_text(role->id), tx->arena, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    struct named named = {"Role", ACL_ROW_ROLE_NAME, role->id, role->name, old ? old->name : NULL, ACL_ROLE_NAME_MAX};
    rv = name_refused(tx, &named, command->create, result);
    if (rv != CO_OK || result->error) return rv;
    if (!old && acl_count(tx->store, ACL_ROW_ROLE) >= ACL_ROLES_MAX)
        return full(result, "there are too many roles; delete some");
    const struct acl_grants grants = acl_role_grants(role);
    rv = acl_grants_settle(tx, &grants, "role", &fault);
    if (rv != CO_OK) return rv;
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    name_put(tx, &named);
    role_put(tx, role, old);
    result->yes = true, result->message = &role->base;
    return CO_OK;
}

int acl_role_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclRoleDeleteCommand *command = request;
    Pb__AclRole *old;
    int rv = acl_role_read(tx->store, slice_text(command->id), tx->arena, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (old) {
        role_links_set(tx, old, false);
        acl_remove(tx, ACL_ROW_ROLE_NAME, slice_text(old->name));
        acl_remove(tx, ACL_ROW_ROLE, slice_text(old->id));
        acl_changed(tx, SPACE_ACL_ROLES);
    }
    result->yes = true;
    return CO_OK;
}
