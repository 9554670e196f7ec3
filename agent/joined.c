#include "agent/joined.h"

#include <stdio.h>
#include <sys/stat.h>

#include "agent/private_file.h"
#include "base/json_out.h"

static const char file_name[] = "joined.json";

bool joined_path(const char *data_dir, char path[4096]) {
    struct stat info;
    snprintf(path, 4096, "%s/%s", data_dir, file_name);
    return stat(path, &info) == 0;
}

int joined_check(const char *data_dir, struct fault *fault) {
    char path[4096];
    struct stat info;
    if (joined_path(data_dir, path))
        return fault_set(fault, CO_EXISTS,
                         "%s says that this host belongs to a cluster already; start it: coord agent -data-dir %s",
                         path, data_dir);
    snprintf(path, sizeof path, "%s/raft", data_dir);
    if (stat(path, &info) == 0)
        return fault_set(
            fault, CO_EXISTS,
            "%s holds the data of a server of an open cluster; `coord secure start` closes it while it runs", data_dir);
    return CO_OK;
}

static void describe(const struct joined *joined, struct buffer *out) {
    struct json_out json;
    json_out_init(&json, out, true);
    json_object(&json);
    json_key(&json, "server"), json_bool(&json, joined->server);
    if (joined->founder) json_key(&json, "bootstrap"), json_bool(&json, true);
    json_key(&json, "node_name"), json_string(&json, joined->node);
    json_key(&json, "datacenter"), json_string(&json, joined->datacenter);
    if (joined->bind) json_key(&json, "bind_addr"), json_string(&json, joined->bind);
    if (joined->server_count) {
        json_key(&json, "retry_join");
        json_array(&json);
        for (size_t i = 0; i < joined->server_count; i++) json_string(&json, joined->servers[i]);
        json_array_end(&json);
    }
    if (joined->default_policy) {
        json_key(&json, "acl");
        json_object(&json);
        json_key(&json, "enabled"), json_bool(&json, true);
        json_key(&json, "default_policy"), json_string(&json, joined->default_policy);
        json_object_end(&json);
    }
    json_key(&json, "ports");
    json_object(&json);
    json_key(&json, "https"), json_u64(&json, 8501);
    json_object_end(&json);
    json_object_end(&json);
    buffer_append_byte(out, '\n');
}

int joined_write(const char *data_dir, const struct joined *joined, struct fault *fault) {
    struct buffer content = {0};
    describe(joined, &content);
    int error = private_file_write(data_dir, file_name, buffer_slice(&content), fault);
    buffer_free(&content);
    return error;
}
