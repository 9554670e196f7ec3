/* coord acl auth-method and coord acl binding-rule: create, read, update, delete, list. */
#include <stdlib.h>
#include <string.h>

#include "agent/cmd_acl.h"
#include "base/check.h"

static const char one_method[] = "/v1/acl/auth-method/", all_methods[] = "/v1/acl/auth-methods";
static const char one_rule[] = "/v1/acl/binding-rule/", all_rules[] = "/v1/acl/binding-rules";

/* -- auth methods ----------------------------------------------------------------------------------------------------- */
static void print_method_lines(const char *indent, struct json_object *method, const struct acl_show *show) {
    acl_line(indent, "Type", cmd_json_text(method, "Type"));
    if (json_get(method, "DisplayName")) acl_line(indent, "Display Name", cmd_json_text(method, "DisplayName"));
    acl_line(indent, "Description", cmd_json_text(method, "Description"));
    if (json_get(method, "MaxTokenTTL")) acl_line(indent, "Max Token TTL", cmd_json_text(method, "MaxTokenTTL"));
    if (json_get(method, "TokenLocality")) acl_line(indent, "Token Locality", cmd_json_text(method, "TokenLocality"));
    if (show->meta) acl_show_meta(indent, method);
}

static void print_method(struct json_object *method, const struct acl_show *show) {
    static const int flags = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE;
    struct json_object *config = json_get(method, "Config");
    acl_line("", "Name", cmd_json_text(method, "Name"));
    print_method_lines("", method, show);
    printf("Config:\n%s\n", config ? json_object_to_json_string_ext(config, flags) : "{}");
}

static void print_method_of_list(struct json_object *method, const struct acl_show *show) {
    printf("%s:\n", cmd_json_text(method, "Name"));
    print_method_lines("   ", method, show);
}

struct method_wanted {
    const char *name, *type, *display_name, *description, *ttl, *locality, *config;
    bool fresh;
};
#define METHOD_FLAGS(wanted)                                                                       \
    {"name", CMD_TEXT, &(wanted).name, "its name"},                                                \
        {"display-name", CMD_TEXT, &(wanted).display_name, "its name for people"},                 \
        {"description", CMD_TEXT, &(wanted).description, "a description"},                         \
        {"max-token-ttl", CMD_DURATION, &(wanted).ttl, "its tokens end after so long, 1m to 24h"}, \
        {"token-locality", CMD_TEXT, &(wanted).locality, "local (the default) or global"}, {       \
        "config", CMD_TEXT, &(wanted).config, "its configuration: JSON, @FILE, or - for stdin"     \
    }

static bool method_change(struct json_object *body, const struct method_wanted *wanted, struct fault *fault) {
    struct buffer text = {0};
    acl_set(body, "Name", wanted->name), acl_set(body, "Type", wanted->type);
    acl_set(body, "DisplayName", wanted->display_name), acl_set(body, "Description", wanted->description);
    acl_set(body, "MaxTokenTTL", wanted->ttl), acl_set(body, "TokenLocality", wanted->locality);
    if (!wanted->config) return true;
    struct json_object *config = NULL;
    if (cmd_read_value(wanted->config, false, &text, fault) == CO_OK)
        config = cmd_json_given(wanted->config, buffer_slice(&text), fault);
    if (config) json_object_object_add(body, "Config", config);
    buffer_free(&text);
    return config != NULL;
}

static int method_create(int argc, char **argv) {
    static const char usage[] = "coord acl auth-method create [FLAGS] -name=NAME -type=TYPE";
    struct client client = {0};
    struct acl_show show = {0};
    struct method_wanted wanted = {0};
    const struct cmd_flag flags[] = {
        METHOD_FLAGS(wanted), {"type", CMD_TEXT, &wanted.type, "jwt, unix or certificate"}, ACL_SHOW_FLAGS(show)};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0)
        code = acl_checked(usage, rest, &show, wanted.name && wanted.type ? NULL : "-name and -type are wanted");
    if (code >= 0) return code;
    struct json_object *body = json_object_new_object();
    if (method_change(body, &wanted, &fault))
        return acl_send_and_show(&client, "PUT", "/v1/acl/auth-method", body, "creating the auth method", print_method,
                                 &show);
    json_object_put(body);
    return cmd_failed("reading the configuration", &fault);
}

static int method_update(int argc, char **argv) {
    static const char usage[] = "coord acl auth-method update [FLAGS] -name=NAME";
    struct client client = {0};
    struct acl_show show = {0};
    struct method_wanted wanted = {0};
    const struct cmd_flag flags[] = {METHOD_FLAGS(wanted),
                                     {"no-merge", CMD_BOOL, &wanted.fresh, "what is not given is taken away"},
                                     ACL_SHOW_FLAGS(show)};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, wanted.name ? NULL : "-name is wanted");
    if (code >= 0) return code;
    struct buffer path = acl_path(one_method, wanted.name, "");
    struct json_object *body = cmd_json_get(&client, path.data, &fault);
    if (body && wanted.fresh) {
        struct json_object *kept = json_object_new_object();
        acl_set(kept, "Type", cmd_json_text(body, "Type"));
        json_object_put(body);
        body = kept;
    }
    if (body && method_change(body, &wanted, &fault))
        code = acl_send_and_show(&client, "PUT", path.data, body, "updating the auth method", print_method, &show);
    else if (body) json_object_put(body);
    buffer_free(&path);
    return fault.code ? cmd_failed("updating the auth method", &fault) : code;
}

/* Reads or deletes the one that is named. */
static int method_named(bool delete, const char *usage, int argc, char **argv) {
    struct client client = {0};
    struct acl_show show = {0};
    const char *name = NULL;
    const struct cmd_flag flags[] = {{"name", CMD_TEXT, &name, "its name"}, ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, name ? NULL : "-name is wanted");
    if (code >= 0) return code;
    if (delete) return acl_delete(&client, one_method, name, "Auth-method");
    struct buffer path = acl_path(one_method, name, "");
    code = acl_read_and_show(&client, path.data, "reading the auth method", print_method, &show);
    buffer_free(&path);
    return code;
}
static int method_read(int argc, char **argv) {
    return method_named(false, "coord acl auth-method read [FLAGS] -name=NAME", argc, argv);
}
static int method_delete(int argc, char **argv) {
    return method_named(true, "coord acl auth-method delete [FLAGS] -name=NAME", argc, argv);
}

static int list(const char *path, const char *usage, acl_print print, int argc, char **argv) {
    struct client client = {0};
    struct acl_show show = {0};
    const struct cmd_flag flags[] = {ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, NULL);
    return code >= 0 ? code : acl_read_and_show(&client, path, "listing", print, &show);
}
static int method_list(int argc, char **argv) {
    return list(all_methods, "coord acl auth-method list [FLAGS]", print_method_of_list, argc, argv);
}

int cmd_acl_auth_method(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"create", "make an auth method", method_create},
        {"read", "print an auth method", method_read},
        {"update", "change an auth method", method_update},
        {"delete", "delete an auth method, with its rules and tokens", method_delete},
        {"list", "print all auth methods", method_list},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "acl auth-method", argc, argv);
}

/* -- binding rules ------------------------------------------------------------------------------------------------------ */
static void print_rule_lines(const char *indent, struct json_object *rule, const struct acl_show *show) {
    acl_line(indent, "AuthMethod", cmd_json_text(rule, "AuthMethod"));
    acl_line(indent, "Description", cmd_json_text(rule, "Description"));
    acl_line(indent, "BindType", cmd_json_text(rule, "BindType"));
    acl_line(indent, "BindName", cmd_json_text(rule, "BindName"));
    acl_line(indent, "Selector", cmd_json_text(rule, "Selector"));
    if (show->meta) acl_show_meta(indent, rule);
}

static void print_rule(struct json_object *rule, const struct acl_show *show) {
    acl_line("", "ID", cmd_json_text(rule, "ID"));
    print_rule_lines("", rule, show);
}

static void print_rule_of_list(struct json_object *rule, const struct acl_show *show) {
    printf("%s:\n", cmd_json_text(rule, "ID"));
    print_rule_lines("   ", rule, show);
}

struct rule_wanted {
    const char *description, *selector, *type, *name;
};
#define RULE_FLAGS(wanted)                                                                                   \
    {"description", CMD_TEXT, &(wanted).description, "a description"},                                       \
        {"selector", CMD_TEXT, &(wanted).selector, "a condition on the login; without it every login fits"}, \
        {"bind-type", CMD_TEXT, &(wanted).type, "service or role"}, {                                        \
        "bind-name", CMD_TEXT, &(wanted).name, "the service or role; ${value.NAME} is filled in"             \
    }

static void rule_change(struct json_object *body, const struct rule_wanted *wanted) {
    acl_set(body, "Description", wanted->description), acl_set(body, "Selector", wanted->selector);
    acl_set(body, "BindType", wanted->type), acl_set(body, "BindName", wanted->name);
}

static int rule_create(int argc, char **argv) {
    static const char usage[] = "coord acl binding-rule create [FLAGS] -method=METHOD -bind-type=TYPE -bind-name=NAME";
    struct client client = {0};
    struct acl_show show = {0};
    struct rule_wanted wanted = {0};
    const char *method = NULL;
    const struct cmd_flag flags[] = {
        {"method", CMD_TEXT, &method, "the auth method"}, RULE_FLAGS(wanted), ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0)
        code =
            acl_checked(usage, rest, &show,
                        method && wanted.type && wanted.name ? NULL : "-method, -bind-type and -bind-name are wanted");
    if (code >= 0) return code;
    struct json_object *body = json_object_new_object();
    acl_set(body, "AuthMethod", method);
    rule_change(body, &wanted);
    return acl_send_and_show(&client, "PUT", "/v1/acl/binding-rule", body, "creating the binding rule", print_rule,
                             &show);
}

static char *find_rule(const struct client *client, const char *id, struct fault *fault) {
    return acl_find(client, all_rules, "ID", id, NULL, "binding rules", fault);
}

static int rule_update(int argc, char **argv) {
    static const char usage[] = "coord acl binding-rule update [FLAGS] -id=ID";
    struct client client = {0};
    struct acl_show show = {0};
    struct rule_wanted wanted = {0};
    const char *id = NULL;
    bool fresh = false;
    const struct cmd_flag flags[] = {{"id", CMD_TEXT, &id, "its ID, or how it begins"},
                                     {"no-merge", CMD_BOOL, &fresh, "what is not given is taken away"},
                                     RULE_FLAGS(wanted),
                                     ACL_SHOW_FLAGS(show)};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, id ? NULL : "-id is wanted");
    if (code >= 0) return code;
    char *whole = find_rule(&client, id, &fault);
    if (!whole) return cmd_failed("finding the binding rule", &fault);
    struct buffer path = acl_path(one_rule, whole, "");
    struct json_object *body = cmd_json_get(&client, path.data, &fault);
    if (body && fresh) acl_set(body, "Description", ""), acl_set(body, "Selector", ""), acl_set(body, "BindName", "");
    if (body) rule_change(body, &wanted);
    code = body ? acl_send_and_show(&client, "PUT", path.data, body, "updating the binding rule", print_rule, &show)
                : cmd_failed("reading the binding rule", &fault);
    buffer_free(&path);
    free(whole);
    return code;
}

static int rule_named(bool delete, const char *usage, int argc, char **argv) {
    struct client client = {0};
    struct acl_show show = {0};
    const char *id = NULL;
    const struct cmd_flag flags[] = {{"id", CMD_TEXT, &id, "its ID, or how it begins"}, ACL_SHOW_FLAGS(show)};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, id ? NULL : "-id is wanted");
    if (code >= 0) return code;
    char *whole = find_rule(&client, id, &fault);
    if (!whole) return cmd_failed("finding the binding rule", &fault);
    struct buffer path = acl_path(one_rule, whole, "");
    code = delete ? acl_delete(&client, one_rule, whole, "Binding rule")
                  : acl_read_and_show(&client, path.data, "reading the binding rule", print_rule, &show);
    buffer_free(&path);
    free(whole);
    return code;
}
static int rule_read(int argc, char **argv) {
    return rule_named(false, "coord acl binding-rule read [FLAGS] -id=ID", argc, argv);
}
static int rule_delete(int argc, char **argv) {
    return rule_named(true, "coord acl binding-rule delete [FLAGS] -id=ID", argc, argv);
}

static int rule_list(int argc, char **argv) {
    static const char usage[] = "coord acl binding-rule list [FLAGS]";
    struct client client = {0};
    struct acl_show show = {0};
    const char *method = NULL;
    const struct cmd_flag flags[] = {{"method", CMD_TEXT, &method, "only those of this auth method"},
                                     ACL_SHOW_FLAGS(show)};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, NULL);
    if (code >= 0) return code;
    struct buffer path = acl_path(all_rules, "", "");
    path.size--;
    if (method) client_parameter(&path, "authmethod", method);
    buffer_append_byte(&path, '\0');
    code = acl_read_and_show(&client, path.data, "listing the binding rules", print_rule_of_list, &show);
    buffer_free(&path);
    return code;
}

int cmd_acl_binding_rule(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"create", "make a binding rule", rule_create},   {"read", "print a binding rule", rule_read},
        {"update", "change a binding rule", rule_update}, {"delete", "delete a binding rule", rule_delete},
        {"list", "print all binding rules", rule_list},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "acl binding-rule", argc, argv);
}
