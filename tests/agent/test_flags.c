#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/flags.h"
#include "base/check.h"

#define WORDS 12

static struct config config;
static struct fault fault;
static bool help;

static void begin(void) {
    config_init(&config);
    fault = (struct fault){0};
}
static void end(void) { config_free(&config); }

TestSuite(flags, .init = begin, .fini = end);

/* Words up to the first NULL. */
static int parse(const char *const *words) {
    char *argv[WORDS + 2] = {(char *)(uintptr_t) "agent"};
    int argc = 1;
    while (argc <= WORDS && words[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    return flags_parse(argc, argv, &config, &help, &fault);
}

Test(flags, spellings) {
    static const char *const rows[][WORDS] = {
        {"-http-port", "1234"},
        {"--http-port", "1234"},
        {"-http-port=1234"},
        {"--http-port=1234"},
        {"-http-port=7", "-http-port=1234"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        end();
        begin();
        cr_expect_eq(parse(rows[i]), CO_OK, "%s: %s", rows[i][0], fault.text);
        cr_expect_eq(config.http_port, 1234, "%s", rows[i][0]);
    }
}

Test(flags, all_with_effect) {
    static const char *const first[WORDS] = {"-server",
                                             "-bootstrap-expect=3",
                                             "-node=n",
                                             "-datacenter=east",
                                             "-domain=example.",
                                             "-bind=127.0.0.5",
                                             "-client=127.0.0.6 127.0.0.7",
                                             "-data-dir",
                                             "/d",
                                             "-dns-port=-1",
                                             "-server-port=0",
                                             "-log-level=err"};
    static const char *const second[WORDS] = {"-retry-join",
                                              "a",
                                              "-retry-join=b",
                                              "-join=c",
                                              "-node-meta=k:v:w",
                                              "-node-meta",
                                              "l:",
                                              "-recursor=1.1.1.1",
                                              "-default-query-time=1m",
                                              "-max-query-time=2m",
                                              "-check_output_max_size=9",
                                              "-bootstrap=false"};
    cr_assert_eq(parse(first), CO_OK, "%s", fault.text);
    cr_assert_eq(parse(second), CO_OK, "%s", fault.text);
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    cr_expect(config.server && config.bootstrap_expect == 3 && !config.bootstrap);
    cr_expect_str_eq(config.node_name, "n");
    cr_expect_str_eq(config.datacenter, "east");
    cr_expect_str_eq(config.domain, "example");
    cr_expect_str_eq(config.bind_addr, "127.0.0.5");
    cr_expect_eq(config.dns_addresses.count, 2);
    cr_expect_str_eq(config.dns_addresses.items[1], "127.0.0.7");
    cr_expect_str_eq(config.data_dir, "/d");
    cr_expect(config.dns_port == -1 && config.server_port == 0);
    cr_expect_str_eq(config.log_level, "err");
    cr_expect_eq(config.retry_join.count, 3);
    cr_expect_str_eq(config.retry_join.items[1], "b");
    cr_expect_str_eq(config.retry_join.items[2], "c"); /* of -join */
    cr_expect_eq(config.node_meta.count, 2);
    cr_expect_str_eq(config.node_meta.items[0].value, "v:w");
    cr_expect_str_eq(config.node_meta.items[1].value, "");
    cr_expect_str_eq(config.recursors.items[0], "1.1.1.1");
    cr_expect(config.default_query_time_ns == 60000000000 && config.max_query_time_ns == 120000000000);
    cr_expect_eq(config.check_output_max_size, 9);
    cr_assert_eq(config.without_effect.count, 1);
    cr_expect_str_eq(config.without_effect.items[0], "-recursor");
}

Test(flags, known_without_effect) {
    static const char *const words[WORDS] = {"-ui",       "-segment=abc", "-raft-protocol", "3", "-serf-lan-port=8301",
                                             "-ui=false", "-protocol=2",  "-grpc-port=-1"};
    cr_assert_eq(parse(words), CO_OK, "%s", fault.text);
    static const char *const names[] = {"-ui",       "-segment",  "-raft-protocol", "-serf-lan-port",
                                        "-protocol", "-grpc-port"};
    cr_assert_eq(config.without_effect.count, ARRAY_COUNT(names));
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) cr_expect_str_eq(config.without_effect.items[i], names[i]);
}

/* Every flag of the reference agent is taken; values that fit its kind. */
Test(flags, all_are_known) {
    static const char *const rows[] = {
        "-advertise=10.0.0.1",
        "-advertise-wan=10.0.0.1",
        "-allow-write-http-from=127.0.0.0/8",
        "-alt-domain=x",
        "-bind=10.0.0.1",
        "-bootstrap",
        "-bootstrap-expect=1",
        "-check_output_max_size=1",
        "-client=127.0.0.1",
        "-config-format=json",
        "-data-dir=d",
        "-datacenter=d",
        "-default-query-time=1s",
        "-dev",
        "-disable-host-node-id",
        "-disable-keyring-file",
        "-dns-port=1",
        "-domain=d",
        "-enable-local-script-checks",
        "-enable-script-checks",
        "-encrypt=MDEyMzQ1Njc4OWFiY2RlZg==",
        "-grpc-port=1",
        "-http-port=1",
        "-https-port=1",
        "-join=x",
        "-join-wan=x",
        "-log-file=x",
        "-log-json",
        "-log-level=info",
        "-log-rotate-bytes=1",
        "-log-rotate-duration=1s",
        "-log-rotate-max-files=1",
        "-max-query-time=1s",
        "-node=x",
        "-node-id=01234567-89ab-cdef-0001-0203040506ff",
        "-node-meta=a:b",
        "-non-voting-server",
        "-pid-file=x",
        "-primary-gateway=x",
        "-protocol=1",
        "-raft-protocol=3",
        "-recursor=x",
        "-rejoin",
        "-retry-interval=1s",
        "-retry-interval-wan=1s",
        "-retry-join=x",
        "-retry-join-wan=x",
        "-retry-max=1",
        "-retry-max-wan=1",
        "-segment=x",
        "-serf-lan-allowed-cidrs=x",
        "-serf-lan-bind=x",
        "-serf-lan-port=1",
        "-serf-wan-allowed-cidrs=x",
        "-serf-wan-bind=x",
        "-serf-wan-port=1",
        "-server",
        "-server-port=1",
        "-syslog",
        "-ui",
        "-ui-content-path=x",
        "-ui-dir=x",
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        end();
        begin();
        const char *words[WORDS] = {rows[i]};
        cr_expect_eq(parse(words), CO_OK, "%s: %s", rows[i], fault.text);
    }
}

Test(flags, refused) {
    static const struct {
        const char *words[WORDS], *fault;
    } rows[] = {
        {{"-htpp-port=1"}, "unknown flag -htpp-port (nearest: -http-port)"},
        {{"--data_dir", "x"}, "unknown flag -data_dir (nearest: -data-dir)"},
        {{"-retry-joni=x"}, "unknown flag -retry-joni (nearest: -retry-join)"},
        {{"-http-port"}, "-http-port: a value is needed"},
        {{"-http-port=70000"}, "-http-port: 70000 is above 65535"},
        {{"-http-port=-2"}, "-http-port: -2 is not a port (-1 turns it off)"},
        {{"-http-port="}, "-http-port: \"\" is not a whole number"},
        {{"-http-port=8x"}, "-http-port: \"8x\" is not a whole number"},
        {{"-http-port=99999999999999999999"}, "-http-port: 99999999999999999999 is too large"},
        {{"-bootstrap-expect=-1"}, "-bootstrap-expect: -1 is negative"},
        {{"-server=maybe"}, "-server: \"maybe\" is neither true nor false"},
        {{"-insecure-ignore-security=x"}, "-insecure-ignore-security: \"x\" is neither true nor false"},
        {{"-dev=maybe"}, "-dev: \"maybe\" is neither true nor false"},
        {{"-server", "true"}, "unexpected argument \"true\""},
        {{"-dev", "extra"}, "unexpected argument \"extra\""},
        {{"-"}, "unexpected argument \"-\""},
        {{"--"}, "unexpected argument \"--\""},
        {{"-retry-interval=30"}, "-retry-interval: \"30\" is not a duration (write it with a unit: 10s, 1m30s, 200ms)"},
        {{"-node-meta=x"}, "-node-meta: \"x\" is not name:value"},
        {{"-client={{ GetInterfaceIP \"eth0\" }}"},
         "-client: \"{{ GetInterfaceIP \"eth0\" }}\" is a go-sockaddr template, which is not supported: "
         "write the address itself"},
        {{"-log-level=loud"}, "-log-level: \"loud\" is not a level: trace, debug, info, warn or err"},
        {{"-retry-join="}, "-retry-join: an empty text is no member of this list"},
        {{"-hcl", "a=1"}, "-hcl: HCL is not supported: use flags or a JSON file"},
        {{"-config-format=hcl"}, "-config-format: \"hcl\" is not supported, only json"},
        {{"-config-file=/nonexistent/x.json"}, "/nonexistent/x.json: No such file or directory"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        end();
        begin();
        cr_expect_neq(parse(rows[i].words), CO_OK, "%s", rows[i].words[0]);
        cr_expect_str_eq(fault.text, rows[i].fault, "%s", fault.text);
    }
}

Test(flags, order_of_sources) {
    char file[] = "/tmp/coord-flags-XXXXXX", other[] = "/tmp/coord-flags-XXXXXX", flag[64], other_flag[64];
    int descriptor = mkstemp(file), second = mkstemp(other);
    cr_assert(descriptor >= 0 && second >= 0);
    dprintf(descriptor,
            "{\"client_addr\":\"127.0.0.8\",\"node_name\":\"file\",\"ports\":{\"http\":1,\"dns\":1},"
            "\"retry_join\":[\"file\"]}");
    dprintf(second, "{\"ports\":{\"dns\":2}}");
    close(descriptor);
    close(second);
    snprintf(flag, sizeof flag, "-config-file=%s", file);
    snprintf(other_flag, sizeof other_flag, "-config-dir=%s", other);
    const char *words[WORDS] = {"-http-port=3", flag, "-dev", other_flag, "-retry-join=flag"};
    cr_assert_eq(parse(words), CO_OK, "%s", fault.text);
    cr_expect(config.dev && config.server);
    cr_expect_str_eq(config.client_addr, "127.0.0.8", "a file changes what -dev sets");
    cr_expect_str_eq(config.bind_addr, "127.0.0.1");
    cr_expect_str_eq(config.node_name, "file");
    cr_expect_eq(config.http_port, 3, "flags win over files");
    cr_expect_eq(config.dns_port, 2, "later files win");
    cr_expect_str_eq(config.retry_join.items[0], "file");
    cr_expect_str_eq(config.retry_join.items[1], "flag");
    unlink(file);
    unlink(other);
}

Test(flags, protection_that_is_not_there) {
    static const char *const asks[WORDS] = {"-allow-write-http-from=127.0.0.0/8", "-serf-lan-allowed-cidrs=10.0.0.0/8"};
    cr_assert_eq(parse(asks), CO_OK, "%s", fault.text);
    cr_assert_eq(config.guard_count, 2);
    cr_expect_eq(config_require_protection(&config, &fault), CO_UNSUPPORTED);
    cr_expect_str_eq(fault.text, "-allow-write-http-from: a limit on who may write is not there yet");
    static const char *const rows[][WORDS] = {{"-allow-write-http-from=127.0.0.0/8", "-insecure-ignore-security"},
                                              {"-insecure-ignore-security=true", "-serf-lan-allowed-cidrs=10.0.0.0/8"},
                                              {"-https-port=8501", "-encrypt="},
                                              {"-encrypt=MDEyMzQ1Njc4OWFiY2RlZg=="}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        end();
        begin();
        cr_expect_eq(parse(rows[i]), CO_OK);
        cr_expect_eq(config_require_protection(&config, &fault), CO_OK, "row %zu: %s", i, fault.text);
    }
    static const char *const off[WORDS] = {"-insecure-ignore-security", "-insecure-ignore-security=false",
                                           "-serf-lan-allowed-cidrs=10.0.0.0/8"};
    end();
    begin();
    cr_expect_eq(parse(off), CO_OK);
    cr_expect_eq(config_require_protection(&config, &fault), CO_UNSUPPORTED);
}

Test(flags, dev_can_be_off) {
    static const char *const words[WORDS] = {"-dev=false"};
    cr_assert_eq(parse(words), CO_OK);
    cr_expect_not(config.dev || config.server);
}

Test(flags, help_does_nothing_else) {
    static const char *const rows[][WORDS] = {{"-h"}, {"--help"}, {"-http-port=1", "-help"}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        cr_expect_eq(parse(rows[i]), CO_OK);
        cr_expect(help);
        cr_expect_eq(config.http_port, 8500);
    }
    struct buffer text = {0};
    flags_usage(&text);
    buffer_append_byte(&text, '\0');
    cr_expect_not_null(strstr(text.data, "  -http-port=VALUE "));
    cr_expect_not_null(strstr(text.data, "  -dev   "));
    cr_expect_not_null(strstr(text.data, "any free one; default: 8500\n"), "the key's default: %s", text.data);
    cr_expect_not_null(strstr(text.data, " -serf-wan-port"));
    buffer_free(&text);
}

Test(flags, an_empty_name_is_a_mistake) {
    static const char *const rows[][WORDS] = {{"-node="}, {"-node", ""}, {"--node=", "-dev"}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        end();
        begin();
        cr_expect_eq(parse(rows[i]), CO_INVALID);
        cr_expect_str_eq(fault.text, "-node: the name is empty");
    }
}

Test(flags, none_stands_twice_in_the_table) {
    struct flag_shown flag, other;
    for (size_t i = 0; flags_see(i, &flag); i++)
        for (size_t k = 0; k < i && flags_see(k, &other); k++)
            cr_expect_str_neq(flag.name, other.name, "%s", flag.name);
}
