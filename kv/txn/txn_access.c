/* The rules for transactions: each operation is judged by the module whose thing it is about. */
#include "base/message.h"
#include "kv/election/election.h"
#include "kv/fence/fence.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/session/session.h"
#include "kv/txn/txn_internal.h"
#include "registry/catalog.h"
#include "registry/module_access.h"

struct judge {
    struct access_check *check;
    struct store_txn *txn;
};

/* The subject of an operation or a comparison. */
struct thing {
    Pb__TxnThing kind;
    ProtobufCBinaryData key;
    const char *node, *id;
};

/* -- reads -------------------------------------------------------------------------------------------------------- */

static int denied(struct judge *judge, enum access_resource resource, const char *name) {
    judge->check->missing = (struct access_missing){
        .resource = resource, .level = ACCESS_READ, .name = slice_copy(judge->check->arena, slice_text(name))};
    return CO_DENIED;
}

/* Of a query whose rule needs nothing but the name. */
static int name_read(struct judge *judge, const struct query_type *query, const ProtobufCMessage *request) {
    struct query_result nothing = {0};
    return query->show(judge->check, judge->txn, request, &nothing);
}

static int key_read(struct judge *judge, const struct query_type *query, ProtobufCBinaryData key) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = key;
    return name_read(judge, query, &request.base);
}

static int queue_read(struct judge *judge, const struct query_type *query, const char *name) {
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    return name_read(judge, query, &request.base);
}

/* Runs a query about a node, and leaves of its result what may be read. */
static int node_ask(struct judge *judge, const struct query_type *query, const char *node,
                    struct query_result *result) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)(uintptr_t)node;
    int rv = query->run(judge->txn, &request.base, judge->check->arena, result);
    return rv == CO_OK ? query->show(judge->check, judge->txn, &request.base, result) : rv;
}

/* Also of a node that is not there: which ones there are is for those who may read them. */
static int node_read(struct judge *judge, const char *node) {
    return access_require(judge->check, ACCESS_NODE, slice_text(node), ACCESS_READ);
}

/* A denial has the names of the request: the record's own may be hidden. */
static int service_read(struct judge *judge, const char *node, const char *id) {
    Pb__Service *service;
    struct query_result shown;
    int rv = node_read(judge, node);
    if (rv == CO_OK)
        rv = catalog_service_get(judge->txn, slice_text(node), slice_text(id), judge->check->arena, &service);
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv == CO_OK) rv = node_ask(judge, &query_node_services, node, &shown);
    if (rv != CO_OK) return rv;
    const Pb__NodeServicesResult *list = shown.found ? (const Pb__NodeServicesResult *)shown.message : NULL;
    for (size_t i = 0; list && i < list->n_services; i++)
        if (strcmp(list->services[i]->id, service->id) == 0) return CO_OK;
    return denied(judge, ACCESS_SERVICE, id);
}

static int check_read(struct judge *judge, const char *node, const char *id) {
    Pb__Check *check;
    struct query_result shown;
    int rv = node_read(judge, node);
    if (rv == CO_OK) rv = catalog_check_get(judge->txn, slice_text(node), slice_text(id), judge->check->arena, &check);
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv == CO_OK) rv = node_ask(judge, &query_node_checks, node, &shown);
    if (rv != CO_OK) return rv;
    const Pb__ChecksResult *list = (const Pb__ChecksResult *)shown.message;
    for (size_t i = 0; list && i < list->n_checks; i++)
        if (strcmp(list->checks[i]->check_id, check->check_id) == 0) return CO_OK;
    return denied(judge, check->service_name[0] ? ACCESS_SERVICE : ACCESS_NODE, id);
}

/* CO_OK, CO_DENIED, or the store failed. */
static int may_read(struct judge *judge, const struct thing *thing) {
    const char *node = thing->node;
    switch (thing->kind) {
        case PB__TXN_THING__TXN_KEY: return key_read(judge, &query_kv_get, thing->key);
        case PB__TXN_THING__TXN_LOCK: return queue_read(judge, &query_lock, thing->id);
        case PB__TXN_THING__TXN_ELECTION: return queue_read(judge, &query_election, thing->id);
        case PB__TXN_THING__TXN_SERVICE: return service_read(judge, node, thing->id);
        case PB__TXN_THING__TXN_CHECK: return check_read(judge, node, thing->id);
        case PB__TXN_THING__TXN_NODE: break;
        default: return CO_OK; /* sessions and fences: only their commands say anything */
    }
    if (thing->id[0]) { /* by its ID */
        Pb__Node *record;
        int rv = catalog_node_by_id(judge->txn, slice_text(thing->id), judge->check->arena, &record);
        if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
        node = record->name;
    }
    int rv = node_read(judge, node);
    return rv == CO_DENIED && thing->id[0] ? denied(judge, ACCESS_NODE, thing->id) : rv;
}

/* -- the keys that a get-tree gives ------------------------------------------------------------------------------- */

struct shown_rules {
    struct arena *arena;
    struct slice below;
    Pb__TxnShown *shown;
    size_t room;
};

static void add_rule(void *data, enum access_resource resource, bool prefix, struct slice name,
                     enum access_level level) {
    struct shown_rules *rules = data;
    Pb__TxnShown *shown = rules->shown;
    if (resource == ACCESS_RESOURCES) shown->other = level >= ACCESS_READ;
    bool counts = slice_starts(name, rules->below) || (prefix && slice_starts(rules->below, name));
    if (resource != ACCESS_KEY || !counts) return;
    if (shown->n_rules == rules->room) {
        rules->room = rules->room ? 2 * rules->room : 8;
        Pb__TxnShownRule **wider = arena_alloc(rules->arena, rules->room * sizeof *wider);
        if (shown->n_rules) memcpy(wider, shown->rules, shown->n_rules * sizeof *wider);
        shown->rules = wider;
    }
    Pb__TxnShownRule *rule = shown->rules[shown->n_rules++] = arena_alloc(rules->arena, sizeof *rule);
    pb__txn_shown_rule__init(rule);
    rule->name = message_bytes(slice_copy(rules->arena, name));
    rule->prefix = prefix, rule->read = level >= ACCESS_READ;
}

/* The keys are known only when the transaction is applied, so it takes the rules with it. */
static int tree_read(struct judge *judge, Pb__TxnOp *op) {
    struct access_check *check = judge->check;
    struct slice below = message_slice(op->key);
    int rv = key_read(judge, &query_kv_list, op->key);
    if (rv != CO_OK || access_allows_below(check->access, ACCESS_KEY, below, ACCESS_READ)) return rv;
    op->shown = arena_alloc(check->arena, sizeof *op->shown);
    pb__txn_shown__init(op->shown);
    access_each(check->access, &(struct shown_rules){check->arena, below, op->shown, 0}, add_rule);
    return CO_OK;
}

struct access *txn_shown_keys(const Pb__TxnOp *op) {
    if (!op->shown) return NULL;
    struct access *access = access_new(op->shown->other ? ACCESS_READ : ACCESS_DENY);
    for (size_t i = 0; i < op->shown->n_rules; i++) {
        const Pb__TxnShownRule *rule = op->shown->rules[i];
        access_add(access, ACCESS_KEY, rule->prefix, message_slice(rule->name), rule->read ? ACCESS_READ : ACCESS_DENY);
    }
    access_seal(access);
    return access;
}

/* -- operations --------------------------------------------------------------------------------------------------- */

static const struct module_command *row_of(uint8_t number) {
    static const struct module *const carried[] = {&kv_module, &catalog_module, &session_module, &fence_module};
    for (size_t i = 0; i < ARRAY_COUNT(carried); i++)
        for (const struct module_command *row = carried[i]->commands; row->number; row++)
            if (row->number == number) return row;
    return NULL;
}

/* The operation's own fields should say the same as its command, but they come from another process. */
static int write_judge(struct judge *judge, Pb__TxnOp *op, const struct thing *thing) {
    struct slice bytes = message_slice(op->command);
    const struct module_command *row = row_of((uint8_t)bytes.data[0]);
    if (!row || !row->may || bytes.size < 2) { /* only newer programs, or forgers, make such transactions */
        op->refused = (char *)(uintptr_t) "the operation cannot be done here";
        return CO_OK;
    }
    const ProtobufCMessage *command =
        machine_decode(row->request, slice_make(bytes.data + 2, bytes.size - 2), judge->check->arena);
    if (!command) return CO_OK;
    int rv = row->may(judge->check, judge->txn, command);
    if (rv != CO_OK) return rv;
    rv = may_read(judge, thing);
    bool compares = op->verb == PB__TXN_VERB__TXN_CAS || op->verb == PB__TXN_VERB__TXN_DELETE_CAS;
    if (rv != CO_DENIED || compares) return rv;
    op->hidden = true;
    return CO_OK;
}

static int op_judge(struct judge *judge, Pb__TxnOp *op) {
    struct thing thing = {op->thing, op->key, op->node, op->id};
    op->hidden = false, op->shown = NULL;
    if (op->refused[0]) return CO_OK;
    int rv = op->fence[0] ? queue_read(judge, &query_lock, op->fence) : CO_OK;
    if (rv != CO_OK) return rv;
    if (op->command.len) return write_judge(judge, op, &thing);
    if (op->verb == PB__TXN_VERB__TXN_GET_TREE) return tree_read(judge, op);
    rv = may_read(judge, &thing);
    if (rv != CO_DENIED || op->verb != PB__TXN_VERB__TXN_GET) return rv;
    op->hidden = true;
    judge->check->hidden++;
    return CO_OK;
}

static int ops_judge(struct judge *judge, Pb__TxnOp **ops, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int rv = op_judge(judge, ops[i]);
        if (rv == CO_DENIED) ops[i]->refused = access_denied_text(judge->check);
        else if (rv != CO_OK) return rv;
    }
    return CO_OK;
}

int txn_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    Pb__TxnCommand *command = (Pb__TxnCommand *)(uintptr_t)request;
    struct judge judge = {check, txn};
    for (size_t i = 0; i < command->n_compares; i++) {
        const Pb__TxnCompare *compare = command->compares[i];
        struct thing thing = {compare->thing, compare->key, compare->node, compare->id};
        int rv = may_read(&judge, &thing);
        if (rv != CO_OK) return rv;
    }
    int rv = ops_judge(&judge, command->ops, command->n_ops);
    return rv == CO_OK ? ops_judge(&judge, command->otherwise, command->n_otherwise) : rv;
}
