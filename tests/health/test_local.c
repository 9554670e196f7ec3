#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_talk.h"
#include "base/check.h"
#include "base/clock.h"
#include "health/anti_entropy.h"
#include "health/store_log.h"
#include "looks.h"
#include "tests/lib/until.h"
#include "web.h"

#define NODE FAKE_AGENT_NODE

/* -- what travels
 * --------------------------------------------------------------------------------------------------------- */

Test(anti_entropy, the_node_itself) {
    struct agent *agent = agent_new(false);
    struct arena arena = {0};
    UNTIL(local_synced(agent->local) && catalog_status(agent, "serfHealth") == PB__STATUS__PASSING);
    const Pb__Node *node = look_node(agent->rpc, &arena, NODE);
    cr_assert_str_eq(node->address, "10.0.0.9");
    cr_assert_str_eq(node->meta[0]->key, "rack");
    const Pb__Service *service = look_service(agent->rpc, &arena, NODE, "consul");
    cr_assert_not_null(service);
    cr_assert_eq(service->port, 8300);
    arena_free(&arena);
    agent_free(agent);
}

Test(anti_entropy, a_registration_is_there_when_its_waiter_is_called) {
    struct agent *agent = agent_new(true);
    struct arena arena = {0};
    for (int i = 0; i < 50; i++) {
        char text[200], id[20];
        snprintf(id, sizeof id, "web%d", i);
        snprintf(text, sizeof text,
                 "{\"ID\":\"%s\",\"Name\":\"web\",\"Tags\":[\"a\"],\"Meta\":{\"b\":\"c\"},\"Address\":\"10.1."
                 "1.1\",\"Check\":{\"TTL\":\"60s\"}}",
                 id);
        register_service(agent, text);
        cr_assert_eq(wait_synced(agent, 60000), CO_OK);
        cr_assert(has_service(agent, id));
    }
    const Pb__Check *check = look_check(agent->rpc, &arena, NODE, "service:web7");
    cr_assert_str_eq(check->service_id, "web7");
    cr_assert_str_eq(check->service_name, "web");
    cr_assert_str_eq(check->type, "ttl");
    cr_assert_eq(check->status, PB__STATUS__CRITICAL);
    arena_free(&arena);
    agent_free(agent);
}

Test(anti_entropy, nothing_travels_that_is_there_already) {
    struct agent *agent = agent_new(true);
    static const char text[] =
        "{\"Name\":\"web\",\"Tags\":[\"b\",\"a\"],\"Meta\":{\"z\":\"1\",\"a\":\"2\"},\"Port\":80,\"Address\":"
        "\"10.1.1.1\","
        "\"TaggedAddresses\":{\"wan\":{\"Address\":\"1.2.3.4\",\"Port\":5}},\"Checks\":[{\"TTL\":\"60s\"},{"
        "\"TTL\":\"50s\",\"Notes\":\"n\"}]}";
    register_service(agent, text);
    cr_assert_eq(register_check(agent, "{\"Name\":\"node check\",\"TTL\":\"60s\"}"), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    uint64_t writes = fake_rpc_writes(agent->rpc);
    register_service(agent, text);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(fake_rpc_writes(agent->rpc), writes, "the same again");
    agent_stop(agent);
    agent->sync_ns = 30000000; /* compares all the time */
    agent_start(agent);
    register_service(agent, text);
    cr_assert_eq(register_check(agent, "{\"Name\":\"node check\",\"TTL\":\"60s\"}"), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    for (uint64_t end = clock_mono_ms() + 200; clock_mono_ms() < end;) {
        cr_assert_eq(fake_rpc_writes(agent->rpc), writes, "nor does a comparison find anything");
    }
    agent_free(agent);
}

/* The comparison sees the status that it had before and has again: the text that belongs to it travels all the same. */
Test(anti_entropy, there_and_back_while_the_catalog_is_compared) {
    struct agent *agent = agent_new(false);
    agent_stop(agent);
    agent->sync_ns = 1000000;
    agent_start(agent);
    register_service(agent, "{\"Name\":\"web\",\"Check\":{\"TTL\":\"60s\",\"Status\":\"passing\"}}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    fake_rpc_slow(agent->rpc, 5000);
    for (int i = 0; i < 40; i++) {
        char text[20];
        snprintf(text, sizeof text, "back %d", i);
        cr_assert(update(agent, "service:web", PB__STATUS__CRITICAL, "there"));
        cr_assert(update(agent, "service:web", PB__STATUS__PASSING, text));
        cr_assert_eq(wait_synced(agent, 60000), CO_OK);
        cr_assert_eq(catalog_status(agent, "service:web"), PB__STATUS__PASSING);
        cr_assert(catalog_output_is(agent, "service:web", text));
        usleep(1000);
    }
    agent_free(agent);
}

Test(anti_entropy, removal_and_return) {
    struct agent *agent = agent_new(false);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("web")), CO_NOTFOUND);
    register_service(agent, "{\"Name\":\"web\",\"Checks\":[{\"TTL\":\"60s\"},{\"TTL\":\"50s\"}]}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(catalog_status(agent, "service:web:2"), PB__STATUS__CRITICAL);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("web")), CO_OK);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("web")), CO_NOTFOUND);
    register_service(agent, "{\"Name\":\"web\",\"Check\":{\"TTL\":\"60s\"}}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert(has_service(agent, "web"));
    cr_assert_eq(catalog_status(agent, "service:web"), PB__STATUS__CRITICAL);
    cr_assert_eq(catalog_status(agent, "service:web:2"), -1, "a check of the life before");
    cr_assert_eq(local_check_deregister(agent->local, slice_text("service:web")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(catalog_status(agent, "service:web"), -1);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("web")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert(!has_service(agent, "web"));
    UNTIL(local_synced(agent->local));
    cr_assert_eq(look_count(agent->rpc, NODE), 2, "consul and serfHealth");
    agent_free(agent);
}

Test(anti_entropy, replaced_checks_go_only_when_asked) {
    struct agent *agent = agent_new(false);
    register_service(agent, "{\"Name\":\"rr\",\"Check\":{\"TTL\":\"60s\"}}");
    cr_assert(update(agent, "service:rr", PB__STATUS__PASSING, "abc"));
    register_service(agent, "{\"Name\":\"rr\",\"Check\":{\"TTL\":\"60s\",\"Status\":\"warning\"}}");
    cr_assert_eq(local_status(agent, "service:rr"), PB__STATUS__PASSING, "known checks keep their state");
    register_service(agent, "{\"Name\":\"rr\",\"Checks\":[{\"TTL\":\"60s\"},{\"TTL\":\"50s\"}]}");
    cr_assert_eq(local_status(agent, "service:rr"), PB__STATUS__PASSING);
    cr_assert_eq(local_status(agent, "service:rr:1"), PB__STATUS__CRITICAL);
    cr_assert_eq(
        register_service_as(agent, "{\"Name\":\"rr\",\"Checks\":[{\"TTL\":\"60s\"},{\"TTL\":\"50s\"}]}", true, true),
        CO_OK);
    cr_assert_eq(local_status(agent, "service:rr"), -1);
    cr_assert_eq(local_status(agent, "service:rr:2"), PB__STATUS__CRITICAL);
    cr_assert_eq(register_service_as(agent, "{\"Name\":\"rr\"}", true, true), CO_OK);
    cr_assert_eq(local_status(agent, "service:rr:2"), -1);
    cr_assert_eq(register_check(agent, "{\"Name\":\"lost\",\"TTL\":\"5s\",\"ServiceID\":\"nope\"}"), CO_NOTFOUND);
    agent_free(agent);
}

Test(anti_entropy, strangers_go_and_losses_come_back) {
    struct agent *agent = agent_new(false);
    register_service(agent, "{\"Name\":\"mine\",\"Check\":{\"TTL\":\"60s\"}}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    Pb__RegisterCommand stranger = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    node.name = (char *)NODE;
    service.id = service.name = (char *)"stranger";
    check.check_id = check.name = (char *)"strange check";
    stranger.node = &node;
    stranger.skip_node_update = true;
    stranger.service = &service;
    stranger.checks = checks;
    stranger.n_checks = 1;
    fake_rpc_apply(agent->rpc, CATALOG_REGISTER, &stranger.base);
    Pb__DeregisterCommand loss = PB__DEREGISTER_COMMAND__INIT;
    loss.node = (char *)NODE;
    loss.service_id = (char *)"mine";
    fake_rpc_apply(agent->rpc, CATALOG_DEREGISTER, &loss.base);
    cr_assert(has_service(agent, "stranger") && !has_service(agent, "mine"));
    agent_stop(agent); /* the next comparison is at the start */
    agent->sync_ns = 50000000;
    agent_start(agent);
    register_service(agent, "{\"Name\":\"mine\",\"Check\":{\"TTL\":\"60s\"}}");
    UNTIL(has_service(agent, "mine") && !has_service(agent, "stranger") && catalog_status(agent, "strange check") < 0);
    cr_assert_eq(catalog_status(agent, "serfHealth"), PB__STATUS__PASSING);
    loss.service_id = NULL;
    loss.service_id = (char *)protobuf_c_empty_string;
    fake_rpc_apply(agent->rpc, CATALOG_DEREGISTER, &loss.base); /* the whole node */
    UNTIL(has_service(agent, "mine") && catalog_status(agent, "service:mine") >= 0 && has_service(agent, "consul"));
    agent_free(agent);
}

Test(anti_entropy, tags_are_the_catalogs_where_it_may_override_them) {
    struct agent *agent = agent_new(false);
    agent_stop(agent);
    agent->sync_ns = 50000000;
    agent_start(agent);
    register_service(agent, "{\"Name\":\"eto\",\"Tags\":[\"mine\"],\"EnableTagOverride\":true}");
    register_service(agent, "{\"Name\":\"strict\",\"Tags\":[\"mine\"]}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    for (int i = 0; i < 2; i++) {
        Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
        Pb__Node node = PB__NODE__INIT;
        Pb__Service service = PB__SERVICE__INIT;
        char *tags[] = {(char *)"theirs"};
        node.name = (char *)NODE;
        service.id = service.name = (char *)(i ? "strict" : "eto");
        service.enable_tag_override = i == 0;
        service.tags = tags;
        service.n_tags = 1;
        command.node = &node;
        command.skip_node_update = true;
        command.service = &service;
        fake_rpc_apply(agent->rpc, CATALOG_REGISTER, &command.base);
    }
    struct arena arena = {0};
    for (;;) {
        arena_reset(&arena);
        Pb__Service **services;
        cr_assert_eq(local_services(agent->local, &arena, &services), 2);
        const Pb__Service *strict = look_service(agent->rpc, &arena, NODE, "strict");
        if (strcmp(services[0]->tags[0], "theirs") == 0 && strcmp(strict->tags[0], "mine") == 0) break;
        usleep(2000);
    }
    cr_assert_str_eq(look_service(agent->rpc, &arena, NODE, "eto")->tags[0], "theirs");
    /* They survive the agent, whose definitions still say something else. */
    agent_stop(agent);
    fake_rpc_leader(agent->rpc, false);
    agent_start(agent);
    register_service(agent, "{\"Name\":\"eto\",\"Tags\":[\"mine\"],\"EnableTagOverride\":true}");
    fake_rpc_leader(agent->rpc, true);
    UNTIL(local_synced(agent->local));
    cr_assert_str_eq(look_service(agent->rpc, &arena, NODE, "eto")->tags[0], "theirs");
    register_service(agent, "{\"Name\":\"eto\",\"Tags\":[\"new\"],\"EnableTagOverride\":true}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_str_eq(look_service(agent->rpc, &arena, NODE, "eto")->tags[0], "new", "said here after that");
    arena_free(&arena);
    agent_free(agent);
}

/* -- trouble
 * -------------------------------------------------------------------------------------------------------------------- */

Test(trouble, registering_needs_no_leader) {
    struct agent *agent = agent_new(false);
    UNTIL(local_synced(agent->local));
    fake_rpc_leader(agent->rpc, false);
    register_service(agent, "{\"Name\":\"web\",\"Check\":{\"TTL\":\"60s\"}}");
    uint64_t begin = clock_mono_ms();
    cr_assert_eq(wait_synced(agent, 60000), CO_NOLEADER);
    cr_assert_lt(clock_mono_ms() - begin, 5000, "it does not wait for one either");
    cr_assert_eq(local_status(agent, "service:web"), PB__STATUS__CRITICAL);
    cr_assert(update(agent, "service:web", PB__STATUS__PASSING, "on my way"));
    cr_assert(!local_synced(agent->local));
    fake_rpc_leader(agent->rpc, true);
    UNTIL(catalog_status(agent, "service:web") == PB__STATUS__PASSING);
    UNTIL(local_synced(agent->local));
    agent_free(agent);
}

Test(trouble, lost_outcomes_are_found_out) {
    struct agent *agent = agent_new(false);
    UNTIL(local_synced(agent->local));
    for (int done = 0; done < 2; done++) {
        fake_rpc_lose(agent->rpc, 2, done);
        register_service(agent, "{\"Name\":\"web\",\"Check\":{\"TTL\":\"60s\"}}");
        UNTIL(local_synced(agent->local) && has_service(agent, "web"));
        fake_rpc_lose(agent->rpc, 1, done);
        cr_assert_eq(local_service_deregister(agent->local, slice_text("web")), CO_OK);
        UNTIL(local_synced(agent->local) && !has_service(agent, "web"));
    }
    agent_free(agent);
}

Test(trouble, changes_during_a_write_are_not_lost) {
    struct agent *agent = agent_new(false);
    UNTIL(local_synced(agent->local));
    for (int i = 0; i < 20; i++) {
        fake_rpc_hold(agent->rpc, true);
        register_service(agent, "{\"Name\":\"web\",\"Check\":{\"TTL\":\"60s\"}}");
        (void)wait_synced(agent, 20);
        cr_assert(update(agent, "service:web", i % 2 ? PB__STATUS__PASSING : PB__STATUS__WARNING, "x"));
        if (i % 3 == 0) cr_assert_eq(local_service_deregister(agent->local, slice_text("web")), CO_OK);
        if (i % 6 == 0) register_service(agent, "{\"Name\":\"web\"}");
        fake_rpc_hold(agent->rpc, false);
        cr_assert_eq(wait_synced(agent, 60000), CO_OK);
        if (i % 6 == 0) {
            cr_assert(has_service(agent, "web"));
            cr_assert_eq(catalog_status(agent, "service:web"), -1);
        } else if (i % 3 == 0) {
            cr_assert(!has_service(agent, "web"));
        } else {
            cr_assert_eq(catalog_status(agent, "service:web"), i % 2 ? PB__STATUS__PASSING : PB__STATUS__WARNING);
        }
    }
    agent_free(agent);
}

/* A refused record does not keep the others of its batch back. */
Test(trouble, a_refused_record_travels_alone) {
    struct agent *agent = agent_new(false);
    UNTIL(local_synced(agent->local));
    fake_rpc_hold(agent->rpc, true);
    register_service(agent, "{\"Name\":\"first\"}");
    (void)wait_synced(agent, 20);
    Pb__DeregisterCommand loss = PB__DEREGISTER_COMMAND__INIT;
    loss.node = (char *)NODE;
    register_service(agent, "{\"Name\":\"good\"}");
    register_service(agent, "{\"Name\":\"bad\"}");
    fake_rpc_hold(agent->rpc, false);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    /* Its service vanishes behind our back: the catalog refuses a check of it, until a comparison finds out. */
    loss.service_id = (char *)"bad";
    fake_rpc_apply(agent->rpc, CATALOG_DEREGISTER, &loss.base);
    fake_rpc_hold(agent->rpc, true);
    register_service(agent, "{\"Name\":\"before\"}");
    (void)wait_synced(agent, 20);
    cr_assert_eq(register_check(agent, "{\"Name\":\"c1\",\"TTL\":\"60s\",\"ServiceID\":\"bad\"}"), CO_OK);
    cr_assert_eq(register_check(agent, "{\"Name\":\"c2\",\"TTL\":\"60s\",\"ServiceID\":\"good\"}"), CO_OK);
    register_service(agent, "{\"Name\":\"after\"}");
    fake_rpc_hold(agent->rpc, false);
    UNTIL(has_service(agent, "after") && catalog_status(agent, "c2") >= 0);
    UNTIL(catalog_status(agent, "c1") >= 0 && has_service(agent, "bad"));
    agent_free(agent);
}

/* After which time the others were there. */
static uint64_t one_loses_connections(void) {
    struct agent *agent = agent_new(false);
    UNTIL(local_synced(agent->local));
    (void)fake_rpc_poison(agent->rpc, "venom");
    fake_rpc_hold(agent->rpc, true);
    register_service(agent, "{\"Name\":\"first\"}");
    (void)wait_synced(agent, 20);
    register_service(agent, "{\"Name\":\"before\"}");
    register_service(agent, "{\"Name\":\"bad\",\"Tags\":[\"venom\"],\"Check\":{\"TTL\":\"60s\"}}");
    register_service(agent, "{\"Name\":\"after\",\"Check\":{\"TTL\":\"60s\"}}");
    fake_rpc_hold(agent->rpc, false);
    uint64_t begun_ms = clock_mono_ms();
    UNTIL(has_service(agent, "before") && catalog_status(agent, "service:after") >= 0);
    uint64_t took_ms = clock_mono_ms() - begun_ms;
    register_service(agent, "{\"Name\":\"more\"}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert(has_service(agent, "more") && !has_service(agent, "bad") && !local_synced(agent->local));
    unsigned tries = fake_rpc_poison(agent->rpc, NULL);
    cr_assert_leq(tries, 4 + (clock_mono_ms() - begun_ms) / 2000, "three times, perhaps once more by now");
    register_service(agent, "{\"Name\":\"bad\",\"Check\":{\"TTL\":\"60s\"}}");
    UNTIL(has_service(agent, "bad") && catalog_status(agent, "service:bad") >= 0 && local_synced(agent->local));
    agent_free(agent);
    return took_ms;
}

/* One whose writes lose the connection does not keep the others back either, and is not tried all the time. */
Test(trouble, a_record_that_loses_connections_is_set_aside) {
    cr_assert_eq(anti_entropy_aside_period_ms(2), 0);
    cr_assert_eq(anti_entropy_aside_period_ms(3), 2000);
    cr_assert_eq(anti_entropy_aside_period_ms(4), 8000);
    cr_assert_eq(anti_entropy_aside_period_ms(50), 120000);
    uint64_t took_ms = UINT64_MAX;
    for (int i = 0; i < 3 && took_ms >= 1500; i++)
        took_ms = one_loses_connections(); /* again: the machine stood still */
    cr_assert_lt(took_ms, 1500, "they do not wait until its time has come again");
}

/* -- checks
 * --------------------------------------------------------------------------------------------------------------------- */

Test(checks, http_from_critical_to_passing_and_back) {
    struct agent *agent = agent_new(false);
    struct web *web = web_start(false);
    char text[300];
    snprintf(text, sizeof text,
             "{\"Name\":\"web\",\"Check\":{\"HTTP\":\"http://127.0.0.1:%u/"
             "set\",\"Interval\":\"1s\",\"FailuresBeforeCritical\":2}}",
             web_port(web));
    register_service(agent, text);
    cr_assert_eq(local_status(agent, "service:web"), PB__STATUS__CRITICAL);
    UNTIL(catalog_status(agent, "service:web") == PB__STATUS__PASSING);
    unsigned requests = web_requests(web);
    web_set(web, 500);
    UNTIL(catalog_status(agent, "service:web") == PB__STATUS__CRITICAL);
    cr_assert_geq(web_requests(web), requests + 2);
    web_set(web, 429);
    UNTIL(catalog_status(agent, "service:web") == PB__STATUS__WARNING);
    struct arena arena = {0};
    Pb__Check *check = local_one(agent, &arena, "service:web");
    snprintf(text, sizeof text, "HTTP GET http://127.0.0.1:%u/set: 429 Too Many Requests Output: set", web_port(web));
    cr_assert(slice_is(slice_make(check->output.data, check->output.len), text));
    arena_free(&arena);
    web_stop(web);
    agent_free(agent);
}

Test(checks, tcp) {
    struct agent *agent = agent_new(false);
    struct web *web = web_start(false);
    char text[200];
    snprintf(text, sizeof text, "{\"Name\":\"up\",\"TCP\":\"127.0.0.1:%u\",\"Interval\":\"1s\"}", web_port(web));
    cr_assert_eq(register_check(agent, text), CO_OK);
    snprintf(text, sizeof text,
             "{\"Name\":\"down\",\"TCP\":\"127.0.0.1:%u\",\"Interval\":\"1s\",\"Status\":\"passing\"}",
             web_free_port());
    cr_assert_eq(register_check(agent, text), CO_OK);
    UNTIL(catalog_status(agent, "up") == PB__STATUS__PASSING && catalog_status(agent, "down") == PB__STATUS__CRITICAL);
    web_stop(web);
    agent_free(agent);
}

static bool is_captured(struct agent *agent, const char *id) {
    struct arena arena = {0};
    Pb__Check *check = local_one(agent, &arena, id);
    bool is = check->output.len > 4090 && slice_starts(slice_make(check->output.data + 4090, check->output.len - 4090),
                                                       slice_text("xxxxxx ... (captured 4096 of 5000 bytes)"));
    arena_free(&arena);
    return is;
}

Test(checks, ttl) {
    struct agent *agent = agent_new(false);
    cr_assert_eq(register_check(agent, "{\"Name\":\"beat\",\"TTL\":\"300ms\"}"), CO_OK);
    cr_assert_eq(register_check(agent, "{\"Name\":\"poll\",\"TCP\":\"127.0.0.1:1\",\"Interval\":\"100s\"}"), CO_OK);
    struct fault fault = {0};
    cr_assert_eq(local_check_update(agent->local, slice_text("poll"), PB__STATUS__PASSING, slice_text(""), &fault),
                 CO_INVALID);
    cr_assert_str_eq(fault.text, "CheckID \"poll\" does not have associated TTL");
    cr_assert_eq(local_check_update(agent->local, slice_text("nope"), PB__STATUS__PASSING, slice_text(""), &fault),
                 CO_NOTFOUND);
    for (int i = 0; i < 3; i++) {
        /* again, because a machine that stands still may not look until it is over */
        UNTIL(update(agent, "beat", PB__STATUS__PASSING, "fine") &&
              catalog_status(agent, "beat") == PB__STATUS__PASSING);
        UNTIL(catalog_status(agent, "beat") == PB__STATUS__CRITICAL);
        cr_assert(catalog_output_is(agent, "beat", "TTL expired (last output before timeout follows): fine"));
    }
    /* Registered again it has another TTL to be told in. It is over when that of one registered later is; what it
     * says does not grow. */
    cr_assert_eq(register_check(agent, "{\"Name\":\"beat\",\"TTL\":\"299ms\"}"), CO_OK);
    cr_assert_eq(register_check(agent, "{\"Name\":\"later\",\"TTL\":\"400ms\",\"Status\":\"passing\"}"), CO_OK);
    UNTIL(catalog_status(agent, "later") == PB__STATUS__CRITICAL);
    struct arena again = {0};
    Pb__Check *beat = local_one(agent, &again, "beat");
    cr_expect(slice_is(slice_make(beat->output.data, beat->output.len),
                       "TTL expired (last output before timeout follows): fine"),
              "%.*s", (int)beat->output.len, (const char *)beat->output.data);
    arena_free(&again);
    char *large = mem_zalloc(5001);
    memset(large, 'x', 5000);
    UNTIL(update(agent, "beat", PB__STATUS__WARNING, large) && is_captured(agent, "beat"));
    free(large);
    agent_free(agent);
}

/* Output alone does not travel at once, and does in the end. */
Test(checks, output_travels_rarely) {
    struct agent *agent = agent_new(false);
    cr_assert_eq(register_check(agent, "{\"Name\":\"talk\",\"TTL\":\"60s\"}"), CO_OK);
    cr_assert(update(agent, "talk", PB__STATUS__PASSING, "first"));
    UNTIL(catalog_output_is(agent, "talk", "first"));
    UNTIL(local_synced(agent->local));
    uint64_t writes = fake_rpc_writes(agent->rpc);
    for (int i = 0; i < 100; i++) cr_assert(update(agent, "talk", PB__STATUS__PASSING, i % 2 ? "a" : "b"));
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    for (uint64_t end = clock_mono_ms() + 100; clock_mono_ms() < end;) {
        cr_assert_eq(fake_rpc_writes(agent->rpc), writes);
    }
    cr_assert(update(agent, "talk", PB__STATUS__WARNING, "worse"));
    UNTIL(catalog_output_is(agent, "talk", "worse"));
    agent_stop(agent);
    agent->update_ns = 200000000;
    agent_start(agent);
    cr_assert_eq(register_check(agent, "{\"Name\":\"talk\",\"TTL\":\"60s\",\"Status\":\"passing\"}"), CO_OK);
    UNTIL(local_synced(agent->local) && catalog_status(agent, "talk") == PB__STATUS__PASSING);
    cr_assert(update(agent, "talk", PB__STATUS__PASSING, "in the end"));
    UNTIL(catalog_output_is(agent, "talk", "in the end"));
    agent_free(agent);
}

Test(checks, a_service_critical_for_too_long_goes) {
    struct agent *agent = agent_new(false);
    uint64_t begin = clock_mono_ms();
    register_service(agent,
                     "{\"Name\":\"short\",\"Check\":{\"TTL\":\"60s\",\"DeregisterCriticalServiceAfter\":\"1s\"}}");
    register_service(agent,
                     "{\"Name\":\"fine\",\"Check\":{\"TTL\":\"60s\",\"Status\":\"passing\","
                     "\"DeregisterCriticalServiceAfter\":\"1s\"}}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    UNTIL(!has_service(agent, "short"));
    cr_assert_geq(clock_mono_ms() - begin, 990, "it was there before");
    struct arena arena = {0};
    Pb__Service **services;
    cr_assert_eq(local_services(agent->local, &arena, &services), 1);
    cr_assert_str_eq(services[0]->id, "fine");
    arena_free(&arena);
    agent_free(agent);
}

/* Told that it is critical: its own period counts, not what is left of its TTL. */
Test(checks, a_service_told_critical_goes) {
    struct agent *agent = agent_new(false);
    register_service(agent,
                     "{\"Name\":\"told\",\"Check\":{\"CheckID\":\"told\",\"TTL\":\"600s\",\"Status\":\"passing\","
                     "\"DeregisterCriticalServiceAfter\":\"1s\"}}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert(update(agent, "told", PB__STATUS__CRITICAL, "no"));
    UNTIL(!has_service(agent, "told"));
    agent_free(agent);
}

Test(checks, maintenance) {
    struct agent *agent = agent_new(false);
    register_service(agent, "{\"ID\":\"db1\",\"Name\":\"db\",\"Tags\":[\"a\"]}");
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("nope"), true, slice_text("")), CO_NOTFOUND);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("nope"), false, slice_text("")), CO_NOTFOUND);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("db1"), true, slice_text("fix")), CO_OK);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("db1"), true, slice_text("other")), CO_OK);
    cr_assert_eq(local_node_maintenance(agent->local, true, slice_text("")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    struct arena arena = {0};
    const Pb__Check *check = look_check(agent->rpc, &arena, NODE, "_service_maintenance:db1");
    cr_assert_eq(check->status, PB__STATUS__CRITICAL);
    cr_assert_str_eq(check->notes, "fix");
    cr_assert_str_eq(check->name, "Service Maintenance Mode");
    cr_assert_str_eq(check->type, "maintenance");
    cr_assert_str_eq(check->service_name, "db");
    check = look_check(agent->rpc, &arena, NODE, "_node_maintenance");
    cr_assert_str_eq(
        check->notes,
        "Maintenance mode is enabled for this node, but no reason was provided. This is a default message.");
    struct fault fault = {0};
    cr_assert_eq(
        local_check_update(agent->local, slice_text("_node_maintenance"), PB__STATUS__PASSING, slice_text(""), &fault),
        CO_INVALID);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("db1"), false, slice_text("")), CO_OK);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("db1"), false, slice_text("")), CO_OK);
    cr_assert_eq(local_node_maintenance(agent->local, false, slice_text("")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(catalog_status(agent, "_service_maintenance:db1"), -1);
    cr_assert_eq(catalog_status(agent, "_node_maintenance"), -1);
    arena_free(&arena);
    agent_free(agent);
}

/* -- restarts
 * --------------------------------------------------------------------------------------------------------------------- */

/* The service db2 with a check that gets no answer. */
static int listens_silently(char *text, size_t room) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 5) == 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(text, room,
             "{\"ID\":\"db2\",\"Name\":\"db\",\"Check\":{\"HTTP\":\"http://127.0.0.1:%u/"
             "\",\"Interval\":\"100s\",\"Timeout\":\"60s\",\"Status\":\"passing\"}}",
             ntohs(address.sin_port));
    return fd;
}

Test(local_restart, definitions_and_states_survive) {
    struct agent *agent = agent_new(true);
    char silent[200];
    int listener = listens_silently(silent, sizeof silent);
    register_service(agent,
                     "{\"ID\":\"db1\",\"Name\":\"db\",\"Tags\":[\"a\"],\"Port\":5432,\"Check\":{\"TTL\":"
                     "\"60s\",\"Notes\":\"n\"}}");
    register_service(agent, silent);
    register_service(agent, "{\"ID\":\"db3\",\"Name\":\"db\"}");
    cr_assert_eq(register_check(agent, "{\"Name\":\"extra\",\"TTL\":\"60s\",\"ServiceID\":\"db1\"}"), CO_OK);
    cr_assert_eq(register_check(agent, "{\"Name\":\"node check\",\"TTL\":\"60s\"}"), CO_OK);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("db2"), true, slice_text("fix it")), CO_OK);
    cr_assert(update(agent, "service:db1", PB__STATUS__PASSING, "said before"));
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("db3")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(saved(agent, 's'), 2);
    cr_assert_eq(saved(agent, 'c'), 2);
    uint64_t writes = fake_rpc_writes(agent->rpc);
    agent_stop(agent);

    struct buffer lines = {0}; /* one that is damaged, one of a newer version, and a torn end */
    append_to_definitions(
        agent,
        "0123456789abcdef s 0123456789abcdef0123456789abcdef {\"Version\":1,\"Service\":{\"Name\":\"damaged\"}}\n");
    store_log_line(&lines, false, "newer", slice_text("{\"Version\":2,\"Service\":{\"Name\":\"newer\"}}"));
    store_log_line(&lines, false, "torn", slice_text("{\"Version\":1,\"Service\":{\"Name\":\"torn\"}}"));
    lines.data[lines.size - 3] = 0;
    append_to_definitions(agent, lines.data);
    buffer_free(&lines);

    agent_start(agent);
    UNTIL(local_synced(agent->local));
    struct arena arena = {0};
    Pb__Service **services;
    cr_assert_eq(local_services(agent->local, &arena, &services), 2);
    cr_assert_str_eq(services[0]->id, "db1");
    cr_assert_eq(services[0]->port, 5432);
    Pb__Check *check = local_one(agent, &arena, "service:db1");
    cr_assert_eq(check->status, PB__STATUS__PASSING, "as it stood");
    cr_assert(slice_is(slice_make(check->output.data, check->output.len), "said before"));
    cr_assert_str_eq(check->notes, "n");
    cr_assert_eq(local_status(agent, "service:db2"), PB__STATUS__PASSING);
    cr_assert_eq(local_status(agent, "extra"), PB__STATUS__CRITICAL);
    cr_assert_eq(local_status(agent, "node check"), PB__STATUS__CRITICAL);
    cr_assert_str_eq(local_one(agent, &arena, "_service_maintenance:db2")->notes, "fix it");
    cr_assert_eq(fake_rpc_writes(agent->rpc), writes, "and nothing had to travel");
    char path[150];
    snprintf(path, sizeof path, "%s/local/definitions.left-out", agent->folder);
    cr_assert_eq(access(path, R_OK), 0, "the damaged one and the one of a newer version are not lost");
    register_service(agent, "{\"Name\":\"after\"}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(saved(agent, 's'), 3, "written anew");
    cr_assert_eq(saved(agent, 'c'), 2);
    agent_stop(agent);
    agent_start(agent);
    UNTIL(local_synced(agent->local));
    cr_assert(has_service(agent, "after") && has_service(agent, "db1"));
    arena_free(&arena);
    close(listener);
    agent_free(agent);
}

Test(local_restart, deregistered_while_away_stays_gone) {
    struct agent *agent = agent_new(true);
    register_service(agent, "{\"Name\":\"a\",\"Check\":{\"TTL\":\"60s\"}}");
    register_service(agent, "{\"Name\":\"b\"}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    fake_rpc_leader(agent->rpc, false);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("a")), CO_OK);
    agent_stop(agent);
    agent_start(agent);
    fake_rpc_leader(agent->rpc, true);
    UNTIL(local_synced(agent->local));
    UNTIL(!has_service(agent, "a"));
    cr_assert(has_service(agent, "b"));
    agent_free(agent);
}

/* Services from configuration files are not written, and win over saved ones; what the API hung on them is kept. */
Test(local_restart, configuration_files_win) {
    struct agent *agent = agent_new(true);
    register_service(agent, "{\"Name\":\"both\",\"Port\":1}");
    cr_assert_eq(register_service_as(agent, "{\"Name\":\"conf\"}", false, false), CO_OK);
    cr_assert_eq(register_check(agent, "{\"Name\":\"hung\",\"TTL\":\"60s\",\"ServiceID\":\"conf\"}"), CO_OK);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("conf"), true, slice_text("why")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(saved(agent, 's'), 1);
    cr_assert_eq(saved(agent, 'c'), 2);
    agent_stop(agent);
    agent_start(agent);
    cr_assert_eq(register_service_as(agent, "{\"Name\":\"conf\"}", false, false), CO_OK);
    cr_assert_eq(register_service_as(agent, "{\"Name\":\"both\",\"Port\":2}", false, false), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(catalog_status(agent, "hung"), PB__STATUS__CRITICAL);
    cr_assert_eq(catalog_status(agent, "_service_maintenance:conf"), PB__STATUS__CRITICAL);
    cr_assert_eq(saved(agent, 's'), 0, "the saved one is gone");
    struct arena arena = {0};
    cr_assert_eq(look_service(agent->rpc, &arena, NODE, "both")->port, 2);
    arena_free(&arena);
    agent_free(agent);
}

Test(local, a_service_passes_with_all_checks_of_an_instance_and_of_the_node) {
    struct agent *agent = agent_new(false);
    cr_expect(!local_service_passes(agent->local, slice_text("web")));
    register_service(agent,
                     "{\"ID\":\"w1\",\"Name\":\"web\",\"Checks\":[{\"CheckID\":\"one\",\"TTL\":\"60s\"},"
                     "{\"CheckID\":\"two\",\"TTL\":\"60s\",\"Status\":\"passing\"}]}");
    cr_expect(!local_service_passes(agent->local, slice_text("web")));
    unsigned changes = agent->changes;
    cr_assert(update(agent, "one", PB__STATUS__PASSING, ""));
    cr_expect(local_service_passes(agent->local, slice_text("WEB")) &&
              !local_service_passes(agent->local, slice_text("w1")));
    UNTIL(agent->changes > changes);
    cr_assert(update(agent, "two", PB__STATUS__WARNING, ""));
    cr_expect(!local_service_passes(agent->local, slice_text("web")));
    register_service(agent, "{\"ID\":\"w2\",\"Name\":\"web\"}");
    cr_expect(local_service_passes(agent->local, slice_text("web")), "one instance is enough");
    cr_assert_eq(local_node_maintenance(agent->local, true, slice_text("")), CO_OK);
    cr_expect(!local_service_passes(agent->local, slice_text("web")), "the node's checks count for all");
    cr_assert_eq(local_node_maintenance(agent->local, false, slice_text("")), CO_OK);
    changes = agent->changes;
    cr_assert_eq(local_service_deregister(agent->local, slice_text("w2")), CO_OK);
    cr_expect(!local_service_passes(agent->local, slice_text("web")));
    UNTIL(agent->changes > changes);
    agent_free(agent);
}
