/* /v1/acl over a server with access control: who gets which answer, and that secrets stay out of kept answers. Everything else is told
 * by tests/e2e/test_acl.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl/acl.h"
#include "acl/resolve.h"
#include "base/check.h"
#include "base/json_in.h"
#include "rpc/api/access_control.h"
#include "web_world.h"

static int resolve(void *data, struct store_txn *txn, const struct requester *requester, int64_t now_unix_ms,
                   struct access **access, int64_t *until_unix_ms) {
    static const struct resolve_settings settings = {"dc1", ACCESS_DENY};
    struct resolved resolved = {0};
    struct acl_key *key = acl_key_used();
    (void)data;
    int error = resolve_secret(txn, key, slice_make(requester->text, requester->size), &settings, (uint64_t)now_unix_ms,
                               &resolved, NULL);
    acl_key_release(key);
    *access = resolved.access, *until_unix_ms = INT64_MAX;
    return error == CO_NOTFOUND ? CO_NOTOKEN : error;
}

static struct world *world;
static char *first; /* a management token's secret */

static void begin(void) {
    static const struct rpc_access_control control = {
        .changes = {SPACE_ACL_ALL, {"", 0}},
        .resolve = resolve,
    };
    struct acl_key *key;
    Pb__AclKeyCommand command = PB__ACL_KEY_COMMAND__INIT;
    world = world_start(NULL);
    rpc_access_control_set(world_rpc(world), &control);
    CHECK(acl_key_make(&key, NULL) == CO_OK);
    struct slice id = acl_key_id(key);
    command.id = (ProtobufCBinaryData){id.size, (uint8_t *)(uintptr_t)id.data};
    fake_rpc_apply(world_rpc(world), ACL_KEY, &command.base);
    acl_key_use(key);
}

static void end(void) {
    free(first);
    first = NULL;
    world_stop(world);
    acl_key_use(NULL);
}
TestSuite(acl_api, .init = begin, .fini = end);

/* One request with a token (NULL: none), wanting this status; the body, to be freed. */
static char *want(int status, const char *token, const char *method_and_target, const char *body) {
    int fd = web_dial(world);
    web_say(fd, "%s HTTP/1.1\r\nHost: a\r\nX-Consul-Token: %s\r\nContent-Length: %zu\r\n\r\n%s", method_and_target,
            token ? token : "", body ? strlen(body) : 0, body ? body : "");
    struct web_answer answer = web_hear(fd);
    cr_assert_eq(answer.status, status, "%s: %d %s", method_and_target, answer.status, answer.body);
    char *text = strdup(answer.body ? answer.body : "");
    web_free(&answer);
    close(fd);
    return text;
}

/* A member of an answer, to be freed. */
static char *member(char *body, const char *name) {
    struct json_object *json = json_parse(slice_text(body), NULL);
    const char *text = "";
    cr_assert(json, "%s", body);
    json_get_string(json, name, &text, NULL);
    char *copy = strdup(text);
    json_object_put(json);
    free(body);
    return copy;
}

static void bootstrap(void) { first = member(want(200, NULL, "PUT /v1/acl/bootstrap", NULL), "SecretID"); }

Test(acl_api, bootstraps_once) {
    bootstrap();
    char *text = want(403, NULL, "PUT /v1/acl/bootstrap", NULL);
    cr_assert(strstr(text, "Permission denied: ACL bootstrap no longer allowed (reset index: "), "%s", text);
    free(text);
}

/* Each endpoint, by somebody without rights and by somebody with them. */
Test(acl_api, needs_rights_everywhere) {
    static const struct row {
        const char *request, *body;
        int status; /* with rights */
    } rows[] = {
        {"GET /v1/acl/tokens", NULL, 200},
        {"PUT /v1/acl/token", "{}", 200},
        {"GET /v1/acl/token/x", NULL, 403},
        {"PUT /v1/acl/token/00000000-0000-0000-0000-0000000000aa", "{}", 404},
        {"PUT /v1/acl/token/x/clone", NULL, 403},
        {"DELETE /v1/acl/token/x", NULL, 200},
        {"GET /v1/acl/policies", NULL, 200},
        {"PUT /v1/acl/policy", "{\"Name\":\"p\"}", 200},
        {"GET /v1/acl/policy/x", NULL, 403},
        {"GET /v1/acl/policy/name/p", NULL, 200},
        {"DELETE /v1/acl/policy/x", NULL, 200},
        {"GET /v1/acl/roles", NULL, 200},
        {"PUT /v1/acl/role", "{\"Name\":\"r\"}", 200},
        {"GET /v1/acl/role/x", NULL, 404},
        {"GET /v1/acl/role/name/r", NULL, 200},
        {"DELETE /v1/acl/role/x", NULL, 200},
        {"GET /v1/acl/auth-methods", NULL, 200},
        {"GET /v1/acl/auth-method/x", NULL, 404},
        {"DELETE /v1/acl/auth-method/x", NULL, 200},
        {"GET /v1/acl/binding-rules", NULL, 200},
        {"GET /v1/acl/binding-rule/x", NULL, 404},
        {"DELETE /v1/acl/binding-rule/x", NULL, 200},
        {"POST /v1/acl/rules/translate", "", 200},
    };
    bootstrap();
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char *text = want(403, NULL, rows[i].request, rows[i].body);
        cr_assert(strstr(text, "Permission denied: the request has no token, and the anonymous one lacks acl:"),
                  "%s: %s", rows[i].request, text);
        free(text);
        text = want(403, "nobody's", rows[i].request, rows[i].body);
        cr_assert_str_eq(text, "ACL not found");
        free(text);
        free(want(rows[i].status, first, rows[i].request, rows[i].body));
    }
}

/* An answer for one who may write must not come to one who may only read. */
Test(acl_api, shows_secrets_to_writers_alone) {
    bootstrap();
    free(want(200, first, "PUT /v1/acl/policy", "{\"Name\":\"p\",\"Rules\":\"acl = \\\"read\\\"\"}"));
    char *reader = member(want(200, first, "PUT /v1/acl/token", "{\"Policies\":[{\"Name\":\"p\"}]}"), "SecretID");
    char *accessor = member(want(200, reader, "GET /v1/acl/token/self", NULL), "AccessorID");
    char target[128];
    snprintf(target, sizeof target, "GET /v1/acl/token/%s", accessor);
    for (int i = 0; i < 3; i++) {
        char *secret = member(want(200, first, target, NULL), "SecretID");
        cr_assert_str_eq(secret, reader);
        free(secret);
        secret = member(want(200, reader, target, NULL), "SecretID");
        cr_assert_str_eq(secret, "<hidden>");
        free(secret);
    }
    char *list = want(200, first, "GET /v1/acl/tokens", NULL);
    cr_assert(!strstr(list, reader) && !strstr(list, "SecretID") && strstr(list, accessor));
    free(list), free(accessor), free(reader);
}

Test(acl_api, answers_for_the_own_token) {
    bootstrap();
    char *text = want(200, first, "POST /v1/internal/acl/authorize",
                      "[{\"Resource\":\"key\",\"Segment\":\"a\",\"Access\":\"write\"}]");
    cr_assert_str_eq(text, "[{\"Resource\":\"key\",\"Segment\":\"a\",\"Access\":\"write\",\"Allow\":true}]");
    free(text);
    text = want(200, NULL, "POST /v1/internal/acl/authorize",
                "[{\"Resource\":\"key\",\"Segment\":\"a\",\"Access\":\"read\"}]");
    cr_assert(strstr(text, "\"Allow\":false"), "%s", text);
    free(text);
    free(want(403, first, "POST /v1/acl/logout", NULL));
    free(want(400, first, "POST /v1/internal/acl/authorize", "[{\"Resource\":\"nope\",\"Access\":\"read\"}]"));
}
