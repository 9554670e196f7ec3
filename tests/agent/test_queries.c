/* All queries of the program: their numbers go over the wire, and so do their requests and results. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "acl/key.h"
#include "tests/lib/fixture.h"

enum { QUERIES_MOST = 256 };

static const struct query_type *all[QUERIES_MOST];
static size_t count;

static void take(const struct module *module) {
    for (size_t i = 0; module->queries && module->queries[i]; i++) {
        cr_assert_lt(count, QUERIES_MOST);
        all[count++] = module->queries[i];
    }
}

static struct fixture world;

static void begin(void) {
    struct acl_key *key;
    fixture_open(&world);
    cr_assert_eq(acl_key_make(&key, NULL), CO_OK);
    acl_key_use(key); /* by which secrets are looked up */
    const struct modules *modules = machine_modules(world.machine);
    for (size_t i = 0; i < modules_count(modules); i++) take(modules_at(modules, i));
}

static void end(void) {
    acl_key_use(NULL);
    fixture_close(&world);
}
TestSuite(queries, .init = begin, .fini = end);

Test(queries, have_numbers_and_messages) {
    cr_assert_gt(count, 10);
    for (size_t i = 0; i < count; i++) {
        cr_expect(all[i]->number > 0 && all[i]->name && all[i]->watched && all[i]->run, "%zu", i);
        cr_expect(all[i]->request && (all[i]->result || all[i]->result_of), "%s: its messages", all[i]->name);
        cr_expect_eq(modules_query(machine_modules(world.machine), all[i]->number), all[i], "%s: found by its number",
                     all[i]->name);
        for (size_t k = 0; k < i; k++)
            cr_expect(all[k]->number != all[i]->number && strcmp(all[k]->name, all[i]->name) != 0, "%s and %s",
                      all[k]->name, all[i]->name);
    }
    cr_expect_null(modules_query(machine_modules(world.machine), 0));
    cr_expect_null(modules_query(machine_modules(world.machine), UINT16_MAX));
}

/* One request of each: every field is filled with `text`. */
static ProtobufCMessage *request_of(const struct query_type *type, const char *text, struct arena *arena) {
    ProtobufCMessage *request = arena_zalloc(arena, type->request->sizeof_message);
    protobuf_c_message_init(type->request, request);
    for (unsigned i = 0; i < type->request->n_fields && text; i++) {
        const ProtobufCFieldDescriptor *field = &type->request->fields[i];
        void *at = (char *)request + field->offset;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) continue;
        if (field->type == PROTOBUF_C_TYPE_STRING) *(const char **)at = text;
        if (field->type == PROTOBUF_C_TYPE_BYTES)
            *(ProtobufCBinaryData *)at = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    }
    return request;
}

/* Peers may ask anything: empty requests, and fields longer than any name. */
Test(queries, take_any_request_and_give_what_they_say) {
    static char lengthy[100001];
    memset(lengthy, 'A', sizeof lengthy - 1);
    const char *texts[] = {NULL, "", "x", lengthy};
    struct store_reader *reader = store_reader_new(machine_store(world.machine));
    struct arena arena = {0};
    for (size_t i = 0; i < count * 4; i++) {
        const struct query_type *type = all[i / 4];
        ProtobufCMessage *request = request_of(type, texts[i % 4], &arena);
        struct watch_key watched = type->watched(request);
        struct query_result result = {0};
        (void)watch_generation(machine_watches(world.machine), watched);
        const ProtobufCMessageDescriptor *gives = query_result_type(type, request);
        cr_expect_eq(type->run(store_read(reader), request, &arena, &result), gives ? CO_OK : CO_INVALID, "%s",
                     type->name);
        cr_expect(!result.message || result.message->descriptor == gives, "%s: its result", type->name);
        cr_expect(!result.found || result.message, "%s: found, and there is none", type->name);
        store_read_done(reader);
        arena_reset(&arena);
    }
    arena_free(&arena);
    store_reader_free(reader);
}
