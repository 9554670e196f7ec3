/* coord acl token create | read | update | clone | delete | list; coord acl bootstrap. */
#include <stdlib.h>
#include <string.h>

#include "agent/cmd_acl.h"
#include "base/check.h"

void acl_print_token(struct json_object *token, const struct acl_show *show) {
    acl_line("", "AccessorID", cmd_json_text(token, "AccessorID"));
    if (json_get(token, "SecretID")) acl_line("", "SecretID", cmd_json_text(token, "SecretID"));
    acl_line("", "Description", cmd_json_text(token, "Description"));
    bool local = false;
    json_get_bool(token, "Local", &local, NULL);
    acl_line("", "Local", local ? "true" : "false");
    if (json_get(token, "AuthMethod")) acl_line("", "Auth Method", cmd_json_text(token, "AuthMethod"));
    acl_show_time("Create Time", cmd_json_text(token, "CreateTime"));
    acl_show_time("Expiration Time", cmd_json_text(token, "ExpirationTime"));
    if (show->meta) acl_show_meta("", token);
    acl_show_grants("", token);
}

static void print_token_of_list(struct json_object *token, const struct acl_show *show) {
    acl_print_token(token, show);
    putchar('\n');
}

static const char all_tokens[] = "/v1/acl/tokens", one_token[] = "/v1/acl/token/";

static char *find(const struct client *client, const char *id, struct fault *fault) {
    return acl_find(client, all_tokens, "AccessorID", id, NULL, "tokens", fault);
}

/* -- what a token may do, as flags ----------------------------------------------------------------------------------- */
struct grants {
    struct cmd_list policy_ids, policy_names, role_ids, role_names, services, nodes;
};
#define GRANT_FLAGS(grants)                                                                                           \
    {"policy-id", CMD_LIST, &(grants).policy_ids, "ID of a policy; may be given several times"},                      \
        {"policy-name", CMD_LIST, &(grants).policy_names, "name of a policy; may be given several times"},            \
        {"role-id", CMD_LIST, &(grants).role_ids, "ID of a role; may be given several times"},                        \
        {"role-name", CMD_LIST, &(grants).role_names, "name of a role; may be given several times"},                  \
        {"service-identity", CMD_LIST, &(grants).services, "what service NAME needs: NAME or NAME:DATACENTER,..."}, { \
        "node-identity", CMD_LIST, &(grants).nodes, "what node NODE needs: NODE:DATACENTER"                           \
    }

/* -- commands -------------------------------------------------------------------------------------------------------- */
static int create(int argc, char **argv) {
    static const char usage[] = "coord acl token create [FLAGS]";
    struct client client = {0};
    struct grants grants = {0};
    struct acl_show show = {0};
    const char *accessor = NULL, *secret = NULL, *description = NULL, *ttl = NULL;
    bool local = false;
    const struct cmd_flag flags[] = {
        GRANT_FLAGS(grants),
        {"description", CMD_TEXT, &description, "a description"},
        {"accessor", CMD_TEXT, &accessor, "the AccessorID; without it one is drawn"},
        {"secret", CMD_TEXT, &secret, "the SecretID; without it one is drawn"},
        {"local", CMD_BOOL, &local, "it counts in this datacenter only"},
        {"expires-ttl", CMD_DURATION, &ttl, "it ends after so long, 1m to 24h"},
        ACL_SHOW_FLAGS(show),
    };
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, NULL);
    if (code >= 0) return code;
    struct json_object *body = json_object_new_object();
    acl_set(body, "AccessorID", accessor), acl_set(body, "SecretID", secret);
    acl_set(body, "Description", description), acl_set(body, "ExpirationTTL", ttl);
    json_object_object_add(body, "Local", json_object_new_boolean(local));
    acl_set_links(body, "Policies", &grants.policy_ids, &grants.policy_names, false);
    acl_set_links(body, "Roles", &grants.role_ids, &grants.role_names, false);
    if (acl_set_services(body, &grants.services, false, &fault) && acl_set_nodes(body, &grants.nodes, false, &fault))
        return acl_send_and_show(&client, "PUT", "/v1/acl/token", body, "creating the token", acl_print_token, &show);
    json_object_put(body);
    return cmd_wrong(usage, fault.text);
}

static int read_one(int argc, char **argv) {
    static const char usage[] = "coord acl token read [FLAGS] -id=ACCESSOR | -self";
    struct client client = {0};
    struct acl_show show = {0};
    const char *id = NULL;
    bool self = false;
    const struct cmd_flag flags[] = {{"id", CMD_TEXT, &id, "the AccessorID, or how it begins"},
                                     {"self", CMD_BOOL, &self, "the token of this command"},
                                     ACL_SHOW_FLAGS(show)};
    char **rest, *whole = NULL;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, self || id ? NULL : "-id or -self is wanted");
    if (code >= 0) return code;
    if (!self && !(whole = find(&client, id, &fault))) return cmd_failed("finding the token", &fault);
    struct buffer path = acl_path(one_token, self ? "self" : whole, "");
    code = acl_read_and_show(&client, path.data, "reading the token", acl_print_token, &show);
    buffer_free(&path);
    free(whole);
    return code;
}

struct update {
    struct grants grants;
    const char *description;
    bool merge_policies, merge_roles, merge_services, merge_nodes;
};

/* Without flags of a kind it stays as it is. */
static bool change(struct json_object *body, const struct update *update, struct fault *fault) {
    const struct grants *grants = &update->grants;
    acl_set(body, "Description", update->description);
    if (grants->policy_ids.count || grants->policy_names.count || !update->merge_policies)
        acl_set_links(body, "Policies", &grants->policy_ids, &grants->policy_names, update->merge_policies);
    if (grants->role_ids.count || grants->role_names.count || !update->merge_roles)
        acl_set_links(body, "Roles", &grants->role_ids, &grants->role_names, update->merge_roles);
    return acl_set_services(body, &grants->services, update->merge_services, fault) &&
           acl_set_nodes(body, &grants->nodes, update->merge_nodes, fault);
}

static int update_one(const struct client *client, const char *id, const struct update *update,
                      const struct acl_show *show) {
    struct fault fault = {0};
    char *whole = find(client, id, &fault);
    if (!whole) return cmd_failed("finding the token", &fault);
    struct buffer path = acl_path(one_token, whole, "");
    struct json_object *body = cmd_json_get(client, path.data, &fault);
    int code = 0;
    if (body) json_object_object_del(body, "SecretID"); /* it stays, and may be hidden */
    if (body && change(body, update, &fault))
        code = acl_send_and_show(client, "PUT", path.data, body, "updating the token", acl_print_token, show);
    else if (body) json_object_put(body);
    buffer_free(&path);
    free(whole);
    return fault.code ? cmd_failed("updating the token", &fault) : code;
}

static int update(int argc, char **argv) {
    static const char usage[] = "coord acl token update [FLAGS] -id=ACCESSOR";
    struct client client = {0};
    struct acl_show show = {0};
    struct update wanted = {0};
    const char *id = NULL;
    const struct cmd_flag flags[] = {
        {"id", CMD_TEXT, &id, "the AccessorID, or how it begins"},
        GRANT_FLAGS(wanted.grants),
        {"description", CMD_TEXT, &wanted.description, "another description"},
        {"merge-policies", CMD_BOOL, &wanted.merge_policies, "add policies, instead of replacing them"},
        {"merge-roles", CMD_BOOL, &wanted.merge_roles, "add roles, instead of replacing them"},
        {"merge-service-identities", CMD_BOOL, &wanted.merge_services,
         "add service identities, instead of replacing them"},
        {"merge-node-identities", CMD_BOOL, &wanted.merge_nodes, "add node identities, instead of replacing them"},
        ACL_SHOW_FLAGS(show),
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, id ? NULL : "-id is wanted");
    return code >= 0 ? code : update_one(&client, id, &wanted, &show);
}

static int clone(int argc, char **argv) {
    static const char usage[] = "coord acl token clone [FLAGS] -id=ACCESSOR";
    struct client client = {0};
    struct acl_show show = {0};
    const char *id = NULL, *description = NULL;
    const struct cmd_flag flags[] = {
        {"id", CMD_TEXT, &id, "the AccessorID of the one that it is to be like, or how it begins"},
        {"description", CMD_TEXT, &description, "another description"},
        ACL_SHOW_FLAGS(show)};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, id ? NULL : "-id is wanted");
    if (code >= 0) return code;
    char *whole = find(&client, id, &fault);
    if (!whole) return cmd_failed("finding the token", &fault);
    struct buffer path = acl_path(one_token, whole, "/clone");
    struct json_object *body = json_object_new_object();
    acl_set(body, "Description", description);
    code = acl_send_and_show(&client, "PUT", path.data, body, "cloning the token", acl_print_token, &show);
    buffer_free(&path);
    free(whole);
    return code;
}

static int delete_one(int argc, char **argv) {
    static const char usage[] = "coord acl token delete [FLAGS] -id=ACCESSOR";
    struct client client = {0};
    const char *id = NULL;
    const struct cmd_flag flags[] = {{"id", CMD_TEXT, &id, "the AccessorID, or how it begins"}};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, NULL, id ? NULL : "-id is wanted");
    if (code >= 0) return code;
    char *whole = find(&client, id, &fault);
    if (!whole) return cmd_failed("finding the token", &fault);
    code = acl_delete(&client, one_token, whole, "Token");
    free(whole);
    return code;
}

static int list(int argc, char **argv) {
    static const char usage[] = "coord acl token list [FLAGS]";
    struct client client = {0};
    struct acl_show show = {0};
    const struct cmd_flag flags[] = {ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, NULL);
    return code >= 0 ? code : acl_read_and_show(&client, all_tokens, "listing the tokens", print_token_of_list, &show);
}

int cmd_acl_token(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"create", "make a token", create},
        {"read", "print a token, with its secret for those who may write", read_one},
        {"update", "change what a token may do", update},
        {"clone", "make a token that may do the same", clone},
        {"delete", "delete a token", delete_one},
        {"list", "print all tokens, without their secrets", list},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "acl token", argc, argv);
}

int cmd_acl_bootstrap(int argc, char **argv) {
    static const char usage[] = "coord acl bootstrap [FLAGS]";
    struct client client = {0};
    struct acl_show show = {0};
    const struct cmd_flag flags[] = {ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, NULL);
    if (code >= 0) return code;
    return acl_send_and_show(&client, "PUT", "/v1/acl/bootstrap", NULL, "making the first token", acl_print_token,
                             &show);
}
