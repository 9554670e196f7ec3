/* Transactions as a module: the command, the query, and the answer of both. */
#include "base/buffer.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "kv/txn/txn_internal.h"

_Static_assert(TXN_APPLY >= 128 && TXN_APPLY <= UINT8_MAX, "a command of kv (registry/module.h)");
_Static_assert(TXN_APPLY == KV_BY_TRANSACTION, "the history of keys knows it by this");

/* -- the answer --------------------------------------------------------------------------------------------------- */

static void *grown(struct arena *arena, void *items, size_t count, size_t *room, size_t size) {
    if (count < *room) return items;
    *room = *room ? 2 * *room : 8;
    CHECK(count < *room);
    void *wider = arena_alloc(arena, *room * size);
    if (count) memcpy(wider, items, count * size);
    return wider;
}

void txn_fail(struct txn_run *run, const char *what) {
    Pb__TxnAnswer *answer = run->answer;
    Pb__TxnError *error = arena_alloc(run->arena, sizeof *error);
    pb__txn_error__init(error);
    error->op = run->op, error->what = (char *)(uintptr_t)what;
    answer->errors = grown(run->arena, answer->errors, answer->n_errors, &run->errors_room, sizeof(void *));
    answer->errors[answer->n_errors++] = error;
}

void txn_too_much(struct txn_run *run) {
    if (run->tx) txn_failf(run, "the results of a transaction that writes have at most %d bytes", TXN_RESULTS_MAX);
    else txn_failf(run, "the results of a transaction have at most %d bytes", TXN_READ_MAX);
}

Pb__TxnResult *txn_result(struct txn_run *run, size_t bytes) {
    Pb__TxnAnswer *answer = run->answer;
    if (answer->n_errors || run->hidden) return NULL;
    run->bytes += bytes;
    if (run->bytes > (run->tx ? TXN_RESULTS_MAX : TXN_READ_MAX)) {
        txn_too_much(run);
        return NULL;
    }
    Pb__TxnResult *result = arena_alloc(run->arena, sizeof *result);
    pb__txn_result__init(result);
    answer->results = grown(run->arena, answer->results, answer->n_results, &run->results_room, sizeof(void *));
    answer->results[answer->n_results++] = result;
    return result;
}

const char *txn_quoted(struct txn_run *run, struct slice text) {
    static const char escaped[] = "\a\b\f\n\r\t\v\"\\", as[] = "abfnrtv\"\\";
    struct buffer out = {0};
    buffer_append_byte(&out, '"');
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        const char *at = c ? strchr(escaped, c) : NULL;
        if (at) buffer_append_byte(&out, '\\'), buffer_append_byte(&out, as[at - escaped]);
        else if (c < ' ' || c == 0x7f) buffer_printf(&out, "\\x%02x", c);
        else buffer_append_byte(&out, (char)c);
    }
    buffer_append_byte(&out, '"');
    const char *quoted = arena_strndup(run->arena, out.data, out.size);
    buffer_free(&out);
    return quoted;
}

/* -- running ------------------------------------------------------------------------------------------------------ */

static int choose(struct txn_run *run, const Pb__TxnCommand *command) {
    run->answer->succeeded = true;
    for (size_t i = 0; i < command->n_compares && run->answer->succeeded; i++) {
        bool holds = false;
        int rv = txn_compare(run, command->compares[i], &holds);
        if (rv != CO_OK) return rv;
        run->answer->succeeded = holds;
    }
    return CO_OK;
}

/* Runs all operations of the list that the comparisons chose. CO_OK: the answer has their results and failures; else
 * the store failed. */
static int run_all(struct txn_run *run, const Pb__TxnCommand *command) {
    int rv = command->conditional ? choose(run, command) : CO_OK;
    bool otherwise = command->conditional && !run->answer->succeeded;
    size_t count = otherwise ? command->n_otherwise : command->n_ops;
    Pb__TxnOp *const *ops = otherwise ? command->otherwise : command->ops;
    for (size_t i = 0; i < count && rv == CO_OK; i++) {
        run->op = (uint32_t)i;
        rv = txn_op(run, ops[i]);
    }
    if (run->answer->n_errors) run->answer->n_results = 0;
    return rv;
}

static struct txn_run run_new(struct machine_tx *tx, struct store_txn *store, struct arena *arena) {
    struct txn_run run = {.tx = tx, .store = store, .arena = arena};
    run.answer = arena_alloc(arena, sizeof *run.answer);
    pb__txn_answer__init(run.answer);
    return run;
}

static bool too_many(const Pb__TxnCommand *command) {
    return command->n_ops > TXN_OPS_MAX || command->n_otherwise > TXN_OPS_MAX || command->n_compares > TXN_OPS_MAX;
}

static int txn_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__TxnCommand *command = request;
    if (too_many(command)) return machine_refuse(result, CO_INVALID, "too many operations in a transaction");
    struct txn_run run = run_new(tx, tx->store, tx->arena);
    struct machine_point point = machine_point_set(tx);
    int rv = run_all(&run, command);
    result->yes = rv == CO_OK && run.answer->n_errors == 0;
    bool keep = result->yes || (rv == CO_OK && tx->mutations & MUTATE_TXN_HALF);
    if (keep) machine_point_keep(tx);
    else machine_point_back(tx, &point);
    if (rv == CO_OK) result->message = &run.answer->base;
    return rv;
}

static bool list_writes(Pb__TxnOp *const *ops, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (ops[i]->command.len) return true;
    return false;
}

bool txn_writes(const Pb__TxnCommand *command) {
    return list_writes(command->ops, command->n_ops) || list_writes(command->otherwise, command->n_otherwise);
}

/* -- the query ---------------------------------------------------------------------------------------------------- */

/* Clients ask once, without waiting; a client that waited all the same would wait for this key. */
static struct watch_key watched(const ProtobufCMessage *request) {
    const Pb__TxnCommand *command = (const Pb__TxnCommand *)request;
    struct slice key = {"", 0};
    if (command->n_ops && command->ops[0]->key.len <= KV_KEY_MAX)
        key = slice_make(command->ops[0]->key.data, command->ops[0]->key.len);
    return (struct watch_key){SPACE_KEY, key};
}

static int query_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    struct txn_run run = run_new(NULL, txn, arena);
    const Pb__TxnCommand *command = (const Pb__TxnCommand *)request;
    *result = (struct query_result){.found = true, .message = &run.answer->base};
    if (too_many(command)) {
        txn_fail(&run, "too many operations in a transaction");
        return CO_OK;
    }
    return run_all(&run, command);
}

/* Runs anew as far as the token may. */
static int query_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    if (too_many((const Pb__TxnCommand *)request)) return CO_OK; /* the answer says so, and nothing else */
    ProtobufCMessage *marked = message_copy(check->arena, request);
    int rv = txn_may(check, txn, marked);
    return rv == CO_OK ? query_run(txn, marked, check->arena, result) : rv;
}

const struct query_type query_txn = {.number = 128,
                                     .name = "txn",
                                     .request = &pb__txn_command__descriptor,
                                     .result = &pb__txn_answer__descriptor,
                                     .watched = watched,
                                     .run = query_run,
                                     .show = query_show};

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = TXN_APPLY,
     .name = "txn",
     .request = &pb__txn_command__descriptor,
     .result = &pb__txn_answer__descriptor,
     .marks = true,
     .may = txn_may,
     .apply = txn_apply},
    {0},
};
static const struct query_type *const queries[] = {&query_txn, NULL};

const struct module txn_module = {.name = "txn", .commands = commands, .queries = queries};
