/* coord acl: what its sub-commands share (agent/cmd_acl*.c). Flags and lines are those of Consul 1.8. */
#ifndef COORD_AGENT_CMD_ACL_H
#define COORD_AGENT_CMD_ACL_H

#include "agent/cmd.h"
#include "agent/cmd_json.h"

/* How a thing is shown. */
struct acl_show {
    bool meta;          /* indexes and hash too */
    const char *format; /* NULL: "pretty"; or "json" */
};
#define ACL_SHOW_FLAGS(show)                                               \
    {"meta", CMD_BOOL, &(show).meta, "show indexes and hashes too"}, {     \
        "format", CMD_TEXT, &(show).format, "pretty (the default) or json" \
    }
typedef void (*acl_print)(struct json_object *thing, const struct acl_show *show);

/* -1: go on; else the exit code of wrong arguments. `wanted`: what was left out, or NULL. */
int acl_checked(const char *usage, char **rest, const struct acl_show *show, const char *wanted);

/* -- asking ---------------------------------------------------------------------------------------------------------- */
/* Appends "/v1/acl/policy/" and the encoded value, and a NUL. */
struct buffer acl_path(const char *before, const char *value, const char *after);
/* Sends a body (NULL: none; taken over), and parses the answer, which the caller puts. NULL: a fault. */
struct json_object *acl_send(const struct client *client, const char *method, const char *path,
                             struct json_object *body, struct fault *fault);
/* Sends and shows the answer by `print`. Returns the exit code. `doing`: "creating the token". */
int acl_send_and_show(const struct client *client, const char *method, const char *path, struct json_object *body,
                      const char *doing, acl_print print, const struct acl_show *show);
/* The same for things that are read. A list is shown one by one. */
int acl_read_and_show(const struct client *client, const char *path, const char *doing, acl_print print,
                      const struct acl_show *show);
/* Deletes; "NOUN "ID" deleted successfully". */
int acl_delete(const struct client *client, const char *before, const char *id, const char *noun);
/* Of a list, the thing whose `key` begins with `prefix`, or whose Name is `name`: its `key`, to be freed. NULL: a fault: there
 * is none, or there are several. */
char *acl_find(const struct client *client, const char *list, const char *key, const char *prefix, const char *name,
               const char *noun, struct fault *fault);

/* -- bodies ---------------------------------------------------------------------------------------------------------- */
void acl_set(struct json_object *body, const char *key, const char *value); /* NULL: left as it is */
/* Adds links by ID and name to the list `key`, which is made empty first unless `merge`. */
void acl_set_links(struct json_object *body, const char *key, const struct cmd_list *ids, const struct cmd_list *names,
                   bool merge);
/* "web", "web:dc1,dc2"; a node's needs one datacenter: "db-1:dc1". False: a fault. */
bool acl_set_services(struct json_object *body, const struct cmd_list *given, bool merge, struct fault *fault);
bool acl_set_nodes(struct json_object *body, const struct cmd_list *given, bool merge, struct fault *fault);
/* Text, @FILE or -; false: a fault. */
bool acl_set_value(struct json_object *body, const char *key, const char *given, struct fault *fault);

/* -- showing --------------------------------------------------------------------------------------------------------- */
void acl_line(const char *indent, const char *label, const char *value); /* 'Label:        value' in columns */
void acl_line_texts(const char *indent, const char *label, struct json_object *texts);
void acl_show_time(const char *label, const char *time);
void acl_show_meta(const char *indent, struct json_object *thing);
void acl_show_grants(const char *indent, struct json_object *thing); /* policies, roles, identities */

int cmd_acl_token(int argc, char **argv);
int cmd_acl_policy(int argc, char **argv);
int cmd_acl_role(int argc, char **argv);
int cmd_acl_auth_method(int argc, char **argv);
int cmd_acl_binding_rule(int argc, char **argv);
int cmd_acl_bootstrap(int argc, char **argv);
int cmd_acl_reset(int argc, char **argv);
void acl_print_token(struct json_object *token, const struct acl_show *show);

#endif
