/* The pick comes first in answers of a service that says its load. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/clock.h"
#include "catalog_help.h"
#include "dns/responder.h"
#include "dns_help.h"

static struct rpc *rpc;
static struct dns_setup setup;
static struct dns_responder *responder;
static uint8_t out[DNS_UDP_ROOM];

static void set_up(void) {
    struct fault fault = {0};
    struct dns_config config = {.domain = "coord", .datacenter = "dc1", .node_name = "n1", .stale = true};
    rpc = fake_rpc_start(NULL);
    cr_assert(eq(int, dns_setup_make(&setup, &config, &fault), CO_OK), "%s", fault.text);
    responder = dns_responder_new(&setup, rpc);
    help_node(rpc, "n1", "10.0.0.1", NULL), help_node(rpc, "n2", "10.0.0.2", NULL);
    help_node(rpc, "n3", "10.0.0.3", NULL);
}

static void tear_down(void) {
    dns_responder_free(responder);
    dns_setup_free(&setup);
    fake_rpc_stop(rpc);
}

static struct help_answer ask(const char *name, unsigned type) {
    uint8_t query[512];
    size_t size = help_query(query, name, type, 1232);
    dns_responder_begin(responder);
    size_t got = dns_responder_answer(responder, DNS_UDP, query, size, out);
    dns_responder_end(responder);
    cr_assert(gt(sz, got, 0));
    return help_parse(out, got);
}

/* The first record of the answer; malloc. */
static char *first_record(const char *name, unsigned type) {
    struct help_answer got = ask(name, type);
    cr_assert(eq(int, got.rcode, RCODE_NOERROR));
    ldns_pkt *packet = NULL;
    cr_assert(ldns_wire2pkt(&packet, out, got.size) == LDNS_STATUS_OK);
    char *text = ldns_rr2str(ldns_rr_list_rr(ldns_pkt_answer(packet), 0));
    ldns_pkt_free(packet);
    help_free(&got);
    return text;
}

static unsigned firsts(const char *name, unsigned type, const char *record) {
    unsigned count = 0;
    for (int i = 0; i < 200; i++) {
        char *text = first_record(name, type);
        count += strstr(text, record) != NULL;
        free(text);
    }
    return count;
}

static void say_load(const char *node, const char *id, double load) {
    struct load_hint hint = load_unknown();
    struct load_instance instance = {slice_text(node), slice_text(id), SLICE_LITERAL("lb")};
    hint.load = load;
    cr_assert(hints_report(rpc_hints(rpc), instance, &hint, 0, clock_mono_ns()) == CO_OK);
}

Test(dns_pick, comes_first_where_the_service_says_its_load, .init = set_up, .fini = tear_down) {
    help_service(rpc, (struct help_service){.node = "n1", .id = "l1", .name = "lb", .address = "10.1.0.1", .port = 81});
    help_service(rpc, (struct help_service){.node = "n2", .id = "l2", .name = "lb", .address = "10.1.0.2", .port = 82});
    unsigned any = firsts("lb.service.coord", TYPE_A, "10.1.0.2");
    cr_expect(any > 60 && any < 140, "%u", any);
    say_load("n1", "l1", 3);
    say_load("n2", "l2", 0.5);
    cr_expect(eq(uint, firsts("lb.service.coord", TYPE_A, "10.1.0.2"), 200), "what was kept is made anew");
    cr_expect(eq(uint, firsts("lb.service.coord", TYPE_SRV, " 82 "), 200));
    cr_expect(eq(uint, firsts("lb.service.coord", TYPE_ANY, "10.1.0.2"), 200));
    say_load("n2", "l2", 7);
    uint64_t until_ms = clock_mono_ms() + 20000; /* hints are looked at again after some 10 ms */
    while (clock_mono_ms() < until_ms && firsts("lb.service.coord", TYPE_A, "10.1.0.1") < 200) {
        dns_responder_end(responder);
        dns_responder_begin(responder);
    }
    cr_expect(eq(uint, firsts("lb.service.coord", TYPE_A, "10.1.0.1"), 200));
    /* an instance whose address is another's too, and one of the other family */
    help_service(rpc, (struct help_service){.node = "n3", .id = "l3", .name = "lb", .address = "10.1.0.1", .port = 83});
    help_service(rpc, (struct help_service){.node = "n3", .id = "l4", .name = "lb", .address = "fd00::7", .port = 84});
    say_load("n3", "l3", 0), say_load("n3", "l4", 0);
    say_load("n1", "l1", 9), say_load("n2", "l2", 9);
    cr_expect(gt(uint, firsts("lb.service.coord", TYPE_A, "10.1.0.1"), 90));
    struct help_answer all = ask("lb.service.coord", TYPE_A);
    EXPECT_LINES(all.answer, "lb.service.coord. 0 IN A 10.1.0.1\nlb.service.coord. 0 IN A 10.1.0.2"); /* each once */
    help_free(&all);
    all = ask("lb.service.coord", TYPE_AAAA);
    EXPECT_LINES(all.answer, "lb.service.coord. 0 IN AAAA fd00::7");
    help_free(&all);
}
