/* /v1/lease: leases, which vanish with all that is bound to them when their owner no longer renews them. */
#include "http/api_lease.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/text.h"
#include "registry/lease.h"

#define TTL_MIN_NS 1000000000
#define NAME_MOST  512

/* -- ids ---------------------------------------------------------------------------------------------------------- */

static bool id_parse(struct http_request *request, const char *what, struct slice text, char **id) {
    if (!uuid_valid(text)) {
        http_reply_text(request, 400, "%s: \"%.*s\" is no lease ID: a UUID is wanted", what,
                        text.size < 60 ? (int)text.size : 60, text.size ? text.data : "");
        return false;
    }
    *id = arena_strndup(http_arena(request), text.data, text.size);
    for (char *at = *id; *at; at++) *at = (char)tolower((unsigned char)*at);
    return true;
}

bool lease_id(struct http_request *request, const char *what, struct slice text, char **id) {
    if (!id_parse(request, what, text, id)) return false;
    struct rpc_status status;
    rpc_status(http_env(request)->rpc, &status);
    /* A client agent does not know it. Its server refuses ids that are not known, and below that version none is. */
    if (!status.is_server || status.cluster_version >= LEASE_SINCE) return true;
    http_reply_text(request, 400, "%s: needs cluster version %d, the cluster is at %u", what, LEASE_SINCE,
                    status.cluster_version);
    return false;
}

/* Of the path; NULL: it has replied. */
static char *path_id(struct http_request *request) {
    char *id;
    return id_parse(request, "lease", http_path_value(request, "id"), &id) ? id : NULL;
}

static const char gone[] = "lease \"%s\" is not known: it has expired or was revoked; register again";

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void duration_write(struct json_out *json, const char *key, int64_t ns) {
    struct buffer text = {0};
    duration_format(&text, ns);
    json_key_raw(json, key, strlen(key));
    json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}

static void bound_write(struct json_out *json, const Pb__LeaseEntry *entry) {
    json_key(json, "Keys");
    json_array(json);
    for (size_t i = 0; i < entry->n_keys; i++) json_slice(json, slice_make(entry->keys[i].data, entry->keys[i].len));
    json_array_end(json);
    json_key(json, "Services");
    json_array(json);
    for (size_t i = 0; i < entry->n_services; i++) {
        json_object(json);
        json_key(json, "Node");
        json_string(json, entry->services[i]->node);
        json_key(json, "ID");
        json_string(json, entry->services[i]->id);
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "Nodes");
    json_array(json);
    for (size_t i = 0; i < entry->n_nodes; i++) json_string(json, entry->nodes[i]);
    json_array_end(json);
}

/* `left_ms`: what the leader says; -1: it was not asked. */
static void entry_write(struct json_out *json, const Pb__LeaseEntry *entry, int64_t left_ms) {
    const Pb__Lease *lease = entry->lease;
    json_object(json);
    json_key(json, "ID");
    json_string(json, lease->id);
    json_key(json, "Name");
    json_string(json, lease->name);
    duration_write(json, "TTL", lease->ttl_ns);
    if (left_ms >= 0) duration_write(json, "Remaining", left_ms * 1000000);
    if (lease->node[0]) {
        json_key(json, "Node");
        json_string(json, lease->node);
        json_key(json, "NodeID");
        json_string(json, lease->node_id);
    }
    bound_write(json, entry);
    json_key(json, "CreateIndex");
    json_u64(json, lease->create_index);
    json_object_end(json);
}

static int view_lease(struct http_request *request, const struct query_result *result) {
    if (result->found) {
        const struct rpc_renew *looked = http_context(request);
        entry_write(http_out(request), (const Pb__LeaseEntry *)result->message, looked ? looked->left_ms : -1);
        return 200;
    }
    struct slice id = http_path_value(request, "id");
    buffer_printf(http_raw(request), gone, arena_strndup(http_arena(request), id.data, id.size));
    return 404;
}

static int by_id(const void *a, const void *b) {
    return strcmp((*(Pb__LeaseLeft *const *)a)->id, (*(Pb__LeaseLeft *const *)b)->id);
}

/* Context: pb.LeasesLeft, sorted; NULL: the leader was not asked. One that it does not know of (its end is proposed)
 * has nothing left. */
static int view_leases(struct http_request *request, const struct query_result *result) {
    const Pb__LeaseEntriesResult *leases = (const Pb__LeaseEntriesResult *)result->message;
    const Pb__LeasesLeft *left = http_context(request);
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0, at = 0; i < leases->n_leases; i++) {
        const char *id = leases->leases[i]->lease->id;
        while (left && at < left->n_leases && strcmp(left->leases[at]->id, id) < 0) at++;
        bool known = left && at < left->n_leases && strcmp(left->leases[at]->id, id) == 0;
        entry_write(json, leases->leases[i], !left ? -1 : known ? left->leases[at]->left_ms : 0);
    }
    json_array_end(json);
    return 200;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

static void lease_read(struct http_request *request, char *id, const struct rpc_renew *looked) {
    Pb__LeaseRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__lease_request__init(message);
    message->id = id;
    http_read_fresh(request, &query_lease, &message->base, view_lease, looked);
}

/* Not found: the leader does not know it, or has proposed its end. What the state says counts, which has a moment to
 * go in the latter case. */
static void looked(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error != CO_OK && error != CO_NOTFOUND) http_reply_error(request, error);
    else lease_read(request, (char *)(uintptr_t)renew->id, renew);
}

/* How much is left only the leader knows, and it changes all the time: who waits for a change, or takes what this
 * server has, is not told. */
static void lease_get(struct http_request *request) {
    char *id = path_id(request);
    if (!id) return;
    if (http_has(request, "index") || http_has(request, "stale")) lease_read(request, id, NULL);
    else http_renew(request, &lease_expiry, true, slice_text(id), looked);
}

static const ProtobufCMessage *list_message(struct http_request *request) {
    Pb__LeaseListRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__lease_list_request__init(message);
    return &message->base;
}

static void looked_at_all(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error == CO_TOOLARGE) {
        http_reply_text(request, 400, "remaining: there are more than %d leases, ask for one", RPC_LOOK_MAX);
        return;
    }
    ProtobufCAllocator allocator = ARENA_PROTOBUF(http_arena(request));
    Pb__LeasesLeft *left =
        error ? NULL : pb__leases_left__unpack(&allocator, renew->all.size, (const uint8_t *)renew->all.data);
    if (!left) {
        http_reply_error(request, error ? error : CO_CORRUPT);
        return;
    }
    if (left->n_leases) qsort(left->leases, left->n_leases, sizeof *left->leases, by_id);
    http_read_fresh(request, &query_leases, list_message(request), view_leases, left);
}

static void lease_list(struct http_request *request) {
    if (!http_has(request, "remaining")) http_read(request, &query_leases, list_message(request), view_leases);
    else if (http_has(request, "index") || http_has(request, "stale"))
        http_reply_text(request, 400, "remaining: not together with index or stale, the leader is asked for it");
    else http_renew(request, &lease_expiry, true, slice_make("", 0), looked_at_all);
}

/* -- writing ------------------------------------------------------------------------------------------------------ */

void lease_refuse(struct http_request *request, int error, const char *id) {
    if (error == CO_NOTFOUND) http_reply_text(request, 404, gone, id);
    else http_reply_error(request, error);
}

static void renewed(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error != CO_OK) {
        lease_refuse(request, error, renew->id);
    } else {
        struct json_out *json = http_out(request);
        json_object(json);
        json_key(json, "ID");
        json_string(json, renew->id);
        duration_write(json, "TTL", renew->ttl_ns);
        json_object_end(json);
        http_reply_json(request, 200);
    }
}

static void lease_renew(struct http_request *request) {
    const char *id = path_id(request);
    if (id) http_renew(request, &lease_expiry, false, slice_text(id), renewed);
}

static void lease_revoke(struct http_request *request) {
    char *id = path_id(request);
    if (!id) return;
    Pb__LeaseEndCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__lease_end_command__init(command);
    command->id = id;
    http_write(request, LEASE_END, &command->base, NULL);
}

static void granted(struct http_request *request, const struct machine_result *result) {
    if (result->error != CO_OK) {
        struct fault fault = {0};
        fault_set(&fault, result->error, "%s", result->text ? result->text : co_strerror(result->error));
        http_reply_fault(request, &fault);
        return;
    }
    const Pb__Lease *lease = (const Pb__Lease *)result->message;
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "ID");
    json_string(json, lease->id);
    duration_write(json, "TTL", lease->ttl_ns);
    json_key(json, "CreateIndex");
    json_u64(json, lease->create_index);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void ttl_check(struct json_object *json, int64_t ttl_ns, struct fault *fault) {
    if (fault->code != CO_OK) return;
    if (!json_get(json, "TTL")) fault_set(fault, CO_INVALID, "TTL: a duration is wanted, as \"10s\"");
    else if (ttl_ns < TTL_MIN_NS || ttl_ns > LEASE_TTL_MAX_NS)
        fault_set(fault, CO_INVALID, "TTL: must be between 1s and 24h");
}

static void lease_grant(struct http_request *request) {
    static const char *const known[] = {"TTL", "Name", NULL};
    struct json_object *json = http_json(request);
    if (!json) return;
    struct fault fault = {0};
    const char *name = "";
    Pb__Lease *lease = arena_alloc(http_arena(request), sizeof *lease);
    pb__lease__init(lease);
    json_only_known(json, known, &fault);
    json_get_string(json, "Name", &name, &fault);
    json_get_duration(json, "TTL", &lease->ttl_ns, &fault);
    ttl_check(json, lease->ttl_ns, &fault);
    if (fault.code == CO_OK && strlen(name) > NAME_MOST)
        fault_set(&fault, CO_INVALID, "Name is longer than %d bytes", NAME_MOST);
    if (fault.code != CO_OK) {
        http_reply_text(request, 400, "%s", fault.text);
        return;
    }
    uint8_t bytes[16];
    random_bytes(bytes, sizeof bytes);
    lease->id = arena_zalloc(http_arena(request), UUID_TEXT_SIZE + 1);
    uuid_format(bytes, lease->id);
    lease->name = (char *)(uintptr_t)name;
    Pb__LeaseGrantCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__lease_grant_command__init(command);
    command->lease = lease;
    http_write(request, LEASE_GRANT, &command->base, granted);
}

const struct http_route http_routes_lease[] = {
    {HTTP_PUT, "/v1/lease/grant", lease_grant, "lease:write", "dc", "Grants a lease; answers its ID", 0},
    {HTTP_PUT, "/v1/lease/renew/:id", lease_renew, "lease:write", "dc",
     "Renews a lease, without an entry in the log; 404 once it has ended", 0},
    {HTTP_PUT, "/v1/lease/revoke/:id", lease_revoke, "lease:write", "dc",
     "Ends a lease; all that is bound to it is removed in one entry", 0},
    {HTTP_GET, "/v1/lease/:id", lease_get, "lease:read", "dc index wait stale consistent",
     "One lease and what is bound to it; Remaining is asked of the leader, and left out with index or stale", 0},
    {HTTP_GET, "/v1/leases", lease_list, "lease:read", "dc index wait stale consistent remaining",
     "All leases; with remaining the leader is asked for Remaining", 0},
    {0},
};
