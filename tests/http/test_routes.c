/* The routing tables as they are: whatever a wildcard stands for is reached, also where a literal stands beside it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "http/api/topics.h"
#include "http/impl.h"
#include "http/route_near.h"

static const struct http_route *const tables[] = {
    http_routes_kv,          http_routes_session,       http_routes_status,
    http_routes_catalog,     http_routes_health,        http_routes_agent,
    http_routes_agent_check, http_routes_agent_cluster, http_routes_agent_service,
    http_routes_metrics,     http_routes_operator,      http_routes_snapshot,
    http_routes_acl,         http_routes_coordinate,    http_routes_lease,
    http_routes_event,       http_routes_monitor,
};

static const struct http_route *find(struct http_request *request, unsigned method, const char *path) {
    memset(request, 0, sizeof *request);
    request->method = method;
    request->method_text = "METHOD";
    request->path = slice_text(path);
    route_find(request);
    return request->route;
}

static void done(struct http_request *request) { arena_free(&request->arena); }

/* A path that fits a row: each wildcard is `value`. */
static void path_of(const char *row, const char *value, char *out, size_t room) {
    size_t size = 0;
    for (const char *at = row; *at; at += strcspn(at + 1, "/") + 1) {
        size_t word = strcspn(at + 1, "/");
        bool wild = at[1] == ':' || at[1] == '*';
        int more = wild ? snprintf(out + size, room - size, "/%s", value)
                        : snprintf(out + size, room - size, "/%.*s", (int)word, at + 1);
        size += (size_t)more;
    }
}

/* A row ends in a wildcard: where its value stands. */
static size_t wildcard_at(const struct http_route *route) {
    const char *last = strrchr(route->path, '/') + 1;
    return *last == '*' || *last == ':' ? (size_t)(last - route->path) : 0;
}

/* No literal there is a UUID. */
static bool of_uuids(const struct http_route *route) { return strncmp(route->path, "/v1/acl/", 8) == 0; }

static unsigned compared;

static void compare(const struct http_route *wild, const struct http_route *other) {
    size_t at = wildcard_at(wild);
    bool beside = strncmp(wild->path, other->path, at) == 0 && other->path[at] && !strchr(":*", other->path[at]);
    if (!beside) return;
    char path[300], value[300];
    path_of(other->path, "x", path, sizeof path);
    snprintf(value, sizeof value, "%s", path + at);
    if (wild->path[at] == ':' && strchr(value, '/')) return;
    for (unsigned method = HTTP_GET; method <= HTTP_DELETE; method *= 2) {
        if (!(wild->methods & method)) continue;
        struct http_request request;
        const struct http_route *found = find(&request, method, path);
        compared++;
        if (other->methods & method) {
            cr_expect(found == other, "%s is %s", path, found ? found->path : "none");
            cr_expect(found->handler == wild->handler || of_uuids(wild), "%s can never mean %s", path, wild->path);
        } else {
            cr_expect(found == wild, "%s, method %u, is %s, not %s", path, method, found ? found->path : "none",
                      wild->path);
            cr_expect_str_eq(http_path_value(&request, wild->path + at + 1).data, value);
        }
        done(&request);
    }
}

Test(routes, a_literal_hides_no_value_of_a_wildcard) {
    routes_init();
    for (size_t a = 0; a < sizeof tables / sizeof *tables; a++) {
        for (const struct http_route *wild = tables[a]; wild->path; wild++) {
            if (!wildcard_at(wild)) continue;
            for (size_t b = 0; b < sizeof tables / sizeof *tables; b++) {
                for (const struct http_route *other = tables[b]; other->path; other++) compare(wild, other);
            }
        }
    }
    cr_expect(compared >= 8, "%u", compared);
}

/* Words that stand somewhere in the tables, as names and ids. */
Test(routes, every_row_is_reached_with_any_word) {
    static const char *const words[] = {"register", "deregister", "maintenance", "pass", "nodes", "services", "list",
                                        "create",   "info",       "grant",       "name", "id",    "self",     "v1"};
    routes_init();
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const struct http_route *route = tables[t]; route->path; route++) {
            for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
                char path[300];
                path_of(route->path, words[w], path, sizeof path);
                struct http_request request;
                const struct http_route *found = find(&request, route->methods & -route->methods, path);
                bool same = found == route || (found && (found->handler == route->handler || of_uuids(route)));
                cr_expect(same, "%s is %s", path, found ? found->path : "none");
                done(&request);
            }
        }
    }
}

Test(routes, what_is_allowed) {
    struct http_request request;
    routes_init();
    cr_expect(!find(&request, HTTP_DELETE, "/v1/agent/service/register"));
    cr_expect(request.refusal == 405);
    cr_expect_str_eq(request.headers->name, "Allow");
    cr_expect_str_eq(request.headers->value, "OPTIONS,GET,PUT", "of the literal and of the wildcard");
    done(&request);
    cr_expect(!find(&request, HTTP_PUT, "/v1/agent/service/other"));
    cr_expect(request.refusal == 405);
    cr_expect_str_eq(request.headers->value, "OPTIONS,GET");
    done(&request);
    cr_expect(!find(&request, HTTP_OPTIONS, "/v1/agent/service/register"));
    cr_expect(request.refusal == 200);
    done(&request);
    cr_expect(!find(&request, HTTP_GET, "/v1/agent/serviceregister"));
    cr_expect(request.refusal == 404);
    done(&request);
    cr_expect(!find(&request, HTTP_PUT, "/"));
    cr_expect(request.refusal == 405);
    done(&request);
}

/* A path that is mistyped, or another method's: the status is Consul's, the words say what was meant. */
Test(routes, what_was_meant_is_named) {
    static const struct {
        unsigned method;
        const char *path;
        int status;
        const char *said;
    } rows[] = {
        {HTTP_PUT, "/v1/lock/job/aquire", 405, "METHOD not allowed; allowed: GET; nearest: PUT /v1/lock/:name/acquire"},
        {HTTP_PUT, "/v1/lock/a/b/realease", 405, "; nearest: PUT /v1/lock/:name/release"},
        {HTTP_PUT, "/v1/lok/job/acquire", 404, ": PUT /v1/lock/:name/acquire is the nearest"},
        {HTTP_GET, "/v1/catalog/servics", 404, ": GET /v1/catalog/services is the nearest"},
        {HTTP_GET, "/v1/catalog/serv", 404, ": GET /v1/catalog/services is the nearest"},
        {HTTP_PUT, "/v1/quota/calls/take", 404, ": PUT /v1/agent/quota/:name/take is the nearest"},
        {HTTP_GET, "/v1/quota/calls/owner", 404, ": GET /v1/agent/quota/:name/owner is the nearest"},
        {HTTP_PUT, "/v1/agent/quota/calls/settle", 404, ": PUT /v1/quota/:name/settle is the nearest"},
        {HTTP_PUT, "/v1/service/register", 404, ": PUT /v1/agent/service/register is the nearest"},
        {HTTP_PUT, "/v1/session", 404, ": PUT /v1/session/create is the nearest"},
        {HTTP_PUT, "/v1/session/creat", 404, ": PUT /v1/session/create is the nearest"},
        {HTTP_GET, "/catalog/nodes", 404, ": GET /v1/catalog/nodes is the nearest"},
        {HTTP_GET, "/v1/agent/check/pass/x", 405, "method METHOD not allowed; allowed: PUT"},
        {HTTP_POST, "/v1/catalog/registre", 404, ": PUT /v1/catalog/register is the nearest"},
        {HTTP_GET, "/v1/query", 404,
         ": Consul's `/v1/query`; coord does not have it: there are no prepared queries yet"},
        {HTTP_PUT, "/v1/connect/ca/configuration", 404, "Consul's `/v1/connect`"},
        {HTTP_GET, "/v1/config/service-defaults/web", 404, "Consul's `/v1/config`"},
        {HTTP_GET, "/ui/", 404, "Consul's `/ui`"},
        {HTTP_GET, "/v1/frobnicate/x", 404, NULL},
        {HTTP_GET, "/v1", 404, NULL},
        {HTTP_GET, "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r", 404, NULL},
    };
    routes_init();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_request request;
        cr_expect(!find(&request, rows[i].method, rows[i].path), "%s", rows[i].path);
        cr_expect_eq(request.refusal, rows[i].status, "%s", rows[i].path);
        if (rows[i].said)
            cr_expect(strstr(request.refusal_text, rows[i].said) != NULL, "%s: %s", rows[i].path, request.refusal_text);
        else cr_expect_str_eq(request.refusal_text, "Invalid path: there is no such endpoint", "%s", rows[i].path);
        done(&request);
    }
}

/* A parameter of the endpoint that the same path is with another method. */
Test(routes, a_parameter_of_another_method) {
    static const struct {
        const char *path, *parameter, *endpoint;
        unsigned method;
    } rows[] = {
        {"/v1/lock/job/acquire", "ttl", "PUT /v1/lock/:name/acquire", HTTP_GET},
        {"/v1/lock/a/b/acquire", "wait", "PUT /v1/lock/:name/acquire", HTTP_GET},
        {"/v1/kv/x", "acquire", "PUT /v1/kv/:key", HTTP_GET},
        {"/v1/lock/job/acquire", "nonsense", NULL, HTTP_GET},
        {"/v1/lock/job/acquire", "ttl", NULL, HTTP_PUT}, /* it has it itself */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer out = {0};
        bool found =
            route_with_parameter(slice_text(rows[i].path), rows[i].method, slice_text(rows[i].parameter), &out);
        cr_expect_eq(found, rows[i].endpoint != NULL, "%s?%s", rows[i].path, rows[i].parameter);
        if (found && rows[i].endpoint)
            cr_expect(slice_is(buffer_slice(&out), rows[i].endpoint), "%.*s", (int)out.size, out.data);
        buffer_free(&out);
    }
}
