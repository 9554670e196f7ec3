/* A JSON Schema, an end of line, a document. The schema is taken or refused with a line. The document gets the same
 * verdict again, also from the schema once it was written and read, and from one that says the same in other words; and
 * none with fewer steps than it took. */
#include <stdlib.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_schema_inner.h"
#include "tests/fuzz/json_grammar.h"

#define STEPS 50000 /* under sanitizers, several times each */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static void check_fault(const struct fault *fault) {
    CHECK(fault->text[0]);
    for (const char *at = fault->text; *at; at++) CHECK((unsigned char)*at >= ' ' && *at != 0x7f);
}

static struct json_schema *compiled(struct json_object *json) {
    struct fault fault = {0};
    struct json_schema *schema = json_schema_compile(json, &fault);
    CHECK((schema == NULL) == (fault.code != CO_OK));
    if (schema) return schema;
    CHECK(fault.code == CO_INVALID || fault.code == CO_TOOLARGE);
    CHECK(fault.text[0] == '#');
    check_fault(&fault);
    return NULL;
}

/* ---- verdicts ---- */

struct verdict {
    bool fits;
    bool bounded; /* by steps or depth: no verdict */
    uint64_t steps;
    struct fault fault;
};

static struct verdict judge(const struct json_schema *schema, struct json_object *document, uint64_t most) {
    struct verdict verdict = {.steps = most};
    int error = json_schema_check_within(schema, document, &verdict.steps, &verdict.fault);
    CHECK(error == verdict.fault.code && (error == CO_OK || error == CO_INVALID));
    verdict.steps = most - verdict.steps;
    verdict.fits = error == CO_OK;
    if (verdict.fits) return verdict;
    check_fault(&verdict.fault);
    CHECK(verdict.fault.text[0] == '/' || strncmp(verdict.fault.text, "...", 3) == 0 ||
          strncmp(verdict.fault.text, "the document: ", 14) == 0);
    verdict.bounded = verdict.steps == most || strstr(verdict.fault.text, "nested too deeply");
    return verdict;
}

static bool same(const struct verdict *a, const struct verdict *b) {
    return a->fits == b->fits && a->steps == b->steps && strcmp(a->fault.text, b->fault.text) == 0;
}

/* A schema around this one: the verdict is the same, or the opposite. References would lead elsewhere. */
static void check_around(const char *before, struct slice text, const char *behind, bool opposite,
                         struct json_object *document, const struct verdict *verdict) {
    struct buffer around = {0};
    struct fault fault = {0};
    buffer_append_text(&around, before);
    buffer_append(&around, text.data, text.size);
    buffer_append_text(&around, behind);
    struct json_object *json = json_parse(buffer_slice(&around), &fault);
    struct json_schema *schema = json ? compiled(json) : NULL;
    if (schema) {
        struct verdict other = judge(schema, document, STEPS * 4);
        CHECK(other.bounded || other.fits == (verdict->fits != opposite));
    }
    json_schema_free(schema);
    json_object_put(json);
    buffer_free(&around);
}

static void check_words(struct slice schema, struct json_object *document, const struct verdict *verdict) {
    if (memmem(schema.data, schema.size, "$ref", 4) || memmem(schema.data, schema.size, "\\u", 2)) return;
    check_around("{\"not\":", schema, "}", true, document, verdict);
    check_around("{\"anyOf\":[false,", schema, "]}", false, document, verdict);
    check_around("{\"oneOf\":[", schema, ",false]}", false, document, verdict);
    check_around("{\"allOf\":[", schema, ",true]}", false, document, verdict);
    check_around("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":", schema, "}}", false, document, verdict);
}

static void check_again(struct json_object *schema_json, struct json_object *document, const struct verdict *verdict) {
    struct fault fault = {0};
    const char *text = json_object_to_json_string_ext(schema_json, JSON_C_TO_STRING_PLAIN);
    struct json_object *again = json_parse(slice_text(text), &fault);
    CHECK(again);
    struct json_schema *schema = compiled(again);
    CHECK(schema);
    struct verdict other = judge(schema, document, STEPS);
    CHECK(same(verdict, &other));
    if (!verdict->bounded) {
        other = judge(schema, document, verdict->steps + 1);
        CHECK(other.fits == verdict->fits && !other.bounded);
        other = judge(schema, document, verdict->steps);
        CHECK(other.bounded);
    }
    json_schema_free(schema);
    json_object_put(again);
}

static void read_both(struct slice schema_text, struct slice document_text) {
    struct fault fault = {0};
    struct json_object *schema_json = json_parse(schema_text, &fault);
    struct json_object *document = schema_json ? json_parse(document_text, &fault) : NULL;
    struct json_schema *schema = document ? compiled(schema_json) : NULL;
    if (schema) {
        struct verdict verdict = judge(schema, document, STEPS);
        check_again(schema_json, document, &verdict);
        if (!verdict.bounded) check_words(schema_text, document, &verdict);
    }
    json_schema_free(schema);
    json_object_put(document);
    json_object_put(schema_json);
}

/* ---- changing an input ---- */

static void put_document(struct buffer *out, unsigned depth, struct rng *rng) {
    static const char *const values[] = {"null",   "true",       "1",
                                         "1.0",    "2",          "0.1",
                                         "-1e300", "1e400",      "9007199254740993",
                                         "\"\"",   "\"a\"",      "\"aa\"",
                                         "\"ab\"", "\"\u00e4\"", "18446744073709551615"};
    uint64_t choice = rng_below(rng, depth ? 4 : 2), count = rng_below(rng, 4);
    if (choice < 2) {
        buffer_append_text(out, values[rng_below(rng, ARRAY_COUNT(values))]);
        return;
    }
    buffer_append_byte(out, choice == 2 ? '[' : '{');
    for (uint64_t i = 0; i < count; i++) {
        if (i) buffer_append_byte(out, ',');
        if (choice == 3) buffer_printf(out, "\"%c\":", (char)('a' + i));
        put_document(out, depth - 1, rng);
    }
    buffer_append_byte(out, choice == 2 ? ']' : '}');
}

/* Behind a "{" of the schema; its end when there is none. */
static size_t keyword_place(struct slice schema, struct rng *rng) {
    size_t place = schema.size, count = 0;
    for (size_t i = 0; i < schema.size; i++) {
        if (schema.data[i] == '{' && rng_below(rng, ++count) == 0) place = i + 1;
    }
    return place;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static struct buffer text;
    struct rng rng;
    rng_seed(&rng, seed);
    buffer_reset(&text);
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    struct slice schema = slice_make(data, end ? (size_t)(end - data) : size);
    uint64_t choice = rng_below(&rng, 10);
    if (choice < 4) return LLVMFuzzerMutate(data, size, most);
    if (choice < 6) { /* another schema */
        json_grammar_object(&text, 'J', &rng);
    } else { /* this one, mostly with another keyword */
        size_t place = choice < 9 ? keyword_place(schema, &rng) : schema.size;
        buffer_append(&text, schema.data, place);
        if (place < schema.size) json_grammar_keyword(&text, &rng);
        if (place < schema.size && schema.data[place] != '}') buffer_append_byte(&text, ',');
        buffer_append(&text, schema.data + place, schema.size - place);
    }
    if (choice % 2 && end) { /* the same document */
        buffer_append(&text, end, size - schema.size);
    } else {
        buffer_append_byte(&text, '\n');
        put_document(&text, 3, &rng);
    }
    if (text.size > most) return LLVMFuzzerMutate(data, size, most);
    memcpy(data, text.data, text.size);
    return text.size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    if (!end) return 0;
    size_t schema_size = (size_t)(end - data), document_size = size - schema_size - 1;
    char *schema = mem_strndup((const char *)data, schema_size);
    char *document = mem_strndup((const char *)end + 1, document_size);
    read_both(slice_make(schema, schema_size), slice_make(document, document_size));
    free(schema);
    free(document);
    return 0;
}
