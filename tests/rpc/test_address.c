/* "host:port" as people write it. Tables. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

#include "rpc/wire/address.h"

Test(address, a_port_is_added_where_none_is_named) {
    static const struct {
        const char *text, *complete;
    } table[] = {
        {"10.0.0.1", "10.0.0.1:8300"}, {"10.0.0.1:99", "10.0.0.1:99"},
        {"host", "host:8300"},         {"host.example:1", "host.example:1"},
        {"::1", "[::1]:8300"},         {"fe80::1:2", "[fe80::1:2]:8300"},
        {"[::1]", "[::1]:8300"},       {"[::1]:99", "[::1]:99"},
    };
    char out[ADDRESS_MAX];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cr_expect(address_complete(table[i].text, 8300, out));
        cr_expect_str_eq(out, table[i].complete, "%s", table[i].text);
    }
    char longest[ADDRESS_MAX + 1];
    memset(longest, 'a', sizeof longest);
    longest[ADDRESS_MAX - 6] = 0;
    cr_expect(address_complete(longest, 8300, out) && strlen(out) == ADDRESS_MAX - 1);
    longest[ADDRESS_MAX - 6] = 'a', longest[ADDRESS_MAX - 5] = 0;
    cr_expect(!address_complete(longest, 8300, out), "one byte too long");
    static const char *const wrong[] = {"",        "host:",   "host:0",    "host:65536", "host:73836",
                                        "host:-1", "host:1x", "host:http", "[::1]:0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect(!address_complete(wrong[i], 8300, out), "\"%s\"", wrong[i]);
}

/* go-discover's texts, in any order; go-sockaddr's; what people write besides. */
Test(address, what_is_written_for_other_programs_is_refused_by_name) {
    static const struct {
        const char *text, *why; /* NULL: fine */
    } table[] = {
        {"provider=aws tag_key=role tag_value=consul", "cloud auto-join"},
        {"label_selector=\"app=consul\" provider=k8s", "cloud auto-join"},
        {"provider=mdns service=consul domain=local", "cloud auto-join"},
        {"provider=gce project_name=p tag_value=t", "cloud auto-join"},
        {"{{ GetPrivateIP }}", "go-sockaddr template"},
        {"{{ GetInterfaceIP \"eth0\" }}:8300", "go-sockaddr template"},
        {"http://10.0.0.1:8300", "URL"},
        {"10.0.0.1, 10.0.0.2", "one in each text"},
        {"10.0.0.1 10.0.0.2", "one in each text"},
        {"exec=/bin/servers", "one in each text"},
        {"host:port", "is not an address"},
        {"", "is not an address"},
        {"10.0.0.1", NULL},
        {"consul-server.default.svc:8300", NULL},
        {"a_b", NULL},
        {"[fe80::1%eth0]:8300", NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *why = address_refused(table[i].text);
        if (table[i].why) cr_expect(why && strstr(why, table[i].why), "%s: %s", table[i].text, why ? why : "taken");
        else cr_expect_null(why, "%s: %s", table[i].text, why);
    }
}

Test(address, host_and_port_are_split) {
    static const struct {
        const char *name, *host, *port;
    } table[] = {
        {"10.0.0.1:8300", "10.0.0.1", "8300"},
        {"[::1]:1", "::1", "1"},
        {"host:65535", "host", "65535"},
        {"host:", "host", ""},
    };
    static const char *const wrong[] = {"", "host", ":8300", "host:12345678", ":"};
    char host[ADDRESS_MAX], port[8];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cr_expect(address_split(table[i].name, host, port), "%s", table[i].name);
        cr_expect(strcmp(host, table[i].host) == 0 && strcmp(port, table[i].port) == 0, "%s: %s %s", table[i].name,
                  host, port);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect(!address_split(wrong[i], host, port), "\"%s\"", wrong[i]);
    char longest[ADDRESS_MAX + 3];
    memset(longest, 'a', sizeof longest);
    strcpy(longest + ADDRESS_MAX, ":1");
    cr_expect(!address_split(longest, host, port), "a host that does not fit");
    strcpy(longest + ADDRESS_MAX - 1, ":1");
    cr_expect(address_split(longest, host, port) && strlen(host) == ADDRESS_MAX - 1);
}

Test(address, an_ip_or_a_name) {
    struct sockaddr_storage out;
    cr_expect(address_ip("10.0.0.1", "8300", &out));
    const struct sockaddr_in *v4 = (const void *)&out;
    cr_expect(v4->sin_family == AF_INET && ntohs(v4->sin_port) == 8300 && ntohl(v4->sin_addr.s_addr) == 0x0a000001);
    cr_expect(address_ip("::1", "65535", &out));
    const struct sockaddr_in6 *v6 = (const void *)&out;
    cr_expect(v6->sin6_family == AF_INET6 && ntohs(v6->sin6_port) == 65535);
    static const char *const names[] = {"host", "10.0.0", "10.0.0.256", "", "1.2.3.4.5", ":::"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect(!address_ip(names[i], "1", &out), "%s", names[i]);
}

Test(address, all_addresses_of_a_name_are_tried_in_turn) {
    struct sockaddr addresses[3];
    struct addrinfo found[3] = {{.ai_addr = &addresses[0], .ai_next = &found[1]},
                                {.ai_addr = &addresses[1], .ai_next = &found[2]},
                                {.ai_addr = &addresses[2]}};
    struct address_turn turn = {0};
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 3; i++) {
            cr_expect_eq(address_next(&turn, found), &addresses[i]);
            cr_expect_eq(address_failed(&turn), i < 2, "the round is over after the last");
        }
    }
    /* The name resolves to other addresses. */
    cr_expect_eq(address_next(&turn, found), &addresses[0]);
    cr_expect_eq(address_next(&turn, &found[1]), &addresses[2]);
    cr_expect_eq(address_next(&turn, &found[2]), &addresses[2]);
    cr_expect(!address_failed(&turn));
    struct address_turn no_name = {0};
    cr_expect(!address_failed(&no_name));
}
