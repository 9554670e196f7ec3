#include "txns.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "kv/fence/fence.h"

void txn_begin(struct txn *txn) {
    arena_reset(&txn->arena);
    pb__txn_command__init(&txn->command);
    txn->otherwise = false;
}

void txn_free(struct txn *txn) { arena_free(&txn->arena); }

static char *text(const char *of) { return (char *)(uintptr_t)(of ? of : ""); }
static ProtobufCBinaryData binary(const char *of) {
    return (ProtobufCBinaryData){.len = of ? strlen(of) : 0, .data = (uint8_t *)(uintptr_t)of};
}

static void *more(struct arena *arena, void *items, size_t count) {
    void **wider = arena_alloc(arena, (count + 1) * sizeof *wider);
    if (count) memcpy(wider, items, count * sizeof *wider);
    return wider;
}

static Pb__TxnOp *op_new(struct txn *txn, Pb__TxnThing thing, Pb__TxnVerb verb) {
    size_t *count = txn->otherwise ? &txn->command.n_otherwise : &txn->command.n_ops;
    Pb__TxnOp ***ops = txn->otherwise ? &txn->command.otherwise : &txn->command.ops;
    *ops = more(&txn->arena, *ops, *count);
    Pb__TxnOp *op = (*ops)[(*count)++] = arena_alloc(&txn->arena, sizeof *op);
    pb__txn_op__init(op);
    op->thing = thing, op->verb = verb;
    return op;
}

static void carry(struct txn *txn, Pb__TxnOp *op, uint8_t number, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    machine_command(&bytes, number, message);
    op->command = (ProtobufCBinaryData){bytes.size, (uint8_t *)arena_strndup(&txn->arena, bytes.data, bytes.size)};
    buffer_free(&bytes);
}

Pb__TxnOp *txn_key(struct txn *txn, Pb__TxnVerb verb, const char *key, const char *value, uint64_t number,
                   const char *session) {
    static const int verbs[] = {
        [PB__TXN_VERB__TXN_SET] = PB__KV_VERB__KV_SET,
        [PB__TXN_VERB__TXN_CAS] = PB__KV_VERB__KV_CAS,
        [PB__TXN_VERB__TXN_ACQUIRE] = PB__KV_VERB__KV_LOCK,
        [PB__TXN_VERB__TXN_RELEASE] = PB__KV_VERB__KV_UNLOCK,
        [PB__TXN_VERB__TXN_DELETE] = PB__KV_VERB__KV_DELETE,
        [PB__TXN_VERB__TXN_DELETE_TREE] = PB__KV_VERB__KV_DELETE_TREE,
        [PB__TXN_VERB__TXN_DELETE_CAS] = PB__KV_VERB__KV_DELETE_CAS,
    };
    Pb__TxnOp *op = op_new(txn, PB__TXN_THING__TXN_KEY, verb);
    op->key = binary(key), op->index = number, op->session = text(session);
    if (verb >= PB__TXN_VERB__TXN_GET && verb <= PB__TXN_VERB__TXN_CHECK_NOT_EXISTS) return op;
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = (Pb__KvVerb)verbs[verb];
    command.key = binary(key), command.value = binary(value), command.session = text(session);
    if (verb == PB__TXN_VERB__TXN_CAS || verb == PB__TXN_VERB__TXN_DELETE_CAS) command.index = number;
    else command.flags = number;
    carry(txn, op, KV_APPLY, &command.base);
    return op;
}

static bool sets(Pb__TxnVerb verb) { return verb == PB__TXN_VERB__TXN_SET || verb == PB__TXN_VERB__TXN_CAS; }

/* One of the three is what is registered or removed. */
static Pb__TxnOp *record_op(struct txn *txn, Pb__TxnThing thing, Pb__TxnVerb verb, Pb__Node *node, Pb__Service *service,
                            Pb__Check *check, uint64_t index) {
    Pb__TxnOp *op = op_new(txn, thing, verb);
    op->node = node->name, op->index = index;
    op->id = service ? service->id : check ? check->check_id : text(NULL);
    if (sets(verb)) {
        Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
        command.node = node, command.skip_node_update = service || check;
        command.service = service, command.checks = &check, command.n_checks = check != NULL;
        carry(txn, op, CATALOG_REGISTER, &command.base);
    } else if (verb != PB__TXN_VERB__TXN_GET) {
        Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
        command.node = node->name;
        if (service) command.service_id = service->id;
        if (check) command.check_id = check->check_id;
        carry(txn, op, CATALOG_DEREGISTER, &command.base);
    }
    return op;
}

Pb__TxnOp *txn_node(struct txn *txn, Pb__TxnVerb verb, const char *node, const char *address, uint64_t index) {
    Pb__Node record = PB__NODE__INIT;
    record.name = text(node), record.address = text(address);
    return record_op(txn, PB__TXN_THING__TXN_NODE, verb, &record, NULL, NULL, index);
}

Pb__TxnOp *txn_service(struct txn *txn, Pb__TxnVerb verb, const char *node, const char *id, uint32_t port,
                       uint64_t index) {
    Pb__Node on = PB__NODE__INIT;
    Pb__Service record = PB__SERVICE__INIT;
    on.name = text(node);
    record.id = record.name = text(id), record.port = port;
    return record_op(txn, PB__TXN_THING__TXN_SERVICE, verb, &on, &record, NULL, index);
}

Pb__TxnOp *txn_check(struct txn *txn, Pb__TxnVerb verb, const char *node, const char *id, Pb__Status status,
                     uint64_t index) {
    Pb__Node on = PB__NODE__INIT;
    Pb__Check record = PB__CHECK__INIT;
    on.name = text(node);
    record.check_id = record.name = text(id), record.status = status;
    return record_op(txn, PB__TXN_THING__TXN_CHECK, verb, &on, NULL, &record, index);
}

Pb__TxnOp *txn_session_end(struct txn *txn, const char *id) {
    Pb__TxnOp *op = op_new(txn, PB__TXN_THING__TXN_SESSION, PB__TXN_VERB__TXN_DELETE);
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = text(id);
    carry(txn, op, SESSION_DESTROY, &command.base);
    return op;
}

Pb__TxnOp *txn_fence(struct txn *txn, const char *resource, uint64_t token, const char *lock) {
    Pb__TxnOp *op = op_new(txn, PB__TXN_THING__TXN_FENCE, PB__TXN_VERB__TXN_SET);
    Pb__FenceCheckCommand command = PB__FENCE_CHECK_COMMAND__INIT;
    command.resource = op->id = text(resource), command.token = token, command.lock = text(lock);
    carry(txn, op, FENCE_CHECK, &command.base);
    return op;
}

static Pb__TxnCompare *compare_new(struct txn *txn) {
    Pb__TxnCommand *command = &txn->command;
    command->conditional = true;
    command->compares = more(&txn->arena, command->compares, command->n_compares);
    Pb__TxnCompare *compare = command->compares[command->n_compares++] = arena_alloc(&txn->arena, sizeof *compare);
    pb__txn_compare__init(compare);
    return compare;
}

Pb__TxnCompare *txn_compare_key(struct txn *txn, const char *key, Pb__TxnField field, Pb__TxnRelation relation,
                                uint64_t number, const char *than) {
    Pb__TxnCompare *compare = compare_new(txn);
    compare->key = binary(key), compare->field = field, compare->relation = relation;
    compare->number = number, compare->text = binary(than);
    return compare;
}

Pb__TxnCompare *txn_compare_thing(struct txn *txn, Pb__TxnThing thing, const char *node, const char *id,
                                  Pb__TxnField field, uint64_t number) {
    Pb__TxnCompare *compare = compare_new(txn);
    compare->thing = thing, compare->field = field, compare->number = number;
    compare->node = text(node), compare->id = text(id);
    return compare;
}

/* -- the answer --------------------------------------------------------------------------------------------------- */

static void result_text(struct buffer *out, const Pb__TxnResult *result) {
    const Pb__KvEntry *kv = result->kv;
    if (kv) buffer_printf(out, " %.*s", (int)(kv->key.len > 60 ? 60 : kv->key.len), (const char *)kv->key.data);
    if (kv && kv->value.len)
        buffer_printf(out, "=%.*s", (int)(kv->value.len > 60 ? 60 : kv->value.len), (const char *)kv->value.data);
    if (result->node) buffer_printf(out, " node %s %s", result->node->name, result->node->address);
    if (result->service)
        buffer_printf(out, " service %s/%s:%u", result->service->node, result->service->id, result->service->port);
    if (result->check)
        buffer_printf(out, " check %s/%s:%s", result->check->node, result->check->check_id,
                      catalog_status_text(result->check->status));
}

const char *txn_answer_text(const Pb__TxnAnswer *answer, bool conditional) {
    static char line[4096];
    struct buffer out = {0};
    if (conditional) buffer_append_text(&out, answer->succeeded ? "then: " : "else: ");
    buffer_append_text(&out, answer->n_errors ? "failed" : "ok");
    for (size_t i = 0; i < answer->n_results; i++) result_text(&out, answer->results[i]);
    for (size_t i = 0; i < answer->n_errors; i++)
        buffer_printf(&out, "%s %u: %s", i ? ";" : "", answer->errors[i]->op, answer->errors[i]->what);
    snprintf(line, sizeof line, "%.*s", (int)out.size, out.data);
    buffer_free(&out);
    return line;
}

const char *txn_do(struct fixture *world, const struct txn *txn) {
    const ProtobufCMessage *message;
    struct outcome outcome = answer_of(world, TXN_APPLY, &txn->command.base, &message);
    if (!message) return arena_printf(&world->arena, "refused: %s", outcome.text);
    const Pb__TxnAnswer *answer = (const Pb__TxnAnswer *)message;
    cr_assert_eq(outcome.yes, answer->n_errors == 0);
    return txn_answer_text(answer, txn->command.conditional);
}

const char *txn_ask(struct fixture *world, const struct txn *txn) {
    struct query_result result = fixture_ask(world, &query_txn, &txn->command.base);
    return txn_answer_text((const Pb__TxnAnswer *)result.message, txn->command.conditional);
}
