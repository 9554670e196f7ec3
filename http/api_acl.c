/* /v1/acl and its like. There are no tokens and policies here: everything is answered as by a Consul without ACLs,
 * whose words clients look for. */
#include "http/http.h"

static void no_acls(struct http_request *request) { http_reply_text(request, 401, "ACL support disabled"); }

#define ROW(methods, path) \
    { methods, path, no_acls, "none", "", "There are no ACLs: always 401", HTTP_LOCAL | HTTP_BODY_RAW }
#define NAMED (HTTP_GET | HTTP_PUT | HTTP_DELETE)

const struct http_route http_routes_acl[] = {
    ROW(HTTP_PUT, "/v1/acl/bootstrap"),
    ROW(HTTP_POST, "/v1/acl/login"),
    ROW(HTTP_POST, "/v1/acl/logout"),
    ROW(HTTP_GET, "/v1/acl/replication"),
    ROW(HTTP_GET, "/v1/acl/policies"),
    ROW(HTTP_PUT, "/v1/acl/policy"),
    ROW(HTTP_GET, "/v1/acl/policy/name/*name"),
    ROW(NAMED, "/v1/acl/policy/*id"),
    ROW(HTTP_GET, "/v1/acl/roles"),
    ROW(HTTP_PUT, "/v1/acl/role"),
    ROW(HTTP_GET, "/v1/acl/role/name/*name"),
    ROW(NAMED, "/v1/acl/role/*id"),
    ROW(HTTP_GET, "/v1/acl/binding-rules"),
    ROW(HTTP_PUT, "/v1/acl/binding-rule"),
    ROW(NAMED, "/v1/acl/binding-rule/*id"),
    ROW(HTTP_GET, "/v1/acl/auth-methods"),
    ROW(HTTP_PUT, "/v1/acl/auth-method"),
    ROW(NAMED, "/v1/acl/auth-method/*name"),
    ROW(HTTP_POST, "/v1/acl/rules/translate"),
    ROW(HTTP_GET, "/v1/acl/rules/translate/*id"),
    ROW(HTTP_GET, "/v1/acl/tokens"),
    ROW(HTTP_PUT, "/v1/acl/token"),
    ROW(HTTP_GET, "/v1/acl/token/self"),
    ROW(NAMED, "/v1/acl/token/*id"),
    /* of older clients */
    ROW(HTTP_PUT, "/v1/acl/create"),
    ROW(HTTP_PUT, "/v1/acl/update"),
    ROW(HTTP_PUT, "/v1/acl/destroy/*id"),
    ROW(HTTP_GET, "/v1/acl/info/*id"),
    ROW(HTTP_PUT, "/v1/acl/clone/*id"),
    ROW(HTTP_GET, "/v1/acl/list"),
    ROW(HTTP_PUT, "/v1/agent/token/*kind"),
    ROW(HTTP_POST, "/v1/internal/acl/authorize"),
    {0},
};
