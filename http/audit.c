/* The requests that the audit log records, and what is known of them; base/audit_log_run.h writes the lines. A request gets its
 * id when something needs it. Without an audit log that is only a denial.
 *
 * A request that is recorded has a `struct audited` from before it is carried out, with room for its line; the line is made
 * with the answer, or when the client is gone and the outcome has come. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/audit_log_run.h"
#include "base/clock.h"
#include "http/audit_line.h"
#include "http/impl.h"

struct audited {
    char id[AUDIT_ID_MAX + 1];
    char address[INET6_ADDRSTRLEN + 10];
    const char *certificate, *denied, *subject;
    const struct access *access; /* a reference; NULL: not known yet */
    uint64_t index;
    size_t reserved;
    bool recorded;
};

static const struct http_env *env_of(const struct http_request *request) { return &request->worker->server->env; }

/* Of the token that it came with, or that stands for it. */
static struct slice secret_of(const struct http_request *request) {
    const struct requester *requester = request->requester;
    if (request->connection && request->token.size) return request->token; /* of its headers */
    if (!requester || requester->slot == REQUESTER_ANONYMOUS) return slice_make("", 0);
    return slice_make(requester->text, requester->size);
}

/* -- what is known of a request ----------------------------------------------------------------------------------- */
static void name_request(struct http_request *request, char id[AUDIT_ID_MAX + 1]) {
    const char *given = http_request_header(request, "X-Request-Id");
    if (given && audit_id_valid(slice_text(given), secret_of(request))) memcpy(id, given, strlen(given) + 1);
    else audit_id_draw(&request->worker->rng, id);
}

static void name_client(const struct http_request *request, char *text, size_t room) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    char host[INET6_ADDRSTRLEN];
    snprintf(text, room, "unix");
    if (address && address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(text, room, "%s:%u", host, ntohs(four->sin_port));
    } else if (address && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(text, room, "[%s]:%u", host, ntohs(six->sin6_port));
    }
}

static const char *certificate_of(struct http_request *request) {
    const struct tls_certificate *peer = connection_peer(request->connection);
    if (!peer) return "";
    const char *name = peer->node[0] ? peer->node : peer->common_name;
    return arena_strndup(&request->arena, name, strlen(name));
}

/* Best before it is carried out, because a logout ends its own token. */
static void learn_access(struct http_request *request) {
    if (!request->audited->access) request->audited->access = access_look(request);
}

static struct audited *audited_new(struct http_request *request, size_t reserved) {
    struct audited *audited = request->audited = arena_zalloc(&request->arena, sizeof *audited);
    audited->reserved = reserved;
    name_request(request, audited->id);
    name_client(request, audited->address, sizeof audited->address);
    audited->certificate = certificate_of(request);
    return audited;
}

/* -- before the request is carried out ---------------------------------------------------------------------------- */
bool audit_due(const struct http_request *request) {
    unsigned reads = HTTP_GET | HTTP_HEAD, nothing = HTTP_OPTIONS;
    if (request->method & nothing) return false;
    return !(request->method & reads) || env_of(request)->audit_reads;
}

bool audit_admit(struct http_request *request) {
    size_t reserved = 0;
    if (!request->audited) {
        if (!audit_log_run_reserve(env_of(request)->audit, audit_line_estimate(request->target), &reserved)) {
            char id[AUDIT_ID_MAX + 1];
            name_request(request, id);
            http_header(request, "X-Request-Id", id);
            http_reply_text(request, 503, "the audit log cannot record requests now, so they are refused (request %s)",
                            id);
            return false;
        }
        audited_new(request, reserved);
    }
    learn_access(request);
    return true;
}

bool audit_asks(const struct http_request *request) {
    return request->audited && !request->audited->access && request->requester && !request->refusal &&
           !rpc_has_copy(env_of(request)->rpc) && rpc_known_leader(env_of(request)->rpc);
}

/* -- denials ------------------------------------------------------------------------------------------------------ */
bool audit_denial(struct http_request *request, char *line, size_t room) {
    char id[AUDIT_ID_MAX + 1];
    size_t size = strlen(line);
    if (!request->connection) return true;
    if (env_of(request)->audit) {
        if (!audit_admit(request)) return false;
        request->audited->denied = arena_strndup(&request->arena, line, size);
        memcpy(id, request->audited->id, sizeof id);
    } else {
        name_request(request, id);
    }
    http_header(request, "X-Request-Id", id);
    /* Clients compare, or read, other texts as a whole: "ACL not found", "... (reset index: 7)". */
    if (strstr(line, " lacks ")) snprintf(line + size, room - size, " (request %s)", id);
    return true;
}

/* -- the line ----------------------------------------------------------------------------------------------------- */
static const char *kind_of(const struct http_request *request, int status) {
    const char *path = request->route ? request->route->path : "";
    if (status == 403) return "denial";
    if (strcmp(path, "/v1/acl/login") == 0) return "login";
    if (strcmp(path, "/v1/acl/logout") == 0) return "logout";
    return request->method & (HTTP_GET | HTTP_HEAD) && !request->audited->index ? "read" : "write";
}

static const char *method_of(const struct http_request *request) {
    switch (request->method) {
        case HTTP_GET: return "GET";
        case HTTP_PUT: return "PUT";
        case HTTP_POST: return "POST";
        case HTTP_DELETE: return "DELETE";
        case HTTP_HEAD: return "HEAD";
        case HTTP_OPTIONS: return "OPTIONS";
        case HTTP_OTHER: break;
    }
    return "other";
}

static const char *slot_of(const struct requester *requester) {
    static const char *const names[] = {[REQUESTER_REQUEST] = "request",
                                        [REQUESTER_DEFAULT] = "default",
                                        [REQUESTER_ANONYMOUS] = "anonymous",
                                        [REQUESTER_NODE] = "node",
                                        [REQUESTER_REGION] = "region"};
    return requester ? names[requester->slot] : "";
}

static void record(struct http_request *request, int status) {
    struct audited *audited = request->audited;
    struct worker *worker = request->worker;
    if (audited->recorded) return;
    audited->recorded = true;
    if (request->connection) learn_access(request);
    const struct access *access = audited->access ? audited->access : access_all;
    struct audit_line line = {.unix_ms = (uint64_t)(clock_wall_ns() / 1000000),
                              .kind = kind_of(request, status),
                              .id = audited->id,
                              .accessor = access_accessor(access),
                              .token = access_description(access),
                              .slot = slot_of(request->requester),
                              .certificate = audited->certificate,
                              .address = audited->address,
                              .method = method_of(request),
                              .target = request->target,
                              .secret = secret_of(request),
                              .status = status,
                              .denied = audited->denied,
                              .subject = audited->subject,
                              .index = audited->index};
    struct buffer *out = &worker->audit_line;
    buffer_reset(out);
    audit_line_write(out, &line);
    audit_log_run_put(worker->server->env.audit, buffer_slice(out), audited->reserved);
}

void audit_answered(struct http_request *request, int status) {
    if (!request->audited && status == 403) audited_new(request, 0);
    if (request->audited) record(request, status);
}

void audit_index(struct http_request *request, uint64_t index) {
    if (request->audited) request->audited->index = index;
}

void http_audit(struct http_request *request, const char *subject, uint64_t index) {
    if (!request->audited) return;
    request->audited->subject = arena_strndup(&request->arena, subject, strlen(subject));
    request->audited->index = index;
}

void audit_end(struct http_request *request) {
    record(request, 0);
    access_release(request->audited->access);
    request->audited = NULL;
}
