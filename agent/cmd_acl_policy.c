/* coord acl policy and coord acl role: create, read, update, delete, list. */
#include <stdlib.h>
#include <string.h>

#include "agent/cmd_acl.h"
#include "base/check.h"

/* -- showing --------------------------------------------------------------------------------------------------------- */
static void print_policy(struct json_object *policy, const struct acl_show *show) {
    acl_line("", "ID", cmd_json_text(policy, "ID"));
    acl_line("", "Name", cmd_json_text(policy, "Name"));
    acl_line("", "Description", cmd_json_text(policy, "Description"));
    acl_line_texts("", "Datacenters", json_get(policy, "Datacenters"));
    if (show->meta) acl_show_meta("", policy);
    printf("Rules:\n%s\n", cmd_json_text(policy, "Rules"));
}

static void print_policy_of_list(struct json_object *policy, const struct acl_show *show) {
    printf("%s:\n", cmd_json_text(policy, "Name"));
    acl_line("   ", "ID", cmd_json_text(policy, "ID"));
    acl_line("   ", "Description", cmd_json_text(policy, "Description"));
    acl_line_texts("   ", "Datacenters", json_get(policy, "Datacenters"));
    if (show->meta) acl_show_meta("   ", policy);
}

static void print_role(struct json_object *role, const struct acl_show *show) {
    acl_line("", "ID", cmd_json_text(role, "ID"));
    acl_line("", "Name", cmd_json_text(role, "Name"));
    acl_line("", "Description", cmd_json_text(role, "Description"));
    if (show->meta) acl_show_meta("", role);
    acl_show_grants("", role);
}

static void print_role_of_list(struct json_object *role, const struct acl_show *show) {
    printf("%s:\n", cmd_json_text(role, "Name"));
    acl_line("   ", "ID", cmd_json_text(role, "ID"));
    acl_line("   ", "Description", cmd_json_text(role, "Description"));
    if (show->meta) acl_show_meta("   ", role);
    acl_show_grants("   ", role);
}

/* -- what both have in common ---------------------------------------------------------------------------------------- */
struct noun {
    const char *name, *capital, *one, *all; /* "policy", "Policy", the paths */
    acl_print print, print_of_list;
};
static const struct noun policy = {"policy",           "Policy",     "/v1/acl/policy/",
                                   "/v1/acl/policies", print_policy, print_policy_of_list};
static const struct noun role = {"role", "Role", "/v1/acl/role/", "/v1/acl/roles", print_role, print_role_of_list};

/* The ID of the one that -id (also its beginning) or -name says; NULL: a fault. */
static char *find(const struct client *client, const struct noun *noun, const char *id, const char *name,
                  struct fault *fault) {
    return acl_find(client, noun->all, "ID", id, name, noun->name, fault);
}

static int failed(const char *verb, const struct noun *noun, const struct fault *fault) {
    char doing[64];
    snprintf(doing, sizeof doing, "%s the %s", verb, noun->name);
    return cmd_failed(doing, fault);
}

static int read_one(const struct noun *noun, const char *usage, int argc, char **argv) {
    struct client client = {0};
    struct acl_show show = {0};
    const char *id = NULL, *name = NULL;
    const struct cmd_flag flags[] = {
        {"id", CMD_TEXT, &id, "its ID, or how it begins"}, {"name", CMD_TEXT, &name, "its name"}, ACL_SHOW_FLAGS(show)};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, id || name ? NULL : "-id or -name is wanted");
    if (code >= 0) return code;
    char *whole = find(&client, noun, id, name, &fault);
    if (!whole) return failed("finding", noun, &fault);
    struct buffer path = acl_path(noun->one, whole, "");
    code = acl_read_and_show(&client, path.data, "reading it", noun->print, &show);
    buffer_free(&path);
    free(whole);
    return code;
}

static int delete_one(const struct noun *noun, const char *usage, int argc, char **argv) {
    struct client client = {0};
    const char *id = NULL, *name = NULL;
    const struct cmd_flag flags[] = {{"id", CMD_TEXT, &id, "its ID, or how it begins"},
                                     {"name", CMD_TEXT, &name, "its name"}};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, NULL, id || name ? NULL : "-id or -name is wanted");
    if (code >= 0) return code;
    char *whole = find(&client, noun, id, name, &fault);
    if (!whole) return failed("finding", noun, &fault);
    code = acl_delete(&client, noun->one, whole, noun->capital);
    free(whole);
    return code;
}

static int list(const struct noun *noun, const char *usage, int argc, char **argv) {
    struct client client = {0};
    struct acl_show show = {0};
    const struct cmd_flag flags[] = {ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, NULL);
    return code >= 0 ? code : acl_read_and_show(&client, noun->all, "listing", noun->print_of_list, &show);
}

/* Sends the changed body of the one that was found, or a new one's (id and name NULL). Takes the body of `change` over. */
static int put(const struct client *client, const struct noun *noun, const char *id, const char *name, bool fresh,
               bool (*change)(struct json_object *body, const void *wanted, struct fault *fault), const void *wanted,
               const struct acl_show *show) {
    struct fault fault = {0};
    char *whole = id ? find(client, noun, id, NULL, &fault) : NULL;
    if (id && !whole) return failed("finding", noun, &fault);
    struct buffer path = acl_path(noun->one, whole ? whole : "", "");
    if (!whole) path.data[path.size - 2] = '\0'; /* without the slash */
    struct json_object *body = whole && !fresh ? cmd_json_get(client, path.data, &fault) : json_object_new_object();
    int code = 0;
    acl_set(body, "Name", name);
    if (!fault.code && change(body, wanted, &fault))
        code =
            acl_send_and_show(client, "PUT", path.data, body, whole ? "updating it" : "creating it", noun->print, show);
    else if (body) json_object_put(body);
    buffer_free(&path);
    free(whole);
    return fault.code ? failed("writing", noun, &fault) : code;
}

/* -- policies -------------------------------------------------------------------------------------------------------- */
struct policy_wanted {
    const char *description, *rules;
    struct cmd_list datacenters;
};
#define POLICY_FLAGS(wanted)                                                                               \
    {"description", CMD_TEXT, &(wanted).description, "a description"},                                     \
        {"rules", CMD_TEXT, &(wanted).rules, "the rules: text, @FILE, or - for stdin"}, {                  \
        "valid-datacenter", CMD_LIST, &(wanted).datacenters, "where it counts; may be given several times" \
    }

static bool policy_change(struct json_object *body, const void *data, struct fault *fault) {
    const struct policy_wanted *wanted = data;
    acl_set(body, "Description", wanted->description);
    if (wanted->datacenters.count) {
        struct json_object *names = json_object_new_array();
        for (size_t i = 0; i < wanted->datacenters.count; i++)
            json_object_array_add(names, json_object_new_string(wanted->datacenters.items[i]));
        json_object_object_add(body, "Datacenters", names);
    }
    return acl_set_value(body, "Rules", wanted->rules, fault);
}

static int policy_create(int argc, char **argv) {
    static const char usage[] = "coord acl policy create [FLAGS] -name=NAME";
    struct client client = {0};
    struct acl_show show = {0};
    struct policy_wanted wanted = {0};
    const char *name = NULL;
    const struct cmd_flag flags[] = {{"name", CMD_TEXT, &name, "its name"}, POLICY_FLAGS(wanted), ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, name ? NULL : "-name is wanted");
    return code >= 0 ? code : put(&client, &policy, NULL, name, true, policy_change, &wanted, &show);
}

static int policy_update(int argc, char **argv) {
    static const char usage[] = "coord acl policy update [FLAGS] -id=ID | -name=NAME";
    struct client client = {0};
    struct acl_show show = {0};
    struct policy_wanted wanted = {0};
    const char *id = NULL, *name = NULL;
    bool fresh = false;
    const struct cmd_flag flags[] = {{"id", CMD_TEXT, &id, "its ID, or how it begins"},
                                     {"name", CMD_TEXT, &name, "its name; with -id another name"},
                                     {"no-merge", CMD_BOOL, &fresh, "what is not given is taken away"},
                                     POLICY_FLAGS(wanted),
                                     ACL_SHOW_FLAGS(show)};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, id || name ? NULL : "-id or -name is wanted");
    if (code >= 0) return code;
    char *found = id ? NULL : find(&client, &policy, NULL, name, &fault);
    if (!id && !found) return failed("finding", &policy, &fault);
    code = put(&client, &policy, id ? id : found, name, fresh, policy_change, &wanted, &show);
    free(found);
    return code;
}

static int policy_read(int argc, char **argv) {
    return read_one(&policy, "coord acl policy read [FLAGS] -id=ID | -name=NAME", argc, argv);
}
static int policy_delete(int argc, char **argv) {
    return delete_one(&policy, "coord acl policy delete [FLAGS] -id=ID | -name=NAME", argc, argv);
}
static int policy_list(int argc, char **argv) { return list(&policy, "coord acl policy list [FLAGS]", argc, argv); }

int cmd_acl_policy(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"create", "make a policy", policy_create},   {"read", "print a policy with its rules", policy_read},
        {"update", "change a policy", policy_update}, {"delete", "delete a policy", policy_delete},
        {"list", "print all policies", policy_list},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "acl policy", argc, argv);
}

/* -- roles ----------------------------------------------------------------------------------------------------------- */
struct role_wanted {
    const char *description;
    struct cmd_list policy_ids, policy_names, services, nodes;
    bool merge; /* add to what the role has */
};
#define ROLE_FLAGS(wanted)                                                                                            \
    {"description", CMD_TEXT, &(wanted).description, "a description"},                                                \
        {"policy-id", CMD_LIST, &(wanted).policy_ids, "ID of a policy; may be given several times"},                  \
        {"policy-name", CMD_LIST, &(wanted).policy_names, "name of a policy; may be given several times"},            \
        {"service-identity", CMD_LIST, &(wanted).services, "what service NAME needs: NAME or NAME:DATACENTER,..."}, { \
        "node-identity", CMD_LIST, &(wanted).nodes, "what node NODE needs: NODE:DATACENTER"                           \
    }

static bool role_change(struct json_object *body, const void *data, struct fault *fault) {
    const struct role_wanted *wanted = data;
    acl_set(body, "Description", wanted->description);
    acl_set_links(body, "Policies", &wanted->policy_ids, &wanted->policy_names, wanted->merge);
    return acl_set_services(body, &wanted->services, wanted->merge, fault) &&
           acl_set_nodes(body, &wanted->nodes, wanted->merge, fault);
}

static int role_create(int argc, char **argv) {
    static const char usage[] = "coord acl role create [FLAGS] -name=NAME";
    struct client client = {0};
    struct acl_show show = {0};
    struct role_wanted wanted = {0};
    const char *name = NULL;
    const struct cmd_flag flags[] = {{"name", CMD_TEXT, &name, "its name"}, ROLE_FLAGS(wanted), ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, name ? NULL : "-name is wanted");
    return code >= 0 ? code : put(&client, &role, NULL, name, true, role_change, &wanted, &show);
}

static int role_update(int argc, char **argv) {
    static const char usage[] = "coord acl role update [FLAGS] -id=ID";
    struct client client = {0};
    struct acl_show show = {0};
    struct role_wanted wanted = {0};
    const char *id = NULL, *name = NULL;
    bool fresh = false;
    const struct cmd_flag flags[] = {
        {"id", CMD_TEXT, &id, "its ID, or how it begins"},
        {"name", CMD_TEXT, &name, "another name"},
        {"no-merge", CMD_BOOL, &fresh, "what is not given is taken away, instead of added"},
        ROLE_FLAGS(wanted),
        ACL_SHOW_FLAGS(show),
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, id ? NULL : "-id is wanted");
    wanted.merge = !fresh;
    return code >= 0 ? code : put(&client, &role, id, name, fresh, role_change, &wanted, &show);
}

static int role_read(int argc, char **argv) {
    return read_one(&role, "coord acl role read [FLAGS] -id=ID | -name=NAME", argc, argv);
}
static int role_delete(int argc, char **argv) {
    return delete_one(&role, "coord acl role delete [FLAGS] -id=ID | -name=NAME", argc, argv);
}
static int role_list(int argc, char **argv) { return list(&role, "coord acl role list [FLAGS]", argc, argv); }

int cmd_acl_role(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"create", "make a role", role_create},   {"read", "print a role", role_read},
        {"update", "change a role", role_update}, {"delete", "delete a role", role_delete},
        {"list", "print all roles", role_list},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "acl role", argc, argv);
}
