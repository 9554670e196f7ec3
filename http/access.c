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

#define KNOWN 256

struct known {
    struct requester *requester; /* NULL: the place is free */
    struct access *access;       /* NULL: there is no such token */
    uint64_t generation, fetched_ms;
    uint64_t expires_ms; /* Unix time; 0: never */
};

struct known_access {
    struct known items[KNOWN];
};

static void forget(struct known *known) {
    requester_release(known->requester);
    access_release(known->access);
    *known = (struct known){0};
}

void known_access_free(struct worker *worker) {
    for (size_t i = 0; worker->known && i < KNOWN; i++) forget(&worker->known->items[i]);
    free(worker->known);
    worker->known = NULL;
}

static struct known *place(struct worker *worker, const struct requester *requester) {
    if (!worker->known) worker->known = mem_zalloc(sizeof *worker->known);
    return &worker->known->items[requester->hash % KNOWN];
}

/* NULL: it is not known, or its time is over. */
static struct known *find(struct http_request *request) {
    struct known *known = place(request->worker, request->requester);
    if (!known->requester || !requester_equal(known->requester, request->requester)) return NULL;
    bool over = known->expires_ms && (uint64_t)(clock_wall_ns() / 1000000) >= known->expires_ms;
    return over ? NULL : known;
}

static bool is_fresh(const struct http_request *request, const struct known *known) {
    const struct http_env *env = http_env(request);
    return known->generation == rpc_access_generation(env->rpc) &&
           request->worker->now_ms - known->fetched_ms < env->token_ttl_ms;
}

static int take(struct http_request *request, const struct known *known) {
    if (!known->access) return CO_NOTOKEN;
    request->access = access_keep(known->access);
    return CO_OK;
}

/* -- asking a server ---------------------------------------------------------------------------------------------- */
static void keep(struct http_request *request, const struct query_result *result) {
    struct known *known = place(request->worker, request->requester);
    struct resolved resolved = {0};
    uint64_t generation = request->access_generation;
    if (result->found &&
        resolve_unpack((const Pb__AclResolved *)result->message, http_env(request)->default_level, &resolved) != CO_OK)
        return;
    forget(known);
    *known = (struct known){requester_keep(request->requester), resolved.access, generation, request->worker->now_ms,
                            resolved.expires_ms};
}

/* No server has answered. */
static int without_server(struct http_request *request) {
    const struct http_env *env = http_env(request);
    const struct known *known = find(request);
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
        const struct known *known = find(request);
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
        const struct known *known = find(request);
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
    const struct known *known = find(request);
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
