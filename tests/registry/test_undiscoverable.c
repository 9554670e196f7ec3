#include "registry/undiscoverable.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

#include "base/check.h"
#include "base/log.h"

static char text[4096];

static const char *text_of(const Pb__Node *node, const Pb__Service *service) {
    struct buffer out = {0};
    undiscoverable_text(&out, node, service);
    buffer_append_byte(&out, '\0');
    snprintf(text, sizeof(text), "%s", out.data);
    buffer_free(&out);
    return text;
}

static Pb__Service service_at(const char *name, const char *address) {
    Pb__Service service = PB__SERVICE__INIT;
    service.name = service.id = (char *)(uintptr_t)name;
    service.address = (char *)(uintptr_t)address;
    return service;
}

Test(registry_undiscoverable, says_what_is_wrong) {
    Pb__Node node = PB__NODE__INIT;
    node.name = (char *)"n1", node.address = (char *)"10.0.0.1";
    Pb__Service service = service_at("web", "");
    cr_expect_str_eq(text_of(&node, &service), "");
    service = service_at("web", "a\r\nb\"\\\xc3\xb6 c");
    cr_expect_str_eq(text_of(NULL, &service),
                     "service address \"a\\x0d\\x0ab\\x22\\x5c\\xc3\\xb6 c\" is neither an IP "
                     "address nor a host name: DNS leaves this instance out");
    node.name = (char *)"n 1", node.address = (char *)"10.0.0.1:80";
    service = service_at("v1.web", "h.example");
    cr_expect_str_eq(text_of(&node, &service),
                     "node name \"n 1\" is no host name: DNS clients may not find it; node address \"10.0.0.1:80\" is "
                     "neither an IP address nor a host name: DNS leaves it out; service name \"v1.web\" is no single "
                     "label of a host name: DNS clients may not find it");
}

static bool own_service(const char *address) {
    Pb__Service service = service_at("web", address);
    char *tags[] = {(char *)"v1.2"};
    service.tags = tags, service.n_tags = 1;
    const char *said = text_of(NULL, &service);
    cr_expect(said[0] == '\0' || strstr(said, "is its own name in DNS: DNS leaves this instance out"), "%s", said);
    return said[0] != '\0';
}

Test(registry_undiscoverable, names_that_lead_back) {
    static const char *const own[] = {"web.service.coord",        "Web.Service.Coord.",      "web.service.dc1.coord",
                                      "web.service.dc1.dc.coord", "web.service.alt.example", "v1.2.web.service.coord",
                                      "_web._tcp.service.coord",  "_web._tcp.coord",         "_web._v1.2.dc1.coord"};
    static const char *const others[] = {"webs.service.coord",  "a.web.service.coord", "web.service.dc2.coord",
                                         "web.service.consul",  "web.node.coord",      "web.service",
                                         "web.coord",           "v1.2.web.coord",      "x_web._tcp.coord",
                                         "web.service.dc.coord"};
    cr_expect_not(own_service("web.service.coord"), "no domain is known yet");
    undiscoverable_domains("coord", "alt.example", "dc1");
    for (size_t i = 0; i < ARRAY_COUNT(own); i++) cr_expect(own_service(own[i]), "%s", own[i]);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) cr_expect_not(own_service(others[i]), "%s", others[i]);
    Pb__Node node = PB__NODE__INIT;
    node.name = (char *)"n1", node.address = (char *)"n1.node.coord";
    Pb__Service service = service_at("web", "");
    cr_expect_str_eq(text_of(&node, &service),
                     "node address \"n1.node.coord\" is its own name in DNS: DNS leaves it out");
    node.address = (char *)"web.service.coord"; /* which its instance has */
    cr_expect_str_eq(text_of(&node, &service),
                     "service address \"web.service.coord\" is its own name in DNS: DNS leaves this instance out");
    undiscoverable_domains("coord", NULL, "dc1");
    cr_expect_not(own_service("web.service.alt.example"));
}

Test(registry_undiscoverable, is_short) {
    Pb__TaggedAddress tagged[200], *all[200];
    char long_address[5000];
    memset(long_address, '\x01', sizeof(long_address) - 1);
    long_address[sizeof(long_address) - 1] = '\0';
    for (size_t i = 0; i < 200; i++) {
        tagged[i] = (Pb__TaggedAddress)PB__TAGGED_ADDRESS__INIT;
        tagged[i].name = tagged[i].address = long_address;
        all[i] = &tagged[i];
    }
    Pb__Service service = service_at("web", long_address);
    service.tagged_addresses = all, service.n_tagged_addresses = 200;
    size_t size = strlen(text_of(NULL, &service));
    cr_expect(size > 500 && size < 1500, "%zu", size);
}

static size_t lines;
static void count(void *data, enum log_level level, const char *line, size_t size) {
    (void)data, (void)line, (void)size;
    lines += level == LOG_WARN;
}

Test(registry_undiscoverable, is_said_once) {
    Pb__Service bad = service_at("web", "a b"), other = service_at("other", "a b"), good = service_at("web", "h");
    log_set_sink(count, NULL);
    for (unsigned i = 0; i < 3; i++) undiscoverable_log("n1", NULL, &bad);
    cr_expect(eq(sz, lines, 1));
    undiscoverable_log("n1", NULL, &other);
    undiscoverable_log("n1", NULL, &bad);
    undiscoverable_log("n1", NULL, &good);
    cr_expect(eq(sz, lines, 2));
    undiscoverable_log("n2", NULL, &bad);
    cr_expect(eq(sz, lines, 3));
    log_set_sink(NULL, NULL);
}
