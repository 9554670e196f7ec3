#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "health/definition.h"

#define SECOND INT64_C(1000000000)

static struct service_definition *service(const char *text, struct fault *fault) {
    struct json_object *json = json_parse(slice_text(text), fault);
    cr_assert_not_null(json, "%s: %s", text, fault->text);
    struct service_definition *definition = service_definition_parse(json, fault);
    json_object_put(json);
    return definition;
}

static struct check_definition *check(const char *text, struct fault *fault) {
    struct json_object *json = json_parse(slice_text(text), fault);
    cr_assert_not_null(json, "%s: %s", text, fault->text);
    struct check_definition *definition = check_definition_parse(json, fault);
    json_object_put(json);
    return definition;
}

Test(service, smallest) {
    struct fault fault = {0};
    struct service_definition *d = service("{\"Name\":\"web\"}", &fault);
    cr_assert_not_null(d, "%s", fault.text);
    cr_assert_str_eq(d->service->id, "web");
    cr_assert_str_eq(d->service->name, "web");
    cr_assert_eq(d->service->weight_passing, 1);
    cr_assert_eq(d->service->weight_warning, 1);
    cr_assert_eq(d->service->n_tagged_addresses, 0);
    cr_assert_eq(d->check_count, 0);
    service_definition_free(d);
}

/* Keys as different clients write them. */
/* As Go's clients send what is not there. */
Test(service, null_is_empty) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text("{\"Name\":\"x\",\"Tags\":[\"a\",null],\"Check\":{\"HTTP\":\"http:"
                                                     "//h\",\"Interval\":\"1s\",\"Header\":{\"a\":null}}}"),
                                          &fault);
    struct service_definition *definition = service_definition_parse(json, &fault);
    cr_assert_not_null(definition, "%s", fault.text);
    cr_expect(definition->service->n_tags == 2 && definition->service->tags[1][0] == '\0');
    cr_expect_eq(definition->checks[0]->header_count, 0);
    service_definition_free(definition);
    json_object_put(json);
}

Test(service, spellings) {
    static const char *const texts[] = {
        "{\"ID\":\"db1\",\"Name\":\"db\",\"Tags\":[\"a\",\"b\"],\"Address\":\"10.0.0.1\",\"Port\":5432,"
        "\"Meta\":{\"z\":\"1\",\"a\":\"2\"},"
        "\"EnableTagOverride\":true,\"Weights\":{\"Passing\":10,\"Warning\":0},\"Check\":{\"TTL\":\"10s\"}}",
        "{\"id\":\"db1\",\"name\":\"db\",\"tags\":[\"a\",\"b\"],\"address\":\"10.0.0.1\",\"port\":5432,"
        "\"meta\":{\"a\":\"2\",\"z\":\"1\"},"
        "\"enabletagoverride\":true,\"weights\":{\"passing\":10},\"check\":{\"ttl\":10000000000},\"checks\":"
        "null}",
        "{\"ID\":\"db1\",\"name\":\"db\",\"tags\":[\"a\",\"b\"],\"address\":\"10.0.0.1\",\"port\":5432,"
        "\"meta\":{\"a\":\"2\",\"z\":\"1\"},"
        "\"enable_tag_override\":true,\"weights\":{\"passing\":10},\"checks\":[{\"ttl\":\"10s\"}],\"token\":"
        "\"t\",\"connect\":{},\"proxy\":null}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct fault fault = {0};
        struct service_definition *d = service(texts[i], &fault);
        cr_assert_not_null(d, "%zu: %s", i, fault.text);
        const Pb__Service *s = d->service;
        cr_assert_str_eq(s->id, "db1");
        cr_assert_str_eq(s->name, "db");
        cr_assert_eq(s->port, 5432);
        cr_assert_eq(s->n_tags, 2);
        cr_assert_str_eq(s->tags[1], "b");
        cr_assert_eq(s->n_meta, 2);
        cr_assert_str_eq(s->meta[0]->key, "a", "sorted");
        cr_assert_str_eq(s->meta[1]->value, "1");
        cr_assert(s->enable_tag_override);
        cr_assert_eq(s->weight_passing, 10);
        cr_assert_eq(s->weight_warning, 0);
        cr_assert_eq(s->n_tagged_addresses, 2);
        cr_assert_str_eq(s->tagged_addresses[0]->name, "lan_ipv4");
        cr_assert_str_eq(s->tagged_addresses[1]->address, "10.0.0.1");
        cr_assert_eq(s->tagged_addresses[1]->port, 5432);
        cr_assert_eq(d->check_count, 1);
        cr_assert_str_eq(d->checks[0]->check_id, "service:db1");
        cr_assert_str_eq(d->checks[0]->name, "Service 'db' check");
        cr_assert_str_eq(d->checks[0]->service_id, "db1");
        cr_assert_eq(d->checks[0]->kind, CHECK_TTL);
        cr_assert_eq(d->checks[0]->ttl_ns, 10 * SECOND);
        cr_assert_eq(d->checks[0]->initial_status, PB__STATUS__CRITICAL);
        service_definition_free(d);
    }
}

Test(service, several_checks_are_numbered) {
    struct fault fault = {0};
    struct service_definition *d = service(
        "{\"name\":\"m\",\"check\":{\"tcp\":\"a:1\",\"interval\":\"5s\"},\"checks\":[{\"http\":\"http://a/"
        "\",\"interval\":\"10s\"},"
        "{\"ttl\":\"9s\",\"checkid\":\"mine\",\"name\":\"my "
        "check\",\"notes\":\"N\",\"status\":\"passing\"},{}]}",
        &fault);
    cr_assert_not_null(d, "%s", fault.text);
    cr_assert_eq(d->check_count, 3, "an empty object is no check");
    cr_assert_str_eq(d->checks[0]->check_id, "service:m:1");
    cr_assert_eq(d->checks[0]->kind, CHECK_TCP);
    cr_assert_str_eq(d->checks[1]->check_id, "service:m:2");
    cr_assert_eq(d->checks[1]->kind, CHECK_HTTP);
    cr_assert_eq(d->checks[1]->timeout_ns, 10 * SECOND);
    cr_assert_eq(d->checks[1]->output_max_size, 4096);
    cr_assert_str_eq(d->checks[2]->check_id, "mine");
    cr_assert_str_eq(d->checks[2]->name, "my check");
    cr_assert_eq(d->checks[2]->initial_status, PB__STATUS__PASSING);
    service_definition_free(d);
}

Test(service, refused) {
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{}", "Missing service name"},
        {"{\"Name\":\"\"}", "Missing service name"},
        {"{\"Name\":5}", "Name: a string is wanted"},
        {"{\"Name\":\"a\\u0000b\"}", "Name: holds a NUL"},
        {"[]", "an object is wanted"},
        {"{\"Name\":\"x\",\"Port\":\"80\"}", "Port: "},
        {"{\"Name\":\"x\",\"Port\":80.5}", "Port: "},
        {"{\"Name\":\"x\",\"Port\":-1}", "Port: "},
        {"{\"Name\":\"x\",\"Port\":70000}", "Port: "},
        {"{\"Name\":\"x\",\"Tasg\":[]}", "unknown key \"Tasg\" (nearest: \"Tags\")"},
        {"{\"Name\":\"x\",\"Tags\":\"a\"}", "Tags: "},
        {"{\"Name\":\"x\",\"Tags\":[1]}", "Tags: "},
        {"{\"Name\":\"x\",\"Meta\":{\"a\":1}}", "Meta: "},
        {"{\"Name\":\"x\",\"Meta\":{\"a b\":\"x\"}}",
         "Invalid Service Meta: Couldn't load metadata pair ('a b', 'x'): Key contains invalid characters"},
        {"{\"Name\":\"x\",\"Meta\":{\"consul-foo\":\"1\"}}", "Key prefix 'consul-' is reserved for internal use"},
        {"{\"Name\":\"x\",\"Meta\":{\"\":\"1\"}}", "Key cannot be blank"},
        {"{\"Name\":\"x\",\"Address\":\"0.0.0.0\"}", "Invalid service address"},
        {"{\"Name\":\"x\",\"Address\":\"::\"}", "Invalid service address"},
        {"{\"Name\":\"x\",\"Weights\":{\"Passing\":0}}", "Invalid Weights: Passing must be greater than 0"},
        {"{\"Name\":\"x\",\"Weights\":{\"Passing\":70000}}", "Invalid Weights: DNS Weight must be between 0 and 65535"},
        {"{\"Name\":\"x\",\"TaggedAddresses\":{\"lan\":\"1.2.3.4\"}}", "TaggedAddresses: "},
        {"{\"Name\":\"x\",\"Connect\":{\"Native\":true}}", "Connect is not supported"},
        {"{\"Name\":\"x\",\"Namespace\":\"y\"}", "Namespace: "},
        {"{\"Name\":\"x\",\"Check\":{\"Bogus\":1}}", "Check: unknown key \"Bogus\""},
        {"{\"Name\":\"x\",\"Check\":[]}", "an object is wanted"},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://x\"}}",
         "Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks"},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://x\",\"Interval\":\"bogus\"}}",
         "Check: Interval: invalid duration \"bogus\""},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://x\",\"Interval\":\"10\"}}",
         "Check: Interval: invalid duration \"10\""},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://x\",\"Interval\":\"-10s\"}}",
         "Invalid check: Interval must be > 0"},
        {"{\"Name\":\"x\",\"Check\":{\"TTL\":\"-5s\"}}", "Invalid check: TTL must be > 0 for TTL checks"},
        {"{\"Name\":\"x\",\"Check\":{\"Name\":\"n\"}}", "Invalid check: TTL must be > 0 for TTL checks"},
        {"{\"Name\":\"x\",\"Check\":{\"TTL\":\"5s\",\"Interval\":\"10s\"}}",
         "Invalid check: Interval and TTL cannot both be specified"},
        {"{\"Name\":\"x\",\"Check\":{\"TTL\":\"5s\",\"Status\":\"bogus\"}}",
         "Status for checks must 'passing', 'warning', 'critical'"},
        {"{\"Name\":\"x\",\"Check\":{\"Args\":[1],\"Interval\":\"10s\"}}", "Check: Args: strings of text"},
        {"{\"Name\":\"x\",\"Check\":{\"GRPC\":\"a:1\"}}", "Invalid check: Interval must be > 0"},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://x\",\"Interval\":\"10s\",\"Header\":{\"a\":\"b\"}}}",
         "Check: Header: "},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://x\",\"Interval\":\"10s\",\"OutputMaxSize\":-1}}",
         "Invalid check: MaxOutputMaxSize must be positive"},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://"
         "x\",\"Interval\":\"10s\",\"FailuresBeforeCritical\":-1}}",
         "Check: FailuresBeforeCritical: "},
        {"{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://"
         "x\",\"Interval\":\"10s\",\"FailuresBeforeWarning\":3,\"FailuresBeforeCritical\":2}}",
         "Invalid check: FailuresBeforeWarning can't be higher than FailuresBeforeCritical"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        cr_assert_null(service(rows[i].text, &fault), "%s", rows[i].text);
        cr_assert_eq(fault.code, CO_INVALID, "%s", rows[i].text);
        cr_assert_not_null(strstr(fault.text, rows[i].says), "%s: %s", rows[i].text, fault.text);
    }
}

Test(check, whole) {
    struct fault fault = {0};
    struct check_definition *d = check(
        "{\"name\":\"web "
        "up\",\"notes\":\"n\",\"service_id\":\"web\",\"http\":\"https://a/"
        "\",\"method\":\"POST\",\"body\":\"b\","
        "\"header\":{\"Host\":[\"h\"],\"x-a\":[\"1\",\"2\"]},\"tls_skip_verify\":true,\"tls_server_name\":"
        "\"s\","
        "\"disable_redirects\":true,\"interval\":\"10s\",\"timeout\":\"200ms\",\"deregister_critical_service_"
        "after\":\"90m\","
        "\"success_before_passing\":3,\"failures_before_warning\":1,\"failures_before_critical\":4,\"output_"
        "max_size\":100}",
        &fault);
    cr_assert_not_null(d, "%s", fault.text);
    cr_assert_str_eq(d->check_id, "web up", "the id is the name when none is given");
    cr_assert_str_eq(d->service_id, "web");
    cr_assert_eq(d->kind, CHECK_HTTP);
    cr_assert_str_eq(d->method, "POST");
    cr_assert_eq(d->header_count, 3);
    cr_assert_str_eq(d->headers[2].name, "x-a");
    cr_assert_str_eq(d->headers[2].value, "2");
    cr_assert(d->tls_skip_verify && d->disable_redirects);
    cr_assert_str_eq(d->tls_server_name, "s");
    cr_assert_eq(d->timeout_ns, SECOND / 5);
    cr_assert_eq(d->deregister_after_ns, 5400 * SECOND);
    cr_assert_eq(d->success_before_passing, 3);
    cr_assert_eq(d->failures_before_warning, 1);
    cr_assert_eq(d->failures_before_critical, 4);
    cr_assert_eq(d->output_max_size, 100);
    check_definition_free(d);
}

Test(check, small_durations_are_raised) {
    struct fault fault = {0};
    struct check_definition *d =
        check("{\"name\":\"n\",\"tcp\":\"a:1\",\"interval\":10,\"deregistercriticalserviceafter\":\"5ms\"}", &fault);
    cr_assert_not_null(d, "%s", fault.text);
    cr_assert_eq(d->interval_ns, SECOND);
    cr_assert_eq(d->deregister_after_ns, SECOND);
    check_definition_free(d);
}

Test(check, refused) {
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{}", "Missing check name"},
        {"{\"ID\":\"i\",\"TTL\":\"5s\"}", "Missing check name"},
        {"{\"Name\":\"n\"}", "Invalid check: TTL must be > 0 for TTL checks"},
        {"{\"Name\":\"n\",\"TTL\":\"5s\",\"Status\":\"bogus\"}", "Bad check status"},
        {"{\"Name\":\"n\",\"TTL\":\"5s\",\"Status\":\"maintenance\"}", "Bad check status"},
        {"{\"Check\":{\"Name\":\"n\",\"TTL\":\"5s\"}}", "unknown key \"Check\""},
        {"{\"Name\":\"n\",\"TTL\":\"5s\",\"Timeout\":\"x\"}", "Timeout: invalid duration \"x\""},
        {"{\"Name\":\"n\",\"Alias_Node\":\"x\",\"TTL\":\"5s\"}", "TTL must be not be set for Alias checks"},
        {"{\"Name\":\"n\",\"AliasService\":\"x\",\"HTTP\":\"http://a\",\"Interval\":\"5s\"}",
         "Interval cannot be set for Alias checks"},
        {"{\"Name\":\"n\",\"AliasService\":\"x\",\"Args\":[\"a\"],\"Interval\":\"5s\"}",
         "Interval cannot be set for Alias checks"},
        {"{\"Name\":\"n\",\"Args\":[\"a\"]}", "Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks"},
        {"{\"Name\":\"n\",\"UDP\":\"a:1\"}",
         "Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks"},
        {"{\"Name\":\"n\",\"OSService\":\"a\",\"TTL\":\"1s\"}",
         "Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks"},
        {"{\"Name\":\"n\",\"Args\":\"a\",\"Interval\":\"1s\"}", "Args: an array is wanted"},
        {"{\"Name\":\"n\",\"ScriptArgs\":[\"a\",null],\"Interval\":\"1s\"}", "ScriptArgs: strings of text are wanted"},
        {"{\"Name\":\"n\",\"Args\":[\"a\\u0000b\"],\"Interval\":\"1s\"}", "Args: strings of text are wanted"},
        {"{\"Name\":\"n\",\"Args\":[\"\",\"x\"],\"Interval\":\"1s\"}",
         "Args: the first is the program, and it is empty"},
        {"{\"Name\":\"n\",\"Script\":\"true\",\"Interval\":\"1s\"}", "there is no Script; give the program"},
        {"{\"Name\":\"n\",\"DockerContainerID\":\"f\",\"Args\":[\"a\"],\"Interval\":\"1s\"}", "Docker checks"},
        {"{\"Name\":\"n\",\"OSService\":\"-H\",\"Interval\":\"1s\"}", "OSService: \"-H\" is no name of a unit"},
        {"{\"Name\":\"n\",\"OSService\":\"a*\",\"Interval\":\"1s\"}", "is no name of a unit"},
        {"{\"Name\":\"n\",\"OSService\":\"a b\",\"Interval\":\"1s\"}", "is no name of a unit"},
        {"{\"Name\":\"n\",\"GRPC\":7,\"Interval\":\"1s\"}", "GRPC: "},
        {"{\"Name\":\"n\",\"H2PING\":\"a:1\",\"H2PingUseTLS\":\"no\",\"Interval\":\"1s\"}", "H2PingUseTLS: "},
        {"{\"Name\":\"n\",\"Args\":[\"a\"],\"Interval\":\"1s\",\"FailuresBeforeWarning\":3,"
         "\"FailuresBeforeCritical\":2}",
         "FailuresBeforeWarning can't be higher than FailuresBeforeCritical"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        cr_assert_null(check(rows[i].text, &fault), "%s", rows[i].text);
        cr_assert_not_null(strstr(fault.text, rows[i].says), "%s: %s", rows[i].text, fault.text);
    }
}

/* Every kind, as the API and as configuration files spell it; where several are asked for, the one that Consul runs. */
Test(check, kinds) {
    static const struct {
        const char *text;
        enum check_kind kind;
        const char *type;
        int64_t timeout;
    } rows[] = {
        {"\"TTL\":\"9s\"", CHECK_TTL, "ttl", 10},
        {"\"HTTP\":\"http://a\",\"Interval\":\"9s\"", CHECK_HTTP, "http", 10},
        {"\"tcp\":\"a:1\",\"interval\":\"9s\"", CHECK_TCP, "tcp", 10},
        {"\"UDP\":\"a:1\",\"Interval\":\"9s\"", CHECK_UDP, "udp", 10},
        {"\"GRPC\":\"a:1/s\",\"Interval\":\"9s\"", CHECK_GRPC, "grpc", 10},
        {"\"h2ping\":\"a:1\",\"interval\":\"9s\"", CHECK_H2PING, "h2ping", 10},
        {"\"Args\":[\"x\"],\"Interval\":\"9s\"", CHECK_SCRIPT, "script", 30},
        {"\"ScriptArgs\":[\"x\"],\"Interval\":\"9s\"", CHECK_SCRIPT, "script", 30},
        {"\"script_args\":[\"x\"],\"args\":[],\"interval\":\"9s\"", CHECK_SCRIPT, "script", 30},
        {"\"os_service\":\"x\",\"interval\":\"9s\"", CHECK_OS_SERVICE, "os_service", 30},
        {"\"OSService\":\"a@b\\\\x2d.service\",\"Interval\":\"9s\"", CHECK_OS_SERVICE, "os_service", 30},
        {"\"AliasService\":\"x\"", CHECK_ALIAS, "alias", 10},
        {"\"alias_node\":\"x\"", CHECK_ALIAS, "alias", 10},
        {"\"AliasService\":\"x\",\"Interval\":\"9s\"", CHECK_ALIAS, "alias", 10},
        {"\"HTTP\":\"http://a\",\"TCP\":\"a:1\",\"GRPC\":\"a:1\",\"Interval\":\"9s\"", CHECK_HTTP, "http", 10},
        {"\"GRPC\":\"a:1\",\"Args\":[\"x\"],\"Interval\":\"9s\"", CHECK_GRPC, "grpc", 10},
        {"\"Shell\":\"sh\",\"TTL\":\"9s\"", CHECK_TTL, "ttl", 10},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char text[300];
        struct fault fault = {0};
        snprintf(text, sizeof text, "{\"Name\":\"n\",%s}", rows[i].text);
        struct check_definition *d = check(text, &fault);
        cr_assert_not_null(d, "%s: %s", text, fault.text);
        cr_assert_eq(d->kind, rows[i].kind, "%s: %s", text, check_kind_text(d->kind));
        cr_assert_str_eq(check_kind_text(d->kind), rows[i].type);
        cr_assert_eq(d->timeout_ns, rows[i].timeout * SECOND, "%s", text);
        check_definition_free(d);
    }
}

Test(check, parts_of_the_kinds) {
    struct fault fault = {0};
    struct check_definition *d = check(
        "{\"Name\":\"n\",\"args\":[\"/bin/"
        "x\",\"-v\",\"\"],\"interval\":\"9s\",\"timeout\":\"2s\",\"output_max_size\":7,"
        "\"grpc\":\"\",\"grpc_use_tls\":true,\"h2ping\":\"\"}",
        &fault);
    cr_assert_not_null(d, "%s", fault.text);
    cr_assert_eq(d->arg_count, 3);
    cr_assert_str_eq(d->args[0], "/bin/x");
    cr_assert_str_eq(d->args[2], "", "an empty argument is one");
    cr_assert(d->grpc_use_tls && !d->h2ping_use_tls);
    cr_assert(d->timeout_ns == 2 * SECOND && d->output_max_size == 7);
    check_definition_free(d);
    d = check("{\"Name\":\"n\",\"H2PING\":\"a:1\",\"Interval\":\"9s\"}", &fault);
    cr_assert_not_null(d, "%s", fault.text);
    cr_assert(d->h2ping_use_tls, "TLS unless told otherwise");
    check_definition_free(d);
    d = check("{\"Name\":\"n\",\"H2PING\":\"a:1\",\"h2ping_use_tls\":false,\"Interval\":\"9s\"}", &fault);
    cr_assert_not_null(d, "%s", fault.text);
    cr_assert(!d->h2ping_use_tls);
    check_definition_free(d);
}

/* Whatever has arguments in it, whether they would be run or not. */
Test(check, scripts_run_only_where_they_may) {
    static const struct {
        const char *text;
        bool scripts, local_scripts, from_file, may;
    } rows[] = {
        {"\"Args\":[\"x\"]", false, false, false, false},
        {"\"Args\":[\"x\"]", false, false, true, false},
        {"\"Args\":[\"x\"]", false, true, false, false},
        {"\"Args\":[\"x\"]", false, true, true, true},
        {"\"Args\":[\"x\"]", true, false, false, true},
        {"\"Args\":[\"x\"]", true, false, true, true},
        {"\"HTTP\":\"http://a\",\"ScriptArgs\":[\"x\"]", false, false, false, false},
        {"\"OSService\":\"x\"", false, false, false, true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char text[300];
        struct fault fault = {0};
        struct check_permission permission = {rows[i].scripts, rows[i].local_scripts};
        snprintf(text, sizeof text, "{\"Name\":\"n\",\"Interval\":\"9s\",%s}", rows[i].text);
        struct check_definition *d = check(text, &fault);
        cr_assert_not_null(d, "%s: %s", text, fault.text);
        int error = check_definition_permit(d, &permission, rows[i].from_file, &fault);
        cr_assert_eq(error, rows[i].may ? CO_OK : CO_DENIED, "row %zu", i);
        if (!rows[i].may) {
            cr_assert_str_eq(fault.text,
                             rows[i].from_file
                                 ? "Scripts are disabled on this agent; to enable, configure 'enable_script_checks' or "
                                   "'enable_local_script_checks' to true"
                                 : "Scripts are disabled on this agent from remote calls; to enable, configure "
                                   "'enable_script_checks' to true");
        }
        check_definition_free(d);
    }
}

static void write_out(struct buffer *out, const struct service_definition *d) {
    struct json_out json;
    json_out_init(&json, out, false);
    json_object(&json);
    service_definition_write(&json, d->service);
    json_key(&json, "Checks");
    json_array(&json);
    for (size_t i = 0; i < d->check_count; i++) check_definition_write(&json, d->checks[i]);
    json_array_end(&json);
    json_object_end(&json);
    buffer_append_byte(out, '\0');
}

/* A definition that is written to the data folder reads back to the same. */
Test(service, written_and_read_again) {
    struct fault fault = {0};
    struct service_definition *d = service(
        "{\"ID\":\"a/b "
        "\\u00e4\",\"Name\":\"x\\\"y\",\"Tags\":[\"t\",\"\"],\"Port\":65535,\"Address\":\"2001:db8::1\","
        "\"Meta\":{\"k\":\"<v>\"},"
        "\"TaggedAddresses\":{\"wan\":{\"Address\":\"1.2.3.4\",\"Port\":7}},\"EnableTagOverride\":true,"
        "\"Kind\":\"typical\","
        "\"Weights\":{\"Passing\":3,\"Warning\":2},\"Checks\":[{\"http\":\"http://"
        "a\",\"interval\":\"1m1s\",\"timeout\":\"1ns\","
        "\"header\":{\"b\":[\"1\",\"2\"],\"a\":[]},\"body\":\"\\n\",\"successbeforepassing\":2,"
        "\"failuresbeforecritical\":5,"
        "\"failuresbeforewarning\":2,\"deregistercriticalserviceafter\":\"36h\",\"status\":\"warning\"},{"
        "\"ttl\":\"1500ms\"},"
        "{\"tcp\":\"[::1]:80\",\"interval\":\"2s\",\"outputmaxsize\":9},"
        "{\"args\":[\"a\",\"\",\"\\u00e4\\n\"],\"interval\":\"2s\"},{\"alias_node\":\"n\",\"alias_service\":"
        "\"s\"},"
        "{\"os_service\":\"u\",\"interval\":\"2s\"},{\"udp\":\"a:1\",\"interval\":\"2s\"},"
        "{\"grpc\":\"a:1/s\",\"grpc_use_tls\":true,\"interval\":\"2s\"},"
        "{\"h2ping\":\"a:1\",\"h2pingusetls\":false,\"interval\":\"2s\"}]}",
        &fault);
    cr_assert_not_null(d, "%s", fault.text);
    struct buffer once = {0}, twice = {0};
    write_out(&once, d);
    struct service_definition *again = service(once.data, &fault);
    cr_assert_not_null(again, "%s in %s", fault.text, once.data);
    write_out(&twice, again);
    cr_assert_str_eq(once.data, twice.data);
    cr_assert_eq(again->check_count, 9);
    for (size_t i = 0; i < d->check_count; i++) cr_assert_eq(again->checks[i]->kind, d->checks[i]->kind);
    cr_assert_eq(again->checks[3]->arg_count, 3);
    cr_assert(again->checks[7]->grpc_use_tls && !again->checks[8]->h2ping_use_tls);
    cr_assert_eq(again->checks[0]->timeout_ns, 1);
    cr_assert_eq(again->checks[0]->header_count, 2);
    cr_assert_str_eq(again->checks[1]->check_id, d->checks[1]->check_id);
    cr_assert_eq(pb__service__get_packed_size(again->service), pb__service__get_packed_size(d->service));
    buffer_free(&once);
    buffer_free(&twice);
    service_definition_free(d);
    service_definition_free(again);
}
