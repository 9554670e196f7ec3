/* /v1/lease: leases. When its owner no longer renews it, a lease ends, and everything that is bound to it is
 * removed. */
#include "http/api/lease.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "http/api/topics.h"
#include "registry/lease.h"

#define TTL_MIN_NS 1000000000
#define NAME_MOST  512

/* -- ids ---------------------------------------------------------------------------------------------------------- */

bool lease_id(struct http_request *request, const char *what, struct slice text, char **id) {
    if (!uuid_valid(text)) {
        http_reply_text(request, 400, "%s: \"%.*s\" is no lease ID: a UUID is wanted", what,
                        text.size < 60 ? (int)text.size : 60, text.size ? text.data : "");
        return false;
    }
    *id = arena_strndup(http_arena(request), text.data, text.size);
    for (char *at = *id; *at; at++) *at = (char)tolower((unsigned char)*at);
    return true;
}

#define GONE "is not known: it has expired or was revoked; register again"

void lease_refuse(struct http_request *request, int error, const char *id) {
    if (error == CO_NOTFOUND) http_reply_text(request, 404, "lease \"%s\" " GONE, id);
    else http_reply_error(request, error);
}

/* -- the remaining time, as the leader knows it ------------------------------------------------------------------- */

static int by_id(const void *a, const void *b) {
    return strcmp((*(Pb__LeaseLeft *const *)a)->id, (*(Pb__LeaseLeft *const *)b)->id);
}

static void remaining_write(struct json_out *json, int64_t left_ms) {
    struct buffer text = {0};
    duration_format(&text, left_ms * 1000000);
    json_key(json, "Remaining");
    json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}

/* The context is the rpc_renew of a look at one lease; NULL: the leader was not asked. */
static void one_remaining(struct json_out *json, const ProtobufCMessage *message, void *request) {
    const struct rpc_renew *looked = http_context(request);
    (void)message;
    if (looked) remaining_write(json, looked->left_ms);
}

/* The context is pb.LeasesLeft, sorted, of a look at all leases. A lease that is not in it (its end is proposed) has no
 * time left. */
static void any_remaining(struct json_out *json, const ProtobufCMessage *message, void *request) {
    const Pb__LeasesLeft *left = http_context(request);
    if (!left) return;
    Pb__LeaseLeft wanted = {.id = ((const Pb__LeaseEntry *)message)->lease->id}, *key = &wanted;
    Pb__LeaseLeft *const *found =
        left->n_leases ? bsearch(&key, left->leases, left->n_leases, sizeof key, by_id) : NULL;
    remaining_write(json, found ? (*found)->left_ms : 0);
}

/* CO_NOTFOUND: the leader does not know the lease, or has proposed its end. Then the replicated state is the answer; in
 * the latter case it still has the lease for a moment. */
static void looked_at_one(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error != CO_OK && error != CO_NOTFOUND) http_reply_error(request, error);
    else http_declared_with(request, renew);
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
    http_declared_with(request, left);
}

/* Only the leader knows the remaining time, which changes all the time: so a blocking query, and a stale read, do not
 * show it. */
static void lease_get(struct http_request *request) {
    if (http_has(request, "index") || http_has(request, "stale")) http_declared(request);
    else http_renew(request, &lease_expiry, true, http_path_value(request, "id"), looked_at_one);
}

static void lease_list(struct http_request *request) {
    if (!http_has(request, "remaining")) http_declared(request);
    else if (http_has(request, "index") || http_has(request, "stale"))
        http_reply_text(request, 400, "remaining: not together with index or stale, the leader is asked for it");
    else http_renew(request, &lease_expiry, true, slice_make("", 0), looked_at_all);
}

/* -- renewing: no command ----------------------------------------------------------------------------------------- */

static void renewed_bounds(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const struct rpc_renew *renew = context;
    (void)message;
    http_bounds_write(json, http_bounds(renew->ttl_ns, renew->left_ms));
}

static void renewed(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error != CO_OK) {
        lease_refuse(request, error, renew->id);
        return;
    }
    static const struct message_member members[] = {
        {.field = "id"}, {.field = "ttl_ns"}, {.write = renewed_bounds}, {0}};
    Pb__Lease lease = PB__LEASE__INIT;
    lease.id = (char *)(uintptr_t)renew->id, lease.ttl_ns = renew->ttl_ns;
    message_json(http_out(request), &lease.base, members, (void *)(uintptr_t)renew);
    http_reply_json(request, 200);
}

static void lease_renew(struct http_request *request) {
    http_renew(request, &lease_expiry, false, http_path_value(request, "id"), renewed);
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

static const struct http_param grant_body[] = {
    {"TTL", HTTP_DURATION, .help = "how long it lives without being renewed", .least = TTL_MIN_NS,
     .most = LEASE_TTL_MAX_NS, .required = true, .field = "lease.ttl_ns"},
    {"Name", HTTP_TEXT, .help = "its purpose, for people", .most = NAME_MOST, .field = "lease.name"},
    {0},
};
static bool grant_prepare(struct http_request *request, ProtobufCMessage *message) {
    http_granted(request, ((Pb__LeaseGrantCommand *)(void *)message)->lease->ttl_ns);
    return true;
}

static const struct message_member granted[] = {
    {.field = "id"}, {.field = "ttl_ns"}, {.field = "create_index"}, {.write = http_write_made_bounds}, {0}};

#define ENTRY(remaining)                                                                                         \
    {.field = "lease.id"}, {.field = "lease.name"}, {.field = "lease.ttl_ns"}, {.write = remaining},             \
        {.field = "lease.node", .flags = MEMBER_OPTIONAL}, {.field = "lease.node_id", .flags = MEMBER_OPTIONAL}, \
        {.field = "keys", .flags = MEMBER_TEXT}, {.field = "services"}, {.field = "nodes"},                      \
        {.field = "lease.create_index"}, {                                                                       \
        0                                                                                                        \
    }
static const struct message_member one[] = {ENTRY(one_remaining)}, any[] = {ENTRY(any_remaining)};

#define ID \
    { ":id", HTTP_UUID, .help = "the lease's ID", .field = "id" }
const struct http_route http_routes_lease[] = {
    {HTTP_PUT, "/v1/lease/grant", http_declared, "session:write",
     HTTP_PARAMS(HTTP_DC, {.type = HTTP_NEW_UUID, .field = "lease.id"}), "Grants a lease; answers its ID", HTTP_OWN,
     .example = {.body = "{\"TTL\":\"1m\",\"Name\":\"nightly\"}", .status = 200, .keep = "lease=ID"},
     .endpoint = {.command = LEASE_GRANT, .body = grant_body, .prepare = grant_prepare, .answer = granted},
     .cli = {"lease grant", .defaults = "ttl=15s", .show = "ID"}},
    {HTTP_PUT, "/v1/lease/renew/:id", lease_renew, "session:write",
     HTTP_PARAMS({":id", HTTP_UUID, .help = "the lease's ID"}, HTTP_DC),
     "Renews a lease, without an entry in the log; 404 once it has ended", HTTP_OWN,
     .example = {"/v1/lease/renew/{lease}", .status = 200}, .cli = {"lease renew", .show = "TTL"}},
    {HTTP_GET, "/v1/lease/:id", lease_get, "session:read", HTTP_PARAMS(ID, HTTP_READS),
     "One lease and what is bound to it; Remaining is asked of the leader, and left out with index or stale", HTTP_OWN,
     .example = {"/v1/lease/{lease}", .status = 200},
     .endpoint = {.query = &query_lease, .answer = one, .fresh = true, .watched = "lease", .missing = GONE},
     .cli = {.command = "lease get"}},
    {HTTP_GET, "/v1/leases", lease_list, "session:read rows",
     HTTP_PARAMS(HTTP_READS, {"remaining", HTTP_FLAG, .help = "the leader is asked how much of each is left"}),
     "All leases, those of nodes included", HTTP_OWN, .example = {.status = 200, .depth = 1},
     .endpoint = {.query = &query_leases, .answer = any, .list = "leases"},
     .cli = {"lease list", .defaults = "remaining", .columns = "ID TTL Remaining Name Node Bound"}},
    {HTTP_PUT, "/v1/lease/revoke/:id", http_declared, "session:write", HTTP_PARAMS(ID, HTTP_DC),
     "Ends a lease; all that is bound to it is removed in one entry", HTTP_OWN,
     .example = {"/v1/lease/revoke/{lease}", .status = 200}, .endpoint = {.command = LEASE_END},
     .cli = {.command = "lease revoke"}},
    {0},
};
