/* Watches as they are written down: what they ask, who is told, what is refused; and what is handed over of an
 * answer. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "agent/watch.h"
#include "base/check.h"
#include "base/json_in.h"

static struct watch *parse(const char *text, bool handler, struct fault *fault) {
    struct json_object *json = json_parse(slice_text(text), fault);
    cr_assert_not_null(json, "%s: %s", text, fault->text);
    struct watch *watch = watch_parse(json, handler, fault);
    json_object_put(json);
    return watch;
}

Test(watch, asks_for_what_it_says) {
    static const struct {
        const char *text, *path;
    } rows[] = {
        {"{\"type\":\"key\",\"key\":\"a/b c\"}", "/v1/kv/a/b%20c"},
        {"{\"type\":\"keyprefix\",\"prefix\":\"a/\"}", "/v1/kv/a/?recurse"},
        {"{\"type\":\"services\"}", "/v1/catalog/services"},
        {"{\"type\":\"nodes\"}", "/v1/catalog/nodes"},
        {"{\"type\":\"service\",\"service\":\"w/b\",\"passingonly\":true,\"tag\":[\"x\",\"y&z\"]}",
         "/v1/health/service/w%2Fb?passing&tag=x&tag=y%26z"},
        {"{\"type\":\"service\",\"service\":\"web\",\"tag\":\"x\"}", "/v1/health/service/web?tag=x"},
        {"{\"type\":\"checks\"}", "/v1/health/state/any"},
        {"{\"type\":\"checks\",\"state\":\"critical\"}", "/v1/health/state/critical"},
        {"{\"type\":\"checks\",\"service\":\"web\"}", "/v1/health/checks/web"},
        {"{\"type\":\"event\"}", "/v1/event/list"},
        {"{\"type\":\"event\",\"name\":\"x\"}", "/v1/event/list?name=x"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        struct watch *watch = parse(rows[i].text, false, &fault);
        cr_assert_not_null(watch, "%s: %s", rows[i].text, fault.text);
        cr_expect_str_eq(watch->path, rows[i].path);
        watch_free(watch);
    }
}

Test(watch, what_is_wrong_is_said) {
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{\"handler\":\"x\"}", "Watch type must be specified"},
        {"{\"type\":\"bogus\",\"handler\":\"x\"}", "Unsupported watch type: bogus"},
        {"{\"type\":\"key\",\"handler\":\"x\"}", "Must specify a single key to watch"},
        {"{\"type\":\"keyprefix\",\"handler\":\"x\"}", "Must specify a single prefix to watch"},
        {"{\"type\":\"service\",\"handler\":\"x\"}", "Must specify a single service to watch"},
        {"{\"type\":\"checks\",\"service\":\"a\",\"state\":\"any\",\"handler\":\"x\"}",
         "Cannot specify service and state"},
        {"{\"type\":\"nodes\"}", "Must define a watch handler"},
        {"{\"type\":\"nodes\",\"handler\":\"x\",\"args\":[\"x\"]}", "Only one watch handler allowed"},
        {"{\"type\":\"nodes\",\"args\":[]}", "args: it is empty"},
        {"{\"type\":\"nodes\",\"args\":[1]}", "args: a list of strings is wanted"},
        {"{\"type\":\"nodes\",\"handler_type\":\"mail\"}", "Handler type 'mail' not recognized"},
        {"{\"type\":\"nodes\",\"handler_type\":\"http\"}", "requires 'http_handler_config'"},
        {"{\"type\":\"nodes\",\"handler_type\":\"http\",\"http_handler_config\":{\"path\":\"file:///etc/passwd\"}}",
         "Requires 'path'"},
        {"{\"type\":\"nodes\",\"handler_type\":\"http\",\"http_handler_config\":{\"path\":\"http://"
         "h\",\"header\":{\"A\":[\"b\\r\\nC: d\"]}}}",
         "line break"},
        {"{\"type\":\"nodes\",\"handler_type\":\"http\",\"http_handler_config\":{\"path\":\"http://"
         "h\",\"header\":{\"A\":\"b\"}}}",
         "a list of strings"},
        {"{\"type\":\"nodes\",\"handler_type\":\"http\",\"http_handler_config\":{\"path\":\"http://h\",\"timeout\":5}}",
         "http_handler_config.timeout: a duration with its unit"},
        {"{\"type\":\"service\",\"service\":\"a\",\"tag\":[1],\"handler\":\"x\"}", "tag: a string"},
        {"{\"type\":\"nodes\",\"handlr\":\"x\"}", "handlr"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        cr_expect_null(parse(rows[i].text, true, &fault), "%s", rows[i].text);
        cr_expect(strstr(fault.text, rows[i].says), "%s: \"%s\"", rows[i].text, fault.text);
    }
}

Test(watch, handlers) {
    struct fault fault = {0};
    struct watch *watch = parse("{\"type\":\"nodes\",\"args\":[\"a\",\"b c\"]}", true, &fault);
    cr_assert_not_null(watch);
    cr_expect(strcmp(watch->argv[0], "a") == 0 && strcmp(watch->argv[1], "b c") == 0 && !watch->argv[2]);
    watch_free(watch);
    watch = parse(
        "{\"type\":\"nodes\",\"handler_type\":\"http\",\"http_handler_config\":{\"path\":\"https://h/"
        "x\",\"timeout\":\"3s\",\"tls_skip_verify\":true,"
        "\"header\":{\"A\":[\"b\",\"c\"]}}}",
        true, &fault);
    cr_assert_not_null(watch, "%s", fault.text);
    cr_expect(strcmp(watch->url, "https://h/x") == 0 && strcmp(watch->method, "POST") == 0 &&
              watch->timeout_ns == 3000000000 && watch->tls_skip_verify);
    cr_expect(strcmp(watch->headers[0], "A: b") == 0 && strcmp(watch->headers[1], "A: c") == 0 && !watch->headers[2]);
    watch_free(watch);
}

static void expect_result(const struct watch *watch, long status, const char *body, uint64_t *since,
                          const char *wanted) {
    struct client_answer answer = {.status = status};
    struct buffer out = {0};
    buffer_append_text(&answer.body, body);
    watch_result(watch, &answer, since, &out);
    cr_expect(slice_is(buffer_slice(&out), wanted), "%s: %.*s", body, (int)out.size, out.data);
    buffer_free(&out);
    client_answer_free(&answer);
}

Test(watch, answers_are_handed_over) {
    struct fault fault = {0};
    uint64_t since = 0;
    struct watch *watch = parse("{\"type\":\"key\",\"key\":\"k\"}", false, &fault);
    expect_result(watch, 404, "", &since, "null");
    expect_result(watch, 200, "[{\"Key\":\"k\"}]", &since, "{\"Key\":\"k\"}");
    expect_result(watch, 200, "[]", &since, "null");
    watch_free(watch);
    watch = parse("{\"type\":\"event\"}", false, &fault);
    expect_result(watch, 200, "[{\"LTime\":3},{\"LTime\":7}]", &since, "[{\"LTime\":3},{\"LTime\":7}]");
    cr_expect_eq(since, 7);
    expect_result(watch, 200, "[{\"LTime\":3},{\"LTime\":7}]", &since, "[]");
    expect_result(watch, 200, "[{\"LTime\":7},{\"LTime\":9}]", &since, "[{\"LTime\":9}]");
    expect_result(watch, 200, "not JSON", &since, "[]");
    /* One that was not for us when it came, and is there now that a service is registered which it names. */
    struct client_answer later = {.status = 200, .index = 12};
    struct buffer none = {0};
    buffer_append_text(&later.body, "[{\"LTime\":9}]");
    watch_result(watch, &later, &since, &none);
    buffer_free(&none), client_answer_free(&later);
    cr_expect_eq(since, 12);
    expect_result(watch, 200, "[{\"LTime\":9},{\"LTime\":11},{\"LTime\":13}]", &since, "[{\"LTime\":13}]");
    watch_free(watch);
    watch = parse("{\"type\":\"nodes\"}", false, &fault);
    expect_result(watch, 200, "[ 1]", &since, "[ 1]");
    watch_free(watch);
}
