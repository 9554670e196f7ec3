/* Operations of a transaction. A member of a wrong type is a fault of the whole request (400), as with Consul; an
 * operation that can never succeed is a failure of that operation (409). */
#include "http/api/txn_form.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"
#include "base/text.h"
#include "http/api/catalog_form.h"
#include "kv/fence/fence.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/session/session.h"

void txn_form_fault(struct txn_form *form, int status, const char *format, ...) {
    if (form->status) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(form->text, sizeof form->text, format, arguments);
    va_end(arguments);
    form->status = status;
}

void txn_form_free(struct txn_form *form) { buffer_free(&form->scratch); }

void txn_form_count(struct txn_form *form, size_t count) {
    uint64_t most = http_env(form->request)->txn_ops_max;
    if (count > most)
        txn_form_fault(form, 413,
                       "Transaction contains too many operations (%zu > %llu). See the setting "
                       "coord.txn_max_operations.",
                       count, (unsigned long long)most);
}

/* -- one operation ------------------------------------------------------------------------------------------------ */

/* An operation that is being read. `fault`: of its JSON. */
struct entry {
    struct txn_form *form;
    struct arena *arena;
    Pb__TxnOp *op;
    uint32_t number;
    struct fault fault;
};

/* Notes that the operation can never succeed, whatever is stored. */
static void hopeless(struct entry *entry, const char *what) {
    struct txn_form *form = entry->form;
    if (form->error_count && form->errors[form->error_count - 1]->op == entry->number)
        return; /* one for each operation */
    if (form->error_count == form->error_room) {
        form->error_room = form->error_room ? 2 * form->error_room : 8;
        Pb__TxnError **wider = arena_alloc(entry->arena, form->error_room * sizeof(Pb__TxnError *));
        if (form->error_count) memcpy(wider, form->errors, form->error_count * sizeof *wider);
        form->errors = wider;
    }
    Pb__TxnError *error = form->errors[form->error_count++] = arena_alloc(entry->arena, sizeof *error);
    pb__txn_error__init(error);
    error->op = entry->number, error->what = arena_strndup(entry->arena, what, strlen(what));
}

static void carry(struct entry *entry, uint8_t command, const ProtobufCMessage *message) {
    struct buffer *bytes = &entry->form->scratch;
    buffer_reset(bytes);
    machine_command(bytes, command, message);
    entry->op->command =
        (ProtobufCBinaryData){bytes->size, (uint8_t *)arena_strndup(entry->arena, bytes->data, bytes->size)};
}

enum { OF_KEYS = 1, OF_RECORDS = 2, OF_SESSIONS = 4 };
static const struct verb {
    const char *name;
    Pb__TxnVerb verb;
    unsigned of;
    int kv; /* the verb of the command of keys that it carries; -1: it reads */
} verbs[] = {
    {"set", PB__TXN_VERB__TXN_SET, OF_KEYS | OF_RECORDS, PB__KV_VERB__KV_SET},
    {"cas", PB__TXN_VERB__TXN_CAS, OF_KEYS | OF_RECORDS, PB__KV_VERB__KV_CAS},
    {"lock", PB__TXN_VERB__TXN_ACQUIRE, OF_KEYS, PB__KV_VERB__KV_LOCK},
    {"unlock", PB__TXN_VERB__TXN_RELEASE, OF_KEYS, PB__KV_VERB__KV_UNLOCK},
    {"get", PB__TXN_VERB__TXN_GET, OF_KEYS | OF_RECORDS, -1},
    {"get-tree", PB__TXN_VERB__TXN_GET_TREE, OF_KEYS, -1},
    {"check-index", PB__TXN_VERB__TXN_CHECK_INDEX, OF_KEYS, -1},
    {"check-session", PB__TXN_VERB__TXN_CHECK_SESSION, OF_KEYS, -1},
    {"check-not-exists", PB__TXN_VERB__TXN_CHECK_NOT_EXISTS, OF_KEYS, -1},
    {"delete", PB__TXN_VERB__TXN_DELETE, OF_KEYS | OF_RECORDS | OF_SESSIONS, PB__KV_VERB__KV_DELETE},
    {"delete-tree", PB__TXN_VERB__TXN_DELETE_TREE, OF_KEYS, PB__KV_VERB__KV_DELETE_TREE},
    {"delete-cas", PB__TXN_VERB__TXN_DELETE_CAS, OF_KEYS | OF_RECORDS, PB__KV_VERB__KV_DELETE_CAS},
};

/* NULL: there is no such verb; the error is reported as that of the operation, in their order. */
static const struct verb *read_verb(struct entry *entry, struct json_object *json, unsigned of, const char *noun) {
    const char *name = "";
    json_get_string(json, "Verb", &name, &entry->fault);
    for (size_t i = 0; i < ARRAY_COUNT(verbs); i++) {
        if (!(verbs[i].of & of) || strcmp(verbs[i].name, name) != 0) continue;
        entry->op->verb = verbs[i].verb;
        return &verbs[i];
    }
    entry->op->refused = arena_printf(entry->arena, "unknown %s verb \"%.100s\"", noun, name);
    return NULL;
}

static char *text_of(struct entry *entry, struct json_object *json, const char *name) {
    const char *text = "";
    json_get_string(json, name, &text, &entry->fault);
    return (char *)(uintptr_t)text; /* lives as long as the document: until the request is freed */
}

static uint64_t number_of(struct entry *entry, struct json_object *json, const char *name) {
    uint64_t number = 0;
    json_get_u64(json, name, UINT64_MAX, &number, &entry->fault);
    return number;
}

/* An ID in lower case, as it is stored; a text that is no ID is not changed. */
static char *id_of(struct entry *entry, struct json_object *json, const char *name) {
    char *text = text_of(entry, json, name);
    if (!uuid_valid(slice_text(text))) return text;
    text = arena_strndup(entry->arena, text, strlen(text));
    bytes_lower(text, strlen(text));
    return text;
}

/* -- keys --------------------------------------------------------------------------------------------------------- */

static void read_value(struct entry *entry, struct json_object *json, const char *key, ProtobufCBinaryData *value) {
    struct slice text = {0};
    struct buffer *bytes = &entry->form->scratch;
    uint64_t most = http_env(entry->form->request)->kv_value_max;
    json_get_slice(json, "Value", &text, &entry->fault);
    if (!text.size) return;
    buffer_reset(bytes);
    if (base64_decode(bytes, text) != CO_OK) fault_set(&entry->fault, CO_INVALID, "Value: illegal base64 data");
    else if (bytes->size > most)
        txn_form_fault(entry->form, 413,
                       "Value for key \"%.100s\" is too large (%zu > %llu bytes). See the setting "
                       "limits.kv_max_value_size.",
                       key, bytes->size, (unsigned long long)most);
    else *value = (ProtobufCBinaryData){bytes->size, (uint8_t *)arena_strndup(entry->arena, bytes->data, bytes->size)};
}

static void read_fence(struct entry *entry, struct json_object *json) {
    Pb__TxnOp *op = entry->op;
    op->fence = text_of(entry, json, "Fence"), op->token = number_of(entry, json, "Token");
    if (!json_get(json, "Fence") && !json_get(json, "Token")) return;
    if (!op->token || !queue_name_fits(slice_text(op->fence)))
        fault_set(&entry->fault, CO_INVALID, "Fence: with the name of a lock, and as Token that of its holder");
}

static void read_key(struct entry *entry, struct json_object *json) {
    static const char *const known[] = {"Verb",  "Key",   "Value", "Flags",     "Index", "Session",
                                        "Lease", "Fence", "Token", "Namespace", NULL};
    Pb__TxnOp *op = entry->op;
    struct slice key = {"", 0};
    json_only_known(json, known, &entry->fault);
    const struct verb *verb = read_verb(entry, json, OF_KEYS, "KV");
    json_get_slice(json, "Key", &key, &entry->fault);
    op->key = message_bytes(key);
    op->index = number_of(entry, json, "Index");
    op->session = id_of(entry, json, "Session");
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.flags = number_of(entry, json, "Flags"), command.lease = id_of(entry, json, "Lease");
    read_value(entry, json, key.data ? key.data : "", &command.value);
    read_fence(entry, json);
    if (key.size == 0 && op->verb != PB__TXN_VERB__TXN_DELETE_TREE) hopeless(entry, "Must provide key");
    if (command.lease[0] && !uuid_valid(slice_text(command.lease)))
        hopeless(entry, "Lease: it is not the ID of a lease");
    if (!verb || verb->kv < 0) return;
    command.verb = (Pb__KvVerb)verb->kv;
    command.key = op->key, command.index = op->index, command.session = op->session;
    carry(entry, KV_APPLY, &command.base);
}

/* -- the catalog -------------------------------------------------------------------------------------------------- */

static struct catalog_form record_form(const struct entry *entry) {
    return (struct catalog_form){.arena = entry->arena};
}

/* A wrong type in the record is a fault of the request. */
static void record_read(struct entry *entry, const struct catalog_form *form) {
    if (form->fault.code) fault_set(&entry->fault, CO_INVALID, "%s", form->fault.text);
}

static bool sets(const struct verb *verb) {
    return verb && (verb->verb == PB__TXN_VERB__TXN_SET || verb->verb == PB__TXN_VERB__TXN_CAS);
}

static void carry_removal(struct entry *entry, const char *service_id, const char *check_id) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = entry->op->node;
    command.service_id = (char *)(uintptr_t)service_id, command.check_id = (char *)(uintptr_t)check_id;
    carry(entry, CATALOG_DEREGISTER, &command.base);
}

static void read_node(struct entry *entry, struct json_object *json) {
    static const char *const known[] = {"Verb", "Node", NULL};
    static const char *const members[] = {"ID",   "Node",      "Address",     "Datacenter",  "TaggedAddresses",
                                          "Meta", "Namespace", "CreateIndex", "ModifyIndex", NULL};
    struct catalog_form form = record_form(entry);
    struct fault judged = {0};
    json_only_known(json, known, &entry->fault);
    const struct verb *verb = read_verb(entry, json, OF_RECORDS, "Node");
    struct json_object *record = json_get_object(json, "Node", &entry->fault);
    json_only_known(record, members, &form.fault);
    Pb__Node *node = catalog_form_node(&form, record, "Meta", http_env(entry->form->request)->datacenter);
    record_read(entry, &form);
    entry->op->node = node->name, entry->op->index = number_of(entry, record, "ModifyIndex");
    if (verb && verb->verb == PB__TXN_VERB__TXN_GET) {
        entry->op->id = node->id;
        return;
    }
    catalog_judge_node(node, &judged);
    if (judged.code) hopeless(entry, judged.text);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    command.node = node;
    if (sets(verb)) carry(entry, CATALOG_REGISTER, &command.base);
    else if (verb) carry_removal(entry, "", "");
}

/* Adds a registration of something on an existing node. */
static void carry_on_node(struct entry *entry, Pb__Service *service, Pb__Check *check) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    node.name = entry->op->node;
    command.node = &node, command.skip_node_update = true;
    command.service = service;
    command.checks = &check, command.n_checks = check != NULL;
    carry(entry, CATALOG_REGISTER, &command.base);
}

static void read_service(struct entry *entry, struct json_object *json) {
    static const char *const known[] = {"Verb", "Node", "Service", NULL};
    struct catalog_form form = record_form(entry);
    struct fault judged = {0};
    json_only_known(json, known, &entry->fault);
    const struct verb *verb = read_verb(entry, json, OF_RECORDS, "Service");
    entry->op->node = catalog_form_text(&form, json, "Node");
    struct json_object *record = json_get_object(json, "Service", &entry->fault);
    Pb__Service *service = catalog_form_service(&form, record, entry->op->node);
    record_read(entry, &form);
    entry->op->id = service->id, entry->op->index = number_of(entry, record, "ModifyIndex");
    if (!verb || verb->verb == PB__TXN_VERB__TXN_GET) return;
    if (sets(verb)) catalog_judge_service(service, &judged);
    else if (!*service->id) service->id = service->name;
    if (judged.code) hopeless(entry, judged.text);
    else if (!*service->id) hopeless(entry, "Must provide service ID");
    entry->op->id = service->id;
    if (sets(verb)) carry_on_node(entry, service, NULL);
    else carry_removal(entry, service->id, "");
}

static void read_check(struct entry *entry, struct json_object *json) {
    static const char *const known[] = {"Verb", "Check", NULL};
    struct catalog_form form = record_form(entry);
    struct fault judged = {0};
    json_only_known(json, known, &entry->fault);
    const struct verb *verb = read_verb(entry, json, OF_RECORDS, "Check");
    struct json_object *record = json_get_object(json, "Check", &entry->fault);
    Pb__Check *check = catalog_form_check(&form, record);
    record_read(entry, &form);
    entry->op->node = check->node, entry->op->id = check->check_id;
    entry->op->index = number_of(entry, record, "ModifyIndex");
    if (!verb || verb->verb == PB__TXN_VERB__TXN_GET) return;
    catalog_judge_check(record, check, &judged);
    if (judged.code) hopeless(entry, judged.text);
    entry->op->id = check->check_id;
    if (sets(verb)) carry_on_node(entry, NULL, check);
    else carry_removal(entry, "", check->check_id);
}

/* -- sessions and fences ------------------------------------------------------------------------------------------ */

static void read_session(struct entry *entry, struct json_object *json) {
    static const char *const known[] = {"Verb", "Session", NULL};
    json_only_known(json, known, &entry->fault);
    const struct verb *verb = read_verb(entry, json, OF_SESSIONS, "Session");
    struct json_object *record = json_get_object(json, "Session", &entry->fault);
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = id_of(entry, record, "ID");
    command.now_unix_ms = clock_wall_ns() / 1000000;
    if (!uuid_valid(slice_text(command.id))) hopeless(entry, "Session: ID is not that of a session");
    if (verb) carry(entry, SESSION_DESTROY, &command.base);
}

static void read_fence_check(struct entry *entry, struct json_object *json) {
    static const char *const known[] = {"Resource", "Token", "Lock", NULL};
    json_only_known(json, known, &entry->fault);
    Pb__FenceCheckCommand command = PB__FENCE_CHECK_COMMAND__INIT;
    command.resource = entry->op->id = text_of(entry, json, "Resource");
    command.token = number_of(entry, json, "Token");
    command.lock = text_of(entry, json, "Lock");
    carry(entry, FENCE_CHECK, &command.base);
}

/* -- the list ----------------------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    Pb__TxnThing thing;
    void (*read)(struct entry *entry, struct json_object *json);
} kinds[] = {
    {"KV", PB__TXN_THING__TXN_KEY, read_key},
    {"Node", PB__TXN_THING__TXN_NODE, read_node},
    {"Service", PB__TXN_THING__TXN_SERVICE, read_service},
    {"Check", PB__TXN_THING__TXN_CHECK, read_check},
    {"Session", PB__TXN_THING__TXN_SESSION, read_session},
    {"Fence", PB__TXN_THING__TXN_FENCE, read_fence_check},
};

static void read_op(struct entry *entry, struct json_object *json) {
    static const char *const known[] = {"KV", "Node", "Service", "Check", "Session", "Fence", NULL};
    const struct kind *kind = NULL;
    if (!json_object_is_type(json, json_type_object)) {
        fault_set(&entry->fault, CO_INVALID, "an object is wanted, not %s", json_kind(json));
        return;
    }
    json_only_known(json, known, &entry->fault);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (!json_get(json, kinds[i].name)) continue;
        if (kind) fault_set(&entry->fault, CO_INVALID, "it is of two kinds, %s and %s", kind->name, kinds[i].name);
        kind = &kinds[i];
    }
    if (!kind) fault_set(&entry->fault, CO_INVALID, "one of KV, Node, Service, Check, Session and Fence is wanted");
    if (entry->fault.code) return;
    struct json_object *object = json_get_object(json, kind->name, &entry->fault);
    entry->op->thing = kind->thing;
    if (object) kind->read(entry, object);
}

void txn_form_ops(struct txn_form *form, struct json_object *list, const char *where, Pb__TxnOp ***ops, size_t *count) {
    struct arena *arena = http_arena(form->request);
    size_t length = list && !form->status ? json_object_array_length(list) : 0;
    *ops = arena_alloc(arena, (length + 1) * sizeof **ops);
    *count = 0;
    for (size_t i = 0; i < length && !form->status; i++) {
        struct entry entry = {.form = form, .arena = arena, .number = (uint32_t)i};
        entry.op = (*ops)[(*count)++] = arena_alloc(arena, sizeof *entry.op);
        pb__txn_op__init(entry.op);
        read_op(&entry, json_object_array_get_idx(list, i));
        if (entry.fault.code)
            txn_form_fault(form, 400, "Failed to parse body: %s[%zu]: %s", where, i, entry.fault.text);
        if (form->error_count && *where) /* there are two lists, so the message names the list too */
            txn_form_fault(form, 400, "%s[%zu]: %s", where, i, form->errors[0]->what);
    }
}
