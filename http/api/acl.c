/* /v1/acl and its like. coord has no tokens and policies, so all requests are answered as by a Consul without ACLs,
 * with its exact texts, because clients look for them. */
#include "http/api/topics.h"
#include "http/http.h"

static void no_acls(struct http_request *request) { http_reply_text(request, 401, "ACL support disabled"); }

#define ROW(methods, path, ...)                                                                                       \
    {                                                                                                                 \
        methods, path, no_acls, "none: there are no ACLs", HTTP_PARAMS(__VA_ARGS__), "There are no ACLs: always 401", \
            HTTP_LOCAL | HTTP_BODY_RAW, .example = {                                                                  \
                .status = 401                                                                                         \
            }                                                                                                         \
    }
#define ID \
    { "*id", HTTP_TEXT, .help = "any" }
#define NAME \
    { "*name", HTTP_TEXT, .help = "any" }
#define NAMED (HTTP_GET | HTTP_PUT | HTTP_DELETE)

const struct http_route http_routes_acl[] = {
    ROW(HTTP_PUT, "/v1/acl/bootstrap", {0}),
    ROW(HTTP_POST, "/v1/acl/login", {0}),
    ROW(HTTP_POST, "/v1/acl/logout", {0}),
    ROW(HTTP_GET, "/v1/acl/replication", {0}),
    ROW(HTTP_GET, "/v1/acl/policies", {0}),
    ROW(HTTP_PUT, "/v1/acl/policy", {0}),
    ROW(HTTP_GET, "/v1/acl/policy/name/*name", NAME),
    ROW(NAMED, "/v1/acl/policy/*id", ID),
    ROW(HTTP_GET, "/v1/acl/roles", {0}),
    ROW(HTTP_PUT, "/v1/acl/role", {0}),
    ROW(HTTP_GET, "/v1/acl/role/name/*name", NAME),
    ROW(NAMED, "/v1/acl/role/*id", ID),
    ROW(HTTP_GET, "/v1/acl/binding-rules", {0}),
    ROW(HTTP_PUT, "/v1/acl/binding-rule", {0}),
    ROW(NAMED, "/v1/acl/binding-rule/*id", ID),
    ROW(HTTP_GET, "/v1/acl/auth-methods", {0}),
    ROW(HTTP_PUT, "/v1/acl/auth-method", {0}),
    ROW(NAMED, "/v1/acl/auth-method/*name", NAME),
    ROW(HTTP_POST, "/v1/acl/rules/translate", {0}),
    ROW(HTTP_GET, "/v1/acl/rules/translate/*id", ID),
    ROW(HTTP_GET, "/v1/acl/tokens", {0}),
    ROW(HTTP_PUT, "/v1/acl/token", {0}),
    ROW(HTTP_GET, "/v1/acl/token/self", {0}),
    ROW(NAMED, "/v1/acl/token/*id", ID),
    /* of older clients */
    ROW(HTTP_PUT, "/v1/acl/create", {0}),
    ROW(HTTP_PUT, "/v1/acl/update", {0}),
    ROW(HTTP_PUT, "/v1/acl/destroy/*id", ID),
    ROW(HTTP_GET, "/v1/acl/info/*id", ID),
    ROW(HTTP_PUT, "/v1/acl/clone/*id", ID),
    ROW(HTTP_GET, "/v1/acl/list", {0}),
    ROW(HTTP_POST, "/v1/internal/acl/authorize", {0}),
    {0},
};
