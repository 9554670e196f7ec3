/* The rules of a request's token, for what this process decides itself: rows of the routing table that name their thing, its own
 * services and checks, and itself. A server finds them in its state. A client agent asks a server, keeps the answer for
 * acl.token_ttl, and drops it when access control changes; while no server can be reached, acl.down_policy decides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "acl/resolve.h"
#include "base/clock.h"
#include "http/impl.h"
#include "rpc/api/access_table.h"

void known_access_free(struct worker *worker) {
    access_table_free(worker->known);
    worker->known = NULL;
}

/* NULL: it is not known, or its time is over. */
static const struct known_access *find(struct http_request *request) {
    struct worker *worker = request->worker;
    if (!worker->known) worker->known = access_table_new();
    return access_table_find(worker->known, request->requester, clock_wall_ns() / 1000000);
}

static bool is_fresh(const struct http_request *request, const struct known_access *known) {
    const struct http_env *env = http_env(request);
    return known->generation == rpc_access_generation(env->rpc) &&
           request->worker->now_ms - known->learned_ms < env->token_ttl_ms;
}

static int take(struct http_request *request, const struct known_access *known) {
    if (!known->access) return CO_NOTOKEN;
    request->access = access_keep(known->access);
    return CO_OK;
}

/* -- asking a server ---------------------------------------------------------------------------------------------- */
static void keep(struct http_request *request, const struct query_result *result) {
    struct worker *worker = request->worker;
    struct resolved resolved = {0};
    if (result->found &&
        resolve_unpack((const Pb__AclResolved *)result->message, http_env(request)->default_level, &resolved) != CO_OK)
        return;
    if (!worker->known) worker->known = access_table_new();
    access_table_put(
        worker->known,
        &(struct known_access){request->requester, resolved.access, request->access_generation,
                               resolved.expires_ms ? (int64_t)resolved.expires_ms : INT64_MAX, worker->now_ms});
}

/* No server has answered. */
static int without_server(struct http_request *request) {
    const struct http_env *env = http_env(request);
    const struct known_access *known = find(request);
    if (env->down_policy == HTTP_DOWN_EXTEND && known) return take(request, known);
    if (env->down_policy != HTTP_DOWN_ALLOW) return CO_NOLEADER;
    request->access = access_keep(access_all);
    return CO_OK;
}

static bool goes_on(const struct http_request *request, int error) {
    return error == CO_OK || (error == CO_NOTOKEN && request->or_nobody);
}

static void finish(struct http_request *request, int error) {
    if (goes_on(request, error)) request->with_access(request);
    else if (error == CO_NOLEADER)
        http_reply_text(request, 500, "No cluster leader: the rules of the token cannot be found now");
    else
        http_reply_text(request, reply_status(error), "%s",
                        error == CO_DENIED ? http_denial(request) : co_strerror(error));
}

static void resolved(struct http_request *request, int error, const struct query_result *result) {
    if (error == CO_OK) {
        keep(request, result);
        const struct known_access *known = find(request);
        error = known ? take(request, known) : CO_NOTOKEN;
    } else if (error != CO_DENIED && error != CO_NOTOKEN && error != CO_NOTREADY) {
        error = without_server(request);
    }
    finish(request, error);
}

static void ask(struct http_request *request, http_fetched answered) {
    Pb__AclResolveRequest *message = arena_alloc(&request->arena, sizeof *message);
    pb__acl_resolve_request__init(message);
    message->secret.data = (uint8_t *)request->requester->text, message->secret.len = request->requester->size;
    message->datacenter = (char *)(uintptr_t)http_env(request)->datacenter;
    request->access_generation = rpc_access_generation(http_env(request)->rpc);
    http_read_once(request, &query_acl_resolve, &message->base, RPC_STALE, answered);
}

/* -- for requests ------------------------------------------------------------------------------------------------- */
void access_find(struct http_request *request, void (*then)(struct http_request *request)) {
    struct worker *worker = request->worker;
    const struct access *access;
    request->with_access = then;
    if (!request->requester) {
        request->access = access_keep(access_all);
        then(request);
    } else if (rpc_has_copy(worker->server->env.rpc)) {
        int error = rpc_access(worker->reader, request->requester, &access);
        if (!error) request->access = access_keep(access);
        if (goes_on(request, error)) then(request);
        else http_reply_text(request, reply_status(error), "%s", rpc_denial(worker->reader));
    } else {
        const struct known_access *known = find(request);
        if (known && is_fresh(request, known)) finish(request, take(request, known));
        else ask(request, resolved);
    }
}

const struct access *access_look(struct http_request *request) {
    struct worker *worker = request->worker;
    const struct access *access;
    if (request->access) return access_keep(request->access);
    if (!request->requester) return NULL;
    if (rpc_has_copy(worker->server->env.rpc))
        return rpc_access(worker->reader, request->requester, &access) == CO_OK ? access_keep(access) : NULL;
    const struct known_access *known = find(request);
    return known && known->access ? access_keep(known->access) : NULL;
}

static void learned(struct http_request *request, int error, const struct query_result *result) {
    if (error == CO_OK) keep(request, result);
    request->with_access(request);
}

void access_learn(struct http_request *request, void (*then)(struct http_request *request)) {
    request->with_access = then;
    ask(request, learned);
}

void http_access_again(struct http_request *request, void (*then)(struct http_request *request)) {
    if (!request->requester) {
        then(request);
        return;
    }
    access_release(request->access);
    request->access = NULL;
    access_find(request, then);
}
void http_find_access(struct http_request *request, void (*then)(struct http_request *request)) {
    access_find(request, then);
}
void http_find_access_of(struct http_request *request, struct requester *requester,
                         void (*then)(struct http_request *request)) {
    requester_release(request->requester);
    access_release(request->access);
    request->requester = requester, request->access = NULL, request->or_nobody = true;
    access_find(request, then);
}
const struct access *http_rules(const struct http_request *request) { return request->access; }
const char *http_accessor(const struct http_request *request) { return access_accessor(request->access); }

bool http_allows(struct http_request *request, enum access_resource resource, struct slice name,
                 enum access_level least) {
    return !request->requester || access_allows(request->access, resource, name, least);
}

bool http_allows_some(struct http_request *request, enum access_resource resource, enum access_level least) {
    return !request->requester || access_allows_some(request->access, resource, least);
}

bool http_shows(struct http_request *request, enum access_resource resource, struct slice name) {
    if (http_allows(request, resource, name, ACCESS_READ)) return true;
    request->hidden++;
    return false;
}

void http_deny(struct http_request *request, enum access_resource resource, struct slice name,
               enum access_level least) {
    struct buffer text = {0};
    rpc_denial_print(request->requester, request->access, &(struct access_missing){resource, least, false, name},
                     &text);
    http_reply_text(request, 403, "%.*s", (int)text.size, text.data);
    buffer_free(&text);
}

bool http_require(struct http_request *request, enum access_resource resource, struct slice name,
                  enum access_level least) {
    if (http_allows(request, resource, name, least)) return true;
    http_deny(request, resource, name, least);
    return false;
}
