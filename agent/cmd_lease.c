/* coord lease: a column that is no member of the records of http/api/lease.c. */
#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"
#include "agent/cmd_json.h"
#include "base/check.h"

static void append_list(struct buffer *out, struct json_object *lease, const char *name, const char *kind) {
    struct json_object *list = json_get_array(lease, name, NULL);
    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (out->size) buffer_append_byte(out, ' ');
        if (json_object_is_type(item, json_type_object))
            buffer_printf(out, "%s:%s/%s", kind, cmd_json_text(item, "Node"), cmd_json_text(item, "ID"));
        else buffer_printf(out, "%s:%s", kind, json_object_get_string(item));
    }
}

/* "key:a service:n1/web": everything that is bound to the lease. */
static void bound(struct json_object *lease, struct buffer *out) {
    append_list(out, lease, "Keys", "key");
    append_list(out, lease, "Services", "service");
    append_list(out, lease, "Nodes", "node");
}

cmd_cell_write cmd_endpoint_cell(const char *command, const char *column) {
    if (strcmp(command, "lease list") == 0 && strcmp(column, "Bound") == 0) return bound;
    return cmd_rollout_cell(command, column);
}
