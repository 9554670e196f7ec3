#include "tests/lib/fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/message.h"
#include "registry/history.h"
#include "registry/operator.h"
#include "registry/version.h"

/* -- life --------------------------------------------------------------------------------------------------------- */

static void woken(void *data) {
    struct fixture *f = data;
    f->wakes++;
    if (f->on_wake) f->on_wake();
}

static void machine_begin(struct fixture *f) {
    struct machine_config config = {.store = scratch_config(f->folder, NULL, 0),
                                    .modules = f->modules,
                                    .updates = f->updates,
                                    .version_newest = f->newest,
                                    .mutations = f->mutations};
    struct fault fault = {0};
    if (machine_open(&config, &f->machine, &fault) != CO_OK) fprintf(stderr, "%s\n", fault.text);
    CHECK(f->machine);
    f->reader = store_reader_new(machine_store(f->machine));
}

static void machine_end(struct fixture *f) {
    store_read_done(f->reader);
    store_reader_free(f->reader);
    machine_close(f->machine);
    f->machine = NULL;
}

void fixture_open(struct fixture *f) { fixture_open_with(f, NULL); }

void fixture_open_with(struct fixture *f, const struct module *more) {
    size_t count = 0;
    *f = (struct fixture){.term = 1};
    for (; agent_modules[count].module; count++) f->modules[count] = agent_modules[count];
    CHECK(count + 1 < ARRAY_COUNT(f->modules));
    f->modules[count].module = more;
    snprintf(f->folder, sizeof f->folder, "%s", scratch_folder());
    f->updates = expiry_updates_new(woken, f);
    machine_begin(f);
}

void fixture_reopen(struct fixture *f) {
    uint64_t applied = machine_applied(f->machine);
    machine_end(f);
    machine_begin(f);
    CHECK(machine_applied(f->machine) == applied);
}

void fixture_close(struct fixture *f) {
    machine_end(f);
    expiry_updates_free(f->updates);
    arena_free(&f->arena);
    scratch_remove(f->folder);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

/* The field of a record, or NULL. */
static const void *record_field(const struct machine_result *result, const char *name, ProtobufCType type) {
    const ProtobufCMessage *message = result->message;
    const ProtobufCFieldDescriptor *field =
        message ? protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name) : NULL;
    return field && field->type == type ? (const char *)message + field->offset : NULL;
}

static const char *record_text(const struct machine_result *result, const char *name) {
    char *const *text = record_field(result, name, PROTOBUF_C_TYPE_STRING);
    return text ? *text : "";
}

static void keep(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    struct outcome *outcome = origin;
    *outcome = (struct outcome){.error = result->error, .yes = result->yes, .index = result->index};
    const uint64_t *token = record_field(result, "token", PROTOBUF_C_TYPE_UINT64);
    if (!token) token = record_field(result, "highest", PROTOBUF_C_TYPE_UINT64);
    if (token) outcome->token = *token;
    snprintf(outcome->text, sizeof outcome->text, "%s", result->text ? result->text : record_text(result, "reason"));
    snprintf(outcome->id, sizeof outcome->id, "%s", record_text(result, "id"));
}

static void apply(struct fixture *f, const struct slice *commands, size_t count, struct outcome *outcomes) {
    struct machine_input *inputs = mem_zalloc(count * sizeof *inputs);
    for (size_t i = 0; i < count; i++)
        inputs[i] = (struct machine_input){.index = machine_applied(f->machine) + 1 + i,
                                           .term = f->term,
                                           .command = commands[i],
                                           .is_command = true,
                                           .origin = &outcomes[i],
                                           .unix_ms = f->unix_ms};
    CHECK(machine_apply(f->machine, inputs, count, keep, NULL, NULL) == CO_OK);
    free(inputs);
}

void fixture_apply_all(struct fixture *f, const struct command *commands, size_t count, struct outcome *outcomes) {
    struct buffer *buffers = mem_zalloc(count * sizeof *buffers);
    struct slice *slices = mem_zalloc(count * sizeof *slices);
    for (size_t i = 0; i < count; i++) {
        machine_command(&buffers[i], commands[i].type, commands[i].message);
        slices[i] = buffer_slice(&buffers[i]);
    }
    apply(f, slices, count, outcomes);
    for (size_t i = 0; i < count; i++) buffer_free(&buffers[i]);
    free(buffers);
    free(slices);
}

struct outcome fixture_apply(struct fixture *f, uint8_t type, const ProtobufCMessage *message) {
    struct outcome outcome;
    struct command command = {type, message};
    fixture_apply_all(f, &command, 1, &outcome);
    return outcome;
}

struct outcome fixture_apply_bytes(struct fixture *f, struct slice command) {
    struct outcome outcome;
    apply(f, &command, 1, &outcome);
    return outcome;
}

int fixture_try(struct fixture *f, uint8_t type, const ProtobufCMessage *message) {
    struct buffer command = {0};
    machine_command(&command, type, message);
    struct machine_input input = {.index = machine_applied(f->machine) + 1,
                                  .term = f->term,
                                  .command = buffer_slice(&command),
                                  .is_command = true,
                                  .unix_ms = f->unix_ms};
    int rv = machine_apply(f->machine, &input, 1, NULL, NULL, NULL);
    buffer_free(&command);
    return rv;
}

void fixture_save(struct fixture *f, struct buffer *copy) {
    uint64_t index, term;
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && machine_copy(f->machine, fd, &index, &term) == CO_OK);
    size_t size = (size_t)lseek(fd, 0, SEEK_END);
    buffer_reserve(copy, size);
    CHECK(pread(fd, copy->data + copy->size, size, 0) == (ssize_t)size);
    copy->size += size;
    close(fd);
}

struct outcome fixture_restore(struct fixture *f, struct slice copy) {
    static uint8_t id[OPERATOR_RESTORE_ID] = "0123456789abcde";
    Pb__RestoreChunkCommand chunk = PB__RESTORE_CHUNK_COMMAND__INIT;
    Pb__RestoreEndCommand end = PB__RESTORE_END_COMMAND__INIT;
    chunk.id = end.id = (ProtobufCBinaryData){sizeof id, id};
    chunk.data = message_bytes(copy), end.size = copy.size;
    struct outcome outcome = fixture_apply(f, OPERATOR_RESTORE_CHUNK, &chunk.base);
    return outcome.error ? outcome : fixture_apply(f, OPERATOR_RESTORE_END, &end.base);
}

void fixture_updates(struct fixture *f, int64_t unit_ns, struct buffer *out) {
    for (struct expiry_update *update = expiry_updates_take(f->updates), *next; update; update = next) {
        next = update->next;
        if (update->kind == &history_expiry) { /* each change may begin it, whatever the module */
            free(update);
            continue;
        }
        buffer_printf(out, "%s %s %.*s %lld; ", update->kind->name, update->ended ? "ended" : "began",
                      update->size > 8 ? 8 : (int)update->size, update->name, (long long)(update->period_ns / unit_ns));
        free(update);
    }
    buffer_append_byte(out, '\0');
}

void fixture_found(struct fixture *f) {
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = MACHINE_VERSION_NEWEST, command.cluster_id = 7;
    CHECK(fixture_apply(f, CLUSTER_VERSION, &command.base).yes);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

struct query_result fixture_query(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result = {0};
    store_read_done(f->reader);
    CHECK(modules_query(machine_modules(f->machine), type->number) == type);
    CHECK(type->run(store_read(f->reader), request, &f->arena, &result) == CO_OK);
    return result;
}

void fixture_forget(struct fixture *f) {
    store_read_done(f->reader);
    arena_reset(&f->arena);
}

struct query_result fixture_ask(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request) {
    fixture_forget(f);
    return fixture_query(f, type, request);
}

uint64_t fixture_bytes(struct fixture *f, const struct query_type *type, const ProtobufCMessage *request,
                       struct buffer *out) {
    struct query_result result = fixture_query(f, type, request);
    size_t size = protobuf_c_message_get_packed_size(result.message);
    buffer_printf(out, "%s %d %zu ", type->name, result.found, size);
    buffer_reserve(out, size);
    protobuf_c_message_pack(result.message, (uint8_t *)out->data + out->size);
    out->size += size;
    fixture_forget(f);
    return result.index;
}

uint64_t fixture_sum(struct fixture *f) {
    store_read_done(f->reader);
    struct store_txn *txn = store_read(f->reader);
    uint64_t sum = store_sum(txn);
    CHECK(sum == store_scrub(txn));
    store_read_done(f->reader);
    return sum;
}
