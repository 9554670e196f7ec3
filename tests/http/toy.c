#include "toy.h"

#include "kv/session/session.h"
#include "tests/lib/open_to_all.h"

enum { TOYS = 61 };
static const struct slice everything = SLICE_LITERAL("");

static int apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__ToyPutCommand *command = request;
    Pb__Toy *toy = command->toy;
    Pb__Session *session = NULL;
    if (!toy) return machine_refuse(result, CO_INVALID, "a toy is wanted");
    if (toy->count == 99) return machine_refuse(result, CO_CONFLICT, "somebody else has it");
    int rv = command->session ? session_ensure(tx, command->session, result, &session) : CO_OK;
    if (rv != CO_OK || result->error) return rv;
    toy->session_id = session ? session->id : (char *)(uintptr_t) "";
    toy->create_index = tx->index;
    size_t size = pb__toy__get_packed_size(toy);
    uint8_t *bytes = arena_alloc(tx->arena, size);
    pb__toy__pack(toy, bytes);
    store_put(tx->store, TOYS, slice_text(toy->name), slice_make(bytes, size));
    machine_changed(tx, SPACE_TOYS, everything, false);
    result->yes = true;
    result->message = &toy->base;
    return CO_OK;
}

static struct watch_key watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_TOYS, everything};
}

static int one(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    struct slice bytes;
    int rv = store_get(txn, TOYS, slice_text(((const Pb__ToyRequest *)request)->name), &bytes);
    *result = (struct query_result){.index = machine_change_index(txn, SPACE_TOYS, everything), .found = rv == CO_OK};
    if (rv == CO_OK) result->message = machine_decode(&pb__toy__descriptor, bytes, arena);
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

static int all(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    (void)request;
    Pb__ToysResult *toys = arena_alloc(arena, sizeof *toys);
    struct store_cursor cursor;
    pb__toys_result__init(toys);
    toys->toys = arena_alloc(arena, (store_count(txn, TOYS) + 1) * sizeof *toys->toys);
    for (store_cursor_open(&cursor, txn, TOYS, everything); cursor.valid; store_cursor_next(&cursor))
        toys->toys[toys->n_toys++] = machine_decode(&pb__toy__descriptor, cursor.value, arena);
    store_cursor_close(&cursor);
    *result = (struct query_result){
        .index = machine_change_index(txn, SPACE_TOYS, everything), .found = true, .message = &toys->base};
    return CO_OK;
}

const struct query_type query_toy = {.number = 200,
                                     .name = "toy",
                                     .request = &pb__toy_request__descriptor,
                                     .result = &pb__toy__descriptor,
                                     .watched = watched,
                                     .run = one,
                                     .show = open_show};
const struct query_type query_toys = {.number = 201,
                                      .name = "toys",
                                      .request = &pb__toy_list_request__descriptor,
                                      .result = &pb__toys_result__descriptor,
                                      .watched = watched,
                                      .run = all,
                                      .show = open_show};

static const struct module_command commands[] = {{.number = TOY_PUT,
                                                  .name = "toy-put",
                                                  .request = &pb__toy_put_command__descriptor,
                                                  .result = &pb__toy__descriptor,
                                                  .may = open_may,
                                                  .apply = apply},
                                                 {0}};
static const struct store_table tables[] = {{TOYS, "toys"}, {0}};
static const struct module_space spaces[] = {{SPACE_TOYS, "toys"}, {0}};
static const struct query_type *const queries[] = {&query_toy, &query_toys, NULL};
const struct module toy_module = {
    .name = "toy", .commands = commands, .tables = tables, .spaces = spaces, .queries = queries};
