/* /v1/snapshot: backups, as `consul snapshot` writes and checks them. */
#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "http/api/topics.h"
#include "http/http.h"
#include "rpc/api/operator.h"

static const char *folder(struct http_request *request) {
    const char *spool = http_env(request)->spool_folder;
    return spool ? spool : "/tmp";
}

static void reply_failed(struct http_request *request, int error, const struct fault *fault) {
    struct fault shown = *fault;
    if (shown.code && error != CO_NOLEADER) http_reply_fault(request, &shown);
    else http_reply_error(request, error);
}

/* -- saving ------------------------------------------------------------------------------------------------------- */
struct saving {
    struct http_call call;
    struct rpc_save save;
};

static void saved(struct rpc_save *save, int error) {
    http_called(&CONTAINER_OF(save, struct saving, save)->call, error);
}

static void saved_view(struct http_request *request, struct http_call *call, int error) {
    struct saving *saving = CONTAINER_OF(call, struct saving, call);
    if (error) {
        reply_failed(request, error, &saving->save.fault);
        return;
    }
    struct rpc_status status;
    rpc_status(http_env(request)->rpc, &status);
    http_header_u64(request, "X-Consul-Index", saving->save.index);
    http_header(request, "X-Consul-KnownLeader", status.known_leader ? "true" : "false");
    http_header_u64(request, "X-Consul-LastContact", status.last_contact_ms);
    http_reply_file(request, 200, saving->save.fd, saving->save.size, "application/x-gzip");
}

static void saved_drop(struct http_call *call, int error) {
    struct saving *saving = CONTAINER_OF(call, struct saving, call);
    if (!error) close(saving->save.fd);
}

static void get_snapshot(struct http_request *request) {
    struct saving *saving = arena_zalloc(http_arena(request), sizeof *saving);
    saving->call.view = saved_view;
    saving->call.drop = saved_drop;
    saving->save.done = saved;
    saving->save.folder = folder(request);
    saving->save.stale = http_has(request, "stale");
    http_region_name(request, saving->save.region);
    http_call(request, &saving->call);
    saving->save.requester = http_requester(request);
    rpc_save(http_env(request)->rpc, &saving->save);
}

/* -- restoring ---------------------------------------------------------------------------------------------------- */
struct restoring {
    struct http_call call;
    struct rpc_restore restore;
};

static void restored(struct rpc_restore *restore, int error) {
    http_called(&CONTAINER_OF(restore, struct restoring, restore)->call, error);
}

static void restored_view(struct http_request *request, struct http_call *call, int error) {
    struct restoring *restoring = CONTAINER_OF(call, struct restoring, call);
    if (error == CO_OK) http_reply_text(request, 200, "%s", "");
    else if (error == CO_CORRUPT) http_reply_text(request, 400, "%s", restoring->restore.fault.text);
    else reply_failed(request, error, &restoring->restore.fault);
}

static void put_snapshot(struct http_request *request) {
    struct restoring *restoring = arena_zalloc(http_arena(request), sizeof *restoring);
    restoring->restore.fd = http_body_file(request);
    if (restoring->restore.fd < 0) {
        http_reply_text(request, 400, "%s", RPC_RESTORE_EMPTY);
        return;
    }
    restoring->call.view = restored_view;
    restoring->restore.done = restored;
    restoring->restore.folder = folder(request);
    http_region_name(request, restoring->restore.region);
    http_call(request, &restoring->call);
    restoring->restore.requester = http_requester(request);
    rpc_restore(http_env(request)->rpc, &restoring->restore);
}

const struct http_route http_routes_snapshot[] = {
    {HTTP_GET, "/v1/snapshot", get_snapshot, "acl:write",
     HTTP_PARAMS(HTTP_DC, {"stale", HTTP_FLAG, .help = "of the asked server, which may be behind"}),
     "A backup of the whole state", 0, .example = {.status = 200}},
    {HTTP_PUT, "/v1/snapshot", put_snapshot, "acl:write", HTTP_PARAMS(HTTP_DC),
     "Restores a backup: it replaces the whole state", HTTP_BODY_FILE, .no_example = "it replaces the whole state"},
    {0},
};
