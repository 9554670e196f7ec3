/* Transactions: clients send random ones over a few keys of their own, plain and with a comparison; one that fails
 * leaves nothing. A list of versions for each key, so that a read of all keys, and a blocking one of one key, can be
 * judged at any index. */
#include "kv/txn/txn.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "kv/keys/kv.h"
#include "tests/sim/modules.h"
#include "tests/sim/versions.h"

#define P PRIu64

enum { KEYS = 4, STEPS = 6 };
enum kind { DO, LOOK_ALL, LOOK_ONE };

struct step {
    uint8_t verb, key;
};
struct txn_own {
    /* Of a transaction: the first `split` are those of Then, if it compares `key`. Of LOOK_ONE: `key`. */
    uint8_t count, split, key;
    bool compares;
    struct step steps[STEPS];
    uint64_t index[KEYS]; /* a guess of each, or what was seen; 0: there is none */
};
static const struct txn_own *own_of(const struct op *op) { return OP_AS(const struct txn_own, op); }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct known {
    uint64_t index[KEYS], looked[KEYS]; /* as of the last LOOK_ALL; of the last LOOK_ONE */
};

static uint8_t any_verb(struct sim_turn *turn) {
    static const uint8_t often[] = {
        PB__TXN_VERB__TXN_SET,         PB__TXN_VERB__TXN_SET,        PB__TXN_VERB__TXN_SET,
        PB__TXN_VERB__TXN_CAS,         PB__TXN_VERB__TXN_DELETE,     PB__TXN_VERB__TXN_DELETE_CAS,
        PB__TXN_VERB__TXN_CHECK_INDEX, PB__TXN_VERB__TXN_GET,        PB__TXN_VERB__TXN_CHECK_NOT_EXISTS,
        PB__TXN_VERB__TXN_DELETE,      PB__TXN_VERB__TXN_DELETE_TREE};
    return often[turn_random(turn, 0, ARRAY_COUNT(often) - (turn_chance(turn, 900) ? 2 : 1))];
}

static bool generate(struct sim_turn *turn, struct op *op) {
    struct txn_own *own = OP_AS(struct txn_own, op);
    op->module = &sim_txn;
    own->key = (uint8_t)turn_random(turn, 0, KEYS - 1);
    op->kind = turn_chance(turn, 500) ? DO : turn_chance(turn, 600) ? LOOK_ALL : LOOK_ONE;
    op->way = op->kind == DO ? OP_WRITE : OP_READ;
    if (op->kind == DO) {
        own->count = (uint8_t)turn_random(turn, 1, STEPS);
        own->compares = turn_chance(turn, 300);
        own->split = own->compares ? (uint8_t)turn_random(turn, 0, own->count) : own->count;
        for (unsigned i = 0; i < own->count; i++)
            own->steps[i] = (struct step){any_verb(turn), (uint8_t)turn_random(turn, 0, KEYS - 1)};
        return true;
    }
    op->stale = turn_chance(turn, 300);
    if (op->kind == LOOK_ONE && turn_chance(turn, 700)) op->wait_us = turn_random(turn, 50, 1000) * MS;
    return true;
}

static bool complete(void *data, struct op *op) {
    const struct known *known = data;
    struct txn_own *own = OP_AS(struct txn_own, op);
    if (op->kind == DO) memcpy(own->index, known->index, sizeof own->index);
    if (op->kind == LOOK_ONE) op->known_index = known->looked[own->key];
    if (op->known_index == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    if (op->state != OP_DONE) return;
    if (op->kind == LOOK_ALL) memcpy(known->index, own_of(op)->index, sizeof known->index);
    if (op->kind == LOOK_ONE) known->looked[own_of(op)->key] = op->seen_index;
}

/* -- bytes ------------------------------------------------------------------------------------------------------------ */

static ProtobufCBinaryData key_name(uint32_t key, struct arena *arena) {
    char *name = arena_printf(arena, "t/%u", key);
    return (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
}

static void carry(Pb__TxnOp *op, const Pb__KvCommand *command, struct arena *arena) {
    struct buffer bytes = {0};
    machine_command(&bytes, KV_APPLY, &command->base);
    op->command = (ProtobufCBinaryData){bytes.size, (uint8_t *)arena_strndup(arena, bytes.data, bytes.size)};
    buffer_free(&bytes);
}

/* Every value is another, so that each write changes something. */
static Pb__TxnOp *step_op(const struct op *op, unsigned number, struct arena *arena) {
    static const Pb__KvVerb verbs[] = {[PB__TXN_VERB__TXN_SET] = PB__KV_VERB__KV_SET,
                                       [PB__TXN_VERB__TXN_CAS] = PB__KV_VERB__KV_CAS,
                                       [PB__TXN_VERB__TXN_DELETE] = PB__KV_VERB__KV_DELETE,
                                       [PB__TXN_VERB__TXN_DELETE_TREE] = PB__KV_VERB__KV_DELETE_TREE,
                                       [PB__TXN_VERB__TXN_DELETE_CAS] = PB__KV_VERB__KV_DELETE_CAS};
    const struct step *step = &own_of(op)->steps[number];
    Pb__TxnOp *made = arena_alloc(arena, sizeof *made);
    pb__txn_op__init(made);
    made->verb = step->verb, made->index = own_of(op)->index[step->key];
    made->key = key_name(step->key, arena);
    if (step->verb == PB__TXN_VERB__TXN_DELETE_TREE) made->key.len = 2; /* all of them */
    if (step->verb >= PB__TXN_VERB__TXN_GET && step->verb <= PB__TXN_VERB__TXN_CHECK_NOT_EXISTS) return made;
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    char *value = arena_printf(arena, "%" P ".%u", op->id, number);
    command.verb = verbs[step->verb], command.index = made->index, command.key = made->key;
    command.value = (ProtobufCBinaryData){strlen(value), (uint8_t *)value};
    carry(made, &command, arena);
    return made;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    const struct txn_own *own = own_of(op);
    Pb__TxnCommand *txn = arena_alloc(arena, sizeof *txn);
    pb__txn_command__init(txn);
    txn->ops = arena_alloc(arena, 2 * STEPS * sizeof(Pb__TxnOp *)), txn->otherwise = txn->ops + STEPS;
    for (unsigned i = 0; i < own->count; i++) {
        Pb__TxnOp *made = step_op(op, i, arena);
        if (i < own->split) txn->ops[txn->n_ops++] = made;
        else txn->otherwise[txn->n_otherwise++] = made;
    }
    txn->conditional = own->compares;
    if (own->compares) {
        Pb__TxnCompare *compare = arena_alloc(arena, sizeof *compare);
        pb__txn_compare__init(compare);
        compare->key = key_name(own->key, arena);
        compare->field = PB__TXN_FIELD__TXN_MODIFY_INDEX, compare->number = own->index[own->key];
        txn->compares = arena_alloc(arena, sizeof(Pb__TxnCompare *));
        txn->compares[txn->n_compares++] = compare;
    }
    op_label(&txn->base, op->id, arena);
    *number = TXN_APPLY;
    return &txn->base;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    if (op->kind == LOOK_ONE) {
        Pb__KvRequest *one = arena_alloc(arena, sizeof *one);
        pb__kv_request__init(one);
        one->key = key_name(own_of(op)->key, arena);
        *type = &query_kv_get;
        return &one->base;
    }
    Pb__TxnCommand *all = arena_alloc(arena, sizeof *all);
    Pb__TxnOp *get = arena_alloc(arena, sizeof *get);
    pb__txn_command__init(all), pb__txn_op__init(get);
    get->verb = PB__TXN_VERB__TXN_GET_TREE;
    get->key = key_name(0, arena), get->key.len = 2;
    all->ops = arena_alloc(arena, sizeof(Pb__TxnOp *));
    all->ops[all->n_ops++] = get;
    *type = &query_txn;
    return &all->base;
}

static void seen(struct op *op, const struct query_result *result) {
    struct txn_own *own = OP_AS(struct txn_own, op);
    if (op->kind == LOOK_ONE) return;
    const Pb__TxnAnswer *answer = (const Pb__TxnAnswer *)result->message;
    memset(own->index, 0, sizeof own->index);
    for (size_t i = 0; i < answer->n_results; i++) {
        const Pb__KvEntry *entry = answer->results[i]->kv;
        unsigned key = entry && entry->key.len == 3 ? (unsigned)entry->key.data[2] - '0' : KEYS;
        if (key < KEYS) own->index[key] = entry->modify_index;
    }
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct version { /* of a key, from `index` on */
    uint64_t index;
    bool there;
};
struct model {
    struct versions keys[KEYS];
};
static struct versions *story_of(struct sim *sim, uint32_t key) {
    return &((struct model *)sim_model(sim, &sim_txn))->keys[key];
}

static void end(struct sim *sim) {
    for (uint32_t key = 0; key < KEYS; key++) versions_free(story_of(sim, key));
}

static struct version version_at(struct sim *sim, uint32_t key, uint64_t index) {
    static const struct version none;
    return *(const struct version *)versions_at(story_of(sim, key), sizeof none, index, &none);
}

static void change(struct sim *sim, uint32_t key, struct version version) {
    versions_add(story_of(sim, key), sizeof version, &version);
}

static bool remove_one(struct version *key, uint64_t index) {
    if (key->there) *key = (struct version){index, false};
    return true;
}

/* Applies a step to the keys. False: it fails, and changes nothing. */
static bool try_step(const struct step *step, uint64_t guess, uint64_t index, struct version keys[KEYS]) {
    struct version *key = &keys[step->key];
    bool as_guessed = key->there && key->index == guess;
    switch (step->verb) {
        case PB__TXN_VERB__TXN_GET: return key->there;
        case PB__TXN_VERB__TXN_CHECK_INDEX: return as_guessed;
        case PB__TXN_VERB__TXN_CHECK_NOT_EXISTS: return !key->there;
        case PB__TXN_VERB__TXN_DELETE: return remove_one(key, index);
        case PB__TXN_VERB__TXN_DELETE_CAS: return (!key->there || as_guessed) && remove_one(key, index);
        case PB__TXN_VERB__TXN_DELETE_TREE:
            for (unsigned i = 0; i < KEYS; i++) remove_one(&keys[i], index);
            return true;
        case PB__TXN_VERB__TXN_CAS:
            if (guess == 0 ? key->there : !as_guessed) return false;
            break;
        default: CHECK(step->verb == PB__TXN_VERB__TXN_SET);
    }
    *key = (struct version){index, true};
    return true;
}

static struct sim_expected done(struct sim *sim, const struct sim_applied *applied) {
    const struct txn_own *own = own_of(applied->op);
    const Pb__TxnAnswer *answer = (const Pb__TxnAnswer *)applied->result->message;
    struct version keys[KEYS];
    size_t failures = 0;
    for (uint32_t key = 0; key < KEYS; key++) keys[key] = version_at(sim, key, applied->index);
    uint64_t now = keys[own->key].there ? keys[own->key].index : 0;
    bool chosen = !own->compares || now == own->index[own->key];
    unsigned from = chosen ? 0 : own->split, to = chosen ? own->split : own->count;
    for (unsigned i = from; i < to; i++) {
        if (try_step(&own->steps[i], own->index[own->steps[i].key], applied->index, keys)) continue;
        if (answer && failures < answer->n_errors && answer->errors[failures]->op != i - from)
            sim_violation(sim, RULE_MODEL, "transaction %" P " at %" P ": step %u of it fails, %u is said to",
                          applied->op->id, applied->index, i - from, answer->errors[failures]->op);
        failures++;
    }
    if (!answer || answer->n_errors != failures || (own->compares && answer->succeeded != chosen))
        sim_violation(sim, RULE_MODEL, "transaction %" P " at %" P ": %zu steps fail, expected %zu", applied->op->id,
                      applied->index, answer ? answer->n_errors : 0, failures);
    for (uint32_t key = 0; key < KEYS && !failures; key++)
        if (keys[key].index == applied->index) change(sim, key, keys[key]);
    return failures ? expect_no() : expect_yes();
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    return applied->op ? done(sim, applied) : expect_any(applied);
}

static void judge_all(struct sim *sim, const struct op *op) {
    for (uint32_t key = 0; key < KEYS; key++) {
        struct version version = version_at(sim, key, op->index);
        uint64_t expected = version.there ? version.index : 0, saw = own_of(op)->index[key];
        if (saw != expected)
            sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": key t/%u is of %" P ", expected %" P,
                          op->id, op->server + 1, op->index, key, saw, expected);
    }
}

static void judge_read(struct sim *sim, const struct op *op) {
    if (op->kind == LOOK_ALL) {
        judge_all(sim, op);
        return;
    }
    struct version version = version_at(sim, own_of(op)->key, op->index);
    if (op->seen_index != version.index || op->found != version.there)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": key t/%u changed at %" P ", expected %" P,
                      op->id, op->server + 1, op->index, own_of(op)->key, op->seen_index, version.index);
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    struct op op = {.module = &sim_txn, .kind = LOOK_ALL, .way = OP_READ};
    op_judge(server, &op);
}

const struct sim_module sim_txn = {
    .name = "txn",
    .module = &txn_module,
    .pace = {.clients_least = 0, .clients_most = 3, .think_least_ms = 20, .think_most_ms = 300, .open_most = 2},
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct model),
    .end = end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = op_labelled,
    .request = request,
    .seen = seen,
    .check_read = judge_read,
    .apply = apply,
    .check_end = judge_end,
};
