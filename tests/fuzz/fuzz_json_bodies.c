/* A letter that says who reads it (json_grammar.h), then any text as a JSON body. An accepted body is written and read
 * again, and is the same; the endpoints' commands from it are applied to a state machine. */
#include <json-c/json_tokener.h>
#include <stdlib.h>

#include "base/json_in.h"
#include "health/definition.h"
#include "tests/fuzz/json_grammar.h"
#include "tests/fuzz/still_web.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static void check_fault(const struct fault *fault) {
    CHECK(fault->code == CO_INVALID || fault->code == CO_TOOLARGE);
    CHECK(fault->text[0]);
    for (const char *at = fault->text; *at; at++) CHECK((unsigned char)*at >= ' ' && *at != 0x7f);
}

static struct json_object *parsed(struct slice text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(text, &fault);
    CHECK(json && fault.code == CO_OK);
    return json;
}

/* ---- JSON itself ---- */

static void check_json(struct json_object *json) {
    const char *text = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
    struct json_object *again = parsed(slice_text(text));
    CHECK(json_object_equal(json, again));
    CHECK(strcmp(text, json_object_to_json_string_ext(again, JSON_C_TO_STRING_PLAIN)) == 0);
    json_object_put(again);
}

/* ---- definitions ---- */

static void write_check(struct buffer *out, const struct check_definition *check) {
    struct json_out json;
    buffer_reset(out);
    json_out_init(&json, out, false);
    check_definition_write(&json, check);
}

static void check_ranges(const struct check_definition *check) {
    CHECK(check->kind != CHECK_NONE && *check_kind_text(check->kind));
    CHECK(check->kind != CHECK_TTL || check->ttl_ns > 0);
    CHECK(check->kind == CHECK_TTL || check->kind == CHECK_ALIAS || check->interval_ns >= 1000000000);
    CHECK(check->kind != CHECK_SCRIPT || (check->arg_count > 0 && *check->args[0]));
    CHECK(check->kind != CHECK_ALIAS || *check->alias_node || *check->alias_service);
    CHECK(check->timeout_ns > 0 && check->deregister_after_ns >= 0 && check->output_max_size > 0);
    CHECK(check->check_id[0] && check->name[0]);
    CHECK(check->initial_status <= PB__STATUS__CRITICAL);
}

static bool same_check(const struct check_definition *a, const struct check_definition *b) {
    return a->kind == b->kind && a->header_count == b->header_count && a->tls_skip_verify == b->tls_skip_verify &&
           a->disable_redirects == b->disable_redirects && a->interval_ns == b->interval_ns &&
           a->timeout_ns == b->timeout_ns && a->ttl_ns == b->ttl_ns &&
           a->deregister_after_ns == b->deregister_after_ns && a->success_before_passing == b->success_before_passing &&
           a->failures_before_critical == b->failures_before_critical &&
           a->failures_before_warning == b->failures_before_warning && a->output_max_size == b->output_max_size &&
           a->initial_status == b->initial_status && a->arg_count == b->arg_count &&
           a->grpc_use_tls == b->grpc_use_tls && a->h2ping_use_tls == b->h2ping_use_tls &&
           strcmp(a->os_service, b->os_service) == 0;
}

static void check_written(const struct check_definition *check) {
    struct buffer first = {0}, second = {0};
    struct fault fault = {0};
    check_ranges(check);
    write_check(&first, check);
    struct json_object *json = parsed(buffer_slice(&first));
    struct check_definition *again = check_definition_parse(json, &fault);
    CHECK(again && same_check(check, again));
    write_check(&second, again);
    CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    check_definition_free(again);
    json_object_put(json);
    buffer_free(&first);
    buffer_free(&second);
}

static void read_check(struct json_object *json) {
    struct fault fault = {0};
    struct check_definition *check = check_definition_parse(json, &fault);
    CHECK((check == NULL) == (fault.code != CO_OK));
    if (check) check_written(check);
    else check_fault(&fault);
    check_definition_free(check);
}

static bool same(const ProtobufCMessage *a, const ProtobufCMessage *b) {
    struct buffer packed[2] = {0};
    const ProtobufCMessage *messages[] = {a, b};
    for (int i = 0; i < 2; i++) {
        buffer_reserve(&packed[i], protobuf_c_message_get_packed_size(messages[i]) + 1);
        packed[i].size = protobuf_c_message_pack(messages[i], (uint8_t *)packed[i].data);
    }
    bool equal = slice_equal(buffer_slice(&packed[0]), buffer_slice(&packed[1]));
    buffer_free(&packed[0]);
    buffer_free(&packed[1]);
    return equal;
}

static void service_written(const Pb__Service *service) {
    struct buffer text = {0};
    struct fault fault = {0};
    struct json_out out;
    json_out_init(&out, &text, true);
    json_object(&out);
    service_definition_write(&out, service);
    json_object_end(&out);
    struct json_object *json = parsed(buffer_slice(&text));
    struct service_definition *again = service_definition_parse(json, &fault);
    CHECK(again && again->check_count == 0 && same(&service->base, &again->service->base));
    service_definition_free(again);
    json_object_put(json);
    buffer_free(&text);
}

static void read_service(struct json_object *json) {
    struct fault fault = {0};
    struct service_definition *service = service_definition_parse(json, &fault);
    CHECK((service == NULL) == (fault.code != CO_OK));
    if (!service) {
        check_fault(&fault);
        return;
    }
    CHECK(service->service->name[0] && service->service->id[0] && service->service->port <= UINT16_MAX);
    CHECK(service->service->weight_passing >= 1 && service->service->weight_warning <= UINT16_MAX);
    service_written(service->service);
    for (size_t i = 0; i < service->check_count; i++) {
        CHECK(strcmp(service->checks[i]->service_id, service->service->id) == 0);
        check_written(service->checks[i]);
    }
    service_definition_free(service);
}

/* ---- changing an input: what the grammar makes comes in, besides what libFuzzer does ---- */

/* Behind a "{" or ",": the n-th of them. SIZE_MAX: there is none. */
static size_t member_place(const uint8_t *data, size_t size, uint64_t n) {
    size_t count = 0, at = 0;
    for (size_t i = 0; i < size; i++) count += data[i] == '{' || data[i] == ',';
    if (count == 0) return SIZE_MAX;
    for (n %= count;; at++) {
        if ((data[at] == '{' || data[at] == ',') && n-- == 0) return at + 1;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static struct buffer text;
    struct rng rng;
    rng_seed(&rng, seed);
    buffer_reset(&text);
    uint64_t choice = rng_below(&rng, 10);
    size_t at = choice < 4 ? member_place(data, size, rng_next(&rng)) : SIZE_MAX;
    if (choice == 9) { /* another body */
        char kind = JSON_GRAMMAR_BODIES[rng_below(&rng, sizeof JSON_GRAMMAR_BODIES - 1)];
        buffer_append_byte(&text, kind);
        json_grammar_object(&text, kind, &rng);
        at = size = 0;
    } else if (at != SIZE_MAX) { /* another member */
        json_grammar_member(&text, &rng);
        if (at == size || data[at] != '}') buffer_append_byte(&text, ',');
    }
    if (at == SIZE_MAX || size + text.size > most) return LLVMFuzzerMutate(data, size, most);
    memmove(data + at + text.size, data + at, size - at);
    memcpy(data + at, text.data, text.size);
    return size + text.size;
}

/* ---- one input ---- */

static void ask(const char *target, struct slice body, struct json_object *json, json_type type) {
    struct still_reply reply = still_put("PUT", target, body);
    bool wanted = json && json_object_is_type(json, type);
    CHECK(wanted || reply.status == 400 || body.size == 0);
}

static void read_as(uint8_t kind, struct slice text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(text, &fault);
    CHECK((json == NULL) == (fault.code != CO_OK));
    if (json) {
        check_json(json);
    } else {
        check_fault(&fault);
        CHECK(strncmp(fault.text, "JSON: ", 6) == 0);
    }
    switch (kind) {
        case 'R': ask("/v1/catalog/register", text, json, json_type_object); break;
        case 'D': ask("/v1/catalog/deregister", text, json, json_type_object); break;
        case 'S': ask("/v1/session/create", text, json, json_type_object); break;
        case 'G': ask("/v1/lease/grant", text, json, json_type_object); break;
        case 'T': ask("/v1/txn", text, json, json_type_array); break;
        case 'I': ask("/v1/txn/if", text, json, json_type_object); break;
        case 'A':
            if (json) read_service(json);
            break;
        case 'K':
            if (json) read_check(json);
            break;
        default: break;
    }
    json_object_put(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    char *exact = mem_strndup((const char *)data + 1, size - 1);
    read_as(data[0], slice_make(exact, size - 1));
    free(exact);
    return 0;
}
