/* Definitions in files, judged before anything is opened. */
#include <criterion/criterion.h>
#include <time.h>

#include "agent/definitions.h"
#include "base/check.h"

static int judge(const char *first, const char *second, struct fault *fault) {
    struct config config;
    config_init(&config);
    cr_assert_eq(config_add_text(&config, "a.json", slice_text(first), fault), CO_OK, "%s", fault->text);
    if (second) cr_assert_eq(config_add_text(&config, "b.json", slice_text(second), fault), CO_OK, "%s", fault->text);
    int rv = definitions_check(&config, fault);
    config_free(&config);
    return rv;
}

Test(definitions, what_is_fine) {
    static const char *const rows[][2] = {
        {"{}", NULL},
        {"{\"service\":{\"name\":\"a\"}}", "{\"service\":{\"name\":\"b\"}}"},
        {"{\"services\":[{\"name\":\"a\",\"id\":\"a1\"},{\"name\":\"a\",\"id\":\"a2\",\"check\":{\"ttl\":"
         "\"1m\"}}]}",
         NULL},
        {"{\"check\":{\"name\":\"c\",\"ttl\":\"1m\",\"service_id\":\"a\"}}", "{\"service\":{\"name\":\"a\"}}"},
        {"{\"enable_local_script_checks\":true}", "{\"check\":{\"name\":\"c\",\"args\":[\"x\"],\"interval\":\"1m\"}}"},
        {"{\"enable_script_checks\":true}",
         "{\"service\":{\"name\":\"s\",\"check\":{\"args\":[\"x\"],\"interval\":\"1m\"}}}"},
        {"{\"checks\":[{\"name\":\"c\",\"ttl\":\"1m\"},{\"id\":\"d\",\"name\":\"c\",\"ttl\":\"1m\"}]}", NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        cr_expect_eq(judge(rows[i][0], rows[i][1], &fault), CO_OK, "%zu: %s", i, fault.text);
    }
}

Test(definitions, what_is_wrong_is_named) {
    static const char *const rows[][4] = {
        {"{\"service\":{\"nam\":\"a\"}}", NULL, "a.json:1:13: service: ", "nam"},
        {"{\"services\":[{\"name\":\"a\"},{\"name\":\"b\",\"check\":{\"tcp\":\"x:1\"}}]}", NULL,
         "a.json:1:27: services[1]: ", "nterval"},
        {"{\"service\":{\"name\":\"a\",\"check\":{\"ttl\":\"1m\",\"deregister_critical_service_after\":60}}}", NULL,
         "a.json:1:44: service: ", "deregister_critical_service_after: a duration with its unit"},
        {"{\"service\":{\"name\":\"a\",\"checks\":[{\"ttl\":60}]}}", NULL,
         "a.json:1:35: service: ", "ttl: a duration with its unit"},
        {"{\"check\":{\"name\":\"c\",\"tcp\":\"h:1\",\"Interval\":10}}", NULL,
         "a.json:1:34: check: ", "interval: a duration with its unit"},
        {"{\"check\":{\"name\":\"c\"}}", NULL, "a.json:1:2: check: ", ""},
        {"{\"service\":{\"name\":\"a\"}}", "{\"services\":[{\"name\":\"z\",\"id\":\"a\"}]}",
         "b.json:1:14: services[0]: ", "which a.json (service) has"},
        {"{\"service\":{\"name\":\"a\",\"check\":{\"id\":\"c\",\"ttl\":\"1m\"}}}",
         "{\"check\":{\"id\":\"c\",\"name\":\"x\",\"ttl\":\"1m\"}}",
         "b.json:1:2: check: ", "second check with the id \"c\""},
        {"{\"check\":{\"name\":\"c\",\"ttl\":\"1m\",\"service_id\":\"b\"}}", "{\"service\":{\"name\":\"a\"}}",
         "a.json:1:2: check: ", "no service has the id \"b\""},
        {"{\"check\":{\"name\":\"c\",\"args\":[\"x\"],\"interval\":\"1m\"}}", NULL,
         "a.json:1:2: check: ", "configure 'enable_script_checks' or 'enable_local_script_checks' to true"},
        {"{\"services\":[{\"name\":\"s\",\"check\":{\"args\":[\"x\"],\"interval\":\"1m\"}}]}", NULL,
         "a.json:1:14: services[0]: ", "Scripts are disabled on this agent; to enable"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        cr_expect_eq(judge(rows[i][0], rows[i][1], &fault), CO_INVALID, "%zu", i);
        cr_expect(strncmp(fault.text, rows[i][2], strlen(rows[i][2])) == 0 && strstr(fault.text, rows[i][3]), "%zu: %s",
                  i, fault.text);
    }
}

/* Of several blocks each mistake, at the line of the member that it is about; nothing that only follows from one. */
Test(definitions, all_mistakes_are_told_at_once) {
    static const char text[] =
        "{\n"
        "  \"services\": [\n"
        "    {\"name\": \"a\", \"tags\": [],\n"
        "     \"Tasg\": []},\n"
        "    {\"name\": \"b\",\n"
        "     \"checks\": [{\"ttl\": \"1m\"},\n"
        "                {\"tcp\": \"x:1\",\n"
        "                 \"interval\": 5}]}],\n"
        "  \"check\": {\"name\": \"c\", \"ttl\": \"1m\", \"service_id\": \"a\"},\n"
        "  \"watches\": [{\"type\": \"kye\", \"handler\": \"x\"}]\n"
        "}\n";
    static const char *const wanted[] = {
        "a.json:4:6: services[0]: unknown key \"Tasg\" (nearest: \"Tags\")",
        "a.json:8:18: services[1]: interval: a duration with its unit like \"10s\" is wanted, not a number",
        "a.json:10:15: watches[0]: ",
    };
    struct config config;
    struct fault fault = {0};
    config_init(&config);
    cr_assert_eq(config_add_text(&config, "a.json", slice_text(text), &fault), CO_OK, "%s", fault.text);
    cr_expect_eq(definitions_check(&config, &fault), CO_INVALID);
    cr_expect_eq(config.errors.count, ARRAY_COUNT(wanted));
    for (size_t i = 0; i < config.errors.count && i < ARRAY_COUNT(wanted); i++)
        cr_expect(strncmp(config.errors.items[i], wanted[i], strlen(wanted[i])) == 0, "%s", config.errors.items[i]);
    config_free(&config);
}

/* The processor time of judging so many services, each with a check. */
static double seconds_for(size_t count) {
    struct buffer text = {0};
    struct config config;
    struct fault fault = {0};
    buffer_append_text(&text, "{\"services\":[");
    for (size_t i = 0; i < count; i++)
        buffer_printf(&text, "%s{\"name\":\"s%zu\",\"check\":{\"id\":\"c%zu\",\"ttl\":\"1m\"}}", i ? "," : "", i, i);
    buffer_append_text(&text, "]}");
    config_init(&config);
    cr_assert_eq(config_add_text(&config, "a.json", buffer_slice(&text), &fault), CO_OK, "%s", fault.text);
    clock_t start = clock();
    cr_expect_eq(definitions_check(&config, &fault), CO_OK, "%s", fault.text);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    config_free(&config);
    buffer_free(&text);
    return seconds;
}

/* 16 times as many services take about 16 times as long, where they would take 256 times as long if each was compared
 * with all before it. */
Test(definitions, time_grows_with_the_number_of_services) {
    double few = seconds_for(2000), many = seconds_for(32000);
    cr_expect_lt(many, 80 * few, "%f s for 2,000, %f s for 32,000", few, many);
}
