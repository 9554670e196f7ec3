/* The table of simulated modules at work: whose a command is, what it does to the models, what a read sees. */
#include "tests/sim/modules.h"

#include <stdlib.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/holding/holding.h"
#include "kv/stream/stream.h"
#include "lb/coordinate.h"
#include "multi-dc/failover.h"
#include "multi-dc/global.h"
#include "multi-dc/keys.h"
#include "registry/machine.h"

#define P PRIu64

#define SIM_ROW(name) &sim_##name,
const struct sim_module *const sim_modules[] = {SIM_MODULES(SIM_ROW) NULL};
_Static_assert(ARRAY_COUNT(sim_modules) <= SIM_MODULES_MAX, "there is no room for so many");

unsigned sim_module_number(const struct sim_module *module) {
    unsigned number = 0;
    while (sim_modules[number] != module) CHECK(sim_modules[number++]);
    return number;
}

/* Those that no client here writes to: they promise nothing that the checkers could judge. Or have nothing but a query for
 * people. */
static bool is_left_out(const struct module *module) {
    return module == &coordinate_module || module == &region_module || module == &global_module ||
           module == &failover_module || module == &keys_module || module == &holding_module;
}

static bool is_simulated(const struct module *module) {
    for (size_t i = 0; sim_modules[i]; i++)
        if (sim_modules[i]->module == module) return true;
    return false;
}

void modules_begin(struct sim *sim) {
    stream_mutations = sim->options.module_mutations;
    for (const struct module_entry *entry = agent_modules; entry->module; entry++)
        CHECK(is_simulated(entry->module) || is_left_out(entry->module));
    for (size_t i = 0; sim_modules[i]; i++) sim->models[i] = mem_zalloc(sim_modules[i]->model_size + 1);
}

void modules_end(struct sim *sim) {
    for (size_t i = 0; sim_modules[i]; i++) {
        if (sim_modules[i]->end) sim_modules[i]->end(sim);
        free(sim->models[i]);
    }
}

void *sim_model(struct sim *sim, const struct sim_module *module) { return sim->models[sim_module_number(module)]; }

void sim_notify(struct sim *sim, const struct sim_notice *notice) {
    for (size_t i = 0; sim_modules[i]; i++)
        if (sim_modules[i]->on_notice) sim_modules[i]->on_notice(sim, notice);
}

/* -- commands -- */

static const struct module_command *row_of(const struct module *module, uint8_t number) {
    for (const struct module_command *row = module->commands; row && row->number; row++)
        if (row->number == number) return row;
    return NULL;
}

/* The module that a command belongs to; NULL: one that is not simulated. */
static const struct sim_module *module_of(struct slice bytes, const struct module_command **row) {
    for (size_t i = 0; bytes.size >= 2 && sim_modules[i]; i++)
        if ((*row = row_of(sim_modules[i]->module, (uint8_t)bytes.data[0])) != NULL) return sim_modules[i];
    return NULL;
}

struct raft_data *op_bytes(const struct op *op) {
    struct arena arena = {0};
    struct buffer bytes = {0};
    uint8_t number = 0;
    const ProtobufCMessage *message = op->module->command(op, &arena, &number);
    machine_command(&bytes, number, message);
    struct raft_data *data = raft_data_new(bytes.data, bytes.size);
    buffer_free(&bytes);
    arena_free(&arena);
    return data;
}

static const struct sim_module *decode(const struct raft_entry *entry, struct arena *arena,
                                       struct sim_applied *applied) {
    struct slice bytes = raft_entry_bytes(entry);
    const struct module_command *row = NULL;
    const struct sim_module *module = entry->type == RAFT_ENTRY_COMMAND ? module_of(bytes, &row) : NULL;
    if (!module) return NULL;
    applied->number = row->number;
    applied->command = machine_decode(row->request, slice_make(bytes.data + 2, bytes.size - 2), arena);
    return applied->command ? module : NULL;
}

uint64_t command_op(const struct raft_entry *entry) {
    struct arena arena = {0};
    struct sim_applied applied = {0};
    const struct sim_module *module = decode(entry, &arena, &applied);
    uint64_t op = module && module->made_by ? module->made_by(applied.number, applied.command) : 0;
    arena_free(&arena);
    return op;
}

/* -- what they do -- */

static void applied_first(struct server *server, const struct raft_entry *entry, const struct machine_result *result) {
    struct sim *sim = server->sim;
    struct arena arena = {0};
    struct sim_applied applied = {.server = server, .index = entry->index, .result = result};
    const struct sim_module *module = decode(entry, &arena, &applied);
    uint64_t id = sim->chronicle->committed[entry->index - 1].seen->op;
    if (id) applied.op = op_get(sim, id);
    if (module) {
        struct sim_expected want = module->apply(sim, &applied);
        if (want.yes != result->yes || want.error != (result->error != CO_OK))
            sim_violation(sim, RULE_MODEL, "%s command %" P " at %" P ": %s%s, expected %s%s", module->name, id,
                          entry->index, result->yes ? "yes" : "no", result->error ? ", refused" : "",
                          want.yes ? "yes" : "no", want.error ? ", refused" : "");
    }
    arena_free(&arena);
}

static const char *outcome(bool yes, int error) { return error ? co_strerror(error) : yes ? "yes" : "no"; }

void model_applied(struct server *server, const struct raft_entry *entry, const struct machine_result *result) {
    struct sim *sim = server->sim;
    struct truth *truth = &sim->chronicle->committed[entry->index - 1];
    uint64_t record = result->record.size ? hash64(result->record.data, result->record.size) : 0;
    if (result->index != entry->index)
        sim_violation(sim, RULE_STATE, "s%" P ": the result of %" P " says %" P, server->id, entry->index,
                      result->index);
    if (!truth->applied) {
        truth->applied = true;
        truth->yes = result->yes;
        truth->error = result->error;
        truth->record = record;
        if (entry->type == RAFT_ENTRY_COMMAND) applied_first(server, entry, result);
    } else if (truth->yes != result->yes || truth->error != result->error || truth->record != record) {
        sim_violation(sim, RULE_STATE, "s%" P ": the result of %" P " is %s, elsewhere it was %s%s", server->id,
                      entry->index, outcome(result->yes, result->error), outcome(truth->yes, truth->error),
                      truth->record != record ? ", with another record" : "");
    }
}

/* -- reads -- */

void sim_query(struct server *server, const struct query_type *type, const ProtobufCMessage *request,
               void (*seen)(void *data, const struct query_result *result), void *data) {
    struct arena arena = {0};
    struct query_result result = {0};
    CHECK(type->run(store_read(server->machine.reader), request, &arena, &result) == CO_OK);
    seen(data, &result);
    store_read_done(server->machine.reader);
    arena_free(&arena);
}

static void op_saw(void *data, const struct query_result *result) {
    struct op *op = data;
    op->found = result->found;
    op->seen_index = result->index;
    op->quiet = false;
    op->module->seen(op, result);
}

void op_look(struct server *server, struct op *op) {
    struct arena arena = {0};
    const struct query_type *type = NULL;
    const ProtobufCMessage *request = op->module->request(op, &arena, &type);
    sim_query(server, type, request, op_saw, op);
    arena_free(&arena);
}

void op_judge(struct server *server, struct op *op) {
    op->server = server->slot;
    op_look(server, op);
    op->index = server->machine.applied;
    op->module->check_read(server->sim, op);
}

size_t op_things(const struct op *op, struct arena *arena, struct watch_key things[OP_THINGS_MAX]) {
    const struct query_type *type = NULL;
    const ProtobufCMessage *request = op->module->request(op, arena, &type);
    size_t count = 0;
    things[count++] = type->watched(request);
    for (struct watch_key own; type->own && (own = type->own(request, count - 1)).space;) {
        CHECK(count < OP_THINGS_MAX);
        things[count++] = own;
    }
    return count;
}
