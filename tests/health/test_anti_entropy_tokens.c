/* On whose behalf anti-entropy writes: batches with one token each, and records that the servers deny to theirs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "health/anti_entropy.h"
#include "health/definition.h"

#define NODE "n1"

static Pb__Node node;
static struct local *local;
static struct anti_entropy anti_entropy;
static struct requester *default_token;
static uint64_t now_ms;
static Pb__ChecksResult no_checks;

static void compared(void) {
    cr_assert_eq(anti_entropy_next(&anti_entropy, now_ms).act, ANTI_ENTROPY_READ);
    anti_entropy_read(&anti_entropy, CO_OK, &(struct anti_entropy_catalog){.checks = &no_checks}, now_ms);
}

static void setup(void) {
    pb__node__init(&node);
    pb__checks_result__init(&no_checks);
    node.name = (char *)NODE;
    struct local_config config = {
        .node = NODE, .node_id = "", .address = "", .datacenter = "dc1", .node_record = &node};
    now_ms = 1000;
    local = local_new(&config, 1);
    anti_entropy_begin(&anti_entropy, local, 2);
    default_token = requester_new(REQUESTER_DEFAULT, slice_text("by default"));
    anti_entropy.controlled = true, anti_entropy.services = default_token;
    compared();
}

static void teardown(void) {
    anti_entropy_end(&anti_entropy);
    local_free(local);
    requester_release(default_token);
}

TestSuite(anti_entropy_tokens, .init = setup, .fini = teardown);

static void put_service(const char *text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct service_definition *definition = service_definition_parse(json, &fault);
    json_object_put(json);
    cr_assert(definition, "%s", fault.text);
    cr_assert_eq(local_service_register(local, definition, false, true, &fault), CO_OK);
}

static void put_check(const char *text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct check_definition *definition = check_definition_parse(json, &fault);
    json_object_put(json);
    cr_assert(definition, "%s", fault.text);
    cr_assert_eq(local_check_register(local, definition, true, &fault), CO_OK);
}

static void answer(int error, int refused) {
    anti_entropy_written(&anti_entropy, &(struct anti_entropy_answer){error, refused, "Permission denied: x"}, now_ms);
}

/* The contents of the next write: "token: service/check,check -removed"; the node's own is "agent: node". Comparisons pass. */
static const char *next(void) {
    static char text[400];
    struct anti_entropy_order order;
    while ((order = anti_entropy_next(&anti_entropy, now_ms)).act != ANTI_ENTROPY_WRITE) {
        if (order.act == ANTI_ENTROPY_REST && order.until_ms > now_ms + 40000) return "nothing";
        if (order.act == ANTI_ENTROPY_REST) now_ms = order.until_ms;
        else anti_entropy_read(&anti_entropy, CO_OK, &(struct anti_entropy_catalog){.checks = &no_checks}, now_ms);
    }
    size_t size = (size_t)snprintf(text, sizeof text, "%s:", order.requester ? order.requester->text : "agent");
    if (order.command == CATALOG_REGISTER) return strcat(text, " node");
    const Pb__CatalogBatchCommand *batch = (const Pb__CatalogBatchCommand *)order.message;
    for (size_t i = 0; i < batch->n_registers; i++) {
        const Pb__RegisterCommand *one = batch->registers[i];
        size += (size_t)snprintf(text + size, sizeof text - size, " %s", one->service ? one->service->id : "");
        for (size_t k = 0; k < one->n_checks; k++)
            size += (size_t)snprintf(text + size, sizeof text - size, "/%s", one->checks[k]->check_id);
    }
    for (size_t i = 0; i < batch->n_deregisters; i++)
        size += (size_t)snprintf(
            text + size, sizeof text - size, " -%s",
            batch->deregisters[i]->service_id[0] ? batch->deregisters[i]->service_id : batch->deregisters[i]->check_id);
    return text;
}

#define EXPECT(what) cr_expect_str_eq(next(), (what))
#define TAKEN(what)           \
    do {                      \
        EXPECT(what);         \
        answer(CO_OK, CO_OK); \
    } while (0)

Test(anti_entropy_tokens, each_batch_is_of_one_token_and_removals_are_the_agents_own) {
    put_service("{\"Name\":\"a\",\"Token\":\"one\",\"Check\":{\"TTL\":\"1m\"}}");
    put_service("{\"Name\":\"b\",\"Token\":\"two\"}");
    put_service("{\"Name\":\"c\"}");
    put_service("{\"Name\":\"d\",\"Token\":\"one\"}");
    put_check("{\"Name\":\"disk\",\"TTL\":\"1m\"}");
    TAKEN("agent: node");
    TAKEN("one: a/service:a d");
    TAKEN("two: b");
    TAKEN("by default: c");
    TAKEN("agent: /disk");
    cr_assert(local_synced(local));
    cr_assert_eq(local_service_deregister(local, slice_text("a")), CO_OK);
    put_service("{\"Name\":\"b\",\"Token\":\"two\",\"Port\":1}");
    TAKEN("agent: -service:a -a");
    TAKEN("two: b");
}

Test(anti_entropy_tokens, a_check_with_another_token_than_its_service_travels_after_it) {
    put_service("{\"Name\":\"a\",\"Token\":\"one\"}");
    put_check("{\"Name\":\"c\",\"ServiceID\":\"a\",\"TTL\":\"1m\",\"Token\":\"two\"}");
    TAKEN("agent: node");
    TAKEN("one: a");
    TAKEN("two: /c");
    put_service("{\"Name\":\"a\",\"Token\":\"one\",\"Port\":7}");
    cr_assert_eq(local_check_update(local, slice_text("c"), PB__STATUS__PASSING, slice_text(""), NULL), CO_OK);
    TAKEN("one: a");
    TAKEN("two: /c");
}

Test(anti_entropy_tokens, what_is_denied_stays_dirty_and_holds_up_nobody) {
    put_service("{\"Name\":\"good\",\"Token\":\"one\"}");
    put_service("{\"Name\":\"bad\",\"Token\":\"one\"}");
    put_service("{\"Name\":\"other\",\"Token\":\"two\"}");
    TAKEN("agent: node");
    EXPECT("one: good bad");
    answer(CO_OK, CO_DENIED);
    TAKEN("one: good");
    EXPECT("one: bad");
    answer(CO_OK, CO_DENIED);
    uint64_t denied_ms = now_ms;
    TAKEN("two: other");
    cr_assert(!local_synced(local));
    cr_assert_eq(now_ms, denied_ms);
    EXPECT("one: bad");
    cr_assert_eq(now_ms - denied_ms, anti_entropy_denied_period_ms(1));
    answer(CO_OK, CO_NOTOKEN);
    denied_ms = now_ms;
    EXPECT("one: bad");
    cr_assert_eq(now_ms - denied_ms, 2 * anti_entropy_denied_period_ms(1));
    answer(CO_OK, CO_OK);
    cr_assert(local_synced(local));
}

Test(anti_entropy_tokens, another_token_is_tried_at_once) {
    put_service("{\"Name\":\"a\",\"Token\":\"one\"}");
    TAKEN("agent: node");
    EXPECT("one: a");
    answer(CO_OK, CO_DENIED);
    uint64_t denied_ms = now_ms;
    put_service("{\"Name\":\"a\",\"Token\":\"two\"}");
    TAKEN("two: a");
    cr_assert_eq(now_ms, denied_ms);
    put_service("{\"Name\":\"a\",\"Token\":\"two\"}");
    cr_assert(local_synced(local), "the same again changes nothing");
}

Test(anti_entropy_tokens, a_server_that_cannot_tell_yet_is_asked_again) {
    put_service("{\"Name\":\"a\",\"Token\":\"one\"}");
    TAKEN("agent: node");
    EXPECT("one: a");
    uint64_t refused_ms = now_ms;
    answer(CO_OK, CO_NOTREADY);
    EXPECT("one: a");
    cr_assert_leq(now_ms - refused_ms, 100);
}

Test(anti_entropy_tokens, without_access_control_tokens_split_nothing) {
    anti_entropy.controlled = false, anti_entropy.services = NULL;
    put_service("{\"Name\":\"a\",\"Token\":\"one\",\"Check\":{\"TTL\":\"1m\"}}");
    put_service("{\"Name\":\"b\",\"Token\":\"two\"}");
    TAKEN("agent: node");
    TAKEN("agent: a/service:a b");
}

Test(anti_entropy_tokens, a_denied_node_is_written_again_before_all_else) {
    put_service("{\"Name\":\"a\",\"Token\":\"one\"}");
    EXPECT("agent: node");
    answer(CO_OK, CO_DENIED);
    uint64_t denied_ms = now_ms;
    EXPECT("agent: node");
    cr_assert_geq(now_ms - denied_ms, 1000);
    answer(CO_OK, CO_OK);
    TAKEN("one: a");
}

Test(anti_entropy_tokens, a_service_gives_its_token_to_its_checks_and_both_are_written_down) {
    struct fault fault = {0};
    struct json_object *json =
        json_parse(slice_text("{\"Name\":\"a\",\"Token\":\"one\",\"Check\":{\"TTL\":\"1m\"}}"), &fault);
    struct service_definition *definition = service_definition_parse(json, &fault);
    json_object_put(json);
    cr_assert_str_eq(definition->token, "one");
    cr_assert_str_eq(definition->checks[0]->token, "");
    service_definition_token(definition, slice_text("other"));
    cr_assert_str_eq(definition->checks[0]->token, "other");
    struct buffer text = {0};
    struct json_out out;
    json_out_init(&out, &text, false);
    check_definition_write(&out, definition->checks[0]);
    json = json_parse(buffer_slice(&text), &fault);
    struct check_definition *again = check_definition_parse(json, &fault);
    cr_assert_str_eq(again->token, "other");
    check_definition_token(again, slice_text("third"));
    cr_assert(check_definition_same(again, definition->checks[0]), "tokens do not count");
    json_object_put(json);
    buffer_free(&text);
    check_definition_free(again);
    service_definition_free(definition);
}

Test(anti_entropy_tokens, a_token_that_is_too_long_is_refused) {
    struct buffer text = {0};
    struct fault fault = {0};
    buffer_printf(&text, "{\"Name\":\"a\",\"Token\":\"%0*d\"}", REQUESTER_TOKEN_MOST + 1, 0);
    struct json_object *json = json_parse(buffer_slice(&text), &fault);
    cr_assert_null(service_definition_parse(json, &fault));
    cr_assert(strstr(fault.text, "Token"), "%s", fault.text);
    json_object_put(json);
    buffer_free(&text);
}
