/* Answers over TLS have whole blocks where the query asks for it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/check.h"
#include "catalog_help.h"
#include "dns/responder.h"
#include "dns_help.h"

static struct rpc *rpc;
static struct dns_setup setup;
static struct dns_responder *responder;
static uint8_t out[DNS_TCP_ROOM];

static void set_up(void) {
    const struct dns_config config = {.domain = "coord", .datacenter = "dc1", .node_name = "n1", .stale = true};
    struct fault fault = {0};
    rpc = fake_rpc_start(NULL);
    help_node(rpc, "n1", "10.0.0.1", NULL);
    help_service(rpc, (struct help_service){.node = "n1", .id = "db", .name = "db", .port = 5432});
    cr_assert(eq(int, dns_setup_make(&setup, &config, &fault), CO_OK), "%s", fault.text);
    responder = dns_responder_new(&setup, rpc);
}
static void tear_down(void) {
    dns_responder_free(responder);
    dns_setup_free(&setup);
    fake_rpc_stop(rpc);
}
TestSuite(dns_padding, .init = set_up, .fini = tear_down);

static size_t ask_padded(const char *name, unsigned type, enum dns_transport transport, struct help_answer *got) {
    static const uint8_t padding[] = {0, 12, 0, 3, 0, 0, 0};
    uint8_t query[512];
    size_t size = help_query(query, name, type, 1232);
    put_be16(query + size - 2, sizeof(padding));
    memcpy(query + size, padding, sizeof(padding));
    dns_responder_begin(responder);
    size_t answer = dns_responder_answer(responder, transport, query, size + sizeof(padding), out);
    dns_responder_end(responder);
    *got = help_parse(out, answer);
    return answer;
}

static struct help_answer ask_plain(const char *name) {
    uint8_t query[512];
    size_t size = help_query(query, name, TYPE_A, 1232);
    dns_responder_begin(responder);
    size_t answer = dns_responder_answer(responder, DNS_TLS, query, size, out);
    dns_responder_end(responder);
    return help_parse(out, answer);
}

/* Over TLS, every answer to a padded query: records, none, errors, and one that is cut. In the open none is. */
Test(dns_padding, responder) {
    static const char *const names[] = {"db.service.coord", "none.service.coord", "example.com", "big.service.coord"};
    for (unsigned i = 0; i < 3000; i++) {
        char id[20], address[20];
        snprintf(id, sizeof(id), "big%u", i);
        snprintf(address, sizeof(address), "10.1.%u.%u", i / 250, i % 250);
        help_service(rpc,
                     (struct help_service){.node = "n1", .id = id, .name = "big", .address = address, .port = 1 + i});
    }
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct help_answer padded, plain;
        size_t size = ask_padded(names[i], TYPE_SRV, DNS_TLS, &padded);
        cr_expect(eq(sz, size % PACKET_PAD_BLOCK, 0), "%s: %zu bytes", names[i], size);
        size_t bare = ask_padded(names[i], TYPE_SRV, DNS_TCP, &plain);
        cr_expect(eq(int, padded.rcode, plain.rcode));
        cr_expect(eq(int, padded.tc, i == 3), "%s", names[i]);
        cr_expect(eq(int, plain.tc, i == 3), "%s", names[i]);
        if (i < 3) cr_expect(eq(sz, padded.answers, plain.answers));
        else cr_expect(size == PACKET_PADDABLE_MAX + 4 && bare > PACKET_PADDABLE_MAX, "%zu %zu", size, bare);
        if (i < 3) cr_expect(lt(sz, bare, PACKET_PAD_BLOCK));
        help_free(&padded);
        help_free(&plain);
    }
    struct help_answer got = ask_plain("db.service.coord");
    cr_expect(lt(sz, got.size, PACKET_PAD_BLOCK), "a query without the option");
    help_free(&got);
}
